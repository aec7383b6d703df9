"""What one identity may do: rights by patterns of tube names."""

from collections.abc import Iterable, Sequence
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
"""
Patterns of an identity: a tube is compared with all in 1 us if they are as `mail.*`; in 110 us at
worst, if all have several stars and begin and end alike, as `*a*` and `*b*`.
"""

MAX_REMEMBERED: Final = 1000
"""Tubes whose rights an identity remembers: some 300 KB with the longest names."""

EVERYTHING: Final = "*"

STAR: Final = b"*"


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


_Starred = tuple[Sequence[bytes], int]
"""The parts of a pattern between its stars, and the rights that it gives."""


class Grant:
    """
    Rights by tube.

    :ivar granted: the patterns, in the order of the file.
    :ivar anywhere: the rights that it has of any tube.
    :ivar everywhere: those that it has of all tubes, by a pattern that is one star.
    """

    def __init__(self, granted: Iterable[Granted] = ()) -> None:
        """:raise BadPattern: a pattern is none, or there are too many."""
        self.granted = tuple(granted)
        if len(self.granted) > MAX_PATTERNS:
            raise BadPattern(f"there are more than {MAX_PATTERNS} patterns")
        self.anywhere = self.everywhere = 0
        self._names: dict[bytes, int] = {}
        self._tables: dict[tuple[int, int], dict[bytes, list[_Starred]]] = {}
        for each in self.granted:
            check_pattern(each.pattern)
            self.anywhere |= each.rights
            if each.pattern == EVERYTHING:
                self.everywhere |= each.rights
            else:
                self._add(each.pattern.encode().split(STAR), each.rights)
        self._remembered: dict[bytes, int] = {}

    def _add(self, parts: Sequence[bytes], rights: int) -> None:
        if len(parts) == 1:
            self._names[parts[0]] = self._names.get(parts[0], 0) | rights
            return
        # What comes before the first star and behind the last one is looked up.
        first, last = parts[0], parts[-1]
        table = self._tables.setdefault((len(first), len(last)), {})
        table.setdefault(first + STAR + last, []).append((parts, rights))

    def rights_of(self, tube: bytes) -> int:
        """
        The rights that it has of a tube, remembered if it was asked of late.

        :param tube: its name.
        """
        rights = self._remembered.get(tube)
        if rights is None:
            rights = self.compared(tube)
            if len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[tube] = rights
        return rights

    def compared(self, tube: bytes) -> int:
        """The same, and nothing is remembered: for who walks over many tubes."""
        rights, size = self.everywhere | self._names.get(tube, 0), len(tube)
        for (first, last), table in self._tables.items():
            for parts, given in table.get(tube[:first] + STAR + tube[size - last :], ()):
                if size >= first + last and (len(parts) == 2 or parts_match(tube, parts)):
                    rights |= given
        return rights


NO_RIGHTS: Final = Grant()
