"""Whether servers of NATS sync what they acknowledge, as their monitors say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.jetstream import (
    MAX_MONITOR_BYTES,
    MONITOR_S,
    sync_warnings,
)
from tests.ports import free_ports
from tests.replication.cluster import Server, running
from tests.script_server import Listener

GREETING = b'INFO {"server_id": "NA"}\r\n'
HTTP = b"HTTP/1.1 200 OK\r\n\r\n"
ALWAYS = b'{"server_id": "NA", "config": {"sync_always": true, "sync_interval": 120000000000}}'
SELDOM = b'{"server_id": "NA", "config": {"sync_interval": 120000000000}}'


@contextlib.contextmanager
def saying(said: bytes, is_asked: bool = True, again: bytes = b"") -> Iterator[int]:
    """Somebody who says this to whoever comes.

    :param is_asked: whether that one speaks first.
    :param again: what follows, over and over, until that one has gone.
    """

    def speak(line: socket.socket) -> None:
        if is_asked:
            line.recv(4096)
        line.sendall(said)
        while again:
            line.sendall(again)
            time.sleep(0.02)

    with Listener(speak) as listener:
        yield listener.port


def warnings(
    servers: Sequence[int], monitors: Sequence[int], limit_s: float = MONITOR_S
) -> list[str]:  # fmt: skip
    named = ",".join(f"127.0.0.1:{port}" for port in servers)
    query = ",".join(map(str, monitors))
    address = parse(f"nats://{named}/q?monitor={query}")
    return asyncio.run(sync_warnings("nats://a/q", address, limit_s))


def config(text: bytes) -> bytes:
    """The answer of a monitor with this configuration of JetStream."""
    return HTTP + b'{"server_id": "NA", "config": %b}' % text


NOT_ASKED = "could not be asked whether it syncs"
OTHER_MONITOR = "it is the monitor of another server: name one for each, in the order of the URL: ?"
NOT_NATS = "no server of NATS answers there"


@pytest.mark.parametrize(
    ("greeting", "said", "warned"),
    [
        (GREETING, HTTP + ALWAYS, ""),
        (GREETING, HTTP + SELDOM, "syncs every 120 s only"),
        (GREETING, config(b'{"sync_interval": %d}' % ((1 << 63) - 1)), "every 9.22337e+09 s only"),
        (GREETING, HTTP + ALWAYS.replace(b"NA", b"NB"), OTHER_MONITOR),
        (GREETING, HTTP + SELDOM.replace(b"NA", b"NB"), OTHER_MONITOR),
        *((GREETING, said, NOT_ASKED) for said in (
            GREETING, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
            HTTP + b"{}", HTTP + b"[" * 100_000, b"HTTP/1.1 404 Not Found\r\n\r\n",
            config(b"null"), config(b'{"sync_interval": "120000000000"}'),
            config(b'{"sync_interval": -5}'), config(b'{"sync_interval": true}'),
            config(b'{"sync_interval": 1e999}'), config(b'{"sync_interval": %d}' % (1 << 63)),
            config(b'{"sync_interval": 1%b}' % (b"0" * 400)),
            config(b'{"sync_interval": 1%b}' % (b"0" * 5000)),
        )),
        *((greeting, HTTP + ALWAYS, NOT_NATS) for greeting in (
            b"", b"hello\r\n", b"INFO {}\r\n", b'INFO {"server_id": 1}\r\n', b"INFO []\r\n",
            b"INFO " + b"[" * 100_000,
        )),
    ],
)  # fmt: skip
def test_who_is_not_known_to_sync_always_is_warned_of(
    greeting: bytes, said: bytes, warned: str
) -> None:
    with saying(greeting, False) as server, saying(said) as monitor:
        found = warnings([server], [monitor])
    assert len(found) == bool(warned)
    for warning in found:
        assert f"127.0.0.1:{server} " in warning and warned in warning
        assert not warning.endswith(": ") and "\n" not in warning
        is_of_monitor = warned in (NOT_ASKED, OTHER_MONITOR)
        assert (f"http://127.0.0.1:{monitor}/jsz?config=1" in warning) is is_of_monitor


@pytest.mark.parametrize("again", [b" ", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest.mark.parametrize("said", [b"", HTTP + SELDOM])
def test_a_monitor_that_does_not_come_to_an_end_is_left(said: bytes, again: bytes) -> None:
    with saying(GREETING, False) as server, saying(said, again=again) as monitor:
        [warning] = warnings([server], [monitor], 0.2)
    assert warning.endswith(f":{monitor}/jsz?config=1: it has not answered within 0.2 s")


def test_a_greeting_has_a_largest_size() -> None:
    with saying(b"INFO ".ljust(MAX_MONITOR_BYTES + 1) + b"\n", False) as server:
        [warning] = warnings([server], [1])
    assert warning.endswith("more than 1024 KiB have come")


def test_a_greeting_that_does_not_come_to_an_end_is_left() -> None:
    with saying(b"INFO ", False, b" ") as server:
        [warning] = warnings([server], [1], 0.2)
    assert warning.endswith("it has not answered within 0.2 s")


@pytest.mark.parametrize("over", [0, 1])
def test_an_answer_has_a_largest_size(over: int) -> None:
    greeting = GREETING.rstrip().ljust(MAX_MONITOR_BYTES - 1) + b"\n"
    said = (HTTP + SELDOM).ljust(MAX_MONITOR_BYTES + over)
    with saying(greeting, False) as server, saying(said) as monitor:
        [warning] = warnings([server], [monitor])
    assert ("syncs every 120 s only" in warning) is (not over)
    assert warning.endswith("more than 1024 KiB have come") is bool(over)


def test_a_server_and_a_monitor_that_are_not_there_could_not_be_asked() -> None:
    [nowhere] = free_ports(1)
    with saying(GREETING, False) as server:
        found = warnings([nowhere, server], [nowhere, nowhere])
    assert len(found) == 2 and all("could not be asked" in each for each in found)
    assert all("Connection refused" in each for each in found)


def test_several_servers_of_one_machine_are_told_apart(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        [first] = cluster.servers
        jetstream = f'jetstream {{ store_dir: "{tmp_path / "two"}" }}'
        second = Server(tmp_path, "two", free_ports(2), jetstream)
        try:
            ports = [first.port, second.port]
            (one_for_all,) = warnings(ports, [first.monitor])
            assert f"{second.port} could not be asked" in one_for_all
            (seldom,) = warnings(ports, [first.monitor, second.monitor])
            assert f"{second.port} syncs every 120 s only" in seldom
            exchanged = warnings(ports, [second.monitor, first.monitor])
            assert ["could not be asked" in each for each in exchanged] == [True, True]
        finally:
            second.kill()
