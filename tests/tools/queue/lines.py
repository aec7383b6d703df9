"""
A `Line` to a whole server in memory, which can break.
"""

from __future__ import annotations

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.extensions import EXTENSIONS
from binlog_tools.client import Reply
from binlog_tools.queue.server import Queue
from tests.server_process import body_bytes

EXTENDED = frozenset(row.name for row in EXTENSIONS if not row.form)
"""The words that beanstalkd does not have; others are forms of commands that it has."""


class MemoryLine:
    """
    See `Line`.

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
        """
        See `Line`.
        """
        self.sent += 1
        self.requests.append(request)
        if self.sent == self.breaks_at:
            if self.is_heard:
                self._client.ask(request)
            self._client.hang_up()
            raise ConnectionResetError("broken by the test")
        self._replies += self._client.ask(request)

    def reply(self) -> Reply:
        """
        See `Line`.
        """
        line, _, rest = self._replies.partition(b"\r\n")
        if line.startswith(b"INSERTED_BATCH "):
            *jobs, self._replies = rest.split(b"\r\n", int(line.split()[1]))
            return Reply(tuple(line.split()), b"\r\n".join(jobs))
        size = body_bytes(line + b"\r\n") or 0
        self._replies = rest[size:]
        return Reply(tuple(line.split()), rest[: max(0, size - 2)])


class StockLine(MemoryLine):
    """
    A server that has the commands of beanstalkd and no others.
    """

    def send(self, request: bytes) -> None:
        """
        See `Line`.
        """
        if request == b"capabilities\r\n":
            self._replies += b"UNKNOWN_COMMAND\r\n"
            return
        commands = [line.split(b" ")[0].decode() for line in request.split(b"\r\n") if line]
        assert not EXTENDED.intersection(commands), request
        super().send(request)


def jobs_of(server: MemoryServer) -> list[tuple[str, str, bytes]]:
    """
    Give tube, state and body of all jobs, by their bodies.
    """
    queue = Queue(MemoryLine(server))
    found = []
    for number in range(1, 200):
        reply = next(iter(queue.ask_many([b"stats-job %d\r\n" % number])))
        if reply.name == b"OK":
            stats = dict(yaml.read_mapping(reply.data))
            found.append((stats["tube"], stats["state"], queue.peek(number).body))
    return sorted(found, key=lambda job: job[2])
