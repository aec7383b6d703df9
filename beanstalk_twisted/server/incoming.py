"""What comes in raw mode, in pieces: the body of a `put`, and a line of more than 224 bytes."""

from beanstalk_twisted.rules.puts import PLENTY, Draft, Memory
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.replies import BAD_FORMAT, OUT_OF_MEMORY, Reply


class Incoming:
    """
    Something that comes in pieces.

    :ivar line: the command that it belongs to.
    :ivar refusal: what it is answered with if nothing is to be done with it, which may turn out
        while it comes.
    :ivar is_lost: whether nobody knows where it ends: what follows could be understood wrongly.
    """

    __slots__ = ("_kept_bytes", "_memory", "is_lost", "line", "refusal")

    def __init__(self, line: bytes, refusal: Reply | None, memory: Memory = PLENTY) -> None:
        """:param memory: asked whether there is any for the next piece of a job, and told of it."""
        self.line = line
        self.refusal = refusal
        self.is_lost = False
        self._memory = memory
        self._kept_bytes = 0

    @property
    def held_bytes(self) -> int:
        """How many bytes are kept of what has come."""
        return 0

    @property
    def is_whole(self) -> bool:
        """Whether all has come before the first piece."""
        return False

    def receive(self, data: bytes) -> bytes | None:
        """
        Take the next piece.

        :return: what is behind the end; None if that is yet to come.
        """
        raise NotImplementedError

    def let_go(self) -> None:
        """What was kept is a job's from now on, or nobody's."""
        kept, self._kept_bytes = self._kept_bytes, 0
        if kept:
            self._memory.hold(-kept)

    def _may_keep(self, size: int) -> bool:
        """Reserve memory for bytes of a job, if there is enough."""
        if not self._memory.takes_all(size, size):
            return False
        self._kept_bytes += size
        self._memory.hold(size)
        return True


class IncomingBody(Incoming):
    """
    The body of a `put`: collected, or skipped if it is refused.

    :ivar parsed: the command.
    :ivar draft: the job to be; None if it was refused from the start.
    :ivar body: what was collected when all of it has come, its end included.
    """

    __slots__ = ("_missing", "_pieces", "body", "draft", "parsed")

    def __init__(
        self, line: bytes, parsed: Parsed, memory: Memory, *, draft: Draft | None,
        refusal: Reply | None,
    ) -> None:  # fmt: skip
        super().__init__(line, refusal, memory)
        self.parsed = parsed
        self.draft = draft
        self.body = b""
        self._pieces: list[bytes] = []
        size: int = parsed[1][-1]
        self._missing = size + len(CRLF)

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._pieces))

    def receive(self, data: bytes) -> bytes | None:
        """As `Incoming.receive`; without memory the rest is skipped (beanstalkd prot.c, OP_PUT)."""
        size = min(len(data), self._missing)
        if self.refusal is None and not self._keeps(data, size):
            self._pieces.clear()
            self.let_go()
            self.refusal = OUT_OF_MEMORY
        self._missing -= size
        return None if self._missing else data[size:]

    def _keeps(self, data: bytes, size: int) -> bool:
        """:return: whether there was memory for it."""
        if not self._may_keep(size):
            return False
        try:
            self._pieces.append(data[:size])
            if size == self._missing:
                self.body = b"".join(self._pieces)
                self._pieces.clear()
        except MemoryError:
            return False
        return True


class LongLine(Incoming):
    """A line that is too long: skipped up to its CR LF."""

    __slots__ = ("_has_cr",)

    def __init__(self, line: bytes, *, is_lost: bool) -> None:
        """
        :param line: its start.
        :param is_lost: whether jobs may follow, as many as nobody knows.
        """
        super().__init__(line, BAD_FORMAT)
        self.is_lost = is_lost
        self._has_cr = False

    def receive(self, data: bytes) -> bytes | None:
        """As `Incoming.receive`; a CR at the end of a piece may have its LF in the next."""
        if self._has_cr and data.startswith(b"\n"):
            return data[1:]
        _, found, rest = data.partition(CRLF)
        self._has_cr = data.endswith(b"\r")
        return rest if found else None


class IncomingLine(Incoming):
    """
    A line of more than 224 bytes whose command may have so many: collected, or skipped as a
    `LongLine` if it is longer still.

    :ivar has_jobs: whether jobs follow it, even if it is too long.
    :ivar whole: the line without its CR LF, when all of it has come; of one that is too long, as
        many bytes as it may have with its CR LF.
    """

    __slots__ = ("_max_bytes", "_rest", "_text", "has_jobs", "whole")

    def __init__(self, line: bytes, max_bytes: int, *, has_jobs: bool) -> None:
        """
        :param line: its start.
        :param max_bytes: its limit, with its CR LF.
        """
        super().__init__(line, None)
        self.has_jobs = has_jobs
        self.whole = b""
        self._max_bytes = max_bytes
        self._text = bytearray()
        self._rest: LongLine | None = None

    def receive(self, data: bytes) -> bytes | None:
        if self._rest is not None:
            return self._rest.receive(data)
        text = self._text
        before = len(text)
        taken = min(len(data), self._max_bytes - before)
        text += data[:taken]
        # The CR may be the end of the last piece.
        end = text.find(CRLF, max(0, before - 1))
        if end >= 0:
            self.whole = bytes(text[:end])
            return data[end + len(CRLF) - before :]
        if len(text) < self._max_bytes:
            return None
        self.refusal, self._rest = BAD_FORMAT, LongLine(self.line, is_lost=False)
        self.whole = bytes(text)
        last = self.whole[-1:]
        text.clear()
        return self._rest.receive(last + data[taken:])
