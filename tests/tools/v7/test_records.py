"""One record of beanstalkd's log."""

import re
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from binlog_tools.logs.quantities import NS
from binlog_tools.v7.records import (
    GONE,
    MAX_JOB_ID,
    MAX_NAME_BYTES,
    MAX_SECONDS,
    MAX_TIME_NS,
    READY,
    V5,
    V7,
    Damage,
    Fields,
    Incomplete,
    Record,
    decode,
    encode,
)
from tests.tools.v7.theirs import T0, full, full_5, gone, short

PAGE = Path(__file__).resolve().parents[3] / "docs" / "beanstalkd-binlog.md"
EXAMPLE = Fields(1, 7, 0, 60 * NS, 7, 0x18E9F378E7E25828, 0, 0, 0, 0, 0, 0, READY)


def worked_example() -> bytes:
    lines = re.findall(r"^[0-9a-f]{4}((?: +[0-9a-f]{8})+)$", PAGE.read_text(), re.MULTILINE)
    return bytes.fromhex("".join(lines).replace(" ", ""))


def decoded(raw: bytes, at: int = 0) -> Record | Incomplete | Damage:
    return decode(raw, at, len(raw), V7)


def with_field(name: str, value: int) -> bytes:
    """A record with this in one of its fields."""
    changes: dict[str, Any] = {name: value}
    return full(1, **changes)


def test_the_worked_example_is_read_as_the_page_says() -> None:
    raw = worked_example()
    put = decoded(raw, 4)
    assert put == Record(4, 100, b"tubeA", 93, EXAMPLE)
    assert isinstance(put, Record) and put.body_bytes == 5 and put.is_full
    assert decoded(raw, 100) == Record(100, 184, b"", 184, EXAMPLE._replace(state=GONE))


def test_the_worked_example_is_written_as_the_page_says() -> None:
    written = encode(EXAMPLE, b"tubeA", b"hello") + encode(EXAMPLE._replace(state=GONE), b"", b"")
    assert written == worked_example()[4:]


def test_version_5_says_the_same_in_microseconds() -> None:
    changes: dict[str, Any] = {
        "delay": 5 * NS,
        "deadline": T0 + 5 * NS,
        "pri": 7,
        "kicks": 3,
        "state": 4,
    }
    of_5 = full_5(9, b"five", b"alpha", **changes)
    old = decode(of_5, 0, len(of_5), V5)
    new = decoded(full(9, b"five", b"alpha", **changes))
    assert isinstance(old, Record) and isinstance(new, Record)
    assert old.fields == new.fields
    assert old.end == new.end + 1


@pytest.mark.parametrize("raw", [full(1), gone(1)], ids=["full", "short"])
def test_a_record_that_ends_too_early_is_not_there_yet(raw: bytes) -> None:
    assert decoded(raw) == decoded(raw + b"more")
    for end in range(len(raw)):
        assert isinstance(decoded(raw[:end]), Incomplete), end


def test_zeros_are_not_there_yet() -> None:
    for size in (0, 3, 4, 84, 1000):
        assert isinstance(decoded(bytes(size)), Incomplete)
    torn = full(1)[:11]
    assert isinstance(decoded(torn.ljust(200, b"\0")), Incomplete), "length and name, no more"


def test_nothing_behind_the_limit_is_read() -> None:
    raw = full(1)
    assert isinstance(decode(raw, 0, len(raw) - 1, V7), Incomplete)


def test_limits_are_those_of_beanstalkd() -> None:
    assert (MAX_NAME_BYTES, MAX_JOB_ID, MAX_SECONDS) == (200, 2**63 - 2, 2**32 - 1)


@pytest.mark.parametrize(
    "raw",
    [
        full(1), full(1, tube=b"t" * 200), full(MAX_JOB_ID, created=T0), full(1, b""),
        *(with_field(field, seconds * NS) for field in ("delay", "ttr")
          for seconds in (0, 1, MAX_SECONDS)),
        *(with_field(field, at) for field in ("created", "deadline") for at in (0, MAX_TIME_NS)),
        *(full(1, state=state) for state in (1, 2, 3, 4)),
        *(short(1, state) for state in (1, 2, 3, 4, GONE)),
    ],
)  # fmt: skip
def test_a_record_can_be_right(raw: bytes) -> None:
    assert isinstance(decoded(raw), Record)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (full(1, tube=b"t" * 201), "its tube's name would have 201 bytes"),
        (b"\xff\xff\xff\xff" + full(1)[4:], "its tube's name would have -1 bytes"),
        (full(0), "its job id would be 0"),
        (full(MAX_JOB_ID + 1, created=T0), f"its job id would be {2**63 - 1}"),
        *((with_field(field, bad), f"its {field} would be {bad} ns") for field in ("delay", "ttr")
          for bad in (1, -NS, NS + 1, (MAX_SECONDS + 1) * NS)),
        *((with_field(field, -1), "it would have the time -1 ns")
          for field in ("created", "deadline")),
        (full(1, state=GONE), "its state would be 0"), (full(1, state=5), "its state would be 5"),
        (short(1, 5), "its state would be 5"),
        *((full(1, tube=name), f"its tube would be {name!r}")
          for name in (b"-t", b"t t", b"t\0", b"\xe4")),
        *((full(1)[:-2] + end, "its body does not end in CR LF")
          for end in (b"\0\0", b"\r\0", b"\n\r", b"xx")),
        (full(1, body_size=6), "its body does not end in CR LF"),
        *((full(1, body_size=size), f"its body would have {size} bytes")
          for size in (MAX_BODY_BYTES + 3, -1, 0, 1)),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_right_says_why(raw: bytes, said: str) -> None:
    found = decoded(raw)
    assert isinstance(found, Damage) and found.why == said


def test_a_body_of_the_largest_size_is_waited_for() -> None:
    assert isinstance(decoded(full(1, body_size=MAX_BODY_BYTES + 2)), Incomplete)


def test_what_version_5_can_say_and_ours_cannot_hold_is_damage() -> None:
    hostile = b"\xff" * 8 + full_5(1)[8:]
    found = decode(hostile, 0, len(hostile), V5)
    assert isinstance(found, Damage) and found.end == 0
    late = full_5(1, created=(MAX_TIME_NS + 1) // 1000 * 1000 + 1000)
    assert isinstance(decode(late, 0, len(late), V5), Damage)


def test_what_is_wrong_but_whole_is_handed_on() -> None:
    raw = full(3, b"keep", state=9)
    found = decoded(raw)
    assert isinstance(found, Damage) and found.rest is not None
    assert (found.job_id, found.end, found.rest.body_bytes) == (3, len(raw), 4)
    for without_body in (short(3, 9), full(3)[:-1] + b"x", full(3, body_size=1)):
        found = decoded(without_body)
        assert isinstance(found, Damage) and found.rest is None


def test_padding_means_nothing() -> None:
    raw = bytearray(full(1))
    fixed = 4 + len(b"default")
    for at in (12, 15, 36, 39, 77, 79):
        raw[fixed + at] = 0xAA
    assert decoded(bytes(raw)) == decoded(full(1))
