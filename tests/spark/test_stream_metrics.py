"""``/metrics`` of a job that streams: a listener that Spark tells, and what is served."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.datasource import ReadMaxRows

from binlog_tools.spark.following.logs import NOT_BEHIND, Bookmarks, Lag, Log, encode, lags_of
from binlog_tools.spark.reading.finding import Findings, Seen, find
from binlog_tools.spark.session import PATIENCE_S
from binlog_tools.spark.source import register
from binlog_tools.spark.stream_metrics import (
    METRICS,
    MetricsServer,
    Queries,
    Sample,
    exposition,
    serve_metrics,
)
from tests.binlog.scribe import DEFAULT_TUBE, MS, T0, UUID, Scribe, put
from tests.spark.following.living import Folders, Query, remove

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def progress(batch: int, lag: Lag, rows: int = 5) -> SimpleNamespace:
    """As Spark tells it, as far as it is looked at."""
    offset = json.dumps(encode({}, "", {"5c": lag}))
    sources = [SimpleNamespace(latestOffset=offset), SimpleNamespace(latestOffset="7"),
               SimpleNamespace(latestOffset=None)]  # fmt: skip
    return SimpleNamespace(
        progress=SimpleNamespace(
            id="17", name="events", batchId=batch, numInputRows=rows, sources=sources,
            durationMs={"triggerExecution": 250},
        )
    )  # fmt: skip


def shown(samples: list[Sample]) -> dict[str, float]:
    """By name, as another reader of the text reads it."""
    return {
        each.name: each.value
        for family in text_string_to_metric_families(exposition(samples, METRICS))
        for each in family.samples
    }


def test_a_query_is_shown_as_it_was_last_heard_of() -> None:
    queries = Queries(clock=lambda: 1000.0)
    queries.onQueryStarted(SimpleNamespace(id="17", name="events"))
    queries.onQueryProgress(progress(0, Lag(9, 800, 2.5)))
    queries.onQueryProgress(progress(1, Lag(4, 300, 1.5)))
    queries.onQueryIdle(SimpleNamespace(id="17"))
    found = list(queries.samples())
    assert {each.labels["query"] for each in found} == {"events"}
    assert shown(found) == {
        "beanstalk_stream_lag_records": 4, "beanstalk_stream_lag_bytes": 300,
        "beanstalk_stream_lag_seconds": 1.5, "beanstalk_stream_rows_total": 10,
        "beanstalk_stream_batch": 1, "beanstalk_stream_batch_seconds": 0.25,
        "beanstalk_stream_progress_timestamp_seconds": 1000, "beanstalk_stream_active": 1,
    }  # fmt: skip
    assert set(shown(found)) == set(METRICS)
    queries.onQueryTerminated(SimpleNamespace(id="17"))
    assert shown(list(queries.samples()))["beanstalk_stream_active"] == 0


def test_a_name_may_hold_anything() -> None:
    name = 'a "b"\\\nc'
    text = exposition([Sample("beanstalk_stream_batch", {"query": name}, 1)], METRICS)
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"query": name}


def test_metrics_are_served_and_nothing_else() -> None:
    server = MetricsServer(METRICS, lambda: [Sample("beanstalk_stream_batch", {}, 3)], 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().endswith(b"beanstalk_stream_batch 3.0\n")
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
        with pytest.raises(OSError, match="in use"):
            MetricsServer(METRICS, list, server.port)
    finally:
        server.close()


@pytest.mark.exhaustive
def test_spark_shows_the_lag_and_keeps_none_of_it(spark: SparkSession, tmp_path: Path) -> None:
    folders = Folders(tmp_path / "log")
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for number in range(1, 60):
        scribe.write(put(number, b"x" * 300))
    scribe.mark()
    folders.show(scribe.files())
    server = serve_metrics(register(spark), 0)
    try:
        rows = spark.readStream.format("beanstalk_binlog").options(
            columns="lsn", maxRowsPerTrigger=20
        )
        query = (
            rows.load(str(folders.live)).writeStream.format("noop").queryName("lagging")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(PATIENCE_S)
        reported = [each.sources[0].latestOffset for each in query.recentProgress]
        lags = [json.loads(each)["lag"][UUID.hex()]["records"] for each in reported]
        spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 20 > lags[-1]
    assert 'beanstalk_stream_rows_total{query="lagging"} 59.0' in text
    assert 'beanstalk_stream_active{query="lagging"} 0.0' in text
    kept = [path.read_text() for path in (tmp_path / "checkpoint" / "offsets").iterdir()
            if path.name.isdigit()]  # fmt: skip
    assert kept
    assert not any('"lag"' in text for text in kept)
