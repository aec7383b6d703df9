"""The small YAML, byte for byte."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.yaml import Quoted


def test_a_mapping_has_a_line_for_each_pair_in_the_order_given() -> None:
    assert yaml.mapping([("b", 2), ("a", 1)]) == b"---\nb: 2\na: 1\n"


def test_numbers_and_words_are_bare_and_quoted_strings_are_quoted() -> None:
    pairs: list[tuple[str, yaml.Value]] = [
        ("age", -1), ("state", "ready"), ("rusage-utime", "0.000007"), ("os", Quoted("#1 SMP")),
    ]  # fmt: skip
    assert yaml.mapping(pairs) == (
        b'---\nage: -1\nstate: ready\nrusage-utime: 0.000007\nos: "#1 SMP"\n'
    )


def test_an_empty_mapping_or_list_is_only_its_start() -> None:
    assert yaml.mapping([]) == b"---\n"
    assert yaml.listing([]) == b"---\n"


def test_list_items_are_never_quoted_even_if_they_look_like_something_else() -> None:
    names = [b"default", b"123", b"null", b"1e3"]
    assert yaml.listing(names) == b"---\n- default\n- 123\n- null\n- 1e3\n"


def test_what_was_written_is_read_back() -> None:
    pairs: list[tuple[str, yaml.Value]] = [("age", -1), ("os", Quoted("#1: SMP")), ("name", "")]
    assert yaml.read_mapping(yaml.mapping(pairs)) == [
        ("age", "-1"),
        ("os", "#1: SMP"),
        ("name", ""),
    ]
    names = [b"default", b"123", b"- x"]
    assert yaml.read_listing(yaml.listing(names)) == names
    assert yaml.read_mapping(b"---\n") == []
    assert yaml.read_listing(b"---\n") == []


@pytest.mark.parametrize("content", [b"", b"---", b"--\n", b"a: b\n", b"---\nab\n", b"---\n- a"])
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        yaml.read_mapping(content)
    with pytest.raises(ValueError):
        yaml.read_listing(content)


def test_records_are_a_list_of_mappings_under_a_key_and_other_keys_behind_it() -> None:
    items: list[list[tuple[str, yaml.Value]]] = [[("id", 1), ("tube", Quoted("a"))], [("id", 2)]]
    written = yaml.records("jobs", [yaml.record(item) for item in items], [("cursor", "r0-2")])
    assert written == b'---\njobs:\n- id: 1\n  tube: "a"\n- id: 2\ncursor: r0-2\n'
    assert yaml.records("jobs", []) == b"---\njobs: []\n"
    assert yaml.read_records("jobs", written) == (
        [[("id", "1"), ("tube", "a")], [("id", "2")]],
        [("cursor", "r0-2")],
    )
    assert yaml.read_records("jobs", yaml.records("jobs", [])) == ([], [])


@pytest.mark.parametrize(
    "content",
    [
        b"---\n",
        b"---\njob:\n",
        b"---\n- id: 1\n",
        b"---\njobs:\n  id: 1\n",
        b"---\njobs:\n- id\n",
        b"",
    ],
)  # fmt: skip
def test_what_is_no_list_of_that_name_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        yaml.read_records("jobs", content)


def test_a_name_that_would_be_a_key_is_quoted() -> None:
    names = [b"put-at", b"put idp:", b"a:b"]
    written = yaml.listing(map(yaml.item, names))
    assert written == b'---\n- put-at\n- "put idp:"\n- a:b\n'
    assert yaml.read_listing(written) == names
