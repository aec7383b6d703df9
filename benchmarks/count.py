"""Count the server's instructions a command, for two revisions, under callgrind.

    python -m benchmarks.count [--base REVISION] [--compiled] [--mode memory|binlog|syncs]

Timings on a shared machine vary by 20 % and more.  The counts repeat to 0.1 %, because each turn of
the server has the same content (its sockets are filled while it is stopped) at the same time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.speed.building import bring_up_to_date

ROOT: Final = Path(__file__).resolve().parent.parent

BUILT: Final = ROOT / "build/count"

STEADY_CLOCK: Final = Path(__file__).with_name("steady_clock.c")

COUNTED_FILES: Final = (
    "beanstalk_twisted", "binlog_tools", "docs", "twisted", "setup.py", "setup.cfg",
    "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in",
)  # fmt: skip
"""What a checkout needs to run and to be compiled."""

MAX_SPREAD: Final = 0.005
"""Part of its median that a row may vary by and still be used."""

COMMANDS: Final = 500
"""Commands that are counted for each row and repeat; a multiple of the connections."""

REPEATS: Final = 3

CONNECTIONS: Final = (1, 50)

MODES: Final = {
    "memory": [],
    "binlog": ["--binlog", "DIRECTORY", "--fsync", "never"],
    "syncs": ["--binlog", "DIRECTORY", "--fsync", "always"],
}
"""Options of the server; the directory is in memory, so that a sync waits for no disk."""

PUT: Final = b"put 1000 0 3600 16\r\n0123456789abcdef\r\n"

CONVERSATION: Final = (
    ("put", PUT),
    ("reserve", b"reserve\r\n"),
    ("release", b"release JOB 1000 0\r\n"),
    ("reserve again", b"reserve\r\n"),
    ("delete", b"delete JOB\r\n"),
    ("tagged put", PUT.replace(b" 16", b" 16 idp:key-NUMBER grp:all")),
    ("tagged reserve", b"reserve\r\n"),
    ("tagged delete", b"delete JOB\r\n"),
)
"""Each connection sends each command `COMMANDS` / connections times, then the next one."""

WARM_UP_TURNS: Final = 30
"""The interpreter adapts what it has run a few times."""

PATIENCE_S: Final = 60.0
"""How long the server may take for anything: here it is some 50 times slower."""


class Row(NamedTuple):
    """What is counted."""

    mode: str
    connections: int
    command: str


def write_sources(revision: str | None, directory: Path, is_compiled: bool) -> None:
    """Write the sources of a revision, or of the working tree, into a directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if revision is None:
        for name in COUNTED_FILES:
            source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=ignored)
            else:
                shutil.copy(source, directory)
    else:
        archive = ["git", "archive", revision, *COUNTED_FILES]
        packed = subprocess.run(archive, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "--extract"], cwd=directory, input=packed, check=True)
    if is_compiled:
        with TemporaryDirectory() as wheels:
            wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir"]
            environment = os.environ | {"BEANSTALK_TWISTED_COMPILED": "1"}
            wheel += ["--disable-pip-version-check", "--wheel-dir", wheels, str(directory)]
            subprocess.run(wheel, env=environment, check=True)
            shutil.rmtree(directory)
            for built in Path(wheels).iterdir():
                zipfile.ZipFile(built).extractall(directory)


Counts = dict[Row, list[float]]
"""Instructions a command, a number for each repeat."""


