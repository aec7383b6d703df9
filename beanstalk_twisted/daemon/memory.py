"""How much memory the process may use, and how Python collects garbage."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple, Protocol

from beanstalk_twisted.server.headroom import NO_LIMIT

Read = Callable[[str], str | None]
"""Gives the text of a file; None if it cannot be read."""

SERVER_BYTES: Final = 64 << 20
"""What a server without jobs takes: some 50 MB, and replies on their way."""

MEMBERSHIP: Final = "/proc/self/cgroup"
"""Says which control groups the process is in, ``number:controllers:path`` each (cgroups(7))."""

ROOT_V2: Final = "/sys/fs/cgroup"
LIMITS_V2: Final = ("memory.max", "memory.high")
"""The second slows a process down that takes more, until nothing moves."""

ROOT_V1: Final = "/sys/fs/cgroup/memory"
LIMITS_V1: Final = ("memory.limit_in_bytes",)


class MemoryShare(NamedTuple):
    """What ``--max-memory`` was given: bytes, or a percentage."""

    value: int
    is_percentage: bool = False

    def of(self, machine_bytes: int | None) -> int:
        """Return bytes that jobs may take, 0 for no limit; ``machine_bytes`` is for the process."""
        if not self.is_percentage:
            return self.value
        if machine_bytes is None or not self.value:
            return 0
        return max(1, (machine_bytes - SERVER_BYTES) * self.value // 100)


def machine_bytes(read: Read | None = None, ram_bytes: int | None = None) -> int | None:
    """The bytes of the machine, or of its control group if less; None if nobody knows."""
    found = [*_group_limits(_read_file if read is None else read)]
    ram = _ram_bytes() if ram_bytes is None else ram_bytes
    if ram:
        found.append(ram)
    return min(found, default=None)


def _group_limits(read: Read) -> Iterator[int]:
    """Those of all groups that the process is in, with those above."""
    for line in (read(MEMBERSHIP) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _limits_above(read, ROOT_V2, path, LIMITS_V2)
        elif "memory" in controllers.split(","):
            yield from _limits_above(read, ROOT_V1, path, LIMITS_V1)


def _limits_above(read: Read, root: str, path: str, names: tuple[str, ...]) -> Iterator[int]:
    """In a container the root may be the group itself, whose path is that of the machine: groups
    that are not there have no limit.
    """
    group = PurePosixPath(root, *[part for part in path.split("/") if part not in ("", "..")])
    while True:
        for name in names:
            text = (read(f"{group}/{name}") or "").strip()
            if text.isdigit() and int(text) < NO_LIMIT:
                yield int(text)
        if str(group) == root:
            return
        group = group.parent


def _read_file(path: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError), open(path, encoding="ascii") as file:
        return file.read()
    return None


def _ram_bytes() -> int:
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


# Collecting garbage.

FULL: Final = 2
"""The generation that holds the oldest objects."""

MIDDLE_RUNS: Final = 3
"""Collections of the middle generation, of 7,000 objects each, between two full ones."""

MAX_ENDED: Final = 10_000
"""Wrapped connections that may have ended before all is looked at again: at most 50 MB are kept."""


Phase = Literal["start", "stop"]
"""Of a collection."""


class Collector(Protocol):
    """What is needed of Python's collector; the module `gc` is one."""

    callbacks: list[Callable[[Phase, dict[str, int]], object]]

    def collect(self, generation: int) -> object: ...

    def get_threshold(self) -> tuple[int, int, int]: ...

    def set_threshold(self, youngest: int, middle: int, oldest: int, /) -> None: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...


class Collecting:
    """Garbage collection that does not look at all jobs again and again; for a process that is a
    server only.

    A full collection of Python's looks at all objects that may be part of a cycle, and one comes
    whenever there are a quarter more.  Jobs that have been reserved, delayed or buried are such
    objects (ready ones are not, see `jobs.table`): with a million of them one takes 0.4 s, in which
    nobody is served.  They form no cycles.  So what a full collection has left is frozen, and the
    next one looks at what has come since.  Full collections then cost the same in all however often
    they come, so they come three times as often as Python has them: each looks at some 21,000
    objects, in 7 ms.

    A frozen object that becomes part of a cycle stays: connections that TLS or another protocol
    wraps, if a full collection came while they were there.  So when many of those have ended all is
    looked at again.
    """

    def __init__(self, count_ended: Callable[[], int], collector: Collector = gc) -> None:
        """:param count_ended: how many wrapped connections have ended so far."""
        self._count_ended = count_ended
        self._collector = collector
        self._ended = 0
        self._before = collector.get_threshold()

    def start(self) -> None:
        """Begin, with a full collection: later, that would be a pause."""
        self._ended = self._count_ended()
        self._collector.callbacks.append(self._told)
        self._before = self._collector.get_threshold()
        self._collector.set_threshold(*self._before[:FULL], MIDDLE_RUNS)
        self._collector.collect(FULL)

    def stop(self) -> None:
        if self._told in self._collector.callbacks:
            self._collector.callbacks.remove(self._told)
            self._collector.set_threshold(*self._before)
            self._collector.unfreeze()

    def _told(self, phase: Phase, about: dict[str, int]) -> None:
        """Freeze or unfreeze; the collector calls it at each start and stop (`gc.callbacks`)."""
        if about["generation"] != FULL:
            return
        if phase == "stop":
            self._collector.freeze()
        elif self._count_ended() - self._ended >= MAX_ENDED:
            self._ended = self._count_ended()
            self._collector.unfreeze()
