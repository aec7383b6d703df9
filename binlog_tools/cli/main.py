"""The console script ``binlog-inspect``: what must be so before the rest is imported."""

import _signal as signal  # type: ignore[import-not-found]
import os
import sys

from binlog_tools.console.interrupts import INTERRUPTS


def main() -> None:
    """Call the command.  A reader that goes away ends it as it ends any Unix tool."""
    INTERRUPTS.end_at_once()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _occupy_what_is_closed()
    from binlog_tools.cli.commands import called

    sys.exit(called())


def _occupy_what_is_closed() -> None:
    """A file that we open must never be taken for stdin, stdout or stderr.  Reading or writing what
    was closed fails as before; only what goes to stderr goes nowhere.
    """
    for fd, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, flags), fd)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
