"""
What addresses mean, to the client and to the tools.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.client.addresses import Address, Tls, token_of
from beanstalk_twisted.client.endpoints import endpoint


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("host", "host", 11300, "host:11300"), ("host:1", "host", 1, "host:1"),
        ("tcp:host:1", "host", 1, "host:1"), ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("fe80::1", "fe80::1", 11300, "[fe80::1]:11300"), ("[::1]", "::1", 11300, "[::1]:11300"),
        ("tls", "tls", 11300, "tls:11300"), ("unix", "unix", 11300, "unix:11300"),
        ("unix:/run/a@b", "/run/a@b", 0, "unix:/run/a@b"),
        ("beanstalk://host", "host", 11300, "host:11300"),
    ],
)  # fmt: skip
def test_a_server_is_named_like_this(text: str, host: str, port: int, shown: str) -> None:
    address = Address.parse(text)
    assert address == (host, port, None, None)
    assert str(address) == shown


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
        ("tls:host", "host", 11300, Tls()),
        ("tls:host:1:trustRoots=/a folder", "host", 1, Tls("/a folder")),
        ("tls:[::1]:1:certificate=c:privateKey=k", "::1", 1, Tls(None, "c", "k")),
        ("tls://host", "host", 11300, Tls()), ("tls://[::1]:7", "::1", 7, Tls()),
        ("tls://host:1?ca=/a%20b/c.pem", "host", 1, Tls("/a b/c.pem")),
        ("tls://h?name=q&key=k&cert=c%2Cd&ca=r+s", "h", 11300, Tls("r+s", "c,d", "k", "q")),
    ],
)  # fmt: skip
def test_and_like_this_for_tls(text: str, host: str, port: int, tls: Tls) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.tls) == (host, port, tls)
    assert address.name == (tls.name or host)


@pytest.mark.parametrize(
    "text",
    ["{}://s%65cret@host:1", "{}://:secret@host:1", "{}://secret@[::1]"],
)
@pytest.mark.parametrize("scheme", ["tls", "beanstalk"])
def test_a_token_stands_before_the_host_and_is_never_shown(scheme: str, text: str) -> None:
    address = Address.parse(text.format(scheme))
    assert address.token == "secret"
    for shown in (f"{address}", f"{address!r}", endpoint(text.format(scheme))):
        assert "secret" not in shown and "s%65cret" not in shown
    assert address.showing(lambda: "other") is address
    assert Address.parse("h").showing(lambda: "other").token == "other"


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "host:", "host:x", "host:0", "host:65536", "host:-1", "unix:", "ssl:host:1",
        "tcp:", "tls:", "tls::1", "tls:host:0", "tls:host:1:roots=x", "tls:host:trustRoots",
        "udp:host:1", "http://host", "tls://", "tls://?ca=x", "tls://host/", "tls://host:0",
        "tls://host?", "tls://host?ca", "tls://host?ca=", "tls://host?ca=a&ca=b", "tls://host?x=y",
        "tls://host?key=k", "beanstalk://host?ca=x", "beanstalk://",
    ],
)  # fmt: skip
def test_and_not_like_this(text: str) -> None:
    with pytest.raises(ValueError, match="no server:"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "secret@host", "tsl://secret@host", "tls://@host", "tls://a:secret@host", "tls://secret@",
        "tls://secret@host?x=secret", "tls://secret@host:x", "tls://secret@host/secret",
    ],
)  # fmt: skip
def test_what_may_have_a_token_is_not_shown_when_it_is_wrong(text: str) -> None:
    for read in (Address.parse, endpoint):
        with pytest.raises(ValueError, match="no server:") as caught:
            read(text)
        assert "secret" not in str(caught.value)


def test_a_file_with_more_than_a_token_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("bst_a_b\n")
    assert token_of(str(path), {}) == "bst_a_b"
    path.write_text("token  bst_a_b\nhash   bst_a:scrypt\n")
    with pytest.raises(ValueError, match=f"--token-file {path}: its first line has to be"):
        token_of(str(path), {})
