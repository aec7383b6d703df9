"""What changes nothing: looks at jobs, tubes and connections, and pages of a tube's jobs."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules import statistics
from beanstalk_twisted.rules.reservations import Answer, leave
from beanstalk_twisted.rules.statistics import time_left, whole_seconds
from beanstalk_twisted.rules.timekeeping import Part, Slices, Timekeeping, Work
from beanstalk_twisted.wire import layouts, replies, yaml
from beanstalk_twisted.wire.extensions import CAPABILITIES

SLICE_CONNECTIONS: Final = 500
"""Connections that one slice of a list describes: some 5 ms."""

SHOWN_RESERVED: Final = 10
"""Reserved jobs of a connection that are shown: the first it got, which are mostly due first."""

LOOK_RESERVED: Final = 5000
"""Reserved jobs of all tubes that one page looks at, some 1 ms: they are known by who holds them,
so a page may have to pass over those of other tubes.  One connection that holds 100,000 costs 5 ms
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

SLICE_NAMES: Final = 100
"""Tubes that one slice of a list is asked about: 0.1 ms, or 11 ms with 100 patterns of the worst
kind (see `MAX_PATTERNS`).
"""


class ConnectionFacts(NamedTuple):
    """What whoever serves a connection knows of it.

    :ivar peer: its address; empty if it has none.
    :ivar buffered_bytes: input that was read and not carried out, and replies that are not sent.
    :ivar identity: its peer's name in the access file; empty without such a file.
    """

    peer: str = ""
    buffered_bytes: int = 0
    identity: str = ""
    is_tls: bool = False


ConnectionFactsSource = Callable[[Session], ConnectionFacts | None]
"""Gives None if the connection has ended."""


class Connections(Part):
    """Lists connections.

    :ivar facts: asked about each of them.
    """

    def __init__(self, timekeeping: Timekeeping) -> None:
        super().__init__(timekeeping)
        self.facts: ConnectionFactsSource = lambda session: ConnectionFacts()

    def list_all(self, session: Session, now_ns: int) -> Answer | None:
        """Who is connected, and what they do, in the order of their numbers."""
        numbers = sorted(self._state.sessions)
        items = [
            *map(layouts.CONNECTION.write, self.described(numbers[:SLICE_CONNECTIONS], now_ns))
        ]
        if len(numbers) <= SLICE_CONNECTIONS:
            return self._listed(items)
        self._timekeeping.answer_later(session, self._describe_rest(numbers, items))
        return None

    def _describe_rest(self, numbers: list[int], items: list[str]) -> Work:
        for at in range(SLICE_CONNECTIONS, len(numbers), SLICE_CONNECTIONS):
            now_ns = yield None
            some = numbers[at : at + SLICE_CONNECTIONS]
            items += map(layouts.CONNECTION.write, self.described(some, now_ns))
        return self._listed(items)

    def described(self, numbers: Sequence[int], now_ns: int) -> list[dict[str, Any]]:
        """Describe those of these connections that have not ended."""
        found = []
        for number in numbers:
            session = self._state.sessions.get(number)
            facts = None if session is None else self.facts(session)
            if session is not None and facts is not None:
                found.append(self._values(session, facts, now_ns))
        return found

    def _values(self, session: Session, facts: ConnectionFacts, now_ns: int) -> dict[str, Any]:
        is_waiting = session.is_waiting or session.awaited_id != 0
        roles = (
            ("producer", session.is_producer), ("worker", session.is_worker),
            ("waiting", is_waiting),
        )  # fmt: skip
        waited_ns = now_ns - session.waits_from_ns if is_waiting else 0
        return {
            "connection": session.number,
            "peer": facts.peer,
            "role": " ".join([role for role, is_so in roles if is_so]),
            "using": session.using.name.decode("ascii"),
            "watching": len(session.watching),
            "mode": session.mode.decode("ascii"),
            "reserved": len(session.reserved),
            "time-left": self._times_left(session, now_ns),
            "waiting": whole_seconds(waited_ns),
            "buffered": facts.buffered_bytes,
            "identity": facts.identity,
            "tls": facts.is_tls,
        }

    def _times_left(self, session: Session, now_ns: int) -> dict[int, int]:
        """Of its first reserved jobs, by id."""
        jobs = map(self._state.jobs.look, islice(session.reserved, SHOWN_RESERVED))
        return {job.job_id: time_left(job, now_ns) for job in jobs if job is not None}

    def _listed(self, items: list[str]) -> Answer:
        return self._changes.of_state(replies.Document(yaml.records("connections", items)))


