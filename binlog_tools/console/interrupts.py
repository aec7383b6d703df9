"""What must be so in a command's process before all that takes long is imported.

So this imports nothing that does: ``_signal``, and not ``signal``, which makes enumerations.
"""

import _signal as signal  # type: ignore[import-not-found]
import os
import sys

INTERRUPTED = 130
"""As after SIGINT in a shell; a reader that goes away shows as 141, by SIGPIPE itself."""


STREAMS = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""Of a process, by number; how each is opened, and the mode of its file."""


class _Interrupts:
    """What Ctrl-C does, from the first moment of a process to its last.

    While modules are imported, and behind the end of a command, it ends the process at once: an
    exception could come out of any line, in any guise.  While a command runs it is a
    `KeyboardInterrupt`, so that what was begun can be taken away.

    :ivar have_come: whether a command was interrupted.
    """

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


def begin() -> None:
    """Begin a process: Ctrl-C, and a reader that goes away, end it as they end any Unix tool."""
    INTERRUPTS.end_at_once()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_closed()


def _open_closed() -> None:
    """Open stdin, stdout and stderr if they are closed: else a file or a socket may get one's
    number.

    Reading from stdin and writing to stdout still fail, as the wrong way is open; what is said on
    stderr is dropped.
    """
    for number, (name, wrong, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            # The lowest free number is taken, so they are opened in this order.
            opened = os.open(os.devnull, wrong)
            assert opened == number
            setattr(sys, name, open(opened, mode, closefd=False))  # noqa: SIM115 - for good.
