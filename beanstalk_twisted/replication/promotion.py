"""How a server becomes the active one, and fills an empty stream from its own log."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.compaction import part_of
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.segment import is_trailer
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Damage
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.local_log import NullReport, remove_loss_note
from beanstalk_twisted.replication.membership import Identity, note_text
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.states import IDLE, PROMOTION
from beanstalk_twisted.replication.stream.interface import HeldLease, WrongPosition
from beanstalk_twisted.replication.stream.messages import (
    NO_TERM,
    PART_BYTES,
    Kind,
    Write,
    encode_note,
    encode_write,
    term_of,
    write_of,
)
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.replication.waits import Node, Waits
from beanstalk_twisted.storage.io_thread import Io
from beanstalk_twisted.storage.opening import (
    Beginning,
    OpenLog,
    Predecessor,
    load,
    prepare,
    tidied,
    write_beginning,
)

MAX_AHEAD_BYTES: Final = 8 << 20
"""Bytes read and not yet in the stream: twice what a `Publisher` has under way, and little beside
the jobs that are loaded.
"""


MOST_BYTES: Final = PART_BYTES - SEGMENT_HEADER_BYTES - TRAILER_BYTES
"""Of frames in one message: the ends of the segment may be in it too."""


async def fill(
    publisher: Publisher, directory: Directory, io: Io, ends: Mapping[int, int], log_lsn: int,
    who: Identity, log_ns: Callable[[], int],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:  # fmt: skip
    """Append all segments of a log.

    :param ends: where the frames of each segment end, by its number, ascending: `Position.ends`.
    :param log_lsn: LSN of the last record that is here, at the ends or behind them.
    :param progress: told how many bytes are in the stream, of how many.
    :raise Damaged: a segment cannot be read.
    :raise StreamError: as `Publisher.append`.
    """
    done, total = 0, sum(ends.values())
    under_way: deque[Deferred[int]] = deque()

    def append(payload: bytes, begins: int = 0) -> "Deferred[int]":
        under_way.append(publisher.append(payload, begins=begins))
        return under_way[-1]

    def note_done(position: int, size: int) -> int:
        nonlocal done
        done = min(done + size, total)
        progress(done, total)
        return position

    async def rest(most_bytes: int = -1) -> None:
        while under_way and publisher.waiting_bytes > most_bytes:
            await under_way.popleft()

    try:
        text = note_text(who)
        append(encode_note(Kind.FILL_BEGINS, log_lsn, log_ns(), text, min(ends, default=0)))
        # Of two that fill at once one ends here, and nothing of it comes in behind the other's.
        await rest()
        last_lsn = 0
        for seq, end in ends.items():
            writes = pieces(directory, seq, end)
            while (write := await io.run(partial(next, writes, None))) is not None:
                await rest(MAX_AHEAD_BYTES)
                first, *others = encode_write(write)
                newest = append(first, write.segment if write.begins else 0)
                for part in others:
                    newest = append(part)
                newest.addCallback(note_done, len(write.content))
                last_lsn = write.last_lsn
        append(encode_note(Kind.FILL_ENDS, last_lsn, log_ns(), text))
        await rest()
    finally:
        for appended in under_way:
            appended.addErrback(_ignore)


def pieces(directory: Directory, seq: int, end: int) -> Iterator[Write]:
    """A segment as writes, each of whole frames, and of one message unless a frame is larger.

    :param end: where its frames end.
    :raise Damaged: they do not go so far.
    """
    name = segment_name(seq)
    read = partial(directory.read, name)
    head = bytes(read(0, SEGMENT_HEADER_BYTES))
    header = decode_segment_header(head)
    if not isinstance(header, SegmentHeader):
        raise _damaged(directory, name, 0, header.why)
    rest = bytes(read(end, end + TRAILER_BYTES + 1))
    # Of a sealed segment.
    trailer = rest if is_trailer(rest, 0, len(rest)) else b""
    named = _named_end(directory, name, end, header)
    start, at, lsn, time_ns = 0, SEGMENT_HEADER_BYTES, header.first_lsn, header.created_ns
    while start < end:
        part = part_of(read, at, max(MOST_BYTES, named - at), end, header.salt)
        size = 0
        for frame in frames.in_order(part, 0, len(part), header.salt, lsn):
            size, lsn, time_ns = frame.end, frame.next_lsn, frame.time_ns
        if not size and at < end:
            found = frames.decode(part, 0, len(part), header.salt)
            why = found.why if isinstance(found, Damage) else f"no whole frame with LSN {lsn}"
            raise _damaged(directory, name, at, why)
        at += size
        seals = bool(trailer) and at >= end
        content = (b"" if start else head) + bytes(part[:size]) + (trailer if seals else b"")
        yield Write(seq, start, content, lsn - 1, time_ns, not start, seals)
        start = at


def _named_end(directory: Directory, name: str, end: int, header: SegmentHeader) -> int:
    """Where the names of tubes end on which the first records of a segment may rest; 0 if they rest
    on none behind them.  Who follows reads names ahead within one write only.
    """
    named = 0
    if header.flags & REHOMED:
        content = directory.read(name, SEGMENT_HEADER_BYTES, end)
        size, lsn = len(content), header.first_lsn
        for frame in frames.in_order(content, 0, size, header.salt, lsn):
            if any(kind == TubeDef.kind for kind, _ in frames.kinds_and_ids(content, frame)):
                named = SEGMENT_HEADER_BYTES + frame.end
    return named


def _damaged(directory: Directory, name: str, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{name}: offset {offset}: {why}. The stream was not filled; nothing was "
        f"changed here. Run 'binlog-inspect check {directory.path}'."
    )


def _ignore(failure: Failure) -> None:
    """Somebody else was told."""


class Promoted(NamedTuple):
    """What a new lease holder starts with.

    :ivar opened: its log, whose first batch is in the stream and on the local disk.
    :ivar publisher: of its messages, which renew its lease.
    :ivar why: why this server is active, in words.
    :ivar purge_below: messages below this position mean nothing: the stream was filled behind them.
    """

    opened: OpenLog
    publisher: Publisher
    why: str = ""
    purge_below: int = 0


class Begun(NamedTuple):
    """A segment whose first batch is in the stream, and not here yet."""

    beginning: Beginning
    publisher: Publisher


class Promotion:
    """Makes one server the lease holder: begins a segment, first in the stream, then on its disk.

    The first message of that segment is appended behind the newest one that this server has
    applied, so that of several that try at once one succeeds; whatever the others had under way is
    refused from then on (docs/replication-log.md, "Who is active").

    :ivar state: one of `states.PROMOTION`.
    """

    def __init__(self, node: Node, waits: Waits, made: type[Publisher]) -> None:
        """:param made: what appends this server's messages, from its first one on."""
        self._node = node
        self._waits = waits
        self._made = made
        self._publisher: Publisher | None = None
        self.state = IDLE

    def _on(self, trigger: str) -> None:
        self.state = PROMOTION[self.state][trigger]

    @property
    def trouble(self) -> str:
        return "" if self._publisher is None else self._publisher.trouble

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()

    async def fill(self, position: int, progress: Callable[[int, int], None]) -> Begun:
        """Load the log that is here, append all of it, and begin a segment.

        :param position: of the newest message of the stream; all up to there is purged.
        :raise Behind: another server was first.
        """
        self._on("fill")
        node = self._node
        loading = partial(load, node.directory, node.queue, node.clock, NullReport())
        found: Replay = await self._waits.wait(node.io.run(loading))
        beginning = await self._waits.wait(node.io.run(partial(self._prepare, found)))
        self._on("upload")
        publisher = self._new_publisher(position)
        is_purged: list[Future[None]] = []

        def purge_and_tell(done: int, total: int) -> None:
            if not is_purged:
                # What was filled before is fenced off now.
                is_purged.append(node.stream.purge(position + 1))
            progress(done, total)

        before = found.position(bytes(16))
        try:
            await fill(
                publisher, node.directory, node.io, before.ends, before.next_lsn - 1, node.who,
                node.clock.now_ns, purge_and_tell,
            )  # fmt: skip
            return await self._append(beginning, publisher)
        except WrongPosition as problem:
            raise Behind(f"another server has appended to it: {problem}") from problem

    def _prepare(self, found: Predecessor) -> Beginning:
        return prepare(self._node.queue, self._node.clock, self._node.segment_bytes, found)

    async def begin_segment(self, log: FollowedLog, position: int) -> Begun:
        """Begin a segment behind the log that was followed.

        :param position: of the newest message, which was applied.
        :raise WrongPosition: another server was first; this one may go on following.
        """
        self._node.clock.not_before(log.time_ns)
        beginning = self._prepare(log)
        try:
            return await self._append(beginning, self._new_publisher(position))
        except WrongPosition:
            self._on("refused")
            self._publisher = None
            self._node.queue.stop_keeping()
            raise

    def _new_publisher(self, position: int) -> Publisher:
        node, lease = self._node, HeldLease(self._node.lease_s)
        self._publisher = publisher = self._made(
            node.stream, node.reactor, node.now_ns, lease, position, node.who
        )
        return publisher

    async def _append(self, beginning: Beginning, publisher: Publisher) -> Begun:
        """:raise WrongPosition: another server was first."""
        self._on("begin")
        write = write_of(beginning.batch, self._node.clock.now_ns())
        publisher.begin_term(term_of(write) or NO_TERM)
        first, *others = encode_write(write)
        # Nothing of a server that is not the first one may come in behind that one.
        await self._waits.wait(publisher.append(first, begins=write.segment))
        appended = [publisher.append(payload) for payload in others]
        try:
            for each in appended:
                await self._waits.wait(each)
        finally:
            for each in appended:
                each.addErrback(_ignore)
        # Nothing is said to anybody before the lease is in the stream, which does not expire.
        text = note_text(self._node.who, lease_s=publisher.lease.seconds)
        note = encode_note(Kind.HEARTBEAT, write.last_lsn, self._node.clock.now_ns(), text)
        await self._waits.wait(publisher.append(note, lsn=write.last_lsn))
        self._on("accepted")
        return Begun(beginning, publisher)

    async def write(self, begun: Begun, why: str) -> Promoted:
        """This server is active: bring its own disk to where the stream is."""
        writing = partial(self._write_all, begun.beginning)
        opened = await self._waits.wait(self._node.io.run(writing))
        self._node.queue.finish_following(self._node.clock.now_ns())
        self._on("written")
        return Promoted(opened, begun.publisher, why)

    def _write_all(self, beginning: Beginning) -> OpenLog:
        remove_loss_note(self._node.directory)
        notes = tidied(self._node.directory, beginning.found)
        return write_beginning(self._node.directory, beginning, notes, is_witnessed=True)
