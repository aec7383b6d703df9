"""The image of the container file: built by buildah on a Debian with a Python, since registries of
images may be out of reach, and run as a container runtime runs it: its user, its environment, a
root that cannot be written, and a volume.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import greenstalk
import pytest

from tests.installs.debian_root import MARKS, DebianRoot, done, needs
from tests.server_process import LIMIT_S, ServerProcess
from tests.test_deploy import CONTAINER, ROOT

pytestmark = MARKS

PYTHON = "localhost/python"
"""Stands for the image that the container file names."""

PACKAGES = (
    "python3", "python-is-python3", "python3-pip", "python3-venv", "python3-dev", "ca-certificates",
)  # fmt: skip

CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"
"""Those of this machine: pip may reach PyPI through something that is known here only."""

READ_ONLY = """
mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && mount -t proc proc "$0/proc" &&
mount -t tmpfs tmpfs "$0/tmp" && mount --bind "$1" "$0/$2" && shift 2 && exec chroot "$@"
"""


class Image(NamedTuple):
    """An image, unpacked.

    :ivar config: what it says of itself, as ``docker inspect`` shows it.
    """

    root: Path
    config: dict[str, Any]

    def command(self, volume: Path, words: list[str]) -> list[str]:
        """:return: the command that runs this one as a container runtime does."""
        [inside] = self.config["Volumes"]
        variables = ["env", "-i", *self.config["Env"]]
        chroot = [f"--userspec={self.config['User']}", str(self.root), *variables, *words]
        program = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(self.root), str(volume)]
        return [*program, inside.lstrip("/"), *chroot]


class Buildah:
    """Runs it with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._storage = ["--root", f"{folder}/storage", "--runroot", f"{folder}/run"]

    def __call__(self, *words: str | Path, cwd: Path | None = None) -> str:
        return done("buildah", *self._storage, *words, cwd=cwd).strip()

    @contextmanager
    def mounted(self, image: str) -> Iterator[tuple[str, Path]]:
        """:return: a new container of an image, and where its files are."""
        container = self("from", "--pull-never", image)
        try:
            yield container, Path(self("mount", container))
        finally:
            self("umount", container)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Build it, pure: the compiled package is built by the tests of Debian's."""
    needs("buildah", "mmdebstrap")
    folder = tmp_path_factory.mktemp("container")
    buildah = Buildah(folder)
    with buildah.mounted("scratch") as (container, root):
        DebianRoot(root, *PACKAGES)
        buildah("commit", "--quiet", container, PYTHON)
    buildah(
        "bud", "--isolation=chroot", "--pull-never", "--format=docker", f"--volume={CERTIFICATES}",
        f"--ignorefile={CONTAINER}.dockerignore", f"--build-arg=PYTHON={PYTHON}",
        "--build-arg=COMPILED=0", "--file", CONTAINER, "--tag", "queue", ".", cwd=ROOT,
    )  # fmt: skip
    config = json.loads(buildah("inspect", "--type=image", "queue"))["Docker"]["config"]
    with buildah.mounted("queue") as (_, root):
        yield Image(root, config)


def volume_of(image: Image, path: Path) -> Path:
    """Make an empty volume: as the image has that folder."""
    [inside] = image.config["Volumes"]
    there = (image.root / inside.lstrip("/")).stat()
    path.mkdir(mode=there.st_mode & 0o777)
    os.chown(path, there.st_uid, there.st_gid)
    return path


@contextmanager
def running(image: Image, volume: Path, cwd: Path) -> Iterator[ServerProcess]:
    """Run the image's own command, at a free port of this machine alone."""
    arguments = [word.replace("0.0.0.0", "127.0.0.1") for word in image.config["Cmd"]]
    words = [*image.config["Entrypoint"], *arguments, "--port", "0"]
    with ServerProcess(image.command(volume, words), cwd) as server:
        yield server


def health(image: Image, volume: Path, port: int) -> subprocess.CompletedProcess[str]:
    kind, *probe = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    words = ["env", f"BEANSTALK_SERVER=127.0.0.1:{port}", *probe]
    command = image.command(volume, words)
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def test_the_image_serves_is_well_and_keeps_its_jobs(image: Image, tmp_path: Path) -> None:
    volume = volume_of(image, tmp_path / "volume")
    with running(image, volume, tmp_path) as server:
        port = server.port()
        with greenstalk.Client(("127.0.0.1", port)) as queue:
            queue.put("kept")
        well = health(image, volume, port)
        assert (well.returncode, well.stdout) == (0, "well: 1 job\n")
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert f"Uid:\t{image.config['User'].partition(':')[0]}\t" in status
        assert image.config["StopSignal"] == "SIGTERM"
        assert server.terminate() == -signal.SIGTERM
        assert health(image, volume, port).returncode != 0
    with (
        running(image, volume, tmp_path) as server,
        greenstalk.Client(("127.0.0.1", server.port())) as queue,
    ):
        assert queue.reserve(timeout=0).body == "kept"


def test_nothing_but_the_volume_can_be_written(image: Image, tmp_path: Path) -> None:
    volume = volume_of(image, tmp_path / "volume")
    code = "import os, sys; os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))"
    [inside] = image.config["Volumes"]
    outcomes = [
        subprocess.run(
            image.command(volume, ["python", "-c", code, f"{folder}/x"]),
            capture_output=True, text=True, timeout=LIMIT_S,
        ).stderr
        for folder in (inside, "/opt/beanstalk-twisted", "/etc")
    ]  # fmt: skip
    assert outcomes[0] == ""
    assert all("Read-only file system" in said for said in outcomes[1:])
