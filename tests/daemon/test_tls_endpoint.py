"""The endpoints ``tls:`` and ``mtls:``: what they are made of, and files that are read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.process import Refused
from beanstalk_twisted.daemon.tls_endpoint import WARN_BEFORE, TlsEndpoint, described
from beanstalk_twisted.daemon.tls_files import BadTls
from beanstalk_twisted.server.anomalies import Handshakes
from tests.certificates import DAY, LOCAL, Authority, Certificates


@pytest.mark.parametrize(
    ("text", "tcp", "folder", "ca", "crl"),
    [
        ("tls:1:/a", "tcp:1:backlog=9", "/a", "", ""),
        ("tls:1:/a=b", "tcp:1:backlog=9", "/a=b", "", ""),
        (r"tls:1:/a\:b:backlog=7", "tcp:1:backlog=7", "/a:b", "", ""),
        (
            "tls:1:/a:interface=10.0.0.1", "tcp:1:interface=10.0.0.1:backlog=9", "/a", "", "",
        ),
        (r"tls:1:/a:interface=\:\:1", r"tcp6:1:interface=\:\:1:backlog=9", "/a", "", ""),
        ("mtls:1:/a:ca=/b", "tcp:1:backlog=9", "/a", "/b", ""),
        ("mtls:1:ca=/b:/a:crl=/c", "tcp:1:backlog=9", "/a", "/b", "/c"),
    ],
)  # fmt: skip
def test_what_a_text_describes(text: str, tcp: str, folder: str, ca: str, crl: str) -> None:
    assert described(text, 9) == (tcp, folder, ca, crl)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls:1", "it is not tls:PORT:FOLDER"),
        ("tls:/a:1", "it is not tls:PORT:FOLDER"),
        ("tls:1:/a:b", "it is not tls:PORT:FOLDER"),
        ("tls:x:/a", "it is not tls:PORT:FOLDER"),
        ("tls:1:/a:ca=/b", "tls: takes no ca=; write tls:PORT:FOLDER"),
        ("tls:1:/a:port=2", "takes no port="),
        ("mtls:1:/a", r"it is not mtls:PORT:FOLDER:ca=FILE\[:crl=FILE\]"),
        ("mtls:1:/a:crl=/b", "it is not mtls:PORT:FOLDER:ca=FILE"),
    ],
)
def test_what_is_none_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        described(text, 9)


def mutual(certificates: Certificates, folder: Path, now: datetime | None = None) -> TlsEndpoint:
    """Make one that reads these files on a certain day."""
    text = f"mtls:1:{folder}:ca={certificates.ca}:crl={certificates.revocations}"
    day = datetime.now(UTC) if now is None else now
    return TlsEndpoint(MemoryReactorClock(), "--listen", text, 9, lambda: day)


def test_what_was_read_is_used_until_something_right_is_read(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(certificates.server.read_bytes())
    path.chmod(0o600)
    endpoint = mutual(certificates, tmp_path)
    handshakes = Handshakes(MemoryReactorClock(), 60)
    endpoint.tell(handshakes)
    assert handshakes.expiries[endpoint.name]() == ()
    with capturedLogs() as logged:
        endpoint.load()
        first = endpoint.expiries()
        path.write_bytes(certificates.expired.read_bytes())
        endpoint.reload()
        assert endpoint.expiries() is first
        path.write_bytes(certificates.other_server.read_bytes())
        endpoint.reload()
    assert [event["event"] for event in logged] == ["tls-read", "tls-wrong", "tls-read"]
    said = [formatEvent(event) for event in logged]
    assert said[0].startswith(f"--listen mtls:1:{tmp_path}:ca=")
    assert f"read, certificates: 1; {certificates.revocations} is the first to end, at" in said[0]
    assert f"{path}: the certificate has expired" in said[1]
    assert "What was read before holds; mend it and send SIGHUP" in said[1]
    assert "read again" in said[2]
    assert [each.kind for each in endpoint.expiries()] == [
        "certificate", "authority", "revocations",
    ]  # fmt: skip
    assert handshakes.expiries[endpoint.name]() is endpoint.expiries() is not first


def test_a_start_with_wrong_files_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    endpoint = mutual(certificates, tmp_path)
    with pytest.raises(Refused, match="there is no private key in it") as refused:
        endpoint.load()
    assert refused.value.exit_code == 5
    assert str(refused.value).startswith(f"--listen mtls:1:{tmp_path}:ca=")
    with pytest.raises(BadTls):
        endpoint.check()


@pytest.mark.parametrize("is_late", [False, True])
def test_what_ends_soon_is_warned_of(tmp_path: Path, is_late: bool) -> None:
    authority = Authority("CA", ends=100 * DAY)
    folder = tmp_path / "server"
    authority.server(LOCAL, ends=90 * DAY).write(folder / "a.pem")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "crl.pem").write_bytes(authority.revocation_list([], ends=80 * DAY))
    for kind, text, what in (
        ("certificate", f"tls:1:{folder}", "the certificate"),
        ("authority", f"mtls:1:{folder}:ca={tmp_path}/ca.pem", "the certificate of the authority"),
        (
            "revocations", f"mtls:1:{folder}:ca={tmp_path}/ca.pem:crl={tmp_path}/crl.pem",
            "the revocation list",
        ),
    ):  # fmt: skip
        now = TlsEndpoint(MemoryReactorClock(), "--listen", text, 9)
        assert now.check() == []
        now.load()
        (ends,) = {each.ends for each in now.expiries() if each.kind == kind}
        day = ends - WARN_BEFORE[kind] + timedelta(seconds=1 if is_late else -1)
        then = TlsEndpoint(MemoryReactorClock(), "--listen", text, 9, partial(_same, day))
        assert len([said for said in then.check() if f": {what} ends at 20" in said]) == is_late


def _same(day: datetime) -> datetime:
    return day


def test_a_key_that_others_may_read_is_warned_of(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = certificates.authority.server().write(tmp_path / "a.pem")
    path.chmod(0o604)
    endpoint = TlsEndpoint(MemoryReactorClock(), "--listen", f"tls:1:{tmp_path}", 9)
    with capturedLogs() as logged:
        endpoint.load()
    assert [event["event"] for event in logged] == ["tls-read", "tls-open"]
    assert formatEvent(logged[1]).endswith(f"Run chmod o= {path}")


def test_it_listens_as_its_text_says(certificates: Certificates) -> None:
    reactor = MemoryReactorClock()
    text = f"tls:7:{certificates.server.parent}:interface=127.0.0.1"
    endpoint = TlsEndpoint(reactor, "--listen", text, 9)
    endpoint.listen(Factory())
    ((port, _, backlog, interface),) = reactor.tcpServers
    assert (port, backlog, interface) == (7, 9, "127.0.0.1")
    assert endpoint.words == ", TLS"
    assert mutual(certificates, certificates.server.parent).words == (
        ", TLS with client certificates"
    )
