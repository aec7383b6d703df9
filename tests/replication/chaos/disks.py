"""The disks of servers: as root a small file system each, which can be full, and lose its power.

A loss of power leaves of a file system what was given to its block device.  The device here is a
file behind a loop device, so a copy of that file, taken while all servers stand still, is what a
disk holds at that moment: what was synced, what the kernel had written back by itself, and nothing
of what was only in the page cache.  The journal's own commits come every `COMMIT_S` seconds, so
next to nothing is there that was not synced.

What is not modelled: a disk that loses what it was given (ext4 flushes the device at each sync),
and sectors that are torn.  `tests.crash` does both to our own log.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.replication.chaos.machines import has_namespaces, run
from tests.server_process import LIMIT_S

COMMIT_S: Final = 600
"""Longer than any run goes on without a loss of power."""


class Disk:
    """A directory for one server's files.

    :ivar at: the directory; ``has_power`` whether its power can be lost.
    """

    def __init__(self, at: Path, megabytes: int) -> None:
        self.at = at
        self.has_power = False
        self._image = at.with_suffix(".disk")
        at.mkdir()
        if has_namespaces():
            self.has_power = shutil.which("mkfs.ext4") is not None and self._make(megabytes)
            if not self.has_power:
                run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at))

    def _make(self, megabytes: int) -> bool:
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        done = subprocess.run(self._mount, capture_output=True, timeout=LIMIT_S, check=False)
        return done.returncode == 0

    @property
    def _mount(self) -> list[str]:
        return ["mount", "-o", f"loop,commit={COMMIT_S}", str(self._image), str(self.at)]

    def lose_power(self) -> None:
        """Keep what the device has now; those who have files here stand still."""
        run("cp", "--sparse=always", str(self._image), str(self._image.with_suffix(".left")))

    def come_back(self) -> None:
        """Be as `lose_power` has found it; nobody has files here."""
        run("umount", str(self.at))
        self._image.with_suffix(".left").rename(self._image)
        run(*self._mount)
        # Its removal may not have been on the disk.
        self.empty()

    def fill(self) -> None:
        """Leave no byte."""
        with (self.at / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def empty(self) -> None:
        """Give back what `fill` has taken."""
        (self.at / "filler").unlink(missing_ok=True)


def hold_images(folder: Path) -> None:
    """Hold what is behind the loop devices in memory, so that syncs cost what they cost on a disk
    of flash and no other program's wait for them.
    """
    folder.mkdir()
    if has_namespaces():
        run("mount", "-t", "tmpfs", "tmpfs", str(folder))
