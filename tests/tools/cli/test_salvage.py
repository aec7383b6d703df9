"""``binlog-inspect salvage``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.records.jobs import Kind
from tests.binlog.forging import rechecked
from tests.binlog.make_golden import GOLDEN, STORES
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, delete, edited, flipped, put
from tests.tools.cli.running import documents, on_a_terminal, rows, run
from tests.tools.folders import contents, written
from tests.tools.salvage.damaging import batches_of, full_records

ONE, TWO, THREE = (f"{n:020d}.tql" for n in (1, 2, 3))


def sound() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"))
    scribe.write(put(2, b"y" * 3000))
    scribe.end_segment()
    scribe.write(put(3, b"three"), delete(2))
    scribe.write(put(4, b"z" * 3000))
    scribe.end_segment()
    scribe.write(put(5, b"five"))
    scribe.mark()
    return scribe.files()


def damaged() -> Files:
    """The record that puts job 3 and the one that deletes job 2 cannot be read."""
    files = sound()
    at = files[TWO].index(b"three") - 90
    return edited(files, TWO, lambda raw: flipped(raw, at))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log", damaged())


def jobs_by_tube(path: Path) -> dict[str, int]:
    """How many jobs of a log there are in each tube."""
    found = documents(run("salvage", "--json", path))[0]
    tubes: dict[str, int] = found["tubes"]
    return tubes


@pytest.mark.parametrize("name", STORES)
def test_without_o_it_only_reports_and_ends_with_its_verdict(name: str) -> None:
    before = contents(GOLDEN)
    result = run("salvage", GOLDEN / name)
    assert result.exit_code == {"v1-torn": 1, "v1-damaged": 3}.get(name, 0), result.output
    assert contents(GOLDEN) == before


def test_a_pipe_gets_lines_whose_first_field_says_what_they_are(log: Path) -> None:
    result = run("salvage", log)
    found = {row[0]: row[1:] for row in rows(result)}
    assert result.exit_code == 3
    assert found["place"][0] == TWO
    assert found["hole"] == ["5", "7", TWO, "1 PUT, 1 DELETE, 1 TUBE_DEF"]
    assert found["doubtful"][0:3] == ["3", "default", "ready"]
    assert found["log"] == ["damaged", str(log), "2", "3", "0", "3"]
    assert found["next"] == [f"binlog-inspect salvage {log} -o NEW_DIRECTORY"]


def test_a_terminal_gets_tables_and_sentences(log: Path) -> None:
    shown = on_a_terminal("salvage", log)
    counts = "jobs: 2 certain, 3 doubtful, 0 lost; records that cannot be read: 3"
    assert f"damaged: {counts}" in shown
    assert "it may have been deleted in LSN 5 to 7" in shown
    assert "at most 1 of the doubtful ones were deleted" in shown
    assert f"nothing was written; to write it: binlog-inspect salvage {log} -o NEW" in shown


def test_a_body_before_the_damaged_one_is_named_with_its_job(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"))
    scribe.write(put(1, b"another")._replace(kind=Kind.UPDATE))
    scribe.mark()
    files = edited(scribe.files(), ONE, lambda raw: flipped(raw, raw.index(b"another")))
    shown = on_a_terminal("salvage", written(tmp_path / "log", files))
    assert "the newest body of job 1 is damaged; this is the one before" in shown


def test_json_and_the_report_say_everything(log: Path, tmp_path: Path) -> None:
    (document,) = documents(run("salvage", "--json", log, "--report", tmp_path / "report.json"))
    assert document["verdict"] == "damaged"
    assert {each["job"]: each["why"] for each in document["doubtful"]} == {
        1: "deleted?", 2: "deleted?", 3: "record",
    }  # fmt: skip
    assert document["written"] is None
    assert json.loads((tmp_path / "report.json").read_text()) == document


def test_the_clean_log_is_sound_and_the_damaged_one_as_it_was(log: Path, tmp_path: Path) -> None:
    before = contents(log)
    result = run("salvage", log, "-o", tmp_path / "new")
    assert result.exit_code == 3
    assert rows(result)[-1] == ["written", "5", "1", str(tmp_path / "new")]
    assert contents(log) == before
    assert run("check", tmp_path / "new").exit_code == 0
    assert jobs_by_tube(tmp_path / "new") == {"default": 4, "lost+found": 1}


def test_doubtful_jobs_can_be_dropped(log: Path, tmp_path: Path) -> None:
    run("salvage", log, "-o", tmp_path / "new", "--doubtful", "drop")
    assert jobs_by_tube(tmp_path / "new") == {"default": 2, "lost+found": 1}


def test_a_missing_segment_is_named_with_the_command_that_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "a log", {name: raw for name, raw in sound().items() if name != TWO})
    result = run("salvage", path, "-o", tmp_path / "new")
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"{TWO}: missing" in result.stderr
    command = f"binlog-inspect salvage '{path}' -o {tmp_path / 'new'} --accept-gap 2"
    assert result.stderr.endswith(f"To go on all the same: {command}\n")
    assert not (tmp_path / "new").exists()
    told = run("salvage", path, "-o", tmp_path / "new", "--accept-gap", "2")
    assert told.exit_code == 3
    assert jobs_by_tube(tmp_path / "new") == {"default": 3}


def test_a_dry_run_needs_no_telling_and_says_what_will_be_needed(tmp_path: Path) -> None:
    files = {name: raw for name, raw in sound().items() if name != TWO}
    path = written(tmp_path / "log", edited(files, THREE, lambda raw: flipped(raw, 9)))
    result = run("salvage", path)
    assert result.exit_code == 3
    command = f"binlog-inspect salvage {path} -o NEW_DIRECTORY --rebuild-header --accept-gap 2"
    assert rows(result)[-1] == ["next", command]


def test_the_server_names_the_same_command(tmp_path: Path) -> None:
    files = {name: raw for name, raw in sound().items() if name != TWO}
    path = written(tmp_path / "log", edited(files, THREE, lambda raw: flipped(raw, 9)))
    named = run("check", "--json", path)
    wanted = rows(run("salvage", path))[-1][1]
    mends = {trouble["mend"] for trouble in documents(named)[0]["troubles"]}
    assert {" ".join(sorted(mend.split())) for mend in mends} == {" ".join(sorted(wanted.split()))}


def test_files_that_contradict_each_other_need_a_choice(tmp_path: Path) -> None:
    files = sound()
    path = written(tmp_path / "log", {**files, f"{7:020d}.tql": flipped(files[TWO], 5000)})
    result = run("salvage", path)
    assert result.exit_code == 3
    assert "say which is right with --prefer FILE" in result.stderr
    told = run("salvage", path, "--prefer", path / TWO)
    assert ["left out", f"{7:020d}.tql"] in rows(told)
    assert run("salvage", path, "--prefer", "nonsense").exit_code == 2


def test_the_next_job_id_counts_what_was_set_aside(tmp_path: Path) -> None:
    """The id in the damaged record is far from all that were given out."""
    files = sound()
    (at,) = (each.record.start + 8 + 6 for each in full_records(files) if each.body == b"three")
    log = written(tmp_path / "log", edited(files, TWO, lambda raw: flipped(raw, at)))
    (dry,) = documents(run("salvage", "--json", log))
    (wet,) = documents(run("salvage", "--json", log, "-o", tmp_path / "new"))
    assert any(each["claimed_id"] for each in wet["doubtful"])
    assert dry["next_job_id"] == wet["next_job_id"] == wet["written"]["next_job_id"]


def test_sound_frames_that_say_what_cannot_be_are_no_sound_log(tmp_path: Path) -> None:
    """The state of a record is none that there is, and all checksums are right."""
    files = sound()
    (at,) = (each.record.start + 1 for each in full_records(files) if each.body == b"five")
    forged = bytearray(files[THREE])
    forged[at] = 77
    frame = batches_of(files, THREE)[-1]["offset"]
    log = written(tmp_path / "log", {**files, THREE: rechecked(forged, frame)})
    assert run("check", log).exit_code == 3
    result = run("salvage", log)
    assert result.exit_code == 3
    assert rows(result)[0][0] == "place"
    assert "job state 77 is unknown" in rows(result)[0][-1]


def test_in_place_keeps_the_original_segments(log: Path) -> None:
    before = contents(log)
    result = run("salvage", log, "--in-place")
    assert result.exit_code == 3
    kept = log / "quarantine" / "salvage-1"
    assert rows(result)[-2:] == [["written", "5", "1", str(log)], ["kept", str(kept)]]
    assert contents(kept) == before
    assert run("check", log).exit_code == 0
    assert jobs_by_tube(log) == {"default": 4, "lost+found": 1}
    assert sorted(path.name for path in log.glob("*")) == [ONE, "LOCK", "lock", "quarantine"]


def test_in_place_leaves_a_sound_log_as_it_is(tmp_path: Path) -> None:
    log = written(tmp_path / "log", sound())
    before = contents(log)
    result = run("salvage", log, "--in-place")
    assert result.exit_code == 0
    assert rows(result) == [["log", "sound", str(log), "4", "0", "0", "0"]]
    assert {name: raw for name, raw in contents(log).items() if name in before} == before
    assert not (log / "quarantine").exists()
    shown = on_a_terminal("salvage", log, "--in-place")
    assert "nothing was written: there is nothing to mend" in shown


def test_the_command_that_goes_on_repeats_what_was_said(tmp_path: Path) -> None:
    path = written(tmp_path / "log", {name: raw for name, raw in sound().items() if name != TWO})
    new, report = tmp_path / "new", tmp_path / "a report"
    said = ("--prefer", ONE, "--doubtful", "bury", "--report", str(report))
    result = run("salvage", path, "-o", new, *said)
    assert result.exit_code == 3
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("To go on")]
    words = shlex.split(line.removeprefix("To go on all the same: binlog-inspect "))
    assert words == ["salvage", str(path), "-o", str(new), *said, "--accept-gap", "2"]
    assert run(*words).exit_code == 3
    assert new.exists() and report.exists()


def test_in_place_needs_the_server_to_be_down(log: Path) -> None:
    before = contents(log)
    server = RealDirectory(str(log))
    server.lock("a server")
    result = run("salvage", log, "--in-place")
    server.close()
    assert (result.exit_code, "is locked by a server" in result.stderr) == (4, True)
    after = contents(log)
    assert {name: after[name] for name in before} == before
