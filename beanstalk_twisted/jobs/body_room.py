"""
How much memory bodies may take on their way to clients: those that are being read back, those of a
`reserve-batch` that is not complete, and replies that a client has not read yet.

They have a part of their own, beside what jobs may take (`--max-memory`).  A body of up to
`OWN_BYTES` never waits for it, since a connection has one command at a time: this much memory is
part of what a connection costs.  A larger body waits, and a batch ends with fewer jobs.
"""

from collections.abc import Callable
from typing import Final

ANY_BYTES: Final = 1 << 62
"""More bytes than any memory has."""

OWN_BYTES: Final = 1 << 20
"""What each connection may have on its way, whatever others have."""

SHARE: Final = 4
"""The part of `--max-memory` that all of them may have together is one in this number."""

BATCH_SHARE: Final = 2
"""The part of what is left that one batch may take, so that there is always some left."""


class BodyRoom:
    """
    Says how many bytes of bodies may be on their way.

    :ivar most_bytes: the bytes that may be on their way together.
    :ivar taken_bytes: the bytes that are; ``promised_bytes`` those of batches, to be read yet.
    :ivar over_bytes: says by how many bytes jobs take more memory than they may; 0 if they do not.
    :ivar has_memory: says whether the process can have this many bytes.
    """

    def __init__(self) -> None:
        self.most_bytes = ANY_BYTES
        self.taken_bytes = self.promised_bytes = 0
        self.over_bytes: Callable[[], int] = _none
        self.has_memory: Callable[[int], bool] = _always

    def limit(self, memory_bytes: int, over_bytes: Callable[[], int]) -> None:
        """
        Set the limit.

        :param memory_bytes: what jobs may take.
        """
        self.most_bytes, self.over_bytes = memory_bytes // SHARE, over_bytes

    @property
    def is_short(self) -> bool:
        """Whether jobs take all the memory that they may take."""
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
        """
        Whether a body may be read now.  When nothing is on its way each may be, so that the largest
        one comes through.
        """
        return size <= OWN_BYTES or not self.taken_bytes or size <= self.left_bytes


def _none() -> int:
    return 0


def _always(size: int) -> bool:
    return True
