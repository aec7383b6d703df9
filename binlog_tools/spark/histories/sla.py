"""How many jobs were served within a target, by tube and hour, from the minutes of tubes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.entries import rounded
from binlog_tools.spark.histories.tables import schema_of, table
from binlog_tools.spark.histories.windows import Groups, Ints, changes

SLA: Final = schema_of("""
  server tube string; hour timestamp; wait_target_ns waits waits_within bigint;
  wait_share double; run_target_ns runs runs_within bigint; run_share double;
  oldest_ns bigint; is_breached boolean""")

HOUR_US: Final = 3_600_000_000


class Target(NamedTuple):
    """What the jobs of a tube are to be served in; None: no such target.

    :ivar share: of the jobs of an hour, from 0 to 1.
    """

    wait_ns: int | None = None
    run_ns: int | None = None
    share: float = 1.0


Targets = Sequence[tuple[str, Target]]
"""Patterns of tubes, ``*`` for any text, and their targets; the first that fits counts."""


def target_of(tube: str, targets: Targets) -> Target | None:
    """The target of a tube, if it has one."""
    for pattern, target in targets:
        parts = pattern.split("*")
        if fits(tube, parts):
            return target
    return None


def fits(tube: str, parts: Sequence[str]) -> bool:
    """:param parts: of a pattern, between its stars."""
    if len(parts) == 1:
        return tube == parts[0]
    rest = tube.removeprefix(parts[0])
    if not tube.startswith(parts[0]) or not rest.endswith(parts[-1]):
        return False
    rest = rest[: len(rest) - len(parts[-1])]
    for part in filter(None, parts[1:-1]):
        _, found, rest = rest.partition(part)
        if not found:
            return False
    return True


def sla_of(minutes: pa.Table, targets: Targets) -> pa.Table:
    """:param minutes: whole hours of `tables.TUBE_MINUTES`, by server, tube and minute.
    :return: with `SLA`, of the tubes that have a target.  A length counts with its first three
        digits; a wait that lasts counts in ``oldest_ns`` only.
    """
    known = {tube: target_of(tube, targets) for tube in pc.unique(minutes["tube"]).to_pylist()}
    named = pa.array([tube for tube, target in known.items() if target], pa.string())
    minutes = minutes.filter(pc.is_in(minutes["tube"], value_set=named)).combine_chunks()
    hour = minutes["minute"].cast(pa.int64()).to_numpy() // HOUR_US
    codes = [
        minutes[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        if minutes.num_rows else np.zeros(0, np.int64)
        for name in ("server", "tube")
    ]  # fmt: skip
    hours = Groups(changes(*codes, hour))
    heads = pa.array(hours.starts)
    mine = [known[tube] or Target() for tube in minutes["tube"].take(heads).to_pylist()]
    oldest = minutes["oldest_ns"].fill_null(-1).to_numpy()
    oldest = hours.most(oldest)
    waits = _within(minutes, "wait", hours, [each.wait_ns for each in mine])
    runs = _within(minutes, "run", hours, [each.run_ns for each in mine])
    goal = np.array([each.share for each in mine])
    is_late = [share is not None and share < wanted
               for part in (waits, runs)
               for share, wanted in zip(part["share"].to_pylist(), goal, strict=True)]  # fmt: skip
    breached = np.reshape(np.array(is_late, bool), (2, len(mine))).any(axis=0)
    return table(SLA, {
        "server": minutes["server"].take(heads), "tube": minutes["tube"].take(heads),
        "hour": pa.array(hour[hours.starts] * HOUR_US).cast(SLA.field("hour").type),
        "wait_target_ns": waits["target"], "waits": waits["count"],
        "waits_within": waits["within"], "wait_share": waits["share"],
        "run_target_ns": runs["target"], "runs": runs["count"], "runs_within": runs["within"],
        "run_share": runs["share"], "oldest_ns": pa.array(oldest, mask=oldest < 0),
        "is_breached": breached,
    })  # fmt: skip


def _within(
    minutes: pa.Table, name: str, hours: Groups, targets: list[int | None]
) -> Mapping[str, Any]:
    """Of each hour: the target, how many lengths there are, how many of them within it, their
    share.
    """
    maps = minutes[f"{name}_histogram"].combine_chunks()
    offsets = maps.offsets.to_numpy() if minutes.num_rows else np.zeros(1, np.int32)
    lengths, counts = maps.keys.to_numpy(), maps.items.to_numpy()
    hour: Ints = np.repeat(hours.number, np.diff(offsets))
    lengths, counts = (part[offsets[0] : offsets[0] + len(hour)] for part in (lengths, counts))
    limit = rounded(np.array([-1 if each is None else each for each in targets], np.int64))
    total = np.bincount(hour, counts, len(targets)).astype(np.int64)
    mine = lengths <= limit[hour]
    within = np.bincount(hour[mine], counts[mine], len(targets)).astype(np.int64)
    none = limit < 0
    return {
        "target": pa.array(targets, pa.int64()), "count": total,
        "within": pa.array(within, mask=none),
        "share": pa.array(within / np.maximum(1, total), mask=none | (total == 0)),
    }  # fmt: skip
