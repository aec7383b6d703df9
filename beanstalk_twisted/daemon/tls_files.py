"""Certificates with their keys, authorities, and revocation lists, read from PEM files."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtensionOID, NameOID
from OpenSSL import SSL, crypto
from OpenSSL._util import lib

from beanstalk_twisted.daemon.files import Unreadable, read_text
from beanstalk_twisted.server.anomalies import Expiry

T = TypeVar("T")

SUFFIXES: Final = (".pem", ".crt", ".cer", ".key")
"""Of the files that are read in a folder."""

MAX_FILES: Final = 200
"""With these suffixes in a folder: a hundred certificates with their keys; all take 50 ms."""

MAX_FILE_BYTES: Final = 1 << 20
"""All authorities of a browser are 200 KB; a list of 19,000 revoked certificates fits."""

MAX_FOLDER_CHARACTERS: Final = 2 << 20
"""Of all files of a folder: a hundred certificates with RSA keys and two issuers each are 0.9
million.  They are read while clients wait, certificates alone in 0.3 s.
"""

MAX_CHAIN: Final = 10
"""Certificates above the server's: more no client follows."""

OTHERS_MAY_READ: Final = 0o004

NOT_UNDERSTOOD: Final = (
    ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
)  # fmt: skip
"""What `cryptography` raises of bytes that are no certificate, or none that it knows."""

BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n[^-]*(?:-(?!----)[^-]*)*-----END \1-----")
"""None reaches over five dashes, so what is behind a beginning without an end is read once."""


class BadTls(ValueError):
    """Files that TLS cannot be spoken with; says which, and why."""


class Credential(NamedTuple):
    """A certificate of the server.

    :ivar names: the hosts that it is for, in lower case.
    :ivar chain: the certificates of those who have issued it, its own issuer's first.
    """

    path: str
    key_path: str
    names: frozenset[str]
    certificate: x509.Certificate
    key: Any
    chain: tuple[x509.Certificate, ...]

    @property
    def has_open_key(self) -> bool:
        try:
            return bool(os.stat(self.key_path).st_mode & OTHERS_MAY_READ)
        except OSError:
            return False

    @property
    def expiry(self) -> Expiry:
        return Expiry("certificate", self.path, self.certificate.not_valid_after_utc)


class Trust(NamedTuple):
    """:ivar revocations: lists of certificates taken back; None where nobody asks for them."""

    authorities: Sequence[x509.Certificate]
    revocations: Sequence[x509.CertificateRevocationList] | None
    expiries: Sequence[Expiry]


class _Found(NamedTuple):
    """What is in a folder, each once, with its first file's path; ``keys`` by their public part."""

    certificates: dict[x509.Certificate, str]
    keys: dict[bytes, tuple[str, Any]]


def read_folder(folder: str, now: datetime) -> list[Credential]:
    """Read a server's certificates and their keys.

    :return: the first by name of file first; of several for the same names one that is valid.
    :raise BadTls: there is none, or one is wrong or not valid now.
    """
    found = _find(folder)
    by_key: dict[bytes, dict[x509.Certificate, str]] = {}
    for certificate, path in found.certificates.items():
        by_key.setdefault(_public(certificate), {})[certificate] = path
    by_subject = {each.subject: each for each in found.certificates}
    credentials = []
    for path, key in found.keys.values():
        ours = by_key.get(_public(key))
        if not ours:
            raise BadTls(f"{path}: no certificate in {folder} is for this private key")
        for certificate, where in ours.items():
            chain = tuple(_chain(certificate, by_subject))
            names = frozenset(_names(where, certificate))
            credentials.append(Credential(where, path, names, certificate, key, chain))
    if not credentials:
        what = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise BadTls(f"{folder}: there is no private key in it ({what})")
    chosen = list(_newest(credentials, now))
    for credential in chosen:
        _check_dates(credential.path, credential.certificate, now)
    return chosen


def read_trust(ca: str, crl: str, now: datetime) -> Trust:
    """Read who may issue certificates to clients, and what was taken back of them.

    :param crl: empty if nobody asks.
    :raise BadTls: there is no authority, or one of the files is wrong or has ended.
    """
    authorities = _parsed(ca, "CERTIFICATE", _read(ca), _load_certificate)
    if not authorities:
        raise BadTls(f"{ca}: there is no certificate in it")
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    for each in authorities if not valid else ():
        _check_dates(ca, each, now)
    expiries = [Expiry("authority", ca, min(each.not_valid_after_utc for each in valid))]
    if not crl:
        return Trust(authorities, None, expiries)
    lists = _parsed(crl, "X509 CRL", _read(crl), _load_list)
    if not lists:
        raise BadTls(f"{crl}: there is no revocation list in it")
    for each_list in lists:
        expiries += _list_expiry(crl, each_list, authorities, now)
    return Trust(authorities, lists, expiries)


def _find(folder: str) -> _Found:
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise BadTls(f"{folder}: it cannot be read: {problem.strerror}") from None
    read = [each for each in names if each.lower().endswith(SUFFIXES) and each[0] != "."]
    paths = [os.path.join(folder, name) for name in read]
    if len(paths) > MAX_FILES:
        raise BadTls(f"{folder}: it has more than {MAX_FILES} files of keys and certificates")
    found, left = _Found({}, {}), MAX_FOLDER_CHARACTERS
    for path in paths:
        text = _read(path)
        left -= len(text)
        if left < 0:
            raise BadTls(
                f"{folder}: its keys and certificates are more than {MAX_FOLDER_CHARACTERS} "
                "characters"
            )
        if not BLOCK.search(text):
            raise BadTls(f"{path}: it is no PEM: it has no '-----BEGIN …-----'")
        for each in _parsed(path, "CERTIFICATE", text, _load_certificate):
            found.certificates.setdefault(each, path)
        for key in _parsed(path, "PRIVATE KEY", text, partial(load_pem_private_key, password=None)):
            found.keys.setdefault(_public(key), (path, key))
    return found


