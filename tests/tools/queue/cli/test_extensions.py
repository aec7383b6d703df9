"""What the command does on a server with more commands than beanstalkd's, and on a real one
without.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from beanstalk_twisted.client import hashed_key, sync
from binlog_tools.queue.cli.commands import cli
from binlog_tools.queue.cli.put import NO_ROOM
from binlog_tools.queue.moving import BATCH_JOBS
from tests.end_to_end.test_client import ours
from tests.script_server import Listener, answer, copy
from tests.server_process import LIMIT_S, Connection, ServerProcess, theirs
from tests.tools.queue.cli.test_commands import (
    MAX_JOB_BYTES,
    Server,
    answered,
    filled,
    on_a_terminal,
    read_to_the_end,
)
from tests.tools.queue.lines import EXTENDED

BIGGEST = b"\n".join([b"x" * (1 << 20)] * 15)
"""As many bytes of bodies as a batch has at most."""

BATCH = ("put", "--lines", "--batch-unique")


class Relay(Listener):
    """Stands between the command and a server, and notes the commands that are sent.

    :ivar sent: before the server has them.
    :ivar passed_on: when it has them.
    """

    def __init__(self, port: int) -> None:
        self.sent: list[str] = []
        self.passed_on: list[str] = []
        self._port = port
        super().__init__(self._relay)

    def _relay(self, client: socket.socket) -> None:
        with Connection(self._port) as server:
            back = threading.Thread(target=copy, args=(server.socket, client, threading.Lock()))
            back.start()
            with client.makefile("rb") as lines:
                for line in lines:
                    word = b"".join(line.split()[:1]).decode()
                    self.sent.append(word)
                    server.send(line)
                    self.passed_on.append(word)
            server.half_close()
            back.join(LIMIT_S)


def test_a_server_that_is_not_replicated_hands_nothing_over(server: Server) -> None:
    server.run("promote", code=4)


def test_the_jobs_of_a_tube_are_listed(server: Server) -> None:
    jobs = filled(server, "listed")
    rows = [line.split("\t") for line in server.run("list", "listed").splitlines()]
    put = [*jobs["ready"], *jobs["delayed"], *jobs["buried"]]
    states = [state for state in ("ready", "delayed", "buried") for _ in range(2)]
    assert [row[:3] for row in rows] == [
        [job, state, "65536"] for job, state in zip(put, states, strict=True)
    ]
    assert rows[0][5:] == ["1", "0", "0", "0", "0", "0", "0", "60", "-", "-"]
    assert 490 <= int(rows[2][4]) <= 500 and rows[2][11] == "500"
    found = server.documents("list", "listed", "--state", "buried", "--limit", 1)
    (only,) = found
    assert (only["id"], only["tube"], only["buries"]) == (int(jobs["buried"][0]), "listed", 1)
    assert only["size"] == 1 and "connection" not in only


def test_a_reserved_job_is_listed_with_the_connection_that_has_it(server: Server) -> None:
    job = int(server.run("put", "-t", "taken", "--ttr", 90, "x"))
    worker = Connection(server.process.port())
    worker.ask(b"reserve-job %d\r\n" % job)
    (found,) = server.documents("list", "taken", "--state", "reserved")
    assert found["id"] == job and 80 <= found["time-left"] <= 90
    holders = [each for each in server.documents("connections") if each["reserved"]]
    assert [each["connection"] for each in holders] == [found["connection"]]
    assert list(holders[0]["time-left"]) == [str(job)] and holders[0]["role"] == ["worker"]
    worker.close()


def test_states_of_a_list_add_up(server: Server) -> None:
    jobs = filled(server, "several")
    words = ("--state", "buried", "--state", "ready")
    listed = [line.split("\t")[0] for line in server.run("list", "several", *words).splitlines()]
    assert listed == [*jobs["ready"], *jobs["buried"]]
    for limit, count in (2, 2), (3, 3), (9, 4):
        assert len(server.run("list", "several", *words, "-n", limit).splitlines()) == count
    assert len(server.documents("list", "several", *words, "--state", "all")) == 6
    result = server.result("list", "several", "--state", "reserved", "--state", "reserved")
    assert result.stderr == "beanstalk: several has no reserved job\n"


def test_a_group_is_shown_and_who_waits_for_it(server: Server) -> None:
    first = server.run("put", "-t", "grouped", "--group", "shown", "x")
    server.run("put", "-t", "grouped", "--after", "shown", "x")
    rows = [line.split("\t") for line in server.run("list", "grouped").splitlines()]
    assert [(row[1], row[-1]) for row in rows] == [("ready", "-"), ("delayed", "shown")]
    (found,) = server.documents("stats", "--group", "shown")
    assert (found["name"], found["pending"], found["waiting-jobs"]) == ("shown", 1, 1)
    assert found["complete"] is False
    server.run("delete", first.strip())
    assert server.run("list", "grouped").split("\t")[-1] == "-\n"
    result = server.result("stats", "--group", "shown")
    assert result.exit_code == 4
    assert "NOT_FOUND: the group has no job, and none waits for it" in result.stderr


def test_many_jobs_are_listed_each_once(server: Server) -> None:
    put = server.run("put", "-t", "lots", "-l", typed=b"x\n" * 2500).split()
    listed = [line.split("\t")[0] for line in server.run("list", "lots").splitlines()]
    assert listed == put
    assert len(server.run("list", "lots", "-n", 1001).splitlines()) == 1001
    assert [each["id"] for each in server.documents("list", "lots")] == list(map(int, put))


def test_a_tube_without_such_jobs_is_told(server: Server) -> None:
    server.run("put", "-t", "bare", "x")
    result = server.result("list", "bare", "--state", "buried")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "beanstalk: bare has no buried job\n"
    assert server.result("list").stderr == "beanstalk: default has no job\n"
    result = server.result("list", "nowhere")
    assert result.exit_code == 4 and "there is no tube nowhere" in result.stderr


def test_connections_are_shown_in_a_table(server: Server) -> None:
    server.run("put", "-t", "used", "x")
    user = Connection(server.process.port())
    user.ask(b"use used\r\n")
    rows = [line.split("\t") for line in server.run("connections").splitlines()]
    (found,) = [row for row in rows if row[3] == "used"]
    assert found[2] == "-" and found[4:8] == ["1", "0", "-", "0"]
    screen, process = on_a_terminal(server, "connections")
    shown = read_to_the_end(screen).decode()
    assert process.wait(timeout=LIMIT_S) == 0
    assert "using" in shown and "peer" in shown and "buffered" not in shown
    user.close()


def test_a_tube_is_flushed_and_what_is_reserved_stays(server: Server) -> None:
    jobs = filled(server, "flushed")
    worker = Connection(server.process.port())
    worker.ask(b"reserve-job %b\r\n" % jobs["ready"][0].encode())
    result = server.result("flush", "flushed", "--yes", "--state", "buried", "--state", "delayed")
    assert (result.exit_code, result.stdout) == (0, "4 jobs deleted\n")
    assert result.stderr == "beanstalk: deleting 2 buried and 2 delayed jobs of flushed\n"
    assert server.documents("flush", "flushed", "-y") == [{"v": 1, "deleted": 1}]
    assert server.state(jobs["ready"][0]) == "reserved"
    assert worker.ask(b"delete %b\r\n" % jobs["ready"][0].encode()) == b"DELETED\r\n"
    worker.ask(b"use flushed\r\n")
    result = server.result("flush", "flushed")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "0 jobs deleted\n", "")
    worker.close()
    result = server.result("flush", "nowhere")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "0 jobs deleted\n", "")


def test_without_a_terminal_nothing_is_flushed_unless_yes_is_said(server: Server) -> None:
    filled(server, "unasked")
    result = server.result("flush", "unasked")
    assert (result.exit_code, result.stderr) == (
        2,
        "beanstalk: 2 ready, 2 delayed and 2 buried jobs of unasked would be deleted; nobody is "
        "there to be asked, so give --yes\n",
    )
    assert len(server.run("list", "unasked").splitlines()) == 6


@pytest.mark.parametrize(("typed", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 2)])
def test_flush_asks_on_a_terminal(server: Server, typed: bytes, code: int, left: int) -> None:
    tube = f"flush-{code}"
    filled(server, tube)
    words, question = f"flush {tube} --state buried", f"Delete 2 buried jobs of {tube}?"
    assert answered(server, words, question, typed)[0] == code
    assert server.documents("stats", "-t", tube)[0]["current-jobs-buried"] == left


def begin_wait(server: Server, job: object, *form: str) -> subprocess.Popen[str]:
    """Begin to wait for the end of a job, and see that the server knows it."""
    heard = Server(server.process)
    listener = Relay(server.process.port())
    heard.address = listener.address
    process = heard.start("wait", job, *form)
    while "wait-job" not in listener.passed_on:
        time.sleep(0.001)
    # It was sent before this, so it is carried out before the reply.
    server.process.connect().close()
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process; give its exit code and what it has printed."""
    said, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, said


