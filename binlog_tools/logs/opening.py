"""From the arguments of a command to logs: directories, archives, URLs and files of segments."""

import errno
import mmap
import os
import re
from collections.abc import Iterable
from typing import Final

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
from beanstalk_twisted.object_storage.store import is_url
from beanstalk_twisted.replication.stream.addresses import is_stream
from binlog_tools.logs.objects import sources_at
from binlog_tools.logs.sources import (
    NoLog,
    Source,
    archived_among,
    is_servers,
    is_store_name,
    named_as_in_a_log,
    parse_archived_name,
)
from binlog_tools.logs.streams import StreamSource


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(SEGMENT_HEADER_BYTES)


def open_sources(paths: Iterable[str]) -> list[Source]:
    """
    The logs that these arguments name.

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
    """
    The same without URLs that do not answer, if another argument names a log.

    :return: the logs, and why each of the others cannot be read.
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
    """
    The one log that an argument names.

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
    """A server's directory, a store of an archive, or all of an archive's."""
    names = sorted(os.listdir(path))
    if is_servers(names):
        return [Source(path, lambda: _listed(path), left_out=archived_among(names))]
    if archived_among(names):
        return [Source(path, lambda: _archived(path), is_partial=True, is_archive=True)]
    stores = [name for name in names if is_store_name(name)]
    archives = [os.path.join(path, name) for name in stores]
    found = [source for archive in archives for source in _of_directory(archive)]
    return found or [Source(path, lambda: _listed(path))]


def _listed(path: str) -> dict[str, str]:
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
    """:raise NoLog: a file that has nothing of a segment in it, and is not called like one."""
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
    """Whether any part of a log can be seen: the beginning of a header, or of a frame."""
    return _BEGINNINGS.search(buffer) is not None


def _name_of(path: str) -> str:
    """What a file would be called in a server's directory; its header knows best."""
    header = decode_segment_header(_head(path))
    if isinstance(header, SegmentHeader):
        return segment_name(header.seq)
    name = os.path.basename(path)
    archived = parse_archived_name(name)
    if archived is not None:
        return segment_name(archived.seq)
    return name if parse_segment_name(name) is not None else segment_name(1)
