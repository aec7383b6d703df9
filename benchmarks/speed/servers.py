"""The servers that are compared, each as a child process on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.speed.ending import signals_held
from benchmarks.speed.workloads import Disk

HOST: Final = "127.0.0.1"

LIMIT_S: Final = 300.0
"""How long a start or an end may take, seconds; a million jobs are replayed in one."""

LOOK_S: Final = 0.005
"""From one look whether it answers to the next, seconds."""

OURS: Final = "ours"
THEIRS: Final = "beanstalkd"
REDIS: Final = "redis"


class NotStartedError(Exception):
    """A server does not start."""


class Side(NamedTuple):
    """A server that takes part.

    :ivar command: of it, for a port, a disk and a folder for its log.
    :ivar question: something small to ask, and how the reply begins.
    """

    name: str
    command: Callable[[int, Disk, Path], list[str]]
    question: tuple[bytes, bytes] = (b"list-tube-used\r\n", b"USING default\r\n")


def ours(python: str, options: Sequence[str] = ()) -> Side:
    """Our server, as it is installed for an interpreter: not the one of the folder we are in.

    :param options: of it, beside those that both have.
    """

    def command(port: int, disk: Disk, log: Path) -> list[str]:
        return [python, "-P", "-m", "beanstalk_twisted", *letters(port, disk, log), *options]

    return Side(OURS, command)


def beanstalkd(program: str) -> Side:
    """The C server."""

    def command(port: int, disk: Disk, log: Path) -> list[str]:
        return [program, *letters(port, disk, log)]

    return Side(THEIRS, command)


def letters(port: int, disk: Disk, log: Path) -> list[str]:
    """Give the options, which are the same for both."""
    words = ["-l", HOST, "-p", str(port)]
    if disk.fsync is not None:
        sync = {"never": ["-F"], "always": ["-f", "0"]}.get(disk.fsync, ["-f", disk.fsync])
        words += ["-b", str(log), *sync]
    return words


def redis(program: str) -> Side:
    """Redis: with its append-only file, where "never" is its every second, or in memory without
    one.
    """

    def command(port: int, disk: Disk, log: Path) -> list[str]:
        return [
            program, "--bind", HOST, "--port", str(port), "--save", "", "--dir", str(log),
            "--appendonly", "yes" if disk.fsync else "no",
            "--appendfsync", "always" if disk.fsync == "always" else "everysec",
        ]  # fmt: skip

    return Side(REDIS, command, (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"))


class Running(NamedTuple):
    """A server that answers.

    :ivar cpu_s: processor time up to its first answer, of all threads, seconds.
    """

    process: subprocess.Popen[bytes]
    port: int
    cpu_s: float

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        self.process.terminate()
        self.process.wait(LIMIT_S)


@contextmanager
def running(
    side: Side, disk: Disk, folder: Path, slowsync: Path, options: Sequence[str] = ()
) -> Iterator[Running]:
    """Run a server; its log is ``folder/log``.

    :raise NotStartedError: with what it said.
    """
    log, said = folder / "log", folder / "server.log"
    log.mkdir(exist_ok=True)
    port = free_port()
    with said.open("wb") as output, ExitStack() as stack:
        with signals_held():
            process = subprocess.Popen(
                [*side.command(port, disk, log), *options],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment(disk, slowsync),
            )  # fmt: skip
            stack.callback(end, process)
        wait_until_it_answers(process, port, side.question, said)
        yield Running(process, port, cpu_seconds(process.pid))


def end(process: subprocess.Popen[Any]) -> None:
    """End a process at once, if it has not ended."""
    process.kill()
    process.wait(LIMIT_S)


def free_port() -> int:
    """Find one that nobody has."""
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
    return port


def environment(disk: Disk, slowsync: Path) -> dict[str, str]:
    """Make the disk as slow as it has to be."""
    if not disk.slower_us:
        return dict(os.environ)
    return {**os.environ, "LD_PRELOAD": str(slowsync), "SLOWSYNC_US": str(disk.slower_us)}


def wait_until_it_answers(
    process: subprocess.Popen[bytes], port: int, question: tuple[bytes, bytes], said: Path
) -> None:
    """Ask until there is the right answer."""
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up and process.poll() is None:
        with suppress(ConnectionError):
            if ask(port, question[0], len(question[1])) == question[1]:
                return
        time.sleep(LOOK_S)
    raise NotStartedError(f"{process.args!r} has said: {said.read_text(errors='replace')}")


def ask(port: int, request: bytes, size: int) -> bytes:
    """Ask once, on a connection of its own.

    :param size: bytes of the reply that are read, at most.
    """
    with socket.create_connection((HOST, port), timeout=LIMIT_S) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read(size)


def ready_jobs(port: int) -> int:
    """Ask how many jobs are ready."""
    with socket.create_connection((HOST, port), timeout=LIMIT_S) as connection:
        connection.sendall(b"stats\r\n")
        replies = connection.makefile("rb")
        lines = replies.read(int(replies.readline().split()[1])).decode().splitlines()
    return int(dict(line.split(": ", 1) for line in lines[1:])["current-jobs-ready"])


def cpu_seconds(pid: int) -> float:
    """Say how much processor time all threads of a process have had."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # It has just ended.
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
