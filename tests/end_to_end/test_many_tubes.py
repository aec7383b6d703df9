"""Very many tubes and a small `--segment-size`: each segment opens with all tubes, and the log, its
archive and the space that is reserved ahead stay in proportion all the same.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import Connection, ServerProcess, ours_at_once

MB = 1 << 20
TUBES = 10_000
STEP = 200
"""Tubes that are made between two looks at the directory."""

MOST_SPARES = 16
"""As docs/operations.md says, "Log size"."""

MOST_SEGMENTS = 30
MOST_MORE = 4


def names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def newest(log: Path) -> int:
    """The number of the segment that is being written, which is how many there were."""
    return int(names(log, "*.tql")[-1].partition(".")[0])


def put_all(client: Connection, tubes: range) -> None:
    for number in tubes:
        client.send(b"use tube-%05d\r\nput 0 0 60 100\r\n%s\r\n" % (number, b"x" * 100))
    for _ in tubes:
        assert client.reply().startswith(b"USING ")
        assert client.reply().startswith(b"INSERTED ")


@pytest.mark.exhaustive
def test_neither_log_nor_archive_nor_spares_grow_out_of_proportion(tmp_path: Path) -> None:
    log, archive = tmp_path / "log", tmp_path / "archive"
    archive.mkdir()
    options = ("-p0", "-F", "-s", "65536", "-b", log, "--binlog-archive", archive)
    with ServerProcess(ours_at_once(*options), tmp_path) as server:
        client = server.connect()
        for at in range(0, TUBES, STEP):
            put_all(client, range(at, at + STEP))
            assert len(names(log, "spare.*.tmp")) <= MOST_SPARES
        made = newest(log)
        assert made <= MOST_SEGMENTS
        for _ in range(5):
            put_all(client, range(STEP))
        assert len(names(log, "spare.*.tmp")) <= MOST_SPARES // 2
        assert newest(log) <= made + MOST_MORE
        server.terminate()
    assert names(log, "spare.*.tmp") == []
    files = [path.stat().st_size for path in archive.rglob("*") if path.is_file()]
    assert sum(files) <= 40 * MB
    check = [str(Path(sys.executable).with_name("binlog-inspect")), "check", str(log)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    with ServerProcess(ours_at_once("-p0", "-b", log), tmp_path) as server:
        client = server.connect()
        reply = client.ask(b"stats\r\n")
        assert b"\ncurrent-jobs-ready: %d\n" % (TUBES + 5 * STEP) in reply
