"""A directory that may not be read or written: when the server starts, and while it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.mounting import run, small_tmpfs
from tests.journal import Crowd
from tests.server_process import ServerProcess, ours_at_once

WITHOUT_ITS_POWER = (
    "setpriv", "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)  # fmt: skip
"""Root, but for the power to pass over permissions."""


def serve(tmp_path: Path, log: Path, *options: object) -> ServerProcess:
    """Start our server as somebody to whom permissions apply."""
    command = ours_at_once("-p0", "-b", log, *options)
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("as root, permissions can be tested with setpriv only")
        command = [*WITHOUT_ITS_POWER, *command]
    return ServerProcess(command, tmp_path)


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    """Give a file or folder other permissions for a while."""
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)


def assert_refused(server: ServerProcess, message: str) -> None:
    with server:
        status, said = server.ended()
    assert (status, message in said) == (73, True), said
    assert "the server does not start: " in said and "nothing was lost" in said
    assert "Traceback" not in said


def log_with_jobs(folder: Path) -> tuple[Path, Crowd]:
    crowd, log = Crowd(), folder / "log"
    with serve(folder, log, "-s", 65536) as server:
        crowd.work(server)
        crowd.wait_for(50)
        server.process.kill()
        crowd.join()
    return log, crowd


def content(log: Path) -> dict[str, bytes]:
    """All that is in the directory, but for the text in the lock."""
    return {path.name: path.read_bytes() for path in log.glob("*.*")}


@pytest.mark.exhaustive
@pytest.mark.parametrize("bits", [0o500, 0o000])
def test_a_directory_that_may_not_be_used_is_refused_with_73_and_left_as_it_is(
    bits: int, tmp_path: Path
) -> None:
    log, crowd = log_with_jobs(tmp_path)
    before = content(log)
    with mode(log, bits):
        assert_refused(serve(tmp_path, log), f"binlog directory {log}: Permission denied")
    assert content(log) == before
    with serve(tmp_path, log) as server:
        crowd.check_after_restart(server)


@pytest.mark.exhaustive
def test_a_segment_that_may_not_be_read_is_refused_with_73(tmp_path: Path) -> None:
    log, crowd = log_with_jobs(tmp_path)
    with mode(min(log.glob("*.tql")), 0o000):
        assert_refused(serve(tmp_path, log), "cannot be used: Permission denied")
    with serve(tmp_path, log) as server:
        crowd.check_after_restart(server)


@pytest.mark.exhaustive
def test_a_parent_in_which_nothing_may_be_made_is_refused_with_73(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir(0o500)
    log = tmp_path / "parent" / "log"
    assert_refused(serve(tmp_path, log), f"binlog directory {log}: Permission denied")


@pytest.mark.exhaustive
def test_a_read_only_file_system_is_refused_with_73(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "mount", "4m") as mount:
        log, crowd = log_with_jobs(mount)
        run("mount", "-o", "remount,ro", str(mount))
        assert_refused(serve(tmp_path, log), f"binlog directory {log}: Read-only file system")
        run("mount", "-o", "remount,rw", str(mount))
        with serve(tmp_path, log, "-s", 65536) as server:
            crowd.check_after_restart(server)


@pytest.mark.exhaustive
def test_permission_that_is_lost_while_it_runs_is_a_write_error(tmp_path: Path) -> None:
    log, crowd = tmp_path / "log", Crowd()
    with serve(tmp_path, log, "-s", 8192) as server:
        crowd.work(server)
        crowd.wait_for(50)
        with mode(log, 0o500):
            status, said = server.ended()
            crowd.join()
    assert status == 74, said
    assert "failed: Permission denied; with --fsync always no reply was given" in said
    with serve(tmp_path, log) as server:
        crowd.check_after_restart(server)
