"""Listening where a UNIX socket was left behind, and where one is in use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from beanstalk_twisted.daemon.sockets import UnixListener
from tests.conftest import the_reactor
from tests.server_process import LIMIT_S


async def listens_on(path: Path) -> None:
    """Listen, see that the kernel lets others connect, and stop."""
    port = UnixListener(the_reactor()).listenUNIX(str(path), Factory(), 10, 0o600, 1)
    assert answers(path)
    assert path.stat().st_mode & 0o777 == 0o600
    await port.stopListening()


def answers(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def is_refused(path: Path) -> str:
    """Listen where that must not be.

    :return: what is said of it.
    """
    with pytest.raises(CannotListenError) as caught:
        UnixListener(the_reactor()).listenUNIX(str(path), Factory())
    return str(caught.value.socketError.strerror)


@contextmanager
def bound(path: Path, *, backlog: int | None, kind: int = socket.SOCK_STREAM) -> Iterator[Any]:
    """A socket of somebody else's, with somebody behind it if there is a backlog."""
    with socket.socket(socket.AF_UNIX, kind) as there:
        there.bind(str(path))
        if backlog is not None:
            there.listen(backlog)
        yield there


async def test_a_path_where_nothing_is_is_listened_on_and_left_empty(tmp_path: Path) -> None:
    await listens_on(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=1):
        pass
    assert not answers(tmp_path / "s")
    await listens_on(tmp_path / "s")


async def test_a_socket_that_is_bound_and_not_listened_on_is_replaced(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=None):
        await listens_on(tmp_path / "s")


async def test_a_pid_of_twisted_is_not_asked_and_removed(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=1):
        pass
    (tmp_path / "s.lock").symlink_to(str(os.getpid()))
    await listens_on(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


async def test_a_lock_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=1):
        pass
    (tmp_path / "s.lock").write_bytes(b"mine")
    await listens_on(tmp_path / "s")
    assert (tmp_path / "s.lock").read_bytes() == b"mine"


async def test_a_socket_that_is_listened_on_is_left_to_its_server(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=1):
        assert is_refused(tmp_path / "s").startswith("in use (a server answers)")
        assert answers(tmp_path / "s")


async def test_a_server_that_is_too_busy_to_answer_is_one_too(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(tmp_path / "s"))
        assert is_refused(tmp_path / "s").startswith("in use (")


async def test_a_socket_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    with bound(tmp_path / "s", backlog=None, kind=socket.SOCK_DGRAM):
        assert is_refused(tmp_path / "s").startswith("in use (Protocol wrong type")
    assert (tmp_path / "s").is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_bytes(b"mine")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    assert is_refused(path) == "it is no socket, and is left alone. Name another path"
    assert path.is_symlink() or path.exists()


async def test_a_folder_that_is_missing_is_named_with_the_command_that_makes_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "no"
    assert is_refused(folder / "s") == f"there is no directory {folder}. Run: mkdir -p {folder}"


async def test_a_name_that_is_no_file_is_listened_on() -> None:
    name = f"\0beanstalk-twisted-test-{os.getpid()}"
    port = UnixListener(the_reactor()).listenUNIX(name, Factory())
    with pytest.raises(CannotListenError):
        UnixListener(the_reactor()).listenUNIX(name, Factory())
    await port.stopListening()


STARTER = """
import sys
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from beanstalk_twisted.daemon.sockets import UnixListener
print("ready", flush=True)
sys.stdin.readline()
try:
    UnixListener(reactor).listenUNIX(sys.argv[1], Factory())
except CannotListenError:
    print("refused", flush=True)
else:
    print("listens", flush=True)
sys.stdin.read()
"""


@pytest.mark.exhaustive
def test_of_servers_that_start_at_once_where_a_socket_was_left_one_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bound(path, backlog=1):
        pass
    command = [sys.executable, "-c", STARTER, str(path)]
    starters = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        for each in starters:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in starters:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        said = [each.stdout.readline() for each in starters if each.stdout is not None]
        assert sorted(said) == ["listens\n"] + ["refused\n"] * 3
        assert answers(path)
    finally:
        for each in starters:
            each.kill()
            each.communicate(timeout=LIMIT_S)
