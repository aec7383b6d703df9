"""``binlog-inspect import-v7`` and ``export-v7`` as they are called."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import (
    IMPORTED,
    MADE_BY_TOOL,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    SegmentHeader,
    decode_description,
    decode_segment_header,
    segment_name,
)
from binlog_tools.logs.new_log import NewLog, Origin
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.stored import StoredJob, TubeRecord, loaded_jobs, stored_pause
from binlog_tools.v7.files import MAX_FILE_BYTES, MIN_FILE_BYTES
from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import documents, on_a_terminal, rows, run
from tests.tools.v7.test_holder import held
from tests.tools.v7.theirs import (
    BURIED,
    DELAYED,
    NS,
    T0,
    file_5,
    file_7,
    full,
    full_5,
    gone,
    read,
    short,
)

NEVER_NS = 4 * 10**18
"""The year 2096."""


def their_log(path: Path, *contents: bytes, first: int = 3) -> Path:
    path.mkdir()
    (path / "lock").touch(0o600)
    for number, content in enumerate(contents, start=first):
        (path / f"binlog.{number}").write_bytes(content)
    return path


SOUND = (
    file_5(full_5(1), full_5(2, b"two", b"alpha")),
    file_7(short(1, BURIED, buries=1), full(3, state=DELAYED, delay=NS, deadline=NEVER_NS),
           full(4), gone(4), zeros=500),
)  # fmt: skip
TORN = (file_7(full(1)), file_7(full(2)[:-3]))
DAMAGED = (file_7(full(1), full(2, b"two", state=9), full(3)),)


def state_of(path: Path) -> object:
    """All that could have been changed in a directory."""
    return {
        str(each): (each.read_bytes() if each.is_file() else b"", each.stat().st_mtime_ns,
                    each.stat().st_mode, each.stat().st_ino)
        for each in [path, *path.rglob("*")]
    }  # fmt: skip


def loaded(path: Path) -> dict[int, StoredJob]:
    return {job.job_id: job for job in loaded_jobs(open_source(str(path)).survey(), T0)}


def test_a_dry_run_says_what_is_there_and_makes_nothing(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", *SOUND)
    before = state_of(tmp_path)
    result = run("import-v7", source)
    assert result.exit_code == 0 and result.stderr == ""
    size = sum(map(len, SOUND))
    assert rows(result) == [
        ["source", "sound", str(source), "2", str(size), "4", "2"],
        ["jobs", "3", "1", "1", "1", "0", "5"],
    ]
    assert state_of(tmp_path) == before


def test_an_import_makes_a_log_and_changes_nothing_of_its_source(tmp_path: Path) -> None:
    source, new = their_log(tmp_path / "theirs", *SOUND), tmp_path / "ours"
    before = state_of(source)
    result = run("import-v7", source, "-o", new)
    assert result.exit_code == 0
    assert rows(result)[-1][:4] == ["written", str(new), "3", "13"]
    assert rows(result)[-1][-1] == "3", "read back"
    assert state_of(source) == before
    jobs = loaded(new)
    assert {i: (job.tube, job.state, job.body) for i, job in jobs.items()} == {
        1: (b"default", State.BURIED, b"hello"),
        2: (b"alpha", State.READY, b"two"),
        3: (b"default", State.DELAYED, b"hello"),
    }
    assert jobs[1].buries == 1 and jobs[1].created_ns == T0 + 1_000_000
    assert open_source(str(new)).survey().small.next_job_id == 5
    assert run("check", new).exit_code == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ours", "theirs"]


def test_the_new_log_says_where_it_comes_from(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", *SOUND)
    run("import-v7", source, "-o", tmp_path / "ours")
    raw = (tmp_path / "ours" / segment_name(1)).read_bytes()[:4096]
    header = decode_segment_header(raw)
    assert isinstance(header, SegmentHeader)
    assert header.flags == IMPORTED | MADE_BY_TOOL
    assert header.next_job_id == 5
    origin = decode_description(raw)["origin"]
    assert isinstance(origin, dict)
    assert origin["tool"] == "import-v7"
    assert origin["sources"] == [{"path": str(source), "store_uuid": "", "last_lsn": 0}]


def test_the_json_has_all_of_it(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", *DAMAGED)
    result = run("import-v7", source, "-o", tmp_path / "ours", "--json")
    assert result.exit_code == 3
    (told,) = documents(result)
    at = 4 + len(full(1))
    assert told["findings"] == [
        {"kind": "damaged", "file": "binlog.3", "offset": at, "end": at + len(full(2, b"two")),
         "job_id": 2, "what": "its state would be 9"}
    ]  # fmt: skip
    assert told["finding_counts"] == {"damaged": 1}
    assert (told["verdict"], told["jobs"], told["doubtful"], told["next_job_id"]) == (
        "damaged", 2, 1, 4,
    )  # fmt: skip
    assert told["states"] == {"ready": 2, "delayed": 0, "buried": 0}
    assert told["written"]["jobs"] == told["read_back"] == 3


@pytest.mark.parametrize(("contents", "code"), [(SOUND, 0), (TORN, 1), (DAMAGED, 3)])
def test_what_is_intact_is_imported(tmp_path: Path, contents: tuple[bytes, ...], code: int) -> None:
    source = their_log(tmp_path / "theirs", *contents)
    assert run("import-v7", source).exit_code == code
    result = run("import-v7", source, "-o", tmp_path / "ours")
    assert result.exit_code == code
    assert [row[1] for row in rows(result) if row[0] == "finding"] == {
        0: [], 1: ["torn"], 3: ["damaged"],
    }[code]  # fmt: skip
    assert loaded(tmp_path / "ours")[1].body == b"hello"


def test_a_gap_is_refused_unless_it_is_accepted(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", file_7(full(1)), file_7(full(2)), file_7(full(3)))
    (source / "binlog.4").unlink()
    result = run("import-v7", source, "-o", tmp_path / "ours")
    assert result.exit_code == 3
    assert "binlog.4 missing; nothing was written" in result.stderr
    assert "--accept-gap" in result.stderr
    assert not (tmp_path / "ours").exists()
    assert run("import-v7", source).exit_code == 3
    accepted = run("import-v7", source, "-o", tmp_path / "ours", "--accept-gap")
    assert accepted.exit_code == 3
    assert sorted(loaded(tmp_path / "ours")) == [1, 3]


def test_a_log_of_another_machine_is_4_with_a_hint(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", b"\0\0\0\7" + bytes(4092))
    result = run("import-v7", source, "-o", tmp_path / "ours")
    assert result.exit_code == 4
    assert "big-endian machine" in result.stderr and "Run beanstalkd on it" in result.stderr
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_log_of_ours_needs_no_import(is_held: bool, tmp_path: Path) -> None:
    log = our_log(tmp_path / "ours", job(1))
    with held(log) if is_held else nullcontext():
        result = run("import-v7", log, "-o", tmp_path / "new")
    assert result.exit_code == 2
    assert "this is a log of beanstalk-twisted already" in result.stderr
    for command in ("jobs", "export-v7"):
        assert f"binlog-inspect {command} {log}" in result.stderr
    assert "runs on it" not in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_new_log_never_replaces_anything(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", *SOUND)
    before = state_of(source)
    result = run("import-v7", source, "-o", source)
    assert result.exit_code == 2
    assert "Name a place outside of it." in result.stderr
    (tmp_path / "ours").mkdir()
    assert run("import-v7", source, "-o", tmp_path / "ours").exit_code == 0
    assert run("import-v7", source, "-o", tmp_path / "ours").exit_code == 4
    assert state_of(source) == before


@pytest.mark.parametrize(
    ("command", "option", "least", "most"),
    [
        ("import-v7", "--segment-size", MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES),
        ("export-v7", "--file-size", MIN_FILE_BYTES, MAX_FILE_BYTES),
    ],
)
def test_sizes_have_limits(
    tmp_path: Path, command: str, option: str, least: int, most: int
) -> None:
    theirs = their_log(tmp_path / "theirs", *SOUND)
    source = theirs if command == "import-v7" else our_log(tmp_path / "ours")
    for size, code in ((least, 0), (most, 0), (least - 1, 2), (most + 1, 2), ("x", 2)):
        assert run(command, source, option, str(size)).exit_code == code, size


def test_people_get_sentences(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", *DAMAGED)
    said = on_a_terminal("import-v7", source, "-o", tmp_path / "ours")
    assert "damaged: all that is intact is taken; deletions may be among what is missing" in said
    assert "damaged (job 2): its state would be 9" in said
    assert "doubtful: 1 more job, buried in lost+found" in said
    assert "read back: 3 jobs" in said


def test_people_are_told_of_one_file_and_one_job_as_of_one(tmp_path: Path) -> None:
    source = their_log(tmp_path / "theirs", file_7(full(1, b"x")))
    said = on_a_terminal("import-v7", source, "-o", tmp_path / "ours")
    assert f"{source}: 1 file, " in said and "found: 1 job (" in said
    assert "written: 1 job, 1 byte of bodies, 1 segment, " in said and "read back: 1 job\r" in said
    back = tmp_path / "back"
    said = on_a_terminal("export-v7", tmp_path / "ours", "-o", back)
    assert f"{tmp_path / 'ours'}: 1 job (" in said and "written: 1 file, " in said


def our_log(path: Path, *jobs: StoredJob, pause: TubeRecord | None = None) -> Path:
    with NewLog(str(path), Origin("test"), of_tubes=[pause] if pause else []) as log:
        for job in jobs:
            log.add(job)
        log.finish()
    return path


def job(job_id: int, state: State = State.READY, body: bytes = b"hello") -> StoredJob:
    return StoredJob(job_id, b"default", state, 7, 0, 60, T0, T0 + job_id, body)


def test_a_dry_run_of_an_export_makes_nothing(tmp_path: Path) -> None:
    log = our_log(tmp_path / "ours", job(1), job(2, State.BURIED))
    before = state_of(tmp_path)
    result = run("export-v7", log)
    assert result.exit_code == 0
    assert rows(result) == [
        ["source", str(log), "2", "1", "0", "1", "10", "3"],
        ["start", "beanstalkd -b DST"],
    ]
    assert state_of(tmp_path) == before


def test_an_export_makes_files_and_changes_nothing_of_its_source(tmp_path: Path) -> None:
    log, new = our_log(tmp_path / "ours", job(1), job(2, State.BURIED)), tmp_path / "theirs"
    before = state_of(log)
    result = run("export-v7", log, "-o", new)
    assert result.exit_code == 0
    size = 4 + 2 * len(full(1))
    assert rows(result)[-2:] == [
        ["written", str(new), "1", str(size)], ["start", f"beanstalkd -b {new}"],
    ]  # fmt: skip
    assert state_of(log) == before
    assert sorted(os.listdir(new)) == ["binlog.1"]
    assert sorted(read((new / "binlog.1").read_bytes()).jobs) == [1, 2]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ours", "theirs"]


def test_what_the_format_cannot_hold_is_said(tmp_path: Path) -> None:
    pause = stored_pause(b"alpha", 3600, NEVER_NS)
    log = our_log(tmp_path / "ours", job(1, body=bytes(65_534)), pause=pause)
    (told,) = documents(run("export-v7", log, "--json"))
    assert told["pauses"] == [{"tube": "alpha", "seconds": 3600}]
    assert told["needs_max_job_size"] == 65_536
    assert told["start"] == "beanstalkd -b DST -z 65536"
    said = on_a_terminal("export-v7", log, "-o", tmp_path / "theirs")
    assert "pause-tube alpha 3600" in said
    assert "only with -z 65536 or more" in said
    assert f"start: beanstalkd -b {tmp_path / 'theirs'} -z 65536" in said


def test_tubes_that_no_client_may_name_are_left_out_and_named(tmp_path: Path) -> None:
    strange = job(2)._replace(tube=b"x\r\npause-tube y")
    pause = stored_pause(strange.tube, 3600, NEVER_NS)
    log = our_log(tmp_path / "ours", job(1), strange, pause=pause)
    for arguments in ((), ("-o", tmp_path / "theirs")):
        result = run("export-v7", log, *arguments)
        assert result.exit_code == 3
        assert result.stderr == (
            r"binlog-inspect: tube 'x\r\npause-tube y': jobs that were not exported: 1; "
            "no client may use that name\n"
        )
        left_out = [row[0] for row in rows(result) if row[0] in ("not-held", "pause-tube")]
        assert left_out == ["not-held"]
    result = run("import-v7", tmp_path / "theirs", "--json")
    assert result.exit_code == 0
    assert documents(result)[0]["jobs"] == 1


def test_a_torn_log_is_exported_with_1_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    torn = run("export-v7", GOLDEN / "v1-torn", "-o", tmp_path / "torn")
    assert torn.exit_code == 1
    assert [row[0] for row in rows(torn)] == ["source", "torn", "written", "start"]
    damaged = run("export-v7", GOLDEN / "v1-damaged", "-o", tmp_path / "damaged")
    assert damaged.exit_code == 3
    assert "damaged binlog" in damaged.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["torn"]
