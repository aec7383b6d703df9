"""The order in which a writer writes, syncs and renames: the order is the promise."""

import errno
import os
from collections.abc import Callable

import pytest

from beanstalk_twisted.binlog.errors import MORE_DESCRIPTORS, NoSpace, WriteFailed
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment
from beanstalk_twisted.binlog.writer import NO_SPACE, spare_name
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory, MemoryFile, fails_at
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, put

ONE, TWO = "00000000000000000001.tql", "00000000000000000002.tql"
LARGE = put(1, b"x" * 9000)


class Watched:
    """A directory that notes what is done to it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.directory = MemoryDirectory()
        self.directory.fault = lambda operation, name: self.steps.append(f"{operation} {name}")
        self.scribe = Scribe(self.directory)

    def steps_of(self, action: Callable[[], object]) -> list[str]:
        self.steps.clear()
        action()
        return self.steps


def test_a_sync_alone_is_one_sync() -> None:
    watched = Watched()
    watched.scribe.writer.sync()
    assert watched.steps == [], "there is no segment yet"
    watched.scribe.write(put(), sync=False)
    assert watched.steps_of(watched.scribe.writer.sync) == [f"sync {spare_name(1)}"]


def test_a_spare_is_made_ready_and_then_used_without_asking_for_space_again() -> None:
    watched = Watched()
    watched.scribe.write(DEFAULT_TUBE)
    spare = PreallocatedSegment(9, 20_000, True)
    name = spare_name(9)
    assert watched.steps_of(lambda: watched.scribe.writer.prepare(spare)) == [
        f"create {name}", f"allocate {name}",
    ]  # fmt: skip
    assert len(watched.directory.read(name)) == 20_000
    watched.scribe.log.budget.add(spare)
    steps = watched.steps_of(lambda: watched.scribe.write(LARGE))
    assert steps[-4:] == [f"write {name}", f"sync {name}", f"rename {TWO}", "sync directory "]
    assert not any(step.startswith(("create", "allocate")) for step in steps)


@pytest.mark.parametrize("code", sorted(NO_SPACE))
@pytest.mark.parametrize("nth", [1, 2])
def test_a_spare_that_the_disk_refuses_leaves_nothing_behind(nth: int, code: int) -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    scribe.memory.fault = fails_at(nth, code)
    spare = PreallocatedSegment(9, 20_000, True)
    with pytest.raises(NoSpace, match="no space for another segment"):
        scribe.writer.prepare(spare)
    assert scribe.memory.names() == [ONE]
    scribe.writer.prepare(spare)
    assert scribe.memory.names() == [ONE, spare_name(9)]


def test_a_spare_that_fails_otherwise_is_no_lack_of_space() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    scribe.memory.fault = fails_at(2, errno.EIO)
    with pytest.raises(WriteFailed) as caught:
        scribe.writer.prepare(PreallocatedSegment(9, 20_000, True))
    assert not isinstance(caught.value, NoSpace)
    assert spare_name(9) in str(caught.value)
    assert scribe.memory.names() == [ONE]


class Uncloseable(MemoryFile):
    """A file of a network file system, which refuses what it has not written yet at its end."""

    def close(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Remote(MemoryDirectory):
    """A directory of such files."""

    def open(self, name: str) -> MemoryFile:
        return Uncloseable(self, name, self.inode(name))


def test_a_spare_that_cannot_even_be_closed_is_removed_and_made_again() -> None:
    scribe = Scribe(Remote())
    scribe.write(DEFAULT_TUBE)
    scribe.memory.fault = fails_at(2, errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(NoSpace):
            scribe.writer.prepare(PreallocatedSegment(9, 20_000, True))
        assert scribe.memory.names() == [ONE]
        scribe.memory.fault = fails_at(2, errno.ENOSPC)


def test_space_is_allocated_for_the_whole_segment_and_cut_when_it_is_sealed() -> None:
    scribe = Scribe(segment_bytes=1 << 14)
    scribe.write(DEFAULT_TUBE)
    assert len(scribe.files()[ONE]) == 1 << 14
    scribe.write(put(1, b"x" * 20_000))
    raw = scribe.files()[ONE]
    segment = independent_reader.segment_of(raw)
    assert len(raw) == segment["end"] + 40 < 1 << 14


@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whatever_fails_while_a_segment_begins_is_said_and_nothing_is_published(
    nth: int, code: int
) -> None:
    scribe = Scribe()
    scribe.memory.fault = fails_at(nth, code)
    with pytest.raises(WriteFailed) as caught:
        scribe.write(put())
    assert os.strerror(code) in str(caught.value)
    # What a sync or a rename has not done cannot be known: it is no mere lack of space.
    if code == errno.ENOSPC and nth <= 3:
        assert isinstance(caught.value, NoSpace)
        assert caught.value.exit_code == 73
        assert "nothing was lost" in str(caught.value)
        assert str(caught.value).endswith(" Free some space, then start it again.")
        assert "newest changes, which wait: " in caught.value.meanwhile
        assert caught.value.meanwhile.endswith("; it is tried again every second.")
        assert scribe.memory.names() == []
    else:
        assert not isinstance(caught.value, NoSpace)
        assert caught.value.exit_code == 74
        assert ONE in str(caught.value)
        assert "binlog-inspect check" in str(caught.value)
    assert scribe.log.durable_lsn == 0
    assert ONE not in scribe.memory.after_power_loss().names()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_batch_that_found_no_space_can_be_written_again(nth: int) -> None:
    scribe = Scribe()
    scribe.log.append(put())
    batch = scribe.log.take(T0)
    assert batch is not None
    scribe.memory.fault = fails_at(nth, errno.ENOSPC)
    with pytest.raises(NoSpace):
        scribe.writer.write(batch, True)
    assert scribe.writer.write(batch, True)
    assert [r["type"] for r in independent_reader.read_log(scribe.files())["records"]] == [1]


def test_a_ready_spare_is_kept_when_even_that_finds_no_space() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    spare = PreallocatedSegment(9, 20_000, True)
    scribe.writer.prepare(spare)
    scribe.log.budget.add(spare)
    scribe.log.append(LARGE)
    seal, batch = scribe.log.take(T0), scribe.log.take(T0)
    assert seal is not None and batch is not None
    scribe.writer.write(seal, True)
    scribe.memory.fault = fails_at(1, errno.ENOSPC)
    with pytest.raises(NoSpace):
        scribe.writer.write(batch, True)
    assert spare_name(9) in scribe.memory.names()
    assert scribe.writer.write(batch, True)


def test_a_failed_sync_alone_is_said() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    scribe.memory.fault = fails_at(1, errno.EIO)
    with pytest.raises(WriteFailed, match="failed: Input/output error; ") as caught:
        scribe.writer.sync()
    # It does not know which policy is in force, so what it says is true under each.
    assert "; with --fsync always no reply was given for what is not on disk. " in str(caught.value)


def test_an_error_that_is_not_the_disks_is_not_called_one() -> None:
    scribe = Scribe()

    def crash(operation: str, name: str) -> None:
        raise ZeroDivisionError

    scribe.memory.fault = crash
    with pytest.raises(ZeroDivisionError):
        scribe.write(put())


def test_a_writer_says_what_has_become_of_the_segment_that_it_writes() -> None:
    scribe = Scribe()
    assert scribe.writer.displaced() == "", "there is none yet"
    scribe.write(DEFAULT_TUBE)
    assert scribe.writer.displaced() == ""
    scribe.write(LARGE)
    assert scribe.memory.names() == [ONE, TWO]
    assert scribe.writer.displaced() == ""
    scribe.memory.remove(ONE)
    assert scribe.writer.displaced() == "", "it is written no more"
    scribe.memory.rename(TWO, "elsewhere")
    assert scribe.writer.displaced() == f"{TWO} is now (memory)/elsewhere"
    scribe.writer.close()
    assert scribe.writer.displaced() == ""


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EIO, "Mend the disk"), (errno.EROFS, "Mount the file system to be written"),
        (errno.EMFILE, MORE_DESCRIPTORS), (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "Free some space or raise the quota"), (errno.EFBIG, "'ulimit -f'"),
    ],
)  # fmt: skip
def test_an_error_says_what_to_do_about_it(code: int, advice: str) -> None:
    scribe = Scribe()
    scribe.memory.fault = fails_at(1, code)
    with pytest.raises(WriteFailed) as caught:
        scribe.write(put())
    assert advice in str(caught.value)
