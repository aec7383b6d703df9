"""Whom the endpoint answers: hosts, pages of its own, and logins of browsers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from twisted.internet.interfaces import ISSLTransport
from zope.interface import directlyProvides

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.web.logins import (
    ATTRIBUTES,
    CHALLENGE,
    COOKIE,
    LOGIN_S,
    MAX_LOGINS,
    QUIET_CHALLENGE,
    Logins,
    host_is_ours,
    is_own_request,
    secret_in,
)
from beanstalk_twisted.web.site import TICK_S
from tests.server.access.meeting import HASH, OTHER_HASH, TOKEN, InlineHashing, guarded, rules
from tests.web.browsing import Browser, Reply, WebTransport, browse, parsed

OUR_HOSTS = (
    "localhost", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.0.0.1:9300", "[::1]", "[::1]:9300",
    "10.1.2.3:1", "queue", "Queue:9300",
)  # fmt: skip
OTHER_HOSTS = (
    "evil.example", "evil.example:9300", "", ":9300", "127.0.0.1.evil.example", "localhost.evil",
    "evil@localhost", "127.0.0.1:x", "[::1", "[evil]:1", "queue:123456", "a queue",
    "queue,localhost",
)  # fmt: skip


def test_ip_addresses_localhost_and_given_names_are_ours_and_other_hosts_are_not() -> None:
    for host in (*OUR_HOSTS, *OTHER_HOSTS):
        assert host_is_ours(host, {"queue"}) is (host in OUR_HOSTS), host


HOST = {"host": "localhost:9300"}


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({}, True), ({"sec-fetch-site": "same-origin"}, True), ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False), ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://localhost:9300"}, True), ({"origin": "http://localhost:9301"}, False),
        ({"origin": "https://evil.example"}, False), ({"origin": "null"}, False),
    ],
)  # fmt: skip
def test_what_changes_something_comes_from_a_program_or_from_our_page(
    headers: dict[str, str], is_own: bool
) -> None:
    assert is_own_request({**HOST, "x-beanstalk-request": "1", **headers}) is is_own
    assert not is_own_request({**HOST, **headers})


OWN = {**HOST, "x-beanstalk-request": "1", "origin": "http://localhost:9300"}
SHOWN = {"authorization": f"Bearer {TOKEN.decode()}"}
VIEWER = {"look": "*"}


def logins(seconds: Any = lambda: 0.0) -> Logins:
    numbers = count()
    return Logins(seconds, lambda size: next(numbers).to_bytes(size, "big"))


def sent_back(cookie: str) -> dict[str, str]:
    return {**HOST, "cookie": f"theme=dark; {cookie.partition(';')[0]}"}


class Console:
    """A browser at a server that asks for rights."""

    def __init__(self, held: AccessRules | None = None) -> None:
        self.server = guarded(held or rules(it=VIEWER))
        self.browser = browse(self.server, may_write=True)
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, headers: Mapping[str, str] = OWN) -> Reply:
        if self.browser.is_closed:
            self.browser = Browser(self.browser.channel.factory, self.server.clock)
        body = b"{}" if method == "POST" else b""
        return self.browser.ask(method, path, body, {**self.cookies, **headers})

    def log_in(self) -> Reply:
        reply = self.ask("POST", "/login", {**OWN, **SHOWN})
        if "set-cookie" in reply.headers:
            self.cookies = sent_back(reply.headers["set-cookie"])
        return reply

    @property
    def may_look(self) -> bool:
        return self.ask("GET", "/api/v1/server").status == 200


def test_the_cookie_is_for_this_host_and_no_script_and_no_page_of_another_site() -> None:
    cookie = logins().begin(HASH, OWN)
    assert cookie == f"{COOKIE}-9300={'A' * 43}; {ATTRIBUTES}"
    assert ATTRIBUTES == "Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize("host", ["queue.example", "queue.example:443"])
def test_over_tls_it_goes_over_tls_alone(host: str) -> None:
    headers = {"host": host, "origin": f"https://{host}"}
    cookie = logins().begin(HASH, headers)
    assert cookie.startswith(f"__Host-{COOKIE}") and cookie.endswith("; Secure")
    assert secret_in({"host": host, "cookie": cookie.partition(";")[0]}) == "A" * 43


class TlsTransport(WebTransport):
    """Says that it is encrypted."""

    def __init__(self) -> None:
        super().__init__()
        directlyProvides(self, ISSLTransport)

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is no TCP below."""


