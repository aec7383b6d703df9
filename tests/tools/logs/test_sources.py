"""From arguments to logs, and nothing is touched."""

import os
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.files import COPY_BYTES, HELD_FILES, TO_END, LocalFiles
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.binlog.writer import spare_name
from binlog_tools.logs.opening import open_source, open_sources
from binlog_tools.logs.sources import NoLog, Source
from tests.binlog.make_golden import GOLDEN, STORES, read_golden
from tests.binlog.scribe import DEFAULT_TUBE, UUID, Scribe, put, quiet
from tests.tools.folders import archived, stats, written

ONE, TWO = segment_name(1), segment_name(2)


@pytest.mark.parametrize("name", STORES)
def test_a_survey_is_the_servers_and_touches_nothing(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log", read_golden(name))
    path.chmod(0o500)
    before = stats(path)
    survey = open_source(str(path)).survey()
    theirs = Survey(open_source(str(path)), quiet)
    assert survey.problems == theirs.problems
    assert survey.segments == theirs.segments
    assert stats(path) == before


def test_a_copy_of_an_unfinished_segment_is_whole(tmp_path: Path) -> None:
    raw = bytes(range(1, 256)) * 12_000 + bytes(2 * COPY_BYTES) + b"end"
    path = written(tmp_path / "log", {ONE: raw})
    assert bytes(open_source(str(path)).read(ONE)) == raw
    (path / ONE).write_bytes(b"")
    assert bytes(open_source(str(path)).read(ONE)) == b""


def test_the_newest_segment_stays_as_it_was_seen_until_one_looks_again(tmp_path: Path) -> None:
    files = {**read_golden("v1-torn"), spare_name(1): bytes(8192), "LOCK": b"me", "lock": b""}
    path = written(tmp_path / "log", files)
    source = open_source(str(path))
    source.names()
    before = bytes(source.read(ONE))
    (path / ONE).write_bytes(b"else")
    assert bytes(source.read(ONE)) == before
    source.names()
    assert bytes(source.read(ONE)) == b"else"


def test_a_segment_may_be_cut_under_the_reader(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"x" * 100))
    path = written(tmp_path / "log", scribe.files())
    source = open_source(str(path))
    source.names()
    buffer = source.read(ONE)
    os.truncate(path / ONE, 0)
    assert bytes(buffer) == scribe.files()[ONE]


def test_an_empty_directory_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(NoLog, match="there is no log here"):
        open_source(str(tmp_path)).survey()


def test_an_archive_is_a_log_by_its_root_and_by_its_store(tmp_path: Path) -> None:
    files = read_golden("v1-rotated")
    root = archived(tmp_path / "archive", files)
    for path in (root, root / UUID.hex()):
        source = open_source(str(path))
        assert source.is_partial
        assert list(source.segment_names().values()) == [ONE, TWO]
        assert bytes(source.read(TWO)) == files[TWO]
        assert not source.survey().problems


def test_an_archive_of_two_stores_is_two_logs(tmp_path: Path) -> None:
    root = archived(tmp_path / "archive", read_golden("v1-rotated"))
    (root / ("ab" * 16)).mkdir()
    written(root / ("ab" * 16), {"1-1.tql": b""})
    assert [len(source.segment_names()) for source in open_sources([str(root)])] == [2, 1]
    with pytest.raises(OSError, match="there are 2 stores here"):
        open_source(str(root))


def test_a_segment_that_an_archive_has_twice_is_named(tmp_path: Path) -> None:
    root = archived(tmp_path / "archive", read_golden("v1-rotated"))
    written(root / UUID.hex(), {"2-77.tql": b""})
    with pytest.raises(OSError, match="segment 2 is there twice; see 'binlog-inspect archive-ver"):
        open_source(str(root)).segment_names()


def test_files_of_one_folder_are_one_log_whatever_they_are_called(tmp_path: Path) -> None:
    files = read_golden("v1-rotated")
    path = written(tmp_path / "loose", {"b.bin": files[ONE], "2-4.tql": files[TWO]})
    (source,) = open_sources([str(path / "2-4.tql"), str(path / "b.bin")])
    assert source.is_partial
    assert list(source.segment_names().values()) == [ONE, TWO]
    assert bytes(source.read(ONE)) == files[ONE]
    assert not source.survey().problems


