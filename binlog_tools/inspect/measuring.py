"""Where the bytes of a log are, what keeps them, and how many jobs there were when."""

import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.compaction import Policy, Pressure
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import STATE, TUBE_ID, RememberedKey, TubePolicy
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import RECORD, RECORD_BYTES, SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Frame
from binlog_tools.console.wording import BARS, text_of
from binlog_tools.inspect.dumping import Fields, job_fields, tags_text
from binlog_tools.inspect.listing import chosen_jobs
from binlog_tools.logs.live_set import LiveSet, sound_frames, sound_segments
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.reading import OpenSegment, names_ahead
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import (
    STATE_NAMES,
    Selection,
    StoredJob,
    stored_keys,
    tube_records,
    type_name,
)

NAMED_PINS: Final = 1000
"""Ids of jobs that are named for each segment, lowest first."""

BUCKETS: Final = 600
"""Ten for each character of the chart."""

MOMENT_NS: Final = 100_000_000
"""Frames this close count as one, which bounds the memory: 240 bytes for each second."""

STATES: Final = ("ready", "reserved", "delayed", "buried")
"""In the order of beanstalkd's statistics."""


class SegmentStats(NamedTuple):
    """:ivar end: where its frames end, ``size`` that of the file.
    :ivar live: bytes of the full records of living jobs, and of remembered keys; ``dead``, the
        others up to ``end``.
    :ivar pinned_by: how many living jobs have their full records here; ``pins`` are their ids.
    """

    name: str
    seq: int
    first_lsn: int
    last_lsn: int
    since_ns: int
    until_ns: int
    size: int
    end: int
    live: int
    dead: int
    pinned_by: int
    pins: list[int]
    types: dict[str, int]


class TubeStats(NamedTuple):
    """``bytes`` are those of the bodies; ``puts`` and ``deletes`` all that the log has seen."""

    name: bytes
    jobs: int
    ready: int
    reserved: int
    delayed: int
    buried: int
    bytes: int
    puts: int
    deletes: int


class Depth(NamedTuple):
    """:ivar jobs: the most at one time in each of the equal steps between the two times."""

    since_ns: int
    until_ns: int
    jobs: list[int]

    @property
    def step_s(self) -> float:
        return (self.until_ns - self.since_ns) / len(self.jobs) / NS if self.jobs else 0.0


class ExtensionCounts(NamedTuple):
    """``tagged`` are living jobs with tags, ``dead_letters`` among them."""

    tagged: int
    dead_letters: int
    keys: int
    policies: int


class Stats(NamedTuple):
    """:ivar oldest: id and time of birth of the living job that was put first.
    :ivar compacted: about how many bytes `compact` would leave.
    :ivar is_due: whether a server with default settings would compact now.
    """

    path: str
    segments: list[SegmentStats]
    tubes: list[TubeStats]
    jobs: int
    states: dict[str, int]
    oldest: tuple[int, int] | None
    bytes: int
    live: int
    compacted: int
    is_due: bool
    depth: Depth
    extensions: ExtensionCounts


class _Segment:
    def __init__(self, opened: OpenSegment) -> None:
        self.name, self.seq = opened.name, opened.seq
        self.size = len(opened.buffer)
        self.first_lsn, self.last_lsn = opened.header.first_lsn, opened.header.first_lsn - 1
        self.since_ns = self.until_ns = opened.header.created_ns
        self.end = SEGMENT_HEADER_BYTES
        self.types: Counter[int] = Counter()

    def take(self, types: bytes, frame: Frame) -> None:
        if not self.types:
            self.since_ns = frame.time_ns
        self.types.update(types)
        self.last_lsn, self.until_ns, self.end = frame.next_lsn - 1, frame.time_ns, frame.end


