"""
What one identity may do: rights by patterns of tube names.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from beanstalk_twisted.wire.rights import ALL_RIGHTS, LOOK, PUT, RESERVE, RIGHTS
from beanstalk_twisted.wire.tube_patterns import BadPattern, check_pattern, parts_match

ROLES: Final = {
    "producer": PUT,
    "worker": RESERVE | LOOK,
    "viewer": LOOK,
    "admin": ALL_RIGHTS,
}
"""
Names for sets of rights.  A worker sees jobs too: it is given them anyway, and client libraries ask
for `stats-job` before they release one.
"""

SETS: Final = RIGHTS | ROLES
"""What a file may grant, by name."""

MAX_PATTERNS: Final = 100
"""Patterns of an identity: each new tube is compared with all, in 30 us."""

MAX_REMEMBERED: Final = 1000
"""Tubes whose rights an identity remembers: some 300 KB with the longest names."""

EVERYTHING: Final = "*"


class Granted(NamedTuple):
    """
    One pattern of a file.

    :ivar name: of the right or role, a key of `SETS`.
    """

    name: str
    pattern: str

    @property
    def rights(self) -> int:
        return SETS[self.name]


class Grant:
    """
    Rights by tube.

    :ivar granted: the patterns, in the order of the file.
    :ivar anywhere: the rights that it has of any tube.
    :ivar everywhere: those that it has of all tubes, by a pattern that is one star.
    """

    def __init__(self, granted: Iterable[Granted] = ()) -> None:
        """
        :raise BadPattern: a pattern is none, or there are too many.
        """
        self.granted = tuple(granted)
        if len(self.granted) > MAX_PATTERNS:
            raise BadPattern(f"there are more than {MAX_PATTERNS} patterns")
        self.anywhere = self.everywhere = 0
        self._patterns = []
        for each in self.granted:
            check_pattern(each.pattern)
            self.anywhere |= each.rights
            if each.pattern == EVERYTHING:
                self.everywhere |= each.rights
            else:
                self._patterns.append((each.pattern.encode().split(b"*"), each.rights))
        self._remembered: dict[bytes, int] = {}

    def rights_of(self, tube: bytes) -> int:
        """
        :param tube: its name.
        """
        rights = self._remembered.get(tube)
        if rights is None:
            rights = self.everywhere
            for parts, given in self._patterns:
                if parts == [tube] or (len(parts) > 1 and parts_match(tube, parts)):
                    rights |= given
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[tube] = rights
        return rights


NO_RIGHTS: Final = Grant()
