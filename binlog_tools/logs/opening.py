"""From the arguments of a command to logs: directories, archives, URLs and files of segments."""

import errno
import mmap
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Readable
from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from beanstalk_twisted.binlog.segments.format import (
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.object_storage.store import Store, is_url, join, open_store
from beanstalk_twisted.replication.stream.addresses import is_stream
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.new_log import NO_FLOORS, Floors, OriginSource
from binlog_tools.logs.sources import (
    NoLog,
    Source,
    archived_among,
    is_servers,
    is_store_name,
    named_as_in_a_log,
    parse_archived_name,
)
from binlog_tools.logs.stored import (
    StoredJob,
    StoredKey,
    StoredPause,
    StoredPolicy,
    loaded_jobs,
    loaded_keys,
    loaded_pauses,
    loaded_policies,
)
from binlog_tools.logs.streams import StreamSource

SPOOL_BYTES: Final = 8 << 20
"""Read at once where a segment is copied into a file: what S3's own tools take."""


class ObjectFolder(Readable):
    """A folder in object storage.  All methods raise OSError."""

    def __init__(self, store: Store, folder: str) -> None:
        """:param folder: its name below the store's URL; empty for the URL itself."""
        self.path = join(store.url, folder) if folder else store.url
        self._store = store
        self._folder = folder
        self._sizes: dict[str, int] = {}

    def names(self) -> list[str]:
        self._sizes = dict(self._store.entries(self._folder))
        return list(self._sizes)

    def size(self, name: str) -> int:
        """Give it as it was when `names` was last called."""
        if name not in self._sizes:
            self._sizes[name] = self._store.size(join(self._folder, name))
        return self._sizes[name]

    def read(self, name: str) -> Buffer:
        return self.read_part(name, 0, self.size(name))

    def write(self, name: str, content: bytes) -> None:
        self._store.write(join(self._folder, name), [content])

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return self._store.read(join(self._folder, name), start, end)


class ObjectSource(Source):
    """A `Source` in object storage.  Nothing there is held open: objects do not change."""

    def __init__(self, folder: ObjectFolder, is_archive: bool, left_out: list[str]) -> None:
        self._folder = folder
        self._is_named_so = is_archive
        self._read: tuple[str, Buffer] | None = None
        super().__init__(folder.path, self._listed, is_archive, left_out, is_archive)

    def _listed(self) -> Mapping[str, str]:
        names = self._folder.names()
        if self._is_named_so:
            return named_as_in_a_log(self.path, names)
        return {name: name for name in names}

    def _hold(self, found: dict[str, str]) -> None:
        pass

    def open(self, name: str) -> int:
        # Here, since it takes 7 ms, and commands that read directories do not need it.
        import tempfile

        own = self.path_of(name)
        size = self._folder.size(own)
        with tempfile.TemporaryFile() as copy:
            for at in range(0, size, SPOOL_BYTES):
                copy.write(self._folder.read_part(own, at, min(at + SPOOL_BYTES, size)))
            copy.flush()
            return os.dup(copy.fileno())

    def read(self, name: str) -> Buffer:
        if self._read is None or self._read[0] != name:
            self._read = None
            self._read = name, self._folder.read(self.path_of(name))
        return self._read[1]

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        if self._read is not None and self._read[0] == name:
            return self._read[1][start:end]
        return self._folder.read_part(self.path_of(name), start, end)

    def header_bytes(self, name: str) -> bytes:
        return bytes(self.read_part(name, 0, SEGMENT_HEADER_BYTES))


def sources_at(url: str) -> list[Source]:
    """:raise BadUrl: it names no store.
    :raise OSError: it cannot be read; `NoLog`, there is none.
    """
    store = open_store(url)
    store.check()
    return sources_in(store)


def sources_in(store: Store) -> list[Source]:
    found = [
        source
        for name in ("", *filter(is_store_name, store.folders()))
        if (source := _source(ObjectFolder(store, name))) is not None
    ]
    if not found:
        raise NoLog(store.url)
    return found


def _source(folder: ObjectFolder) -> Source | None:
    names = folder.names()
    archived = archived_among(names)
    if is_servers(names):
        return ObjectSource(folder, False, archived)
    return ObjectSource(folder, True, []) if archived else None


def folders_at(url: str) -> list[Readable]:
    """The folders of the stores of an archive, or the one that the URL is.

    :raise BadUrl: it names no store.
    :raise OSError: it cannot be read; `NoLog`, there is no archive.
    """
    store = open_store(url)
    store.check()
    return folders_in(store, url)


def folders_in(store: Store, url: str) -> list[Readable]:
    stores = filter(is_store_name, store.folders())
    every = [ObjectFolder(store, name) for name in ("", *stores)]
    found: list[Readable] = [each for each in every if archived_among(each.names())]
    if not found:
        raise NoLog.no_archive(url, every[0].names())
    return found


def open_sources(paths: Iterable[str]) -> list[Source]:
    """The logs that these arguments name.

    :param paths: directories of a server, archives or their stores, URLs of such and of replicated
        streams, and files of segments; files of one folder are taken for one log.
    :raise OSError: one cannot be read; `NoLog`, there is none.
    :raise BadUrl: a URL names no store.
    """
    sources: list[Source] = []
    loose: dict[str, list[str]] = {}
    for path in paths:
        if is_stream(path):
            sources.append(StreamSource.at(path))
        elif is_url(path):
            sources += sources_at(path)
        elif os.path.isdir(path):
            sources += _of_directory(path)
        else:
            loose.setdefault(os.path.dirname(path), []).append(path)
    return sources + [_of_files(files) for files in loose.values()]


def open_reachable(paths: Iterable[str]) -> tuple[list[Source], list[OSError]]:
    """The logs, without URLs that do not answer if another argument names a log; and why each of
    those cannot be read.

    :raise OSError: none can be read; or one that can be asked has no log.
    """
    paths = list(paths)
    found = open_sources(path for path in paths if not is_url(path))
    away: list[OSError] = []
    for url in filter(is_url, paths):
        try:
            found += open_sources([url])
        except OSError as problem:
            if isinstance(problem, NoLog | FileNotFoundError):
                raise
            away.append(problem)
    if away and not found:
        raise away[0]
    return found, away


def open_source(path: str) -> Source:
    """The one log that an argument names.

    :raise OSError: there is none, or more than one.
    """
    sources = open_sources([path])
    if len(sources) > 1:
        names = ", ".join(os.path.basename(source.path) for source in sources)
        raise OSError(
            errno.EINVAL, f"there are {len(sources)} stores here ({names}); name one", path
        )
    return sources[0]


def _of_directory(path: str) -> list[Source]:
    names = sorted(os.listdir(path))
    if is_servers(names):
        return [Source(path, lambda: _paths_in(path), left_out=archived_among(names))]
    if archived_among(names):
        return [Source(path, lambda: _archived(path), is_partial=True, is_archive=True)]
    stores = [name for name in names if is_store_name(name)]
    archives = [os.path.join(path, name) for name in stores]
    found = [source for archive in archives for source in _of_directory(archive)]
    return found or [Source(path, lambda: _paths_in(path))]


def _paths_in(path: str) -> dict[str, str]:
    with os.scandir(path) as entries:
        return {entry.name: entry.path for entry in entries if entry.is_file()}


def _archived(path: str) -> dict[str, str]:
    files = named_as_in_a_log(path, os.listdir(path))
    return {name: os.path.join(path, own) for name, own in files.items()}


def _of_files(paths: list[str]) -> Source:
    for path in paths:
        _refuse_stranger(path)
    files = {_name_of(path): path for path in paths}
    if len(files) < len(paths):
        raise OSError(errno.EINVAL, "two of these files are the same segment", paths[-1])
    label = paths[0] if len(paths) == 1 else f"{os.path.dirname(paths[0]) or '.'} (files)"
    return Source(label, lambda: files, is_partial=True)


def _refuse_stranger(path: str) -> None:
    """:raise NoLog: a file has nothing of a segment in it, and is not called like one."""
    name = os.path.basename(path)
    if parse_segment_name(name) is not None or parse_archived_name(name) is not None:
        return
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size:
            with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as content:
                if holds_something(content):
                    return
    raise NoLog(path, "this is no segment of a log")


_BEGINNINGS: Final = re.compile(re.escape(SEGMENT_MAGIC) + b"|" + re.escape(FRAME_MAGIC))


def holds_something(buffer: Buffer | mmap.mmap) -> bool:
    """Return True if the beginning of a header, or of a frame, can be seen."""
    return _BEGINNINGS.search(buffer) is not None


def _name_of(path: str) -> str:
    """The name of a file in a server's directory; its header knows best."""
    with open(path, "rb") as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    if isinstance(header, SegmentHeader):
        return segment_name(header.seq)
    name = os.path.basename(path)
    archived = parse_archived_name(name)
    if archived is not None:
        return segment_name(archived.seq)
    return name if parse_segment_name(name) is not None else segment_name(1)


class Loaded(NamedTuple):
    """A log as a server would load it.

    :ivar now_ns: the log time at which it would.
    :ivar given_out: what is given out behind the moment at which the log is looked at.
    """

    source: Source
    survey: Survey
    now_ns: int
    given_out: Floors = NO_FLOORS

    @property
    def last_lsn(self) -> int:
        return OriginSource.of(self.survey).last_lsn

    @property
    def floors(self) -> Floors:
        """For a log that is made of this one."""
        return Floors(*map(max, Floors.of(self.survey), self.given_out))

    def jobs(self) -> Iterator[StoredJob]:
        return loaded_jobs(self.survey, self.now_ns)

    def pauses(self) -> list[StoredPause]:
        return list(loaded_pauses(self.survey, self.now_ns))

    def remembered_keys(self) -> list[StoredKey]:
        return list(loaded_keys(self.survey, self.now_ns))

    def policies(self) -> list[StoredPolicy]:
        return list(loaded_policies(self.survey))


def load(
    source: Source, progress: Progress = lambda done, total: None, wall_ns: int | None = None
) -> Loaded:
    """:param wall_ns: the wall clock, if not that of now, or of the moment of a `PastSource`.
    :raise BinlogError: a server would refuse it.
    :raise OSError: it cannot be read.
    """
    survey = source.survey(progress)
    survey.refuse_if_unsound()
    given_out = NO_FLOORS
    if isinstance(source, PastSource):
        given_out = source.floors
        wall_ns = source.now_ns if wall_ns is None else wall_ns
    now_ns = time.time_ns() if wall_ns is None else wall_ns
    return Loaded(source, survey, max(now_ns, survey.small.time_ns), given_out)
