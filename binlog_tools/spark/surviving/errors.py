"""
What can go wrong when a log is rebuilt; each says that nothing was written.
"""

import shlex
from collections.abc import Sequence

from binlog_tools.spark.definitions import errors
from binlog_tools.spark.definitions.errors import SourceError


def damaged(path: str, offset: int, what: str) -> SourceError:
    """
    Bytes that are needed cannot be read.
    """
    advice = "go on without it with --damage skip"
    return errors.damaged(path, offset, f"{what}; nothing was written", advice)


def missing(what: str) -> SourceError:
    return SourceError(
        "REBUILD_GAP",
        f"{what}; nothing was written; name the server's directory and its archive, or go on "
        f"without them with --accept-gap: jobs that were put there are missing then, and jobs that "
        f"were deleted there come back",
    )


def incomplete(paths: Sequence[str], jobs: Sequence[int]) -> SourceError:
    ids = ", ".join(map(str, jobs[:10]))
    return SourceError(
        "BINLOG_DAMAGED",
        f"{len(jobs)} jobs have state but no body in the log (ids {ids}); nothing was written; "
        f"run: binlog-inspect check {shlex.join(paths)}",
    )
