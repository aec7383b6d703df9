"""Deleted jobs whose bodies are still there."""

import json
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import TubeDef
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import LOST_AND_FOUND, Selection
from binlog_tools.rewrite.undeleting import Deleted, find_deleted, into_files, into_log, restored
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    MS,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
)
from tests.tools.conversation import Conversation, Spoken
from tests.tools.folders import archived, written
from tests.tools.rewrite.test_rewriting import LATER
from tests.tools.salvage.damaging import batches_of
from tests.tools.served import served, started_on

ONE = f"{1:020d}.tql"


def found_in(path: Path, selection: Selection = Selection()) -> Deleted:  # noqa: B008
    return find_deleted(open_source(str(path)), selection)


def deletions(spoken: Spoken) -> dict[int, tuple[object, ...]]:
    """Each deleted job as it was last seen, by all that was ever said."""
    ever: dict[int, tuple[object, ...]] = {}
    for lsn in sorted(spoken.snapshots):
        ever.update(spoken.snapshots[lsn])
    return {n: job for n, job in ever.items() if n not in spoken.last}


@pytest.mark.parametrize("name", [b"", b"x" * 201])
def test_a_job_whose_tube_has_no_name_comes_back_too(tmp_path: Path, name: bytes) -> None:
    scribe = Scribe(opening=[TubeDef(1, name, T0)])
    scribe.write(put(1), delete(1))
    path = written(tmp_path / "log", scribe.files())
    [(_, job)] = restored(open_source(str(path)), found := found_in(path))
    assert (job.tube, job.body) == (LOST_AND_FOUND, b"hello")
    assert into_log(open_source(str(path)), found, str(tmp_path / "out")).jobs == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_job_that_was_deleted_comes_back_with_its_body(seed: int, tmp_path: Path) -> None:
    spoken = Conversation(seed).say(60)
    path = written(tmp_path / "log", spoken.files)
    deleted = found_in(path)
    gone = deletions(spoken)
    found = {job.job_id: (job.tube, job.body) for _, job in restored(open_source(str(path)),
                                                                   deleted)}  # fmt: skip
    assert len(gone) > 5
    # One that is put and deleted between two looks was never seen.
    assert {n: (job[0], job[6]) for n, job in gone.items()}.items() <= found.items()
    assert not found.keys() & spoken.last.keys()
    assert deleted.without_body == 0


def test_what_compaction_has_deleted_is_counted_and_in_the_archive(tmp_path: Path) -> None:
    spoken = Conversation(4, with_compaction=True).say(60)
    path = written(tmp_path / "log", spoken.files)
    deleted = found_in(path)
    root = archived(tmp_path / "archive", spoken.archive)
    everything = found_in(root)
    assert everything.without_body == 0
    assert len(everything.jobs) > len(deleted.jobs)
    ids = {job.job_id for job in everything.jobs}
    assert deletions(spoken).keys() <= ids


def small_log() -> Scribe:
    from beanstalk_twisted.binlog.records.others import TubeDef

    scribe = Scribe(opening=[DEFAULT_TUBE, TubeDef(2, b"mail", T0)])
    scribe.write(put(1, b"one"), put(2, b"two", tube_id=2), put(3, b"three"), put(4, b"four"))
    scribe.write(image(Kind.RESERVE, 1, state=State.RESERVED, deadline_ns=T0 + NS, reserves=1),
                 delete(1))  # fmt: skip
    scribe.write(image(Kind.BURY, 2, state=State.BURIED, deadline_ns=T0 + 5, tube_id=2))
    scribe.write(delete(2, tube_id=2))
    scribe.write(delete(3), delete(99))
    return scribe


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (Selection(), [1, 2, 3]), (Selection(since_ns=T0 + 3 * MS), [2, 3]),
        (Selection(until_ns=T0 + 5 * MS), [1, 2]), (Selection(tubes=frozenset({b"mail"})), [2]),
        (Selection(jobs=Numbers([Span(2, 3)])), [2, 3]), (Selection(lsns=Span(8, 8)), [1]),
        (Selection(since_ns=T0 + 10 * MS), []),
    ],
)  # fmt: skip
def test_deletions_are_chosen(chosen: Selection, ids: list[int], tmp_path: Path) -> None:
    path = written(tmp_path / "log", small_log().files())
    assert [job.job_id for job in found_in(path, chosen).jobs] == ids


def test_jobs_come_back_as_they_were_but_nobody_has_them_reserved(tmp_path: Path) -> None:
    path = written(tmp_path / "log", small_log().files())
    source = open_source(str(path))
    jobs = [job for _, job in restored(source, found_in(path))]
    assert [(job.job_id, job.state, job.deadline_ns) for job in jobs] == [
        (1, State.READY, 0), (2, State.BURIED, T0 + 5), (3, State.READY, 0),
    ]  # fmt: skip
    assert jobs[0].reserves == 1


def test_a_log_of_them_can_be_served(tmp_path: Path) -> None:
    path = written(tmp_path / "log", small_log().files())
    log = into_log(open_source(str(path)), found_in(path), str(tmp_path / "new"))
    assert log.jobs == 3
    assert {n: job[6] for n, job in served(tmp_path / "new", LATER).items()} == {
        1: b"one", 2: b"two", 3: b"three",
    }  # fmt: skip
    assert started_on(tmp_path / "new", LATER).queue.state.next_job_id == 5
    assert log.first_lsn == open_source(str(path)).survey().segments[-1].ending.next_lsn


