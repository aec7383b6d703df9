"""
The protocol's small YAML, byte for byte as beanstalkd (after 1.13) writes it.

A document starts with ``---``; each line ends with LF.  Only some strings are quoted, and list
items never are, so a tube called ``123`` looks like a number to a YAML reader: beanstalkd's way.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Quoted(NamedTuple):
    """
    A string that is written in double quotes.
    """

    text: str


Value = int | str | Quoted


def mapping(pairs: Iterable[tuple[str, Value]]) -> bytes:
    """
    ``key: value`` lines in the order given.
    """
    return "".join(["---\n", *(f"{key}: {_scalar(value)}\n" for key, value in pairs)]).encode()


def listing(names: Iterable[bytes]) -> bytes:
    """
    ``- name`` lines in the order given.
    """
    return b"".join([b"---\n", *(b"- %s\n" % name for name in names)])


def _scalar(value: Value) -> str:
    return f'"{value.text}"' if isinstance(value, Quoted) else str(value)
