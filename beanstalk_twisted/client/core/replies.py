"""Cuts what one connection receives into replies."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.wire.forms import ReplyForm
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES

Reply = tuple[ReplyForm, Any]
"""A complete reply: its form, and what follows its word.  With a body that is a pair of the number
and the body; of a batch, the replies that follow.
"""

ASIDE: Final = -1
"""The place in what has come while that waits for the rest of a body."""

_Forms = Mapping[bytes, ReplyForm]
"""The replies that may come, by their words."""


class Impossible(Exception):
    """The bytes are no reply that may come here."""

    def __init__(self, why: str, kind: type[errors.BadReply] = errors.BadReply) -> None:
        super().__init__(why)
        self.kind = kind


class _Batch(NamedTuple):
    """A reply some of whose parts are still to come, of these forms."""

    form: ReplyForm
    size: int
    parts: list[Reply]


class ReplyReader:
    """:ivar unread: what has come; ``at`` is where the next reply begins."""

    def __init__(self) -> None:
        self.unread = b""
        self.at = 0
        # A body that comes in many pieces is put together once, when it is all there.
        self._pieces: list[bytes] = []
        self._missing = 0
        self._batch: _Batch | None = None

    @property
    def is_empty(self) -> bool:
        return self.at == len(self.unread)

    def feed(self, data: bytes) -> None:
        """Take what has come, in pieces of any size."""
        if self.at == len(self.unread):
            self.unread = data
            self.at = 0
        elif self._missing > 0:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                self.unread, self.at = b"".join(self._pieces), 0
                self._pieces.clear()
        else:
            self.unread, self.at = self.unread[self.at :] + data, 0

    def next(self, forms: _Forms) -> Reply | None:
        """Give the next reply, of those that may come; None if it is not there yet.

        :raise Impossible: what has come can be none of them.
        """
        if self._batch is not None:
            return self._more_parts(self._batch)
        unread, start = self.unread, self.at
        end = unread.find(CRLF, start, start + MAX_REPLY_LINE_BYTES)
        if end < 0:
            if len(unread) - start < MAX_REPLY_LINE_BYTES:
                return None
            why = f"a line longer than any reply: {unread[start : start + 40]!r}..."
            raise Impossible(why, errors.LineTooLong)
        word, _, text = unread[start:end].partition(b" ")
        form = forms.get(word)
        if form is None:
            raise Impossible(f"not an answer to this: {unread[start:end]!r}")
        try:
            value = form.read(text)
        except ValueError:
            raise Impossible(f"not well formed: {unread[start:end]!r}") from None
        if form.has_body:
            return self._with_body(form, value, end + 2)
        self.at = end + 2
        return (form, value) if form.is_line else self._more_parts(_Batch(form, value, []))

    def _more_parts(self, batch: _Batch) -> Reply | None:
        """Read parts, each a reply of its own; those that have come are kept."""
        self._batch = None
        while len(batch.parts) < batch.size:
            part = self.next(batch.form.parts or {})
            if part is None:
                self._batch = batch
                return None
            batch.parts.append(part)
        return batch.form, batch.parts

    def _with_body(
        self, form: ReplyForm, value: tuple[int | None, int], start: int
    ) -> Reply | None:
        head, size = value
        end = start + size
        if len(self.unread) < end + 2:
            # Lay all aside until the rest is there; the line is then read once more.
            self._missing = end + 2 - len(self.unread)
            self._pieces = [self.unread[self.at :]]
            self.unread, self.at = b"", ASIDE
            return None
        if self.unread[end : end + 2] != CRLF:
            raise Impossible(f"the body of {form.word.decode()} does not end where it should")
        self.at = end + 2
        return form, (head, self.unread[start:end])