def test_behind_damage_one_goes_on_and_it_is_told(tmp_path: Path) -> None:
    files = small_log().files()
    at = files[ONE].index(b"four")
    path = written(tmp_path / "log", edited(files, ONE, lambda raw: flipped(raw, at)))
    deleted = found_in(path)
    assert [gap.first_lsn for gap in deleted.gaps] == [1]
    assert (deleted.jobs, deleted.without_body) == ([], 4)
    header = written(tmp_path / "two", edited(files, ONE, lambda raw: flipped(raw, 9)))
    assert found_in(header).gaps[0].offset == 0


def test_an_older_body_does_not_come_back_for_a_damaged_one(tmp_path: Path) -> None:
    log = Scribe(opening=[DEFAULT_TUBE])
    log.write(put(1, b"old"), put(2, b"old"), put(3, b"same body"))
    log.write(
        put(1, b"new body")._replace(kind=Kind.UPDATE),
        put(2, b"another")._replace(kind=Kind.UPDATE),
        put(3, b"same body")._replace(kind=Kind.COPY),
    )
    log.write(delete(1), delete(2), delete(3))
    files = edited(log.files(), ONE, lambda raw: flipped(raw, raw.index(b"new body")))
    files = edited(files, ONE, lambda raw: flipped(raw, raw.rindex(b"same body")))
    path = written(tmp_path / "log", files)
    deleted = found_in(path)
    bodies = {job.job_id: job.body for _, job in restored(open_source(str(path)), deleted)}
    assert (bodies, deleted.without_body) == ({2: b"another", 3: b"same body"}, 1)
    assert len(deleted.gaps) == 1


TWO, THREE = (f"{number:020d}.tql" for number in (2, 3))
BURIED = image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0 + 5)


def changed_log(*hidden: JobImage, is_sealed: bool) -> Scribe:
    """A job in segment 1, which records of segment 2 change; segment 3 has its later records.

    :param hidden: what stands in segment 2, in a frame of its own.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"pay 100 to alice"))
    scribe.end_segment()
    scribe.write(put(2))
    scribe.write(*hidden)
    if is_sealed:
        scribe.end_segment()
    scribe.write(BURIED)
    scribe.write(delete(1))
    return scribe


def with_spoilt_frame(scribe: Scribe, name: str, at: int) -> Files:
    files = scribe.files()
    frame = batches_of(files, name)[at]
    start, end = frame["offset"], frame["offset"] + frame["frame_len"]
    return edited(files, name, lambda raw: raw[:start] + bytes(end - start) + raw[end:])


NEWER = put(1, b"pay 999 to bobby")._replace(kind=Kind.UPDATE)


@pytest.mark.parametrize("kind", [Kind.UPDATE, Kind.MOVE])
def test_a_body_that_damage_may_have_changed_is_doubtful(kind: Kind, tmp_path: Path) -> None:
    scribe = changed_log(NEWER._replace(kind=kind), is_sealed=True)
    path = written(tmp_path / "log", with_spoilt_frame(scribe, TWO, 1))
    [found] = found_in(path).jobs
    assert found.doubt is not None
    assert (found.doubt.why, found.doubt.is_outdated) == ("outdated?", True)
    [(_, job)] = restored(open_source(str(path)), found_in(path))
    assert (job.body, job.state) == (b"pay 100 to alice", State.BURIED)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_only_a_seal_proves_a_body(is_sealed: bool, tmp_path: Path) -> None:
    scribe = changed_log(image(Kind.KICK, 1), is_sealed=is_sealed)
    path = written(tmp_path / "log", with_spoilt_frame(scribe, TWO, 1))
    [found] = found_in(path).jobs
    assert (found.doubt is None) == is_sealed


def test_a_missing_segment_may_have_changed_a_body_and_is_told(tmp_path: Path) -> None:
    files = changed_log(NEWER, is_sealed=True).files()
    path = written(tmp_path / "log", {n: raw for n, raw in files.items() if n != TWO})
    deleted = found_in(path)
    assert [each.doubt and each.doubt.why for each in deleted.jobs] == ["outdated?"]
    assert [(gap.segment, gap.why) for gap in deleted.gaps] == [(TWO, "the segment is missing")]


def test_a_state_that_damage_may_have_changed_is_doubtful(tmp_path: Path) -> None:
    """The record before the deletion cannot be read; the seal counts no other body."""
    scribe = changed_log(image(Kind.KICK, 1), is_sealed=True)
    scribe.write(put(3))
    scribe.end_segment()
    path = written(tmp_path / "log", with_spoilt_frame(scribe, THREE, 0))
    [found] = found_in(path).jobs
    assert found.doubt is not None
    assert (found.doubt.why, found.doubt.is_outdated) == ("changed?", False)


def test_records_beside_a_damaged_body_count(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1), put(2))
    scribe.write(BURIED, put(2, b"another")._replace(kind=Kind.UPDATE), delete(2))
    scribe.write(delete(1))
    files = edited(scribe.files(), ONE, lambda raw: flipped(raw, raw.index(b"another")))
    path = written(tmp_path / "log", files)
    deleted = found_in(path)
    assert [(each.job_id, each.doubt) for each in deleted.jobs] == [(1, None)]
    [(_, job)] = restored(open_source(str(path)), deleted)
    assert (job.state, deleted.without_body) == (State.BURIED, 1)


def test_bodies_as_files_have_an_index(tmp_path: Path) -> None:
    path = written(tmp_path / "log", small_log().files())
    folder = tmp_path / "bodies"
    assert into_files(open_source(str(path)), found_in(path), str(folder)) == 3
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    assert [entry["job"] for entry in index] == [1, 2, 3]
    for entry, body in zip(index, (b"one", b"two", b"three"), strict=True):
        assert (folder / entry["file"]).read_bytes() == body
        assert entry["v"] == 1
    with pytest.raises(OSError, match="name a new directory"):
        into_files(open_source(str(path)), found_in(path), str(folder))
