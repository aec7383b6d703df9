"""Functions that do not end, as `beanstalk-work` sees them on a real server: their jobs fail by the
policy, others are done, and the process ends where it can do no more.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanstalk_twisted.worker.process import STUCK
from tests.end_to_end.test_client import ours, server
from tests.end_to_end.test_worker import work
from tests.server_process import LIMIT_S, Connection, ServerProcess

__all__ = ["server"]  # A fixture is used by being imported.

FUNCTIONS = """
import asyncio, os, re, threading, time

def in_thread(attempt):
    if attempt.body == b"hang":
        time.sleep(600)

async def swallowing(attempt):
    while attempt.body == b"hang":
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

async def blocking(attempt):
    if attempt.body == b"hang":
        time.sleep(600)

async def blocking_and_swallowing(attempt):
    while attempt.body == b"hang":
        try:
            time.sleep(600)
        except Exception:
            pass

def holding(attempt):
    if attempt.body == b"hang":
        re.match("(a+)+$", "a" * 64 + "b")

def lingering(attempt):
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()

async def lingering_in_executor(attempt):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)

def lingering_in_reactor(attempt):
    from twisted.internet import reactor
    reactor.callInThread(time.sleep, 600)

gathered = []

async def blocking_together(attempt):
    from twisted.internet.defer import Deferred
    gathered.append(Deferred())
    if len(gathered) == 6:
        for each in gathered[:5]:
            each.callback(None)
    else:
        await gathered[-1]
    time.sleep(600)

async def begun_and_blocking(attempt):
    open("begun", "w").close()
    time.sleep(600)
"""

FIRST_DELAY_S = 900
"""Before the second attempt: no test lives to see it."""


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """See that a process is gone at the end, whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_S)


def put(server: ServerProcess, tube: str, *bodies: bytes) -> list[int]:
    client = server.connect()
    client.ask(b"use %b\r\n" % tube.encode())
    replies = [client.ask(b"put 0 0 60 %d\r\n%b\r\n" % (len(each), each)) for each in bodies]
    client.close()
    return [int(reply.split()[1]) for reply in replies]


def facts(client: Connection, job: int) -> dict[str, str]:
    lines = client.ask(b"stats-job %d\r\n" % job).decode().splitlines()[2:]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def supervised(
    server: ServerProcess, folder: Path, good: int, *options: str
) -> list[tuple[int, str]]:
    """Run a worker, and another one whenever it ends, until a job is gone; then stop it.

    :return: the exit code of each, and what it has written to its log.
    """
    (folder / "jobs.py").write_text(FUNCTIONS)
    ends = []
    client = server.connect()
    give_up_s = time.monotonic() + LIMIT_S
    while True:
        log = folder / "log"
        with (
            log.open("w") as written,
            running(work(server, folder, *options, stderr=written)) as process,
        ):
            while process.poll() is None and facts(client, good):
                assert time.monotonic() < give_up_s, log.read_text()
                time.sleep(0.05)
            is_done = process.poll() is None
            if is_done:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)
        ends.append((process.returncode, log.read_text()))
        if is_done:
            client.close()
            return ends


ONE: tuple[str, ...] = ("-n", "1", "--limit", "2", "--first-delay", str(FIRST_DELAY_S))

