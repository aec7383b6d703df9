"""The interface to an archive, the one in a directory, and the delivery of finished segments:
docs/binlog-format.md, "The archive".
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.archive_manifest import (
    MANIFEST,
    RECENT,
    Manifest,
    Unusable,
    decode_manifest,
    describe,
    seq_of,
)
from beanstalk_twisted.binlog.directory import Directory, sync_directory
from beanstalk_twisted.binlog.errors import CannotArchive, CannotUse
from beanstalk_twisted.binlog.files import paths_in, read_range
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    archive_name,
    decode_segment_header,
    parse_archive_name,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.seals import seal_offset

CHUNK_BYTES: Final = 1 << 20
"""Read, written and compared at once: well under a millisecond of the interpreter's time."""

PART: Final = ".part"
"""Ends the name of a copy that is not complete."""

RECENT_ENTRIES: Final = 256
"""Entries that `RECENT` is full with, some 66 KB.  It is written after each delivery, and
`MANIFEST`, of any size, once for this many.
"""


class Archive(Protocol):
    """A place for the finished segments of stores, each in a folder of its own.  All methods raise
    OSError.  All kinds, and a simulated one, pass the same contract tests
    (tests/binlog/archiving/test_archive.py).

    :ivar path: of the folder of the store, once it is open.
    :ivar is_remote: whether it may be away without anybody's mistake: a server then starts and ends
        without it.
    """

    path: str
    is_remote: ClassVar[bool] = False

    def refuse_unusable(self) -> None:
        """:raise CannotUse: it can never be used as it is named."""

    def open(self, store_uuid: bytes) -> None:
        """Make the folder of a store if it is missing, durably; all else is about this folder."""

    def names(self) -> list[str]:
        """The names of the files, sorted."""

    def has(self, name: str) -> bool: ...

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        """Whether a file has ``size`` bytes, those that another one begins with."""

    def link(self, name: str, source: Directory, source_name: str) -> None:
        """Give a file of the log a second name here, if it is on the same file system.

        :raise FileExistsError: there is one of this name, which stays.
        """

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        """Copy the first ``size`` bytes of a file of the log, over what a crash may have left under
        this name, and return when they survive a power loss.
        """

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, atomically.

        :raise FileExistsError: there is one of the new name, which stays.
        """

    def remove(self, name: str) -> None: ...

    def content(self, name: str) -> bytes:
        """A whole file; for small ones."""

    def replace(self, name: str, content: bytes) -> None:
        """Make a file, or put another in its place.  If this raises, or the process ends meanwhile,
        there may be the old one, the new one, or in object storage the beginning of the new one.
        """

    def sync(self) -> None:
        """Return when all names in the folder survive a power loss."""


class RealArchive(Archive):
    """An `Archive` of the operating system.

    Nothing here maps a file: the archive may be on a network that hangs, and a thread that waits
    for a mapped page keeps all others waiting.
    """

    def __init__(self, path: str) -> None:
        """:param path: of the directory of all stores; it is never made."""
        self.path = self._root = path

    def refuse_unusable(self) -> None:
        """:raise CannotUse: it is not there, or is not a directory we may write in."""
        try:
            if not stat.S_ISDIR(os.stat(self._root).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as problem:
            raise CannotUse(
                f"archive directory {self._root}: {problem.strerror}; nothing was changed. Make "
                f"it, mount it, or give it to the user the server runs as, then start again."
            ) from problem

    def open(self, store_uuid: bytes) -> None:
        self.path = os.path.join(self._root, store_uuid.hex())
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        sync_directory(self._root)
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        return list(paths_in(self.path))

    def has(self, name: str) -> bool:
        try:
            os.stat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        mine, theirs = self._path(name), os.path.join(source.path, source_name)
        found = os.stat(mine)
        if found.st_size != size:
            return False
        if os.path.samestat(found, os.stat(theirs)):
            return True
        pairs = zip(_chunks(mine, size), _chunks(theirs, size), strict=True)
        return all(one == other for one, other in pairs)

    def link(self, name: str, source: Directory, source_name: str) -> None:
        os.link(os.path.join(source.path, source_name), self._path(name))

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        self._write(name, _chunks(os.path.join(source.path, source_name), size))

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path(name), flags, 0o600)
        try:
            for chunk in chunks:
                view = memoryview(chunk)
                while view:
                    view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        if self.has(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path(new))
        os.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def content(self, name: str) -> bytes:
        path = self._path(name)
        return b"".join(_chunks(path, os.stat(path).st_size))

    def replace(self, name: str, content: bytes) -> None:
        self._write(name + PART, [content])
        os.rename(self._path(name + PART), self._path(name))

    def sync(self) -> None:
        sync_directory(self.path)


def _chunks(path: str, size: int) -> Iterator[bytes]:
    """Read the first ``size`` bytes of a file; OSError if it is shorter."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for at in range(0, size, CHUNK_BYTES):
            end = min(at + CHUNK_BYTES, size)
            content = read_range(fd, at, end)
            if len(content) < end - at:
                raise OSError(errno.EIO, f"it ends at offset {at + len(content)}", path)
            yield content
    finally:
        os.close(fd)


