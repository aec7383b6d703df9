"""Who runs on a directory of beanstalkd."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import holder_of
from binlog_tools.v7.conversion import refuse_running

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[int]:
    (path / "lock").touch()
    command = [sys.executable, "-c", HOLD, str(path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.kill()


def test_nobody_holds_a_directory_without_a_lock_or_with_a_free_one(tmp_path: Path) -> None:
    assert holder_of(str(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == [], "nothing is made"
    (tmp_path / "lock").touch()
    assert holder_of(str(tmp_path)) == 0
    refuse_running(str(tmp_path))


def test_the_holder_is_named_and_keeps_the_lock(tmp_path: Path) -> None:
    with held(tmp_path) as pid:
        assert holder_of(str(tmp_path)) == pid
        with pytest.raises(OSError, match=f"a beanstalkd runs on it .process {pid}.") as caught:
            refuse_running(str(tmp_path))
        assert caught.value.filename == str(tmp_path)
        assert holder_of(str(tmp_path)) == pid
        with open(tmp_path / "lock", "r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert holder_of(str(tmp_path)) == 0


def test_asking_takes_no_lock_and_leaves_the_file_alone(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(0o400)
    before = os.stat(lock)
    for _ in range(3):
        holder_of(str(tmp_path))
    after = os.stat(lock)
    assert (before.st_mode, before.st_size, before.st_ino) == (
        after.st_mode, after.st_size, after.st_ino,
    )  # fmt: skip
    # A server may write its lock; only root may write this one as it is.
    lock.chmod(0o600)
    with held(tmp_path):
        pass
