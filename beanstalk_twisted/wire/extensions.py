"""
The commands that beanstalkd does not have, and their replies (docs/extensions.md).

They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.grammar import BATCH_COUNT, BYTES, PRIORITY, TTR, UNIX_SECONDS, Field
from beanstalk_twisted.wire.replies import Reply, Word


def _row(word: bytes, fields: Sequence[Field] = (), *, has_jobs: bool = False) -> Command:
    prefix = word + b" " if fields else word
    return Command(prefix, fields, has_jobs=has_jobs, is_whole_word=True, is_counted=False)


EXTENSIONS: Final = (
    _row(b"capabilities"),
    _row(b"put-at", (PRIORITY, UNIX_SECONDS, TTR, BYTES), has_jobs=True),
    _row(b"put-batch", (BATCH_COUNT,), has_jobs=True),
    _row(b"drain"),
    _row(b"undrain"),
)

NOT_DRAINING: Final = Word(b"NOT_DRAINING")


class InsertedBatch(Reply):
    """
    The jobs of a batch were put: the first one's id, the others' follow, and how many.
    """

    __slots__ = ("count", "first_id")

    def __init__(self, first_id: int, count: int) -> None:
        self.first_id = first_id
        self.count = count

    def encode(self) -> bytes:
        """
        :return: the reply's bytes, its CR LF included.
        """
        ids = range(self.first_id, self.first_id + self.count)
        return b"INSERTED_BATCH %d\r\n" % self.count + b"".join(
            [b"INSERTED %d\r\n" % job_id for job_id in ids]
        )

    def fields(self) -> tuple[object, ...]:
        """
        What it says, in the order of its class's arguments.
        """
        return self.first_id, self.count
