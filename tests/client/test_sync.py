"""What only the blocking client has: lost connections within a call, pipelines, jobs as blocks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from beanstalk_twisted.client import errors, sync
from beanstalk_twisted.client.sync import WINDOW
from beanstalk_twisted.testing import BeanstalkServer
from tests.interruption import Interruption, files_of
from tests.script_server import Listener, answer, hang


@pytest.fixture
def server() -> Iterator[BeanstalkServer]:
    with BeanstalkServer(clock="real") as running:
        yield running


@pytest.fixture
def queue(server: BeanstalkServer) -> Iterator[sync.Client]:
    with sync.Client(f"127.0.0.1:{server.port}", timeout_s=20) as client:
        yield client


@pytest.mark.parametrize("module", ["sync", "core.dialogue", "core.continuity"])
def test_it_imports_neither_twisted_nor_asyncio(module: str) -> None:
    code = (
        f"import sys, beanstalk_twisted.client.{module}\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'twisted', 'asyncio', 'zope'})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "\n"


# Lost connections.


def test_tubes_are_restored_and_what_is_safe_is_sent_again(
    server: BeanstalkServer, queue: sync.Client
) -> None:
    queue.use("mine")
    queue.watch_only("mine", "other")
    server.drop_connections()
    assert queue.list_tube_used() == "mine"
    assert set(queue.list_tubes_watched()) == {"mine", "other"}


def test_a_put_that_was_sent_is_sent_again_only_with_a_key_that_is_remembered() -> None:
    puts = []

    def reply(words: list[bytes]) -> bytes | None:
        if words[0] == b"put":
            puts.append(words)
            return None if len(puts) % 2 else b"INSERTED 7\r\n"
        return {b"use": b"USING default\r\n", b"capabilities": b"OK 15\r\n---\n- put idp:\n\r\n"}[
            words[0]
        ]

    with Listener(answer(reply)) as listener, sync.Client(listener.address) as client:
        with pytest.raises(errors.Unanswered) as raised:
            client.put(b"x")
        assert raised.value.may_be_done and len(puts) == 1
        puts.clear()
        assert client.put(b"x", unique="k", unique_seconds=60) == 7
        assert len(puts) == 2


def test_jobs_of_a_lost_connection_are_not_ours_any_more(
    server: BeanstalkServer, queue: sync.Client
) -> None:
    queue.put(b"x")
    job = queue.reserve()
    server.drop_connections()
    with pytest.raises(errors.ClientError):
        queue.touch(job)  # The loss is noticed by this at the latest.
    with pytest.raises(errors.ReservationLost):
        queue.delete(job)
    assert queue.reserve_with_timeout(5) == job


def test_a_server_that_breaks_off_each_time_is_not_asked_for_ever() -> None:
    lost = answer(lambda words: b"USING default\r\n" if words[0] == b"use" else None)
    with Listener(lost) as listener, sync.Client(listener.address) as client:
        with pytest.raises(errors.ClientError):
            client.reserve()
        assert listener.connections == 3


def test_without_a_server_nothing_is_carried_out(server: BeanstalkServer) -> None:
    address = f"127.0.0.1:{server.port}"
    server.stop()
    with pytest.raises(errors.NoHost, match=f"^{address}: Connection refused$"):
        sync.Client(address).connect()
    with pytest.raises(errors.NoHost, match=r"^put: not carried out: ") as raised:
        sync.Client(address).put(b"x")
    assert raised.value.command == "put" and not raised.value.may_be_done


def test_a_server_that_comes_back_is_waited_for(server: BeanstalkServer) -> None:
    client = sync.Client(f"127.0.0.1:{server.port}", retry_s=60)
    server.stop()
    back = Thread(target=server.start)
    back.start()
    assert client.put(b"x") == 1
    back.join()
    client.close()
    with pytest.raises(errors.NotCarriedOut):
        client.put(b"x")


def test_a_silent_server_is_given_up() -> None:
    speak = answer(lambda words: b"USING default\r\n" if words[0] == b"use" else b"")
    with Listener(speak) as listener, sync.Client(listener.address, timeout_s=0.1) as client:
        with pytest.raises(errors.Unanswered) as raised:
            client.delete(7)
        assert isinstance(raised.value.reason, errors.ServerSilent)
    with Listener(hang) as listener, pytest.raises(errors.NoHost):
        sync.Client(listener.address, timeout_s=0.1).connect()


# Pipelines.


def test_a_pipeline_of_more_than_its_window_keeps_the_order(queue: sync.Client) -> None:
    with queue.pipeline() as pipe:
        asked = [pipe.put(b"%d" % number, tube="many") for number in range(2 * WINDOW + 1)]
    ids = [each.result for each in asked]
    assert ids == sorted(ids) and queue.stats_tube("many").current_jobs_ready == len(ids)


def test_large_bodies_and_large_answers_do_not_wait_for_each_other(queue: sync.Client) -> None:
    job = queue.put(bytes(60_000))
    with queue.pipeline() as pipe:
        asked = [(pipe.peek(job), pipe.put(bytes(60_000))) for _ in range(300)]
    assert all(len(peeked.result.body) == 60_000 for peeked, _ in asked)


def test_an_error_of_a_pipeline_is_raised_once(queue: sync.Client) -> None:
    with pytest.raises(errors.NotFound) as raised, queue.pipeline() as pipe:
        pipe.delete(98)
        asked_for = pipe.delete(97)
        with pytest.raises(errors.NotFound):
            asked_for.result  # noqa: B018 - it waits, and raises.
    assert raised.value.job_id == 98
    with pytest.raises(KeyError), queue.pipeline() as pipe:
        pipe.delete(96)
        raise KeyError


# Jobs.


def test_a_job_is_deleted_at_the_end_of_its_block(queue: sync.Client) -> None:
    for body in (b"a", b"b"):
        queue.put(body, tube="mail")
    bodies = []
    for job in queue.jobs("mail", timeout=0):
        with job:
            bodies.append(job.body)
    assert bodies == [b"a", b"b"] and queue.stats().current_jobs_ready == 0


def test_what_a_block_has_done_with_its_job_stays(queue: sync.Client) -> None:
    for body in (b"bury", b"release", b"move", b"delete"):
        queue.put(body, tube="mail")
    for job in queue.jobs("mail", timeout=0):
        with job:
            if job.body == b"bury":
                queue.bury(job)
            elif job.body == b"release":
                queue.release(job, delay=100)
            elif job.body == b"move":
                queue.move_job(job, "other")
            else:
                queue.delete(job)
    assert [job.state for job in queue.each_job("mail")] == ["delayed", "buried"]
    assert [job.state for job in queue.each_job("other")] == ["ready"]


class Interrupted(Exception):
    """Of a signal."""


@pytest.mark.parametrize("is_there", [True, False])
def test_an_interrupted_command_is_not_sent_later(server: BeanstalkServer, is_there: bool) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    queue = sync.Client(f"127.0.0.1:{server.port}", retry_s=60.0)
    if not is_there:
        server.stop()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted):
            queue.reserve() if is_there else queue.put(b"lost", tube="mail")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if not is_there:
        server.start()
    with queue:
        assert queue.stats_job(queue.put(b"x")).state == "ready"
        assert list(queue.list_tubes()) == ["default"]


def test_an_interrupted_wait_for_an_answer_of_a_pipeline_ends_the_block(
    queue: sync.Client,
) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted), queue.pipeline() as pipe:
            answer = pipe.reserve_with_timeout(600)
            assert answer.result
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(answer.error, errors.Unanswered)
    assert queue.put(b"x") == 1


def test_a_forked_process_has_a_connection_of_its_own(
    server: BeanstalkServer, queue: sync.Client
) -> None:
    queue.use("mine")
    read, write = os.pipe()
    if not os.fork():
        code = 1
        with contextlib.suppress(BaseException):
            os.write(write, b"%d %s" % (queue.put(b"child"), queue.list_tube_used().encode()))
            code = 0
        os._exit(code)
    os.close(write)
    mine = [queue.put(b"%d" % each) for each in range(50)]
    os.wait()
    number, tube = os.read(read, 100).split()
    os.close(read)
    assert int(number) not in mine and tube == b"mine"
    assert [queue.peek(job).body for job in mine] == [b"%d" % each for each in range(50)]


def test_a_close_does_not_wait_for_a_reserve_of_another_thread(
    server: BeanstalkServer, queue: sync.Client
) -> None:
    raised: list[errors.ClientError] = []

    def reserve() -> None:
        try:
            queue.reserve()
        except errors.ClientError as error:
            raised.append(error)

    thread = Thread(target=reserve)
    thread.start()
    server.wait_until(lambda: server.waiting() == 1)
    queue.close()
    thread.join(20)
    assert not thread.is_alive() and len(raised) == 1


@pytest.mark.parametrize(
    ("error", "attempts", "state", "delay"),
    [
        (ValueError, 2, "delayed", 77), (ValueError, 1, "buried", 0),
        (KeyboardInterrupt, 1, "ready", 0),
    ],
)  # fmt: skip
def test_a_job_whose_block_fails_is_given_back(
    queue: sync.Client, error: type[BaseException], attempts: int, state: str, delay: int
) -> None:
    number = queue.put(b"x", priority=3)
    with pytest.raises(error):
        for job in queue.jobs(timeout=0, delay=77, attempts=attempts):
            with job:
                raise error
    stats = queue.stats_job(number)
    assert (stats.state, stats.delay, stats.pri) == (state, delay, 3)
    # What is ordered to end costs no attempt.
    assert stats.reserves == (error is ValueError)


def test_a_job_is_touched_as_long_as_its_block_runs(
    server: BeanstalkServer, queue: sync.Client
) -> None:
    number = queue.put(b"x", ttr=1)
    for job in queue.jobs(timeout=0):
        with job:
            server.wait_until(lambda: server.counts()["touch"] >= 2)
    assert number not in [each.id for each in queue.each_job("default")]


def test_it_ends_when_nothing_came_in_time(queue: sync.Client) -> None:
    assert list(queue.jobs("none", timeout=0.01)) == []
    with pytest.raises(ValueError, match="timeout"):
        next(queue.jobs(timeout=-1))


def test_threads_share_a_client(queue: sync.Client) -> None:
    begin = Event()
    ids: list[int] = []

    def put() -> None:
        begin.wait()
        ids.extend(queue.put(b"x") for _ in range(50))

    threads = [Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    begin.set()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(1, 201))


class Jobs:
    """A server within the process that only takes jobs.

    :ivar bodies: of all jobs, in their order.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._replies = b""
        self._poll, self._peer = socket.socketpair()

    def make(self, *asked: object) -> Any:
        self._replies = b""
        return self

    def send(self, data: bytes | memoryview, flags: int) -> int:
        if bytes(data).startswith(b"put"):
            self.bodies.append(bytes(data).split(b"\r\n")[1])
            self._replies += b"INSERTED %d\r\n" % len(self.bodies)
        else:
            self._replies += b"USING default\r\n"
        return len(data)

    def recv(self, size: int, flags: int) -> bytes:
        if not self._replies:
            raise BlockingIOError
        received, self._replies = self._replies, b""
        return received

    def setblocking(self, is_blocking: bool) -> None: ...

    def setsockopt(self, *option: object) -> None: ...

    def fileno(self) -> int:
        return self._poll.fileno()

    def close(self) -> None: ...


