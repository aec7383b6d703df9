"""``binlog-inspect jobs``."""

import subprocess
import sys
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, State
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from binlog_tools.cli.jobs import COLUMNS
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    NS,
    T0,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
)
from tests.tools.cli.running import MAIN, documents, on_a_terminal, rows, run
from tests.tools.folders import written

EVERY_KIND = GOLDEN / "v1-every-kind"


def test_a_pipe_gets_the_fields_of_each_job() -> None:
    first, second = rows(run("jobs", EVERY_KIND))
    assert len(first) == len(second) == len(COLUMNS)
    row = dict(zip(COLUMNS, first, strict=True))
    assert (row["job"], row["tube"], row["state"], row["bytes"], row["body"]) == (
        "8", "mail", "buried", "0", "-",
    )  # fmt: skip


def test_bodies_are_shown_when_asked_for() -> None:
    first, second = documents(run("jobs", "--json", "--bodies", "hex", EVERY_KIND))
    assert (first["body_hex"], second["body_hex"]) == ("", bytes(range(256)).hex())
    lines = run("jobs", "--bodies", "text", EVERY_KIND).stdout.splitlines()
    assert "\\x00\\x01\\x02" in lines[1]
    assert len({line.count("\t") for line in lines}) == 1


def test_options_choose() -> None:
    assert [row[0] for row in rows(run("jobs", EVERY_KIND, "--tube", "mail"))] == ["8"]
    assert [row[0] for row in rows(run("jobs", EVERY_KIND, "--state", "ready"))] == ["9"]
    assert [row[0] for row in rows(run("jobs", EVERY_KIND, "--job", "9,10"))] == ["9"]
    assert [row[0] for row in rows(run("jobs", EVERY_KIND, "-n", "1"))] == ["8"]
    assert run("jobs", EVERY_KIND, "--tube", "none").stdout == ""


def test_an_earlier_moment_is_an_lsn_or_a_time() -> None:
    by_lsn = rows(run("jobs", EVERY_KIND, "--as-of", "7"))
    assert [row[:3] for row in by_lsn] == [["7", "default", "reserved"], ["8", "mail", "ready"]]
    by_time = rows(run("jobs", EVERY_KIND, "--as-of", "2025-11-20T12:00:00.002Z"))
    assert by_time == by_lsn


def test_what_an_earlier_moment_no_longer_tells_is_said(tmp_path: Path) -> None:
    from tests.tools.inspect.test_listing import spoken

    story = spoken(4, True)
    path = written(tmp_path / "log", story.files)
    lsn = min(lsn for lsn in story.snapshots if lsn > min(_first_lsns(story.files)) + 5)
    result = run("jobs", path, "--as-of", str(lsn))
    assert result.exit_code == 0
    missing = len(story.snapshots[lsn]) - len(rows(result))
    assert missing > 0
    assert f"{missing} more jobs were there" in result.stderr


def _first_lsns(files: dict[str, bytes]) -> list[int]:
    return [
        int.from_bytes(raw[24:32], "little")
        for name, raw in files.items()
        if parse_segment_name(name) is not None
    ]


def test_a_story_is_told_on_a_terminal_and_as_fields() -> None:
    shown = on_a_terminal("jobs", EVERY_KIND, "--explain", "7")
    assert "put into default by connection 7" in shown
    assert "gone since" in shown
    told = rows(run("jobs", EVERY_KIND, "--explain", "7"))
    assert [row[2] for row in told] == [
        "put", "reserve", "touch", "release", "kick", "ttr-expired", "disconnect-release",
        "delete",
    ]  # fmt: skip
    events = documents(run("jobs", "--json", EVERY_KIND, "--explain", "7"))
    assert [event["lsn"] for event in events] == [int(row[0]) for row in told]
    assert events[0]["what"].startswith("put into default")


def test_of_a_job_that_never_was_it_says_so() -> None:
    for option in ("--explain", "--body"):
        result = run("jobs", EVERY_KIND, option, "99")
        assert (result.exit_code, result.stdout) == (4, "")
        assert "the log has no record of job 99" in result.stderr


