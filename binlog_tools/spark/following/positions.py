"""Where a stream is in each log: what its checkpoint keeps, for years.

An LSN, and where its frame begins, which finds it fast; after a crash only the LSN may still be
true.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from binlog_tools.spark.definitions.errors import SourceError

VERSION: Final = 1
"""Of the form of an offset."""


class Position(NamedTuple):
    """Between two frames of a log.

    :ivar offset: in the segment; where the frame begins that has ``lsn``.
    :ivar lsn: of the next record.
    """

    seq: int
    offset: int
    lsn: int


Positions = dict[str, Position]
"""By store, 32 hex digits."""

Marks = dict[str, int]
"""By store, `header_mark` of the segment in which its position is, where records were given of that
segment: then it is never another one."""


def encode(
    positions: Mapping[str, Position], rows: str, marks: Marks | None = None
) -> dict[str, Any]:
    """An offset of Spark's.

    :param rows: the options that decide which rows a log gives.
    """
    stores = {
        store: {"seq": at.seq, "off": at.offset, "lsn": at.lsn}
        for store, at in sorted(positions.items())
    }
    for store, mark in (marks or {}).items():
        stores[store]["mark"] = mark
    return {"v": VERSION, "rows": rows, "stores": stores}


def decode(offset: Mapping[str, Any], rows: str) -> Positions:
    """:raise SourceError: a newer version made it, or a query that gave other rows."""
    if offset.get("v") != VERSION:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint has version {offset.get('v')} of the offsets, this is {VERSION}: a "
            f"newer beanstalk-twisted made it; upgrade it here",
        )
    if offset["rows"] != rows:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint was made with {offset['rows']}, and this query has {rows}: the rows "
            f"would change in the middle; give the same options, or a new checkpoint",
        )
    return {
        store: Position(int(at["seq"]), int(at["off"]), int(at["lsn"]))
        for store, at in offset["stores"].items()
    }


def marks_in(offset: Mapping[str, Any]) -> Marks:
    """Offsets of version 0.1 and before have none."""
    return {store: int(at["mark"]) for store, at in offset["stores"].items() if "mark" in at}
