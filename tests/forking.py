"""Servers and workers as forks of one process that has imported all of them: none of the hundreds
that the tests start takes the half second of processor time that the imports do.

python -m tests.forking FD
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

WORK = "from beanstalk_twisted.programs import beanstalk_work; beanstalk_work()"

PROGRAMS = {
    (sys.executable, "-m", "beanstalk_twisted"): "beanstalk_twisted.__main__ main",
    (sys.executable, "-c", WORK): "beanstalk_twisted.programs beanstalk_work",
    (str(Path(sys.executable).with_name("twistd")),): "twisted.scripts.twistd run",
}
"""The module and the function of each command, by its first words."""

IMPORTED = (
    "beanstalk_twisted.__main__", "beanstalk_twisted.tap", "beanstalk_twisted.worker.command",
    "beanstalk_twisted.web.serving", "beanstalk_twisted.daemon.tls_endpoint",
    "beanstalk_twisted.daemon.replicated", "twisted.scripts._twistd_unix",
    "twisted.internet.epollreactor", "twisted.internet.posixbase",
    "twisted.internet.asyncioreactor",
)  # fmt: skip

_KEPT: list[ModuleType] = []

MOST_BYTES = 1 << 20
"""Of a request: an environment and a command line."""


class Forked:
    """What `ServerProcess` needs of a `subprocess.Popen`."""

    def __init__(self, status: Any, stdout: Any) -> None:
        self.returncode: int | None = None
        self.stdout = stdout
        self._status = status
        self.pid = int(status.recv(20))

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._wait(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return found

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout_s)
            with suppress(TimeoutError, BlockingIOError):
                self.returncode = int(self._status.recv(20))
                self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may just have ended.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def program_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Name the program of a command; empty if a process of its own has to run it."""
    own = environment.keys() - {"PYTHONPATH"}
    if any(name.startswith(("PYTHON", "LD_", "LISTEN_")) for name in own):
        return ""
    return next((PROGRAMS[words] for words in PROGRAMS if command[: len(words)] == [*words]), "")


@functools.cache
def _template() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that others are forks of; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", "tests.forking", str(its.fileno())]
        return ours, subprocess.Popen(
            command, cwd=ROOT, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


def fork(program: str, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Forked:
    """Run one of `PROGRAMS`; its output is a pipe."""
    reading, writing = os.pipe()
    status, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.umask(umask := os.umask(0))
    given = [program, [*command], str(cwd), dict(environment), umask, os.getgroups()]
    request = json.dumps(given).encode()
    with its:
        socket.send_fds(_template()[0], [request], [writing, its.fileno()])
    os.close(writing)
    return Forked(status, os.fdopen(reading))


def _keep(request: bytes, output: int, status: socket.socket) -> None:
    """Fork the program, and report its process number and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.close(output)
        status.send(b"%d" % pid)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            status.send(b"%d" % ended)
        os._exit(0)
    status.close()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    _become(*json.loads(request))


def _become(
    program: str, command: list[str], cwd: str, environment: dict[str, str], umask: int,
    groups: list[int],
) -> None:  # fmt: skip
    """Run a program as if the process had begun with it."""
    module, function = program.split()
    first = next(words for words, each in PROGRAMS.items() if each == program)
    os.chdir(cwd)
    os.umask(umask)
    if os.getgroups() != groups:
        os.setgroups(groups)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:1] = [cwd, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [command[0], *command[len(first) :]]
    # The program's own children must not import this module as theirs; it lives on in `_KEPT`.
    _KEPT.append(sys.modules["__main__"])
    sys.modules["__main__"] = ModuleType("__main__")
    getattr(import_module(module), function)()
    sys.exit()


def main(channel: socket.socket) -> None:
    """Import everything, and fork what is asked for, until nobody can ask any more."""
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "each process needs one of its own"
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
        if not request:
            return
        if os.fork() == 0:
            channel.close()
            _keep(request, fds[0], socket.socket(fileno=fds[1]))
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
