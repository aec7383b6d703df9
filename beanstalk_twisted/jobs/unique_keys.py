"""Unique keys: while a job of a tube has a key, or after its deletion as long as was asked for, no
other job of the tube may have it.  The key of a batch is remembered from its put on.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.others import RememberedKey
from beanstalk_twisted.jobs.figures import LiveBytes
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK, OrderedJobs
from beanstalk_twisted.jobs.tube import Tube, TubeList

MAX_KEYS: Final = 1_000_000
"""Keys, of living jobs and remembered ones, unless it is said otherwise: a remembered one of 20
bytes takes some 600 bytes of memory.
"""

Key = tuple[int, bytes]
"""A tube's id, and a key in it."""


class Remembered(NamedTuple):
    """A key of a deleted job, or of a batch.

    :ivar segment: the log segment that says so, 0 without a log.
    """

    record: RememberedKey
    segment: int


class UniqueKeys:
    """All keys that are taken.  Each call costs the same however many there are, but for the order
    in which remembered keys come to their end.

    :ivar most: how many there may be.
    :ivar lasting: how many living jobs have a key that will be remembered.
    :ivar remembered: how many keys outlive their jobs; ``batches`` how many are those of batches.
    """

    def __init__(self, tubes: TubeList, live: LiveBytes) -> None:
        self.most = MAX_KEYS
        self.lasting = self.batches = self.remembered = 0
        self._tubes = tubes
        self._live = live
        self._living: dict[Key, int] = {}
        self._remembered: dict[int, dict[bytes, Remembered]] = {}
        self._of_jobs: dict[int, Key] = {}
        self._ends = OrderedJobs()

    def __len__(self) -> int:
        return len(self._living) + len(self._of_jobs)

    def holder(self, tube_id: int, key: bytes, now_ns: int) -> int | None:
        """:return: the id of the job that has the key or had it, of a batch that of its first one;
        None if it is free.
        """
        ids = self.holders(tube_id, key, now_ns)
        return ids[0] if ids else None

    def holders(self, tube_id: int, key: bytes, now_ns: int) -> range:
        """:return: the ids of the jobs that have the key or had it; empty if it is free."""
        job_id = self._living.get((tube_id, key))
        if job_id is not None:
            return range(job_id, job_id + 1)
        found = self.find(tube_id, key)
        is_taken = found is not None and found.record.until_ns > now_ns
        return found.record.ids if found is not None and is_taken else range(0)

    def find(self, tube_id: int, key: bytes) -> Remembered | None:
        """What is remembered of a key, even if its time is up."""
        keys = self._remembered.get(tube_id)
        return None if keys is None else keys.get(key)

    def of_tube(self, tube_id: int, end_id: int, most: int) -> list[Remembered]:
        """Remembered keys of a tube whose jobs have ids below ``end_id``: those among the first
        ``most``, in the order in which they came to be remembered.
        """
        keys = islice(self._remembered.get(tube_id, {}).values(), most)
        return [found for found in keys if found.record.job_id < end_id]

    def enter(self, job: Job) -> None:
        """A job is there.  A dead letter leaves its key to others."""
        tags = job.tags
        if tags is not None and tags.holds_key:
            tube = self._tubes.by_id(job.tube_id)
            if tube.remembered:
                found = self.find(job.tube_id, tags.unique_key)
                if found is not None:
                    self.forget(found)
            self._living[job.tube_id, tags.unique_key] = job.job_id
            tube.keys += 1
            if tube.quotas is not None:
                tube.count_keys_for_quotas(1)
            self.lasting += tags.leaves_key

    def leave(self, job: Job) -> None:
        """A job is gone, or is about to enter another tube."""
        tags = job.tags
        if tags is not None and tags.holds_key:
            del self._living[job.tube_id, tags.unique_key]
            tube = self._tubes.by_id(job.tube_id)
            tube.keys -= 1
            if tube.quotas is not None:
                tube.count_keys_for_quotas(-1)
            self.lasting -= tags.leaves_key

    def remember(self, record: RememberedKey, segment: int) -> None:
        """A key outlives its job, unless another one has it by now."""
        place = record.tube_id, record.key
        found = self.find(record.tube_id, record.key)
        if found is not None:
            self.forget(found)
        if place not in self._living:
            keys = self._remembered.setdefault(record.tube_id, {})
            keys[record.key] = Remembered(record, segment)
            self._of_jobs[record.job_id] = place
            self.remembered += 1
            self.batches += bool(record.jobs)
            self._ends.add(record.until_ns, record.job_id)
            tube = self._tubes.by_id(record.tube_id)
            tube.remembered += 1
            tube.keys += 1
            tube.count_keys_for_quotas(1)
            self._live.enter(segment, len(record.key))

    def of_job(self, job_id: int) -> Remembered | None:
        place = self._of_jobs.get(job_id)
        return None if place is None else self.find(*place)

    def move_home(self, job_id: int, segment: int) -> None:
        """A remembered key, if the job has left one, is now in another log segment."""
        found = self.of_job(job_id)
        if found is not None:
            record = found.record
            self._live.leave(found.segment, len(record.key))
            self._remembered[record.tube_id][record.key] = Remembered(record, segment)
            self._live.enter(segment, len(record.key))

    def first_end_ns(self) -> int | None:
        first = self._ends.first()
        return None if first is None else first >> 64

    def ends_by(self, now_ns: int) -> bool:
        first = self._ends.first()
        return first is not None and first >> 64 <= now_ns

    def end(self, now_ns: int, most: int) -> Iterator[Tube]:
        """Forget up to ``most`` keys whose time is up."""
        for _ in range(most):
            first = self._ends.first()
            if first is None or first >> 64 > now_ns:
                return
            found = self.of_job(first & ID_MASK)
            assert found is not None
            self.forget(found)
            yield self._tubes.by_id(found.record.tube_id)

    def forget(self, found: Remembered) -> None:
        record = found.record
        keys = self._remembered[record.tube_id]
        del keys[record.key]
        if not keys:
            del self._remembered[record.tube_id]
        del self._of_jobs[record.job_id]
        self.remembered -= 1
        self.batches -= bool(record.jobs)
        self._ends.discard(record.until_ns, record.job_id)
        tube = self._tubes.by_id(record.tube_id)
        tube.remembered -= 1
        tube.keys -= 1
        tube.count_keys_for_quotas(-1)
        self._live.leave(found.segment, len(record.key))
