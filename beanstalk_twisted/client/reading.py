"""
Bytes into replies.

A reader has three answers and no policy: a `Reply` (this), ``None`` (not yet) and `Impossible`
(this cannot be right, and why).  What to do about the last is the caller's; the reader has then
lost the thread and is good for nothing more.
"""

from collections.abc import Mapping
from typing import NamedTuple

from beanstalk_twisted.client.commands.specs import Reply, Shape
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES


class Impossible(NamedTuple):
    """What the peer has sent is no reply that may come here."""

    why: str


class _Batch(NamedTuple):
    """
    A reply whose parts are still to come.

    :ivar shapes: theirs.
    :ivar parts: those that have come.
    """

    first: Reply
    shapes: Mapping[bytes, Shape]
    parts: list[Reply]


class ReplyReader:
    """Cuts what one connection receives into replies."""

    def __init__(self) -> None:
        self._unread = b""
        self._at = 0
        # A body that comes in many pieces is put together once, when it is all there.
        self._pieces: list[bytes] = []
        self._missing = 0
        self._batch: _Batch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all that has come was read."""
        return not self._pieces and self._at == len(self._unread)

    def feed(self, data: bytes) -> None:
        """Take what has come, in pieces of any size."""
        if self._missing > 0:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                self._unread, self._at = b"".join(self._pieces), 0
                self._pieces.clear()
        elif self._at == len(self._unread):
            self._unread, self._at = data, 0
        else:
            self._unread, self._at = self._unread[self._at :] + data, 0

    def next(self, shapes: Mapping[bytes, Shape]) -> Reply | Impossible | None:
        """
        Give the next reply.

        :param shapes: which may come, by their words.
        """
        if self._missing > 0:
            return None
        if self._batch is not None:
            return self._more_parts(self._batch)
        start = self._at
        end = self._unread.find(CRLF, start, start + MAX_REPLY_LINE_BYTES)
        if end < 0:
            return self._unended(start)
        word, _, text = self._unread[start:end].partition(b" ")
        shape = shapes.get(word)
        if shape is None:
            return Impossible(f"not an answer to this: {self._unread[start:end]!r}")
        try:
            value = shape.read(text)
        except ValueError:
            return Impossible(f"not well formed: {self._unread[start:end]!r}")
        if shape.has_body:
            return self._with_body(word, value, end + 2)
        self._at = end + 2
        reply = Reply(word, value, b"")
        if shape.parts is not None:
            return self._more_parts(_Batch(reply, shape.parts, []))
        return reply

    def _more_parts(self, batch: _Batch) -> Reply | Impossible | None:
        """
        Read parts, each a reply of its own.  Those that have come are kept: what comes next is not
        looked at twice.
        """
        self._batch = None
        while len(batch.parts) < batch.first.value:
            part = self.next(batch.shapes)
            if part is None:
                self._batch = batch
                return None
            if isinstance(part, Impossible):
                return part
            batch.parts.append(part)
        return batch.first._replace(parts=tuple(batch.parts))

    def _unended(self, start: int) -> Impossible | None:
        if len(self._unread) - start < MAX_REPLY_LINE_BYTES:
            return None
        return Impossible(f"no line of a reply: {self._unread[start : start + 40]!r}...")

    def _with_body(
        self, word: bytes, value_and_size: tuple[int | None, int], start: int
    ) -> Reply | Impossible | None:
        value, size = value_and_size
        end = start + size
        if len(self._unread) < end + 2:
            self._collect(end + 2)
            return None
        if self._unread[end : end + 2] != CRLF:
            return Impossible(f"the body of {word.decode()} does not end where it should")
        self._at = end + 2
        return Reply(word, value, self._unread[start:end])

    def _collect(self, end: int) -> None:
        """
        Lay all aside until the bytes up to ``end`` are there; the line is then read once more.
        """
        self._missing = end - len(self._unread)
        self._pieces = [self._unread[self._at :]]
        self._unread, self._at = b"", 0
