"""Bytes move, and seconds pass, when the test says so."""

import math
from collections import deque
from typing import Any, Final

from twisted.internet.task import Clock

from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.grammar import CRLF

WITH_BODY: Final = frozenset((b"RESERVED", b"FOUND", b"OK"))
"""Replies whose line ends with the size of a body that follows."""

MAX_ROUNDS: Final = 100_000
"""Round trips without time passing that are taken for an endless loop of some client."""


class Wire:
    """One connection to the double.

    :ivar number: the server's number for it, from 1; as in `Command.connection`.
    :ivar is_dropped: whether it was cut instead of closed.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.peer: Client = server.connect()
        self.number: int = self.peer.protocol.connection.session.number
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

    # What links call.

    def send(self, commands: bytes) -> None:
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
        if not self.is_over and not self.is_cut_off and not self.peer.is_closed:
            self.peer.half_close()

    def hang_up(self) -> None:
        self.is_dropped = True
        self._late.clear()
        if not self.is_cut_off:
            self.peer.hang_up()

    # What tests call.

    def drop(
        self, *, after_reply_bytes: int | None = None, after_command_bytes: int | None = None,
        in_body: bool = False,
    ) -> None:  # fmt: skip
        """Cut the connection: now, or when something more has got through.  Each end takes it for a
        loss of the other.

        :param after_reply_bytes: bytes of replies that still come, at least 1.
        :param after_command_bytes: bytes of commands that are still taken, at least 1.
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
        """Let nothing through any more and tell neither end, as a network that is gone does."""
        self.is_cut_off = True

    def _cut(self, output: bytes) -> bytes:
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


class Network:
    """A server, its connections, and two clocks that go at the same pace: the server's, whose
    timers end when it is killed, and one for the code under test.

    :ivar clock: for the code under test.
    :ivar links: the other ends of the wires.  Their ``carry`` moves what each end has sent to the
        other, tells one of the end of the other, and returns whether there was anything.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.max_rounds = MAX_ROUNDS
        self.clock = Clock()
        self.links: list[Any] = []

    def step(self) -> bool:
        """Let happen what is next, without time passing; return whether more may follow."""
        self.server.advance()
        self.clock.advance(0)
        moved = [link.carry() for link in list(self.links)]
        return any(moved) or self.next_s() <= 0

    def settle(self) -> None:
        """:raise RuntimeError: it does not come to an end."""
        for _ in range(self.max_rounds):
            if not self.step():
                return
        raise RuntimeError(
            f"after {self.max_rounds} round trips there is still something to do, and no time has "
            "passed: some client asks again and again without waiting"
        )

    def next_s(self) -> float:
        """Return in how many seconds something is to happen."""
        waits = (
            call.getTime() - clock.seconds()
            for clock in (self.clock, self.server.clock)
            for call in clock.getDelayedCalls()
        )
        return min(waits, default=math.inf)

    def advance(self, seconds: float) -> None:
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
