"""How much memory bodies may take on their way to clients: those that are being read back, those of
a `reserve-batch` that is not complete, and replies that a client has not read yet.

They have a part of their own, beside what jobs may take (`--max-memory`).  A body of up to
`OWN_BYTES` never waits for it, since a connection has one command at a time: this much memory is
part of what a connection costs.  A larger body waits, and a batch ends with fewer jobs.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.jobs.job import NS

ANY_BYTES: Final = 1 << 62
"""More bytes than any memory has."""

OWN_BYTES: Final = 1 << 20
"""What each connection may have on its way, whatever others have."""

SHARE: Final = 4
"""The part of `--max-memory` that all of them may have together is one in this number."""

BATCH_SHARE: Final = 2
"""The part of what is left that one batch may take, so that there is always some left."""

PAUSES_S: Final = (4, 8, 8, 8, 8, 8, 8)
"""Seconds for which a job is left alone whose body cannot be read, by how often that was so; behind
the last pause its body is lost.  Before the first one it was tried three times within 3 s
(`storage.body_reads`): ten tries in a minute, more than a disk needs that was away for a moment,
and no longer than others can wait to hear of a bad sector.
"""

MAX_FAILED: Final = 10_000
"""Jobs of which this is known: 3 MB.  Of more, the first ones are read as if nothing was known."""


class BodyRoom:
    """Says how many bytes of bodies may be on their way.

    :ivar taken_bytes: those that are; ``promised_bytes`` those of batches, to be read yet, and
        ``most_bytes`` those that may be.
    :ivar over_bytes: says by how many bytes jobs take more memory than they may; 0 if they do not.
    :ivar has_memory: says whether the process can have this many bytes.
    """

    def __init__(self) -> None:
        self.most_bytes = ANY_BYTES
        self.taken_bytes = self.promised_bytes = 0
        self.over_bytes: Callable[[], int] = lambda: 0
        self.has_memory: Callable[[int], bool] = lambda size: True

    def limit(self, memory_bytes: int, over_bytes: Callable[[], int]) -> None:
        """:param memory_bytes: what jobs may take."""
        self.most_bytes, self.over_bytes = memory_bytes // SHARE, over_bytes

    @property
    def is_short(self) -> bool:
        """Whether jobs take all the memory that they may."""
        return self.over_bytes() > 0

    @property
    def left_bytes(self) -> int:
        """The bytes that may be taken yet; negative if too many are."""
        return self.most_bytes - self.taken_bytes - self.over_bytes()

    @property
    def batch_bytes(self) -> int:
        """The bytes of bodies that the next batch may have."""
        return max(OWN_BYTES, (self.left_bytes - self.promised_bytes) // BATCH_SHARE)

    def takes(self, size: int) -> bool:
        """Whether a body may be read now.  When nothing is on its way each may be, so that the
        largest one comes through.
        """
        return size <= OWN_BYTES or not self.taken_bytes or size <= self.left_bytes


class Unread(NamedTuple):
    """What a read has brought in place of a body.

    :ivar is_lost: whether the body is: something was read, and is not it; or it was tried for long
        enough.  Otherwise the read has failed.
    :ivar until_ns: the job is to be left alone until then; 0 to go by `PAUSES_S`.
    """

    why: str
    is_lost: bool
    until_ns: int = 0


class Failed(NamedTuple):
    """A body that could not be read.

    :ivar pauses: how many are over; ``until_ns`` when this one is.
    :ivar read: how many bodies of others had been read when the first read failed.
    :ivar is_lost: whether it is given up.
    """

    place: BodyPlace
    pauses: int
    until_ns: int
    read: int
    is_lost: bool

    def is_left_alone(self, now_ns: int) -> bool:
        """Whether nobody but who asks for this very job is to have it read."""
        return self.is_lost or now_ns < self.until_ns


class FailedReads:
    """Remembers them by their jobs, until they are read or stand elsewhere."""

    def __init__(self) -> None:
        self._jobs: dict[int, Failed] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, job_id: int, place: BodyPlace | None) -> Failed | None:
        """:param place: where the job's body is now; None if it is in memory."""
        failed = self._jobs.get(job_id)
        return failed if failed is not None and failed.place == place else None

    def forget(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)

    def note(
        self, job_id: int, place: BodyPlace, unread: Unread, read: int, now_ns: int
    ) -> tuple[Failed, bool]:
        """A read has failed, or has brought something else.

        :param read: how many bodies of others have been read.
        :return: what is known now, and whether the body is lost only now.
        """
        old = self.of(job_id, place)
        new = _after(old, place, unread, read, now_ns)
        self._jobs.pop(job_id, None)
        if len(self._jobs) >= MAX_FAILED:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[job_id] = new
        return new, new.is_lost and (old is None or not old.is_lost)


def _after(old: Failed | None, place: BodyPlace, unread: Unread, read: int, now_ns: int) -> Failed:
    if unread.is_lost or (old is not None and old.is_lost):
        return Failed(place, 0, 0, read, is_lost=True)
    if unread.until_ns:
        return Failed(place, 0, unread.until_ns, read, is_lost=False)
    if old is None:
        return Failed(place, 0, now_ns + PAUSES_S[0] * NS, read, is_lost=False)
    if now_ns < old.until_ns:
        # Somebody has asked for this very job.
        return old
    pauses = min(old.pauses + 1, len(PAUSES_S))
    if pauses == len(PAUSES_S) and read > old.read:
        return old._replace(is_lost=True)
    pause_s = PAUSES_S[min(pauses, len(PAUSES_S) - 1)]
    return old._replace(pauses=pauses, until_ns=now_ns + pause_s * NS)
