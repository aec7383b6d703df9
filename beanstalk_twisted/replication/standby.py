"""A standby of a replicated queue."""

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.replication import states
from beanstalk_twisted.replication.catch_up import CatchUp
from beanstalk_twisted.replication.followed_log import FollowedLog, Rejected
from beanstalk_twisted.replication.local_log import newer_message, not_whole
from beanstalk_twisted.replication.log_copy import Applying, LogCopy, SegmentFiles
from beanstalk_twisted.replication.membership import note_text, read_note
from beanstalk_twisted.replication.promotion import Begun, Promoted, Promotion
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.receiving import (
    CATCHES_UP,
    FOLLOWS,
    HEARS_NOTHING,
    RETRY_S,
    SAID_OF,
    Poller,
    ReceiveBuffer,
    StandbyFigures,
    refuse_purged,
    why_active,
    why_not_in_sync,
)
from beanstalk_twisted.replication.segment_positions import find_older
from beanstalk_twisted.replication.stream.interface import (
    Ends,
    Message,
    Silence,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import (
    Foreign,
    Kind,
    Malformed,
    MessageReader,
    Note,
    Write,
    encode_note,
)
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.replication.waits import Node, Waits, in_reactor

MAX_AHEAD_BYTES: Final = 32 << 20
"""Bytes received and not applied, or not on the disk, above which nothing more is asked for."""

SLICE_BYTES: Final = 1 << 20
"""Bytes of messages that one turn looks at, at most: 1 ms for their checksums."""

MAX_REJECTED: Final = 100
"""Writes in a row that do not continue the log here, after which this server catches up again: a
server that was fenced leaves one.
"""


class Standby:
    """Catches up with one stream, once, and follows it; when the active server is silent for the
    time of a lease it begins the next segment, first in the stream, then here.

    :ivar state: one of `states.STANDBY`.
    :ivar notes: what the catch-up has done, a sentence each, until they are logged.
    :ivar heard_lease_s: the lease of the active server, as it says; 0 before it has.
    :cvar publisher: appends this server's messages, from its first one on.
    """

    publisher: type[Publisher] = Publisher

    def __init__(self, node: Node) -> None:
        self._node = node
        self.notes: list[str] = []
        self.foreign = Foreign()
        self.heard_lease_s = 0.0
        self.state = states.CATCHING_UP
        self._progress = CATCHES_UP
        self._is_unheard = self._looks_for_missing = False
        self._active = self._handed_over_by = ""
        self._log = FollowedLog()
        self._applying = Applying(node.queue, self._log)
        files = SegmentFiles(node.directory, node.segment_bytes)
        self._copy = LogCopy(files, node.io, node.reactor, self._fail)
        self._reader = MessageReader(0)
        self._begun_ns = node.now_ns()
        self._silence = Silence(node.lease_s, self._begun_ns)
        self._received_lsn = self._rejected = 0
        self._slices: Iterator[None] | None = None
        self._turn: IDelayedCall | None = None
        self._waking: IDelayedCall | None = None
        self._waits = Waits(node.reactor)
        self._poller = Poller(node, self._silence, self._waits, self._not_answered)
        # What is in the stream by then was sent before: silence counts from there on.
        self._catch_up = CatchUp(
            node, self._poller.ask, self._note_progress,
            lambda: self._silence.heard(node.now_ns()),
        )  # fmt: skip
        self._buffer = ReceiveBuffer(
            node, self._silence, self._waits, self._spawn, self._fail, self._arrived
        )
        self._promotion = Promotion(node, self._waits, self.publisher)
        self._done: Deferred[Promoted] = Deferred(lambda _: self.stop())

    def run(self) -> "Deferred[Promoted]":
        """Catch up, follow, and become active when it is time.

        :return: fires when this server's first batch is in the stream and on the local disk.
        :raise Behind: the stream does not go on where the log here ends: take another queue.
        :raise BinlogError: the log here or that of the stream cannot be used.
        :raise StreamError: the stream cannot be.
        :raise CancelledError: it was stopped.
        """
        self._spawn(self._begin())
        return self._done

    def stop(self) -> None:
        self._end(Failure(CancelledError()))

    def figures(self) -> StandbyFigures:
        now_ns = self._node.now_ns()
        # While it catches up nobody knows what of the stream it has.
        is_catching_up = self.state == states.CATCHING_UP
        since_ns = self._begun_ns if is_catching_up else self._buffer.behind_since_ns
        doing, trouble = self._doing, self._poller.trouble or self._promotion.trouble
        if doing == FOLLOWS:
            is_silent, trouble = now_ns >= self._silence.over_ns(), ""
            doing = why_not_in_sync(
                self._node.stream.url, self._reader, is_silent, self._buffer.old_to, self._log
            ) or FOLLOWS  # fmt: skip
        return StandbyFigures(
            doing, self._active, self._reader.position, self._log.last_lsn,
            max(0, self._received_lsn - self._log.last_lsn), self._ahead_bytes,
            0.0 if since_ns is None else (now_ns - since_ns) / 1e9, doing == FOLLOWS, trouble,
        )  # fmt: skip

    @property
    def _doing(self) -> str:
        if self.state in (states.CATCHING_UP, states.FILLING):
            return self._progress
        return HEARS_NOTHING if self._is_unheard else SAID_OF.get(self.state, FOLLOWS)

    def _on(self, trigger: str) -> None:
        self.state = states.STANDBY[self.state][trigger]

    @property
    def known_to(self) -> int:
        """The position up to which it knows the stream, except heartbeats."""
        return self._reader.known_to

    @property
    def first_in_use(self) -> int:
        """The position of the oldest segment in use that is known; 0 if none is."""
        return min(self._alive.items(), default=(0, 0))[1]

    @property
    def _alive(self) -> dict[int, int]:
        """The positions of the segments in use, as far as they are known."""
        oldest = min(self._log.segments, default=0)
        return {seq: at for seq, at in self._reader.first_positions.items() if seq >= oldest}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._fail)

    def _fail(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None or self.state != states.ENDED:
            self._end(failure)

    def _end(self, outcome: "Promoted | Failure") -> None:
        if self.state == states.ENDED:
            return
        self._on("end")
        self._buffer.leave()
        for call in (self._turn, self._waking):
            if call is not None and call.active():
                call.cancel()
        self._waits.leave()
        if isinstance(outcome, Failure):
            self._promotion.stop()
            self._waits.end()
            self._copy.stop()
        if not self._done.called:
            self._done.callback(outcome)

    def _not_answered(self) -> None:
        self._is_unheard = self._is_unheard or self.state in (states.FOLLOWING, states.CHECKING)

    # Catching up.

    def _note_progress(self, position: int, last: int) -> None:
        self._progress = f"{CATCHES_UP}: message {position} of {last}"

    async def _begin(self) -> None:
        try:
            caught_up = await self._catch_up.run(self._log)
        finally:
            self.notes += self._catch_up.notes
        self._on("fill" if caught_up.fills else "follow")
        if caught_up.fills:
            await self._fill(caught_up.reader.position)
            return
        self._reader = caught_up.reader
        self._buffer.newest, self._buffer.old_to = caught_up.reader.position, caught_up.last
        if caught_up.older:
            # An answer that does not come says nothing of the active server there.
            ask = Poller(self._node, Silence(0, 0), self._waits, lambda: None).ask
            known = self._reader.first_positions
            self._spawn(find_older(self._node.stream, ask, caught_up.older, known))
        self._active = caught_up.said.name
        self._hear_lease(caught_up.said.lease_s)
        self._copy.begin(self._log.open_segment)
        self._buffer.follow()
        self._look_at(self._silence.over_ns())

    async def _fill(self, position: int) -> None:
        """Fill the stream, which has no log or a part of the one here, and begin a segment."""
        self._progress = "fills the stream"
        size = 0

        def progress(done: int, total: int) -> None:
            nonlocal size
            size = total >> 20
            self._progress = f"fills the stream: {done >> 20} of {size} MB"

        begun = await self._promotion.fill(position, progress)
        why = f"the stream was empty, and is filled with the log that was here, {size} MB"
        # That was tried at once; whoever begins with an empty log would read it all.
        await self._write(begun, why, purge_below=position + 1)

    def _hear_lease(self, seconds: float) -> None:
        if seconds:
            self.heard_lease_s = seconds
            self._silence.lasts(seconds)

    # Receiving, and applying a slice a turn.

    def _arrived(self) -> None:
        self._is_unheard = False
        if self._ahead_bytes > MAX_AHEAD_BYTES:
            self._buffer.leave()
        self._go_on()

    @property
    def _ahead_bytes(self) -> int:
        return self._buffer.waiting_bytes + self._copy.waiting_bytes

    def _go_on(self) -> None:
        if self._turn is None and self.state == states.FOLLOWING:
            self._turn = self._node.reactor.callLater(0, self._do_turn)

    def _do_turn(self) -> None:
        self._turn = None
        if self.state != states.FOLLOWING:
            return
        try:
            has_more = self._do_slice()
        except BaseException:
            self._fail(Failure())
            return
        if self._buffer.following is None and self._ahead_bytes < MAX_AHEAD_BYTES // 4:
            self._buffer.follow()
        if has_more:
            self._go_on()

    def _do_slice(self) -> bool:
        if self._slices is not None:
            if next(self._slices, self) is None:
                return True
            self._slices = None
            self._copy.trim(self._log.trim_seq)
        budget = SLICE_BYTES
        while not self._buffer.is_empty and self._slices is None and budget > 0:
            if self.state == states.REFILLED:
                return False
            message = self._buffer.take()
            budget -= len(message.payload)
            self._take(message)
        if self._is_caught_up:
            self._buffer.behind_since_ns = None
            # Records of what did not go on will not be applied.
            self._received_lsn = self._log.last_lsn
        return not self._is_caught_up

    def _take(self, message: Message) -> None:
        """:raise Behind: it does not go on where the log here ends."""
        gaps, had_gap = self._reader.gaps, self._reader.gaps.since is not None
        found = self._reader.take(message)
        if gaps.since is not None and not had_gap:
            self._look_for_missing()
        match found:
            case Write():
                self._take_write(found)
            case Note():
                self._note(found)
            case Malformed():
                if found.is_newer:
                    raise newer_message(self._node.stream.url, message.position, found.why)
                self.foreign.note(message.position, found.why)

    def _look_for_missing(self) -> None:
        if not self._looks_for_missing:
            self._looks_for_missing = True
            self._spawn(self._refuse_purged())

    async def _refuse_purged(self) -> None:
        """:raise Behind: what is missing was purged."""
        ends = await self._poller.ask(self._node.stream.ends)
        self._looks_for_missing = False
        if self._reader.gaps.since is not None:
            refuse_purged(self._reader.gaps.since, ends)

    def _take_write(self, write: Write) -> None:
        self._received_lsn = max(self._received_lsn, write.last_lsn)
        piece = self._log.take(write)
        if isinstance(piece, Rejected):
            self._reader.reject(write)
            self._rejected += 1
            if self._rejected > MAX_REJECTED:
                raise Behind(piece.why)
            return
        self._reader.accept(write)
        self._rejected = 0
        self._heard(write.time_ns)
        if write.begins:
            self._handed_over_by = ""
        self._copy.add(piece)
        self._slices = self._applying.apply(piece)

    def _note(self, note: Note) -> None:
        said = read_note(note.text)
        if said.lease_s or note.kind is not Kind.HEARTBEAT:
            # The others are of standbys that look for the end of the stream.
            self._active = said.name or self._active
            self._heard(note.time_ns)
        if note.kind is Kind.FILL_BEGINS and self._log.segment:
            self._on("refill")
            self._spawn(self._follow_anew())
        elif note.kind is not Kind.FILL_BEGINS:
            self._reader.gaps.acknowledged(note.last_lsn, self._log.last_lsn)
        if self._reader.gaps.is_torn:
            # More may be missing by now than when the gap was seen first.
            self._look_for_missing()
        self._hear_lease(said.lease_s)
        # What was received behind it says that another server has begun.
        is_newest = self._reader.position == self._buffer.newest
        self._handed_over_by = said.name if note.kind is Kind.HANDED_OVER else ""
        if note.kind is Kind.HANDED_OVER and is_newest and said.is_for(self._node.who):
            self._silence.handed_over()
            self._look_at(self._node.now_ns())

    def _heard(self, time_ns: int) -> None:
        """What came after the catch-up shows that its sender is there; else it may be old."""
        if self._reader.position > self._buffer.old_to:
            self._node.clock.go_on_from(time_ns)

    async def _follow_anew(self) -> None:
        """Write all that came, so that more is here when this server catches up again."""
        await self._copy.close()
        raise Behind("it is filled anew")

    # Taking over.

    def _look_at(self, at_ns: int) -> None:
        if self._waking is not None and self._waking.active():
            self._waking.cancel()
        if self.state == states.FOLLOWING:
            wait_s = max(0.0, (at_ns - self._node.now_ns()) / 1e9)
            self._waking = self._node.reactor.callLater(wait_s, self._look)

    def _look(self) -> None:
        is_reading = self._buffer.is_reading(int(self._silence.seconds * 1e9))
        if self._node.now_ns() < self._silence.over_ns():
            self._look_at(self._silence.over_ns())
        elif not self._is_caught_up or self._reader.mark.is_filling or is_reading:
            self._look_at(self._node.now_ns() + int(RETRY_S * 1e9))
        else:
            self._spawn(self._try())

    @property
    def _is_caught_up(self) -> bool:
        return self._buffer.is_empty and self._slices is None

    async def _try(self) -> None:
        """The active server is silent: begin a segment, if nothing else is in the stream."""
        self._on("check")
        ends = await self._poller.ask(self._node.stream.ends)
        if self._is_silent:
            refuse_purged(self.known_to, ends)
            if self._reader.gaps.is_torn:
                raise Behind(f"messages behind {self.known_to} are missing")
        if ends.last > self._reader.position and self._is_silent:
            await self._go_to_end(ends)
        elif ends.last == self._reader.position and self._is_silent:
            if not self._log.is_whole:
                oldest = min(self._log.segments)
                raise not_whole(self._node.stream.url, oldest, self._log.trim_seq)
            if await self._begin_segment():
                return
        self._on("follow")
        self._go_on()
        self._look_at(max(self._silence.over_ns(), self._node.now_ns() + int(RETRY_S * 1e9)))

    async def _go_to_end(self, ends: Ends) -> None:
        """Something was appended after the last message that was received.  It is on its way,
        unless it was heartbeats, and they have expired.  Then append a message that does not: when
        that is received nothing before it can be on its way.
        """
        found = await self._poller.ask(partial(self._node.stream.read, self._reader.position + 1))
        if not self._is_silent:
            return
        if found is not None:
            self._buffer.follow_anew()
            return
        self._on("probe")
        self._is_unheard = False
        note = encode_note(
            Kind.HEARTBEAT, self._log.last_lsn, self._node.clock.now_ns(), note_text(self._node.who)
        )  # fmt: skip
        appended = in_reactor(self._node.stream.append(note, ends.last), self._node.reactor)
        try:
            await self._waits.wait(appended)
        except (Unreachable, WrongPosition):
            # If it was appended it is received; else another one was first.
            return

    @property
    def _is_silent(self) -> bool:
        return self._is_caught_up and self._node.now_ns() >= self._silence.over_ns()

    async def _begin_segment(self) -> bool:
        """:return: whether this server is active now; else another message was there first."""
        why = why_active(
            self._handed_over_by, self._active, self._silence.seconds, not self._log.segment
        )  # fmt: skip
        self._on("promote")
        self._is_unheard = False
        for _ in self._node.queue.following.begin_segment(self._log.time_ns):
            await self._waits.sleep(0)
        if not self._is_caught_up:
            return False
        try:
            begun = await self._promotion.begin_segment(self._log, self._reader.position)
        except WrongPosition:
            self._silence.heard(self._node.now_ns())
            return False
        begun.publisher.segments.add_older(self._alive)
        await self._write(begun, why)
        return True

    async def _write(self, begun: Begun, why: str, purge_below: int = 0) -> None:
        """This server is active: go on here as in the stream."""
        self._buffer.leave()
        await self._copy.close()
        promoted = await self._promotion.write(begun, why)
        self._end(promoted._replace(purge_below=purge_below))
