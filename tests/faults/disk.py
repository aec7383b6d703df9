"""A disk that fails when told to, under a server that is a real process."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

NO_COMPILER = "gcc is not installed, so no disk that fails can be built"

SOURCE = Path(__file__).with_name("faultshim.c")

FOR_EVER = 1 << 30


@functools.cache
def library() -> Path:
    """Build what is preloaded, or skip the test; in CI, where there must be a compiler, fail."""
    if shutil.which("gcc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NO_COMPILER)
        pytest.skip(NO_COMPILER)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    built = folder / "faultshim.so"
    warnings = ("-Wall", "-Wextra")
    command = ["gcc", "-O1", *warnings, "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return built


class Rule(NamedTuple):
    """What goes wrong with which calls; see `faultshim.c`.

    :ivar first: of the calls from now on, which one first; the next one is 1.
    :ivar number: the errno, bytes or milliseconds.
    """

    call: str
    action: str
    number: int = 0
    first: int = 1
    times: int = 1


class Call(NamedTuple):
    """One that was made.

    :ivar serial: of the open file; see `faultshim.c`.
    :ivar name: of the file, or of the directory itself.
    """

    call: str
    serial: int
    name: str
    result: int
    error: int


class FaultyDisk:
    """A directory for a log, on a disk that obeys.

    :ivar log: the directory.
    """

    def __init__(self, folder: Path, log: Path | None = None) -> None:
        """:param folder: for this and what belongs to it."""
        self.log = log or folder / "log"
        self._folder = folder
        self._rules = folder / "rules"
        self._trace = folder / "trace"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to have its files there."""
        return {
            "LD_PRELOAD": str(library()),
            "FAULTS_DIRECTORY": str(self.log),
            "FAULTS_RULES": str(self._rules),
            "FAULTS_TRACE": str(self._trace),
        }

    def serve(self, *options: object) -> ServerProcess:
        command = ours_at_once("-p0", "-b", self.log, *options)
        return ServerProcess(command, self._folder, self.environment)

    def obey(self, *rules: Rule) -> None:
        """From now on, these rules hold and no others; calls are counted anew."""
        written = self._rules.with_suffix(".new")
        lines = (f"{r.call} {r.first} {r.times} {r.action} {r.number}\n" for r in rules)
        written.write_text("".join(lines))
        written.rename(self._rules)

    def calls(self) -> list[Call]:
        fields = (line.split() for line in self._trace.read_text().splitlines())
        return [
            Call(call, int(serial), name, int(result), int(error))
            for call, serial, name, result, error in fields
        ]
