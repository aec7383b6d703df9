"""
Why a handshake has failed, as OpenSSL tells it, in the words of docs/tls.md.
"""

from typing import Final

from OpenSSL import SSL

from beanstalk_twisted.daemon.tls.contexts import words_of
from beanstalk_twisted.server.access.handshakes import LEFT

_ISSUERS: Final = dict.fromkeys(
    (2, 18, 19, 20, 21),
    ("unknown-authority", "no authority in ca= has issued the client's certificate"),
)
"""Errors of OpenSSL's (X509_V_ERR…) that say that nobody known has issued a certificate."""

_REJECTIONS: Final = {
    **_ISSUERS,
    3: ("no-list", "crl= has no list of the authority that issued the client's certificate"),
    9: ("not-yet-valid", "the client's certificate is not valid yet"),
    10: ("expired", "the client's certificate has expired"),
    12: ("list-ended", "the list in crl= has ended: renew it and send SIGHUP"),
    23: ("revoked", "the client's certificate was revoked"),
}

_PLAIN: Final = ("plain-text", "plain text came, no TLS")
_VERSION: Final = ("version", "the client speaks no TLS 1.2 or newer")
_NOTHING: Final = ("nothing-common", "the client knows no cipher or curve of the server's")

_REASONS: Final = {
    "peer did not return a certificate": ("no-certificate", "the client has shown no certificate"),
    "http request": _PLAIN,
    "https proxy request": _PLAIN,
    "wrong version number": _PLAIN,
    "unsupported protocol": _VERSION,
    "version too low": _VERSION,
    "no shared cipher": _NOTHING,
    "no suitable key share": _NOTHING,
    "no suitable signature algorithm": _NOTHING,
    "no shared signature algorithms": _NOTHING,
}
"""By what OpenSSL says, in small letters."""

NOT_VERIFIED: Final = "certificate verify failed"

ALERT: Final = " alert "
"""Of what it says of a message in which the client ends the handshake."""


def outcome_of(problem: BaseException, verified: int) -> tuple[str, str]:
    """
    :param problem: what has ended the connection.
    :param verified: what `verify_result` says of it.
    :return: one of `OUTCOMES`, and a sentence's end.
    """
    if not isinstance(problem, SSL.Error):
        return LEFT, "the client has gone"
    said = words_of(problem).lower()
    if said == NOT_VERIFIED:
        fallback = "untrusted", f"the client's certificate is not trusted, X509_V_ERR {verified}"
        return _REJECTIONS.get(verified, fallback)
    if said in _REASONS:
        return _REASONS[said]
    if ALERT in said:
        why = said.partition(ALERT)[2]
        return "refused", f"the client refuses the server's certificate, or what it offers: {why}"
    return "broken", said or "OpenSSL does not say why"
