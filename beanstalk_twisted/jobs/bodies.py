"""Which bodies are in memory: those that are not durable yet, and of the others as many as fit
(`--body-cache`).  The rest is in the log only, and read back when it is asked for.  The body of a
reserved job is in the log only again when its reply is made, if it was read back for that.

Once half of what may be is taken, each body that comes into memory is noted, and those that were
put last go first: workers take the oldest jobs of a tube, so that these are the last to be wanted.
What was read back goes after all others, except that a job which a session was given goes first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.jobs.body_room import BodyRoom, Failed, FailedReads, Unread
from beanstalk_twisted.jobs.job import NS, Job
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import Tube

DROP_JOBS: Final = 1000
"""Bodies that one slice looks at: a millisecond."""

FEW_JOBS: Final = 50
"""The same when the last slice found none that could leave: sessions hold them all, perhaps."""

AHEAD_JOBS: Final = 256
"""Jobs of a tube that are read before workers ask for them: as many as 50 of them take while a disk
reads the next ones, in the five turns that they need for half of them.  To look for them takes
0.5 ms, and is done anew when half of them were taken.
"""

AHEAD_BYTES: Final = 4 << 20
"""Bytes of the same: what a slow disk reads in the time in which workers take so many jobs."""

AHEAD_SHARE: Final = 4
"""Of what may be in memory, one part in so many for the jobs read ahead of one tube at the most."""

AHEAD_TUBES: Final = 2
"""Tubes that may have as much as that at the same time, in jobs and in bytes; more of them share
it.  So what is read ahead is half of what may be in memory: with more, tubes would drive out each
other's bodies before those are taken.
"""

IN_USE_TAKES: Final = 4096
"""Jobs taken of others until a tube no longer has a share: 16 looks ahead of one of them."""

KEEP_NS: Final = 2 * NS
"""For so long a body stays that was read for whoever comes again: those who look for it do so each
second at least.
"""

KEPT_BYTES: Final = 16 << 20
"""Bytes of such bodies: what a few tubes have read together to make dead letters."""

UNDURABLE_BYTES: Final = 2 << 20
"""Bytes of bodies beyond the cache, and at least as many again as the cache has, for which a sync
is asked that nobody waits for (`--fsync never`): rare enough to cost nothing, and memory is
bounded.
"""

ALL_LSNS: Final = 1 << 63
"""What is loaded is durable before anybody is served."""

MOST_STALE: Final = 2
SPARE_NOTES: Final = 1024
"""Bodies that may be noted: twice as many as there are jobs, and so many more."""

Ask = Callable[[Sequence[tuple[BodyPlace, int]], bool], None]
"""Begins to read bodies: of each its place and its job, and whether somebody waits for them.  Asked
again of a body that nobody has waited for, when somebody does.
"""

Call = Callable[[int], None]
"""Called with the time when a body was read, or cannot be, or its job is gone."""

See = Callable[[bytes | Unread | None], None]
"""Called with a body that was read for one who only looks at it, or with what came in its place;
None if its job is gone, or is in memory.
"""


class Bodies:
    """Leaves bodies to the log, and has them read back.

    :ivar is_on: whether bodies leave memory at all.
    :ivar most_bytes: of bodies that are to be in memory.
    :ivar room: what bodies may take on their way to clients.
    :ivar is_starved: whether the process got no memory for a body: then all leave that can.
    :ivar dropped: how many bodies have left memory; ``read`` how many came back, and ``lost`` of
        how many jobs they are lost.
    :ivar tell_lost: called with a job whose body is lost, and the time, each time it was asked for.
    :ivar tell_failed: called with a job whose body cannot be read now, until when it is to be left
        alone, and the time.
    :ivar say_lost: called once with each job whose body is lost, and why.
    """

    def __init__(self, jobs: JobTable) -> None:
        self.is_on = False
        self.most_bytes = self.dropped = self.read = self.lost = 0
        self.tell_lost: Callable[[int, int], None] = lambda job_id, now_ns: None
        self.tell_failed: Callable[[int, int, int], None] = lambda job_id, until_ns, now_ns: None
        self.say_lost: Callable[[int, str], None] = lambda job_id, why: None
        self.room = BodyRoom()
        self.is_starved = False
        self._jobs = jobs
        self._ask: Ask | None = None
        self._look_jobs = DROP_JOBS
        self._fresh: deque[tuple[int, int]] = deque()
        self._settled: deque[int] = deque()
        # Nobody but its session asks for the body of such a job, as a rule.
        self._given: deque[int] = deque(maxlen=DROP_JOBS)
        self._note_above = 0
        self._is_loaded = self._is_noting_loaded = False
        self._reading: dict[int, BodyPlace] = {}
        self._ahead: set[int] = set()
        self._only_seen: set[int] = set()
        self._sees: dict[int, list[See]] = {}
        self._calls: dict[int, list[Call]] = {}
        # By job, until when a body is kept, and its size; those that are kept longest come last.
        self._kept: dict[int, tuple[int, int]] = {}
        self._kept_bytes = 0
        self._failed = FailedReads()
        # The tubes that are read ahead of: how many jobs had been taken at the last look at each.
        self._looks: dict[int, int] = {}
        self._takes = 0
        self._arrived: deque[tuple[int, bytes | Unread, int]] = deque()
        self._is_telling = False

    def begin(self, most_bytes: int, ask: Ask) -> None:
        """From now on no more of bodies than this is kept in memory, as far as they may leave it.

        :param ask: tells what it has read to `arrived`, perhaps before it returns.
        """
        self.is_on, self.most_bytes, self._ask = True, most_bytes, ask
        self._note_above = most_bytes // 2
        self._jobs.keeps_places = True
        if self._is_loaded:
            return
        left = self._note_above
        for job_id in self._jobs:
            left -= self._jobs.weigh(job_id)[0]
            if left < 0:
                self._settled.append(job_id)

    def loaded(self, job_ids: Sequence[int], most_bytes: int) -> None:
        """A start has loaded these jobs, ascending, from a log that it reads from its end to its
        beginning: leave those to it again that it has loaded first, if there are too many.

        :param most_bytes: as `begin` is going to be told.
        """
        self._is_loaded = True
        if self._is_noting_loaded:
            self._settled.extendleft(reversed(job_ids))
        elif 2 * self._jobs.loaded_bytes > most_bytes:
            self._is_noting_loaded = True
            self._settled.extend(filter(self._jobs.has_body, self._jobs))
        while self._jobs.loaded_bytes > most_bytes and self._settled:
            self.dropped += self._jobs.drop_body(self._settled.pop(), ALL_LSNS)

    # Out of memory.

    def note(self, job_id: int, lsn: int) -> None:
        """A body has come into memory with the full record of this LSN."""
        if self._kept:
            self._keep_no_longer(job_id)
        if self.is_on and self._jobs.loaded_bytes > self._note_above:
            self._fresh.append((lsn, job_id))

    def drop_slice(self, durable_lsn: int, now_ns: int) -> bool:
        """:return: whether there are more bodies to leave to the log at once."""
        settled = self._settle(durable_lsn)
        before = self.dropped
        while self._given and self._is_over:
            job_id = self._given.popleft()
            if job_id not in self._kept:
                self.dropped += self._jobs.drop_body(job_id, durable_lsn)
        for _ in range(min(self._look_jobs, len(self._settled))):
            if not self._is_over:
                break
            self._drop(self._settled.pop(), durable_lsn, now_ns)
        self._look_jobs = DROP_JOBS if self.dropped > before else FEW_JOBS
        if len(self._settled) > MOST_STALE * len(self._jobs) + SPARE_NOTES:
            for _ in range(min(DROP_JOBS, len(self._settled))):
                job_id = self._settled.pop()
                if self._jobs.may_leave(job_id):
                    self._settled.appendleft(job_id)
        return settled == DROP_JOBS or (self._is_over and self.dropped > before)

    @property
    def is_noting(self) -> bool:
        return bool(self._fresh or self._settled)

    @property
    def noted(self) -> int:
        return len(self._fresh) + len(self._settled)

    @property
    def undurable_lsn(self) -> int:
        """The LSN that has to be durable for bodies to leave memory, if they take much more than
        they may; otherwise 0.
        """
        limit = self.most_bytes + max(self.most_bytes, UNDURABLE_BYTES)
        is_over = self._jobs.loaded_bytes > limit or self.room.is_short
        return self._fresh[-1][0] if self._fresh and is_over else 0

    @property
    def _is_over(self) -> bool:
        loaded_bytes = self._jobs.loaded_bytes
        return loaded_bytes > self.most_bytes or self.is_starved or self.room.is_short

    def _settle(self, durable_lsn: int) -> int:
        """:return: how many were looked at whose records are durable by now."""
        fresh, count = self._fresh, 0
        while count < DROP_JOBS and fresh and fresh[0][0] <= durable_lsn:
            self._settled.append(fresh.popleft()[1])
            count += 1
        return count

    def _drop(self, job_id: int, durable_lsn: int, now_ns: int) -> None:
        if self._kept and job_id in self._kept:
            if self._kept[job_id][0] > now_ns:
                self._settled.appendleft(job_id)
                return
            self._keep_no_longer(job_id)
        if self._jobs.drop_body(job_id, durable_lsn):
            self.dropped += 1
        elif self._jobs.may_leave(job_id):
            # It was stated again, and that is not durable.
            self._settled.appendleft(job_id)

    # Back into memory.

    def when_loaded(self, job_id: int, call: Call) -> None:
        """Read a body back, and call when it is there, perhaps now; it may go again after that."""
        self._calls.setdefault(job_id, []).append(call)
        place = self._jobs.place(job_id)
        if place is not None:
            self._begin(job_id, place, is_wanted=True)

    def look_at(self, job_id: int, see: See) -> None:
        """Read a body for one who only looks at it, behind those that somebody waits for.  It is
        not kept in memory, unless others have asked for it as well.
        """
        place = self._jobs.place(job_id)
        if place is None:
            see(None)
            return
        self._sees.setdefault(job_id, []).append(see)
        self._begin(job_id, place, is_wanted=False, is_kept=False)

    def want(self, job_id: int, now_ns: int) -> bool:
        """Somebody needs a body, and comes again if it is not there.  One that cannot be read is
        left alone: see `is_unreadable`.  While enough is read for such callers nothing more is.

        :return: whether it is.
        """
        place = self._jobs.place(job_id)
        if place is None:
            return True
        if self.is_unreadable(job_id, now_ns):
            return False
        if not self._keep(job_id, now_ns):
            return False
        self._begin(job_id, place, is_wanted=True)
        return self._jobs.place(job_id) is None

    def want_some(self, job_ids: Iterable[int], most_bytes: int, now_ns: int) -> None:
        """As `want`, for the first of these jobs."""
        for job_id in job_ids:
            most_bytes -= self._jobs.weigh(job_id)[0]
            if most_bytes < 0:
                return
            self.want(job_id, now_ns)

    def _keep(self, job_id: int, now_ns: int) -> bool:
        """:return: whether a body may be read now, which is to stay then."""
        self._keep_no_longer(job_id)
        while self._kept and self._kept[oldest := next(iter(self._kept))][0] <= now_ns:
            self._keep_no_longer(oldest)
        size = self._jobs.weigh(job_id)[0]
        most_bytes = min(KEPT_BYTES, self.room.most_bytes // 2)
        if self._kept and (self._kept_bytes + size > most_bytes or self.room.is_short):
            return False
        self._kept[job_id] = now_ns + KEEP_NS, size
        self._kept_bytes += size
        return True

    def _keep_no_longer(self, job_id: int) -> None:
        if job_id in self._kept:
            self._kept_bytes -= self._kept.pop(job_id)[1]

    def read_ahead(self, tube: Tube, taken: Job) -> None:
        """A worker takes a job from a tube: read those that come next, once half of those that were
        looked at is taken, or at once if this one was not read in time.
        """
        self._takes += 1
        if taken.body is not None:
            self._given.append(taken.job_id)
        is_late = taken.body is None and taken.job_id not in self._reading
        if tube.until_look > 1 and not is_late:
            tube.until_look -= 1
            return
        self.look_ahead(tube)

    def look_ahead(self, tube: Tube) -> None:
        if not tube.ready.count or self.is_starved or self.room.is_short:
            # Somebody waits for its first job, as clients do with tubes for replies to themselves;
            # or memory is wanted for what clients wait for.
            return
        tubes = max(AHEAD_TUBES, self._note_look(tube))
        jobs = max(2, AHEAD_JOBS * AHEAD_TUBES // tubes)
        tube.until_look = jobs // 2
        left = min(self.most_bytes * AHEAD_TUBES // (AHEAD_SHARE * tubes), AHEAD_BYTES)
        asked: list[tuple[BodyPlace, int]] = []
        for at, job_id in enumerate(tube.ready.first_ids(jobs), start=1):
            place = self._jobs.place(job_id)
            if place is None or self._failed.of(job_id, place) is not None:
                continue
            left -= self._jobs.weigh(job_id)[0]
            if left < 0:
                # So large that they are taken before it is time to look.
                tube.until_look = max(1, min(tube.until_look, at // 2))
                break
            if self._is_new(job_id, place, is_wanted=False, is_kept=True):
                asked.append((place, job_id))
        if asked:
            assert self._ask is not None
            self._ask(asked, False)

    def _note_look(self, tube: Tube) -> int:
        """:return: of how many tubes jobs are read ahead, this one among them."""
        looks = self._looks
        looks.pop(tube.tube_id, None)
        looks[tube.tube_id] = self._takes
        while looks[oldest := next(iter(looks))] < self._takes - IN_USE_TAKES:
            del looks[oldest]
        return len(looks)

    def is_reading(self, segment: int) -> bool:
        return any(place.segment == segment for place in self._reading.values())

    def is_unreadable(self, job_id: int, now_ns: int) -> bool:
        """Whether the body of a job cannot be read, as far as is known: it is lost, or the last
        read has failed, and the job is left alone yet.
        """
        failed = self._failed_read(job_id)
        return failed is not None and failed.is_left_alone(now_ns)

    def is_lost(self, job_id: int) -> bool:
        failed = self._failed_read(job_id)
        return failed is not None and failed.is_lost

    def has_failed(self, job_id: int) -> bool:
        """Whether the last read of a body that is in the log only has failed."""
        return self._failed_read(job_id) is not None

    def _failed_read(self, job_id: int) -> Failed | None:
        return self._failed.of(job_id, self._jobs.place(job_id)) if self._failed else None

    def arrived(self, job_id: int, body: bytes | Unread, now_ns: int) -> None:
        """A read has ended, with the body or what came in its place."""
        self._arrived.append((job_id, body, now_ns))
        if self._is_telling:
            # Where reads end at once: one that began because another one has ended.
            return
        self._is_telling = True
        try:
            while self._arrived:
                self._take_up(*self._arrived.popleft())
        finally:
            self._is_telling = False

    def _take_up(self, job_id: int, body: bytes | Unread, now_ns: int) -> None:
        asked, place = self._reading.pop(job_id), self._jobs.place(job_id)
        is_wanted, is_kept = job_id not in self._ahead, job_id not in self._only_seen
        self._ahead.discard(job_id)
        self._only_seen.discard(job_id)
        if place is not None and place != asked:
            # It was stated again elsewhere meanwhile.
            self._begin(job_id, place, is_wanted=is_wanted, is_kept=is_kept)
            return
        if place is not None and isinstance(body, Unread):
            self._not_read(job_id, place, body, now_ns)
        elif place is not None and isinstance(body, bytes):
            self.read += 1
            self._failed.forget(job_id)
            if is_kept:
                self._jobs.load_body(job_id, body)
                self._settled.appendleft(job_id)
        if place is None or isinstance(body, Unread):
            self._keep_no_longer(job_id)
        for see in self._sees.pop(job_id, ()):
            see(None if place is None else body)
        for call in self._calls.pop(job_id, ()):
            call(now_ns)
        if place is not None and job_id not in self._kept:
            self.dropped += self._jobs.drop_reserved(job_id, place)

    def _not_read(self, job_id: int, place: BodyPlace, unread: Unread, now_ns: int) -> None:
        failed, is_news = self._failed.note(job_id, place, unread, self.read, now_ns)
        if not failed.is_lost:
            self.tell_failed(job_id, failed.until_ns, now_ns)
            return
        if is_news:
            self.lost += 1
            self.say_lost(job_id, unread.why)
        self.tell_lost(job_id, now_ns)

    def _begin(
        self, job_id: int, place: BodyPlace, *, is_wanted: bool, is_kept: bool = True
    ) -> None:  # fmt: skip
        """:param is_kept: whether the body is to be in memory then."""
        assert self._ask is not None
        if self._is_new(job_id, place, is_wanted=is_wanted, is_kept=is_kept):
            self._ask([(place, job_id)], is_wanted)
        elif is_wanted and job_id in self._ahead:
            # Where it was when that began: if it is elsewhere by now, it is read anew behind that.
            self._ahead.discard(job_id)
            self._ask([(self._reading[job_id], job_id)], True)

    def _is_new(self, job_id: int, place: BodyPlace, *, is_wanted: bool, is_kept: bool) -> bool:
        if is_kept:
            self._only_seen.discard(job_id)
        if job_id in self._reading:
            return False
        self._reading[job_id] = place
        if not is_kept:
            self._only_seen.add(job_id)
        if not is_wanted:
            self._ahead.add(job_id)
        return True
