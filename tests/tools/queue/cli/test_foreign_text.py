"""A server, and who puts jobs into it, may be hostile: a terminal obeys nothing of what they
say.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from binlog_tools.queue.cli.transfers import JOB_KEYS
from binlog_tools.queue.cli.tubes import CONNECTION_KEYS
from tests.sampling import one_in
from tests.script_server import Listener, answer
from tests.server_process import LIMIT_S
from tests.tools.queue.cli.test_commands import MAIN, read_to_the_end
from tests.tools.queue.lines import EXTENDED

HARM = b"\x1b]0;owned\x07\xc2\x9b2J\xe2\x80\xae\x7f\xff"
SHOWN = "\\x1b]0;owned\\x07\\u009b2J\\u202e\\x7f\\xff"
OF_TERMINALS = set("\n\r\x1b")

KEYS = (
    "name", "tube", "id", "state", "pri", "delay", "ttr", "time-left", "reserves", "version",
    "uptime", "draining", "current-connections", "current-waiting", "current-watching",
    "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried",
    "current-jobs-urgent", "total-jobs", "cmd-put", "cmd-delete", "pause-time-left",
)  # fmt: skip
TEXTS = ("name", "tube", "state", "version", "draining")


class Hostile:
    """Answers as a server does, with harm wherever there is room for it."""

    numbers = b"1"

    def reply(self, command: bytes) -> bytes:
        if command.startswith(b"stats"):
            return self.stats()
        if command == b"list-tubes":
            return b"OK 17\r\n---\n- a\n- default\n\r\n"
        if command.startswith(b"peek"):
            return b"FOUND %b %d\r\n%b\r\n" % (self.numbers, len(HARM), HARM)
        if command.startswith(b"reserve"):
            return b"RESERVED %b %d\r\n%b\r\n" % (self.numbers, len(HARM), HARM)
        word = {b"put": b"INSERTED", b"use": b"USING", b"watch": b"WATCHING", b"kick": b"KICKED"}
        if command == b"use":
            return b"USING default\r\n"
        if command in word:
            return b"%b %b %b\r\n" % (word[command], self.numbers, HARM)
        return b"%b %b\r\n" % (HARM, HARM)

    def stats(self) -> bytes:
        said = {key: HARM if key in TEXTS else self.numbers for key in KEYS}
        text = b"---\n" + b"".join(b"%b: %b\n" % (k.encode(), v) for k, v in said.items())
        return b"OK %d\r\n%b\r\n" % (len(text), text)


class Extended(Hostile):
    """It has all commands, and makes harm of them too."""

    def reply(self, command: bytes) -> bytes:
        if command == b"capabilities":
            names = sorted(EXTENDED)
            text = b"---\n" + b"".join(b"- %b\n" % name.encode() for name in names)
        elif command in (b"list-jobs", b"list-connections"):
            keys = (*JOB_KEYS, *CONNECTION_KEYS)
            said = b"\n  ".join(b"%b: %b" % (key.encode(), HARM) for key in keys)
            text = b"---\n%b:\n- %b\n" % (command.partition(b"-")[2], said)
        else:
            return super().reply(command)
        return b"OK %d\r\n%b\r\n" % (len(text), text)


class Lying(Hostile):
    """Its numbers are none."""

    numbers = HARM


@pytest.fixture(params=[Hostile, Extended, Lying])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    hostile: Hostile = request.param()
    with Listener(answer(lambda words: hostile.reply(words[0]))) as listener:
        yield listener.address


COMMANDS = [
    "peek 1", "peek", "peek 1 --json", "reserve --delete", "reserve --release",
    "reserve --json --bury",
    "put x", "put x --json", "delete 1", "bury 1", "kick 1", "kick -n 1", "kick --all",
    "move there 1", "tubes", "tubes --json", "stats", "stats --json", "stats -j 1", "pause t 1",
    "top -n 1", "top -n 1 --json", "delete -t t --state ready --all --yes",
    "list t", "list t --json", "connections", "connections --json", "flush t -y", "wait 1",
    "drain", "undrain", "move there --from t",
]  # fmt: skip


@pytest.mark.one_in(7)
@pytest.mark.parametrize("words", one_in(3, COMMANDS))
def test_a_terminal_obeys_nothing_that_a_server_says(address: str, words: str) -> None:
    screen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words.split()], stdin=terminal, stdout=terminal,
        stderr=terminal, env={**os.environ, "COLUMNS": "300", "BEANSTALK_SERVER": address},
    )  # fmt: skip
    os.close(terminal)
    shown = read_to_the_end(screen).decode()
    process.wait(LIMIT_S)
    assert "Traceback" not in shown
    strange = {each for each in shown if not each.isprintable()} - OF_TERMINALS
    assert not strange, shown
    assert "\x1b]" not in shown


@pytest.mark.parametrize("address", [Hostile], indirect=True)
def test_a_body_is_raw_in_a_pipe_and_shown_whole_on_a_terminal(address: str) -> None:
    command = [sys.executable, "-c", MAIN, "-s", address, "peek", "1"]
    piped = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    assert piped.stdout == HARM + b"\n"
    screen, terminal = os.openpty()
    with subprocess.Popen(command, stdout=terminal):
        os.close(terminal)
        assert read_to_the_end(screen).decode() == SHOWN + "\r\n"
    screen, terminal = os.openpty()
    with subprocess.Popen([*command, "--raw"], stdout=terminal):
        os.close(terminal)
        assert read_to_the_end(screen) == HARM
