"""The order in which hosts are tried, and what counts as an answer."""

from __future__ import annotations

import pytest

from beanstalk_twisted.client.addresses import (
    FIRST_LIMIT_S,
    LIMIT_S,
    MAX_ANSWER_BYTES,
    NEXT_S,
    is_answer,
    limit_s,
)


def test_a_lost_round_doubles_the_time_of_a_host_up_to_a_bound() -> None:
    times = [limit_s(lost) for lost in range(5)]
    assert times == [FIRST_LIMIT_S, 2 * FIRST_LIMIT_S, LIMIT_S, LIMIT_S, LIMIT_S]
    assert NEXT_S < FIRST_LIMIT_S
    assert limit_s(1_000_000) == LIMIT_S


@pytest.mark.parametrize(
    "said",
    [b"USING default\r\n", b"UNKNOWN_COMMAND\r\n", b"UNAUTHORIZED\r\n", b"OUT_OF_MEMORY\r\n"],
)
def test_a_reply_is_an_answer_when_it_is_whole(said: bytes) -> None:
    assert is_answer(said)
    for cut in range(len(said)):
        assert not is_answer(said[:cut])


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n", b"\n", b"using default\r\n", b"USING default\r\nmore",
        b"USING default\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"USING a b\r\n",
    ],
)  # fmt: skip
def test_anything_else_is_no_server(said: bytes) -> None:
    with pytest.raises(ValueError, match="no server of this protocol"):
        is_answer(said)


def test_a_line_that_does_not_end_is_no_answer() -> None:
    assert not is_answer(b"U" * (MAX_ANSWER_BYTES - 1))
    with pytest.raises(ValueError, match="no server"):
        is_answer(b"U" * MAX_ANSWER_BYTES)
