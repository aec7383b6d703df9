"""Where a stream is in each log, an LSN: what its checkpoint keeps; and how far that is behind."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from binlog_tools.spark.definitions.errors import SourceError

VERSION: Final = 2
"""Of the form of an offset."""

LAG_KEY: Final = "lag"
"""Of the offset that is reported.  Spark lets no Python source report metrics of its own, but shows
what `reportLatestOffset` gives, as ``latestOffset``, and never keeps it."""


class Position(NamedTuple):
    """Between two records of a log.

    :ivar lsn: of the next record.
    :ivar mark: `header_mark` of the segment with the record before, if one was given: then that is
        never another segment.
    """

    lsn: int
    mark: int | None = None


Positions = dict[str, Position]
"""By store, 32 hex digits."""


class Lag(NamedTuple):
    """What of a log is durable, and in no batch yet.

    :ivar records: of all kinds, copies too.
    :ivar bytes: of their frames.
    :ivar seconds: since the first of these frames was built; 0 if there is none.
    """

    records: int
    bytes: int
    seconds: float


NOT_BEHIND: Final = Lag(0, 0, 0.0)


def encode(
    positions: Mapping[str, Position], rows: str, lags: Mapping[str, Lag] | None = None
) -> dict[str, Any]:
    """Make an offset of Spark's.

    :param rows: the options that decide which rows a log gives.
    :param lags: of an offset that is only reported.
    """
    stores = {
        store: {"lsn": at.lsn} | ({} if at.mark is None else {"mark": at.mark})
        for store, at in sorted(positions.items())
    }
    shown = {} if lags is None else {LAG_KEY: {name: lag._asdict() for name, lag in lags.items()}}
    return {"v": VERSION, "rows": rows, "stores": stores, **shown}


def decode(offset: Mapping[str, Any], rows: str) -> Positions:
    """:raise SourceError: another version made it, or a query that gave other rows."""
    if offset.get("v") != VERSION:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint has version {offset.get('v')} of the offsets, this is {VERSION}: "
            f"another version of beanstalk-twisted made it; use that one, or a new checkpoint with "
            f"startingLsn",
        )
    if offset["rows"] != rows:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint was made with {offset['rows']}, and this query has {rows}: the rows "
            f"would change in the middle; give the same options, or a new checkpoint",
        )
    return {
        store: Position(int(at["lsn"]), at.get("mark")) for store, at in offset["stores"].items()
    }


def lags_of(offset: Mapping[str, Any]) -> dict[str, Lag]:
    """What ``lastProgress["sources"][…]["latestOffset"]`` says, read from JSON."""
    return {store: Lag(**fields) for store, fields in offset.get(LAG_KEY, {}).items()}
