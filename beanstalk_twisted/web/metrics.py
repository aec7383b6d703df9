"""``/metrics``, as docs/monitoring.md lists them; a test compares it with what is served."""

import math
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from beanstalk_twisted.jobs.figures import BOUNDS_NS, Histogram, TubeTimes
from beanstalk_twisted.jobs.quota import NO_LIMIT, Limits, Quota
from beanstalk_twisted.replication.membership import STANDBY
from beanstalk_twisted.server.access_control import AccessControl
from beanstalk_twisted.server.anomalies import Handshakes
from beanstalk_twisted.server.execution_context import COMMAND_BOUNDS_NS
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.store import LogFigures
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.web.exchange import Call, Document
from beanstalk_twisted.web.exposition import (
    OPENMETRICS,
    PROMETHEUS,
    Writer,
    escaped,
    labelled,
    seconds,
)
from beanstalk_twisted.web.overview import OldestReady
from beanstalk_twisted.web.replication import write_replication
from beanstalk_twisted.web.tube_figures import TubeFigures, TubeSurvey
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.layouts import SERVER, TUBE, Values

HISTOGRAM_TUBES: Final = 25
"""Tubes whose histograms one slice writes: about a millisecond."""

REST: Final = '{tube="-others-"}'
"""The tubes that are not shown; no tube's name begins with a hyphen."""

PAGE_BYTES: Final = resource.getpagesize()

STATES: Final = ("ready", "reserved", "delayed", "buried")

_NO_TIMES: Final = TubeTimes()

TUBE_EVENTS: Final = (
    ("beanstalkd_tube_reserves_total", "Reservations", "reserves"),
    ("beanstalkd_tube_releases_total", "Releases by clients", "releases"),
    ("beanstalkd_tube_buries_total", "Jobs that were buried, dead letters among them", "buries"),
    ("beanstalkd_tube_kicks_total", "Jobs that were kicked", "kicks"),
    ("beanstalkd_tube_timeouts_total", "TTRs that have ended", "timeouts"),
    ("beanstalkd_tube_dead_lettered_total", "Jobs that became dead letters", "deaths"),
    ("beanstalkd_tube_deduplicated_total", "Jobs not put since their key is there", "duplicates"),
    ("beanstalkd_tube_rejected_total", "Puts that its policy refused", "refusals"),
)
"""By attribute of `TubeTimes`."""

ERROR_WORDS: Final = (
    b"BAD_FORMAT", b"DRAINING", b"EXPECTED_CRLF", b"INTERNAL_ERROR", b"JOB_TOO_BIG", b"NOT_FOUND",
    b"NOT_IGNORED", b"OUT_OF_MEMORY", b"UNKNOWN_COMMAND",
)  # fmt: skip
"""Those that are there from the start: a rule sees no increase to the first of a series."""

DEADLINE_SOON: Final = replies.DEADLINE_SOON.text

WAIT: Final = "From the end of a job's delay to its first reservation"
RUN: Final = "From a job's reservation to its deletion by who reserved it"