def test_over_tls_that_ends_here_no_header_has_to_say_so() -> None:
    console = Console()
    transport = TlsTransport()
    transport.protocol = channel = console.browser.channel.factory.buildProtocol(transport.address)
    channel.makeConnection(transport)
    console.browser.transport, console.browser.channel = transport, channel
    bare = {**HOST, **SHOWN, "x-beanstalk-request": "1"}
    for path in ("/login", "/logout"):
        cookie = console.ask("POST", path, bare).headers["set-cookie"]
        assert cookie.startswith(f"__Host-{COOKIE}-9300=") and "; Secure" in cookie


@pytest.mark.parametrize(
    ("cookie", "secret"),
    [
        ("", ""), ("beanstalk-login-9300=abc", "abc"), ("a=b; beanstalk-login-9300=abc;", "abc"),
        ("beanstalk-login-9301=abc", ""), ("beanstalk-login=abc", ""), ("beanstalk-login-9300", ""),
        ("beanstalk-login-9300=a; __Host-beanstalk-login-9300=b", "b"), (";;=;", ""),
    ],
)  # fmt: skip
def test_the_cookies_of_several_servers_of_a_host_are_told_apart(cookie: str, secret: str) -> None:
    assert secret_in({**HOST, "cookie": cookie}) == secret


def test_a_login_ends_after_half_a_day() -> None:
    now, held = [0.0], rules(it=VIEWER)
    made = logins(lambda: now[0])
    headers = sent_back(made.begin(HASH, OWN))
    now[0] = LOGIN_S - 1
    assert made.find(headers, held) == HASH
    now[0] = LOGIN_S
    assert made.find(headers, held) is None


def test_the_oldest_login_of_a_token_ends_with_one_too_many_and_no_other() -> None:
    made, held = logins(), rules(it=VIEWER, other=VIEWER)
    other = sent_back(made.begin(OTHER_HASH, OWN))
    mine = [sent_back(made.begin(HASH, OWN)) for _ in range(MAX_LOGINS)]
    assert all(made.find(each, held) == HASH for each in mine)
    mine.append(sent_back(made.begin(HASH, OWN)))
    assert [made.find(each, held) for each in mine] == [None, *[HASH] * MAX_LOGINS]
    assert made.find(other, held) == OTHER_HASH


def test_a_login_ends_for_good_when_its_token_is_taken_from_the_file() -> None:
    made = logins()
    headers = sent_back(made.begin(HASH, OWN))
    assert made.find(headers, rules(it=VIEWER)) == HASH
    assert made.find(headers, rules(other=VIEWER)) is None
    assert made.find(headers, rules(it=VIEWER)) is None


def test_who_logs_out_is_out_and_the_browser_forgets_the_cookie() -> None:
    console = Console()
    assert console.log_in().status == 200
    assert console.may_look
    reply = console.ask("POST", "/logout")
    assert (reply.status, reply.headers["set-cookie"]) == (
        200, f"{COOKIE}-9300=; {ATTRIBUTES}; Max-Age=0",
    )  # fmt: skip
    assert not console.may_look


def test_what_a_login_may_do_is_asked_with_each_request() -> None:
    console = Console()
    console.log_in()
    console.server.service.require_access(rules(it={"put": "mail"}), InlineHashing())
    reply = console.ask("GET", "/api/v1/server")
    assert (reply.status, reply.json["detail"]) == (403, "the access file gives no right to this")
    console.server.service.require_access(rules(), InlineHashing())
    assert console.ask("GET", "/api/v1/server").status == 401


def test_a_stream_ends_with_its_login() -> None:
    console = Console()
    console.log_in()
    console.browser.channel.factory.startFactory()
    stream = Browser(console.browser.channel.factory, console.server.clock)
    lines = "".join(f"{name}: {value}\r\n" for name, value in console.cookies.items())
    stream.send(f"GET /live HTTP/1.1\r\n{lines}\r\n".encode())
    console.server.advance(TICK_S)
    assert b"event: tick" in stream.transport.value
    console.ask("POST", "/logout")
    before = len(stream.transport.value)
    console.server.advance(TICK_S)
    assert b"event: tick" not in stream.transport.value[before:]


def test_the_page_and_its_files_are_for_everybody_and_hold_nothing() -> None:
    console = Console(rules())
    for path in ("/", "/login", "/static/login.js", "/static/console.css"):
        assert console.ask("GET", path).status == 200
    assert b'src="static/login.js"' in console.ask("GET", "/login").body


