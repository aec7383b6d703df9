"""A certificate as TLS hands it over."""

from __future__ import annotations

import functools

from OpenSSL.crypto import X509

from tests.certificates import Authority


@functools.cache
def certificate() -> X509:
    return X509.from_cryptography(Authority("CA").client().certificate)
