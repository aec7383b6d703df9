"""A client of a whole server in memory, on a line that can break."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.sync import Client
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.extensions import EXTENSIONS
from binlog_tools.queue.asking import MARK_TUBE
from binlog_tools.queue.moving import Broken

EXTENDED = frozenset(row.name for row in EXTENSIONS if not row.form)
"""The words that beanstalkd does not have; others are forms of commands that it has."""

STATES = ["ready", "delayed", "buried"]
GREETING = b"use default\r\n"


class MemoryLine:
    """A connection to a server.

    :ivar sent: how many requests were, without the greeting.
    :ivar requests: all of them, as they were sent.
    :ivar breaks_at: the number of the request at which the connection breaks.
    :ivar is_heard: whether that request still reaches the server.
    :ivar is_over: whether nothing more comes.
    """

    is_over = False

    def __init__(self, server: MemoryServer) -> None:
        self.sent = 0
        self.requests: list[bytes] = []
        self.breaks_at: int | None = None
        self.is_heard = False
        self._server = server
        self._client = server.connect()
        self._replies = b""

    def send(self, request: bytes) -> None:
        self.sent += 1
        self.requests.append(request)
        if self.sent == self.breaks_at:
            if self.is_heard:
                self._client.ask(request)
            self._client.hang_up()
            raise ConnectionResetError(104, "broken by the test")
        if request.startswith(b"reserve-job"):
            # Of large bodies the server gives no more than a buffer takes.
            for line in request.splitlines(keepends=True):
                self._replies += self._client.ask(line)
        else:
            self._replies += self._client.ask(request)

    def ask(self, request: bytes) -> bytes:
        """Send, and give what is answered to the last command."""
        self.send(request)
        return self.take()

    def take(self) -> bytes:
        replies, self._replies = self._replies, b""
        return replies or self._client.take()


class StockLine(MemoryLine):
    """A server that has the commands of beanstalkd and no others."""

    def send(self, request: bytes) -> None:
        if request == b"capabilities\r\n":
            self._replies += b"UNKNOWN_COMMAND\r\n"
            return
        commands = [line.split(b" ")[0].decode() for line in request.split(b"\r\n") if line]
        assert not EXTENDED.intersection(commands), request
        super().send(request)


class Pipe:
    """A socket whose other end is a line."""

    def __init__(self, line: MemoryLine) -> None:
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        self._line = line
        self._held = b""
        self._is_greeted = False

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        request = bytes(data)
        if request.startswith(GREETING) and not self._is_greeted:
            self._is_greeted = True
            self._held += b"USING default\r\n"
            request = request.removeprefix(GREETING)
        if request:
            self._line.send(request)
            self._held += self._line.take()
        self._push()
        return len(data)

    def _push(self) -> None:
        with suppress(BlockingIOError):
            # A server holds back what nobody has read.
            while held := self._held or self._line.take():
                self._held = held
                self._held = held[self._theirs.send(held) :]
            if self._line.is_over:
                self._theirs.close()

    def recv(self, most: int, flags: int = 0) -> bytes:
        data = self._ours.recv(most)
        self._push()
        return data

    def fileno(self) -> int:
        return self._ours.fileno()

    def setblocking(self, blocks: bool) -> None:
        """It never blocks: all answers are there."""

    def setsockopt(self, *option: object) -> None: ...

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def queue_of(line: Any) -> Client:
    make: Any = lambda address, limit_s: Pipe(line)  # noqa: E731
    return Client("memory:1", reconnects=False, make_socket=make)


def queue_at(server: MemoryServer) -> Client:
    return queue_of(MemoryLine(server))


def jobs_of(server: MemoryServer) -> list[tuple[str, str, bytes]]:
    """Give tube, state and body of all jobs, by their bodies."""
    queue = queue_at(server)
    found = []
    for number in range(1, 200):
        try:
            stats = queue.stats_job(number)
        except errors.NotFound:
            continue
        found.append((stats.tube, stats.state, queue.peek(number).body))
    return sorted(found, key=lambda job: job[2])


def filled(state: str) -> MemoryServer:
    """Make a server with three jobs of a state in tube a."""
    server = MemoryServer()
    queue = queue_at(server)
    queue.use("a")
    for number in range(3):
        delay = 500 if state == "delayed" else 0
        job = queue.put(b"%d" % number, priority=10 + number, delay=delay, ttr=100)
        if state == "buried":
            queue.bury(queue.reserve_job(job), priority=10 + number)
    return server


def check_kept(queue: Client, state: str, ids: list[int]) -> None:
    """Expect that the jobs of `filled` have kept what they are, 100 s later, under these ids."""
    for number, job_id in enumerate(ids):
        stats = queue.stats_job(job_id)
        assert (stats.pri, stats.ttr) == (10 + number, 100)
        if state == "delayed":
            assert 398 <= stats.time_left <= 400


class Raced(MemoryLine):
    """A worker takes job 2 whenever jobs are listed."""

    def __init__(self, server: MemoryServer, worker: Client) -> None:
        super().__init__(server)
        self._worker = worker

    def send(self, request: bytes) -> None:
        super().send(request)
        if request.startswith(b"list-jobs"):
            self._worker.reserve_job(2)


def broken_off(
    state: str, is_heard: bool, move: Callable[[MemoryLine], object], first: int = 1
) -> Iterator[tuple[Exception, list[tuple[str, str, bytes]]]]:
    """Move the jobs of `filled` on a line that breaks at its first request, at the second, and so
    on, until it is not reached.

    :param first: the request to begin with.
    :return: for each, what was raised, and all jobs then.
    """
    for breaks_at in count(first):
        server = filled(state)
        line = MemoryLine(server)
        line.breaks_at, line.is_heard = breaks_at, is_heard
        try:
            move(line)
        except (errors.ClientError, Broken) as problem:
            yield problem, [job for job in jobs_of(server) if job[0] != MARK_TUBE]
        else:
            assert line.sent == breaks_at - 1 and breaks_at > first + 6
            return
