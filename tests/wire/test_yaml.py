"""The small YAML, byte for byte."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest
from yaml import SafeLoader, ScalarNode, load
from yaml.resolver import Resolver

from beanstalk_twisted.wire import yaml


def test_a_mapping_has_a_line_for_each_pair_in_the_order_given() -> None:
    assert yaml.mapping([("b", "2"), ("a", "1")]) == b"---\nb: 2\na: 1\n"


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/;.$_()"
"""What a name of a tube begins with; behind that, ``-`` too."""

NO_STRINGS = (
    "0", "7", "08", "010", "0o17", "123", "+1", "1_000", "1__", "0x10", "0XfF", "0x_", "0b10",
    "0b_", "1.5", "1.", ".5", "+.5", "._", "._1", "1_0.5_0", "1e3", "1E3", "1e+3", "1.5e-3",
    ".5e3", ".inf", "+.INF", ".nan", ".NaN", "2026-11-29", "2026-1-2", "null", "Null", "NULL",
    "nUll", "y", "Y", "n", "N", "yes", "Yes", "yEs", "no", "NO", "on", "On", "off", "OFF", "true",
    "False",
)  # fmt: skip
"""Those that some reader of YAML takes for something else: PyYAML, Psych, Go's, or YAML 1.2's."""

STRINGS = (
    "default", "a", "1st", "1-2", "1.2.3", "10.0.0.1", "2026-11", "2026-11-29T10", "2026-11-29-x",
    "0x", "0xg", "0b2", "0o8", "1e", "1e-", "e1", ".", "..", "+", "+-", "_1", "$1", "(1)",
    ".infinity", "nano", "nulls", "yesno", "onoff", "yes1", "1yes", "truth", "/", ";", "+x",
    "20261129-", "1/2", "1;2",
)  # fmt: skip


def test_a_name_that_could_be_taken_for_no_string_is_quoted_and_no_other_is() -> None:
    names = [each.encode() for each in (*NO_STRINGS, *STRINGS)]
    items = [f'- "{each}"\n' for each in NO_STRINGS] + [f"- {each}\n" for each in STRINGS]
    assert yaml.listing(names) == "---\n{}".format("".join(items)).encode()
    assert yaml.read_listing(yaml.listing(names)) == names
    for each in NO_STRINGS:
        assert yaml.listing([each.encode()]) == f'---\n- "{each}"\n'.encode()
        assert yaml.name(each) == f'"{each}"'
    assert [yaml.name(each) for each in STRINGS] == list(STRINGS)


def test_every_short_name_of_a_tube_is_a_string_to_a_reader_of_yaml() -> None:
    names = list(LETTERS) + [first + other for first in LETTERS for other in LETTERS + "-"]
    listed = yaml.listing([each.encode() for each in names])
    assert load(listed, Loader=SafeLoader) == names
    assert [each.decode() for each in yaml.read_listing(listed)] == names


KINDS = "019aeEfxobinu+/;.$_()-"
"""A character of each kind that the rules of YAML tell apart, for names of more of them."""


@pytest.mark.parametrize("length", [3, 4])
def test_whatever_is_no_string_to_pyyaml_is_quoted(length: int) -> None:
    resolve = cast(Any, Resolver)().resolve
    found = 0
    for first, *others in product(KINDS[:-1], *[KINDS] * (length - 1)):
        name = first + "".join(others)
        if resolve(ScalarNode, name, (True, False)) != "tag:yaml.org,2002:str":
            assert yaml.name(name) == f'"{name}"'
            found += 1
    assert found > 100


def test_what_was_written_is_read_back() -> None:
    pairs = [("age", "-1"), ("os", yaml.quoted("#1: SMP")), ("name", "")]
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
    items = ['- id: 1\n  tube: "a"\n', "- id: 2\n"]
    written = yaml.records("jobs", items, [("cursor", "r0-2")])
    assert written == b'---\njobs:\n- id: 1\n  tube: "a"\n- id: 2\ncursor: r0-2\n'
    assert yaml.records("jobs", []) == b"---\njobs: []\n"
    assert yaml.read_records("jobs", written) == (
        [[("id", "1"), ("tube", "a")], [("id", "2")]],
        [("cursor", "r0-2")],
    )
    assert yaml.read_records("jobs", yaml.records("jobs", [])) == ([], [])


@pytest.mark.parametrize(
    "content",
    [b"---\n", b"---\njob:\n", b"---\n- id: 1\n", b"---\njobs:\n  id: 1\n",
     b"---\njobs:\n- id\n", b""],
)  # fmt: skip
def test_what_is_no_list_of_that_name_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        yaml.read_records("jobs", content)


def test_a_name_that_would_be_a_key_is_quoted() -> None:
    names = [b"put-at", b"put idp:", b"a:b"]
    written = yaml.listing(map(yaml.item, names))
    assert written == b'---\n- put-at\n- "put idp:"\n- a:b\n'
    assert yaml.read_listing(written) == names
