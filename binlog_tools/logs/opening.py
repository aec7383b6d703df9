"""From the arguments of a command to logs: directories, archives, URLs and files of segments."""

import errno
import mmap
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.files import LocalFiles
from beanstalk_twisted.binlog.reading.survey import Progress, Survey, refuse_beanstalkds
from beanstalk_twisted.binlog.records.others import Record
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
from beanstalk_twisted.object_storage.store import Store, is_url, open_store
from beanstalk_twisted.replication.stream.addresses import is_stream
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.new_log import NO_FLOORS, Floors, OriginSource
from binlog_tools.logs.sources import (
    NoLog,
    Source,
    archived_among,
    is_servers,
    is_store_name,
    parse_archived_name,
)
from binlog_tools.logs.stored import (
    OF_TUBES,
    StoredJob,
    StoredKey,
    TubeRecord,
    loaded_jobs,
    stored_keys,
    tube_records,
)
from binlog_tools.logs.streams import StreamSource


def store_at(url: str) -> Store:
    """:raise BadUrl: it names no store.
    :raise OSError: it cannot be read.
    """
    store = open_store(url)
    store.check()
    return store


def sources_in(store: Store) -> list[Source]:
    found = []
    for folder in ("", *filter(is_store_name, store.folders())):
        own = store.at(folder)
        names = own.names()
        refuse_beanstalkds(own.path, names)
        archived = archived_among(names)
        if is_servers(names):
            found.append(Source(own, left_out=archived))
        elif archived:
            found.append(Source(own, is_partial=True, is_archive=True))
    if not found:
        raise NoLog(store.path)
    return found


def folders_in(store: Store, url: str) -> list[Store]:
    """The folders of the stores of an archive, or the one that the URL is.

    :raise NoLog: there is no archive.
    """
    every = [store.at(name) for name in ("", *filter(is_store_name, store.folders()))]
    found = [each for each in every if archived_among(each.names())]
    if not found:
        raise NoLog.no_archive(url, every[0].names())
    return found


def open_sources(paths: Iterable[str]) -> list[Source]:
    """The logs that these arguments name.

    :param paths: directories of a server, archives or their stores, URLs of such and of replicated
        streams, and files of segments; files of one folder are taken for one log.
    :raise OSError: one cannot be read; `NoLog`, there is none.
    :raise Incompatible: one is of the C beanstalkd.
    :raise BadUrl: a URL names no store.
    """
    sources: list[Source] = []
    loose: dict[str, list[str]] = {}
    for path in paths:
        if is_stream(path):
            sources.append(StreamSource.at(path))
        elif is_url(path):
            sources += sources_in(store_at(path))
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
    refuse_beanstalkds(path, names)
    if is_servers(names):
        return [Source(LocalFiles(path), left_out=archived_among(names))]
    if archived_among(names):
        files = LocalFiles(
            path, lambda: {each: os.path.join(path, each) for each in os.listdir(path)}
        )
        return [Source(files, is_partial=True, is_archive=True)]
    stores = [name for name in names if is_store_name(name)]
    archives = [os.path.join(path, name) for name in stores]
    found = [source for archive in archives for source in _of_directory(archive)]
    return found or [Source(LocalFiles(path))]


def _of_files(paths: list[str]) -> Source:
    for path in paths:
        _refuse_stranger(path)
    files = {_name_of(path): path for path in paths}
    if len(files) < len(paths):
        raise OSError(errno.EINVAL, "two of these files are the same segment", paths[-1])
    label = paths[0] if len(paths) == 1 else f"{os.path.dirname(paths[0]) or '.'} (files)"
    return Source(LocalFiles(label, lambda: files), is_partial=True)


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

    def tube_records(self, kinds: Iterable[type[Record]] = OF_TUBES) -> list[TubeRecord]:
        return tube_records(self.survey.small, self.now_ns, True, kinds)

    def remembered_keys(self) -> list[StoredKey]:
        return stored_keys(self.survey.small, self.now_ns, is_start=True)


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
