"""Jobs as JSON lines out of a server and into one again, each once, whatever happens in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from binlog_tools.rewrite.putting import BATCH_JOBS
from tests.end_to_end.test_client import ours
from tests.server_process import LIMIT_S, ServerProcess, theirs

MAIN = "from beanstalk_twisted.programs import beanstalk; beanstalk()"
OF_A_COPY = ("v", "job", "created", "deadline", "delay_s", "tube")
"""What an import cannot keep; times are looked at on their own."""

FILLED = (
    b"use mail", b"put 7 0 60 5 idp:order-7:3600\nready", b"put 3 0 61 2\n\xff\x00",
    b"put 5 0 62 5 grp:night con:sender:2 meta:tenant=acme\ngroup", b"put 9 1000 63 7\ndelayed",
    b"put 9 0 64 5 aft:night\nwaits", b"put 2 0 65 7\nburied1", b"put 1 0 66 7\nburied2",
)  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(ours("-p0", "-b", tmp_path / "log"), tmp_path) as running:
        running.connect().close()
        yield running


def run(server: ServerProcess, *words: object, typed: bytes = b"") -> Result:
    environment = {"BEANSTALK_SERVER": f"127.0.0.1:{server.port()}"}
    return CliRunner().invoke(cli, list(map(str, words)), input=typed, env=environment)


def fill(server: ServerProcess) -> None:
    """Put a job of each kind into the tube mail, one of them with counters."""
    connection = server.connect()
    for command in FILLED:
        connection.ask(command.replace(b"\n", b"\r\n") + b"\r\n")
    for job in (7, 6):
        assert run(server, "bury", job).exit_code == 0
    connection.close()


def exported(server: ServerProcess, tube: str, path: Path) -> list[dict[str, Any]]:
    result = run(server, "export", "-t", tube, "-o", path)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_ids(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in OF_A_COPY}
            for line in lines]  # fmt: skip


def test_what_is_exported_and_imported_is_the_same_but_for_ids_and_ages(
    server: ServerProcess, tmp_path: Path
) -> None:
    fill(server)
    before = exported(server, "mail", tmp_path / "before")
    assert [line["state"] for line in before] == [
        "ready", "ready", "ready", "delayed", "buried", "buried", "delayed",
    ]  # fmt: skip
    assert run(server, "flush", "mail", "--yes").exit_code == 0
    result = run(server, "import", tmp_path / "before")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "7 jobs put, 2 of them buried\n"
    after = exported(server, "mail", tmp_path / "after")
    assert without_ids(after) == without_ids(before)
    assert [line["job"] for line in after] != [line["job"] for line in before]
    (due,) = [line["deadline"] for line in before if line["deadline"]]
    (due_now,) = [line["deadline"] for line in after if line["deadline"]]
    assert due[:14] == due_now[:14]
    buried = [line["delay_s"] for line in after if line["state"] == "buried"]
    assert buried == [0, 0], "not the delay under which they waited to be buried"
    # A group that is done lets go the job that waits for it.
    for line in after:
        if line.get("tags", {}).get("group"):
            assert run(server, "delete", line["job"]).exit_code == 0
    assert Counter(line["state"] for line in exported(server, "mail", tmp_path / "x"))["ready"] == 3


def test_a_log_can_be_made_of_an_export_and_jobs_of_the_export_of_a_log(
    server: ServerProcess, tmp_path: Path
) -> None:
    from tests.tools.cli.running import run as inspect

    fill(server)
    exported(server, "mail", tmp_path / "jobs")
    made = inspect("import", tmp_path / "jobs", "-o", tmp_path / "new")
    assert (made.exit_code, made.stderr) == (0, "")
    assert inspect("export", tmp_path / "new", "-o", tmp_path / "again").exit_code == 0
    result = run(server, "import", tmp_path / "again", "-t", "other")
    assert result.exit_code == 0
    assert result.stdout == "7 jobs put, 2 of them buried\n"
    assert result.stderr == "beanstalk: passed over: line of kind log: 1\n"


def test_nothing_is_put_twice_when_it_is_run_again(server: ServerProcess, tmp_path: Path) -> None:
    fill(server)
    exported(server, "mail", tmp_path / "jobs")
    words = ("import", tmp_path / "jobs", "-t", "other", "--journal", tmp_path / "journal")
    first = run(server, *words)
    again = run(server, *words, "--json")
    assert first.exit_code == again.exit_code == 0
    document = json.loads(again.stdout)
    assert (document["put"], document["before"]) == (0, 7)
    assert len(exported(server, "other", tmp_path / "other")) == 7


@pytest.mark.parametrize("moment", range(4))
def test_a_run_that_is_killed_goes_on_and_each_job_is_there_once(
    moment: int, server: ServerProcess, tmp_path: Path
) -> None:
    path, journal = tmp_path / "jobs", tmp_path / "journal"
    count = 8 * BATCH_JOBS
    with path.open("w") as file:
        for number in range(count):
            tags = {"tags": {"unique_key": f"k{number}"}} if number % (2 * BATCH_JOBS) < 100 else {}
            state = {"state": "buried"} if number % 97 == 0 else {}
            line = {"tube": "killed", "body": str(number), **tags, **state}
            file.write(json.dumps(line) + "\n")
    words = [sys.executable, "-c", MAIN, "-s", f"127.0.0.1:{server.port()}", "import", str(path),
             "--journal", str(journal)]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    wanted = (b'"sent"', b'"put"', b'"buried"', b'"sent"')[moment]
    # The journal is the clock: it is killed when the first or second such note is there.
    while not journal.exists() or journal.read_bytes().count(wanted) <= (moment == 3) * 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    result = run(server, "import", path, "--journal", journal)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    lines = exported(server, "killed", tmp_path / "after")
    assert sorted(int(line["body"]) for line in lines) == list(range(count))
    buried = [int(line["body"]) for line in lines if line["state"] == "buried"]
    assert buried == list(range(0, count, 97))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"body": "a"}\n{"body": "b"', "line 2: this is not JSON"),
        ('{"body": "a"}\n{"body": 7}', "line 2: body: there must be body or body_base64"),
        ('{"body": "a", "state": "gone"}', "line 1: state: 'gone' is none"),
        ('{"body": "a"}\n{"body": "b", "tube": "a b"}', "line 2: tube: 'a b' is not the name"),
        ('{"body": "a", "priority": -1}', "line 1: priority: -1 is no whole number"),
        ('{"kind": "tube"}', "line 1: kind 'tube' is unknown"),
    ],
)
def test_a_wrong_line_of_a_file_is_named_and_nothing_is_put(
    content: str, why: str, server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text(content)
    result = run(server, "import", tmp_path / "jobs", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    error = json.loads(result.stderr)
    assert error["where"] == str(tmp_path / "jobs")
    assert error["what"].startswith(why) and error["what"].endswith("; nothing was put")
    assert "current-jobs-ready: 0" in server.connect().ask(b"stats\r\n").decode()


def test_of_a_pipe_it_is_said_what_was_put_before_the_wrong_line(
    server: ServerProcess, tmp_path: Path
) -> None:
    content = b'{"body": "x", "tube": "piped"}\n' * (BATCH_JOBS + 1) + b"nonsense\n"
    call = [sys.executable, "-c", MAIN, "-s", f"127.0.0.1:{server.port()}", "import", "-"]
    journal = ["--journal", str(tmp_path / "journal")]
    refused = subprocess.run([*call, *journal], input=content, stderr=subprocess.PIPE)
    assert refused.returncode == 2 and b"needs a file that can be read again" in refused.stderr
    done = subprocess.run(call, input=content, capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (2, b"")
    said = f"beanstalk: <stdin>: line {BATCH_JOBS + 2}: this is not JSON; {BATCH_JOBS} jobs put\n"
    assert done.stderr.decode() == said
    assert len(exported(server, "piped", tmp_path / "piped")) == BATCH_JOBS


def test_a_journal_is_of_one_file_and_one_place(server: ServerProcess, tmp_path: Path) -> None:
    path, journal = tmp_path / "jobs", tmp_path / "journal"
    path.write_text('{"body": "a"}\n')
    assert run(server, "import", path, "--journal", journal).exit_code == 0
    other = run(server, "import", path, "--journal", journal, "-t", "other")
    assert other.exit_code == 4 and "is not the journal of these jobs" in other.stderr
    path.write_text('{"body": "b"}\n')
    assert run(server, "import", path, "--journal", journal).exit_code == 4


def test_a_unique_key_that_is_taken_and_a_body_that_is_too_big_are_named(
    server: ServerProcess, tmp_path: Path
) -> None:
    assert run(server, "put", "-t", "t", "--unique", "k", "x").exit_code == 0
    lines = [
        {"tube": "t", "body": "1", "tags": {"unique_key": "k"}}, {"tube": "t", "body": "2"},
        {"tube": "t", "body": "x" * 70_000}, {"tube": "t", "body": "3"},
    ]  # fmt: skip
    (tmp_path / "jobs").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(server, "import", tmp_path / "jobs")
    assert (result.exit_code, result.stdout) == (4, "2 jobs put\n")
    first, second = result.stderr.splitlines()
    assert first == "beanstalk: line 1 was not put: job 1 of the server has its unique key (ready)"
    assert second == "beanstalk: line 3 was not put: JOB_TOO_BIG"


def test_a_job_that_waits_for_a_group_that_is_not_there_is_buried(
    server: ServerProcess, tmp_path: Path
) -> None:
    line = {"tube": "t", "body": "w", "state": "delayed", "tags": {"after": "elsewhere"}}
    (tmp_path / "jobs").write_text(json.dumps(line))
    result = run(server, "import", tmp_path / "jobs")
    assert result.exit_code == 0
    assert "no job of the group that it waits for is there" in result.stderr
    (after,) = exported(server, "t", tmp_path / "after")
    assert after["state"] == "buried"


def test_a_beanstalkd_takes_what_it_knows_and_lists_nothing(tmp_path: Path) -> None:
    with ServerProcess(theirs(), tmp_path) as server:
        server.connect().close()
        lines = [
            {"tube": "t", "body": "1", "priority": 4, "ttr_s": 9},
            {"tube": "t", "body": "2", "state": "buried", "tags": {"group": "g"}},
        ]  # fmt: skip
        (tmp_path / "jobs").write_text("".join(json.dumps(line) + "\n" for line in lines))
        words = ("import", tmp_path / "jobs", "--journal", tmp_path / "journal")
        result = run(server, *words)
        assert (result.exit_code, result.stdout) == (0, "2 jobs put, 1 of them buried\n")
        assert "1 job put without the tag 'grp:'" in result.stderr
        assert b"state: buried" in server.connect().ask(b"stats-job 2\r\n")
        # Nobody knows whether it is there: an earlier run was killed before the answer.
        journal = tmp_path / "journal"
        kept = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(kept[:2]))
        stopped = run(server, *words)
        assert stopped.exit_code == 4 and "--uncertain again" in stopped.stderr
        assert run(server, *words, "--uncertain", "skip").exit_code == 0
        result = run(server, "export", "-t", "t")
        assert result.exit_code == 5
        assert "this server has no list-jobs; of a beanstalkd that is stopped" in result.stderr


def test_bodies_are_shown_and_searched(server: ServerProcess) -> None:
    fill(server)
    found = run(server, "list", "mail", "--bodies", "--grep", "^(ready|wai)")
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("1", "ready", "ready"), ("5", "delayed", "waits"),
    ]  # fmt: skip
    (document,) = map(
        json.loads, run(server, "list", "mail", "--bodies", "--grep", r"\xff", "--json")
        .stdout.splitlines(),
    )  # fmt: skip
    assert document["body_base64"] == "/wA=" and document["size"] == 2
    assert run(server, "list", "mail", "--grep", "buried", "-n", "1").stdout.count("\n") == 1
    missing = run(server, "list", "mail", "--grep", "nowhere")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "beanstalk: mail has no job with that in its body\n"
    assert run(server, "list", "mail", "--grep", "(").exit_code == 2


@pytest.mark.exhaustive
def test_a_hundred_thousand_jobs_take_little_memory(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    with path.open("w") as file:
        for number in range(100_000):
            file.write(json.dumps({"tube": "many", "body": f"{number} " + "x" * 1000}) + "\n")
    # The largest size that `resource` tells of may be that of the process which has forked this.
    code = f"{MAIN.partition(';')[0]}\ntry:\n    beanstalk()\nfinally:\n"
    code += "    print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    address = f"127.0.0.1:{server.port()}"
    for words in (
        ["import", path, "--journal", tmp_path / "journal"],
        ["export", "-t", "many", "-o", tmp_path / "after"],
    ):
        call = [sys.executable, "-c", code, "-s", address, *map(str, words)]
        done = subprocess.run(call, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.splitlines()[-1]) < 200 * 1024, "KiB"
    with (tmp_path / "after").open() as file:
        bodies = {json.loads(line)["body"].split()[0] for line in file}
    assert len(bodies) == 100_000
