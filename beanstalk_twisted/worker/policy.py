"""What becomes of a job that failed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final, Protocol

from beanstalk_twisted.client.commands.tags import check_seconds, check_whole
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.serialisers import Unreadable

MAX_U32: Final = (1 << 32) - 1
"""The largest delay, seconds, and the largest priority number, by the protocol."""


def _check(name: str, value: int) -> None:
    if type(value) is not int or not 0 <= value <= MAX_U32:
        raise ValueError(f"{name} is a whole number from 0 to {MAX_U32}, not {value!r}")


def _with(priority: int | None) -> str:
    return "" if priority is None else f" with priority {priority}"


@dataclass(frozen=True, slots=True)
class Delete:
    """It is done, or not wanted."""

    def __str__(self) -> str:
        return "deleted"


@dataclass(frozen=True, slots=True)
class Release:
    """:ivar delay: whole seconds, as the protocol has it, and `Client.release`.
    :ivar priority: None for the one it has.
    :ivar prefers_backoff: leave the delay to the tube's `backoff` policy, if it has one.
    """

    delay: int = 0
    priority: int | None = None
    prefers_backoff: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """:raise ValueError: the protocol has no such numbers."""
        _check("delay", self.delay)
        if self.priority is not None:
            _check("priority", self.priority)

    def __str__(self) -> str:
        when = f"released for {self.delay} s" if self.delay else "released"
        return when + _with(self.priority)


@dataclass(frozen=True, slots=True)
class Return:
    """It is given back as if it had not been reserved, so that this costs no attempt.  A server
    without `return-job` is sent a `Release` instead, which counts.

    :ivar delay: whole seconds until it is ready again.
    """

    delay: int = 0

    def __post_init__(self) -> None:
        """:raise ValueError: the protocol has no such number."""
        _check("delay", self.delay)

    def __str__(self) -> str:
        return f"returned for {self.delay} s" if self.delay else "returned"


@dataclass(frozen=True, slots=True)
class Bury:
    """It is put aside until it is kicked; a priority of None is the one it has."""

    priority: int | None = None

    def __post_init__(self) -> None:
        """:raise ValueError: the protocol has no such number."""
        if self.priority is not None:
            _check("priority", self.priority)

    def __str__(self) -> str:
        return "buried" + _with(self.priority)


Verdict = Delete | Release | Return | Bury


class Decided(Exception):
    """Raised by a job's function, at any depth, to decide what becomes of the job."""

    def __init__(self, verdict: Verdict) -> None:
        """:raise TypeError: that is no verdict; so the job fails."""
        if not isinstance(verdict, Verdict):
            raise TypeError(
                f"a verdict is Delete(), Release(), Return() or Bury(), not {verdict!r}"
            )
        super().__init__(f"{verdict}")
        self.verdict = verdict


class TookTooLong(Exception):
    """What a job fails with that was not done within the worker's ``limit_s``."""


class NoResult(Exception):
    """What a job fails with whose function has given what cannot have been meant: an exception, the
    class of a verdict, or what has not run yet or still does, such as a generator or a process.
    """


class TooManyAttempts(Exception):
    """What a job fails with that was given out so often that it is not tried again: workers that
    had it have died, or let its TTR end.
    """


MOST_ATTEMPTS: Final = 10
"""Attempts at a job, unless told: with the waits below, the last one is after one to two hours."""

FIRST_DELAY_S: Final = 1.0
"""Before the second attempt, seconds."""

MOST_DELAY_S: Final = 3600.0
"""Between two attempts at most, seconds: what was down for long is found up within the hour."""

FACTOR: Final = 3.0
"""Each wait is longer than the one before by this factor."""

BURY: Final = Bury()
DELETE: Final = Delete()

Kinds = tuple[type[BaseException], ...]


class Policy(Protocol):
    """Decides about failures.

    An attribute ``needs_stats`` of False says that `before` need not be asked.  The server is then
    asked about the job only after a failure, or when the attempt takes long.
    """

    def before(self, stats: JobStats) -> Verdict | None:
        """Decide what becomes of a job that is not even tried; None to try it."""

    def after(self, stats: JobStats, error: BaseException, chance: float) -> Verdict:
        """:param chance: a number from 0 up to 1, another one each time."""


def times_reserved(stats: JobStats) -> int:
    """Count what was given to any worker, also to one that has died of it or released by choice."""
    return stats.reserves


def times_given_back(stats: JobStats) -> int:
    """Count releases and ends of the TTR, but not ends of a worker or the server in between."""
    return stats.releases + stats.timeouts + 1


