"""
The files and directories that a path or pattern names.
"""

import glob
import os

from binlog_tools.spark.definitions.errors import unreadable


def expanded(path: str) -> list[str]:
    """
    :return: what it names, in order; empty if there is nothing.
    :raise SourceError: something is there or not, but nobody lets us look.
    """
    path = path.removeprefix("file://")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return sorted(glob.glob(path))
    except OSError as problem:
        raise unreadable(problem, path) from None
    return [path]
