"""How much the tests walk through: a sample of each long walk, which ``make test`` takes, or all of
it, as ``make test-all`` does (``pytest --all``).

A walk is one test that looks at many places, or many parameters of one test: crashes at each
operation, damage in each byte, random conversations.  What it finds in a fifth of them, it mostly
finds in all; what it misses there, ``make test-all`` finds.  Samples are the same each time.

`one_in` is for the values of one parameter, the mark ``one_in`` for all the cases of a test, those
of its fixtures too.  A stride that divides the number of a parameter's values chooses always the
same.

A single test that takes more than half a second of an idle processor is marked ``exhaustive`` and
run with ``--all`` only, unless it stands for its part of the whole in ``make test``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SHARE: Final = 5
"""A sample is one in so many, unless a walk says another number."""

_is_whole = False


def walk_everything() -> None:
    """Take no samples from now on; `conftest` calls it before it imports any test."""
    global _is_whole
    _is_whole = True


def one_in(stride: int, walk: Iterable[T]) -> list[T]:
    """Give the first of a walk's places and every ``stride``-th after it, or all with ``--all``."""
    return list(walk)[:: 1 if _is_whole else stride]


def share(count: int, of: int = SHARE) -> int:
    """Give how many examples to try, of so many with ``--all``; at least 1."""
    return count if _is_whole else max(count // of, 1)