def test_the_end_of_a_job_is_waited_for(server: Server) -> None:
    job = server.run("put", "-t", "awaited", "x").strip()
    assert server.run("wait", job, "--timeout", 0, code=124) == "TIMED_OUT\n"
    processes = [begin_wait(server, job), begin_wait(server, job, "--timeout", "1000")]
    server.run("delete", job)
    assert [ended(process) for process in processes] == [(0, "DELETED\n")] * 2
    assert server.run("wait", job, code=1) == "NOT_FOUND\n"


def test_a_job_that_is_buried_is_told_too(server: Server) -> None:
    job = int(server.run("put", "-t", "ending", "x"))
    process = begin_wait(server, job)
    server.run("bury", job)
    assert ended(process) == (3, "BURIED\n")
    outcome = {"v": 1, "id": job, "outcome": "BURIED"}
    assert server.documents("wait", job, code=3) == [outcome]


def test_a_server_is_drained_and_takes_jobs_again(server: Server) -> None:
    assert server.run("drain") == "new jobs are refused\n"
    result = server.result("put", "-t", "drained", "x")
    assert result.exit_code == 4 and "DRAINING" in result.stderr
    assert server.documents("drain") == [{"v": 1, "draining": True}]
    assert server.documents("undrain") == [{"v": 1, "draining": False}]
    assert server.run("undrain") == "new jobs are taken\n"
    server.run("put", "-t", "drained", "x")


def test_a_job_is_put_with_tags_and_at_a_moment(server: Server) -> None:
    words = ("--unique", "order-7:60", "--concurrency", "shop:2", "--group", "night")
    moment = int(time.time()) + 500
    (job,) = server.documents("put", "-t", "tagged-put", *words, "--at", moment, "x")
    facts = server.documents("stats", "--job", job["id"])[0]
    assert (facts["idempotency-key"], facts["idempotency-ttl"]) == ("order-7", 60)
    assert (facts["concurrency-key"], facts["concurrency-limit"]) == ("shop", 2)
    assert (facts["group"], facts["state"]) == ("night", "delayed")
    assert 480 <= facts["time-left"] <= 500
    result = server.result("put", "-t", "tagged-put", "--unique", "order-7", "another")
    assert (result.exit_code, result.stdout) == (0, f"{job['id']}\n")
    assert f"nothing was put: job {job['id']} has, or had, that unique key" in result.stderr
    again = server.documents("put", "-t", "tagged-put", "--unique", "order-7", "another")
    assert again == [{"v": 1, "id": job["id"], "there": "delayed"}]
    last = server.run("put", "-t", "tagged-put", "-l", "--after", "night", typed=b"a\nb\n")
    assert [server.state(each) for each in last.split()] == ["delayed", "delayed"]


