"""
Files that say whether tables are whole.

Spark writes ``_SUCCESS`` when all of a table is in its place; until then what is new lies in
``_temporary``, which stays if Spark is killed.  ``_unfinished`` beside several tables says that
some of them are missing, or of an earlier run.
"""

from typing import Final

SUCCESS: Final = "_SUCCESS"
"""In a table: it is whole."""

TEMPORARY: Final = "_temporary"
"""In a table: something is being added to it, or was when Spark was killed."""

UNFINISHED: Final = "_unfinished"
"""Beside tables: not all of them have been made."""
