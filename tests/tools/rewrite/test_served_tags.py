"""From a server with tagged jobs through the tools to a server that goes on."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.logs.stored import Selection
from binlog_tools.rewrite.exporting import export, import_lines
from binlog_tools.rewrite.rewriting import rewrite
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import files_of
from tests.tools.cli.running import run
from tests.tools.folders import contents, written
from tests.tools.rewrite.test_tagged import headers, loaded
from tests.tools.salvage.logs import come_and_go, without_locks
from tests.tools.tagged import left_in

KEPT = b"3000000000"
"""Seconds: longer than these tests are run."""


def server_log(path: Path, tags: bool = True) -> Path:
    """The log of a server whose clients have put jobs with tags, compacted on the way, after a
    kill.
    """
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
    client = server.connect()
    client.ask(b"use mail\r\n")
    if tags:
        client.ask(b"put 1 0 60 3 idp:lives:%b grp:night\r\none\r\n" % KEPT)
        client.ask(b"put 1 0 60 3 con:few:2\r\ntwo\r\n")
        gone = client.ask(b"put 1 0 60 5 idp:gone:%b\r\nthree\r\n" % KEPT).split()[1]
        client.ask(b"delete %b\r\n" % gone)
    client.ask(b"put 1 0 60 5\r\nplain\r\n")
    come_and_go(server, 30, 700)
    server.kill_and_restart()
    come_and_go(server, 3, 700)
    server.kill()
    assert server.directory is not None
    return written(path, without_locks(files_of(server.directory)))


def compacted(path: Path, new: Path) -> None:
    rewrite(loaded(path), str(new), "compact", segment_bytes=8192)


def exchanged(path: Path, new: Path) -> None:
    lines = [json.dumps(each).encode() for each in export(loaded(path), Selection())]
    import_lines(lines, str(new), 8192, time.time_ns())


def brought_back(path: Path, new: Path) -> None:
    assert run("salvage", path, "-o", new).exit_code in (0, 1)


@pytest.mark.parametrize("through", [compacted, exchanged, brought_back])
def test_a_server_goes_on_with_tags_and_keys(
    through: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, new = server_log(tmp_path / "log"), tmp_path / "new"
    jobs, keys, _ = left_in(loaded(path))
    assert [(each.tube, each.key) for each in keys] == [(b"mail", b"gone")]
    assert [each.tags is not None for each in jobs] == [True, True, False]
    through(path, new)
    assert left_in(loaded(new)) == (jobs, keys, [])
    assert run("check", new).exit_code == 0
    files = {name: raw for name, raw in contents(new).items() if name.endswith(".tql")}
    server = MemoryServer(directory=MemoryDirectory(files), segment_bytes=8192)
    client = server.connect()
    client.ask(b"use mail\r\n")
    again = client.ask(b"put 1 0 60 1 idp:lives\r\nx\r\n")
    assert again.split()[1] == b"%d" % jobs[0].job_id
    again = client.ask(b"put 1 0 60 1 idp:gone\r\nx\r\n")
    assert again.split()[1] == b"%d" % keys[0].job_id
    server.kill()


def test_a_server_without_tags_leaves_a_log_that_older_versions_read(tmp_path: Path) -> None:
    path = server_log(tmp_path / "log", tags=False)
    assert set(headers(path)) == {(0, 0)}
    compacted(path, tmp_path / "new")
    assert set(headers(tmp_path / "new")) == {(0, 0)}
