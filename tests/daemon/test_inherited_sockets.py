"""Sockets that somebody else listens on: they are served, kept, and nobody is refused by a
restart.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from beanstalk_twisted.daemon.sockets import InheritedSocket
from tests.conftest import the_reactor
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

PASS = """
import fcntl, os, sys
fds, names = eval(sys.argv[1])
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds]
for number, fd in enumerate(high, start=3):
    os.dup2(fd, number, inheritable=True)
os.environ.update(
    LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=":".join(names)
)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What systemd does between fork and exec."""

WORKERS = 8
"""Clients that come one after the other, each again and again."""

RESTARTS = 3


class ActivatedServer(ServerProcess):
    """A server that is passed sockets under names."""

    def __init__(
        self, cwd: Path, sockets: Sequence[tuple[str, socket.socket]], *options: object
    ) -> None:
        for _, each in sockets:
            each.set_inheritable(True)
        passed = ([each.fileno() for _, each in sockets], [name for name, _ in sockets])
        command = [sys.executable, "-c", PASS, repr(passed), *ours_at_once(*options)]
        super().__init__(command, cwd, inherits=passed[0])


def listening(family: int = socket.AF_INET, address: Any = ("127.0.0.1", 0)) -> socket.socket:
    """Listen as a socket unit does: on a socket that blocks."""
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen(1024)
    return listener


def ask(address: Path | tuple[str, int], request: bytes) -> bytes:
    """Connect and ask.

    :return: nothing if the server has parted.
    :raise ConnectionRefusedError: it must not be.
    """
    with Connection(address) as client:
        try:
            return client.ask(request)
        except ConnectionError:
            return b""


USED = b"USING default\r\n"


def test_sockets_of_the_name_need_no_option_and_others_do(tmp_path: Path) -> None:
    with listening() as first, listening() as second, listening() as old:
        sockets = [("beanstalk", first), ("old", old), ("beanstalk", second)]
        options = ("--listen-v1", "systemd:domain=INET:name=old")
        with ActivatedServer(tmp_path, sockets, *options) as server:
            for each in (first, second):
                assert ask(each.getsockname(), b"list-tube-used\r\n") == USED
            reply = ask(old.getsockname(), b"list-tube-used\r\n")
            assert reply == b"UNKNOWN_COMMAND\r\n"
            assert server.port_v1() == old.getsockname()[1]
            assert server.terminate() == -signal.SIGTERM


@pytest.mark.one_in(2)
@pytest.mark.parametrize("domain", ["domain=INET:name=queue", "domain=INET:index=1"])
def test_an_endpoint_names_a_socket(tmp_path: Path, domain: str) -> None:
    with listening() as other, listening() as queue:
        sockets = [("other", other), ("queue", queue)]
        with ActivatedServer(tmp_path, sockets, "--listen", f"systemd:{domain}"):
            assert ask(queue.getsockname(), b"list-tube-used\r\n") == USED


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "none is called beanstalk, only http: set FileDescriptorName=beanstalk"),
        (("--listen", "systemd:domain=INET:name=queue"), "no such socket was passed"),
        (("--listen", "systemd:domain=INET:index=7"), "no such socket was passed"),
    ],
)
def test_a_socket_of_another_name_is_a_wrong_option(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    with (
        listening() as listener,
        ActivatedServer(tmp_path, [("http", listener)], *options) as server,
    ):
        code, words = server.ended()
    assert code == 5
    assert said in words


@pytest.mark.exhaustive
def test_a_socket_that_does_not_listen_is_a_wrong_option(tmp_path: Path) -> None:
    with socket.socket() as idle, ActivatedServer(tmp_path, [("beanstalk", idle)]) as server:
        code, words = server.ended()
    assert code == 5
    assert "socket 3 does not listen: name it by ListenStream=" in words


def test_what_is_no_socket_is_told() -> None:
    with open(os.devnull) as file, pytest.raises(ValueError, match="is no socket"):
        InheritedSocket(the_reactor(), file.fileno())


@pytest.mark.exhaustive
def test_another_address_that_is_named_leaves_the_sockets_alone(tmp_path: Path) -> None:
    with (
        listening() as listener,
        ActivatedServer(tmp_path, [("beanstalk", listener)], "-p", 0) as server,
    ):
        assert server.port() != listener.getsockname()[1]


@pytest.mark.exhaustive
def test_a_port_for_old_clients_is_opened_beside_them(tmp_path: Path) -> None:
    old = "tcp:0:interface=127.0.0.1"
    with (
        listening() as listener,
        ActivatedServer(tmp_path, [("beanstalk", listener)], "--listen-v1", old) as server,
    ):
        assert ask(listener.getsockname(), b"list-tube-used\r\n") == USED
        assert server.port_v1() != listener.getsockname()[1]


@pytest.mark.exhaustive
def test_the_file_of_a_unix_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "bs.sock"
    with listening(socket.AF_UNIX, str(path)) as listener:
        for _ in range(2):
            with ActivatedServer(tmp_path, [("beanstalk", listener)]) as server:
                assert ask(path, b"list-tube-used\r\n") == USED
                server.terminate()
                assert path.exists()


def test_clients_wait_while_no_server_runs(tmp_path: Path) -> None:
    with listening() as listener, ExitStack() as clients:
        address = listener.getsockname()
        waiting = [clients.enter_context(Connection(address)) for _ in range(20)]
        for client in waiting:
            client.send(b"put 0 0 9 1\r\nx\r\n")
        with ActivatedServer(tmp_path, [("beanstalk", listener)], "-b", tmp_path / "bs"):
            replies = {client.reply() for client in waiting}
    assert replies == {b"INSERTED %d\r\n" % number for number in range(1, 21)}


class Load:
    """Clients that put jobs, one a connection, until they are told to end.

    :ivar put: ids of the jobs that were promised.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.put: list[bytes] = []
        self.failures: list[BaseException] = []
        self._address = address
        self._ends = Event()
        self._threads = [Thread(target=self._run) for _ in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                reply = ask(self._address, b"put 0 0 9 1\r\nx\r\n")
                if reply:
                    self.put.append(reply.split()[1])
        except BaseException as failure:
            self.failures.append(failure)

    def close(self) -> None:
        """End them."""
        self._ends.set()
        for thread in self._threads:
            thread.join(LIMIT_S)


@pytest.mark.exhaustive
def test_a_restart_under_load_refuses_nobody_and_loses_nothing(tmp_path: Path) -> None:
    with listening() as listener, closing(Load(listener.getsockname())) as load:
        for number in range(RESTARTS):
            before = len(load.put)
            sockets = [("beanstalk", listener)]
            with ActivatedServer(tmp_path, sockets, "-b", tmp_path / "bs") as server:
                give_up_s = time.monotonic() + LIMIT_S
                while len(load.put) < before + 100 and not load.failures:
                    assert time.monotonic() < give_up_s
                    assert server.process.poll() is None
                    time.sleep(0.01)
                # The last one ends as by a power cut.
                server.kill() if number == RESTARTS - 1 else server.terminate()
        sockets = [("beanstalk", listener)]
        with ActivatedServer(tmp_path, sockets, "-b", tmp_path / "bs"):
            load.close()
            stats = [
                ask(listener.getsockname(), b"peek %s\r\n" % job)
                for job in (load.put[0], load.put[-1], *load.put[::50])
            ]
    assert not load.failures
    assert all(reply.startswith(b"FOUND") for reply in stats)
