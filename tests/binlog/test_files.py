"""What is asked of the files of a log, wherever they are: the same of directories, object storage,
replicated streams and those in memory.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.errors import CannotUse
from beanstalk_twisted.binlog.files import (
    COPY_BYTES,
    HELD_FILES,
    MAP_BYTES,
    TO_END,
    LocalFiles,
    NotRegular,
)
from beanstalk_twisted.binlog.files import Files as LogFiles
from beanstalk_twisted.binlog.segments.format import TRAILER_BYTES, TRAILER_MAGIC, segment_name
from beanstalk_twisted.binlog.writer import spare_name
from beanstalk_twisted.object_storage.store import ArrowStore
from beanstalk_twisted.storage.opening import refuse_beanstalkd
from beanstalk_twisted.testing.memory_server import SimulatedDirectory
from binlog_tools.logs.sources import Source
from binlog_tools.logs.streams import StreamSource
from tests.binlog.make_golden import read_golden
from tests.object_storage.memory import MemoryStore
from tests.tools.folders import archived, written
from tests.tools.logs.test_streams import messages_of, source_of

ONE, TWO = segment_name(1), segment_name(2)
FILES = read_golden("v1-rotated")


def in_memory_store(path: Path) -> LogFiles:
    store = MemoryStore()
    store.objects = {f"deep/{name}": content for name, content in FILES.items()}
    store.objects["other/x"] = b"x"
    return store.at("deep")


def in_arrow_store(path: Path) -> LogFiles:
    fs = pytest.importorskip("pyarrow.fs")
    folder = written(path / "deep", FILES)
    return ArrowStore(fs.LocalFileSystem(), str(path), f"file://{path}").at(folder.name)


MADE: dict[str, Callable[[Path], LogFiles]] = {
    "server's": lambda path: RealDirectory(str(written(path / "log", FILES))),
    "local": lambda path: LocalFiles(str(written(path / "log", FILES))),
    "held": lambda path: Source(LocalFiles(str(written(path / "log", FILES)))),
    "archived": lambda path: Source(
        LocalFiles(str(next(archived(path, FILES).iterdir()))), is_partial=True, is_archive=True
    ),
    "memory": lambda path: SimulatedDirectory(FILES),
    "objects": in_memory_store,
    "arrow": in_arrow_store,
    "objects as a log": lambda path: Source(in_memory_store(path)),
    "stream": lambda path: source_of(*messages_of(FILES)),
}


@pytest.fixture(params=MADE)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> LogFiles:
    return MADE[request.param](tmp_path)


def content(files: LogFiles, name: str) -> bytes:
    """A stream has no trailers."""
    is_stream = isinstance(files, StreamSource) and name == ONE
    return FILES[name][:-TRAILER_BYTES] if is_stream else FILES[name]


def test_names_are_sorted_and_each_file_has_its_size(files: LogFiles) -> None:
    assert files.names() == [ONE, TWO]
    assert [files.size(name) for name in (ONE, TWO)] == [
        len(content(files, name)) for name in (ONE, TWO)
    ]


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, TO_END), (0, 0), (0, 1), (0, 96), (1, 4097), (4096, TO_END), (7, 7), (100_000, 200_000)],
)
def test_any_range_is_read_to_the_end_at_most(files: LogFiles, start: int, end: int) -> None:
    for name in (ONE, TWO):
        assert bytes(files.read(name, start, end)) == content(files, name)[start:end]
    assert bytes(files.read(ONE)) == content(files, ONE)
    assert bytes(files.read(ONE, start, end)) == content(files, ONE)[start:end]


@pytest.mark.parametrize("name", ["none", segment_name(3)])
def test_what_is_not_there_is_an_error(files: LogFiles, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.read(name)
    with pytest.raises(FileNotFoundError):
        files.size(name)
    assert files.names() == [ONE, TWO]


def a_socket(path: Path) -> None:
    # The path itself may be longer than the 107 bytes of an address.
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(path.parent):
        bound.bind(path.name)


IRREGULAR: dict[str, Callable[[Path], object]] = {
    "dangling symbolic link": lambda path: path.symlink_to("/none"),
    "symbolic link to the segment": lambda path: path.symlink_to(path.parent.with_name("moved")),
    "directory": os.mkdir,
    "named pipe": os.mkfifo,
    "socket": a_socket,
}


@pytest.mark.parametrize("name", [ONE, TWO, spare_name(3)])
@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_has_the_name_of_a_log_s_file_and_is_none_is_refused(
    kind: str, name: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "log", {**FILES, spare_name(3): b""})
    (path / name).rename(tmp_path / "moved")
    IRREGULAR[kind](path / name)
    shown = kind.removeprefix("dangling ").removesuffix(" to the segment")
    said = f"{name} is a {shown}, not a regular file"
    for files in (RealDirectory(str(path)), Source(LocalFiles(str(path)))):
        with pytest.raises(NotRegular, match=said):
            files.names()
    with pytest.raises(CannotUse, match=f"{said}.*Put the segment's file in its place"):
        refuse_beanstalkd(RealDirectory(str(path)))


@pytest.mark.parametrize("kind", IRREGULAR)
def test_other_entries_may_be_anything(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log", FILES)
    IRREGULAR[kind](path / "mine")
    assert {*RealDirectory(str(path)).names()} - {"mine"} == {ONE, TWO}


# Local files, beside a server that writes, cuts and deletes.


def finished(size: int) -> bytes:
    return bytes(range(250)) * (size // 250) + bytes(TRAILER_BYTES) + TRAILER_MAGIC


@pytest.mark.parametrize(
    ("raw", "start", "end", "is_mapped"),
    [
        (finished(MAP_BYTES * 2), 0, TO_END, True),
        (finished(MAP_BYTES * 2), 5000, 5000 + MAP_BYTES, True),
        (finished(MAP_BYTES * 2), 5000, 4999 + MAP_BYTES, False),
        (finished(5000), 0, TO_END, False),
        (finished(MAP_BYTES * 2) + bytes(8), 0, TO_END, False),
    ],
    ids=["all of it", "a part", "too little", "a small one", "an unfinished one"],
)
def test_what_never_changes_is_mapped_and_all_else_copied(
    raw: bytes, start: int, end: int, is_mapped: bool, tmp_path: Path
) -> None:
    files = LocalFiles(str(written(tmp_path / "log", {ONE: raw})))
    buffer = files.read(ONE, start, end)
    assert isinstance(buffer, memoryview) == is_mapped
    assert bytes(buffer) == raw[start:end]
    assert files.is_finished(ONE) == raw.endswith(TRAILER_MAGIC)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(range(1, 256)) * 12_000 + bytes(2 * COPY_BYTES) + b"end",
        bytes(3 * COPY_BYTES + 1),
    ],
)
def test_a_copy_of_an_unfinished_file_stays_as_it_was(raw: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "log", {ONE: raw})
    buffer = LocalFiles(str(path)).read(ONE)
    os.truncate(path / ONE, 0)
    assert bytes(buffer) == raw


def test_files_that_are_held_are_read_after_they_were_deleted(tmp_path: Path) -> None:
    path = written(tmp_path / "log", {**FILES, "x": b"x"})
    files = LocalFiles(str(path))
    files.hold([ONE])
    for name in (ONE, TWO):
        (path / name).unlink()
    assert files.names() == [ONE, "x"]
    assert (bytes(files.read(ONE)), files.size(ONE)) == (FILES[ONE], len(FILES[ONE]))
    assert files.hold(["x", TWO]) == {TWO}
    files.release(lambda name: name == ONE)
    assert files.names() == ["x"]
    with pytest.raises(FileNotFoundError):
        files.read(ONE)


@pytest.mark.parametrize("more", [0, 1])
def test_no_more_files_are_held_than_the_limit(more: int, tmp_path: Path) -> None:
    count = HELD_FILES + more
    path = written(tmp_path / "log", {segment_name(n): b"" for n in range(1, count + 1)})
    files = LocalFiles(str(path))
    before = len(os.listdir("/proc/self/fd"))
    files.hold(files.names())
    assert len(os.listdir("/proc/self/fd")) == before + HELD_FILES
    files.release(lambda name: name < segment_name(3))
    assert len(os.listdir("/proc/self/fd")) == before + HELD_FILES - 2
    del files
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_may_be_named_otherwise_than_in_its_directory(tmp_path: Path) -> None:
    path = written(tmp_path / "log", FILES)
    files = LocalFiles("some files", lambda: {"a": str(path / TWO)})
    assert files.names() == ["a"]
    assert bytes(files.read("a")) == FILES[TWO]
    with pytest.raises(FileNotFoundError):
        files.path_of(TWO)
