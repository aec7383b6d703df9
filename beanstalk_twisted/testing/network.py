"""Time and motion: bytes move, and seconds pass, when the test says so.

There are two clocks that go at the same pace: the server's, and one for the code under test.  When
the server is killed its timers go with it, those of its clients stay.
"""

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

from twisted.internet.task import Clock

from beanstalk_twisted.testing.memory_server import Client, MemoryServer, SimulatedDirectory
from beanstalk_twisted.testing.recording import RecordedServer, RecordedService
from beanstalk_twisted.wire.grammar import CRLF

WITH_BODY: Final = frozenset((b"RESERVED", b"FOUND", b"OK"))
"""Replies whose line ends with the size of a body that follows."""


class Wire:
    """One connection to the double.

    :ivar peer: the server's side of it.
    :ivar number: the server's number for it, from 1; as in `Command.connection`.
    :ivar is_dropped: whether it was cut instead of closed.
    :ivar is_held: replies wait until `release`.
    :ivar is_cut_off: nothing gets through any more, and neither end is told.
    :ivar delay_s: how long each reply is on its way.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.peer: Client = server.connect()
        self.number: int = self.peer.protocol.session.number
        self.is_dropped = False
        self.is_held = False
        self.is_cut_off = False
        self.delay_s = 0.0
        self._clock = server.clock
        self._late: deque[tuple[float, bytes]] = deque()
        self._command_bytes_left: int | None = None
        self._reply_bytes_left: int | None = None
        self._drops_in_body = False

    def __repr__(self) -> str:
        return f"<Wire {self.number}, {'over' if self.is_over else 'open'}>"

    @property
    def is_over(self) -> bool:
        """Whether the client will get nothing more."""
        if self.is_dropped or self.is_cut_off:
            return self.is_dropped
        return self.peer.is_closed and not self._late and not self.peer.transport.unread

    # What carriers call.

    def send(self, commands: bytes) -> None:
        """Bring what the client has sent."""
        if self.is_over or self.is_cut_off or self.peer.is_closed:
            return
        left = self._command_bytes_left
        part = commands[:left]
        self.peer.send(part)
        if left is not None:
            self._command_bytes_left = left - len(part)
            if left == len(part):
                self.drop()

    def take(self) -> bytes:
        """Give the replies that the client may have by now."""
        if self.is_dropped or self.is_cut_off or self.is_held:
            return b""
        fresh = self.peer.take()
        if fresh:
            self._late.append((self._clock.seconds() + self.delay_s, fresh))
            if self.delay_s:
                # For nothing but to be noticed: time stops at each call that is due.
                self._clock.callLater(self.delay_s, lambda: None)
        output = bytearray()
        while self._late and self._late[0][0] <= self._clock.seconds() + 1e-9:
            output += self._late.popleft()[1]
        return self._cut(bytes(output))

    def half_close(self) -> None:
        """The client will send no more."""
        if not self.is_over and not self.is_cut_off and not self.peer.is_closed:
            self.peer.half_close()

    def hang_up(self) -> None:
        """The client has vanished."""
        self.is_dropped = True
        self._late.clear()
        if not self.is_cut_off:
            self.peer.hang_up()

    # What tests call.

    def drop(
        self, *, after_reply_bytes: int | None = None, after_command_bytes: int | None = None,
        in_body: bool = False,
    ) -> None:  # fmt: skip
        """Cut the connection: now, or when something more has got through.  The server takes it for
        a client that has vanished, the client for a server that has.

        :param after_reply_bytes: so many bytes of replies more still come, at least 1.
        :param after_command_bytes: so many bytes of commands more are still taken, at least 1.
        :param in_body: cut it in the middle of the body of the next reply that has one.
        """
        for count in (after_reply_bytes, after_command_bytes):
            if count is not None and count < 1:
                raise ValueError(f"{count} bytes: leave it out to drop the connection now")
        if after_reply_bytes is None and after_command_bytes is None and not in_body:
            self.hang_up()
            return
        self._reply_bytes_left = after_reply_bytes
        self._command_bytes_left = after_command_bytes
        self._drops_in_body = in_body

    def hold(self) -> None:
        """Keep replies back until `release`.  The server notices a client that does not read."""
        self.is_held = True

    def release(self) -> None:
        """Let replies through again, those that were held first."""
        self.is_held = False

    def delay(self, seconds: float) -> None:
        """Let each reply from now on take so long; 0 ends it."""
        self.delay_s = seconds

    def cut_off(self) -> None:
        """Let nothing through any more, in either direction, without telling anybody: a half-open
        connection, as a network that is gone leaves it.
        """
        self.is_cut_off = True

    def _cut(self, output: bytes) -> bytes:
        """Leave of the replies what comes before a planned end."""
        if self._drops_in_body and (end := middle_of_a_body(output)) is not None:
            self._drops_in_body = False
            self._reply_bytes_left = end
        left = self._reply_bytes_left
        if left is None:
            return output
        part = output[:left]
        self._reply_bytes_left = left - len(part)
        if left == len(part):
            self.hang_up()
        return part


def middle_of_a_body(replies: bytes) -> int | None:
    """Find the middle of the first body.

    :param replies: whole ones; the server never writes a part.
    :return: an offset behind the reply's line and before the body's last byte; None without a body.
    """
    start = 0
    while start < len(replies):
        end = replies.index(CRLF, start) + len(CRLF)
        words = replies[start:end].split()
        if words[0] in WITH_BODY:
            return end + int(words[-1]) // 2
        start = end
    return None


MAX_ROUNDS: Final = 100_000
"""Round trips without time passing that are taken for an endless loop of some client."""


class Carrier(Protocol):
    """Whoever carries bytes between a client and a `Wire`."""

    def carry(self) -> bool:
        """Move what each end has sent to the other one, and tell one end of the end of the other.

        :return: whether there was anything.
        """


class Network:
    """A server, its connections, and the clocks.

    :ivar clock: for the code under test.
    :ivar links: all connections made, in order.
    :ivar max_rounds: see `MAX_ROUNDS`.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.max_rounds = MAX_ROUNDS
        self.clock = Clock()
        self.links: list[Any] = []

    def step(self) -> bool:
        """Let happen what is next, without time passing.

        :return: whether anything is left that needs no time.
        """
        self.server.advance()
        self.clock.advance(0)
        moved = [link.carry() for link in list(self.links)]
        return any(moved) or self.next_s() <= 0

    def settle(self) -> None:
        """Let all happen that needs no time.

        :raise RuntimeError: it does not come to an end.
        """
        for _ in range(self.max_rounds):
            if not self.step():
                return
        raise RuntimeError(
            f"after {self.max_rounds} round trips there is still something to do, and no time has "
            "passed: some client asks again and again without waiting"
        )

    def next_s(self) -> float:
        """Say in how many seconds something is to happen."""
        ours = [call.getTime() for call in self.clock.getDelayedCalls()]
        theirs = self.server.next_call_at()
        mine = min(ours, default=float("inf")) - self.clock.seconds()
        its = (float("inf") if theirs is None else theirs) - self.server.clock.seconds()
        return min(mine, its)

    def advance(self, seconds: float) -> None:
        """Let time pass, from one thing that is due to the next.

        :raise ValueError: it is no time that can pass.
        """
        check_span(seconds)
        self.settle()
        left = seconds
        while left > 0:
            # Sums of seconds are not exact: a microsecond more is always enough.
            step = min(left, self.next_s() + 1e-6)
            left -= step
            # The server first: whoever asks for its time in a call of theirs hears the time it is.
            self.server.advance(step)
            self.clock.advance(step)
            self.settle()


