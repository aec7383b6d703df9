"""Servers as processes, ours and the real one, and plain blocking clients for them."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

import pytest

from tests import forking

TWISTD = Path(sys.executable).with_name("twistd")
"""The one of the environment that runs the tests."""

LIMIT_S = 60.0
"""How long anything may take: a start, an answer, an end.  A start takes half a second, and twenty
on a machine that is busy.
"""

NO_BEANSTALKD = "the real beanstalkd is not installed, so there is nothing to compare with"

_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)$|bind \d+ 127\.0\.0\.1:(\d+)", re.M)


def wait_until(is_so: Callable[[], object]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.005)


def wait_until_it_listens(port: int) -> None:
    """beanstalkd tells of its port before it listens there.  A connection would count in its
    `stats`, so the kernel is asked.
    """
    listening = re.compile(rf"^ *\d+: 0100007F:{port:04X} \S+ 0A ", re.MULTILINE)
    wait_until(lambda: listening.search(Path("/proc/net/tcp").read_text()))


def real_beanstalkd() -> str:
    """Find it, or skip the test; in CI, where it must be there, fail."""
    found = shutil.which("beanstalkd")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NO_BEANSTALKD)
        pytest.skip(NO_BEANSTALKD)
    return found


def ours(*options: object) -> list[str]:
    """Give the command that runs our server in the foreground."""
    return [str(TWISTD), "-n", "--pidfile=", "beanstalk", *map(str, options)]


def ours_at_once(*options: object) -> list[str]:
    """Give the command that runs our server and nothing else: it starts in two thirds of the
    time.
    """
    return [sys.executable, "-m", "beanstalk_twisted", *map(str, options)]


def our_worker(*options: object) -> list[str]:
    """Give the command that runs our worker."""
    return [sys.executable, "-c", forking.WORK, *map(str, options)]


WITHOUT_EPOLL = """
import select
for name in [each for each in dir(select) if "epoll" in each.lower()]:
    delattr(select, name)
from beanstalk_twisted.__main__ import main
main()
"""


def ours_without_epoll(*options: object) -> list[str]:
    """Give the command that runs our server as on a system without epoll: Twisted reads."""
    return [sys.executable, "-c", WITHOUT_EPOLL, *map(str, options)]


Command = Callable[..., list[str]]

WITH_AND_WITHOUT_EPOLL = pytest.mark.parametrize("command", [ours_at_once, ours_without_epoll])


def theirs(*options: object) -> list[str]:
    """Give the command that runs the real one on a free port.  With -V it tells which."""
    return [real_beanstalkd(), "-V", "-l", "127.0.0.1", "-p0", *map(str, options)]


_LISTENING_V1 = re.compile(r"listening on 127\.0\.0\.1:(\d+), protocol v1")


class Connection:
    """A client that waits for each reply.

    :ivar socket: what it talks through.
    """

    def __init__(
        self, address: int | Path | tuple[str, int], tls: ssl.SSLContext | None = None,
        *, limit_s: float = LIMIT_S, waits: bool = False,
    ) -> None:  # fmt: skip
        """Connect.

        :param address: a port of this machine, the path of a UNIX socket, or a host and a port.
        :param limit_s: the longest wait for a reply.
        :param waits: try again while nobody listens there.
        :raise OSError: nobody listens there, or the handshake failed.
        """
        if isinstance(address, Path):
            self.socket = socket.socket(socket.AF_UNIX)
        else:
            self.socket = socket.socket()
        try:
            self.socket.settimeout(limit_s)
            self._connect(("127.0.0.1", address) if isinstance(address, int) else address, waits)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        except BaseException:
            self.socket.close()
            raise
        self._replies = self.socket.makefile("rb")

    def _connect(self, address: Path | tuple[str, int], waits: bool) -> None:
        where = str(address) if isinstance(address, Path) else address
        give_up = time.monotonic() + (LIMIT_S if waits else 0)
        while error := self.socket.connect_ex(where):
            if time.monotonic() >= give_up:
                raise OSError(error, os.strerror(error))
            time.sleep(0.005)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def reply(self) -> bytes:
        """Wait for one reply and all that belongs to it.

        :return: nothing when the server has parted.
        """
        try:
            line = self._replies.readline()
            return line + self._replies.read(body_bytes(line))
        except ConnectionResetError:
            return b""

    def ask(self, request: bytes) -> bytes:
        """Send bytes and wait for one reply."""
        self.send(request)
        return self.reply()

    def rest(self) -> bytes:
        """Read all that comes until the server parts."""
        heard = bytearray()
        with suppress(ConnectionResetError):
            while piece := self._replies.read1():
                heard += piece
        return bytes(heard)

    @property
    def is_answered(self) -> bool:
        """Whether a reply, or the end, has come and was not read yet."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def certificate(self) -> bytes | None:
        """Give the one that the server has shown, as DER."""
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket.getpeercert(binary_form=True)

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._replies.close()
        self.socket.close()


