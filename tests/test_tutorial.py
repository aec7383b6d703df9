"""The tutorial and the README's example, step by step, as their reader types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.test_docs import README, ROOT, blocks

PAGE = ROOT / "docs/tutorial.md"
LIMIT_S = 60.0
"""How long a step may take."""

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PIECE = re.compile(r"^```(\w+)\n(.*?)^```$|`(\w+\.py)`", re.MULTILINE | re.DOTALL)


class Terminals:
    """The reader's terminals, in one directory; commands that stay are in blocks of ``bash``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, self.http_port = free_ports(2)
        self._port = str(port)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        places = {"PYTHONPATH": str(ROOT), "BEANSTALK_SERVER": f"127.0.0.1:{port}"}
        self._environment = {**os.environ, "PATH": path, **places}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(self._here(text))

    def start(self, command: str) -> None:
        """Run a command that stays, after Ctrl-C for the one that ran in its terminal."""
        name = command.split()[0]
        if name in self._running:
            self._stop(name)
        arguments = ["/bin/sh", "-c", f"exec {self._here(command)}"]
        self._running[name] = subprocess.Popen(
            arguments, cwd=self._folder, env=self._environment, stdout=subprocess.DEVNULL
        )
        if name == "beanstalk-twisted":
            self.until("beanstalk tubes", lambda said: "default" in said)

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", self._here(command)], cwd=self._folder, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        return done.stdout

    def until(self, command: str, is_so: Callable[[str], bool]) -> None:
        """Run a command again and again until it prints what is expected."""
        deadline = time.monotonic() + LIMIT_S
        while not is_so(said := self.run(command)):
            assert time.monotonic() < deadline, f"{command} still prints {said!r}"
            time.sleep(0.5)  # Each look is a process.

    def close(self) -> None:
        for name in list(self._running):
            self._stop(name)

    def _stop(self, name: str) -> None:
        process = self._running.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)

    def _here(self, text: str) -> str:
        text = text.replace("9300", str(self.http_port)).replace("11300", self._port)
        return text.replace("beanstalk-twisted ", f"beanstalk-twisted --port {self._port} ")


def sections() -> Iterator[tuple[str, str]]:
    _, *rest = _SECTION.split(PAGE.read_text())
    return ((title, text) for title, text in zip(rest[::2], rest[1::2], strict=True))


def follow(text: str, terminals: Terminals) -> list[str]:
    said: list[str] = []
    name = command = ""
    for language, block, file_name in _PIECE.findall(text):
        if file_name:
            name = file_name
        elif language == "python":
            terminals.save(name, block)
        elif language == "bash":
            terminals.start(block)
        elif language == "sh":
            command = block
            said.append(terminals.run(command))
        elif command.startswith("sort"):
            terminals.until(command, block.__eq__)
        elif not block.startswith("beanstalk top"):
            assert said[-1] == block
    return said


@pytest.mark.exhaustive
def test_the_steps_do_what_the_tutorial_says(tmp_path: Path) -> None:
    steps = [(title, text) for title, text in sections() if title[0].isdigit()]
    terminals = Terminals(tmp_path)
    said: list[list[str]] = []
    try:
        for title, text in steps:
            said.append(follow(text, terminals))
            if title.startswith("3."):
                terminals.until("beanstalk dead mail", lambda printed: printed.startswith("7\t"))
        with urllib.request.urlopen(f"http://127.0.0.1:{terminals.http_port}/metrics") as reply:
            assert b"\nbeanstalkd_current_jobs{" in reply.read()
    finally:
        terminals.close()
    _, _, _, dead, killed, history, _, tested = said
    assert dead[0].startswith("7\trelease\t")
    assert dead[-1].strip() in ("DELETED", "NOT_FOUND")
    assert len(killed[-1].split()) <= 1
    kinds = [line.split("\t")[2] for line in history[0].splitlines()]
    attempt = ["reserve", "release"]
    assert kinds == ["put", *3 * attempt, "move", "move", "reserve", "delete"]
    assert "1 passed" in tested[0]


def test_the_example_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    terminals = Terminals(tmp_path)
    for name, text in zip(("producer.py", "jobs.py"), blocks(README, "python"), strict=True):
        terminals.save(name, text)
    (_, server), (policy, worker) = (block.splitlines() for block in blocks(README, "sh"))
    try:
        terminals.start(server.removeprefix("venv/bin/"))
        assert terminals.run("python producer.py") == ""
        assert "dead-letter\tmail.dead\tcommand" in terminals.run(policy)
        terminals.start(worker)
        terminals.until("beanstalk dead mail", lambda printed: printed.startswith("3\t"))
        assert "\nmail\t0\t0\t0\t0" in terminals.run("beanstalk tubes")
    finally:
        terminals.close()
