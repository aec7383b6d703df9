"""``export``, ``import``, ``replay``, ``diff`` and ``archive-verify`` as they are called."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.cli.commands import cli
from binlog_tools.logs.stored import StoredKey, stored_policy
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import NS, T0, files_of, flipped
from tests.server_process import ServerProcess, ours_at_once, theirs
from tests.tools.cli.running import MAIN, documents, on_a_terminal, rows, run, warnings
from tests.tools.conversation import Conversation
from tests.tools.folders import archived, contents, written
from tests.tools.inspect.test_archives import five_segments
from tests.tools.logs.test_new_log import job, made
from tests.tools.rewrite.test_rewriting import LATER
from tests.tools.rewrite.test_tagged import log_of
from tests.tools.served import served
from tests.tools.tagged import KEPT_S

EVERY_KIND = GOLDEN / "v1-every-kind"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log", Conversation(1).say(40).files)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(ours_at_once("-p", "0"), tmp_path) as process:
        process.connect().close()
        yield process


def test_export_writes_lines_that_import_reads(log: Path, tmp_path: Path) -> None:
    result = run("export", log)
    lines = documents(result)
    assert [line["kind"] for line in lines].count("job") == len(served(log, LATER))
    target = tmp_path / "jobs.jsonl"
    assert run("export", log, "-o", target).stdout == ""
    again = run("import", target, "-o", tmp_path / "new")
    assert (again.exit_code, again.stderr) == (0, "")
    assert served(tmp_path / "new", LATER) == served(log, LATER)
    assert rows(again)[0][3] == str(tmp_path / "new")


def test_export_chooses() -> None:
    lines = documents(run("export", EVERY_KIND, "--tube", "mail"))
    assert [line["job"] for line in lines if line["kind"] == "job"] == [8]


def test_import_reads_stdin_and_names_a_wrong_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["import", "-", "-o", str(tmp_path / "new"), "--json"], input='{"body": "hello"}\n'
    )
    assert json.loads(result.stdout)["jobs"] == 1
    result = CliRunner().invoke(
        cli, ["import", "-", "-o", str(tmp_path / "other")], input='{"body": "a"}\n{}\n'
    )
    assert result.exit_code == 2
    assert "line 2: body: there must be body" in result.stderr
    assert not (tmp_path / "other").exists()


def test_import_warns_once_of_fields_that_it_does_not_know(tmp_path: Path) -> None:
    lines = '{"body": "a", "colour": "red"}\n{"body": "b", "colour": 1, "size": 2}\n'
    result = CliRunner().invoke(cli, ["import", "-", "-o", str(tmp_path / "new")], input=lines)
    assert result.exit_code == 0
    assert result.stderr == (
        "binlog-inspect: fields that are unknown here were passed over: 'colour' in 2 lines, "
        "'size' in 1 line\n"
    )


def replay(log: Path, server: ServerProcess, *options: str | Path):  # type: ignore[no-untyped-def]
    address = f"127.0.0.1:{server.port()}"
    return run("replay", log, "--to", address, "--journal", log.parent / "journal", *options)


def test_replay_puts_and_diff_sees_no_difference_but_ids(log: Path, server: ServerProcess) -> None:
    jobs = served(log, LATER)
    result = replay(log, server)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{len(jobs)} jobs put, ")
    again = replay(log, server)
    assert again.stdout == f"0 jobs put, {len(jobs)} were there before\n"
    (document,) = documents(replay(log, server, "--json"))
    assert (document["put"], document["before"]) == (0, len(jobs))


TAGGED = [
    job(1, b"one", tags=Tags(b"key", 60, b"con", 2, b"import")),
    job(2, b"two", state=State.DELAYED, deadline_ns=NEVER_NS, tags=Tags(after=b"import")),
    job(3, b"three", state=State.BURIED, deadline_ns=T0,
        tags=Tags(dead_from=b"mail", dead_reason=10, dead_at_ns=T0)),
    job(4, b"four", tags=Tags(group=b"import")),
]  # fmt: skip


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """A log of jobs with tags, a remembered key and a policy."""
    gone = StoredKey(b"mail", b"gone", 9, T0, T0 + KEPT_S * NS)
    log_of(tmp_path / "tagged", TAGGED, [gone], [stored_policy(b"mail", {"max-jobs": "9"})])
    return tmp_path / "tagged"


MARK = "binlog-inspect: 1 job put without the mark 'dead letter', which no put can set\n"
WHY = "not put: the server does not announce what that takes, or no client may say so\n"
LEFT_OUT = (
    f"binlog-inspect: 1 remembered unique key of deleted jobs {WHY}"
    f"binlog-inspect: 1 policy of tubes {WHY}"
)


OF_TUBES = "1 policy of tubes set, 1 remembered key put\n"


def test_replay_puts_tags_where_the_server_has_them(tagged: Path, server: ServerProcess) -> None:
    result = replay(tagged, server)
    assert result.stderr == MARK
    assert result.stdout == "4 jobs put, 1 of them buried\n" + OF_TUBES
    client = server.connect()
    notes = map(json.loads, (tagged.parent / "journal").read_text().splitlines())
    new = {note["put"]: note["as"] for note in notes if "put" in note}
    assert sorted(new.values()) == [new[1], new[4], new[3], new[2]], "the order of ids"
    told = {body: client.ask(b"stats-job %d\r\n" % new[number]).decode()
            for number, body in ((1, "one"), (4, "four"), (3, "three"), (2, "two"))}  # fmt: skip
    for words in ('idempotency-key: "key"', "idempotency-ttl: 60", 'group: "import"',
                  'concurrency-key: "con"', "concurrency-limit: 2"):  # fmt: skip
        assert words in told["one"]
    assert 'group: "import"' in told["four"] and "state: buried" in told["three"]
    assert "state: delayed" in told["two"] and 'after-group: "import"' in told["two"]
    for number in (1, 4):
        assert "state: delayed" in client.ask(b"stats-job %d\r\n" % new[2]).decode()
        client.ask(b"delete %d\r\n" % new[number])
    assert "state: ready" in client.ask(b"stats-job %d\r\n" % new[2]).decode()


def test_replay_tells_what_beanstalkd_does_not_get(tagged: Path, tmp_path: Path) -> None:
    with ServerProcess(theirs(), tmp_path) as process:
        process.connect().close()
        result = replay(tagged, process, "--json")
        lost = {"idp:": "1 job", "con:": "1 job", "grp:": "2 jobs", "aft:": "1 job"}
        assert warnings(result) == "".join(
            f"binlog-inspect: {jobs} put without the tag '{tag}', which the server does not "
            "announce\n"
            for tag, jobs in lost.items()
        ) + MARK + (
            "binlog-inspect: jobs that wait for a group, and are buried, so as not to be done too "
            "early: 1; kick them when it has ended\n" + LEFT_OUT
        )  # fmt: skip
        (document,) = documents(result)
        assert (document["put"], document["buried"], document["waiting"]) == (4, 2, 1)
        assert document["left_out"] == {"idp:": 1, "con:": 1, "grp:": 2, "aft:": 1,
                                        "dead letter": 1}  # fmt: skip
        assert b"current-jobs-ready: 2" in process.connect().ask(b"stats\r\n")


def test_replay_buries_a_job_whose_group_was_refused(server: ServerProcess, tmp_path: Path) -> None:
    log_of(tmp_path / "log", [
        job(1, b"m", tags=Tags(b"K", group=b"a")),
        job(2, b"w", state=State.DELAYED, deadline_ns=NEVER_NS, tags=Tags(after=b"a")),
    ])  # fmt: skip
    client = server.connect()
    assert client.ask(b"put 0 0 9 1 idp:K\r\nz\r\n").startswith(b"INSERTED 1")
    told = (
        "binlog-inspect: job 1 was not taken: job 1 of the server has its unique key (ready)\n"
        "binlog-inspect: jobs that wait for a group, and are buried, so as not to be done too "
        "early: 1; kick them when it has ended\n"
    )
    for put, before in ((1, 0), (0, 1)):
        result = replay(tmp_path / "log", server, "--json")
        (document,) = documents(result)
        assert (result.exit_code, warnings(result)) == (4, told)
        counts = [document[each] for each in ("put", "before", "buried", "waiting")]
        assert counts == [put, before, put, 1]
    # Of other jobs nothing is said, and what the plan itself buries is counted once.
    assert documents(replay(tmp_path / "log", server, "--json", "--job", "1"))[0]["waiting"] == 0
    assert documents(replay(tmp_path / "log", server, "--json", "--job", "2"))[0]["waiting"] == 1


def test_replay_sets_policies_and_puts_remembered_keys(tagged: Path, server: ServerProcess) -> None:
    assert replay(tagged, server).exit_code == 0
    client = server.connect()
    assert b"max-jobs: 9\n" in client.ask(b"tube-policy mail\r\n")
    client.ask(b"use mail\r\n")
    said = client.ask(b"put 0 0 9 1 idp:gone\r\nx\r\n").split()
    assert (said[0], said[2]) == (b"INSERTED", b"DELETED")
    again = replay(tagged, server, "--json")
    (document,) = documents(again)
    assert warnings(again) == MARK
    assert [document[each] for each in ("policies", "keys", "keys_before")] == [0, 0, 1]


def test_replay_leaves_the_policy_that_a_server_has(tagged: Path, server: ServerProcess) -> None:
    assert server.connect().ask(b"tube-policy mail max-jobs=5\r\n") == b"POLICY\r\n"
    result = replay(tagged, server)
    assert result.stderr == MARK + (
        "binlog-inspect: the policy of tube mail stays max-jobs=5; in the log it is 9\n"
    )
    assert b"max-jobs: 5\n" in server.connect().ask(b"tube-policy mail\r\n")


@pytest.mark.exhaustive
def test_replay_asks_about_what_is_uncertain(log: Path, server: ServerProcess) -> None:
    jobs = served(log, LATER).keys()
    assert replay(log, server, "--job", str(max(jobs))).exit_code == 0
    with open(log.parent / "journal", "a") as journal:
        journal.write('{"sent": [1, 2]}\n')
    result = replay(log, server)
    assert result.exit_code == 4
    assert "on their way: 1, 2" in result.stderr
    assert replay(log, server, "--uncertain", "skip").stdout.startswith(
        f"{len(jobs - {1, 2, max(jobs)})} jobs put"
    )


def test_replay_without_a_server_is_4(log: Path, tmp_path: Path) -> None:
    result = run("replay", log, "--to", "127.0.0.1:1", "--journal", tmp_path / "journal")
    assert result.exit_code == 4
    assert "127.0.0.1:1: " in result.stderr
    assert not (tmp_path / "journal").exists(), "another log may go to this server"


@pytest.mark.exhaustive
def test_replay_of_jobs_that_are_too_large_tells_which(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", "0", "-z", "100"), tmp_path) as small:
        small.connect().close()
        log = tmp_path / "copy"
        written(log, contents(EVERY_KIND))
        result = replay(log, small)
    assert result.exit_code == 4
    assert result.stderr == "binlog-inspect: job 9 was not taken: JOB_TOO_BIG\n"
    assert result.stdout.startswith("1 job put")


@pytest.mark.exhaustive
def test_replay_sends_no_commands_out_of_a_log(tmp_path: Path, server: ServerProcess) -> None:
    jobs = [job(1, b"first"), job(2, b"evil", tube=b"x\r\ndelete 1\r\nuse y"),
            *(job(n, b"lost", tube=b"a b") for n in (3, 4)), job(5, b"last")]  # fmt: skip
    log = written(tmp_path / "strange", files_of(made(*jobs)))
    result = replay(log, server)
    assert (result.exit_code, result.stdout) == (4, "2 jobs put\n")
    assert result.stderr.splitlines() == [
        r"binlog-inspect: tube 'x\r\ndelete 1\r\nuse y': jobs that were not put: 1; "
        "no client may use that name",
        "binlog-inspect: tube 'a b': jobs that were not put: 2; no client may use that name",
    ]
    client = server.connect()
    assert client.ask(b"peek-ready\r\n").endswith(b"\r\nfirst\r\n")
    assert b"current-jobs-ready: 2\n" in client.ask(b"stats\r\n")
    client.close()
    result = replay(log, server, "--json")
    (document,) = documents(result)
    assert document["unusable"] == [{"tube": "x\r\ndelete 1\r\nuse y", "jobs": 1},
                                    {"tube": "a b", "jobs": 2}]  # fmt: skip
    assert result.exit_code == 4


@pytest.mark.exhaustive
def test_an_interrupted_replay_is_certain(tmp_path: Path, server: ServerProcess) -> None:
    lines = "".join(json.dumps({"body": str(n)}) + "\n" for n in range(2000))
    CliRunner().invoke(cli, ["import", "-", "-o", str(tmp_path / "many")], input=lines)
    journal = tmp_path / "journal"
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "replay", tmp_path / "many", "--to",
         f"127.0.0.1:{server.port()}", "--journal", journal, "--rate", "500"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (journal.exists() and "put" in journal.read_text()):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run again to go on" in err
    result = run("replay", tmp_path / "many", "--to", f"127.0.0.1:{server.port()}",
                 "--journal", journal)  # fmt: skip
    assert result.exit_code == 0
    client = server.connect()
    stats = client.ask(b"stats\r\n")
    client.close()
    assert b"current-jobs-ready: 2000\n" in stats


def test_diff_of_two_logs(log: Path, tmp_path: Path) -> None:
    copy = written(tmp_path / "copy", contents(log))
    same = run("diff", log, copy)
    assert (same.exit_code, same.output) == (0, "")
    run("filter", copy, "--drop", "--tube", "mail", "--in-place")
    result = run("diff", log, copy)
    mail = {n for n, job in served(log, LATER).items() if job[0] == b"mail"}
    assert result.exit_code == 1
    assert {(row[0], int(row[1])) for row in rows(result)} == {("a", n) for n in mail}
    assert {d["job"] for d in documents(run("diff", "--json", copy, log))} == mail
    quiet = run("diff", "-q", log, copy)
    assert (quiet.exit_code, quiet.output) == (1, "")
    shown = on_a_terminal("diff", log, copy)
    assert f"{len(mail)} jobs differ" in shown


def test_diff_tells_fields(log: Path, tmp_path: Path) -> None:
    run("export", EVERY_KIND, "-o", tmp_path / "lines")
    text = (tmp_path / "lines").read_text().replace('"kicks":0', '"kicks":3')
    (tmp_path / "lines").write_text(text)
    run("import", tmp_path / "lines", "-o", tmp_path / "new")
    result = run("diff", EVERY_KIND, tmp_path / "new")
    assert rows(result) == [["both", "8", "kicks", "0", "3"], ["both", "9", "kicks", "0", "3"]]
    assert "job 8: kicks 0 / 3" in on_a_terminal("diff", EVERY_KIND, tmp_path / "new")
    assert run("diff", EVERY_KIND, tmp_path / "new", "--ignore", "kicks").exit_code == 0


def test_archive_verify(tmp_path: Path) -> None:
    root = archived(tmp_path / "archive", five_segments())
    result = run("archive-verify", root)
    assert result.exit_code == 0
    (row,) = rows(result)
    assert (row[0], row[2]) == ("store", "5")
    (store,) = root.iterdir()
    third = next(store.glob("3-*"))
    third.write_bytes(flipped(third.read_bytes(), 5000))
    next(store.glob("5-*")).unlink()
    next(store.glob("2-*")).unlink()
    result = run("archive-verify", root)
    assert result.exit_code == 3
    assert [row[1] for row in rows(result) if row[0] == "flaw"] == ["damaged", "hole"]
    (document,) = documents(run("archive-verify", "--json", root))
    assert [flaw["kind"] for flaw in document["flaws"]] == ["damaged", "hole"]
    assert document["is_whole"] is False
    shown = on_a_terminal("archive-verify", root)
    assert "not whole; 3 segments" in shown
    assert "segment 2 is missing" in shown


@pytest.mark.parametrize(("limit", "code"), [(1030, 2), (1031, 0)])
def test_a_line_that_is_too_long_is_named(limit: int, code: int, tmp_path: Path) -> None:
    path, new = tmp_path / "jobs.jsonl", tmp_path / "new"
    path.write_text('{"body": "short"}\n{"body": "' + 1019 * "x" + '"}')
    result = run("import", path, "-o", new, "--max-line", str(limit))
    assert result.exit_code == code
    if code:
        assert f"{path}: line 2: it is longer than 1030 bytes" in result.stderr
        assert result.stderr.endswith("; nothing was written\n")
    assert new.exists() is not bool(code)