def test_a_job_has_metadata_of_any_text(server: Server) -> None:
    (job,) = server.documents("put", "-t", "described", "--metadata", 'tenant="a b"', "x")
    facts = server.documents("stats", "--job", job["id"])[0]
    assert facts["metadata"] == "tenant=%22a%20b%22"
    command = 'test "$BEANSTALK_JOB_METADATA" = tenant=%22a%20b%22'
    server.run("reserve", "-t", "described", "--exec", command)
    server.run("put", "-t", "described", "y")
    command = 'test "${BEANSTALK_JOB_METADATA-unset}" = ""'
    server.run("reserve", "-t", "described", "--exec", command)
    result = server.result("put", "-t", "described", "--metadata", "m" * 1025, "x")
    assert result.exit_code == 2 and "has 1 to 1024 bytes" in result.stderr


def test_lines_with_a_key_are_put_once(server: Server) -> None:
    words = ("put", "-t", "put-once", "--lines", "--batch-unique", "night:60")
    first = server.run(*words, typed=b"a\nb\r\nc\n").split()
    again = server.result(*words, typed=b"d\n")
    assert (again.exit_code, again.stdout.split()) == (0, first)
    assert "nothing was put: 3 jobs had that key before" in again.stderr
    assert [server.documents("peek", each)[0]["body"] for each in first] == ["a", "b", "c"]
    assert [each["new"] for each in server.documents(*words, typed=b"d\n")] == [False] * 3


