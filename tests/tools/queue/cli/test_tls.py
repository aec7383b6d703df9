"""The command ``beanstalk`` and a server that speaks TLS.

Without the extra ``tls`` there is nothing to test, as the server cannot speak it either.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.client import sync
from binlog_tools.queue.cli.commands import cli
from tests.certificates import Certificates
from tests.ports import free_ports
from tests.server_process import ServerProcess, ours_at_once

pytestmark = pytest.mark.skipif(
    find_spec("OpenSSL") is None or find_spec("service_identity") is None,
    reason="the extra tls is not installed",
)

MAIN = "from beanstalk_twisted.programs import beanstalk; beanstalk()"


class TlsServer:
    """A server of ours that speaks TLS only."""

    def __init__(self, folder: Path, process: ServerProcess, port: int) -> None:
        self.folder = folder
        self.process = process
        self.address = f"tls://127.0.0.1:{port}"
        self.trusting = f"{self.address}?ca={folder}"

    def call(self, *words: str, address: str = "", typed: bytes = b"") -> Result:
        environment = {"BEANSTALK_SERVER": address or self.trusting}
        return CliRunner().invoke(cli, list(words), input=typed, env=environment)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[TlsServer]:
    folder, pem = tmp_path_factory.mktemp("tls"), certificates.server
    port = free_ports(1)[0]
    listen = f"ssl:{port}:interface=127.0.0.1:privateKey={pem}:certKey={pem}"
    with ServerProcess(ours_at_once("--listen", listen), folder) as process:
        process.wait_for("listening on")
        yield TlsServer(certificates.roots, process, port)


def test_jobs_are_put_and_taken_over_tls(server: TlsServer) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2000))
    put = server.call("put", "-t", "tls", "--lines", typed=lines)
    assert put.exit_code == 0, put.output
    assert len(put.stdout.split()) == 2000
    big = b"x" * 60_000
    assert server.call("put", "-t", "tls-big", typed=big).exit_code == 0
    taken = server.call("reserve", "-t", "tls-big", "--delete", "--raw")
    assert (taken.exit_code, taken.stdout_bytes) == (0, big)
    assert "tls\t2000\t" in server.call("tubes").stdout
    assert server.call("top", "-n", "1").stdout.startswith("tls\t2000\t")


def test_what_is_of_tls_alone_is_no_answer_and_no_end(server: TlsServer) -> None:
    with sync.Client(server.trusting) as queue:
        (first,) = queue.list_connections()
        for _ in range(3):
            queue.take()  # A ticket for the next session may have come.
        assert queue.list_connections()[0].connection == first.connection


def test_an_unknown_certificate_is_refused(server: TlsServer, certificates: Certificates) -> None:
    where = server.address.removeprefix("tls://")
    for address in (server.address, f"tls://{where}?ca={certificates.other_roots}"):
        refused = server.call("stats", address=address)
        assert refused.exit_code == 4
        assert refused.stderr == (
            f"beanstalk: tls://{where}: the server's certificate is not trusted: its CA is not "
            "known here; trust one with ?ca=FILE behind the address\n"
        )


def test_a_client_without_tls_is_no_trouble_for_a_server_with_it(server: TlsServer) -> None:
    plain = server.call("stats", address=server.address.removeprefix("tls://"))
    assert plain.exit_code == 4
    assert server.call("stats").exit_code == 0


def test_a_file_that_cannot_be_used_is_named(server: TlsServer, tmp_path: Path) -> None:
    result = server.call("stats", address=f"{server.address}?ca={tmp_path}/nothing")
    assert result.exit_code == 4
    assert result.stderr == (
        f"beanstalk: {server.address}: {tmp_path}/nothing: No such file or directory; "
        "name a file that this user can read\n"
    )
