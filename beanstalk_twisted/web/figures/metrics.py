"""``/metrics``: every number of `stats`, the log, the reactor, the process, and tubes.

docs/monitoring.md lists them; a test compares it with what is served.
"""

import math
import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.jobs.figures import BOUNDS_NS, Histogram, TubeTimes
from beanstalk_twisted.jobs.quota import NO_LIMIT, Limits, Quota
from beanstalk_twisted.replication.roster import STANDBY
from beanstalk_twisted.rules.statistics import Pairs
from beanstalk_twisted.server.access_control import AccessControl
from beanstalk_twisted.server.anomalies import Handshakes
from beanstalk_twisted.server.execution_context import COMMAND_BOUNDS_NS
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.body_reads import READ_BOUNDS_NS
from beanstalk_twisted.storage.environment import SYNC_BOUNDS_NS
from beanstalk_twisted.storage.store import LogFigures
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.web.exchange import Call, Document
from beanstalk_twisted.web.figures.exposition import (
    NS,
    OPENMETRICS,
    PROMETHEUS,
    Writer,
    escaped,
    labelled,
    seconds,
    wants_openmetrics,
)
from beanstalk_twisted.web.figures.overview import LAG_BOUNDS_NS, OldestReady
from beanstalk_twisted.web.figures.tube_figures import TubeFigures, TubeSurvey
from beanstalk_twisted.web.replication import write_replication
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.yaml import Quoted, Value

HISTOGRAM_TUBES: Final = 25
"""Tubes whose histograms one slice writes: about a millisecond."""

REST: Final = '{tube="-others-"}'
"""The tubes that are not shown; no tube's name begins with a hyphen."""

PAGE_BYTES: Final = resource.getpagesize()

STATES: Final = ("ready", "reserved", "delayed", "buried")

_NO_TIMES: Final = TubeTimes()


class Single(NamedTuple):
    """A key of `stats` that is a metric of its own."""

    name: str
    kind: str
    text: str


GAUGES: Final = {
    "max-job-size": Single("beanstalkd_max_job_size_bytes", "gauge", "Largest body that is taken"),
    "current-tubes": Single("beanstalkd_current_tubes", "gauge", "Tubes"),
    "current-connections": Single("beanstalkd_current_connections", "gauge", "Connections"),
    "current-producers": Single(
        "beanstalkd_current_producers", "gauge", "Connections that have put"
    ),
    "current-workers": Single(
        "beanstalkd_current_workers", "gauge", "Connections that have reserved"
    ),
    "current-waiting": Single(
        "beanstalkd_current_waiting", "gauge", "Connections that wait for a job"
    ),
    "current-jobs-urgent": Single(
        "beanstalkd_current_jobs_urgent", "gauge", "Ready jobs of a priority below 1024"
    ),
    "job-timeouts": Single("beanstalkd_job_timeouts_total", "counter", "TTRs that have ended"),
    "total-jobs": Single("beanstalkd_jobs_total", "counter", "Jobs that were put"),
    "total-connections": Single(
        "beanstalkd_connections_total", "counter", "Connections that were made"
    ),
    "pid": Single("beanstalkd_pid", "gauge", "Number of the process"),
    "uptime": Single("beanstalkd_uptime_seconds", "gauge", "Seconds since the start"),
    "rusage-utime": Single(
        "beanstalkd_rusage_utime_seconds_total", "counter", "Processor time in user mode"
    ),
    "rusage-stime": Single(
        "beanstalkd_rusage_stime_seconds_total", "counter", "Processor time in the kernel"
    ),
    "binlog-oldest-index": Single("beanstalkd_binlog_oldest_index", "gauge", "Oldest segment"),
    "binlog-current-index": Single("beanstalkd_binlog_current_index", "gauge", "Newest segment"),
    "binlog-records-migrated": Single(
        "beanstalkd_binlog_records_migrated_total", "counter", "Jobs that compaction wrote again"
    ),
    "binlog-records-written": Single(
        "beanstalkd_binlog_records_written_total", "counter", "Records appended to the log"
    ),
    "binlog-max-size": Single(
        "beanstalkd_binlog_max_size_bytes", "gauge", "Size of a full segment"
    ),
}  # fmt: skip
"""By key of `stats`; ``cmd-*`` and the states of jobs are labels of others."""

