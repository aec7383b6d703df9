"""What a log consists of, counted again from what the other reader reads; and what differs."""

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.console.wording import BARS
from binlog_tools.inspect.measuring import (
    BUCKETS,
    FIELDS,
    NAMED_PINS,
    Depth,
    Difference,
    Stats,
    chart,
    compare_logs,
    measure,
)
from binlog_tools.logs.opening import Loaded, load, open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import TYPE_NAMES, Selection, StoredJob
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, NS, T0, Files, Scribe, delete, files_of, image, put
from tests.tools.conversation import Conversation
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made

ONE, TWO = (f"{n:020d}.tql" for n in (1, 2))


def measured(path: Path) -> Stats:
    return measure(open_source(str(path)))


def bodies_of(records: list[independent_reader.Fields]) -> dict[int, bytes]:
    """The bodies of the living jobs, also where the log begins behind their puts."""
    bodies: dict[int, bytes] = {}
    for record in records:
        if record["type"] in (1, 16):
            bodies[record["job_id"]] = record["data"]
        elif record["type"] == 7:
            bodies.pop(record["job_id"], None)
    return bodies


def live(files: Files) -> dict[str, set[int]]:
    """The living jobs whose full records are in each segment."""
    log = independent_reader.read_log(files)
    alive = bodies_of(log["records"])
    found: dict[int, str] = {}
    for name, segment in log["segments"].items():
        for record in (r for f in segment["frames"] for r in f["records"]):
            if record["type"] in (1, 16) and record["job_id"] in alive:
                found[record["job_id"]] = name
    return {name: {n for n, home in found.items() if home == name} for name in log["segments"]}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("with_compaction", [False, True])
def test_segments_are_counted_right(seed: int, with_compaction: bool, tmp_path: Path) -> None:
    files = Conversation(seed, with_compaction).say(60).files
    stats = measured(written(tmp_path / "log", files))
    log = independent_reader.read_log(files)
    records = {
        name: [r for f in segment["frames"] for r in f["records"]]
        for name, segment in log["segments"].items()
    }
    bodies = bodies_of(log["records"])
    pins = live(files)
    assert [s.name for s in stats.segments] == list(log["segments"])
    for segment in stats.segments:
        theirs = log["segments"][segment.name]
        own = records[segment.name]
        first_lsn = theirs["header"]["first_lsn"]
        assert (segment.first_lsn, segment.last_lsn) == (first_lsn, first_lsn + len(own) - 1)
        # A sync mark at the end is one frame more.
        assert segment.end == theirs["end"]
        assert segment.size == len(files[segment.name])
        assert segment.types == {
            TYPE_NAMES[kind]: n for kind, n in sorted(Counter(r["type"] for r in own).items())
        }
        assert set(segment.pins) == pins[segment.name]
        assert segment.pinned_by == len(pins[segment.name])
        assert segment.live == sum(80 + len(bodies[n]) for n in pins[segment.name])
        assert segment.live + segment.dead == segment.end
        times = [f["time_ns"] for f in theirs["frames"]]
        if times:
            assert (segment.since_ns, segment.until_ns) == (times[0], times[-1])
    assert stats.bytes == sum(s.end for s in stats.segments)
    assert stats.live == sum(s.live for s in stats.segments)


@pytest.mark.parametrize("seed", [1, 2])
def test_tubes_are_counted_right_and_the_largest_comes_first(seed: int, tmp_path: Path) -> None:
    conversation = Conversation(seed).say(60)
    stats = measured(written(tmp_path / "log", conversation.files))
    last = conversation.last
    assert stats.jobs == len(last)
    log = independent_reader.read_log(conversation.files)
    names = {r["tube_id"]: r["data"] for r in log["records"] if r["type"] == 32}
    for tube in stats.tubes:
        own = [job for job in last.values() if job[0] == tube.name]
        states = Counter(job[1] for job in own)
        # A delay that has ended leaves no record.
        assert tube.ready + tube.delayed == states[State.READY] + states[State.DELAYED]
        assert (tube.reserved, tube.buried) == (states[State.RESERVED], states[State.BURIED])
        assert (tube.jobs, tube.bytes) == (len(own), sum(len(job[6]) for job in own))  # type: ignore[arg-type, misc]
        puts = [r for r in log["records"] if r["type"] == 1 and names[r["tube_id"]] == tube.name]
        assert tube.puts == len(puts)
    assert [t.bytes for t in stats.tubes] == sorted((t.bytes for t in stats.tubes), reverse=True)
    assert sum(tube.deletes for tube in stats.tubes) == sum(r["type"] == 7 for r in log["records"])


