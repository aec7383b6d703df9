"""Tags, remembered keys and policies come through all that makes a log of logs."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, State
from beanstalk_twisted.binlog.segments.format import (
    EXTENSIONS,
    SegmentHeader,
    decode_segment_header,
)
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.logs.new_log import NewLog, Origin, SharedKey
from binlog_tools.logs.opening import Loaded, load, open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import Selection, StoredJob, StoredKey, TubeRecord, stored_policy
from binlog_tools.rewrite.exporting import WrongLine, export, import_lines
from binlog_tools.rewrite.rewriting import (
    ANY_AGE,
    Choice,
    OtherPolicy,
    drop_in_place,
    merge,
    rewrite,
)
from binlog_tools.rewrite.undeleting import find_deleted, restored
from tests.binlog.make_golden import GOLDEN
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import NS, T0, files_of
from tests.tools.cli.running import run
from tests.tools.folders import contents, written
from tests.tools.logs.test_new_log import job
from tests.tools.salvage.logs import come_and_go, without_locks
from tests.tools.tagged import KEPT_S, History, left_in, see_that_a_server_has

NOW = time.time_ns()
SEEDS = range(12)


def loaded(path: Path) -> Loaded:
    return load(open_source(str(path)), wall_ns=NOW)


def headers(path: Path) -> list[tuple[int, int]]:
    """The minor version and the incompat bits of each segment."""
    found = []
    for name, raw in sorted(contents(path).items()):
        if name.endswith(".tql") and "/" not in name:
            assert isinstance(decode_segment_header(raw[:4096]), SegmentHeader)
            found.append((raw[10], int.from_bytes(raw[104:108], "little")))
    return found


def log_of(
    path: Path, jobs: Iterable[StoredJob], keys: Iterable[StoredKey] = (),
    policies: Iterable[TubeRecord] = (), segment_bytes: int = 8192,
) -> list[SharedKey]:  # fmt: skip
    with NewLog(
        str(path), Origin("compact"), of_tubes=policies, segment_bytes=segment_bytes, now_ns=T0
    ) as log:
        for each in jobs:
            log.add(each)
        log.add_keys(keys)
        log.finish()
        return list(log.shared_keys)


KEY = StoredKey(b"mail", b"key", 5, T0, T0 + KEPT_S * NS)
POLICY = stored_policy(b"mail", {"max-jobs": "9"})
HOLDER = job(1, tags=Tags(b"key", 60, group=b"group"), tube=b"mail")


def compacted(path: Path, new: Path) -> None:
    rewrite(loaded(path), str(new), "compact", segment_bytes=8192)


def exchanged(path: Path, new: Path) -> None:
    """`export` and `import`."""
    lines = [json.dumps(each).encode() for each in export(loaded(path), Selection())]
    import_lines(lines, str(new), 8192, NOW)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_is_read_and_compacted_as_it_was_told(seed: int, tmp_path: Path) -> None:
    told = History(seed).tell(150)
    assert told.left[0] and told.left[1]
    compacted(written(tmp_path / "log", told.files), tmp_path / "new")
    for path in (tmp_path / "log", tmp_path / "new"):
        assert left_in(loaded(path)) == told.left
        see_that_a_server_has(path, told.left, NOW)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_export_that_is_imported_has_all(seed: int, tmp_path: Path) -> None:
    told = History(seed).tell(150)
    exchanged(written(tmp_path / "log", told.files), tmp_path / "new")
    assert left_in(loaded(tmp_path / "new")) == told.left
    see_that_a_server_has(tmp_path / "new", told.left, NOW)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", SEEDS)
def test_merging_loses_no_job_and_no_key(seed: int, tmp_path: Path) -> None:
    first, second = History(seed).tell(90), History(seed + 100).tell(90)
    logs = [
        loaded(written(tmp_path / name, told.files)) for name, told in (("a", first), ("b", second))
    ]
    merged = merge(logs, str(tmp_path / "new"), 8192, accepts_copies=True)
    new = left_in(loaded(tmp_path / "new"))
    see_that_a_server_has(tmp_path / "new", new, NOW)
    bodies = sorted(each.body for told in (first, second) for each in told.left[0])
    assert sorted(each.body for each in new[0]) == bodies
    lost = {(each.tube, each.key) for each in merged.shared_keys}
    asked = {(k.tube, k.key) for told in (first, second) for k in told.left[1]}
    held = {(j.tube, j.tags.unique_key) for j in new[0] if j.tags and j.tags.holds_key}
    assert lost <= held
    assert {(k.tube, k.key) for k in new[1]} == asked - held
    ids = [each.job_id for each in new[0]] + [each.job_id for each in new[1]]
    assert len(set(ids)) == len(ids), "no id means two jobs"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", SEEDS)
def test_dropping_in_place_leaves_the_others_as_they_are(seed: int, tmp_path: Path) -> None:
    told = History(seed).tell(150)
    path = written(tmp_path / "log", told.files)
    chosen = Choice(Selection(tubes=frozenset([b"mail"])), ANY_AGE, keeps_chosen=False)
    dropped = drop_in_place(str(path), chosen)
    jobs, keys, policies = told.left
    stay = [each for each in jobs if each.tube != b"mail"]
    left = left_in(loaded(path))
    assert (left[0], left[2]) == (stay, policies)
    leaving = [each for each in jobs if each.tube == b"mail" and each.tags]
    new_keys = {
        (each.tube, each.tags.unique_key, each.job_id)
        for each in leaving
        if each.tags is not None and each.tags.leaves_key
    }
    assert {each[:3] for each in left[1]} == {each[:3] for each in keys} | new_keys
    see_that_a_server_has(path, left, NOW)
    kept = left_in(loaded(Path(dropped.kept_at)))[0]
    assert kept == [each for each in jobs if each.tube == b"mail"]
    assert headers(path)[-1] == (1, EXTENSIONS)


def test_the_segments_from_the_first_extension_on_say_so(tmp_path: Path) -> None:
    jobs = [job(1, b"x" * 5000), HOLDER._replace(job_id=2), job(3, b"x" * 5000), job(4)]
    log_of(tmp_path / "log", jobs)
    assert headers(tmp_path / "log") == [(0, 0), (1, EXTENSIONS), (1, EXTENSIONS)]


@pytest.mark.parametrize("what", ["key", "policy", "tags"])
def test_each_kind_of_extension_is_told_in_the_header(what: str, tmp_path: Path) -> None:
    log_of(
        tmp_path / "log", [HOLDER if what == "tags" else job(1)], [KEY] if what == "key" else [],
        [POLICY] if what == "policy" else [],
    )  # fmt: skip
    assert headers(tmp_path / "log") == [(1, EXTENSIONS)]


def test_without_its_last_tagged_job_older_versions_read_a_log(tmp_path: Path) -> None:
    log_of(tmp_path / "log", [job(1, tags=Tags(group=b"group")), job(2)])
    chosen = Choice(Selection(jobs=Numbers([Span(1, 1)])), ANY_AGE, keeps_chosen=False)
    drop_in_place(str(tmp_path / "log"), chosen)
    assert headers(tmp_path / "log") == [(1, EXTENSIONS), (0, 0)]


def test_of_two_jobs_with_one_key_the_first_keeps_it(tmp_path: Path) -> None:
    log_of(tmp_path / "a", [HOLDER], policies=[POLICY])
    other = stored_policy(b"mail", {"max-jobs": "7"})
    log_of(tmp_path / "b", [HOLDER._replace(body=b"other")], policies=[other])
    logs = [loaded(tmp_path / "a"), loaded(tmp_path / "b")]
    merged = merge(logs, str(tmp_path / "new"), 8192)
    jobs, _, policies = left_in(loaded(tmp_path / "new"))
    first, second = jobs
    assert first.tags == HOLDER.tags
    assert (second.body, second.tags) == (b"other", Tags(group=b"group"))
    assert merged.shared_keys == [SharedKey(second.job_id, b"mail", b"key", 1)]
    assert policies == [POLICY]
    assert merged.policies == [OtherPolicy(str(tmp_path / "b"), b"mail", other.record.rules)]


def test_a_key_of_a_living_job_is_not_remembered_beside_it(tmp_path: Path) -> None:
    log_of(tmp_path / "a", [job(7)], [KEY])
    log_of(tmp_path / "b", [HOLDER])
    merge([loaded(tmp_path / "a"), loaded(tmp_path / "b")], str(tmp_path / "new"), 8192)
    jobs, keys, _ = left_in(loaded(tmp_path / "new"))
    assert ([each.job_id for each in jobs], keys) == ([1, 7], [])


def test_a_remembered_key_gets_another_id_where_a_job_has_it(tmp_path: Path) -> None:
    log_of(tmp_path / "a", [job(5)])
    log_of(tmp_path / "b", [], [KEY])
    merge([loaded(tmp_path / "a"), loaded(tmp_path / "b")], str(tmp_path / "new"), 8192)
    assert left_in(loaded(tmp_path / "new"))[1] == [KEY._replace(job_id=6)]


def test_a_deleted_job_comes_back_with_its_tags() -> None:
    source = open_source(str(GOLDEN / "v1.1-extensions"))
    ((_, back),) = restored(source, find_deleted(source, Selection()))
    assert (back.tube, back.state, back.body) == (b"mail", State.BURIED, b"hello")
    assert back.tags is not None
    assert (back.tags.unique_key, back.tags.dead_from) == (b"key", b"default")


def imported(path: Path, *lines: object) -> tuple[list[StoredJob], list[StoredKey]]:
    import_lines([json.dumps(line).encode() for line in lines], str(path), 8192, NOW)
    return left_in(loaded(path))[:2]


def test_a_job_that_waits_for_a_group_needs_no_state(tmp_path: Path) -> None:
    ((found,), _) = imported(tmp_path / "log", {"body": "x", "tags": {"after": "group"}})
    assert (found.state, found.deadline_ns) == (State.DELAYED, NEVER_NS)
    late = {"body": "x", "state": "delayed", "delay_s": 9, "deadline": "2100-01-01T00:00:00Z"}
    ((found,), _) = imported(tmp_path / "late", {**late, "tags": {"after": "group"}})
    assert found.deadline_ns < NEVER_NS
    ((found,), _) = imported(tmp_path / "over", {"body": "x", "state": "ready",
                                                 "tags": {"after": "group"}})  # fmt: skip
    assert found.state is State.READY


def test_what_is_left_out_of_tags_gets_a_default(tmp_path: Path) -> None:
    tags = {"unique_key": "key", "concurrency_key": "con", "dead_from": "mail"}
    ((found,), _) = imported(tmp_path / "log", {"body": "x", "tags": tags})
    assert found.tags == Tags(b"key", 0, b"con", 1, dead_from=b"mail")


WRONG = [
    ({"tags": 5}, "tags"),
    ({"tags": {"unique_key": "k" * 201}}, "unique_key"),
    ({"tags": {"unique_key": "k", "unique_s": -1}}, "unique_s"),
    ({"tags": {"concurrency_key": "k", "concurrency_limit": 1 << 32}}, "concurrency_limit"),
    ({"tags": {"dead_from": "t", "dead_reason": "sad"}}, "dead_reason"),
    ({"tags": {"group": "a b"}}, "group"),
    ({"kind": "key", "key": "k"}, "job"),
    ({"kind": "key", "job": 1}, "key"),
    ({"kind": "policy", "tube": "mail"}, "rules"),
    ({"kind": "policy", "tube": "mail", "rules": {"max-jobs": 9}}, "rules"),
    ({"tags": {"group": "a", "after": "a"}}, "after"),
    ({"tags": {"group": "a", "after_base64": "YQ=="}}, "after"),
    ({"tags": {"concurrency_key": "k", "concurrency_limit": 0}}, "concurrency_limit"),
    ({"tags": {"concurrency_limit": 1}}, "concurrency_limit"),
    ({"tags": {"unique_s": 1}}, "unique_s"),
    ({"tags": {"dead_reason": "ttr"}}, "dead_reason"),
    ({"tags": {"dead_at": "2026-01-31T12:00:00Z"}}, "dead_at"),
    ({"tags": {"origin": "default"}}, "origin"),
    ({"tube": "t", "tags": {"origin": "t"}}, "origin"),
]
WRONG += [
    ({"kind": "policy", "tube": "mail", "rules": rules}, "rules")
    for rules in ({"max-reserves": "0"}, {"rate": "0"}, {"backoff": "1e3"}, {"foo": "5"},
                  {"rate": "2", "max-age": "-"}, {"dead-letter": "a b"}, {"expired": ""})
]  # fmt: skip


@pytest.mark.parametrize(("line", "field"), WRONG)
def test_wrong_tags_are_refused(line: dict[str, object], field: str, tmp_path: Path) -> None:
    with pytest.raises(WrongLine, match=f"line 1: {field}: "):
        imported(tmp_path / "log", {"body": "x", **line})
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_a_dead_letter_is_in_any_state(state: str, tmp_path: Path) -> None:
    """It may have been kicked, or reserved and released with a delay."""
    line = {"body": "x", "state": state, "delay_s": 9, "tags": {"dead_from": "mail"}}
    ((found,), _) = imported(tmp_path / "log", line)
    assert found.tags == Tags(dead_from=b"mail")


def test_a_policy_is_taken_as_the_command_takes_it(tmp_path: Path) -> None:
    rules = {"max-reserves": "1", "rate": "1000000:1", "backoff": "1:1:1", "max-jobs": "0"}
    imported(tmp_path / "log", {"kind": "policy", "tube": "mail", "rules": rules})
    assert left_in(loaded(tmp_path / "log"))[2] == [stored_policy(b"mail", rules)]


LATE = "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"kind": "log", "last_lsn": 7}, "log"),
        ({"kind": "pause", "tube": "t", "seconds": 9}, "pause of tube t"),
        ({"kind": "policy", "tube": "t", "rules": {"rate": "2"}}, "policy of tube t"),
        ({"kind": "key", "tube": "t", "key": "k", "job": 5, "until": LATE}, "key k of tube t"),
    ],
)
def test_what_is_said_twice_is_refused(line: dict[str, object], what: str, tmp_path: Path) -> None:
    with pytest.raises(WrongLine, match=f"^line 3: line 1 says the {what} already; leave one out"):
        imported(tmp_path / "log", line, {"kind": "pause", "tube": "other"}, line)
    imported(tmp_path / "log", line, *([{**line, "tube": "u"}] if "tube" in line else []))


def test_two_jobs_of_a_tube_with_one_key_are_refused(tmp_path: Path) -> None:
    line = {"body": "x", "tags": {"unique_key": "k"}}
    with pytest.raises(WrongLine, match="line 2: tags: unique_key: job 1 of the tube has it"):
        imported(tmp_path / "log", line, line)
    jobs, _ = imported(tmp_path / "log", line, {**line, "tube": "mail"})
    assert [each.tube for each in jobs] == [b"default", b"mail"]


def test_the_id_of_a_job_that_has_left_a_key_is_not_given_again(tmp_path: Path) -> None:
    key = {"kind": "key", "tube": "mail", "key": "k", "job": 5, "until": "2100-01-01T00:00:00Z"}
    with pytest.raises(WrongLine, match="job 5 is there already"):
        imported(tmp_path / "log", key, {"body": "x", "job": 5})
    jobs, keys = imported(tmp_path / "log", key, {"body": "x"})
    assert ([each.job_id for each in jobs], [each.job_id for each in keys]) == ([6], [5])


KEPT = b"3000000000"
"""Seconds: longer than these tests are run."""


def server_log(path: Path, tags: bool = True) -> Path:
    """The log of a server whose clients have put jobs with tags, compacted on the way, after a
    kill.
    """
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
    client = server.connect()
    client.ask(b"use mail\r\n")
    if tags:
        client.ask(b"put 1 0 60 3 idp:lives:%b grp:night\r\none\r\n" % KEPT)
        client.ask(b"put 1 0 60 3 con:few:2\r\ntwo\r\n")
        gone = client.ask(b"put 1 0 60 5 idp:gone:%b\r\nthree\r\n" % KEPT).split()[1]
        client.ask(b"delete %b\r\n" % gone)
    client.ask(b"put 1 0 60 5\r\nplain\r\n")
    come_and_go(server, 30, 700)
    server.kill_and_restart()
    come_and_go(server, 3, 700)
    server.kill()
    assert server.directory is not None
    return written(path, without_locks(files_of(server.directory)))


def brought_back(path: Path, new: Path) -> None:
    assert run("salvage", path, "-o", new).exit_code in (0, 1)


@pytest.mark.parametrize("through", [compacted, exchanged, brought_back])
def test_a_server_keeps_tags_and_keys(
    through: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, new = server_log(tmp_path / "log"), tmp_path / "new"
    jobs, keys, _ = left_in(loaded(path))
    assert [(each.tube, each.key) for each in keys] == [(b"mail", b"gone")]
    assert [each.tags is not None for each in jobs] == [True, True, False]
    through(path, new)
    assert left_in(loaded(new)) == (jobs, keys, [])
    assert run("check", new).exit_code == 0
    files = {name: raw for name, raw in contents(new).items() if name.endswith(".tql")}
    server = MemoryServer(directory=MemoryDirectory(files), segment_bytes=8192)
    client = server.connect()
    client.ask(b"use mail\r\n")
    again = client.ask(b"put 1 0 60 1 idp:lives\r\nx\r\n")
    assert again.split()[1] == b"%d" % jobs[0].job_id
    again = client.ask(b"put 1 0 60 1 idp:gone\r\nx\r\n")
    assert again.split()[1] == b"%d" % keys[0].job_id
    server.kill()


def test_a_server_without_tags_leaves_a_log_that_older_versions_read(tmp_path: Path) -> None:
    path = server_log(tmp_path / "log", tags=False)
    assert set(headers(path)) == {(0, 0)}
    compacted(path, tmp_path / "new")
    assert set(headers(tmp_path / "new")) == {(0, 0)}
