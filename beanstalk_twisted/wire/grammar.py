"""The fields of a command line: as a server reads them, as beanstalkd does, odd input included, and
as a client writes them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.wire.replies import BAD_FORMAT, Reply
from beanstalk_twisted.wire.replies import CRLF as CRLF

MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1
MAX_TIMEOUT_S: Final = (1 << 31) - 1
"""beanstalkd keeps a reserve's timeout in a signed 32-bit integer."""

MAX_TUBE_NAME: Final = 200
"""Bytes in a tube's name at most (protocol.txt, "Tubes")."""

MAX_BATCH_JOBS: Final = 1000
"""Jobs that one command puts: some milliseconds without a pause."""

NS: Final = 1_000_000_000

_TUBE_NAME: Final = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}\Z")


class ParseError(Exception):
    """The peer's line cannot be understood.

    :ivar is_counted: whether the command counts in `stats` nevertheless.
    :ivar counter: its key there, if it does.
    """

    def __init__(self, reply: Reply, *, is_counted: bool = False) -> None:
        super().__init__(reply)
        self.reply = reply
        self.is_counted = is_counted
        self.counter: str | None = None


Write = Callable[[str, Any], bytes]
"""Writes a value of the application's; also given is what to call it in errors.  Empty for one that
is left out.  Raises TypeError or ValueError for what can be no value of the field.
"""


class Whole:
    """Writes whole numbers."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def __call__(self, what: str, value: Any) -> bytes:
        check_whole(what, value, self.least, self.most)
        return b"%d" % int(value)


class Field(NamedTuple):
    """One field of a command line.

    :ivar name: as in protocol.txt.
    :ivar pattern: with one group; the text before it is skipped.  Quantifiers over digits are
        possessive, so that no number is split in two.
    :ivar convert: from the group's bytes to a value, or raises `ParseError`.
    :ivar write: None for a field that clients of ours do not write.
    :ivar is_written: see `implied`.
    :ivar is_optional: whether it may be left out; then its text is empty.
    """

    name: str
    pattern: bytes
    convert: Callable[[bytes], Any]
    write: Write | None = None
    is_written: bool = True
    is_optional: bool = False


def implied(name: str, value: object) -> Field:
    """Make a field that a dialect does not write: it has always this value."""
    return Field(name, b"()", lambda _: value, is_written=False)


def check_whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """:raise TypeError: the value is no int, or a bool.
    :raise ValueError: it is out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{what} is {wanted}, not {value}")


def optional(write: Write) -> Write:
    """Write nothing for None."""
    return lambda what, value: b"" if value is None else write(what, value)


def text_of(pattern: str, wanted: str) -> Write:
    """Write text that matches."""

    def write(what: str, value: object) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"{what} is text, not {value!r}")
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{what} is {wanted}, not {value!r}")
        return value.encode()

    return write


def one_of(*names: str) -> Write:
    return text_of("|".join(names), f"one of {', '.join(names)}")


def line_pattern(fields: Sequence[Field]) -> "re.Pattern[bytes]":
    """Match what follows the command's word; the last group is whatever is left over."""
    return re.compile(b"".join(field.pattern for field in fields) + rb"(.*)", re.DOTALL)


def number(text: bytes, most: int, least: int = 0) -> int:
    """:raise ParseError: it is out of range."""
    value = int(text)
    if not least <= value <= most:
        raise ParseError(BAD_FORMAT)
    return value


def _u32(text: bytes) -> int:
    return number(text, MAX_U32)


def _u64(text: bytes) -> int:
    return number(text, MAX_U64)


def _timeout(text: bytes) -> int:
    return number(text, MAX_TIMEOUT_S) * NS


def _ttr(text: bytes) -> int:
    """Seconds; 0 means 1 (protocol.txt, "put")."""
    return _u32(text) or 1


def _batch_count(text: bytes) -> int:
    return number(text, MAX_BATCH_JOBS, 1)


def _loose_count(text: bytes) -> int:
    """A count as C's strtoul reads it: a sign is accepted, and the value taken modulo 2**32."""
    value = int(text)
    if abs(value) > MAX_U64:
        raise ParseError(BAD_FORMAT)
    return value & MAX_U32


def is_tube_name(text: bytes) -> bool:
    return _TUBE_NAME.match(text) is not None


def _tube(text: bytes) -> bytes:
    if not is_tube_name(text):
        raise ParseError(BAD_FORMAT)
    return text


def _counted_tube(text: bytes) -> bytes:
    """A name that parses but is not a legal one is counted (beanstalkd prot.c, OP_PAUSE_TUBE)."""
    if not is_tube_name(text):
        raise ParseError(BAD_FORMAT, is_counted=True)
    return text


def write_tube(what: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"the name of a tube is not {value!r}")
    if not is_tube_name(value):
        raise ValueError(f"not the name of a tube: {value!r}; it is {A_NAME}")
    return value


def write_name(what: str, value: object) -> bytes:
    """Write a key, or the name of a group."""
    if not isinstance(value, str | bytes):
        raise TypeError(f"{what} is text or bytes, not {value!r}")
    name = value.encode("ascii", "replace") if isinstance(value, str) else value
    if not is_tube_name(name):
        raise ValueError(f"{what} is not {value!r}; it is {A_NAME}")
    return name


A_NAME: Final = f"1 to {MAX_TUBE_NAME} letters, digits and -+/;.$_(), and does not begin with -"
U32: Final = Whole(0, MAX_U32)
U64: Final = Whole(0, MAX_U64)
WAIT_S: Final = Whole(0, MAX_TIMEOUT_S)

_DIGITS: Final = rb" *+([0-9]++)"

JOB_ID: Final = Field("id", _DIGITS, _u64, U64)
PRIORITY: Final = Field("pri", _DIGITS, _u32, U32)
DELAY: Final = Field("delay", _DIGITS, _u32, U32)
TTR: Final = Field("ttr", _DIGITS, _ttr, U32)
BYTES: Final = Field("bytes", _DIGITS, _u32, U32)
OPTIONAL_BYTES: Final = Field(
    "bytes", rb"((?: ++[0-9]++)?+)", lambda text: _u32(text) if text else None, optional(U32),
    is_optional=True,
)  # fmt: skip
UNIX_SECONDS: Final = Field("unix-seconds", _DIGITS, int, U64)
BATCH_COUNT: Final = Field("count", _DIGITS, _batch_count, Whole(1, MAX_BATCH_JOBS))
PAUSE: Final = Field("pause", _DIGITS, _u32, U32)
# Anything after TIMEOUT and BOUND is ignored (beanstalkd prot.c).
# Differs from beanstalkd: it takes what is no number as 0, and waits without limit for -1.
TIMEOUT: Final = Field("seconds", _DIGITS + rb".*+", _timeout, WAIT_S)
SECONDS: Final = Field("seconds", _DIGITS, _timeout, WAIT_S)
# An older dialect's; there, nothing but digits is a count.
COUNT: Final = Field("count", _DIGITS, _u32)
BOUND: Final = Field("bound", rb"[ \t\n\v\f\r]*+([+-]?[0-9]++).*+", _loose_count, U32)
TUBE: Final = Field("tube", rb"(.*+)", _tube, write_tube)
TUBE_THEN: Final = Field("tube", rb" *+([A-Za-z0-9\-+/;.$_()]++)", _counted_tube, write_tube)
# The same after one space, as in the commands that beanstalkd does not have.
TUBE_WORD: Final = Field("tube", rb"([A-Za-z0-9\-+/;.$_()]++)", _tube, write_tube)
