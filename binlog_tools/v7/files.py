"""One file of beanstalkd's log: which layout it has, its records, and what lies between them."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory, File
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.logs.quantities import NS
from binlog_tools.v7 import records
from binlog_tools.v7.records import V5, V7, VERSION, Damage, Incomplete, Layout, Record, decode

MAX_SLIP_BYTES: Final = 3
"""A ttr of one second, times 256 to the fourth, is more than 32 bits of seconds."""

_OUR_DAYS_NS: Final = range(1_000_000_000 * NS, 4_000_000_000 * NS)
"""From 2001, before any beanstalkd, to 2096."""

_BIG_ENDIAN: Final = [VERSION.unpack(bytes((0, 0, 0, each)))[0] for each in records.LAYOUTS]

_PREFIX: Final = "binlog."
_CHUNK_BYTES: Final = 1 << 20
_ZEROS: Final = memoryview(bytes(_CHUNK_BYTES))

_HEADS: Final = {
    V7: re.compile(rb"(?=[\x00-\xc8]\x00{3})(?!\x00{12})", re.DOTALL),
    V5: re.compile(rb"(?=[\x00-\xc8]\x00{7})(?!\x00{16})", re.DOTALL),
}
"""Where a record may begin: a name length, and not the name length and the id of a run of zeros."""

_BEHIND_A_BODY: Final = {
    V7: re.compile(rb"\r\n(?=[\x00-\xc8]\x00{3})", re.DOTALL),
    V5: re.compile(rb"\r\n(?=[\x00-\xc8]\x00{7})", re.DOTALL),
}


class Skipped(NamedTuple):
    """Bytes that are not a record.

    :ivar end: where reading goes on.
    :ivar why: empty if a write was cut short there, the trace of a crash.
    :ivar job_id: whose record it was, 0 if that cannot be said.
    :ivar rest: what seems to be a whole job, but for its fixed part.
    """

    offset: int
    end: int
    why: str
    job_id: int = 0
    rest: Record | None = None


class Opened(NamedTuple):
    """:ivar problem: what is wrong with its beginning, or nothing.
    :ivar machine: what other kind of machine wrote it, if it did.
    """

    layout: Layout | None
    problem: str = ""
    machine: str = ""


def file_number(name: str) -> int | None:
    digits = name.removeprefix(_PREFIX)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if digits == "0" or not digits.startswith("0") else None


def file_name(number: int) -> str:
    return f"{_PREFIX}{number}"


def files_of(names: list[str]) -> dict[int, str]:
    """Sort them in the order in which they count."""
    return dict(sorted((n, name) for name in names if (n := file_number(name)) is not None))


def content_end(buffer: Buffer) -> int:
    view = memoryview(buffer)
    end = len(view)
    while end:
        start = max(0, end - _CHUNK_BYTES)
        part = view[start:end]
        if part != _ZEROS[: len(part)]:
            return start + len(bytes(part).rstrip(b"\0"))
        end = start
    return 0


def open_file(buffer: Buffer) -> Opened:
    if len(buffer) < records.VERSION_BYTES or not content_end(buffer):
        return Opened(None)
    (version,) = records.VERSION.unpack_from(buffer)
    claimed = records.LAYOUTS.get(version)
    if claimed and (_begins(buffer, claimed) or content_end(buffer) <= records.VERSION_BYTES):
        return Opened(claimed)
    for layout in records.LAYOUTS.values():
        if _begins(buffer, layout):
            problem = f"its version is {version}, its records are of version {layout.version}"
            return Opened(layout, problem)
    machine = next((other.machine for other in records.FOREIGN if _begins(buffer, other)), "")
    if machine:
        return Opened(None, f"it was written on a {machine} machine", machine)
    return Opened(claimed) if claimed else _by_searching(buffer, version)


def _begins(buffer: Buffer, layout: Layout) -> bool:
    return _is_surely(decode(buffer, records.VERSION_BYTES, len(buffer), layout))


def _by_searching(buffer: Buffer, version: int) -> Opened:
    found = {}
    for layout in records.LAYOUTS.values():
        at = _search(buffer, records.VERSION_BYTES, content_end(buffer), layout)
        if at is not None:
            found[at] = layout
    if not found and version in _BIG_ENDIAN:
        return Opened(None, "it was written on a big-endian machine", "big-endian")
    if not found:
        return Opened(None, f"its version is {version}, which nobody knows, and no record is in it")
    return Opened(found[min(found)], f"its version is {version}, which nobody knows")


def _is_surely(found: Record | Incomplete | Damage) -> bool:
    """Whether this is a record even where none is expected: chance would need delay and ttr, both
    of 8 bytes, to be whole seconds.  A ttr of 0 was never written; zeros have one.
    """
    return isinstance(found, Record) and found.fields.ttr_ns >= NS


def walk(buffer: Buffer, layout: Layout) -> Iterator[Record | Skipped]:
    """Every record in order, and what was skipped between them.

    Nothing marks where a record begins, so behind damage the next one is looked for by what must
    hold of a record; docs/beanstalkd-binlog.md, "Damage", has the rules.
    """
    at, content = records.VERSION_BYTES, content_end(buffer)
    while at < content:
        found = _looked_into(buffer, decode(buffer, at, len(buffer), layout), layout)
        if isinstance(found, Incomplete | Damage):
            found = _skipped(buffer, content, found, layout)
        yield found
        at = found.end


def _skipped(buffer: Buffer, content: int, found: Incomplete | Damage, layout: Layout) -> Skipped:
    """Find where to go on.  Nothing behind it, and not all of it there: it is torn."""
    end = _next_record(buffer, content, found, layout)
    goes_on_at = len(buffer) if end is None else end
    if isinstance(found, Incomplete):
        why = "" if end is None else "it would run over later records, or the end of the file"
        return Skipped(found.offset, goes_on_at, why, found.job_id)
    is_torn = end is None and found.lacks_end and found.end > content
    # Lengths that lead nowhere enclose no body.
    rest = found.rest if end is None or end == found.end else None
    return Skipped(found.offset, goes_on_at, "" if is_torn else found.why, found.job_id, rest)


def _next_record(
    buffer: Buffer, content: int, found: Incomplete | Damage, layout: Layout
) -> int | None:
    if isinstance(found, Damage) and found.end > found.offset:
        if found.rest is not None:
            # A wrong length of the name may lead to the fixed part of another record.
            inside = _search(buffer, found.offset + 1, found.rest.body_at, layout)
            if inside is not None:
                return inside
            if found.end >= content:
                return None
        behind = decode(buffer, found.end, len(buffer), layout)
        # The lengths, at least, are right.
        if _is_surely(behind) or (isinstance(behind, Damage) and behind.rest is not None):
            return found.end
    return _search(buffer, found.offset + 1, content, layout)


def _search(buffer: Buffer, start: int, content: int, layout: Layout) -> int | None:
    for head in _HEADS[layout].finditer(buffer, start, content):
        found = decode(buffer, head.start(), len(buffer), layout)
        if isinstance(found, Record) and _is_found(found):
            return found.offset if found.is_full else _settled(buffer, found, content, layout)
    return None


def _is_found(found: Record | Incomplete | Damage) -> bool:
    """Whether this is a record even where bytes of others may be read at the wrong place: some
    bytes before a record with priority 0 and a delay, a short one would have that delay as its ttr.
    But its time of creation would be the size of a body.
    """
    is_record = isinstance(found, Record) and found.fields.created_ns in _OUR_DAYS_NS
    return is_record and _is_surely(found)


def _settled(buffer: Buffer, short: Record, content: int, layout: Layout) -> int:
    """Where the record is that a short one was found for.  A full one that begins within it has
    shown more: a name, and a body with its end.
    """
    for head in _HEADS[layout].finditer(buffer, short.offset + 1, min(short.end, content)):
        found = decode(buffer, head.start(), len(buffer), layout)
        if isinstance(found, Record) and found.is_full and _is_found(found):
            return found.offset
    return _aligned(buffer, short.offset, layout)


def _aligned(buffer: Buffer, at: int, layout: Layout) -> int:
    """A short record with zeros before it can be right from up to three places before it on, too,
    with a ttr of whole seconds, 256 times as long or more; but it is not created in our days.
    """
    for other in range(at + MAX_SLIP_BYTES, at, -1):
        found = decode(buffer, other, len(buffer), layout)
        if isinstance(found, Record) and not found.is_full and _is_found(found):
            return other
    return at


def _looked_into(
    buffer: Buffer, found: Record | Incomplete | Damage, layout: Layout
) -> Record | Skipped | Incomplete | Damage:
    """A record whose length runs over its neighbours, and by chance ends where one of them does, is
    not what it says.
    """
    if not isinstance(found, Record) or found.body_bytes < layout.short_bytes:
        return found
    inner_at = _overrun(buffer, found, layout)
    if inner_at is None:
        return found
    body_size = inner_at - found.body_at
    rest = found._replace(end=inner_at, fields=found.fields._replace(body_size=body_size))
    why = "its body would run over later records"
    return Skipped(found.offset, inner_at, why, found.fields.job_id, rest)


def _overrun(buffer: Buffer, record: Record, layout: Layout) -> int | None:
    """Where records that are newer than this one begin in its body, if they end where it ends.  (A
    body that holds a piece of such a log holds older ones.)
    """
    failed_before = record.body_at
    for crlf in _BEHIND_A_BODY[layout].finditer(buffer, record.body_at, record.end):
        if crlf.end() < failed_before:
            continue
        at, is_newer = crlf.end(), False
        while at < record.end:
            inner = decode(buffer, at, record.end, layout)
            if not isinstance(inner, Record) or not _is_surely(inner):
                break
            is_newer |= inner.fields.created_ns >= record.fields.created_ns
            at = inner.end
        if at == record.end and is_newer and crlf.end() < at:
            return crlf.end()
        failed_before = at
    return None


DEFAULT_FILE_BYTES: Final = 10_485_760
"""As of beanstalkd (``-s``)."""

MIN_FILE_BYTES: Final = 4_096
"""A block of beanstalkd's files."""

