"""
Files that say whether tables are whole.

Spark writes ``_SUCCESS`` when all of a table is in its place; until then what is new lies in
``_temporary``, which stays if Spark is killed.  ``_unfinished`` beside several tables says that
some of them are missing, or of an earlier run.
"""

from pathlib import Path
from typing import Final

SUCCESS: Final = "_SUCCESS"
"""In a table: it is whole."""

TEMPORARY: Final = "_temporary"
"""In a table: something is being added to it, or was when Spark was killed."""

UNFINISHED: Final = "_unfinished"
"""Beside tables: not all of them have been made."""


def is_whole(table: Path) -> bool:
    """
    Whether all of a table is there, and nothing is half added.
    """
    return (table / SUCCESS).exists() and not (table / TEMPORARY).exists()


def local(path: str) -> Path | None:
    """
    The path as of this machine; None if Spark finds it somewhere else.
    """
    scheme, found, rest = path.partition("://")
    if found and scheme != "file":
        return None
    return Path(rest if found else path.removeprefix("file:"))
