"""The jobs of a log, now and at each earlier moment, held against the queue that wrote it."""

from functools import cache
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Start
from beanstalk_twisted.binlog.tags import EXTENSIONS, Tags
from binlog_tools.inspect.listing import PastJobs, body_of, chosen_jobs, fields_of_job, history_of
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.opening import load, open_source
from binlog_tools.logs.stored import Selection, StoredJob
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    MS,
    NS,
    T0,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    image,
    put,
)
from tests.storage.test_opening import Started
from tests.tools.conversation import Conversation, Spoken, seen
from tests.tools.folders import archived, written

EVERYTHING = Selection()
ONE = f"{1:020d}.tql"


@cache
def spoken(seed: int, with_compaction: bool = False) -> Spoken:
    return Conversation(seed, with_compaction).say(60)


def as_seen(job: StoredJob, size: int) -> tuple[object, ...]:
    counts = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
    assert size == len(job.body)
    return (job.tube, job.state, job.priority, job.delay_s, job.ttr_s, counts, job.body)


def past(path: Path, point: Point) -> dict[int, tuple[object, ...]]:
    found = PastJobs(open_source(str(path)), point).jobs(EVERYTHING, with_bodies=True)
    return {job.job_id: as_seen(job, size) for job, size in found}


@pytest.mark.parametrize("with_compaction", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_are_those_a_server_loads(seed: int, with_compaction: bool, tmp_path: Path) -> None:
    conversation = Conversation(seed, with_compaction)
    path = written(tmp_path / "log", conversation.say(60).files)
    now_ns = T0 + 100_000 * NS
    found = chosen_jobs(load(open_source(str(path)), wall_ns=now_ns), EVERYTHING)
    ours = {job.job_id: as_seen(job, len(job.body)) for job in found}
    server = Started(conversation.directory, now_ns=now_ns)
    server.queue.tick(now_ns)
    assert ours == seen(server)
    assert len(ours) > 20


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_at_each_moment_the_jobs_are_those_that_were_there(seed: int, tmp_path: Path) -> None:
    story = spoken(seed)
    path = written(tmp_path / "log", story.files)
    for lsn in sorted(story.snapshots)[::4]:
        assert past(path, Point(lsn=lsn)) == story.snapshots[lsn], lsn
        by_time = PastJobs(open_source(str(path)), Point(time_ns=story.times[lsn]))
        found = by_time.jobs(EVERYTHING, with_bodies=True)
        assert {job.job_id: as_seen(job, size) for job, size in found} == story.snapshots[lsn]
        assert {tube: pause.until_ns for tube, pause in by_time.pauses()} == {
            tube: until
            for tube, until in story.pauses[lsn].items()
            if until > story.times[lsn]
        }  # fmt: skip


@pytest.mark.parametrize("seed", [4, 5])
def test_an_archive_tells_of_every_moment(seed: int, tmp_path: Path) -> None:
    story = spoken(seed, with_compaction=True)
    assert story.archive.keys() - story.files.keys()
    root = archived(tmp_path / "archive", story.archive)
    for lsn in sorted(story.snapshots)[::5]:
        assert past(root, Point(lsn=lsn)) == story.snapshots[lsn], lsn


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_a_compacted_log_tells_nothing_false_of_the_past(seed: int, tmp_path: Path) -> None:
    story = spoken(seed, with_compaction=True)
    path = written(tmp_path / "log", story.files)
    told = 0
    for lsn in sorted(story.snapshots)[::3]:
        try:
            at = PastJobs(open_source(str(path)), Point(lsn=lsn))
        except Damaged as refusal:
            assert "the log begins with LSN" in str(refusal)
            continue
        found = {
            job.job_id: as_seen(job, size) for job, size in at.jobs(EVERYTHING, with_bodies=True)
        }
        assert found.items() <= story.snapshots[lsn].items()
        assert len(found) + at.unknown == len(story.snapshots[lsn])
        told += 1
    assert told > 2


@pytest.mark.parametrize(
    ("delay_s", "reserves", "has_start", "seconds", "is_told"),
    [(0, 0, False, 0, True), (30, 0, False, 0, False), (30, 0, False, 29, False),
     (30, 0, False, 30, True), (0, 1, False, 0, True), (0, 1, True, 0, False),
     (0, 0, True, 0, True)],
)  # fmt: skip
def test_a_copy_of_a_ready_job_tells_nothing_of_when_it_may_have_been_delayed_or_reserved(
    delay_s: int, reserves: int, has_start: bool, seconds: int, is_told: bool, tmp_path: Path
) -> None:
    """A delay ends without a record, and so does a reservation when a server starts."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.now_ns += seconds * NS - MS
    scribe.write(put(1))
    scribe.now_ns += 100 * NS
    if has_start:
        scribe.write(Start(scribe.now_ns, 3, 2, 0))
    scribe.write(image(Kind.COPY, 2, body=b"two", delay_s=delay_s, reserves=reserves))
    path = written(tmp_path / "log", scribe.files())
    at = PastJobs(open_source(str(path)), Point(lsn=2))
    assert [job.job_id for job, _ in at.jobs(EVERYTHING, with_bodies=False)] == (
        [1, 2] if is_told else [1]
    )
    assert at.unknown == (not is_told)


@pytest.mark.parametrize("before", [[], [image(Kind.RELEASE, 2)]])
@pytest.mark.parametrize("kind", [Kind.MOVE, Kind.UPDATE])
def test_a_job_was_another_before(kind: Kind, before: list[JobImage], tmp_path: Path) -> None:
    scribe = Scribe(
        position=FIRST._replace(first_lsn=100), opening=[DEFAULT_TUBE],
        features=EXTENSIONS,
    )  # fmt: skip
    scribe.write(put(1), *before)
    scribe.now_ns += 100 * NS
    scribe.write(image(kind, 2, body=b"changed"))
    scribe.write(image(Kind.COPY, 2, body=b"changed"))
    source = open_source(str(written(tmp_path / "log", scribe.files())))
    at = PastJobs(source, Point(time_ns=T0 + 50 * NS))
    assert [job.job_id for job, _ in at.jobs(EVERYTHING, with_bodies=False)] == [1]
    assert at.unknown == 1
    at = PastJobs(source, END)
    assert [job.body for job, _ in at.jobs(EVERYTHING, with_bodies=True)] == [b"hello", b"changed"]


def test_a_point_before_the_log_is_refused(tmp_path: Path) -> None:
    scribe = Scribe(position=FIRST._replace(first_lsn=100), opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    path = written(tmp_path / "log", scribe.files())
    with pytest.raises(Damaged, match="the log begins with LSN 100, behind that point"):
        past(path, Point(time_ns=T0 - NS))
    first = written(tmp_path / "first", spoken(1).files)
    assert past(first, Point(time_ns=T0 - NS)) == {}, "nothing comes before LSN 1"


def test_the_fields_of_a_job_say_what_is_left_and_how_old_it_is() -> None:
    job = StoredJob(7, b"mail", State.DELAYED, 5, 90, 60, T0, T0 + 90 * NS, b"body", 1, 2, 3, 4, 5)
    assert fields_of_job(job, 4, T0 + 30 * NS) == {
        "job": 7, "tube": "mail", "state": "delayed", "priority": 5, "delay_s": 90, "ttr_s": 60,
        "created": "2025-11-20T12:00:00.000000000Z", "age_s": 30,
        "deadline": "2025-11-20T12:01:30.000000000Z", "left_s": 60, "reserves": 1, "timeouts": 2,
        "releases": 3, "buries": 4, "kicks": 5, "bytes": 4, "tags": None,
    }  # fmt: skip


def words_of(path: Path, job_id: int, now_ns: int = T0) -> list[str]:
    """What is told of a job, and how it ends."""
    story = history_of(open_source(str(path)), job_id, now_ns)
    return [*(event.what for event in story.events), story.ending]


def test_all_that_happened_to_a_job_is_told() -> None:
    told = words_of(GOLDEN / "v1-every-kind", 7)
    assert [words.split()[0] for words in told] == [
        "put", "reserved", "touched", "released", "kicked", "its", "its", "deleted", "gone",
    ]  # fmt: skip
    assert told[0] == ("put into default by connection 7, ready: priority 1024, TTR 60 s, 5 bytes")
    told = words_of(GOLDEN / "v1-every-kind", 8, T0 + 65 * NS)
    assert told[-1] == "buried for 1m5s"


def test_a_reservation_that_a_start_has_ended_is_told(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    held = {"state": State.RESERVED, "deadline_ns": T0 + 60 * NS}
    scribe.write(put(1), put(2), image(Kind.RESERVE, 1, **held))
    directory = scribe.directory
    before = written(tmp_path / "before", scribe.files())
    assert words_of(before, 1)[-1] == "reserved; a server that starts now has it ready"
    Started(directory)  # type: ignore[arg-type]
    after = written(tmp_path / "after", files_of(directory))
    assert words_of(after, 1)[2:] == ["a server started; ready again", "ready for 0ms"]
    assert len(words_of(after, 2)) == 2
    assert past(after, END)[1][1] is State.READY


def test_an_expired_job_is_told_apart_from_a_deleted_one(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1), put(2), delete(1, reason=Reason.EXPIRED, connection=0), delete(2))
    path = written(tmp_path / "log", scribe.files())
    assert words_of(path, 1)[1] == "deleted: older than the max-age of its tube"
    assert words_of(path, 2)[1] == "deleted by connection 7"


def test_a_kicked_dead_letter_is_told_apart_from_a_moved_job(tmp_path: Path) -> None:
    dead = Tags(dead_from=b"default", dead_reason=Reason.EXPIRED, dead_at_ns=T0)
    moved = {"body": b"hello", "tags": dead, "state": State.BURIED}
    scribe = Scribe(opening=[DEFAULT_TUBE], features=EXTENSIONS)
    scribe.write(put(1), image(Kind.MOVE, 1, deadline_ns=T0, **moved))
    scribe.write(image(Kind.MOVE, 1, deadline_ns=T0 + NS, **moved))
    scribe.write(image(Kind.MOVE, 1, body=b"hello", kicks=1), image(Kind.MOVE, 1, body=b"hello"))
    path = written(tmp_path / "log", scribe.files())
    assert words_of(path, 1)[1:-1] == [
        "a dead letter of default, reason expired: buried in default",
        "moved into default by connection 7, buried",
        "a dead letter no more: kicked by connection 7 into default, ready; its attempts begin "
        "anew",
        "moved into default by connection 7, ready",
    ]


def test_state_without_a_body_and_a_delay_that_is_over_are_told(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.KICK, 9), put(1, state=State.DELAYED, deadline_ns=T0 + NS))
    path = written(tmp_path / "log", scribe.files())
    assert words_of(path, 9)[-1].startswith("alive, but the log has no body")
    assert words_of(path, 1, T0 + NS)[-1] == "ready, its delay is over"


def test_behind_damage_the_story_goes_on_and_the_place_is_told(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(image(Kind.RESERVE, 1, state=State.RESERVED))
    scribe.write(delete(1))
    files = edited(scribe.files(), ONE, lambda raw: flipped(raw, 4400))
    story = history_of(open_source(str(written(tmp_path / "log", files))), 1, T0)
    assert [event.entry.raw[0] for event in story.events] == [Kind.PUT, Kind.DELETE]
    assert [gap.first_lsn for gap in story.gaps] == [3]


@pytest.mark.parametrize(
    ("job_id", "body"), [(7, b"hello"), (8, b""), (9, bytes(range(256))), (99, None)]
)
def test_bodies_of_living_and_of_deleted_jobs_are_given(job_id: int, body: bytes | None) -> None:
    assert body_of(open_source(str(GOLDEN / "v1-every-kind")), job_id) == body
