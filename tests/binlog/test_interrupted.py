"""What is made of records is made whole, or not at all: no exception leaves a place in a segment
that was counted and never written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from beanstalk_twisted.binlog.batches import Opening, RehomedFrame
from beanstalk_twisted.binlog.errors import LeftHalfWay
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.version import IS_COMPILED
from tests.binlog.scribe import FIRST, SALT, T0, WRITER, as_read, delete, encoded, put
from tests.interruption import Interruption, files_of, moments_of

FRAMING = files_of("binlog.segments.framing", "binlog.segments.frames", "binlog.records")
LOG = FRAMING | files_of("binlog.log", "binlog.space_budget", "binlog.batches")

LARGE = b"x" * 200_000
"""So large that each has a frame of its own."""

RECORDS: list[Record] = [TubeDef(1, b"default", T0), put(1, LARGE), put(2, LARGE), delete(1)]

Act = Callable[[Framing], object]


def moved() -> list[RehomedFrame]:
    return as_read(Framing(1).add(encoded(*RECORDS[:3]), 1, T0))


@pytest.mark.parametrize("act", [
    lambda framing: framing.add(encoded(*RECORDS), 5, T0, 4),
    lambda framing: framing.add_rehomed(moved()),
    lambda framing: framing.mark(5, T0, 4),
    lambda framing: framing.seal(5, T0, 4),
])  # fmt: skip
def test_whatever_ends_the_framing_of_records_they_can_be_framed_again(act: Act) -> None:
    undisturbed, before = begun(), begun().end
    expected, after, ending = act(undisturbed), undisturbed.end, undisturbed.seal(9, T0)
    count = moments_of(FRAMING, partial(act, begun()))
    # Compiled code has no lines, and to frame a mark calls nothing else.
    assert count > 10 or IS_COMPILED
    for at in range(1, count + 1):
        framing = begun()
        with pytest.raises(MemoryError), Interruption(FRAMING, at):
            act(framing)
        assert framing.end in (before, after), at
        if framing.end == before:
            assert act(framing) == expected, at
        assert framing.seal(9, T0) == ending, at


def begun() -> Framing:
    framing = Framing(SALT)
    framing.add(encoded(*RECORDS[:1]), 1, T0)
    return framing


def serving() -> Log:
    heads = Opening(1, [TubeDef(1, b"default", T0)])
    log = Log(FIRST, 1 << 20, lambda seq, now_ns: heads, lambda: SALT, WRITER)
    batch = log.take(T0)
    assert batch is not None
    log.durable(batch.last_lsn)
    return log


def append_some(log: Log) -> None:
    """More than fits into the segment, so that two batches are made."""
    for job_id in range(1, 8):
        log.append(put(job_id, LARGE))


def take_all(log: Log) -> list[tuple[int, int, int]]:
    """Where all batches are: segment, offset, end."""
    found = []
    while (batch := log.take(T0)) is not None:
        found.append((batch.seq, batch.offset, batch.end))
    return found


def rotate_and_take(log: Log) -> object:
    log.rotate()
    return log.take(T0)


STEPS: list[Callable[[Log], object]] = [
    lambda log: log.take(T0), append_some, rotate_and_take,
    lambda log: (log.take(T0), log.mark()),
    lambda log: (log.take(T0), log.finish(T0)),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("step", STEPS)
def test_whatever_ends_a_step_of_a_log_no_later_batch_lies_behind_a_hole(
    step: Callable[[Log], object],
) -> None:
    def prepared() -> Log:
        log = serving()
        log.append(put(1, LARGE)), log.append(put(2, LARGE)), log.append(delete(1))
        return log

    count = moments_of(LOG, partial(step, prepared()))
    # Compiled code has no lines; the pure server takes every step by the same ones.
    assert count > 20 or IS_COMPILED
    refused = 0
    for at in range(1, count + 1):
        log = prepared()
        end = log.total_bytes
        with pytest.raises(MemoryError), Interruption(LOG, at):
            step(log)
        try:
            places = take_all(log)
        except LeftHalfWay:
            refused += 1
            continue
        check_no_hole(places, end, at)
    assert refused or IS_COMPILED


def check_no_hole(places: list[tuple[int, int, int]], end: int, at: int) -> None:
    """Each batch begins where the one before has ended, or begins a segment."""
    seq = 1
    for place in places:
        assert place[:2] in ((seq, end), (seq + 1, 0)), (at, places)
        seq, end = place[0], place[2]
