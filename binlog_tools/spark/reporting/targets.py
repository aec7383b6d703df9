"""What the table `sla` says: how many jobs were served within the target of their tube."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from binlog_tools.spark.reporting.tables import Rows, seconds_of

PARTS: Final = ("wait", "run")
HOUR_S: Final = 3600

WORST_HOURS: Final = 20
"""Hours that are listed: what somebody reads."""

COLUMNS: Final = (
    "tube", "hour", "wait_target_ns", "waits", "waits_within", "wait_share", "run_target_ns",
    "runs", "runs_within", "run_share", "is_breached",
)  # fmt: skip


@dataclass
class Kept:
    """How a tube kept its targets.

    :ivar target_ns: by `PARTS`; the newest, if it was changed.
    :ivar counted: by `PARTS`, how many there were, and how many of them within the target.
    """

    hours: int = 0
    breached: int = 0
    target_ns: dict[str, int] = field(default_factory=dict)
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        self.hours += 1
        self.breached += bool(row["is_breached"])
        for part in PARTS:
            if row[f"{part}_target_ns"] is not None:
                self.target_ns[part] = row[f"{part}_target_ns"]
                count, within = self.counted.get(part, (0, 0))
                self.counted[part] = (
                    count + row[f"{part}s"], within + (row[f"{part}s_within"] or 0),
                )  # fmt: skip

    def share(self, part: str) -> float | None:
        count, within = self.counted.get(part, (0, 0))
        return within / count if count else None


@dataclass
class Targets:
    """:ivar tubes: those that have a target.
    :ivar worst: hours that missed one, those with the least share first: ``tube``, ``hour`` (s
        since the epoch), ``wait_share``, ``run_share``.
    """

    tubes: dict[str, Kept] = field(default_factory=dict)
    worst: list[dict[str, Any]] = field(default_factory=list)


def targets_of(rows: Rows, start: float, end: float) -> Targets:
    """The hours that a period, seconds since the epoch, has something of."""
    found = Targets()
    for batch in rows.batches(COLUMNS):
        hours = seconds_of(batch["hour"])
        for at in np.flatnonzero((hours > start - HOUR_S) & (hours < end)):
            row = {name: batch[name][int(at)].as_py() for name in COLUMNS if name != "hour"}
            row["hour"] = float(hours[at])
            found.tubes.setdefault(row["tube"] or "?", Kept()).add(row)
            if row["is_breached"]:
                found.worst.append(row)
        found.worst.sort(key=_badness)
        del found.worst[WORST_HOURS:]
    return found


def _badness(row: Mapping[str, Any]) -> tuple[float, float, str]:
    shares = [row[f"{part}_share"] for part in PARTS if row[f"{part}_share"] is not None]
    return min(shares, default=1.0), row["hour"], str(row["tube"])