class Metrics:
    def __init__(
        self, service: BeanstalkService, lags: Histogram, http: Callable[[], tuple[int, int, int]],
        most_tubes: int, oldest: OldestReady,
    ) -> None:  # fmt: skip
        """:param http: returns how many HTTP connections there are, how many were refused, and how
            many requests there were.
        :param most_tubes: how many tubes are shown one by one.
        """
        self._service = service
        self._lags = lags
        self._http = http
        self._most_tubes = most_tubes
        self._oldest = oldest

    def metrics(self, call: Call) -> Document:
        is_openmetrics = "application/openmetrics-text" in call.headers.get("accept", "")
        pieces = self._pieces(Writer(is_openmetrics=is_openmetrics))
        return Document(pieces, OPENMETRICS if is_openmetrics else PROMETHEUS)

    def _pieces(self, out: Writer) -> Iterator[bytes]:
        service = self._service
        situation = service.situation()
        if situation is not None:
            write_replication(out, situation)
        if situation is not None and situation.role == STANDBY:
            # Its jobs are those of the active server, which nobody wants to count twice.
            _write_process(out)
            out.end()
            yield out.take()
            return
        _write_server(out, service.queue.server_stats())
        _write_errors(out, service.queue.tally.errors)
        _write_process(out)
        figures = service.log_figures()
        if figures is not None:
            _write_log(out, figures, service.loading)
        self._write_others(out)
        yield out.take()
        now_ns, oldest = service.now_ns(), self._oldest
        out.single("beanstalkd_oldest_ready_age_seconds", "gauge",
                   "Since the oldest ready job was put", oldest.age_ns(now_ns) / NS)  # fmt: skip
        survey = TubeSurvey(service.queue.state, now_ns, self._most_tubes, oldest.tubes)
        for _ in survey.slices():
            yield b""
        out.single("beanstalkd_tubes_without_workers", "gauge",
                   "Tubes with ready jobs that nobody watches", survey.unwatched)  # fmt: skip
        yield from _tubes(out, survey)
        out.end()
        yield out.take()

    def _write_bodies(self, out: Writer) -> None:
        state, reads = self._service.queue.state, self._service.body_reads
        out.gauges("beanstalkd_bodies_", (
            ("memory_bytes", "Bodies that are in memory", state.jobs.loaded_bytes),
            ("log_bytes", "Bodies that are in the log only", state.jobs.absent_bytes),
        ))  # fmt: skip
        if reads is None:
            return
        bodies = state.bodies
        for what, count, text in (
            ("dropped", bodies.dropped, "Bodies that were left to the log"),
            ("read", bodies.read, "Bodies that were read back"),
            ("lost", bodies.lost, "Jobs whose bodies are lost"),
            ("failed", reads.failed_reads, "Reads of bodies that have failed, and are tried again"),
        ):
            out.single(f"beanstalkd_bodies_{what}_total", "counter", text, count)
        text = "How long a body took to come back"
        out.single_histogram("beanstalkd_body_read_seconds", text, reads.times)

    def _write_others(self, out: Writer) -> None:
        service, memory = self._service, self._service.memory
        out.gauges("beanstalkd_jobs_memory_", (
            ("bytes", "Memory that jobs take, as it is counted", memory.used_bytes),
            ("limit_bytes", "Memory that jobs may take", memory.most_bytes),
        ))  # fmt: skip
        self._write_bodies(out)
        out.single("beanstalkd_dead_letters", "gauge", "Dead letters that are buried",
                   service.queue.state.dead_letters.buried)  # fmt: skip
        text = "How late timers are called"
        out.single_histogram("beanstalkd_reactor_lag_seconds", text, self._lags)
        times = service.queue.state.times
        if times is not None:
            out.single_histogram("beanstalkd_wait_seconds", WAIT, times.total.waits)
            out.single_histogram("beanstalkd_run_seconds", RUN, times.total.runs)
        self._write_commands(out)
        access = service.access
        if access is not None:
            _write_access(out, access)
        out.single("beanstalkd_watches_refused_total", "counter",
                   "Tubes that were one too many to watch",
                   service.queue.tally.watches_refused)  # fmt: skip
        out.single("beanstalkd_changes_refused_total", "counter",
                   "Changes refused while the stream of a replicated queue was silent",
                   service.changes_refused)  # fmt: skip
        out.single("beanstalkd_connections_stalled_total", "counter",
                   "Connections closed that had begun a command and did not go on",
                   service.connections.stalled)  # fmt: skip
        _write_handshakes(out, service.handshakes)
        connections, refused, requests = self._http()
        out.family("beanstalkd_connections_rejected_total", "counter", "Connections refused", (
            ('{protocol="beanstalk"}', service.connections.refused),
            ('{protocol="http"}', refused),
        ))  # fmt: skip
        out.single("beanstalkd_http_connections", "gauge", "HTTP connections", connections)
        out.single("beanstalkd_http_requests_total", "counter", "HTTP requests", requests)

    def _write_commands(self, out: Writer) -> None:
        times = self._service.context.times
        if times is None:
            return
        name = "beanstalkd_command_duration_seconds"
        out.head(name, "histogram", "How long it takes to carry out commands, of a sample of them")
        for command, values in sorted(times.by_command.items()):
            out.histogram(name, f'command="{command}"', values, seconds(COMMAND_BOUNDS_NS))
        slow = [(labelled({"command": each}), count) for each, count in sorted(times.slow.items())]
        name, text = "beanstalkd_slow_commands_total", "Commands that were logged as slow"
        out.family(name, "counter", text, slow)


def _write_access(out: Writer, access: AccessControl) -> None:
    tokens = access.authenticator
    refused = access.guard.refused
    out.single("beanstalkd_unauthorized_total", "counter", "Commands without right", refused)
    out.family("beanstalkd_tokens_total", "counter", "Tokens that were shown", (
        ('{outcome="right"}', tokens.successes), ('{outcome="wrong"}', tokens.failures),
    ))  # fmt: skip
    _write_quotas(out, access.guard.quotas.by_name)


