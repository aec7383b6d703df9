"""The worker on real sockets, with our server and the real one, and as a command."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.hooks import Event, Tally
from beanstalk_twisted.worker.service import Worker
from tests.conftest import the_reactor
from tests.end_to_end.test_client import EACH_SERVER, Command, connected, endpoint_of, ours, server
from tests.server_process import LIMIT_S, ServerProcess, our_worker

__all__ = ["server"]  # A fixture is used by being imported.

LONG_S = 600
"""A TTR that no test lives to see the end of."""


@asynccontextmanager
async def working(
    endpoint: str, tube: str, doer: Any, concurrency: int = 1, **options: Any
) -> AsyncIterator[Worker[Any]]:
    """Start a worker, and stop it."""
    worker: Worker[Any] = Worker(
        endpoint, tube, doer, concurrency, backoff=lambda: Backoff(lambda: 1.0, most_s=0.2),
        **options,
    )  # fmt: skip
    worker.startService()
    try:
        yield worker
    finally:
        await worker.stopService()


async def a_moment() -> None:
    """Let the reactor turn."""
    await deferLater(the_reactor(), 0.01, lambda: None)


async def gone(client: Client, job: int) -> None:
    """Wait until there is no such job."""
    while True:
        try:
            await client.stats_job(job)
        except errors.NotFound:
            return
        await a_moment()


class Slow:
    """Does jobs as slowly as a test wants."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.waiting: dict[int, Deferred[None]] = {}

    def __call__(self, attempt: Attempt[Any]) -> Deferred[None]:
        self.begun.append(attempt.id)
        waiting: Deferred[None] = Deferred(lambda given_up: self.cancelled.append(attempt.id))
        self.waiting[attempt.id] = waiting
        return waiting

    async def has_begun(self, count: int) -> None:
        """Wait until so many were."""
        while len(self.begun) < count:
            await a_moment()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("concurrency", [1, 7])
@pytest.mark.parametrize("in_threads", [False, True])
async def test_all_jobs_are_done_once(
    server: ServerProcess, concurrency: int, in_threads: bool
) -> None:
    tube = f"all-{concurrency}-{in_threads}"
    bodies: list[bytes] = []
    names: set[str] = set()

    def do(attempt: Attempt[bytes]) -> None:
        bodies.append(attempt.value)
        names.add(threading.current_thread().name)

    async with connected(endpoint_of(server)) as client:
        await client.use(tube)
        wanted = [b"%d" % number for number in range(200)]
        jobs = await gatherResults([client.put(body) for body in wanted])
        tally = Tally()
        async with working(
            endpoint_of(server), tube, do, concurrency, in_threads=in_threads, hooks=[tally]
        ):
            await gatherResults([Deferred.fromCoroutine(gone(client, job)) for job in jobs[-10:]])
            while tally.counts["done"] < 200:
                await a_moment()
        assert sorted(bodies) == sorted(wanted)
        assert ("MainThread" in names) is not in_threads


