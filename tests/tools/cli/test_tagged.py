"""What the commands say of tags, remembered keys and policies."""

import struct
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, WITHHELD_NS, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.logs.stored import StoredKey, stored_policy
from tests.binlog.forging import with_header_field
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import DEFAULT_TUBE, NS, T0, Files, Scribe, put
from tests.tools.cli.running import documents, on_a_terminal, rows, run
from tests.tools.folders import written
from tests.tools.hostile import mended
from tests.tools.logs.test_new_log import job
from tests.tools.rewrite.test_tagged import log_of
from tests.tools.tagged import KEPT_S

EXTENSIONS = GOLDEN / "v1.1-extensions"
DEAD = Tags(dead_from=b"default", dead_reason=10, dead_at_ns=T0, origin=b"default")
JOBS = [
    job(1, tags=Tags(b"key", 60, group=b"import")),
    job(2, tags=Tags(concurrency_key=b"con", concurrency_limit=2)),
    job(3, state=State.DELAYED, deadline_ns=NEVER_NS, tags=Tags(after=b"import")),
    job(4, state=State.BURIED, deadline_ns=T0, tube=b"mail", tags=DEAD),
    job(5),
]  # fmt: skip
KEY = StoredKey(b"mail", b"gone", 6, T0, T0 + KEPT_S * NS)
POLICY = stored_policy(b"mail", {"max-jobs": "9"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of these jobs, a remembered key and a policy."""
    log_of(tmp_path / "log", JOBS, [KEY], [POLICY])
    return tmp_path / "log"


def chosen(path: Path, *options: str) -> list[int]:
    return [int(row[0]) for row in rows(run("jobs", path, *options))]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (("--tag", "grp:import"), [1]), (("--tag", "grp:other"), []), (("--tag", "idp"), [1]),
        (("--tag", "con:con"), [2]), (("--tag", "aft"), [3]), (("--dead",), [4]),
        (("--tag", "grp", "--tag", "con"), [1, 2]), (("--tag", "grp", "--dead"), []),
    ],
)  # fmt: skip
def test_jobs_are_chosen_by_tags(options: tuple[str, ...], ids: list[int], path: Path) -> None:
    assert chosen(path, *options) == ids
    exported = [each for each in documents(run("export", path, *options)) if each["kind"] == "job"]
    assert [each["job"] for each in exported] == ids


def test_the_tags_of_jobs_are_shown(path: Path) -> None:
    shown = {row[0]: row[-1] for row in rows(run("jobs", path))}
    assert shown["1"] == "unique_key=key unique_s=60 group=import"
    assert shown["4"].startswith("dead_from=default origin=default dead_reason=max-reserves ")
    assert shown["5"] == "-"
    told = {each["job"]: each for each in documents(run("jobs", "--json", path))}
    assert told[2]["tags"] == {"concurrency_key": "con", "concurrency_limit": 2}
    assert (told[3]["deadline"], told[3]["left_s"]) == (None, None)
    assert "group=import" in on_a_terminal("jobs", path, columns=200)


def test_the_jobs_of_an_earlier_moment_have_their_tags() -> None:
    (told,) = documents(run("jobs", "--json", EXTENSIONS, "--job", "7", "--as-of", "6"))
    assert told["tags"]["after"] == "after"
    (told,) = documents(run("jobs", "--json", EXTENSIONS, "--job", "7", "--as-of", "9"))
    assert told["tags"]["dead_from"] == "default"


def test_the_story_of_a_job_is_told_with_moves_and_keys() -> None:
    story = [row[-1] for row in rows(run("jobs", EXTENSIONS, "--explain", "7"))]
    assert story == [
        "put into default by connection 7, delayed: priority 1024, TTR 60 s, 5 bytes, unique key "
        "key, remembered for 60 s, at most 2 of key con reserved at once, of group group, after "
        "group after, until group after ends",
        "the group that it waited for has ended; ready",
        "a dead letter of default, reason max-reserves: buried in mail",
        "deleted by connection 7",
        "its key key is remembered in mail until 2025-11-20T12:01:00.000000Z",
    ]  # fmt: skip
    assert "gone since" in on_a_terminal("jobs", EXTENSIONS, "--explain", "7")
    story = [row[-1] for row in rows(run("jobs", EXTENSIONS, "--explain", "8"))]
    assert story[-1] == (
        "updated by connection 7, ready: priority 1, TTR 60 s, 7 bytes, of group group"
    )


def test_each_event_has_its_time_in_a_pipe_in_json_and_on_a_terminal() -> None:
    of_records = {each["lsn"]: each for each in documents(run("dump", "--json", EXTENSIONS))}
    found = documents(run("jobs", "--json", EXTENSIONS, "--explain", "7"))
    story = rows(run("jobs", EXTENSIONS, "--explain", "7"))
    assert [row[1] for row in story] == [each["time"] for each in found]
    (dead,) = (each for each in found if each["type"] == "move")
    assert dead["time"] == of_records[dead["lsn"]]["logged"] != of_records[dead["lsn"]]["time"]
    shown = on_a_terminal("jobs", EXTENSIONS, "--explain", "7")
    assert all(each["time"][:19] in shown for each in found)


def test_a_job_that_waits_is_said_to(path: Path) -> None:
    shown = on_a_terminal("jobs", path, "--explain", "3")
    assert "until group import ends" in shown
    assert "delayed until the group ends that it waits for" in shown


def test_a_job_that_is_to_be_a_dead_letter_is_said_to_and_stays_so(tmp_path: Path) -> None:
    withheld = job(1, state=State.DELAYED, deadline_ns=WITHHELD_NS + Reason.EXPIRED)
    log_of(tmp_path / "log", [withheld])
    (tmp_path / "jobs").write_bytes(run("export", tmp_path / "log").stdout_bytes)
    run("import", tmp_path / "jobs", "-o", tmp_path / "new")
    for path in (tmp_path / "log", tmp_path / "new"):
        shown = on_a_terminal("jobs", path, "--explain", "1")
        assert "delayed until it is a dead letter, which waits for space" in shown
        assert "until it is a dead letter" in on_a_terminal("dump", path, columns=250)
        assert [each["left_s"] for each in documents(run("jobs", "--json", path))] == [None]


def test_the_body_of_a_tagged_job_is_its_body_alone() -> None:
    assert run("jobs", EXTENSIONS, "--body", "7").stdout_bytes == b"hello"
    assert run("jobs", EXTENSIONS, "--body", "8").stdout_bytes == b"another"


def test_people_see_the_records_of_extensions() -> None:
    shown = on_a_terminal("dump", EXTENSIONS, columns=250)
    assert "unique_key=key unique_s=60 concurrency_key=con" in shown
    assert "until its group ends" in shown
    assert "tube=mail tube_id=2 key=key deadline=" in shown
    assert 'rules={"max-jobs":"9"}' in shown


def test_statistics_count_extensions(path: Path) -> None:
    assert ["extensions", "4", "1", "1", "1"] in rows(run("stats", path))
    (told,) = documents(run("stats", "--json", path))
    assert told["extensions"] == {"tagged": 4, "dead_letters": 1, "keys": 1, "policies": 1}
    assert "4 jobs with tags, 1 dead letter among them" in on_a_terminal("stats", path)
    assert not [row for row in rows(run("stats", GOLDEN / "v1-rotated")) if row[0] == "extensions"]


def test_logs_are_compared_with_their_tags(path: Path, tmp_path: Path) -> None:
    log_of(tmp_path / "other", [*JOBS[1:], JOBS[0]._replace(tags=Tags(group=b"export"))])
    result = run("diff", path, tmp_path / "other")
    assert rows(result) == [
        ["both", "1", "tags", "unique_key=key unique_s=60 group=import", "group=export"]
    ]
    assert run("diff", path, tmp_path / "other", "--ignore", "tags").exit_code == 0


def test_extensions_that_cannot_be_understood_are_found(tmp_path: Path) -> None:
    path = written(tmp_path / "log", with_unknown_extension())
    result = run("check", path)
    assert result.exit_code == 3
    assert "extension 9 is unknown" in result.stdout
    assert run("jobs", path).exit_code == 3
    assert run("dump", path).exit_code == 0


def with_unknown_extension() -> Files:
    """A log whose one job has an extension of a newer version, in a frame that checks."""
    log = Scribe(opening=[DEFAULT_TUBE], features=Tags().features)
    log.write(put(1, tags=Tags(group=b"group")))
    log.finish()
    ((name, raw),) = log.files().items()
    tag = raw.index(struct.pack("<BBH", 3, 0, 5) + b"group")
    checked = bytearray(mended(name, raw[:tag] + b"\x09" + raw[tag + 1 :]))
    return {name: bytes(checked)}


def with_features(bits: int) -> Files:
    """The golden log, its header made to say that a reader has to know these."""
    ((name, raw),) = ((p.name, p.read_bytes()) for p in EXTENSIONS.glob("*.tql"))
    return {name: with_header_field(raw, 104, "<I", bits)}


def test_extensions_that_the_header_does_not_tell_of_are_a_warning(tmp_path: Path) -> None:
    result = run("check", written(tmp_path / "log", with_features(0)))
    assert result.exit_code == 0
    assert "it holds extensions, and its header does not say so" in result.stdout
    for path in (EXTENSIONS, GOLDEN / "v1-every-kind"):
        assert "extensions, and" not in run("check", path).stdout


def test_a_log_of_a_newer_version_is_refused_in_words(tmp_path: Path) -> None:
    path = written(tmp_path / "log", with_features(1 | 1 << 3))
    result = run("check", path)
    assert result.exit_code == 78
    assert ".tql: it uses features this server does not know (bits 0x8)" in result.stdout
    for command in ("jobs", "stats", "export", "salvage"):
        result = run(command, path)
        assert result.exit_code == 78, command
        assert "it uses features this server does not know" in result.stderr


def test_what_beanstalkd_has_nothing_for_is_counted(path: Path, tmp_path: Path) -> None:
    result = run("export-v7", path, "-o", tmp_path / "theirs", "--json")
    (told,) = documents(result)
    assert told["dropped"] == {
        "unique_key": 1, "concurrency_key": 1, "group": 1, "after": 1, "metadata": 0,
        "dead_letters": 1, "keys": 1, "policies": 1,
    }  # fmt: skip
    assert told["states"] == {"ready": 3, "delayed": 0, "buried": 2}
    assert "not held: groups that jobs are to come after: 1: those jobs that wait" in result.stderr
    assert "not held: policies of tubes: 1: tubes have no limits" in result.stderr
    assert ["dropped", "keys", "1"] in rows(run("export-v7", path))
    run("import-v7", tmp_path / "theirs", "-o", tmp_path / "back")
    states = {row[0]: row[2] for row in rows(run("jobs", tmp_path / "back"))}
    assert states == {"1": "ready", "2": "ready", "3": "buried", "4": "buried", "5": "ready"}


def test_what_merge_takes_off_is_told(path: Path, tmp_path: Path) -> None:
    other = {"max-jobs": "7", "rate": "2"}
    log_of(tmp_path / "b", [JOBS[0]], policies=[stored_policy(b"mail", other)])
    result = run("merge", path, tmp_path / "b", "-o", tmp_path / "new", "--json")
    (told,) = documents(result)
    (moved,) = told["renumbered"]
    assert told["shared_keys"] == [
        {"job": moved["new_id"], "tube": "default", "key": "key", "holder": 1}
    ]
    assert told["policies"] == [{"path": str(tmp_path / "b"), "tube": "mail", "rules": other}]
    assert f"job {moved['new_id']}: its unique key key was taken off it" in result.stderr
    assert "its policy is not in the new log" in result.stderr
    lines = rows(run("merge", path, tmp_path / "b", "-o", tmp_path / "again"))
    assert [line[0] for line in lines] == ["written", "renumbered", "shared-key", "policy"]
    assert lines[-1][1:] == [str(tmp_path / "b"), "mail", "max-jobs=7 rate=2"]


def test_unknown_tags_are_told_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"body": "x", "tags": {"group": "g", "colour": "red"}}\n')
    result = run("import", tmp_path / "jobs.jsonl", "-o", tmp_path / "new")
    assert result.exit_code == 0
    assert "'tags.colour' in 1 line" in result.stderr
