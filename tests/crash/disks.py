"""What a crash may leave of a disk.

A kill leaves all that was written.  A power loss leaves all that was synced, and of the rest any
part: each change of a name, and each sector of each write, for itself.
"""

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final, NamedTuple

from tests.binlog.memory import MemoryDirectory

SECTORS: Final = (64, 64, 512, 4096)
"""Sizes of what a disk writes whole or not at all, bytes.  64 is smaller than any: so a frame is
torn in places that real disks keep together, too.
"""

TORN: Final = 6
"""Torn states that are drawn before each operation."""

FEW: Final = 4
"""Changes that are not synced of which all subsets are looked at."""

Ranges = list[tuple[int, int]]


class Left(NamedTuple):
    """A disk as it is found.

    :ivar files: all that can be read; ``make`` makes such a disk, which knows what was synced.
    """

    how: str
    is_power_lost: bool
    files: dict[str, bytes]
    make: Callable[[], MemoryDirectory]

    @property
    def content(self) -> int:
        """Tells disks apart: a hash of the names and bytes of all segments.  Files that are still
        being made say nothing to a server that starts.
        """
        segments = (name for name in self.files if name.endswith(".tql"))
        return hash(tuple((name, self.files[name]) for name in sorted(segments)))


def after_kill(directory: MemoryDirectory) -> Left:
    """The process was killed: all it wrote is there, and still not synced."""
    files = {name: bytes(directory.read(name)) for name in directory.names()}
    return Left("a kill", False, files, directory.after_kill)


def power_lost(
    how: str, directory: MemoryDirectory, name: Callable[[], bool], parts: Callable[[int], Ranges]
) -> Left:
    """The power was lost, and some of what was not synced."""
    files = directory.surviving(name, parts)
    return Left(how, True, files, lambda: MemoryDirectory(files))


def only_synced(directory: MemoryDirectory) -> Left:
    """The power was lost, and all that was not synced."""
    return power_lost(
        "a loss of all that was not synced", directory, lambda: False, lambda size: []
    )


class Whole:
    """Keeps each change whole or not at all, as a list of bits says.

    :ivar changes: how many changes were asked about; ``sizes`` those of the writes among them.
    """

    def __init__(self, bits: tuple[bool, ...], beyond: bool = False) -> None:
        self.changes = 0
        self.sizes: list[int] = []
        self._bits = bits
        self._beyond = beyond

    def name(self) -> bool:
        self.changes += 1
        at = self.changes - 1
        return self._bits[at] if at < len(self._bits) else self._beyond

    def parts(self, size: int) -> Ranges:
        self.sizes.append(size)
        return [(0, size)] if self.name() else []


def after_power_loss(directory: MemoryDirectory, draw: random.Random) -> Iterator[Left]:
    """Of all that a power loss may leave: whole changes in many ways, and torn ones as drawn."""
    all_of_it = Whole((), beyond=True)
    yield power_lost("a loss of nothing", directory, all_of_it.name, all_of_it.parts)
    for bits in choices(all_of_it.changes, draw):
        kept = "".join("01"[bit] for bit in bits)
        whole = Whole(bits)
        yield power_lost(f"a power loss that kept {kept}", directory, whole.name, whole.parts)
    if all_of_it.changes:
        yield power_lost("a loss of all bytes", directory, lambda: True, lambda size: [])
    if any(all_of_it.sizes):
        for _ in range(TORN):
            yield torn(directory, sum(all_of_it.sizes), draw)


def choices(changes: int, draw: random.Random) -> Iterator[tuple[bool, ...]]:
    """Which of so many changes are kept: all subsets if they are few, else none, some prefixes, all
    but one, and what chance says.
    """
    if changes <= FEW:
        yield from product((False, True), repeat=changes)
        return
    yield (False,) * changes
    for _ in range(3):
        kept = draw.randrange(1, changes)
        yield (True,) * kept + (False,) * (changes - kept)
        yield tuple(at != kept for at in range(changes))
        yield tuple(draw.random() < 0.6 for _ in range(changes))


def torn(directory: MemoryDirectory, size: int, draw: random.Random) -> Left:
    """:param size: bytes that were written and not synced."""
    keep, how = draw.choice((first_bytes, sectors, all_but_one, only_one))(size, draw)
    share = draw.choice((0.5, 1))
    return power_lost(
        f"a power loss that kept {how}", directory, lambda: draw.random() < share, keep
    )


Torn = tuple[Callable[[int], Ranges], str]


def first_bytes(size: int, draw: random.Random) -> Torn:
    """The first bytes of all writes."""
    budget = left = draw.choice(
        (draw.randrange(1, size + 1), draw.randrange(1, min(size, 200) + 1))
    )

    def keep(size: int) -> Ranges:
        nonlocal left
        kept, left = min(size, left), max(0, left - size)
        return [(0, kept)]

    return keep, f"the first {budget} bytes"


def pieces(size: int, sector: int) -> Ranges:
    """A write, sector by sector; a change of size is one, too."""
    return [(at, min(at + sector, size)) for at in range(0, max(size, 1), sector)]


def sectors(size: int, draw: random.Random) -> Torn:
    """Some sectors."""
    sector, share = draw.choice(SECTORS), draw.choice((0.3, 0.5, 0.9))

    def keep(size: int) -> Ranges:
        return [piece for piece in pieces(size, sector) if draw.random() < share]

    return keep, f"{share} of all sectors of {sector} bytes"


def all_but_one(size: int, draw: random.Random, is_kept: bool = False) -> Torn:
    """All sectors but one."""
    sector, chosen, passed = draw.choice(SECTORS), draw.randrange(size), 0

    def keep(size: int) -> Ranges:
        nonlocal passed
        start, passed = passed, passed + size
        return [
            (begin, end)
            for begin, end in pieces(size, sector)
            if (start + begin <= chosen < start + end) == is_kept
        ]

    word = "only one sector" if is_kept else "all but one sector"
    return keep, f"{word} of {sector} bytes"


def only_one(size: int, draw: random.Random) -> Torn:
    """One sector."""
    return all_but_one(size, draw, is_kept=True)