class Place(NamedTuple):
    """Behind which job a page begins; ``key`` is `LEAST` for the first one."""

    state: State
    key: int

    def __str__(self) -> str:
        """As a cursor says it."""
        return f"{_LETTERS[self.state]}{self.key >> 64}-{self.key & ID_MASK}"


def place_of(states: tuple[State, ...], cursor: bytes) -> Place | None:
    """:param cursor: empty for the first page.
    :return: where it begins; None if there is no such place.
    """
    if not cursor:
        return Place(states[0], LEAST)
    found = _CURSOR.fullmatch(cursor.decode("ascii", "replace"))
    if found is None or _STATES[found[1]] not in states or int(found[3]) > ID_MASK:
        return None
    return Place(_STATES[found[1]], int(found[2]) << 64 | int(found[3]))


class Listing(Part):
    """Lists jobs page by page: what a page costs does not depend on how many there are.

    A page goes on behind the place where the one before it ended, which its cursor names: a state,
    and a key as in `ordered`.  So each job that stays where it is stands on exactly one page,
    whatever comes and goes between two of them.  A reserved job's key is its holder's number and
    its id: it does not change when the job is touched.
    """

    def list_jobs(
        self, session: Session, now_ns: int, name: bytes, which: bytes, limit: int, cursor: bytes
    ) -> Answer:  # fmt: skip
        """:param which: a key of `LISTED`.
        :param cursor: empty for the first page.
        """
        tube, start = self._state.tubes.find(name), place_of(LISTED[which], cursor)
        if start is None:
            return replies.BAD_FORMAT, 0
        if tube is None:
            return self._changes.not_found()
        places, end = places_behind(self._state, tube, LISTED[which], limit, start)
        more = [] if end is None else [("cursor", str(end))]
        jobs = [self._state.jobs.job(place.key & ID_MASK) for place in places]
        items = [layouts.LISTED_JOB.write(statistics.listed(job, now_ns)) for job in jobs]
        return self._changes.of_state(replies.Document(yaml.records("jobs", items, more)))


def places_behind(
    state: QueueState, tube: Tube | None, states: tuple[State, ...], limit: int, start: Place
) -> tuple[list[Place], Place | None]:
    """The next jobs of a tube in these states.

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
    """:return: the keys of the next reserved jobs, and of the last one looked at, if more are to be
    looked at.
    """
    keys: list[int] = []
    looked = 0
    sessions = state.sessions
    passed_number = passed >> 64
    if tube is not None and not tube.reserved:
        return keys, None
    for number in sorted([each for each in sessions if each >= passed_number]):
        job_ids = list(sessions[number].reserved)
        if number == passed_number:
            job_ids = [each for each in job_ids if each > passed & ID_MASK]
        for job_id in sorted(job_ids):
            looked += 1
            job = state.jobs.look(job_id)
            if job is not None and (tube is None or job.tube_id == tube.tube_id):
                keys.append(number << 64 | job_id)
                if len(keys) == most:
                    return keys, None
            if looked == LOOK_RESERVED:
                return keys, number << 64 | job_id
    return keys, None


def _first_reserved(state: QueueState, tube: Tube, numbers: Iterable[int]) -> int | None:
    """Find the smallest id of a tube's jobs that sessions with these numbers have reserved."""
    first: int | None = None
    for number in numbers:
        session = state.sessions.get(number)
        for job_id in () if session is None else session.reserved:
            if first is None or job_id < first:
                job = state.jobs.look(job_id)
                if job is not None and job.tube_id == tube.tube_id:
                    first = job_id
    return first


