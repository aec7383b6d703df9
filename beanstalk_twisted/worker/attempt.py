"""An attempt, as the function that does jobs is given it, and how its job is kept."""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic
from urllib.parse import unquote

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock
from twisted.internet.threads import blockingCallFromThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import DEFAULT_PRIORITY, Job
from beanstalk_twisted.client.commands.tags import percent_encoded
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.serialisers import Unreadable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from beanstalk_twisted.worker.job_run import JobRun
    from beanstalk_twisted.worker.settings import Settings

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

EARLIEST: Final = 0.5
"""Share of the TTR before a touch: each touch is a command, and is written to the log."""

LATEST: Final = 0.65
"""The same at the latest: a third is left for the way, and more than the last second, in which the
server says DEADLINE_SOON.  Chance decides in between, so that touches spread.
"""

AGAIN: Final = 0.5
"""Of the time left, before another try when the server has refused one for another reason."""

LEAST_S: Final = 0.1
"""Less than this before another try, seconds, and there is none."""

LEAST_TTR_S: Final = 1.0
"""No TTR is shorter, seconds."""

LOOK_S: Final = 0.4
"""From the reservation until the server is asked about a job of which nothing is known, seconds."""

ANSWER_S: Final = 1.0
"""For the answer to a touch that is late already, seconds: the server knows better than we do."""


class Ending(Enum):
    """Why an attempt has to end although it is not done."""

    CANCELLED = "it was cancelled"
    NOT_OURS = "the server says that it is not reserved by us any more"
    TTR = "its TTR has ended, as far as we know"
    DISCONNECTED = "the connection that had reserved it was lost"
    LIMIT = "it took longer than limit_s"
    STOPPED = "the worker stops"

    @property
    def is_loss(self) -> bool:
        """Return True if the job is not ours any more."""
        return self not in (Ending.LIMIT, Ending.STOPPED)


