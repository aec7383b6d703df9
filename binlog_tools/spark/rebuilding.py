"""
A fresh log of what is left of an old one, from archived segments and the directory of their server,
with the jobs that the server would have had.
"""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.decoding import NotUnderstood
from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES, REHOMED
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.hidden import HiddenRecords, Why
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.new_log import (
    Floors,
    NewLog,
    Origin,
    OriginSource,
    SharedKey,
    Written,
)
from binlog_tools.logs.stored import StoredPolicy
from binlog_tools.spark.definitions.errors import SourceError, unreadable
from binlog_tools.spark.reading.candidates import BrokenFile
from binlog_tools.spark.reading.finding import Findings, find
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.reading.opening import open_soundest
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.segments.decoding import Damage
from binlog_tools.spark.segments.producing import Place
from binlog_tools.spark.surviving.gathering import Gather, Reading, one_by_one
from binlog_tools.spark.surviving.live_jobs import LiveJobs
from binlog_tools.spark.surviving.notes import Note, breaks, dead_gaps, hidden_among
from binlog_tools.spark.surviving.restoring import Restoring

TOOL: Final = "rebuild"
"""What the new log's headers say that it was made by."""


class Wish(NamedTuple):
    """
    What is to be rebuilt, and how.

    :ivar paths: as `finding.find` takes them, of one server.
    :ivar output: a directory that is not there, or empty.
    :ivar point: where in the history to stop.
    :ivar damage: ``skip``: go on without what cannot be read, and count it.
    :ivar accepts_gaps: likewise without segments that are missing.
    """

    paths: tuple[str, ...]
    output: str
    point: Point = END
    damage: Damage = "fail"
    accepts_gaps: bool = False
    segment_bytes: int = DEFAULT_SEGMENT_BYTES


class Rebuilt(NamedTuple):
    """
    What was made, and of what.

    :ivar segments: how many were read, and ``records`` in them.
    :ivar flaws: what was missing or could not be read, in words.
    :ivar lost: jobs that were alive, but whose body could not be read.
    :ivar doubtful: jobs that are restored as last known, and that what is missing may have deleted,
        changed, or given another body, by these reasons.
    :ivar not_missed: segments that are not there, and need not be, in words.
    :ivar away: URLs that did not answer, in words; what only they have is missing.
    """

    written: Written
    segments: int
    records: int
    flaws: tuple[str, ...]
    lost: tuple[int, ...]
    doubtful: Mapping[Why, Sequence[int]] = {}
    not_missed: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


def rebuild(wish: Wish, gather: Gather = one_by_one, now_ns: int | None = None) -> Rebuilt:
    """
    :param now_ns: the wall clock, if not that of now.
    :raise SourceError: something is wrong with the logs or the target; no new log is left.
    """
    try:
        return _rebuilt(wish, gather, now_ns)
    except SourceError as problem:
        if problem.code != "BINLOG_TRIMMED":
            raise
        # The server has trimmed its log meanwhile: what is left says all that counts.
        return _rebuilt(wish, gather, now_ns)


def planned(wish: Wish) -> Findings:
    """
    What would be read, by the headers alone; the newest segment may say that less is needed.

    :raise SourceError: as `rebuild`.
    """
    found = _found(wish, [])
    try:
        needed = Plan(found.segments, found.broken, wish).needed()
    except OSError as problem:
        raise unreadable(problem) from None
    keys = {each.key for each in needed}
    return Findings(needed, found.broken, [gap for gap in found.gaps if gap.after.key in keys])


def _found(wish: Wish, away: list[OSError]) -> Findings:
    return find(wish.paths, as_at_a_start=True, seals_from=sys.maxsize, away=away)


def _rebuilt(wish: Wish, gather: Gather, now_ns: int | None) -> Rebuilt:
    away: list[OSError] = []
    try:
        found = _found(wish, away)
        plan = Plan(found.segments, found.broken, wish)
        live = plan.gathered(gather)
    except OSError as problem:
        raise unreadable(problem) from None
    try:
        made = _write(plan, live, time.time_ns() if now_ns is None else now_ns)
        return made._replace(away=tuple(str(unreadable(each)) for each in away))
    except OSError as problem:
        where = problem.filename or wish.output
        what = f"{where}: {problem.strerror or problem}; no new log was made"
        raise SourceError("REBUILD_TARGET", what) from None