@pytest.mark.parametrize(
    ("words", "typed", "code"),
    [
        ("--batch-unique k x", b"", 2), ("--lines --batch-unique a:b", b"a", 2),
        ("--lines --batch-unique k --at +2h", b"a", 2), ("--lines --batch-unique k", b"", 1),
        ("--lines --batch-unique k --unique u", b"a", 2),
        ("--lines --batch-unique k", b"a\n" * 1001, 4),
        ("--lines --batch-unique k", BIGGEST + b"x", 4),
        ("--lines --batch-unique k --metadata m", BIGGEST, 4),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_is_refused(
    server: Server, words: str, typed: bytes, code: int
) -> None:
    result = server.result("put", "-t", "put-once", *words.split(), typed=typed)
    assert (result.exit_code, result.stdout) == (code, "")


def test_jobs_of_a_batch_have_other_tags(server: Server) -> None:
    words = ("--group", "batch-group", "--concurrency", "few:2", "--metadata", "a b")
    put = ("put", "-t", "tagged-batch", "--lines", "--batch-unique", "tagged", *words)
    for job in server.run(*put, typed=b"a\nb\n").split():
        (facts,) = server.documents("stats", "--job", job)
        assert (facts["group"], facts["metadata"]) == ("batch-group", "a%20b")
        assert (facts["concurrency-key"], facts["concurrency-limit"]) == ("few", 2)


def test_a_batch_is_as_large_as_the_server_takes(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0, "-z", 1 << 20), tmp_path) as running:
        server = Server(running)
        assert len(server.run(*BATCH, "k", typed=BIGGEST).split()) == 15
        few = b"\r\n".join([b"x" * 15728] * 1000)
        assert len(server.run(*BATCH, "l", typed=few).split()) == 1000


class Breaking(Relay):
    """A relay that loses the reply to the first `put-batch`.

    :ivar is_over: no connection is accepted after that.
    """

    def __init__(self, port: int, is_over: bool) -> None:
        self._has_lost = False
        self._is_over = is_over
        super().__init__(port)

    def _relay(self, client: socket.socket) -> None:
        if self._has_lost:
            super()._relay(client)
            return
        with Connection(self._port) as server, client.makefile("rb") as lines:
            for line in lines:
                server.send(line)
                if line.startswith(b"put-batch"):
                    server.send(lines.readline() + lines.readline())
                    assert server.reply().startswith(b"INSERTED_BATCH 1\r\n")
                    self._has_lost = True
                    if self._is_over:
                        self.close()
                    return
                client.sendall(server.reply())


@pytest.mark.parametrize(
    ("is_over", "code", "said"),
    [
        (False, 0, "the batch was sent again: 1 job had the key, put before the loss or in an"),
        (True, 4, "; 0 or 1 job put; run it again with the same key\n"),
    ],
)  # fmt: skip
def test_a_batch_whose_connection_is_lost_is_sent_again(
    server: Server, is_over: bool, code: int, said: str
) -> None:
    tube = f"lost-{code}"
    far = Server(server.process)
    with Breaking(server.process.port(), is_over) as relay:
        far.address = relay.address
        result = far.result(*BATCH, "lost", "-t", tube, typed=b"a\n")
    assert result.exit_code == code and said in result.stderr
    (job,) = server.documents("list", tube)
    again = server.result(*BATCH, "lost", "-t", tube, typed=b"a\n")
    assert (again.exit_code, again.stdout) == (0, f"{job['id']}\n")
    assert result.stdout == ("" if is_over else again.stdout)


def test_the_first_reserved_job_is_shown(server: Server) -> None:
    assert server.result("peek", "-t", "held", "--state", "reserved").exit_code == 1
    server.run("put", "-t", "held", "x")
    worker = Connection(server.process.port())
    worker.ask(b"watch held\r\n")
    worker.ask(b"reserve\r\n")
    assert server.run("peek", "-t", "held", "--state", "reserved") == "x\n"
    worker.close()


def test_a_job_is_put_with_keys_that_are_hashed(server: Server) -> None:
    words = (
        "--unique-by", "order:7 ä", "--unique-seconds", 60, "--concurrency-by", "a@b.c",
        "--concurrency-limit", 2, "--group-by", "night of the 3rd",
    )  # fmt: skip
    (job,) = server.documents("put", "-t", "hashed-put", *words, "x")
    facts = server.documents("stats", "--job", job["id"])[0]
    assert (facts["idempotency-key"], facts["idempotency-ttl"]) == (hashed_key("order:7 ä"), 60)
    assert (facts["concurrency-key"], facts["concurrency-limit"]) == (hashed_key("a@b.c"), 2)
    assert facts["group"] == hashed_key("night of the 3rd")
    again = server.documents("put", "-t", "hashed-put", "--unique-by", "order:7 ä", "another")
    assert again == [{"v": 1, "id": job["id"], "there": "ready"}]
    (night,) = server.documents("stats", "--group-by", "night of the 3rd")
    assert (night["name"], night["pending"]) == (hashed_key("night of the 3rd"), 1)
    last = server.run("put", "-t", "hashed-put", "--after-by", "night of the 3rd", "y").strip()
    assert server.state(last) == "delayed"


def test_lines_that_come_together_are_put_together(server: Server) -> None:
    count = 5000
    numbers = b"".join(b"%d\n" % number for number in range(count))
    before = server.documents("stats")[0]["cmd-put"]
    jobs = server.run("put", "-t", "batched", "-l", "--pri", 7, "--ttr", 9, typed=numbers).split()
    # The jobs of batches are not counted as commands.
    assert server.documents("stats")[0]["cmd-put"] - before < count // 2
    assert len(jobs) == count
    assert [server.run("peek", jobs[at]) for at in (0, 999, 1000, -1)] == [
        "0\n", "999\n", "1000\n", "4999\n"
    ]  # fmt: skip
    (stats,) = server.documents("stats", "-j", jobs[1])
    assert (stats["pri"], stats["ttr"]) == (7, 9)


def test_a_line_that_is_too_big_is_told_and_the_rest_put_in_order(server: Server) -> None:
    big = b"x" * (MAX_JOB_BYTES + 1)
    typed = b"a\nb\n" + big + b"\nc\nd\n" + b"y" * MAX_JOB_BYTES
    result = server.result("put", "-t", "big-batch", "--lines", typed=typed)
    assert result.exit_code == 4
    jobs = result.stdout.split()
    assert [server.run("peek", job)[:2] for job in jobs] == ["a\n", "b\n", "c\n", "d\n", "yy"]
    assert "line 3 of the input of 100,001 bytes was not put: the server says" in result.stderr


def test_a_batch_that_is_refused_is_told_with_its_lines(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0), tmp_path) as running:
        server = Server(running)
        server.run("drain")
        result = server.result("put", "-l", "--json", typed=b"a\nb\nc\n")
        assert (result.exit_code, result.stdout) == (4, "")
        first, last = map(json.loads, result.stderr.splitlines())
        assert (first["code"], first["exit"]) == ("DRAINING", 4)
        assert first["what"] == "lines 1 to 3 of the input were not put: the server says DRAINING"
        assert (last["code"], last["what"]) == ("REFUSED", "0 jobs put, 3 not")


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_many_jobs_are_moved_and_deleted(server: Server, state: str) -> None:
    source, target = f"many-{state}", f"moved-{state}"
    count = 2 * BATCH_JOBS + 1
    delay = 500 if state == "delayed" else 0
    jobs = server.run("put", "-t", source, "-d", delay, "-l", typed=b"x\n" * count).split()
    if state == "buried":
        server.run("bury", *jobs)
    moved = server.documents("move", target, "--from", source, "--state", state, "-n", count - 1)
    assert [each["old"] for each in moved] == list(map(int, jobs[:-1]))
    assert server.run("move", target, "--from", source, "--state", state).startswith(jobs[-1])
    (found,) = server.documents("stats", "-t", target)
    assert found[f"current-jobs-{state}"] == count
    gone = server.run("delete", "-t", target, "--all", "--yes", "--state", state)
    assert gone == f"{count} jobs deleted\n"