class Attempt(Generic[T]):
    """One attempt at a job.

    :ivar task: the name of its task; empty for a handler.
    :ivar ending: why it has to end; None until then.  May be read from any thread.
    :ivar deadline_s: when the TTR ends, by the reactor's clock.
    """

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(self, clock: Any, job: Job) -> None:
        self.id = job.id
        self.body = job.body
        self.known: JobStats | None = None
        self.task = ""
        self.ending: Ending | None = None
        self._clock = clock
        self._began_s: float = clock.seconds()
        self.deadline_s = self._began_s + LEAST_TTR_S
        self._value: T | Unreadable = Unreadable("the body was not read yet")
        self._cancels: list[Callable[[], object]] = []
        self._toucher: Callable[[], Deferred[None]] | None = None
        self._ask: Callable[[], Deferred[None]] | None = None

    def __str__(self) -> str:
        task = f" ({self.task})" if self.task else ""
        if self.known is None:
            return f"job {self.id}{task}"
        return f"job {self.id} of {self.tube}{task}, attempt {self.number}"

    def __repr__(self) -> str:
        return f"<Attempt {self}>"

    @property
    def value(self) -> T:
        """The body, as the worker's serialiser has read it."""
        if isinstance(self._value, Unreadable):
            raise self._value
        return self._value

    @property
    def stats(self) -> JobStats:
        """Of the job, when the attempt began; asked for if the policy needs none.

        :raise RuntimeError: they were not asked for, and this is the reactor's thread.
        """
        if self.known is None:
            if self._ask is None or isInIOThread() or not hasattr(self._clock, "callFromThread"):
                raise RuntimeError("the server was not asked: the policy has no most_attempts")
            blockingCallFromThread(self._clock, self._ask)  # type: ignore[arg-type]
        assert self.known is not None
        return self.known

    @property
    def tube(self) -> str:
        return self.stats.tube

    @property
    def number(self) -> int:
        """Give how often the job was given to a worker, this time included."""
        return self.stats.reserves

    @property
    def headers(self) -> dict[str, str]:
        """Read the job's metadata, as `headers_text` writes them; values of others are left out."""
        metadata = self.stats.get("metadata")
        pairs = [each.partition("=") for each in unquote(str(metadata or "")).split(";")]
        return {name: unquote(value) for name, equals, value in pairs if equals}

    @property
    def is_cancelled(self) -> bool:
        """Return True if it has to end now: a function in a thread cannot be cancelled."""
        return self.ending is not None

    def time_left_s(self) -> float:
        """Give the seconds until the TTR ends; 0 when it has."""
        left: float = self.deadline_s - self._clock.seconds()
        return max(0.0, left)

    def when_cancelled(self, callback: Callable[[], object]) -> None:
        """Have this called, in the reactor's thread, when the attempt has to end, or now."""
        if self.ending is None:
            self._cancels.append(callback)
        else:
            self._call(callback)

    def touch(self) -> Deferred[None]:
        """Let the TTR begin again, in the reactor's thread; with ``touches`` the worker does.

        :raise NotFound: through the Deferred: the job is not ours any more.
        :raise NotCarriedOut: through the Deferred: the connection that had reserved it is lost.
        """
        if self._toucher is None:
            return fail(RuntimeError("the attempt is over"))
        return self._toucher()

    @classmethod
    def of(
        cls, body: bytes | str = b"", *, value: Any = None, id: int = 1, tube: str = "default",
        number: int = 1, ttr: int = 60, priority: int = DEFAULT_PRIORITY,
        metadata: str | None = None,
    ) -> "Attempt[Any]":  # fmt: skip
        """Make an attempt for a test of a handler, without a server.

        :param value: what a serialiser would have read; the body by default.
        :param number: of attempts at the job, this one included.
        :param metadata: not percent-encoded.
        """
        raw = body.encode() if isinstance(body, str) else body
        facts: dict[str, object] = {
            "id": id, "tube": tube, "state": "reserved", "pri": priority, "age": 0, "delay": 0,
            "ttr": ttr, "time-left": ttr, "file": 0, "reserves": number, "timeouts": 0,
            "releases": number - 1, "buries": 0, "kicks": 0,
        }  # fmt: skip
        if metadata is not None:
            facts["metadata"] = percent_encoded(metadata).decode()
        stats = JobStats.of((name, str(fact)) for name, fact in facts.items())
        attempt: Attempt[Any] = cls(Clock(), Job(id, raw))
        attempt.learn(stats, 0.0)
        attempt.begin(lambda: succeed(None), lambda: succeed(None))
        attempt.read(lambda body: body if value is None else value)
        return attempt

    # What the worker calls.

    def learn(self, stats: JobStats, asked_s: float) -> None:
        """Note what the server knows, and the earliest end of the TTR, by our clock.

        It began when the server gave us the job, and we may have read that late.  The server's
        answer on how much is left is later than ``asked_s``, in whole seconds, the rest cut off: so
        a full TTR less a second may be full.
        """
        self.known = stats
        ttr_s, left_s = _ttr_s(stats), stats.time_left
        full_s = self._began_s + ttr_s
        self.deadline_s = full_s if left_s >= ttr_s - 1 else min(full_s, asked_s + left_s)

    def begin(
        self, toucher: Callable[[], Deferred[None]], ask: Callable[[], Deferred[None]]
    ) -> None:
        """:param ask: lets it `learn`, if it has not yet."""
        self._toucher, self._ask = toucher, ask

    def read(self, load: Callable[[bytes], T]) -> None:
        """:raise Unreadable: the body cannot be read."""
        self._value = load(self.body)

    def end(self) -> None:
        """Forget how to touch and to cancel: the job is no longer ours."""
        self._toucher = self._ask = None
        self._cancels.clear()

    def cancel(self, ending: Ending) -> None:
        """End it.  A loss counts more than a reason given before."""
        is_first = self.ending is None
        if is_first or (ending.is_loss and self.ending is not None and not self.ending.is_loss):
            self.ending = ending
        if is_first:
            cancels, self._cancels = self._cancels, []
            for callback in cancels:
                self._call(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:
            self._log.failure("while {job} was cancelled", job=self)


def _ttr_s(known: JobStats | None) -> float:
    return LEAST_TTR_S if known is None else max(LEAST_TTR_S, known.ttr)


class KeepAlive:
    """Looks after the reservation of one attempt."""

    def __init__(
        self, settings: "Settings", run: "JobRun[Any]", attempt: Attempt[Any], touches: bool
    ) -> None:
        """:param touches: whether it touches the job in time."""
        self._settings = settings
        self._clock = settings.clock
        self._attempt = attempt
        self._touches = touches
        self._run = run
        self._is_over = False
        self._timer: IDelayedCall | None = None

    def plan(self) -> None:
        """Plan the next touch, or the end of the TTR, from the attempt's deadline."""
        if self._attempt.known is None:
            self._set(LOOK_S, self._learn)
        elif self._touches:
            share = EARLIEST + (LATEST - EARLIEST) * self._settings.chance()
            late_s = _ttr_s(self._attempt.known) * (1 - share)
            self._set(self._attempt.time_left_s() - late_s, self._touch_now)
        else:
            self._set(self._attempt.time_left_s(), self._end_of_ttr)

    def _learn(self) -> None:
        self._run.learn(self._attempt).addBoth(self._learned)

    def _learned(self, outcome: Any) -> Any:
        if self._is_over:
            return None
        if isinstance(outcome, Failure) and outcome.check(errors.NotFound):
            return self._find_loss(outcome).addErrback(lambda failure: None)
        self.plan()
        return None

    def stop(self) -> None:
        self._is_over = True
        cancel(self._timer)
        self._timer = None

    def touch(self) -> Deferred[None]:
        """Ask for the whole TTR once more."""
        # It begins again when the server reads this, so not before now.
        deadline_s = self._clock.seconds() + _ttr_s(self._attempt.known)
        asked: Deferred[None] = self._run.send("touch")
        return asked.addCallback(self._agreed, deadline_s).addErrback(self._refused)

    def _set(self, wait_s: float, then: Callable[[], object]) -> None:
        cancel(self._timer)
        if not self._is_over:
            self._timer = self._clock.callLater(max(0.0, wait_s), then)

    def _touch_now(self) -> None:
        # Until there is an answer, it ends with the TTR: other workers have other connections.
        left_s = self._attempt.time_left_s()
        self._set(left_s if left_s > LEAST_S else ANSWER_S, self._end_of_ttr)
        self.touch().addErrback(lambda failure: None)

    def _agreed(self, _: None, deadline_s: float) -> None:
        if not self._is_over:
            self._attempt.deadline_s = max(deadline_s, self._attempt.deadline_s)
            self.plan()
            self._settings.hooks.call("touched", self._attempt)

    def _refused(self, failure: Failure) -> Any:
        if not self._is_over:
            if failure.check(errors.NotFound):
                return self._find_loss(failure)
            if failure.check(errors.ErrorReply) and self._touches:
                wait_s = self._attempt.time_left_s() * AGAIN
                if wait_s >= LEAST_S:
                    self._set(wait_s, self._touch_now)
        return failure

    def _find_loss(self, failure: Failure) -> Deferred[Any]:
        """Find out why the server does not know the job as ours."""
        finding = Deferred.fromCoroutine(self._run.find_loss(self._attempt))
        return finding.addCallback(self._attempt.cancel).addCallback(lambda _: failure)

    def _end_of_ttr(self) -> None:
        self._attempt.cancel(Ending.TTR)
