"""Counters, and what `stats` and its like answer: keys, order and formats of beanstalkd after 1.13.

Differs from beanstalkd: `binlog-*` and `file` count the segments and records of another log.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from beanstalk_twisted.binlog.records.jobs import REASONS, WITHHELD_NS, State
from beanstalk_twisted.jobs.job import NS, Job
from beanstalk_twisted.jobs.limits import Groups
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.yaml import Quoted, Value

Pairs = list[tuple[str, Value]]


class ProcessFacts(NamedTuple):
    """What `stats` says about the process; whoever runs the queue knows it.

    :ivar utime_us: CPU time in user mode, microseconds; ``stime_us`` in the kernel.
    :ivar identity: 16 hexadecimal digits, random for each process.
    """

    pid: int
    version: str
    utime_us: int
    stime_us: int
    uptime_s: int
    binlog_oldest: int
    binlog_current: int
    binlog_migrated: int
    binlog_written: int
    binlog_max_bytes: int
    identity: str
    hostname: str
    os: str
    platform: str


FactsSource = Callable[[], ProcessFacts]


class Tally:
    """What has been counted since the process started.

    :ivar commands: by the counter's key in `stats`; a `Counter` would take seven times as long.
    :ivar errors: replies that were a `Refusal`, by their word.
    :ivar watches_refused: of connections that watched as many tubes as they may.
    """

    def __init__(self) -> None:
        self.commands: defaultdict[str, int] = defaultdict(int)
        self.errors: Counter[bytes] = Counter()
        self.total_jobs = self.timeouts = self.copies = 0
        self.connections = self.connected = self.watches_refused = 0
        self.producers = self.workers = self.waiting = 0

    def counts(self) -> dict[str, int]:
        return {
            **self.commands, "job-timeouts": self.timeouts, "total-jobs": self.total_jobs,
            "total-connections": self.connections,
        }  # fmt: skip


def server(
    state: QueueState, tally: Tally, counters: Sequence[str], facts: ProcessFacts, *,
    max_job_bytes: int, is_draining: bool,
) -> Pairs:  # fmt: skip
    """:param counters: keys of the commands' counters, in order."""
    return [
        ("current-jobs-urgent", state.urgent),
        ("current-jobs-ready", state.counts[State.READY]),
        ("current-jobs-reserved", state.counts[State.RESERVED]),
        ("current-jobs-delayed", state.counts[State.DELAYED]),
        ("current-jobs-buried", state.counts[State.BURIED]),
        *((key, tally.commands.get(key, 0)) for key in counters),
        ("job-timeouts", tally.timeouts),
        ("total-jobs", tally.total_jobs),
        ("max-job-size", max_job_bytes),
        ("current-tubes", len(state.tubes)),
        ("current-connections", tally.connected),
        ("current-producers", tally.producers),
        ("current-workers", tally.workers),
        ("current-waiting", tally.waiting),
        ("total-connections", tally.connections),
        ("pid", facts.pid),
        ("version", Quoted(facts.version)),
        ("rusage-utime", _seconds(facts.utime_us)),
        ("rusage-stime", _seconds(facts.stime_us)),
        ("uptime", facts.uptime_s),
        ("binlog-oldest-index", facts.binlog_oldest),
        ("binlog-current-index", facts.binlog_current),
        ("binlog-records-migrated", facts.binlog_migrated),
        ("binlog-records-written", facts.binlog_written),
        ("binlog-max-size", facts.binlog_max_bytes),
        ("draining", "true" if is_draining else "false"),
        ("id", yaml.name(facts.identity)),
        ("hostname", Quoted(facts.hostname)),
        ("os", Quoted(facts.os)),
        ("platform", Quoted(facts.platform)),
    ]


