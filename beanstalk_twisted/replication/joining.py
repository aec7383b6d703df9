"""
Joining the log of a server that starts to the stream (docs/replication.md, "A start").

Of the local log what the stream has too, byte for byte, is kept, from the newest segment that both
have on.  What the stream lacks, and what it has otherwise, is copied to ``quarantine/`` before it
is cut off or written anew.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged, Incompatible
from beanstalk_twisted.binlog.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.segment import content_end, file_content_end, has_content
from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from beanstalk_twisted.replication.followed_log import FollowedLog, is_unfinished, other_store
from beanstalk_twisted.replication.lineage import Told, began_alone, not_whole, written_alone
from beanstalk_twisted.replication.stream.door import Ends, Message, Stream
from beanstalk_twisted.replication.stream.messages import (
    Assembler,
    FillMark,
    Kind,
    Malformed,
    Note,
    Part,
    Write,
    decode,
)
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import Io
from beanstalk_twisted.storage.opening import load

T = TypeVar("T")

READ_AHEAD: Final = 64
"""Messages that are asked for at once: a round of 1 ms allows 64,000 a second."""

MAX_LOOKED_THROUGH: Final = 10_000
"""Messages among which the beginning of a segment is looked for; its LSN leads there."""


NOT_IN_STREAM: Final = "are not in the stream: no reply was given for them. They were cut off"
NOTHING_COMMON: Final = (
    "were removed: no whole segment here is as the stream has it, which is read from its first one"
)
"""Of bytes that were here, what a note says."""


class Behind(Exception):
    """
    The stream does not go on where the log here ends; the text is the rest of a sentence.
    """


class Ask(Protocol):
    """
    Asks the stream until it answers.
    """

    def __call__(self, ask: "Callable[[], Future[T]]", /) -> Awaitable[T]: ...


class Joined(NamedTuple):
    """
    Where to follow.

    :ivar position: of the last message that the local log has.
    :ivar first_positions: of the first message of each segment.
    :ivar mark: whether another server fills the stream.
    :ivar fills: whether this server has to, behind this position.
    :ivar last: position of the newest message when joining began.
    """

    position: int
    first_positions: dict[int, int]
    mark: FillMark
    fills: bool
    last: int


def newer_message(url: str, position: int, why: str) -> Incompatible:
    """
    A later version has written to the stream.
    """
    return Incompatible(
        f"{url}: message {position}: {why}; nothing was lost. Install the version of the active "
        f"server here, then start again."
    )


class _Beginning(NamedTuple):
    """
    The message with which a segment begins.
    """

    position: int
    header: SegmentHeader
    raw: bytes


class Joining:
    """
    Joins one directory to one stream.

    :ivar notes: what it has done, a sentence each, for the server's log.
    """

    def __init__(self, directory: Directory, io: Io, ask: Ask, stream: Stream) -> None:
        """
        :param io: reads and writes the directory.
        """
        self._directory = directory
        self._io = io
        self._ask = ask
        self._stream = stream
        self.notes: list[str] = []
        self._mark = FillMark()
        self._ends = Ends(1, 0)

    async def join(self, queue: WorkQueue, clock: LogClock, log: FollowedLog) -> Joined:
        """
        Join, and load what is here then.

        :param queue: without jobs; ``log`` follows with it.
        :raise BinlogError: the log here or that of the stream cannot be used.
        """
        survey = await self._io.run(self._look)
        ends = self._ends = await self._ask(self._stream.ends)
        if ends.is_empty:
            return self._joined(ends.last, fills=bool(survey.names_of_segments))
        first = await self._beginning_behind(ends.first, None)
        if first is None:
            return self._without_segments(survey)
        local = survey.survey.segments
        if local and local[0].header.store_uuid != first.header.store_uuid:
            raise other_store(local[0].header.store_uuid, first.header.store_uuid)
        if not survey.names_of_segments:
            return self._joined(ends.first - 1)
        return await self._join_both(survey, first, queue, clock, log)

    def _without_segments(self, found: "_Local") -> Joined:
        """
        The stream has messages, and no segment: its filling has begun, and nothing more.
        """
        if not self._mark.is_filling:
            raise Incompatible(
                f"{self._stream.url}: no segment begins among its first messages: it is no log of "
                f"a queue, or of a later version. Name another stream with --replicate."
            )
        return self._joined(self._ends.last, fills=self._may_fill(found))

    def _may_fill(self, found: "_Local") -> bool:
        """
        Whether what is here is the log that the stream is filled with, and not a copy of a part.
        """
        segments = found.survey.segments
        return bool(segments) and segments[-1].ending.next_lsn > self._mark.last_lsn

    def _joined(
        self, position: int, first_positions: dict[int, int] | None = None, fills: bool = False
    ) -> Joined:  # fmt: skip
        return Joined(position, first_positions or {}, self._mark, fills, self._ends.last)

    def _look(self) -> "_Local":
        """
        In the I/O thread: remove what was being made, and read all that is here.

        :raise Incompatible: it is of another version or kind.
        """
        directory = self._directory
        for name in directory.names():
            if is_unfinished(name):
                directory.remove(name)
        return look(directory, lambda done, total: None)

    async def _join_both(
        self, found: "_Local", first: _Beginning, queue: WorkQueue, clock: LogClock,
        log: FollowedLog,
    ) -> Joined:  # fmt: skip
        if self._mark.is_filling and self._may_fill(found) and await self._is_part_of_ours(first):
            return self._joined(self._ends.last, fills=True)
        common, positions = await self._newest_common(found, first)
        await self._refuse_loss(found, first, common, positions, queue)
        comparison = Comparison(
            self._directory, common, self.notes, first_alive=first.header.seq
        )  # fmt: skip
        if common is None:
            await self._io.run(comparison.remove_all)
            return self._joined(self._ends.first - 1)
        at, seen = await self._compare(comparison, positions[common])
        await self._io.run(comparison.finish)
        is_same = not (self.notes or found.survey.problems)
        read = (lambda *_: Replay(found.survey)) if is_same else read_followed
        try:
            replay = await self._io.run(
                partial(load, self._directory, queue, clock, Unheard(), read)
            )
        except Damaged as problem:
            # It ended before it was told which segments are dead, whose jobs it has states of.
            await self._io.run(partial(remove_segments, self._directory))
            raise Behind(
                f"the log here could not be read alone and was removed: {problem}"
            ) from problem
        log.go_on_from(replay)
        return self._joined(at, {**positions, **seen})

    # Finding where both are the same.

    async def _beginning_behind(self, position: int, seq: int | None) -> _Beginning | None:
        """
        :param seq: of the segment; None for any.
        """
        for at in range(position, min(position + MAX_LOOKED_THROUGH, self._ends.last + 1)):
            message = await self._read(at)
            found = decode(message.payload)
            if isinstance(found, Malformed) and found.is_newer:
                raise newer_message(self._stream.url, at, found.why)
            if isinstance(found, Note):
                self._mark.note(found)
            elif isinstance(found, Part) and found.write.begins and not found.continues:
                raw = found.write.content[:SEGMENT_HEADER_BYTES]
                header = decode_segment_header(raw)
                if isinstance(header, SegmentHeader) and seq in (None, header.seq):
                    return _Beginning(at, header, raw)
        return None

    async def _read(self, position: int) -> Message:
        message = await self._ask(partial(self._stream.read, position))
        if message is None or message.position != position:
            raise Behind(f"message {position} is not there any more")
        return message

    async def _newest_common(
        self, found: "_Local", first: _Beginning
    ) -> tuple[int | None, dict[int, int]]:
        """
        The newest sound segment that the stream has begun likewise, and behind which nothing sound
        is; and the positions at which it and those before it begin.
        """
        positions: dict[int, int] = {}
        common: int | None = None
        for segment in reversed(found.survey.segments):
            header = segment.header
            if header.seq > found.first_bad or header.seq < first.header.seq:
                continue
            beginning = await self._find(header)
            if beginning is None or beginning.header != header:
                if common is None:
                    continue
                break
            common = header.seq if common is None else common
            positions[header.seq] = beginning.position
            if self._mark.is_filling:
                # Where the filling ends is not known: all of it is gone through.
                common = header.seq
        return common, positions

    async def _find(self, header: SegmentHeader) -> _Beginning | None:
        """
        Where the stream begins a segment, by the LSN that it begins with.
        """
        low, high = self._ends.first, self._ends.last
        while low < high:
            middle = (low + high) // 2
            message = await self._read(middle)
            if _last_lsn(message) >= header.first_lsn:
                high = middle
            else:
                low = middle + 1
        mark = copy(self._mark)
        found = await self._beginning_behind(low, header.seq)
        self._mark = mark
        return found

    async def _refuse_loss(
        self, found: "_Local", first: _Beginning, common: int | None, positions: dict[int, int],
        queue: WorkQueue,
    ) -> None:  # fmt: skip
        """
        Before anything is removed here: what was acknowledged may be here only.

        :raise Incompatible: it is; nothing was changed.
        """
        headers = [segment.header for segment in found.survey.segments]
        [base] = [each for each in headers if each.seq == common] or [first.header]
        is_older = found.oldest_alive < first.header.seq
        is_later = any(each.incarnation > base.incarnation for each in headers)
        if not (is_older or is_later):
            return
        start = first.position if common is None else positions[common]
        told = await self._told(start, queue, 1 << 64 if is_later else first.header.seq)
        began = began_alone(headers, base.incarnation, told.headers)
        path, url = self._directory.path, self._stream.url
        if began is not None:
            raise written_alone(path, url, began)
        if is_older and told.trim_seq < first.header.seq:
            raise not_whole(url, first.header.seq, told.trim_seq)

    async def _told(self, start: int, queue: WorkQueue, enough: int) -> Told:
        """
        What the stream says from a position on, at which a segment begins.

        :param enough: with this `Told.trim_seq` the rest counts for nothing.
        """
        ahead: deque[Deferred[Message]] = deque()
        told = Told(queue)
        try:
            for at in range(start, self._ends.last + 1):
                told.take(decode((await self._read_ahead(at, ahead)).payload))
                if told.trim_seq >= enough:
                    break
        finally:
            _leave(ahead)
        return told

    # Comparing.

    async def _is_part_of_ours(self, first: _Beginning) -> bool:
        """
        Whether this server has begun to fill the stream, and did not come to the end: what is in
        the stream is here too.
        """
        mark, comparison = copy(self._mark), Comparison(self._directory, None, [], heals=False)
        at, _ = await self._compare(comparison, first.position)
        is_ours = self._mark.is_filling and at == self._ends.last
        self._mark = mark
        return is_ours

    async def _compare(self, comparison: "Comparison", position: int) -> tuple[int, dict[int, int]]:
        """
        :return: the position of the last message that the local log has, and those at which
            segments begin.
        """
        ahead: deque[Deferred[Message]] = deque()
        try:
            return await self._compare_read_ahead(comparison, position, ahead)
        finally:
            _leave(ahead)

    def _read_ahead(self, at: int, ahead: "deque[Deferred[Message]]") -> "Deferred[Message]":
        """
        :param ahead: of the messages from this one on, those that were asked for.
        """
        for next_at in range(at + len(ahead), min(at + READ_AHEAD, self._ends.last + 1)):
            ahead.append(Deferred.fromCoroutine(self._read(next_at)))
        return ahead.popleft()

    async def _compare_read_ahead(
        self, comparison: "Comparison", position: int, ahead: "deque[Deferred[Message]]"
    ) -> tuple[int, dict[int, int]]:
        assembler, seen = Assembler(), dict[int, int]()
        done, begins_at = position - 1, position
        for at in range(position, self._ends.last + 1):
            found = decode((await self._read_ahead(at, ahead)).payload)
            if isinstance(found, Part):
                begins_at = begins_at if found.continues or assembler.is_midway else at
                write = assembler.add(found)
                is_here = None
                if write is not None:
                    is_here = await self._io.run(partial(comparison.compare, write))
                if is_here is False:
                    done = begins_at - 1
                    break
                if write is not None and is_here and write.begins:
                    seen[write.segment] = begins_at
                    self._mark.began()
            elif isinstance(found, Note):
                self._mark.note(found)
                if found.kind is Kind.FILL_BEGINS:
                    assembler.fill_begins()
            done = done if assembler.is_midway else at
        return done, seen


def _leave(ahead: "deque[Deferred[Message]]") -> None:
    """
    Nobody waits for these.
    """
    for each in ahead:
        each.addErrback(lambda _: None)
        each.cancel()


class _Local(NamedTuple):
    """
    What is here.

    :ivar first_bad: the first segment that is not sound; more than all if all are.
    """

    survey: Survey
    names_of_segments: list[str]
    first_bad: int

    @property
    def oldest_alive(self) -> int:
        """
        Number of the oldest segment that is not dead, as the log here says; 0 if there is none.
        """
        alive = set(self.names_of_segments) - set(self.survey.dead)
        return min((parse_segment_name(name) or 0 for name in alive), default=0)


def remove_segments(directory: Directory) -> None:
    """
    Remove all segments, the newest first.
    """
    for name in reversed(directory.names()):
        if parse_segment_name(name) is not None:
            directory.remove(name)
    directory.sync()


def look(directory: Directory, progress: Progress) -> _Local:
    """
    Read all of a log.

    :raise Incompatible: it is of another version or kind.
    """
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    refusal = survey.refusal()
    if isinstance(refusal, Incompatible):
        raise refusal
    names = [name for name in survey.names if parse_segment_name(name) is not None]
    first_bad = min((problem.seq for problem in survey.problems), default=1 << 64)
    seqs = [segment.header.seq for segment in survey.segments]
    for before, after in pairwise(seqs):
        if after > before + 1:
            # What is missing between two is read behind the first of them.
            first_bad = min(first_bad, before)
    return _Local(survey, names, first_bad)


def read_followed(directory: Directory, progress: Progress) -> Replay:
    """
    Read a log all of which is in the stream, and so durable.

    :raise Damaged: some of it cannot be read.
    """
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    survey.refuse_if_unsound()
    return Replay(survey)


class Unheard:
    """
    A report of a load that goes on in another thread.
    """

    def read(self, done: int, total: int) -> None:
        """
        Nobody is told.
        """

    def loaded(self, jobs: int) -> None:
        """
        Nobody is told.
        """


def _header_of(write: Write) -> SegmentHeader | None:
    header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
    return header if isinstance(header, SegmentHeader) else None


def _last_lsn(message: Message) -> int:
    match found := decode(message.payload):
        case Part():
            return found.write.last_lsn
        case Note() if found.kind is not Kind.FILL_BEGINS:
            return found.last_lsn
    return 0


class Comparison:
    """
    Compares the local log from a segment on with what the stream says, and makes it the same.  In
    the I/O thread.
    """

    def __init__(
        self, directory: Directory, first: int | None, notes: list[str], heals: bool = True,
        first_alive: int = 0,
    ) -> None:  # fmt: skip
        """
        :param first: the segment; None if nothing is kept.
        :param notes: gets what is done.
        :param heals: whether what is another than in the stream is mended; else that ends it.
        :param first_alive: the stream's first segment; those before it are dead.
        """
        self._first_alive = first_alive
        self._heals = heals
        self._directory = directory
        self._notes = notes
        self._first = first
        self._ends: dict[int, int] = {}
        self._open: SegmentHeader | None = None
        self._sealed: set[int] = set()
        self._sizes: dict[int, int] | None = None
        self._why = NOT_IN_STREAM

    @property
    def _local(self) -> dict[int, int]:
        """
        Where the content of each segment here ends.
        """
        if self._sizes is None:
            self._sizes = {}
            for name in self._directory.names():
                seq = parse_segment_name(name)
                if seq is not None:
                    size = len(self._directory.read(name))
                    self._sizes[seq] = file_content_end(self._directory, name, 0, size)
        return self._sizes

    def compare(self, write: Write) -> bool | None:
        """
        :return: False if this is the first write that the local log lacks altogether, or has
            another one instead of which others follow; None if it counts for nothing.
        """
        if self._is_stray(write):
            return None
        local, seq = self._local, write.segment
        if write.begins:
            header = _header_of(write)
            if header is not None:
                self._end(header.seq - 1, header.prev_end)
        newest, name = max(local, default=0), segment_name(seq)
        if seq > newest or (seq == newest and write.offset >= local[seq]):
            return False
        if seq not in local:
            if not self._heals:
                return False
            self._directory.create(name).close()
            local[seq] = 0
        here = bytes(self._directory.read_part(name, write.offset, write.end))
        head = slice(0, SEGMENT_HEADER_BYTES)
        if write.begins and here[head] != write.content[head]:
            sound = decode_segment_header(here[head])
            if isinstance(sound, SegmentHeader):
                # Another server has begun this segment: what is here was never acknowledged.
                return False
        if here != write.content:
            if not self._heals:
                return False
            self._heal(name, write, here)
        self._ends[seq] = write.end
        if write.begins:
            self._open = _header_of(write) or self._open
        if write.seals:
            self._sealed.add(seq)
        return True

    def _is_stray(self, write: Write) -> bool:
        """
        Whether it does not go on where the stream's log ends: a server that was fenced has left it.
        `FollowedLog.take` says the same of those that follow.
        """
        known = self._open
        if known is None:
            return not write.begins
        if not write.begins:
            return write.segment != known.seq or write.offset != self._ends[known.seq]
        header = _header_of(write)
        if header is None or header.incarnation < known.incarnation:
            return True
        return header.seq <= known.seq and not header.flags & REHOMED

    def _end(self, seq: int, end: int) -> None:
        """
        A segment ends there, since the next one begins; a trailer may follow.
        """
        if seq in self._ends and not (
            seq in self._sealed and self._ends[seq] == end + TRAILER_BYTES
        ):
            self._ends[seq] = end

    def _heal(self, name: str, write: Write, here: bytes) -> None:
        kept = here[: content_end(here, 0)]
        if kept and not write.content.startswith(kept):
            path = self._directory.quarantine(f"{name}-{write.offset}.damaged", kept)
            self._notes.append(
                f"{name}: {len(kept)} bytes from offset {write.offset} on are not what the stream "
                f"has; they were written anew from there. A copy is in {path}"
            )
        else:
            self._notes.append(
                f"{name}: the bytes from offset {write.offset + len(kept)} on were missing; they "
                f"were written anew from the stream"
            )
        file = self._directory.open(name)
        try:
            file.write_at(write.offset, [write.content])
            file.sync()
        finally:
            file.close()

    def finish(self) -> None:
        """
        Cut what the stream lacks.
        """
        assert self._first is not None
        for seq in sorted(self._local, reverse=True):
            if seq in self._ends:
                self._cut(seq, self._ends[seq])
            elif seq > self._first:
                self._remove(seq)
        self._directory.sync()

    def remove_all(self) -> None:
        """
        Nothing here can be gone on with: keep copies of what nobody else may have, and begin anew.
        """
        self._why = NOTHING_COMMON
        dead = [segment_name(seq) for seq in sorted(self._local) if seq < self._first_alive]
        for seq in sorted(self._local, reverse=True):
            self._remove(seq)
        self._directory.sync()
        if dead:
            self._notes.append(
                f"{dead[0]} to {dead[-1]} were removed: they are older than the stream's first "
                f"segment, which says that all in them is dead"
            )

    def _cut(self, seq: int, end: int) -> None:
        name = segment_name(seq)
        size = len(self._directory.read(name))
        if size <= end:
            return
        rest = self._directory.read_part(name, end, size)
        if has_content(rest, 0, len(rest)):
            kept = bytes(rest[: content_end(rest, 0)])
            self._tell(name, end, kept)
        self._directory.cut(name, end)

    def _remove(self, seq: int) -> None:
        name = segment_name(seq)
        if seq >= self._first_alive:
            content = self._directory.read(name)
            self._tell(name, 0, bytes(content[: self._local[seq]]))
            del content
        self._directory.remove(name)

    def _tell(self, name: str, offset: int, kept: bytes) -> None:
        path = self._directory.quarantine(f"{name}-{offset}.unacknowledged", kept)
        self._notes.append(
            f"{name}: {len(kept)} bytes from offset {offset} on {self._why}. A copy is in {path}"
        )