MAX_FILE_BYTES: Final = 1 << 30
"""beanstalkd keeps the size in 31 bits, and gives files up whole: larger ones help nobody."""

DEFAULT_MAX_BODY_SIZE: Final = 65_535
"""The largest body, its CR LF included, that a beanstalkd loads without ``-z``; at a larger one it
skips the rest of the file.
"""

WRITE_BYTES: Final = 1 << 20
"""Of records that are gathered before they are written."""

SPOOL: Final = "buried.spool"


class _Spooled(NamedTuple):
    """A buried job in the spool; tuples compare in the order of burial."""

    buried_ns: int
    job_id: int
    offset: int
    size: int
    body_size: int


class FileMaker:
    def __init__(self, directory: Directory, file_bytes: int) -> None:
        self.files = 0
        self.bytes = 0
        self._directory = directory
        self._file_bytes = file_bytes
        self._file: File | None = None
        self._offset = self._gathered_bytes = 0
        self._gathered: list[bytes] = []
        self._is_alone = False

    def add(self, record: bytes, body_size: int = 0) -> None:
        """A record is never spread over two files.

        :param body_size: with its CR LF; one above the default limit gets a file of its own.
        """
        is_large = body_size > DEFAULT_MAX_BODY_SIZE
        is_full = self._offset + len(record) > self._file_bytes
        if self._file is None or is_large or self._is_alone or is_full:
            self._next()
        self._is_alone = is_large
        self._gather(record)

    def finish(self) -> None:
        if self._file is None:
            # Without any file, there would be nothing that says that it is a log.
            self._next()
        self._end()
        self._directory.sync()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _next(self) -> None:
        self._end()
        self.files += 1
        self._file = self._directory.create(file_name(self.files))
        self._offset = 0
        self._gather(VERSION.pack(V7.version))

    def _gather(self, content: bytes) -> None:
        self._gathered.append(content)
        self._gathered_bytes += len(content)
        self._offset += len(content)
        self.bytes += len(content)
        if self._gathered_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        self._file.write_at(self._offset - self._gathered_bytes, self._gathered)
        self._gathered = []
        self._gathered_bytes = 0

    def _end(self) -> None:
        if self._file is None:
            return
        self._write()
        self._file.sync()
        self.close()


class Spool:
    """Buried jobs, in a file until their order is known."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._offset = 0
        self._spooled: list[_Spooled] = []

    def add(self, record: bytes, body_size: int, buried_ns: int, job_id: int) -> None:
        if self._file is None:
            self._file = self._directory.create(SPOOL)
        self._file.write_at(self._offset, [record])
        self._spooled.append(_Spooled(buried_ns, job_id, self._offset, len(record), body_size))
        self._offset += len(record)

    def records(self) -> Iterator[tuple[bytes, int]]:
        """Yield them in the order of burial, with their bodies' sizes; then the spool is gone."""
        if self._file is None:
            return
        self.close()
        buffer = self._directory.read(SPOOL)
        for job in sorted(self._spooled):
            yield bytes(buffer[job.offset : job.offset + job.size]), job.body_size
        self._directory.remove(SPOOL)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
