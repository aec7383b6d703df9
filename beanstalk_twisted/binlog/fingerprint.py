"""
Fingerprints of bodies: jobs of one kind have the same.

The console groups jobs by them, and so do the tables of the history (`binlog_tools.spark`).
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

MAX_JSON_BYTES: Final = 4096
"""Of a body that is read as JSON: some 10 us, 200 if it is all keys. A larger one is text."""

TEXT_BYTES: Final = 512
"""Of a text, for its fingerprint: what jobs of one kind share stands at the beginning."""

SHAPE_CHARACTERS: Final = 1024
"""Of an object's keys, in order: those of most."""

DIGITS: Final = 16
"""Hexadecimal digits of a fingerprint: 64 bits tell any number of kinds of jobs apart."""

KIND_KEYS: Final = ("action", "class", "command", "event", "job", "kind", "task", "type")
"""Keys of an object that say by a string what kind of job it is: their values count too."""

MAX_DEPTH: Final = 4
"""Objects in objects whose keys count."""

_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER: Final = re.compile("[0-9]+")
_SPACE: Final = re.compile("[ \t\r\n]+")


def fingerprint(body: bytes) -> str:
    """
    Of a JSON object, a hash of its keys and of what `KIND_KEYS` say; of any other body, of its
    first `TEXT_BYTES`, with UUIDs, numbers, white space and the case of letters made alike.

    :param body: all of it, or more than `MAX_JSON_BYTES` of its beginning.
    :return: `DIGITS` hexadecimal digits.
    """
    shape = _shape(body) if len(body) <= MAX_JSON_BYTES and body.lstrip()[:1] == b"{" else None
    text = body[:TEXT_BYTES].decode("latin-1") if shape is None else shape
    return sha256(_alike(text).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _shape(body: bytes) -> str | None:
    """:return: the keys of an object, one a line; None if the body is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return "\n".join(sorted(_lines(value, "", MAX_DEPTH)))[:SHAPE_CHARACTERS]


def _lines(value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
    for key, inside in value.items():
        yield path + key
        if isinstance(inside, str) and key in KIND_KEYS:
            yield f"{path}{key}\0{inside}"
        elif isinstance(inside, dict) and depth > 1:
            yield from _lines(inside, f"{path}{key}\n\0", depth - 1)


def _alike(text: str) -> str:
    return _SPACE.sub(" ", _NUMBER.sub("0", _UUID.sub("U", text.lower())))
