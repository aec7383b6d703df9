"""The jobs of a log, now or at an earlier moment, and one job's story."""

from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.records.jobs import (
    FULL,
    KEY,
    NEVER_NS,
    WITHHELD_NS,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.records.others import Pause, Start
from beanstalk_twisted.binlog.segments.format import parse_segment_name
from beanstalk_twisted.binlog.tags import NO_TAGS, Tags
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import (
    Entry,
    Fields,
    Gap,
    deadline_of,
    entries,
    named_tags,
    reason_name,
    state_name,
)
from binlog_tools.logs import live_set, quantities
from binlog_tools.logs.live_set import END, Bodies, Point, Snapshot
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.quantities import NS, Numbers, Span, format_time, format_time_exactly
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import Selection, StoredJob, TubeRecord, tube_records


def chosen_jobs(loaded: Loaded, selection: Selection) -> Iterator[StoredJob]:
    """The chosen jobs that a server would load now, ascending by id.

    :raise BinlogError: it would refuse.
    """
    for job in loaded.jobs():
        ripe = live_set.promoted(job, loaded.now_ns)
        if selection.has_job(ripe):
            yield ripe


def sound_snapshot(source: Source, point: Point = END) -> Snapshot:
    """:raise BinlogError: a server would refuse the log."""
    survey = source.survey()
    survey.refuse_if_unsound()
    return live_set.live_at(source, point, 0 if source.is_partial else survey.small.trim_seq)


def released(job: StoredJob) -> StoredJob:
    """Make a reserved job ready, as a start does."""
    if job.state is State.RESERVED:
        return job._replace(state=State.READY, deadline_ns=0)
    return job


class PastJobs:
    """The jobs at an earlier point of a log.

    :ivar unknown: how many jobs were there whose state or body the log no longer tells.
    :ivar last_lsn: of the newest record before the point, 0 if the log begins behind it.
    :raise Damaged: the log is not sound, or begins behind the point.
    """

    def __init__(self, source: Source, point: Point) -> None:
        self._source = source
        self._snapshot = sound_snapshot(source, point)
        live = self._snapshot.live
        self.last_lsn = live.last_lsn
        self.since_ns = self._snapshot.since_ns
        # Nothing comes before LSN 1.
        if not live.last_lsn and point != END and self._snapshot.first_lsn > 1:
            raise Damaged(
                f"{source.path}: the log begins with LSN {self._snapshot.first_lsn}, behind that "
                f"point; segments from before it may be in an archive."
            )
        self.unknown = len(self._snapshot.unknown)
        self.now_ns = live.time_ns if point.time_ns == END.time_ns else point.time_ns

    def jobs(self, selection: Selection, with_bodies: bool) -> Iterator[tuple[StoredJob, int]]:
        """Yield them as they were, and the sizes of their bodies, ascending by id."""
        bodies, live = Bodies(self._source), self._snapshot.live
        for _, found in sorted(live.jobs.items()):
            job = live_set.promoted(live_set.stored(found, live.tubes), self.now_ns)
            if selection.has_job(job):
                body = bodies.of(found) if with_bodies else b""
                yield job._replace(body=body), found.size

    def pauses(self) -> list[TubeRecord]:
        return tube_records(self._snapshot.live, self.now_ns, kinds=[Pause])


def fields_of_job(job: StoredJob, size: int, now_ns: int) -> Fields:
    """Describe a job, without its body, by the names of docs/inspect.md.

    :param size: of the body, bytes.
    """
    is_timed = job.state in (State.DELAYED, State.RESERVED) and job.deadline_ns < WITHHELD_NS
    left = job.deadline_ns - now_ns if is_timed else None
    return {
        "job": job.job_id, "tube": text_of(job.tube), "state": state_name(job.state),
        "priority": job.priority, "delay_s": job.delay_s, "ttr_s": job.ttr_s,
        "created": format_time_exactly(job.created_ns),
        "age_s": max(0, now_ns - job.created_ns) // NS,
        "deadline": deadline_of(job.deadline_ns),
        "left_s": None if left is None else max(0, left) // NS,
        "reserves": job.reserves, "timeouts": job.timeouts, "releases": job.releases,
        "buries": job.buries, "kicks": job.kicks, "bytes": size,
        "tags": None if job.tags is None else named_tags(job.tags),
    }  # fmt: skip


class Event(NamedTuple):
    """What happened to a job, ``since_ns`` after the event before; 0 for the first."""

    entry: Entry
    what: str
    at_ns: int
    since_ns: int


class JobHistory(NamedTuple):
    job_id: int
    events: list[Event]
    ending: str
    gaps: list[Gap]


def history_of(source: Source, job_id: int, now_ns: int) -> JobHistory:
    """Damage is passed over.

    :raise OSError: the log cannot be read.
    """
    chosen = Selection(jobs=Numbers([Span(job_id, job_id)]))
    found = list(entries(source, chosen, always=frozenset({Start.kind})))
    gaps = [each for each in found if isinstance(each, Gap)]
    events: list[Event] = []
    before = 0
    for entry in found:
        if isinstance(entry, Gap):
            continue
        is_start = entry.raw.type == Start.kind
        if is_start and not (events and events[-1].entry.raw.state == State.RESERVED):
            continue
        # All full records say when the job was put.
        is_later = entry.raw.type in FULL and entry.raw.type != Kind.PUT
        at = entry.time_ns if is_later else entry.raw.ts_ns
        full = (e.entry for e in reversed(events) if e.entry.raw.type in FULL)
        was_dead = any(_is_dead(each) for each in islice(full, 1))
        words = _STARTED if is_start else _in_words(entry, was_dead=was_dead)
        events.append(Event(entry, words, at, max(0, at - before) if before else 0))
        before = at
    return JobHistory(job_id, events, _ending(events, now_ns), gaps)


def _is_dead(entry: Entry) -> bool:
    return bool((entry.tags or NO_TAGS).dead_from)


def _in_words(entry: Entry, *, was_dead: bool) -> str:
    raw = entry.raw
    if raw.type == KEY:
        until = format_time(raw.deadline_ns)
        return f"its key {text_of(entry.data)} is remembered in {text_of(entry.tube)} until {until}"
    tags = entry.tags or NO_TAGS
    text = _words(entry, was_dead=was_dead).format(
        tube=text_of(entry.tube), by=f" by connection {raw.aux}" if raw.aux else "",
        priority=raw.priority, state=state_name(raw.state), delay=raw.delay_s, ttr=raw.ttr_s,
        why=_WHY.get(raw.reason, ""), size=entry.size, dead_from=text_of(tags.dead_from),
        dead_reason=reason_name(tags.dead_reason),
    )  # fmt: skip
    if raw.type in _TELLING_TAGS:
        text += "".join(_tags_in_words(tags))
    if raw.state == State.DELAYED and raw.deadline_ns == NEVER_NS:
        text += f", until group {text_of(tags.after)} ends" if tags.after else ", for its group"
    elif raw.state == State.DELAYED and raw.deadline_ns >= WITHHELD_NS:
        text += ", until it is a dead letter"
    elif raw.state == State.DELAYED:
        text += f", ready at {format_time(raw.deadline_ns)}"
    elif raw.state == State.RESERVED:
        text += f", until {format_time(raw.deadline_ns)}"
    return text


def _words(entry: Entry, *, was_dead: bool) -> str:
    raw, tags = entry.raw, entry.tags or NO_TAGS
    if raw.type == Kind.MOVE:
        if _is_dead(entry) and tags.dead_at_ns == raw.deadline_ns:
            return _DEAD
        if was_dead and not _is_dead(entry):
            return _REVIVED
    if raw.type == Kind.RELEASE and raw.reason == Reason.RETURNED:
        return _RETURNED
    return _WORDS.get(raw.type, "changed")


def _tags_in_words(tags: Tags) -> Iterator[str]:
    if tags.unique_key:
        kept = f", remembered for {tags.unique_s} s" if tags.unique_s else ""
        yield f", unique key {text_of(tags.unique_key)}{kept}"
    if tags.concurrency_key:
        key = text_of(tags.concurrency_key)
        yield f", at most {tags.concurrency_limit} of key {key} reserved at once"
    if tags.group:
        yield f", of group {text_of(tags.group)}"
    if tags.after:
        yield f", after group {text_of(tags.after)}"
    if tags.metadata:
        yield f", metadata {text_of(tags.metadata)}"


_WORDS: Final[Mapping[int, str]] = {
    Kind.PUT: "put into {tube}{by}, {state}: priority {priority}, TTR {ttr} s, {size} bytes",
    Kind.RESERVE: "reserved{by}",
    Kind.RELEASE: "released{by}, {state}: priority {priority}, delay {delay} s",
    Kind.BURY: "buried{by}: priority {priority}",
    Kind.KICK: "kicked{by}",
    Kind.TOUCH: "touched{by}",
    Kind.DELETE: "deleted{by}{why}",
    Kind.TTR_EXPIRED: "its TTR ran out; {state} again",
    Kind.DISCONNECT_RELEASE: "its connection{by} ended; {state} again",
    Kind.MOVE: "moved into {tube}{by}, {state}",
    Kind.UPDATE: "updated{by}, {state}: priority {priority}, TTR {ttr} s, {size} bytes",
    Kind.GROUP_ENDED: "the group that it waited for has ended; {state}",
    Kind.COPY: "stated again by compaction or a tool, {state} in {tube}{why}: priority {priority}",
}
_DEAD: Final = "a dead letter of {dead_from}, reason {dead_reason}: {state} in {tube}"
_REVIVED: Final = "a dead letter no more: kicked{by} into {tube}, {state}; its attempts begin anew"
_RETURNED: Final = "returned{by}, {state}: this reservation does not count"
_STARTED: Final = "a server started; ready again"
_TELLING_TAGS: Final = frozenset({Kind.PUT, Kind.UPDATE, Kind.COPY})
_WHY: Final = {
    int(Reason.IMPORT): ", made by a tool",
    int(Reason.DAMAGED): ", damaged",
    int(Reason.CANCELLED): ", cancelled",
    int(Reason.EXPIRED): ": older than the max-age of its tube",
}


def _ending(events: list[Event], now_ns: int) -> str:
    if not events:
        return "the log has no record of it"
    of_job = [event for event in events if event.entry.raw.type != KEY]
    if not of_job:
        return "gone: the log has only its key"
    last, at_ns = of_job[-1].entry, of_job[-1].at_ns
    if last.raw.type == Kind.DELETE:
        return f"gone since {format_time(last.raw.ts_ns)}"
    if not any(event.entry.raw.type in FULL for event in events):
        return "alive, but the log has no body for it: a server refuses this log"
    state = "ready" if last.raw.type == Start.kind else state_name(last.raw.state)
    if last.raw.state == State.RESERVED:
        return "reserved; a server that starts now has it ready"
    if last.raw.state == State.DELAYED and last.raw.deadline_ns == NEVER_NS:
        return "delayed until the group ends that it waits for"
    if last.raw.state == State.DELAYED and last.raw.deadline_ns >= WITHHELD_NS:
        return "delayed until it is a dead letter, which waits for space"
    if last.raw.state == State.DELAYED and last.raw.deadline_ns <= now_ns:
        return "ready, its delay is over"
    since_ns = at_ns if last.raw.type in _REMAKES else last.raw.ts_ns
    return f"{state} for {quantities.format_duration(max(0, now_ns - since_ns))}"


_REMAKES: Final = frozenset({Kind.MOVE, Kind.UPDATE})
"""Events whose records do not say when they happened."""


def body_of(source: Source, job_id: int, gaps: list[Gap] | None = None) -> bytes | None:
    """The body of a job, living or not, from its newest full record; None if the log has none.
    Damage is passed over.

    :param gaps: gets the places behind that record where a newer one may have been.
    """
    chosen = Selection(jobs=Numbers([Span(job_id, job_id)]), types=frozenset(map(int, FULL)))
    body: bytes | None = None
    behind: list[Gap] = []
    seqs = source.segment_names()
    found_in = min(seqs, default=0)
    for entry in entries(source, chosen):
        if isinstance(entry, Entry):
            body, behind = entry.data, []
            found_in = parse_segment_name(entry.segment) or found_in
        else:
            behind.append(entry)
    if gaps is not None:
        later = [seq for seq in seqs if seq >= found_in]
        for before, after in pairwise(later):
            if after > before + 1:
                gaps.append(Gap.missing(before + 1, after - 1))
        gaps += behind
    return body
