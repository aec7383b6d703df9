"""A directory of a server into which somebody has copied from an archive."""

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, put
from tests.tools.cli.running import documents, rows, run
from tests.tools.folders import written


@pytest.fixture
def log(tmp_path: Path) -> Path:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 11):
        scribe.write(put(n, b"x" * 1400))
    scribe.end_segment()
    assert len(scribe.files()) == 5
    return written(tmp_path / "log", scribe.files())


def archived_name(segment: Path) -> str:
    first_lsn = int.from_bytes(segment.read_bytes()[24:32], "little")
    return f"{parse_segment_name(segment.name)}-{first_lsn}.tql"


def called_as_in_an_archive(log: Path, seq: int) -> Path:
    segment = log / segment_name(seq)
    return segment.rename(log / archived_name(segment))


def test_check_tells_of_a_file_from_an_archive_and_how_to_rename_it(log: Path) -> None:
    copied = called_as_in_an_archive(log, 3)
    result = run("check", log)
    assert result.exit_code == 3
    mend = f"mv {copied} {log / segment_name(3)}"
    (foreign,) = [row for row in rows(result) if row[:2] == ["trouble", "foreign"]]
    assert (foreign[2], foreign[-1]) == (copied.name, mend)
    (missing,) = [row for row in rows(result) if row[:2] == ["trouble", "missing"]]
    assert missing[2] == segment_name(3)
    assert sum(row[0] == "segment" for row in rows(result)) == 4, "the others are read"
    copied.rename(log / segment_name(3))
    assert run("check", log).exit_code == 0


def test_no_command_makes_a_log_of_that_one_file_alone(log: Path, tmp_path: Path) -> None:
    copied = called_as_in_an_archive(log, 3)
    commands: list[list[str | Path]]
    commands = [["jobs", log], ["compact", log, "-o", tmp_path / "new"], ["export", log]]
    for command in commands:
        result = run(*command)
        assert (result.exit_code, result.stdout) == (3, ""), command
        assert f"mv {copied} {log / segment_name(3)}" in result.stderr, command
    assert not (tmp_path / "new").exists()


def test_also_the_newest_segment_is_missed(log: Path) -> None:
    copied = called_as_in_an_archive(log, 5)
    (document,) = documents(run("check", "--json", log))
    assert document["verdict"] == "damaged"
    trouble, warning = document["troubles"]
    assert (trouble["kind"], trouble["file"]) == ("foreign", copied.name)
    assert (warning["kind"], warning["file"]) == ("warning", segment_name(4))
    result = run("jobs", log)
    assert result.exit_code == 0, "a server would start so, and warn"
    assert f"mv {copied}" in result.stderr


def test_a_copy_of_a_segment_that_is_there_does_no_harm_and_is_told(log: Path) -> None:
    third = log / segment_name(3)
    (log / archived_name(third)).write_bytes(third.read_bytes())
    result = run("check", log)
    assert result.exit_code == 0
    assert "Segment 3 is there under its own name; move this file elsewhere." in result.stderr
    assert len(rows(run("jobs", log))) == 10


def test_of_many_such_files_the_first_are_named(log: Path) -> None:
    for n in range(6, 20):
        (log / f"{n}-{n}000.tql").write_bytes(b"")
    warnings = run("jobs", log).stderr.splitlines()
    assert len(warnings) == 6
    assert warnings[-1].endswith("9 more files that are named so are left out")
