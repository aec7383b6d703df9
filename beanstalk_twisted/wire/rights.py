"""Rights: what a command needs, and of which tubes; a column of the tables of commands."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME

_PATTERN: Final = re.compile(rb"[A-Za-z0-9+/;.$_()*][A-Za-z0-9\-+/;.$_()*]*")


class BadPattern(ValueError):
    """Not a pattern of tube names, or one too many."""


def check_pattern(pattern: str) -> None:
    """:raise BadPattern: no name of a tube can match it, or it is too long."""
    text = pattern.encode()
    if len(text) > MAX_TUBE_NAME or not _PATTERN.fullmatch(text):
        raise BadPattern(f"{pattern!r} is neither the name of a tube nor a pattern of such names")


def parts_match(name: bytes, parts: Sequence[bytes]) -> bool:
    """Return True if a pattern has the name.

    :param parts: of a pattern, between its stars: at least two.
    """
    first, *middle, last = parts
    if len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    if name[:at] != first or name[end:] != last:
        return False
    for part in middle:
        # The first place is as good as any further one.
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


PUT: Final = 1
"""To put jobs."""

RESERVE: Final = 2
"""To reserve jobs, and to release, bury, touch and delete one's own."""

LOOK: Final = 4
"""To see jobs, statistics and names."""

MANAGE: Final = 8
"""To do to others' jobs, to tubes or to the server what an operator does."""

RIGHTS: Final = {"put": PUT, "reserve": RESERVE, "look": LOOK, "manage": MANAGE}
"""By the names that files and messages use."""

ALL_RIGHTS: Final = PUT | RESERVE | LOOK | MANAGE

NOTHING: Final = "nothing"
"""Of no tube: every client may."""

USED: Final = "used"
"""Of the tube in use."""

WATCHED: Final = "watched"
"""Of each tube that is watched."""

NAMED: Final = "named"
"""Of the tube that the field ``tube`` names."""

JOB: Final = "job"
"""Of the tube that the job of the field ``id`` is in."""

HELD: Final = "held"
"""As `JOB`; for a job that the connection has not reserved, `MANAGE` is needed instead."""

HELD_JOBS: Final = "held jobs"
"""As `HELD`, of each of the jobs of the field ``ids``."""

MOVED: Final = "moved"
"""As `JOB`, and `PUT` of the tube that the field ``tube`` names."""

POLICY: Final = "policy"
"""As `NAMED`; to change nothing `LOOK` is enough, and dead letters need `PUT` of their tube."""

SOME: Final = "some"
"""Of any tube, whichever it is."""

EVERY: Final = "every"
"""Of all tubes, by a pattern that is one star."""


class Needs(NamedTuple):
    """What a command needs.

    :ivar right: one of these rights, or a sum of them; 0 for none.
    :ivar of: which tubes it is needed of.
    """

    right: int
    of: str

    @property
    def manages(self) -> bool:
        """Whether only an operator may: then it is logged in the audit."""
        return self.right == MANAGE


OPEN: Final = Needs(0, NOTHING)
"""Every client may: it shows and changes only what is the connection's own."""


def names_of(rights: int) -> list[str]:
    """Name these rights, in the order of `RIGHTS`."""
    return [name for name, right in RIGHTS.items() if right & rights]
