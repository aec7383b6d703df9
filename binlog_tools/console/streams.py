"""Files whose errors name them; stdout is one, and stderr never fails."""

import codecs
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

STDOUT: Final = "stdout"

ESCAPED: Final = "beanstalk-twisted"
"""The handler for characters that the encoding of stdout lacks."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Name this file in errors of the block."""
    try:
        yield
    except OSError as problem:
        if problem.filename is None:
            problem.filename = path
        raise


class NamedBuffer(io.BufferedWriter):
    """A buffered file whose errors say which it is.

    The file below it is one of C's: an interrupt in one of ours could come between the writing and
    the answer, and what it has written would be written again.
    """

    def __init__(self, fd: int, path: str, closefd: bool = True) -> None:
        super().__init__(io.FileIO(fd, "w", closefd))
        self._path = path

    def write(self, content: Any) -> int:
        with naming(self._path):
            return super().write(content)

    def flush(self) -> None:
        with naming(self._path):
            super().flush()


class ForgivingFile(io.FileIO):
    """A file that swallows what it cannot write."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def replace_streams() -> None:
    """Make errors of stdout name it, and ignore those of stderr: the exit code stays what it is."""
    was = sys.stdout
    named = NamedBuffer(1, STDOUT, closefd=False)
    encoding, errors = (was.encoding, was.errors) if was else ("utf-8", "strict")
    if errors == "strict":
        codecs.register_error(ESCAPED, _escaped)
        errors = ESCAPED
    sys.stdout = io.TextIOWrapper(named, encoding, errors, line_buffering=named.isatty())
    # The errors of stderr are those of Python: what it cannot encode it writes escaped.
    forgiving = io.BufferedWriter(ForgivingFile(2, "w", closefd=False))
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    sys.stderr = io.TextIOWrapper(forgiving, encoding, "backslashreplace", line_buffering=True)


def _escaped(problem: UnicodeError) -> tuple[str, int]:
    """Escape characters as JSON does, so that a document stays one."""
    assert isinstance(problem, UnicodeEncodeError)
    return json.dumps(problem.object[problem.start : problem.end])[1:-1], problem.end
