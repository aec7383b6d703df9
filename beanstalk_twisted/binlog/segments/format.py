"""Every number on disk, as docs/binlog-format.md says it.  A change there and here raises a
version.

::

    segment   | header 4096 | frame | frame | ... | frame with SEAL | trailer 40 |
    frame     | header 64 | record 80 | record 80 | ... | heap | padding to 8 |
"""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

MAJOR: Final = 1
MINOR: Final = 1
"""Of segments with extensions; others are as version 1.0 writes them."""

EXTENSIONS: Final = 1
"""The incompat bit of a segment that may hold records with extensions, or of types that came with
them: a server that does not know them would lose them.
"""

METADATA: Final = 2
"""The incompat bit of a segment that may hold metadata of jobs; never without `EXTENSIONS`."""

BATCH_KEYS: Final = 4
"""The incompat bit of a segment that may hold keys of batches; never without `EXTENSIONS`."""

KNOWN_FEATURES: Final = EXTENSIONS | METADATA | BATCH_KEYS

SEGMENT_MAGIC: Final = b"\x89TQL\r\n\x1a\n"
FRAME_MAGIC: Final = b"\xb5TQF\r\n\x1a\x01"
TRAILER_MAGIC: Final = b"TQLEND\r\n"

SEGMENT_HEADER_BYTES: Final = 4096
FRAME_HEADER_BYTES: Final = 64
RECORD_BYTES: Final = 80
TRAILER_BYTES: Final = 40
ALIGN_BYTES: Final = 8

CRC_ZLIB: Final = 1
ALIGN_LOG2: Final = 3

# Bits of the segment header's flags.
AFTER_UNCLEAN_STOP: Final = 1
IMPORTED: Final = 2
REHOMED: Final = 4
MADE_BY_TOOL: Final = 8

MAX_BODY_BYTES: Final = 1 << 30
"""The largest body of a job: beanstalkd's largest ``-z``."""

MAX_TUBE_NAME_BYTES: Final = 200
"""The protocol's limit (beanstalkd dat.h, MAX_TUBE_NAME_LEN)."""

MAX_FRAME_BYTES: Final = 16 << 20
"""No frame is larger, unless it holds one larger record: bounds what a reader holds to check it."""

MAX_FRAME_RECORDS: Final = 65_536

FRAME_TARGET_BYTES: Final = 1 << 20
"""The writer begins the next frame here: a checksum over 1 MiB takes well under a millisecond."""

MIN_SEGMENT_BYTES: Final = 8_192
"""The header's 4096 and as much again: below that a segment is mostly header."""

MAX_DESCRIPTION_BYTES: Final = SEGMENT_HEADER_BYTES - 160 - 4
"""What a segment header has room for between its fields and its checksum."""

MAX_SEGMENT_BYTES: Final = 1 << 30
DEFAULT_SEGMENT_BYTES: Final = 64 << 20
"""One file to copy, ship or hand to a Spark task; 3 extra syncs per 64 MiB do not show."""

INDEX_STRIDE_BYTES: Final = 64 << 10
"""Least distance of two frames in a seal's index: 1,024 entries of 20 bytes in 64 MiB."""

INDEX_ENTRY_BYTES: Final = 20
"""What a seal says of a frame that it indexes."""

TUBE_IN_SEAL_BYTES: Final = 6
"""What a seal says of a tube, beside its name."""

TYPE_IN_SEAL_BYTES: Final = 8
"""What a seal says of a type of records."""

SEGMENT_HEADER: Final = struct.Struct("<8sHHIQQqQQQ16sIIBBHIIIII16x32s")
FRAME_HEADER: Final = struct.Struct("<8sIIIIQQqIIIHBB")
FRAME_CHECKED: Final = struct.Struct("<IIIQQqIIIHBB")
"""What follows a frame header's own checksum, which covers it."""

RECORD: Final = struct.Struct("<BBBBIQqqIIIIIIIIIIII")
PLAIN_RECORD: Final = struct.Struct("<IIQq8xIIIIIIII12xI")
"""A record without deadline and data, whose type, state, flags and reason are one number."""

KIND_ID_AND_TIME: Final = struct.Struct("<B7xQq56x")
"""What the seal says of each record."""

KIND_AND_ID: Final = struct.Struct("<B7xQ64x")
"""The two fields of a record that replay asks of each."""

SEAL_HEAD: Final = struct.Struct("<IIQQQqqII")
TRAILER: Final = struct.Struct("<QQQII8s")
U32: Final = struct.Struct("<I")

assert SEGMENT_HEADER.size == 160
assert FRAME_HEADER.size == FRAME_HEADER_BYTES
assert RECORD.size == PLAIN_RECORD.size == RECORD_BYTES
assert TRAILER.size == TRAILER_BYTES

_COLUMNS: Final = (
    ("type", "u1"), ("state", "u1"), ("flags", "u1"), ("reason", "u1"), ("priority", "<u4"),
    ("job_id", "<u8"), ("ts_ns", "<i8"), ("deadline_ns", "<i8"), ("delay_s", "<u4"),
    ("ttr_s", "<u4"), ("tube_id", "<u4"), ("reserves", "<u4"), ("timeouts", "<u4"),
    ("releases", "<u4"), ("buries", "<u4"), ("kicks", "<u4"), ("data_off", "<u4"),
    ("data_len", "<u4"), ("data_crc", "<u4"), ("aux", "<u4"),
)  # fmt: skip