TUBE_GAUGES: Final = (
    ("beanstalkd_tube_current_jobs_urgent", "Urgent jobs", "urgent"),
    ("beanstalkd_tube_current_using", "Connections that put there", "using"),
    ("beanstalkd_tube_current_watching", "Connections that watch it", "watching"),
    ("beanstalkd_tube_current_waiting", "Connections that wait for a job of it", "waiting"),
)
TUBE_COUNTERS: Final = (
    ("beanstalkd_tube_jobs_total", "Jobs that were put", "total_jobs"),
    ("beanstalkd_tube_deletes_total", "Jobs that were deleted", "deletes"),
    ("beanstalkd_tube_pauses_total", "Pauses that were asked for", "pauses"),
)
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


class Metrics:
    """Writes the metrics of a server."""

    def __init__(
        self, service: BeanstalkService, lags: Histogram, http: Callable[[], tuple[int, int, int]],
        most_tubes: int, oldest: OldestReady,
    ) -> None:  # fmt: skip
        """:param lags: of the reactor.
        :param http: says how many HTTP connections there are, were refused, and how many requests
            there were.
        :param most_tubes: how many tubes are shown one by one.
        :param oldest: finds the oldest ready job.
        """
        self._service = service
        self._lags = lags
        self._http = http
        self._most_tubes = most_tubes
        self._oldest = oldest

    def metrics(self, call: Call) -> Document:
        """All of them, in the format that the request prefers."""
        is_openmetrics = wants_openmetrics(call.headers.get("accept", ""))
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
        _write_server(out, service.queue.server_pairs())
        _write_errors(out, service.queue.tally.errors)
        _write_process(out)
        figures = service.log_figures()
        if figures is not None:
            _write_log(out, figures, service.loading)
        self._write_others(out)
        yield out.take()
        now_ns, oldest = service.now_ns(), self._oldest
        name, text = "beanstalkd_oldest_ready_age_seconds", "Since the oldest ready job was put"
        out.single(name, "gauge", text, oldest.age_ns(now_ns) / NS)
        survey = TubeSurvey(service.queue.state, now_ns, self._most_tubes, oldest.tubes)
        for _ in survey.slices():
            yield b""
        name, text = "beanstalkd_tubes_without_workers", "Tubes with ready jobs that nobody watches"
        out.single(name, "gauge", text, survey.unwatched)
        yield from _tubes(out, survey)
        out.end()
        yield out.take()

    def _write_bodies(self, out: Writer) -> None:
        state, reads = self._service.queue.state, self._service.body_reads
        name, text = "beanstalkd_bodies_memory_bytes", "Bodies that are in memory"
        out.single(name, "gauge", text, state.jobs.loaded_bytes)
        name, text = "beanstalkd_bodies_log_bytes", "Bodies that are in the log only"
        out.single(name, "gauge", text, state.jobs.absent_bytes)
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
        name = "beanstalkd_body_read_seconds"
        out.head(name, "histogram", "How long a body took to come back")
        out.histogram(name, "", reads.times, seconds(READ_BOUNDS_NS))

    def _write_others(self, out: Writer) -> None:
        memory = self._service.memory
        name = "beanstalkd_jobs_memory_bytes"
        out.single(name, "gauge", "Memory that jobs take, as it is counted", memory.used_bytes)
        name = "beanstalkd_jobs_memory_limit_bytes"
        out.single(name, "gauge", "Memory that jobs may take", memory.most_bytes)
        self._write_bodies(out)
        name, text = "beanstalkd_dead_letters", "Dead letters that are buried"
        out.single(name, "gauge", text, self._service.queue.state.dead_letters.buried)
        out.head("beanstalkd_reactor_lag_seconds", "histogram", "How late timers are called")
        out.histogram("beanstalkd_reactor_lag_seconds", "", self._lags, seconds(LAG_BOUNDS_NS))
        times = self._service.queue.state.times
        if times is not None:
            _write_times(out, "beanstalkd_wait_seconds", WAIT, times.total.waits)
            _write_times(out, "beanstalkd_run_seconds", RUN, times.total.runs)
        self._write_commands(out)
        access = self._service.access
        if access is not None:
            _write_access(out, access)
        name, text = "beanstalkd_watches_refused_total", "Tubes that were one too many to watch"
        out.single(name, "counter", text, self._service.queue.tally.watches_refused)
        name = "beanstalkd_changes_refused_total"
        text = "Changes refused while the stream of a replicated queue was silent"
        out.single(name, "counter", text, self._service.changes_refused)
        name = "beanstalkd_connections_stalled_total"
        text = "Connections closed that had begun a command and did not go on"
        out.single(name, "counter", text, self._service.connections.stalled)
        _write_handshakes(out, self._service.handshakes)
        connections, refused, requests = self._http()
        out.head("beanstalkd_connections_rejected_total", "counter", "Connections refused")
        for protocol, count in (
            ("beanstalk", self._service.connections.refused), ("http", refused)
        ):  # fmt: skip
            labels = labelled({"protocol": protocol})
            out.sample("beanstalkd_connections_rejected_total", labels, count)
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
        name = "beanstalkd_slow_commands_total"
        out.head(name, "counter", "Commands that were logged as slow")
        for command, count in sorted(times.slow.items()):
            out.sample(name, labelled({"command": command}), count)


