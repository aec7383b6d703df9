"""Following logs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.following.logs import LAG_KEY, NOT_BEHIND, Bookmarks, Log
from binlog_tools.spark.reading.finding import Seen, find
from binlog_tools.spark.reading.options import Streamed
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    MS,
    T0,
    UUID,
    Scribe,
    delete,
    put,
    segment_files,
)
from tests.sampling import one_in
from tests.spark.expected import rows_of
from tests.spark.following.living import COLUMNS, Folders, Query, lsns, remove
from tests.storage.test_opening import Started
from tests.tools.conversation import Conversation

ALL = {"records": "all", "copies": "keep"}
STORE = UUID.hex()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "one")


def begun(folders: Folders, **fields: Any) -> Scribe:
    scribe = Scribe(opening=[DEFAULT_TUBE], **fields)
    scribe.write()
    folders.show(scribe.files())
    return scribe


def settle(folders: Folders, scribe: Scribe) -> None:
    """All is durable, and shown."""
    scribe.mark()
    folders.show(scribe.files())


def long(folders: Folders, count: int = 60, archives: bool = True) -> Scribe:
    scribe = begun(folders)
    for number in range(count):
        scribe.write(put(number + 1, b"x" * 300))
    settle(folders, scribe)
    if archives:
        folders.deliver(scribe.files())
    return scribe


# What is durable.


def test_a_record_is_given_when_a_later_frame_says_that_it_is_durable(folders: Folders) -> None:
    scribe = begun(folders)
    query = Query(folders.live)
    scribe.write(put(1))
    folders.show(scribe.files())
    assert lsns(query.run()) == []
    scribe.write(put(2))
    folders.show(scribe.files())
    assert lsns(query.run()) == [2]
    settle(folders, scribe)
    assert lsns(query.run()) == [3]
    assert query.run() == []


def test_a_frame_that_is_half_written_is_waited_for(folders: Folders) -> None:
    scribe = begun(folders)
    query = Query(folders.live)
    before = scribe.files()
    scribe.write(put(1, b"y" * 400))
    scribe.mark()
    (name,) = before
    whole = scribe.files()[name]
    used = len(before[name].rstrip(b"\0"))
    for cut in range(used + 8, len(whole.rstrip(b"\0")), 97):
        folders.show({name: whole[:cut].ljust(len(whole), b"\0")})
        assert query.run() == []
    folders.show({name: whole})
    assert lsns(query.run()) == [2]


def test_an_ordered_stop_leaves_nothing_unread(folders: Folders) -> None:
    scribe = begun(folders)
    scribe.write(put(1))
    scribe.finish()
    folders.show(scribe.files())
    assert lsns(Query(folders.live).run()) == [2]
    assert [row["event"] for row in Query(folders.live, ALL).run()][-2:] == ["clean-stop", "seal"]


@pytest.mark.parametrize("frame_bytes", [100, 300_000, 700_000])
def test_frames_larger_than_what_is_read_at_once_are_followed(
    folders: Folders, frame_bytes: int
) -> None:
    scribe = begun(folders, segment_bytes=1 << 22)
    query = Query(folders.live)
    for number in range(3):
        scribe.write(put(number + 1, b"z" * frame_bytes))
        folders.show(scribe.files())
        query.run()
    settle(folders, scribe)
    query.run()
    assert lsns(query.rows) == [2, 3, 4]


# Rotation, archive, trimming.


@pytest.mark.parametrize("with_archive", [False, True])
def test_a_stream_goes_from_segment_to_segment(folders: Folders, with_archive: bool) -> None:
    scribe = begun(folders)
    options = {"archive": str(folders.archive)} if with_archive else {}
    query = Query(folders.live, options)
    for number in range(60):
        scribe.write(put(number + 1, b"x" * 300))
        folders.show(scribe.files())
        folders.deliver(scribe.files())
        if number % 7 == 0:
            query.run()
    settle(folders, scribe)
    query.run()
    assert len(scribe.files()) > 3
    assert [row["job"] for row in query.rows] == list(range(1, 61))


def test_trimmed_segments_are_read_from_the_archive(folders: Folders) -> None:
    long(folders)
    query = Query(folders.live, {"archive": str(folders.archive), "maxRowsPerTrigger": "5"})
    query.batch()
    remove(folders.live, 1)
    query.run()
    assert [row["job"] for row in query.rows] == list(range(1, 61))


def test_a_segment_that_is_moved_between_planning_and_reading_is_found(folders: Folders) -> None:
    scribe = long(folders, archives=False)
    query = Query(folders.live, {"archive": str(folders.archive)})
    start = json.loads(query.offset)
    end = query.reader.latestOffset(start, ReadAllAvailable())
    planned = query.reader.partitions(start, end)
    folders.deliver(scribe.files())
    remove(folders.live, 1)
    rows = [row for each in planned for batch in query.reader.read(each)
            for row in batch.to_pylist()]  # fmt: skip
    assert [row["job"] for row in rows] == list(range(1, 61))


def test_segments_that_are_gone_for_good_end_the_query_with_what_to_do(folders: Folders) -> None:
    long(folders, archives=False)
    query = Query(folders.live, {"maxRowsPerTrigger": "5"})
    query.batch()
    remove(folders.live, 1)
    with pytest.raises(SourceError) as raised:
        query.batch()
    said = str(raised.value)
    assert said.startswith(f"[BINLOG_TRIMMED] store {STORE}: LSN 6 to ")
    assert ".option('archive', DIR)" in said
    assert ".option('failOnDataLoss', 'false')" in said
    assert "\n" not in said


def test_whoever_tolerates_a_loss_gets_a_row_that_says_so(folders: Folders) -> None:
    long(folders, archives=False)
    query = Query(folders.live, {"maxRowsPerTrigger": "5"})
    query.batch()
    remove(folders.live, 1)
    query.restart(failOnDataLoss="false")
    rows = query.run()
    assert rows[0]["event"] == "damage"
    assert (rows[0]["server"], rows[0]["lsn"]) == (STORE, 6)
    assert "were removed before this query had read them" in rows[0]["problem"]
    assert rows[-1]["job"] == 60
    assert lsns(rows)[1:] == sorted(set(lsns(rows)[1:]))


def test_a_hole_in_the_middle_of_an_archive_is_a_loss(folders: Folders) -> None:
    long(folders)
    names = sorted((folders.archive / STORE).iterdir())
    names[1].unlink()
    query = Query(folders.archive, {"maxRowsPerTrigger": "5"})
    with pytest.raises(SourceError, match=r"\[BINLOG_TRIMMED\] store .*: LSN \d+ to"):
        query.run()
    query.restart(failOnDataLoss="false")
    assert [row["event"] for row in query.run()].count("damage") == 1


def test_a_log_that_has_vanished_ends_the_query(folders: Folders) -> None:
    long(folders, archives=False)
    query = Query(folders.live, {"maxRowsPerTrigger": "5"})
    shutil.rmtree(folders.live)
    with pytest.raises(SourceError, match=rf"\[BINLOG_NOT_FOUND\] store {STORE}: none of "):
        query.batch()


def test_another_history_is_not_taken_for_this_one(folders: Folders) -> None:
    scribe = begun(folders)
    backup = scribe.files()
    for number in range(30):
        scribe.write(put(number + 1, b"x" * 300))
    folders.show(scribe.files())
    query = Query(folders.live)
    query.run()
    folders.show(backup)
    with pytest.raises(SourceError, match=r"\[BINLOG_HISTORIES_DIFFER\] .*its newest segment is 1"):
        query.batch()
    other = Scribe(opening=[DEFAULT_TUBE])
    for number in range(40):
        other.write(put(number + 1, b"other" * 20), delete(number + 1))
    folders.show(other.files())
    with pytest.raises(SourceError, match=r"\[BINLOG_HISTORIES_DIFFER\] .*begin anew with another"):
        query.batch()


def test_another_history_with_frames_of_the_same_length_is_told_by_its_header(
    folders: Folders,
) -> None:
    one, other = (Scribe(opening=[DEFAULT_TUBE], salt=salt) for salt in (7, 70))
    for scribe in (one, other):
        for number in range(20):
            scribe.write(put(number + 1, bytes([scribe is one]) * 40))
        scribe.mark()
    folders.show(one.files())
    query = Query(folders.live)
    assert query.run()
    before = query.offset
    folders.show(other.files())
    what = r"HISTORIES_DIFFER\] .* segment \d is another one"
    with pytest.raises(SourceError, match=what):
        query.batch()
    with pytest.raises(SourceError, match=what):
        query.between(query.batches[0][0], before)


# Crashes.


def test_records_that_are_written_once_more_after_a_crash_are_given_once(folders: Folders) -> None:
    scribe = begun(folders)
    query = Query(folders.live)
    scribe.write(put(1))
    scribe.write(put(2))
    settle(folders, scribe)
    assert lsns(query.run()) == [2, 3]
    # The mark was never synced: so the next start does not know that LSN 3 is durable.
    assert isinstance(scribe.directory, MemoryDirectory)
    started = Started(scribe.directory.after_power_loss())
    started.put(started.connect(), b"new")
    started.commit()
    started.commit()
    files = segment_files(started.directory)
    assert len(files) == 2
    folders.show(files)
    end = started.log.last_lsn
    started.put(started.connect(), b"newer")
    started.commit()
    files = segment_files(started.directory)
    folders.show({name: raw + bytes(1 << 16) for name, raw in files.items()})
    start, limit = json.loads(query.offset), ReadAllAvailable()
    planned = query.reader.partitions(start, query.reader.latestOffset(start, limit))
    # The segment is sealed, and cut, before it is read.
    folders.show({name: raw.rstrip(b"\0") + bytes(8) for name, raw in files.items()})
    assert [batch for each in planned for batch in query.reader.read(each)]
    assert min(lsns(query.run())) > 3
    assert max(lsns(query.rows)) == end
    again = [query.between(start, stop) for start, stop, _ in query.batches]
    assert again == [rows for _, _, rows in query.batches]


def test_what_ended_behind_a_sync_mark_is_the_same_when_the_archive_has_cut_that_off(
    folders: Folders,
) -> None:
    scribe = begun(folders)
    query = Query(folders.live, {"archive": str(folders.archive)})
    scribe.write(put(1))
    settle(folders, scribe)
    assert lsns(query.run()) == [2]
    assert isinstance(scribe.directory, MemoryDirectory)
    started = Started(scribe.directory.after_kill())
    started.put(started.connect())
    started.commit()
    files = segment_files(started.directory)
    folders.deliver(files)
    folders.show(files)
    remove(folders.live, 1)
    assert [query.between(start, stop) for start, stop, _ in query.batches] == [
        rows for _, _, rows in query.batches
    ]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", one_in(5, range(6)))
@pytest.mark.parametrize("limit", [200, 100_000])
def test_any_history_is_given_once_through_kills_compaction_and_archiving(
    folders: Folders, seed: int, limit: int
) -> None:
    watched = Watched(seed, folders, {"maxBytesPerTrigger": str(limit)})
    watched.say(120)
    watched.end()
    query = watched.query
    found = {row["lsn"]: row for row in query.rows}
    assert len(found) == len(query.rows) > 200
    expected = [
        {name: row[name] for name in COLUMNS}
        for raw in folders.archived()
        for row in rows_of(raw, **ALL)  # type: ignore[arg-type]
    ]
    assert [found.get(row["lsn"]) for row in expected] == expected
    query.restart()
    for start, end, rows in query.batches:
        assert query.between(start, end) == rows


class Watched(Conversation):
    """A conversation that a stream follows.  Now and then the query is another process."""

    def __init__(self, seed: int, folders: Folders, options: dict[str, str]) -> None:
        self._folders = folders
        self._dice = random.Random(seed)
        self._options = {**options, **ALL, "archive": str(folders.archive)}
        self._query: Query | None = None
        super().__init__(seed, with_compaction=True)

    @property
    def query(self) -> Query:
        assert self._query is not None
        return self._query

    def _note(self) -> None:
        super()._note()
        files = segment_files(self.directory)
        self._folders.deliver(files)
        self._folders.show(files)
        if self._query is None:
            self._query = Query(self._folders.live, self._options)
        if self._dice.random() < 0.3:
            self._query.batch()
        if self._dice.random() < 0.05:
            self._query.restart()

    def end(self) -> None:
        self._server.stop()
        self._start(self._server.now_ns + 10**9)
        self.query.run()


# How much at once.


def test_a_batch_takes_a_frame_at_least_and_no_more_than_its_limit(folders: Folders) -> None:
    long(folders)
    for limit in (ReadMaxBytes(1), ReadMaxRows(1)):
        query = Query(folders.live)
        query.batch(limit)
        assert max(lsns(query.rows), default=1) <= 2
        query.run(limit)
        assert [row["job"] for row in query.rows] == list(range(1, 61))
        assert all(len(rows) <= 1 for _, _, rows in query.batches)


def test_a_limit_in_rows_and_one_in_bytes_both_count(folders: Folders) -> None:
    long(folders)
    query = Query(folders.live, {"maxRowsPerTrigger": "7", "maxBytesPerTrigger": "1k"})
    assert 1 <= len(query.batch()) <= 2
    query = Query(folders.live, {"maxRowsPerTrigger": "7", "maxBytesPerTrigger": "1M"})
    assert len(query.batch()) in (6, 7)
    assert isinstance(Query(folders.live).reader.getDefaultReadLimit(), ReadMaxBytes)


def test_available_now_takes_what_was_there_when_it_began(folders: Folders) -> None:
    scribe = long(folders)
    query = Query(folders.live, {"maxRowsPerTrigger": "25"})
    query.reader.prepareForTriggerAvailableNow()
    query.batch()
    for number in range(60, 90):
        scribe.write(put(number + 1))
    settle(folders, scribe)
    query.run()
    assert [row["job"] for row in query.rows] == list(range(1, 61))
    query.restart()
    assert [row["job"] for row in query.run()] == list(range(61, 91))


def test_the_lag_is_reported_and_in_no_offset_that_is_kept(folders: Folders) -> None:
    long(folders)
    query = Query(folders.live)
    assert LAG_KEY not in query.reader.reportLatestOffset()
    query.batch(ReadMaxRows(10))
    reported = json.loads(json.dumps(query.reader.reportLatestOffset()))
    lsn = query.at["lsn"]
    assert reported[LAG_KEY][STORE]["records"] == reported["stores"][STORE]["lsn"] - lsn > 40
    assert set(json.loads(query.offset)) == {"v", "rows", "stores"}
    assert query.reader.partitions(json.loads(query.offset), reported) != []
    segments = find([str(folders.live)], seen=Seen()).segments
    lag, whole = (Log(segments, Bookmarks()).lag(each, T0 + 10**9) for each in (lsn, 1))
    # The scribe writes a frame each millisecond, from T0 on.
    assert lag.seconds == pytest.approx(1 - (lsn - 1) * MS / 1e9, abs=0.003)
    assert whole.bytes == sum(each.stretch.end - each.stretch.start for each in segments)
    assert 0 < lag.bytes < whole.bytes
    query.run()
    assert query.reader.reportLatestOffset()[LAG_KEY][STORE] == NOT_BEHIND._asdict()
    remove(folders.live, 1)
    (segment,) = find([str(folders.live)], seen=Seen()).segments
    log = Log([segment], Bookmarks())
    gone = log.lag(1, T0 + 10**9)
    assert gone.records == log.next_lsn - log.first_lsn
    assert gone.bytes == segment.stretch.end - segment.stretch.start


def test_nothing_lies_between_an_offset_and_itself(folders: Folders) -> None:
    long(folders)
    query = Query(folders.live)
    query.run()
    assert query.reader.partitions(json.loads(query.offset), json.loads(query.offset)) == []


# Where it begins.


def test_a_stream_begins_where_it_is_told_to(folders: Folders) -> None:
    long(folders)
    assert Query(folders.live, {"startingOffsets": "latest"}).run() == []
    for lsn in (1, 2, 30, 31):
        rows = Query(folders.live, {"startingLsn": str(lsn)}).run()
        assert lsns(rows)[0] == max(lsn, 2) or rows[0]["lsn"] > lsn
        assert rows[-1]["job"] == 60
    rows = Query(folders.live, {"startingOffsets": json.dumps({STORE: 10})}).run()
    assert lsns(rows)[0] == 10
    assert Query(folders.live, {"startingLsn": "99999"}).run() == []


def test_a_stream_begins_with_what_was_logged_at_a_time(folders: Folders) -> None:
    long(folders)
    # The scribe writes a batch each millisecond; the first one is that of the tube.
    rows = Query(folders.live, {"startingTimestamp": str(T0 + 31 * MS)}).run()
    assert rows[0]["job"] == 30
    assert Query(folders.live, {"startingTimestamp": "2100-01-01T00:00Z"}).run() == []


def test_a_log_that_comes_later_is_followed_from_its_beginning(
    folders: Folders, tmp_path: Path
) -> None:
    long(folders)
    query = Query(tmp_path / "*" / "live", {"startingOffsets": "latest"})
    assert query.run() == []
    other = Folders(tmp_path / "other")
    uuid = bytes(range(1, 17))
    scribe = Scribe(position=FIRST._replace(store_uuid=uuid))
    scribe.write(DEFAULT_TUBE, put(1))
    scribe.mark()
    other.show(scribe.files())
    assert [(row["server"], row["lsn"]) for row in query.run()] == [(uuid.hex(), 2)]


# What is refused.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "newest"}, "option startingOffsets: 'newest' is none of earliest, la"),
        ({"startingLsn": "0"}, "option startingLsn: '0' is no LSN"),
        ({"startingLsn": "1", "startingTimestamp": "now"}, "option startingTimestamp: give either"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp: "),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger: 1 is the least"),
        ({"maxBytesPerTrigger": "much"}, "option maxBytesPerTrigger: "),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger: '0' is no whole number from 1 on"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: 'no' is none of true, false"),
        ({"tube": "mail"}, "option tube: it is for batch reads"),
        ({"since": "-2h"}, "option since: it is for batch reads"),
        ({"archives": "/x"}, "option archives: unknown; did you mean archive? There are: archi"),
        ({"zzz": "/x"}, "option zzz: unknown. There are: archive, "),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(SourceError) as raised:
        Streamed.of({"path": "/x", **options})
    assert str(raised.value).startswith(f"[BINLOG_OPTION] {said}")
    assert "\n" not in str(raised.value)


def test_where_there_is_no_log_no_stream_begins(folders: Folders) -> None:
    with pytest.raises(SourceError, match=r"\[BINLOG_NO_LOG\] .*: there are no segments here"):
        Query(folders.live)


def test_where_there_is_no_directory_or_nobody_may_look_no_stream_begins(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(SourceError, match=r"\[BINLOG_NOT_FOUND\] .*/none: there is no such dir"):
        Query(tmp_path / "none")
    with pytest.raises(SourceError, match=r"\[BINLOG_UNREADABLE\] .*/loop: Too many levels"):
        Query(tmp_path / "loop")


def test_a_store_that_is_not_there_cannot_be_begun_with(folders: Folders) -> None:
    long(folders)
    with pytest.raises(SourceError, match="there is no store 0a0a"):
        Query(folders.live, {"startingOffsets": json.dumps({"0a" * 16: 1})})


def test_a_checkpoint_of_other_rows_is_refused(folders: Folders) -> None:
    long(folders)
    query = Query(folders.live)
    query.restart(copies="keep")
    with pytest.raises(SourceError, match="was made with records=jobs copies=drop servers=-, and"):
        query.batch()
    newer = {**json.loads(query.offset), "v": 3}
    with pytest.raises(SourceError, match="has version 3 of the offsets, this is 2"):
        query.reader.latestOffset(newer, ReadAllAvailable())
