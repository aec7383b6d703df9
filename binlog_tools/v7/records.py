"""One record of beanstalkd's log; docs/beanstalkd-binlog.md, "Record"."""

import struct
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.wire import grammar
from binlog_tools.logs.quantities import NS
from binlog_tools.tube_names import is_tube_name

CRLF: Final = b"\r\n"

GONE, READY, RESERVED, BURIED, DELAYED = range(5)
"""As both logs number them."""

MAX_NAME_BYTES: Final = grammar.MAX_TUBE_NAME
"""The protocol's limit, and the C reader's (file.c, readrec)."""

MAX_SECONDS: Final = grammar.MAX_U32
"""The protocol has delays and ttrs in 32 bits."""

MAX_JOB_ID: Final = (1 << 63) - 2
"""Ids count from 1: a larger one was never given, it is damage.  The next one fits into 63 bits, as
that of an export as JSON lines has to.
"""

MAX_TIME_NS: Final = (1 << 63) - 1
"""Times of version 7 are signed; those of version 5 must fit into ours (the year 2262)."""

MAX_BODY_SIZE: Final = 1 << 30
"""Largest body with its CR LF that a beanstalkd loads: it holds this number against ``-z``, which
is at most that.
"""


class Fields(NamedTuple):
    """The fixed part of a record, its times in ns.

    :ivar body_size: of the job, with its CR LF; also in a short record.
    :ivar deadline_ns: when a delayed job becomes ready; of no meaning in other states.
    """

    job_id: int
    priority: int
    delay_ns: int
    ttr_ns: int
    body_size: int
    created_ns: int
    deadline_ns: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    state: int


class Layout(NamedTuple):
    """How a version lays a record out on a kind of machine; ``unit_ns`` is what times count."""

    version: int
    machine: str
    length: struct.Struct
    fixed: struct.Struct
    unit_ns: int

    @property
    def short_bytes(self) -> int:
        return self.length.size + self.fixed.size


_64_BIT: Final = "64-bit little-endian"
V7: Final = Layout(7, _64_BIT, struct.Struct("<i"), struct.Struct("<QI4xqqi4xqq5IB3x"), 1)
V5: Final = Layout(5, _64_BIT, struct.Struct("<Q"), struct.Struct("<QI4xQQi4xQQ5IB"), 1000)
LAYOUTS: Final = {layout.version: layout for layout in (V7, V5)}

FOREIGN: Final = (
    Layout(7, "i386", struct.Struct("<i"), struct.Struct("<QIqqiqq5IB3x"), 1),
    Layout(5, "i386", struct.Struct("<I"), struct.Struct("<QIQQiQQ5IB"), 1000),
    Layout(5, "32-bit ARM", struct.Struct("<I"), struct.Struct("<QI4xQQi4xQQ5IB"), 1000),
)
"""Those that are told apart from damage, and refused.  Big-endian ones are told by the version."""

VERSION: Final = struct.Struct("<i")
VERSION_BYTES: Final = VERSION.size


class Record(NamedTuple):
    """A record that can be right; a short one has an empty ``tube``, and ``body_at`` is ``end``."""

    offset: int
    end: int
    tube: bytes
    body_at: int
    fields: Fields

    @property
    def is_full(self) -> bool:
        return bool(self.tube)

    @property
    def body_bytes(self) -> int:
        """Without its CR LF."""
        return self.end - self.body_at - len(CRLF) if self.tube else 0


class Incomplete(NamedTuple):
    """No record yet: the buffer ends inside it, or zeros follow.

    :ivar end: where it would end, as far as is known.
    :ivar job_id: whose it would be, 0 if that cannot be said.
    """

    offset: int
    end: int
    job_id: int = 0


