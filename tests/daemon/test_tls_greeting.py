"""Handshakes: those that are right, and each way in which one fails."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL
from twisted.internet.error import ConnectionDone
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.server.connections.served import peer_of
from beanstalk_twisted.server.connections.turns import TURN_S
from tests.certificates import WORKER, Authority, Certificates
from tests.daemon.tls_talking import LIMIT_S, Client, Port, client_context

OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
EACH_VERSION = pytest.mark.parametrize("version", [OLD, NEW])


@pytest.fixture
def port(certificates: Certificates) -> Iterator[Port]:
    port = Port(certificates.server.parent)
    yield port
    port.handshakes.stop()


def mutual(certificates: Certificates) -> Port:
    return Port(certificates.server.parent, certificates.ca, certificates.revocations)


@EACH_VERSION
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_what_comes_behind_a_handshake_is_served(
    certificates: Certificates, port: Port, version: ssl.TLSVersion, piece: int
) -> None:
    socket = port.accept()
    client = Client(client_context(certificates.ca, newest=version))
    client.steps(socket, piece)
    client.send(socket, b"stats\r\n")
    assert client.tls.version() == version.name.replace("_", ".")
    assert port.served.made[0].received == b"stats\r\n"
    assert port.outcomes() == {"completed": 1}
    assert not port.clock.getDelayedCalls()
    socket.close(ConnectionDone())
    assert port.served.made[0].is_lost
    assert port.outcomes() == {"completed": 1}


@EACH_VERSION
@pytest.mark.parametrize(
    ("shown", "outcome", "said"),
    [
        ("client", "completed", ""),
        ("expired_client", "expired", "the client's certificate has expired"),
        ("revoked_client", "revoked", "the client's certificate was revoked"),
        ("stranger", "unknown-authority", "has issued the client's certificate"),
        ("server", "untrusted", "is not trusted, X509_V_ERR 26"),
        ("", "no-certificate", "the client has shown no certificate"),
    ],
)  # fmt: skip
def test_who_may_come_in_by_a_certificate(
    certificates: Certificates, version: ssl.TLSVersion, shown: str, outcome: str, said: str
) -> None:
    port = mutual(certificates)
    certificate = getattr(certificates, shown) if shown else None
    context = client_context(certificates.ca, certificate, version)
    socket = port.accept()
    with capturedLogs() as logged:
        client = Client(context)
        if outcome == "completed" or version is NEW:
            # Of 1.3 a client is through before the server has looked at its certificate.
            client.steps(socket)
        else:
            with pytest.raises(ssl.SSLError):
                client.steps(socket)
    assert port.outcomes() == {outcome: 1}
    assert socket.is_closed == bool(said)
    told = [formatEvent(event) for event in logged if event.get("event") == "handshake-failed"]
    assert len(told) == bool(said)
    if told:
        assert told[0].startswith("10.0.0.7:51234: TLS handshake failed: ")
        assert told[0].endswith(said)
        assert port.served.made[0].is_lost and not port.served.made[0].received
    port.handshakes.stop()


def test_names_of_a_client_are_those_of_its_certificate(certificates: Certificates) -> None:
    port = mutual(certificates)
    socket = port.accept()
    Client(client_context(certificates.ca, certificates.client)).steps(socket)
    assert peer_of(port.served.made[0].transport).certificate == WORKER


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(
    certificates: Certificates, port: Port, version: ssl.TLSVersion
) -> None:
    socket = port.accept()
    with pytest.raises(ssl.SSLError):
        Client(client_context(certificates.ca, newest=version)).steps(socket)
    assert port.outcomes() == {"version": 1}


def test_ciphers_without_forward_secrecy_are_refused(
    certificates: Certificates, port: Port
) -> None:
    for ciphers in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA"):
        context = client_context(certificates.ca, newest=OLD)
        context.set_ciphers(ciphers)
        with pytest.raises(ssl.SSLError):
            Client(context).steps(port.accept())
    assert port.outcomes() == {"nothing-common": 3}


@pytest.mark.parametrize(
    "text",
    [
        b"stats\r\n",
        b"put 1 0 60 5\r\nhello\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"reserve-with-timeout 10\r\n",
        b"list-tube-used\r\n",
    ],
)
def test_plain_text_is_called_so(port: Port, text: bytes) -> None:
    socket = port.accept()
    socket.receive(text)
    assert socket.is_closed
    assert port.outcomes() == {"plain-text": 1}
    assert not port.served.made[0].received


@pytest.mark.parametrize("roots", ["ca", "other_ca"])
def test_a_client_that_refuses_our_certificate_is_told_of(
    certificates: Certificates, roots: str
) -> None:
    folder = certificates.wrong_name if roots == "ca" else certificates.server
    port = Port(folder.parent)
    socket = port.accept()
    with (
        capturedLogs() as logged,
        pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"),
    ):
        Client(client_context(getattr(certificates, roots))).steps(socket)
    assert port.outcomes() == {"refused": 1}
    assert "the client refuses the server's certificate" in formatEvent(logged[-1])
    port.handshakes.stop()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"st"])
def test_a_handshake_that_does_not_go_on_is_ended(port: Port, sent: bytes) -> None:
    socket = port.accept()
    if sent:
        socket.receive(sent)
    port.clock.advance(LIMIT_S - 0.1)
    assert not socket.is_closed
    port.clock.advance(0.1)
    assert socket.is_closed and port.served.made[0].is_lost
    assert port.outcomes() == {"stalled": 1}


def test_a_byte_now_and_then_does_not_win_time(port: Port) -> None:
    socket = port.accept()
    for byte in b"\x16\x03\x01\x02\x00\x01":
        socket.receive(bytes([byte]))
        port.clock.advance(LIMIT_S / 6)
    assert socket.is_closed
    assert port.outcomes() == {"stalled": 1}


def test_who_leaves_in_between_is_counted_and_not_logged(port: Port) -> None:
    socket = port.accept()
    with capturedLogs() as logged:
        socket.close(ConnectionDone())
    assert port.outcomes() == {"left": 1}
    assert not logged and not port.clock.getDelayedCalls()


def test_who_is_not_taken_costs_no_handshake(port: Port) -> None:
    port.served.is_full = True
    assert port.factory.buildProtocol(None) is None


def test_each_reason_is_logged_once_a_minute(certificates: Certificates, port: Port) -> None:
    with capturedLogs() as logged:
        for _ in range(30):
            port.accept().receive(b"stats\r\n")
        socket = port.accept()
        with pytest.raises(ssl.SSLError):
            Client(client_context(certificates.other_ca)).steps(socket)
        assert len(logged) == 2
        port.clock.advance(60)
    assert len(logged) == 3
    assert formatEvent(logged[-1]).endswith("; the newest of 29 since the last such line")
    port.clock.advance(LIMIT_S)


def test_steps_of_handshakes_have_turns(port: Port) -> None:

    def take_time() -> None:
        port.clock.rightNow += TURN_S * 0.6

    port.served.lost = take_time
    sockets = [port.accept() for _ in range(5)]
    seen: list[int] = []
    for socket in sockets:
        socket.protocol.dataReceived(b"stats\r\n")
        assert socket.producerState == "paused"
    port.clock.callLater(0, lambda: seen.append(sum(each.is_closed for each in sockets)))
    port.clock.advance(0)
    assert seen == [2]
    assert port.outcomes() == {"plain-text": 5}


def test_what_came_of_who_has_left_is_dropped(port: Port) -> None:
    socket = port.accept()
    socket.protocol.dataReceived(b"stats")
    socket.protocol.dataReceived(b"\r\n")
    socket.close(ConnectionDone())
    port.clock.advance(0)
    assert port.outcomes() == {"left": 1}


@given(st.binary(min_size=1, max_size=600))
def test_any_bytes_end_or_wait(certificates: Certificates, noise: bytes) -> None:
    port = Port(certificates.server.parent)
    socket = port.accept()
    socket.receive(noise)
    port.clock.advance(LIMIT_S)
    assert socket.is_closed
    assert sum(port.outcomes().values()) == 1 and "completed" not in port.outcomes()
    port.handshakes.stop()


@given(st.integers(0, 250), st.integers(0, 255))
def test_a_changed_byte_of_a_handshake_ends_it_or_does_not_matter(
    certificates: Certificates, place: int, byte: int
) -> None:
    port = Port(certificates.server.parent)
    socket = port.accept()
    outgoing = ssl.MemoryBIO()
    tls = client_context(certificates.ca).wrap_bio(ssl.MemoryBIO(), outgoing, False, "localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = bytearray(outgoing.read())
    hello[place % len(hello)] = byte
    socket.receive(bytes(hello))
    port.clock.advance(LIMIT_S)
    assert socket.is_closed
    assert sum(port.outcomes().values()) == 1 and "completed" not in port.outcomes()
    port.handshakes.stop()


def test_new_files_are_for_new_handshakes(certificates: Certificates, port: Port) -> None:
    trusting = client_context(None)
    begun, done = port.accept(), port.accept()
    first = Client(trusting)
    first.steps(done)
    port.read(certificates.other_server.parent)
    second, third = Client(trusting), Client(trusting)
    second.steps(begun)
    third.steps(port.accept())
    assert first.certificate() == second.certificate() != third.certificate()
    first.send(done, b"stats\r\n")
    assert port.served.made[1].received == b"stats\r\n"


def test_renegotiation_is_refused(port: Port) -> None:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    client = SSL.Connection(context, None)
    client.set_connect_state()
    socket = port.accept()

    def exchange() -> None:
        for _ in range(4):
            with suppress(SSL.WantReadError):
                client.do_handshake()
            with suppress(SSL.WantReadError):
                socket.receive(client.bio_read(1 << 16))
            if answer := socket.take():
                client.bio_write(answer)

    exchange()
    client.send(b"stats\r\n")
    socket.receive(client.bio_read(1 << 16))
    assert port.served.made[0].received == b"stats\r\n"
    assert client.renegotiate()
    with pytest.raises(SSL.Error, match="no renegotiation"):
        exchange()
    assert client.total_renegotiations() == 1  # It is counted when it is asked for.
    assert port.outcomes() == {"completed": 1}
    assert port.served.made[0].received == b"stats\r\n"


@pytest.mark.parametrize(
    ("wish", "shown"),
    [
        ("a.example.org", "a"),
        ("A.Example.ORG", "a"),
        ("x.b.example.org", "b"),
        ("x.y.b.example.org", "a"),
        ("elsewhere.example.org", "a"),
        (None, "a"),
    ],
)
def test_a_clients_wish_chooses_the_certificate(
    tmp_path: Path, wish: str | None, shown: str
) -> None:
    authority = Authority("CA")
    issued = {"a": authority.server(["a.example.org"]), "b": authority.server(["*.b.example.org"])}
    for name, each in issued.items():
        each.write(tmp_path / f"{name}.pem")
    port = Port(tmp_path)
    client = Client(client_context(None), wish)
    client.steps(port.accept())
    assert client.certificate() == issued[shown].certificate.public_bytes(Encoding.DER)


def test_who_is_chosen_by_a_wish_asks_for_certificates_too(
    certificates: Certificates, tmp_path: Path
) -> None:
    ours = certificates.authority
    ours.server(["a.example.org"]).write(tmp_path / "a.pem")
    ours.server(["localhost"]).write(tmp_path / "b.pem")
    port = Port(tmp_path, certificates.ca, certificates.revocations)
    for shown in (certificates.client, certificates.revoked_client, None):
        Client(client_context(certificates.ca, shown)).steps(port.accept())
    assert port.outcomes() == {"completed": 1, "revoked": 1, "no-certificate": 1}
    port.handshakes.stop()


def test_no_session_is_resumed(certificates: Certificates) -> None:
    port = mutual(certificates)
    context = client_context(certificates.ca, certificates.client, OLD)
    client = Client(context)
    client.steps(port.accept())
    session = client.tls.session
    assert session is not None and not session.has_ticket
    again = Client(context)
    again.tls.session = session
    again.steps(port.accept())
    assert not again.tls.session_reused
    assert port.outcomes() == {"completed": 2}
