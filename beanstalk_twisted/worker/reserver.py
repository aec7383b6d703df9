"""The connections of a worker: the jobs reserved on them, and when each is asked for more."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import AnyJob, job_number
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.pending import cancel, first_error
from beanstalk_twisted.client.service import Losses
from beanstalk_twisted.client.stats import ServerStats
from beanstalk_twisted.states import NotAllowed, Transitions, Triggers
from beanstalk_twisted.worker.attempt import Ending
from beanstalk_twisted.worker.hooks import log_fault
from beanstalk_twisted.worker.settings import MAX_CONCURRENCY, Settings

if TYPE_CHECKING:
    from beanstalk_twisted.worker.job_run import JobRun

DEADLINE_SOON_S: Final = 1.0
"""How long before the end of a TTR a server says so, seconds (protocol.txt, "reserve")."""

LAST_ANSWER_S: Final = 5.0
"""How long a worker that stops waits for the answers to what it has sent, seconds."""

POLL_FIRST_S: Final = 0.02
"""After an empty answer, before the next poll, seconds: about the end of a burst."""

POLL_MOST_S: Final = 0.25
"""Between two polls at most, seconds: four commands a second are nothing to a server."""

REST_S: Final = 1.0
"""After an answer that is an error, before anything is asked again, seconds."""

PATIENCE_S: Final = 30
"""How long a `reserve` waits, seconds; it is then sent again, so a dead server is noticed."""

OVER: Final = "the connection that had reserved it was lost"

STOPPED: Final = "stopped"
CONNECTING: Final = "connecting"
WATCHING: Final = "watching"
RESTING: Final = "resting"
READY: Final = "ready"
WAITING: Final = "waiting"
CLOSING: Final = "closing"

RESERVER: Final[Transitions] = {
    STOPPED: Triggers(start=CONNECTING, stop=STOPPED),
    CONNECTING: Triggers(connected=WATCHING, stop=STOPPED),
    WATCHING: Triggers(watched=READY, refused=RESTING, lost=CONNECTING, stop=STOPPED),
    RESTING: Triggers(retry=WATCHING, lost=CONNECTING, stop=STOPPED),
    READY: Triggers(wait=WAITING, lost=CONNECTING, stop=STOPPED),
    WAITING: Triggers(answered=READY, hang_up=CLOSING, lost=CONNECTING, stop=STOPPED),
    CLOSING: Triggers(answered=CLOSING, stop=STOPPED),
}
"""What a `Reserver` does.  Any other trigger closes the connection, and another one is made.

