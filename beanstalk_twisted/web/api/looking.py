"""Looking at jobs and their bodies slice by slice, as pages of `list-jobs` do."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from beanstalk_twisted.binlog.records.jobs import BodyPlace, State
from beanstalk_twisted.jobs.body_room import Unread
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.looks import Place, place_of, places_behind
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.api.fields import LOOK_BODY_BYTES, LOOK_JOBS, Criteria
from beanstalk_twisted.web.exchange import Refusal

MAX_READING: Final = 4
"""Slices whose bodies are read at a time: of `looking.SLICE_BYTES` each, and one body more."""

MAX_TRIES: Final = 3
"""Times that a body is read which is elsewhere each time: compaction moves it once in a while."""

SLICE_JOBS: Final = 200
"""Jobs that one slice looks at: a millisecond."""

SLICE_FINGERPRINTS: Final = 20
"""The same, if each has its fingerprint taken: some 20 us, 200 for 4 KiB of keys."""

SLICE_BYTES: Final = 512 << 10
"""Bytes of bodies after which a slice ends: a millisecond to search."""

SLICE_READS: Final = 16
"""Bodies that one slice reads from the log: as many as the thread reads in one piece of work."""

LOOK_READS: Final = 2000
"""The same of one request: some 0.2 s of processor, 20 s of a disk that seeks for each."""

PASS_TUBES: Final = 250
"""Tubes that one slice passes over since they have no such jobs: 0.5 ms."""

GATHER_TUBES: Final = 5000
"""Tubes whose numbers one slice gathers: 0.3 ms."""

LOOK_BYTES: Final = 32 << 20
"""Bytes of bodies that one request searches: the same."""

_CURSOR: Final = re.compile(r"([0-9]{1,10})\.(\S{1,50})")
_ALL_TUBES: Final = 0
"""In a cursor: no tube has this number."""

At = tuple[int, Place]
"""A tube's number, or `_ALL_TUBES`, and a place there."""


class Seen(NamedTuple):
    """A job as it is now; its body is None if nobody asked for it, or it cannot be read."""

    job: Job
    body: bytes | None
    is_unread: bool = False


class _Read(NamedTuple):
    """What a read brought, and where the body was then."""

    place: BodyPlace | None
    body: bytes | Unread | None


class Seeing:
    """Reads bodies that are in the log only: the thread that reads bodies back does it after those
    that clients wait for, and nothing stays in memory.  While it reads a job may change or go.
    What is given is how it is now: a body that was stated again meanwhile is read again.
    """

    def __init__(self, service: BeanstalkService) -> None:
        self._service = service
        self._turns = DeferredSemaphore(MAX_READING)

    async def see(self, jobs: Sequence[Job], needs: Callable[[Job], bool]) -> list[Seen]:
        """:param jobs: a slice of them, as they are in this turn.
        :return: those that are still there.  If all bodies that are needed are in memory this waits
            for nothing.
        """
        state = self._service.queue.state
        read: dict[int, _Read] = {}
        now = list(jobs)
        for _ in range(MAX_TRIES):
            absent = [job.job_id for job in now if needs(job) and _is_absent(state, job, read)]
            if not absent:
                break
            await self._turns.acquire()
            try:
                reads = await gatherResults([self._read(state, job_id) for job_id in absent])
            finally:
                self._turns.release()
            read.update(zip(absent, reads, strict=True))
            found = [state.jobs.look(job.job_id) for job in now]
            now = [job for job in found if job is not None]
        return [_seen(state, job, read, is_needed=needs(job)) for job in now]

    def _read(self, state: QueueState, job_id: int) -> "Deferred[_Read]":
        done: Deferred[_Read] = Deferred()
        if state.bodies.is_unreadable(job_id, self._service.now_ns()):
            unread = Unread("it could not be read before.", is_lost=False)
            done.callback(_Read(state.jobs.place(job_id), unread))
            return done
        state.bodies.look_at(
            job_id, lambda body: done.callback(_Read(state.jobs.place(job_id), body))
        )
        return done


def _is_absent(state: QueueState, job: Job, read: dict[int, _Read]) -> bool:
    """Return whether a body is neither in memory nor read from where it is now."""
    known = read.get(job.job_id)
    return job.body is None and (known is None or known.place != state.jobs.place(job.job_id))