def bodies_of(server: Server, *tubes: str) -> list[bytes]:
    """Give the bodies of all jobs of these tubes, when nobody has one reserved any more."""
    with sync.Client(server.address) as queue:
        while queue.stats().current_jobs_reserved:
            pass  # The server has not noticed yet that the connection is over.
        jobs = [each["id"] for tube in tubes for each in server.documents("list", tube)]
        with queue.pipeline() as pipe:
            return [answer.result.body for answer in [pipe.peek(job) for job in jobs]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", ["command", "server"])
def test_a_kill_in_the_middle_of_a_move_loses_no_job(tmp_path: Path, killed: str) -> None:
    count = 10_000
    bodies = [b"%d" % number for number in range(count)]
    command = ours("-p", 0, "--binlog", tmp_path / "log")
    with ServerProcess(command, tmp_path) as running:
        server = Server(running)
        server.run("put", "-t", "old", "-l", typed=b"\n".join(bodies))
        process = server.start("move", "new", "--from", "old")
        assert process.stdout is not None and process.stdout.readline()
        victim = process if killed == "command" else running.process
        victim.kill()
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == (-signal.SIGKILL if killed == "command" else 4)
        if killed == "command":
            found = bodies_of(server, "old", "new")
    if killed == "server":
        with ServerProcess(command, tmp_path) as running:
            found = bodies_of(Server(running), "old", "new")
    assert sorted(found) == sorted(bodies)


def put_with_tags(server: Server, tube: str, *tags: str) -> list[int]:
    """Put a job for each of these tags; give their ids."""
    with closing(Connection(server.process.port())) as client:
        client.ask(b"use %b\r\n" % tube.encode())
        lines = [b"put 7 0 60 1 %b\r\nx\r\n" % tag.encode() for tag in tags]
        return [int(client.ask(line).split()[1]) for line in lines]


@pytest.mark.parametrize("by", ["id", "tube"])
def test_a_job_is_moved_with_its_id_its_counters_and_its_tags(server: Server, by: str) -> None:
    source, target = f"tagged-{by}", f"tagged-too-{by}"
    (job,) = put_with_tags(server, source, f"idp:key-{by} grp:night")
    server.run("bury", job)
    which = (job,) if by == "id" else ("--from", source, "--state", "buried")
    assert server.documents("move", target, *which) == [{"v": 1, "old": job, "new": job}]
    (stats,) = server.documents("stats", "-j", job)
    assert (stats["tube"], stats["state"], stats["reserves"]) == (target, "buried", 1)
    assert (stats["idempotency-key"], stats["group"]) == (f"key-{by}", "night")
    which = (job,) if by == "id" else ("--from", target, "--state", "buried")
    server.run("move", source, *which, "--kick")
    assert server.state(str(job)) == "ready"


def test_a_job_whose_unique_key_is_taken_is_left_and_the_others_moved(server: Server) -> None:
    (there,) = put_with_tags(server, "keys-there", "idp:k")
    first, taken, last = put_with_tags(server, "keys-here", "grp:a", "idp:k", "grp:b")
    said = f"job {there} has, or had, its unique key there\n"
    result = server.result("move", "keys-there", "--from", "keys-here")
    assert result.exit_code == 4 and said in result.stderr
    assert result.stdout == f"{first}\t{first}\n{last}\t{last}\n"
    result = server.result("move", "keys-there", taken)
    assert result.exit_code == 4 and said in result.stderr
    assert server.run("list", "keys-here").split()[0] == str(taken)


def test_of_a_job_that_is_given_what_stays_is_as_it_was(server: Server) -> None:
    job = server.run("put", "-t", "edited", "-p", 9, "-d", 500, "--ttr", 70, "old").strip()
    assert server.run("edit", job, "--pri", 3) == ""
    (stats,) = server.documents("stats", "-j", job)
    assert (stats["pri"], stats["ttr"], stats["state"]) == (3, 70, "delayed")
    assert 400 <= stats["time-left"] <= 500
    body = {"v": 1, "id": int(job), "updated": True}
    assert server.documents("edit", job, "--body", "-", typed=b"new") == [body]
    assert server.run("peek", job) == "new\n"
    server.run("edit", job, "--delay", 0, "--ttr", 80, "-p", 4)
    (stats,) = server.documents("stats", "-j", job)
    assert (stats["pri"], stats["ttr"], stats["state"]) == (4, 80, "ready")
    server.run("bury", job)
    server.run("edit", job, "--ttr", 90)
    assert server.state(job) == "buried" and server.run("peek", job) == "new\n"


def test_a_ready_job_stays_ready_and_one_that_waits_for_a_group_waits(server: Server) -> None:
    ready, waiting = put_with_tags(server, "edited-groups", "grp:first", "aft:first")
    for job in (ready, waiting):
        server.run("edit", job, "--pri", 1)
    assert [server.state(str(job)) for job in (ready, waiting)] == ["ready", "delayed"]
    server.run("delete", ready)
    assert server.documents("stats", "-j", waiting)[0]["state"] == "ready"


def test_what_cannot_be_edited_is_told(server: Server) -> None:
    job = server.run("put", "-t", "held", "x").strip()
    with closing(Connection(server.process.port())) as worker:
        worker.ask(b"reserve-job %b\r\n" % job.encode())
        result = server.result("edit", job, "-p", 1)
        assert result.exit_code == 4 and f"update-job (job {job})" in result.stderr
    result = server.result("edit", 999_999, "-p", 1)
    assert result.exit_code == 4 and "there is no job 999999" in result.stderr
    result = server.result("edit", job, "--body", "-", typed=b"")
    assert result.exit_code == 1 and "nothing was changed; --empty" in result.stderr
    server.run("edit", job, "--body", "-", "--empty", typed=b"")
    assert server.documents("peek", job)[0]["body"] == ""
    big = b"x" * (MAX_JOB_BYTES + 1)
    result = server.result("edit", job, "--body", "-", typed=big)
    assert result.exit_code == 4
    assert "JOB_TOO_BIG: the body is larger than the max-job-size of the s" in result.stderr


def test_a_policy_is_set_shown_and_removed(server: Server) -> None:
    assert server.run("policy", "ruled") == ""
    shown = "max-reserves\t5\tcommand\ndead-letter\t77\tcommand\nrate\t9:9\tcommand\n"
    changes = ("rate=9:9", "dead-letter=77", "max-reserves=5")
    assert server.run("policy", "ruled", *changes) == shown
    assert server.run("policy", "ruled") == shown
    assert server.documents("policy", "ruled", "rate=-") == [
        {
            "v": 1, "tube": "ruled", "max-reserves": 5, "max-reserves-from": "command",
            "dead-letter": "77", "dead-letter-from": "command",
        }
    ]  # fmt: skip


def test_a_policy_that_is_wrong_changes_nothing(server: Server) -> None:
    for change, said in (
        ("max-fun=1", "there is no key 'max-fun'; keys are max-reserves, dead-letter, "),
        ("max-reserves=many", "max-reserves is a whole number from 1 to 4294967295, not 'many'"),
        ("max-reserves=0", "max-reserves is a whole number from 1 to 4294967295, not '0'"),
        ("rate=5:0", "rate is <jobs>[:<burst>], both from 1 to 1000000, not '5:0'"),
    ):
        result = server.result("policy", "unruled", "max-jobs=1", change)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.startswith(f"beanstalk: tube-policy (tube unruled): {said}")
        assert result.stderr.endswith("; nothing was changed\n")
    result = server.result("policy", "unruled", "max-jobs=1", "rate=1", "rate=2")
    assert "beanstalk: tube-policy: rate stands 2 times; nothing was changed\n" in result.stderr
    assert server.run("policy", "unruled") == ""


def test_of_a_policy_that_an_older_server_refuses_the_rules_are_named() -> None:
    known = b"---\n- tube-policy\n"
    said = {b"capabilities": b"OK %d\r\n%b\r\n" % (len(known), known)}
    said[b"use"] = b"USING default\r\n"
    with Listener(answer(lambda words: said.get(words[0], b"BAD_FORMAT\r\n"))) as listener:
        words = ["policy", "mail", "max-age=5", "rate=9", "-s", listener.address]
        result = CliRunner().invoke(cli, words)
    assert result.exit_code == 4
    assert result.stderr.endswith("; refused: max-age=5 or rate=9\n")


def test_a_policy_that_refuses_a_job_is_named(server: Server) -> None:
    server.run("policy", "narrow", "max-job-size=3")
    result = server.result("put", "-t", "narrow", "too big")
    assert (result.exit_code, result.stdout) == (4, "")
    assert (
        f"the server takes jobs of up to {MAX_JOB_BYTES:,} bytes (its option -z), the policy of "
        "narrow of up to 3 (max-job-size)\n"
    ) in result.stderr
    server.run("put", "-t", "narrow", "big")


def test_the_limits_of_a_policy_that_has_no_room_are_named(server: Server) -> None:
    server.run("policy", "full", "max-jobs=1", "max-bytes=5")
    result = server.result("put", "-t", "full", "123456")
    assert "the policy of full has max-jobs=1 and max-bytes=5, and it has 0 jobs" in result.stderr
    assert NO_ROOM in result.stderr
    server.run("put", "-t", "full", "1")
    for words, typed in (("2",), b""), (("--lines",), b"2\n3\n"):
        result = server.result("put", "-t", "full", *words, typed=typed)
        assert result.exit_code == 4
        assert result.stderr.endswith(
            "the policy of full has max-jobs=1 and max-bytes=5, and it has 1 job: it is full\n"
        )


def test_without_a_limit_in_a_policy_all_that_may_be_full_is_named(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0, "--max-keys", 1), tmp_path) as running:
        server = Server(running)
        server.run("put", "--unique", "a", "x")
        result = server.result("put", "--unique", "b", "x")
        assert result.exit_code == 4 and result.stderr.endswith(f"0 jobs put, 1 not; {NO_ROOM}\n")


