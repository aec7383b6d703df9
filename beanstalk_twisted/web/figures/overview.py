"""The figures of the whole server, as the console's plots show them."""

from typing import Any, Final

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.replication.roster import Situation
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.figures.history import Figures
from beanstalk_twisted.web.figures.tube_figures import NO_JOB, age_ns, oldest_ready_id

LOOK_TUBES: Final = 1000
"""
Tubes that one tick asks for their oldest job: some 1 ms if all have ready ones.  With 10,000 tubes
an age is up to ten seconds old.
"""

SHOWN_LAG_S: Final = 1.0
"""Seconds: what has waited for the stream for less is an everyday thing."""

MS_NS: Final = 1_000_000


class OldestReady:
    """Finds the oldest ready job of all tubes, some tubes at each call."""

    def __init__(self, state: QueueState) -> None:
        self._state = state
        self._at = 0
        self._found_ns = self._oldest_ns = 0

    def look(self, now_ns: int) -> int:
        """
        Look at the next tubes.

        :return: how long ago the oldest was put, as of the last time that all had been asked.
        """
        tubes = self._state.tubes.in_order
        some = tubes[self._at : self._at + LOOK_TUBES]
        oldest = min(map(oldest_ready_id, some), default=NO_JOB)
        self._found_ns = max(self._found_ns, age_ns(oldest, self._state, now_ns))
        self._at += LOOK_TUBES
        if self._at >= len(tubes):
            self._oldest_ns, self._found_ns, self._at = self._found_ns, 0, 0
        return self._oldest_ns


def _badge(situation: Situation | None) -> str:
    """What the console says of replication, in some words; empty without it."""
    if situation is None:
        return ""
    count, lease = len(situation.standbys), "" if situation.lease_s else ", its lease is over"
    words = f"{situation.role}{lease}, {count} standby{'' if count == 1 else 's'}"
    if situation.copies is not None and situation.copies.behind:
        words += f", the stream lacks {', '.join(situation.copies.behind)}"
    if situation.lag_s < SHOWN_LAG_S:
        return words
    records = f"{situation.lag_records} records wait for the stream"
    return f"{words}, {records} since {situation.lag_s:.0f} s"


class Overview:
    """
    Gathers the figures of a server.

    :ivar run: 16 hexadecimal digits, of this process only.
    """

    def __init__(self, service: BeanstalkService, *, may_write: bool = False) -> None:
        """:param may_write: whether the console may change anything."""
        facts = service.process.facts()
        self.run = facts.identity
        self._about = {
            "host": facts.hostname, "version": facts.version, "may_write": may_write,
            "has_log": bool(service.path),
        }  # fmt: skip
        self._service = service
        self._oldest = OldestReady(service.queue.state)

    def figures(self) -> Figures:
        """As of now."""
        service, now_ns = self._service, self._service.now_ns()
        state, tally, log = service.queue.state, service.queue.tally, service.log_figures()
        counts = state.counts
        return Figures(
            now_ns // MS_NS, counts[State.READY], counts[State.RESERVED], counts[State.DELAYED],
            counts[State.BURIED], self._oldest.look(now_ns) // MS_NS, tally.connected,
            tally.waiting, 0 if log is None else log.total_bytes,
            0 if log is None else log.live_bytes, 0 if log is None else log.unsynced_ns // MS_NS,
            tally.total_jobs, tally.total_jobs - len(state.jobs), tally.timeouts,
            sum(tally.commands.values()),
        )  # fmt: skip

    def about(self) -> dict[str, Any]:
        """What the console says of the server beside the figures."""
        service = self._service
        return {
            **self._about, "tubes": len(service.queue.state.tubes),
            "why_not_ready": service.why_not_ready(), "drains": service.queue.puts.is_draining,
            "replication": _badge(service.situation()),
            "has_access": service.access is not None,
            "wall_offset_ms": service.clock.wall_offset_ns() // MS_NS,
        }  # fmt: skip