class ManifestWriter:
    """Keeps the manifest of an archive.  Blocks, and is called by one thread at a time.

    :ivar spoilt: files that were found to be no manifest of the store, with what is wrong; such a
        file counts for nothing, and is begun anew when it is next written.
    """

    def __init__(self, archive: Archive, store_uuid: bytes) -> None:
        """:param archive: with the folder of the store open."""
        self._archive = archive
        self._store_uuid = store_uuid
        self._recent: dict[int, bytes] | None = None
        self._noted: dict[int, bytes] = {}
        self.spoilt: dict[str, str] = {}

    def note(self, entry: bytes) -> None:
        """A segment was delivered; ``entry`` is of `archive_manifest.describe`."""
        self._noted[seq_of(entry)] = entry

    def write(self) -> None:
        """Write what was noted.  If this raises, the next call writes it too.

        :raise CannotArchive: what is there is of a newer version, and is left as it is.
        """
        recent = self._recent
        if recent is None and self._noted:
            recent = self._load()
        if recent is None or not self._noted:
            return
        entries = {**recent, **self._noted}
        if len(entries) >= RECENT_ENTRIES:
            self._put(MANIFEST, {**self._there(MANIFEST), **entries})
            entries = {}
        self._put(RECENT, entries)
        self._recent = entries
        self._noted = {}

    def _load(self) -> dict[int, bytes]:
        """Read what is there, and forget noted entries that it has: a start delivers them again."""
        recent = self._there(RECENT)
        there = {**self._there(MANIFEST), **recent}
        self._noted = {s: entry for s, entry in self._noted.items() if there.get(s) != entry}
        self._recent = recent
        return recent

    def _there(self, name: str) -> dict[int, bytes]:
        """The entries of a file; none if it is not there, or cannot be used."""
        try:
            found = decode_manifest(self._archive.content(name))
        except FileNotFoundError:
            return {}
        if isinstance(found, Unusable) and found.is_foreign:
            raise CannotArchive(
                f"{self._archive.path}/{name} was written by a newer version, and is left as it "
                f"is ({found.why})"
            )
        if isinstance(found, Manifest) and found.store_uuid == self._store_uuid:
            return dict(found.entries)
        if isinstance(found, Manifest):
            self.spoilt[name] = f"it is of store {found.store_uuid.hex()}"
        elif isinstance(found, Unusable):
            self.spoilt[name] = found.why
        else:
            self.spoilt[name] = f"it is cut off at {found.size} bytes"
        return {}

    def _put(self, name: str, entries: dict[int, bytes]) -> None:
        self._archive.replace(name, Manifest(self._store_uuid, entries).encode())


class Delivered(NamedTuple):
    """A segment that is in the archive, durably, and its encoded entry for the manifest."""

    seq: int
    entry: bytes | None


class Gap(NamedTuple):
    """Segments that an archive lacks and the log no longer has, both ends inclusive."""

    first: int
    last: int


def gap(names: Iterable[str], oldest: int) -> Gap | None:
    """Return what can no longer be delivered, because the log was compacted without the archive.

    :param names: of the files in the archive; ``oldest`` is the log's oldest segment.
    """
    newest = max((parsed[0] for n in names if (parsed := parse_archive_name(n))), default=oldest)
    return Gap(newest + 1, oldest - 1) if newest < oldest - 1 else None


def store_uuid(directory: Directory, seq: int) -> bytes:
    header = _header(directory, seq)
    assert header is not None
    return header.store_uuid


def deliver(archive: Archive, directory: Directory, seq: int, durable_lsn: int) -> Delivered | None:
    """Put a segment into the archive, if nothing can change it any more: its successor is durable,
    and says where it ends.  Before that, a start after a crash may still cut it, and a hard link
    would be cut with it.  To do it again changes nothing; a crash at any point leaves what is
    complete under its name, and nothing else that has a meaning.

    :param durable_lsn: highest LSN known durable, inclusive.
    :return: None while its successor is not durable.
    :raise CannotArchive: it could not be put there.
    """
    name = segment_name(seq)
    try:
        successor = _header(directory, seq + 1)
        if successor is None or successor.first_lsn > durable_lsn:
            return None
        return _deliver(archive, directory, seq, successor.prev_end, successor)
    except OSError as problem:
        raise CannotArchive(
            f"archiving {directory.path}/{name} in {archive.path} failed: {problem.strerror}; "
            f"the log keeps it, so nothing is lost."
        ) from problem