- watch: the server is asked to watch the tubes; refused: it has not, and is asked again later.
- wait: a `reserve` is sent that may wait, so no job is held; polls are sent while it is ready.
- hang up: the worker stops, and the server ends the `reserve` and then the connection.
- lost: the jobs reserved on the connection are lost.
"""


class Session:
    """A connection; those before and after it are others."""

    def __init__(self, server: str | None) -> None:
        """:param server: the ``id`` in its ``stats``, random for each process; None for none."""
        self._server = server

    def knows_jobs_of(self, other: "Session") -> bool:
        """Return True if a job id there is the same job's here.  One process gives no id twice, but
        another may: a server without a log begins with 1 again, and behind one address there may be
        several servers.
        """
        return self is other or (self._server is not None and self._server == other._server)


def _server_id(stats: ServerStats) -> str | None:
    server = stats.get("id")
    return None if server is None else str(server)


def _no_server_id(failure: Failure) -> None:
    failure.trap(errors.ErrorReply, errors.BadReply)


class Reserver:
    """One connection of a worker, which `client.service.Client` brings back when it is lost.

    :ivar state: one of `RESERVER`.
    :ivar session: the one that there is, with its tubes watched; None if there is none.
    :ivar asked: the `reserve`s that have no answer.
    :ivar jobs: what is reserved on it, or was and is still worked on.
    :ivar newest: the newest reservations of jobs, by their ids.
    :ivar stuck: what was given up, and whose handler still runs.
    :ivar no_wait_until_s: when a `reserve` may wait on it again, by the reactor's clock.
    """

    def __init__(self, settings: Settings, number: int, changed: Callable[[], object]) -> None:
        """:param changed: called when it has a session, or has none any more."""
        self.client = settings.make_client(number, connected=self._connected, lost=self._lost)
        self.state = STOPPED
        self.session: Session | None = None
        self.jobs: set[JobRun[Any]] = set()
        self.stuck: set[JobRun[Any]] = set()
        self.newest: dict[int, JobRun[Any]] = {}
        self.asked: set[Deferred[Job]] = set()
        self.no_wait_until_s = 0.0
        self._settings = settings
        self._clock = settings.clock
        self._changed = changed
        self._closed: Deferred[None] | None = None
        self._watching: Deferred[Any] = succeed(None)
        self._bound: set[Deferred[Any]] = set()
        self._waiting: list[Deferred[Session]] = []
        self._timer: IDelayedCall | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if it has no job and none can come."""
        return not self.jobs and not self.asked

    def start(self) -> None:
        self._on("start")
        self._closed = None
        self.stuck.clear()  # Threads of a former start are none of the new ones.
        self.client.startService()

    def ask(self, seconds: int) -> Deferred[Job]:
        """Ask for a job, and wait so long for one.  With jobs in hand, that must be 0."""
        if seconds:
            assert self.is_empty, "a delete would wait behind it"
            self._on("wait")
        asked = self.client.reserve_with_timeout(seconds)
        self.asked.add(asked)
        return asked.addBoth(self._answered, asked, seconds)

    def hold(self, run: "JobRun[Any]") -> None:
        self.jobs.add(run)
        self.newest[run.job.id] = run

    def drop(self, run: "JobRun[Any]", *, is_stuck: bool = False) -> None:
        """Forget a reservation that has ended, but not a handler that still runs."""
        self.jobs.discard(run)
        (self.stuck.add if is_stuck else self.stuck.discard)(run)
        if self.newest.get(run.job.id) is run:
            del self.newest[run.job.id]

    def send_in(self, session: Session, name: str, job: AnyJob, **values: int) -> Deferred[Any]:
        """Send a command about a job in this session, and in no later one: there its id may be
        another job's.

        :raise NotCarriedOut: through the Deferred: that session is over.
        :raise Unanswered: through the Deferred: it has ended before the answer.
        """
        if self.session is not session:
            return fail(errors.NotCarriedOut(name, job_number(job), errors.Closed(OVER)))
        sent: Deferred[Any] = getattr(self.client, name.replace("-", "_"))(job, **values)
        self._bound.add(sent)  # To be cancelled with the session: the client would send it again.

        def answered(answer: Any) -> Any:
            self._bound.discard(sent)
            if isinstance(answer, Failure) and answer.check(CancelledError):
                return Failure(errors.Unanswered(name, job_number(job), errors.Closed(OVER)))
            return answer

        return sent.addBoth(answered)

    def when_up(self) -> Deferred[Session]:
        """:raise Closed: through the Deferred: there will be no session."""
        if self.session is not None:
            return succeed(self.session)
        if self.state == STOPPED:
            return fail(errors.Closed("the worker was stopped"))
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def take_no_more(self) -> None:
        """End a `reserve` that waits, with the connection, which holds no job."""
        if self.state == WAITING:
            self._on("hang_up")
            self._closed = self.client.hang_up()

    def cancel_reserves(self) -> None:
        """A job that comes all the same, the client gives back."""
        for asked in list(self.asked):
            asked.cancel()

    def stop(self) -> Deferred[Any]:
        """Part, when all that was sent is answered; now if it has nothing to lose."""
        self._on("stop")
        self._end_session()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.errback(errors.Closed("the worker was stopped"))
        return self.client.quit() if self._closed is None else self._closed

    def _on(self, trigger: str) -> None:
        """Enter the next state.

        :raise NotAllowed: there is none; so the connection is closed.
        """
        try:
            self.state = RESERVER[self.state][trigger]
        except NotAllowed as fault:
            self.client.abort(fault)
            raise

    def _answered(self, answer: Any, asked: Deferred[Job], seconds: int) -> Any:
        self.asked.discard(asked)
        is_failure = isinstance(answer, Failure)
        if seconds and not (is_failure and answer.check(CancelledError)):
            self._on("answered")
        if is_failure and answer.check(errors.DeadlineSoon):
            # It has a job of ours, maybe one that we could not give back: until that one's TTR has
            # ended, a reserve that may wait is answered at once.
            self.no_wait_until_s = self._clock.seconds() + DEADLINE_SOON_S
        return answer

    def _connected(self) -> None:
        self._on("connected")
        self._watch()

    def _watch(self) -> None:
        """Watch the tubes; all are confirmed before a reserve, since no other jobs are ours."""
        asked = self._settings.watch_tubes(self.client)
        asked.append(self.client.stats().addCallbacks(_server_id, _no_server_id))
        self._watching = gatherResults(asked, consumeErrors=True)
        self._watching.addCallbacks(self._watched, self._not_watched)
        self._watching.addErrback(log_fault)

    def _watched(self, answers: Sequence[Any]) -> None:
        self._on("watched")
        self.session = Session(answers[-1])
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self.session)
        self._changed()

    def _not_watched(self, failure: Failure) -> None:
        error = first_error(failure)
        if not isinstance(error, CancelledError):
            self._on("refused")
            self._settings.hooks.call("troubled", error=error)
            self._timer = self._clock.callLater(REST_S, self._retry)

    def _retry(self) -> None:
        self._on("retry")
        self._watch()

    def _lost(self, losses: Losses) -> None:
        try:
            self._on("lost")
        finally:  # Attempts are cancelled even after an error of ours.
            self.session = None
            self._settings.hooks.call("disconnected", losses=losses)
            self._end_session()
            for sent in list(self._bound):
                sent.cancel()
            for run in list(self.jobs):
                run.cancel(Ending.DISCONNECTED)
            self._changed()

    def _end_session(self) -> None:
        self.session = None
        cancel(self._timer)
        self._watching.cancel()
        self.cancel_reserves()