def test_a_body_is_written_byte_by_byte(tmp_path: Path) -> None:
    target = tmp_path / "body"
    assert run("jobs", EVERY_KIND, "--body", "9", "-o", target).exit_code == 0
    assert target.read_bytes() == bytes(range(256))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "jobs", EVERY_KIND, "--body", "7"], capture_output=True
    )
    assert done.stdout == b"hello", "also of a job that was deleted"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("columns", [40, 80, 160])
def test_no_number_is_cut_however_narrow_the_terminal(columns: int, tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE, TubeDef(2, b"a-long-name-of-a-tube")])
    scribe.write(put(12345678901234, b"x" * 50, tube_id=2, priority=4294967295, ttr_s=4294967295))
    path = written(tmp_path / "log", scribe.files())
    shown = on_a_terminal("jobs", path, "--bodies", "text", columns=columns)
    for text in ("12345678901234", "a-long-name-of-a-tube", "4294967295", "50 B"):
        assert text in shown.replace("\r\n", "")


@pytest.mark.exhaustive
def test_a_long_list_on_a_terminal_is_shown_in_parts(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    scribe.write(*(put(n, b"") for n in range(1, 602)))
    shown = on_a_terminal("jobs", written(tmp_path / "log", scribe.files()))
    assert shown.count("history") == 2
    assert shown.count("ready") == 601


@pytest.mark.exhaustive
def test_a_terminal_is_told_of_pauses(tmp_path: Path) -> None:
    paused = on_a_terminal("jobs", EVERY_KIND, "--as-of", "21")
    assert "tube mail is paused for 4s" in paused
    assert "is paused" not in on_a_terminal("jobs", EVERY_KIND)


def test_of_a_body_in_a_damaged_place_it_says_where(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(2, b"body two"))
    scribe.write(image(Kind.RESERVE, 2, state=State.RESERVED, deadline_ns=T0 + NS))
    name = segment_name(1)
    files = edited(scribe.files(), name, lambda raw: flipped(raw, raw.index(b"body two")))
    path = written(tmp_path / "log", files)
    result = run("jobs", path, "--body", "2")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "there are records of it, and its body stood where the log is damaged" in result.stderr
    assert f"{name}: offset 4096: the checksum of its bodies is wrong" in result.stderr
    assert f"binlog-inspect salvage {path} -o" in result.stderr
    never = run("jobs", path, "--body", "77")
    assert never.exit_code == 3
    assert "if it was put, it stood where" in never.stderr


def test_of_a_body_that_compaction_has_deleted_it_says_so(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(delete(5))
    result = run("jobs", written(tmp_path / "log", scribe.files()), "--body", "5")
    assert result.exit_code == 4
    assert "there are records of job 5, but its body is no longer there" in result.stderr


def test_a_log_that_begins_later_does_not_know_what_was_before(tmp_path: Path) -> None:
    scribe = Scribe(position=FIRST._replace(first_lsn=100), opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"))
    result = run("jobs", written(tmp_path / "log", scribe.files()), "--as-of", "99")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "the log begins with LSN 100, behind that point" in result.stderr


def test_a_moment_behind_the_end_of_the_log_is_told() -> None:
    result = run("jobs", EVERY_KIND, "--as-of", "1795285453")
    assert result.exit_code == 0
    assert [row[0] for row in rows(result)] == ["8", "9"]
    assert "before LSN 1795285453" in result.stderr
    assert "If a time was meant: --as-of @1795285453" in result.stderr
    assert "before LSN" not in run("jobs", EVERY_KIND, "--as-of", "@1795285453").stderr
    assert "in the future" in run("jobs", EVERY_KIND, "--as-of", "2200-01-01").stderr
    assert run("jobs", EVERY_KIND, "--as-of", "now").stderr == ""
    wrong = run("jobs", EVERY_KIND, "--as-of", "gestern")
    assert wrong.exit_code == 2
    assert "-2h, @ and seconds since the epoch, or an LSN" in " ".join(wrong.stderr.split())
