"""Tokens and their hashes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.access.tokens import (
    LOG2_N,
    MAX_LOG2_N,
    MAX_P,
    MAX_R,
    MAX_TOKEN_BYTES,
    BadHash,
    TokenHash,
    hash_of,
    id_of,
    new_token,
    stand_in,
)
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES

TOKEN = new_token(os.urandom).encode()


def test_a_token_is_told_by_its_id_and_matches_its_hash_alone() -> None:
    kept = hash_of(TOKEN, os.urandom)
    other = new_token(os.urandom).encode()
    assert kept.token_id == id_of(TOKEN) and kept.log2_n == LOG2_N
    assert kept.matches(TOKEN) and not kept.matches(other) and not kept.matches(b"")
    assert TokenHash.parse(str(kept)) == kept
    assert TOKEN.decode() not in str(kept) and TOKEN.decode()[13:] not in str(kept)


def test_the_same_token_has_another_hash_each_time() -> None:
    assert hash_of(TOKEN, os.urandom, 1).digest != hash_of(TOKEN, os.urandom, 1).digest


def test_a_token_fits_into_a_command() -> None:
    assert len(TOKEN) <= MAX_TOKEN_BYTES <= MAX_LINE_BYTES - len(b"auth \r\n")


@pytest.mark.parametrize(
    ("cost", "is_sound"),
    [
        (f"{MAX_LOG2_N}:{MAX_R}:{MAX_P}", True),
        (f"{MAX_LOG2_N + 1}:{MAX_R}:{MAX_P}", False),
        (f"{MAX_LOG2_N}:{MAX_R + 1}:{MAX_P}", False),
        (f"{MAX_LOG2_N}:{MAX_R}:{MAX_P + 1}", False),
        ("0:8:1", False),
        ("14:0:1", False),
        ("14:8:0", False),
        ("-1:8:1", False),
    ],
)
def test_a_cost_out_of_range_is_refused(cost: str, is_sound: bool) -> None:
    text = f"bst_aaaaaaaa:scrypt:{cost}:{'A' * 22}==:{'A' * 43}="
    if is_sound:
        assert str(TokenHash.parse(text)) == text
    else:
        with pytest.raises(BadHash):
            TokenHash.parse(text)


def test_the_dearest_cost_can_be_paid() -> None:
    dear = TokenHash("a", MAX_LOG2_N, MAX_R, 1, b"", b"x" * 32)
    assert not dear.matches(TOKEN)


@given(st.text())
def test_any_text_is_a_hash_that_is_written_so_or_none(text: str) -> None:
    try:
        found = TokenHash.parse(text)
    except BadHash as problem:
        assert not text or text not in str(problem) or len(text) < 8
    else:
        assert str(found) == text


@given(st.binary())
def test_what_is_no_token_has_no_id_and_no_hash(token: bytes) -> None:
    assert id_of(token) is None
    with pytest.raises(BadHash):
        hash_of(token, os.urandom)


def test_what_stands_in_costs_as_much_as_the_dearest_and_matches_nothing() -> None:
    cheap, dear = hash_of(TOKEN, os.urandom, 1), hash_of(TOKEN, os.urandom, 3)
    assert stand_in([cheap, dear]).cost == dear.cost
    assert stand_in([]).cost == 8 << LOG2_N
    assert not stand_in([cheap]).matches(TOKEN)