def deliver_rest(
    archive: Archive, directory: Directory, first: int, goes_on: Callable[[], bool] = lambda: True,
    notice: Callable[[Delivered], None] = lambda delivered: None,
) -> None:  # fmt: skip
    """Deliver all segments from ``first`` on.  The log has ended in order, so the newest one is
    finished too.

    :param goes_on: asked before each; the rest is left when it says no.
    :param notice: called with each that is there.
    :raise CannotArchive: one could not be put there.
    """
    found = [seq for name in directory.names() if (seq := parse_segment_name(name)) is not None]
    for seq in found:
        if not goes_on():
            break
        if seq < first:
            continue
        delivered = deliver(archive, directory, seq, durable_lsn=1 << 64)
        delivered = delivered or _deliver_newest(archive, directory, seq)
        if delivered is not None:
            notice(delivered)


def _deliver_newest(archive: Archive, directory: Directory, seq: int) -> Delivered | None:
    """The last segment of a log that has ended in order has a trailer, and needs no successor."""
    content = directory.read(segment_name(seq))
    end = len(content) - TRAILER_BYTES
    if not _is_trailer(bytes(content[end:]), end):
        return None
    return _deliver(archive, directory, seq, end, None)


def _deliver(
    archive: Archive, directory: Directory, seq: int, prev_end: int, after: SegmentHeader | None
) -> Delivered:
    """:param prev_end: where its frames end; ``after`` is the header of its successor."""
    name = segment_name(seq)
    header = _header(directory, seq)
    if header is None:
        raise CannotArchive(f"archiving {directory.path}/{name}: it is not there any more")
    content = directory.read(name)
    file_bytes = len(content)
    # Its trailer counts, what a crash left behind its end does not.
    rest = bytes(content[prev_end : prev_end + TRAILER_BYTES + 1])
    del content  # A limit on memory counts what is mapped.
    size = prev_end + (TRAILER_BYTES if _is_trailer(rest, prev_end) else 0)
    new = archive_name(seq, header.first_lsn)
    if archive.has(new):
        if not archive.holds(new, directory, name, size):
            raise _differs(archive, directory, name, new)
        if archive.has(new + PART):
            # A crash in the middle of a rename that is a copy.
            archive.remove(new + PART)
        archive.sync()
    else:
        _put(archive, directory, name, size, new, may_link=size == file_bytes)
    return Delivered(seq, _entry(directory, name, size, after))


def _entry(directory: Directory, name: str, size: int, after: SegmentHeader | None) -> bytes | None:
    try:
        return describe(partial(directory.read, name), size, after)
    except OSError:
        return None


def _put(
    archive: Archive, directory: Directory, name: str, size: int, new: str, may_link: bool
) -> None:
    """Complete first, then named, then durable.  A name that is not known durable is taken back, so
    that the next attempt begins anew: to sync a second time proves nothing.
    """
    if not (may_link and _linked(archive, directory, name, new)):
        _copy(archive, directory, name, size, new)
    try:
        archive.sync()
    except OSError:
        with contextlib.suppress(OSError):
            archive.remove(new)
        raise


def _linked(archive: Archive, directory: Directory, name: str, new: str) -> bool:
    """Whatever else prevents a link, the copy that is tried next reports it."""
    try:
        archive.link(new, directory, name)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _copy(archive: Archive, directory: Directory, name: str, size: int, new: str) -> None:
    try:
        archive.copy(new + PART, directory, name, size)
    except OSError:
        # A full disk is not to be kept full by half a copy.
        with contextlib.suppress(OSError):
            archive.remove(new + PART)
        raise
    archive.rename(new + PART, new)


def _is_trailer(rest: bytes, end: int) -> bool:
    seal_at = seal_offset(rest)
    return seal_at is not None and seal_at < end


def _header(directory: Directory, seq: int) -> SegmentHeader | None:
    name = segment_name(seq)
    try:
        header = decode_segment_header(bytes(directory.read(name, 0, SEGMENT_HEADER_BYTES)))
    except FileNotFoundError:
        return None
    if not isinstance(header, SegmentHeader):
        raise CannotArchive(
            f"archiving {directory.path}/{name}: {header.why}. "
            f"Run 'binlog-inspect check {directory.path}'."
        )
    return header


def _differs(archive: Archive, directory: Directory, name: str, new: str) -> CannotArchive:
    return CannotArchive(
        f"archiving {directory.path}/{name} failed: {archive.path}/{new} is there with other "
        f"bytes, and is not overwritten; the log keeps its own, so nothing is lost. If this log "
        f"was started from an old copy, give it an archive of its own; else find out which one is "
        f"right, and move the other away."
    )
