"""Delivering finished segments to an archive, so that a crash at any point leaves there what is
complete under its name, and nothing else that has a meaning.

A segment is delivered only when nothing can change it any more: its successor is durable, and says
where it ends (docs/binlog-format.md, "The archive").  Before that, a start after a crash may still
cut it, and a hard link would be cut with it.
"""

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.archive import PART, Archive
from beanstalk_twisted.binlog.archive_manifest import (
    MANIFEST,
    RECENT,
    Incomplete,
    Manifest,
    Unusable,
    decode_manifest,
    describe,
    seq_of,
)
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import CannotArchive
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

RECENT_ENTRIES: Final = 256
"""Entries that `RECENT` is full with, some 66 KB.  It is written behind each delivery, and
`MANIFEST`, of any size, once for so many.
"""


class ManifestWriter:
    """Blocks, and is called by one thread at a time.

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
        """A segment was delivered.

        :param entry: as `manifest.describe` makes it.
        """
        self._noted[seq_of(entry)] = entry

    def write(self) -> None:
        """Write what was noted.  If this raises, the next call writes it too.

        :raise OSError: it cannot be written, or what is there not be read.
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
        """Read what is there, and forget those noted entries that it has: a start delivers again
        what the log still has.

        :return: the entries of `RECENT`.
        """
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
        self.spoilt[name] = _what_is_wrong(found)
        return {}

    def _put(self, name: str, entries: dict[int, bytes]) -> None:
        self._archive.replace(name, Manifest(self._store_uuid, entries).encode())


def _what_is_wrong(found: Manifest | Incomplete | Unusable) -> str:
    if isinstance(found, Manifest):
        return f"it is of store {found.store_uuid.hex()}"
    return found.why if isinstance(found, Unusable) else f"it is cut off at {found.size} bytes"


class Delivered(NamedTuple):
    """A segment that is in the archive, durably.

    :ivar entry: what the manifest will say of it, encoded; None: nothing.
    """

    seq: int
    entry: bytes | None


class Gap(NamedTuple):
    """Segments that an archive lacks and the log no longer has, both ends inclusive."""

    first: int
    last: int


def gap(names: Iterable[str], oldest: int) -> Gap | None:
    """What can no longer be delivered, because the log was compacted without the archive.

    :param names: of the files in the archive.
    :param oldest: sequence number of the oldest segment of the log.
    """
    newest = max((parsed[0] for n in names if (parsed := parse_archive_name(n))), default=oldest)
    return Gap(newest + 1, oldest - 1) if newest < oldest - 1 else None


def store_uuid(directory: Directory, seq: int) -> bytes:
    """The store that a segment belongs to.

    :raise OSError: it cannot be read.
    """
    header = _header(directory, seq)
    assert header is not None
    return header.store_uuid


def deliver(
    archive: Archive, directory: Directory, seq: int, durable_lsn: int
) -> Delivered | None:  # fmt: skip
    """Put a segment into the archive, if it is finished.  To do it again changes nothing.

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
    :param notice: hears of each that is there.
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
    """The last segment of a log that has ended in order: it needs no successor, having a
    trailer.
    """
    content = directory.read(segment_name(seq))
    end = len(content) - TRAILER_BYTES
    if not _is_trailer(bytes(content[end:]), end):
        return None
    return _deliver(archive, directory, seq, end, None)


def _deliver(
    archive: Archive, directory: Directory, seq: int, prev_end: int, after: SegmentHeader | None
) -> Delivered:
    """:param prev_end: where its frames end.
    :param after: the header of its successor.
    """
    name = segment_name(seq)
    header = _header(directory, seq)
    if header is None:
        raise CannotArchive(f"archiving {directory.path}/{name}: it is not there any more")
    file_bytes = len(directory.read(name))
    size = _final_bytes(directory, name, prev_end)
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
        return describe(partial(directory.read_part, name), size, after)
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
    """Whatever else keeps a link from being made, the copy that is tried next says it."""
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


def _final_bytes(directory: Directory, name: str, prev_end: int) -> int:
    """How long the segment is for good: its trailer counts, what a crash left behind its end
    does not.
    """
    rest = bytes(directory.read(name)[prev_end : prev_end + TRAILER_BYTES + 1])
    return prev_end + (TRAILER_BYTES if _is_trailer(rest, prev_end) else 0)


def _is_trailer(rest: bytes, end: int) -> bool:
    """:param rest: all that stands behind the frames."""
    seal_at = seal_offset(rest)
    return seal_at is not None and seal_at < end


def _header(directory: Directory, seq: int) -> SegmentHeader | None:
    """The header of a segment; None if it is not there."""
    name = segment_name(seq)
    try:
        header = decode_segment_header(bytes(directory.read_part(name, 0, SEGMENT_HEADER_BYTES)))
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