def _write_access(out: Writer, access: AccessControl) -> None:
    tokens = access.authenticator
    refused = access.guard.refused
    out.single("beanstalkd_unauthorized_total", "counter", "Commands without right", refused)
    out.head("beanstalkd_tokens_total", "counter", "Tokens that were shown")
    for outcome, count in (("right", tokens.successes), ("wrong", tokens.failures)):
        out.sample("beanstalkd_tokens_total", labelled({"outcome": outcome}), count)
    _write_quotas(out, access.guard.quotas.by_name)


def _write_quotas(out: Writer, quotas: Mapping[str, Quota]) -> None:
    """What identities take of what they may."""
    rows = [
        (labelled({"identity": name, "limit": limit.replace("_", "-")}), limit, quota)
        for name, quota in sorted(quotas.items())
        for limit, most in zip(Limits._fields, quota.limits, strict=True)
        if most < NO_LIMIT
    ]
    if not rows:
        return
    name = "beanstalkd_identity_limit"
    out.head(name, "gauge", "What an identity may take, by limit")
    for labels, limit, quota in rows:
        out.sample(name, labels, getattr(quota.limits, limit))
    name = "beanstalkd_identity_used"
    out.head(name, "gauge", "What an identity takes, by limit")
    for labels, limit, quota in rows:
        if limit != "put_rate":
            out.sample(name, labels, getattr(quota.used, limit))
    name = "beanstalkd_identity_refusals_total"
    out.head(name, "counter", "What was refused since a limit of its identity was reached")
    for labels, limit, quota in rows:
        out.sample(name, labels, quota.refusals[limit])


def _write_handshakes(out: Writer, handshakes: Handshakes) -> None:
    """Nothing where nobody speaks TLS."""
    if not handshakes.expiries:
        return
    name = "beanstalkd_tls_handshakes_total"
    out.head(name, "counter", "Handshakes of TLS, by what became of them")
    for outcome, count in handshakes.counts.items():
        out.sample(name, labelled({"outcome": outcome}), count)
    name = "beanstalkd_tls_expires_timestamp_seconds"
    out.head(name, "gauge", "When the first certificate or revocation list of a kind ends")
    ends: dict[str, float] = {}
    for expiries in handshakes.expiries.values():
        for each in expiries():
            ends[each.kind] = min(ends.get(each.kind, math.inf), each.ends.timestamp())
    for kind, moment in ends.items():
        out.sample(name, labelled({"kind": kind}), moment)


