"""The jobs that are alive after the newest record, one row each, as they then are."""

from typing import Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import (
    CARRIED,
    DELAYED,
    GONE,
    READY,
    RESERVED,
    STATES,
    chosen,
    column,
    images_of,
)
from binlog_tools.spark.histories.starts import Starts
from binlog_tools.spark.histories.tables import SNAPSHOT, moments, nullable, table, texts
from binlog_tools.spark.histories.windows import NO_ROW, NONE, among, at

_NEWEST: Final = ("server", "job", "tube", "priority", "delay_s", "ttr_s", "reserves", "timeouts",
           "releases", "buries", "kicks", "lsn")  # fmt: skip


def snapshot_of(events: pa.Table, starts: Starts) -> pa.Table:
    """:param events: of whole jobs, by job and LSN.
    :return: with `SNAPSHOT`; the state follows from a deadline or a restart where no record says
        so (``is_inferred``).
    """
    images = images_of(events, starts)
    is_alive = images.state[images.jobs.lasts] != GONE
    images = images_of(chosen(images.events, is_alive[images.jobs.number]), starts)
    events, last = images.events, images.jobs.lasts
    told, now_ns = images.state[last], images.last_ns[last]
    is_over = among(told, (DELAYED, RESERVED)) & (images.deadline_ns[last] <= now_ns)
    is_lost = (told == RESERVED) & (images.restart_ns[last] != NONE)
    state = np.where(is_over | is_lost, READY, told)
    deadline_ns = np.where(state == told, images.deadline_ns[last], NONE)
    full = images.jobs.newest(images.is_full)[last]
    put_ns = at(images.time_ns, full, NONE)
    rows, carried = pa.array(last), pa.array(full, mask=full == NO_ROW)
    held = pa.array(last, mask=state != RESERVED)
    return table(SNAPSHOT, {
        **{name: column(events, name).take(rows) for name in _NEWEST},
        "state": texts(STATES, state), "is_inferred": state != told,
        "deadline": moments(deadline_ns), "deadline_ns": nullable(deadline_ns),
        **{name: column(events, name).take(held) for name in ("connection", "incarnation")},
        "put": moments(put_ns), "age_ns": pa.array(now_ns - put_ns, mask=put_ns == NONE),
        "last_event": column(events, "event").take(rows),
        **{name: column(events, name).take(carried)
           for name in ("bytes", *CARRIED) if name != "dead_at_ns"},
        "dead_at": moments(
            column(events, "dead_at_ns").take(carried).fill_null(NONE).to_numpy()
        ),
        "as_of": moments(now_ns),
    })  # fmt: skip
