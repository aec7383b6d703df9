"""The numbers on disk, and the header of a segment."""

import json
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.segments import format as fmt
from beanstalk_twisted.binlog.segments.format import (
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from tests.binlog import independent_reader
from tests.binlog.scribe import flipped, header

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "binlog-format.md"

U16, U32, U64, I64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 63) - 1

HEADERS = [
    header(),
    header(
        seq=U64, first_lsn=U64, created_ns=I64, prev_end=U64, trim_seq=U64, next_job_id=U64,
        store_uuid=b"\xff" * 16, salt=U32, flags=U16, incarnation=U32, writer="w" * 32,
    ),
    header(
        seq=0, first_lsn=0, created_ns=-I64 - 1, prev_end=0, trim_seq=0, next_job_id=0,
        store_uuid=bytes(16), salt=0, flags=0, incarnation=0, writer="",
    ),
]  # fmt: skip


@pytest.mark.parametrize("given_header", HEADERS)
def test_both_readers_read_a_header_as_it_was_written(given_header: SegmentHeader) -> None:
    raw = given_header.encode()
    assert len(raw) == fmt.SEGMENT_HEADER_BYTES
    assert decode_segment_header(raw) == given_header
    seen = independent_reader.read_header(raw)
    assert seen is not None
    expected = given_header._asdict() | {"store_uuid": given_header.store_uuid.hex()}
    assert {name: seen[name] for name in expected} == expected


def test_no_shorter_piece_of_a_header_is_one() -> None:
    raw = header().encode()
    for length in range(len(raw)):
        assert isinstance(decode_segment_header(raw[:length]), HeaderProblem)


def test_a_bit_flipped_anywhere_in_a_header_is_seen() -> None:
    raw = header().encode()
    for offset in range(len(raw)):
        found = decode_segment_header(flipped(raw, offset, offset % 8))
        assert isinstance(found, HeaderProblem), offset
        assert not found.foreign, "rot is not another version"


@given(st.binary(max_size=200).map(lambda start: start.ljust(fmt.SEGMENT_HEADER_BYTES, b"\0")))
def test_arbitrary_bytes_are_no_header_and_raise_nothing(raw: bytes) -> None:
    assert isinstance(decode_segment_header(raw), HeaderProblem)


def with_field(offset: int, pattern: str, value: int) -> bytes:
    """A header with one field set, and the checksum right."""
    raw = bytearray(header().encode())
    struct.pack_into(pattern, raw, offset, value)
    struct.pack_into("<I", raw, 4092, zlib.crc32(raw[:4092]))
    return bytes(raw)


@pytest.mark.parametrize(
    ("offset", "pattern", "value", "said"),
    [
        (8, "<H", 2, "version is 2"),
        (8, "<H", 0, "version is 0"),
        (84, "<I", 79, "records of 79 bytes"),
        (88, "<B", 2, "checksum kind 2"),
        (100, "<I", 1, "bits 0x1"),
        (104, "<I", 1 << 31, "bits 0x80000000"),
    ],
)
def test_what_we_do_not_know_is_called_foreign_and_not_damaged(
    offset: int, pattern: str, value: int, said: str
) -> None:
    found = decode_segment_header(with_field(offset, pattern, value))
    assert isinstance(found, HeaderProblem)
    assert found.foreign
    assert said in found.why


@pytest.mark.parametrize(
    ("offset", "pattern", "value"), [(10, "<H", 9), (84, "<I", 88), (96, "<I", U32)]
)
def test_a_newer_minor_longer_records_and_compatible_features_are_read(
    offset: int, pattern: str, value: int
) -> None:
    assert decode_segment_header(with_field(offset, pattern, value)) == header()


def test_the_description_lays_out_a_record_for_a_reader_without_the_document() -> None:
    raw = header().encode()
    columns = json.loads(raw[160:4092].rstrip(b"\0"))["record"]
    kinds = {"u1": "B", "<u4": "I", "<u8": "Q", "<i8": "q"}
    assert struct.Struct("<" + "".join(kinds[kind] for _, kind in columns)).size == 80
    assert [name for name, _ in columns] == list(independent_reader.RECORD)


@pytest.mark.parametrize("seq", [0, 1, 42, 10**20 - 1])
def test_a_segments_name_says_its_number(seq: int) -> None:
    assert parse_segment_name(segment_name(seq)) == seq


def test_names_sort_as_they_count() -> None:
    numbers = [1, 2, 9, 10, 99, 100, U64]
    assert sorted(map(segment_name, numbers)) == [segment_name(n) for n in numbers]


@pytest.mark.parametrize(
    "name",
    [
        "", "LOCK", "lock", "1.tql", "0" * 19 + ".tql", "0" * 21 + ".tql", "0" * 20,
        "0" * 20 + ".tql.bak", "0" * 20 + ".TQL", "+" + "0" * 19 + ".tql", "٣" * 20 + ".tql",
        "spare." + "0" * 20 + ".tmp", "binlog.1",
    ],
)  # fmt: skip
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_segment_name(name) is None


def test_the_document_and_the_code_name_the_same_numbers() -> None:
    text = DOCUMENT.read_text()
    for magic in (fmt.SEGMENT_MAGIC, fmt.FRAME_MAGIC):
        assert magic.hex(" ").upper() in text
    assert fmt.RECORD.format in text
    assert fmt.TRAILER.format in text
    for number in (fmt.MAX_BODY_BYTES, fmt.MAX_FRAME_RECORDS, fmt.MIN_SEGMENT_BYTES):
        assert f"{number:,}" in text
    limits = dict(re.findall(r"^\| ([a-z ]+?) \| (\d+ [KMG]iB|\d+ bytes)", text, re.MULTILINE))
    assert limits["frame"] == f"{fmt.MAX_FRAME_BYTES >> 20} MiB"
    assert limits["tube name"] == f"{fmt.MAX_TUBE_NAME_BYTES} bytes"
    assert f"{fmt.DEFAULT_SEGMENT_BYTES >> 20} MiB by default" in text
    assert f"{fmt.INDEX_STRIDE_BYTES >> 10} KiB or more" in text
    assert f"begins the next | {fmt.FRAME_TARGET_BYTES >> 20} MiB" in text