@pytest.mark.exhaustive
@EACH_SERVER
async def test_a_killed_server_that_is_started_again_is_worked_for_again(
    command: Command, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    slow = Slow()
    with ServerProcess(command("-p", 0, "-b", log, "-f", 0), tmp_path) as first:
        port, endpoint = first.port(), endpoint_of(first)
        async with connected(endpoint) as client, working(endpoint, "t", slow, 3, hooks=[]):
            await client.use("t")
            jobs = [await client.put(b"x", ttr=LONG_S) for _ in range(4)]
            await slow.has_begun(3)
            first.kill()
            with ServerProcess(command("-p", port, "-b", log, "-f", 0), tmp_path) as again:
                await slow.has_begun(6)
                assert sorted(slow.cancelled) == sorted(slow.begun[:3])
                while slow.waiting.keys() != set(jobs) or len(slow.begun) < 7:
                    for job in slow.begun[3:]:
                        if job in slow.waiting and not slow.waiting[job].called:
                            slow.waiting[job].callback(None)
                    await a_moment()
                slow.waiting[slow.begun[-1]].callback(None)
                for job in jobs:
                    await gone(client, job)
                again.connect().close()


async def test_a_server_that_hangs_is_given_up_and_the_jobs_with_it(server: ServerProcess) -> None:
    def note(event: Event) -> None:
        if event.ending is not None:
            endings.append(event.ending)

    endings: list[Ending] = []
    slow = Slow()
    endpoint = endpoint_of(server)
    async with connected(endpoint) as client:
        await client.use("hung")
        job = await client.put(b"x", ttr=1)
        async with working(endpoint, "hung", slow, hooks=[note], grace_s=5):
            await slow.has_begun(1)
            server.process.send_signal(signal.SIGSTOP)
            try:
                while not endings:
                    await a_moment()
            finally:
                server.process.send_signal(signal.SIGCONT)
            assert endings == [Ending.TTR] and slow.cancelled == [job]
            await slow.has_begun(2)
            slow.waiting[job].callback(None)
            await gone(client, job)


async def test_what_a_worker_gives_back_when_it_stops_does_not_come_back_to_it(
    server: ServerProcess,
) -> None:
    slow = Slow()
    async with connected(endpoint_of(server)) as client:
        await client.use("given-back")
        async with working(endpoint_of(server), "given-back", slow, 3, finish_s=0.1):
            job = await client.put(b"x", ttr=LONG_S)
            await slow.has_begun(1)
        stats = await client.stats_job(job)
        # A server without `return-job` counts it.
        counted = 0 if "return-job" in await client.probe() else 1
        assert (stats.state, stats.reserves, stats.releases) == ("ready", counted, counted)
        await client.delete(job)


# The command.


def work(
    server: ServerProcess, folder: Path, *options: str, stderr: int | IO[str] = subprocess.PIPE
) -> subprocess.Popen[str]:  # fmt: skip
    """Start a worker process; ``-v`` tells each job."""
    return subprocess.Popen(
        our_worker("-v", *options),
        cwd=folder, text=True, stderr=stderr, stdout=subprocess.PIPE,
        env={
            **os.environ, "BEANSTALK_SERVER": f"127.0.0.1:{server.port()}",
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
        },
    )  # fmt: skip


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Tell it to stop, and read what it has written to its log."""
    process.send_signal(number)
    said, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    assert said == ""
    return log


FUNCTIONS = """
def note(attempt):
    with open("noted", "a") as noted:
        noted.write(f"{attempt.id} {attempt.value}\\n")

async def fail(attempt):
    raise RuntimeError("no way")

def repeat(attempt):
    raise ValueError(attempt.body.decode())

async def both_kinds(attempt):
    import asyncio
    from twisted.internet import reactor
    from twisted.internet.task import deferLater
    await asyncio.sleep(0.001)
    got = await deferLater(reactor, 0.001, lambda: "a Deferred's")
    async with asyncio.timeout(10):
        await asyncio.sleep(0)
    note_it(attempt, got)

def note_it(attempt, what):
    with open("noted", "a") as noted:
        noted.write(f"{attempt.id} {what}\\n")

def hang(attempt):
    import time
    open("begun", "w").close()
    time.sleep(600)
"""

SLOW_TO_LOAD = """
import os, time
open("loading", "w").close()
time.sleep(600)
"""


@pytest.mark.one_in(2)
async def test_the_command_runs_a_function(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("command")
        job = await client.put(b'{"a": 1}')
        process = work(server, tmp_path, "--tube", "command", "--json", "jobs:note")
        await gone(client, job)
        log = stop(process, signal.SIGINT)
        assert (tmp_path / "noted").read_text() == f"{job} {{'a': 1}}\n"
        assert f"job {job} of command, attempt 1: deleted" in log


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reactor", ["auto", "asyncio"])
async def test_a_coroutine_may_await_what_is_asyncios_and_deferreds(
    server: ServerProcess, tmp_path: Path, reactor: str
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("asyncio")
        job = await client.put(b"x")
        options = ("--reactor", reactor, "--tube", "asyncio", "jobs:both_kinds")
        process = work(server, tmp_path, *options)
        await gone(client, job)
        stop(process)
        assert (tmp_path / "noted").read_text() == f"{job} a Deferred's\n"


@pytest.mark.one_in(2)
async def test_a_body_in_what_is_raised_cannot_reach_a_terminal(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("harmful")
        job = await client.put("\x1b]0;owned\x07\x9b2J\u202e\nsecond".encode())
        process = work(server, tmp_path, "--tube", "harmful", "--attempts", "1", "jobs:repeat")
        await state_of(client, job, "buried")
        log = stop(process)
        assert "ValueError: \\x1b]0;owned\\x07\\u009b2J\\u202e" in log
        assert log.replace("\n", "").replace("\t", "").isprintable()
        await client.delete(job)


@pytest.mark.one_in(2)
async def test_on_another_reactor_it_is_told_what_is_missing(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("no-asyncio")
        job = await client.put(b"x")
        options = ("--reactor", "default", "--tube", "no-asyncio", "--attempts", "1")
        process = work(server, tmp_path, *options, "jobs:both_kinds")
        await state_of(client, job, "buried")
        assert "run beanstalk-work with --reactor asyncio" in stop(process)
        await client.delete(job)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_ends_it_at_once_and_quietly(
    server: ServerProcess, tmp_path: Path, number: int, code: int
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("twice")
        job = await client.put(b"x", ttr=LONG_S)
        process = work(server, tmp_path, "--tube", "twice", "jobs:hang")
        while not (tmp_path / "begun").exists():
            await a_moment()
        process.send_signal(number)
        assert process.stderr is not None
        assert "1 job in hand; once more to stop at once" in process.stderr.readline()
        process.send_signal(number)
        said, log = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code
        assert (said, "Traceback" in log) == ("", False)
        await state_of(client, job, "ready")
        await client.delete(job)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_before_it_works_ends_it_as_one_afterwards(
    server: ServerProcess, tmp_path: Path, number: int
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_TO_LOAD)
    process = work(server, tmp_path, "slow:f")
    while not (tmp_path / "loading").exists():
        await a_moment()
    assert stop(process, number) == ""


@pytest.mark.exhaustive
async def test_a_server_that_is_not_there_is_told_once_and_once_when_it_is(
    tmp_path: Path,
) -> None:
    with ServerProcess(ours("-p", 0), tmp_path) as first:
        port = first.port()
    process = subprocess.Popen(
        our_worker("-n", "3", "-s", f"127.0.0.1:{port}", "json:loads"),
        text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert f"no connection to 127.0.0.1:{port}: Connection was refused" in process.stderr.readline()
    with ServerProcess(ours("-p", port), tmp_path):
        assert f"connected to 127.0.0.1:{port}" in process.stderr.readline()
        assert stop(process) == ""


async def state_of(client: Client, job: int, wanted: str) -> None:
    """Wait until a job is in a state."""
    while (await client.stats_job(job)).state != wanted:
        await a_moment()


@pytest.mark.one_in(2)
async def test_the_command_buries_what_fails_too_often(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    async with connected(endpoint_of(server)) as client:
        await client.use("failing")
        job = await client.put(b"x")
        options = ("--attempts", "3", "--first-delay", "0", "--tube", "failing")
        process = work(server, tmp_path, *options, "jobs:fail")
        await state_of(client, job, "buried")
        assert stop(process).count("failed: RuntimeError: no way") == 3
        assert (await client.stats_job(job)).reserves == 3
        await client.delete(job)


@pytest.mark.one_in(2)
async def test_the_command_runs_a_shell_whose_input_is_the_body(
    server: ServerProcess, tmp_path: Path
) -> None:
    async with connected(endpoint_of(server)) as client:
        await client.use("shell")
        jobs = [await client.put(body) for body in (b"one\0", b"two")]
        script = 'cat > "$BEANSTALK_JOB_ID" && test "$BEANSTALK_TUBE-$BEANSTALK_ATTEMPT" = shell-1'
        process = work(server, tmp_path, "--tube", "shell", "-n", "2", "--shell", script)
        for job in jobs:
            await gone(client, job)
        stop(process)
        assert [(tmp_path / str(job)).read_bytes() for job in jobs] == [b"one\0", b"two"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("code", "state"), [(1, "delayed"), (65, "buried")])
async def test_the_exit_code_of_a_shell_says_what_becomes_of_the_job(
    server: ServerProcess, tmp_path: Path, code: int, state: str
) -> None:
    async with connected(endpoint_of(server)) as client:
        await client.use("exits")
        job = await client.put(bytes(1_000_000))
        process = work(
            server, tmp_path, "--tube", "exits", "--first-delay", "900", "--shell", f"exit {code}"
        )
        await state_of(client, job, state)
        stop(process)
        await client.delete(job)


@pytest.mark.exhaustive
async def test_a_command_of_the_shell_that_takes_too_long_is_ended_with_all_it_has_started(
    server: ServerProcess, tmp_path: Path
) -> None:
    async with connected(endpoint_of(server)) as client:
        await client.use("endless")
        job = await client.put(b"x", ttr=LONG_S)
        script = "sleep 600 & echo $! > sleeping; wait; wait"
        process = work(server, tmp_path, "--tube", "endless", "--finish", "0.1", "--shell", script)
        sleeping = tmp_path / "sleeping"
        while not sleeping.exists() or not sleeping.read_text():
            await a_moment()
        log = stop(process)
        can_return = "return-job" in await client.probe()
        assert (": returned after" if can_return else ": released after") in log
        await state_of(client, job, "ready")
        with pytest.raises(ProcessLookupError):
            while True:
                os.kill(int(sleeping.read_text()), 0)
                if Path(f"/proc/{int(sleeping.read_text())}/stat").read_text().split()[2] == "Z":
                    raise ProcessLookupError
                await a_moment()
        await client.delete(job)


RECURRING = """
[minutely]
cron = "* * * * *"
tube = "{tube}"
body = "now"
missed = "one"
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("server", [ours], indirect=True)
@pytest.mark.parametrize("has_function", [False, True])
async def test_the_command_puts_recurring_jobs(
    server: ServerProcess, has_function: bool, tmp_path: Path
) -> None:
    """Alone, and beside a function that does them, and jobs of another tube by weight."""
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    tube = f"recurring-{has_function}"  # A run of a tube is remembered for an hour.
    (tmp_path / "jobs.toml").write_text(RECURRING.format(tube=tube))
    options = ["--tube", f"{tube}=3", "--tube", "other", "--mode", "weighted", "jobs:note"]
    async with connected(endpoint_of(server)) as client:
        await client.watch(tube)
        process = work(server, tmp_path, "--recurring", "jobs.toml", *options * has_function)
        if has_function:
            other = await client.put(b"other", tube="other")
            await gone(client, other)
            while "b'now'" not in (tmp_path / "noted").read_text():
                await a_moment()
        else:
            job = await client.reserve()
            assert job.body == b"now"
            await client.delete(job)
            # The worker may hear that it was put after who has reserved it.
            for _ in range(20):
                await a_moment()
        assert "minutely: job " in stop(process)


BROKEN = """
class Mute(Exception):
    def __str__(self):
        raise LookupError("no text")

def fail(attempt):
    raise Mute if attempt.body == b"mute" else ValueError("x" * 1_000_000)
"""


async def test_what_a_function_raises_is_logged_whatever_its_text(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(BROKEN)
    async with connected(endpoint_of(server)) as client:
        await client.use("broken")
        jobs = [await client.put(body) for body in (b"mute", b"long")]
        process = work(server, tmp_path, "--tube", "broken", "--attempts", "1", "jobs:fail")
        for job in jobs:
            await state_of(client, job, "buried")
        log = stop(process)
        assert "MESSAGE LOST" not in log
        assert f"job {jobs[0]} of broken, attempt 1: failed: Mute: (no text: its __str__" in log
        assert f"job {jobs[1]} of broken, attempt 1: failed: ValueError: xxx" in log
        assert len(log) < 10_000
        for job in jobs:
            await client.delete(job)


def test_wrong_usage_is_told_with_2() -> None:
    done = subprocess.run(our_worker(), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2
    assert "name an app or a function" in done.stderr