class Demand:
    """Learns from the answers.  As long as jobs come it asks for twice as many at a time, as far as
    there is room; after an empty answer for one, later and later.

    :ivar is_dry: the last answer was that there are none.
    :ivar at_once: how many may be asked for at the same time.
    :ivar next_s: when to poll next if it is dry.
    """

    def __init__(self, room: int) -> None:
        self.is_dry = True
        self.at_once = 1
        self.next_s = 0.0
        self._room = room
        self._wait_s = POLL_FIRST_S

    def got(self) -> None:
        self.is_dry = False
        self.at_once = min(self.at_once * 2, self._room)
        self._wait_s = POLL_FIRST_S

    def got_none(self, now_s: float) -> None:
        self.is_dry = True
        self.at_once = 1
        self.next_s = now_s + self._wait_s
        self._wait_s = min(self._wait_s * 2, POLL_MOST_S)

    def ended(self, now_s: float) -> None:
        """A job has ended: the command that tells the server may ask it, too."""
        self.next_s = now_s


class ReserveScheduler:
    """Sends the `reserve`s of one worker.

    A beanstalkd that has nothing for a `reserve` answers nothing else on that connection meanwhile,
    and only that connection may touch, release or bury the jobs reserved on it.  Hence one rule: a
    reserve that may wait is sent only on a connection that holds no job.  With jobs in hand and
    room for more, it polls.  Turned down were:

    - the same with a short time-out: the protocol counts whole seconds, so a `delete` waits;
    - one connection for reserving, one for the rest: the server lets no other touch the job;
    - a connection for each job: no stall, no polling, and 100 connections for 100 slots;
    - waking the waiting `reserve` by a job of our own in a tube that only we watch: a write to the
      disk for each, refused by a server that drains, and litter when a worker is killed.
    """

    def __init__(
        self, settings: Settings, reserved: Callable[[Job, Reserver], object]
    ) -> None:  # fmt: skip
        self.reservers = [
            Reserver(settings, number, self.look)
            for number in range(min(settings.connections, settings.concurrency))
        ]
        self._settings = settings
        self._clock = settings.clock
        self._reserved = reserved
        self._demand = Demand(settings.concurrency)
        self._timer: IDelayedCall | None = None
        self._limit: IDelayedCall | None = None
        self._rest_until_s = 0.0
        self._is_looking = False
        self._is_over = False
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        self._is_over = False
        for reserver in self.reservers:
            reserver.start()

    @property
    def jobs_in_hand(self) -> int:
        return sum(len(reserver.jobs) for reserver in self.reservers)

    @property
    def stuck(self) -> int:
        """Count handlers that still run though their attempts were given up."""
        return sum(len(reserver.stuck) for reserver in self.reservers)

    @property
    def is_quiet(self) -> bool:
        """Return True if every `reserve` has its answer."""
        return not any(reserver.asked for reserver in self.reservers)

    @property
    def _polls(self) -> int:
        """Count the `reserve`s without an answer; more than enough if one of them may wait."""
        polls = 0
        for reserver in self.reservers:
            if reserver.state == WAITING:
                return MAX_CONCURRENCY
            polls += len(reserver.asked)
        return polls

    def look(self) -> None:
        """Ask for jobs, where and as often as it is worthwhile now."""
        if self._is_looking or self._is_over:
            return
        self._is_looking = True
        try:
            while self._free() > 0 and (place := self._place()) is not None:
                self._ask(*place)
        finally:
            self._is_looking = False

    def ended(self) -> None:
        self._demand.ended(self._clock.seconds())
        self.look()

    def ask_after_delete(self, reserver: Reserver) -> None:
        """Ask on the connection on which a delete was sent: a job that comes, comes after its
        answer, and so there is room for it.
        """
        is_enough = self._polls >= self._demand.at_once
        is_resting = self._demand.is_dry or self._clock.seconds() < self._rest_until_s
        if not (self._is_over or is_enough or is_resting):
            self._ask(reserver, 0)

    def _free(self) -> int:
        free = self._settings.concurrency
        for reserver in self.reservers:
            free -= len(reserver.jobs) + len(reserver.stuck) + len(reserver.asked)
        return free

    def _place(self) -> tuple[Reserver, int] | None:
        """Give the connection to ask next, and the seconds to wait there; None to ask none."""
        polls, now_s = self._polls, self._clock.seconds()
        up = [reserver for reserver in self.reservers if reserver.session is not None]
        if not up or polls >= self._demand.at_once:
            return None
        if now_s < self._rest_until_s:
            self._later(self._rest_until_s - now_s)
            return None
        if not self._demand.is_dry:
            return up[0], 0
        for reserver in up:
            if reserver.is_empty and now_s >= reserver.no_wait_until_s:
                return reserver, PATIENCE_S
        if now_s < self._demand.next_s:
            self._later(self._demand.next_s - now_s)
            return None
        return up[0], 0

    def _later(self, wait_s: float) -> None:
        cancel(self._timer)
        self._timer = self._clock.callLater(wait_s, self.look)

    def _ask(self, reserver: Reserver, seconds: int) -> None:
        reserver.ask(seconds).addBoth(self._answer, reserver)

    def _answer(self, answer: Job | Failure, reserver: Reserver) -> None:
        try:
            if isinstance(answer, Failure):
                self._none(answer)
            else:
                self._demand.got()
                self._reserved(answer, reserver)
                self.look()
        except Exception:
            log_fault(Failure())
        if self._is_over:
            self._answered()

    def _none(self, failure: Failure) -> None:
        if failure.check(CancelledError) or self._is_over:
            return
        self._demand.got_none(self._clock.seconds())
        if not failure.check(errors.TimedOut, errors.DeadlineSoon):
            self._rest_until_s = self._clock.seconds() + REST_S
            self._settings.hooks.call("troubled", error=failure.value)
        self.look()

    def stop(self) -> Deferred[None]:
        """Ask no more; nothing that is given back must come to another connection of ours.

        :return: fires when no job can come any more.
        """
        self._is_over = True
        cancel(self._timer)
        for reserver in self.reservers:
            reserver.take_no_more()
        self._limit = self._clock.callLater(LAST_ANSWER_S, self._give_up)
        quiet = self.may_give_back()
        self._answered()
        return quiet

    def may_give_back(self) -> Deferred[None]:
        """Wait, once the worker stops, until no job can come any more."""
        if not self._is_over or self.is_quiet:
            return succeed(None)
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def _answered(self) -> None:
        if not self.is_quiet:
            return
        cancel(self._limit)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _give_up(self) -> None:
        for reserver in self.reservers:
            reserver.cancel_reserves()