def test_a_file_whose_header_is_gone_goes_by_its_name(tmp_path: Path) -> None:
    raw = b"\0" * 8 + read_golden("v1-rotated")[ONE][8:]
    path = written(tmp_path / "loose", {TWO: b"\0" * 5000, "7-4.tql": b"", "x": raw})
    for name, seq in ((TWO, 2), ("7-4.tql", 7), ("x", 1)):
        assert list(open_source(str(path / name)).segment_names()) == [seq]


@pytest.mark.parametrize("content", [b"", b"# Read me\n" * 1000])
def test_a_file_that_is_no_segment_is_no_log(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "loose", {"README.md": content})
    with pytest.raises(NoLog, match="this is no segment of a log"):
        open_source(str(path / "README.md"))


def test_two_files_of_the_same_segment_are_refused(tmp_path: Path) -> None:
    raw = read_golden("v1-rotated")[ONE]
    path = written(tmp_path / "loose", {"a": raw, "b": raw})
    with pytest.raises(OSError, match="two of these files are the same segment"):
        open_sources([str(path / "a"), str(path / "b")])


class Compacting(Source):
    """A log from which a server deletes the oldest segment while one looks, the first ``times``."""

    times = 1

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        if name == ONE and self.times:
            self.times -= 1
            raise FileNotFoundError(2, "gone", name)
        return super().read(name, start, end)


@pytest.mark.parametrize(("times", "is_read"), [(4, True), (5, False)])
def test_a_log_that_a_server_compacts_is_looked_at_again(times: int, is_read: bool) -> None:
    path = GOLDEN / "v1-rotated"
    source = Compacting(LocalFiles(str(path)))
    source.times = times
    if is_read:
        assert not source.survey().problems
    else:
        with pytest.raises(FileNotFoundError):
            source.survey()


class Written(Source):
    """A log whose last frame is only whole at the second look."""

    looks = 0

    def names(self, keeps_deleted: bool = False) -> list[str]:
        self.looks += 1
        return super().names(keeps_deleted)

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        raw = bytearray(super().read(name, start, end))
        if self.looks < 2:
            raw[len(raw.rstrip(b"\0")) - 20 :] = bytes(len(raw) - len(raw.rstrip(b"\0")) + 20)
        return raw


def test_what_is_being_written_is_looked_at_again(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2, b"being written"))
    path = written(tmp_path / "log", scribe.files())
    source = Written(LocalFiles(str(path)))
    survey = source.survey()
    assert survey.torn is None
    assert survey.segments[-1].ending.next_lsn == 4


def test_segments_that_are_deleted_while_one_looks_are_still_read(tmp_path: Path) -> None:
    files = read_golden("v1-rotated")
    path = written(tmp_path / "log", files)
    source = open_source(str(path))
    source.names()
    for name in files:
        (path / name).unlink()
    assert {name: bytes(source.read(name)) for name in files} == files
    assert getattr(source.header(ONE), "seq", None) == 1
    assert source.names() == []
    with pytest.raises((FileNotFoundError, KeyError)):
        source.read(ONE)


def test_no_more_segments_are_held_than_the_limit(tmp_path: Path) -> None:
    count = HELD_FILES + 3
    path = written(tmp_path / "log", {segment_name(n): b"" for n in range(1, count + 1)})
    source = open_source(str(path))
    before = len(os.listdir("/proc/self/fd"))
    assert len(source.names()) == count
    assert len(os.listdir("/proc/self/fd")) == before + HELD_FILES
    source.forget_before(3)
    assert len(os.listdir("/proc/self/fd")) == before + HELD_FILES - 2
    del source
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_a_running_server_has_renamed_or_deleted_is_gone(tmp_path: Path) -> None:
    path = written(tmp_path / "log", {ONE: b"one", TWO: b"two", spare_name(1): b""})
    source = open_source(str(path))
    assert set(source.names()) >= {ONE, TWO, spare_name(1)}
    (path / spare_name(1)).unlink()
    (path / ONE).unlink()
    source.names()
    for name in (ONE, spare_name(1)):
        with pytest.raises(FileNotFoundError):
            source.path_of(name)
        with pytest.raises(FileNotFoundError):
            source.read(name, 0, 10)
