"""
Putting a new log in the place of the old one, which is kept.

At no moment does the directory hold part of a log that a server would start on: between the first
and the last step it holds segments of two stores, which a server refuses.
"""

import os
from collections import deque
from collections.abc import Iterator
from typing import Final

from beanstalk_twisted.binlog.directory import QUARANTINE, RealDirectory
from beanstalk_twisted.binlog.format import parse_segment_name

NEW: Final = "salvaged"
"""Where the new log is made, within the directory."""


def new_path(path: str) -> str:
    """
    Where the log that takes the place of the one in ``path`` is to be made.
    """
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
    """
    The first folder of its kind that is not there yet.
    """
    number = 1
    while os.path.exists(kept := os.path.join(path, QUARANTINE, f"salvage-{number}")):
        number += 1
    return kept


def steps(path: str, kept_at: str) -> Iterator[None]:
    """
    What `replace` does, a step at a time.
    """
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
