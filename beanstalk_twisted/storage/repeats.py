"""Rate limits of log lines: the first at once, then once a minute how often."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall

from beanstalk_twisted.storage.io_thread import Clock

T = TypeVar("T")

TELL_S: Final = 60.0
"""Seconds between two lines about the same anomaly: 1,440 lines for one that lasts a day."""


def times(count: int, which: str = "newest") -> str:
    """Return the end of a line that stands for several; ``which`` of them it describes."""
    return "" if count == 1 else f"; the {which} of {count} since the last such line"


def newest(logged: T, later: T) -> T:
    """Choose the later of two."""
    return later


class Repeats(Generic[T]):
    """Reports the first event at once, and the count of further ones each `TELL_S`."""

    def __init__(
        self, clock: Clock, tell: Callable[[int, T], None],
        choose: Callable[[T, T], T] = newest,
    ) -> None:  # fmt: skip
        """:param tell: called with how many there were since it was called last, and one of them.
        :param choose: which of two is reported; ``max`` for the worst.
        """
        self._clock = clock
        self._tell = tell
        self._choose = choose
        self._count = 0
        self._noted: list[T] = []
        self._timer: IDelayedCall | None = None

    def note(self, what: T) -> bool:
        """Count one more; return whether it was reported now."""
        self._count += 1
        self._noted = [self._choose(self._noted[0], what)] if self._noted else [what]
        if self._timer is not None:
            return False
        self._tell_and_wait()
        return True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._count:
            self._tell_count()

    def _tell_and_wait(self) -> None:
        self._timer = self._clock.callLater(TELL_S, self._end_wait)
        self._tell_count()

    def _end_wait(self) -> None:
        self._timer = None
        if self._count:
            self._tell_and_wait()

    def _tell_count(self) -> None:
        count, (what,) = self._count, self._noted
        self._count, self._noted = 0, []
        # Where there is no memory a line is lost, and not what it is about.
        with suppress(MemoryError):
            self._tell(count, what)


class Trouble:
    """Reports the beginning of a state that comes and goes now, its end when it has been over for
    `TELL_S`, with how often it came.  So the last line says what holds.
    """

    def __init__(
        self, clock: Clock, begun: Callable[[], None], over: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._begun = begun
        self._over = over
        self._count = 0
        self._timer: IDelayedCall | None = None

    def changed(self, has_begun: bool) -> None:
        self.stop()
        if not has_begun:
            self._timer = self._clock.callLater(TELL_S, self._tell_end)
            return
        self._count += 1
        if self._count == 1:
            self._begun()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _tell_end(self) -> None:
        self._timer = None
        count, self._count = self._count, 0
        self._over(count)
