"""Folders of certificates in any layout, and each way in which files are wrong."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from beanstalk_twisted.daemon.tls_files import (
    BLOCK,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_FOLDER_CHARACTERS,
    BadTls,
    read_folder,
    read_trust,
)
from tests.certificates import DAY, Authority, Certificates, with_extension_twice
from tests.sampling import share

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("CA")


def test_certbots_folder_is_read(authority: Authority, tmp_path: Path) -> None:
    issued = authority.server(["a.example.org"])
    between = Authority("between")
    (tmp_path / "README").write_text("no PEM")
    (tmp_path / "privkey.pem").write_bytes(issued.key_pem)
    (tmp_path / "cert.pem").write_bytes(issued.certificate_pem)
    (tmp_path / "chain.pem").write_bytes(between.pem + authority.pem)
    (tmp_path / "fullchain.pem").write_bytes(issued.certificate_pem + between.pem)
    (credential,) = read_folder(str(tmp_path), NOW)
    assert credential.names == {"a.example.org"}
    assert credential.path == str(tmp_path / "cert.pem")
    assert credential.key_path == str(tmp_path / "privkey.pem")
    # Whoever trusts it has what has issued itself.
    assert credential.chain == ()


def test_a_secret_of_kubernetes_is_read(authority: Authority, tmp_path: Path) -> None:
    issued = authority.server(["b.example.org"])
    real = tmp_path / "..2026"
    real.mkdir()
    (tmp_path / "..data").symlink_to(real)
    for name, content in (("tls.crt", issued.certificate_pem), ("tls.key", issued.key_pem)):
        (real / name).write_bytes(content)
        (tmp_path / name).symlink_to(Path("..data") / name)
    (credential,) = read_folder(str(tmp_path), NOW)
    assert credential.names == {"b.example.org"}


def test_what_has_issued_a_certificate_is_shown_with_it(
    authority: Authority, tmp_path: Path
) -> None:
    between = Authority("between", authority)
    issued = between.server(["c.example.org"])
    (tmp_path / "all.pem").write_bytes(issued.pem + authority.pem + between.pem)
    (credential,) = read_folder(str(tmp_path), NOW)
    assert credential.chain == (between.certificate,)


def test_of_two_for_the_same_names_the_one_that_is_valid_for_longer_is_used(
    authority: Authority, tmp_path: Path
) -> None:
    old = authority.server(["a.example.org"], ends=DAY)
    new = authority.server(["a.example.org"], ends=90 * DAY)
    future = authority.server(["a.example.org"], begins=DAY, ends=180 * DAY)
    expired = authority.server(["a.example.org"], -2 * DAY, -DAY)
    other = authority.server(["b.example.org"])
    for number, issued in enumerate((old, new, future, expired, other)):
        issued.write(tmp_path / f"{number}.pem")
    found = read_folder(str(tmp_path), NOW)
    assert [each.certificate for each in found] == [new.certificate, other.certificate]


def test_files_of_windows_are_read(certificates: Certificates, tmp_path: Path) -> None:
    text = certificates.server.read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "a.pem").write_bytes(text)
    assert len(read_folder(str(tmp_path), NOW)) == 1


def locked(authority: Authority) -> bytes:
    return authority.server().key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda ca: b"", "it is no PEM"),
        (lambda ca: b"\xff\xfe", "line 1: it is not UTF-8"),
        (lambda ca: ca.server().certificate_pem, "there is no private key in it (*.pem, *.crt,"),
        (lambda ca: ca.server().key_pem, "is for this private key"),
        (lambda ca: ca.server().key_pem + ca.server().certificate_pem, "is for this private key"),
        (
            lambda ca: ca.server().pem[:-200] + b"\n-----END CERTIFICATE-----\n",
            "that cannot be und",
        ),
        (lambda ca: ca.server().pem.replace(b"MIG", b"xxx", 1), "a private key that cannot be und"),
        (locked, "the private key has a passphrase; remove it"),
        (lambda ca: ca.server(begins=-2 * DAY, ends=-DAY).pem, "the certificate has expired at 20"),
        (lambda ca: ca.server(begins=DAY).pem, "the certificate is not valid before 20"),
        (lambda ca: b"x" * MAX_FILE_BYTES, "it is no PEM"),
        (lambda ca: b"x" * (MAX_FILE_BYTES + 1), f"it has more than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    authority: Authority, tmp_path: Path, content: Callable[[Authority], bytes], why: str
) -> None:
    (tmp_path / "server.pem").write_bytes(content(authority))
    with pytest.raises(BadTls) as refused:
        read_folder(str(tmp_path), NOW)
    assert str(refused.value).startswith(str(tmp_path))
    assert why in str(refused.value)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadTls, match="cannot be read: No such file or directory"):
        read_folder(str(tmp_path / "none"), NOW)
    with pytest.raises(BadTls, match="there is no private key in it"):
        read_folder(str(tmp_path), NOW)


def test_a_folder_has_so_many_files_and_no_more(certificates: Certificates, tmp_path: Path) -> None:
    pem = certificates.server.read_bytes()
    for number in range(MAX_FILES):
        (tmp_path / f"{number}.pem").write_bytes(pem)
    assert len(read_folder(str(tmp_path), NOW)) == 1
    (tmp_path / "more.pem").write_bytes(pem)
    with pytest.raises(BadTls, match=f"more than {MAX_FILES} files"):
        read_folder(str(tmp_path), NOW)


def test_a_folder_has_so_many_characters_and_no_more(
    certificates: Certificates, tmp_path: Path
) -> None:
    pem = certificates.server.read_text()
    for number, size in enumerate((MAX_FILE_BYTES, MAX_FOLDER_CHARACTERS - MAX_FILE_BYTES)):
        (tmp_path / f"{number}.pem").write_text(pem.ljust(size))
    assert len(read_folder(str(tmp_path), NOW)) == 1
    (tmp_path / "more.pem").write_text("x")
    with pytest.raises(BadTls, match=f"more than {MAX_FOLDER_CHARACTERS} characters"):
        read_folder(str(tmp_path), NOW)


@pytest.mark.parametrize("line", ["-----BEGIN A-----\n", "-----BEGIN A-----\n-"])
def test_beginnings_without_an_end_are_read_once_each(line: str) -> None:
    # With what is behind each of them it would be minutes.
    assert not BLOCK.search(line * (MAX_FILE_BYTES // len(line)))
    assert BLOCK.search(line + "-----BEGIN B-----\nMIG-\n-----END B-----")


def test_a_certificate_of_the_server_whose_extensions_cannot_be_read_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    issued = certificates.authority.server()
    doubled = with_extension_twice(issued.certificate).public_bytes(Encoding.PEM)
    (tmp_path / "a.pem").write_bytes(issued.key_pem + doubled)
    with pytest.raises(BadTls, match="a certificate that cannot be understood"):
        read_folder(str(tmp_path), NOW)


def test_changed_bytes_are_refused_or_do_not_matter(
    certificates: Certificates, tmp_path: Path
) -> None:
    chance, refused = random.Random(1), 0

    def changed(pem: bytes) -> bytes:
        content = bytearray(base64.b64decode(b"".join(pem.splitlines()[1:-1])))
        content[chance.randrange(len(content))] = chance.choice((0, 2, 6, 48, 255))
        first, *_, last = pem.splitlines()
        return b"%s\n%s%s\n" % (first, base64.encodebytes(content), last)

    issued = certificates.authority.server()
    ca, crl = tmp_path / "ca", tmp_path / "crl"
    for _ in range(share(500, of=10)):
        (tmp_path / "a.pem").write_bytes(issued.key_pem + changed(issued.certificate_pem))
        ca.write_bytes(changed(certificates.ca.read_bytes()))
        crl.write_bytes(changed(certificates.revocations.read_bytes()))
        refused += is_refused(lambda: read_folder(str(tmp_path), NOW))
        refused += is_refused(lambda: read_trust(str(ca), "", NOW))
        refused += is_refused(lambda: read_trust(str(certificates.ca), str(crl), NOW))
    assert refused


def is_refused(read: Callable[[], object]) -> bool:
    """Whether files are said to be wrong, and not otherwise told."""
    try:
        read()
    except BadTls:
        return True
    return False


def test_a_key_that_others_may_read_is_seen(certificates: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    path.write_bytes(certificates.server.read_bytes())
    path.chmod(0o640)
    (credential,) = read_folder(str(tmp_path), NOW)
    assert not credential.has_open_key
    path.chmod(0o644)
    assert credential.has_open_key
    path.unlink()
    assert not credential.has_open_key


def test_authorities_and_their_lists_are_read(certificates: Certificates) -> None:
    ca, crl = str(certificates.ca), str(certificates.revocations)
    assert read_trust(ca, "", NOW).revocations is None
    trust = read_trust(ca, crl, NOW)
    assert trust.revocations is not None and len(trust.revocations) == 1
    assert [(each.kind, each.path) for each in trust.expiries] == [
        ("authority", ca), ("revocations", crl),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ca", "crl", "after", "why"),
    [
        ("none", "", 0, "cannot be read"),
        ("revocations", "", 0, "there is no certificate in it"),
        ("ca", "", 365, "the certificate has expired"),
        ("ca", "none", 0, "cannot be read"),
        ("ca", "ca", 0, "there is no revocation list in it"),
        ("ca", "revocations", 30, "the revocation list has ended at"),
        ("other_ca", "revocations", 0, "no authority in ca= has signed this revocation list"),
    ],
)
def test_what_is_wrong_with_an_authority_or_a_list_is_said(
    certificates: Certificates, ca: str, crl: str, after: int, why: str
) -> None:
    names = [str(getattr(certificates, each, "/none")) if each else "" for each in (ca, crl)]
    with pytest.raises(BadTls, match=why):
        # Those of the whole session may have been made long after this module was read.
        read_trust(names[0], names[1], datetime.now(UTC) + timedelta(days=after, minutes=5))


def test_a_list_that_somebody_else_has_signed_in_the_authoritys_name_is_refused(
    tmp_path: Path,
) -> None:
    real, false = Authority("CA"), Authority("CA")
    (tmp_path / "ca.pem").write_bytes(real.pem)
    (tmp_path / "crl.pem").write_bytes(false.revocation_list([]))
    with pytest.raises(BadTls, match="no authority in ca= has signed"):
        read_trust(str(tmp_path / "ca.pem"), str(tmp_path / "crl.pem"), NOW)


def test_an_authority_that_has_expired_does_not_keep_others_from_being_used(
    certificates: Certificates, tmp_path: Path
) -> None:
    old = Authority("old", ends=-timedelta(hours=1))
    both = tmp_path / "both.pem"
    both.write_bytes(old.pem + certificates.ca.read_bytes())
    (expiry,) = read_trust(str(both), "", NOW).expiries
    assert expiry.ends == certificates.authority.certificate.not_valid_after_utc
    both.write_bytes(old.pem)
    with pytest.raises(BadTls, match="has expired"):
        read_trust(str(both), "", NOW)
