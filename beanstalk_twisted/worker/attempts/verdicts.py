"""
What may become of a job when it was worked on, as values.

A function that does jobs may return one, or raise it with `Decided`; without that, a job that was
done is deleted, and about one that failed a policy decides.
"""

from dataclasses import dataclass
from typing import Final

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
    """
    It is to be tried again.

    :ivar delay: after so many seconds, whole ones: the protocol's field, and `Client.release`'s.
    :ivar priority: with this priority; None for the one it has.
    """

    delay: int = 0
    priority: int | None = None

    def __post_init__(self) -> None:
        """:raise ValueError: the protocol has no such numbers."""
        _check("delay", self.delay)
        if self.priority is not None:
            _check("priority", self.priority)

    def __str__(self) -> str:
        when = f"released for {self.delay} s" if self.delay else "released"
        return when + _with(self.priority)


@dataclass(frozen=True, slots=True)
class Bury:
    """
    It is put aside until somebody kicks it.

    :ivar priority: as of `Release`.
    """

    priority: int | None = None

    def __post_init__(self) -> None:
        """:raise ValueError: the protocol has no such number."""
        if self.priority is not None:
            _check("priority", self.priority)

    def __str__(self) -> str:
        return "buried" + _with(self.priority)


Verdict = Delete | Release | Bury


class Decided(Exception):
    """Raised by who does a job, from wherever, to say what is to become of it."""

    def __init__(self, verdict: Verdict) -> None:
        """:raise TypeError: that is no verdict; so the job fails."""
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a verdict is Delete(), Release() or Bury(), not {verdict!r}")
        super().__init__(f"{verdict}")
        self.verdict = verdict


class TookTooLong(Exception):
    """What a job fails with that was not done within the worker's ``limit_s``."""


class NoResult(Exception):
    """
    What a job fails with whose function has given what cannot have been meant: an exception, the
    class of a verdict, or what has not run yet or still does, such as a generator or a process.
    """


class TooManyAttempts(Exception):
    """
    What a job fails with that was given out so often that it is not tried again: whoever had it
    before has died, or let its TTR end.
    """
