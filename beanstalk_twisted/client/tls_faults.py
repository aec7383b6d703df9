"""What can be wrong with TLS, each in one line: what, and what to do about it.  For both clients:
Twisted's, with pyOpenSSL, and that of the tools, with Python's ssl.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from beanstalk_twisted.client.addresses import Tls

HANDSHAKE_S: Final = 10.0
"""How long TLS may take to begin, seconds: a server that does not speak it waits for more."""

MOST_NAMES: Final = 5
"""Names of a certificate that are told."""

NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
REVOKED: Final = 23
UNKNOWN: Final = {
    2: "its CA is not known here", 18: "it is signed by itself",
    19: "its CA is not known here", 20: "its CA is not known here",
    21: "its CA is not known here",
}  # fmt: skip
WRONG_NAME: Final = (62, 64)
WRONG_PURPOSE: Final = 26
"""Numbers of OpenSSL, ``X509_V_ERR_…``."""

NO_ANSWER: Final = "no answer to TLS in time; does the server speak it on this port?"
CUT: Final = "the connection ended while TLS began; does the server speak it on this port?"

EXTRA: Final = "TLS needs more packages; run: pip install 'twisted[tls]'"


class Seen(NamedTuple):
    """A certificate: the names that it is for, and from when to when it is valid, as text."""

    names: tuple[str, ...]
    begins: str
    ends: str


class TlsFault(Exception):
    """:ivar where: the file that it is about; empty if it is about the server.
    :ivar may_pass: True if it may be well again without anybody doing anything.
    """

    def __init__(self, why: str, where: str = "", *, may_pass: bool = False) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where = where
        self.why = why
        self.may_pass = may_pass


# Certificates of servers.


def of_certificate(number: int, name: str, seen: Seen | None) -> TlsFault:
    """Say why a server's certificate is not trusted.

    :param number: OpenSSL's, the same in both of them.
    :param name: that it had to have.
    :param seen: the certificate, if it can be known.
    """
    if number == EXPIRED:
        since = f" on {seen.ends}" if seen else ", or one that vouches for it has"
        return TlsFault(f"the server's certificate has expired{since}; it has to be renewed there")
    if number == NOT_YET_VALID:
        since = f" before {seen.begins}" if seen else " yet"
        return TlsFault(f"the server's certificate is not valid{since}; look at both clocks")
    if number in WRONG_NAME:
        return _of_name(name, seen)
    if number in UNKNOWN:
        return TlsFault(
            f"the server's certificate is not trusted: {UNKNOWN[number]}; trust one with ?ca=FILE "
            "behind the address"
        )
    if number == REVOKED:
        return TlsFault("the server's certificate was revoked; it has to be replaced there")
    if number == WRONG_PURPOSE:
        return TlsFault("the server's certificate is not one for servers; replace it there")
    return TlsFault(f"the server's certificate is not trusted (OpenSSL's error {number})")


def _of_name(name: str, seen: Seen | None) -> TlsFault:
    names = [ascii(each)[1:-1] for each in seen.names] if seen else []
    told = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    whose = f"is for {told}, and" if names else "is"
    next_step = f"connect to that name, or say ?name={names[0]}" if names else "replace it there"
    return TlsFault(f"the server's certificate {whose} not for {name}; {next_step}")


# What OpenSSL, or the server, says.

_ALERTS: Final = {
    "certificate revoked": "it was revoked", "certificate expired": "it has expired",
    "unknown ca": "it does not know its CA", "bad certificate": "it is a wrong one",
    "certificate unknown": "it does not say why", "unsupported certificate": "not of this kind",
    "access denied": "it may not come in",
}  # fmt: skip
"""What a server says of a client's certificate, and what that means."""

_NO_TLS: Final = (
    "wrong version number", "unknown protocol", "http request", "packet length too long",
    "record layer failure", "bad record type", "unexpected message", "unexpected record",
    "record overflow",
)  # fmt: skip

_OLD: Final = ("protocol version", "unsupported protocol", "no protocols available")

_CUT: Final = ("unexpected eof while reading",)


def of_reason(reason: str, tls: Tls) -> TlsFault:
    """:param reason: OpenSSL's own words, also with capitals and underscores."""
    said = reason.lower().replace("_", " ")
    alert = said.partition("alert ")[2]
    if alert == "certificate required" or (alert == "handshake failure" and tls.cert is None):
        sure = "wants" if alert == "certificate required" else "may want"
        return TlsFault(
            f"the server {sure} a certificate of ours; give it one with &cert=FILE behind the "
            "address, or ?cert=FILE"
        )
    if alert in _ALERTS and tls.cert is not None:
        return TlsFault(f"the server refuses our certificate: {_ALERTS[alert]}", tls.cert)
    if said.endswith(_OLD):
        return TlsFault("the server speaks TLS older than 1.2, or newer than we do; upgrade it")
    if said.endswith(_NO_TLS):
        return TlsFault("what answers does not speak TLS; connect to the port that does")
    if said == "certificate verify failed":
        return TlsFault(
            "the server's certificate is not trusted; why, beanstalk -s ADDRESS stats tells"
        )
    if said in _CUT:
        return TlsFault(CUT, may_pass=True)
    return TlsFault(f"TLS failed: {said}")


# Files.


def damaged(path: str | None) -> TlsFault:
    return TlsFault("a certificate in it is damaged; it has to be PEM", path or "")


def wrong_pair(tls: Tls) -> TlsFault:
    """Say that a key is of another certificate, or that either cannot be used."""
    if tls.key is None:
        return TlsFault("the private key in it is not that of its first certificate", f"{tls.cert}")
    return TlsFault(f"this private key is not that of {tls.cert}", tls.key)


class Files(NamedTuple):
    """Contents of the files of an address; None for one that is not named."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


def read_files(tls: Tls, read: Callable[[str], bytes]) -> Files:
    """:param read: gives a file, or all ``*.pem`` of a folder in one; raises OSError.
    :raise TlsFault: a file of the address is not what it should be.
    """
    ca, cert, key = (
        None if path is None else _read(path, read)
        for path in (tls.ca, tls.cert, tls.key or tls.cert)
    )
    for path, content in ((tls.ca, ca), (tls.cert, cert)):
        if content is not None and b"-----BEGIN CERTIFICATE-----" not in content:
            raise TlsFault("there is no certificate in it; it has to be PEM", path or "")
    if key is not None:
        _check_key(key, tls.key or tls.cert or "")
    return Files(ca, cert, key)


def _read(path: str, read: Callable[[str], bytes]) -> bytes:
    try:
        return read(path)
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise TlsFault(f"{why}; name a file that this user can read", path) from None


def _check_key(content: bytes, path: str) -> None:
    if b"PRIVATE KEY-----" not in content:
        raise TlsFault(
            "there is no private key in it; it has to be PEM, in the file of cert= or key=", path
        )
    if b"BEGIN ENCRYPTED" in content or b",ENCRYPTED" in content:
        raise TlsFault("its private key has a passphrase; give one that has none", path)
