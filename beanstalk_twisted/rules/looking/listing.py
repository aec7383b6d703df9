"""
Listing a tube's jobs page by page: what a page costs does not depend on how many there are.

A page goes on behind the place where the one before it ended, which its cursor names: a state, and
a key as in `ordered`.  So each job that stays where it is stands on exactly one page, whatever
comes and goes between two of them.  A reserved job's key is its holder's number and its id: it does
not change when the job is touched.
"""

import re
from typing import Final

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.looking import statistics
from beanstalk_twisted.rules.looking.statistics import Pairs
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.wire import replies, yaml

LOOK_RESERVED: Final = 5000
"""
Reserved jobs of all tubes that one page looks at, some 1 ms: they are known by who holds them, so
a page may have to pass over those of other tubes.  One connection that holds 100,000 costs 5 ms
more, and 25 if it got them in no order of their ids.
"""

LISTED: Final = {
    b"ready": (State.READY,),
    b"reserved": (State.RESERVED,),
    b"delayed": (State.DELAYED,),
    b"buried": (State.BURIED,),
    b"all": (State.READY, State.RESERVED, State.DELAYED, State.BURIED),
}

_LETTERS: Final = {
    State.READY: "r", State.RESERVED: "h", State.DELAYED: "d", State.BURIED: "b",
}  # fmt: skip
_STATES: Final = {letter: state for state, letter in _LETTERS.items()}
_CURSOR: Final = re.compile(r"([rhdb])(-?[0-9]{1,19})-([0-9]{1,20})")


class Place:
    """
    Behind which job a page begins.

    :ivar key: of the job, or `LEAST`.
    """

    __slots__ = ("key", "state")

    def __init__(self, state: State, key: int) -> None:
        self.state = state
        self.key = key

    def __str__(self) -> str:
        """As a cursor says it."""
        return f"{_LETTERS[self.state]}{self.key >> 64}-{self.key & ID_MASK}"


def place_of(states: tuple[State, ...], cursor: bytes) -> Place | None:
    """
    Where a page of jobs in these states begins.

    :param cursor: empty for the first page.
    :return: None if there is no such place.
    """
    if not cursor:
        return Place(states[0], LEAST)
    found = _CURSOR.fullmatch(cursor.decode("ascii", "replace"))
    if found is None or _STATES[found[1]] not in states or int(found[3]) > ID_MASK:
        return None
    return Place(_STATES[found[1]], int(found[2]) << 64 | int(found[3]))


class Listing:
    """Lists jobs, and changes nothing."""

    def __init__(self, state: QueueState, changes: Changes) -> None:
        self._state = state
        self._changes = changes

    def list_jobs(
        self, session: Session, now_ns: int, name: bytes, which: bytes, limit: int, cursor: bytes
    ) -> Answer:  # fmt: skip
        """
        Some of a tube's jobs in a state, or in any.

        :param which: a key of `LISTED`.
        :param cursor: empty for the first page.
        """
        tube, start = self._state.tubes.find(name), place_of(LISTED[which], cursor)
        if start is None:
            return replies.BAD_FORMAT, 0
        if tube is None:
            return self._changes.not_found()
        page = self._page(tube, which, limit, start, now_ns)
        return self._changes.of_state(replies.Document(page))

    def _page(self, tube: Tube, which: bytes, limit: int, start: Place, now_ns: int) -> bytes:
        """The tube's next jobs in these states, as YAML."""
        places, end = places_behind(self._state, tube, LISTED[which], limit, start)
        more: Pairs = [] if end is None else [("cursor", str(end))]
        return yaml.records("jobs", [self._job(place.key, now_ns) for place in places], more)

    def _job(self, key: int, now_ns: int) -> str:
        job = self._state.jobs.look(key & ID_MASK)
        assert job is not None
        return yaml.record(statistics.listed(job, now_ns))


def places_behind(
    state: QueueState, tube: Tube | None, states: tuple[State, ...], limit: int, start: Place
) -> tuple[list[Place], Place | None]:
    """
    The next jobs of a tube in these states.

    :param tube: None: of all tubes; then the only state is `RESERVED`.
    :return: where they are, ``limit`` at most, and behind which place the next page begins; None if
        there is no more.
    """
    places: list[Place] = []
    for each in states[states.index(start.state) :]:
        passed = start.key if each is start.state else LEAST
        # One more than fits says whether there is a next page.
        most = limit + 1 - len(places)
        stopped = None
        if tube is None or each is State.RESERVED:
            keys, stopped = _reserved_behind(state, tube, passed, most)
        else:
            keys = tube.queue(each).behind(passed, most)
        places += [Place(each, key) for key in keys]
        if len(places) > limit:
            return places[:limit], places[limit - 1]
        if stopped is not None:
            return places, Place(each, stopped)
    return places, None


def _reserved_behind(
    state: QueueState, tube: Tube | None, passed: int, most: int
) -> tuple[list[int], int | None]:
    """
    :return: the keys of the next reserved jobs, and of the last one looked at, if more are to be
        looked at.
    """
    keys: list[int] = []
    looked = 0
    sessions = state.sessions
    passed_number = passed >> 64
    if tube is not None and not tube.reserved:
        return keys, None
    for number in sorted([each for each in sessions if each >= passed_number]):
        for job_id in _ids_behind(sessions[number], passed & ID_MASK, number == passed_number):
            looked += 1
            job = state.jobs.look(job_id)
            if job is not None and (tube is None or job.tube_id == tube.tube_id):
                keys.append(number << 64 | job_id)
                if len(keys) == most:
                    return keys, None
            if looked == LOOK_RESERVED:
                return keys, number << 64 | job_id
    return keys, None


def _ids_behind(session: Session, job_id: int, is_passed: bool) -> list[int]:
    """
    The ids of the jobs that a session holds, in order; of one that is partly passed, only those
    behind ``job_id``.
    """
    if is_passed:
        return sorted([each for each in session.reserved if each > job_id])
    return sorted(session.reserved)