def test_the_oldest_job_is_the_one_that_was_put_first(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, ts_ns=5), put(2, ts_ns=3), put(3, ts_ns=1), delete(3))
    assert measured(written(tmp_path / "log", scribe.files())).oldest == (2, 3)
    assert measured(written(tmp_path / "none", log_of_nothing())).oldest is None


def log_of_nothing() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write()
    return scribe.files()


def test_the_ids_that_are_named_for_a_segment_have_a_limit(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    scribe.write(*(put(n, b"") for n in range(1, NAMED_PINS + 2)))
    (segment,) = measured(written(tmp_path / "log", scribe.files())).segments
    assert segment.pinned_by == NAMED_PINS + 1
    assert segment.pins == list(range(1, NAMED_PINS + 1))


def test_how_many_jobs_there_were_is_told_over_time(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 7):
        scribe.now_ns += NS
        scribe.write(put(n, b""))
    for n in range(1, 5):
        scribe.now_ns += NS
        scribe.write(delete(n))
    depth = measured(written(tmp_path / "log", scribe.files())).depth
    assert distinct(depth) == [1, 2, 3, 4, 5, 6, 5, 4, 3]
    assert depth.jobs[-1] == 3, "those that were there when the last step began"
    assert depth.step_s == pytest.approx(9 / BUCKETS, rel=0.01)


def distinct(depth: Depth) -> list[int]:
    return [jobs for jobs, _ in groupby(depth.jobs)]


def test_a_step_tells_the_most_there_were_and_not_what_it_ends_with(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    scribe.write(put(1, b""))
    scribe.now_ns += 100 * NS
    scribe.write(*(put(n, b"") for n in range(2, 52)))
    scribe.write(*(delete(n) for n in range(2, 52)))
    scribe.now_ns += 100 * NS
    scribe.write(put(60, b""), put(61, b""), delete(61), put(62, b""), delete(62), delete(60))
    depth = measured(written(tmp_path / "log", scribe.files())).depth
    assert distinct(depth) == [1, 51, 1, 3]


def test_a_log_of_one_moment_has_one_step(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    scribe.write(put(1, b""), put(2, b""), delete(1))
    depth = measured(written(tmp_path / "log", scribe.files())).depth
    assert (depth.jobs, depth.step_s) == ([2], 0)


def test_jobs_from_before_the_log_begins_are_counted_in(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.COPY, 1, body=b""), image(Kind.COPY, 2, body=b""))
    scribe.now_ns += NS
    scribe.write(put(3, b""), delete(1))
    scribe.now_ns += NS
    scribe.write(delete(2))
    depth = measured(written(tmp_path / "log", scribe.files())).depth
    assert distinct(depth) == [2, 3, 2]


def test_the_moments_that_are_told_have_a_limit(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 20)
    for n in range(1, BUCKETS + 50):
        scribe.now_ns += NS
        scribe.write(put(n, b""))
    depth = measured(written(tmp_path / "log", scribe.files())).depth
    assert len(depth.jobs) == BUCKETS
    assert depth.jobs[-1] == BUCKETS + 49
    assert depth.jobs == sorted(depth.jobs)


@pytest.mark.parametrize(
    ("jobs", "width", "bars"),
    [([], 10, ""), ([0, 0], 10, "▁▁"), ([7, 0], 10, "█▁"), ([0, 1, 2, 3, 4, 5, 6, 7], 8, BARS),
     ([0, 7, 0, 0], 2, "█▁"), ([10**9], 5, "█")],
)  # fmt: skip
def test_a_chart_shows_the_most_of_each_time(jobs: list[int], width: int, bars: str) -> None:
    assert chart(Depth(0, 0, jobs), width) == bars


def test_what_compaction_would_leave_is_near_what_it_leaves(tmp_path: Path) -> None:
    from binlog_tools.logs.new_log import NewLog, Origin
    from binlog_tools.logs.stored import loaded_jobs

    path = written(tmp_path / "log", Conversation(3).say(60).files)
    stats = measured(path)
    survey = open_source(str(path)).survey()
    with NewLog(str(tmp_path / "new"), Origin("compact")) as log:
        for job in loaded_jobs(survey, survey.small.time_ns):
            log.add(job)
        left = log.finish().bytes
    assert abs(stats.compacted - left) < 400


@pytest.mark.parametrize("is_due", [False, True])
def test_whether_a_server_would_compact_is_told(is_due: bool, tmp_path: Path) -> None:
    """It does when the log takes more than twice what lives and two segments beside."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 13):
        scribe.write(put(n, b"x" * 1500), *([delete(n)] if is_due else []))
    assert measured(written(tmp_path / "log", scribe.files())).is_due is is_due


EVERYTHING = Selection()


def log_of(path: Path, *jobs: StoredJob) -> Loaded:
    return load(open_source(str(written(path, files_of(made(*jobs, segment_bytes=1 << 20))))))


def compared(tmp_path: Path, one: list[StoredJob], two: list[StoredJob]) -> list[Difference]:
    a, b = log_of(tmp_path / "a", *one), log_of(tmp_path / "b", *two)
    return list(compare_logs(a, b, EVERYTHING))


def test_jobs_of_one_side_only_are_told(tmp_path: Path) -> None:
    found = compared(tmp_path, [job(1), job(2), job(5), job(9)], [job(2), job(3), job(5)])
    assert found == [Difference(1, "a", {}), Difference(3, "b", {}), Difference(9, "a", {})]


CHANGES: dict[str, dict[str, object]] = {
    "tube": {"tube": b"mail"}, "state": {"state": State.BURIED}, "priority": {"priority": 5},
    "delay_s": {"delay_s": 5}, "ttr_s": {"ttr_s": 5}, "created": {"created_ns": T0 + 1},
    "reserves": {"reserves": 1}, "timeouts": {"timeouts": 1}, "releases": {"releases": 1},
    "buries": {"buries": 1}, "kicks": {"kicks": 1}, "body": {"body": b"Hello"},
    "deadline": {"deadline_ns": T0 + 10**6 * NS}, "tags": {"tags": Tags(group=b"import")},
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_that_differs_is_told(field: str, tmp_path: Path) -> None:
    (found,) = compared(tmp_path, [job(1)], [job(1)._replace(**CHANGES[field])])  # type: ignore[arg-type]
    assert found.where == "both"
    assert list(found.fields) == [field]


def test_a_field_can_be_ignored_and_jobs_chosen(tmp_path: Path) -> None:
    a = log_of(tmp_path / "a", job(1), job(2))
    b = log_of(tmp_path / "b", job(1, kicks=3, releases=1), job(2, kicks=1))
    found = compare_logs(a, b, EVERYTHING, ["kicks"])
    assert [(each.job_id, each.fields) for each in found] == [(1, {"releases": (0, 1)})]
    chosen = Selection(jobs=Numbers([Span(2, 2)]))
    assert [each.job_id for each in compare_logs(a, b, chosen)] == [2]


def test_of_bodies_size_and_checksum_are_told(tmp_path: Path) -> None:
    (found,) = compared(tmp_path, [job(1, b"hello")], [job(1, b"Hello")])
    one, two = found.fields["body"]
    assert str(one).startswith("5 bytes, CRC ")
    assert one != two
