"""The figures of the whole server, as the console's plots show them."""

from collections import deque
from itertools import islice
from typing import Any, Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.figures import MS, Histogram
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.replication.membership import Situation
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.site import Part
from beanstalk_twisted.web.tube_figures import NO_JOB, age_ns, oldest_ready_id

RECENT_ROWS: Final = 300
"""Rows, one a tick: five minutes of seconds, on a plot of 300 to 600 pixels."""

LONG_TICKS: Final = 30
"""Ticks that one row of the long history stands for: half a minute."""

LONG_ROWS: Final = 720
"""Rows of the long history: six hours, a working day's half; both rings take 110 to 310 KB."""

MAX_ROW_BYTES: Final = 301
"""Bytes of a row: 15 numbers of up to 19 digits, and what stands between them."""


class Figures(NamedTuple):
    """The server at one moment.  What is counted since the start comes last.

    :ivar at_ms: the log's time, milliseconds.
    :ivar oldest_ms: how long ago the oldest ready job was put; 0 if there is none.
    :ivar unsynced_ms: how long the oldest change that is not on disk has waited.
    :ivar ended: jobs that are there no more.
    """

    at_ms: int
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0
    oldest_ms: int = 0
    connections: int = 0
    waiting: int = 0
    log_bytes: int = 0
    live_bytes: int = 0
    unsynced_ms: int = 0
    puts: int = 0
    ended: int = 0
    timeouts: int = 0
    commands: int = 0


COUNTED: Final = Figures._fields[-4:]
"""The fields that only grow: differences of two rows are what happened between them."""

FIRST_COUNTED: Final = len(Figures._fields) - len(COUNTED)


