"""What may be a trace of a loss, and may be one of a crash: told, and no reason to refuse."""

import pytest

from beanstalk_twisted.binlog.reading.loss_warnings import LOCK, SEAL_BYTES, loss_warnings
from beanstalk_twisted.binlog.reading.segment import content_end
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.writer import spare_name
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, edited, header, put, quiet

ONE, TWO = (segment_name(n) for n in (1, 2))
SPARE = spare_name(3)


def told(files: Files, is_whole: bool = True) -> list[str]:
    survey = Survey(MemoryDirectory(files), quiet, is_whole)
    assert survey.refusal() is None
    return [str(warning) for warning in loss_warnings(survey)]


def killed() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 16)
    scribe.write(put(1))
    scribe.write(put(2))
    return {**scribe.files(), SPARE: bytes(1 << 16), LOCK: b""}


def stopped() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.finish()
    return {**scribe.files(), LOCK: b""}


def rotated() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.end_segment()
    scribe.write(put(2))
    return {**scribe.files(), SPARE: bytes(8192), LOCK: b""}


@pytest.mark.parametrize("files", [{}, killed(), stopped(), rotated()])
def test_of_what_servers_leave_nothing_is_told(files: Files) -> None:
    assert told(files) == []


def test_a_log_that_ends_as_if_another_segment_followed() -> None:
    files = rotated()
    del files[TWO]
    (warning,) = told(files)
    assert warning.startswith(f"{ONE} ends as a segment does that another one follows")
    assert warning.endswith(f"; look for {TWO} before jobs are put into this log")


def test_an_ordered_stop_and_a_spare_of_a_later_start() -> None:
    (warning,) = told({**stopped(), SPARE: bytes(8192)})
    assert warning.startswith(
        f"{ONE} ends as after an ordered stop, and {SPARE} is of a later start"
    )


def test_a_spare_and_no_segment_at_all() -> None:
    (warning,) = told({SPARE: bytes(8192), LOCK: b""})
    assert warning.startswith(f"{SPARE} is of an earlier start, and no segment is here")
    assert told({SPARE: header(seq=1).encode() + bytes(4096)}) == []


@pytest.mark.parametrize("files", [rotated(), stopped()])
def test_a_segment_that_had_no_name_yet_explains_both(files: Files) -> None:
    files = {name: raw for name, raw in files.items() if name != TWO}
    assert told({**files, SPARE: header(seq=2).encode() + bytes(4096)}) == []
    assert len(told({**files, SPARE: header(seq=3).encode() + bytes(4096)})) == 1


def test_a_file_without_the_space_that_is_allocated_ahead() -> None:
    files = killed()
    end = content_end(files[ONE], 4096) + 7 & ~7
    for size in (end, end - 20, end - 100, end + SEAL_BYTES - 1):
        (warning,) = told(edited(files, ONE, lambda raw, size=size: raw[:size]))  # type: ignore[misc]
        assert warning.startswith(f"{ONE} ends at offset {size}, behind LSN ")
        assert "it was cut off there" in warning
    assert told(edited(files, ONE, lambda raw: raw[: end + SEAL_BYTES])) == []


def test_zeros_in_a_file_that_was_cut_to_its_length() -> None:
    files = stopped()
    end = content_end(files[ONE], 4096)
    zeros = edited(files, ONE, lambda raw: raw[:4400] + bytes(end - 4400))
    (warning,) = told(zeros)
    assert f"{ONE} has zeros from offset " in warning
    assert "compare it with a back-up" in warning
    assert told({**zeros, SPARE: b""}) == [], "a server was killed"
    assert told({name: raw for name, raw in zeros.items() if name != LOCK}) == [], "a copy"
    assert told(edited(zeros, ONE, lambda raw: raw.ljust(8192, b"\0"))) == []


@pytest.mark.parametrize("files", [killed(), rotated(), stopped()])
def test_of_an_archive_nothing_is_told(files: Files) -> None:
    for name in (ONE, TWO):
        raw = files.get(name, b"")
        if raw:
            end = content_end(raw, 4096) + 7 & ~7
            assert told({name: raw[:end]}, is_whole=False) == []
