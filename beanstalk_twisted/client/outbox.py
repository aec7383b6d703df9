"""What the transport has not taken yet, given to it in pieces.

A body of a gigabyte is not copied into the transport's buffer at once, and what was not begun can
still be taken back or sent on another connection.
"""

from collections import OrderedDict
from typing import Final, Generic

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.exchange import R

PIECE_BYTES: Final = 1 << 16
"""What the transport is given at once: as much as it buffers before it asks for a pause."""

REQUEST_BYTES: Final = 512
"""What a waiting command costs beside its bytes on the wire, about."""

MAX_WAITING_BYTES: Final = 64 << 20
"""What may wait to be sent, bytes (`cost`); above it, further commands are `Overfull`."""


def overfull(spec: CommandSpec) -> errors.Overfull:
    """Say that no more is taken."""
    return errors.Overfull(
        f"{spec.name}: more than {MAX_WAITING_BYTES} bytes wait to be sent; "
        "await room() before sending more"
    )


def cost(request: R) -> int:
    """Say how many bytes of memory a waiting command takes, about."""
    return request.size + REQUEST_BYTES


class Outbox(Generic[R]):
    """Requests in order, of which the first may have gone in part.

    :ivar bytes: what they all cost.
    """

    def __init__(self) -> None:
        self.bytes = 0
        # A plain dict is slow to give its first key once many were taken from its front.
        self._requests: OrderedDict[R, None] = OrderedDict()
        self._view = memoryview(b"")

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: R) -> None:
        """Send this behind all others."""
        self._requests[request] = None
        self.bytes += cost(request)

    def drop(self, request: R) -> None:
        """Do not send this; it was not begun."""
        if request in self._requests:
            del self._requests[request]
            self.bytes -= cost(request)

    def piece(self) -> bytes:
        """Give the next bytes to hand to the transport."""
        pieces: list[bytes | memoryview] = []
        room = PIECE_BYTES
        while room > 0 and self._requests:
            request = next(iter(self._requests))
            if not request.is_begun:
                request.is_begun = True
                self._view = memoryview(request.encode())
            pieces.append(self._view[:room])
            room -= len(pieces[-1])
            self._view = self._view[len(pieces[-1]) :]
            if not self._view:
                request.is_sent = True
                self.drop(request)
        return b"".join(pieces)
