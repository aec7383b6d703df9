"""Logs in object storage: the same tools find in them what they find in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from binlog_tools.inspect import archives
from binlog_tools.inspect.dumping import entries
from binlog_tools.logs.opening import folders_in, load, open_source, sources_in
from binlog_tools.logs.sources import NoLog, Source
from binlog_tools.logs.stored import Selection
from tests.binlog.scribe import Files, flipped
from tests.object_storage import s3_server
from tests.object_storage.memory import MemoryStore
from tests.tools.cli.running import run
from tests.tools.conversation import Conversation, Spoken
from tests.tools.folders import archived


def spoken() -> Spoken:
    return Conversation(7, with_compaction=True).say(60)


def stored(folder: Path) -> MemoryStore:
    store = MemoryStore("s3://b/x")
    for path in sorted(folder.rglob("*.tql")):
        store.objects[str(path.relative_to(folder))] = path.read_bytes()
    return store


def in_a_directory(path: Path, files: Files) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def same(one: Source, other: Source) -> None:
    """Both have the same jobs and the same records."""
    jobs = [load(each, wall_ns=1 << 60).jobs() for each in (one, other)]
    assert list(jobs[0]) == list(jobs[1])
    assert list(entries(one, Selection())) == list(entries(other, Selection()))


def test_an_archive_is_read_as_from_a_directory(tmp_path: Path) -> None:
    folder = archived(tmp_path, spoken().archive)
    (source,) = sources_in(stored(folder))
    (store,) = folder.iterdir()
    assert (source.path, source.is_archive) == (f"s3://b/x/{store.name}", True)
    same(source, open_source(str(folder)))


def test_a_log_that_was_copied_is_read_as_from_a_directory(tmp_path: Path) -> None:
    folder = in_a_directory(tmp_path / "log", spoken().files)
    (source,) = sources_in(stored(folder))
    assert not source.is_partial
    same(source, open_source(str(folder)))


@pytest.mark.parametrize("at", [5, 50, 5000])
def test_an_archive_is_verified_as_in_a_directory(tmp_path: Path, at: int) -> None:
    (folder,) = archived(tmp_path, spoken().archive).iterdir()
    spoilt = sorted(folder.iterdir())[1]
    spoilt.write_bytes(flipped(spoilt.read_bytes(), at % spoilt.stat().st_size))
    (folder / "notes.tql").write_bytes(b"x")
    store = stored(folder.parent)
    here = archives.verify(RealDirectory(str(folder)))
    there = archives.verify(store.at(folder.name))
    assert there == here._replace(path=f"s3://b/x/{folder.name}")
    assert not there.is_whole


def test_where_there_are_no_segments_there_is_no_log() -> None:
    store = MemoryStore("s3://b/x")
    store.objects["notes/readme.txt"] = b"x"
    with pytest.raises(NoLog, match="there is no log here: 's3://b/x'"):
        sources_in(store)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("notes/readme.txt", "there is no archive here"),
        (
            "00000000000000000001.tql",
            "this is a server's log, no archive; .* check 's3://b/x\\?a=b'",
        ),
    ],
)
def test_where_there_is_no_segment_of_an_archive_there_is_none(name: str, why: str) -> None:
    store = MemoryStore("s3://b/x")
    store.objects[name] = b"x"
    with pytest.raises(NoLog, match=why):
        folders_in(store, "s3://b/x?a=b")


@pytest.mark.exhaustive
def test_commands_read_urls(tmp_path: Path) -> None:
    folder = archived(tmp_path, spoken().archive)
    with s3_server.running() as server:
        from beanstalk_twisted.object_storage.store import open_store

        store = open_store(server.url("x"))
        for name, content in stored(folder).objects.items():
            store.write(name, [content])
        for command in (["archive-verify"], ["stats", "--json"], ["dump"], ["check"]):
            here = run(*command, folder)
            there = run(*command, server.url("x"))
            assert there.exit_code == here.exit_code
            told = there.stdout.replace("s3://queue-archive/x", str(folder))
            assert told == here.stdout
        for name, what in (("jobs", "log"), ("archive-verify", "archive")):
            missing = run(name, server.url("nothing"))
            assert (missing.exit_code, missing.stdout) == (4, "")
            assert f"there is no {what} here" in missing.stderr
