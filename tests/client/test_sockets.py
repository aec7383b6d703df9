"""Blocking connections: TLS, and which host of several is taken."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from beanstalk_twisted.client import errors, tls_faults
from beanstalk_twisted.client.addresses import Address, Tls
from beanstalk_twisted.client.sockets import connect
from beanstalk_twisted.client.ssl_contexts import context_of
from beanstalk_twisted.client.sync import Client
from tests.certificates import Certificates
from tests.sampling import share
from tests.script_server import Listener, Speak, die, hang, relay, say, server_context
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

MANY = share(100)
BIG = 1 << 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of ours without TLS; what is given is its port."""
    with ServerProcess(ours_at_once("-p", 0, "-z", BIG), tmp_path_factory.mktemp("bs")) as server:
        yield server.port()


def refusal(port: int, *options: str, host: str = "127.0.0.1") -> str:
    """Ask for something, and give what is said about it."""
    address = Address.parse(f"tls://{host}:{port}?{'&'.join(options)}".removesuffix("?"))
    with pytest.raises(errors.ClientError) as caught, Client(address, timeout_s=20) as queue:
        queue.list_tubes()
    why = caught.value.reason if isinstance(caught.value, errors.Unanswered) else caught.value
    return f"{why}".replace(f"tls://{host}:{port}: ", "")


def test_big_bodies_come_and_go(plain: int, certificates: Certificates) -> None:
    body = bytes(range(256)) * (BIG // 256)
    speak = relay(server_context(certificates.server), plain)
    with Listener(speak) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}?ca={certificates.ca}")
        with Client(address) as queue:
            for _ in range(3):
                queue.put(body, tube="big")
            for job in queue.jobs("big", timeout=0):
                with job:
                    assert job.body == body
            assert queue.stats().total_jobs == 3


@pytest.mark.parametrize("newest", [True, False], ids=["1.3", "1.2"])
def test_a_certificate_is_asked_for(plain: int, certificates: Certificates, newest: bool) -> None:
    context = server_context(
        certificates.server, certificates.ca, certificates.revocations, newest=newest
    )
    with Listener(relay(context, plain)) as server:
        ca = f"ca={certificates.ca}"
        ours = Address.parse(f"tls://localhost:{server.port}?{ca}&cert={certificates.client}")
        with Client(ours) as queue:
            assert "default" in queue.list_tubes()
        wants = "wants" if newest else "may want"
        assert refusal(server.port, ca) == (
            f"the server {wants} a certificate of ours; give it one with &cert=FILE behind the "
            "address, or ?cert=FILE"
        )
        for file, why in (
            (certificates.revoked_client, "it was revoked"),
            (certificates.expired_client, "it has expired"),
            (certificates.stranger, "it does not know its CA"),
        ):
            said = refusal(server.port, ca, f"cert={file}")
            assert said == f"{file}: the server refuses our certificate: {why}"


def test_a_wrong_certificate_is_told_in_one_line(plain: int, certificates: Certificates) -> None:
    ca = f"ca={certificates.ca}"
    cases = {
        certificates.expired: "the server's certificate has expired on ",
        certificates.wrong_name: "the server's certificate is for elsewhere.example.org, and not "
        "for 127.0.0.1; connect to that name, or say ?name=elsewhere.example.org",
        certificates.other_server: "the server's certificate is not trusted: its CA is not known "
        "here; trust one with ?ca=FILE behind the address",
    }
    for file, why in cases.items():
        with Listener(relay(server_context(file), plain)) as server:
            said = refusal(server.port, ca)
            assert said.startswith(why) and "\n" not in said
            if file == certificates.expired:
                assert said.endswith(" UTC; it has to be renewed there")
            if file == certificates.wrong_name:
                named = f"tls://127.0.0.1:{server.port}?{ca}&name=elsewhere.example.org"
                with Client(Address.parse(named)) as queue:
                    assert queue.list_tubes()
                other = refusal(server.port, ca, "name=b.example.org")
                assert "and not for b.example.org" in other


def test_what_speaks_no_tls_is_told(plain: int) -> None:
    with Listener(say(b"UNKNOWN_COMMAND\r\n" * 3)) as server:
        assert refusal(server.port) == (
            "what answers does not speak TLS; connect to the port that does"
        )
    with Listener(die) as server:
        assert refusal(server.port) == tls_faults.CUT
    with Listener(hang) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}")
        with pytest.raises(errors.TlsFailed, match="no answer to TLS in time"):
            connect(address, 0.2)


def test_a_certificate_may_be_trusted_itself(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.server), plain)) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}?ca={certificates.server}")
        with Client(address) as queue:
            assert queue.list_tubes()


def test_the_system_knows_no_ca_of_the_tests(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.server), plain)) as server:
        assert "its CA is not known here" in refusal(server.port)


def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    text, folder, broken = tmp_path / "a.txt", tmp_path / "none", tmp_path / "broken.pem"
    text.write_text("nothing")
    folder.mkdir()
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    secret = tmp_path / "secret.pem"
    secret.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    cert = f"cert={certificates.client}"
    gone = "No such file or directory; name a file that this user can read"
    for options, why in (
        ([f"ca={tmp_path}/no"], f"{tmp_path}/no: {gone}"),
        ([f"ca={folder}"], f"{folder}: there is no certificate in it; it has to be PEM"),
        ([f"ca={broken}"], f"{broken}: a certificate in it is damaged; it has to be PEM"),
        ([f"cert={text}"], f"{text}: there is no certificate in it; it has to be PEM"),
        ([cert, f"key={tmp_path}/no"], f"{tmp_path}/no: {gone}"),
        ([cert, f"key={text}"], f"{text}: there is no private key in it; it has to be PEM, in the "
                                "file of cert= or key="),
        ([cert, f"key={secret}"], f"{secret}: its private key has a passphrase; give one that has "
                                  "none"),
        ([cert, f"key={certificates.server}"],
         f"{certificates.server}: this private key is not that of {certificates.client}"),
    ):  # fmt: skip
        assert refusal(1, *options) == why


