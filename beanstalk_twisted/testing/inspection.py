"""A server in memory, its time, and what can be seen and asserted of it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Self

from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS, State
from beanstalk_twisted.client.stats import JobStats, ServerStats, TubeStats
from beanstalk_twisted.jobs.body_room import Unread
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import SimulatedDirectory
from beanstalk_twisted.testing.network import Network, Wire
from beanstalk_twisted.testing.recording import Command, RecordedServer, check_command, shown

STATES: Final = ("ready", "reserved", "delayed", "buried")
"""The states of a job, in the order in which they are shown."""


class JobView(NamedTuple):
    """A job as it is.

    :ivar state: one of `STATES`.
    :ivar age: seconds since it was put.
    :ivar time_left: seconds until its delay or its TTR ends; 0 for other jobs, and for those that
        wait for a group.
    :ivar connection: number of the connection that has it reserved, 0 for none.
    """

    id: int
    tube: str
    state: str
    body: bytes
    priority: int
    delay: int
    ttr: int
    age: float
    time_left: float
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    connection: int


def look(state: QueueState, now_ns: int) -> list[JobView]:
    """List all jobs, by tube and state, and in each as they come up: ready ones as they are
    reserved, delayed and reserved ones by the time left, buried ones as they are kicked.
    """
    read: dict[int, bytes | Unread | None] = {}
    for number in state.jobs:
        if not state.bodies.is_unreadable(number, now_ns):
            state.bodies.look_at(number, partial(read.__setitem__, number))
    jobs = [job for number in state.jobs if (job := state.jobs.look(number)) is not None]
    jobs.sort(key=lambda job: (
        state.tubes.by_id(job.tube_id).place, STATES.index(job.state.name.lower()),
        job.priority if job.state is State.READY else job.deadline_ns, job.job_id,
    ))  # fmt: skip
    return [_view(job, state, now_ns, read.get(job.job_id)) for job in jobs]


def _view(job: Job, state: QueueState, now_ns: int, read: bytes | Unread | None) -> JobView:
    body = job.body or (read if isinstance(read, bytes) else b"")
    has_time_left = job.state in (State.RESERVED, State.DELAYED) and job.deadline_ns < WITHHELD_NS
    return JobView(
        job.job_id, state.tubes.by_id(job.tube_id).name.decode(), job.state.name.lower(),
        body, job.priority, job.delay_s, job.ttr_s, (now_ns - job.created_ns) / NS,
        (job.deadline_ns - now_ns) / NS if has_time_left else 0.0,
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks, job.holder,
    )  # fmt: skip


def chosen(
    jobs: Iterable[JobView], tube: str | None = None, state: str | None = None
) -> list[JobView]:
    """Choose among jobs.  :raise ValueError: there is no such state."""
    if state is not None and state not in STATES:
        raise ValueError(f"a job is {', '.join(STATES)}, and never {state!r}")
    return [
        job for job in jobs
        if (tube is None or job.tube == tube) and (state is None or job.state == state)
    ]  # fmt: skip


Body = bytes | str | Callable[[bytes], bool]
"""A body: as bytes, as text in UTF-8, or what must be true of it."""


def _were(count: int) -> str:
    return f"{count} {'was' if count == 1 else 'were'}"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _is_body(wanted: Body, body: bytes | None) -> bool:
    if body is None:
        return False
    if callable(wanted):
        return bool(wanted(body))
    return body == (wanted.encode() if isinstance(wanted, str) else wanted)


def _where(tube: str | None) -> str:
    return "in all tubes" if tube is None else f"in the tube {tube}"


def _listed(title: str, lines: Iterable[object]) -> str:
    shown_lines = [f"  {line}" for line in lines]
    return "\n".join([f"\n{title}", *(shown_lines or ["  none"])])


def _listed_jobs(jobs: Iterable[JobView]) -> str:
    return _listed("jobs that are there:", map(described, jobs))


def described(job: JobView) -> str:
    """Say what a job is, in a line."""
    left = f", {job.time_left:g} s left" if job.time_left else ""
    return f"{job.id} in {job.tube}: {job.state}{left}, priority {job.priority}, {shown(job.body)}"


class Inspection:
    """A server and its time.  Inspection changes nothing, counters included.

    Assertions see what was received so far; none of them waits.  A ``tube``, a ``body`` and the
    like choose: jobs for which they do not hold are not counted.
    """

    def __init__(self, *, has_log: bool = True, max_job_bytes: int = 65_535) -> None:
        """:param has_log: whether jobs survive a restart: the log is kept in memory, and a reply
            waits for it as it does for a disk.
        :param max_job_bytes: the largest body, bytes.
        """
        directory = SimulatedDirectory() if has_log else None
        self.server = RecordedServer(directory=directory, max_job_bytes=max_job_bytes)
        self.network = Network(self.server)
        self.is_up = True
        self._lock = threading.RLock()
        self._wires: list[Wire] = []
        self._is_holding = False
        self._delay_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The test is over: nothing moves any more."""

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Do something to the double: alone, and let all happen that follows from it."""
        with self._lock:
            yield
            self.network.settle()

    # Time.

    def time(self) -> float:
        """Say how many seconds have passed since the double was made."""
        return float(self.server.clock.seconds())

    def advance(self, seconds: float) -> None:
        """Let time pass, and all that happens in it: TTRs, delays, pauses and timeouts end in their
        order.  What clients have sent before is carried out before.

        :raise ValueError: it is below 0, endless, or no number.
        """
        with self._turn():
            self.network.advance(seconds)

    def settle(self) -> None:
        """Let all happen that needs no time."""
        with self._turn():
            pass

    # What is there.

    @property
    def commands(self) -> list[Command]:
        """Every command that was received, in order, since the start or `clear`."""
        with self._turn():
            return list(self.server.recorder.commands)

    def counts(self) -> Counter[str]:
        """How often each command was received, by its name."""
        return Counter(command.name for command in self.commands if command.name)

    def jobs(self, tube: str | None = None, state: str | None = None) -> list[JobView]:
        """Give the jobs that are there, by tube and state, and in each in the order of their turn.

        :param state: ``ready``, ``reserved``, ``delayed`` or ``buried``; all for None.
        """
        with self._turn():
            views = look(self._service.queue.state, self._service.clock.now_ns())
        return chosen(views, tube, state)

    def tubes(self) -> list[str]:
        """Name the tubes, as ``list-tubes`` does."""
        with self._turn():
            return [tube.name.decode() for tube in self._service.queue.state.tubes.in_order]

    def waiting(self, tube: str | None = None) -> int:
        """Say how many connections wait with a ``reserve``, for this tube or any."""
        with self._turn():
            sessions = self._service.queue.state.sessions.values()
            watched = [
                [each.name.decode() for each in session.watching]
                for session in sessions
                if session.is_waiting
            ]
        return sum(1 for names in watched if tube is None or tube in names)

    def stats(self) -> ServerStats:
        """Give what ``stats`` answers."""
        return ServerStats(self._content("stats"))

    def stats_tube(self, tube: str) -> TubeStats:
        """Give what ``stats-tube`` answers.  :raise LookupError: there is no such tube."""
        return TubeStats(self._content("stats-tube", tube.encode()))

    def stats_job(self, job_id: int) -> JobStats:
        """Give what ``stats-job`` answers.  :raise LookupError: there is no such job."""
        return JobStats(self._content("stats-job", job_id))

    def _content(self, command: str, *args: bytes | int) -> bytes:
        """Carry out a command that gives statistics, without a connection: none looks at who
        asks.
        """
        with self._turn():
            context, now_ns = self._service.context, self._service.clock.now_ns()
            session = Session(0, context.queue.state.default())
            answer = context.methods[command](session, now_ns, *args)
        assert answer is not None
        reply, _ = answer
        content: bytes | None = getattr(reply, "content", None)
        if content is None:
            about = " ".join(arg.decode() if isinstance(arg, bytes) else str(arg) for arg in args)
            why = reply.encode().decode().strip()
            raise LookupError(f"{command} {about}: {why}")
        return content

    # Assertions about what was done.

    def assert_job_put(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        priority: int | None = None, delay: int | None = None, ttr: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were put, and taken by the server."""
        __tracebackhide__ = True
        args = {"pri": priority, "delay": delay, "ttr": ttr}
        self._assert_done("put", "INSERTED", count, tube=tube, body=body, **args)

    def assert_job_reserved(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None
    ) -> None:
        """So many jobs were handed out."""
        __tracebackhide__ = True
        self._assert_done("reserve", "RESERVED", count, tube=tube, body=body)

    def assert_job_deleted(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were deleted."""
        __tracebackhide__ = True
        self._assert_done("delete", "DELETED", count, tube=tube, body=body, job=job)

    def assert_job_released(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None, priority: int | None = None, delay: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were given back."""
        __tracebackhide__ = True
        args = {"pri": priority, "delay": delay}
        self._assert_done("release", "RELEASED", count, tube=tube, body=body, job=job, **args)

    def assert_job_buried(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were put aside."""
        __tracebackhide__ = True
        self._assert_done("bury", "BURIED", count, tube=tube, body=body, job=job)

    def assert_job_touched(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So often somebody asked for more time."""
        __tracebackhide__ = True
        self._assert_done("touch", "TOUCHED", count, tube=tube, body=body, job=job)

    def assert_command(self, name: str, count: int | None = None) -> None:
        """This command was received so often, whatever was answered; for None at least once.

        :raise ValueError: there is no such command, so it would never be received.
        """
        __tracebackhide__ = True
        check_command(name)
        found = [each for each in self.commands if each.name == name]
        if (count is None and not found) or (count is not None and len(found) != count):
            wanted = "at least once" if count is None else _times(count)
            was = f"was {_times(len(found))}" if found else "never was"
            raise AssertionError(
                f"{name} was to be received {wanted}, and {was}"
                + _listed("all commands:", self.commands)
            )

    # Assertions about what is there.

    def assert_no_jobs(self) -> None:
        __tracebackhide__ = True
        self._assert_none(None)

    def assert_tube_empty(self, tube: str) -> None:
        __tracebackhide__ = True
        self._assert_none(tube)

    def _assert_none(self, tube: str | None) -> None:
        __tracebackhide__ = True
        found = self.jobs(tube)
        if found:
            raise AssertionError(f"{_where(tube)}: wanted no job" + _listed_jobs(found))

    def assert_jobs(
        self, tube: str | None = None, *, ready: int | None = None, reserved: int | None = None,
        delayed: int | None = None, buried: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs are in these states; of states that are not named nothing is said.

        :param tube: the tube to look into; all of them together for None.
        :raise ValueError: no state is named, so nothing would be said at all.
        """
        __tracebackhide__ = True
        wanted = dict(zip(STATES, (ready, reserved, delayed, buried), strict=True))
        if all(count is None for count in wanted.values()):
            raise ValueError(f"name a state, such as ready=1; there are {', '.join(STATES)}")
        jobs = self.jobs(tube)
        wrong = [
            f"{count} {state}, but {_were(len(chosen(jobs, state=state)))}"
            for state, count in wanted.items()
            if count is not None and len(chosen(jobs, state=state)) != count
        ]
        if wrong:
            raise AssertionError(
                f"{_where(tube)}: wanted {'; wanted '.join(wrong)}" + _listed_jobs(self.jobs())
            )

    def _assert_done(
        self, name: str, word: str, count: int, *, tube: str | None, body: Body | None,
        job: int | None = None, **args: int | None,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        # All that reserve begin with "reserve", and no other command does.
        tried = [each for each in self.commands if each.name.split("-")[0] == name]
        found = [
            each for each in tried
            if each.word == word
            and (tube is None or each.tube == tube)
            and (job is None or each.job_id == job)
            and (body is None or _is_body(body, each.body))
            and all(value in (None, each.args.get(key)) for key, value in args.items())
        ]  # fmt: skip
        if len(found) != count:
            wanted: dict[str, Any] = {"tube": tube, "body": body, "job": job, **args}
            only = ", ".join(f"{key}={value!r}" for key, value in wanted.items() if value != None)  # noqa: E711
            raise AssertionError(
                f"wanted {count} job{'s' * (count != 1)} {word}{f' ({only})' if only else ''}, "
                f"but {_were(len(found))}" + _listed(f"every {name}:", tried)
            )

    # For the other parts.

    @property
    def _service(self) -> BeanstalkService:
        self._check_up()
        return self.server.service

    def _check_up(self) -> None:
        if not self.is_up:
            raise ConnectionRefusedError("the double is down; start() begins another process")

    def _make_wire(self) -> Wire:
        wire = Wire(self.server)
        wire.is_held, wire.delay_s = self._is_holding, self._delay_s
        self._wires.append(wire)
        return wire
