"""A table of command lines: the settings that each gives, or its one line and exit code."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.daemon.command_line import parse
from beanstalk_twisted.tap import BODY_CACHE_SHARE, Options, makeService
from beanstalk_twisted.version import VERSION
from tests.server_process import LIMIT_S, TWISTD
from tests.test_tap import parsed

TABLE: Final = [
    line.split("=>", 1) for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
]
"""Command lines, and what comes of each: the exit code with its line, or settings that are not the
default, with bars between them.
"""

EXTRA: Final = (
    "access", "archive_age_s", "binlog", "http_hosts", "http_write", "log_format", "log_level",
    "metrics_tubes", "replication", "tubes",
)  # fmt: skip

LISTENING: Final = ("endpoints", "endpoints_v1", "endpoints_http")


class Ended(NamedTuple):
    """A command that has ended."""

    code: object
    printed: str
    complaint: str


def ran(words: list[str]) -> Ended | dict[str, Any]:
    """:return: the settings of the server, if it is one."""
    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            options = parsed(*words)
        except SystemExit as end:
            return Ended(end.code or 0, printed.getvalue(), complaint.getvalue())
    return settings_of(options)


def settings_of(options: Options) -> dict[str, Any]:
    """Gather the settings of the server and of what surrounds it."""
    service: Any = makeService(options, Clock())
    found = {name: options[name] for name in EXTRA}
    found["http_hosts"] = [*options["http_hosts"]]
    if options["replication"] is None:
        settings = service.queue.settings
        found |= settings._asdict() | settings.limits._asdict()
        # These are the machine's, unless they are given.
        del found["limits"], found["max_connections"]
        if settings.body_cache == settings.limits.memory_bytes // BODY_CACHE_SHARE:
            del found["body_cache"]
    for name in LISTENING:
        found[name] = [place(each) for each in options[name]]
    return found | {"warnings": options["warnings"]}


def place(endpoint: Any) -> str:
    """Name the place of an endpoint."""
    path = getattr(endpoint, "_address", None)
    return path or f"{endpoint._interface}:{endpoint._port}"


def told(words: list[str]) -> Iterator[str]:
    """Give what the table says of a command line."""
    found = ran(words)
    if isinstance(found, Ended):
        yield f"exit {found.code}"
        lines = (found.printed + found.complaint).splitlines()
        shown = (line.removeprefix("twistd beanstalk: ") for line in lines)
        yield from (line.replace(VERSION, "VERSION") for line in shown)
        return
    for name, value in found.items():
        if name == "warnings":
            yield from (f"warning: {each}" for each in value)
        elif value != DEFAULTS.get(name):
            yield f"{name} {value}".replace(os.getcwd(), "CWD")


DEFAULTS: Final = cast(dict[str, Any], ran([]))


@pytest.mark.parametrize(("words", "outcome"), TABLE)
def test_a_command_line_gives_these_settings_or_this_line(words: str, outcome: str) -> None:
    assert " | ".join(told(shlex.split(words))) == outcome.strip()


def test_no_line_is_in_the_table_twice() -> None:
    assert len(TABLE) == len({words for words, _ in TABLE}) >= 60


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("environment", "words", "place_"),
    [
        ({"LISTEN_FDS": "1", "LISTEN_FDNAMES": "beanstalk"}, "", "passed"),
        ({"LISTEN_FDS": "1", "LISTEN_FDNAMES": "beanstalk"}, "-p7", "127.0.0.1:7"),
        (
            {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "other"},
            "",
            "is called beanstalk, only other",
        ),
        (
            {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "beanstalk"},
            "--replicate=nats://a/b",
            "--replicate and sockets of the service manager exclude each other",
        ),
        ({"BEANSTALK_TWISTED_PORT": "7", "PORT": "7"}, "", "127.0.0.1:11300"),
    ],
)
def test_sockets_that_are_passed_are_used_and_no_option_is_read_from_the_environment(
    environment: dict[str, str], words: str, place_: str
) -> None:
    program = (
        "import os, socket, sys\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "os.dup2(listening.fileno(), 3)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "from beanstalk_twisted.tap import Options\n"
        "options = Options()\n"
        "options.parseOptions(sys.argv[1:])\n"
        "[found] = options['endpoints']\n"
        "port = getattr(found, '_port', 0)\n"
        "print(f'{found._interface}:{port}' if port else 'passed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *shlex.split(words)], capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=LIMIT_S,
    )  # fmt: skip
    assert place_ in done.stdout + done.stderr
    assert done.returncode == (0 if done.stdout else 5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", ["--max-keys=1_000", "--version"])
def test_all_ways_to_start_a_server_say_the_same(words: str) -> None:
    commands = {
        "twistd beanstalk": [str(TWISTD), "-n", "--pidfile=", "beanstalk"],
        "beanstalk-twisted": [sys.executable, "-m", "beanstalk_twisted"],
    }
    expected = ran(shlex.split(words))
    assert isinstance(expected, Ended)
    for name, command in commands.items():
        done = subprocess.run(
            [*command, *shlex.split(words)], capture_output=True, text=True, timeout=LIMIT_S
        )
        complaint = done.stderr.replace(f"{name}: ", "twistd beanstalk: ", 1)
        assert Ended(done.returncode, done.stdout, complaint) == expected


@pytest.mark.parametrize("option", ["--port", "--fsync"])
def test_bytes_that_are_no_text_are_refused_in_one_line(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([option, "a\udcff"])
    assert ended.value.code == 5
    assert option in capsys.readouterr().err
