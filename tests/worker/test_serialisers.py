"""Bodies to values and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.worker.serialisers import Bytes, Json, Typed, Unreadable
from tests.sampling import share


@dataclass
class Size:
    """Part of a job."""

    width: int
    height: int = 100


@dataclass(frozen=True)
class Picture:
    """A job."""

    path: str
    sizes: list[Size]
    quality: float | None = None
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    frame: Size | None = None

    def __post_init__(self) -> None:
        if self.quality is not None and not 0 <= self.quality <= 1:
            raise ValueError("quality is 0 to 1")


@dataclass
class Tree:
    """One that cannot be read: it contains itself."""

    branches: list[Tree]


@dataclass
class Odd:
    """Another one."""

    raw: bytes


def test_bytes_stay_as_they_are() -> None:
    assert Bytes().load(b"\xff") == b"\xff" == Bytes().dump(b"\xff")


def test_json_is_short_and_keeps_letters() -> None:
    assert Json().dump({"a": [1, "ä"]}) == '{"a":[1,"ä"]}'.encode()
    assert Json().load(b' {"a": 1} ') == {"a": 1}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        Json().load(body)


def test_what_json_cannot_say_is_not_written() -> None:
    for value in (float("nan"), "\ud800"):
        with pytest.raises(ValueError):
            Json().dump(value)


pictures = st.builds(
    Picture, st.text(), st.lists(st.builds(Size, st.integers(), st.integers())),
    st.none() | st.floats(0, 1), st.lists(st.text()).map(tuple),
    st.dictionaries(st.text(), st.integers() | st.none() | st.text()),
)  # fmt: skip


@settings(max_examples=share(100), deadline=None)
@given(pictures)
def test_a_dataclass_comes_back_as_it_was(picture: Picture) -> None:
    typed = Typed(Picture)
    try:
        body = typed.dump(picture)
    except UnicodeEncodeError:
        return  # Half a surrogate pair.
    assert typed.load(body) == picture


def test_fields_with_a_default_may_be_missing_and_whole_numbers_are_floats_too() -> None:
    found = Typed(Picture).load(b'{"path": "a", "sizes": [{"width": 3}], "quality": 1}')
    assert found == Picture("a", [Size(3, 100)], 1.0)
    assert type(found.quality) is float


def test_fields_that_nobody_knows_may_be_left_out_at_any_depth() -> None:
    body = b'{"path": "a", "new": 1, "sizes": [{"width": 3, "new": 2}], "frame": {"new": 3}}'
    typed = Typed(Picture, ignores_unknown=True)
    assert typed.load(body.replace(b'"frame": {', b'"frame": {"width": 4, ')) == Picture(
        "a", [Size(3)], frame=Size(4)
    )
    with pytest.raises(Unreadable, match=r"^\.frame has no 'width'$"):
        typed.load(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("[]", "the body is list, not an object with the fields of Picture"),
        ("{}", "the body has no 'path'"),
        ('{"path": 1, "sizes": []}', ".path is int, not str"),
        ('{"path": "", "sizes": {}}', ".sizes is dict, not a list"),
        ('{"path": "", "sizes": [{"width": 1}, {"width": true}]}',
         ".sizes[1].width is bool, not int"),
        ('{"path": "", "sizes": [], "quality": "x"}', ".quality is str, not float | None"),
        ('{"path": "", "sizes": [], "quality": 2}', "the body: quality is 0 to 1"),
        ('{"path": "", "sizes": [], "more": 1}', "the body has 'more', which nobody knows"),
        ('{"path": "", "sizes": [], "extra": []}', ".extra is list, not an object"),
        ('{"path": "", "sizes": [], "frame": 1}',
         ".frame is int, not tests.worker.test_serialisers.Size | None"),
        ('{"path": "", "sizes": [], "frame": {"width": "x"}}', ".frame.width is str, not int"),
        ('{"path": "", "sizes": [], "frame": {}}', ".frame has no 'width'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(body: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        Typed(Picture).load(body.encode())
    assert str(raised.value) == why


@pytest.mark.parametrize("kind", [Odd, Tree, dict, int])
def test_a_type_that_cannot_be_read_is_refused_at_once(kind: type) -> None:
    with pytest.raises(TypeError):
        Typed(kind)