def _write_quotas(out: Writer, quotas: Mapping[str, Quota]) -> None:
    rows = [
        (labelled({"identity": name, "limit": limit.replace("_", "-")}), limit, quota)
        for name, quota in sorted(quotas.items())
        for limit, most in zip(Limits._fields, quota.limits, strict=True)
        if most < NO_LIMIT
    ]
    if not rows:
        return
    out.family(
        "beanstalkd_identity_limit",
        "gauge",
        "What an identity may take, by limit",
        [(labels, getattr(quota.limits, limit)) for labels, limit, quota in rows],
    )
    used = [row for row in rows if row[1] != "put_rate"]
    out.family(
        "beanstalkd_identity_used",
        "gauge",
        "What an identity takes, by limit",
        [(labels, getattr(quota.used, limit)) for labels, limit, quota in used],
    )
    out.family("beanstalkd_identity_refusals_total", "counter",
               "What was refused since a limit of its identity was reached",
               [(labels, quota.refusals[limit]) for labels, limit, quota in rows])  # fmt: skip


def _write_handshakes(out: Writer, handshakes: Handshakes) -> None:
    """Nothing where nobody speaks TLS."""
    if not handshakes.expiries:
        return
    counts = handshakes.counts.items()
    out.family("beanstalkd_tls_handshakes_total", "counter",
               "Handshakes of TLS, by what became of them",
               [(labelled({"outcome": outcome}), count) for outcome, count in counts])  # fmt: skip
    ends: dict[str, float] = {}
    for expiries in handshakes.expiries.values():
        for each in expiries():
            ends[each.kind] = min(ends.get(each.kind, math.inf), each.ends.timestamp())
    out.family("beanstalkd_tls_expires_timestamp_seconds", "gauge",
               "When the first certificate or revocation list of a kind ends",
               [(labelled({"kind": kind}), end) for kind, end in ends.items()])  # fmt: skip


def _write_server(out: Writer, values: Values) -> None:
    out.single("beanstalkd_up", "gauge", "Always 1: there is a server", 1)
    about = {key: str(values[key]) for key in ("id", "hostname", "os", "platform")}
    out.single("beanstalkd_info", "info", "What runs", 1, labelled({"version": VERSION, **about}))
    out.family("beanstalkd_current_jobs", "gauge", "Jobs by state", [
        (labelled({"state": state}), int(values[f"current-jobs-{state}"])) for state in STATES
    ])  # fmt: skip
    out.family("beanstalkd_commands_total", "counter", "Commands by name", [
        (labelled({"command": key.removeprefix("cmd-")}), int(values[key]))
        for key in SERVER.keys if key.startswith("cmd-")
    ])  # fmt: skip
    for metric in SERVER.metrics:
        value = values[metric.key]
        out.single(*metric.head, int(value) if isinstance(value, bool) else float(value))


def _write_errors(out: Writer, errors: Mapping[bytes, int]) -> None:
    name, text = "beanstalkd_errors_total", "Commands that were refused, by the reply"
    out.family(name, "counter", text, [
        (labelled({"reply": word.decode()}), errors.get(word, 0))
        for word in sorted({*ERROR_WORDS, *errors} - {DEADLINE_SOON})
    ])  # fmt: skip
    name, text = "beanstalkd_deadline_soon_total", "Reserves that were answered DEADLINE_SOON"
    out.single(name, "counter", text, errors.get(DEADLINE_SOON, 0))


def _write_process(out: Writer) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used_s = usage.ru_utime + usage.ru_stime
    out.single("process_cpu_seconds_total", "counter", "Processor time", used_s)
    virtual, resident = _memory()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    out.gauges("process_", (
        ("resident_memory_bytes", "Memory that is in use", resident),
        ("virtual_memory_bytes", "Addresses that are in use", virtual),
        ("max_fds", "Limit of file descriptors", most),
    ))  # fmt: skip


def _memory() -> tuple[int, int]:
    """Return the bytes of the process's addresses and of its memory; 0 where no /proc tells."""
    try:
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        virtual, resident = os.read(fd, 200).split()[:2]
    finally:
        os.close(fd)
    return int(virtual) * PAGE_BYTES, int(resident) * PAGE_BYTES


