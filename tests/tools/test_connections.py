"""The blocking client: its replies, TLS, and which host of several it takes."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from beanstalk_twisted.client import tls_faults
from beanstalk_twisted.client.addresses import Address, Tls
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES, MAX_WHY_BYTES, CannotHandOver
from binlog_tools import client
from binlog_tools.client import (
    Connection,
    Lost,
    Reply,
    tube_request,
)
from binlog_tools.connections import WrongToken, connect, context_of
from binlog_tools.queue.server import Queue
from binlog_tools.tube_names import NoTube
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
    with pytest.raises(Lost) as caught, connect(address, 20) as line:
        Queue(line).tubes()
    place = caught.value.filename
    return f"{place}: {caught.value.strerror}".removeprefix(f"127.0.0.1:{port}: ")


def test_big_bodies_come_and_go(plain: int, certificates: Certificates) -> None:
    body = bytes(range(256)) * (BIG // 256)
    speak = relay(server_context(certificates.server), plain)
    with Listener(speak) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}?ca={certificates.ca}")
        with connect(address) as line:
            queue = Queue(line)
            queue.use(b"big")
            for _ in range(3):
                queue.put(body, 0, 0, 60)
            queue.watch_only([b"big"])
            for _ in range(3):
                job = queue.reserve(0)
                assert job is not None and job.body == body
                queue.delete(job.id)


@pytest.mark.parametrize("newest", [True, False], ids=["1.3", "1.2"])
def test_a_certificate_is_asked_for(plain: int, certificates: Certificates, newest: bool) -> None:
    context = server_context(
        certificates.server, certificates.ca, certificates.revocations, newest=newest
    )
    with Listener(relay(context, plain)) as server:
        ca = f"ca={certificates.ca}"
        ours = Address.parse(f"tls://localhost:{server.port}?{ca}&cert={certificates.client}")
        with connect(ours) as line:
            assert b"default" in Queue(line).tubes()
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
                with connect(Address.parse(named)) as line:
                    assert Queue(line).tubes()
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
        with pytest.raises(Lost, match="no answer to TLS in time"):
            connect(address, 0.2)


def test_a_certificate_may_be_trusted_itself(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.server), plain)) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}?ca={certificates.server}")
        with connect(address) as line:
            assert Queue(line).tubes()


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
            with connect(address) as line:
                assert not line.is_answered()
                assert Queue(line).tubes()
        assert server.connections == MANY


def test_an_end_without_a_farewell_is_an_end(certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: object) -> None:
        with context.wrap_socket(line, server_side=True) as client:  # type: ignore[arg-type]
            client.recv(100)  # To close it says nothing: Python sends no close_notify.

    with Listener(speak) as server:
        said = refusal(server.port, f"ca={certificates.ca}")
        assert said.startswith("the server has closed the connection")


def test_a_reply_that_comes_in_parts_is_waited_for_in_time(certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: object) -> None:
        with context.wrap_socket(line, server_side=True) as client:  # type: ignore[arg-type]
            client.recv(100)
            client.sendall(b"USI")
            client.recv(100)
            client.sendall(b"NG a\r\n")
            client.recv(100)

    with Listener(speak) as server:
        tls = Tls(f"{certificates.ca}")
        with connect(Address("127.0.0.1", server.port, tls), 20) as line:
            assert not line.is_answered()
            line.send(b"use a\r\n")
            while not line.is_answered():
                pass
            line.send(b"use a\r\n")
            assert line.reply().words == (b"USING", b"a")
            line.limit(0.1)
            with pytest.raises(Lost, match=r"timed out|no answer in time"):
                line.reply()


def test_a_wrong_token_is_told_and_not_shown(certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: object) -> None:
        with context.wrap_socket(line, server_side=True) as client:  # type: ignore[arg-type]
            assert client.recv(100) == b"auth secret\r\n"
            client.sendall(b"UNAUTHORIZED\r\n")
            client.recv(1)

    with Listener(speak) as server:
        address = Address.parse(f"tls://secret@127.0.0.1:{server.port}?ca={certificates.ca}")
        with pytest.raises(WrongToken, match="the token is nobody's") as caught:
            connect(address, 20)
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


@contextmanager
def saying(raw: bytes) -> Iterator[Connection]:
    """A connection to something that says these bytes and parts."""
    with (
        Listener(lambda peer: peer.sendall(raw)) as listener,
        Connection("127.0.0.1", listener.port, limit_s=10) as connection,
    ):
        yield connection


def test_replies_come_one_by_one_with_what_belongs_to_them() -> None:
    raw = b"INSERTED 7\r\nFOUND 7 5\r\na\r\nb\r\r\nOK 0\r\n\r\nRESERVED 1 2\r\nhi\r\nNOT_FOUND\r\n"
    with saying(raw) as connection:
        replies = [connection.reply() for _ in range(5)]
    assert replies == [
        Reply((b"INSERTED", b"7")), Reply((b"FOUND", b"7", b"5"), b"a\r\nb\r"),
        Reply((b"OK", b"0"), b""), Reply((b"RESERVED", b"1", b"2"), b"hi"),
        Reply((b"NOT_FOUND",)),
    ]  # fmt: skip
    assert [reply.name for reply in replies[:2]] == [b"INSERTED", b"FOUND"]
    assert str(replies[0]) == "INSERTED 7"


def test_the_jobs_of_a_batch_belong_to_its_reply() -> None:
    raw = b"INSERTED_BATCH 2\r\nINSERTED 7\r\nINSERTED 8\r\nINSERTED_BATCH 0\r\nNOT_FOUND\r\n"
    with saying(raw) as connection:
        replies = [connection.reply() for _ in range(3)]
    assert [reply.data for reply in replies] == [b"INSERTED 7\r\nINSERTED 8", b"", b""]
    assert [reply.name for reply in replies] == [b"INSERTED_BATCH"] * 2 + [b"NOT_FOUND"]


@pytest.mark.parametrize(
    "raw", [b"", b"INSERTED 7", b"FOUND 7 5\r\nab", b"OK x\r\n", b"OK 99999999999\r\n",
            b"x" * 2000 + b"\r\n", b"INSERTED_BATCH\r\n", b"INSERTED_BATCH -1\r\n",
            b"INSERTED_BATCH 1001\r\n" + b"INSERTED 1\r\n" * 1001,
            b"INSERTED_BATCH 2\r\nINSERTED 1\r\n"],
)  # fmt: skip
def test_a_server_that_breaks_off_or_is_none_is_lost(raw: bytes) -> None:
    with saying(raw) as connection, pytest.raises(Lost):
        connection.reply()


@pytest.mark.parametrize(("bytes_more", "is_read"), [(0, True), (1, False)])
def test_a_line_may_be_as_long_as_the_server_makes_it(bytes_more: int, is_read: bool) -> None:
    longest = CannotHandOver("y" * MAX_WHY_BYTES).encode()
    assert len(longest) == MAX_REPLY_LINE_BYTES
    with saying(b"x" * bytes_more + longest) as connection:
        if is_read:
            assert connection.reply().words == (b"CANNOT_HAND_OVER", b"y" * MAX_WHY_BYTES)
        else:
            with pytest.raises(Lost):
                connection.reply()


STRANGE = [b"", b"a b", b"-abc", b"a\n", b"x\r\ndelete 1\r\nuse y", b"caf\xe9", b"x" * 201]


@pytest.mark.parametrize("name", STRANGE)
def test_no_request_has_a_name_that_no_client_may_use(name: bytes) -> None:
    with pytest.raises(NoTube, match="is not the name of a tube: 1 to 200 of"):
        tube_request(b"use", name)
    assert tube_request(b"use", b"x" * 200) == b"use " + b"x" * 200 + b"\r\n"
    assert tube_request(b"pause-tube", b"a-b", 9) == b"pause-tube a-b 9\r\n"


def test_every_request_that_names_a_tube_is_made_in_one_place() -> None:
    """No module of the tools writes such a command itself."""
    written = re.compile(r"""b["'](use|watch|ignore|pause-tube|stats-tube) """)
    package = Path(client.__file__).parent
    sources = list(package.rglob("*.py"))
    assert len(sources) > 100
    assert [each for each in sources if written.search(each.read_text())] == []


def test_whether_an_answer_has_come_is_known_without_waiting() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection("127.0.0.1", listener.getsockname()[1], limit_s=10) as connection,
    ):
        peer, _ = listener.accept()
        assert not connection.is_answered()
        peer.sendall(b"USING a\r\nUSING b\r\n")
        while not connection.is_answered():
            pass
        assert connection.reply().words[1] == b"a"
        while not connection.is_answered():
            pass
        assert connection.reply().words[1] == b"b"
        assert not connection.is_answered()
        peer.close()
        while not connection.is_answered():
            pass
        with pytest.raises(Lost, match="has closed the connection"):
            connection.reply()
