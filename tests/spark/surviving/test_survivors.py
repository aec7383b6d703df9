"""What one segment says of the jobs that may be alive behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beanstalk_twisted.binlog.records.decoding import Record
from beanstalk_twisted.binlog.records.jobs import NEVER_NS, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    Pause,
    RememberedKey,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.logs.live_set import END, Point
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.segments.framing import Stretch
from binlog_tools.spark.surviving.live_jobs import LiveJobs
from binlog_tools.spark.surviving.notes import Note
from binlog_tools.spark.surviving.survivors import SCATTER_IDS, last_of, survivors
from tests.binlog.scribe import NS, T0, delete, flipped, image, put
from tests.spark.histories import segment_of
from tests.spark.segments.test_decoding import place_of

TUBE = TubeDef(1, b"default", T0)


def share_of(folder: Path, raw: bytes) -> Share:
    """A segment in a file."""
    path = folder / "segment.tql"
    path.write_bytes(raw)
    place = place_of(raw)._replace(path=str(path))
    stretch = Stretch(SEGMENT_HEADER_BYTES, len(raw), place.header.first_lsn)
    return Share(place, stretch, len(raw))


def found(folder: Path, *batches: list[Record], point: Point = END, rec_size: int = 80) -> Any:
    """The rows of a segment of these frames."""
    raw = segment_of(batches, first_lsn=10, seq=3, rec_size=rec_size)
    return survivors(share_of(folder, raw), point).to_pylist()


def note_of(rows: list[dict[str, Any]]) -> Note:
    """The only one."""
    (text,) = (row["note"] for row in rows if row["note"] is not None)
    return Note.decode(text)


@pytest.mark.parametrize("far", [1, SCATTER_IDS - 1, SCATTER_IDS, 1 << 62])
def test_each_id_is_found_where_it_stands_last(far: int) -> None:
    ids = np.array([5, 7, 5, 5 + far, 7, 6, 5 + far])
    assert last_of(ids).tolist() == sorted(
        {int(each): place for place, each in enumerate(ids)}.values(),
        key=lambda place: int(ids[place]),
    )
    assert last_of(ids[:0]).tolist() == []


def test_what_was_put_and_deleted_within_is_left_out(tmp_path: Path) -> None:
    rows = found(tmp_path, [TUBE, put(1), put(2)], [delete(1)], [delete(7)])
    assert [(row["job"], row["image"] is None) for row in rows[1:]] == [(2, False), (7, True)]


def test_the_deletion_of_a_job_that_was_only_stated_again_here_stays(tmp_path: Path) -> None:
    rows = found(tmp_path, [image(Kind.COPY, 1, body=b"x"), delete(1)])
    assert [(row["job"], row["image"], row["full"]) for row in rows[1:]] == [(1, None, None)]


@pytest.mark.parametrize("rec_size", [80, 83, 88])
def test_a_job_has_its_newest_record_and_the_place_of_its_body(
    tmp_path: Path, rec_size: int
) -> None:
    buried = image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0 + 5)
    rows = found(tmp_path, [TUBE, put(2, b"other"), put(1, b"first")], [buried], rec_size=rec_size)
    job = next(row for row in rows if row["job"] == 1)
    assert (job["lsn"], job["body_lsn"], job["body_segment"], job["body_bytes"]) == (13, 12, 3, 5)
    assert (job["image"][0], job["full"][0]) == (Kind.BURY, Kind.PUT)
    raw = (tmp_path / "segment.tql").read_bytes()
    assert raw[job["body_at"] : job["body_at"] + 5] == b"first"


def test_a_change_of_a_job_of_an_earlier_segment_has_no_body(tmp_path: Path) -> None:
    (_, row) = found(tmp_path, [image(Kind.TOUCH, 4, state=State.RESERVED)])
    assert row["job"] == 4 and row["image"][0] == Kind.TOUCH
    assert [row[name] for name in ("body_lsn", "full", "body_segment", "body_at")] == [None] * 4


def test_the_note_says_all_that_is_not_of_a_job(tmp_path: Path) -> None:
    raw: list[Record] = [TUBE, TubeDef(9, b"raw\xff", T0), Pause(9, 60, T0 + NS, T0, Reason.CLIENT)]
    note = note_of(found(tmp_path, raw, [Trim(2, T0), Start(T0, 40, 10, 0), put(6)], [put(8)]))
    assert note == Note(
        3, 10, 17, 16, 40, 2, T0 + 2, 7, {1: b"default", 9: b"raw\xff"}, {9: (60, T0 + NS)}, ()
    )


@pytest.mark.parametrize(
    ("point", "jobs", "next_lsn"),
    [
        (END, [1, 2, 3], 13), (Point(lsn=12), [1, 2, 3], 13), (Point(lsn=11), [1, 2], 12),
        (Point(lsn=10), [1], 11), (Point(time_ns=T0), [1, 2], 12), (Point(time_ns=T0 - 1), [], 10),
    ],
)  # fmt: skip
def test_what_comes_behind_the_point_does_not_count(
    tmp_path: Path, point: Point, jobs: list[int], next_lsn: int
) -> None:
    rows = found(tmp_path, [put(1), put(2)], [put(3)], point=point)
    assert [row["job"] for row in rows[1:]] == jobs
    assert note_of(rows).next_lsn == next_lsn


def test_damage_is_an_error_with_its_place_or_is_noted(tmp_path: Path) -> None:
    raw = segment_of([[put(1)], [put(2)], [put(3)]])
    second = raw.index(b"\xb5TQF", SEGMENT_HEADER_BYTES + 8)
    share = share_of(tmp_path, flipped(raw, second + 70))
    with pytest.raises(SourceError, match=rf"^\[BINLOG_DAMAGED\] .*: frame at byte {second}: .*"):
        survivors(share)
    rows = survivors(share, damage="skip").to_pylist()
    assert [row["job"] for row in rows[1:]] == [1, 3]
    (what,) = note_of(rows).damages
    assert f"byte {second}" in what and "(LSN 2 to 2)" in what


def test_a_note_comes_through_spark_as_it_was() -> None:
    note = Note(1, 2, 3, 4, 5, 6, 7, 8, {1: bytes(range(1, 201))}, {2: (3, -4)}, ("a", "b"))
    assert Note.decode(note.encode()) == note


def test_a_note_with_keys_and_policies_comes_through_spark_as_it_was() -> None:
    keys = (RememberedKey(1, b"raw\xff", 7, T0 + NS, T0),)
    note = Note(1, 2, 3, 4, 5, 6, 7, 8, {}, {}, (), {1: b'{"max-jobs":"9"}'}, keys)
    assert Note.decode(note.encode()) == note


def test_what_is_remembered_is_what_was_said_last(tmp_path: Path) -> None:
    def key(until_ns: int) -> RememberedKey:
        return RememberedKey(1, b"key", 7, until_ns, T0)

    one = segment_of([[TUBE, key(T0 + 9 * NS), TubePolicy(1, {"max-jobs": "9"}, T0)]], seq=1)
    raw = segment_of([[key(T0 + 5 * NS), TubePolicy(1, {"rate": "2"}, T0)]], first_lsn=4, seq=2)
    live = LiveJobs([survivors(share_of(tmp_path, each)) for each in (one, raw)])
    (found,) = live.keys(T0)
    assert (found.tube, found.key, found.until_ns) == (b"default", b"key", T0 + 5 * NS)
    assert list(live.keys(T0 + 5 * NS)) == []
    (policy,) = live.policies()
    assert (policy.tube, dict(policy.rules)) == (b"default", {"rate": "2"})


def test_a_damaged_key_is_an_error_or_is_noted(tmp_path: Path) -> None:
    raw = segment_of([[TUBE, RememberedKey(1, b"remembered", 7, T0 + NS, T0)]])
    share = share_of(tmp_path, flipped(raw, raw.index(b"remembered")))
    with pytest.raises(SourceError, match=r"^\[BINLOG_DAMAGED\] .*LSN 2: the checksum"):
        survivors(share)
    note = note_of(survivors(share, damage="skip").to_pylist())
    assert note.keys == () and len(note.damages) == 1


def test_a_job_has_what_its_newest_full_record_says(tmp_path: Path) -> None:
    tags = Tags(b"key", group=b"night", after=b"day")
    waits = put(1, tags=tags, state=State.DELAYED, deadline_ns=NEVER_NS)
    moved = tags._replace(dead_from=b"default", dead_reason=10, dead_at_ns=5, origin=b"default")
    buried = {"state": State.BURIED, "deadline_ns": T0 + 5, "tube_id": 2}
    raw = segment_of([
        [waits, put(2, tags=tags), put(3)],
        [image(Kind.MOVE, 2, ts_ns=T0 - NS, body=b"same", tags=moved, **buried)],
        [image(Kind.UPDATE, 3, body=b"another", priority=1), image(Kind.BURY, 3, **buried)],
    ])  # fmt: skip
    share = share_of(tmp_path, raw)
    loaded = {}
    for job in LiveJobs([survivors(share)]):
        data = raw[job.at : job.at + job.size]
        loaded[job.job_id] = job.as_loaded(data, T0)
    assert (loaded[1].deadline_ns, loaded[1].tags) == (NEVER_NS, tags)
    assert (loaded[2].tube_id, loaded[2].ts_ns, loaded[2].body) == (2, T0 - NS, b"same")
    assert (loaded[2].state, loaded[2].tags) == (State.BURIED, moved)
    assert (loaded[3].body, loaded[3].state, loaded[3].tags) == (b"another", State.BURIED, None)


def test_batches_may_come_in_any_order(tmp_path: Path) -> None:
    first = survivors(share_of(tmp_path, segment_of([[put(1), put(2)]], first_lsn=1, seq=1)))
    raw = segment_of([[delete(1), image(Kind.BURY, 2, state=State.BURIED)]], first_lsn=3, seq=2)
    second = survivors(share_of(tmp_path, raw))
    for batches in ([first, second], [second, first]):
        live = LiveJobs(batches)
        assert [note.seq for note in live.notes] == [1, 2]
        (job,) = live
        assert (job.job_id, job.image[0], job.seq) == (2, Kind.BURY, 1)


def test_a_job_is_what_a_server_would_load(tmp_path: Path) -> None:
    far = image(Kind.RELEASE, 1, state=State.DELAYED, delay_s=5, deadline_ns=T0 + 100 * NS)
    held = image(Kind.RESERVE, 2, state=State.RESERVED, deadline_ns=T0 + NS, reserves=1)
    raw = segment_of([[put(1, ts_ns=T0 - NS), put(2)], [far, held]])
    delayed, reserved = LiveJobs([survivors(share_of(tmp_path, raw))])
    job = delayed.as_loaded(b"hello", T0)
    # No delay is longer than it was asked for, whatever the clock did.
    assert (job.state, job.deadline_ns) == (State.DELAYED, T0 + 5 * NS)
    assert (job.ts_ns, job.body) == (T0 - NS, b"hello")
    job = reserved.as_loaded(b"", T0)
    assert (job.state, job.deadline_ns, job.reserves) == (State.READY, 0, 1)
