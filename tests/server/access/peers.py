"""
A certificate as TLS hands it over.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from OpenSSL.crypto import X509


@functools.cache
def certificate() -> X509:
    """
    Make one for a worker, with a name of each kind.
    """
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "worker-1")])
    others = x509.SubjectAlternativeName([
        x509.DNSName("worker.example.org"),
        x509.UniformResourceIdentifier("spiffe://example.org/worker"),
        x509.RFC822Name("worker@example.org"),
    ])  # fmt: skip
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(others, critical=False)
        .sign(key, SHA256())
    )
    return X509.from_cryptography(made)
