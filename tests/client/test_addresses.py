"""What addresses mean, to the client and to the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.client.addresses import MAX_HOSTS, Address, Tls, listed, token_of


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
    assert address == Address(host, port)
    assert str(address) == shown


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
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
    for shown in (f"{address}", f"{address!r}", address.pool_name):
        assert "secret" not in shown and "s%65cret" not in shown
    assert address.showing(lambda: "other") is address
    assert Address.parse("h").showing(lambda: "other").token == "other"


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "host:", "host:x", "host:0", "host:65536", "host:-1", "unix:", "ssl:host:1",
        "tcp:", "tcp:h:1:timeout=5", "tls:host:1", "tls:host:1:trustRoots=x",
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
    with pytest.raises(ValueError, match="no server:") as caught:
        Address.parse(text)
    assert "secret" not in str(caught.value)


def test_a_file_with_more_than_a_token_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("bst_a_b\n")
    assert token_of(str(path), {}) == "bst_a_b"
    path.write_text("token  bst_a_b\nhash   bst_a:scrypt\n")
    with pytest.raises(ValueError, match=f"--token-file {path}: its first line has to be"):
        token_of(str(path), {})


def test_a_file_without_a_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("\nbst_a_b\n")
    with pytest.raises(ValueError, match=f"--token-file {path}: its first line is empty"):
        token_of(str(path), {})


# Several hosts of one queue.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("beanstalk://a,b:1,[::1]", "beanstalk://a:11300,b:1,[::1]:11300"),
        ("beanstalk://s%65cret@a,b", "beanstalk://a:11300,b:11300"),
        ("tls://secret@a:7,b?ca=/c.pem", "tls://a:7,b:11300"),
    ],
)
def test_a_queue_may_be_on_several_hosts(text: str, shown: str) -> None:
    address = Address.parse(text)
    assert str(address) == shown == address.pool_name
    assert str(Address.parse(str(address))) == shown
    assert all((each.tls, each.token) == address[2:4] for each in address.hosts)
    assert ",".join(map(str, address.hosts)).replace("tls://", "") == shown.partition("://")[2]


def test_an_address_of_one_host_is_that_host() -> None:
    for text in ("a", "tls://token@a:1?ca=c", "unix:/run/bs"):
        assert Address.parse(text).hosts == (Address.parse(text),)


def test_a_certificate_is_for_each_host_or_for_the_name_that_is_said() -> None:
    assert [each.name for each in Address.parse("tls://a,b").hosts] == ["a", "b"]
    assert [each.name for each in Address.parse("tls://a,b?name=q").hosts] == ["q", "q"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("beanstalk://a,", "is no server"), ("beanstalk://a,,b", "is no server"),
        ("beanstalk://a,b:0", "is no server"), ("beanstalk://a,t@b", "no server"),
        ("beanstalk://a,b:11300,b", "b:11300 is named twice"),
        ("tls://a,b?", "no server"),
    ],
)  # fmt: skip
def test_a_list_of_hosts_may_be_wrong(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Address.parse(text)


def test_a_queue_has_so_many_hosts_at_most() -> None:
    most = ",".join(f"h{number}" for number in range(MAX_HOSTS))
    assert len(Address.parse(f"beanstalk://{most}").hosts) == MAX_HOSTS
    with pytest.raises(ValueError, match=f"{MAX_HOSTS + 1} hosts; a queue has {MAX_HOSTS}"):
        Address.parse(f"beanstalk://{most},one-more")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", ["a:11300"]), ("a, b:1", ["a:11300", "b:1"]),
        ("beanstalk://a,b", ["beanstalk://a:11300,b:11300"]),
        ("a,beanstalk://b,c,tls://d,e?ca=f,tcp:g:1,h",
         ["a:11300", "beanstalk://b:11300,c:11300", "tls://d:11300,e:11300", "g:1", "h:11300"]),
        ("tls://t@a?ca=x,unix:/b", ["tls://a:11300", "unix:/b"]),
    ],
)  # fmt: skip
def test_queues_and_their_hosts_are_told_apart(text: str, shown: list[str]) -> None:
    assert [str(address) for address in listed(text)] == shown