WAIT: Final = "From the end of a job's delay to its first reservation"
RUN: Final = "From a job's reservation to its deletion by who reserved it"


def _write_times(out: Writer, name: str, text: str, values: Histogram) -> None:
    out.head(name, "histogram", text)
    out.histogram(name, "", values, seconds(BOUNDS_NS))


def _write_server(out: Writer, pairs: Pairs) -> None:
    """What `stats` says."""
    values = {key: value for key, value in pairs}
    out.single("beanstalkd_up", "gauge", "Always 1: there is a server", 1)
    about = {key: _words(values[key]) for key in ("id", "hostname", "os", "platform")}
    out.head("beanstalkd_info", "info", "What runs")
    out.sample("beanstalkd_info", labelled({"version": VERSION, **about}), 1)
    out.head("beanstalkd_current_jobs", "gauge", "Jobs by state")
    for state in STATES:
        count = int(str(values[f"current-jobs-{state}"]))
        out.sample("beanstalkd_current_jobs", labelled({"state": state}), count)
    out.head("beanstalkd_commands_total", "counter", "Commands by name")
    for key, value in pairs:
        if key.startswith("cmd-"):
            command = labelled({"command": key.removeprefix("cmd-")})
            out.sample("beanstalkd_commands_total", command, int(str(value)))
    for key, single in GAUGES.items():
        out.single(*single, value=float(str(values[key])))
    is_draining = values["draining"] == "true"
    out.single("beanstalkd_draining", "gauge", "1 while new jobs are refused", int(is_draining))


def _write_errors(out: Writer, errors: Mapping[bytes, int]) -> None:
    """Replies that say that a command was not carried out, those that nobody has had too."""
    out.head("beanstalkd_errors_total", "counter", "Commands that were refused, by the reply")
    for word in sorted({*ERROR_WORDS, *errors}):
        if word != DEADLINE_SOON:
            reply = labelled({"reply": word.decode()})
            out.sample("beanstalkd_errors_total", reply, errors.get(word, 0))
    name, text = "beanstalkd_deadline_soon_total", "Reserves that were answered DEADLINE_SOON"
    out.single(name, "counter", text, errors.get(DEADLINE_SOON, 0))


def _words(value: Value) -> str:
    return value.text if isinstance(value, Quoted) else str(value)


def _write_process(out: Writer) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    out.single(
        "process_cpu_seconds_total", "counter", "Processor time", usage.ru_utime + usage.ru_stime
    )
    virtual, resident = _memory()
    out.single("process_resident_memory_bytes", "gauge", "Memory that is in use", resident)
    out.single("process_virtual_memory_bytes", "gauge", "Addresses that are in use", virtual)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    out.single("process_max_fds", "gauge", "Limit of file descriptors", most)


def _memory() -> tuple[int, int]:
    """:return: the bytes of the process's addresses, and of its memory; 0 where no /proc tells."""
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
    """The log.

    :param loading: see `BeanstalkService.loading`.
    """
    jobs, load_s = loading
    live, total = figures.live_bytes, figures.total_bytes
    gauges = (
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
    )  # fmt: skip
    for name, text, value in gauges:
        out.single(f"beanstalkd_binlog_{name}", "gauge", text, value)
    for name, text, size in (
        ("free", "Bytes left on its disk", figures.disk_free_bytes),
        ("size", "Bytes that its disk has when it is empty", figures.disk_size_bytes),
    ):
        if size is not None:
            out.single(f"beanstalkd_binlog_disk_{name}_bytes", "gauge", text, size)
    name, text = "beanstalkd_binlog_unchecked_bytes", "Bytes of segments with unchecked bodies"
    out.single(name, "gauge", text, figures.unchecked_bytes)
    if figures.unarchived is not None:
        segments, size = figures.unarchived
        name = "beanstalkd_binlog_unarchived"
        out.single(f"{name}_files", "gauge", "Finished segments that the archive lacks", segments)
        out.single(f"{name}_bytes", "gauge", "Their bytes", size)
    out.head("beanstalkd_binlog_state", "gauge", "1 for the state that it is in")
    for state in ("ok", "full"):
        is_so = figures.is_full is (state == "full")
        out.sample("beanstalkd_binlog_state", labelled({"state": state}), int(is_so))
    out.single("beanstalkd_binlog_replay_jobs", "gauge", "Jobs that the start has loaded", jobs)
    name = "beanstalkd_binlog_replay_seconds"
    out.single(name, "gauge", "How long the start took to load them", load_s)
    commits = figures.commits
    name = "beanstalkd_binlog_fsync_seconds"
    out.head(name, "histogram", "Syncs, with the write before")
    out.histogram(name, "", commits.syncs, seconds(SYNC_BOUNDS_NS))
    name = "beanstalkd_binlog_group_commit_size"
    out.head(name, "histogram", "Records written together")
    out.count_histogram(name, commits.batches)


