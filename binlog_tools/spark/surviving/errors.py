"""
What can go wrong when a log is rebuilt; each says that nothing was written.
"""

import shlex
from collections.abc import Sequence

from binlog_tools.spark.definitions.errors import SourceError


def damaged(path: str, offset: int, what: str) -> SourceError:
    """
    Bytes that are needed cannot be read.
    """
    return SourceError(
        "BINLOG_DAMAGED",
        f"{path}: frame at byte {offset}: {what}; nothing was written; run: binlog-inspect check "
        f"{shlex.quote(path)}; or go on without it with --damage skip",
    )


def changed(path: str) -> SourceError:
    return SourceError(
        "BINLOG_CHANGED",
        f"{path}: it became shorter while it was read, as when a server starts; nothing was "
        f"written; run this again",
    )


def trimmed(path: str) -> SourceError:
    return SourceError(
        "BINLOG_TRIMMED",
        f"{path}: it was there a moment ago and is gone now: the server has trimmed it; nothing "
        f"was written; run this again, with the archive among the paths if there is one",
    )


def missing(what: str) -> SourceError:
    return SourceError(
        "REBUILD_GAP",
        f"{what}; nothing was written; name the server's directory and its archive, or go on "
        f"without them with --accept-gap: jobs that were put there are missing then, and jobs that "
        f"were deleted there come back",
    )


def too_early(first_lsn: int, path: str) -> SourceError:
    return SourceError(
        "REBUILD_GAP",
        f"the log begins with LSN {first_lsn}, in {path}, and that is later; nothing was written; "
        f"name the archive too, or a later point",
    )


def incomplete(paths: Sequence[str], jobs: Sequence[int]) -> SourceError:
    ids = ", ".join(map(str, jobs[:10]))
    return SourceError(
        "BINLOG_DAMAGED",
        f"{len(jobs)} jobs have state but no body in the log (ids {ids}); nothing was written; "
        f"run: binlog-inspect check {shlex.join(paths)}",
    )


def several(servers: list[str]) -> SourceError:
    return SourceError(
        "REBUILD_SERVERS",
        f"these are logs of {len(servers)} servers ({', '.join(servers)}); nothing was written; "
        f"rebuild one at a time: name its directory, and its folder in the archive",
    )


def cannot_write(problem: OSError, path: str) -> SourceError:
    where = str(problem.filename or path)
    return SourceError(
        "REBUILD_TARGET", f"{where}: {problem.strerror or problem}; no new log was made"
    )
