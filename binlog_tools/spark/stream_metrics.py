"""``/metrics`` of a job that streams: how far each query is behind its logs, for Prometheus.

A `StreamingQueryListener` keeps the newest progress of each query; a small HTTP server of the
driver shows it.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from binlog_tools.spark.following.logs import lags_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_S: Final = 10
"""How long a client may take to say what it wants, seconds: a thread waits for it."""

METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "beanstalk_stream_lag_records": ("gauge", "Durable records that are in no batch yet."),
    "beanstalk_stream_lag_bytes": ("gauge", "Bytes of their frames."),
    "beanstalk_stream_lag_seconds": ("gauge", "Age of the oldest of them; 0: there is none."),
    "beanstalk_stream_rows_total": ("counter", "Rows of finished batches."),
    "beanstalk_stream_batch": ("gauge", "Number of the newest finished batch."),
    "beanstalk_stream_batch_seconds": ("gauge", "How long that took."),
    "beanstalk_stream_progress_timestamp_seconds": (
        "gauge", "When the query was last heard of; the other numbers are of then."),
    "beanstalk_stream_active": ("gauge", "1: it runs; 0: it has ended."),
}  # fmt: skip
"""Kind and meaning by name.  All have the label ``query``, those of the lag ``server`` too."""


class Sample(NamedTuple):
    """One number of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


Collector = Callable[[], Iterable[Sample]]


class Queries(StreamingQueryListener):
    """The newest progress of each query, by the query's name, or its id if it has none.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._names: dict[str, str] = {}
        self._samples: dict[str, dict[tuple[str, str], Sample]] = {}
        self._rows: dict[str, int] = {}

    def onQueryStarted(self, event: Any) -> None:
        name = event.name or str(event.id)
        self._names[str(event.id)] = name
        self._note(name, [Sample("beanstalk_stream_active", {"query": name}, 1)])

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        name = progress.name or str(progress.id)
        self._rows[name] = self._rows.get(name, 0) + int(progress.numInputRows)
        self._note(name, [
            *(sample for source in progress.sources for sample in _lags(name, source.latestOffset)),
            Sample("beanstalk_stream_rows_total", {"query": name}, self._rows[name]),
            Sample("beanstalk_stream_batch", {"query": name}, progress.batchId),
            Sample("beanstalk_stream_batch_seconds", {"query": name},
                   progress.durationMs.get("triggerExecution", 0) / 1000),
        ])  # fmt: skip

    def onQueryIdle(self, event: Any) -> None:
        self._note(self._names.get(str(event.id), str(event.id)), [])

    def onQueryTerminated(self, event: Any) -> None:
        name = self._names.get(str(event.id), str(event.id))
        self._note(name, [Sample("beanstalk_stream_active", {"query": name}, 0)])

    def _note(self, name: str, samples: Iterable[Sample]) -> None:
        known = dict(self._samples.get(name, {}))
        heard = Sample(
            "beanstalk_stream_progress_timestamp_seconds", {"query": name}, self._clock()
        )
        for each in (*samples, heard):
            known[each.name, each.labels.get("server", "")] = each
        # One assignment: another thread reads it.
        self._samples[name] = known

    def samples(self) -> Iterator[Sample]:
        for known in list(self._samples.values()):
            yield from known.values()


def _lags(query: str, reported: str | None) -> Iterator[Sample]:
    """:param reported: ``latestOffset`` of a source, JSON; other formats have other ones."""
    try:
        lags = lags_of(json.loads(reported or "{}"))
    except (ValueError, TypeError, AttributeError):
        return
    for server, lag in lags.items():
        for field, value in lag._asdict().items():
            yield Sample(f"beanstalk_stream_lag_{field}", {"query": query, "server": server}, value)


def exposition(samples: Iterable[Sample], metrics: Mapping[str, tuple[str, str]]) -> str:
    """Prometheus's text: the samples in the order of the metrics; one without samples is left
    out.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, (kind, text) in metrics.items():
        if name in by_name:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(each)} {float(each.value)!r}" for each in by_name[name]]
    return "".join(f"{line}\n" for line in lines)


def _labels(sample: Sample) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsServer:
    """Serves ``GET /metrics``, in threads of its own, until `close`.

    :ivar port: that it listens on.
    :param port: 0: any that is free.
    """

    def __init__(
        self, metrics: Mapping[str, tuple[str, str]], collect: Collector, port: int,
        host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        class Page(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                is_known = self.path.partition("?")[0] == "/metrics"
                text = exposition(collect(), metrics) if is_known else "not found: /metrics is\n"
                raw = text.encode()
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", EXPOSITION if is_known else "text/plain")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: Any) -> None:
                """A scrape is nothing to tell."""

        self._server = ThreadingHTTPServer((host, port), Page)
        self.port = int(self._server.server_address[1])
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def serve_metrics(spark: "SparkSession", port: int, host: str = "127.0.0.1") -> MetricsServer:
    """Show all queries of a session that read ``beanstalk_binlog``, from their next batch on.

    :raise OSError: the port is taken.
    """
    queries = Queries()
    server = MetricsServer(METRICS, queries.samples, port, host)
    spark.streams.addListener(queries)
    return server
