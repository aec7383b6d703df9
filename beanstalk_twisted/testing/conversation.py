"""A connection of the test's own: send bytes, get replies."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from beanstalk_twisted.testing.network import Carrier
from beanstalk_twisted.testing.wire import Wire


class Conversation(Carrier):
    """
    A raw connection.

    :ivar wire: what can happen to it.
    """

    def __init__(self, wire: Wire, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """
        :param turn: what each thing that is done here is done within; it lets happen what follows.
        """
        self.wire = wire
        self._turn = turn
        self._heard = bytearray()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the server has parted, or was left."""
        return self.wire.is_over

    def carry(self) -> bool:
        replies = self.wire.take()
        self._heard += replies
        return bool(replies)

    def send(self, commands: bytes) -> None:
        """Send bytes, whole commands or parts of them."""
        with self._turn():
            self.wire.send(commands)

    def take(self) -> bytes:
        """Give all replies that have come and were not given yet."""
        with self._turn():
            pass
        replies = bytes(self._heard)
        self._heard.clear()
        return replies

    def ask(self, commands: bytes) -> bytes:
        """Send bytes and give the replies that come without time passing."""
        self.send(commands)
        return self.take()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        with self._turn():
            self.wire.half_close()

    def close(self) -> None:
        """Hang up."""
        with self._turn():
            self.wire.hang_up()
