"""The server that root starts as somebody else, by `--user`: what it is then, and what it may
read.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.server.access.meeting import HASH
from tests.server_process import Connection, ServerProcess, ours, ours_at_once

NOBODY = pwd.getpwnam("nobody")
FILE = f'[identities.me]\ntoken = "{HASH}"\n[anonymous]\nadmin = "*"\n'

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that the user may reach, with one of its own in it, while root has more groups.
    Those of pytest are root's alone.
    """
    with TemporaryDirectory() as made:
        path = Path(made)
        path.chmod(0o755)
        (path / "own").mkdir(mode=0o700)
        os.chown(path / "own", NOBODY.pw_uid, NOBODY.pw_gid)
        before = os.getgroups()
        os.setgroups([0, 4, 6])
        yield path
        os.setgroups(before)


def access_file(folder: Path, owner: int) -> Path:
    """Write a file of `--access` that its owner alone may read."""
    path = folder / "access.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    os.chown(path, owner, owner)
    return path


def rights(process: int) -> set[tuple[str, str]]:
    wanted = ("Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:", "CapInh:", "CapAmb:")
    return {
        (name, " ".join(values))
        for task in Path(f"/proc/{process}/task").iterdir()
        for line in (task / "status").read_text().splitlines()
        for name, *values in [line.split()]
        if name in wanted
    }


def test_nothing_of_root_is_left_in_any_thread(folder: Path) -> None:
    options = ("--user", "nobody", "-b", folder / "own/log", "--listen", f"unix:{folder}/own/s",
               "--access", access_file(folder, NOBODY.pw_uid), "--http", 0)  # fmt: skip
    with ServerProcess(ours_at_once(*options), folder) as server:
        server.wait_for("own/s")
        client = Connection(folder / "own/s")
        assert client.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
        assert client.ask(b"auth bst_nonsense\r\n") == b"UNAUTHORIZED\r\n"
        ids = [str(each) for each in os.getgrouplist("nobody", NOBODY.pw_gid)]
        assert rights(server.process.pid) == {
            ("Uid:", " ".join([str(NOBODY.pw_uid)] * 4)),
            ("Gid:", " ".join([str(NOBODY.pw_gid)] * 4)),
            ("Groups:", " ".join(ids)),
            *((name, "0" * 16) for name in ("CapPrm:", "CapEff:", "CapInh:", "CapAmb:")),
        }
        client.close()
        assert server.terminate() == -signal.SIGTERM
    made = [folder / "own/log", *(folder / "own/log").rglob("*")]
    assert len(made) > 2
    for path in made:
        found = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
        assert (found.st_uid, found.st_gid) == (NOBODY.pw_uid, NOBODY.pw_gid), path
        assert stat.S_IMODE(found.st_mode) == wanted, path


@pytest.mark.parametrize("how", [ours, ours_at_once])
def test_what_root_alone_may_read_is_not_read(folder: Path, how: object) -> None:
    assert callable(how)
    path = access_file(folder, 0)
    with ServerProcess(how("-u", "nobody", "-p0", "--access", path), folder) as server:
        status, said = server.ended()
    assert status == 5 and "it cannot be read: Permission denied" in said, said
    assert "Traceback" not in said


def test_a_log_of_root_is_not_opened(folder: Path) -> None:
    (folder / "roots").mkdir(mode=0o700)
    with ServerProcess(
        ours_at_once("-u", "nobody", "-p0", "-b", folder / "roots"), folder
    ) as server:
        status, said = server.ended()
    assert status == 73 and "Permission denied" in said, said
    assert list((folder / "roots").iterdir()) == []


def test_a_port_of_root_is_not_opened(folder: Path) -> None:
    # Where anybody may open it, as in many containers, there is nothing to refuse.
    limit = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if limit < 100:
        pytest.skip("anybody may open the ports below 1024 here")
    with ServerProcess(ours_at_once("-u", "nobody", "-p", 99), folder) as server:
        status, said = server.ended()
    assert status == 111 and "permission denied. Try --port 1025." in said, said
