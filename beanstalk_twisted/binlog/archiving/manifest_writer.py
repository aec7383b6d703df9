"""
Keeps the manifest of a store while a server fills its archive (docs/binlog-format.md, "The
manifest").

Segments are delivered first, each with its entry (`delivery`); the entries of several are written
together.  A manifest that cannot be written is stale, which costs readers time, and nothing else.
"""

from typing import Final

from beanstalk_twisted.binlog.archiving.archive import Archive
from beanstalk_twisted.binlog.archiving.manifest import (
    MANIFEST,
    RECENT,
    Incomplete,
    Manifest,
    Unusable,
    decode_manifest,
    seq_of,
)
from beanstalk_twisted.binlog.errors import CannotArchive

RECENT_ENTRIES: Final = 256
"""
Entries that `RECENT` is full with, some 66 KB.  It is written behind each delivery, and `MANIFEST`,
of any size, once for so many.
"""


class ManifestWriter:
    """
    Blocks, and is called by one thread at a time.

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
        """
        A segment was delivered.

        :param entry: as `manifest.describe` makes it.
        """
        self._noted[seq_of(entry)] = entry

    def write(self) -> None:
        """
        Write what was noted.  If this raises, the next call writes it too.

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
        """
        Read what is there, and forget those noted entries that it has: a start delivers again what
        the log still has.

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
