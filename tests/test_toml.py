"""TOML that may be hostile."""

from __future__ import annotations

import pytest

from beanstalk_twisted.toml import MAX_DOTS, BadToml, parse_toml


def test_a_line_has_as_many_dots_as_that_and_no_more() -> None:
    key = ".".join("a" * (MAX_DOTS + 1))
    assert list(parse_toml(f"{key} = 1")) == ["a"]
    with pytest.raises(BadToml, match=f"^line 2: it has more than {MAX_DOTS} dots$"):
        parse_toml(f"#\na.{key} = 1")


@pytest.mark.parametrize("text", ["[", "a = " + "1" * 5000, "[" * 9999, "a = 1\na = 1", "\x00"])
def test_what_is_no_toml_says_so_in_one_line(text: str) -> None:
    with pytest.raises(BadToml, match="it is no TOML: ") as caught:
        parse_toml(text)
    assert "\n" not in str(caught.value)