def tube(tube: Tube, now_ns: int) -> Pairs:
    return [
        ("name", Quoted(tube.name.decode("ascii"))),
        ("current-jobs-urgent", tube.urgent),
        ("current-jobs-ready", tube.ready_count),
        ("current-jobs-reserved", tube.reserved),
        ("current-jobs-delayed", tube.delayed.count),
        ("current-jobs-buried", tube.buried.count),
        ("total-jobs", tube.total_jobs),
        ("current-using", tube.using),
        ("current-watching", tube.watching),
        ("current-waiting", tube.waiting),
        ("cmd-delete", tube.deletes),
        ("cmd-pause-tube", tube.pauses),
        ("pause", tube.pause_s if tube.pause_until_ns else 0),
        ("pause-time-left", whole_seconds(tube.pause_until_ns - now_ns)
         if tube.pause_until_ns else 0),
    ]  # fmt: skip


def group(groups: Groups, group: bytes) -> Pairs:
    """Tuber's keys; ``pending`` and ``complete`` are of its versions before 0.6.4."""
    members = groups.members(group)
    states = (State.READY, State.RESERVED, State.DELAYED, State.BURIED)
    return [
        ("name", Quoted(group.decode("ascii"))),
        ("pending", members),
        *[(state.name.lower(), groups.in_state(group, state)) for state in states],
        ("complete", "false" if members else "true"),
        ("waiting-jobs", groups.waiting(group)),
    ]


def job(job: Job, tube: Tube, now_ns: int) -> Pairs:
    return [
        ("id", job.job_id),
        ("tube", Quoted(tube.name.decode("ascii"))),
        ("state", job.state.name.lower()),
        ("pri", job.priority),
        *_times(job, now_ns),
        ("file", job.segment),
        *_counts(job),
        *carried(job),
    ]


def _times(job: Job, now_ns: int) -> Pairs:
    return [
        ("age", whole_seconds(now_ns - job.created_ns)),
        ("delay", job.delay_s),
        ("ttr", job.ttr_s),
        ("time-left", time_left(job, now_ns)),
    ]


def _counts(job: Job) -> Pairs:
    return [
        ("reserves", job.reserves),
        ("timeouts", job.timeouts),
        ("releases", job.releases),
        ("buries", job.buries),
        ("kicks", job.kicks),
    ]


def listed(job: Job, now_ns: int) -> Pairs:
    pairs: Pairs = [
        ("id", job.job_id),
        ("pri", job.priority),
        ("state", job.state.name.lower()),
        ("size", job.body_bytes),
        *_times(job, now_ns),
        *_counts(job),
    ]
    if job.state is State.RESERVED:
        pairs.append(("connection", job.holder))
    return pairs + carried(job)


def carried(job: Job) -> Pairs:
    """What is said of a job behind all else: its tags, if it has any, and where it came from, if it
    was moved.  The first words are Tuber's.
    """
    tags = job.tags
    pairs: Pairs = []
    if tags is None:
        return pairs
    if tags.unique_key:
        pairs += [("idempotency-key", _name(tags.unique_key)), ("idempotency-ttl", tags.unique_s)]
    if tags.group:
        pairs.append(("group", _name(tags.group)))
    if tags.after:
        pairs.append(("after-group", _name(tags.after)))
    if tags.concurrency_key:
        pairs.append(("concurrency-key", _name(tags.concurrency_key)))
        pairs.append(("concurrency-limit", tags.concurrency_limit))
    if tags.metadata:
        pairs.append(("metadata", _name(tags.metadata)))
    if tags.dead_from:
        pairs += [
            ("dead-from", _name(tags.dead_from)),
            ("dead-reason", REASONS.get(tags.dead_reason, str(tags.dead_reason))),
            ("dead-at", tags.dead_at_ns // NS),
        ]
    if tags.origin:
        pairs.append(("origin", _name(tags.origin)))
    return pairs


def _name(name: bytes) -> Quoted:
    return Quoted(name.decode("ascii", "replace"))


def time_left(job: Job, now_ns: int) -> int:
    """Until the end of its TTR or delay, seconds; 0 if it waits for no moment."""
    has_time_left = job.state in (State.RESERVED, State.DELAYED) and job.deadline_ns < WITHHELD_NS
    return whole_seconds(job.deadline_ns - now_ns) if has_time_left else 0


def whole_seconds(ns: int) -> int:
    """Truncated toward zero, as C divides."""
    return ns // NS if ns >= 0 else -(-ns // NS)


def _seconds(us: int) -> str:
    return f"{us // 1_000_000}.{us % 1_000_000:06d}"