def dead_of(server: Server, tube: str, count: int) -> list[int]:
    """Let some new jobs of a tube die; give their ids."""
    jobs = list(map(int, server.run("put", "-t", tube, "-l", typed=b"x\n" * count).split()))
    with closing(Connection(server.process.port())) as worker:
        for job in jobs:
            worker.ask(b"reserve-job %d\r\n" % job)
            worker.ask(b"release %d 0 0\r\n" % job)
    return jobs


def test_dead_letters_are_shown_and_kicked(server: Server) -> None:
    server.run("policy", "mortal", "max-reserves=1")
    (here,) = dead_of(server, "mortal", 1)
    server.run("policy", "mortal", "dead-letter=grave")
    there = dead_of(server, "mortal", 2)
    server.run("policy", "other-mortal", "max-reserves=1", "dead-letter=grave")
    dead_of(server, "other-mortal", 1)
    rows = [line.split("\t") for line in server.run("dead", "mortal").splitlines()]
    assert [(int(row[0]), row[1], row[3]) for row in rows] == [
        (there[0], "release", "grave"), (there[1], "release", "grave"),
        (here, "release", "mortal"),
    ]  # fmt: skip
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[2]) for row in rows)
    (first, *_) = server.documents("dead", "mortal")
    assert (first["id"], first["tube"], first["dead-from"]) == (there[0], "grave", "mortal")
    result = server.result("dead", "mortal", "--kick")
    assert result.exit_code == 2
    assert "3 dead letters of mortal would be kicked; nobody is there" in result.stderr
    result = server.result("dead", "mortal", "--kick", 1, "--yes")
    assert (result.exit_code, result.stdout) == (0, "1 job kicked\n")
    assert result.stderr == "beanstalk: kicking 1 dead letter of mortal\n"
    assert server.state(str(here)) == "ready"
    assert server.documents("dead", "mortal", "--kick", "-y") == [{"v": 1, "kicked": 2}]
    assert [server.state(str(job)) for job in there] == ["ready", "ready"]


