"""
Putting a new log in the place of the old one, which is kept.

At no moment does the directory hold part of a log that a server would start on: between the first
and the last step it holds segments of two stores, which a server refuses.  A run that finds what
one before it has left at such a moment puts the old log back, and begins anew.
"""

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Iterator
from typing import Final

from beanstalk_twisted.binlog.directory import QUARANTINE, RealDirectory
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from binlog_tools.logs.outputs import PART
from binlog_tools.rewrite.dropping import free_path

NEW: Final = "salvaged"
"""Where the new log is made, within the directory."""


def new_path(path: str) -> str:
    """Where the log that takes the place of the one in ``path`` is to be made."""
    return os.path.join(path, NEW)


def replace(path: str) -> str:
    """
    Put the log in ``new_path(path)`` in the place of the one in ``path``, which must be locked.

    :return: where the original segments are kept.
    :raise OSError: it cannot be done, or not all of it.
    """
    kept_at = kept_path(path)
    deque(steps(path, kept_at), maxlen=0)
    return kept_at


def kept_path(path: str) -> str:
    """The first folder of its kind that is not there yet."""
    return free_path(os.path.join(path, QUARANTINE, "salvage"))


def steps(path: str, kept_at: str) -> Iterator[None]:
    """What `replace` does, a step at a time."""
    old, new = _segments(path), _segments(new_path(path))
    os.makedirs(kept_at, 0o700)
    yield
    for name in old:
        os.link(os.path.join(path, name), os.path.join(kept_at, name))
        yield
    for folder in (kept_at, os.path.join(path, QUARANTINE)):
        RealDirectory(folder).sync()
    # The first segment comes last: without it the others are refused.
    for name in reversed(new):
        os.rename(os.path.join(new_path(path), name), os.path.join(path, name))
        RealDirectory(path).sync()
        yield
    for name in old:
        if name not in new:
            os.unlink(os.path.join(path, name))
            yield
    os.rmdir(new_path(path))
    RealDirectory(path).sync()


def _segments(path: str) -> list[str]:
    names = sorted(os.listdir(path))
    return [name for name in names if parse_segment_name(name) is not None]


# What a run that was killed has left.


def settle(path: str) -> None:
    """
    Take back what a run before has begun and not ended: ``path``, which must be locked, is as if
    there had been none, or that run had ended.

    :raise OSError: it cannot be done; it can be tried again.
    """
    new = new_path(path)
    # We hold the lock, so nobody writes it.
    shutil.rmtree(new + PART, ignore_errors=True)
    if not os.path.isdir(new):
        return
    _put_back(path, newest_kept_path(path))
    shutil.rmtree(new)
    RealDirectory(path).sync()


def newest_kept_path(path: str) -> str:
    """The last folder of its kind that is there, or would be."""
    number = int(os.path.basename(kept_path(path)).rpartition("-")[2])
    return os.path.join(path, QUARANTINE, f"salvage-{max(number - 1, 1)}")


def _put_back(path: str, kept_at: str) -> None:
    """
    Undo the renames of a run that was killed among them, or behind them and before the last of the
    old segments was removed.
    """
    moved = _moved(path, kept_at)
    if not moved:
        return
    kept = _segments(kept_at)
    link = os.path.join(new_path(path), "link")
    for name in kept:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)
        os.link(os.path.join(kept_at, name), link)
        # Where both are the same file already, this does nothing.
        os.rename(link, os.path.join(path, name))
    RealDirectory(path).sync()
    for name in moved:
        if name not in kept:
            os.unlink(os.path.join(path, name))
    RealDirectory(path).sync()


def _moved(path: str, kept_at: str) -> list[str]:
    """Which segments are of a new log that has not yet taken the place of all of the old one."""
    stores = {name: _store(os.path.join(path, name)) for name in _segments(path)}
    left = _segments(new_path(path))
    if left:
        mine = _store(os.path.join(new_path(path), left[0]))
        return [name for name, store in stores.items() if mine and store == mine]
    # All of the new one is there.  If no old one is, it has ended, and a server may have gone on.
    if not any(_is_kept(path, name, kept_at) for name in stores):
        return []
    theirs = {_store(os.path.join(kept_at, name)) for name in _segments(kept_at)}
    return [name for name, store in stores.items() if store and store not in theirs]


def _is_kept(path: str, name: str, kept_at: str) -> bool:
    kept = os.path.join(kept_at, name)
    return os.path.exists(kept) and os.path.samefile(os.path.join(path, name), kept)


def _store(path: str) -> bytes | None:
    """Which store a segment is of, None if its header does not say."""
    with open(path, "rb") as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    return header.store_uuid if isinstance(header, SegmentHeader) else None