def _tubes(out: Writer, survey: TubeSurvey) -> Iterator[bytes]:
    """Family by family, each with all tubes."""
    tubes = survey.shown
    labels = [f'{{tube="{escaped(tube.name)}"}}' for tube in tubes]
    named = list(zip(labels, tubes, strict=True))
    rest = survey.rest
    name = "beanstalkd_tubes_not_shown"
    out.single(name, "gauge", "Tubes that are summed up as one", rest.tubes)
    _write_tube_jobs(out, named, survey)
    yield out.take()
    for name, text, field in TUBE_GAUGES:
        _write_tube_values(out, name, "gauge", text, [(x, getattr(t, field)) for x, t in named])
    yield out.take()
    for name, text, field in TUBE_COUNTERS:
        _write_tube_values(out, name, "counter", text, [(x, getattr(t, field)) for x, t in named])
    yield out.take()
    happened = [(x, t.times or _NO_TIMES) for x, t in named]
    for name, text, field in TUBE_EVENTS:
        _write_tube_values(
            out, name, "counter", text, [(x, getattr(t, field)) for x, t in happened]
        )
        yield out.take()
    name, text = "beanstalkd_tube_oldest_ready_age_seconds", "Since its oldest ready job was put"
    _write_tube_values(out, name, "gauge", text, [(x, t.oldest_ns / NS) for x, t in named])
    name, text = "beanstalkd_tube_next_delayed_seconds", "Until its next delayed job is ready"
    next_ns = [(x, t.next_delayed_ns) for x, t in named]
    due = [(x, ns / NS) for x, ns in next_ns if ns is not None]
    _write_tube_values(out, name, "gauge", text, due)
    name, text = "beanstalkd_tube_pause_seconds_left", "Until its pause ends"
    _write_tube_values(out, name, "gauge", text, [(x, t.pause_ns / NS) for x, t in named])
    yield out.take()
    yield from _tube_histograms(out, "beanstalkd_tube_wait_seconds", WAIT, tubes, "waits")
    yield from _tube_histograms(out, "beanstalkd_tube_run_seconds", RUN, tubes, "runs")


def _write_tube_jobs(out: Writer, named: list[tuple[str, TubeFigures]], survey: TubeSurvey) -> None:
    name = "beanstalkd_tube_current_jobs"
    out.head(name, "gauge", "Jobs of a tube by state")
    for labels, tube in named:
        start = f"{labels[:-1]},state="
        for state in STATES:
            out.sample(name, f'{start}"{state}"}}', getattr(tube, state))
    if survey.rest.tubes:
        for state in STATES:
            out.sample(name, f'{REST[:-1]},state="{state}"}}', getattr(survey.rest, state))


def _write_tube_values(
    out: Writer, name: str, kind: str, text: str, values: Sequence[tuple[str, float]]
) -> None:
    out.head(name, kind, text)
    for labels, value in values:
        out.sample(name, labels, value)


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
