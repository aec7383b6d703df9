"""How a benchmark ends before its time: refused in one line, or told to by a signal, tidily."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Final, NoReturn

REFUSED: Final = 2
"""Exit code: an option is wrong, and nothing was measured."""

INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit codes: ended by Ctrl-C, or by SIGTERM; those that shells use."""


class RefusedError(Exception):
    """Something that was asked for cannot be done; the text says in one line what to do."""


class Terminated(BaseException):
    """SIGTERM has come: all blocks are left as after an error, so servers and folders go."""


STOPPED: Final = (KeyboardInterrupt, Terminated)
"""What a signal becomes."""


class Parser(argparse.ArgumentParser):
    """Refuses wrong options in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where all options are told."""
        self.exit(REFUSED, f"{self.prog}: {message}; --help tells all options\n")


def ended(prog: str, work: Callable[[], int]) -> int:
    """Do the work of a command.

    :return: its exit code, or that of the way it ended.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        return work()
    except RefusedError as problem:
        print(f"{prog}: {problem}", file=sys.stderr)
        return REFUSED
    except STOPPED as stopped:
        print(f"{prog}: interrupted", file=sys.stderr)
        return code_of(stopped)
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def code_of(stopped: BaseException) -> int:
    """Give the exit code for a signal."""
    return TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


@contextmanager
def signals_held() -> Iterator[None]:
    """Let signals wait until the block is left.

    A process or folder that is just being made belongs to nobody: a signal in that moment would
    leave it behind.  Children get theirs as ever, which they would not if these were blocked.
    """
    if current_thread() is not main_thread():  # No signal is taken there.
        yield
        return
    come: list[int] = []
    before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.getsignal(each)
            signal.signal(each, lambda number, _frame: come.append(number))
        yield
    finally:
        for each, what in before.items():
            signal.signal(each, what or signal.SIG_DFL)
        for number in come:
            signal.raise_signal(number)


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that goes with the block, whenever a signal comes."""
    with ExitStack() as stack:
        with signals_held():
            folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
            stack.callback(_remove, folder)
        yield Path(folder.name)


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    with signals_held():
        folder.cleanup()


def writable(option: str, folder: Path) -> Path:
    """See that a folder can be written into.

    :raise RefusedError: it cannot.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as problem:
        raise RefusedError(
            f"{option} {folder}: {problem.strerror}; name a folder that is there and can be "
            "written into"
        ) from None
