"""A directory that has its name only when all that is in it is durable."""

import contextlib
import errno
import os
import shutil
from types import TracebackType

from beanstalk_twisted.binlog.directory import sync_directory
from binlog_tools.logs.outputs import PART, NamingDirectory


class NewDirectory:
    """
    A directory that is being filled, as ``PATH.part``; used in a ``with`` block.  Leaving the block
    without `publish` removes it.

    :ivar path: what it will be called, absolute.
    :ivar directory: to write in.
    """

    def __init__(self, path: str) -> None:
        """
        :param path: must not exist, or be an empty directory.
        :raise OSError: it cannot be made.
        """
        self.path = os.path.abspath(path)
        self._real = _followed(self.path)
        self._part = self._real + PART
        self._is_published = False
        _refuse_full(self.path)
        _make(self._part, self.path)
        self.directory = NamingDirectory(self._part)

    def publish(self) -> None:
        """Give it its name; it is durable then."""
        self.directory.sync()
        os.rename(self._part, self._real)
        self._is_published = True
        sync_directory(os.path.dirname(self._real))

    def discard(self) -> None:
        """Remove it, unless it has its name."""
        if not self._is_published:
            shutil.rmtree(self._part, ignore_errors=True)

    def __enter__(self) -> "NewDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.discard()


def _followed(path: str) -> str:
    """A link to an empty directory stays what it is."""
    real = os.path.realpath(path)
    if os.path.islink(path) and not os.path.lexists(real):
        why = f"it is a symbolic link to {real}, which is not there; make that, or name it instead"
        raise OSError(errno.ENOENT, why, path)
    return real


def _refuse_full(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.listdir(path):
            raise OSError(errno.ENOTEMPTY, "it is not empty; name a new directory", path)


def _make(part: str, path: str) -> None:
    """:param path: what the user calls it."""
    try:
        os.mkdir(part, 0o700)
    except FileNotFoundError:
        why = "the directory that it should be in is not there; make that first"
        raise OSError(errno.ENOENT, why, path) from None
    except FileExistsError:
        why = "it was left behind by a run that did not end; remove it and run again"
        raise OSError(errno.EEXIST, why, part) from None
