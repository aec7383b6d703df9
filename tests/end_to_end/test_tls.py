"""The server as a process that speaks TLS: who comes in, files that are swapped under load,
handshakes that do not go on, the console.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError

import pytest

from tests.certificates import Certificates
from tests.daemon.tls_talking import client_context
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

MUTUAL = "TLS with client certificates"
ACCESS = """
[identities.worker]
certificate = "CN=worker-1"
admin = "mail"
"""


class TlsServer:
    """A server of ours with a folder of its own, whose files can be exchanged."""

    def __init__(self, certificates: Certificates, folder: Path, *options: object) -> None:
        self.certificates = certificates
        self.folder = folder / "keys"
        self.folder.mkdir()
        self.ca, self.crl = folder / "ca.pem", folder / "crl.pem"
        self.install(certificates.server)
        shutil.copy(certificates.ca, self.ca)
        shutil.copy(certificates.revocations, self.crl)
        at = "interface=127.0.0.1"
        self.process = ServerProcess(
            ours_at_once(
                "--listen", f"tls:0:{self.folder}:{at}",
                "--listen", f"mtls:0:{self.folder}:ca={self.ca}:crl={self.crl}:{at}",
                "--http", f"tls:0:{self.folder}", "--http-write", *options,
            ), folder,
        )  # fmt: skip

    def install(self, pem: Path) -> None:
        shutil.copy(pem, self.folder / "server.pem")

    def reload(self, told: str) -> None:
        self.process.process.send_signal(signal.SIGHUP)
        self.process.wait_for(told)

    def connect(
        self, certificate: Path | None = None, words: str = "TLS", roots: Path | None = None
    ) -> Connection:
        """Connect to the port that the log tells of with these words."""
        context = client_context(roots or self.certificates.ca, certificate)
        return Connection(self.process.port_of(words), context)

    def ask_http(self, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        port = self.process.port_of("TLS, HTTP, changes allowed")
        content = None if body is None else json.dumps(body).encode()
        url = f"https://127.0.0.1:{port}{path}"
        request = urllib.request.Request(url, content, headers)
        context = client_context(self.certificates.ca)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S, context=context) as reply:
                return reply.status, reply.read()
        except HTTPError as problem:
            with problem:
                return problem.code, problem.read()

    def cookie_of_logout(self) -> str:
        url = f"https://127.0.0.1:{self.process.port_of('TLS, HTTP, changes allowed')}/logout"
        request = urllib.request.Request(url, b"{}", {"X-Beanstalk-Request": "1"})
        context = client_context(self.certificates.ca)
        with urllib.request.urlopen(request, timeout=LIMIT_S, context=context) as reply:
            return str(reply.headers["Set-Cookie"])


@contextmanager
def serving(certificates: Certificates, folder: Path, *options: object) -> Iterator[TlsServer]:
    """Run one, and see that it has said nothing that it should not."""
    server = TlsServer(certificates, folder, *options)
    with server.process:
        yield server
        assert server.process.terminate() in (0, -signal.SIGTERM)
    said = "".join(server.process.said())
    assert "Traceback" not in said, said


def count_connections(connection: Connection) -> int:
    (line,) = (
        line for line in connection.ask(b"stats\r\n").splitlines() if b"current-connections" in line
    )
    return int(line.split()[1])


def test_who_comes_in_and_what_they_may(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(ACCESS)
    with serving(certificates, tmp_path, "--access", tmp_path / "access.toml") as server:
        worker = server.connect(certificates.client, MUTUAL)
        assert worker.ask(b"use mail\r\n") == b"USING mail\r\n"
        assert worker.ask(b"put 0 0 60 5\r\nhello\r\n") == b"INSERTED 1\r\n"
        assert worker.ask(b"watch mail\r\n") == b"WATCHING 1\r\n"
        assert worker.ask(b"reserve-with-timeout 9\r\n") == b"RESERVED 1 5\r\nhello\r\n"
        anybody = server.connect()
        assert anybody.ask(b"put 0 0 60 5\r\nhello\r\n") == b"UNAUTHORIZED\r\n"
        for name in ("expired_client", "revoked_client", "stranger"):
            with pytest.raises(ssl.SSLError, match="alert"):
                server.connect(getattr(certificates, name), MUTUAL).ask(b"stats\r\n")
        with pytest.raises(ssl.SSLError, match="alert"):
            server.connect(None, MUTUAL).ask(b"stats\r\n")
        plain = Connection(server.process.port_of("TLS"))
        plain.send(b"stats\r\n")
        server.process.wait_for("plain text came, no TLS")
        plain.close()
        # A connection is left alone when its certificate is revoked, and is no more let in.
        revoked = certificates.authority.revocation_list([certificates.client_issued])
        server.crl.write_bytes(revoked)
        server.reload("read again, certificates: 1")
        assert worker.ask(b"delete 1\r\n") == b"DELETED\r\n"
        with pytest.raises(ssl.SSLError, match="alert"):
            server.connect(certificates.client, MUTUAL).ask(b"stats\r\n")
        for each in (worker, anybody):
            each.close()


def test_certificates_are_swapped_under_load(certificates: Certificates, tmp_path: Path) -> None:
    with serving(certificates, tmp_path) as server:
        before = server.connect()
        shown = before.certificate()
        rounds: list[int] = []
        clients = [server.connect(certificates.client, MUTUAL) for _ in range(20)]
        are_swapped = [False]

        def work(client: Connection) -> None:
            more = 3
            while more:
                more -= are_swapped[0]
                assert client.ask(b"put 0 0 60 5\r\nhello\r\n").startswith(b"INSERTED")
                reply = client.ask(b"reserve-with-timeout 9\r\n").split()
                assert client.ask(b"delete %s\r\n" % reply[1]) == b"DELETED\r\n"
            rounds.append(1)

        threads = [Thread(target=work, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        server.install(certificates.expired)
        server.reload("What was read before holds; mend it and send SIGHUP")
        still = server.connect()
        assert still.certificate() == shown
        server.install(certificates.other_server)
        server.reload("read again")
        after = server.connect(roots=certificates.other_ca)
        assert after.certificate() != shown
        are_swapped[0] = True
        for thread in threads:
            thread.join(LIMIT_S)
        assert len(rounds) == len(clients)
        assert before.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        for each in (before, still, after, *clients):
            each.close()


def test_handshakes_count_as_connections(certificates: Certificates, tmp_path: Path) -> None:
    with serving(certificates, tmp_path, "--max-connections", 3) as server, ExitStack() as stack:
        control = server.connect()
        port = server.process.port_of(MUTUAL)
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        while count_connections(control) < 3:
            time.sleep(0.01)
        with pytest.raises(OSError):
            server.connect()
        assert control.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_the_console_is_served_over_tls(certificates: Certificates, tmp_path: Path) -> None:
    with serving(certificates, tmp_path) as server:
        assert server.ask_http("/healthz") == (200, b"ok\n")
        client = server.connect()
        assert client.ask(b"list-connections\r\n").endswith(b'identity: ""\n  tls: true\n\r\n')
        (_, own) = json.loads(server.ask_http("/api/v1/connections")[1])["connections"]
        assert (own["is_request"], own["identity"], own["tls"]) == (True, "", True)
        assert b"<html" in server.ask_http("/")[1]
        assert "; Secure" in server.cookie_of_logout()
        port = server.process.port_of("TLS, HTTP, changes allowed")
        put = ("/api/v1/tubes/mail/jobs", {"body": "hello"})
        ours = {"x-beanstalk-request": "1", "Origin": f"https://127.0.0.1:{port}"}
        assert server.ask_http(*put, **ours)[0] == 200
        for wrong in ({"Origin": "https://elsewhere.example.org"}, {"Host": "elsewhere"}):
            assert server.ask_http(*put, **{**ours, **wrong})[0] in (403, 421)


def test_each_encrypted_endpoint_greets_browsers(
    certificates: Certificates, tmp_path: Path
) -> None:
    pem = certificates.server
    own = f"ssl:0:privateKey={pem}:certKey={pem}:interface=127.0.0.1"
    with ServerProcess(
        ours_at_once(
            "--listen", f"tls:0:{pem.parent}:interface=127.0.0.1", "--listen", own,
            "--http", f"tls:0:{pem.parent}", "--http", own,
        ), tmp_path,
    ) as process:  # fmt: skip
        process.wait_for("HTTP, read-only")
        for words in ("TLS", "", "TLS, HTTP, read-only", "HTTP, read-only"):
            context = client_context(certificates.ca)
            if words:
                # The queue behind Twisted's `ssl:` has no name for it to agree upon.
                context.set_alpn_protocols(["h2", "http/1.1"])
            client = Connection(process.port_of(words) if words else process.port(), context)
            http = words.endswith("HTTP, read-only")
            client.send(b"GET /healthz HTTP/1.0\r\n\r\n" if http else b"list-tube-used\r\n")
            expected = b"HTTP/1.0 200 OK\r\n" if http else b"USING default\r\n"
            assert client.reply().replace(b"HTTP/1.1", b"HTTP/1.0") == expected
            client.close()


def test_the_commands_of_the_page_make_an_authority_and_what_it_issues(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tls.md").read_text()
    section = page.partition("## Your own authority\n")[2]
    commands = section.partition("```sh\n")[2].partition("```")[0]
    made = tmp_path / "made"
    made.mkdir()
    subprocess.run(["sh", "-ec", commands], cwd=made, check=True, capture_output=True)
    (made / "worker.pem").write_text(
        (made / "worker-1.key").read_text() + (made / "worker-1.crt").read_text()
    )
    text = f"mtls:0:{made / 'server'}:ca={made / 'ca.pem'}:interface=127.0.0.1"
    for crl, is_let_in in (("", True), (f":crl={made / 'revoked.pem'}", False)):
        with ServerProcess(ours_at_once("--listen", text + crl), tmp_path) as process:
            context = client_context(made / "ca.pem", made / "worker.pem")
            if is_let_in:
                client = Connection(process.port_of(MUTUAL), context)
                assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
                client.close()
            else:
                with pytest.raises(ssl.SSLError, match="revoked"):
                    Connection(process.port_of(MUTUAL), context).ask(b"stats\r\n")


WITHOUT_EXECUTABLE_DATA = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit("no prctl")
from beanstalk_twisted.__main__ import main
main()
"""
"""A server under what systemd calls MemoryDenyWriteExecute=yes (PR_SET_MDWE, Linux 6.3)."""


