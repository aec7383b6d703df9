"""TLS with Python's own ``ssl``, for the clients that are not Twisted's.  It is imported only where
TLS is spoken.
"""

import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final

from beanstalk_twisted.client import tls_faults as faults
from beanstalk_twisted.client.addresses import Address, Tls
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, Seen, TlsFault

NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``."""


def read_pem(path: str) -> bytes:
    """Read a file, or all ``*.pem`` of a folder.

    :raise OSError: there is none that can be read.
    """
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            return file.read()
    names = sorted(name for name in os.listdir(path) if name.lower().endswith(".pem"))
    return b"\n".join(read_pem(os.path.join(path, name)) for name in names)


def context_of(tls: Tls) -> ssl.SSLContext:
    """:raise TlsFault: a file is not what it should be."""
    files = faults.read_files(tls, read_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=files.ca.decode("ascii", "replace"))
        except ssl.SSLError:
            raise faults.damaged(tls.ca) from None
        # What is in the file need not be a root.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")
        except ssl.SSLError:
            raise faults.wrong_pair(tls) from None
    return context


def fault_of(problem: Exception, address: Address, limit_s: float) -> TlsFault:
    """Say why TLS could not begin; for that a certificate is looked at once more."""
    tls = address.tls or Tls()
    if isinstance(problem, ssl.SSLCertVerificationError):
        seen = _look(address, tls, problem.verify_code, limit_s)
        return faults.of_certificate(problem.verify_code, address.name, seen)
    if isinstance(problem, TimeoutError):
        return TlsFault(faults.NO_ANSWER)
    if isinstance(problem, ssl.SSLError):
        return of_error(problem, tls)
    if isinstance(problem, OSError):
        return TlsFault(faults.CUT, may_pass=True)
    return TlsFault(f"{address.name!r} is no name of a host")


def of_error(problem: ssl.SSLError, tls: Tls) -> TlsFault:
    if isinstance(problem, ssl.SSLEOFError):
        return TlsFault(faults.CUT, may_pass=True)
    return faults.of_reason(problem.reason or problem.strerror or str(problem), tls)


def _look(address: Address, tls: Tls, number: int, limit_s: float) -> Seen | None:
    """Look at a certificate that was refused, for the error: on a connection of its own that takes
    it whatever its name and its time, and on which nothing is sent.

    :param number: why it was refused.
    :return: None if that was not its own fault, or nobody we trust vouches for it.
    """
    context = context_of(tls)
    context.check_hostname = False
    context.verify_flags |= NO_CHECK_TIME
    limit_s = min(limit_s, HANDSHAKE_S)
    try:
        with (
            socket.create_connection((address.host, address.port), limit_s) as plain,
            context.wrap_socket(plain, server_hostname=address.name) as line,
        ):
            found = line.getpeercert() or {}
    except (OSError, ValueError):
        return None
    ends_s = ssl.cert_time_to_seconds(str(found["notAfter"]))
    if number == faults.EXPIRED and ends_s > time.time():
        return None
    names = found.get("subjectAltName", ())
    assert isinstance(names, tuple)
    told = tuple(str(name) for kind, name in names if kind in ("DNS", "IP Address"))
    return Seen(told, _moment(found, "notBefore"), _moment(found, "notAfter"))


def _moment(found: Mapping[str, object], key: str) -> str:
    at_s = ssl.cert_time_to_seconds(str(found[key]))
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