class CountedServer:
    """A server under callgrind, on one processor and so without busy polling."""

    def __init__(self, sources: Path, options: Sequence[str], output: Path) -> None:
        processor = str(min(os.sched_getaffinity(0)))
        command = ["taskset", "--cpu-list", processor, "valgrind", "--tool=callgrind", "--quiet"]
        command += ["--instr-atstart=no", f"--callgrind-out-file={output / 'counted'}"]
        command += [sys.executable, "-m", "beanstalk_twisted", "--port", "0", *options]
        clock = str(BUILT / "steady_clock.so")
        self._output = output
        self._log = output / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=sources, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ
                | {"PYTHONPATH": str(sources), "PYTHONHASHSEED": "0", "LD_PRELOAD": clock},
            )  # fmt: skip
        self._tasks = Path(f"/proc/{self._process.pid}/task")

    def find_port(self) -> int:
        """Wait until the server listens."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(r"listening on 127\.0\.0\.1:(\d+)", self._log.read_text()):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self._log.read_text()}")

    def begin(self) -> None:
        """Begin to count; until now the server ran without instrumentation."""
        self._control("--instr=on")

    def take(self) -> int:
        """Return the instructions since this was last called, or since `begin`."""
        for old in self._output.glob("counted.*"):
            old.unlink()
        self._control("--dump")
        (dumped,) = self._output.glob("counted.*")
        found = re.search(r"^totals: (\d+)$", dumped.read_text(), re.MULTILINE)
        assert found is not None, f"no totals in {dumped}"
        return int(found[1])

    def _control(self, option: str) -> None:
        self.wait_until_idle()
        command = ["callgrind_control", option, str(self._process.pid)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def wait_until_idle(self) -> None:
        """Wait until all threads sleep, so that what follows a reply is done too."""
        self._wait_for_state("S")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process, so that all that is sent meanwhile is the content of one turn."""
        self.wait_until_idle()
        self._process.send_signal(signal.SIGSTOP)
        self._wait_for_state("T")
        yield
        self._process.send_signal(signal.SIGCONT)

    def _wait_for_state(self, state: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(
            stat.read_text().rpartition(") ")[2][0] != state for stat in self._tasks.glob("*/stat")
        ):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the server is not in state {state}: {self._log.read_text()}")
            time.sleep(0.0002)

    def close(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()


class Connection:
    """A blocking connection, and the jobs that it holds, oldest first."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._replies = self._socket.makefile("rb")
        self._held: deque[bytes] = deque()

    def send(self, command: bytes, number: int) -> None:
        """Send a command, of the oldest job here or with this number if it names one."""
        if b"JOB" in command:
            command = command.replace(b"JOB", self._held.popleft())
        self._socket.sendall(command.replace(b"NUMBER", b"%d" % number))

    def receive(self) -> None:
        """Read a reply."""
        reply = self._replies.readline()
        if reply.startswith(b"RESERVED"):
            _, job, size = reply.split()
            self._held.append(job)
            self._replies.read(int(size) + 2)
        elif not re.fullmatch(rb"(INSERTED \d+|RELEASED|DELETED)\r\n", reply):
            raise RuntimeError(f"unexpected reply: {reply!r}")

    def close(self) -> None:
        """Close the connection."""
        self._replies.close()
        self._socket.close()


def converse(server: CountedServer, connections: Sequence[Connection], turns: int) -> Iterator[str]:
    """Let all connections send each command so often; yield its name when it is answered."""
    for name, command in CONVERSATION:
        for turn in range(turns):
            with server.stopped():
                for number, connection in enumerate(connections, turn * len(connections)):
                    connection.send(command, number)
            for connection in connections:
                connection.receive()
        yield name


def count(sources: Path, mode: str, commands: int) -> dict[Row, float]:
    """Count all rows of a mode once, on a new server."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    counted = {}
    with TemporaryDirectory() as output, TemporaryDirectory(dir=memory) as directory:
        options = [option.replace("DIRECTORY", f"{directory}/binlog") for option in MODES[mode]]
        with closing(CountedServer(sources, options, Path(output))) as server:
            port = server.find_port()
            for number in CONNECTIONS:
                with ExitStack() as stack:
                    connections = [
                        stack.enter_context(closing(Connection(port))) for _ in range(number)
                    ]
                    for _ in converse(server, connections, WARM_UP_TURNS // number + 1):
                        pass
                    server.begin()
                    server.take()
                    turns = max(1, commands // number)
                    for name in converse(server, connections, turns):
                        counted[Row(mode, number, name)] = server.take() / (turns * number)
    return counted


def table(base: Counts | None, here: Counts) -> Iterator[str]:
    """Yield the lines of a Markdown table; rows that spread too much are marked."""
    yield "| mode | connections | command | base | here | change, % | spread, % |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: |"
    for row, counts in here.items():
        before = base[row] if base else counts
        spread = max((max(each) - min(each)) / median(each) for each in (before, counts))
        change = median(counts) / median(before) - 1
        mark = " (not used)" if spread > MAX_SPREAD else ""
        yield (
            f"| {row.mode} | {row.connections} | {row.command} | {median(before):,.0f} "
            f"| {median(counts):,.0f} | {change:+.2%} | {spread:.2%}{mark} |".replace("%", "")
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", metavar="REVISION", help="compare the working tree with this one")
    parser.add_argument(
        "--compiled", action="store_true", help="compile both first, 2 minutes each"
    )
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="servers for each row (%(default)s)"
    )
    parser.add_argument("--commands", type=int, default=COMMANDS, help="for each row (%(default)s)")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one")
    asked = parser.parse_args(arguments)
    revisions = {"base": asked.base, "here": None} if asked.base else {"here": None}
    counts: dict[str, Counts] = {name: defaultdict(list) for name in revisions}
    BUILT.mkdir(parents=True, exist_ok=True)
    shared = ["-shared", "-fPIC", str(STEADY_CLOCK)]
    bring_up_to_date(BUILT / "steady_clock.so", [STEADY_CLOCK], shared)
    for name, revision in revisions.items():
        write_sources(revision, BUILT / name, asked.compiled)
    for repeat in range(asked.repeats):
        for mode in asked.mode or MODES:
            for name in revisions:
                print(f"{repeat + 1} of {asked.repeats}: {mode}, {name}", file=sys.stderr)
                for row, counted in count(BUILT / name, mode, asked.commands).items():
                    counts[name][row].append(counted)
    print("\n".join(table(counts.get("base"), counts["here"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
