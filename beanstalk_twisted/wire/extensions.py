"""
The commands that beanstalkd does not have, and their replies (docs/extensions.md).

They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.grammar import JOB_ID, SECONDS, Field
from beanstalk_twisted.wire.replies import Word


def _row(word: bytes, fields: Sequence[Field] = (), *, ends_wait: bool = False) -> Command:
    prefix = word + b" " if fields else word
    return Command(prefix, fields, is_whole_word=True, is_counted=False, ends_wait=ends_wait)


EXTENSIONS: Final = (
    _row(b"capabilities"),
    _row(b"wait-job", (JOB_ID, SECONDS)),
    _row(b"cancel-reserve", ends_wait=True),
    _row(b"drain"),
    _row(b"undrain"),
)

CANCELLED: Final = Word(b"CANCELLED")
NOT_DRAINING: Final = Word(b"NOT_DRAINING")
