"""
What lies between a client and the double: bytes both ways, and all that can happen to them.

A wire knows no socket and no Twisted protocol: whoever carries (`endpoint`, `sockets`,
`conversation`) hands in what the client has sent and takes what it may have.  So everything that
goes wrong here goes wrong for all clients alike.
"""

from collections import deque
from typing import Final

from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.grammar import CRLF

WITH_BODY: Final = frozenset((b"RESERVED", b"FOUND", b"OK"))
"""Replies whose line ends with the size of a body that follows."""


class Wire:
    """
    One connection to the double.

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
        """
        Cut the connection: now, or when something more has got through.  The server takes it for a
        client that has vanished, the client for a server that has.

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
        """
        Let nothing through any more, in either direction, without telling anybody: a half-open
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
    """
    Find the middle of the first body.

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