@dataclass(frozen=True)
class Retry(Policy):
    """Tries again, later and later, up to a number of attempts (docs/worker.md, "Failures").

    The server counts attempts, over all workers; each kick allows one more.  To the server, a
    release by choice is the same as one after a failure.  So whether a job may be tried at all is
    decided without its releases: one that is only released by choice is tried for ever, and one
    that kills its workers is not.  What is decided after a failure counts all.

    :ivar most_attempts: None for no limit; then the server is not asked about each job before its
        attempt, and one that kills its workers is tried for ever, unless the tube's policy has
        `max-reserves`.
    :ivar first_delay_s: before the second attempt; None for 1 second, or the tube's `backoff`.
        Each further delay is ``factor`` times as long, up to ``most_delay_s``; each is cut by
        chance to between half and all of it, and rounded to whole seconds, at least 1 unless 0.
    :ivar exhausted: what becomes of a job when the attempts are used up.
    :ivar unreadable: the same if its body cannot be read; None to treat that as any failure.
    :ivar bury: exceptions that bury the job, and ``delete`` those that delete it, immediately.
    :ivar count: which attempt this one is, the first being 1.
    """

    most_attempts: int | None = MOST_ATTEMPTS
    first_delay_s: float | None = None
    most_delay_s: float = MOST_DELAY_S
    factor: float = FACTOR
    exhausted: Verdict = BURY
    unreadable: Verdict | None = BURY
    bury: Kinds = ()
    delete: Kinds = ()
    count: Callable[[JobStats], int] = times_reserved

    def __post_init__(self) -> None:
        """:raise ValueError: a number is out of its range.
        :raise TypeError: something is of another kind.
        """
        _check_verdict("exhausted", self.exhausted)
        if self.unreadable is not None:
            _check_verdict("unreadable", self.unreadable)
        _check_kinds("bury", self.bury)
        _check_kinds("delete", self.delete)
        if not callable(self.count):
            raise TypeError(f"count is a function, such as times_reserved, not {self.count!r}")
        if self.most_attempts is not None:
            check_whole("most_attempts", self.most_attempts, 1)
        check_seconds("first_delay_s", self._first_s)
        check_seconds("most_delay_s", self.most_delay_s)
        if self._first_s > self.most_delay_s:
            raise ValueError(f"first_delay_s is at most most_delay_s: {self}")
        if not isinstance(self.factor, int | float) or isinstance(self.factor, bool):
            raise TypeError(f"factor is a number, not {self.factor!r}")
        if not (isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"factor is at least 1, not {self.factor}")

    @property
    def needs_stats(self) -> bool:
        return self.most_attempts is not None

    def before(self, stats: JobStats) -> Verdict | None:
        unreleased = self.count(stats) - stats.releases
        return self.exhausted if unreleased > self._allowed(stats) else None

    def after(self, stats: JobStats, error: BaseException, chance: float) -> Verdict:
        if isinstance(error, Unreadable) and self.unreadable is not None:
            return self.unreadable
        if isinstance(error, self.bury):
            return Bury()
        if isinstance(error, self.delete):
            return Delete()
        if self.count(stats) >= self._allowed(stats):
            return self.exhausted
        delay_s = self.delay_s(self.count(stats), chance)
        return Release(delay_s, prefers_backoff=self.first_delay_s is None)

    def delay_s(self, attempt: int, chance: float) -> int:
        """Give the seconds to wait after an attempt."""
        due_s, steps = self._first_s, attempt - 1
        while steps > 0 and 0 < due_s < self.most_delay_s and self.factor > 1:
            due_s, steps = due_s * self.factor, steps - 1
        wait_s = min(due_s, self.most_delay_s) * (1 + chance) / 2
        return max(1, round(wait_s)) if wait_s > 0 else 0

    @property
    def _first_s(self) -> float:
        return FIRST_DELAY_S if self.first_delay_s is None else self.first_delay_s

    def _allowed(self, stats: JobStats) -> float:
        return inf if self.most_attempts is None else self.most_attempts + stats.kicks


def _check_verdict(name: str, verdict: object) -> None:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"{name} is Bury(), Delete(), Release() or Return(), not {verdict!r}")


def _check_kinds(name: str, kinds: object) -> None:
    wanted = f"{name} is a tuple of classes of exceptions, such as (LookupError,)"
    if not isinstance(kinds, tuple):
        raise TypeError(f"{wanted}, not {kinds!r}")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{wanted}; {kind!r} is none")
