"""What arrives in raw mode, in pieces: jobs, and a line of more than 224 bytes."""

from typing import Any, Final

from beanstalk_twisted.rules.puts import PLENTY, Draft, Memory
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.grammar import CRLF, MAX_BATCH_JOBS
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    EXPECTED_CRLF,
    JOB_TOO_BIG,
    OUT_OF_MEMORY,
    Reply,
)
from beanstalk_twisted.wire.tags import (
    MAX_BATCH_BYTES,
    MAX_TAGGED_LINE_BYTES,
    NO_LINE,
    JobLine,
    PutTags,
    has_tags,
    parse_count,
    parse_job_line,
    parse_update_line,
)

Collected = tuple[Any, ...]
"""What `PutBatches` is given of a job, a `put_batches.CollectedJob`; of an `update-job` its four
numbers, and the body or None.
"""

MORE: Final = -1
"""All that has come is taken, and more is to come."""


class Incoming:
    """Something that comes in pieces.

    :ivar line: of the command that it belongs to.
    :ivar refusal: the reply if it is refused, which may be found while it comes.
    :ivar is_lost: where it ends is unknown: what follows could be understood wrongly.
    """

    __slots__ = ("_kept_bytes", "_memory", "is_lost", "line", "refusal")

    def __init__(self, line: bytes, refusal: Reply | None, memory: Memory = PLENTY) -> None:
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
        """Take the next piece.

        :return: what follows the end; None if that is yet to come.
        """
        raise NotImplementedError

    def let_go(self) -> None:
        """What was kept is a job's from now on, or dropped."""
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


