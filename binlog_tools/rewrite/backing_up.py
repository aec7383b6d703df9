"""A back-up of a log in one file, also of a running server's, and a log of such a file."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, NamedTuple

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.survey import Progress, Segment, Survey
from beanstalk_twisted.binlog.segments.format import (
    MAX_SEGMENT_BYTES,
    TRAILER_MAGIC,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.console.streams import naming
from binlog_tools.logs.new_log import NewDirectory
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.outputs import MODE, new_file
from binlog_tools.logs.sources import Source

MANIFEST: Final = "backup.json"
SEAL: Final = "backup.sha256"
VERSION: Final = 2
CHUNK_BYTES: Final = 1 << 20

SEAL_BYTES: Final = 65
"""64 hexadecimal digits and a line feed."""

MAX_MANIFEST_BYTES: Final = 64 << 20
"""Of some 400,000 segments."""


class BadBackup(BinlogError):
    """A file that is no back-up, or not a whole one.  Nothing was written."""


class CopiedSegment(NamedTuple):
    """A segment in a back-up.

    :ivar bytes: that are in it; ``size`` is that of the file, which ends with zeros.
    """

    name: str
    bytes: int
    size: int
    sha256: str


_SEGMENT_FIELDS: Final[Mapping[str, type]] = {"name": str, "bytes": int, "size": int, "sha256": str}

_FIELDS: Final[Mapping[str, type]] = {
    "store_uuid": str, "first_lsn": int, "last_lsn": int, "segments": list,
}  # fmt: skip
"""Of `MANIFEST`, besides its version; of each segment it has `_SEGMENT_FIELDS`."""


class Backup(NamedTuple):
    store_uuid: str
    first_lsn: int
    last_lsn: int
    segments: list[CopiedSegment]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.segments)


def back_up(source: Source, survey: Survey, target: str, progress: Progress) -> Backup:
    """Write a log into a file, which has its name when all of it is durable: a tar of the segments
    as they are, ``backup.json``, which has their sizes and SHA-256, and last ``backup.sha256``, the
    SHA-256 of all bytes before it: without it the file is not whole.

    It is the log up to one LSN, as it was when it was looked at: all that a server had answered by
    then is in it.  Segments are held open from that moment on (`logs.sources`), so compaction takes
    none away while they are copied.

    :param survey: the log as it is to be written; sound.
    :raise OSError: it cannot be written, or the log not be read.
    """
    total, done = sum(segment.size for segment in survey.segments), 0
    copied = []
    with new_file(target) as out:
        summed: Any = _Summed(out)
        with tarfile.open(fileobj=summed, mode="w") as tar:
            for segment in survey.segments:
                source.forget_before(segment.header.seq)
                content = _content(source, segment)
                reader = _HashingReader(content)
                tar.addfile(_member(segment.name, len(content)), reader)
                sha256 = reader.sha256.hexdigest()
                copied.append(CopiedSegment(segment.name, len(content), segment.size, sha256))
                done += segment.size
                progress(done, total)
            backup = _described(survey, copied)
            segments = [each._asdict() for each in copied]
            fields = {"v": VERSION, **backup._asdict(), "segments": segments}
            manifest = json.dumps(fields).encode()
            tar.addfile(_member(MANIFEST, len(manifest)), io.BytesIO(manifest))
            # Read when its own header is written, so that this is summed too.
            tar.addfile(_member(SEAL, SEAL_BYTES), _SealReader(summed))
    return backup


def _described(survey: Survey, copied: list[CopiedSegment]) -> Backup:
    oldest, newest = survey.segments[0], survey.segments[-1]
    return Backup(
        newest.header.store_uuid.hex(), oldest.header.first_lsn, newest.ending.next_lsn - 1, copied
    )


def _content(source: Source, segment: Segment) -> Buffer:
    """One that is not finished ends with its last good frame: what a server has appended since the
    log was looked at is left out.
    """
    buffer = source.read(segment.name)
    is_finished = bytes(buffer[-len(TRAILER_MAGIC) :]) == TRAILER_MAGIC
    return buffer if is_finished else memoryview(buffer)[: segment.ending.offset]


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


class _HashingReader:
    def __init__(self, content: Buffer) -> None:
        self.sha256 = hashlib.sha256()
        self._content = memoryview(content)
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        """All that is left if ``size`` is negative."""
        end = len(self._content) if size < 0 else self._at + size
        chunk = bytes(self._content[self._at : end])
        self._at += len(chunk)
        self.sha256.update(chunk)
        return chunk


class _Summed:
    """A file that is written, and the SHA-256 of all that was."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()


class _SealReader:
    """The last member, as a file that is read once."""

    def __init__(self, whole: _Summed) -> None:
        self._whole = whole

    def read(self, size: int = -1, /) -> bytes:
        return b"%s\n" % self._whole.sha256.hexdigest().encode()


