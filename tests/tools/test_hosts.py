"""The blocking client of a queue on several hosts: which one it takes."""

from __future__ import annotations

import socket
from threading import Event

import pytest

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Lost
from binlog_tools.connections import WrongToken, connect
from tests.certificates import Certificates
from tests.script_server import Listener, Speak, die, hang, say, server_context
from tests.server_process import LIMIT_S

ANSWER = b"USING default\r\n"


def refusing() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def serve(line: socket.socket) -> None:
    while line.recv(1 << 16):
        line.sendall(ANSWER)


def line_to(*ports: int) -> Connection:
    return connect(Address.parse(f"beanstalk://{','.join(f'127.0.0.1:{port}' for port in ports)}"))


@pytest.mark.parametrize("other", [hang, die, say(b"HTTP/1.1 400 Bad Request\r\n")])
def test_a_host_that_does_not_answer_is_left_for_another_one(other: Speak) -> None:
    with Listener(other) as first, Listener(serve) as second:
        with line_to(first.port, second.port) as line:
            assert line.address == f"127.0.0.1:{second.port}"
        assert first.connections == 1


def test_a_host_that_refuses_is_left_for_another_one() -> None:
    with Listener(serve) as second, line_to(refusing(), refusing(), second.port) as line:
        assert line.address == f"127.0.0.1:{second.port}"
        line.send(b"list-tube-used\r\n")
        assert line.reply().words == (b"USING", b"default")


def test_the_first_one_is_taken_if_it_answers() -> None:
    with (
        Listener(serve) as first, Listener(hang) as second,
        line_to(first.port, second.port) as line,
    ):  # fmt: skip
        assert line.address == f"127.0.0.1:{first.port}"


def test_a_host_that_answers_too_late_is_parted_from() -> None:
    may_answer, was_left = Event(), Event()

    def late(line: socket.socket) -> None:
        line.recv(1 << 16)
        may_answer.wait(LIMIT_S)
        line.sendall(ANSWER)
        if line.recv(1) == b"":
            was_left.set()

    with (
        Listener(late) as first, Listener(serve) as second,
        line_to(first.port, second.port) as line,
    ):  # fmt: skip
        assert line.address == f"127.0.0.1:{second.port}"
        may_answer.set()
        assert was_left.wait(LIMIT_S)


def test_when_none_answers_it_is_told_why_of_each() -> None:
    away = refusing()
    with Listener(die) as second, pytest.raises(Lost) as caught:
        line_to(away, second.port)
    said = str(caught.value.strerror)
    assert said.startswith(f"no host answers: 127.0.0.1:{away}: Connection refused; ")
    assert f"127.0.0.1:{second.port}: the server has closed the connection" in said
    assert caught.value.filename == f"beanstalk://127.0.0.1:{away},127.0.0.1:{second.port}"


def test_a_name_that_can_be_none_does_not_hold_up_the_others() -> None:
    with Listener(serve) as second:
        text = f"beanstalk://{'a' * 64}.example,127.0.0.1:{second.port}"
        with connect(Address.parse(text)) as line:
            assert line.address == f"127.0.0.1:{second.port}"


def test_a_reply_may_take_as_long_as_of_one_host() -> None:
    with Listener(serve) as second:
        address = Address.parse(f"beanstalk://127.0.0.1:{refusing()},127.0.0.1:{second.port}")
        with connect(address, 17) as line:
            assert line._socket.gettimeout() == 17


def test_the_token_is_shown_to_the_one_that_answers() -> None:
    def guarded(line: socket.socket) -> None:
        line.recv(1 << 16)
        line.sendall(ANSWER)
        assert line.recv(1 << 16) == b"auth secret\r\n"
        line.sendall(b"UNAUTHORIZED\r\n")

    with Listener(guarded) as second, pytest.raises(WrongToken):
        connect(Address.parse(f"beanstalk://secret@127.0.0.1:{refusing()},127.0.0.1:{second.port}"))


def test_over_tls_each_host_has_to_be_trusted(certificates: Certificates) -> None:
    def secured(line: socket.socket) -> None:
        with server_context(certificates.server).wrap_socket(line, server_side=True) as inner:
            serve(inner)

    with Listener(secured) as first, Listener(secured) as second:
        hosts = f"localhost:{first.port},127.0.0.1:{second.port}"
        with connect(Address.parse(f"tls://{hosts}?ca={certificates.ca}")) as line:
            assert line.address in hosts.split(",")
        with pytest.raises(Lost, match=r"no host answers: .*its CA is not known.*not known"):
            connect(Address.parse(f"tls://{hosts}?ca={certificates.other_ca}"))
