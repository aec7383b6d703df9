"""Jobs that are put together, for a moment of the wall clock, or with tags."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import RememberedKey
from beanstalk_twisted.binlog.space_budget import whole_bytes
from beanstalk_twisted.binlog.tags import BATCH_KEYS, EXTENSIONS, Tags
from beanstalk_twisted.jobs.figures import HOT_JOB_BYTES, KEY_BYTES, data_memory_bytes
from beanstalk_twisted.jobs.job import NS, READY
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.puts import Puts, Waiting
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import Part, Timekeeping
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    DRAINING,
    Inserted,
    InsertedBatch,
    InsertedDuplicate,
)
from beanstalk_twisted.wire.tags import BatchKey, PutTags

MAX_AHEAD_S: Final = (1 << 32) - 1
"""How far ahead a moment may be, seconds: as the longest delay."""

SOON_JOBS: Final = 200
"""Jobs that are put in the turn in which the last of them has come; with more, to read them, to put
them and to write the log's frame are three turns, of 5 to 15 ms for 1,000 jobs.
"""

SOON_BYTES: Final = 4 << 20
"""Bytes that they take in the log likewise: to write the frame of 16 MiB takes some 20 ms."""

CollectedJob = tuple[int, int, int, PutTags | None, bytes]
"""A job that has wholly come, as `put_batch` is given it: priority, delay or moment in
seconds, TTR in seconds, tags and body.
"""


class NewJob(NamedTuple):
    """A job that has wholly come.

    :ivar begun_ns: when its line came, or that of its batch.
    :ivar deadline_ns: when it is ready; 0: ``delay_s`` after it was put.
    :ivar tags: None if it has none.
    """

    begun_ns: int
    priority: int
    delay_s: int
    deadline_ns: int
    ttr_s: int
    tags: Tags | None
    body: bytes

    @property
    def data_bytes(self) -> int:
        """What its record takes beside the record itself."""
        return len(self.body) + (0 if self.tags is None else self.tags.encoded_bytes)

    @property
    def memory_bytes(self) -> int:
        return HOT_JOB_BYTES + data_memory_bytes(len(self.body), self.tags)


class PutBatches(Part):
    """Takes new jobs as a whole: they are logged so, and none is handed out before all are there.
    Their ids follow each other, and are given when they are put.

    :ivar wall_offset_ns: says the wall clock minus the queue's time.
    """

    def __init__(self, timekeeping: Timekeeping, puts: Puts) -> None:
        super().__init__(timekeeping)
        self.wall_offset_ns: Callable[[], int] = lambda: 0
        self._puts = puts

    def put_tagged(
        self, session: Session, now_ns: int, begun_ns: int, priority: int, delay_s: int,
        ttr_s: int, tags: PutTags | None, body: bytes,
    ) -> Answer | None:  # fmt: skip
        job = NewJob(begun_ns, priority, delay_s, 0, ttr_s, _stored(tags), body)
        return self._put(session, now_ns, [job], is_batch=False)

    def put_at(
        self, session: Session, now_ns: int, begun_ns: int, priority: int, at_s: int, ttr_s: int,
        tags: PutTags | None, body: bytes,
    ) -> Answer | None:  # fmt: skip
        """:param at_s: when the job is ready: seconds since the epoch."""
        deadline_ns = at_s * NS - self.wall_offset_ns()
        delay_s = max(0, -((now_ns - deadline_ns) // NS))
        if delay_s > MAX_AHEAD_S:
            return BAD_FORMAT, 0
        job = NewJob(begun_ns, priority, delay_s, deadline_ns, ttr_s, _stored(tags), body)
        return self._put(session, now_ns, [job], is_batch=False)

    def put_batch(
        self, session: Session, now_ns: int, begun_ns: int, jobs: Sequence[CollectedJob],
        key: BatchKey | None = None,
    ) -> Answer | None:  # fmt: skip
        """All jobs of a batch, at least one, have come: all of them are put, or none.

        :param begun_ns: when its line came.
        :param key: of the batch; then no job has a unique key of its own.
        """
        if key is not None and any([tags is not None and tags.unique_key for *_, tags, _ in jobs]):
            return BAD_FORMAT, 0
        new_jobs = [
            NewJob(begun_ns, priority, delay_s, 0, ttr_s, _stored(tags), body)
            for priority, delay_s, ttr_s, tags, body in jobs
        ]
        return self._put(session, now_ns, new_jobs, is_batch=True, key=key)

    def _put(
        self, session: Session, now_ns: int, jobs: Sequence[NewJob], *, is_batch: bool,
        key: BatchKey | None = None,
    ) -> Answer | None:  # fmt: skip
        if self._puts.is_draining:
            return DRAINING, 0
        if not session.is_producer:
            self._puts.note_producer(session)
        data = sum([job.data_bytes for job in jobs])
        growth = sum([job.memory_bytes for job in jobs])
        features, records = _features(jobs), len(jobs)
        if key is not None:
            data, growth, records = data + len(key.key), growth + KEY_BYTES, records + 1
            features |= EXTENSIONS | BATCH_KEYS
        size = whole_bytes(records, data)
        # Compiled, a function in here would be part of a cycle that keeps the bodies for a while.
        if key is None:
            take = partial(self._take_any, session, jobs, size, features, is_batch)
        else:
            take = partial(self._take_with_key, session, jobs, size, features, key)
        if self._are_known(session.using, jobs, key, now_ns):
            return take(now_ns)  # Nothing is written: no room is needed.
        waiting = Waiting(session, len(jobs), size, growth, take, features)
        if len(jobs) <= SOON_JOBS and size <= SOON_BYTES:
            return self._puts.put_together(waiting, now_ns)
        self._puts.put_soon(waiting)
        return None

    def _are_known(
        self, tube: Tube, jobs: Sequence[NewJob], key: BatchKey | None, now_ns: int
    ) -> bool:
        """Whether all of them were put before, by what their keys say."""
        unique = self._state.unique
        if key is not None:
            return bool(unique.holders(tube.tube_id, key.key, now_ns))
        for job in jobs:
            own = b"" if job.tags is None else job.tags.unique_key
            if not own or unique.holder(tube.tube_id, own, now_ns) is None:
                return False
        return True

    def _take_any(
        self, session: Session, jobs: Sequence[NewJob], size: int, features: int, is_batch: bool,
        now_ns: int,
    ) -> Answer:  # fmt: skip
        if features:
            return self._take_tagged(session, now_ns, jobs, size, features, is_batch=is_batch)
        refusal = self._puts.refusal(session, now_ns, [len(job.body) for job in jobs])
        if refusal is not None:
            return refusal
        ids, lsn = self._take(session, now_ns, jobs, size)
        return (InsertedBatch(ids) if is_batch else Inserted(ids[0])), lsn

    def _take(
        self, session: Session, now_ns: int, jobs: Sequence[NewJob], size: int,
        key: BatchKey | None = None,
    ) -> tuple[range, int]:  # fmt: skip
        tube, first_id = session.using, self._state.next_job_id
        record = None
        if key is not None:
            until_ns = now_ns + key.seconds * NS
            record = RememberedKey(tube.tube_id, key.key, first_id, until_ns, now_ns, len(jobs))
            first_id += 1
        if session.quota is not None:
            session.quota.spend(len(jobs))
        images = [
            _image(job, job_id, tube.tube_id, session.number, now_ns)
            for job_id, job in enumerate(jobs, start=first_id)
        ]
        images = self._state.groups.held(images)
        self._state.next_job_id = first_id + len(jobs)
        lsn = self._changes.put_whole(tube, images, size, now_ns, record)
        self._tally.total_jobs += len(jobs)
        tube.total_jobs += len(jobs)
        self._timekeeping.settle(tube, now_ns)
        return range(first_id, first_id + len(jobs)), lsn

    def _take_with_key(
        self, session: Session, jobs: Sequence[NewJob], size: int, features: int, key: BatchKey,
        now_ns: int,
    ) -> Answer:  # fmt: skip
        """As `_take_any`, of a batch that may have been put before."""
        tube = session.using
        found = self._state.unique.holders(tube.tube_id, key.key, now_ns)
        if found:
            if self._state.times is not None:
                self._state.times.of(tube).duplicates += len(jobs)
            states = [self._state_of(job_id) for job_id in found]
            return InsertedBatch(found, states), self._changes.committed_lsn
        refusal = self._puts.refusal(session, now_ns, [len(job.body) for job in jobs])
        if refusal is not None:
            return refusal
        if not self._takes_tags(session, jobs, features, now_ns, keys=1):
            return NO_ROOM
        ids, lsn = self._take(session, now_ns, jobs, size, key)
        return InsertedBatch(ids), lsn

    def _state_of(self, job_id: int) -> bytes:
        job = self._state.jobs.look(job_id)
        return b"DELETED" if job is None else job.state.name.encode()

    def _take_tagged(
        self, session: Session, now_ns: int, jobs: Sequence[NewJob], size: int, features: int, *,
        is_batch: bool,
    ) -> Answer:  # fmt: skip
        """As `_take_any`, of jobs some of which have tags, so that some may be there already."""
        ids, new_jobs = self._ids(session.using, jobs, now_ns)
        refusal = self._puts.refusal(session, now_ns, [len(job.body) for job in new_jobs])
        if refusal is not None:
            return refusal
        if not self._takes_tags(session, new_jobs, features, now_ns):
            return NO_ROOM
        if self._state.times is not None and len(new_jobs) < len(jobs):
            self._state.times.of(session.using).duplicates += len(jobs) - len(new_jobs)
        next_id, lsn = self._state.next_job_id, self._changes.committed_lsn
        if new_jobs:
            _, lsn = self._take(session, now_ns, new_jobs, size)
        states: list[bytes | None] = []
        for job_id in ids:
            if job_id == next_id:
                next_id += 1
                states.append(None)
            else:
                states.append(self._state_of(job_id))
        if is_batch:
            return InsertedBatch(ids, states), lsn
        if states[0] is None:
            return Inserted(ids[0]), lsn
        return InsertedDuplicate(ids[0], states[0]), lsn

    def _ids(
        self, tube: Tube, jobs: Sequence[NewJob], now_ns: int
    ) -> tuple[list[int], list[NewJob]]:
        """:return: the ids that these jobs will have, or who has their keys, and the new jobs."""
        ids, new_jobs = list[int](), list[NewJob]()
        here: dict[bytes, int] = {}
        for job in jobs:
            key = b"" if job.tags is None else job.tags.unique_key
            holder = here.get(key) or self._state.unique.holder(tube.tube_id, key, now_ns)
            if holder is None:
                holder = self._state.next_job_id + len(new_jobs)
                new_jobs.append(job)
                if key:
                    here[key] = holder
            ids.append(holder)
        return ids, new_jobs

    def _takes_tags(
        self, session: Session, jobs: Sequence[NewJob], features: int, now_ns: int, *, keys: int = 0
    ) -> bool:
        """Whether there is room for what these jobs have beside their bodies.

        :param features: the incompat bits that their records need.
        :param keys: of the batch.
        """
        keys += sum([job.tags is not None and bool(job.tags.unique_key) for job in jobs])
        if len(self._state.unique) + keys > self._state.unique.most:
            return False
        quota = session.quota
        if quota is not None and keys and quota.keys + keys > quota.limits.keys:
            quota.refuses(session.number, "keys")
            return False
        return self._changes.allows(features, now_ns)


def _stored(tags: PutTags | None) -> Tags | None:
    return None if tags is None else Tags(*tags)


def _features(jobs: Sequence[NewJob]) -> int:
    """Return the incompat bits that their records need."""
    features = 0
    for job in jobs:
        if job.tags is not None:
            features |= job.tags.features
    return features


def _image(job: NewJob, job_id: int, tube_id: int, connection: int, now_ns: int) -> JobImage:
    deadline_ns = job.deadline_ns or now_ns + job.delay_s * NS
    is_delayed = deadline_ns > now_ns
    return JobImage(
        Kind.PUT, State.DELAYED if is_delayed else READY, Reason.CLIENT, job.priority, job_id,
        job.begun_ns, deadline_ns if is_delayed else 0, job.delay_s, job.ttr_s, tube_id,
        connection=connection, body=job.body, tags=job.tags,
    )  # fmt: skip
