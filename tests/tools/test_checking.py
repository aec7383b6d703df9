"""
Is this log sound?  What `check` finds.
"""

import pytest

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.binlog.records import Kind
from beanstalk_twisted.binlog.survey import Survey
from binlog_tools.checking import DAMAGED, SOUND, TORN, Finding, SegmentRow, check
from tests.binlog.make_golden import STORES, read_golden
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, files_of, image, put, quiet

ONE, TWO = "00000000000000000001.tql", "00000000000000000002.tql"


def checked(files: Files) -> Finding:
    """
    Check, and see that nothing was changed by it.
    """
    directory = MemoryDirectory(files)
    finding = check(directory)
    assert directory.operations == 0
    assert files_of(directory) == files
    return finding


def test_a_directory_without_a_log_is_not_called_sound() -> None:
    with pytest.raises(FileNotFoundError, match="there is no log here"):
        checked({})


def test_a_sound_log_is_listed() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"x" * 4000))
    scribe.write(put(2))
    scribe.mark()
    rows = [SegmentRow(ONE, 1, 3, 2, 8584), SegmentRow(TWO, 4, 5, 2, 4400)]
    assert checked(scribe.files()) == Finding(
        SOUND, "sound: 5 records, durable to LSN 5", [], rows
    )  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_the_golden_logs_get_the_verdicts_they_are_named_for(name: str) -> None:
    finding = checked(read_golden(name))
    expected = {"v1-torn": TORN, "v1-damaged": DAMAGED}.get(name, SOUND)
    assert finding.exit_code == expected
    assert bool(finding.details) == (expected != SOUND)


def test_a_torn_tail_is_said_to_cost_nothing_that_was_promised() -> None:
    finding = checked(read_golden("v1-torn"))
    assert "loses nothing it promised" in finding.verdict
    (detail,) = finding.details
    assert detail.startswith(f"{ONE}: ")
    assert "LSN 3 and later" in detail


def test_damage_is_named_with_file_offset_and_lsn() -> None:
    finding = checked(read_golden("v1-damaged"))
    assert finding.verdict == "damaged: a server refuses (memory)"
    (detail,) = finding.details
    assert detail.startswith(f"{ONE}: offset 4096: LSN 1 to 3 were durable")


def test_every_problem_is_a_line_of_its_own() -> None:
    finding = checked({**read_golden("v1-damaged"), "binlog.1": b"", "binlog.2": b""})
    assert finding.exit_code == DAMAGED
    assert len(finding.details) == 2


def test_a_log_that_a_server_refuses_is_not_called_sound() -> None:
    """
    A server's refusal names this very command.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.KICK, 9))
    assert checked(scribe.files()).exit_code == DAMAGED
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, tube_id=5))
    assert checked(scribe.files()).exit_code == DAMAGED


@pytest.mark.parametrize("name", STORES)
def test_a_server_starts_on_what_is_sound_or_torn_and_on_nothing_else(name: str) -> None:
    files = read_golden(name)
    refused = Survey(MemoryDirectory(files), quiet).refusal()
    assert (checked(files).exit_code == DAMAGED) == (refused is not None)
