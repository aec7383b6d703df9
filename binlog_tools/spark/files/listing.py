"""What is in a folder, and what a pattern names."""

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import SegmentHeader, archive_name, parse_segment_name
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.logs.sources import is_store_name, parse_archived_name
from binlog_tools.spark.definitions.addresses import name_of, normal, split, within
from binlog_tools.spark.files.stores import STORES

_WILD: Final = re.compile(r"[*\[]")


class Folder(NamedTuple):
    """:ivar address: a path or a URL.
    :ivar sizes: of its files, by name, as `files_at` says them.
    :ivar stores: the folders in it that are called as those of an archive's stores.
    """

    address: str
    sizes: Mapping[str, int]
    stores: tuple[str, ...]

    def within(self, name: str) -> str:
        return within(self.address, name)


def names_a_segment(address: str) -> bool:
    """Whether a file is called like a segment, in a server's directory or in an archive."""
    name = name_of(address)
    return parse_segment_name(name) is not None or parse_archived_name(name) is not None


def expanded(path: str) -> list[str]:
    """:return: what it names, in order; empty if there is nothing.  URLs without wildcards are not
        looked for.
    :raise OSError: something is there or not, but nobody lets us look.
    """
    path = normal(path)
    if is_url(path):
        return _matching(path) if _WILD.search(path.partition("?")[0]) else [path]
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return sorted(glob.glob(path))
    return [path]


def _matching(url: str) -> list[str]:
    """What a URL with ``*`` or ``[…]`` in some of its parts names."""
    folder, pattern = split(url)
    found = []
    for parent in _matching(folder) if _WILD.search(folder.partition("?")[0]) else [folder]:
        listing = STORES.at(parent).listing()
        names = [*listing.folders, *(entry.name for entry in listing.entries)]
        found += [within(parent, name) for name in fnmatch.filter(names, pattern)]
    return sorted(found)


def files_at(address: str) -> dict[str, int]:
    """The files of a folder by their names, sorted, with their sizes; those of local ones are not
    looked at, and 0.  None if it is not there.

    :raise OSError: it cannot be listed.
    """
    if is_url(address):
        return dict(STORES.at(address).entries())
    try:
        return dict.fromkeys(sorted(os.listdir(address)), 0)
    except FileNotFoundError:
        return {}


def folder_at(address: str) -> Folder:
    """What is in a folder.  In object storage there may be nothing: buckets have only names.

    :raise OSError: it cannot be listed, or the bucket is not there.
    """
    if not is_url(address):
        names = files_at(address)
        return Folder(address, names, tuple(filter(is_store_name, names)))
    store = STORES.at(address)
    store.check()
    listing = store.listing()
    return Folder(address, dict(listing.entries), tuple(filter(is_store_name, listing.folders)))


def archived_at(paths: Iterable[str], header: SegmentHeader) -> Iterator[str]:
    """Where a segment may be when the server has deleted it from where it was seen.

    :param paths: of archives, stores in them, and others.
    """
    name = archive_name(header.seq, header.first_lsn)
    for path in map(normal, paths):
        yield within(within(path, header.store_uuid.hex()), name)
        yield within(path, name)
