"""Which jobs rest, and until when."""

from __future__ import annotations

import numpy as np
import pytest

from binlog_tools.spark.histories.entries import DAY_NS
from binlog_tools.spark.histories.resting import ALWAYS, Span, due_ns, first_days, is_awake
from binlog_tools.spark.histories.starts import Starts, starts_table
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.histories.windows import NONE
from tests.spark.histories.test_histories import in_order
from tests.spark.tables import queue_model


def test_a_job_changes_without_an_event_at_its_deadline_or_may_at_any_time() -> None:
    rows = [row for seed in (5, 11, 13) for row in queue_model.history(seed)]
    events = in_order(queue_model.table(rows))
    starts = Starts(starts_table(events))
    stays = stays_of(events, starts)
    last = stays.jobs.lasts
    seen = set()
    for row, due in zip(stays.row[last].tolist(), due_ns(stays).tolist(), strict=True):
        server, state, deadline_ns = (
            events[name][row].as_py() for name in ("server", "state", "deadline_ns")
        )
        seen.add(state)
        if state == "delayed" and (deadline_ns is None or deadline_ns > starts.last_ns[server]):
            assert due == (NONE if deadline_ns is None else deadline_ns)
        elif state == "reserved":
            # Given up, or it still runs.
            assert due in (NONE, ALWAYS)
        else:
            assert due == NONE, state
    assert {"ready", "delayed", "buried", "gone"} <= seen
    days = first_days(stays)
    assert days.tolist() == (stays.at_ns[stays.jobs.starts] // DAY_NS).tolist()


@pytest.mark.parametrize(
    ("jobs", "due", "awake"),
    [
        ((10, 19), None, False),
        ((10, 20), None, True),
        ((20, 25), None, True),
        ((21, 29), None, False),
        ((21, 30), None, True),
        ((31, 40), None, False),
        (None, None, False),
        ((31, 40), (101, 200), False),
        ((31, 40), (100, 200), True),
        ((31, 40), (ALWAYS, ALWAYS), True),
    ],
)
def test_jobs_are_awake_with_an_event_of_one_or_when_one_is_due(
    jobs: Span, due: Span, awake: bool
) -> None:
    assert is_awake(jobs, due, np.array([20, 30]), 100) == awake
    assert is_awake(jobs, None, np.zeros(0, np.int64), 100) is False
