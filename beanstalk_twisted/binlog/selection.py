"""
Which records of a log say how its jobs are now, chosen newest-first.

The newest record of a job says all but its body, which is in its newest full record: so dead jobs
and old states are never decoded.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.frames import Buffer, Frame
from beanstalk_twisted.binlog.records import FULL, JOB_KINDS, Kind
from beanstalk_twisted.binlog.survey import Segment


class Place(NamedTuple):
    """
    A frame with full records of surviving jobs.

    :ivar home: the segment that holds them, once what is not durable has moved.
    """

    segment: Segment
    frame: Frame
    home: int


Found = tuple[int, int, Place, bytes | None]
"""
A surviving job: its id, where its full record is in which frame, and the bytes of its newest record
if that is another one.  A plain tuple, since there may be millions.
"""


class Pick(NamedTuple):
    """
    Full records of one frame that nothing newer is known of.

    :ivar indexes: ascending, at least one; ``job_ids`` likewise.
    """

    buffer: Buffer
    place: Place
    indexes: Sequence[int]
    job_ids: Sequence[int]

    def is_beside(self, other: "Pick") -> bool:
        """
        Whether both are of one segment, and will be.
        """
        return self.buffer is other.buffer and self.place.home == other.place.home

    def found(self) -> Iterator[Found]:
        """
        Each by itself.
        """
        return zip(self.job_ids, self.indexes, repeat(self.place), repeat(None))


_FULL_KINDS: Final = bytes(sorted(FULL))
_DELETE: Final = int(Kind.DELETE)


class Selection:
    """
    What has been met of each job; frames are shown to it newest-first.

    :ivar changed: the surviving jobs whose newest record is not their full one.
    """

    def __init__(self) -> None:
        self.changed: list[Found] = []
        self._finished: set[int] = set()
        self._newest: dict[int, bytes] = {}

    @property
    def without_body(self) -> Collection[int]:
        """
        The jobs that have state, but no full record yet.
        """
        return self._newest

    def pick(self, buffer: Buffer, place: Place) -> tuple[Sequence[int], Sequence[int]]:
        """
        Look at a frame: the first record met of a job is its state, the first full one its body.

        :return: the full records that nothing newer is known of, ascending, and their jobs.
        """
        job_ids = frames.ids_if_all(buffer, place.frame, _FULL_KINDS)
        if job_ids is None or len(different := set(job_ids)) < len(job_ids):
            return self._pick_each(buffer, place)
        fresh = different.difference(self._finished)
        self._finished |= fresh
        changed = set(filter(self._newest.__contains__, fresh)) if self._newest else set[int]()
        if len(fresh) == len(job_ids) and not changed:
            return range(len(job_ids)), job_ids
        for index, job_id in enumerate(job_ids):
            if job_id in changed:
                self.changed.append((job_id, index, place, self._newest.pop(job_id)))
        fresh -= changed
        indexes = [index for index, job_id in enumerate(job_ids) if job_id in fresh]
        return indexes, [job_ids[index] for index in indexes]

    def _pick_each(
        self, buffer: Buffer, place: Place
    ) -> tuple[Sequence[int], Sequence[int]]:  # fmt: skip
        finished, newest = self._finished, self._newest
        indexes: list[int] = []
        job_ids: list[int] = []
        kinds = list(frames.kinds_and_ids(buffer, place.frame))
        for index in range(len(kinds) - 1, -1, -1):
            kind, job_id = kinds[index]
            if kind not in JOB_KINDS or job_id in finished:
                continue
            if kind in FULL:
                finished.add(job_id)
                if job_id in newest:
                    self.changed.append((job_id, index, place, newest.pop(job_id)))
                else:
                    indexes.append(index)
                    job_ids.append(job_id)
            elif kind == _DELETE:
                finished.add(job_id)
            elif job_id not in newest:
                newest[job_id] = frames.record_bytes(buffer, place.frame, index)
        return indexes[::-1], job_ids[::-1]
