"""What becomes of a block of whole jobs: rows of tables, and the events that the next increment
needs again.

A job is settled if it was deleted on a day before the one that may still change; all others are
made again with the next increment.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import DAY_NS, MINUTES_A_DAY, clipped, entries_of
from binlog_tools.spark.histories.failing import failing_of
from binlog_tools.spark.histories.images import GONE, chosen, numbers
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.snapshot import snapshot_of
from binlog_tools.spark.histories.starts import Starts
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.histories.tables import of_days
from binlog_tools.spark.histories.windows import Groups, changes

HOLD_NS: Final = 3600 * 10**9
"""How long before the newest record a day may still change, nanoseconds: a record may say that
something was earlier, by the time in which a busy or suspended server did nothing.
"""


class Plan(NamedTuple):
    """What an increment is made of.

    :ivar days: by server, the first day that is made again; counted from the epoch.
    """

    starts: Starts
    days: Mapping[str, int]

    def next_days(self) -> dict[str, int]:
        """The first days that the next increment makes again."""
        return {server: max(self.days.get(server, 0), (last_ns - HOLD_NS) // DAY_NS)
                for server, last_ns in self.starts.last_ns.items()}  # fmt: skip


def pieces_of(events: pa.Table, plan: Plan) -> dict[str, pa.Table]:
    """:param events: of whole jobs of one server, by job and LSN.
    :return: rows by name of the table; besides those ``failing``, ``entries`` and ``open``.
    """
    server = events["server"][0].as_py()
    first, next_first = plan.days.get(server, 0), plan.next_days()[server]
    stays = stays_of(events, plan.starts)
    last = stays.jobs.lasts
    is_gone = stays.images.state[last] == GONE
    at_ns = np.where(is_gone, stays.at_ns[last], plan.starts.last_ns[server])
    day = np.maximum(at_ns // DAY_NS, first)
    failing = failing_of(events)
    jobs = Groups(changes(numbers(events, "job")))
    ids = numbers(events, "job")[jobs.starts]
    is_open = ~is_gone | (day >= next_first)
    return {
        "lifetimes": of_days(lifetimes_of(stays), day), "attempts": attempts_of(stays, day),
        "failing": of_days(failing, day[np.searchsorted(ids, failing["job"].to_numpy())]),
        "entries": clipped(entries_of(stays), first * MINUTES_A_DAY),
        "snapshot": snapshot_of(chosen(events, ~is_gone[jobs.number]), plan.starts),
        "open": chosen(events, is_open[jobs.number]),
    }  # fmt: skip
