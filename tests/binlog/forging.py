"""Logs that no server writes: a field changed, and all checksums made right again."""

import struct
import zlib

from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, files_of


def with_header_field(raw: bytes, offset: int, pattern: str, value: int | bytes) -> bytes:
    """A segment with one field of its header changed."""
    changed = bytearray(raw)
    struct.pack_into(pattern, changed, offset, value)
    struct.pack_into("<I", changed, 4092, zlib.crc32(changed[:4092]))
    return bytes(changed)


def with_record_byte(directory: MemoryDirectory, offset: int, value: int) -> Files:
    """The files of a directory, one byte of the last record of its last frame changed."""
    files = files_of(directory)
    name = max(name for name in files if name.endswith(".tql"))
    raw = bytearray(files[name])
    at = raw.rindex(b"\xb5TQF\r\n\x1a\x01")
    (n_rec,) = struct.unpack_from("<I", raw, at + 20)
    raw[at + 64 + (n_rec - 1) * 80 + offset] = value
    files[name] = rechecked(raw, at)
    return files


def rechecked(raw: bytearray, at: int) -> bytes:
    """A segment whose frame at ``at`` has the checksums of what it holds."""
    (n_rec,) = struct.unpack_from("<I", raw, at + 20)
    struct.pack_into("<I", raw, at + 12, zlib.crc32(raw[at + 64 : at + 64 + n_rec * 80]))
    struct.pack_into("<I", raw, at + 8, zlib.crc32(raw[at + 12 : at + 64]))
    return bytes(raw)
