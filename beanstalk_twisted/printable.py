"""Text of others, made safe to show.

Bodies, names and a server's words may hold what a terminal obeys (escape sequences, C0 and C1
controls), what turns the order of a line (U+202E), or what ends one.  All of it is written as in a
string of Python: ``\\x1b``, ``\\u202e``, ``\\n``.  What is printable stays, in any script.
"""

import json
import re
from typing import Final

_DOUBTFUL: Final = re.compile(r"[^ -~]+")
"""Not printable ASCII: most text has little of it, and the rest is not looked at."""


def escape(text: str, kept: str = "") -> str:
    """Text without a character that is not printable.  A backslash stays as it is, so what was
    escaped before is not escaped again.

    :param kept: characters that stay all the same, such as line ends between lines of our own.
    """
    if text.isprintable():
        return text

    def escaped(found: re.Match[str]) -> str:
        return "".join(
            each if each.isprintable() or each in kept else _escaped(each) for each in found[0]
        )

    return _DOUBTFUL.sub(escaped, text)


def _escaped(character: str) -> str:
    """A character as in a string of Python; above ASCII never as ``\\x``, which is of bytes."""
    if "\x80" <= character <= "\xff":
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode()


def shorten(text: str, most: int) -> str:
    """Leave out the middle of a text.

    :param most: characters that are kept; two thirds of them are the beginning.
    """
    if len(text) <= most:
        return text
    tail = most // 3
    left_out = len(text) - most
    return f"{text[: most - tail]}[... {left_out:,} characters left out ...]{text[-tail:]}"


def escape_all(raw: bytes) -> str:
    """Bytes as one line, reversibly: a backslash is written twice, and what is no UTF-8 as
    ``\\xff``.
    """
    return escape(raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def escape_json(document: str) -> str:
    """The same document, its strings escaped as JSON has it: any reader gets the same from it.

    :param document: JSON, in which nothing but strings can hold what is not printable.
    """
    if document.isprintable():
        return document

    def escaped(found: re.Match[str]) -> str:
        return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in found[0])

    return _DOUBTFUL.sub(escaped, document)