class SegmentHeader(NamedTuple):
    """The fields of a segment header that differ between segments: docs/binlog-format.md."""

    seq: int
    first_lsn: int
    created_ns: int
    prev_end: int
    trim_seq: int
    next_job_id: int
    store_uuid: bytes
    salt: int
    flags: int
    incarnation: int
    writer: str
    incompat: int = 0

    def encode(self, origin: Mapping[str, object] | None = None) -> bytes:
        """:param origin: what a log that a tool made was made from, as JSON.
        :return: the header's 4096 bytes.
        :raise ValueError: the origin is too long.
        """
        fixed = SEGMENT_HEADER.pack(
            SEGMENT_MAGIC, MAJOR, MINOR if self.incompat else 0, SEGMENT_HEADER_BYTES, self.seq,
            self.first_lsn, self.created_ns, self.prev_end, self.trim_seq, self.next_job_id,
            self.store_uuid, self.salt, RECORD_BYTES, CRC_ZLIB, ALIGN_LOG2, self.flags,
            self.incarnation, 0, 0, self.incompat, 0, self.writer.encode("ascii"),
        )  # fmt: skip
        described = json.dumps(
            {"record": _COLUMNS} if origin is None else {"record": _COLUMNS, "origin": origin}
        ).encode()
        if len(described) > MAX_DESCRIPTION_BYTES:
            raise ValueError(
                f"the description is {len(described)} bytes, {MAX_DESCRIPTION_BYTES} fit"
            )
        padded = (fixed + described).ljust(SEGMENT_HEADER_BYTES - 4, b"\0")
        return padded + U32.pack(zlib.crc32(padded))


def decode_description(raw: bytes) -> Mapping[str, object]:
    """The JSON of a sound segment header: `record`, and in logs made by tools `origin`; empty when
    it is not a JSON object.
    """
    described = raw[SEGMENT_HEADER.size : SEGMENT_HEADER_BYTES - 4].rstrip(b"\0")
    try:
        description = json.loads(described)
    except (ValueError, RecursionError):
        return {}
    return description if isinstance(description, dict) else {}


class HeaderProblem(NamedTuple):
    """Why a segment header cannot be used.

    :ivar foreign: the bytes are sound, but of a version or with features that we do not know.
    """

    why: str
    foreign: bool = False


def decode_segment_header(raw: bytes) -> SegmentHeader | HeaderProblem:
    """Read the first 4096 bytes of a segment, or fewer.  Never raises for bad bytes."""
    if len(raw) < SEGMENT_HEADER_BYTES:
        return HeaderProblem(f"the file is {len(raw)} bytes long, shorter than its header")
    if raw[:8] != SEGMENT_MAGIC:
        return HeaderProblem("it does not begin as a segment does")
    if zlib.crc32(raw[:-4]) != U32.unpack_from(raw, SEGMENT_HEADER_BYTES - 4)[0]:
        return HeaderProblem("the header's checksum is wrong")
    return decode_header_fields(raw[: SEGMENT_HEADER.size])


def decode_header_fields(raw: bytes) -> SegmentHeader | HeaderProblem:
    """Read the first 160 bytes of a segment header, which something else vouches for."""
    (_, major, _, _, seq, first_lsn, created_ns, prev_end, trim_seq, next_job_id, store_uuid, salt,
     rec_size, crc_kind, _, flags, incarnation, _, ro_compat, incompat, _, writer,
     ) = SEGMENT_HEADER.unpack(raw)  # fmt: skip
    foreign = incompat & ~KNOWN_FEATURES | ro_compat
    unknown = _unknown_feature(major, foreign, crc_kind, rec_size)
    writer = writer.rstrip(b"\0").decode("ascii", "replace")
    if unknown:
        # Of another major version, the field may be something else.
        by = f"; {writer} wrote it" if writer and writer.isascii() and writer.isprintable() else ""
        return HeaderProblem(unknown + by, foreign=True)
    return SegmentHeader(
        seq, first_lsn, created_ns, prev_end, trim_seq, next_job_id, store_uuid, salt, flags,
        incarnation, writer, incompat,
    )  # fmt: skip


def _unknown_feature(major: int, features: int, crc_kind: int, rec_size: int) -> str:
    if major != MAJOR:
        return f"its format version is {major}; this server knows {MAJOR}"
    if features:
        return f"it uses features this server does not know (bits {features:#x})"
    if crc_kind != CRC_ZLIB or rec_size < RECORD_BYTES:
        return f"it uses checksum kind {crc_kind} and records of {rec_size} bytes"
    return ""


def segment_name(seq: int) -> str:
    """The file name of segment ``seq``: sorts as it counts."""
    return f"{seq:020d}.tql"


def parse_segment_name(name: str) -> int | None:
    """The sequence number in a segment's file name, or None if it is not one."""
    digits, _, suffix = name.partition(".")
    return _twenty_digits(digits) if suffix == "tql" else None


def is_unfinished(name: str) -> bool:
    """Whether a file of this name was being made, and means nothing."""
    return name.startswith("spare.") and name.endswith(".tmp")


def archive_name(seq: int, first_lsn: int) -> str:
    return f"{seq:020d}-{first_lsn:020d}.tql"


def parse_archive_name(name: str) -> tuple[int, int] | None:
    """The sequence number and first LSN in an archived segment's name, None if it is not one."""
    numbers, _, suffix = name.partition(".")
    left, _, right = numbers.partition("-")
    seq, first_lsn = _twenty_digits(left), _twenty_digits(right)
    if suffix != "tql" or seq is None or first_lsn is None:
        return None
    return seq, first_lsn


def _twenty_digits(text: str) -> int | None:
    return int(text) if len(text) == 20 and text.isascii() and text.isdigit() else None
