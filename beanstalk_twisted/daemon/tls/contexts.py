"""
What OpenSSL needs for a handshake, made of certificates that were read.

TLS 1.2 and 1.3, forward secrecy and authenticated encryption only.  There are no session tickets
and no cache: a session that is resumed would not have its client's certificate verified again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from OpenSSL import SSL, crypto
from OpenSSL._util import lib

from beanstalk_twisted.daemon.tls.pem_files import BadTls, Credential, Trust

CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; all of 1.3 are alike."""

OPTIONS: Final = (
    SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_TICKET
    | SSL.OP_NO_RENEGOTIATION
)  # fmt: skip

VERIFY: Final = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT | SSL.VERIFY_CLIENT_ONCE

NO_CALLBACK: Final = (
    "only one certificate can be used where memory cannot be written and executed: leave one, or "
    "set MemoryDenyWriteExecute=no in the unit"
)


def make_context(credentials: Sequence[Credential], trust: Trust | None) -> SSL.Context:
    """
    Make the context of the first certificate, which chooses that of another by the name that a
    client wishes for.

    :param trust: None if clients are not asked for certificates.
    :raise BadTls: OpenSSL does not take them.
    """
    first, *others = credentials
    context = _context(first, trust)
    by_name: dict[str, SSL.Context] = {}
    others_made = [(each, _context(each, trust)) for each in others]
    for credential, made in [(first, context), *others_made]:
        for name in credential.names:
            by_name.setdefault(name, made)

    def choose(connection: SSL.Connection) -> None:
        chosen = _wished(by_name, connection.get_servername())
        if chosen is not None and chosen is not context:
            connection.set_context(chosen)

    if others:
        try:
            context.set_tlsext_servername_callback(choose)
        except MemoryError:
            raise BadTls(f"{others[0].path}: {NO_CALLBACK}") from None
    return context


def _wished(by_name: Mapping[str, SSL.Context], wish: bytes | None) -> SSL.Context | None:
    """:param wish: the name that a client has sent, which may be any bytes."""
    name = (wish or b"").decode("ascii", "replace").lower()
    _, dot, parent = name.partition(".")
    return by_name.get(name) or by_name.get(f"*{dot}{parent}")


def _context(credential: Credential, trust: Trust | None) -> SSL.Context:
    try:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(OPTIONS)
        context.set_mode(SSL.MODE_RELEASE_BUFFERS)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.use_certificate(credential.certificate)
        context.use_privatekey(credential.key)
        for each in credential.chain:
            context.add_extra_chain_cert(each)
        context.check_privatekey()
        if trust is not None:
            _verify(context, trust)
        context.set_cipher_list(CIPHERS)
    except (SSL.Error, crypto.Error, TypeError) as problem:
        raise BadTls(f"{credential.path}: OpenSSL does not take it: {words_of(problem)}") from None
    return context


def _verify(context: SSL.Context, trust: Trust) -> None:
    store = context.get_cert_store()
    assert store is not None
    for authority in trust.authorities:
        store.add_cert(crypto.X509.from_cryptography(authority))
        context.add_client_ca(authority)
    # An authority in the file need not be a root.
    flags = crypto.X509StoreFlags.PARTIAL_CHAIN
    if trust.revocations is not None:
        for each in trust.revocations:
            store.add_crl(each)
        flags |= crypto.X509StoreFlags.CRL_CHECK
    store.set_flags(flags)
    # A session belongs to clients that were asked for a certificate.
    context.set_session_id(b"mtls")
    context.set_verify(VERIFY)


def verify_result(connection: SSL.Connection) -> int:
    """
    What OpenSSL has found of the peer's certificate.  pyOpenSSL tells it to a callback alone, and
    none can be made where memory cannot be written and executed, as in our systemd unit.

    :return: its number (X509_V_ERR…), 0 if nothing is wrong, or no certificate came; -1 if this
        pyOpenSSL does not know.
    """
    ask = getattr(lib, "SSL_get_verify_result", None)
    handle = getattr(connection, "_ssl", None)
    return -1 if ask is None or handle is None else int(ask(handle))


def words_of(problem: BaseException) -> str:
    """:return: the reason that OpenSSL gives, in its words; empty if it gives none."""
    found: Any = problem.args[0] if problem.args else ""
    if isinstance(found, list):
        found = found[-1] if found else ""
    return str(found[-1] if isinstance(found, tuple) else found)