class Plan:
    """
    Which segments are read, and what is wrong with them as a whole.

    :ivar flaws: what was tolerated; ``not_missed``, which segments are not there and need not be.
    :ivar floors: what the new log begins above.
    """

    def __init__(
        self, segments: Sequence[Segment], broken: Sequence[BrokenFile], wish: Wish
    ) -> None:
        self.wish = wish
        segments = [_soundest(each) for each in segments]
        self.flaws: list[str] = []
        self.not_missed: list[str] = []
        self._broken = broken
        self._segments = segments
        self.stores = sorted({each.header.store_uuid for each in segments})
        if len(self.stores) > 1:
            servers = ", ".join(store.hex() for store in self.stores)
            raise SourceError(
                "REBUILD_SERVERS",
                f"these are logs of {len(self.stores)} servers ({servers}); nothing was written; "
                f"rebuild one at a time: name its directory, and its folder in the archive",
            )
        if not segments:
            raise _missing("no segment can be read" + self._broken_told())
        self.paths = {each.header.seq: each.path for each in segments}
        # Times never decrease: behind one that is too new all are, those that were re-homed too.
        self._wanted = list(takewhile(self._may_have, segments))
        if not self._wanted:
            raise SourceError(
                "REBUILD_GAP",
                f"the log begins with LSN {segments[0].header.first_lsn}, in {segments[0].path}, "
                f"and that is later; nothing was written; name the archive too, or a later point",
            )

    def _may_have(self, each: Segment) -> bool:
        """
        Whether a segment has records before the point.  Frames that were re-homed are older than
        their segment.
        """
        header, point = each.header, self.wish.point
        is_older = header.created_ns <= point.time_ns or bool(header.flags & REHOMED)
        return header.first_lsn <= point.lsn and is_older

    def _broken_told(self) -> str:
        return "".join(f"; {each.path} is damaged: {each.why}" for each in self._broken)

    def needed(self) -> list[Segment]:
        """The segments that the headers do not call dead."""
        trim_seq = self._trimmed()
        return [each for each in self._wanted if each.header.seq >= trim_seq]

    def gathered(self, gather: Gather) -> LiveJobs:
        reading = Reading(self.wish.point, self.wish.damage)
        newest = self._wanted[-1]
        last = reading.of(_share(newest))
        trim_seq = max(self._trimmed(), LiveJobs([last]).notes[0].trim_seq, 1)
        while True:
            before = [_share(each) for each in self._wanted[:-1] if each.header.seq >= trim_seq]
            live = LiveJobs([*gather(before, reading), last])
            found = max(note.trim_seq for note in live.notes)
            if found <= trim_seq:
                break
            trim_seq = found
        self.floors = self._floors(live.notes, reading)
        self._judge(live, trim_seq)
        return live

    def _trimmed(self) -> int:
        """What is dead by the headers.  That of a re-homed segment may speak of what came later."""
        is_end = self.wish.point == END
        headers = (each.header for each in self._wanted)
        return max((h.trim_seq for h in headers if is_end or not h.flags & REHOMED), default=0)

    def _floors(self, notes: Sequence[Note], reading: Reading) -> Floors:
        """Also above what comes behind the point."""
        notes = list(notes)
        newest = self._segments[-1]
        if self.wish.point != END:
            rows = Reading(END, "skip").of(_share(newest))
            notes += LiveJobs([rows]).notes
        headers = [each.header for each in self._segments]
        return Floors(
            max(*(note.last_lsn for note in notes), headers[-1].first_lsn - 1),
            max(*(note.next_job_id for note in notes), *(h.next_job_id for h in headers)),
            max(note.time_ns for note in notes),
        )

    def _judge(self, live: LiveJobs, first_seq: int) -> None:
        self.not_missed = list(dead_gaps((each.header.seq for each in self._wanted), first_seq))
        gaps = list(breaks(live.notes, first_seq))
        if gaps and not self.wish.accepts_gaps:
            raise _missing("; ".join(gaps) + self._broken_told())
        self.flaws += gaps
        self.flaws += [what for note in live.notes for what in note.damages]
        if live.lost and not self.flaws:
            raise _incomplete(self.wish.paths, live.lost)


def _missing(what: str) -> SourceError:
    return SourceError(
        "REBUILD_GAP",
        f"{what}; nothing was written; name the server's directory and its archive, or go on "
        f"without them with --accept-gap: jobs that were put there are missing then, and jobs that "
        f"were deleted there come back",
    )


def _incomplete(paths: Sequence[str], jobs: Sequence[int]) -> SourceError:
    ids = ", ".join(map(str, jobs[:10]))
    return SourceError(
        "BINLOG_DAMAGED",
        f"{len(jobs)} jobs have state but no body in the log (ids {ids}); nothing was written; "
        f"run: binlog-inspect check {shlex.join(paths)}",
    )


def _share(each: Segment) -> Share:
    place = Place(each.path, each.header, each.header.store_uuid.hex())
    return Share(place, each.stretch, each.size, each.copies, next_lsn=each.next_lsn)


def _soundest(each: Segment) -> Segment:
    if not each.copies:
        return each
    opened = open_soundest(_share(each), "frames", with_bodies=True)
    return each._replace(path=opened.place.path, size=len(opened.buffer))


def _write(plan: Plan, live: LiveJobs, wall_ns: int) -> Rebuilt:
    wish, floors = plan.wish, plan.floors
    now_ns = max(wall_ns, floors.time_ns)
    store = plan.stores[0].hex()
    origin = Origin(TOOL, [OriginSource(path, store, floors.last_lsn) for path in wish.paths])
    hidden = HiddenRecords(hidden_among(live.notes))
    restoring = Restoring(live, hidden, plan.paths, wish.damage, now_ns)
    with NewLog(
        wish.output, origin, floors=floors, pauses=live.pauses(now_ns), policies=_policies(live),
        segment_bytes=wish.segment_bytes, now_ns=now_ns,
    ) as log:  # fmt: skip
        for job in restoring.jobs():
            log.add(job)
        log.add_keys(live.keys(now_ns))
        written = log.finish()
    records = sum(note.records for note in live.notes)
    flaws = (*plan.flaws, *restoring.flaws, *map(_shared, log.shared_keys))
    lost = tuple(sorted(restoring.lost))
    return Rebuilt(
        written, len(live.notes), records, flaws, lost, restoring.doubtful, tuple(plan.not_missed)
    )


def _policies(live: LiveJobs) -> list[StoredPolicy]:
    try:
        return list(live.policies())
    except NotUnderstood as problem:
        what = f"the policy of a tube: {problem}; nothing was written"
        raise SourceError("BINLOG_UNKNOWN_FORMAT", what) from None


def _shared(shared: SharedKey) -> str:
    """A job whose key another one has: its deletion is in what was left out."""
    return (
        f"the unique key {text_of(shared.key)} of job {shared.job_id}: job {shared.holder} of tube "
        f"{text_of(shared.tube)} has it"
    )
