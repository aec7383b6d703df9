"""Where the output of a command goes: never into a log that it reads, and never half."""

import contextlib
import errno
import fcntl
import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, TextIO

from beanstalk_twisted.binlog.directory import RealDirectory, RealFile, sync_directory
from beanstalk_twisted.binlog.segments.format import parse_segment_name
from binlog_tools.console.streams import NamedBuffer, naming
from binlog_tools.logs.sources import is_store_name, parse_archived_name

STDOUT: Final = "-"

PART: Final = ".part"

MODE: Final = 0o600
"""Of each file that is made: bodies are in it."""

_DESCRIPTORS: Final = re.compile(r"/proc/.*/fd|/dev/fd")
"""Folders whose files are what this process has open already."""


class Inside(ValueError):
    """An output that would change a log that is read, or lie about in one that is made."""


def refuse_inside_sources(output: str, sources: Iterable[str]) -> None:
    """Links are followed, and hard links to a file of a log count as that file.  Where segments of
    a directory are links, the folders of what they lead to are read, too.

    :param output: a file or a directory, which need not exist.
    :raise Inside: writing the output would change one of the sources.
    """
    for source in sources:
        for path in (output, os.path.realpath(output) + PART):
            if _is_inside(path, source):
                raise Inside(
                    f"{output}: this is within {source}, which is read, and a log is only read; "
                    f"nothing was written. Name a place outside of it."
                )


def refuse_inside_new(output: str, directories: Iterable[str]) -> None:
    """:param directories: that are to be made; they need not exist.
    :raise Inside: the file would be within one.
    """
    real = os.path.realpath(output)
    for directory in directories:
        new = os.path.realpath(directory)
        if any(os.path.commonpath((real, at)) == at for at in (new, new + PART)):
            raise Inside(
                f"{output}: this is within {directory}, which is to be a log and nothing else; "
                f"nothing was written. Name a place outside of it."
            )


def _is_inside(output: str, source: str) -> bool:
    real = os.path.realpath(output)
    if not os.path.exists(source):
        # A URL, or what was removed meanwhile.
        return False
    if os.path.isdir(source):
        if any(_is_below(real, folder) for folder in _folders_of(source)):
            return True
        return _is_a_file_of(real, source)
    folder = os.path.dirname(os.path.realpath(source))
    if _is_segment_name(os.path.basename(real)) and os.path.dirname(real) == folder:
        return True
    return os.path.exists(real) and os.path.samefile(real, source)


def _is_segment_name(name: str) -> bool:
    return parse_segment_name(name) is not None or parse_archived_name(name) is not None


def _is_below(path: str, folder: str) -> bool:
    wanted = os.stat(folder)
    while True:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), wanted):
                return True
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above


def _folders_of(source: str) -> list[str]:
    """A directory, and where the links in it lead that are read as segments or stores."""
    found: list[str] = []
    left = [source]
    while left:
        folder = os.path.realpath(left.pop())
        if folder not in found:
            found.append(folder)
            left += _led_to(folder)
    return found


def _led_to(folder: str) -> Iterator[str]:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if is_store_name(name) and os.path.isdir(path):
            yield path
        elif parse_archived_name(name) is not None and os.path.islink(path):
            yield os.path.dirname(os.path.realpath(path))


def _is_a_file_of(path: str, folder: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode):
        return False
    for at, _, names in os.walk(folder):
        for name in names:
            # A link may lead nowhere, a server may have deleted a file meanwhile.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(os.path.join(at, name)), found):
                    return True
    return False


class NamingFile(RealFile):
    def __init__(self, fd: int, path: str) -> None:
        super().__init__(fd)
        self._path = path

    def write_at(self, offset: int, chunks: Any) -> None:
        with naming(self._path):
            super().write_at(offset, chunks)

    def sync(self) -> None:
        with naming(self._path):
            super().sync()


class NamingDirectory(RealDirectory):
    def create(self, name: str) -> RealFile:
        path = os.path.join(self.path, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return NamingFile(os.open(path, flags, MODE), path)


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[TextIO]:
    """The one output of a command; a file has its name when the block has ended well.

    :param path: None or ``-`` for stdout.
    """
    if path is None or path == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with new_file(path) as out, as_text(out) as text:
        yield text


@contextlib.contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """A file that is written as ``NAME.part``, or directly if it is no regular file.  It has its
    name when the block ends without an error; else what had that name before has it still.  A new
    one has `MODE`, another one the rights of that before.

    :raise OSError: it cannot be written; it says which file.
    """
    if not _is_replaced(path):
        with NamedBuffer(os.open(path, os.O_WRONLY | os.O_CLOEXEC), path) as out:
            yield out
        return
    target = os.path.realpath(path)
    part = target + PART
    fd = _open_part(part)
    try:
        with NamedBuffer(fd, part) as out:
            yield out
            out.flush()
            with naming(part):
                with contextlib.suppress(OSError):
                    os.fchmod(fd, stat.S_IMODE(os.stat(target).st_mode))
                os.fsync(fd)
            os.rename(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    sync_directory(os.path.dirname(target))


@contextlib.contextmanager
def growing_file(path: str) -> Iterator[IO[bytes]]:
    """A file that others read while it is written, so it has its name from the beginning.

    :raise OSError: it is there already, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC
    if _is_replaced(path):
        flags |= os.O_CREAT | os.O_EXCL
    with NamedBuffer(os.open(path, flags, MODE), path) as out:
        yield out


@contextlib.contextmanager
def as_text(out: IO[bytes]) -> Iterator[TextIO]:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="\n")
    yield text
    text.flush()
    text.detach()


def _is_replaced(path: str) -> bool:
    """Whether it is a regular file, or none yet, and not one that this process has open already."""
    step = os.path.abspath(path)
    for _ in range(MAX_LINKS):
        if _DESCRIPTORS.fullmatch(os.path.realpath(os.path.dirname(step))):
            return False
        if not os.path.islink(step):
            break
        step = os.path.join(os.path.dirname(step), os.readlink(step))
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


MAX_LINKS: Final = 40
"""As Linux follows from one name."""


def _open_part(part: str) -> int:
    """A new file, or what a run that did not end has left of it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        fd = os.open(part, flags, MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(part)):
                os.ftruncate(fd, 0)
                # Of an earlier version's run others may be able to read it.
                os.fchmod(fd, MODE)
                return fd
        except BlockingIOError:
            os.close(fd)
            why = "another run is writing it; wait for its end, or name another file"
            raise OSError(errno.EBUSY, why, part) from None
        except FileNotFoundError:
            # The other run has just ended, and given it its name.
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
