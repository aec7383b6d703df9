"""Certificates for tests of TLS: an authority, what it has issued, and the same as files.

Keys are of P-256, which are made in a tenth of a millisecond.  All is made once a run; the fixture
is `certificates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = timedelta(days=1)

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""

WORKER: Final = (
    "CN=worker-1", "DNS:worker.example.org", "URI:spiffe://example.org/worker",
    "EMAIL:worker@example.org",
)  # fmt: skip
"""The names of the client `Certificates.client`, as the access file has them."""


class Issued:
    """A certificate with its private key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self.key = key

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )  # fmt: skip

    @property
    def pem(self) -> bytes:
        """Both, the key first."""
        return self.key_pem + self.certificate_pem

    def write(self, path: Path) -> Path:
        """Write both into one file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.pem)
        path.chmod(0o600)
        return path


class Authority:
    """Issues certificates, and takes them back."""

    def __init__(
        self, name: str, issuer: Authority | None = None, ends: timedelta = 365 * DAY
    ) -> None:
        """:param issuer: who has issued its certificate; itself if None."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name(name)
        above = self if issuer is None else issuer
        made = (
            dated(self._name, above._name, self._key, -DAY, ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(signing_only(), critical=True)
        )
        self.certificate = made.sign(above._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def server(
        self, hosts: Sequence[str] = LOCAL, begins: timedelta = -DAY, ends: timedelta = 90 * DAY
    ) -> Issued:
        """Issue one for a server.

        :param hosts: its names and addresses; the first is also its common name.
        :param begins: when it becomes valid, from now; ``ends`` when it ceases to be.
        """
        names = [host_name(host) for host in hosts]
        return self._issue(hosts[0], names, ExtendedKeyUsageOID.SERVER_AUTH, begins, ends)

    def client(
        self, names: Sequence[str] = WORKER, begins: timedelta = -DAY, ends: timedelta = 90 * DAY
    ) -> Issued:
        """Issue one for a client.

        :param names: as the access file has them; the first is CN.
        """
        others = [other_name(name) for name in names[1:]]
        common = names[0].removeprefix("CN=")
        return self._issue(common, others, ExtendedKeyUsageOID.CLIENT_AUTH, begins, ends)

    def _issue(
        self, name: str, others: Sequence[x509.GeneralName], usage: x509.ObjectIdentifier,
        begins: timedelta, ends: timedelta,
    ) -> Issued:  # fmt: skip
        key = ec.generate_private_key(ec.SECP256R1())
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            dated(common_name(name), self._name, key, begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(ours, critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if others:
            made = made.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return Issued(made.sign(self._key, hashes.SHA256()), key)

    def revocation_list(
        self, revoked: Iterable[Issued], begins: timedelta = -DAY, ends: timedelta = 30 * DAY
    ) -> bytes:
        """Take certificates back.

        :param ends: when the next list is due.
        :return: the list, PEM.
        """
        now = datetime.now(UTC)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now + begins)
            .next_update(now + ends)
        )
        for each in revoked:
            entry = x509.RevokedCertificateBuilder(
                serial_number=each.certificate.serial_number, revocation_date=now + begins
            )
            made = made.add_revoked_certificate(entry.build())
        signed = made.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


class Certificates:
    """What the tests need, as files.  A file ``*.pem`` of a server or a client has its key and its
    certificate.

    :ivar authority: what has issued all but ``stranger``, which ``other_authority`` has.
    :ivar roots: a folder with ``ca``, the certificate of ``authority``; ``other_roots`` likewise.
    :ivar server: for `LOCAL`, in a folder of its own, ``server.parent``, as are ``expired``,
        ``wrong_name`` for another host, and ``other_server`` of the other authority.
    :ivar client: of `WORKER`, as issued ``client_issued``; ``expired_client``, ``revoked_client``,
        and ``stranger`` are alike.
    :ivar revocations: the list that has ``revoked_client``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.other_authority = Authority("our CA"), Authority("their CA")
        self.ca = self._write("roots/ca.pem", self.authority.pem)
        self.other_ca = self._write("other-roots/ca.pem", self.other_authority.pem)
        self.roots, self.other_roots = self.ca.parent, self.other_ca.parent
        over = (-2 * DAY, -DAY)
        ours, theirs = self.authority, self.other_authority
        self.server = ours.server().write(folder / "server" / "server.pem")
        self.expired = ours.server(LOCAL, *over).write(folder / "expired" / "server.pem")
        wrong = ours.server(["elsewhere.example.org"])
        self.wrong_name = wrong.write(folder / "wrong-name" / "server.pem")
        self.other_server = theirs.server().write(folder / "other" / "server.pem")
        self.client_issued = ours.client()
        self.client = self.client_issued.write(folder / "client.pem")
        self.expired_client = ours.client(WORKER, *over).write(folder / "expired-client.pem")
        self.stranger = theirs.client().write(folder / "stranger.pem")
        revoked = ours.client()
        self.revoked_client = revoked.write(folder / "revoked-client.pem")
        self.revocations = self._write("revoked.crl", ours.revocation_list([revoked]))

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


def dated(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: timedelta,
    ends: timedelta,
) -> x509.CertificateBuilder:  # fmt: skip
    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def signing_only() -> x509.KeyUsage:
    """Say what an authority's key is for."""
    return x509.KeyUsage(
        key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def common_name(name: str) -> x509.Name:
    """Make a name that has a CN alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def with_extension_twice(certificate: x509.Certificate) -> x509.Certificate:
    """Have it say twice what its key is for, under a signature that was made before."""
    ours, others = b"\x06\x03\x55\x1d\x25", b"\x06\x03\x55\x1d\x23"
    content = certificate.public_bytes(serialization.Encoding.DER)
    assert ours in content and others in content
    return x509.load_der_x509_certificate(content.replace(others, ours))


def host_name(host: str) -> x509.GeneralName:
    """Make the name of a host, or of an address."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def other_name(name: str) -> x509.GeneralName:
    """Make what the access file calls ``DNS:…``, ``URI:…`` or ``EMAIL:…``."""
    kind, _, value = name.partition(":")
    if kind == "DNS":
        return x509.DNSName(value)
    return x509.RFC822Name(value) if kind == "EMAIL" else x509.UniformResourceIdentifier(value)
