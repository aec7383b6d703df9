"""
The lines of the server's log: time, level, part of the server, text.

::

    2026-11-22T13:23:12Z info  server   listening on 127.0.0.1:11300

They are the same in the foreground, in the background and from `beanstalk-twisted`, since `twistd`
asks an application for its log observer; ``--logger`` and ``--syslog`` of `twistd` keep their own.
"""

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    eventAsText,
)
from twisted.python.logfile import LogFile

OURS: Final = "beanstalk_twisted."

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

DEFAULT_FILE: Final = "twistd.log"
"""Where a daemon of `twistd` writes unless told otherwise."""

PARTS: Final = {
    "server": "server",
    "server.protocol": "protocol",
    "server.epoll_reader": "hub",
    "daemon": "server",
    "storage": "log",
    "storage.directory_check": "disk",
    "storage.watchdog": "disk",
    "storage.archiver": "archive",
    "storage.compactor": "compact",
}
"""What the lines of a package, or of one module of it, are about; 8 letters at most."""

TWISTED: Final = {"log_legacy": "twisted", "twisted.scripts": "twistd"}


def part_of(namespace: str) -> str:
    """
    :param namespace: a logger's, as a rule the full name of its class.
    :return: the part of the server that speaks, one word.
    """
    if namespace.startswith(OURS):
        package, module = [*namespace.split("."), ""][1:3]
        return PARTS.get(f"{package}.{module}") or PARTS.get(package, package)
    for start, part in TWISTED.items():
        if namespace.startswith(start):
            return part
    return namespace.partition(".")[0]


def line(event: LogEvent) -> str | None:
    """
    :param event: what was logged.
    :return: its line, and a traceback behind it if it has one, indented; None if it has no text.
    """
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    if not text:
        return None
    time = _utc(event.get("log_time"))
    level = event.get("log_level", LogLevel.info).name
    part = part_of(event.get("log_namespace", "-"))
    indented = text.rstrip().replace("\n", "\n\t")
    return f"{time} {level:<5} {part:<8} {indented}\n"


def _utc(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime(TIME_FORMAT)


def observer(
    launcher: Mapping[str, Any], predicates: Iterable[ILogFilterPredicate]
) -> ILogObserver | None:
    """
    Write these lines where `twistd` would write its own.

    :param launcher: the options of `twistd`.
    :param predicates: say what is left out.
    :return: None where `twistd` was told something else about its log.
    """
    if launcher.get("logger") or launcher.get("syslog"):
        return None
    is_foreground = bool(launcher.get("nodaemon"))
    name = launcher.get("logfile") or ("-" if is_foreground else DEFAULT_FILE)
    if name == "-" and not is_foreground:
        # A daemon has no stdout: `twistd` says so and ends.
        return None
    file = sys.stdout if name == "-" else LogFile.fromFullPath(name)
    return FilteringLogObserver(FileLogObserver(file, line), predicates)
