"""
The command ``beanstalk`` and a server that speaks TLS.

Certificates are made by what the extra ``tls`` brings; without it there is nothing to test, as the
server cannot speak TLS either.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli.commands import cli
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

pytestmark = pytest.mark.skipif(
    find_spec("OpenSSL") is None or find_spec("service_identity") is None,
    reason="the extra tls is not installed",
)

MAIN = "from binlog_tools.queue.cli.main import main; main()"
DAY = datetime.timedelta(days=1)


def make_certificate(folder: Path, host: str) -> None:
    """
    Make a key and a certificate for a host that is signed by that key, as PEM files.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a queue")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "private.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )  # fmt: skip


class TlsServer:
    """
    A server of ours that speaks TLS only.
    """

    def __init__(self, folder: Path, process: ServerProcess, port: int) -> None:
        self.folder = folder
        self.process = process
        self.address = f"tls:127.0.0.1:{port}"
        self.trusting = f"{self.address}:trustRoots={folder}"

    def call(self, *words: str, address: str = "", typed: bytes = b"") -> Result:
        """
        Call the command.
        """
        environment = {"BEANSTALK_SERVER": address or self.trusting}
        return CliRunner().invoke(cli, list(words), input=typed, env=environment)


def free_port() -> int:
    """
    Find a port that nobody has.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """
    Run it.
    """
    folder = tmp_path_factory.mktemp("tls")
    keys = folder / "keys"
    make_certificate(keys, "127.0.0.1")
    port = free_port()
    listen = (
        f"ssl:{port}:interface=127.0.0.1:privateKey={keys / 'private.key'}"
        f":certKey={keys / 'certificate.pem'}"
    )
    with ServerProcess(ours_at_once("--listen", listen), folder) as process:
        process.wait_for("listening on")
        yield TlsServer(keys, process, port)


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


def test_what_is_of_tls_alone_is_no_answer(server: TlsServer) -> None:
    with Address.parse(server.trusting).connect() as line:
        assert not line.is_answered()
        for _ in range(3):
            line.send(b"list-tube-used\r\n" * 2)
            assert line.reply().name == b"USING"
            while not line.is_answered():
                pass
            assert line.reply().name == b"USING"
            assert not line.is_answered()  # A ticket for the next session came before.


def test_a_line_is_answered_over_tls_while_the_next_is_waited_for(server: TlsServer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "-s", server.trusting, "put", "-t", "tls-slow", "-l"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin and process.stdout
    for body in ("a", "b"):
        process.stdin.write(f"{body}\n")
        process.stdin.flush()
        assert server.call("peek", process.stdout.readline().strip()).stdout == f"{body}\n"
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


def test_a_certificate_that_nobody_vouches_for_is_refused(
    server: TlsServer, tmp_path: Path
) -> None:
    refused = server.call("stats", address=server.address)
    where = server.address.removeprefix("tls:")
    assert refused.exit_code == 4
    assert refused.stderr.startswith(
        f"beanstalk: {where}: the server's certificate is not trusted: self"
    )
    other = tmp_path / "other"
    make_certificate(other, "127.0.0.1")
    refused = server.call("stats", address=f"{server.address}:trustRoots={other}")
    assert refused.exit_code == 4
    assert "is not trusted" in refused.stderr


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_certificate(keys, "127.0.0.2")
    port = free_port()
    listen = (
        f"ssl:{port}:interface=127.0.0.1:privateKey={keys / 'private.key'}"
        f":certKey={keys / 'certificate.pem'}"
    )
    with ServerProcess(ours_at_once("--listen", listen), tmp_path) as process:
        process.wait_for("listening on")
        with pytest.raises(OSError, match="is not trusted: IP address mismatch"):
            Address.parse(f"tls:127.0.0.1:{port}:trustRoots={keys}").connect()


def test_a_server_without_tls_is_told(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as process:
        process.connect().close()
        address = Address.parse(f"tls:127.0.0.1:{process.port()}")
        with pytest.raises(OSError, match="no answer to TLS in time"):
            address.connect(limit_s=0.3)


def test_a_client_without_tls_is_no_trouble_for_a_server_with_it(server: TlsServer) -> None:
    plain = server.call("stats", address=server.address.removeprefix("tls:"))
    assert plain.exit_code == 4
    assert server.call("stats").exit_code == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (":trustRoots={}/nothing", "{}/nothing: No such file or directory"),
        (":trustRoots={}", "{}: there is no certificate, *.pem, in it"),
        (":certificate={}/bad.txt", "{}/bad.txt: not what it should be: PEM"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    server: TlsServer, tmp_path: Path, options: str, why: str
) -> None:
    (tmp_path / "bad.txt").write_text("no certificate")
    result = server.call("stats", address=server.address + options.format(tmp_path))
    assert result.exit_code == 4
    assert f"beanstalk: {why.format(tmp_path)}" in result.stderr
