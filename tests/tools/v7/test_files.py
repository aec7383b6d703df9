"""One file of beanstalkd's log."""

import random
import struct
from collections.abc import Sequence

import pytest

from binlog_tools.v7.files import Skipped, content_end, file_name, file_number, open_file, walk
from binlog_tools.v7.records import V5, V7, Record
from tests.tools.v7.theirs import (
    FIXED_386,
    NS,
    READY,
    T0,
    VERSION_5,
    VERSION_7,
    fields,
    file_7,
    full,
    full_5,
    gone,
    short,
)

EXPECTED_WALK = list[tuple[str, int]]


def walked(content: bytes) -> EXPECTED_WALK:
    """What is met in a file: records by their jobs, and what is skipped by its length."""
    found: EXPECTED_WALK = []
    end = 4
    for each in walk(content, V7):
        assert each.offset == end, "nothing is left out"
        end = each.end
        if isinstance(each, Record):
            found.append(("full" if each.is_full else "short", each.fields.job_id))
        else:
            found.append(("damaged" if each.why else "torn", each.end - each.offset))
    return found


def only_skipped(content: bytes) -> Skipped:
    (skipped,) = (each for each in walk(content, V7) if isinstance(each, Skipped))
    return skipped


def test_names_are_numbers_without_leading_zeros() -> None:
    assert file_number("binlog.0") == 0
    assert file_number("binlog.12345678901234567890") == 12345678901234567890
    strays = [
        "binlog.", "binlog.007", "binlog.-1", "binlog.9x", "binlog.foo", "Binlog.1", "binlog.1 ",
        "binlog.1.part", "lock", "binlog.\u0663",
    ]  # fmt: skip
    assert [name for name in strays if file_number(name) is not None] == []
    assert file_number(file_name(17)) == 17


def test_a_wrong_version_hides_no_record() -> None:
    for raw in (b"\x08\0\0\0", b"\5\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0"):
        opened = open_file(raw + full(1) + full(2))
        assert opened.layout is V7 and opened.problem
    assert open_file(VERSION_7 + full_5(1)).layout is V5


def test_a_wrong_version_and_a_damaged_first_record_hide_no_other() -> None:
    damaged = full(1)[:-2] + b"xx"
    assert open_file(b"\x08\0\0\0" + damaged + full(2)).layout is V7
    assert open_file(b"\x08\0\0\0" + full_5(1)[:-2] + b"xx" + full_5(2)).layout is V5


def test_a_file_of_something_else_is_not_read() -> None:
    opened = open_file(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(5000))
    assert opened.layout is None and "nobody knows" in opened.problem and not opened.machine


I386_7 = struct.pack("<i", 7) + FIXED_386.pack(*fields(1, b"hello")) + b"hello\r\n"


def i386(version: bytes, length: str, fixed: str, unit: int) -> bytes:
    values = [v // unit if at in (2, 3, 5, 6) else v for at, v in enumerate(fields(1, b"hello"))]
    return version + struct.pack(length, 4) + b"tube" + struct.pack(fixed, *values) + b"hello\r\n"


@pytest.mark.parametrize(
    ("content", "machine"),
    [
        (i386(VERSION_7, "<i", "<QIqqiqq5IB3x", 1), "i386"),
        (i386(VERSION_5, "<I", "<QIQQiQQ5IB", 1000), "i386"),
        (i386(VERSION_5, "<I", "<QI4xQQi4xQQ5IB", 1000), "32-bit ARM"),
        (struct.pack(">i", 7) + struct.pack(">i", 4) + b"tube", "big-endian"),
        (struct.pack(">i", 5) + struct.pack(">Q", 4) + b"tube", "big-endian"),
    ],
)
def test_files_of_other_machines_are_told_from_damage(content: bytes, machine: str) -> None:
    opened = open_file(content + bytes(1000))
    assert (opened.layout, opened.machine) == (None, machine)


def test_where_the_zeros_begin_is_found_across_chunks() -> None:
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20):
        assert content_end(b"x" * size + bytes(5 << 19)) == size
    assert content_end(b"") == 0