def _read(path: str) -> str:
    try:
        return read_text(path, MAX_FILE_BYTES).replace("\r\n", "\n")
    except Unreadable as problem:
        raise BadTls(f"{path}: {problem}") from None


def _load_certificate(block: bytes) -> x509.Certificate:
    """Read it, and all that is asked for later: `cryptography` looks at most only then."""
    made = x509.load_pem_x509_certificate(block)
    _ = made.subject, made.issuer, made.not_valid_before_utc, made.not_valid_after_utc
    made.public_key()
    return made


def _load_list(block: bytes) -> x509.CertificateRevocationList:
    made = x509.load_pem_x509_crl(block)
    _ = made.issuer, made.next_update_utc
    return made


def _parsed(path: str, kind: str, text: str, load: Callable[[bytes], T]) -> list[T]:
    """:param kind: how the names of its blocks end."""
    parsed = []
    for block in BLOCK.finditer(text):
        if block[1].endswith(kind):
            try:
                parsed.append(load(block[0].encode()))
            except TypeError:
                raise BadTls(f"{path}: the private key has a passphrase; remove it") from None
            except NOT_UNDERSTOOD:
                what = block[1].lower()
                raise BadTls(f"{path}: it has a {what} that cannot be understood") from None
    return parsed


def _public(owner: Any) -> bytes:
    public: Any = owner.public_key()
    return bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _chain(
    certificate: x509.Certificate, by_subject: Mapping[x509.Name, x509.Certificate]
) -> Iterator[x509.Certificate]:
    """A certificate that has issued itself is no part of it: who trusts it has it."""
    for _ in range(MAX_CHAIN):
        issuer = by_subject.get(certificate.issuer)
        if issuer is None or issuer.issuer == issuer.subject:
            return
        yield issuer
        certificate = issuer


def _names(path: str, certificate: x509.Certificate) -> Iterator[str]:
    """:return: host names; the common name where there are no alternative names.
    :raise BadTls: one of its extensions cannot be understood.
    """
    try:
        extension: Any = certificate.extensions.get_extension_for_oid(
            ExtensionOID.SUBJECT_ALTERNATIVE_NAME
        )
    except x509.ExtensionNotFound:
        for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
            yield str(attribute.value).lower()
        return
    except NOT_UNDERSTOOD:
        raise BadTls(f"{path}: it has a certificate that cannot be understood") from None
    for name in extension.value.get_values_for_type(x509.DNSName):
        yield name.lower()


def _newest(credentials: Sequence[Credential], now: datetime) -> Iterator[Credential]:
    """Of those for the same names the one that is valid now, and is so for longest."""

    def worth(credential: Credential) -> tuple[bool, datetime]:
        shown = credential.certificate
        return shown.not_valid_before_utc <= now, shown.not_valid_after_utc

    by_names: dict[frozenset[str], list[Credential]] = {}
    for credential in sorted(credentials, key=lambda each: each.path):
        by_names.setdefault(credential.names, []).append(credential)
    for same in by_names.values():
        yield max(same, key=worth)


def _check_dates(path: str, certificate: x509.Certificate, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends <= now:
        raise BadTls(f"{path}: the certificate has expired at {ends:%Y-%m-%dT%H:%M:%SZ}")
    if begins > now:
        raise BadTls(f"{path}: the certificate is not valid before {begins:%Y-%m-%dT%H:%M:%SZ}")


def _list_expiry(
    path: str, found: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate],
    now: datetime,
) -> Iterator[Expiry]:  # fmt: skip
    issuers = [each for each in authorities if each.subject == found.issuer]
    if not any(_has_signed(each, found) for each in issuers):
        raise BadTls(f"{path}: no authority in ca= has signed this revocation list")
    ends = found.next_update_utc
    if ends is not None:
        if ends <= now:
            raise BadTls(f"{path}: the revocation list has ended at {ends:%Y-%m-%dT%H:%M:%SZ}")
        yield Expiry("revocations", path, ends)


def _has_signed(issuer: x509.Certificate, found: x509.CertificateRevocationList) -> bool:
    key: Any = issuer.public_key()
    try:
        return found.is_signature_valid(key)
    except (*NOT_UNDERSTOOD, TypeError):
        return False


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
    """Make the context of the first certificate, which chooses that of another by the name that a
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
        # It may be any bytes.
        name = (connection.get_servername() or b"").decode("ascii", "replace").lower()
        _, dot, parent = name.partition(".")
        chosen = by_name.get(name) or by_name.get(f"*{dot}{parent}")
        if chosen is not None and chosen is not context:
            connection.set_context(chosen)

    if others:
        try:
            context.set_tlsext_servername_callback(choose)
        except MemoryError:
            raise BadTls(f"{others[0].path}: {NO_CALLBACK}") from None
    return context


def _context(credential: Credential, trust: Trust | None) -> SSL.Context:
    try:
        return _filled(SSL.Context(SSL.TLS_METHOD), credential, trust)
    except (SSL.Error, crypto.Error, TypeError) as problem:
        raise BadTls(f"{credential.path}: OpenSSL does not take it: {words_of(problem)}") from None


def _filled(context: SSL.Context, credential: Credential, trust: Trust | None) -> SSL.Context:
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
    """What OpenSSL has found of the peer's certificate.  pyOpenSSL tells it to a callback alone,
    and none can be made where memory cannot be written and executed, as in our systemd unit.

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
