"""Bodies that are in the log only: their fingerprints, and reading them back one by one."""

import json
import re
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, NoReturn

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BodyLost
from beanstalk_twisted.binlog.records.jobs import FULL, BodyPlace
from beanstalk_twisted.binlog.records.others import (
    DATA_LEN,
    DATA_OFF,
    JOB_ID,
    TYPE,
    NotUnderstood,
    Raw,
    decode_job,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    INDEX_STRIDE_BYTES,
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.binlog.segments.seals import IndexedFrame, read_seal

MAX_JSON_BYTES: Final = 4096
"""Of a body that is read as JSON: some 10 us, 200 if it is all keys. A larger one is text."""

TEXT_BYTES: Final = 512
"""Of a text, for its fingerprint: what jobs of one kind share stands at the beginning."""

SHAPE_CHARACTERS: Final = 1024
"""Of an object's keys, in order: those of most."""

DIGITS: Final = 16
"""Hexadecimal digits of a fingerprint: 64 bits tell any number of kinds of jobs apart."""

KIND_KEYS: Final = ("action", "class", "command", "event", "job", "kind", "task", "type")
"""Keys of an object that say by a string what kind of job it is: their values count too."""

MAX_DEPTH: Final = 4
"""Objects in objects whose keys count."""

_UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER: Final = re.compile("[0-9]+")
_SPACE: Final = re.compile("[ \t\r\n]+")

READ_BYTES: Final = 64 << 10
"""Bytes that are read at once to find the next headers: those of many small frames, or of one with
60 jobs of 1 KB and all that is in it.
"""

SHARE_BYTES: Final = 2 << 10
"""The same for each of the bodies that are read together, besides another."""

MAX_READ_BYTES: Final = 128 << 10
"""The most of that.  For each read of a file the thread lets go of the interpreter, and gets it
back after others: next to a busy reactor, that is what a read costs.
"""

MAX_PIECES: Final = 3
"""Pieces of files that are remembered: the header of a large frame, its records and its heap."""

MAX_INDEXES: Final = 256
"""Segments whose frames are remembered, the ones read last: 16 GiB of log in 4 MB of memory."""


def fingerprint(body: bytes) -> str:
    """Of a JSON object, a hash of its keys and of what `KIND_KEYS` say; of any other body, of its
    first `TEXT_BYTES`, with UUIDs, numbers, white space and the case of letters made alike.

    :param body: all of it, or more than `MAX_JSON_BYTES` of its beginning.
    :return: `DIGITS` hexadecimal digits.
    """
    shape = _shape(body) if len(body) <= MAX_JSON_BYTES and body.lstrip()[:1] == b"{" else None
    text = body[:TEXT_BYTES].decode("latin-1") if shape is None else shape
    text = _SPACE.sub(" ", _NUMBER.sub("0", _UUID.sub("U", text.lower())))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _shape(body: bytes) -> str | None:
    """:return: the keys of an object, one a line; None if the body is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return "\n".join(sorted(_lines(value, "", MAX_DEPTH)))[:SHAPE_CHARACTERS]


def _lines(value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
    for key, inside in value.items():
        yield path + key
        if isinstance(inside, str) and key in KIND_KEYS:
            yield f"{path}{key}\0{inside}"
        elif isinstance(inside, dict) and depth > 1:
            yield from _lines(inside, f"{path}{key}\n\0", depth - 1)


class _Piece(NamedTuple):
    name: str
    start: int
    end: int
    content: bytes


class _Pieces:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._more_bytes = 0
        self._pieces: deque[_Piece] = deque(maxlen=MAX_PIECES)

    def begin(self, bodies: int) -> None:
        """Forget what was read: files have grown since.  ``bodies`` are going to be read."""
        self._pieces.clear()
        self._more_bytes = min(bodies * SHARE_BYTES, MAX_READ_BYTES) if bodies > 1 else 0

    def copy(self, name: str, start: int, end: int, least_bytes: int = 0) -> bytes:
        """:param least_bytes: to read if nothing is remembered, where there are as many.
        :return: a part of a file, shorter where that ends.
        """
        for piece in self._pieces:
            if piece.name == name and piece.start <= start and end <= piece.end:
                return piece.content[start - piece.start : end - piece.start]
        least_bytes = max(least_bytes, self._more_bytes)
        if end - start >= least_bytes:
            return self._directory.copy_part(name, start, end)
        try:
            content = self._directory.copy_part(name, start, start + least_bytes)
        except OSError:
            # What cannot be read may be behind what was asked for.
            self._more_bytes = 0
            return self._directory.copy_part(name, start, end)
        self._pieces.appendleft(_Piece(name, start, start + len(content), content))
        return content[: end - start]


class _Index:
    """Some frames of a segment by their first LSNs, and how far it was gone through."""

    def __init__(self, header: SegmentHeader) -> None:
        self.salt = header.salt
        self.lsns = array("Q", [header.first_lsn])
        self.offsets = array("Q", [SEGMENT_HEADER_BYTES])

    def before(self, lsn: int) -> int:
        """:return: where to begin to look for the frame of this LSN."""
        return self.offsets[max(0, bisect_right(self.lsns, lsn) - 1)]

    def note(self, frame: Frame | IndexedFrame) -> None:
        """Remember a frame, if it is far enough after the last one that is remembered."""
        if frame.offset >= self.offsets[-1] + INDEX_STRIDE_BYTES:
            self.lsns.append(frame.base_lsn)
            self.offsets.append(frame.offset)


class LogBodyReader:
    """Reads bodies from the segments of a directory.  Used by one thread at a time.

    A place is a segment and an LSN, which no change of the files makes wrong: a segment is cut only
    at its end, after what is durable.  Where in the segment that is, the seal of a finished one
    says to within 64 KiB; in others the headers of the frames are gone through once, and as many
    are remembered.  Bodies that are read together mostly lie side by side; so pieces of files are
    read, each once.

    Nothing is mapped here: a page that the disk cannot read would end the process.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._indexes: dict[int, _Index] = {}
        self._frame: tuple[str, Frame] | None = None
        self._pieces = _Pieces(directory)

    def read_all(self, asked: Sequence[tuple[BodyPlace, int]]) -> list[bytes | Exception]:
        """The bodies of jobs whose full records are at these places, and durable.  What cannot be
        read is an exception: `BodyLost` if there is no such record, or it is damaged; OSError if
        the disk cannot read it, and the rest is not tried: the next one may take as long.
        """
        self._frame = None
        self._pieces.begin(len(asked))
        bodies: list[bytes | Exception] = []
        for place, job_id in asked:
            try:
                bodies.append(self._read(place, job_id))
            except Exception as problem:
                bodies.append(problem)
                if isinstance(problem, OSError):
                    break
        self._frame = None
        self._pieces.begin(0)
        return bodies

    def _read(self, place: BodyPlace, job_id: int) -> bytes:
        name = segment_name(place.segment)
        index = self._index(place.segment, name)
        frame = self._find(index, name, place.lsn)
        at = frame.records_at + (place.lsn - frame.base_lsn) * frame.rec_size
        record = self._pieces.copy(name, at, at + RECORD_BYTES)
        if len(record) < RECORD_BYTES:
            self._lost(name, at, "the file ends inside the record")
        raw = RECORD.unpack(record)
        if raw[TYPE] not in FULL or raw[JOB_ID] != job_id:
            self._lost(name, at, f"this is no full record of job {job_id}")
        start = frame.heap_at + raw[DATA_OFF]
        if raw[DATA_OFF] + raw[DATA_LEN] > frame.heap_len:
            self._lost(name, at, "the record's data lie outside its frame")
        data = self._pieces.copy(name, start, start + raw[DATA_LEN])
        if len(data) < raw[DATA_LEN] or not frames.has_sound_data(raw, data):
            self._lost(name, start, f"the checksum of the body of job {job_id} is wrong")
        return self._body(raw, data, name, at)

    def _body(self, raw: Raw, data: bytes, name: str, at: int) -> bytes:
        try:
            return decode_job(raw, data).body
        except NotUnderstood as problem:
            self._lost(name, at, str(problem))

    def _index(self, seq: int, name: str) -> _Index:
        index = self._indexes.pop(seq, None)
        if index is None:
            header = decode_segment_header(self._directory.copy_part(name, 0, SEGMENT_HEADER_BYTES))
            if not isinstance(header, SegmentHeader):
                self._lost(name, 0, header.why)
            if len(self._indexes) >= MAX_INDEXES:
                del self._indexes[next(iter(self._indexes))]
            index = self._begun(header, name)
        self._indexes[seq] = index
        return index

    def _begun(self, header: SegmentHeader, name: str) -> _Index:
        """What the seal of a finished segment says; without one its frames are gone through."""
        index = _Index(header)
        with suppress(OSError):
            read = partial(self._directory.copy_part, name)
            seal = read_seal(read, self._directory.size(name), header)
            for frame in seal.content.indexed if seal is not None else ():
                index.note(frame)
        return index

    def _find(self, index: _Index, name: str, lsn: int) -> Frame:
        last = self._frame
        if last is not None and last[0] == name and last[1].base_lsn <= lsn < last[1].next_lsn:
            return last[1]
        at = index.before(lsn)
        while True:
            part = self._pieces.copy(name, at, at + FRAME_HEADER_BYTES, READ_BYTES)
            found = frames.decode_header(part, 0, len(part), index.salt)
            if not isinstance(found, Frame):
                why = found.why if isinstance(found, frames.Damage) else "the segment ends here"
                self._lost(name, at, why)
            frame = _moved(found, at)
            index.note(frame)
            if lsn < frame.next_lsn:
                if lsn < frame.base_lsn:
                    self._lost(name, at, f"LSN {lsn} stands in no frame before this one")
                self._frame = name, frame
                return frame
            at = frame.end

    def _lost(self, name: str, offset: int, why: str) -> NoReturn:
        raise BodyLost(
            f"{self._directory.path}/{name}: offset {offset}: {why}. "
            f"Run 'binlog-inspect check {self._directory.path}'."
        )


def _moved(frame: Frame, by: int) -> Frame:
    return frame._replace(
        offset=frame.offset + by, end=frame.end + by, records_at=frame.records_at + by,
        heap_at=frame.heap_at + by,
    )  # fmt: skip