class LongLine(Incoming):
    """A line that is too long: skipped up to its CR LF."""

    __slots__ = ("_has_cr",)

    def __init__(self, line: bytes, *, is_lost: bool) -> None:
        """:param is_lost: whether jobs may follow, of unknown number."""
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
    """A line of more than 224 bytes whose command may have so many: collected, or skipped as a
    `LongLine` if it is longer still.

    :ivar has_jobs: whether jobs follow it, even if it is too long.
    :ivar whole: the line without its CR LF, when all of it has come; of one that is too long, as
        many bytes as it may have with its CR LF.
    """

    __slots__ = ("_max_bytes", "_rest", "_text", "has_jobs", "whole")

    def __init__(self, line: bytes, max_bytes: int, *, has_jobs: bool) -> None:
        """:param line: its start.
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


class IncomingJobs(Incoming):
    """The jobs that follow a line: collected, or skipped if they are refused.

    :ivar is_batch: whether lines with their bodies follow; otherwise one body.
    :ivar parsed: None if the line is wrong.
    :ivar draft: of a plain `put`; None for other commands, and if it was refused from the start.
    :ivar begun_ns: when the line came.
    :ivar jobs: what was collected when all of them have come.
    """

    __slots__ = (
        "_last", "_last_line", "_left", "_max_job_bytes", "_missing", "_pieces", "_tags", "_text",
        "_total", "_values", "begun_ns", "command", "draft", "is_batch", "jobs", "parsed",
    )  # fmt: skip

    def __init__(
        self, line: bytes, command: Command, parsed: Parsed | None, memory: Memory,
        *, max_job_bytes: int, now_ns: int,
    ) -> None:  # fmt: skip
        super().__init__(line, None if parsed else BAD_FORMAT, memory)
        self.command = command
        self.parsed = parsed
        self.draft: Draft | None = None
        self.begun_ns = now_ns
        self.jobs: list[Collected] = []
        self._max_job_bytes = max_job_bytes
        self._text = self._last_line = b""
        self._last = NO_LINE
        self._pieces: list[bytes] = []
        self._total = self._missing = 0
        self._values: tuple[Any, ...] | None = None
        self._tags: PutTags | None = None
        self._left = 1
        rest = line[len(command.prefix) :]
        self.is_batch = command.is_batch
        if command.has_body:
            assert parsed is not None
            *values, size = parsed[1]
            self._begin_body(JobLine(size, tuple(values), parsed[2]))
        elif command.is_update:
            update = parse_update_line(rest)
            if update is not None:
                self._begin_body(update)
            else:
                # No body follows.
                self._left = 0
                if parsed is not None:
                    self.jobs.append(parsed[1])
        elif not self.is_batch:
            self._begin_body(parse_job_line(rest, command.fields))
        else:
            count = parse_count(rest)
            if count is None or count > MAX_BATCH_JOBS:
                self._lose()
            else:
                self._left = count

    @property
    def held_bytes(self) -> int:
        bodies = sum([len(job[-1]) for job in self.jobs])
        return bodies + sum(map(len, self._pieces)) + len(self._text)

    @property
    def is_whole(self) -> bool:
        return not self._left

    def receive(self, data: bytes) -> bytes | None:
        at = 0
        while self._left:
            at = self._take_body(data, at) if self._missing else self._take_line(data, at)
            if at == MORE:
                return None
        return b"" if self.is_lost else data[at:]

    def _take_line(self, data: bytes, at: int) -> int:
        """:return: where the body begins, or `MORE`."""
        before = len(self._text)
        most = MAX_LINE_BYTES if before < MAX_LINE_BYTES else MAX_TAGGED_LINE_BYTES
        text = self._text + data[at : at + most - before]
        end = text.find(CRLF)
        if end >= 0:
            self._text = b""
            line = text[:end]
            # Most jobs of a batch have the same line.
            if line != self._last_line:
                self._last_line, self._last = line, parse_job_line(line)
            self._begin_body(self._last)
            return at + end + len(CRLF) - before
        self._text = text
        if len(text) < most:
            return MORE
        if most == MAX_TAGGED_LINE_BYTES:
            # Too long: keep its start, which has the size, and its last byte, which may be the
            # first of its end.
            self.refuse(BAD_FORMAT)
            self._text = text[: MAX_LINE_BYTES - 1] + b" " + text[-1:]
        elif not has_tags(text):
            self._lose()
        return at + most - before

    def _begin_body(self, line: JobLine) -> None:
        """The size is looked at before what may follow it, as for a `put`."""
        if line.size is None:
            self._lose()
            return
        self._values, self._tags = line.values, line.tags
        self._missing = line.size + len(CRLF)
        self._total += line.size
        if line.tags is not None and self.is_batch:
            self._total += len(line.tags.metadata)
        # One body alone may have as many bytes as any job.
        most = MAX_BATCH_BYTES if self.is_batch else self._max_job_bytes
        if line.values is None:
            self.refuse(BAD_FORMAT)
        elif line.size > self._max_job_bytes or self._total > most:
            self.refuse(JOB_TOO_BIG)
        elif line.has_junk:
            self.refuse(BAD_FORMAT)

    def _take_body(self, data: bytes, at: int) -> int:
        """Without memory the rest is skipped (beanstalkd prot.c, OP_PUT).

        :return: where the next line begins, or `MORE`.
        """
        size = min(len(data) - at, self._missing)
        if self.refusal is None and not self._keeps(data, at, size):
            self.refuse(OUT_OF_MEMORY)
        self._missing -= size
        if self._missing:
            return MORE
        self._left -= 1
        return at + size

    def _keeps(self, data: bytes, at: int, size: int) -> bool:
        if not self._may_keep(size):
            return False
        try:
            piece = data[at : at + size]
            if size < self._missing:
                self._pieces.append(piece)
            elif self._pieces:
                self._end_body(b"".join([*self._pieces, piece]))
            else:
                self._end_body(piece)
        except MemoryError:
            return False
        return True

    def _end_body(self, body: bytes) -> None:
        """:param body: with its CR LF."""
        self._pieces.clear()
        if body.endswith(CRLF):
            assert self._values is not None
            tags = () if self.command.is_update else (self._tags,)
            self.jobs.append((*self._values, *tags, body[: -len(CRLF)]))
        else:
            self.refuse(EXPECTED_CRLF)

    def refuse(self, reply: Reply) -> None:
        """Put nothing.  The first thing that is wrong is what is answered."""
        if self.refusal is None:
            self.refusal = reply
        self.jobs.clear()
        self._pieces.clear()
        self.let_go()

    def _lose(self) -> None:
        """Give up: where the jobs end cannot be known, or is too far away."""
        self.refuse(BAD_FORMAT)
        self.is_lost = True
        self._left = 0
