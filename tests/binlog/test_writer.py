"""
The order in which a writer writes, syncs and renames: the order is the promise.
"""

import errno
import os
from collections.abc import Callable

import pytest

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.binlog.writer import spare_name
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, put

ONE, TWO = "00000000000000000001.tql", "00000000000000000002.tql"
FILLS = put(1, b"x" * 9000)


class Watched:
    """
    A directory that notes what is done to it.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.directory = MemoryDirectory()
        self.directory.fault = lambda operation, name: self.steps.append(f"{operation} {name}")
        self.scribe = Scribe(self.directory)

    def steps_of(self, action: Callable[[], object]) -> list[str]:
        """
        What an action does.
        """
        self.steps.clear()
        action()
        return self.steps


def test_a_segment_has_its_content_before_its_name() -> None:
    watched = Watched()
    spare = spare_name(1)
    assert watched.steps_of(lambda: watched.scribe.write(DEFAULT_TUBE)) == [
        f"create {spare}", f"allocate {spare}", f"write {spare}", f"sync {spare}",
        f"rename {ONE}", "sync directory ",
    ]  # fmt: skip


def test_beginning_a_segment_makes_it_durable_even_if_nobody_asked() -> None:
    watched = Watched()
    watched.scribe.write(put(), sync=False)
    assert watched.scribe.log.durable_lsn == 1


def test_a_batch_is_written_then_synced_if_asked_for() -> None:
    watched = Watched()
    watched.scribe.write(DEFAULT_TUBE)
    # The open file goes on under the name it was created with.
    written = f"write {spare_name(1)}"
    assert watched.steps_of(lambda: watched.scribe.write(put(1), sync=False)) == [written]
    assert watched.scribe.log.durable_lsn == 1
    assert watched.steps_of(lambda: watched.scribe.write(put(2))) == [
        written, f"sync {spare_name(1)}",
    ]  # fmt: skip
    assert watched.scribe.log.durable_lsn == 3


def test_a_sync_alone_is_one_sync() -> None:
    watched = Watched()
    watched.scribe.writer.sync()
    assert watched.steps == [], "there is no segment yet"
    watched.scribe.write(put(), sync=False)
    assert watched.steps_of(watched.scribe.writer.sync) == [f"sync {spare_name(1)}"]


def test_a_full_segment_is_durable_before_its_successor_exists() -> None:
    watched = Watched()
    watched.scribe.write(DEFAULT_TUBE)
    one, two = spare_name(1), spare_name(2)
    assert watched.steps_of(lambda: watched.scribe.write(FILLS, sync=False)) == [
        f"write {one}", f"truncate {one}", f"sync {one}",
    ]  # fmt: skip
    assert watched.scribe.log.durable_lsn == watched.scribe.log.last_lsn
    steps = watched.steps_of(watched.scribe.write)
    assert steps[0] == f"create {two}"
    assert steps[-2:] == [f"rename {TWO}", "sync directory "]


def test_a_batch_can_begin_and_fill_a_segment() -> None:
    watched = Watched()
    steps = watched.steps_of(lambda: watched.scribe.write(FILLS))
    assert [step.split()[0] for step in steps] == [
        "create", "allocate", "write", "sync", "rename", "sync", "truncate", "sync",
    ]  # fmt: skip


def test_space_is_allocated_for_the_whole_segment_and_cut_when_it_is_sealed() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    assert len(scribe.files()[ONE]) == 8192
    scribe.write(put(1, b"x" * 10_000))
    raw = scribe.files()[ONE]
    segment = independent_reader.read_segment(raw)
    assert segment is not None
    assert len(raw) == segment["end"] + 40


def test_an_ordered_stop_is_durable() -> None:
    scribe = Scribe()
    scribe.write(put())
    scribe.finish()
    assert isinstance(scribe.directory, MemoryDirectory)
    kept = scribe.directory.after_power_loss()
    assert independent_reader.read_log({ONE: bytes(kept.read(ONE))})["records"][-1]["type"] == 49


def refuses(nth: int, code: int) -> Callable[[str, str], None]:
    """
    A disk whose nth operation from now on fails.
    """
    left = nth

    def fault(operation: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(code, os.strerror(code))

    return fault


@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whatever_fails_while_a_segment_begins_is_said_and_nothing_is_published(
    nth: int, code: int
) -> None:
    scribe = Scribe()
    assert isinstance(scribe.directory, MemoryDirectory)
    scribe.directory.fault = refuses(nth, code)
    with pytest.raises(WriteFailed) as caught:
        scribe.write(put())
    assert caught.value.exit_code == 74
    assert os.strerror(code) in str(caught.value)
    assert ONE in str(caught.value)
    assert "binlog-inspect check" in str(caught.value)
    assert scribe.log.durable_lsn == 0
    assert ONE not in scribe.directory.after_power_loss().names()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_write_or_sync_promises_nothing(nth: int) -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    assert isinstance(scribe.directory, MemoryDirectory)
    scribe.directory.fault = refuses(nth, errno.EIO)
    with pytest.raises(WriteFailed):
        scribe.write(put())
    assert scribe.log.durable_lsn == 1


def test_a_failed_sync_alone_is_said() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    assert isinstance(scribe.directory, MemoryDirectory)
    scribe.directory.fault = refuses(1, errno.EIO)
    with pytest.raises(WriteFailed, match="no reply was given"):
        scribe.writer.sync()


def test_an_error_that_is_not_the_disks_is_not_called_one() -> None:
    scribe = Scribe()
    assert isinstance(scribe.directory, MemoryDirectory)

    def crash(operation: str, name: str) -> None:
        raise ZeroDivisionError

    scribe.directory.fault = crash
    with pytest.raises(ZeroDivisionError):
        scribe.write(put())