class Looks(Part):
    """Carries out `peek` and its like, and what shows one thing."""

    def peek(self, session: Session, now_ns: int, job_id: int) -> Answer | None:
        return self._found(session, job_id)

    def peek_ready(self, session: Session, now_ns: int) -> Answer | None:
        """The first ready job of the used tube that may be handed out, or else the first."""
        return self._found_first(session, session.using.first_ready())

    def peek_delayed(self, session: Session, now_ns: int) -> Answer | None:
        return self._found_first(session, session.using.delayed.first())

    def peek_buried(self, session: Session, now_ns: int) -> Answer | None:
        return self._found_first(session, session.using.buried.first())

    def peek_reserved(self, session: Session, now_ns: int) -> Answer | None:
        """The reserved job of the used tube that has the smallest id."""
        state, tube = self._state, session.using
        if not tube.reserved:
            return self._changes.not_found()
        if state.counts[State.RESERVED] <= LOOK_RESERVED:
            return self._found_first(session, _first_reserved(state, tube, sorted(state.sessions)))
        session.is_busy = True
        self._timekeeping.work_in_slices(self._peek_reserved_later(session, tube))
        return None

    def _peek_reserved_later(self, session: Session, tube: Tube) -> Slices:
        """Look at one connection or more in each slice."""
        numbers = deque(sorted(self._state.sessions))
        first: int | None = None
        while numbers:
            some, looked = [], 0
            while numbers and looked < LOOK_RESERVED:
                some.append(numbers.popleft())
                held = self._state.sessions.get(some[-1])
                looked += 0 if held is None else len(held.reserved)
            found = _first_reserved(self._state, tube, some)
            first = found if first is None or (found is not None and found < first) else first
            yield None
        session.is_busy = False
        if session.has_ended:
            return
        answer = self._found_first(session, first)
        if answer is not None:
            leave(self._reservations.outbox, session, answer)

    def stats_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        tube = self._state.tubes.by_id(job.tube_id)
        return replies.statistics(layouts.JOB.write(statistics.job(job, tube, now_ns))), job.lsn

    def stats_tube(self, session: Session, now_ns: int, name: bytes) -> Answer:
        tube = self._state.tubes.find(name)
        if tube is None:
            return self._changes.not_found()
        reply = replies.statistics(layouts.TUBE.write(statistics.tube(tube, now_ns)))
        return self._changes.of_state(reply)

    def stats_group(self, session: Session, now_ns: int, group: bytes) -> Answer:
        """A group's statistics, if it has a job or one waits for it."""
        groups = self._state.groups
        if not groups.members(group) and not groups.waiting(group):
            return self._changes.not_found()
        reply = replies.statistics(layouts.GROUP.write(statistics.group(groups, group)))
        return self._changes.of_state(reply)

    def list_tubes(self, session: Session, now_ns: int) -> Answer:
        return self._changes.of_state(
            replies.names(tube.name for tube in self._state.tubes.in_order)
        )

    def list_tubes_that(
        self, session: Session, is_shown: Callable[[bytes], object]
    ) -> Answer | None:
        """The tubes that are to be shown, by their names; many slice by slice."""
        names = [tube.name for tube in self._state.tubes.in_order]
        if len(names) <= SLICE_NAMES:
            return self._changes.of_state(replies.names(filter(is_shown, names)))
        self._timekeeping.answer_later(session, self._chosen(names, is_shown))
        return None

    def _chosen(self, names: Sequence[bytes], is_shown: Callable[[bytes], object]) -> Work:
        shown: list[bytes] = []
        for at in range(0, len(names), SLICE_NAMES):
            shown += filter(is_shown, names[at : at + SLICE_NAMES])
            yield None
        return self._changes.of_state(replies.names(shown))

    def list_tube_used(self, session: Session, now_ns: int) -> Answer:
        return replies.Using(session.using.name), 0

    def list_tubes_watched(self, session: Session, now_ns: int) -> Answer:
        return self._changes.of_state(replies.names(tube.name for tube in session.watching_order))

    def capabilities(self, session: Session, now_ns: int) -> Answer:
        return replies.names(map(yaml.item, CAPABILITIES)), 0

    def _found(self, session: Session, job_id: int) -> Answer | None:
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.body is None:
            read = partial(self._found_in_log, job_id)
            self._reservations.answer_with_body(session, job_id, read)
            return None
        return replies.Found(job_id, job.body, job.priority), job.lsn

    def _found_in_log(self, job_id: int, now_ns: int) -> Answer:
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.body is None:
            return replies.INTERNAL_ERROR, 0
        return replies.Found(job_id, job.body, job.priority), job.lsn

    def _found_first(self, session: Session, key: int | None) -> Answer | None:
        return self._changes.not_found() if key is None else self._found(session, key & ID_MASK)
