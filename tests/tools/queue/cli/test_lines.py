"""Jobs as JSON lines out of a server and into one again, each once, whatever happens in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlog_tools.rewrite.putting import BATCH_JOBS
from tests.server_process import LIMIT_S, ServerProcess, theirs
from tests.tools.cli.running import run as inspect
from tests.tools.queue.cli.test_commands import MAIN, MAX_JOB_BYTES, Server

OF_A_COPY = ("v", "job", "created", "deadline", "delay_s", "tube")
"""What an import cannot keep; times are looked at on their own."""

FILLED = (
    "7 0 60 5 idp:order-7:3600\nready", "3 0 61 2\n\xff\x00",
    "5 0 62 5 grp:{tube} con:sender:2 meta:tenant=acme\ngroup", "9 1000 63 7\ndelayed",
    "9 0 64 5 aft:{tube}\nwaits", "2 0 65 7\nburied1", "1 0 66 7\nburied2",
)  # fmt: skip


def fill(server: Server, tube: str) -> list[str]:
    """Put a job of each kind into a tube, one of them with counters; give their ids."""
    with server.process.connect() as connection:
        connection.ask(b"use %b\r\n" % tube.encode())
        put = [
            connection.ask(b"put " + each.format(tube=tube).encode("latin-1")
                           .replace(b"\n", b"\r\n") + b"\r\n").split()[1].decode()
            for each in FILLED
        ]  # fmt: skip
    server.run("bury", put[6], put[5])
    return put


def exported(server: Server, tube: str, path: Path) -> list[dict[str, Any]]:
    server.run("export", "-t", tube, "-o", path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def without_ids(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in OF_A_COPY}
            for line in lines]  # fmt: skip


def test_what_is_exported_and_imported_is_the_same_but_for_ids_and_ages(
    server: Server, tmp_path: Path
) -> None:
    fill(server, "same")
    before = exported(server, "same", tmp_path / "before")
    assert [line["state"] for line in before] == [
        "ready", "ready", "ready", "delayed", "buried", "buried", "delayed",
    ]  # fmt: skip
    server.run("flush", "same", "--yes")
    result = server.result("import", tmp_path / "before")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "7 jobs put, 2 of them buried\n"
    after = exported(server, "same", tmp_path / "after")
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
            server.run("delete", line["job"])
    assert Counter(line["state"] for line in exported(server, "same", tmp_path / "x"))["ready"] == 3


def test_a_log_can_be_made_of_an_export_and_jobs_of_the_export_of_a_log(
    server: Server, tmp_path: Path
) -> None:
    fill(server, "logged")
    exported(server, "logged", tmp_path / "jobs")
    made = inspect("import", tmp_path / "jobs", "-o", tmp_path / "new")
    assert (made.exit_code, made.stderr) == (0, "")
    assert inspect("export", tmp_path / "new", "-o", tmp_path / "again").exit_code == 0
    words = ("import", tmp_path / "again", "-t", "relogged", "--journal", tmp_path / "journal")
    result = server.result(*words)
    assert (result.exit_code, result.stdout) == (0, "7 jobs put, 2 of them buried\n")
    assert result.stderr == "beanstalk: passed over: line of kind log: 1\n"
    # Nothing is put twice when it is run again.
    (document,) = server.documents(*words)
    assert (document["put"], document["before"]) == (0, 7)
    assert len(exported(server, "relogged", tmp_path / "other")) == 7


@pytest.mark.one_in(3)
@pytest.mark.parametrize("moment", range(4))
def test_a_run_that_is_killed_goes_on_and_each_job_is_there_once(
    moment: int, server: Server, tmp_path: Path
) -> None:
    path, journal, tube = tmp_path / "jobs", tmp_path / "journal", f"killed{moment}"
    count = (8 if moment == 3 else 3) * BATCH_JOBS
    written(path, *(
        {
            "tube": tube, "body": str(number),
            **({"tags": {"unique_key": f"k{number}"}} if number % (2 * BATCH_JOBS) < 100 else {}),
            **({"state": "buried"} if number % 97 == 0 else {}),
        }
        for number in range(count)
    ))  # fmt: skip
    words = [sys.executable, "-c", MAIN, "-s", server.address, "import", str(path),
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
    result = server.result("import", path, "--journal", journal)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    lines = exported(server, tube, tmp_path / "after")
    assert sorted(int(line["body"]) for line in lines) == list(range(count))
    buried = [int(line["body"]) for line in lines if line["state"] == "buried"]
    assert buried == list(range(0, count, 97))


WRONG = [
    ('{"body": "a"}\n{"body": "b"', "line 2: this is not JSON"),
    ('{"body": "a"}\n{"body": 7}', "line 2: body: there must be body or body_base64"),
    ('{"body": "a", "state": "gone"}', "line 1: state: 'gone' is none"),
    ('{"body": "a"}\n{"body": "b", "tube": "a b"}', "line 2: tube: 'a b' is not the name"),
    ('{"body": "a", "priority": -1}', "line 1: priority: -1 is no whole number"),
    ('{"kind": "tube"}', "line 1: kind 'tube' is unknown"),
    ('{"body": "a"}\n{"body": "b", "body": "c"}', "line 2: 'body' stands there twice; leave one"),
    ('{"body": "a", "tags": {"group": "b", "group": "c"}}', "line 1: 'group' stands there twice"),
]


def test_a_wrong_line_of_a_file_is_named_and_nothing_is_put(server: Server, tmp_path: Path) -> None:
    put = server.documents("stats")[0]["total-jobs"]
    for content, why in WRONG:
        (tmp_path / "jobs").write_text(content)
        result = server.result("import", tmp_path / "jobs", "--json")
        assert (result.exit_code, result.stdout) == (2, "")
        error = json.loads(result.stderr)
        assert error["where"] == str(tmp_path / "jobs")
        assert error["what"].startswith(why) and error["what"].endswith("; nothing was put")
    assert server.documents("stats")[0]["total-jobs"] == put


def test_of_a_pipe_it_is_said_what_was_put_before_the_wrong_line(
    server: Server, tmp_path: Path
) -> None:
    content = b'{"body": "x", "tube": "piped"}\n' * (BATCH_JOBS + 1) + b"nonsense\n"
    call = [sys.executable, "-c", MAIN, "-s", server.address, "import", "-"]
    journal = ["--journal", str(tmp_path / "journal")]
    refused = subprocess.run([*call, *journal], input=content, stderr=subprocess.PIPE)
    assert refused.returncode == 2 and b"needs a file that can be read again" in refused.stderr
    done = subprocess.run(call, input=content, capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (2, b"")
    said = f"beanstalk: <stdin>: line {BATCH_JOBS + 2}: this is not JSON; {BATCH_JOBS} jobs put\n"
    assert done.stderr.decode() == said
    assert len(exported(server, "piped", tmp_path / "piped")) == BATCH_JOBS


def test_a_journal_is_of_one_file_and_one_place(server: Server, tmp_path: Path) -> None:
    path, journal = written(tmp_path / "jobs", {"body": "a", "tube": "noted"}), tmp_path / "journal"
    server.run("import", path, "--journal", journal)
    other = server.result("import", path, "--journal", journal, "-t", "other")
    assert other.exit_code == 4 and "is not the journal of these jobs" in other.stderr
    written(path, {"body": "b"})
    server.run("import", path, "--journal", journal, code=4)


def test_jobs_that_are_refused_are_named_and_one_whose_group_is_not_there_is_buried(
    server: Server, tmp_path: Path
) -> None:
    holder = server.run("put", "-t", "refusing", "--unique", "k", "x").strip()
    path = written(
        tmp_path / "jobs", {"tube": "refusing", "body": "1", "tags": {"unique_key": "k"}},
        {"tube": "refusing", "body": "2"}, {"tube": "refusing", "body": "x" * (MAX_JOB_BYTES + 1)},
        {"tube": "refusing", "body": "w", "state": "delayed", "tags": {"after": "elsewhere"}},
    )  # fmt: skip
    result = server.result("import", path)
    assert (result.exit_code, result.stdout) == (4, "2 jobs put, 1 of them buried\n")
    waits, first, second = result.stderr.splitlines()
    assert "no job of the group that it waits for is there" in waits
    why = f"job {holder} of the server has its unique key (ready)"
    assert first == f"beanstalk: line 1 was not put: {why}"
    assert second == "beanstalk: line 3 was not put: JOB_TOO_BIG"
    states = [each["state"] for each in exported(server, "refusing", tmp_path / "after")]
    assert states == ["ready", "ready", "buried"]


def test_a_beanstalkd_takes_what_it_knows(tmp_path: Path) -> None:
    with ServerProcess(theirs(), tmp_path) as process:
        server = Server(process)
        path = written(
            tmp_path / "jobs", {"tube": "t", "body": "1", "priority": 4, "ttr_s": 9},
            {"tube": "t", "body": "2", "state": "buried", "tags": {"group": "g"}},
        )  # fmt: skip
        journal = tmp_path / "journal"
        words = ("import", path, "--journal", journal)
        result = server.result(*words)
        assert (result.exit_code, result.stdout) == (0, "2 jobs put, 1 of them buried\n")
        assert "1 job put without the tag 'grp:'" in result.stderr
        assert server.state(2) == "buried"
        # Nobody knows whether it is there: an earlier run was killed before the answer.
        kept = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(kept[:2]))
        stopped = server.result(*words)
        assert stopped.exit_code == 4 and "--uncertain again" in stopped.stderr
        server.run(*words, "--uncertain", "skip")


def test_bodies_are_shown_and_searched(server: Server) -> None:
    put = fill(server, "searched")
    found = server.result("list", "searched", "--bodies", "--grep", "^(ready|wai)")
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (put[0], "ready", "ready"), (put[4], "delayed", "waits"),
    ]  # fmt: skip
    (document,) = server.documents("list", "searched", "--bodies", "--grep", r"\xff")
    assert document["body_base64"] == "/wA=" and document["size"] == 2
    assert server.result("list", "searched", "--grep", "buried", "-n", "1").stdout.count("\n") == 1
    missing = server.result("list", "searched", "--grep", "nowhere")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "beanstalk: searched has no job with that in its body\n"
    assert server.result("list", "searched", "--grep", "(").exit_code == 2


@pytest.mark.exhaustive
def test_a_hundred_thousand_jobs_take_little_memory(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    with path.open("w") as file:
        for number in range(100_000):
            file.write(json.dumps({"tube": "many", "body": f"{number} " + "x" * 1000}) + "\n")
    # The largest size that `resource` tells of may be that of the process which has forked this.
    code = f"{MAIN.partition(';')[0]}\ntry:\n    beanstalk()\nfinally:\n"
    code += "    print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    address = server.address
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