def test_dead_letters_that_were_kicked_elsewhere_are_told(server: Server) -> None:
    server.run("policy", "astray", "max-reserves=2", "dead-letter=limbo")
    server.run("policy", "astray-too", "max-reserves=1", "dead-letter=limbo")
    dead_of(server, "astray-too", 1)
    jobs = dead_of(server, "astray", 3)
    with closing(Connection(server.process.port())) as worker:
        for job in jobs:
            worker.ask(b"reserve-job %d\r\n" % job)
            worker.ask(b"release %d 0 0\r\n" % job)
    assert "limbo" not in server.result("dead", "astray").stderr
    server.run("kick", "-t", "limbo", "-n", 3)
    with closing(Connection(server.process.port())) as worker:
        worker.ask(b"watch limbo\r\n")
        worker.ask(b"reserve-job %d\r\n" % jobs[0])
        for words in (), ("--kick",):
            result = server.result("dead", "astray", *words)
            assert (
                "beanstalk: 2 dead letters were kicked in limbo, which 1 connection watches: "
                "1 ready, 1 reserved; see: beanstalk list limbo; all ready jobs there go to astray "
                "by: beanstalk move astray --from limbo\n"
            ) in result.stderr
    server.run("move", "astray", *map(str, jobs[:2]))
    assert "were kicked" not in server.result("dead", "astray").stderr
    stats = server.documents("stats", "--job", jobs[1])[0]
    assert (stats["tube"], stats["state"], stats["reserves"]) == ("astray", "ready", 0)


def test_a_dead_letter_that_stays_is_told_with_the_reason(server: Server) -> None:
    server.run("policy", "stays", "max-reserves=1")
    (job,) = server.documents("put", "-t", "stays", "--unique", "k", "x")
    with closing(Connection(server.process.port())) as worker:
        worker.ask(b"reserve-job %d\r\n" % job["id"])
        worker.ask(b"release %d 0 0\r\n" % job["id"])
    server.run("put", "-t", "stays", "--unique", "k", "y")
    result = server.result("dead", "stays", "--kick", "--yes")
    assert (result.exit_code, result.stdout) == (1, "0 jobs kicked\n")
    assert (
        "1 dead letter stays, 1 with a unique key: one stays if another job of stays has that "
        "key, or it is remembered"
    ) in result.stderr


def test_a_job_that_fails_for_the_last_time_is_said_to_be_dead(server: Server) -> None:
    server.run("policy", "failing", "max-reserves=2")
    server.run("put", "-t", "failing", "x")
    for end in ("was given back", "was given back, and is a dead letter of failing now"):
        result = server.result("reserve", "-t", "failing", "--exec", "exit 7")
        assert result.exit_code == 7 and result.stderr.endswith(f" {end}\n")


def test_a_value_that_the_file_of_policies_hides_is_told(tmp_path: Path) -> None:
    (tmp_path / "tubes").write_text('[mail]\nmax-reserves = 2\nrate = "-"\n')
    with ServerProcess(ours("-p", 0, "--tubes", tmp_path / "tubes"), tmp_path) as running:
        server = Server(running)
        result = server.result("policy", "mail", "max-reserves=9", "rate=5", "max-jobs=7")
        assert result.exit_code == 0
        assert result.stderr.splitlines() == [
            f"beanstalk: {said} is kept and does not count: the server's file of policies, which "
            f"wins, has {holds}"
            for said, holds in (("max-reserves=9", "max-reserves=2"), ("rate=5", "rate=-"))
        ]


