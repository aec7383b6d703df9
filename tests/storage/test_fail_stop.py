"""What ends a server, and what it says then."""

from __future__ import annotations

import dis
import errno
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.storage.fail_stop import (
    BALLAST_BYTES,
    EXIT_CODE,
    PACKAGE,
    FailStop,
    fail_stop,
    reason,
)

ROOT = Path(__file__).resolve().parents[2]


class Steps:
    """Something with a step that may end the server."""

    def __init__(self, is_armed: bool = True) -> None:
        self.failures: list[Failure] = []
        self.fail_stop = FailStop(self.failures.append, is_armed=is_armed)

    @fail_stop
    def step(self, error: BaseException | None = None, *, result: int = 5) -> int:
        if error is not None:
            raise error
        return result


def test_a_step_that_is_done_whole_is_as_it_was() -> None:
    steps = Steps()
    assert (steps.step(), steps.step(result=6)) == (5, 6)
    assert steps.step.__name__ == "step"
    assert not steps.failures


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "no"), KeyboardInterrupt()])
def test_whatever_a_step_raises_ends_the_server_once(error: BaseException) -> None:
    steps = Steps()
    for _ in range(2):
        with pytest.raises(type(error)):
            steps.step(error)
    assert [failure.value for failure in steps.failures] == [error]


def test_where_there_is_no_log_nothing_ends() -> None:
    steps = Steps(is_armed=False)
    with pytest.raises(MemoryError):
        steps.step(MemoryError())
    assert not steps.failures and not steps.fail_stop.has_failed


def caught(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException:
        return Failure()


def test_a_reason_is_never_empty_and_says_what_where_and_what_to_do() -> None:
    said = reason(caught(MemoryError()), 17)
    assert said.startswith("MemoryError;") and "LSN 17" in said and "ulimit -v" in said
    assert "LimitNOFILE" in reason(caught(OSError(errno.EMFILE, "")), 17)
    assert "KeyboardInterrupt; " in reason(caught(KeyboardInterrupt()), 0)
    assert "ValueError (why)" in reason(caught(ValueError("why")), 0)


def test_a_reason_names_the_innermost_line_of_ours() -> None:
    try:
        Framing("no salt").mark(1, 0, 0)  # type: ignore[arg-type]
    except Exception:
        said = reason(Failure(), 0)
    assert " in binlog/segments/frames.py, line " in said and "(assemble)" in said


def test_what_the_disk_has_failed_with_is_said_in_its_own_words() -> None:
    error = WriteFailed("what it was. What to do.")
    assert reason(caught(error), 3) == str(error)


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )


def test_a_process_ends_whatever_its_last_words_raise() -> None:
    ended = run(
        "from beanstalk_twisted.storage.fail_stop import end_process\n"
        "def last_words():\n"
        "    print('last', flush=True)\n"
        "    raise MemoryError\n"
        "end_process(74, last_words)\n"
    )
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, "last\n")


def test_a_process_ends_when_it_cannot_be_told_that_it_should() -> None:
    ended = run(
        "from beanstalk_twisted.storage.fail_stop import FailStop\n"
        "def failed(failure):\n"
        "    raise MemoryError\n"
        "try:\n"
        "    raise ValueError\n"
        "except ValueError:\n"
        "    FailStop(failed).caught()\n"
        "print('goes on')\n"
    )
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, "")


def test_a_process_that_has_no_memory_at_all_has_some_for_its_last_words() -> None:
    """All that can be had is taken, in smaller and smaller pieces, and then a step fails."""
    ended = run(
        "import resource\n"
        "from twisted.python.failure import Failure\n"
        "from beanstalk_twisted.storage.fail_stop import *\n"
        "def failed(failure):\n"
        "    end_process(74, lambda: print('the server ends:', reason(failure, 9), flush=True))\n"
        "ends = FailStop(failed)\n"
        "BALLAST.hold()\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 24),) * 2)\n"
        "taken, size = [], 1 << 22\n"
        "while size > 16:\n"
        "    try:\n"
        "        taken.append(bytearray(size))\n"
        "    except MemoryError:\n"
        "        size //= 2\n"
        "try:\n"
        "    raise MemoryError\n"
        "except MemoryError:\n"
        "    ends.caught()\n"
    )
    assert ended.returncode == EXIT_CODE, ended.stderr
    assert ended.stdout.startswith("the server ends: MemoryError")
    assert BALLAST_BYTES < 1 << 24


ON_THE_WAY = ("wire", "binlog", "jobs", "rules", "storage", "server", "daemon")
"""Packages that commands pass through."""

BEFORE_ANYBODY_IS_SERVED = {
    ("archive.py", "refuse_unusable"), ("command_line.py", "_endpoint"), ("directory.py", "_lock"),
    ("directory.py", "make"), ("listening.py", "startService"), ("opening.py", "_begin"),
    ("replication_options.py", "_remove_unless_locked"), ("replicated.py", "startService"),
    ("sockets.py", "_make_way"),
}  # fmt: skip

SMALL_INTEGERS = 256
"""CPython has all integers up to this one ready, and asks for memory for others."""


def functions(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from functions(each)


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="from CPython 3.12 on handlers stand at the end of their function, wherever that is: "
    "there, a second exception within a handler may hang when there is not a byte of memory",
)
def test_without_any_memory_an_exception_can_leave_all_functions_on_the_way() -> None:
    paths = [path for name in ON_THE_WAY for path in PACKAGE.joinpath(name).glob("*.py")]
    assert len(paths) > 90
    for path in paths:
        for function in functions(compile(path.read_text(), str(path), "exec")):
            for entry in cast(Any, dis.Bytecode(function)).exception_entries:
                last = entry.end // 2 - 1
                if entry.lasti and last > SMALL_INTEGERS:
                    assert (path.name, function.co_name) in BEFORE_ANYBODY_IS_SERVED
