"""The protocol's small YAML, as beanstalkd (after 1.13) writes it, and back.

Differs from beanstalkd: a name in a list is quoted if a YAML reader could take it for no string.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

_NO_STRING: Final = rb"""(?i:
    [+-]?(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9_]++)(?:e[+-]?[0-9]++)?
    |[+-]?\.(?:inf|nan)
    |[+-]?0(?:x[0-9a-f_]++|o[0-7_]++|b[01_]++)
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}
    |null|y(?:es)?|no?|o(?:n|ff)|true|false
)"""
"""Names that some reader (PyYAML, Psych, Go, YAML 1.1 or 1.2) takes for a number, a date, a truth
value or null.  What else YAML knows, such as ``~``, ``1:30`` and ``<<``, is no name of a tube.  No
group is possessive: before 3.11.5 CPython can take half of one (gh-106052).
"""

_is_no_string: Final = re.compile(_NO_STRING, re.VERBOSE).fullmatch
_find_no_string: Final = re.compile(
    rb"\n-\ (?=[0-9+.nyotf-])%s\n" % _NO_STRING, re.VERBOSE | re.IGNORECASE
).search


Pair = tuple[str, str]
"""A key and its value, as text."""


def mapping(pairs: Iterable[Pair]) -> bytes:
    """Write ``key: value`` lines in the order given."""
    return "".join(["---\n", *(f"{key}: {value}\n" for key, value in pairs)]).encode()


def listing(names: Iterable[bytes]) -> bytes:
    """Write ``- name`` lines in the order given."""
    items = [b"---", *names]
    content = b"\n- ".join(items) + b"\n"
    # One look at all of them: 10,000 names take 1 ms, and 2.4 if each is a number.
    if _find_no_string(content) is None:
        return content
    quoted = [b'"%s"' % each if _is_no_string(each) else each for each in items]
    return b"\n- ".join(quoted) + b"\n"


def quoted(text: str) -> str:
    return f'"{text}"'


def name(text: str) -> str:
    """Quote a value as a name in a list: only where it could be taken for no string."""
    return quoted(text) if _is_no_string(text.encode()) else text


def item(name: bytes) -> bytes:
    """Write a name as an item of a list: in quotes if it ends in a colon, as a key does."""
    return b'"%s"' % name if name.endswith(b":") else name


def records(name: str, items: Sequence[str], more: Iterable[Pair] = ()) -> bytes:
    """Write a key with a list of mappings, and ``more`` keys after it.

    :param items: each as its lines, the first after ``- `` and the others after two blanks.
    """
    start = f"---\n{name}:\n" if items else f"---\n{name}: []\n"
    return "".join([start, *items, *(f"{key}: {value}\n" for key, value in more)]).encode()


def read_mapping(content: bytes) -> list[Pair]:
    """Take a document of ``key: value`` lines apart; quotes around a value are removed.

    :raise ValueError: it is none.
    """
    return [_pair(line) for line in _lines(content)]


def read_records(name: str, content: bytes) -> tuple[list[list[Pair]], list[Pair]]:
    """Take apart what `records` has made.

    :return: the pairs of each item, and those after the list.
    :raise ValueError: it is no such document.
    """
    items: list[list[Pair]] = []
    more: list[Pair] = []
    first, *lines = _lines(content) or [b""]
    if first.removesuffix(b" []") != f"{name}:".encode():
        raise ValueError(f"no list of {name}: {first[:40]!r}")
    for line in lines:
        if line.startswith(b"- "):
            items.append([_pair(line[2:])])
        elif not line.startswith(b"  "):
            more.append(_pair(line))
        elif items:
            items[-1].append(_pair(line[2:]))
        else:
            raise ValueError(f"of no item: {line!r}")
    return items, more


def read_listing(content: bytes) -> list[bytes]:
    """Take a document of ``- name`` lines apart; quotes around a name are removed.

    :raise ValueError: it is none.
    """
    lines = _lines(content)
    if wrong := [line for line in lines if not line.startswith(b"- ")]:
        raise ValueError(f"no item of a list: {wrong[0]!r}")
    return [line[3:-1] if line.startswith(b'- "') else line[2:] for line in lines]


def _pair(line: bytes) -> Pair:
    key, colon, text = line.decode(errors="replace").partition(": ")
    if not colon:
        raise ValueError(f"no key and value: {line!r}")
    is_quoted = len(text) >= 2 and text[0] == text[-1] == '"'
    return key, text[1:-1] if is_quoted else text


def _lines(content: bytes) -> list[bytes]:
    start, *lines, end = content.split(b"\n") if b"\n" in content else (content, b"?")
    if start != b"---" or end:
        raise ValueError(f"no YAML document: {content[:40]!r}")
    return lines