def test_a_tube_without_dead_letters_is_told(server: Server) -> None:
    for words in (), ("--kick",):
        result = server.result("dead", "immortal", *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "immortal has no dead letter, there or where they go now" in result.stderr
    assert server.run("dead", "immortal", "--kick", "--yes", code=1) == "0 jobs kicked\n"


def test_of_a_tube_with_dead_letters_of_others_those_are_named(server: Server) -> None:
    for tube, count in ("first-of-grave", 1), ("second-of-grave", 2):
        server.run("policy", tube, "max-reserves=1", "dead-letter=one-grave")
        dead_of(server, tube, count)
    for words in (), ("--kick",):
        result = server.result("dead", "one-grave", *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert (
            "one-grave has no dead letter, there or where they go now; it holds 2 of "
            "second-of-grave, 1 of first-of-grave, see: beanstalk dead second-of-grave"
        ) in result.stderr


def test_on_a_terminal_kicking_dead_letters_asks_first(server: Server) -> None:
    server.run("policy", "asked-dead", "max-reserves=1")
    (job,) = dead_of(server, "asked-dead", 1)
    question = "Kick 1 dead letter of asked-dead?"
    code, shown = answered(server, "dead asked-dead --kick", question, b"n\n")
    assert code == 1 and "nothing was kicked" in shown
    assert server.state(str(job)) == "buried"


def test_jobs_in_any_state_are_cancelled(server: Server) -> None:
    ready, reserved = (int(server.run("put", "-t", "states", "x")) for _ in range(2))
    with server.process.connect() as worker:
        assert worker.ask(b"reserve-job %d\r\n" % reserved).startswith(b"RESERVED")
        server.run("delete", reserved, code=4)
        assert server.documents("cancel", ready, 999_999, reserved, code=4) == [
            {"v": 1, "id": ready, "cancelled": True},
            {"v": 1, "id": 999_999, "cancelled": False, "reply": "NOT_FOUND"},
            {"v": 1, "id": reserved, "cancelled": True},
        ]
        assert worker.ask(b"touch %d\r\n" % reserved) == b"NOT_FOUND\r\n"
    assert f"NOT_FOUND: there is no job {ready}\n" in server.result("cancel", ready).stderr


@pytest.mark.parametrize("word", ["-1", "x", str(1 << 64)])
def test_what_is_no_number_of_a_job_is_refused(server: Server, word: str) -> None:
    result = server.result("cancel", "--", word)
    assert (result.exit_code, result.stdout) == (2, "")


def assert_given_back(process: subprocess.Popen[str], job: str) -> None:
    """SIGTERM ends the command that has this job."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (
        143, f"beanstalk: SIGTERM: the command was ended, job {job} was given back\n"
    )  # fmt: skip


def test_a_job_whose_command_is_interrupted_has_lost_no_attempt(server: Server) -> None:
    job = server.run("put", "-t", "returned", "-p", 3, "x").strip()
    process = server.start(
        "reserve", "-t", "returned", "--delay", "60", "--exec", "echo begun; sleep 600"
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    assert_given_back(process, job)
    (stats,) = server.documents("stats", "-j", job)
    assert [stats[key] for key in ("state", "pri", "reserves", "releases")] == ["delayed", 3, 0, 0]


@pytest.mark.exhaustive
def test_a_command_whose_job_is_lost_is_ended(server: Server) -> None:
    # Ours only: a beanstalkd forgets timers now and then, and the TTR does not end.
    job = server.run("put", "-t", "stolen", "--ttr", 2, "x").strip()
    process = server.start("reserve", "-t", "stolen", "--exec", "echo begun; exec sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    # While it stands still, the TTR ends, and somebody else deletes the job.
    process.send_signal(signal.SIGSTOP)
    taker = Connection(server.process.port())
    taker.ask(b"watch stolen\r\n")
    assert taker.ask(b"reserve-with-timeout 15\r\n").startswith(b"RESERVED %d " % int(job))
    taker.ask(b"delete %d\r\n" % int(job))
    taker.close()
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 4
    assert f"job {job} is not ours any more" in said


@pytest.mark.exhaustive
def test_the_job_is_kept_until_all_that_the_command_has_started_was_ended(server: Server) -> None:
    # Ours only: a beanstalkd forgets timers now and then, and the TTR does not end.
    job = server.run("put", "-t", "heirs", "--ttr", 2, "x").strip()
    script = "(trap '' TERM; echo begun; exec sleep 600) & wait"
    process = server.start("reserve", "-t", "heirs", "--exec", script)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    assert_given_back(process, job)
    (stats,) = server.documents("stats", "-j", job)
    assert (stats["state"], stats["timeouts"], stats["releases"]) == ("ready", 0, 0)


def test_a_job_that_is_cancelled_ends_its_command(server: Server) -> None:
    job = server.run("put", "-t", "cancelled", "--ttr", 1, "x").strip()
    process = server.start("reserve", "-t", "cancelled", "--exec", "echo begun; sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    server.run("cancel", job)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 4
    assert f"job {job} is not ours any more" in said


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Relay]]:
    """Run the real beanstalkd, and note what it is sent."""
    with ServerProcess(theirs(), tmp_path_factory.mktemp("real")) as running:
        server = Server(running)
        listener = Relay(running.port())
        server.address = listener.address
        with listener:
            yield server, listener


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("list mail", "list-jobs; `beanstalk peek --tube mail --state ready` shows the first"),
        ("list --state buried", "list-jobs; `beanstalk peek --tube default --state buried`"),
        (
            "flush mail -y",
            "flush-tube; `beanstalk delete --all --tube mail --state ready --state delayed --state "
            "buried` deletes job by job\n",
        ),
        ("flush mail --state ready", "`beanstalk delete --all --tube mail --state ready` deletes"),
        ("edit 5 -p 1", "update-job; put another job, and delete this one\n"),
        ("dead mail", "tube-policy; it has no dead letters\n"),
        ("dead mail --kick --yes", "kick-dead; it has no dead letters\n"),
        ("policy mail max-jobs=1", "tube-policy; its tubes have no policies\n"),
        ("wait 5", "wait-job; `beanstalk stats --job 5` says, now and then, whether it is there\n"),
        ("connections", "list-connections; `beanstalk stats` says how many there are\n"),
        ("put x --at now", "put-at; leave out --at, or give a --delay\n"),
        ("put x --group a", "put grp:; leave out --group\n"),
        ("cancel 5", "cancel-job; `delete` deletes jobs that nobody has reserved\n"),
        ("export -t t", "list-jobs; of a beanstalkd that is stopped, `binlog-inspect import-v7`"),
        ("drain", "drain; SIGUSR1 to its process makes it refuse new jobs\n"),
        ("undrain", "undrain; it takes new jobs again when it was started anew\n"),
    ],
)
def test_a_beanstalkd_is_asked_first(real: tuple[Server, Relay], words: str, said: str) -> None:
    server, listener = real
    listener.sent.clear()
    result = server.result(*words.split())
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr.startswith("beanstalk: this server has no ") and said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [word for word in listener.sent if word != "use"] == ["capabilities"]


def test_a_beanstalkd_gets_only_commands_that_it_has(real: tuple[Server, Relay]) -> None:
    server, listener = real
    listener.sent.clear()
    for state in ("ready", "delayed", "buried"):
        delay = 500 if state == "delayed" else 0
        put = server.run("put", "-t", state, "-d", delay, "-l", typed=b"1\n2\n3\n").split()
        if state == "buried":
            server.run("bury", *put)
        assert len(server.run("move", "all", "--from", state, "--state", state).split()) == 6
        assert server.run("delete", "-t", "all", "--all", "-y", "--state", state).startswith("3 ")
    assert listener.sent.count("capabilities") == 9
    assert EXTENDED.intersection(listener.sent) == {"capabilities"}
