"""What is known of a peer, by real sockets and a real certificate."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from OpenSSL.crypto import X509
from twisted.internet.address import HostnameAddress, IPv4Address, IPv6Address, UNIXAddress

from beanstalk_twisted.access.rules import Peer
from beanstalk_twisted.server.connections.served import host_of, peer_of
from tests.certificates import Authority, with_extension_twice
from tests.server.access.peers import certificate


class Transport:
    """What peers are known by."""

    def __init__(self, host: object, peer: object = None, handle: Any = None) -> None:
        self.getHost = lambda: host
        self.getPeer = lambda: peer
        self.getHandle = lambda: handle


class TlsTransport(Transport):
    """One whose peer has shown a certificate, or none."""

    def __init__(self, shown: Any) -> None:
        super().__init__(IPv4Address("TCP", "10.0.0.1", 11300))
        self.getPeerCertificate = lambda: shown


@pytest.mark.parametrize(
    ("address", "listeners"),
    [
        (IPv4Address("TCP", "10.0.0.1", 11300), ("10.0.0.1:11300", "tcp:11300")),
        (IPv6Address("TCP", "::1", 11300), ("[::1]:11300", "tcp:11300")),
        (UNIXAddress(b"/run/bs.sock"), ("unix:/run/bs.sock",)),
        (UNIXAddress(None), ()),
        (HostnameAddress(b"a", 1), ()),
    ],
)
def test_a_port_is_called_as_the_log_says_it(address: object, listeners: tuple[str, ...]) -> None:
    assert peer_of(Transport(address)) == Peer(listeners)


def test_the_kernel_says_whose_process_is_at_the_other_end_of_a_unix_socket() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        transport = Transport(UNIXAddress(b"/x"), UNIXAddress(None), ours)
        assert peer_of(transport) == Peer(("unix:/x",), os.getuid(), os.getgid())
        assert host_of(transport) == f"uid {os.getuid()}"


def test_no_other_socket_says_it_and_none_that_is_closed() -> None:
    closed = socket.socket(socket.AF_UNIX)
    closed.close()
    with socket.socket() as tcp:
        for handle in (tcp, closed):
            assert peer_of(Transport(UNIXAddress(b"/x"), None, handle)).uid is None


def test_guesses_are_counted_by_the_address() -> None:
    assert host_of(Transport(None, IPv4Address("TCP", "10.0.0.2", 7))) == "10.0.0.2"
    assert host_of(Transport(None, UNIXAddress(None))) == "uid None"


def test_the_names_in_a_certificate_are_those_of_its_subject_and_its_alternatives() -> None:
    assert peer_of(TlsTransport(certificate())).certificate == (
        "CN=worker-1", "DNS:worker.example.org", "URI:spiffe://example.org/worker",
        "EMAIL:worker@example.org",
    )  # fmt: skip
    assert peer_of(TlsTransport(None)).certificate == ()


def test_of_a_certificate_whose_extensions_cannot_be_read_the_subject_counts_alone() -> None:
    doubled = with_extension_twice(Authority("CA").client().certificate)
    shown = X509.from_cryptography(doubled)
    assert peer_of(TlsTransport(shown)).certificate == ("CN=worker-1",)
