"""What a command says when nobody hears it."""

import io
import sys
from typing import Any


class ForgivingFile(io.FileIO):
    """A file that swallows what it cannot write."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def forgive_stderr() -> None:
    """What cannot be said on stderr is not said; the exit code is what it would have been."""
    was = sys.stderr
    # The errors of stderr are those of Python: what it cannot encode it writes escaped.
    out = io.BufferedWriter(ForgivingFile(2, "w", closefd=False))
    encoding = was.encoding if was else "utf-8"
    sys.stderr = io.TextIOWrapper(out, encoding, "backslashreplace", line_buffering=True)
