"""Reading a small file of an operator's, at the start and again on SIGHUP, while clients wait."""

import os
import stat
from typing import Final

WRONG_FILE: Final = 5
"""Exit code for a file that is wrong, as for a wrong option."""


class Unreadable(ValueError):
    """A file that cannot be read as text; says why."""


def read_text(path: str, max_bytes: int) -> str:
    """
    :param max_bytes: the largest file.
    :raise Unreadable: there is none, it is larger, no regular file, or not UTF-8.
    """
    try:
        content = _content(path, max_bytes)
    except OSError as problem:
        raise Unreadable(f"it cannot be read: {problem.strerror}") from None
    if len(content) > max_bytes:
        raise Unreadable(f"it has more than {max_bytes} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise Unreadable(f"line {line}: it is not UTF-8") from None


def _content(path: str, max_bytes: int) -> bytes:
    # To open a pipe would wait for whoever writes into it.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable("it is no regular file")
        return file.read(max_bytes + 1)
