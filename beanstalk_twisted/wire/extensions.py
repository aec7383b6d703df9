"""
The commands that beanstalkd does not have, and their replies (docs/extensions.md).

They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.replies import Line, Word


def _row(word: bytes, fields: Sequence[Field] = (), *, operation: str = "") -> Command:
    prefix = word + b" " if fields else word
    return Command(prefix, fields, operation=operation, is_whole_word=True, is_counted=False)


FLUSHED_STATE: Final = Field(
    "state", rb"(?: (ready|delayed|buried|all))?+", lambda text: text or b"all", is_optional=True
)

_FLUSH_FIELDS: Final = (grammar.TUBE_THEN, FLUSHED_STATE)

EXTENSIONS: Final = (
    _row(b"capabilities"),
    _row(b"flush-tube", _FLUSH_FIELDS),
    _row(b"truncate", _FLUSH_FIELDS, operation="flush-tube"),
    _row(b"drain"),
    _row(b"undrain"),
)

NOT_DRAINING: Final = Word(b"NOT_DRAINING")


class Flushed(Line):
    """
    So many jobs were flushed.
    """

    __slots__ = ()
    template = b"FLUSHED %d\r\n"
