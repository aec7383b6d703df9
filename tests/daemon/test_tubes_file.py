"""The file of ``--tubes``: what it says, and what is wrong with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.files import (
    MAX_TUBES_FILE_BYTES,
    WRONG_FILE,
    BadTubesFile,
    TubesFile,
    parse_tubes,
)
from beanstalk_twisted.daemon.process import Hangup, Refused, reload_on_signal
from beanstalk_twisted.testing.memory_server import MemoryServer

GOOD = """
["mail.*"]  # all mail
max-reserves = 5
backoff = "5:2:3600"

[slow]
max-reserved = 1
"""


def test_tables_are_patterns_with_keys() -> None:
    declared = parse_tubes(GOOD)
    assert declared.rules_of(b"mail.in") == {"max-reserves": "5", "backoff": "5:2:3600"}
    assert declared.rules_of(b"slow") == {"max-reserved": "1"}
    assert declared.rules_of(b"fast") == {}
    assert parse_tubes("").is_empty


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[a]\n\nmax-jobs = -1", "line 3, max-jobs of ['a']: max-jobs is a whole number from 0 to"),
        ("[a]\nmax-jobs = 1\n[b]\nmax-jobs = 'x'", "line 4, max-jobs of ['b']: "),
        ("[a]\ncolour = 'red'", "line 2, colour of ['a']: there is no key 'colour'; keys are"),
        ("[a]\n'max-age' = true", "line 2, max-age of ['a']: values are numbers or strings, not"),
        ("[a]\nrate = 1.5", "line 2, rate of ['a']: values are numbers or strings, not 1.5"),
        ("\n'q.*' = {rate = 0}", "line 2, rate of ['q.*']: "),
        ("# first\n[a.b]\nrate = 1", "line 2, b of ['a']: a name with a dot is written in quotes"),
        ("rate = 1", "line 1: rate stands outside of a table"),
        ("[a]\n['b c']\n", "line 2: 'b c' is neither the name of a tube nor a pattern"),
        ("[a]\nrate 1", "it is no TOML: Expected '=' after a key in a key/value pair (at line 2,"),
        ("[a]\n[a]\n", "it is no TOML: "),
        ("[a]\nmax-jobs = " + "1" * 5000, "it is no TOML: "),
        ('["a"]\n"max\\njobs"=1', "line 2, max\\njobs of ['a']: there is no key"),
        ("#\n" + "." * 501, "line 2: it has more than 500 dots"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_key(text: str, where: str) -> None:
    with pytest.raises(BadTubesFile) as caught:
        parse_tubes(text)
    assert str(caught.value).startswith(where)


class Reactor(Clock):
    """A reactor whose turns are ours."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Callable[[], object]] = []

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """See `IReactorFromThreads.callFromThread`."""
        self.turns.append(lambda: callable(*args))


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Put the handler of SIGHUP back as it was."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_sighup_reads_it_again_and_keeps_the_old_one_if_it_is_wrong(
    own_signals: None, tmp_path: Path
) -> None:
    path, server, reactor = tmp_path / "tubes.toml", MemoryServer(), Reactor()
    client = server.connect()
    tubes = TubesFile(str(path), server.service)
    reload_on_signal(server.service, reactor, [tubes.reload], Hangup(lambda: False))

    def reload(text: str) -> str:
        path.write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        with capturedLogs() as events:
            reactor.turns.pop()()
        return "\n".join(map(formatEvent, events))

    assert f"--tubes {path}: read again" in reload("[default]\nmax-jobs = 0\n")
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"OUT_OF_MEMORY\r\n"
    said = reload("[default]\nmax-jobs = x\n")
    assert "it is no TOML" in said and "stay as they were" in said
    said = reload("[default]\nmax-jobs = 0.5\n")
    assert f"--tubes {path}: line 2, max-jobs of ['default']: " in said
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"OUT_OF_MEMORY\r\n"
    reload("[default]\nmax-jobs = 1\n")
    assert client.ask(b"put 0 0 1 0\r\n\r\n").startswith(b"INSERTED")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it cannot be read: No such file or directory"),
        (b"#" * (MAX_TUBES_FILE_BYTES + 1), f"it has more than {MAX_TUBES_FILE_BYTES} bytes"),
        (b"#\n#\xff", "line 2: it is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_start(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "tubes.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused) as caught:
        TubesFile(str(path), MemoryServer().service).load()
    assert str(caught.value) == f"--tubes {path}: {why}"
    assert caught.value.exit_code == WRONG_FILE


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "tubes.toml"
    os.mkfifo(path)
    with pytest.raises(Refused, match="it is no regular file"):
        TubesFile(str(path), MemoryServer().service).load()


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tubes.toml"
    path.write_bytes(b"#" * MAX_TUBES_FILE_BYTES)
    TubesFile(str(path), MemoryServer().service).load()
