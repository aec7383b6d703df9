"""
The bodies of a log, looked at in a thread while its jobs are loaded from the records.  Checksums of
large frames are computed without the interpreter's lock, so that both go on at once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.body_check import check_bodies
from beanstalk_twisted.binlog.reading.survey import Segment


class StartCheck:
    """Checks the bodies of segments."""

    def __init__(self, directory: Directory, segments: Sequence[Segment]) -> None:
        self._directory = directory
        self._segments = segments
        self._ended: Callable[[], bool] | None = None
        self._is_left = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin, in a thread if there can be one."""
        if self._segments:
            self._thread = Thread(target=self._run, name="body-check", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # No memory for a thread: `is_sound` does it.
                self._thread = None

    def leave(self) -> None:
        """Nobody wants to know any more."""
        self._is_left = True

    def is_sound(self) -> bool:
        """
        Wait until all is looked at.

        :return: whether all of it is sound.
        :raise OSError: the disk cannot read it.
        """
        if self._thread is not None:
            self._thread.join()
        return self._check() if self._ended is None else self._ended()

    def _run(self) -> None:
        try:
            self._ended = partial(bool, self._check())
        except MemoryError:
            # Where there is little, `is_sound` tries again when the thread is gone.
            pass
        except Exception as problem:
            self._ended = partial(_again, problem)

    def _check(self) -> bool:
        try:
            for segment in self._segments:
                for each in check_bodies(self._directory, segment):
                    if each.bad or self._is_left:
                        return False
        except Damaged:
            return False
        return True


def _again(problem: Exception) -> bool:
    raise problem
