"""Catch-up of a server that starts with the stream (docs/replication-log.md, "A start")."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from beanstalk_twisted.binlog.errors import Damaged, Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication import local_log
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.local_log import (
    HistoryCheck,
    LocalLog,
    NullReport,
    StreamHistory,
)
from beanstalk_twisted.replication.membership import NoteText, read_note
from beanstalk_twisted.replication.states import CATCH_UP, SURVEYING, WAITS_TO_FILL
from beanstalk_twisted.replication.stream.interface import Message
from beanstalk_twisted.replication.stream.messages import (
    MAX_IN_FLIGHT,
    FillMark,
    Kind,
    Malformed,
    MessageReader,
    Note,
    Write,
)
from beanstalk_twisted.replication.stream_reading import (
    Ask,
    Behind,
    SegmentIndex,
    SegmentStart,
    StreamReader,
)
from beanstalk_twisted.replication.waits import Node
from beanstalk_twisted.replication.window import MAX_STEPPED
from beanstalk_twisted.storage.opening import cannot_use, load

T = TypeVar("T")

MAX_DISPLACED: Final = MAX_STEPPED + MAX_IN_FLIGHT
"""Messages in which a segment may begin after a record that was refused: its server had all of them
under way, and ended.  A segment that begins this far before a later one here is in place.
"""


class CaughtUp(NamedTuple):
    """Where to follow.

    :ivar reader: at the last message that the local log has; knows the first positions of the
        newest segments at least.
    :ivar fills: whether this server must fill the stream after this position.
    :ivar last: position of the newest message when catching up began.
    :ivar said: what the newest note says that names a lease: who was active there.
    :ivar older: headers of local segments before those of known position, the newest first.
    """

    reader: MessageReader
    fills: bool
    last: int
    said: NoteText = NoteText()
    older: tuple[SegmentHeader, ...] = ()


class CatchUp:
    """Catches up with a stream, once: keeps the local log as far as the stream has the same bytes.

    :ivar state: one of `states.CATCH_UP`.
    :ivar notes: what it has done, a sentence each.
    """

    def __init__(
        self, node: Node, ask: Ask, progress: Callable[[int, int], None],
        began: Callable[[], None],
    ) -> None:  # fmt: skip
        """:param began: called when `CaughtUp.last` is known.
        :param progress: called with the position of a message that will be compared, and the last.
        """
        self._node = node
        self._directory = node.directory
        self._url = node.stream.url
        self._reader = StreamReader(node.stream, ask)
        self._progress = progress
        self._began = began
        self.state = SURVEYING
        self.notes: list[str] = []
        self._index = SegmentIndex(self._reader, self._url, progress)
        self._mark = FillMark()

    def _on(self, trigger: str) -> None:
        self.state = CATCH_UP[self.state][trigger]

    async def _on_disk(self, work: Callable[[], T]) -> T:
        """:raise CannotUse: the disk refuses."""
        try:
            return await self._node.io.run(work)
        except OSError as problem:
            raise cannot_use(self._directory, problem) from problem

    async def run(self, log: FollowedLog) -> CaughtUp:
        """Catch up with the stream, and load what is here then; ``log`` continues from there.

        :raise BinlogError: the log here or that of the stream cannot be used.
        """
        survey = await self._on_disk(partial(self._look, log))
        ends = await self._reader.begin()
        self._began()
        if ends.is_empty:
            return self._from("fill" if survey.names_of_segments else "snapshot", ends.last)
        first = await self._index.first_from(ends.first, mark=self._mark)
        if first is None:
            return self._without_segments(survey)
        local = survey.survey.segments
        if local and local[0].header.store_uuid != first.header.store_uuid:
            raise local_log.other_store(
                self._url, local[0].header.store_uuid, first.header.store_uuid
            )
        if not survey.names_of_segments:
            # What comes before the first beginning goes on where nobody knows.
            return self._from("snapshot", first.position - 1)
        return await self._bring_together(survey, first, log)

    def _without_segments(self, found: LocalLog) -> CaughtUp:
        """The stream has messages, and no segment: its filling has begun, and nothing more."""
        if not self._mark.is_filling and self._index.is_of_queue:
            raise local_log.begins_nowhere(self._url)
        if not self._mark.is_filling:
            raise Incompatible(
                f"{self._url}: no segment begins among its first messages: it is no log of "
                f"a queue, or of a later version. Name another stream with --replicate; if it was "
                f"made for this queue somebody else writes to it: purge it "
                f"({local_log.purge_command(self._url)}), and start again."
            )
        if self._may_fill(found):
            return self._from("fill", self._reader.ends.last)
        # Whoever has answered may not know yet what follows.
        return self._from("snapshot", self._mark.position)

    def _may_fill(self, found: LocalLog) -> bool:
        """Whether the stream is filled with what is here, and this is no copy of a part."""
        segments = found.survey.segments
        return bool(segments) and segments[-1].ending.next_lsn > self._mark.last_lsn

    def _from(self, trigger: str, position: int) -> CaughtUp:
        """Follow from a position on, or fill, without a log."""
        self._on(trigger)
        reader = MessageReader(position, self._mark)
        return CaughtUp(reader, self.state == WAITS_TO_FILL, self._reader.ends.last)

    def _look(self, log: FollowedLog) -> LocalLog:
        """:raise Incompatible: the log is of another version or kind."""
        log.remove_dead(self._directory, segments=False)
        return local_log.look_at_log(self._directory)

    async def _bring_together(
        self, found: LocalLog, first: SegmentStart, log: FollowedLog
    ) -> CaughtUp:  # fmt: skip
        self._on("locate")
        may_fill = self._mark.is_filling and self._may_fill(found)
        common, positions = await self._common(found, first)
        check = HistoryCheck(self._directory, common, self.notes, found.oldest_alive)
        going = None
        if common is not None:
            self._on("compare")
            going = await self._compare(check, positions[common])
            is_all = positions[common] == first.position and not going.differs
            if may_fill and is_all and self._mark.is_filling:
                if going.reader.position < self._reader.ends.last:
                    # Nothing of a filling expires: whoever has answered does not know all yet.
                    raise Behind(f"message {going.reader.position + 1} could not be read")
                return self._from("fill", self._reader.ends.last)
        await self._refuse_loss(found, first, common, positions, check)
        if going is None or not check.has_common:
            self._on("discard")
            await self._on_disk(check.remove_all)
            await self._on_disk(partial(local_log.remove_loss_note, self._directory))
            return self._from("snapshot", first.position - 1)
        self._on("cut")
        await self._on_disk(check.finish)
        await self._on_disk(partial(local_log.remove_loss_note, self._directory))
        is_same = not (check.has_cut or found.survey.problems)
        read = (lambda *_: Replay(found.survey)) if is_same else local_log.read_followed
        node = self._node
        loading = partial(
            load, node.directory, node.queue, node.clock, NullReport(), read, is_followed=True
        )
        self._on("load")
        try:
            replay = await self._on_disk(loading)
        except Damaged as problem:
            self._on("discard")
            # It ended before it was told which segments are dead, whose jobs it has states of.
            await self._on_disk(partial(local_log.remove_segments, self._directory))
            raise Behind(
                f"the log here could not be read alone and was removed: {problem}"
            ) from problem
        log.go_on_from(replay)
        self._on("done")
        reader = MessageReader(going.done, self._mark, bool(log.segment), log.term, log.last_lsn)
        reader.first_positions = {**positions, **going.reader.first_positions}
        reader.gaps.displaced_to = going.reader.gaps.displaced_to
        older = tuple(segment.header for segment in reversed(found.survey.segments)
                      if segment.header.seq < min(positions))  # fmt: skip
        return CaughtUp(reader, False, self._reader.ends.last, going.said, older)

    # Finding where both are the same.

    async def _common(
        self, found: LocalLog, first: SegmentStart
    ) -> tuple[int | None, dict[int, int]]:
        """The segment from which on both are compared, the newest sound one that both have and that
        is in place for certain (`MAX_DISPLACED`); and the positions at which those here begin.
        """
        headers = [
            segment.header for segment in reversed(found.survey.segments)
            if first.header.seq <= segment.header.seq <= found.first_bad
        ]  # fmt: skip
        # Most servers were away for a short time.
        await self._index.look_before(self._reader.ends.last + 1)
        positions = await self._positions(headers)
        if not positions:
            return None, positions
        sure = [] if self._mark.is_filling else _in_place(positions)
        if not (sure or self._mark.is_filling) and await self._is_late(found, first, positions):
            return None, {}
        return max(sure, default=min(positions)), positions

    async def _positions(self, headers: Sequence[SegmentHeader]) -> dict[int, int]:
        """Where these segments begin, the newest first, up to one that is in place."""
        positions: dict[int, int] = {}
        for header in headers:
            # Where a filling ends is not known: all of it is gone through.
            if _in_place(positions) and not self._mark.is_filling:
                break
            beginning = await self._index.find(header)
            if beginning is not None and beginning.header == header:
                positions[header.seq] = beginning.position
            else:
                positions.clear()
        return positions

    async def _is_late(
        self, found: LocalLog, first: SegmentStart, positions: dict[int, int]
    ) -> bool:  # fmt: skip
        """Return True if a fenced server began the oldest: all its messages were under way."""
        oldest = min(positions)
        [ours] = [s.header for s in found.survey.segments if s.header.seq == oldest]
        at = max(first.position, positions[oldest] - MAX_DISPLACED)
        before = await self._index.between(at, positions[oldest])
        return any(begun.header.incarnation > ours.incarnation for begun, _ in before)

    async def _refuse_loss(
        self, found: LocalLog, first: SegmentStart, common: int | None, positions: dict[int, int],
        check: HistoryCheck,
    ) -> None:  # fmt: skip
        """Before anything is removed here: what was acknowledged may be here only.

        :raise Incompatible: it is; nothing was changed.
        """
        lost = await self._on_disk(partial(local_log.why_left, self._directory))
        if lost is not None and (common is None or await self._on_disk(check.would_cut)):
            raise local_log.lost_by_stream(self._directory.path, self._url, lost)
        headers = [segment.header for segment in found.survey.segments]
        [base] = [each for each in headers if each.seq == common] or [first.header]
        is_older = found.oldest_alive < first.header.seq
        is_later = any(each.incarnation > base.incarnation for each in headers)
        if not (is_older or is_later):
            return
        start = first.position if common is None else positions[common]
        # With this `StreamHistory.trim_seq` the rest counts for nothing.
        enough = 1 << 64 if is_later else first.header.seq
        told = StreamHistory()
        async for message in self._reader.all_from(start):
            told.take(message)
            if told.trim_seq >= enough:
                break
        began = local_log.began_alone(headers, base.incarnation, told.headers)
        path, url = self._directory.path, self._url
        if began is not None:
            raise local_log.written_alone(path, url, began)
        if is_older and told.trim_seq < first.header.seq:
            raise local_log.not_whole(url, first.header.seq, told.trim_seq)

    # Comparing.

    async def _compare(self, check: HistoryCheck, position: int) -> "_Comparing":
        going = _Comparing(self._url, position, self._mark)
        async for messages in self._reader.batches_from(position):
            self._progress(messages[0].position, self._reader.ends.last)
            if not await self._on_disk(partial(going.compare, check, messages)):
                break
        gaps = going.reader.gaps
        if gaps.is_torn and (since := gaps.since) is not None:
            await self._reader.refuse_purged(since + 1)
            raise local_log.torn(self._url, since)
        return going


def _in_place(positions: dict[int, int]) -> list[int]:
    """Those that are in place for certain."""
    newest = positions.get(max(positions, default=0), 0)
    return [seq for seq, at in positions.items() if at + MAX_DISPLACED <= newest]


class _Comparing:
    """How far a comparison has come.

    :ivar done: position of the last message that the local log has.
    :ivar differs: whether the local log lacks what came last, or has something else.
    """

    def __init__(self, url: str, position: int, mark: FillMark) -> None:
        self._url = url
        self.done = position - 1
        self.reader = MessageReader(self.done, mark, has_begun=True)
        self.differs = False
        self.said = NoteText()

    def compare(self, check: HistoryCheck, messages: Sequence[Message]) -> bool:
        """:return: whether more has to be compared.
        :raise Incompatible: a later version has sent a message.
        """
        for message in messages:
            found, is_handed_over = self.reader.take(message), False
            if isinstance(found, Malformed) and found.is_newer:
                raise local_log.newer_message(self._url, message.position, found.why)
            if isinstance(found, Note):
                is_handed_over = found.kind is Kind.HANDED_OVER
                self._note(found)
            elif isinstance(found, Write) and not self._goes_on(found, check.compare(found)):
                return False
            # The standby has to see a hand-over: it may begin immediately.
            if not (self.reader.is_midway or is_handed_over):
                self.done = self.reader.known_to
        return True

    def _note(self, note: Note) -> None:
        said = read_note(note.text)
        self.said = said if said.lease_s else self.said
        if note.kind is not Kind.FILL_BEGINS:
            self.reader.gaps.told_of(note.last_lsn, self.reader.last_lsn)

    def _goes_on(self, write: Write, is_here: bool | None) -> bool:
        """Whether more is to be compared; ``is_here`` is as `HistoryCheck.compare` says."""
        if is_here is None:
            self.reader.reject(write)
        elif is_here:
            self.reader.accept(write)
        else:
            self.differs = True
            # The standby follows from there, and decides whether it continues.
            self.done = self.reader.known_before_write
            self.reader.gaps.went_on()
        return is_here is not False
