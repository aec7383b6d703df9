"""Which server a tube is on."""

from __future__ import annotations

import random
from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.pool.hashing import MAX_NAME, MAX_WEIGHT, SCHEME, Split
from tests.pages import ROOT
from tests.test_docs import table

TUBES = [f"tube-{number}" for number in range(4000)]

names = st.text("abcdefgh.:-0123", min_size=1, max_size=8)
weights = st.dictionaries(names, st.integers(1, 4), min_size=1, max_size=6)
tubes = st.text("abc-+/;.$_()", min_size=1, max_size=20)


def by_the_page(servers: dict[str, int], tube: str) -> str:
    """Find a tube's server as the page says, in other words than the code."""
    best = ("", "")
    for server, weight in servers.items():
        for copy in range(1, weight + 1):
            text = f"{server}\n{copy}\n{tube}"
            best = max(best, (sha256(text.encode()).hexdigest(), server))
    return best[1]


def test_the_vectors_of_the_page_come_out() -> None:
    page = ROOT / "docs" / "client-pool.md"
    tubes_of_the_page = ("default", "mail", "t1")
    assert " | ".join(f"`{tube}` is on" for tube in tubes_of_the_page) in page.read_text()
    rows = table(page, "Which server a tube is on")
    assert len(rows) >= 4
    for servers, *places in rows:
        weights = {}
        for word in servers.strip("`").split():
            name, _, weight = word.partition("*")
            weights[name] = int(weight or 1)
        for tube, server in zip(tubes_of_the_page, places, strict=True):
            assert Split(weights).server_of(tube) == server.strip("`"), (servers, tube)


def test_the_digest_of_the_page_is_that_of_its_text() -> None:
    page = (ROOT / "docs" / "client-pool.md").read_text()
    assert "printf 'a\\n1\\nmail' | sha256sum" in page
    assert sha256(b"a\n1\nmail").hexdigest() in page
    assert f"`{SCHEME}`" in page


@given(weights, tubes)
def test_the_server_is_the_one_that_the_page_finds(servers: dict[str, int], tube: str) -> None:
    assert Split(servers).server_of(tube) == by_the_page(servers, tube)


@given(weights, tubes, st.randoms(use_true_random=False))
def test_the_order_in_which_servers_are_listed_does_not_count(
    servers: dict[str, int], tube: str, chance: random.Random
) -> None:
    shuffled = list(servers.items())
    chance.shuffle(shuffled)
    assert Split(dict(shuffled)).server_of(tube) == Split(servers).server_of(tube)


@given(weights, names, st.lists(tubes, min_size=1, max_size=30))
def test_a_server_that_is_added_takes_tubes_and_moves_no_others(
    servers: dict[str, int], added: str, several: list[str]
) -> None:
    before, after = Split(servers), Split({**servers, added: servers.get(added, 0) + 1})
    for tube in several:
        assert after.server_of(tube) in (before.server_of(tube), added)


def test_a_server_that_is_added_to_four_takes_a_fifth() -> None:
    before, after = Split(dict.fromkeys("abcd", 1)), Split(dict.fromkeys("abcde", 1))
    moved = [tube for tube in TUBES if before.server_of(tube) != after.server_of(tube)]
    assert 0.17 < len(moved) / len(TUBES) < 0.23


def test_a_server_has_tubes_by_its_weight() -> None:
    split = Split({"a": 1, "b": 1, "c": 2})
    shares = Counter(map(split.server_of, TUBES))
    assert 0.47 < shares["c"] / len(TUBES) < 0.53
    assert 0.22 < shares["a"] / len(TUBES) < 0.28


def test_the_name_of_a_tube_may_be_text_or_bytes() -> None:
    split = Split(dict.fromkeys("abc", 1))
    assert [split.server_of(tube) for tube in TUBES[:99]] == [
        split.server_of(tube.encode()) for tube in TUBES[:99]
    ]


@pytest.mark.parametrize("weights", [
    {}, {"": 1}, {"a\nb": 1}, {"x" * (MAX_NAME + 1): 1}, {"a": 0}, {"a": MAX_WEIGHT + 1},
    {"a": True}, {"a": 1.5},
])  # fmt: skip
def test_what_cannot_be_a_server_is_refused(weights: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="server"):
        Split(weights)


def test_the_largest_name_and_weight_are_taken() -> None:
    assert Split({"x" * MAX_NAME: MAX_WEIGHT}).server_of("t") == "x" * MAX_NAME