def _write_log(out: Writer, figures: LogFigures, loading: tuple[int, float]) -> None:
    """:param loading: see `BeanstalkService.loading`."""
    jobs, load_s = loading
    live, total = figures.live_bytes, figures.total_bytes
    out.gauges("beanstalkd_binlog_", (
        ("files", "Segments", figures.segments),
        ("bytes", "Bytes of all segments", total),
        ("live_bytes", "Bytes of the records of living jobs", live),
        ("dead_bytes", "Bytes of everything else", max(0, total - live)),
        ("compaction_debt_bytes", "Bytes above what the options allow", figures.debt_bytes),
        ("preallocated_bytes", "Bytes that fit into files that are there",
         figures.preallocated_bytes),
        ("allocated_bytes", "Bytes of all files", figures.allocated_bytes),
        ("limit_bytes", "Bytes that all files may have, 0 for any", figures.most_bytes),
        ("unsynced_bytes", "Bytes that are not known durable", figures.unsynced_bytes),
        ("oldest_unsynced_seconds", "How long the oldest of them has waited",
         figures.unsynced_ns / NS),
        ("unchecked_bytes", "Bytes of segments with unchecked bodies", figures.unchecked_bytes),
        ("replay_jobs", "Jobs that the start has loaded", jobs),
        ("replay_seconds", "How long the start took to load them", load_s),
    ))  # fmt: skip
    for name, text, size in (
        ("free", "Bytes left on its disk", figures.disk_free_bytes),
        ("size", "Bytes that its disk has when it is empty", figures.disk_size_bytes),
    ):
        if size is not None:
            out.single(f"beanstalkd_binlog_disk_{name}_bytes", "gauge", text, size)
    if figures.unarchived is not None:
        segments, size = figures.unarchived
        out.gauges("beanstalkd_binlog_unarchived_", (
            ("files", "Finished segments that the archive lacks", segments),
            ("bytes", "Their bytes", size),
        ))  # fmt: skip
    out.family("beanstalkd_binlog_state", "gauge", "1 for the state that it is in", (
        ('{state="ok"}', int(not figures.is_full)), ('{state="full"}', int(figures.is_full)),
    ))  # fmt: skip
    commits, text = figures.commits, "Syncs, with the write before"
    out.single_histogram("beanstalkd_binlog_fsync_seconds", text, commits.syncs)
    text = "Records written together"
    out.count_histogram("beanstalkd_binlog_group_commit_size", text, commits.batches)


def _tubes(out: Writer, survey: TubeSurvey) -> Iterator[bytes]:
    tubes = survey.shown
    labels = [f'{{tube="{escaped(tube.name)}"}}' for tube in tubes]
    named = list(zip(labels, tubes, strict=True))
    rest = survey.rest
    out.single("beanstalkd_tubes_not_shown", "gauge", "Tubes that are summed up as one",
               rest.tubes)  # fmt: skip
    _write_tube_jobs(out, named, survey)
    yield out.take()
    for metric in TUBE.metrics:
        out.family(*metric.head, [(x, int(t.stats[metric.key])) for x, t in named])
        yield out.take()
    happened = [(x, t.times or _NO_TIMES) for x, t in named]
    for name, text, field in TUBE_EVENTS:
        out.family(name, "counter", text, [(x, getattr(t, field)) for x, t in happened])
        yield out.take()
    name, text = "beanstalkd_tube_oldest_ready_age_seconds", "Since its oldest ready job was put"
    out.family(name, "gauge", text, [(x, t.oldest_ns / NS) for x, t in named])
    name, text = "beanstalkd_tube_next_delayed_seconds", "Until its next delayed job is ready"
    next_ns = [(x, t.next_delayed_ns) for x, t in named]
    out.family(name, "gauge", text, [(x, ns / NS) for x, ns in next_ns if ns is not None])
    name, text = "beanstalkd_tube_pause_seconds_left", "Until its pause ends"
    out.family(name, "gauge", text, [(x, t.pause_ns / NS) for x, t in named])
    yield out.take()
    yield from _tube_histograms(out, "beanstalkd_tube_wait_seconds", WAIT, tubes, "waits")
    yield from _tube_histograms(out, "beanstalkd_tube_run_seconds", RUN, tubes, "runs")


def _write_tube_jobs(out: Writer, named: list[tuple[str, TubeFigures]], survey: TubeSurvey) -> None:
    rows = [(labels, tube.stats) for labels, tube in named]
    if survey.rest.tubes:
        rows.append(
            (REST, {f"current-jobs-{state}": getattr(survey.rest, state) for state in STATES})
        )
    out.family("beanstalkd_tube_current_jobs", "gauge", "Jobs of a tube by state", [
        (f'{labels[:-1]},state="{state}"}}', int(stats[f"current-jobs-{state}"]))
        for labels, stats in rows for state in STATES
    ])  # fmt: skip


def _tube_histograms(
    out: Writer, name: str, text: str, tubes: list[TubeFigures], field: str
) -> Iterator[bytes]:
    out.head(name, "histogram", text)
    bounds = seconds(BOUNDS_NS)
    for at in range(0, len(tubes), HISTOGRAM_TUBES):
        for tube in tubes[at : at + HISTOGRAM_TUBES]:
            if tube.times is not None:
                values = getattr(tube.times, field)
                out.histogram(name, f'tube="{escaped(tube.name)}"', values, bounds)
        yield out.take()
