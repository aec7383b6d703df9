"""Withheld jobs: they are to be dead letters, and wait for space in the log or for their bodies."""

from itertools import islice
from typing import Final

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, WITHHELD_NS, Reason
from beanstalk_twisted.jobs.job import DELAYED, Job
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.moves import Moves, moved_bytes
from beanstalk_twisted.rules.puts import Puts
from beanstalk_twisted.rules.timekeeping import WITHHELD_KEY, Part, Slices, Timekeeping

NEVER_KEY: Final = NEVER_NS << 64
"""Where the keys of delayed jobs end that are withheld: then come those that wait for a group."""

AHEAD_JOBS: Final = 128
"""Jobs of a tube whose bodies are read together: enough for the time that writing them takes."""

AHEAD_BYTES: Final = 4 << 20
"""Bytes of the same."""

REST_NS: Final = 5_000_000
"""Between two looks while space is allocated or a body is read, ns: each takes some ms."""

FULL_REST_NS: Final = 1_000_000_000
"""Between two looks at a full disk, or at bodies that cannot be read, ns: as the disk is tried."""


class _Round:
    """How far a look at all jobs of a tube that wait has come.

    :ivar passed: the key of the last withheld job that was passed over.
    :ivar left: how many of those set aside are still to be looked at.
    """

    __slots__ = ("left", "passed")

    def __init__(self, tube: Tube) -> None:
        self.passed = WITHHELD_KEY - 1
        self.left = 0 if tube.totals is None else len(tube.totals.aside)


class Withheld(Part):
    """Makes dead letters of jobs when there is space, tube by tube, slice by slice: of those that
    are withheld, and of buried ones that are too old.

    A withheld job is delayed until no moment (`WITHHELD_NS`), so no reserve is given it, and its
    log says so: a restart goes on with it.
    """

    def __init__(self, timekeeping: Timekeeping, moves: Moves, puts: Puts) -> None:
        super().__init__(timekeeping)
        self._moves = moves
        self._puts = puts
        self._rounds: dict[int, _Round] = {}
        self._is_working = self._is_reading = self._was_first = False
        self._lacking: int | None = None
        moves.note_withheld = self.note

    def note(self, tube: Tube) -> None:
        """Begin with a tube that may have such jobs, unless that has happened."""
        if tube.tube_id not in self._rounds and _has_some(tube):
            self._rounds[tube.tube_id] = _Round(tube)
            if not self._is_working:
                self._is_working = True
                self._timekeeping.work_in_slices(self._work())

    def give_room(self, now_ns: int) -> None:
        """Those that wait for space here and puts have the first try by turns."""
        self._was_first = self._lacking is not None and not self._was_first
        if not self._was_first:
            self._puts.room_changed(now_ns)
        tube_id = self._lacking
        if tube_id is not None:
            # Another tube is the first to ask in the next round.
            self._rounds[tube_id] = self._rounds.pop(tube_id)
            self._set_lacking(None, 0)
            self._timekeeping.begin_slice()
            self._end_some(tube_id, now_ns)
        if self._was_first:
            self._puts.room_changed(now_ns)

    def _work(self) -> Slices:
        now_ns = yield None
        while self._rounds:
            self._timekeeping.begin_slice()
            self._set_lacking(None, 0)
            self._is_reading = False
            for tube_id in list(self._rounds):
                self._timekeeping.slice_left -= 1
                while self._end_some(tube_id, now_ns) or self._timekeeping.slice_left <= 0:
                    now_ns = yield None
                    self._timekeeping.begin_slice()
            if self._rounds:
                waits_for_file = self._lacking is not None and not self._changes.log.budget.is_short
                is_soon = self._is_reading or waits_for_file
                now_ns = yield now_ns + (REST_NS if is_soon else FULL_REST_NS)
        self._is_working = False

    def _end_some(self, tube_id: int, now_ns: int) -> bool:
        """:return: whether jobs of the tube are left only because the slice is over."""
        each = self._rounds.get(tube_id)
        if each is None:
            return False
        while self._state.tubes.has_id(tube_id):
            tube = self._state.tubes.by_id(tube_id)
            job_ids = _next_ids(tube, each)
            if not job_ids:
                break
            for at in range(len(job_ids)):
                if self._timekeeping.slice_left <= 0:
                    return True
                if not self._is_ended(tube, each, job_ids[at:], now_ns):
                    return False
                self._timekeeping.slice_left -= 1
        del self._rounds[tube_id]
        if self._state.tubes.has_id(tube_id):
            # Go through those again that could not be read.
            tube = self._state.tubes.by_id(tube_id)
            if _has_some(tube):
                self._rounds[tube_id] = _Round(tube)
        return False

    def _is_ended(self, tube: Tube, each: _Round, job_ids: list[int], now_ns: int) -> bool:
        """Make a dead letter of the first of these jobs, or pass it over if its body cannot be
        read.

        :return: False if it waits, for space or for its body.
        """
        job_id, bodies = job_ids[0], self._state.bodies
        job = self._state.jobs.job(job_id)
        is_passed = is_withheld(job) and _key(job) <= each.passed
        if is_passed or bodies.is_unreadable(job_id, now_ns):
            _pass_over(tube, each, job)
            return True
        if not self._moves.takes_dead_letter(job, now_ns):
            if self._lacking is None:
                self._set_lacking(tube.tube_id, moved_bytes(job))
            if not self._changes.log.budget.is_short:
                # It is to be there when the space is.
                bodies.want(job_id, now_ns)
            return False
        if not bodies.want(job_id, now_ns):
            if bodies.is_unreadable(job_id, now_ns):
                _pass_over(tube, each, job)
                return True
            self._is_reading = True
            bodies.want_some(job_ids[1:], AHEAD_BYTES, now_ns)
            return False
        code = job.deadline_ns - WITHHELD_NS if is_withheld(job) else int(Reason.EXPIRED)
        reason = Reason.EXPIRED if code == Reason.EXPIRED else Reason.MAX_RESERVES
        # The body may have been read just now.
        return self._moves.dead_letter(self._state.jobs.job(job_id), reason, now_ns, code)

    def _set_lacking(self, tube_id: int | None, size: int) -> None:
        """Note the first tube whose next job has no space, and ask for that."""
        self._lacking, self._puts.withheld_bytes = tube_id, size


def is_withheld(job: Job) -> bool:
    return job.state is DELAYED and WITHHELD_NS <= job.deadline_ns < NEVER_NS


def _has_some(tube: Tube) -> bool:
    has_aside = tube.totals is not None and bool(tube.totals.aside)
    return has_aside or bool(_next_keys(tube, WITHHELD_KEY - 1, 1))


def _next_ids(tube: Tube, each: _Round) -> list[int]:
    """The jobs that come next: first those that are withheld, then those that are set aside."""
    keys = _next_keys(tube, each.passed, AHEAD_JOBS)
    if keys or tube.totals is None:
        return [key & ID_MASK for key in keys]
    return list(islice(tube.totals.aside, max(0, min(AHEAD_JOBS, each.left))))


def _next_keys(tube: Tube, passed: int, most: int) -> list[int]:
    last = tube.delayed.last()
    if last is None or last < WITHHELD_KEY:
        return []
    return [key for key in tube.delayed.behind(passed, most) if key < NEVER_KEY]


def _key(job: Job) -> int:
    return job.deadline_ns << 64 | job.job_id


def _pass_over(tube: Tube, each: _Round, job: Job) -> None:
    if is_withheld(job) and _key(job) > each.passed:
        each.passed = _key(job)
    elif tube.totals is not None:
        tube.totals.rotate(job.job_id)
        each.left -= 1
