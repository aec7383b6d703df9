"""How addresses are named, and what is advised when one cannot be listened on."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import CannotListenError

from beanstalk_twisted.daemon.sockets import in_words, why_not


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (IPv4Address("TCP", "127.0.0.1", 11300), "127.0.0.1:11300"),
        (IPv6Address("TCP", "::1", 11300), "[::1]:11300"),
        (IPv6Address("TCP", "::", 1), "[::]:1"),
        (UNIXAddress("/run/bs.sock"), "unix:/run/bs.sock"),
        (UNIXAddress(b"\0name"), "unix:@name"),
        ("something else", "something else"),
    ],
)
def test_an_address_is_named_as_options_take_it(address: object, words: str) -> None:
    assert in_words(address) == words


def os_error(number: int) -> OSError:
    """Make an error as the system does."""
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("place", "problem", "option", "words"),
    [
        (
            ("127.0.0.1", 11300),
            os_error(errno.EADDRINUSE),
            "--port",
            "cannot listen on 127.0.0.1:11300: address already in use. "
            "Is another beanstalkd running? Try --port 11301.",
        ),
        (
            ("::1", 65535),
            os_error(errno.EADDRINUSE),
            "--port",
            "cannot listen on [::1]:65535: address already in use. "
            "Is another beanstalkd running? Try --port 65534.",
        ),
        (
            ("", 11300),
            os_error(errno.EADDRINUSE),
            "--listen",
            "cannot listen on *:11300: address already in use. "
            "Is another beanstalkd running? Try another port in --listen.",
        ),
        (
            ("10.1.1.1", 11300),
            os_error(errno.EADDRNOTAVAIL),
            "--port",
            "cannot listen on 10.1.1.1:11300: cannot assign requested address. "
            "This machine has no such address; 'ip address' shows those that it has.",
        ),
        (
            ("127.0.0.1", 80),
            os_error(errno.EACCES),
            "--port",
            "cannot listen on 127.0.0.1:80: permission denied. Try --port 1025.",
        ),
        (
            ("nosuch", 11300),
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "--port",
            "cannot listen on nosuch:11300: name or service not known. "
            "Name an address of this machine: --address 127.0.0.1.",
        ),
        (
            (None, "/run/bs.sock"),
            os_error(errno.EACCES),
            "--port",
            "cannot listen on unix:/run/bs.sock: permission denied. "
            f"Name a path where user {os.geteuid()} may write.",
        ),
        (
            (None, "/" + "x" * 200),
            OSError("AF_UNIX path too long"),
            "--port",
            f"cannot listen on unix:/{'x' * 200}: AF_UNIX path too long.",
        ),
    ],
)
def test_why_nobody_can_listen_there_is_one_line(
    place: tuple[str | None, int | str], problem: OSError, option: str, words: str
) -> None:
    error = CannotListenError(*place, problem)
    assert why_not(error, option) == words


def test_an_error_of_another_kind_is_told_as_it_is() -> None:
    assert why_not(ValueError("no key"), "--listen") == "cannot listen: no key"
