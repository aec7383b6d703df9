"""Hooks that a worker calls while it works: for logs, for metrics, for the application."""

import os
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import twisted
from twisted.logger import Logger, LogLevel

from beanstalk_twisted.client.service import Losses
from beanstalk_twisted.printable import shorten
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.policy import Bury, Verdict

_BETWEEN: Final = tuple(
    f"{place.parent}{os.sep}" for place in (Path(__file__).parent, Path(twisted.__file__))
)
"""Folders of our own code and Twisted's, which lies between a worker and the application's."""

MAX_TEXT: Final = 1_000
"""Characters of an exception's own text in the log: it may have a body in it."""

MAX_TRACEBACK: Final = 16_384
"""Characters of a traceback in the log, with those of the causes."""


class Hooks:
    """Methods that the worker calls in the reactor's thread; subclass this.

    An exception from one of these is logged, and changes nothing.
    """

    def began(self, attempt: Attempt[Any]) -> None:
        """An attempt begins."""

    def touched(self, attempt: Attempt[Any]) -> None:
        """The server has begun its TTR again."""

    def failed(self, attempt: Attempt[Any], error: BaseException) -> None:
        """An attempt has failed, and the server has answered what becomes of the job: `ended`,
        `lost` or `unsettled` follows.
        """

    def _attempt_failed(self, attempt: Attempt[Any]) -> None:
        """An attempt has failed; `failed` follows unless the server answers that the job is gone:
        cancelled.
        """

    def ended(self, attempt: Attempt[Any], verdict: Verdict, seconds: float) -> None:
        """The server has confirmed what becomes of the job, ``seconds`` after its reservation."""

    def lost(self, attempt: Attempt[Any], ending: Ending) -> None:
        """Another worker has the job, or will: its reservation has ended before it was done."""

    def cancelled(self, attempt: Attempt[Any]) -> None:
        """The job is gone: somebody has cancelled it (`cancel-job`)."""

    def stuck(self, attempt: Attempt[Any], stuck: int, slots: int) -> None:
        """The handler still runs although its attempt has failed at the limit and the job is
        settled.  Its slot is free again when it ends.

        :param stuck: how many of all slots are taken so, this one included; with all of them stuck
            no job is taken any more.
        """

    def unsettled(self, attempt: Attempt[Any], verdict: Verdict, error: BaseException) -> None:
        """The command that ends the job was refused or not answered; the TTR gives it out again."""

    def disconnected(self, losses: Losses) -> None:
        """A connection was lost; another one will be made."""

    def troubled(self, error: BaseException) -> None:
        """A `reserve`, or a command before it, has failed; it will be sent again."""


class Logged(Hooks):
    """Logs what fails, is buried or is lost as warnings, the rest as information or debugging."""

    log = Logger(namespace="beanstalk_twisted.worker")

    def began(self, attempt: Attempt[Any]) -> None:
        self.log.debug("{job}: begun", job=attempt)

    def failed(self, attempt: Attempt[Any], error: BaseException) -> None:
        # As text: to a test under trial, a failure that is logged as one is a fault in the test.
        self.log.warn("{job}: failed: {kind}: {error}{frames}", job=attempt,
                      kind=type(error).__name__, error=text_of(error),
                      frames=frames_of(error))  # fmt: skip

    def ended(self, attempt: Attempt[Any], verdict: Verdict, seconds: float) -> None:
        level = LogLevel.warn if isinstance(verdict, Bury) else LogLevel.info
        self.log.emit(level, "{job}: {verdict} after {seconds:.3f} s", job=attempt,
                      verdict=verdict, seconds=seconds)  # fmt: skip

    def lost(self, attempt: Attempt[Any], ending: Ending) -> None:
        self.log.warn("{job}: lost: {why}", job=attempt, why=ending.value)

    def cancelled(self, attempt: Attempt[Any]) -> None:
        self.log.info("{job}: cancelled", job=attempt)

    def stuck(self, attempt: Attempt[Any], stuck: int, slots: int) -> None:
        self.log.warn("{job}: given up, but its function still runs: {stuck} of {slots} slots are "
                      "stuck", job=attempt, stuck=stuck, slots=slots)  # fmt: skip

    def unsettled(self, attempt: Attempt[Any], verdict: Verdict, error: BaseException) -> None:
        self.log.warn("{job}: unsettled, was to be {verdict}: {error}", job=attempt,
                      verdict=verdict, error=text_of(error))  # fmt: skip

    def disconnected(self, losses: Losses) -> None:
        count = len(losses.reservations)
        again = (
            "; others will do these jobs again, and what comes of them here counts only if the "
            "same server is back"
        )
        self.log.warn("connection lost ({why}), and with it {count} {reservations}{again}",
                      why=losses.reason, count=count, again=again if count else "",
                      reservations="reservation" if count == 1 else "reservations")  # fmt: skip

    def troubled(self, error: BaseException) -> None:
        self.log.warn("no job: {error}", error=text_of(error))


