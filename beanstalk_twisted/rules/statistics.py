"""Counters, and what `stats` and its like answer: keys, order and formats of beanstalkd after 1.13.

Differs from beanstalkd: `binlog-*` and `file` count the segments and records of another log.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from beanstalk_twisted.binlog.records.jobs import REASONS, WITHHELD_NS, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import NS, Job
from beanstalk_twisted.jobs.limits import Groups
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.wire.layouts import Values

FactsSource = Callable[[], Values]
"""Gives the keys of `stats` that whoever runs the queue knows: those of the process and the log."""


class Tally:
    """What has been counted since the process started.

    :ivar commands: by the counter's key in `stats`, all of them.
    :ivar errors: replies that were a `Refusal`, by their word.
    :ivar watches_refused: of connections that watched as many tubes as they may.
    """

    def __init__(self, counters: Iterable[str]) -> None:
        """:param counters: the commands' keys in `stats`, in order."""
        self.commands = dict.fromkeys(counters, 0)
        self.errors: Counter[bytes] = Counter()
        self.total_jobs = self.timeouts = self.copies = 0
        self.connections = self.connected = self.watches_refused = 0
        self.producers = self.workers = self.waiting = 0

    def counts(self) -> dict[str, int]:
        commands = {key: count for key, count in self.commands.items() if count}
        return {
            **commands, "job-timeouts": self.timeouts, "total-jobs": self.total_jobs,
            "total-connections": self.connections,
        }  # fmt: skip


def server(
    state: QueueState, tally: Tally, facts: Values, *, max_job_bytes: int, is_draining: bool
) -> Values:
    counts = state.counts
    return {
        "current-jobs-urgent": state.urgent,
        "current-jobs-ready": counts[State.READY],
        "current-jobs-reserved": counts[State.RESERVED],
        "current-jobs-delayed": counts[State.DELAYED],
        "current-jobs-buried": counts[State.BURIED],
        **tally.commands,
        "job-timeouts": tally.timeouts,
        "total-jobs": tally.total_jobs,
        "max-job-size": max_job_bytes,
        "current-tubes": len(state.tubes),
        "current-connections": tally.connected,
        "current-producers": tally.producers,
        "current-workers": tally.workers,
        "current-waiting": tally.waiting,
        "total-connections": tally.connections,
        "draining": is_draining,
        **facts,
    }


def tube(tube: Tube, now_ns: int) -> Values:
    is_paused = tube.pause_until_ns != 0
    return {
        "name": tube.name.decode("ascii"),
        "current-jobs-urgent": tube.urgent,
        "current-jobs-ready": tube.ready_count,
        "current-jobs-reserved": tube.reserved,
        "current-jobs-delayed": tube.delayed.count,
        "current-jobs-buried": tube.buried.count,
        "total-jobs": tube.total_jobs,
        "current-using": tube.using,
        "current-watching": tube.watching,
        "current-waiting": tube.waiting,
        "cmd-delete": tube.deletes,
        "cmd-pause-tube": tube.pauses,
        "pause": tube.pause_s if is_paused else 0,
        "pause-time-left": whole_seconds(tube.pause_until_ns - now_ns) if is_paused else 0,
    }


IN_TUBES: Final = (State.READY, State.RESERVED, State.DELAYED, State.BURIED)


def group(groups: Groups, group: bytes) -> Values:
    """Tuber's keys; ``pending`` and ``complete`` are of its versions before 0.6.4."""
    members = groups.members(group)
    return {
        "name": group.decode("ascii"),
        "pending": members,
        **{state.name.lower(): groups.in_state(group, state) for state in IN_TUBES},
        "complete": not members,
        "waiting-jobs": groups.waiting(group),
    }


def job(job: Job, tube: Tube, now_ns: int) -> Values:
    values = _job(job, now_ns)
    values["tube"] = tube.name.decode("ascii")
    values["file"] = job.segment
    return values


def listed(job: Job, now_ns: int) -> Values:
    values = _job(job, now_ns)
    values["size"] = job.body_bytes
    if job.state is State.RESERVED:
        values["connection"] = job.holder
    return values


def _job(job: Job, now_ns: int) -> Values:
    values: Values = {
        "id": job.job_id,
        "pri": job.priority,
        "state": job.state.name.lower(),
        "age": whole_seconds(now_ns - job.created_ns),
        "delay": job.delay_s,
        "ttr": job.ttr_s,
        "time-left": time_left(job, now_ns),
        "reserves": job.reserves,
        "timeouts": job.timeouts,
        "releases": job.releases,
        "buries": job.buries,
        "kicks": job.kicks,
    }
    if job.tags is not None:
        values.update(carried(job.tags))
    return values


def carried(tags: Tags) -> Values:
    """Tags of a job, and where it came from, if it was moved.  The first words are Tuber's."""
    values: Values = {}
    if tags.unique_key:
        values["idempotency-key"] = _name(tags.unique_key)
        values["idempotency-ttl"] = tags.unique_s
    if tags.group:
        values["group"] = _name(tags.group)
    if tags.after:
        values["after-group"] = _name(tags.after)
    if tags.concurrency_key:
        values["concurrency-key"] = _name(tags.concurrency_key)
        values["concurrency-limit"] = tags.concurrency_limit
    if tags.metadata:
        values["metadata"] = _name(tags.metadata)
    if tags.dead_from:
        values["dead-from"] = _name(tags.dead_from)
        values["dead-reason"] = REASONS.get(tags.dead_reason, str(tags.dead_reason))
        values["dead-at"] = tags.dead_at_ns // NS
    if tags.origin:
        values["origin"] = _name(tags.origin)
    return values


def _name(name: bytes) -> str:
    return name.decode("ascii", "replace")


def time_left(job: Job, now_ns: int) -> int:
    """Until the end of its TTR or delay, seconds; 0 if it waits for no moment."""
    has_time_left = job.state in (State.RESERVED, State.DELAYED) and job.deadline_ns < WITHHELD_NS
    return whole_seconds(job.deadline_ns - now_ns) if has_time_left else 0


def whole_seconds(ns: int) -> int:
    """Truncated toward zero, as C divides."""
    return ns // NS if ns >= 0 else -(-ns // NS)
