"""The certificates of the tests are what they are called, as OpenSSL sees it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.certificates import Certificates


def verified(roots: Path, certificate: Path, crl: Path) -> str:
    """:return: why a peer's certificate is not trusted; empty if it is."""
    from OpenSSL import crypto

    store = crypto.X509Store()
    store.add_cert(crypto.load_certificate(crypto.FILETYPE_PEM, roots.read_bytes()))
    store.load_locations(str(crl))
    store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
    shown = crypto.load_certificate(crypto.FILETYPE_PEM, certificate.read_bytes())
    try:
        crypto.X509StoreContext(store, shown).verify_certificate()
    except crypto.X509StoreContextError as problem:
        return str(problem.errors[2])
    return ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("server", ""),
        ("wrong_name", ""),
        ("client", ""),
        ("expired", "certificate has expired"),
        ("expired_client", "certificate has expired"),
        ("revoked_client", "certificate revoked"),
        ("stranger", "unable to get local issuer certificate"),
        ("other_server", "unable to get local issuer certificate"),
    ],
)
def test_each_is_trusted_or_not(certificates: Certificates, name: str, why: str) -> None:
    shown = getattr(certificates, name)
    assert verified(certificates.ca, shown, certificates.revocations) == why


def test_a_file_has_the_key_of_its_certificate(certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.load_verify_locations(certificates.ca)
    assert certificates.server.stat().st_mode & 0o077 == 0
