"""
What follows the line of a `put-at`, a `put-batch`, an `update-job` or a `put` with tags, in pieces:
jobs, collected, or skipped if one of them is wrong.

Of the first wrong one nothing is kept any more, nor of those behind it, but all are read to their
end.  Where that cannot be known, since a line does not say the size of its body, nothing that
follows is read as commands: the connection ends.
"""

from typing import Any, Final

from beanstalk_twisted.rules.puts import Memory
from beanstalk_twisted.server.incoming import Incoming
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.grammar import CRLF, MAX_BATCH_JOBS
from beanstalk_twisted.wire.job_lines import (
    MAX_BATCH_BYTES,
    NO_LINE,
    JobLine,
    parse_count,
    parse_job_line,
    parse_update_line,
)
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    EXPECTED_CRLF,
    JOB_TOO_BIG,
    OUT_OF_MEMORY,
    Reply,
)
from beanstalk_twisted.wire.tags import MAX_TAGGED_LINE_BYTES, PutTags, has_tags

Collected = tuple[Any, ...]
"""
What `PutBatches` is given of a job, a `put_batches.CollectedJob`; of an `update-job` its four
numbers, and the body or None.
"""

MORE: Final = -1
"""All that has come is taken, and more is to come."""


class IncomingJobs(Incoming):
    """
    The jobs that follow a line.

    :ivar command: its row.
    :ivar is_batch: whether lines with their bodies follow; otherwise one body.
    :ivar parsed: None if it is wrong.
    :ivar begun_ns: when it came.
    :ivar jobs: what was collected when all of them have come.
    """

    __slots__ = (
        "_last", "_last_line", "_left", "_max_job_bytes", "_missing", "_pieces", "_tags", "_text",
        "_total", "_values", "begun_ns", "command", "is_batch", "jobs", "parsed",
    )  # fmt: skip

    def __init__(
        self, line: bytes, command: Command, parsed: Parsed | None, memory: Memory,
        *, max_job_bytes: int, now_ns: int,
    ) -> None:  # fmt: skip
        super().__init__(line, None if parsed else BAD_FORMAT, memory)
        self.command = command
        self.parsed = parsed
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
        if command.is_update:
            self._begin_update(parse_update_line(rest))
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
        """Whether all has come before the first piece."""
        return not self._left

    def receive(self, data: bytes) -> bytes | None:
        """
        Take the next piece.

        :return: what is behind the last job; None if that is yet to come.
        """
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
            self._begin_body(self._parsed(text[:end]))
            return at + end + len(CRLF) - before
        self._text = text
        if len(text) < most:
            return MORE
        if most == MAX_TAGGED_LINE_BYTES:
            self._shorten_line()
        elif not has_tags(text):
            self._lose()
        return at + most - before

    def _parsed(self, line: bytes) -> JobLine:
        """As `parse_job_line`; most jobs of a batch have the same line."""
        if line != self._last_line:
            self._last_line, self._last = line, parse_job_line(line)
        return self._last

    def _shorten_line(self) -> None:
        """
        The line is too long: keep its start, which has the size, and its last byte, which may be
        the first of its end.
        """
        self.refuse(BAD_FORMAT)
        self._text = self._text[: MAX_LINE_BYTES - 1] + b" " + self._text[-1:]

    def _begin_update(self, line: JobLine | None) -> None:
        """:param line: None if no body follows."""
        if line is not None:
            self._begin_body(line)
            return
        self._left = 0
        if self.parsed is not None:
            self.jobs.append(self.parsed[1])

    def _begin_body(self, line: JobLine) -> None:
        """The size is looked at before what may follow it, as for a `put`."""
        if line.size is None:
            self._lose()
            return
        self._values, self._tags = line.values, line.tags
        self._missing = line.size + len(CRLF)
        self._total += line.size
        if line.values is None:
            self.refuse(BAD_FORMAT)
        elif line.size > self._max_job_bytes or self._total > self._most:
            self.refuse(JOB_TOO_BIG)
        elif line.has_junk:
            self.refuse(BAD_FORMAT)

    @property
    def _most(self) -> int:
        """Bytes that all bodies may have: one alone may have as many as any job."""
        return MAX_BATCH_BYTES if self.is_batch else self._max_job_bytes

    def _take_body(self, data: bytes, at: int) -> int:
        """:return: where the next line begins, or `MORE`."""
        size = min(len(data) - at, self._missing)
        if self.refusal is None and not self._keeps(data, at, size):
            self.refuse(OUT_OF_MEMORY)
        self._missing -= size
        if self._missing:
            return MORE
        self._left -= 1
        return at + size

    def _keeps(self, data: bytes, at: int, size: int) -> bool:
        """:return: whether there was memory for it."""
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
        """Nothing is put.  The first thing that is wrong is what is answered."""
        if self.refusal is None:
            self.refusal = reply
        self.jobs.clear()
        self._pieces.clear()
        self.let_go()

    def _lose(self) -> None:
        """Where the jobs end cannot be known, or is too far to be waited for."""
        self.refuse(BAD_FORMAT)
        self.is_lost = True
        self._left = 0
