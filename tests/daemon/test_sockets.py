"""Addresses in words, sockets that somebody else listens on, and UNIX sockets."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from beanstalk_twisted.daemon.sockets import InheritedSocket, UnixListener, in_words, why_not
from tests.conftest import the_reactor
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (IPv4Address("TCP", "127.0.0.1", 11300), "127.0.0.1:11300"),
        (IPv6Address("TCP", "::1", 11300), "[::1]:11300"),
        (IPv6Address("TCP", "::", 1), "[::]:1"),
        (UNIXAddress("/run/bs.sock"), "unix:/run/bs.sock"),
        (UNIXAddress(b"\0name"), "unix:@name"),
        ("something else", "something else"),
    ],
)
def test_an_address_is_named_as_options_take_it(address: object, words: str) -> None:
    assert in_words(address) == words


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("place", "problem", "option", "words"),
    [
        (
            ("127.0.0.1", 11300),
            os_error(errno.EADDRINUSE),
            "--port",
            "cannot listen on 127.0.0.1:11300: address already in use. "
            "Is another beanstalkd running? Try --port 11301.",
        ),
        (
            ("::1", 65535),
            os_error(errno.EADDRINUSE),
            "--port",
            "cannot listen on [::1]:65535: address already in use. "
            "Is another beanstalkd running? Try --port 65534.",
        ),
        (
            ("", 11300),
            os_error(errno.EADDRINUSE),
            "--listen",
            "cannot listen on *:11300: address already in use. "
            "Is another beanstalkd running? Try another port in --listen.",
        ),
        (
            ("10.1.1.1", 11300),
            os_error(errno.EADDRNOTAVAIL),
            "--port",
            "cannot listen on 10.1.1.1:11300: cannot assign requested address. "
            "This machine has no such address; 'ip address' shows those that it has.",
        ),
        (
            ("127.0.0.1", 80),
            os_error(errno.EACCES),
            "--port",
            "cannot listen on 127.0.0.1:80: permission denied. Try --port 1025.",
        ),
        (
            ("nosuch", 11300),
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "--port",
            "cannot listen on nosuch:11300: name or service not known. "
            "Name an address of this machine: --address 127.0.0.1.",
        ),
        (
            (None, "/run/bs.sock"),
            os_error(errno.EACCES),
            "--port",
            "cannot listen on unix:/run/bs.sock: permission denied. "
            f"Name a path where user {os.geteuid()} may write.",
        ),
        (
            (None, "/" + "x" * 200),
            OSError("AF_UNIX path too long"),
            "--port",
            f"cannot listen on unix:/{'x' * 200}: AF_UNIX path too long.",
        ),
    ],
)
def test_why_nobody_can_listen_there_is_one_line(
    place: tuple[str | None, int | str], problem: OSError, option: str, words: str
) -> None:
    error = CannotListenError(*place, problem)
    assert why_not(error, option) == words


def test_an_error_of_another_kind_is_told_as_it_is() -> None:
    assert why_not(ValueError("no key"), "--listen") == "cannot listen: no key"


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
def test_other_addresses_that_are_named_are_opened_instead_and_old_ones_beside(
    tmp_path: Path,
) -> None:
    with listening() as listener:
        passed, sockets = listener.getsockname(), [("beanstalk", listener)]
        with ActivatedServer(tmp_path, sockets, "-p", 0) as server:
            assert server.port() != passed[1]
        old = "tcp:0:interface=127.0.0.1"
        with ActivatedServer(tmp_path, sockets, "--listen-v1", old) as server:
            assert ask(passed, b"list-tube-used\r\n") == USED
            assert server.port_v1() != passed[1]


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


async def listens_on(path: Path) -> None:
    """Listen, see that the kernel lets others connect, and stop."""
    port = UnixListener(the_reactor()).listenUNIX(str(path), Factory(), 10, 0o600, 1)
    assert answers(path)
    assert path.stat().st_mode & 0o777 == 0o600
    await port.stopListening()


def answers(path: Path) -> bool:
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


@pytest.mark.parametrize("left", ["nothing", "socket", "socket with a lock of Twisted", "bound"])
async def test_where_nobody_listens_a_socket_is_made_and_leaves_nothing(
    tmp_path: Path, left: str
) -> None:
    """A pid of Twisted's is not asked, and is removed."""
    path = tmp_path / "s"
    if left == "bound":
        with bound(path, backlog=None):
            await listens_on(path)
    else:
        if left != "nothing":
            with bound(path, backlog=1):
                pass
            assert not answers(path)
        if left.endswith("Twisted"):
            (tmp_path / "s.lock").symlink_to(str(os.getpid()))
        await listens_on(path)
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
