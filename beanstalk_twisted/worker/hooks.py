"""Hooks that a worker calls while it works: for logs, for metrics, for the application."""

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import isclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import twisted
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

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


class Event(NamedTuple):
    """Something that has happened in a worker; hooks are called with it in the reactor's thread.

    :ivar name: one of `EVENTS`.
    :ivar error: of ``raised``, ``failed``, ``unsettled`` and ``troubled``.
    :ivar verdict: of ``ended`` and ``unsettled``.
    :ivar seconds: since the job was reserved; of ``ended``.
    :ivar ending: why the job was lost.
    :ivar stuck: how many of the ``slots`` are stuck, this one included.
    """

    name: str
    attempt: Attempt[Any] | None = None
    error: BaseException | None = None
    verdict: Verdict | None = None
    seconds: float = 0.0
    ending: Ending | None = None
    stuck: int = 0
    slots: int = 0
    losses: Losses | None = None


Hook = Callable[[Event], object]

EVENTS: Final[Mapping[str, tuple[LogLevel, str] | None]] = {
    "began": (LogLevel.debug, "{attempt}: begun"),
    "touched": None,
    "raised": None,
    "failed": (LogLevel.warn, "{attempt}: failed: {kind}: {error}{frames}"),
    "ended": (LogLevel.info, "{attempt}: {verdict} after {seconds:.3f} s"),
    "lost": (LogLevel.warn, "{attempt}: lost: {ending.value}"),
    "cancelled": (LogLevel.info, "{attempt}: cancelled"),
    "stuck": (
        LogLevel.warn, "{attempt}: given up, but its function still runs: {stuck} of {slots} slots "
        "are stuck",
    ),
    "unsettled": (LogLevel.warn, "{attempt}: unsettled, was to be {verdict}: {error}"),
    "disconnected": (
        LogLevel.warn, "connection lost ({losses.reason}), and with it {count} {noun}{again}",
    ),
    "troubled": (LogLevel.warn, "no job: {error}"),
}  # fmt: skip
"""What is logged of each event, and at which level."""

_AGAIN: Final = (
    "; others will do these jobs again, and what comes of them here counts only if the same "
    "server is back"
)

_log = Logger(namespace="beanstalk_twisted.worker")


def log(event: Event, forms: Mapping[str, tuple[LogLevel, str] | None] = EVENTS) -> None:
    """Write an event to Twisted's log."""
    form = EVENTS[event.name] if isinstance(event.verdict, Bury) else forms[event.name]
    if form is None:
        return
    level, text = form
    facts = event._asdict()
    if event.error is not None:
        # As text: to a test under trial, a failure that is logged as one is a fault in the test.
        facts |= {"kind": type(event.error).__name__, "error": text_of(event.error)}
        facts["frames"] = frames_of(event.error) if event.name == "failed" else ""
    if event.losses is not None:
        count = len(event.losses.reservations)
        noun = "reservation" if count == 1 else "reservations"
        facts |= {"count": count, "noun": noun, "again": _AGAIN if count else ""}
    if isinstance(event.verdict, Bury):
        level = LogLevel.warn
    _log.emit(level, text, **facts)


def log_fault(failure: Failure) -> None:
    _log.failure("a fault in the worker", failure)


class Tally:
    """A hook that counts, for metrics.

    :ivar counts: how often each event has happened; in place of ``ended``, how often jobs were
        ``done`` (deleted), ``released``, ``returned`` and ``buried``.
    :ivar seconds: how long jobs were in our hands, all that have ended together.
    """

    _NAMES = {"Delete": "done", "Release": "released", "Return": "returned", "Bury": "buried"}

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0

    def __call__(self, event: Event) -> None:
        if event.name == "ended":
            self.counts[self._NAMES[type(event.verdict).__name__]] += 1
            self.seconds += event.seconds
        elif event.name != "raised":
            self.counts[event.name] += 1


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


class Hooks:
    """All hooks of a worker; an exception from one is logged, and the others are still called."""

    def __init__(self, hooks: Iterable[Hook], logs: bool, least: Any = LogLevel.debug) -> None:
        """:raise TypeError: one cannot be called."""
        if not isinstance(hooks, Iterable) or isinstance(hooks, str):
            raise TypeError(f"hooks is a list of functions of an Event, not {hooks!r}")
        forms = {name: form if form and form[0] >= least else None for name, form in EVENTS.items()}
        self._hooks: tuple[Hook, ...] = (*([partial(log, forms=forms)] if logs else []), *hooks)
        for hook in self._hooks:
            if not callable(hook) or isclass(hook):
                raise TypeError(f"hooks is a list of functions of an Event; {hook!r} is none")

    def call(self, name: str, attempt: Attempt[Any] | None = None, **facts: Any) -> None:
        event = Event(name, attempt, **facts)
        for hook in self._hooks:
            try:
                hook(event)
            except BaseException:
                _log.failure("in a hook of the application: {what}", what=name)
