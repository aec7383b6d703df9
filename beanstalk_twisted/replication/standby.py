"""
A standby: it joins its log to the stream, follows it, and when the active server is silent for the
time of a lease it begins the next segment, first in the stream, then here.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.format import segment_name
from beanstalk_twisted.replication.appender import Appender
from beanstalk_twisted.replication.applying import Applying
from beanstalk_twisted.replication.followed_log import FollowedLog, Stray
from beanstalk_twisted.replication.joining import Joined, Joining, newer_message
from beanstalk_twisted.replication.lineage import not_whole
from beanstalk_twisted.replication.log_copy import LogCopy, SegmentFiles
from beanstalk_twisted.replication.reading import Behind
from beanstalk_twisted.replication.roster import Identity, note_text, read_note
from beanstalk_twisted.replication.stream.door import (
    Ends,
    Following,
    Message,
    Stream,
    StreamError,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.lease import Silence
from beanstalk_twisted.replication.stream.messages import (
    Assembler,
    FillMark,
    Gaps,
    Kind,
    Malformed,
    Note,
    Part,
    decode,
    encode_note,
)
from beanstalk_twisted.replication.succeeding import Begun, Succeeding, Succession
from beanstalk_twisted.replication.waits import Receiver, Waits, in_reactor
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import Io, Reactor

T = TypeVar("T")

MAX_AHEAD_BYTES: Final = 32 << 20
"""
Bytes that were received and are not applied, or not on the disk, above which nothing more is asked
for: a tenth of a second of what can be applied.
"""

SLICE_BYTES: Final = 1 << 20
"""Bytes of messages that one turn looks at, at most: 1 ms for their checksums."""

RETRY_S: Final = 0.2
"""Seconds until a stream that did not answer is asked again."""

FOLLOWS: Final = "follows the active server"
HEARS_NOTHING: Final = "hears nothing: the stream does not answer"
"""What a standby does that has caught up, in words; the second one until the next message comes."""

MAX_STRAYS: Final = 100
"""
Writes in a row that do not go on, after which this log is taken for the wrong one and joined anew:
a server that was fenced leaves one.
"""


class StandbyFigures(NamedTuple):
    """
    How a standby does, as of now.

    :ivar doing: what, in words; ``trouble`` why it takes long, as the stream says, if it does.
    :ivar active: the name of the active server; empty if none has said its name.
    :ivar position: of the newest message that was applied; ``lsn`` of the newest record.
    :ivar lag_records: records that are received and not applied; ``lag_bytes`` bytes of messages
        that are not, or are not on the disk; ``lag_s`` since when there are any, seconds.
    :ivar is_in_sync: whether it has all that was in the stream when it began, and so may become
        active.
    """

    doing: str
    active: str
    position: int
    lsn: int
    lag_records: int
    lag_bytes: int
    lag_s: float
    is_in_sync: bool
    trouble: str = ""

    @property
    def in_words(self) -> str:
        """
        What it does, and why that takes long, if it is known.
        """
        return f"{self.doing} ({self.trouble})" if self.trouble else self.doing


class Standby:
    """
    Follows one stream with one queue, once.

    :ivar notes: what joining has done, a sentence each, for the server's log; whoever has told them
        may empty it.
    :ivar heard_lease_s: the lease of the active server, as it says; 0 before it has.
    :cvar appender: what appends this server's messages, from its first one on.
    """

    appender: type[Appender] = Appender

    def __init__(
        self, stream: Stream, directory: Directory, queue: WorkQueue, clock: LogClock,
        reactor: Reactor, io: Io, lease_s: float, segment_bytes: int, now_ns: Callable[[], int],
        who: Identity,
    ) -> None:  # fmt: skip
        """
        :param stream: open.
        :param directory: locked.
        :param queue: without jobs.
        :param lease_s: after so many seconds of silence it may become active.
        :param segment_bytes: the usual size of a segment.
        :param now_ns: the monotonic clock of the lease.
        """
        self._stream = stream
        self._directory = directory
        self._queue = queue
        self._clock = clock
        self._reactor = reactor
        self._io = io
        self._now_ns = now_ns
        self._who = who
        self.notes: list[str] = []
        self.heard_lease_s = 0.0
        self._doing = "joins its log to the stream"
        self._trouble = ""
        self._active = ""
        self._log = FollowedLog()
        self._applying = Applying(queue, self._log)
        self._copy = LogCopy(
            SegmentFiles(directory, segment_bytes), io, reactor, self._fail
        )  # fmt: skip
        self._assembler = Assembler()
        self._silence = Silence(lease_s, now_ns())
        self._first_positions: dict[int, int] = {}
        self._begins_at = 0
        self._mark = FillMark()
        self._received: deque[Message] = deque()
        self._received_bytes = 0
        self._received_lsn = 0
        self._behind_since_ns: int | None = None
        self._position = 0
        self._newest = 0
        self._read_to = 0
        self._handed_over_by = ""
        self._strays = 0
        self._gaps = Gaps()
        self._slices: Iterator[None] | None = None
        self._following: Following | None = None
        self._turn: IDelayedCall | None = None
        self._waking: IDelayedCall | None = None
        self._is_trying = self._is_over = self._is_looking = False
        self._waits = Waits(reactor)
        self._succeeding = Succeeding(
            stream, directory, queue, clock, reactor, io, self._waits, lease_s, segment_bytes,
            now_ns, who, self.appender,
        )  # fmt: skip
        self._done: Deferred[Succession] = Deferred(lambda _: self.stop())

    def run(self) -> "Deferred[Succession]":
        """
        Join, follow, and become active when it is time.

        :return: fires when this server's first batch is in the stream and on the local disk.
        :raise Behind: the stream does not go on where the log here ends: begin anew, with another
            queue.
        :raise BinlogError: the log here or that of the stream cannot be used.
        :raise StreamError: the stream cannot be.
        :raise CancelledError: it was stopped.
        """
        self._spawn(self._join())
        return self._done

    def stop(self) -> None:
        """
        Do nothing more.
        """
        self._end(Failure(CancelledError()))

    def figures(self) -> StandbyFigures:
        """
        As of now.
        """
        since_ns = self._behind_since_ns
        lag_s = 0.0 if since_ns is None else (self._now_ns() - since_ns) / 1e9
        return StandbyFigures(
            self._in_words, self._active, self._position, self._log.last_lsn,
            max(0, self._received_lsn - self._log.last_lsn),
            self._received_bytes + self._copy.waiting_bytes, lag_s,
            self._doing == FOLLOWS and not self._why_not_in_sync,
            "" if self._doing == FOLLOWS else self._trouble or self._succeeding.trouble,
        )  # fmt: skip

    @property
    def _in_words(self) -> str:
        return (self._doing == FOLLOWS and self._why_not_in_sync) or self._doing

    @property
    def _why_not_in_sync(self) -> str:
        """
        What a follower does beside following; empty for nothing.
        """
        if self._mark.is_filling:
            filler = read_note(self._mark.text).name or "another server"
            if self._now_ns() < self._silence.over_ns():
                return f"waits until {filler} has filled the stream"
            return (
                f"waits for {filler}, which has begun to fill the stream and is silent: start "
                "it again, nobody else has all of its log"
            )
        if self._position < self._read_to:
            return f"reads the stream: message {self._position} of {self._read_to}"
        if not self._log.segment:
            return "waits at an empty stream: a server that has a log goes first"
        if self._gaps.is_torn:
            return f"misses what was behind message {self._gaps.since}"
        if not self._log.is_whole:
            oldest = segment_name(min(self._log.segments))
            return f"lacks what is in use before {oldest}: somebody has purged the stream"
        return ""

    # The end.

    def _spawn(self, work: Awaitable[None]) -> None:
        Deferred.fromCoroutine(_of(work)).addErrback(self._fail)

    def _fail(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None or not self._is_over:
            self._end(failure)

    def _end(self, outcome: "Succession | Failure") -> None:
        if self._is_over:
            return
        self._is_over = True
        self._leave()
        for call in (self._turn, self._waking):
            if call is not None and call.active():
                call.cancel()
        self._waits.leave()
        if isinstance(outcome, Failure):
            self._succeeding.stop()
            self._waits.end()
            self._copy.stop()
        if not self._done.called:
            self._done.callback(outcome)

    async def _ask(self, ask: "Callable[[], Future[T]]") -> T:
        """
        Ask the stream until it answers, and note if it did not at once.
        """
        while True:
            try:
                found = await self._waits.wait(in_reactor(ask(), self._reactor))
                self._trouble = ""
                return found
            except Unreachable as error:
                self._trouble = str(error).removeprefix(f"{self._stream.url}: ")
                if self._doing == FOLLOWS:
                    self._doing = HEARS_NOTHING
                await self._waits.sleep(RETRY_S)
                # Nobody can be heard meanwhile.
                self._silence.heard(self._now_ns())

    # Joining.

    async def _join(self) -> None:
        joining = Joining(self._directory, self._io, self._ask, self._stream)
        try:
            joined = await joining.join(self._queue, self._clock, self._log)
        finally:
            self.notes += joining.notes
        if joined.fills:
            await self._fill(joined.position)
        else:
            self._go_on_from(joined)

    async def _fill(self, position: int) -> None:
        """
        The stream has no log, or part of the one that is here: fill it, and begin a segment.

        :raise Behind: another server was first.
        """
        self._doing = "fills the stream"
        size = 0

        def progress(done: int, total: int) -> None:
            nonlocal size
            size = total >> 20
            self._doing = f"fills the stream: {done >> 20} of {size} MB"

        begun, first_positions = await self._succeeding.fill(position, progress)
        why = f"the stream was empty, and is filled with the log that was here, {size} MB"
        # That was tried at once; whoever begins with an empty log would read it all.
        await self._write(begun, first_positions, why, purge_below=position + 1)

    def _go_on_from(self, joined: Joined) -> None:
        self._position = self._newest = joined.position
        self._read_to = joined.last
        self._first_positions = joined.first_positions
        self._mark = joined.mark
        self._silence.heard(self._now_ns())
        self._assembler = Assembler(self._log.term)
        self._copy.begin(self._log.open_segment)
        self._doing = FOLLOWS
        self._follow()
        self._wake()

    # Receiving.

    def _follow(self) -> None:
        """
        Ask for what is behind the newest message that was received.
        """
        following = Receiver(self._reactor, self._receive, self._ended, self._fail)
        following.following = self._stream.follow(
            self._newest + 1, following.receive, following.ended
        )
        self._following = following

    def _leave(self) -> None:
        if self._following is not None:
            self._following.stop()
            self._following = None

    def _receive(self, messages: Sequence[Message]) -> None:
        self._silence.heard(self._now_ns())
        if self._doing == HEARS_NOTHING:
            self._doing = FOLLOWS
        for message in messages:
            if message.position <= self._newest:
                continue
            self._newest = message.position
            self._received.append(message)
            self._received_bytes += len(message.payload)
        if self._received and self._behind_since_ns is None:
            self._behind_since_ns = self._now_ns()
        if self._ahead_bytes > MAX_AHEAD_BYTES:
            self._leave()
        self._go_on()

    def _ended(self, error: StreamError) -> None:
        self._following = None
        if not isinstance(error, Unreachable):
            self._fail(Failure(error))
            return
        self._spawn(self._follow_again())

    async def _follow_again(self) -> None:
        await self._waits.sleep(RETRY_S)
        self._silence.heard(self._now_ns())
        if self._following is None:
            self._follow()

    @property
    def _ahead_bytes(self) -> int:
        return self._received_bytes + self._copy.waiting_bytes

    # Applying, a slice a turn.

    def _go_on(self) -> None:
        if self._turn is None and not (self._is_over or self._is_trying):
            self._turn = self._reactor.callLater(0, self._do_turn)

    def _do_turn(self) -> None:
        self._turn = None
        try:
            has_more = self._do_slice()
        except BaseException:
            self._fail(Failure())
            return
        if self._following is None and self._ahead_bytes < MAX_AHEAD_BYTES // 4:
            self._follow()
        if has_more:
            self._go_on()

    def _do_slice(self) -> bool:
        """
        :return: whether there is more to do.
        """
        if self._slices is not None:
            if next(self._slices, self) is None:
                return True
            self._slices = None
            self._copy.trim(self._log.trim_seq)
        budget = SLICE_BYTES
        while self._received and self._slices is None and budget > 0:
            message = self._received.popleft()
            self._received_bytes -= len(message.payload)
            budget -= len(message.payload)
            self._take(message)
        is_idle = self._slices is None and not self._received
        if is_idle:
            self._behind_since_ns = None
            # Records of what did not go on will not be applied.
            self._received_lsn = self._log.last_lsn
        return not is_idle

    def _take(self, message: Message) -> None:
        """
        :raise Behind: it does not go on where the log here ends.
        """
        if self._gaps.step(self._position, message.position):
            self._look_for_purge()
        self._position = message.position
        found = decode(message.payload)
        if self._assembler.passes_over(found):
            self._gaps.passed_over()
            return
        match found:
            case Part():
                self._received_lsn = max(self._received_lsn, found.write.last_lsn)
                self._take_part(found)
            case Note():
                self._note(found)
            case Malformed():
                if found.is_newer:
                    raise newer_message(self._stream.url, message.position, found.why)
                self._stray(Stray(found.why), self._log.last_lsn + 1)

    def _look_for_purge(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._spawn(self._refuse_if_purged())

    async def _refuse_if_purged(self) -> None:
        """
        :raise Behind: what is missing was purged.
        """
        ends = await self._ask(self._stream.ends)
        self._is_looking = False
        if self._gaps.since is not None:
            self._refuse_purged(self._gaps.since, ends)

    def _refuse_purged(self, since: int, ends: Ends) -> None:
        if ends.first > since + 1:
            raise Behind(f"messages from {since + 1} on were purged")

    def _take_part(self, part: Part) -> None:
        if not (part.continues or self._assembler.is_midway):
            self._begins_at = self._position
        write = self._assembler.add(part)
        if write is None:
            return
        piece = self._log.take(write)
        if isinstance(piece, Stray):
            self._stray(piece, write.last_lsn)
            return
        self._strays = 0
        self._gaps.went_on()
        if write.begins:
            self._first_positions[write.segment] = self._begins_at
            self._mark.began()
            self._handed_over_by = ""
        self._copy.add(piece)
        self._slices = self._applying.apply(piece)

    def _stray(self, stray: Stray, last_lsn: int) -> None:
        self._strays += 1
        self._gaps.told_of(last_lsn, self._log.last_lsn)
        if self._strays > MAX_STRAYS:
            raise Behind(stray.why)

    def _note(self, note: Note) -> None:
        said = read_note(note.text)
        if said.lease_s or note.kind is not Kind.HEARTBEAT:
            # The others are of standbys that look for the end of the stream.
            self._active = said.name or self._active
        if note.kind is Kind.FILL_BEGINS and self._log.segment:
            raise Behind("it is filled anew")
        if note.kind is Kind.FILL_BEGINS:
            self._assembler.fill_begins()
        else:
            self._gaps.acknowledged(note.last_lsn, self._log.last_lsn)
        if self._gaps.is_torn:
            # More may be missing by now than when the gap was seen first.
            self._look_for_purge()
        self._mark.note(note)
        if said.lease_s:
            self.heard_lease_s = said.lease_s
            self._silence.lasts(said.lease_s)
        # What was received behind it says that another server has begun.
        is_newest = self._position == self._newest
        self._handed_over_by = said.name if note.kind is Kind.HANDED_OVER else ""
        if note.kind is Kind.HANDED_OVER and is_newest and said.is_for(self._who):
            self._silence.handed_over()
            self._look_at(self._now_ns())

    # Taking over.

    def _wake(self) -> None:
        """
        Come back when the silence is long enough.
        """
        self._look_at(self._silence.over_ns())

    def _look_at(self, at_ns: int) -> None:
        if self._waking is not None and self._waking.active():
            self._waking.cancel()
        if not self._is_over:
            wait_s = max(0.0, (at_ns - self._now_ns()) / 1e9)
            self._waking = self._reactor.callLater(wait_s, self._look)

    def _look(self) -> None:
        if self._now_ns() < self._silence.over_ns() or self._is_trying:
            self._wake()
        elif not self._is_caught_up or self._mark.is_filling:
            self._look_at(self._now_ns() + int(RETRY_S * 1e9))
        else:
            self._spawn(self._try())

    @property
    def _is_caught_up(self) -> bool:
        return not (self._received or self._slices is not None)

    async def _try(self) -> None:
        """
        The active server is silent: begin a segment, if nothing else is in the stream.
        """
        self._is_trying = True
        is_active = False
        try:
            ends = await self._ask(self._stream.ends)
            if self._is_silent:
                self._refuse_lost(ends)
            if ends.last > self._position and self._is_silent:
                await self._go_to_end(ends)
            elif ends.last == self._position and self._is_silent:
                if not self._log.is_whole:
                    oldest = min(self._log.segments)
                    raise not_whole(self._stream.url, oldest, self._log.trim_seq)
                is_active = await self._begin_segment()
        finally:
            self._is_trying = False
        if not is_active:
            self._go_on()
            self._look_at(max(self._silence.over_ns(), self._now_ns() + int(RETRY_S * 1e9)))

    def _refuse_lost(self, ends: Ends) -> None:
        """
        :raise Behind: more than heartbeats may be missing behind some message.
        """
        since = self._gaps.since
        if since is None:
            since = self._position
        self._refuse_purged(since, ends)
        if self._gaps.is_torn:
            raise Behind(f"messages behind {since} are missing")

    async def _go_to_end(self, ends: Ends) -> None:
        """
        Something was appended behind the last message that was received.  It is on its way, unless
        it was heartbeats, and they have expired.  Then append a message that does not: when that is
        received nothing before it can be on its way, whoever of NATS has answered here.
        """
        found = await self._ask(partial(self._stream.read, self._position + 1))
        if not self._is_silent:
            return
        if found is not None:
            self._follow_what_was_not_heard()
            return
        self._doing = "looks for the end of the stream"
        note = encode_note(
            Kind.HEARTBEAT, self._log.last_lsn, self._clock.now_ns(), note_text(self._who)
        )  # fmt: skip
        appended = in_reactor(self._stream.append(note, ends.last), self._reactor)
        try:
            await self._waits.wait(appended)
        except (Unreachable, WrongPosition):
            # If it was appended it is received; else another one was first.
            return
        finally:
            self._doing = FOLLOWS

    def _follow_what_was_not_heard(self) -> None:
        """
        There are messages, and for the time of a lease none has come: ask for them anew.
        """
        self._leave()
        self._follow()
        self._silence.heard(self._now_ns())

    @property
    def _is_silent(self) -> bool:
        return self._is_caught_up and self._now_ns() >= self._silence.over_ns()

    async def _begin_segment(self) -> bool:
        """
        :return: whether this server is active now; else another message was there first.
        """
        why = self._why_active
        self._doing = "begins a term: waits until the stream has accepted that"
        for _ in self._queue.following.begin_segment(self._log.time_ns):
            await self._waits.sleep(0)
        if not self._is_caught_up:
            self._doing = FOLLOWS
            return False
        try:
            begun = await self._succeeding.begin_segment(self._log, self._position)
        except WrongPosition:
            self._silence.heard(self._now_ns())
            self._doing = FOLLOWS
            return False
        oldest = min(self._log.segments, default=0)
        alive = {seq: at for seq, at in self._first_positions.items() if seq >= oldest}
        await self._write(begun, alive, why)
        return True

    @property
    def _why_active(self) -> str:
        """
        Why this server's turn has come, in words.
        """
        if self._handed_over_by:
            return f"{self._handed_over_by} has handed over"
        lease = f"for {self._silence.seconds:g} s"
        if not self._log.segment:
            return f"the stream is empty, and {lease} no server that has a log came"
        if not self._active:
            return f"no server was heard {lease}"
        return f"{self._active} was silent {lease}"

    async def _write(
        self, begun: Begun, first_positions: dict[int, int], why: str, purge_below: int = 0
    ) -> None:
        """
        This server is active: go on here as in the stream.
        """
        self._leave()
        await self._copy.close()
        succession = await self._succeeding.write(begun, first_positions, why)
        self._end(succession._replace(purge_below=purge_below))


async def _of(work: "Awaitable[None]") -> None:
    await work
