"""The console scripts: how each process begins, before the slow imports, and how it ends."""

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` itself takes its time.
import os
import sys

TYPE_CHECKING = False  # ``typing`` takes its time too.
if TYPE_CHECKING:
    from collections.abc import Callable

    import click

PROGRAMS = {
    "beanstalk": "binlog_tools.queue.cli.commands",
    "beanstalk-twisted": "beanstalk_twisted.tap",
    "beanstalk-work": "beanstalk_twisted.worker.command",
    "binlog-inspect": "binlog_tools.cli.commands",
    "python -m binlog_tools.spark": "binlog_tools.spark.__main__",
}
"""The module of each program; its function `main` returns the exit code, or ends the process."""

INTERRUPTED = 130
"""As after SIGINT in a shell; a reader that goes away shows as 141, by SIGPIPE itself."""

UNWRITTEN = 4
"""The exit code if stdout cannot be written."""

STREAMS = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""Of a process, by number; how each is opened, and the mode of its file."""


class _Interrupts:
    """What Ctrl-C does, from the first moment of a process to its last.

    While modules are imported, and after the end of a command, it ends the process immediately: an
    exception could come out of any line, in any guise.  While a command runs it is a
    `KeyboardInterrupt`, so that what was begun can be undone.

    :ivar have_come: whether a command was interrupted.
    """

    def __init__(self) -> None:
        self.have_come = False

    def end_at_once(self) -> None:
        """From now on it ends the process; if it is ignored, as by ``nohup``, it stays so."""
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, self._raise):
            signal.signal(signal.SIGINT, _end)

    def tell_the_command(self) -> None:
        """From now on it is an exception, in a process that called `end_at_once` before."""
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, self._raise)

    def leave_to_reactor(self) -> None:
        """Twisted handles SIGINT only where Python's own handler is in place."""
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _raise(self, number: int, frame: object) -> None:
        self.have_come = True
        raise KeyboardInterrupt


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


INTERRUPTS = _Interrupts()
"""Of this process, which has one Ctrl-C."""


def outlive_readers() -> None:
    """Get an error, and not SIGPIPE, when the reader of stdout or the peer of a socket is gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def main(program: str, **given: object) -> None:
    """Run one of `PROGRAMS`, and end the process with its exit code.

    :param given: to its function.
    """
    INTERRUPTS.end_at_once()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_closed()
    import gc
    from importlib import import_module

    # None of what modules make is garbage: to search it takes up to a sixth of a start.
    gc.disable()
    called = import_module(PROGRAMS[program]).main
    gc.freeze()
    gc.enable()
    sys.exit(_flushed(program, outcome(lambda: called(**given))))


def _open_closed() -> None:
    """Open stdin, stdout and stderr if they are closed: else a file or a socket may get one's
    number.

    Reading from stdin and writing to stdout still fail, as the wrong way is open; what is written
    to stderr is dropped.
    """
    for number, (name, wrong, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            # The lowest free number is taken, so they are opened in this order.
            opened = os.open(os.devnull, wrong)
            assert opened == number
            setattr(sys, name, open(opened, mode, closefd=False))  # noqa: SIM115 - until the end.


def outcome(
    call: "Callable[[], object]", show: "Callable[[click.ClickException], object] | None" = None
) -> int:
    """Call a command line of click, and return the exit code.

    :param show: reports what click raises; without it, click does.
    """
    import click

    code: object = 0
    try:
        code = call()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except click.ClickException as problem:
        show(problem) if show else problem.show()
        code = problem.exit_code
    except Exception:
        # What came of an interrupt in the middle of something may have any name.
        if not INTERRUPTS.have_come:
            raise
    # An exception that comes in the middle of a ``__del__`` goes no further.
    return INTERRUPTED if INTERRUPTS.have_come else code if isinstance(code, int) else 0


def _flushed(program: str, code: int) -> int:
    """Write what is left of stdout now, where a failure can be reported; return the exit code."""
    INTERRUPTS.end_at_once()
    try:
        sys.stdout.flush()
    except OSError as problem:
        # Otherwise the interpreter tries it once more, and complains in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not code:
            print(f"{program}: stdout: {problem.strerror}", file=sys.stderr)
            return UNWRITTEN
    return code


def beanstalk() -> None:
    main("beanstalk")


def binlog_inspect() -> None:
    main("binlog-inspect")


def beanstalk_work() -> None:
    main("beanstalk-work")