def interrupted_at_each_moment(
    *modules: str,
) -> Iterator[tuple[sync.Client, Jobs, Interruption]]:
    """A new connection for each, and what interrupts it there; in the last one nothing does."""
    at, server, files = 0, Jobs(), files_of(*modules)
    while True:
        at += 1
        queue = sync.Client(make_socket=server.make)
        queue.connect()
        server.bodies.clear()
        yield queue, server, (interruption := Interruption(files, at, Interrupted()))
        if not interruption.where:
            break
    assert at > 100


def test_a_put_interrupted_at_any_moment_is_not_sent_later_and_leaves_no_answer() -> None:
    modules = ("client.sync", "client.sockets", "client.core", "client.commands")
    for queue, server, interruption in interrupted_at_each_moment(*modules):
        with interruption, contextlib.suppress(Interrupted):
            queue.put(b"lost")
        lost = list(server.bodies)
        assert lost in ([], [b"lost"])
        assert queue.put(b"x") == len(server.bodies)
        assert server.bodies == [*lost, b"x"], interruption.where


def test_a_pipeline_interrupted_at_any_moment_ends_and_leaves_no_answer() -> None:
    modules = ("client.sync", "client.sockets", "client.core")
    for queue, server, interruption in interrupted_at_each_moment(*modules):
        with (
            interruption,
            contextlib.suppress(Interrupted, errors.Unanswered),
            queue.pipeline() as pipe,
        ):
            answers = [pipe.put(b"%d" % each) for each in range(2)]
            assert [answer.result for answer in answers] == [1, 2]
        assert queue.put(b"x") == len(server.bodies), interruption.where
