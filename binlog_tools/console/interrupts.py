"""What Ctrl-C does, from the first moment of a process to its last.

While modules are imported, and behind the end of a command, it ends the process at once: an
exception could come out of any line, in any guise.  While a command runs it is a
`KeyboardInterrupt`, so that what was begun can be taken away.

Imported before all that takes long, so it imports nothing that does: ``_signal``, and not
``signal``, which makes enumerations.
"""

import _signal as signal  # type: ignore[import-not-found]
import os

INTERRUPTED = 130
"""As after SIGINT in a shell; a reader that goes away shows as 141, by SIGPIPE itself."""


class _Interrupts:
    """:ivar have_come: whether a command was interrupted."""

    def __init__(self) -> None:
        self.have_come = False

    def end_at_once(self) -> None:
        """From now on it ends the process; if it is ignored, as behind ``nohup``, it stays so."""
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, self._tell):
            signal.signal(signal.SIGINT, _end)

    def tell_the_command(self) -> None:
        """From now on it is an exception, in a process that was told to `end_at_once` before."""
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, self._tell)

    def _tell(self, number: int, frame: object) -> None:
        self.have_come = True
        raise KeyboardInterrupt


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


INTERRUPTS = _Interrupts()
"""Of this process, which has one Ctrl-C."""