def text_of(error: BaseException) -> str:
    """Give the text of any exception, bounded, also if it has none to give."""
    try:
        text = str(error)
    except BaseException as problem:
        text = f"(no text: its __str__ raised {type(problem).__name__})"
    return shorten(text, MAX_TEXT)


def is_of_application(path: str) -> bool:
    """Return True if a file is neither ours nor Twisted's."""
    return not path.startswith(_BETWEEN)


def frames_of(error: BaseException) -> str:
    """Give the traceback of an exception from the application's first frame on, each line below the
    last; nothing if no code of the application has raised it.
    """
    place: TracebackType | None = error.__traceback__
    while place is not None and not is_of_application(place.tb_frame.f_code.co_filename):
        place = place.tb_next
    if place is None:
        notes = "\n".join(getattr(error, "__notes__", ()))  # Such as another process's traceback.
        return notes and "\n" + shorten(notes, MAX_TRACEBACK)
    written = traceback.format_exception(type(error), error, place)
    text = "".join(shorten(each, MAX_TEXT) for each in written)
    return "\n" + shorten(text, MAX_TRACEBACK).rstrip()


class Tally(Hooks):
    """Counts, for metrics.

    :ivar counts: how often each of ``began``, ``touched``, ``failed``, ``done`` (deleted),
        ``released``, ``returned``, ``buried``, ``lost``, ``cancelled``, ``stuck``, ``unsettled``,
        ``disconnected`` and ``troubled``.
    :ivar seconds: how long jobs were in our hands, all that have ended together.
    """

    _NAMES = {"Delete": "done", "Release": "released", "Return": "returned", "Bury": "buried"}

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0

    def began(self, attempt: Attempt[Any]) -> None:
        self.counts["began"] += 1

    def touched(self, attempt: Attempt[Any]) -> None:
        self.counts["touched"] += 1

    def failed(self, attempt: Attempt[Any], error: BaseException) -> None:
        self.counts["failed"] += 1

    def ended(self, attempt: Attempt[Any], verdict: Verdict, seconds: float) -> None:
        self.counts[self._NAMES[type(verdict).__name__]] += 1
        self.seconds += seconds

    def lost(self, attempt: Attempt[Any], ending: Ending) -> None:
        self.counts["lost"] += 1

    def cancelled(self, attempt: Attempt[Any]) -> None:
        self.counts["cancelled"] += 1

    def stuck(self, attempt: Attempt[Any], stuck: int, slots: int) -> None:
        self.counts["stuck"] += 1

    def unsettled(self, attempt: Attempt[Any], verdict: Verdict, error: BaseException) -> None:
        self.counts["unsettled"] += 1

    def disconnected(self, losses: Losses) -> None:
        self.counts["disconnected"] += 1

    def troubled(self, error: BaseException) -> None:
        self.counts["troubled"] += 1


class HookList:
    """All hooks of a worker; an exception from one is logged, and the others are still called."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(self, hooks: Iterable[Hooks]) -> None:
        self._hooks = tuple(hooks)

    def call(self, name: str, *facts: object) -> None:
        for hooks in self._hooks:
            try:
                getattr(hooks, name)(*facts)
            except BaseException:
                self._log.failure("in a hook of the application: {what}", what=name)
