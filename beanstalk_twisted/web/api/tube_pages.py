"""Pages of tubes, sorted and searched in slices: there may be very many."""

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest, nsmallest
from typing import Any, Final

from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.web.api.fields import query_choice, query_number
from beanstalk_twisted.web.exchange import encoded
from beanstalk_twisted.web.figures.tube_figures import NS, SLICE_TUBES, activity, figures_of

MAX_PAGE_TUBES: Final = 200
"""Tubes of a page: more than anybody reads, and some 4 ms to describe."""

MAX_OFFSET: Final = 1000
"""Tubes before a page: who wants those behind searches, or sorts otherwise."""

MAX_SEARCH: Final = 200
"""Characters of a search: a name has no more."""

DESCRIBED: Final = 25
"""Tubes that one slice describes."""

SORTS: Final[Mapping[str, Callable[[Tube], int] | None]] = {
    "name": None,
    "activity": activity,
    "ready": lambda tube: tube.ready_count,
    "reserved": lambda tube: tube.reserved,
    "delayed": lambda tube: tube.delayed.count,
    "buried": lambda tube: tube.buried.count,
    "waiting": lambda tube: tube.waiting,
}
"""All but the names from the largest to the smallest, and equal ones by name."""


class TubePage:
    """One page."""

    def __init__(self, state: QueueState, now_ns: int, query: Mapping[str, str]) -> None:
        """:raise Refusal: the query is wrong."""
        self._state = state
        self._now_ns = now_ns
        self._limit = query_number(query, "limit", 50, 1, MAX_PAGE_TUBES)
        self._offset = query_number(query, "offset", 0, 0, MAX_OFFSET)
        self._sort = SORTS[query_choice(query, "sort", tuple(SORTS))]
        self._search = query.get("search", "")[:MAX_SEARCH].encode("ascii", "replace")
        self._all = list(state.tubes.in_order)

    def pieces(self) -> Iterator[bytes]:
        """The page as JSON."""
        first: list[Tube] = []
        matches = 0
        for at in range(0, len(self._all), SLICE_TUBES):
            some = self._all[at : at + SLICE_TUBES]
            if self._search:
                some = [tube for tube in some if self._search in tube.name]
            matches += len(some)
            first = self._first(first + some)
            yield b""
        yield b'{"total":%d,"matches":%d,"tubes":[' % (len(self._all), matches)
        page = first[self._offset :]
        for at in range(0, len(page), DESCRIBED):
            rows = [encoded(self._described(tube)) for tube in page[at : at + DESCRIBED]]
            yield (b"," if at else b"") + b",".join(rows)
        yield b"]}\n"

    def _first(self, tubes: list[Tube]) -> list[Tube]:
        most, sort = self._offset + self._limit, self._sort
        if sort is None:
            return nsmallest(most, tubes, key=lambda tube: tube.name)
        # Ties go to the first in `tubes`; by name they would cost as much again.
        return nlargest(most, tubes, key=sort)

    def _described(self, tube: Tube) -> dict[str, Any]:
        return described(tube, self._state, self._now_ns)


def described(tube: Tube, state: QueueState, now_ns: int) -> dict[str, Any]:
    """A tube's figures as JSON takes them."""
    figures = figures_of(tube, state, now_ns)
    row = figures._asdict()
    times = row.pop("times")
    row["timeouts"] = 0 if times is None else times.timeouts
    row["pause_seconds_left"] = row.pop("pause_ns") / NS
    row["oldest_ready_age_seconds"] = row.pop("oldest_ns") / NS
    next_ns = row.pop("next_delayed_ns")
    row["next_delayed_seconds"] = None if next_ns is None else next_ns / NS
    return row
