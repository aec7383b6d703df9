"""
What the servers of a simulated cluster agree on: the messages of a stream, its settings, and what
befalls it.  `memory.MemoryStream` is a client's door to it.
"""

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from beanstalk_twisted.replication.stream.door import (
    EXPIRE_S,
    Copies,
    Ends,
    Message,
    StreamError,
    Unreachable,
    WrongPosition,
)


class Door(Protocol):
    """A client of the log, which is told what happens to it."""

    def appended(self) -> None:
        """There may be something new for those who follow."""

    def lost(self) -> StreamError:
        """What is told when the stream that was opened is not there any more."""

    def end_followings(self, why: StreamError) -> None:
        """Nothing is delivered to those who follow any more."""

    def told(self, payload: bytes) -> None:
        """A client has told this to all who hear now."""


class MemoryLog:
    """
    The messages, as the cluster has them.

    :ivar messages: payloads by position, ascending.
    :ivar expire_s: how long those stay that expire, seconds of the client's reactor.
    :ivar last: position of the newest message ever appended.
    :ivar copies: where it is stored.
    :ivar times_made: how often a stream of this name was made.
    :ivar warnings: what `MemoryStream.open` returns; ``refusal`` is the text with which it fails.
    :ivar max_bytes: the most that its messages may have, or nothing more is taken.
    """

    def __init__(self, url: str = "memory://cluster/log") -> None:
        self.url = url
        self.messages: dict[int, bytes] = {}
        self.expire_s: float = EXPIRE_S
        self.last = 0
        self.warnings: list[str] = []
        self.refusal: str | None = None
        self.max_bytes: int | None = None
        self._first = 1
        self._has_quorum = True
        self._waiting: list[Callable[[], None]] = []
        self.doors: list[Door] = []
        self.copies = Copies(3, "n1", ("n1", "n2", "n3"))
        self.times_made = 1

    @property
    def ends(self) -> Ends:
        """The ends of the stream."""
        return Ends(self._first, self.last)

    @property
    def newest(self) -> int:
        """Position of the newest message that is left; 0 if there is none."""
        return next(reversed(self.messages), 0)

    @property
    def _size(self) -> int:
        return sum(map(len, self.messages.values()))

    @property
    def has_quorum(self) -> bool:
        """Whether anything is decided."""
        return self._has_quorum

    def lose_quorum(self) -> None:
        """Decide nothing until `restore_quorum`."""
        self._has_quorum = False

    def restore_quorum(self, keeps: bool = True) -> None:
        """
        :param keeps: whether what was asked meanwhile is carried out now; else it is forgotten.
        """
        self._has_quorum = True
        waiting, self._waiting = self._waiting, []
        for decide in waiting if keeps else ():
            decide()

    def when_decided(self, decide: Callable[[], None]) -> None:
        """Call now, or when there is a quorum again."""
        if self._has_quorum:
            decide()
        else:
            self._waiting.append(decide)

    def append(self, payload: bytes, expected: int) -> int:
        """
        :raise WrongPosition: the last position is another one.
        :raise Unreachable: it is full.
        """
        if expected != self.last:
            raise WrongPosition(
                f"{self.url}: the last message is at {self.last}, not at {expected}"
            )
        if self.max_bytes is not None and self._size + len(payload) > self.max_bytes:
            raise Unreachable(f"{self.url}: maximum bytes exceeded")
        self.last += 1
        self.messages[self.last] = payload
        for door in self.doors:
            door.appended()
        return self.last

    def from_position(self, position: int, count: int) -> list[Message]:
        """The first messages at a position or behind it."""
        start = max(position, self._first)
        there = (at for at in range(start, self.last + 1) if at in self.messages)
        return [Message(at, self.messages[at]) for at in islice(there, count)]

    def purge(self, below: int) -> None:
        """Remove all messages below a position; the last position stays."""
        first = max(self._first, min(below, self.last + 1))
        for position in range(self._first, first):
            self.messages.pop(position, None)
        self._first = first
        self._skip()

    def expire(self, position: int) -> None:
        """Remove a message, if it is still there; the last position stays."""
        self.messages.pop(position, None)
        self._skip()

    def lose(self, above: int) -> None:
        """A fault: all messages above a position are lost, though they were acknowledged."""
        for position in range(above + 1, self.last + 1):
            self.messages.pop(position, None)
        self.last = above
        self._first = min(self._first, above + 1)

    def remake(self) -> None:
        """Somebody deletes the stream, and another one of its name is made."""
        self.messages.clear()
        self.last, self._first = 0, 1
        self.times_made += 1
        for door in list(self.doors):
            door.end_followings(door.lost())

    def _skip(self) -> None:
        # The first message that is left is the first.
        while self._first <= self.last and self._first not in self.messages:
            self._first += 1