ONLY_OURS = pytest.mark.parametrize("server", [ours], indirect=True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("function", ["in_thread", "swallowing"])
@pytest.mark.parametrize(("attempts", "state"), [(10, "delayed"), (1, "buried")])
def test_a_job_that_hangs_fails_by_the_policy_and_the_next_worker_does_the_good_one(
    server: ServerProcess, tmp_path: Path, function: str, attempts: int, state: str
) -> None:
    tube = f"{function}-{attempts}"
    hanging, good = put(server, tube, b"hang", b"good")
    options = (*ONE, "--attempts", str(attempts), "--tube", tube, f"jobs:{function}")
    (code, log), (last, _) = supervised(server, tmp_path, good, *options)
    assert (code, last) == (STUCK, 0)
    name = f"job {hanging} of {tube}, attempt 1"
    assert f"{name}: failed: TookTooLong: not done within 2 s" in log
    assert f"{name}: given up, but its function still runs: 1 of 1 slots are stuck" in log
    assert f"exit code {STUCK}: all slots are stuck in functions that do not end" in log
    client = server.connect()
    found = facts(client, hanging)
    assert (found["state"], found["reserves"], found["timeouts"]) == (state, "1", "0")
    assert found["releases"] == ("1" if state == "delayed" else "0")
    client.ask(b"delete %d\r\n" % hanging)
    client.close()


@ONLY_OURS
def test_with_another_slot_the_same_worker_does_the_good_one_and_stops_without_delay(
    server: ServerProcess, tmp_path: Path
) -> None:
    (hanging,) = put(server, "two-slots", b"hang")
    client = server.connect()
    options = ("-n", "2", "--limit", "1", "--attempts", "1", "--tube", "two-slots")
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    with running(work(server, tmp_path, *options, "jobs:in_thread")) as process:
        assert process.stderr is not None
        while "1 of 2 slots are stuck" not in process.stderr.readline():
            assert process.poll() is None
        assert facts(client, hanging)["state"] == "buried"
        (good,) = put(server, "two-slots", b"good")
        while facts(client, good):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
    # Nothing is in hand, so nothing is waited for.
    assert (process.returncode, "in hand" in log) == (0, False)
    client.close()


@ONLY_OURS
@pytest.mark.parametrize("in_reactor", [False, True])
def test_a_function_that_blocks_the_reactor_is_interrupted_and_its_job_fails(
    server: ServerProcess, tmp_path: Path, in_reactor: bool
) -> None:
    tube = f"blocking-{in_reactor}"
    hanging, good = put(server, tube, b"hang", b"good")
    function = ["--in-reactor", "jobs:in_thread"] if in_reactor else ["jobs:blocking"]
    ((code, log),) = supervised(server, tmp_path, good, *ONE, "--tube", tube, *function)
    assert code == 0
    name = f"job {hanging} of {tube}, attempt 1"
    assert f"{name}: failed: TookTooLong: blocked the reactor for more than 3 s" in log
    assert "time.sleep(600)" in log  # Where it was.
    client = server.connect()
    assert facts(client, hanging)["state"] == "delayed"
    client.close()


@pytest.mark.exhaustive
@ONLY_OURS
def test_functions_that_block_the_reactor_one_after_another_in_one_turn_do_not_end_the_process(
    server: ServerProcess, tmp_path: Path
) -> None:
    jobs = put(server, "together", *[b"x"] * 6)
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    slots = ("-n", "6", "--limit", "0.5", "--first-delay", str(FIRST_DELAY_S))
    options = (*slots, "--reactor", "default", "--tube", "together", "jobs:blocking_together")
    client = server.connect()
    with running(work(server, tmp_path, *options)) as process:
        while {facts(client, job)["state"] for job in jobs} != {"delayed"}:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, log.count("failed: TookTooLong: ")) == (0, 6)
    client.close()


@ONLY_OURS
def test_a_reactor_that_stays_blocked_ends_the_process(
    server: ServerProcess, tmp_path: Path
) -> None:
    hanging, good = put(server, "stays-blocked", b"hang", b"good")
    options = (*ONE, "--attempts", "1", "--tube", "stays-blocked", "jobs:blocking_and_swallowing")
    ends = supervised(server, tmp_path, good, *options)
    code, log = ends[0]
    assert code == STUCK
    assert "a function blocks the reactor, and does not end when it is interrupted" in log
    assert "time.sleep(600)" in log
    # The end of its connection has given the job back, so it was counted as an attempt.
    client = server.connect()
    assert facts(client, hanging)["state"] == "buried"
    assert ends[-1][0] == 0
    client.close()


@pytest.mark.exhaustive
@ONLY_OURS
def test_an_interpreter_that_is_held_ends_the_process(
    server: ServerProcess, tmp_path: Path
) -> None:
    hanging, good = put(server, "held", b"hang", b"good")
    options = (*ONE, "--attempts", "1", "--tube", "held", "jobs:holding")
    ends = supervised(server, tmp_path, good, *options)
    code, log = ends[0]
    assert code == 1
    assert "Timeout (0:00:13)!" in log and "in holding" in log
    client = server.connect()
    assert facts(client, hanging)["state"] == "buried"
    client.close()


@pytest.mark.one_in(3)
@ONLY_OURS
@pytest.mark.parametrize("function", ["lingering", "lingering_in_executor", "lingering_in_reactor"])
def test_threads_that_functions_have_left_do_not_keep_a_stopped_worker(
    server: ServerProcess, tmp_path: Path, function: str
) -> None:
    (good,) = put(server, function, b"x")
    options = ("--reactor", "asyncio", "--tube", function, f"jobs:{function}")
    ((code, log),) = supervised(server, tmp_path, good, *options)
    assert code == 0
    assert "exit code 0: threads still run 7 s after the worker has stopped" in log


@ONLY_OURS
def test_a_worker_with_a_blocked_reactor_can_stop(server: ServerProcess, tmp_path: Path) -> None:
    (job,) = put(server, "blocked-stop", b"x")
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    delay = ("--first-delay", str(FIRST_DELAY_S))  # Else it may be ready again when we look.
    options = ("--finish", "0.5", *delay, "--tube", "blocked-stop", "jobs:begun_and_blocking")
    with running(work(server, tmp_path, *options)) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "failed: TookTooLong: blocked the reactor for more than 1.5 s" in log
    client = server.connect()
    assert facts(client, job)["state"] == "delayed"
    client.close()