class Damage(NamedTuple):
    """The bytes at ``offset`` cannot be right.

    :ivar end: where the record would end if its lengths hold; else ``offset``.
    :ivar job_id: whose it seems to be, 0 if that cannot be said.
    :ivar rest: the record as it stands if all of its body is there, CR LF included.
    :ivar lacks_end: it may be a record that was not written to its end.
    """

    offset: int
    end: int
    why: str
    job_id: int = 0
    rest: Record | None = None
    lacks_end: bool = False


def decode(buffer: Buffer, at: int, limit: int, layout: Layout) -> Record | Incomplete | Damage:
    """:param limit: where the file ends."""
    fixed_at = at + layout.length.size
    if fixed_at > limit:
        return Incomplete(at, fixed_at)
    name_bytes = layout.length.unpack_from(buffer, at)[0]
    if not 0 <= name_bytes <= MAX_NAME_BYTES:
        return Damage(at, at, f"its tube's name would have {name_bytes} bytes")
    fixed_at += name_bytes
    body_at = fixed_at + layout.fixed.size
    if body_at > limit:
        return Incomplete(at, body_at)
    fields, unit_ns = Fields(*layout.fixed.unpack_from(buffer, fixed_at)), layout.unit_ns
    if unit_ns != 1:
        fields = fields._replace(
            delay_ns=fields.delay_ns * unit_ns, ttr_ns=fields.ttr_ns * unit_ns,
            created_ns=fields.created_ns * unit_ns, deadline_ns=fields.deadline_ns * unit_ns,
        )  # fmt: skip
    if not any(fields):
        return Incomplete(at, body_at)
    if not name_bytes:
        return _checked(Record(at, body_at, b"", body_at, fields))
    tube = bytes(buffer[fixed_at - name_bytes : fixed_at])
    return _with_body(buffer, limit, at, tube, body_at, fields)


def _with_body(
    buffer: Buffer, limit: int, at: int, tube: bytes, body_at: int, fields: Fields
) -> Record | Incomplete | Damage:
    size, job_id = fields.body_size, fields.job_id
    end = body_at + size
    if size > MAX_BODY_BYTES + len(CRLF):
        return Damage(at, at, f"its body would have {size} bytes", job_id)
    if size < len(CRLF):
        why = f"its body would have {size} bytes"
        return Damage(at, body_at + len(CRLF), why, job_id, lacks_end=True)
    if end > limit:
        return Incomplete(at, end, job_id)
    if buffer[end - 2 : end] != CRLF:
        return Damage(at, end, "its body does not end in CR LF", job_id, lacks_end=True)
    return _checked(Record(at, end, tube, body_at, fields))


def _checked(record: Record) -> Record | Damage:
    why = _implausible(record)
    if not why:
        return record
    rest = record if record.is_full else None
    return Damage(record.offset, record.end, why, record.fields.job_id, rest)


def _implausible(record: Record) -> str:
    """Why a record cannot be right, or nothing.  The body is not looked at."""
    fields = record.fields
    if not 1 <= fields.job_id <= MAX_JOB_ID:
        return f"its job id would be {fields.job_id}"
    if not (READY if record.is_full else GONE) <= fields.state <= DELAYED:
        return f"its state would be {fields.state}"
    for what, length_ns in (("delay", fields.delay_ns), ("ttr", fields.ttr_ns)):
        if length_ns % NS or not 0 <= length_ns <= MAX_SECONDS * NS:
            return f"its {what} would be {length_ns} ns"
    for time_ns in (fields.created_ns, fields.deadline_ns):
        if not 0 <= time_ns <= MAX_TIME_NS:
            return f"it would have the time {time_ns} ns"
    if record.is_full and not is_tube_name(record.tube):
        return f"its tube would be {record.tube!r}"
    return ""


def encode(fields: Fields, tube: bytes, body: bytes) -> bytes:
    """A record of version 7.

    :param tube: empty for a short record.
    :param body: without CR LF; counts in a full record only.
    """
    fixed = V7.length.pack(len(tube)) + tube + V7.fixed.pack(*fields)
    return fixed + body + CRLF if tube else fixed
