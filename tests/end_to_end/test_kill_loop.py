"""Servers that are killed again and again: what clients have written down is there afterwards.

Three times, or twelve with --all; BEANSTALK_KILLS=1000 asks for more, and BEANSTALK_KILL_SEED=2 for
others.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.disk import FaultyDisk, Rule
from tests.journal import Crowd, values
from tests.sampling import share
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once, wait_until

KILLS = int(os.environ.get("BEANSTALK_KILLS", share(12, 4)))

SEED = int(os.environ.get("BEANSTALK_KILL_SEED", "1"))

SEGMENT_BYTES = 8192
"""So small that compaction is always at work."""

BEHIND = 1 << 20
"""Of a kill: when the call is done."""

POLICIES = ("always", "20", "never")


WITHOUT_BODIES = ("--body-cache", 0)
"""Every second server leaves to the log all bodies that it may."""


def serve(tmp_path: Path, fsync: str, options: tuple[object, ...] = ()) -> ServerProcess:
    command = ours_at_once(
        "-p0", "-b", tmp_path / "log", "-s", SEGMENT_BYTES, "--fsync", fsync, *options
    )
    return ServerProcess(command, tmp_path)


def kill_while_it_starts(tmp_path: Path, fsync: str, after_s: float) -> None:
    """Start a server and end it a moment later, wherever it is then."""
    with serve(tmp_path, fsync) as server:
        server.wait_for("starting up")
        time.sleep(after_s)


def oldest_segment(server: ServerProcess) -> int:
    connection = server.connect()
    stats = values(connection.ask(b"stats\r\n"))
    connection.close()
    return int(stats["binlog-oldest-index"])


def wait_for_compaction(server: ServerProcess) -> None:
    oldest = oldest_segment(server)
    wait_until(lambda: oldest_segment(server) > oldest)


@pytest.mark.timeout(1200 + 10 * KILLS)
def test_a_server_killed_again_and_again_has_all_that_was_written_down(tmp_path: Path) -> None:
    crowd = Crowd(seed=SEED)
    chance = random.Random(SEED)
    for kill in range(KILLS):
        fsync = POLICIES[kill % len(POLICIES)]
        if kill % 4 == 3:
            kill_while_it_starts(tmp_path, fsync, chance.uniform(0, 0.1))
        with serve(tmp_path, fsync, () if kill % 2 else WITHOUT_BODIES) as server:
            crowd.check_after_restart(server)
            crowd.work(server)
            wait_for_compaction(server)
            crowd.wait_for(chance.randrange(1, 600))
            server.process.kill()
            crowd.join()
    with serve(tmp_path, "always") as server:
        crowd.check_after_restart(server)
    assert crowd.acknowledged >= 50 * KILLS


def kill_at_work(
    disk: FaultyDisk, crowd: Crowd, rule: Rule, segment_bytes: int = SEGMENT_BYTES
) -> None:
    disk.obey()
    with disk.serve("-s", segment_bytes) as server:
        crowd.check_after_restart(server)
        crowd.work(server)
        crowd.wait_for(50)
        disk.obey(rule)
        crowd.join()
        assert server.process.wait(LIMIT_S) == -signal.SIGKILL


def kill_at_start(disk: FaultyDisk, rule: Rule) -> None:
    disk.obey(rule)
    with disk.serve() as server:
        assert server.process.wait(LIMIT_S) == -signal.SIGKILL


def check_all(disk: FaultyDisk, crowd: Crowd) -> ServerProcess:
    """Start a server on a sound disk and hold all that is known against it."""
    disk.obey()
    with disk.serve() as server:
        crowd.check_after_restart(server)
        return server


@pytest.mark.exhaustive
def test_a_server_that_is_killed_beside_any_kind_of_call_loses_nothing(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    for call in ("open", "allocate", "write", "truncate", "unlink"):
        kill_at_work(disk, crowd, Rule(call, "kill"))
    for call in ("sync", "rename", "syncdir"):
        kill_at_work(disk, crowd, Rule(call, "kill", BEHIND))
    check_all(disk, crowd)


@pytest.mark.exhaustive
def test_a_write_that_is_torn_by_a_kill_was_not_acknowledged(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    for length in (63, 100):
        # In one segment all the time: a torn write that begins one is never seen.
        kill_at_work(disk, crowd, Rule("write", "kill", length, first=20), 1 << 24)
        check_all(disk, crowd).wait_for("are torn (LSN")


@pytest.mark.exhaustive
def test_a_start_that_is_killed_beside_any_kind_of_call_loses_nothing(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    kill_at_work(disk, crowd, Rule("write", "kill", 100, first=20))
    for call in ("open", "allocate", "write", "sync", "rename", "syncdir", "truncate"):
        kill_at_start(disk, Rule(call, "kill"))
    for call in ("write", "sync", "rename", "syncdir"):
        kill_at_start(disk, Rule(call, "kill", BEHIND))
    check_all(disk, crowd)
