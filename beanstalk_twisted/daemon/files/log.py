"""
The file of the server's log: it is opened anew on SIGHUP, so that others may rename it, as
logrotate does.

Until somebody has, it is renamed here after each megabyte, as `twistd` does with its own.
"""

import os
from typing import Any, Final

from twisted.logger import Logger
from twisted.python.logfile import LogFile

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
    """A file that text is appended to."""

    log = Logger()

    def __init__(self, path: str) -> None:
        """:raise OSError: it cannot be opened."""
        self._path = os.path.abspath(path)
        self._rotated_bytes: int | None = ROTATED_BYTES
        self._file: Any = self._open()

    def write(self, text: str) -> None:
        """Append text."""
        self._file.write(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def reopen(self) -> None:
        """
        Go on in the file that now has this path; it is made if there is none.  From then on whoever
        has renamed the old one sees to the size of all.
        """
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
