"""How far a stream is behind, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from binlog_tools.spark.following.lag import NONE, LagMeter, lags_of
from binlog_tools.spark.following.logs import Log
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.following.stores import look
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


def log_of(folders: Folders) -> Log:
    """As it is now, the archive left aside."""
    return Log(look([str(folders.live)])[STORE])


def test_what_is_in_no_batch_yet_counts(folders: Folders) -> None:
    query = Query(folders.live)
    query.batch(ReadMaxRows(10))
    log = log_of(folders)
    at = Position(**{"seq": query.at["seq"], "offset": query.at["off"], "lsn": query.at["lsn"]})
    (lag,) = LagMeter().measure({STORE: log}, {STORE: at}, T0 + 10**9).values()
    assert lag.records == log.frontier().lsn - at.lsn > 40
    # The scribe writes a frame each millisecond, from T0 on.
    assert lag.seconds == pytest.approx(1 - (at.lsn - 1) * MS / 1e9, abs=0.003)
    whole = sum(log.end(seq) - log.beginning(seq).offset for seq in log.numbers)
    done = sum(log.end(seq) - log.beginning(seq).offset for seq in log.numbers if seq < at.seq)
    assert lag.bytes == whole - done - (at.offset - log.beginning(at.seq).offset)


def test_who_has_read_all_is_not_behind(folders: Folders) -> None:
    query = Query(folders.live)
    query.run()
    assert lags_of(query.reader.reportLatestOffset()) == {STORE: NONE}


def test_a_log_that_the_stream_has_not_begun_with_counts_whole(folders: Folders) -> None:
    log = log_of(folders)
    meter = LagMeter()
    (lag,) = meter.measure({STORE: log}, {}, T0).values()
    assert (lag.records, lag.seconds) == (log.frontier().lsn - 1, 0.0)
    assert meter.measure({STORE: log}, {STORE: log.first()}, T0) == {STORE: lag}


def test_segments_that_are_gone_do_not_end_the_measuring(folders: Folders) -> None:
    at = log_of(folders).first()
    remove(folders.live, 1)
    log = log_of(folders)
    (lag,) = LagMeter().measure({STORE: log}, {STORE: at}, T0 + 10**9).values()
    assert lag.records == log.frontier().lsn - 1
    assert lag.bytes == log.frontier().offset - log.first().offset


def test_the_lag_is_in_what_is_reported_and_in_no_offset_that_is_kept(folders: Folders) -> None:
    query = Query(folders.live)
    assert lags_of(query.reader.reportLatestOffset()) == {}
    query.batch(ReadMaxRows(10))
    reported = query.reader.reportLatestOffset()
    assert lags_of(json.loads(json.dumps(reported)))[STORE].records > 40
    assert set(json.loads(query.offset)) == {"v", "rows", "stores"}
    # Whoever takes it for an offset finds one.
    assert query.reader.partitions(json.loads(query.offset), reported) != []