def _seen(state: QueueState, job: Job, read: dict[int, _Read], *, is_needed: bool) -> Seen:
    if job.body is not None or not is_needed:
        return Seen(job, job.body)
    known = read.get(job.job_id)
    if known is not None and isinstance(known.body, bytes) and not _is_absent(state, job, read):
        return Seen(job, known.body)
    return Seen(job, None, is_unread=True)


class Walk:
    """Goes over the jobs of a tube, or of all, in some states.  With all tubes, the reserved jobs
    come first, by who holds them, then the tubes in the order in which they were made.  A job that
    stays where it is is looked at once.

    :ivar is_over: whether there are no more.
    """

    def __init__(self, state: QueueState, criteria: Criteria, cursor: str) -> None:
        """:param cursor: empty to begin.
        :raise Refusal: the cursor is wrong, or there is no such tube.
        """
        self.is_over = False
        self._state = state
        self._states = criteria.states
        self._tube_ids, self._next = [_ALL_TUBES], 0
        self._is_one = criteria.tube is not None
        self._to_gather = 0 if self._is_one else len(state.tubes.in_order)
        if criteria.tube is not None:
            self._tube_ids = [_found(state, criteria.tube).tube_id]
        self._at: At | None = None
        if cursor:
            self._at = self._read(cursor)
            self._next = len(self._tube_ids)

    @property
    def cursor(self) -> str | None:
        """Where a look continues; None when it is over."""
        return None if self.is_over or self._at is None else f"{self._at[0]}.{self._at[1]}"

    def slice(self, most: int) -> list[At]:
        """Return the next jobs, fewer if many tubes have none, and stand after the last of them."""
        found: list[At] = []
        if self._to_gather:
            self._gather()
            return found
        self._enter()
        for _ in range(PASS_TUBES):
            if self.is_over or len(found) == most:
                break
            found += self._of_tube(most - len(found))
            self._enter()
        return found

    def stand_behind(self, at: At) -> None:
        """Go back to a job of the last slice."""
        self._at = at
        self._next = bisect_right(self._tube_ids, at[0])
        self.is_over = False

    def _of_tube(self, most: int) -> list[At]:
        assert self._at is not None
        tube_id, start = self._at
        self._at = None
        tube: Tube | None = None
        states = self._states_in(tube_id)
        if tube_id != _ALL_TUBES:
            tubes = self._state.tubes
            tube = tubes.by_id(tube_id) if tubes.has_id(tube_id) else None
            if tube is None or not _count(tube, states):
                return []
        places, end = places_behind(self._state, tube, states, most, start)
        if end is not None:
            self._at = tube_id, end
        return [(tube_id, place) for place in places]

    def _states_in(self, tube_id: int) -> tuple[State, ...]:
        if self._is_one:
            return self._states
        is_first = tube_id == _ALL_TUBES
        return tuple(each for each in self._states if (each is State.RESERVED) is is_first)

    def _enter(self) -> None:
        """Stand before the next tube that may have such jobs, if the last one is done."""
        while self._at is None and self._next < len(self._tube_ids):
            tube_id = self._tube_ids[self._next]
            self._next += 1
            states = self._states_in(tube_id)
            if states:
                self._at = tube_id, Place(states[0], LEAST)
        self.is_over = self._at is None

    def _gather(self) -> None:
        """Gather the numbers of some tubes; one that leaves its place meanwhile may be missed."""
        in_order = self._state.tubes.in_order
        at = max(0, self._to_gather - GATHER_TUBES)
        self._tube_ids += [tube.tube_id for tube in in_order[at : self._to_gather]]
        self._to_gather = at
        if not at:
            self._tube_ids = sorted(set(self._tube_ids))
            self._next = 0 if self._at is None else bisect_right(self._tube_ids, self._at[0])

    def _read(self, cursor: str) -> At:
        found = _CURSOR.fullmatch(cursor)
        tube_id = -1 if found is None else int(found[1])
        is_known = tube_id >= 0 if self._to_gather else tube_id in self._tube_ids
        states = self._states_in(tube_id)
        place = None
        if found is not None and is_known and states:
            place = place_of(states, found[2].encode("utf-8", "replace"))
        if place is None:
            raise Refusal(400, "cursor is that of the reply before, with all else the same")
        return tube_id, place


