"""
What can go wrong when tables are read as files, in one line each.
"""


class TableFileError(Exception):
    """
    A table is not there, or is not what it should be.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"[TABLE_NOT_FOUND] {' '.join(what.split())}")
