"""A `Line` to a whole server in memory, which can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.extensions import EXTENSIONS
from binlog_tools.client import Reply
from binlog_tools.queue.moving import Broken
from binlog_tools.queue.server import MARK_TUBE, Queue
from tests.server_process import body_bytes

EXTENDED = frozenset(row.name for row in EXTENSIONS if not row.form)
"""The words that beanstalkd does not have; others are forms of commands that it has."""

STATES = ["ready", "delayed", "buried"]


class MemoryLine:
    """See `Line`.

    :ivar sent: how many requests were.
    :ivar requests: all of them, as they were sent.
    :ivar breaks_at: the number of the request at which the connection breaks.
    :ivar is_heard: whether that request still reaches the server.
    """

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
            raise ConnectionResetError("broken by the test")
        self._replies += self._client.ask(request)

    def reply(self) -> Reply:
        line, _, rest = self._replies.partition(b"\r\n")
        if line.startswith(b"INSERTED_BATCH "):
            *jobs, self._replies = rest.split(b"\r\n", int(line.split()[1]))
            return Reply(tuple(line.split()), b"\r\n".join(jobs))
        size = body_bytes(line)
        self._replies = rest[size:]
        return Reply(tuple(line.split()), rest[:size][:-2])


class StockLine(MemoryLine):
    """A server that has the commands of beanstalkd and no others."""

    def send(self, request: bytes) -> None:
        if request == b"capabilities\r\n":
            self._replies += b"UNKNOWN_COMMAND\r\n"
            return
        commands = [line.split(b" ")[0].decode() for line in request.split(b"\r\n") if line]
        assert not EXTENDED.intersection(commands), request
        super().send(request)


def jobs_of(server: MemoryServer) -> list[tuple[str, str, bytes]]:
    """Give tube, state and body of all jobs, by their bodies."""
    queue = Queue(MemoryLine(server))
    found = []
    for number in range(1, 200):
        reply = next(iter(queue.ask_many([b"stats-job %d\r\n" % number])))
        if reply.name == b"OK":
            stats = dict(yaml.read_mapping(reply.data))
            found.append((stats["tube"], stats["state"], queue.peek(number).body))
    return sorted(found, key=lambda job: job[2])


def filled(state: str) -> MemoryServer:
    """Make a server with three jobs of a state in tube a."""
    server = MemoryServer()
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    for number in range(3):
        job = queue.put(b"%d" % number, 10 + number, 500 if state == "delayed" else 0, 100)
        if state == "buried":
            queue.reserve_job(job)
            queue.bury(job, 10 + number)
    return server


def check_kept(queue: Queue, state: str, ids: list[int]) -> None:
    """Expect that the jobs of `filled` have kept what they are, 100 s later, under these ids."""
    for number, job_id in enumerate(ids):
        stats = queue.stats_job(job_id)
        assert (stats["pri"], stats["ttr"]) == (str(10 + number), "100")
        if state == "delayed":
            assert 398 <= int(stats["time-left"]) <= 400


class Raced(MemoryLine):
    """A worker takes job 2 whenever jobs are listed."""

    def __init__(self, server: MemoryServer, worker: Queue) -> None:
        super().__init__(server)
        self._worker = worker

    def reply(self) -> Reply:
        found = super().reply()
        if self.requests[-1].startswith(b"list-jobs"):
            self._worker.reserve_job(2)
        return found


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
        except (OSError, Broken) as problem:
            yield problem, [job for job in jobs_of(server) if job[0].encode() != MARK_TUBE]
        else:
            assert line.sent == breaks_at - 1 and breaks_at > first + 7
            return