class Look:
    """Finds the jobs that are meant, slice by slice.

    :ivar looked: how many jobs were looked at, and ``looked_bytes`` how many bytes of bodies;
        ``reads`` how many bodies were to be read from the log, and ``unread`` how many could not.
    :ivar total: how many jobs there are in the tubes and states.
    """

    def __init__(
        self, state: QueueState, criteria: Criteria, cursor: str = "", *, counts_bytes: bool,
        slice_jobs: int = SLICE_JOBS, most_jobs: int = LOOK_JOBS,
        shows: Callable[[Job], bool] = lambda job: False,
    ) -> None:  # fmt: skip
        """:param counts_bytes: whether what is done costs more for large bodies.
        :param slice_jobs: how many jobs a slice looks at, at most; ``most_jobs`` all of them.
        :param shows: whether the body of a job that is meant is needed besides.
        :raise Refusal: the cursor is wrong, or there is no such tube.
        """
        self.walk = Walk(state, criteria, cursor)
        self.looked = self.looked_bytes = self.reads = self.unread = 0
        self.total = _total(state, criteria)
        self._state = state
        self._criteria = criteria
        self._counts_bytes = counts_bytes or bool(criteria.text)
        if criteria.fingerprint:
            slice_jobs = min(slice_jobs, SLICE_FINGERPRINTS)
        self._slice_jobs, self._most_jobs = slice_jobs, most_jobs
        self._shows = shows

    @property
    def is_enough(self) -> bool:
        """Whether one request looks at no more."""
        is_much = self.looked >= self._most_jobs or self.looked_bytes >= LOOK_BYTES
        return is_much or self.reads >= LOOK_READS or self.walk.is_over

    def slice(self, now_ns: int, most: int) -> list[Job]:
        """Look at some more jobs.

        :param most: how many that are meant are found at most; the walk then stands after the last
            of them.
        :return: also those of which only a body says so that is in the log only: see `settle`.
        """
        found: list[Job] = []
        ends, last_read = self.looked_bytes + SLICE_BYTES, self.reads + SLICE_READS
        for at in self.walk.slice(min(self._slice_jobs, self._most_jobs - self.looked)):
            job = self._state.jobs.look(at[1].key & ID_MASK)
            assert job is not None
            self.looked += 1
            if self._counts_bytes:
                self.looked_bytes += min(job.body_bytes, LOOK_BODY_BYTES)
            if self._criteria.suit(job, now_ns) and self._may_fit(job):
                found.append(job)
            is_full = len(found) == most or self.reads == last_read
            if is_full or self.looked_bytes >= ends:
                self.walk.stand_behind(at)
                break
        return found

    def _may_fit(self, job: Job) -> bool:
        """Return whether a body fits, or is to be read first: a read takes all of it."""
        if job.body is not None or not self.needs(job):
            return self._criteria.fit(job.body)
        self.reads += 1
        self.looked_bytes += job.body_bytes
        return True

    def needs(self, job: Job) -> bool:
        return self._criteria.needs_bodies or self._shows(job)

    async def settle(
        self, jobs: Sequence[Job], seeing: Seeing, now: Callable[[], int]
    ) -> list[Seen]:
        """:param jobs: of a slice.
        :return: those that are meant, as they are now, with their bodies.
        """
        seen = await seeing.see(jobs, self.needs)
        self.unread += sum(each.is_unread for each in seen)
        now_ns = now()
        return [each for each in seen if means(self._criteria, each, self._state, now_ns)]


def means(criteria: Criteria, seen: Seen, state: QueueState, now_ns: int) -> bool:
    """Return whether the criteria mean a job as it is now."""
    is_in_tube = criteria.tube in (None, state.tubes.by_id(seen.job.tube_id).name)
    return is_in_tube and criteria.suit(seen.job, now_ns) and criteria.fit(seen.body)


def _total(state: QueueState, criteria: Criteria) -> int:
    if criteria.tube is None:
        return sum(state.counts[each] for each in criteria.states)
    return _count(_found(state, criteria.tube), criteria.states)


def _count(tube: Tube, states: tuple[State, ...]) -> int:
    count = 0
    for state in states:
        if state is State.RESERVED:
            count += tube.reserved
        elif state is State.READY:
            count += tube.ready_count
        else:
            count += (tube.delayed if state is State.DELAYED else tube.buried).count
    return count


def _found(state: QueueState, name: bytes) -> Tube:
    tube = state.tubes.find(name)
    if tube is None:
        raise Refusal(404, "there is no such tube")
    return tube
