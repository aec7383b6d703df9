"""Logs as a later version would write them: sound, with headers that this one does not know."""

from __future__ import annotations

from typing import Final

from tests.binlog.forging import with_header_field
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, delete, put

WRITER: Final = "beanstalk-twisted/9.9.9"
"""Which version the headers say wrote them."""

FIELDS: Final = {
    "format 2": (8, "<H", 2, "its format version is 2"),
    "incompatible feature": (104, "<I", 1 << 5, "(bits 0x20)"),
    "read-only feature": (100, "<I", 1 << 3, "(bits 0x8)"),
}
"""A field of the header, what it is in the later version, and what is said of it."""

NEWER: Final = {"all": slice(None), "the last": slice(-1, None), "the first": slice(1)}
"""Which segments the later version has written."""


def three_segments() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"), put(2, b"two"))
    scribe.end_segment()
    scribe.write(delete(2), put(3, b"three"))
    scribe.end_segment()
    scribe.write(put(4, b"four"))
    scribe.finish()
    return scribe.files()


def newer_log(field: str, which: str) -> Files:
    offset, pattern, value, _ = FIELDS[field]
    files = three_segments()
    for name in sorted(files)[NEWER[which]]:
        raw = with_header_field(files[name], offset, pattern, value)
        files[name] = with_header_field(raw, 128, "32s", WRITER.encode().ljust(32, b"\0"))
    return files