class History:
    """Two rings of rows: each second of some minutes, each half minute of hours.  A row is kept as
    the JSON that is sent, so sending it costs no more than a copy.

    :ivar ticks: how many rows were noted.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self._recent: deque[bytes] = deque(maxlen=RECENT_ROWS)
        self._long: deque[bytes] = deque(maxlen=LONG_ROWS)
        self._peaks: Figures | None = None

    def note(self, figures: Figures) -> bytes:
        """Keep one more row, and return it as a JSON array in the order of the fields."""
        row = _encoded(figures)
        self._recent.append(row)
        self.ticks += 1
        self._peaks = figures if self._peaks is None else _peaks(self._peaks, figures)
        if self.ticks % LONG_TICKS == 0:
            self._long.append(_encoded(self._peaks))
            self._peaks = None
        return row

    def recent(self, after: int = 0) -> bytes:
        """:param after: a number of ticks; 0 for all that is kept.
        :return: a JSON array of the rows after that one.
        """
        skipped = max(0, len(self._recent) - max(0, self.ticks - after))
        return _joined(islice(self._recent, skipped, None))

    def has_all_behind(self, tick: int) -> bool:
        """Return whether no row after this one is lost."""
        return self.ticks - len(self._recent) <= tick <= self.ticks

    def long(self) -> bytes:
        """:return: a JSON array of the long history's rows: of what is counted the last value, of
        all else the highest in its half minute.
        """
        return _joined(self._long)


def _peaks(before: Figures, now: Figures) -> Figures:
    highest = map(max, before[1:FIRST_COUNTED], now[1:FIRST_COUNTED])
    return Figures(now.at_ms, *highest, *now[FIRST_COUNTED:])


def _encoded(figures: Figures) -> bytes:
    return b"[%s]" % ",".join(map(str, figures)).encode("ascii")


def _joined(rows: "islice[bytes] | deque[bytes]") -> bytes:
    return b"[%s]" % b",".join(rows)


PERIOD_S: Final = 0.1
"""Seconds between two measurements: ten calls a second cost nothing that could be measured."""


LAG_BOUNDS_NS: Final = tuple(
    ms * MS for ms in (1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 5000)
)  # fmt: skip


class ReactorLag(Part):
    """Measures all the time by how much a timer is late, in ns."""

    def __init__(self, reactor: IReactorTime) -> None:
        self.lags = Histogram(LAG_BOUNDS_NS)
        self._reactor = reactor
        self._call: IDelayedCall | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._due_s = self._reactor.seconds() + PERIOD_S
        self._call = self._reactor.callLater(PERIOD_S, self._measure)

    def stop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _measure(self) -> None:
        late_s = self._reactor.seconds() - self._due_s
        self.lags.note(max(0, round(late_s * 1e9)))
        self.start()


LOOK_TUBES: Final = 1000
"""Tubes that one tick asks for their oldest job: some 1 ms if all have ready ones.  With 10,000
tubes an age is up to ten seconds old.
"""

OLD_NS: Final = 300_000_000_000
"""Age of its oldest ready job, ns, from which on a tube is in trouble: a third of what the shipped
alert waits for, so that the tube has metrics of its own long before that fires.
"""

SHOWN_LAG_S: Final = 1.0
"""Seconds that records wait for the stream before the console says so."""


class OldestReady:
    """Finds the oldest ready job of all tubes, some tubes at each call.

    :ivar tubes: those whose oldest ready job is older than `OLD_NS`, as of the last look at all.
    """

    def __init__(self, state: QueueState) -> None:
        self.tubes: set[Tube] = set()
        self._state = state
        self._at = 0
        self._put_ns: int | None = None
        self._found_ns: int | None = None
        self._found: set[Tube] = set()
        # The ids up to which jobs are known to be old, and from which on they are not yet.
        self._old_to, self._young_from = 0, NO_JOB

    def look(self, now_ns: int) -> int:
        """Look at the next tubes, and return `age_ns`."""
        tubes = self._state.tubes.in_order
        oldest, self._young_from = NO_JOB, NO_JOB
        for tube in tubes[self._at : self._at + LOOK_TUBES]:
            if tube.ready_count:
                job_id = oldest_ready_id(tube)
                if job_id < oldest:
                    oldest = job_id
                # Ids grow with time: few jobs have to be looked up.
                if job_id < self._young_from and (
                    job_id <= self._old_to or self._is_old(job_id, now_ns)
                ):
                    self._found.add(tube)
        job = self._state.jobs.look(oldest)
        if job is not None and (self._found_ns is None or job.created_ns < self._found_ns):
            self._found_ns = job.created_ns
        self._at += LOOK_TUBES
        if self._at >= len(tubes):
            self._put_ns, self._found_ns, self._at = self._found_ns, None, 0
            self.tubes, self._found = self._found, set()
        return self.age_ns(now_ns)

    def age_ns(self, now_ns: int) -> int:
        """How long ago the oldest ready job was put, as of the last look at all; 0 for none."""
        return 0 if self._put_ns is None else max(0, now_ns - self._put_ns)

    def _is_old(self, job_id: int, now_ns: int) -> bool:
        is_old = age_ns(job_id, self._state, now_ns) > OLD_NS
        if is_old:
            self._old_to = job_id
        else:
            self._young_from = job_id
        return is_old


def _badge(situation: Situation | None) -> str:
    """Say in some words how replication is; empty without it."""
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
    """Gathers the figures of a server.  :ivar run: 16 hexadecimal digits, of this process only."""

    def __init__(self, service: BeanstalkService, *, may_write: bool = False) -> None:
        facts = service.process.facts()
        self.run = str(facts["id"])
        self._about = {
            "host": facts["hostname"], "version": facts["version"], "may_write": may_write,
            "has_log": bool(service.path),
        }  # fmt: skip
        self._service = service
        self.oldest = OldestReady(service.queue.state)

    def figures(self) -> Figures:
        service, now_ns = self._service, self._service.now_ns()
        state, tally, log = service.queue.state, service.queue.tally, service.log_figures()
        counts = state.counts
        return Figures(
            now_ns // MS, counts[State.READY], counts[State.RESERVED], counts[State.DELAYED],
            counts[State.BURIED], self.oldest.look(now_ns) // MS, tally.connected,
            tally.waiting, 0 if log is None else log.total_bytes,
            0 if log is None else log.live_bytes, 0 if log is None else log.unsynced_ns // MS,
            tally.total_jobs, tally.total_jobs - len(state.jobs), tally.timeouts,
            sum(tally.commands.values()),
        )  # fmt: skip

    def about(self) -> dict[str, Any]:
        """Return what the console says of the server besides the figures."""
        service = self._service
        return {
            **self._about, "tubes": len(service.queue.state.tubes),
            "why_not_ready": service.why_not_ready(), "drains": service.queue.puts.is_draining,
            "replication": _badge(service.situation()),
            "has_access": service.access is not None,
            "wall_offset_ms": service.clock.wall_offset_ns() // MS,
        }  # fmt: skip
