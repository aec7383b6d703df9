"""A collector for servers that are not processes of their own.

Python's, once a server has stopped, looks at all objects again: here also at those of all the other
tests, which takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable

from beanstalk_twisted.daemon.memory import Phase


class Uncollected:
    """A `Collector` that collects nothing."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Phase, dict[str, int]], object]] = []

    def collect(self, generation: int) -> None: ...

    def get_threshold(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def set_threshold(self, youngest: int, middle: int, oldest: int, /) -> None: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...
