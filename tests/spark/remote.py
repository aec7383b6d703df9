"""Logs in simulated object storage, which this process takes for what URLs name."""

from __future__ import annotations

import errno
import os
import sys

from beanstalk_twisted.binlog.archive_manifest import Manifest, describe
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    archive_name,
    decode_segment_header,
    parse_segment_name,
)
from binlog_tools.spark.files import STORES, PatientStore
from tests.binlog.scribe import UUID, Files
from tests.object_storage.memory import MemoryStore


class Waits:
    """Takes down how long was waited."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class CountingStore(MemoryStore):
    """:ivar read_bytes: how much was read of it.
    :ivar short: objects whose ranges lack their last byte, but for those that end this early;
        ``failing``, objects of which such ranges are an error.
    """

    read_bytes = 0

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.short: dict[str, int] = {}
        self.failing: dict[str, int] = {}

    def read(self, name: str, start: int = 0, end: int = sys.maxsize) -> bytes:
        content = super().read(name, start, end)
        if end > self.short.get(name, end):
            content = content[:-1]
        if end > self.failing.get(name, end):
            raise OSError(errno.EIO, "AWS Error SLOW_DOWN during GetObject", name)
        self.read_bytes += len(content)
        return content


class Lent:
    """Object storage whose bucket no other test has."""

    def __init__(self) -> None:
        self.bucket = f"s3://lent-{os.urandom(8).hex()}"
        self.requests: list[tuple[str, str]] = []

    def folder(self, path: str, objects: Files, options: str = "") -> CountingStore:
        store = CountingStore(f"{self.bucket}/{path}")
        store.objects.update(objects)
        store.fault = self._note
        STORES.keep(store.path + options, PatientStore(store, Waits()))
        return store

    def _note(self, operation: str, name: str) -> None:
        # When an object is opened is the store's own matter.
        if operation != "open":
            self.requests.append((operation, name))

    def archive(self, path: str, files: Files, options: str = "") -> CountingStore:
        """An archive of one store."""
        named = as_archived(files)
        (uuid,) = {raw[64:80].hex() for raw in named.values()}
        self.folder(path, {f"{uuid}/{name}": raw for name, raw in named.items()}, options)
        return self.folder(f"{path}/{uuid}", named, options)


def as_archived(files: Files) -> Files:
    return {
        archive_name(int(name[:20]), int.from_bytes(raw[24:32], "little")): raw
        for name, raw in files.items()
        if parse_segment_name(name) is not None
    }


def manifest_of(objects: Files) -> bytes:
    entries = {}
    names = sorted(objects)
    for name, after in zip(names, [*names[1:], None], strict=True):
        raw = objects[name]
        following = decode_segment_header(objects[after][:SEGMENT_HEADER_BYTES]) if after else None
        assert not isinstance(following, HeaderProblem)
        entry = describe(lambda start, end, raw=raw: raw[start:end], len(raw), following)  # type: ignore[misc]
        assert entry is not None
        entries[int(name[:20])] = entry
    return Manifest(UUID, entries).encode()
