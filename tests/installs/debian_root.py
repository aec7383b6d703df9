"""A Debian in a folder, as a machine on which nothing of ours is installed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ServerProcess

MAKER = "mmdebstrap"

LIMIT_S = 3000.0
"""Of one step: the longest, building the package, takes a minute, and on a busy machine twenty."""

MARKS = [pytest.mark.installs, pytest.mark.timeout(LIMIT_S + 600)]

IN_ROOT = 'mount -t proc proc "$0/proc" && exec chroot "$@"'
"""Some programs ask /proc, and the mount ends with the process."""


def needs(*programs: str) -> None:
    """Skip the test if it cannot be done here; in CI, where all must be there, fail."""
    missing = [name for name in programs if shutil.which(name) is None]
    may_mount = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"]).returncode == 0
    if not may_mount:
        pytest.skip("only root can do that, where it may mount")
    if missing:
        why = f"not installed: {', '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


def done(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command that must succeed.

    :return: what it has printed.
    """
    ended = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S,
        env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


class DebianRoot:
    """The folder."""

    def __init__(self, path: Path, *packages: str) -> None:
        """Make it, of what is essential to a Debian and these packages."""
        self.path = path
        suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
        include = ",".join(packages)
        done(MAKER, "--quiet", "--variant=minbase", f"--include={include}", suite, path)

    def command(self, *words: object, user: str = "root") -> list[str]:
        """:return: the command that runs this one in there."""
        program = ["unshare", "--mount", "sh", "-c", IN_ROOT, str(self.path)]
        group = "" if user == "root" else user
        return [*program, f"--userspec={user}:{group}", str(self.path), *map(str, words)]

    def run(self, *words: object, user: str = "root") -> str:
        return done(*self.command(*words, user=user), DEBIAN_FRONTEND="noninteractive")

    def serve(self, *words: object, user: str) -> ServerProcess:
        return ServerProcess(self.command(*words, user=user), self.path)

    def files(self) -> set[str]:
        """What is in it, but for what dpkg and the tools of users keep as their own."""
        own = ("var/lib/dpkg", "var/log", "var/cache", "proc", "dev", "run", "tmp")
        return {name for name in self._walk() if not name.startswith(own) and name[-1] != "-"}

    def _walk(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.path):
            at = Path(folder).relative_to(self.path)
            yield from (str(at / name) for name in (*folders, *files))