def body_bytes(line: bytes) -> int:
    """Tell how many bytes belong to a reply after its first line."""
    if line.startswith((b"OK ", b"RESERVED ", b"FOUND ")):
        return int(line.split()[-1]) + 2
    return 0


def reply_bytes(heard: bytes) -> int | None:
    """Tell how long the first reply is, body included; None if it has not wholly come."""
    line, found, rest = heard.partition(b"\r\n")
    if not found or len(rest) < body_bytes(line):
        return None
    return len(line) + 2 + body_bytes(line)


class ServerProcess:
    """A server; the block it is used in ends with its end."""

    def __init__(
        self, command: Sequence[str], cwd: Path, environment: dict[str, str] | None = None,
        inherits: Sequence[int] = (), *, may_fork: bool = True,
    ) -> None:  # fmt: skip
        """:param inherits: file descriptors that it has, too.
        :param may_fork: it may be a fork of a process that has imported everything.
        """
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._seen: list[str] = []
        own = environment or {}
        every = {**os.environ, **own}
        may_fork = may_fork and not inherits
        program = forking.program_of(command, own) if may_fork else ""
        self.process: Any = (
            forking.fork(program, command, cwd, every) if program else subprocess.Popen(
                command, cwd=cwd, env=every, text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=inherits,
            )
        )  # fmt: skip
        # It is read all the time: a full pipe would stop the server.
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.kill()

    def port(self) -> int:
        """Wait until it tells where it listens."""
        found = self._search(_LISTENING)
        port = int(found[1] or found[2])
        if found[2] and self.process.poll() is None:
            wait_until_it_listens(port)
        return port

    def port_v1(self) -> int:
        """Wait until it tells where it listens for the older dialect."""
        return int(self._search(_LISTENING_V1)[1])

    def port_of(self, words: str) -> int:
        """Wait until it tells where it listens for what these words say, as its log does."""
        told = rf"listening on 127\.0\.0\.1:(\d+), {re.escape(words)}$"
        return int(self._search(re.compile(told, re.MULTILINE))[1])

    def wait_for(self, text: str) -> None:
        """Wait until it says that."""
        self._search(re.compile(re.escape(text)))

    def said(self) -> list[str]:
        """Give what it has said so far."""
        while not self._lines.empty():
            self._seen.append(self._lines.get())
        return self._seen

    def says(self, text: str) -> bool:
        """Wait until it says that, or has ended."""
        try:
            self.wait_for(text)
        except AssertionError:
            self.process.wait(timeout=0.1 * LIMIT_S)
            return False
        return True

    def _search(self, pattern: re.Pattern[str]) -> re.Match[str]:
        while True:
            for line in self._seen:
                if found := pattern.search(line):
                    return found
            # An empty line: it has ended without a word of that.
            assert "" not in self._seen, "".join(self._seen)
            try:
                self._seen.append(self._lines.get(timeout=LIMIT_S))
            except Empty:
                raise AssertionError("".join(self._seen)) from None

    def connect(self) -> Connection:
        """Connect, and see that it answers: before that, a signal would end Python at once."""
        connection = Connection(self.port())
        assert connection.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        return connection

    def ended(self) -> tuple[int, str]:
        """Wait for its end.

        :return: its exit status, and all that it has said.
        """
        status = self.process.wait(timeout=LIMIT_S)
        self._reader.join(timeout=LIMIT_S)
        while not self._lines.empty():
            self._seen.append(self._lines.get())
        return status, "".join(self._seen)

    def terminate(self) -> int:
        """Ask it to stop in order, and wait until it has.

        :return: its exit status.
        """
        self.process.send_signal(signal.SIGTERM)
        return self.ended()[0]

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self.process.kill()
        self.ended()
        if self.process.stdout is not None:
            self.process.stdout.close()
