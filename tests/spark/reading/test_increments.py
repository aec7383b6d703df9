"""
What is new in a log, and how it is shared out.
"""

from __future__ import annotations

import pytest

from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.increments import Piece, increment, tasks_of
from binlog_tools.spark.reading.planning import Share, Trouble
from binlog_tools.spark.segments.framing import Stretch
from binlog_tools.spark.segments.producing import Place
from tests.binlog.scribe import UUID, header

STORE = UUID.hex()


def share(seq: int, first_lsn: int, next_lsn: int | None, size: int = 10) -> Share:
    place = Place(f"{seq}.tql", header(seq=seq, first_lsn=first_lsn), "mail")
    return Share(place, Stretch(0, size, first_lsn), size, next_lsn=next_lsn)


LOG = [share(1, 1, 11), share(2, 11, 21), share(3, 21, None)]


@pytest.mark.parametrize(
    ("known", "segments"),
    [(None, [1, 2, 3]), (9, [1, 2, 3]), (10, [2, 3]), (20, [3])],
)
def test_what_is_wholly_known_is_not_read(known: int | None, segments: list[int]) -> None:
    told = {} if known is None else {STORE: known}
    pieces = list(increment(LOG, told, tolerant=False))
    assert [piece.item.place.header.seq for piece in pieces if piece.item.place] == segments
    assert {piece.above for piece in pieces} == {-1 if known is None else known}
    assert list(increment(LOG[:2], {STORE: 20}, tolerant=False)) == []


@pytest.mark.parametrize(("known", "log"), [(9, LOG[1:]), (10, [LOG[1], share(4, 22, None)])])
def test_missing_lsns_are_an_error_or_a_row(known: int, log: list[Share]) -> None:
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\] LSN \d+ to \d+ of store"):
        list(increment(log, {STORE: known}, tolerant=False))
    pieces = list(increment(log, {STORE: known}, tolerant=True))
    (told,) = (piece.item for piece in pieces if isinstance(piece.item, Trouble))
    assert told.lsn == (10 if known == 9 else 21)


def test_a_log_may_begin_anywhere_but_only_once() -> None:
    assert len(list(increment(LOG[1:], {}, tolerant=False))) == 2


def test_an_unreadable_file_is_told_until_it_is_known() -> None:
    broken = Trouble(None, "its header is damaged", None, 99, path="x.tql")
    assert [piece.item for piece in increment([broken], {}, tolerant=True)] == [broken]
    known = {"file x.tql": 1}
    assert len(list(increment([broken], known, tolerant=True))) == 1


@pytest.mark.parametrize(("task_bytes", "tasks"), [(30, [3]), (29, [2, 1]), (1, [1] * 3)])
def test_pieces_are_put_together_up_to_a_size(task_bytes: int, tasks: list[int]) -> None:
    pieces = [Piece(each) for each in LOG]
    found = tasks_of(pieces, task_bytes)
    assert [len(task) for task in found] == tasks
    assert [piece for task in found for piece in task] == pieces
    assert tasks_of([], task_bytes) == []
