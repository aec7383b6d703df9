"""A table by its place."""

import os
import sys
from typing import TYPE_CHECKING

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.files import Layout
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.stored import LOG

if TYPE_CHECKING:
    from binlog_tools.spark.storing.delta import DeltaStored


def open_stored(place: str, layout: Layout | None = None) -> "DeltaStored":
    """:param place: a path, or a URL.
    :param layout: of the table that is to be written, made by the first commit if it is not there;
        None: it is only read.
    :raise TableError: there is none to read; the one to write is somebody else's; or see
        `holds_table` and `Location.refuse_hopeless`.
    """
    location = Location.of(place)
    if not holds_table(location):
        location.refuse_hopeless("TABLE_NOT_FOUND" if layout is None else "TABLE_UNWRITABLE")
    try:
        # Imported here: the machines that only carry out tasks need not have deltalake.
        from binlog_tools.spark.storing.delta import DeltaStored
    except ModuleNotFoundError as problem:
        what = f"Delta tables need {problem.name}: {sys.executable} -m pip install deltalake"
        raise TableError("NO_PACKAGE", f"{location}: {what}") from None
    return DeltaStored(location, layout)


def holds_table(location: Location) -> bool:
    """Return True if there is a Delta table.

    :raise TableError: there is a table of plain Parquet files, as earlier versions made them.
    """
    if location.is_local and not os.path.isdir(location.path):
        return False
    with location.writing():
        there = location.files().names()
    if LOG not in there and "_SUCCESS" in there:
        what = "only Delta tables are supported; make this one again in a new directory"
        raise TableError("TABLE_FORMAT", f"{location}: it is plain Parquet: {what}")
    return LOG in there
