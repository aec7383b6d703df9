"""What a browser sends to a port of the queue, as a web page has it do, is not carried out."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.daemon.tls_talking import client_context
from tests.server_process import LIMIT_S, ServerProcess, ours

BODY = b"flush-tube mail\r\nput 0 0 60 1\r\nx\r\nput 0 1\r\nx\r\n"


def post(connection: http.client.HTTPConnection, path: str) -> None:
    """Send it, and see that the connection ends without a word."""
    try:
        connection.request("POST", path, BODY)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            connection.getresponse()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/" + "x" * 1000])
def test_a_request_changes_nothing(path: str, certificates: Certificates, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "server.pem").write_bytes(certificates.server.read_bytes())
    local = "interface=127.0.0.1"
    listen = ("--listen", f"tcp:0:{local}", "--listen", f"tls:0:{folder}:{local}")
    with ServerProcess(ours(*listen, "--listen-v1", f"tcp:0:{local}"), tmp_path) as server:
        connection = server.connect()
        connection.ask(b"use mail\r\n")
        assert connection.ask(b"put 0 0 60 1\r\na\r\n") == b"INSERTED 1\r\n"
        context: ssl.SSLContext = client_context(certificates.ca)
        post(http.client.HTTPConnection("127.0.0.1", server.port(), timeout=LIMIT_S), path)
        post(http.client.HTTPConnection("127.0.0.1", server.port_v1(), timeout=LIMIT_S), path)
        tls = server.port_of("TLS")
        post(http.client.HTTPSConnection("127.0.0.1", tls, timeout=LIMIT_S, context=context), path)
        stats = connection.ask(b"stats\r\n")
        assert b"\ntotal-jobs: 1\n" in stats and b"\ncurrent-jobs-ready: 1\n" in stats
        server.wait_for("has sent an HTTP request to a port of the queue")
