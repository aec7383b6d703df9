"""Runs: one change made to many jobs, which criteria mean or which are named, in slices."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.tags import NO_TAGS
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.printable import escape
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.api.fields import Criteria, criteria_of, reason_of
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.api.looking import (
    SLICE_BYTES,
    SLICE_JOBS,
    SLICE_READS,
    Look,
    Seeing,
    means,
)
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.web.routes import MAX_IDS
from beanstalk_twisted.web.schemas import whole
from beanstalk_twisted.web.site import Part
from beanstalk_twisted.wire.grammar import MAX_U64, is_tube_name

SLICE_COMMANDS: Final = 50
"""Jobs of a slice that takes a command for each: sent and answered, 2 ms."""

MAX_RUNNING: Final = 4
"""Runs at a time: each takes a millisecond of a turn."""

KEPT_RUNS: Final = 50
"""Runs that can be asked for, the newest; with what they were told, some 100 KB."""

NO_BOUND: Final = 1 << 63
"""A run looks at all jobs."""

SKIPPED: Final = (errors.NotFound, errors.Duplicate)
"""Refusals that are of one job alone."""

KICKED_STATES: Final = (State.BURIED, State.DELAYED)


class Task(NamedTuple):
    """What a run is to do.

    :ivar to: the tube that jobs are moved to.
    :ivar confirmed: how many jobs it touches at most; ``newest`` the largest id of them.
    :ivar ids: of the jobs that are named; empty for all that the criteria mean.
    """

    action: str
    to: str
    criteria: Criteria
    confirmed: int
    newest: int
    ids: tuple[int, ...]

    def __str__(self) -> str:
        to = f" to={self.to}" if self.to else ""
        ids = f" ids={len(self.ids)}" if self.ids else ""
        said = f" {self.criteria.said}" if self.criteria.said else ""
        return f"{self.action}{to}{said}{ids}"


class Run:
    """A run, which continues when nobody asks for it any more.  It does what a client would, by the
    client's commands, on a connection of its own: a job that another connection has reserved is
    not touched, and a slice begins when what the last one did is durable.

    It touches at most as many jobs as the one who began it has seen and confirmed, and none that
    was put since (`kick-dead`: those that died first, whatever their ids).  A job that is not as it
    was meant any more is left alone, and counted as skipped.

    :ivar state: ``running``, ``done``, ``stopped`` or ``failed``; ``why`` is the reason.
    :ivar done: how many jobs were changed; ``skipped`` how many were not.
    :ivar unread: of how many jobs the body, which would say if they are meant, cannot be read.
    """

    def __init__(self, number: int, task: Task, who: str, total: int) -> None:
        self.number = number
        self.task = task
        self.who = who
        self.identity = ""
        self.state, self.why = "running", ""
        self.done = self.skipped = self.looked = self.unread = 0
        self.total = total
        self.is_to_stop = False

    @property
    def left(self) -> int:
        """How many jobs it may still touch."""
        return self.task.confirmed - self.done - self.skipped

    def described(self) -> dict[str, Any]:
        return {
            "run": self.number, "action": self.task.action, "to": self.task.to or None,
            "what": str(self.task), "state": self.state, "why": self.why,
            "count": self.task.confirmed, "done": self.done, "skipped": self.skipped,
            "looked": self.looked, "total": self.total, "unread": self.unread,
        }  # fmt: skip


class Runs(Part):
    """The operations, and the runs themselves."""

    log = Logger()

    def __init__(
        self, service: BeanstalkService, connections: LocalConnections, reactor: IReactorTime,
        seeing: Seeing,
    ) -> None:  # fmt: skip
        self._service = service
        self._seeing = seeing
        self._connections = connections
        self._reactor = reactor
        self._runs: dict[int, Run] = {}
        self._last = 0
        self._turns: dict[IDelayedCall, Deferred[None]] = {}

    def stop(self) -> None:
        for run in self._running():
            self._end(run, "stopped", "the server stops")
        for call in list(self._turns):
            call.cancel()
        self._turns.clear()

    def begin_run(self, call: Call) -> Document:
        task = _task_of(call.fields)
        if len(self._running()) >= MAX_RUNNING:
            raise Refusal(503, f"{MAX_RUNNING} runs are under way; wait for one, or stop it")
        steps: Steps
        if task.action == "kick-dead":
            steps = KickDead(task)
        else:
            steps = (Named if task.ids else Meant)(self._service, task, self._seeing)
        self._last += 1
        run = Run(self._last, task, call.peer or "a UNIX socket", steps.total)
        access = self._service.access
        if access is not None and call.known is not None:
            run.identity = access.rules.identify(*call.known).name
        self._runs[run.number] = run
        for number in list(self._runs)[:-KEPT_RUNS]:
            if self._runs[number].state != "running":
                del self._runs[number]
        begun = self._connections.run(
            call, lambda to: Deferred.fromCoroutine(self._work(run, steps, to)), is_told=False
        )
        begun.addErrback(self._failed, run)
        return json_document(run.described())

    def list_runs(self, call: Call) -> Document:
        return json_document({"runs": [run.described() for run in self._runs.values()]})

    def get_run(self, call: Call) -> Document:
        return json_document(self._run_of(call).described())

    def stop_run(self, call: Call) -> Document:
        """End a run after its slice."""
        run = self._run_of(call)
        run.is_to_stop = True
        return json_document(run.described())

    def _run_of(self, call: Call) -> Run:
        run = self._runs.get(call.parameters["run"])
        if run is None:
            raise Refusal(404, "there is no such run, or it ended long ago")
        return run

    def _running(self) -> list[Run]:
        return [run for run in self._runs.values() if run.state == "running"]

    async def _work(self, run: Run, steps: "Steps", to: Connection) -> None:
        while run.left > 0 and not steps.is_over and not run.is_to_stop:
            await self._turn()
            if run.state != "running":
                return
            outcome = await steps.step(to, run.left)
            run.done += outcome.done
            run.skipped += outcome.skipped
            run.looked, run.total, run.unread = steps.looked, steps.total, steps.unread
            if run.state != "running":
                # The server has stopped while bodies were read.
                return
            if outcome.problem is not None:
                raise outcome.problem
        if run.left > 0 and steps.is_over:
            # They were meant when they were counted, and are not now.
            run.skipped += run.left
        self._end(run, "stopped" if run.left > 0 else "done")

    def _turn(self) -> Deferred[None]:
        """:return: fires in a later turn; never, if the endpoint is closed before."""
        turn: Deferred[None] = Deferred()
        call = self._reactor.callLater(0, lambda: self._turns.pop(call).callback(None))
        self._turns[call] = turn
        return turn

    def _failed(self, failure: Failure, run: Run) -> None:
        if failure.check(Refusal):
            # What it says of this request is not so of a run: a part is done.
            self._end(run, "failed", str(failure.value).partition(";")[0])
        else:
            self.log.failure("while a run went on", failure, event="http-failed")
            self._end(run, "failed", "the server's log says what happened")

    def _end(self, run: Run, state: str, why: str = "") -> None:
        if run.state == "running":
            run.state, run.why = state, why
            what = escape(str(run.task))
            self._service.audit.tell_run(
                run.who, run.number, what, state, run.done, run.skipped, run.identity
            )


class Outcome(NamedTuple):
    """How many jobs a slice changed, how many it did not, and why the run cannot continue."""

    done: int
    skipped: int
    problem: Exception | None = None


class Steps:
    """The slices of a run.

    :ivar is_over: whether there is no more to do.
    :ivar looked: how many jobs were looked at, of ``total``; ``unread`` of how many the body could
        not be read.
    """

    is_over = False
    looked = total = unread = 0

    async def step(self, to: Connection, most: int) -> Outcome:
        """Do the next slice.  :param most: how many jobs it may touch."""
        raise NotImplementedError


class KickDead(Steps):
    """Kicks the dead letters of a tube, those that died first; the command for it knows no
    largest id.
    """

    def __init__(self, task: Task) -> None:
        assert task.criteria.tube is not None
        self._tube = task.criteria.tube
        self.total = task.confirmed

    async def step(self, to: Connection, most: int) -> Outcome:
        bound = min(most, SLICE_JOBS)
        kicked = await to.kick_dead(self._tube, bound)
        self.looked += kicked
        self.is_over = kicked < bound
        return Outcome(kicked, 0)


class Meant(Steps):
    """Changes all jobs that the criteria mean."""

    def __init__(self, service: BeanstalkService, task: Task, seeing: Seeing) -> None:
        self._service = service
        self._seeing = seeing
        self._task = task
        state, is_rewrite = service.queue.state, task.action in ("move", "return")
        self._look = Look(state, task.criteria, counts_bytes=is_rewrite, most_jobs=NO_BOUND)
        self._target = task.to.encode("ascii")
        self.total = self._look.total

    async def step(self, to: Connection, most: int) -> Outcome:
        bound = SLICE_JOBS if self._task.action == "delete" else SLICE_COMMANDS
        jobs = self._look.slice(self._service.now_ns(), min(most, bound))
        self.looked, self.is_over = self._look.looked, self._look.walk.is_over
        seen = await self._look.settle(jobs, self._seeing, self._service.now_ns)
        self.unread = self._look.unread
        state, task = self._service.queue.state, self._task
        target = state.tubes.find(self._target)
        # In the tube that it is to be moved to it may be met again, no dead letter any more.
        meant = [
            job for job, _, _ in seen
            if job.job_id <= task.newest and (target is None or job.tube_id != target.tube_id)
            and (task.action != "return" or reason_of(job))
        ]  # fmt: skip
        return await _change(to, task, meant)


class Named(Steps):
    """Changes the jobs that are named, if the criteria still mean them."""

    def __init__(self, service: BeanstalkService, task: Task, seeing: Seeing) -> None:
        self._service = service
        self._seeing = seeing
        self._task = task
        self.total = len(task.ids)

    async def step(self, to: Connection, most: int) -> Outcome:
        ids, found = self._next(min(most, SLICE_COMMANDS))
        seen = await self._seeing.see(found, lambda job: self._task.criteria.needs_bodies)
        self.unread += sum(each.is_unread for each in seen)
        now_ns = self._service.now_ns()
        task, state = self._task, self._service.queue.state
        meant = [
            each.job for each in seen
            if each.job.job_id <= task.newest and means(task.criteria, each, state, now_ns)
        ]  # fmt: skip
        self.looked += len(ids)
        self.is_over = self.looked == self.total
        outcome = await _change(to, self._task, meant)
        return outcome._replace(skipped=outcome.skipped + len(ids) - len(meant))

    def _next(self, most: int) -> tuple[list[int], list[Job]]:
        """:return: the next ids, and the jobs of them that are there; fewer if their bodies are to
        be read, and many or large.
        """
        ids: list[int] = []
        found: list[Job] = []
        reads = size = 0
        for job_id in self._task.ids[self.looked : self.looked + most]:
            job = self._service.queue.state.jobs.look(job_id)
            ids.append(job_id)
            if job is None:
                continue
            found.append(job)
            if self._task.criteria.needs_bodies and job.body is None:
                reads, size = reads + 1, size + job.body_bytes
            if reads == SLICE_READS or size >= SLICE_BYTES:
                break
        return ids, found


async def _change(to: Connection, task: Task, jobs: Sequence[Job]) -> Outcome:
    able = [job for job in jobs if _is_able(job, task.action)]
    if not able:
        return Outcome(0, len(jobs))
    if task.action == "delete":
        deleted = await to.delete_batch([job.job_id for job in able])
        return Outcome(deleted.deleted, len(jobs) - deleted.deleted)
    answers = await gatherResults([
        _command(to, task, each).addCallbacks(lambda _: None, _refusal) for each in able
    ])  # fmt: skip
    done = answers.count(None)
    problems = [each for each in answers if each and not isinstance(each, SKIPPED)]
    skipped = len(jobs) - done - len(problems)
    return Outcome(done, skipped, problems[0] if problems else None)


def _is_able(job: Job, action: str) -> bool:
    if action == "kick":
        return job.state in KICKED_STATES
    is_meant = action != "return" or reason_of(job) is not None
    return is_meant and job.state is not State.RESERVED


def _command(to: Connection, task: Task, job: Job) -> "Deferred[Any]":
    job_id = job.job_id
    if task.action == "kick":
        return to.kick_job(job_id)
    if task.action == "move":
        return to.move_job(job_id, task.to)
    # One that cannot go back must not be made ready where it is.
    home = (job.tags or NO_TAGS).dead_from.decode("ascii")
    moved = to.move_job(job_id, home)
    is_buried = job.state is State.BURIED
    return moved.addCallback(lambda _: to.kick_job(job_id)) if is_buried else moved


def _refusal(failure: Failure) -> Exception:
    failure.trap(errors.ClientError)
    assert isinstance(failure.value, errors.ClientError)
    return failure.value


# What a request says.


def _task_of(given: Mapping[str, Any]) -> Task:
    action, to = given["action"], given.get("to")
    if to is None and action == "move":
        raise Refusal(400, "to is a string")
    ids, count = _ids_of(given.get("ids", [])), given["count"]
    task = Task(
        action, to or "", criteria_of(given), min(count, len(ids)) if ids else count,
        given.get("newest_job", MAX_U64), ids,
    )  # fmt: skip
    _check(task)
    return task


def _ids_of(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or len(given) > MAX_IDS:
        raise Refusal(400, f"ids is a list of at most {MAX_IDS} numbers of jobs")
    number = whole("ids")
    return tuple(dict.fromkeys([number.read(each, "ids") for each in given]))


def _check(task: Task) -> None:
    """:raise Refusal: its parts do not go together."""
    if (task.action == "move") is not bool(task.to):
        raise Refusal(400, "move, and no other action, has a tube as to")
    for name in (task.to.encode("ascii", "replace"), task.criteria.tube or b""):
        if name and not is_tube_name(name):
            raise Refusal(400, "that is no name of a tube")
    is_plain = task.criteria.said == f"tube={(task.criteria.tube or b'').decode('ascii')}"
    if task.action == "kick-dead" and (task.ids or not is_plain):
        raise Refusal(400, "kick-dead takes the dead letters of a tube, and no other criteria")