def measure(source: Source) -> Stats:
    """:raise BinlogError: the log is damaged."""
    survey = source.survey()
    survey.refuse_if_unsound()
    first_seq = 0 if source.is_partial else survey.small.trim_seq
    live = LiveSet()
    segments: dict[int, _Segment] = {}
    depth = _DepthCount()
    traffic: Counter[tuple[int, int]] = Counter()
    for opened in sound_segments(source, first_seq):
        segment = segments[opened.seq] = _Segment(opened)
        live.tubes.update(names_ahead(opened))
        for frame in sound_frames(opened):
            view = memoryview(opened.buffer)
            types = bytes(view[frame.records_at : frame.heap_at : frame.rec_size])
            segment.take(types, frame)
            live.take(opened.buffer, frame, opened.seq)
            depth.take(types, frame)
            traffic.update(zip(types, _tube_ids(opened, frame), strict=True))
    return _sum_up(source, live, segments, depth, traffic)


class _DepthCount:
    def __init__(self) -> None:
        self._times = array("q")
        self._changes = array("q")
        self._peaks = array("q")

    def take(self, types: bytes, frame: Frame) -> None:
        """Frames of one tenth of a second count as one, but for the most of their jobs."""
        puts, deletes = types.count(Kind.PUT), types.count(Kind.DELETE)
        change, peak = puts - deletes, puts
        if puts and deletes:
            peak = max(accumulate(map(_CHANGES.__getitem__, types), initial=0))
        if self._times and frame.time_ns - self._times[-1] < MOMENT_NS:
            self._peaks[-1] = max(self._peaks[-1], self._changes[-1] + peak)
            self._changes[-1] += change
        else:
            self._times.append(frame.time_ns)
            self._changes.append(change)
            self._peaks.append(peak)

    def sum_up(self, last: int) -> Depth:
        if not self._times:
            return Depth(0, 0, [])
        since, until = self._times[0], max(self._times)
        count = last - sum(self._changes)
        jobs = [0] * max(1, min(BUCKETS, until - since))
        at = 0
        for bucket in range(len(jobs)):
            end = since + (until - since) * (bucket + 1) // len(jobs)
            # What was there before is there when the step begins.
            most = count
            while at < len(self._times) and self._times[at] <= end:
                most = max(most, count + self._peaks[at])
                count += self._changes[at]
                at += 1
            jobs[bucket] = most
        return Depth(since, until, jobs)


_CHANGES: Final = tuple((kind == Kind.PUT) - (kind == Kind.DELETE) for kind in range(256))


def _tube_ids(opened: OpenSegment, frame: Frame) -> list[int]:
    view = memoryview(opened.buffer)
    if frame.rec_size == RECORD_BYTES:
        return view[frame.records_at : frame.heap_at].cast("I")[10::20].tolist()
    return [frames.raw_record(view, frame, n)[TUBE_ID] for n in range(frame.n_rec)]


def _sum_up(
    source: Source, live: LiveSet, segments: dict[int, _Segment], depth: _DepthCount,
    traffic: Mapping[tuple[int, int], int],
) -> Stats:  # fmt: skip
    pins: dict[int, list[int]] = {seq: [] for seq in segments}
    bytes_of: Counter[int] = Counter()
    # By name: a tube that was forgotten and made again has several numbers.
    tubes: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
    for job_id, job in live.jobs.items():
        pins[job.seq].append(job_id)
        bytes_of[job.seq] += RECORD_BYTES + job.data_bytes
        raw = RECORD.unpack(job.record)
        tubes[live.tubes.get(raw[TUBE_ID], b"")].update(
            {STATE_NAMES[raw[STATE]]: 1, "jobs": 1, "bytes": job.size}
        )
    for remembered, seq, _ in live.in_force(RememberedKey, live.time_ns):
        bytes_of[seq] += RECORD_BYTES + len(remembered.key)
    for (kind, tube_id), count in traffic.items():
        if kind in _TRAFFIC:
            tubes[live.tubes.get(tube_id, b"")][_TRAFFIC[kind]] += count
    fields = TubeStats._fields[1:]
    by_tube = [TubeStats(name, *(counts[f] for f in fields)) for name, counts in tubes.items()]
    by_tube.sort(key=lambda tube: (-tube.bytes, -tube.jobs, tube.name))
    oldest = min(((job.created_ns, job_id) for job_id, job in live.jobs.items()), default=None)
    tags = [job.tags for job in live.jobs.values() if job.tags is not None]
    total = sum(segment.end for segment in segments.values())
    live_bytes = bytes_of.total()
    segment_bytes = max((segment.end for segment in segments.values()), default=0)
    return Stats(
        source.path, [_segment_stats(s, pins[s.seq], bytes_of[s.seq]) for s in segments.values()],
        by_tube, len(live.jobs),
        {name: sum(counts[name] for counts in tubes.values()) for name in STATES},
        (oldest[1], oldest[0]) if oldest else None, total, live_bytes,
        _compacted(live, live_bytes),
        Policy().should_compact(Pressure(total, live_bytes, segment_bytes)),
        depth.sum_up(len(live.jobs)),
        ExtensionCounts(
            len(tags), sum(bool(each.dead_from) for each in tags),
            len(stored_keys(live, live.time_ns)),
            len(tube_records(live, live.time_ns, kinds=[TubePolicy])),
        ),
    )  # fmt: skip


