"""Who started the server, `twistd` or `beanstalk-twisted`, and how a start that fails is told
there.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NoReturn

STDERR: Final = 2


class Refused(Exception):
    """The server cannot start.

    :ivar exit_code: of the process, where it may choose its own.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# `twistd` shows the first 98 bytes of what a daemon died of, and Python puts the module before the
# name of any exception that is not built in: 32 bytes that tell nobody anything.
Refused.__module__ = "builtins"


class Launcher:
    """What `twistd` was told, as far as a start needs it.

    :ivar is_foreground: whether the process may end itself with an exit code of its own.
    :ivar pidfile: its absolute path, empty if there is none.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """:param options: those of `twistd`; empty without it."""
        self.is_foreground = bool(options.get("nodaemon", True))
        self.pidfile = os.path.abspath(options["pidfile"]) if options.get("pidfile") else ""
        self._logs_elsewhere = bool(options.get("logfile")) and options["logfile"] != "-"
        self._terminal: int | None = None

    def keep_terminal(self) -> None:
        """Keep stderr for a start that fails, if its log is not seen there.  A daemon's is closed
        before it starts.
        """
        if not self.is_foreground or self._logs_elsewhere:
            self._terminal = os.dup(STDERR)

    def let_go(self) -> None:
        """Close the kept stderr: the server has started."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal)

    def refuse(self, message: str, code: int) -> NoReturn:
        """End a start.  In the background `twistd` removes the pidfile; it knows of no exit code.

        :param message: what, where, and what to do, in one line.
        :raise SystemExit: in the foreground.
        :raise Refused: in the background.
        """
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, f"error: {message}\n".encode())
        self.let_go()
        if self.is_foreground:
            if self.pidfile:
                with suppress(OSError):
                    os.unlink(self.pidfile)
            raise SystemExit(code)
        sys.excepthook = _report
        raise Refused(message, code) from None


def _report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """A `sys.excepthook` that shows no refusals: they are in the log, and a traceback says nothing
    more.
    """
    if kind is not Refused:
        sys.__excepthook__(kind, error, traceback)
