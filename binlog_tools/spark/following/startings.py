"""Where a stream begins, how much it takes at once, and what it does about records that are gone:
the options of ``readStream`` beside those of a batch read.
"""

import json
import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.following.logs import Log
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.reading.options import (
    ROWS_ONLY,
    Asked,
    choice,
    parse_options,
    size_of,
    wrong,
)
from binlog_tools.spark.segments.framing import MAX_NUMBER

UNLIMITED: Final = MAX_NUMBER - 1
"""No limit, in bytes or records."""

BATCH_BYTES: Final = 256 << 20
"""What a batch reads at most: a few tasks of the usual size, some seconds of work."""

STREAM_OPTIONS: Final[Mapping[str, str]] = {
    "archive": "the server's archive, or a pattern: where segments are that it has deleted",
    "startingOffsets": '`earliest`; `latest`; or LSNs by store, `{"UUID": 4711}`',
    "startingLsn": "begin with this LSN, in every store",
    "startingTimestamp": "begin with what was logged at this time, as `2026-01-31T12:00Z`, `-2h`",
    "maxBytesPerTrigger": "how much of the logs a batch reads, `256M` by default",
    "maxRowsPerTrigger": "how many records a batch reads",
    "failOnDataLoss": "`true`, or `false`: a row with the event `damage` for trimmed segments",
}
"""Options of a stream, and what each takes; the first choice is the default."""

SPARKS_OWN: Final = ("checkpointLocation", "queryName")

BATCH_ONLY: Final = ("live", "partitionBytes", "view", *ROWS_ONLY)


class Streamed(NamedTuple):
    """What the options of a stream say.

    :ivar asked: what they say of rows.
    :ivar paths: where to look, the archive included.
    :ivar starts: LSNs by store.
    :ivar since_ns: begin with what was logged then; None: not asked for.
    """

    asked: Asked
    paths: tuple[str, ...]
    is_latest: bool
    starts: Mapping[str, int]
    lsn: int | None
    since_ns: int | None
    most_bytes: int
    most_rows: int
    tolerates_loss: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Streamed":
        """:raise SourceError: one is unknown, or its value is."""
        given = {name.lower(): str(value) for name, value in options.items()}
        for name in BATCH_ONLY:
            if name.lower() in given:
                raise wrong(name, "it is for batch reads; a stream has no use for it")
        asked = parse_options(options, dict.fromkeys([*STREAM_OPTIONS, *SPARKS_OWN], ""))
        archive = given.get("archive", "")
        _refuse_several(given)
        offsets = given.get("startingoffsets", "earliest").strip()
        return cls(
            asked, (*asked.paths, *((archive,) if archive else ())), offsets == "latest",
            _starts(offsets), _number(given, "startingLsn", "LSN"), _since(given), _bytes(given),
            _number(given, "maxRowsPerTrigger", "whole number from 1 on") or UNLIMITED,
            choice(given, "failOnDataLoss", ("true", "false")) == "false",
        )  # fmt: skip

    @property
    def rows(self) -> str:
        """What decides which rows a log gives; it must not change in the middle of a stream."""
        asked = self.asked
        servers = ",".join(f"{uuid}:{name}" for uuid, name in sorted(asked.servers.items()))
        return f"records={asked.records} copies={asked.copies} servers={servers or '-'}"

    def start_of(self, log: Log) -> Position:
        if self.is_latest:
            return log.frontier()
        lsn = self.starts.get(log.store, self.lsn)
        if lsn is not None:
            return log.at_lsn(lsn)
        return log.first() if self.since_ns is None else log.at_time(self.since_ns)


def _refuse_several(given: Mapping[str, str]) -> None:
    names = [name for name in ("startingOffsets", "startingLsn", "startingTimestamp")
             if name.lower() in given]  # fmt: skip
    if len(names) > 1:
        raise wrong(names[1], f"give either this or {names[0]}")


def _starts(text: str) -> dict[str, int]:
    if text in ("earliest", "latest"):
        return {}
    try:
        found = {str(store).replace("-", ""): int(lsn) for store, lsn in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        found = {}
    if not found or not all(re.fullmatch(r"[0-9a-f]{32}", store) for store in found):
        raise wrong(
            "startingOffsets", f'{text!r} is none of earliest, latest, {{"UUID of a store": LSN}}'
        )
    return found


def _number(given: Mapping[str, str], name: str, kind: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < MAX_NUMBER):
        raise wrong(name, f"{text!r} is no {kind}")
    return int(text)


def _since(given: Mapping[str, str]) -> int | None:
    text = given.get("startingtimestamp")
    if text is None:
        return None
    try:
        return parse_time(text, time.time_ns())
    except ValueError as problem:
        raise wrong("startingTimestamp", str(problem)) from None


def _bytes(given: Mapping[str, str]) -> int:
    size = size_of(given, "maxBytesPerTrigger")
    if size is None:
        return UNLIMITED if "maxrowspertrigger" in given else BATCH_BYTES
    if size < 1:
        raise wrong("maxBytesPerTrigger", "1 is the least; a batch takes a frame at least")
    return size
