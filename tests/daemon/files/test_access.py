"""Reading the file of ``--access``, at the start and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.access.rules import MAX_FILE_BYTES
from beanstalk_twisted.daemon.files import WRONG_FILE, AccessFile
from beanstalk_twisted.daemon.launching import Refused
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.server.access.meeting import InlineHashing

PUT_X = b"put 0 0 60 1\r\nx\r\n"
OPEN = '[anonymous]\nput = "*"\n'


def file_of(path: Path, server: MemoryServer, text: str = OPEN) -> AccessFile:
    """Write a file, for a server."""
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
