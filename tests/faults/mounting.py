"""Small file systems of our own, for tests that run as root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

from tests.server_process import LIMIT_S


class Mounted:
    """A file system; the block it is used in ends with its end.  Where it cannot be made, the test
    is skipped.
    """

    def __init__(self, at: Path, *options: str) -> None:
        self.at = at
        self._options = options

    def __enter__(self) -> Path:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a file system of its own for a test")
        self.at.mkdir()
        try:
            run("mount", *self._options, str(self.at))
        except AssertionError as problem:
            pytest.skip(f"no file system of its own can be mounted for this test: {problem}")
        return self.at

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        run("umount", "--lazy", str(self.at))


def small_tmpfs(at: Path, size: str) -> Mounted:
    return Mounted(at, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def small_ext4(at: Path, image: Path) -> Mounted:
    with image.open("wb") as file:
        file.truncate(32 << 20)
    try:
        run("mkfs.ext4", "-q", str(image))
    except (AssertionError, FileNotFoundError) as problem:
        pytest.skip(f"no file system can be made for this test: {problem}")
    return Mounted(at, "-o", "loop", str(image))


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr.strip()
