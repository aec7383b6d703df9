"""Text of others on a terminal: nothing of it is obeyed, and nothing of it is lost."""

import ast
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.printable import escape, escape_all, escape_json, shorten

HARMFUL = {
    "C0": "\x1b]0;owned\x07", "DEL": "\x7f", "C1": "\x9b2J", "bidi": "\u202eabc\u2066",
    "line separator": "a\u2028b\u2029", "line end": "a\r\nb", "tab": "\t", "no character": "\ufdd0",
    "half a pair": "\udc9b",
}  # fmt: skip


@pytest.mark.parametrize("text", HARMFUL.values(), ids=HARMFUL)
def test_what_a_terminal_obeys_is_escaped_as_in_python(text: str) -> None:
    escaped = escape(f"x{text}y")
    assert escaped.isprintable()
    assert ast.literal_eval(f"'{escaped}'") == f"x{text}y"


def test_a_long_text_loses_its_middle() -> None:
    assert shorten("a" * 30, 30) == "a" * 30
    assert shorten("b" * 20 + "xx" + "e" * 10, 30) == (
        "b" * 20 + "[... 2 characters left out ...]" + "e" * 10
    )


def test_what_can_be_read_stays() -> None:
    assert escape("Ünïcödé 漢字 🙂 \\n 'x'") == "Ünïcödé 漢字 🙂 \\n 'x'"
    assert escape("one\ntwo\t\x1b", "\n") == "one\ntwo\\t\\x1b"


@given(st.text())
def test_a_text_is_printable_but_for_what_is_kept(text: str) -> None:
    assert escape(text).isprintable()
    assert escape(text, "\n\t").replace("\n", "").replace("\t", "").isprintable()
    assert escape(escape(text)) == escape(text)


def read_back(shown: str) -> bytes:
    return b"".join(map(_bytes_of, re.findall(r"\\(?:x..|u.{4}|U.{8}|.)|[^\\]+", shown)))


def _bytes_of(piece: str) -> bytes:
    if piece.startswith("\\x"):
        return bytes.fromhex(piece[2:])
    return str(ast.literal_eval(f'"{piece}"') if piece[0] == "\\" else piece).encode()


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "ignore")))
def test_any_bytes_are_one_line_from_which_they_can_be_had_back(body: bytes) -> None:
    shown = escape_all(body)
    assert shown.isprintable()
    assert read_back(shown) == body


def test_bytes_that_are_no_text_are_shown_one_by_one() -> None:
    assert escape_all(b"a\\\x9b\xc3\x1b\n") == "a\\\\\\x9b\\xc3\\x1b\\n"
    assert escape_all("\x9b\u202e".encode()) == "\\u009b\\u202e"


VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(VALUES)
def test_a_document_says_the_same_when_it_can_be_looked_at(value: object) -> None:
    shown = escape_json(json.dumps(value, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == value


def test_a_document_that_can_be_looked_at_stays_as_it_is() -> None:
    document = json.dumps({"body": "漢字 🙂 \\ \n"}, ensure_ascii=False)
    assert escape_json(document) == document
