"""A table by its place, in the form that it has or is to have."""

import os
import sys

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.files import Layout
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.plain import ParquetStored
from binlog_tools.spark.storing.stored import FORMS, LOG, SUCCESS, Stored


def open_stored(place: str, layout: Layout | None = None, form: str = "auto") -> Stored:
    """
    :param place: a path, or a URL.
    :param layout: of the table that is to be written, made by the first commit if it is not there;
        None: it is only read.
    :param form: one of `FORMS`, or ``auto``: that of what is there, `FORMS`' first if nothing is.
    :raise TableError: there is none to read; the one to write is somebody else's, or of the other
        form; or see `Location.refuse_hopeless`.
    """
    location = Location.of(place)
    found = form_of(location)
    if found is None:
        location.refuse_hopeless("TABLE_NOT_FOUND" if layout is None else "TABLE_UNWRITABLE")
    if form == "auto":
        form = found if found and (found == "delta" or layout is None) else FORMS[0]
    if layout is not None and found == "delta" and form == "parquet":
        raise TableError("TABLE_FORMAT", f"{location}: it is a Delta table; leave --format "
                         "parquet away, or name a new directory")  # fmt: skip
    if form == "parquet":
        return ParquetStored(location, layout)
    try:
        # Imported here: the machines that only carry out tasks need not have deltalake.
        from binlog_tools.spark.storing.delta import DeltaStored
    except ModuleNotFoundError as problem:
        what = f"Delta tables need {problem.name}: {sys.executable} -m pip install deltalake"
        raise TableError("NO_PACKAGE", f"{location}: {what}") from None
    return DeltaStored(location, layout)


def form_of(location: Location) -> str | None:
    """:return: ``delta``, or ``parquet`` if there are whole Parquet files; None: neither."""
    if location.is_local and not os.path.isdir(location.path):
        return None
    with location.writing():
        there = location.files().names()
    return "delta" if LOG in there else "parquet" if SUCCESS in there else None