DAMAGED: Sequence[tuple[str, bytes]] = [
    ("a name that is too long", struct.pack("<i", 5000) + full(2)[4:]),
    ("another length of the name", struct.pack("<i", 6) + full(2)[4:]),
    ("no name", bytes(4) + full(2)[4:]),
    ("a body that is too long", full(2, body_size=8)),
    ("a body that is too short", full(2, body_size=6)),
    ("a body longer than the file", full(2, body_size=1 << 29)),
    ("a body without a size", full(2, body_size=0)),
    ("another end of the body", full(2)[:-2] + b"\0\0"),
    ("another state", full(2, state=77)),
    ("a short record with another state", short(2, 77)),
    ("part of a record", full(2)[:50]),
    ("the end of a record", full(2)[50:]),
    ("zeros", bytes(512)),
    ("noise", random.Random(5).randbytes(300)),
]


@pytest.mark.parametrize("damaged", [raw for _, raw in DAMAGED], ids=[name for name, _ in DAMAGED])
def test_behind_damage_reading_goes_on_at_the_next_record(damaged: bytes) -> None:
    around = [("full", 1), ("damaged", len(damaged)), ("short", 1), ("full", 3)]
    assert walked(file_7(full(1), damaged, gone(1), full(3), zeros=9)) == around
    assert walked(file_7(damaged, full(3))) == [("damaged", len(damaged)), ("full", 3)]


def test_damage_in_a_body_that_holds_a_record_does_not_bring_that_to_life() -> None:
    trap = full(66, b"x", created=T0)
    for damaged in (full(2, trap, state=9), full(2, trap)[:-2] + b"xx"):
        assert walked(file_7(full(1), damaged, full(3))) == [
            ("full", 1), ("damaged", len(damaged)), ("full", 3),
        ]  # fmt: skip


def test_a_body_may_hold_a_piece_of_such_a_log() -> None:
    piece = b"\r\n" + full(66, b"x", created=T0) + gone(66, b"x", created=T0)
    assert piece.endswith(bytes(4))
    for body in (piece, piece[:-86], full(66, created=T0)[:-2], b"\r\n" * 100):
        assert walked(file_7(full(1), full(2, body), full(3))) == [
            ("full", 1), ("full", 2), ("full", 3),
        ]  # fmt: skip


def test_a_body_that_swallows_its_neighbours_is_found_out() -> None:
    """With records of 128 bytes, one flipped bit of body_size is all it takes."""
    body = b"b" * (128 - 4 - 7 - 80 - 2)
    swallower = full(1, body, body_size=len(body) + 2 + 128)
    assert len(swallower) == 128
    content = file_7(swallower, full(2, body), full(3, body))
    assert walked(content) == [("damaged", 128), ("full", 2), ("full", 3)]
    rest = only_skipped(content).rest
    assert rest is not None and rest.body_bytes == len(body)
    two = file_7(full(1, body, body_size=len(body) + 2 + 256), full(2, body), full(3, body))
    assert walked(two) == [("damaged", 128), ("full", 2), ("full", 3)]


@pytest.mark.exhaustive
def test_a_search_is_not_slowed_down_by_a_hostile_file() -> None:
    """Each of these would take minutes if places were looked at more than a few times."""
    size = 1 << 18
    for unit in (b"\1\0\0\0", b"\0\0\0\0\1", b"\r\n\1\0\0\0", short(5, READY), b"\r\n" + gone(5)):
        hostile = unit * (size // len(unit))
        content = file_7(full(1, hostile), full(2)[:-1], hostile)
        assert walked(content)[0] == ("full", 1)


def test_a_body_full_of_records_is_not_looked_through_again_and_again() -> None:
    """With each CR LF a run of 10,000 records begins; following each of them takes many minutes."""
    inner = full(66, b"", created=T0)
    body = b"\r\n" + inner * 10_000
    assert walked(file_7(full(1, body), full(2))) == [("full", 1), ("full", 2)]


def test_a_name_that_runs_into_the_next_record_brings_nothing_of_that_along() -> None:
    """Again with records of 128 bytes: the fixed part is then that of the neighbour."""
    body = b"b" * (128 - len(full(1, b"")))
    slid = struct.pack("<i", len(b"default") + 128) + full(1, body)[4:]
    content = file_7(slid, full(2, body), full(3))
    assert walked(content) == [("damaged", 128), ("full", 2), ("full", 3)]
    assert only_skipped(content).rest is None


def test_a_record_that_is_nobodys_is_not_found_in_noise() -> None:
    noise = random.Random(9).randbytes(1 << 18)
    assert walked(file_7(noise)) == [("damaged", len(noise))]


def test_ttr_0_is_read_where_a_record_belongs() -> None:
    assert walked(file_7(full(1, ttr=0), full(2, ttr=NS))) == [("full", 1), ("full", 2)]