_TRAFFIC: Final[Mapping[int, str]] = {Kind.PUT: "puts", Kind.DELETE: "deletes"}


def _segment_stats(segment: _Segment, pins: list[int], live: int) -> SegmentStats:
    types = {type_name(kind): count for kind, count in sorted(segment.types.items())}
    return SegmentStats(
        segment.name, segment.seq, segment.first_lsn, segment.last_lsn, segment.since_ns,
        segment.until_ns, segment.size, segment.end, live, segment.end - live, len(pins),
        sorted(pins)[:NAMED_PINS], types,
    )  # fmt: skip


def _compacted(live: LiveSet, live_bytes: int) -> int:
    used = {RECORD.unpack(job.record)[TUBE_ID] for job in live.jobs.values()}
    names = sum(RECORD_BYTES + len(live.tubes.get(tube_id, b"")) for tube_id in used)
    return SEGMENT_HEADER_BYTES + names + live_bytes + 4 * RECORD_BYTES


def chart(depth: Depth, width: int, bars: str = BARS) -> str:
    """The number of jobs over time as one line of bars; each shows the most of its time.

    :param bars: a character for each height, lowest first.
    """
    if not depth.jobs:
        return ""
    width = min(width, len(depth.jobs))
    edges = [len(depth.jobs) * n // width for n in range(width + 1)]
    most = [max(depth.jobs[a:b]) for a, b in pairwise(edges)]
    top = max(1, *most)
    return "".join(bars[min(len(bars) - 1, max(0, n) * len(bars) // (top + 1))] for n in most)


FIELDS: Final = (
    "tube", "state", "priority", "delay_s", "ttr_s", "created", "deadline", "reserves", "timeouts",
    "releases", "buries", "kicks", "body", "tags",
)  # fmt: skip


class Difference(NamedTuple):
    """``where`` is ``a``: only in the first, ``b``: only in the second, ``both``: it differs."""

    job_id: int
    where: str
    fields: dict[str, tuple[object, object]]


def compare_logs(
    a: Loaded, b: Loaded, selection: Selection, ignored: Collection[str] = ()
) -> Iterator[Difference]:
    """The jobs that a server would load from one log and not, or otherwise, from the other."""
    left, right = chosen_jobs(a, selection), chosen_jobs(b, selection)
    one, two = next(left, None), next(right, None)
    while one is not None or two is not None:
        if two is None or (one is not None and one.job_id < two.job_id):
            assert one is not None
            yield Difference(one.job_id, "a", {})
            one = next(left, None)
        elif one is None or two.job_id < one.job_id:
            yield Difference(two.job_id, "b", {})
            two = next(right, None)
        else:
            a_values, b_values = values_of(one), values_of(two)
            found = {
                name: (a_values[name], b_values[name])
                for name in FIELDS
                if name not in ignored and a_values[name] != b_values[name]
            }
            if found:
                yield Difference(one.job_id, "both", found)
            one, two = next(left, None), next(right, None)


def values_of(job: StoredJob) -> Fields:
    """What is compared of a job; of the body, its size and checksum."""
    return {
        "tube": text_of(job.tube), **job_fields(job),
        "body": f"{len(job.body)} bytes, CRC {zlib.crc32(job.body):08x}",
        "tags": tags_text(job.tags),
    }  # fmt: skip
