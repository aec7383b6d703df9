"""Rights by patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.access.rules import MAX_PATTERNS, MAX_REMEMBERED, ROLES, SETS, Grant, Granted
from beanstalk_twisted.wire.rights import (
    ALL_RIGHTS,
    LOOK,
    MANAGE,
    PUT,
    RESERVE,
    BadPattern,
    names_of,
)

NAMES = st.text("ab.", min_size=1, max_size=7)
PATTERNS = st.text("ab.*", min_size=1, max_size=5)
GRANTED = st.builds(Granted, st.sampled_from([*SETS]), PATTERNS)


@given(st.lists(GRANTED, max_size=5), NAMES)
def test_a_tube_has_the_rights_of_all_patterns_that_match(
    granted: list[Granted], name: str
) -> None:
    grant = Grant(granted)
    expected = anywhere = everywhere = 0
    for each in granted:
        anywhere |= each.rights
        expected |= each.rights * fnmatch.fnmatchcase(name, each.pattern)
        everywhere |= each.rights * (each.pattern == "*")
    assert grant.rights_of(name.encode()) == expected == grant.rights_of(name.encode())
    assert grant.compared(name.encode()) == expected
    assert (grant.anywhere, grant.everywhere) == (anywhere, everywhere)


def test_roles_are_names_for_sets() -> None:
    assert ROLES == {
        "producer": PUT, "worker": RESERVE | LOOK, "viewer": LOOK,
        "admin": PUT | RESERVE | LOOK | MANAGE,
    }  # fmt: skip
    assert names_of(ALL_RIGHTS) == ["put", "reserve", "look", "manage"]


def test_patterns_and_what_is_remembered_are_bounded() -> None:
    most = Grant([Granted("put", f"a{number}*") for number in range(MAX_PATTERNS)])
    for number in range(MAX_REMEMBERED + 1):
        most.rights_of(b"t%d" % number)
    assert len(most._remembered) == MAX_REMEMBERED
    with pytest.raises(BadPattern):
        Grant([*most.granted, Granted("put", "a")])


class CountedGrant(Grant):
    """Says which tubes were compared with its patterns."""

    def __init__(self, granted: Iterable[Granted]) -> None:
        super().__init__(granted)
        self.asked: list[bytes] = []

    def compared(self, tube: bytes) -> int:
        self.asked.append(tube)
        return super().compared(tube)


def test_one_tube_more_than_are_remembered_drops_one_and_not_all() -> None:
    grant = CountedGrant([Granted("put", "t*")])
    names = [b"t%d" % number for number in range(MAX_REMEMBERED + 1)]
    for name in [*names[:-1], *names[:-1]]:
        assert grant.rights_of(name) == PUT
    assert grant.asked == names[:-1]
    for name in [names[-1], *names[1:]]:
        assert grant.rights_of(name) == PUT
    assert grant.asked == names
    grant.rights_of(names[0])
    assert grant.asked == [*names, names[0]]


@pytest.mark.parametrize("pattern", ["", "a b", "-a", "é", "a" * 201])
def test_what_no_tube_is_called_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Grant([Granted("put", pattern)])
