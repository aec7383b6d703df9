"""Names of tubes that clients may use."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beanstalk_twisted.wire import grammar
from binlog_tools.queue.asking import tube_name
from binlog_tools.tube_names import NoTube, is_tube_name, quoted


@pytest.mark.parametrize("text", ["a b", "", "-a", "ä", "a\r\nquit", "x" * 201])
def test_what_is_not_the_name_of_a_tube_is_never_sent(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a tube"):
        tube_name(text)
    assert tube_name("x" * 200) == b"x" * 200


ALPHABET = st.sampled_from([bytes((code,)) for code in range(256)])


def is_right_for_the_server(name: bytes) -> bool:
    try:
        return bool(grammar.TUBE.convert(name))
    except grammar.ParseError:
        return False


@given(st.lists(ALPHABET, max_size=3).map(b"".join) | st.from_regex(rb"[a-z-]{1,202}"))
@example(b"a\n")
@example(b"x" * 200)
@example(b"x" * 201)
@example(b"")
def test_they_are_those_that_the_server_takes(name: bytes) -> None:
    assert is_tube_name(name) == is_right_for_the_server(name)


def test_a_wrong_one_is_told_on_one_line() -> None:
    assert quoted(b"a\r\n\xff") == r"'a\r\n\\xff'"
    assert str(NoTube(b"a b")).startswith("'a b' is not the name of a tube: 1 to 200 of ")