def test_a_wrong_token_begins_nothing_and_the_next_one_waits() -> None:
    console = Console()
    wrong = {**OWN, "authorization": f"Bearer {TOKEN.decode()[:-1]}x"}
    reply = console.ask("POST", "/login", wrong)
    assert reply.status == 401 and "set-cookie" not in reply.headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**OWN, **SHOWN}.items())
    console.browser.send(f"POST /login HTTP/1.1\r\n{lines}\r\n".encode())
    assert console.browser.transport.value == b""
    console.server.advance(1)
    assert parsed(console.browser.transport.value).status == 200


def test_a_token_that_may_not_look_at_all_begins_nothing_and_ends_nothing() -> None:
    console = Console(rules(it=VIEWER, other={"look": "mail"}))
    console.log_in()
    other = {"authorization": "Bearer bst_cccccccc_" + "d" * 32}
    reply = console.ask("POST", "/login", {**OWN, **other})
    assert (reply.status, reply.json["detail"]) == (
        403, "log in with a token that may look at all tubes",
    )  # fmt: skip
    assert "set-cookie" not in reply.headers
    # A browser goes on to send a password that it was once given.
    assert console.ask("GET", "/api/v1/server", {**OWN, **other}).status == 200


def test_a_login_is_begun_by_its_token_and_not_by_the_login_before() -> None:
    console = Console()
    console.log_in()
    reply = console.ask("POST", "/login")
    assert reply.status == 401 and "set-cookie" not in reply.headers


def test_who_needs_no_token_needs_no_login() -> None:
    console = Console(rules(anonymous=VIEWER))
    reply = console.ask("POST", "/login")
    assert reply.status == 200 and "set-cookie" not in reply.headers
    assert console.may_look


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [({}, CHALLENGE), ({"sec-fetch-dest": "document"}, CHALLENGE),
     ({"sec-fetch-dest": "empty"}, QUIET_CHALLENGE)],
)  # fmt: skip
def test_a_browser_asks_its_reader_by_itself_only_for_what_no_script_has_sent(
    headers: dict[str, str], challenge: str
) -> None:
    reply = Console().ask("GET", "/api/v1/server", {**HOST, **headers})
    assert (reply.status, reply.headers["www-authenticate"]) == (401, challenge)


# Pages of others, with the cookie: of another port of the same host, browsers send it along.

ATTACKS = {
    "a form": {**HOST, "content-type": "application/x-www-form-urlencoded"},
    "a form of another origin": {**HOST, "origin": "http://localhost:8080"},
    "a script of another port": {**OWN, "origin": "http://localhost:8080"},
    "a script of another site": {**OWN, "origin": "https://evil.example"},
    "a frame in a sandbox": {**OWN, "origin": "null"},
    "another site, as the browser says": {**OWN, "sec-fetch-site": "cross-site"},
    "a neighbour in the domain": {**OWN, "sec-fetch-site": "same-site"},
    "a name that leads here": {**OWN, "host": "evil.example:9300",
                               "origin": "http://evil.example:9300"},
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("path", ["/api/v1/server/drain", "/login", "/logout"])
def test_a_page_of_others_changes_nothing_with_the_cookie(attack: str, path: str) -> None:
    console = Console(rules(it={"admin": "*"}))
    console.log_in()
    headers = {**ATTACKS[attack], "cookie": console.cookies["cookie"]}
    reply = console.ask("POST", path, {**headers, **SHOWN})
    assert reply.status == (421 if "evil.example:" in headers["host"] else 403)
    assert "set-cookie" not in reply.headers
    assert not console.server.service.queue.puts.is_draining
    assert console.may_look
    assert console.ask("POST", "/api/v1/server/drain").status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
def test_only_a_post_changes_anything(method: str) -> None:
    console = Console(rules(it={"admin": "*"}))
    console.log_in()
    for path in ("/api/v1/server/drain", "/logout"):
        assert console.ask(method, path).status == 405
    assert console.may_look and not console.server.service.queue.puts.is_draining


@pytest.mark.parametrize("secret", ["", "A" * 43, "x", "%00", "é" * 9, "a" * 4000])
def test_a_made_up_cookie_is_nobodys(secret: str) -> None:
    console = Console()
    reply = console.ask("GET", "/api/v1/server", {**HOST, "cookie": f"{COOKIE}-9300={secret}"})
    assert reply.status == 401
