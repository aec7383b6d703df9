"""The lines of the server's log (docs/operations.md), the same whether `twistd` runs it or not."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    PredicateResult,
    eventAsText,
)
from twisted.python.logfile import LogFile
from zope.interface import implementer

from beanstalk_twisted.printable import escape_all
from beanstalk_twisted.server.audit import AUDIT

ROTATED_BYTES: Final = 1_000_000
"""Size at which the file is renamed here, as that of `twistd`."""


class RotatedFile(LogFile):
    """Twisted's file of a log, which says whether somebody else has renamed it."""

    @property
    def is_at_path(self) -> bool:
        """Whether the file that is open still has its name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except OSError:
            return False


class ReopenedLogFile:
    log = Logger()

    def __init__(self, path: str) -> None:
        """:raise OSError: the file cannot be opened."""
        self._path = os.path.abspath(path)
        self._rotated_bytes: int | None = ROTATED_BYTES
        self._file: Any = self._open()

    def write(self, text: str) -> None:
        self._file.write(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def reopen(self) -> None:
        """Open what now has this path; whoever renamed the old one sees to the size of all."""
        before = self._file
        if not before.is_at_path:
            self._rotated_bytes = None
        try:
            self._file = self._open()
        except OSError as problem:
            self.log.warn(
                "the log {path} cannot be opened again: {why}. It goes on in the file that it had",
                event="log-not-reopened", path=self._path, why=problem.strerror,
            )  # fmt: skip
            return
        before.close()
        self.log.info("the log {path} was opened again", event="log-reopened", path=self._path)

    def _open(self) -> Any:
        make: Any = RotatedFile.fromFullPath
        return make(self._path, rotateLength=self._rotated_bytes)


OURS: Final = "beanstalk_twisted."

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

LOG_DEFAULTS: Final = ("text", "info")
"""The format and the level."""

LEVELS: Final = ("debug", "info", "warn", "error", "critical")
"""Of lines, the least important first."""

NO_FIELDS: Final = frozenset({"event", "failure", "isError", "message", "system", "time", "format"})
"""Of an event: its name, and what Twisted adds for observers of an older kind."""

DEFAULT_FILE: Final = "twistd.log"
"""Where a daemon of `twistd` writes unless told otherwise."""

PARTS: Final = {
    "server": "server",
    "server.connections.protocol": "protocol",
    "server.connections.epoll_reader": "hub",
    "daemon": "server",
    "replication": "stream",
    "storage": "log",
    "storage.directory_check": "disk",
    "storage.watchdog": "disk",
    "storage.archiver": "archive",
    "storage.compactor": "compact",
}
"""What the lines of a package, or of one module of it, are about; 8 letters at most."""

TWISTED: Final = {"log_legacy": "twisted", "twisted.scripts": "twistd"}


def part_of(namespace: str) -> str:
    """:param namespace: a logger's, as a rule the full name of its class."""
    if namespace.startswith(OURS):
        place = namespace.removeprefix(OURS)
        package = place.partition(".")[0]
        while place not in PARTS and place != package:
            place = place.rpartition(".")[0]
        return PARTS.get(place, package)
    for start, part in TWISTED.items():
        if namespace.startswith(start):
            return part
    return namespace.partition(".")[0]


def line(event: LogEvent) -> str | None:
    """An event's line, and its traceback, indented, if it has one; None if it has no text."""
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    if not text:
        return None
    at = event.get("log_time")
    time = "-" if at is None else datetime.fromtimestamp(at, UTC).strftime(TIME_FORMAT)
    part = part_of(event.get("log_namespace", "-"))
    indented = text.rstrip().replace("\n", "\n\t")
    return f"{time} {level_of(event):<5} {part:<8} {indented}\n"


def json_line(event: LogEvent) -> str | None:
    """An event as a JSON object in one line, in ASCII; None if it has no text."""
    text = eventAsText(event, includeTraceback=False, includeTimestamp=False, includeSystem=False)
    failure = event.get("log_failure")
    if not text and failure is None:
        return None
    at, namespace = event.get("log_time"), event.get("log_namespace", "-")
    iso = None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    part = part_of(namespace)
    document = {
        "time": iso and iso[:-6] + "Z", "level": level_of(event), "part": part,
        "event": event.get("event", part), "message": text.strip(),
        "fields": _fields(event) if namespace.startswith(OURS) else {},
    }  # fmt: skip
    if failure is not None:
        document["traceback"] = failure.getTraceback()
    return json.dumps(document) + "\n"


FORMATS: Final[Mapping[str, Callable[[LogEvent], str | None]]] = {"text": line, "json": json_line}


def level_of(event: LogEvent) -> str:
    """:return: one of `LEVELS`, or that of the audit."""
    if event.get("event") == AUDIT:
        return AUDIT
    return str(event.get("log_level", LogLevel.info).name)


def _fields(event: LogEvent) -> dict[str, object]:
    return {
        key: _plain(value)
        for key, value in event.items()
        if not key.startswith("log_") and key not in NO_FIELDS
    }


def _plain(value: object) -> object:
    """As JSON has it: what is no number is text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return escape_all(value) if isinstance(value, bytes) else str(value)


@implementer(ILogFilterPredicate)
class LeastLevel:
    """Leaves out lines below a level, but never those of the audit."""

    def __init__(self, level: str) -> None:
        self._kept = frozenset((*LEVELS[LEVELS.index(level) :], AUDIT))

    def __call__(self, event: LogEvent) -> Any:
        """:return: ``no`` for what is left out, ``maybe`` for all others."""
        return PredicateResult.maybe if level_of(event) in self._kept else PredicateResult.no


class ServerLog:
    """Writes the server's log where `twistd` would write its own."""

    def __init__(
        self, launcher: Mapping[str, Any], log_format: str = "text", level: str = "info"
    ) -> None:
        self._launcher = launcher
        self._format = FORMATS[log_format]
        self._level = LeastLevel(level)
        self._file: ReopenedLogFile | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether `twistd` was told something else about its log, so that it writes it."""
        # A daemon has no stdout: `twistd` says so and ends.
        is_impossible = self._name == "-" and not self._launcher.get("nodaemon")
        told = self._launcher.get("logger") or self._launcher.get("syslog")
        return bool(told) or is_impossible

    @property
    def _name(self) -> str:
        default = "-" if self._launcher.get("nodaemon") else DEFAULT_FILE
        return self._launcher.get("logfile") or default

    def observer(self, predicates: Iterable[ILogFilterPredicate]) -> ILogObserver | None:
        """Open the log; None if it `is_elsewhere`.  :param predicates: say what is left out."""
        if self.is_elsewhere:
            return None
        file: Any = sys.stdout
        if self._name != "-":
            file = self._file = ReopenedLogFile(self._name)
        return FilteringLogObserver(FileLogObserver(file, self._format), [*predicates, self._level])

    def reopen(self) -> None:
        """Go on in the file that now has the name of the log, if it is a file."""
        if self._file is not None:
            self._file.reopen()