def test_it_works_without_executable_data(certificates: Certificates, tmp_path: Path) -> None:
    def serve(folder: Path) -> ServerProcess:
        text = f"mtls:0:{folder}:ca={certificates.ca}:crl={certificates.revocations}"
        words = ["--listen", f"{text}:interface=127.0.0.1"]
        return ServerProcess([sys.executable, "-c", WITHOUT_EXECUTABLE_DATA, *words], tmp_path)

    with serve(certificates.server.parent) as process:
        if not process.says("listening on"):
            assert process.ended()[1].strip() == "no prctl"
            pytest.skip("this kernel has no PR_SET_MDWE")
        port = process.port_of(MUTUAL)
        client = Connection(port, client_context(certificates.ca, certificates.client))
        assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        client.close()
        revoked = client_context(certificates.ca, certificates.revoked_client)
        with pytest.raises(ssl.SSLError, match="revoked"):
            Connection(port, revoked).ask(b"stats\r\n")
        process.wait_for("the client's certificate was revoked")
    certificates.authority.server(["a.example.org"]).write(tmp_path / "two" / "a.pem")
    certificates.authority.server(["b.example.org"]).write(tmp_path / "two" / "b.pem")
    with serve(tmp_path / "two") as process:
        status, said = process.ended()
    assert status == 5
    assert "b.pem: only one certificate can be used where memory cannot be written" in said
