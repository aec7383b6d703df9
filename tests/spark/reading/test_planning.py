"""What is new in a log, and how it is shared out."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.segments.format import REHOMED
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.reading.planning import (
    MARKS,
    Share,
    Trouble,
    increment,
    mark_names,
    marks_of,
    refuse_other_histories,
)
from binlog_tools.spark.segments.wanted import EVERY, Place, Span, Stretch
from tests.binlog.scribe import UUID, header

STORE = UUID.hex()


def share(
    seq: int, first_lsn: int, next_lsn: int | None, size: int = 10, **changes: int
) -> Share:  # fmt: skip
    place = Place(f"{seq}.tql", header(seq=seq, first_lsn=first_lsn, **changes), "mail")
    return Share(place, Stretch(0, size, first_lsn), size, next_lsn=next_lsn)


LOG = [share(1, 1, 11), share(2, 11, 21), share(3, 21, None)]


@pytest.mark.parametrize(
    ("known", "segments"),
    [(None, [1, 2, 3]), (9, [1, 2, 3]), (10, [2, 3]), (20, [3])],
)
def test_what_is_wholly_known_is_not_read(known: int | None, segments: list[int]) -> None:
    told = {} if known is None else {STORE: known}
    items = list(increment(LOG, told, tolerant=False))
    assert [item.place.header.seq for item in items if item.place] == segments
    lsns = EVERY if known is None else Span(known + 1, EVERY.high)
    assert all(isinstance(item, Share) and item.lsns == lsns for item in items)
    assert list(increment(LOG[:2], {STORE: 20}, tolerant=False)) == []


@pytest.mark.parametrize(("known", "log"), [(9, LOG[1:]), (10, [LOG[1], share(4, 22, None)])])
def test_missing_lsns_are_an_error_or_a_row(known: int, log: list[Share]) -> None:
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\] LSN \d+ to \d+ of store"):
        list(increment(log, {STORE: known}, tolerant=False))
    items = list(increment(log, {STORE: known}, tolerant=True))
    (told,) = (item for item in items if isinstance(item, Trouble))
    assert told.lsn == (10 if known == 9 else 21)


def test_a_log_may_begin_anywhere_but_only_once() -> None:
    assert len(list(increment(LOG[1:], {}, tolerant=False))) == 2


def test_an_unreadable_file_is_told_until_it_is_known() -> None:
    broken = Trouble(None, "its header is damaged", None, 99, path="x.tql")
    assert list(increment([broken], {}, tolerant=True)) == [broken]
    known = {"file x.tql": 1}
    assert len(list(increment([broken], known, tolerant=True))) == 1


# Another history of the same store.


KNOWN = {STORE: 25, **marks_of(LOG)}


@pytest.mark.parametrize(
    "later",
    [
        LOG, LOG[:1], [LOG[2], share(4, 30, None)],
        # A crash has lost that the last records were known to be durable.
        [LOG[2], share(4, 24, None, flags=REHOMED)],
        # The server has deleted what was taken.
        [share(9, 26, None)],
    ],
)  # fmt: skip
def test_a_log_that_has_grown_is_the_same_history(later: list[Share]) -> None:
    refuse_other_histories(later, KNOWN)


@pytest.mark.parametrize(
    ("other", "seq"),
    [
        ([*LOG[:2], share(3, 21, None, salt=7)], 3),
        ([*LOG[:2], share(3, 21, None, created_ns=7)], 3),
        # Shorter than what was taken: nothing of it would be taken, and nothing said.
        ([LOG[0], share(2, 11, 12, salt=7)], 2),
        # The last segment was copied while it grew, and a start has ended it earlier.
        ([LOG[2], share(4, 23, None)], 4),
        ([share(4, 25, None)], 4),
        # It is nowhere, and one before it goes further.
        ([share(1, 11, 31)], 1),
    ],
)  # fmt: skip
def test_another_history_is_refused(other: list[Share], seq: int) -> None:
    what = rf"\[BINLOG_HISTORIES_DIFFER\] {seq}.tql: segment {seq} of store {STORE} .* new table"
    with pytest.raises(SourceError, match=what):
        refuse_other_histories(other, KNOWN)


def test_without_marks_nothing_is_compared() -> None:
    refuse_other_histories([share(2, 11, 99, salt=7)], {STORE: 25})


def test_the_newest_segments_are_remembered_in_so_many_places() -> None:
    log = [share(seq, seq, seq + 1) for seq in range(1, MARKS + 3)]
    known = {STORE: MARKS + 2, **marks_of(log)}
    assert known.keys() == {STORE, *mark_names(STORE)}
    refuse_other_histories([*log, share(2, 2, 3, salt=7)], known)
    with pytest.raises(SourceError, match="segment 3 of"):
        refuse_other_histories([share(3, 3, 4, salt=7)], known)
