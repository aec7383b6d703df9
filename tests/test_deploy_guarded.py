"""The examples of ``deploy/`` with TLS and rights: a server that is started as they say lets in
whom they name, and takes over what is renewed.
"""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from beanstalk_twisted.daemon.files import read_access
from beanstalk_twisted.daemon.listening import tls_files, wrong_files
from beanstalk_twisted.daemon.options import PORT
from tests.certificates import Authority, Certificates
from tests.daemon.tls_talking import client_context
from tests.end_to_end.test_tls import MUTUAL
from tests.server_process import Connection, ServerProcess, ours_at_once
from tests.test_deploy import DEPLOY, GUARDED, UNIT, checked, documents, final, unit

COMPOSE = DEPLOY / "container" / "compose-tls.yaml"
ACCESS = DEPLOY / "access.toml"
INSIDE = "/etc/beanstalk-twisted"


class Placed(NamedTuple):
    """An example, with its files in a folder of a test."""

    server: tuple[Path, Path]
    words: list[str]


def write(folder: Path, certificates: Certificates, key: str, shown: str, ca: str) -> None:
    """Write what an example names: a key, a certificate, an authority of clients, who may do
    what.
    """
    issued = certificates.authority.server()
    for name, content in (
        (key, issued.key_pem), (shown, issued.certificate_pem), (ca, certificates.authority.pem),
        ("access.toml", ACCESS.read_bytes()),
    ):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)


def of_systemd(folder: Path, certificates: Certificates) -> Placed:
    loaded = dict(
        line.partition("=")[2].split(":")
        for line in GUARDED.read_text().splitlines()
        if line.startswith("LoadCredential=")
    )
    assert all(Path(path) == Path(INSIDE) / name for name, path in loaded.items())
    write(folder, certificates, "server.key", "server.crt", "clients.ca")
    assert {path.name for path in folder.iterdir()} == {*loaded}
    start = unit(GUARDED)["Service"]["ExecStart"].replace("\\\n", " ")
    program, *words = shlex.split(start.replace("%d", str(folder)).replace("%S", str(folder)))
    assert program == shlex.split(unit(UNIT)["Service"]["ExecStart"])[0]
    assert words.pop() == "$OPTIONS"
    return Placed((folder / "server.crt", folder / "server.key"), words)


def of_compose(folder: Path, certificates: Certificates) -> Placed:
    [compose] = documents(COMPOSE)
    service: dict[str, Any] = compose["services"]["beanstalk"]
    volumes = dict(each.split(":")[:2] for each in service["volumes"])
    assert volumes == {"jobs": final("VOLUME"), "./guarded": INSIDE}
    write(folder, certificates, "tls/server.key", "tls/server.crt", "clients.pem")
    words = [
        word.replace(INSIDE, str(folder)).replace(final("VOLUME"), str(folder / "jobs"))
        for word in service["command"]
    ]
    return Placed((folder / "tls" / "server.crt", folder / "tls" / "server.key"), words)


@pytest.fixture(params=[of_systemd, of_compose])
def placed(request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path) -> Placed:
    folder = tmp_path / "etc"
    found: Placed = request.param(folder, certificates)
    return found


def test_the_options_are_the_servers_and_their_files_right(placed: Placed) -> None:
    options = checked(placed.words)
    assert wrong_files(options) == {"access": ""}
    assert [(why, warned) for _, why, warned in tls_files(options)] == [("", [])]


def test_compose_opens_the_port_for_tls_alone_and_protects_its_container_as_the_other_does() -> (
    None
):
    [compose], [other] = documents(COMPOSE), documents(DEPLOY / "container" / "compose.yaml")
    service, plain = compose["services"]["beanstalk"], other["services"]["beanstalk"]
    own = ("command", "ports", "volumes")
    kept = [
        {key: value for key, value in each.items() if key not in own} for each in (service, plain)
    ]
    assert kept[0] == kept[1]
    [published] = service["ports"]
    listening = [word for word in service["command"] if word.startswith("--listen=")]
    assert f"--listen=mtls:{published.split(':')[1]}:" in listening[0]
    assert listening[1:] == [f"--listen=tcp:{PORT}:interface=127.0.0.1"]


def test_the_roles_of_the_example_are_told_apart() -> None:
    rights = {
        name: [identity.grant.rights_of(tube) for tube in (b"mail.in", b"other")]
        for name, identity in read_access(str(ACCESS)).identities.items()
    }
    assert rights == {"shop": [1, 0], "worker": [6, 0], "operator": [15, 15]}


def renew(placed: Placed, authority: Authority) -> None:
    """Have a new certificate and its key where the old ones were."""
    issued = authority.server()
    for path, content in zip(placed.server, (issued.certificate_pem, issued.key_pem), strict=True):
        path.write_bytes(content)


@pytest.mark.exhaustive
def test_who_is_named_comes_in_and_a_renewed_certificate_is_shown_to_who_comes_then(
    placed: Placed, certificates: Certificates, tmp_path: Path
) -> None:
    words = [
        word.replace("mtls:11301:", "mtls:0:interface=127.0.0.1:").replace(f"tcp:{PORT}:", "tcp:0:")
        for word in placed.words
    ]
    for name in ("shop", "worker"):
        certificates.authority.client([f"CN={name}"]).write(tmp_path / f"{name}.pem")
    with ServerProcess(ours_at_once(*words), tmp_path) as process:

        def connect(name: str) -> Connection:
            context = client_context(certificates.ca, tmp_path / f"{name}.pem")
            return Connection(process.port_of(MUTUAL), context)

        shop, worker = connect("shop"), connect("worker")
        assert shop.ask(b"use mail.in\r\n") == b"USING mail.in\r\n"
        assert shop.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
        assert shop.ask(b"peek 1\r\n") == b"UNAUTHORIZED\r\n"
        assert worker.ask(b"watch mail.in\r\n") == b"WATCHING 1\r\n"
        assert worker.ask(b"reserve-with-timeout 9\r\n") == b"RESERVED 1 1\r\nx\r\n"
        shown = shop.certificate()
        renew(placed, certificates.authority)
        process.process.send_signal(signal.SIGHUP)
        process.wait_for("read again, certificates: 1")
        assert worker.ask(b"delete 1\r\n") == b"DELETED\r\n"
        later = connect("shop")
        assert later.certificate() != shown
        for each in (shop, worker, later):
            each.close()