class _SealedFile:
    """A file that is read from its beginning, and the SHA-256 of it up to a place just read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._summed = 0
        self._tail = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        tail = self._tail + data
        cut = max(0, len(tail) - 2 * CHUNK_BYTES)
        self._sha256.update(tail[:cut])
        self._summed += cut
        self._tail = tail[cut:]
        return data

    def check(self, at: int, seal: bytes) -> None:
        """:param at: where the seal stands, in the last chunk that was read.
        :raise ValueError: something before it is not as it was written, or behind it.
        """
        at -= self._summed
        self._sha256.update(self._tail[:at])
        if seal != b"%s\n" % self._sha256.hexdigest().encode():
            raise ValueError("it is not as it was written (SHA-256 of the file)")
        rest = self._tail[at + SEAL_BYTES :]
        while rest:
            if rest.strip(b"\0"):
                raise ValueError(f"there is something behind {SEAL}")
            rest = self._file.read(CHUNK_BYTES)


def restore(path: str, target: str, progress: Progress) -> Backup:
    """Make a log of a back-up, which has its name when all of it is durable and was found sound.

    :param target: must not exist, or be an empty directory.
    :raise BinlogError: it is no whole back-up, or no sound log.
    :raise OSError: it cannot be read, or the log not be written.
    """
    with NewDirectory(target) as new:
        folder = new.directory.path
        with open(path, "rb") as file:
            total = os.fstat(file.fileno()).st_size
            backup = _unpack(file, path, folder, lambda done: progress(done, total))
        survey = open_source(folder).survey()
        problem = survey.refusal()
        if problem is not None:
            raise BadBackup(f"{path}: the log in it cannot be used; nothing was written: {problem}")
        if _described(survey, backup.segments) != backup:
            raise _bad(path, f"{MANIFEST} names another store or other LSNs than the log in it")
        new.publish()
    return backup


def _unpack(file: IO[bytes], path: str, folder: str, progress: Callable[[int], None]) -> Backup:
    """:raise BadBackup: it is none."""
    found: dict[str, CopiedSegment] = {}
    told: Backup | None = None
    sealed: Any = _SealedFile(file)
    try:
        with tarfile.open(
            fileobj=sealed, mode="r|", bufsize=CHUNK_BYTES, tarinfo=_PlainMember
        ) as tar:
            for member in tar:
                if member.name == MANIFEST and told is None:
                    told = _manifest(tar, member)
                elif member.name == SEAL and told is not None:
                    sealed.check(member.offset_data, _content_of(tar, member, SEAL_BYTES))
                    return _checked(told, found, folder)
                else:
                    found[member.name] = _unpacked(tar, member, folder)
                    progress(file.tell())
    except (tarfile.TarError, ValueError) as problem:
        raise _bad(path, str(problem)) from None
    raise _bad(path, f"it ends without {MANIFEST if told is None else SEAL}")


class _PlainMember(tarfile.TarInfo):
    """A file.  Headers of other members would be read into memory, whatever their size."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg():
            raise tarfile.ReadError(f"{self.name!r} is no file")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member


def _bad(path: str, why: str) -> BadBackup:
    return BadBackup(f"{path}: no whole back-up: {why}; nothing was written. Use another one.")


def _unpacked(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> CopiedSegment:
    """:raise ValueError: it is no segment."""
    content = tar.extractfile(member) if member.isreg() else None
    is_segment = parse_segment_name(member.name) is not None
    if content is None or not is_segment or member.size > MAX_SEGMENT_BYTES:
        raise ValueError(f"{member.name!r} is no segment")
    sha256 = hashlib.sha256()
    with naming(os.path.join(folder, member.name)), _created(folder, member.name) as out:
        while chunk := content.read(CHUNK_BYTES):
            sha256.update(chunk)
            out.write(chunk)
    return CopiedSegment(member.name, member.size, member.size, sha256.hexdigest())


def _created(folder: str, name: str) -> IO[bytes]:
    """:raise ValueError: the back-up has it twice."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return open(os.open(os.path.join(folder, name), flags, MODE), "wb")
    except FileExistsError:
        raise ValueError(f"{name} is there twice") from None


def _manifest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Backup:
    """:raise ValueError: it is none."""
    content = _content_of(tar, member, MAX_MANIFEST_BYTES)
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{MANIFEST} is not JSON") from None
    if not isinstance(told, dict):
        raise ValueError(f"{MANIFEST} is no object")
    if told.pop("v", None) != VERSION:
        raise ValueError("it was written by another version")
    _refuse_other_fields(told, _FIELDS)
    for each in told["segments"]:
        _refuse_other_fields(each, _SEGMENT_FIELDS)
    return Backup(**{**told, "segments": [CopiedSegment(**each) for each in told["segments"]]})


def _refuse_other_fields(found: object, fields: Mapping[str, type]) -> None:
    """:raise ValueError: it has not just these fields, of these types."""
    types = {n: type(value) for n, value in found.items()} if isinstance(found, dict) else None
    if types != fields:
        raise ValueError(f"{MANIFEST} has other fields or types than {', '.join(fields)}")


def _content_of(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    """:raise ValueError: it is no file of so many bytes or fewer."""
    content = tar.extractfile(member) if member.isreg() else None
    if content is None or member.size > most:
        raise ValueError(f"{member.name} is no file")
    return content.read()


def _checked(backup: Backup, found: dict[str, CopiedSegment], folder: str) -> Backup:
    """Compare what was unpacked with the manifest, give the files their lengths, make all durable.

    :raise ValueError: it differs.
    """
    told = {each.name: each for each in backup.segments}
    if not told:
        raise ValueError(f"{MANIFEST} names no segments")
    if told.keys() != found.keys():
        raise ValueError(f"{MANIFEST} names other segments")
    for name, each in told.items():
        if (each.bytes, each.sha256) != (found[name].bytes, found[name].sha256):
            raise ValueError(f"{name} is not as it was written (SHA-256)")
        if not each.bytes <= each.size <= max(each.bytes, MAX_SEGMENT_BYTES):
            raise ValueError(f"{name} has no such length")
        path = os.path.join(folder, name)
        with open(path, "r+b", buffering=0) as file, naming(path):
            # Zeros as a server allocates them ahead: they take no space.
            os.ftruncate(file.fileno(), each.size)
            os.fsync(file.fileno())
    return backup
