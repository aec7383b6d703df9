"""How far a stream is behind, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from binlog_tools.spark.following.logs import NOT_BEHIND, Bookmarks, Log, lags_of
from binlog_tools.spark.reading.finding import Findings, Seen, find
from tests.binlog.scribe import DEFAULT_TUBE, MS, T0, UUID, Scribe, put
from tests.spark.following.living import Folders, Query, remove

STORE = UUID.hex()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """With 60 puts in some segments, all durable."""
    folders = Folders(tmp_path / "one")
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for number in range(60):
        scribe.write(put(number + 1, b"x" * 300))
    scribe.mark()
    folders.deliver(scribe.files())
    folders.show(scribe.files())
    return folders


def found_in(folders: Folders) -> Findings:
    """As it is now, the archive left aside."""
    return find([str(folders.live)], seen=Seen())


def test_what_is_in_no_batch_yet_counts(folders: Folders) -> None:
    query = Query(folders.live)
    query.batch(ReadMaxRows(10))
    segments = found_in(folders).segments
    log, lsn = Log(segments, Bookmarks()), query.at["lsn"]
    lag = log.lag(lsn, T0 + 10**9)
    assert lag.records == log.next_lsn - lsn > 40
    # The scribe writes a frame each millisecond, from T0 on.
    assert lag.seconds == pytest.approx(1 - (lsn - 1) * MS / 1e9, abs=0.003)
    whole = log.lag(1, T0)
    assert whole.bytes == sum(each.stretch.end - each.stretch.start for each in segments)
    assert 0 < lag.bytes < whole.bytes


def test_who_has_read_all_is_not_behind(folders: Folders) -> None:
    query = Query(folders.live)
    query.run()
    assert lags_of(query.reader.reportLatestOffset()) == {STORE: NOT_BEHIND}


def test_segments_that_are_gone_do_not_end_the_measuring(folders: Folders) -> None:
    remove(folders.live, 1)
    (segment,) = found_in(folders).segments
    log = Log([segment], Bookmarks())
    lag = log.lag(1, T0 + 10**9)
    assert lag.records == log.next_lsn - log.first_lsn
    assert lag.bytes == segment.stretch.end - segment.stretch.start


def test_the_lag_is_in_what_is_reported_and_in_no_offset_that_is_kept(folders: Folders) -> None:
    query = Query(folders.live)
    assert lags_of(query.reader.reportLatestOffset()) == {}
    query.batch(ReadMaxRows(10))
    reported = query.reader.reportLatestOffset()
    assert lags_of(json.loads(json.dumps(reported)))[STORE].records > 40
    assert set(json.loads(query.offset)) == {"v", "rows", "stores"}
    # Whoever takes it for an offset finds one.
    assert query.reader.partitions(json.loads(query.offset), reported) != []