def check_span(seconds: float) -> None:
    """:raise ValueError: it is below 0, endless, or no number."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"time goes on, and ends somewhere: {seconds!r} seconds cannot pass")


class Harness:
    """The server, its connections and its time, as all parts of a double share them.

    :ivar server: the real server, for whoever needs to reach into it.
    :ivar is_up: whether it runs.
    """

    def __init__(self, *, has_log: bool = True, max_job_bytes: int = 65_535) -> None:
        """:param has_log: whether jobs survive a restart: the log is kept in memory, and a reply
            waits for it as it does for a disk.
        :param max_job_bytes: the largest body, bytes.
        """
        directory = SimulatedDirectory() if has_log else None
        self.server = RecordedServer(directory=directory, max_job_bytes=max_job_bytes)
        self.network = Network(self.server)
        self.is_up = True
        self._lock = threading.RLock()
        self._wires: list[Wire] = []
        self._is_holding = False
        self._delay_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The test is over: nothing moves any more."""

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """What is done to the double is done within this: alone, and what follows from it
        follows.
        """
        with self._lock:
            yield
            self.network.settle()

    # Time.

    def time(self) -> float:
        """Say how many seconds have passed since the double was made."""
        return float(self.server.clock.seconds())

    def advance(self, seconds: float) -> None:
        """Let time pass, and all that happens in it: TTRs, delays, pauses and timeouts end in their
        order.  What clients have sent before is carried out before.

        :raise ValueError: it is below 0, endless, or no number.
        """
        with self._turn():
            self.network.advance(seconds)

    def settle(self) -> None:
        """Let all happen that needs no time."""
        with self._turn():
            pass

    # For the other parts.

    @property
    def _service(self) -> RecordedService:
        self._check_up()
        assert isinstance(self.server.service, RecordedService)
        return self.server.service

    def _check_up(self) -> None:
        if not self.is_up:
            raise ConnectionRefusedError("the double is down; start() begins another process")

    def _make_wire(self) -> Wire:
        wire = Wire(self.server)
        wire.is_held, wire.delay_s = self._is_holding, self._delay_s
        self._wires.append(wire)
        return wire
