"""The files of ``--access`` and ``--tubes``: what they say, and what is wrong with them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.access.rules import MAX_FILE_BYTES
from beanstalk_twisted.daemon.files import (
    MAX_TUBES_FILE_BYTES,
    WRONG_FILE,
    AccessFile,
    BadTubesFile,
    TubesFile,
    parse_tubes,
)
from beanstalk_twisted.daemon.process import Hangup, Refused, reload_on_signal
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.replication.world import Process
from tests.server.access.meeting import InlineHashing

PUT_X = b"put 0 0 60 1\r\nx\r\n"
OPEN = '[anonymous]\nput = "*"\n'


def file_of(path: Path, server: MemoryServer, text: str = OPEN) -> AccessFile:
    path.write_text(text)
    path.chmod(0o600)
    return AccessFile(str(path), server.service, InlineHashing())


def test_a_broken_file_keeps_what_held_and_says_so(tmp_path: Path) -> None:
    server, path = MemoryServer(), tmp_path / "access.toml"
    file = file_of(path, server)
    with capturedLogs() as events:
        file.load()
    assert [formatEvent(event) for event in events] == [f"--access {path}: read, 0 identities"]
    client = server.connect()
    assert client.ask(PUT_X) == b"INSERTED 1\r\n"
    path.write_text("[anonymous]\nput = 'a b'\n")
    with capturedLogs() as events:
        file.reload()
    assert [formatEvent(event) for event in events] == [
        f"--access {path}: [anonymous]: 'a b' is neither the name of a tube nor a pattern of such "
        f"names. All may do what they could; mend it and send SIGHUP"
    ]
    assert client.ask(PUT_X) == b"INSERTED 2\r\n"
    path.write_text("")
    with capturedLogs() as events:
        file.reload()
    assert [event["event"] for event in events] == ["access-read"]
    assert client.ask(PUT_X) == b"UNAUTHORIZED\r\n"
    path.unlink()
    file.reload()
    assert client.ask(PUT_X) == b"UNAUTHORIZED\r\n"


@pytest.mark.parametrize("text", ["[", "#" * (MAX_FILE_BYTES + 1), "\0"])
def test_a_file_that_is_wrong_lets_no_server_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused) as caught:
        file_of(tmp_path / "access.toml", MemoryServer(), text).load()
    assert caught.value.exit_code == WRONG_FILE
    assert str(caught.value).startswith(f"--access {tmp_path}/access.toml: it ")


def test_a_limit_holds_when_the_file_is_read_again(tmp_path: Path) -> None:
    server, path = MemoryServer(), tmp_path / "access.toml"
    file = file_of(path, server)
    file.load()
    client = server.connect()
    assert client.ask(PUT_X * 2) == b"INSERTED 1\r\nINSERTED 2\r\n"
    path.write_text(f"{OPEN}limits = {{ jobs = 2 }}\n")
    file.reload()
    assert client.ask(PUT_X) == b"OUT_OF_MEMORY\r\n"
    assert sorted(server.service.queue.state.jobs) == [1, 2]


def test_a_file_as_large_as_may_be_is_read(tmp_path: Path) -> None:
    server = MemoryServer()
    file_of(tmp_path / "a", server, OPEN + "#" * (MAX_FILE_BYTES - len(OPEN))).load()
    assert server.connect().ask(PUT_X) == b"INSERTED 1\r\n"


def test_no_file_is_no_reason_to_trust_everybody(tmp_path: Path) -> None:
    missing = AccessFile(str(tmp_path / "none"), MemoryServer().service, InlineHashing())
    with pytest.raises(Refused, match="it cannot be read: No such file"):
        missing.load()


def test_a_file_that_others_may_write_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    file = file_of(path, MemoryServer())
    for mode, count in ((0o644, 0), (0o660, 1), (0o606, 1)):
        path.chmod(mode)
        with capturedLogs() as events:
            file.load()
        opened = ["access-open"] * count
        assert [event["event"] for event in events] == ["access-read", *opened]


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


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Put the handler of SIGHUP back as it was."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_sighup_reads_it_again_and_keeps_the_old_one_if_it_is_wrong(
    own_signals: None, tmp_path: Path
) -> None:
    path, server, reactor = tmp_path / "tubes.toml", MemoryServer(), Process()
    client = server.connect()
    tubes = TubesFile(str(path), server.service)
    reload_on_signal(lambda: server.service, reactor, [tubes.reload], Hangup(lambda: False))

    def reload(text: str) -> str:
        path.write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        with capturedLogs() as events:
            reactor.settle()
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