def test_a_hundred_connections_one_after_the_other(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.server), plain)) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}?ca={certificates.roots}")
        for _ in range(MANY):
            with Client(address) as queue:
                assert queue.list_tubes()
        assert server.connections == MANY


def test_an_end_without_a_farewell_is_an_end(certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: object) -> None:
        with context.wrap_socket(line, server_side=True) as client:  # type: ignore[arg-type]
            client.recv(100)  # To close it says nothing: Python sends no close_notify.

    with Listener(speak) as server:
        said = refusal(server.port, f"ca={certificates.ca}")
        assert "the server has closed the connection" in said


def test_a_wrong_token_is_told_and_not_shown(certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: object) -> None:
        with context.wrap_socket(line, server_side=True) as client:  # type: ignore[arg-type]
            assert client.recv(100) == b"auth secret\r\n"
            client.sendall(b"UNAUTHORIZED\r\n")
            client.recv(1)

    with Listener(speak) as server:
        address = Address.parse(f"tls://secret@127.0.0.1:{server.port}?ca={certificates.ca}")
        with pytest.raises(errors.Unauthorized, match="the token is nobody's") as caught:
            Client(address, timeout_s=20).connect()
        assert "secret" not in f"{caught.value!r}{caught.value}"


def test_tls_before_1_2_is_not_spoken() -> None:
    assert context_of(Tls()).minimum_version == ssl.TLSVersion.TLSv1_2


ANSWER = b"USING default\r\n"


def refusing() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def serve(line: socket.socket) -> None:
    while line.recv(1 << 16):
        line.sendall(ANSWER)


def to(*ports: int) -> Address:
    return Address.parse(f"beanstalk://{','.join(f'127.0.0.1:{port}' for port in ports)}")


def port_of(*ports: int) -> int:
    """Give the port of the host that was taken."""
    with connect(to(*ports), 10) as line:
        port: int = line.getpeername()[1]
    return port


@pytest.mark.parametrize("other", [hang, die, say(b"HTTP/1.1 400 Bad Request\r\n")])
def test_a_host_that_does_not_answer_is_left_for_another_one(other: Speak) -> None:
    with Listener(other) as first, Listener(serve) as second:
        assert port_of(first.port, second.port) == second.port
        assert first.connections == 1


def test_a_host_that_refuses_is_left_for_another_one() -> None:
    with Listener(serve) as second:
        assert port_of(refusing(), refusing(), second.port) == second.port
        with Client(to(refusing(), second.port)) as queue:
            assert queue.list_tube_used() == "default"


def test_the_first_one_is_taken_if_it_answers() -> None:
    with Listener(serve) as first, Listener(hang) as second:
        assert port_of(first.port, second.port) == first.port


def test_a_host_that_answers_too_late_is_parted_from() -> None:
    may_answer, was_left = Event(), Event()

    def late(line: socket.socket) -> None:
        line.recv(1 << 16)
        may_answer.wait(LIMIT_S)
        line.sendall(ANSWER)
        if line.recv(1) == b"":
            was_left.set()

    with Listener(late) as first, Listener(serve) as second:
        assert port_of(first.port, second.port) == second.port
        may_answer.set()
        assert was_left.wait(LIMIT_S)


def test_when_none_answers_it_is_told_why_of_each() -> None:
    away = refusing()
    with Listener(die) as second, pytest.raises(errors.NoHost) as caught:
        connect(to(away, second.port), 10)
    said = str(caught.value)
    assert said.startswith(f"no host answers: 127.0.0.1:{away}: Connection refused; ")
    assert f"127.0.0.1:{second.port}: it has closed the connection before any answer" in said


def test_a_name_that_can_be_none_does_not_hold_up_the_others() -> None:
    with Listener(serve) as second:
        text = f"beanstalk://{'a' * 64}.example,127.0.0.1:{second.port}"
        connect(Address.parse(text), 10).close()


def test_the_token_is_shown_to_the_one_that_answers() -> None:
    def guarded(line: socket.socket) -> None:
        line.recv(1 << 16)
        line.sendall(ANSWER)
        assert line.recv(1 << 16) == b"auth secret\r\n"
        line.sendall(b"UNAUTHORIZED\r\n")

    with Listener(guarded) as second, pytest.raises(errors.Unauthorized):
        Client(to(refusing(), second.port), token="secret").connect()


def test_over_tls_each_host_has_to_be_trusted(certificates: Certificates) -> None:
    def secured(line: socket.socket) -> None:
        with server_context(certificates.server).wrap_socket(line, server_side=True) as inner:
            serve(inner)

    with Listener(secured) as first, Listener(secured) as second:
        hosts = f"localhost:{first.port},127.0.0.1:{second.port}"
        with Client(f"tls://{hosts}?ca={certificates.ca}") as queue:
            assert queue.list_tube_used() == "default"
        with pytest.raises(errors.TlsFailed, match="its CA is not known"):
            Client(f"tls://{hosts}?ca={certificates.other_ca}").connect()
