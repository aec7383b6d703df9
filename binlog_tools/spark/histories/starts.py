"""The first and the last moment of each incarnation of a server, by `logged`.

With the events `start` and `clean-stop` these are its start and, after an ordered stop, its end;
without them, its first and its last record of a job.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.windows import NONE, Ints

SCHEMA: Final = pa.schema([
    ("server", pa.string()), ("incarnation", pa.int32()),
    ("first_ns", pa.int64()), ("newest_ns", pa.int64()), ("stopped_ns", pa.int64()),
])  # fmt: skip
"""A row an incarnation: when its first frame was built, its newest one so far, and that of an
ordered stop; null: there was none.
"""

COLUMNS: Final = ("server", "incarnation", "logged_ns", "event")
"""What is needed of the events table."""

NO_RECORDS: Final = ("damage", "key")
"""Events whose moment is not that of a record of the incarnation."""


def starts_table(events: pa.Table) -> pa.Table:
    """:param events: with `COLUMNS`, all or a part of them."""
    events = events.select(COLUMNS)
    told = pa.compute.is_in(events["event"], value_set=pa.array(NO_RECORDS))
    events = events.filter(pa.compute.invert(told))
    is_stop = pa.compute.equal(events["event"], "clean-stop")
    stopped = pa.compute.if_else(is_stop, events["logged_ns"], None)
    found = events.append_column("stopped", stopped).group_by(["server", "incarnation"])
    made = found.aggregate([("logged_ns", "min"), ("logged_ns", "max"), ("stopped", "max")])
    return made.rename_columns(SCHEMA.names).cast(SCHEMA)


def merged(tables: list[pa.Table]) -> pa.Table:
    """What parts of the events tell, together."""
    found = pa.concat_tables([SCHEMA.empty_table(), *tables]).group_by(["server", "incarnation"])
    made = found.aggregate([("first_ns", "min"), ("newest_ns", "max"), ("stopped_ns", "max")])
    return made.rename_columns(SCHEMA.names).cast(SCHEMA)


class Starts:
    """What `merged` gives, to be looked up."""

    def __init__(self, table: pa.Table) -> None:
        self._of: dict[str, list[tuple[int, int, int]]] = {}
        self.last_ns: dict[str, int] = {}
        for row in table.to_pylist():
            server = row["server"]
            known = (row["incarnation"], row["first_ns"], row["newest_ns"])
            self._of.setdefault(server, []).append(known)
            self.last_ns[server] = max(row["newest_ns"], self.last_ns.get(server, 0))
        for mine in self._of.values():
            mine.sort()

    def newest(self) -> dict[str, int]:
        """The newest incarnation of each server."""
        return {server: known[-1][0] for server, known in self._of.items()}

    def of(self, names: list[str], server: Any, incarnation: Ints) -> tuple[Ints, Ints, Ints]:
        """:param server: of each row, its place in ``names``.
        :return: at each row, the last moment of its incarnation and the server's next start, both
            `NONE` if there is no later incarnation; and the server's last moment.
        """
        stop_ns, restart_ns = np.full((2, len(server)), NONE)
        lasts = np.array([self.last_ns.get(name, 0) for name in names] or [0], np.int64)
        for place, name in enumerate(names):
            mine = slice(None) if len(names) == 1 else server == place
            known = np.array(self._of.get(name, ()), np.int64).reshape(-1, 3).T
            later = np.searchsorted(known[0], incarnation[mine], side="right")
            restart_ns[mine] = np.append(known[1], NONE)[later]
            # The newest incarnation may go on.
            stop_ns[mine] = np.append(known[2, :-1], (NONE, NONE))[later - 1]
        return stop_ns, restart_ns, lasts[server] if len(server) else np.zeros(0, np.int64)
