"""What reached the server first is carried out first, whoever has sent it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sampling import one_in, share
from tests.server_process import (
    Connection,
    ServerProcess,
    ours_at_once,
)

ASK = b"list-tube-used\r\n"


class Arrangement:
    """A server with idle connections.

    :ivar connect: connects a client, which the server may not have accepted.
    """

    def __init__(self, server: ServerProcess, connect: Callable[[], Connection], idle: int) -> None:
        self.server = server
        self.connect = connect
        self._idle = [self.known() for _ in range(idle)]

    def known(self) -> Connection:
        connection = self.connect()
        assert connection.ask(ASK) == b"USING default\r\n"
        return connection

    def put(self, connection: Connection) -> int:
        return int(connection.ask(b"put 0 0 60 1\r\nx\r\n").split()[1])

    def end(self) -> None:
        for connection in self._idle:
            connection.close()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What is sent in this block comes to the server at once, when it has ended."""
        process = self.server.process
        stat = Path(f"/proc/{process.pid}/stat")
        process.send_signal(signal.SIGSTOP)
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            pass
        yield
        process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module", params=["tcp", "unix"])
def listening(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, int | Path]]:
    """A server, and where it listens."""
    folder = tmp_path_factory.mktemp("order")
    path = folder / "socket"
    is_tcp = request.param == "tcp"
    where = ["-p0"] if is_tcp else ["--address", f"unix:{path}"]
    with ServerProcess(ours_at_once(*where), folder) as server:
        server.wait_for("listening on")
        yield server, server.port() if is_tcp else path


@pytest.fixture
def arrangement(listening: tuple[ServerProcess, int | Path], idle: int) -> Iterator[Arrangement]:
    server, address = listening
    made = Arrangement(server, lambda: Connection(address), idle)
    yield made
    made.end()


IDLE = pytest.mark.parametrize("idle", one_in(3, [0, 1, 2, 4]))
TRIES = share(100)
"""How often each is tried: that a known client passed others hung on a few microseconds."""


@IDLE
@pytest.mark.parametrize("is_holder_first", [True, False])
@pytest.mark.parametrize("last", [b"", ASK], ids=["silent", "with a last command"])
def test_a_command_finds_the_job_of_a_connection_that_was_closed_before(
    arrangement: Arrangement, is_holder_first: bool, last: bytes
) -> None:
    for _ in range(TRIES):
        first, second = arrangement.known(), arrangement.known()
        holder, other = (first, second) if is_holder_first else (second, first)
        job_id = arrangement.put(other)
        assert holder.ask(b"reserve\r\n") == b"RESERVED %d 1\r\nx\r\n" % job_id
        assert other.ask(ASK) == b"USING default\r\n"
        with arrangement.stopped():
            holder.send(last)
            holder.close()
            other.send(b"reserve-with-timeout 0\r\n")
        assert other.reply() == b"RESERVED %d 1\r\nx\r\n" % job_id
        assert other.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
        other.close()


@IDLE
@pytest.mark.parametrize("is_first", [True, False])
def test_a_new_connections_first_command_has_its_turn(
    arrangement: Arrangement, is_first: bool
) -> None:
    for _ in range(TRIES):
        other = arrangement.known()
        job_id = arrangement.put(other)
        with arrangement.stopped():
            if not is_first:
                other.send(b"delete %d\r\n" % job_id)
            new = arrangement.connect()
            new.send(b"peek %d\r\n" % job_id)
            if is_first:
                other.send(b"delete %d\r\n" % job_id)
        found = b"FOUND %d 1\r\nx\r\n" % job_id
        assert new.reply() == (found if is_first else b"NOT_FOUND\r\n")
        assert other.reply() == b"DELETED\r\n"
        new.close()
        other.close()
