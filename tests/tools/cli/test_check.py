"""``binlog-inspect check``, also of a directory into which somebody has copied from an archive."""

import re
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from binlog_tools.logs.opening import open_source
from tests.binlog.make_golden import GOLDEN, STORES
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, edited, flipped, image, put
from tests.tools.cli.running import documents, on_a_terminal, rows, run
from tests.tools.folders import contents, written

ONE = f"{1:020d}.tql"


@pytest.mark.parametrize("name", STORES)
def test_it_ends_with_its_verdict_and_changes_nothing(name: str) -> None:
    before = contents(GOLDEN)
    result = run("check", GOLDEN / name)
    assert result.exit_code == {"v1-torn": 1, "v1-damaged": 3}.get(name, 0)
    assert result.stderr == ""
    assert contents(GOLDEN) == before


def test_a_pipe_gets_segments_troubles_and_the_verdict_as_fields() -> None:
    path = GOLDEN / "v1-torn"
    segment, trouble, log = rows(run("check", path))
    assert segment == ["segment", ONE, "1", "2", "2", "4400"]
    assert log[:3] == ["log", "torn", str(path)]
    assert log[4:] == ["0", "0", "0"], "what is torn was promised to nobody"
    assert trouble == [
        "trouble", "torn", ONE, "4400", "4560", "3", "3", "-", "2",
        "the checksum of its records is wrong",
        "nothing: a server cuts it off when it starts, and keeps a copy",
    ]  # fmt: skip


def test_check_and_the_server_say_the_same_lsns_of_one_damage(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 5):
        scribe.write(put(n, b"body %d" % n))
    files = edited(scribe.files(), ONE, lambda raw: flipped(raw, raw.index(b"body 2")))
    path = written(tmp_path / "log", files)
    refusal = open_source(str(path)).survey().refusal()
    said = re.search("LSN ([0-9]+ to [0-9]+) were durable and cannot all be read", str(refusal))
    assert said is not None
    (trouble,) = [row for row in rows(run("check", path)) if row[0] == "trouble"]
    assert trouble[5:7] == ["3", "3"]
    assert trouble[9] == (
        "the checksum of its bodies is wrong; a server reads no further in this segment, so it "
        f"says LSN {said[1]}"
    )


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 10_000])
def test_files_that_hold_nothing_of_a_log_are_no_log(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "log", {ONE: content})
    result = run("check", path)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "there is no log here: nothing in the files is of one" in result.stderr
    assert "salvage" not in result.stderr
    segment = (GOLDEN / "v1-torn" / ONE).read_bytes()
    (path / ONE).write_bytes(bytes(4096) + segment[4096:])
    assert run("check", path).exit_code == 3, "frames are something"


def test_a_terminal_gets_a_table_and_sentences() -> None:
    shown = on_a_terminal("check", GOLDEN / "v1-damaged")
    assert "first LSN" in shown
    assert f"{ONE}: bytes 4096 to 4424 (corrupt), LSN 1 to 3: the checksum of its bodies" in shown
    assert "to mend it: binlog-inspect salvage" in shown


def test_without_rich_a_terminal_gets_a_plain_table() -> None:
    code = "import sys; sys.modules['rich'] = None; "
    code += "from beanstalk_twisted.programs import binlog_inspect; binlog_inspect()"
    shown = on_a_terminal("check", GOLDEN / "v1-torn", code=code)
    assert "segment" in shown and "first LSN" in shown and "torn tail" in shown
    assert "─" not in shown


def finished() -> Scribe:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"body 1"))
    scribe.write(put(2, b"body 2"))
    scribe.write(put(3, b"x" * 3500))
    scribe.end_segment()
    return scribe


def test_frames_behind_damage_are_counted(tmp_path: Path) -> None:
    files = finished().files()
    whole = documents(run("check", "--json", written(tmp_path / "whole", files)))[0]["segments"][0]
    spoilt = edited(files, ONE, lambda raw: flipped(raw, raw.index(b"body 1")))
    path = written(tmp_path / "log", spoilt)
    (segment,) = documents(run("check", "--json", path))[0]["segments"]
    assert segment == {**whole, "frames": whole["frames"] - 1}


def test_what_mends_all_of_it_is_told_once(tmp_path: Path) -> None:
    files = edited(finished().files(), ONE, lambda raw: flipped(raw, raw.index(b"body 1")))
    files = edited(files, ONE, lambda raw: flipped(raw, raw.index(b"xxxxx")))
    shown = on_a_terminal("check", written(tmp_path / "log", files))
    assert shown.count("the checksum of its bodies is wrong") == 2
    assert shown.count("to mend it:") == 1


def without_bodies(path: Path) -> Path:
    """A log with two jobs that are whole, and many without a body: 1 to 1500, and every other one
    of twelve more.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    scribe.write(put(5000), put(5001))
    ids = [*range(1, 1501), *range(1600, 1624, 2)]
    scribe.write(*(image(Kind.KICK, n) for n in ids))
    return written(path, scribe.files())


def test_ids_are_told_as_ranges_and_of_many_the_first_with_a_count(tmp_path: Path) -> None:
    path = without_bodies(tmp_path / "log")
    shown = on_a_terminal("check", path)
    some = ", ".join(str(n) for n in range(1600, 1617, 2))
    assert f"1512 jobs: 1-1500, {some} and 3 more; --json names all" in shown
    (trouble,) = [row for row in rows(run("check", path)) if row[0] == "trouble"]
    assert trouble[7] == "1-1500," + ",".join(str(n) for n in range(1600, 1624, 2))
    (document,) = documents(run("check", "--json", path))
    assert len(document["troubles"][0]["jobs"]) == 1512


def test_in_the_end_all_jobs_at_risk_are_counted_and_the_verdict_is_last(tmp_path: Path) -> None:
    shown = on_a_terminal("check", without_bodies(tmp_path / "log")).split("\r\n")
    assert shown[-3] == "at risk: 1512 jobs"
    assert shown[-2].startswith("damaged: a server refuses")
    lines = run("check", tmp_path / "log").stdout.splitlines()
    assert lines[-1].split("\t")[4:] == ["1512", "0", "0"]


def test_where_nothing_tells_which_jobs_are_at_risk_that_is_said(tmp_path: Path) -> None:
    files = finished().files()
    files = edited(files, ONE, lambda raw: flipped(raw, raw.index(b"body 1")))
    # The array of records of one frame, and the header of another.
    second = files[ONE].index(b"body 2") - 80 - 64
    files = edited(files, ONE, lambda raw: flipped(raw, second + 3))
    path = written(tmp_path / "log", files)
    (document,) = documents(run("check", "--json", path))
    risk = document["at_risk"]
    assert (risk["jobs"], risk["is_all"]) == (1, False)
    assert "that cannot be named" in on_a_terminal("check", path)


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
