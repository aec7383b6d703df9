"""An exception at any moment: at each line of our code that is run, and at each call of a function
written in C that it makes, since either may find that there is no memory, be struck by a signal, or
hide a mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent / "beanstalk_twisted"


def files_of(*modules: str) -> frozenset[str]:
    """The files of modules of ours, or of all in a package of ours."""
    found: list[Path] = []
    for module in modules:
        place = ROOT / module.replace(".", "/")
        found += place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    assert all(path.is_file() for path in found), modules
    return frozenset(map(str, found))


class Interruption:
    """Raises an exception once, at one of the moments in some files while it is entered.

    :ivar moments: how many there were.
    :ivar where: the module's file and line that was interrupted; empty if none was.
    """

    def __init__(
        self, files: Iterable[str], at: int = 0, error: BaseException | None = None,
        exempt: Iterable[Callable[..., Any]] = (),
    ) -> None:  # fmt: skip
        """:param at: which of the moments, the first being 1; 0 for none, to count them.
        :param exempt: functions that are never interrupted, nor what they call.
        """
        self.moments = 0
        self.where = ""
        self._files = frozenset(files)
        self._at = at
        self._error = MemoryError() if error is None else error
        self._exempt: set[CodeType] = {each.__code__ for each in exempt}
        self._inside = 0

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self._profile)
        sys.settrace(self._call)
        return self

    def __exit__(self, *ignored: object) -> None:
        trace, profile = self._before
        sys.settrace(trace)
        sys.setprofile(profile)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code in self._exempt:
            self._inside += 1
            return self._leave
        return self._line if frame.f_code.co_filename in self._files else None

    def _leave(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            self._inside -= 1
        return self._leave

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._strike(frame)
        return self._line

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call" and frame.f_code.co_filename in self._files:
            self._strike(frame)

    def _strike(self, frame: FrameType) -> None:
        if self._inside:
            return
        self.moments += 1
        if self.moments == self._at:
            path = Path(frame.f_code.co_filename)
            self.where = f"{path.relative_to(ROOT)}:{frame.f_lineno}"
            raise self._error


def moments_of(files: Iterable[str], act: Callable[[], object]) -> int:
    """Count the moments of something that is done in these files."""
    with Interruption(files) as counted:
        act()
    return counted.moments
