"""Rights: what a command needs, and of which tubes; a column of the tables of commands.

Who has which right is said by a file (`access`); who asks for it is `server.access.guard`.  Without
such a file nobody looks at this column, but for the audit, which tells of commands that manage.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME

_PATTERN: Final = re.compile(rb"[A-Za-z0-9+/;.$_()*][A-Za-z0-9\-+/;.$_()*]*")


class BadPattern(ValueError):
    """What is no pattern of tube names, or one too many."""


def check_pattern(pattern: str) -> None:
    """:raise BadPattern: no name of a tube can match it, or it is too long."""
    text = pattern.encode()
    if len(text) > MAX_TUBE_NAME or not _PATTERN.fullmatch(text):
        raise BadPattern(f"{pattern!r} is neither the name of a tube nor a pattern of such names")


def parts_match(name: bytes, parts: Sequence[bytes]) -> bool:
    """Whether a name is one of a pattern with a star.

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
"""To reserve jobs, and to release, bury, touch and delete those that one has reserved."""

LOOK: Final = 4
"""To see jobs, statistics and names."""

MANAGE: Final = 8
"""To do to others' jobs, to tubes or to the server what an operator does."""

RIGHTS: Final = {"put": PUT, "reserve": RESERVE, "look": LOOK, "manage": MANAGE}
"""By the names that files and messages use."""

ALL_RIGHTS: Final = PUT | RESERVE | LOOK | MANAGE

NOTHING: Final = "nothing"
"""Of no tube: everybody may."""

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

    :ivar right: one of these rights, a sum of them; 0 for none.
    :ivar of: which tubes it is needed of.
    """

    right: int
    of: str

    @property
    def manages(self) -> bool:
        """Whether nobody but who manages may: then it is told in the audit."""
        return self.right == MANAGE


OPEN: Final = Needs(0, NOTHING)
"""Everybody may: it tells and changes only what is the connection's own."""


def names_of(rights: int) -> list[str]:
    """:return: the names of these rights, in the order of `RIGHTS`."""
    return [name for name, right in RIGHTS.items() if right & rights]
