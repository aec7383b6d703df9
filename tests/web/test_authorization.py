"""The access file over HTTP: who is asked, and what each route is for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.access.rules import ROLES, AccessRules, Grant, Granted
from beanstalk_twisted.server.access_control import FIRST_S
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.logins import CHALLENGE, MAX_CREDENTIALS, Credentials, credentials_of
from beanstalk_twisted.web.routes import COMMANDS, MANAGED, OPEN, ROUTES, SOME, Route
from beanstalk_twisted.web.site import TICK_S, HttpSettings
from beanstalk_twisted.wire.rights import LOOK, MANAGE, PUT
from tests.server.access.meeting import TOKEN, HeldHashing, InlineHashing, guarded, rules
from tests.web.browsing import Browser, Reply, parsed, site_of

BEARER = f"Bearer {TOKEN.decode()}"
WRONG = f"Bearer {TOKEN.decode()[:-1]}x"

NEEDED = {
    "listConnections": (LOOK, "every"), "getTube": (LOOK, "tube"), "listJobs": (LOOK, "tube"),
    "getJob": (LOOK, "tube"), "drain": (MANAGE, "every"), "undrain": (MANAGE, "every"),
    "promote": (MANAGE, "every"),
    "pauseTube": (MANAGE, "tube"), "kickTube": (LOOK | MANAGE, "tube"),
    "flushTube": (MANAGE, "tube"), "forgetKey": (MANAGE, "tube"),
    "setPolicy": (MANAGE, "tube"), "putJob": (PUT, "tube"),
    "kickJob": (MANAGE, "tube"), "deleteJob": (MANAGE, "tube"),
    "cancelJob": (MANAGE, "tube"), "moveJob": (MANAGE | PUT, "tube"),
    "editJob": (LOOK | MANAGE, "tube"),
}  # fmt: skip
"""All rights that the commands of a route need, and of what."""

BODIES: dict[str, dict[str, Any]] = {
    "pauseTube": {"seconds": 0}, "kickTube": {}, "flushTube": {"state": "buried"},
    "forgetKey": {"key": "k"},
    "setPolicy": {"max-jobs": 9}, "putJob": {"body": "x"}, "moveJob": {"tube": "own"},
    "editJob": {"priority": 1},
    "beginRun": {"action": "delete", "count": 1, "tube": "own"},
}  # fmt: skip


NOT_THERE = ("forgetKey", "getLog", "listSegments", "getRun", "stopRun")
"""Operations on what this server has none of: a log, runs."""
NOT_REPLICATED = ("promote",)
"""Operations that a server without ``--replicate`` refuses whoever asks for them."""


class Guarded:
    """A server that asks for rights, and its endpoint."""

    def __init__(self, held: AccessRules, hashing: Any = None) -> None:
        self.server: MemoryServer = guarded(held, hashing)
        queue, now_ns = self.server.service.queue, self.server.service.now_ns()
        session = queue.connect()
        for tube in (b"own", b"other"):
            queue.watching.use(session, now_ns, tube)
            queue.puts.put(session, now_ns, queue.puts.begin(session, now_ns), 0, 99, 60, b"x")
        self.site = site_of(self.server, HttpSettings(may_write=True))
        self.site.startFactory()

    def ask(
        self, route: Route, tube: str = "own", authorization: str = "", seconds: float = 0.5,
        body: Any = None,
    ) -> Reply:  # fmt: skip
        path = (
            route.path.replace("{tube}", tube).replace("{file}", "console.js").replace("{run}", "1")
        )
        path = path.replace("{job}", "1" if tube == "own" else "2")
        fields = body or BODIES.get(route.operation, {})
        content = json.dumps(fields).encode() if route.writes else b""
        head = f"{route.method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        if authorization:
            head += f"Authorization: {authorization}\r\n"
        if route.method == "POST":
            head += "X-Beanstalk-Request: 1\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(content)}\r\n\r\n"
        browser = Browser(self.site, self.server.clock)
        browser.send(head.encode() + content)
        self.server.advance(seconds)
        return parsed(browser.transport.value)


def may(route: Route, granted: Grant, tube: str) -> bool:
    if route.asks == OPEN:
        return True
    if route.asks == SOME:
        return bool(granted.anywhere)
    if route.asks == MANAGED:
        return bool(granted.everywhere & MANAGE)
    right, of = (LOOK, "every") if route.asks != COMMANDS else NEEDED[route.operation]
    has = granted.everywhere if of == "every" else granted.rights_of(tube.encode())
    return has & right == right


@pytest.mark.one_in(5)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_a_route_is_for_whom_the_table_says_and_for_nobody_else(route: Route) -> None:
    for name, pattern in [(role, each) for role in ROLES for each in ("own", "*")]:
        granted = Grant([Granted(name, pattern)])
        for tube in ("own", "other") if "{" in route.path else ("own",):
            anybody = Guarded(AccessRules([], granted))
            somebody = Guarded(rules(it={name: pattern}))
            case = route, granted.granted, tube
            if may(route, granted, tube):
                done = 404 if route.operation in NOT_THERE else 200
                done = 409 if route.operation in NOT_REPLICATED else done
                assert anybody.ask(route, tube).status == done, case
                assert somebody.ask(route, tube, BEARER).status == done, case
            else:
                reply = anybody.ask(route, tube)
                assert (reply.status, reply.headers["www-authenticate"]) == (401, CHALLENGE), case
                assert somebody.ask(route, tube, BEARER).status == 403, case
            if route.asks != OPEN:
                assert somebody.ask(route, tube).status == 401, case
                assert somebody.ask(route, tube, WRONG).status == 401, case


def test_each_route_says_for_whom_it_is() -> None:
    assert {route.operation for route in ROUTES if route.asks == COMMANDS} == set(NEEDED)
    assert all(route.asks in (COMMANDS, MANAGED) for route in ROUTES if route.writes)
    assert {route.operation for route in ROUTES if route.asks == OPEN} == {
        "healthz", "readyz", "console", "static", "login", "endLogin",
    }  # fmt: skip


def route_of(operation: str) -> Route:
    return next(route for route in ROUTES if route.operation == operation)


def test_a_run_has_the_rights_of_who_began_it() -> None:
    site = Guarded(rules(it={"manage": "*", "look": "*"}))
    body = {"action": "move", "to": "target", "count": 2}
    asked = site.ask(route_of("beginRun"), authorization=BEARER, body=body)
    run = json.loads(site.ask(route_of("getRun"), authorization=BEARER).body)
    assert asked.status == 200
    assert (run["state"], run["done"], run["why"]) == (
        "failed", 0, "the access file gives no right to this",
    )  # fmt: skip


def basic(name: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (BEARER, 200), ("bearer " + TOKEN.decode(), 200), (basic("it", TOKEN.decode()), 200),
        (basic("", TOKEN.decode()), 200), (basic("other", TOKEN.decode()), 401),
        (basic("it", "nonsense"), 401), ("Bearer", 401), ("Basic", 401), ("Basic !!!", 401),
        ("Digest x", 401), (TOKEN.decode(), 401),
    ],
)  # fmt: skip
def test_a_token_is_shown_as_bearer_or_as_the_password(authorization: str, status: int) -> None:
    site = Guarded(rules(it={"look": "*"}))
    reply = site.ask(route_of("getServer"), authorization=authorization)
    assert reply.status == status
    assert TOKEN not in reply.body


def test_metrics_may_be_opened_to_everybody() -> None:
    for is_open in (False, True):
        site = Guarded(AccessRules(has_open_metrics=is_open))
        assert site.ask(route_of("metrics")).status == (200 if is_open else 401)
        assert site.ask(route_of("getServer")).status == 401


def test_a_wrong_token_has_the_next_one_wait_and_nobody_else() -> None:
    site = Guarded(rules(it={"look": "*"}))
    server = route_of("getServer")
    assert site.ask(server, authorization=WRONG, seconds=0).status == 401
    browser = Browser(site.site, site.server.clock)
    browser.send(f"GET {server.path} HTTP/1.1\r\nHost: localhost\r\n"
                 f"Authorization: {BEARER}\r\n\r\n".encode())  # fmt: skip
    assert browser.transport.value == b""
    assert site.ask(route_of("healthz"), seconds=0).status == 200
    site.server.advance(FIRST_S)
    assert parsed(browser.transport.value).status == 200


def test_who_leaves_while_a_token_is_compared_is_not_answered() -> None:
    hashing = HeldHashing()
    site = Guarded(rules(it={"admin": "*"}), hashing)
    browser = Browser(site.site, site.server.clock)
    browser.send(f"POST /api/v1/server/drain HTTP/1.1\r\nHost: localhost\r\n"
                 f"X-Beanstalk-Request: 1\r\nContent-Length: 2\r\n"
                 f"Authorization: {BEARER}\r\n\r\n{{}}".encode())  # fmt: skip
    browser.transport.abortConnection()
    hashing.work()
    site.server.advance(1)
    assert not site.server.service.queue.puts.is_draining


def test_a_stream_ends_when_the_file_is_read_again_and_who_comes_again_is_asked() -> None:
    site = Guarded(rules(it={"look": "*"}))
    browser = Browser(site.site, site.server.clock)
    request = f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: {BEARER}\r\n\r\n".encode()
    browser.send(request)
    site.server.advance(TICK_S)
    assert b"event: tick" in browser.transport.value
    site.server.service.require_access(rules(), InlineHashing())
    before = len(browser.transport.value)
    site.server.advance(TICK_S)
    assert b"event: tick" not in browser.transport.value[before:]
    assert site.ask(route_of("live"), authorization=BEARER).status == 401


@pytest.mark.parametrize(
    ("operation", "authorization", "told"),
    [
        ("setPolicy", BEARER,
         "it at {who} over HTTP: tube-policy tube=own policy=max-jobs=9: POLICY"),
        ("putJob", BEARER, "it at {who}: HTTP /api/v1/tubes/own/jobs: 200"),
        ("drain", BEARER, "it at {who}: HTTP /api/v1/server/drain: 403"),
        ("beginRun", BEARER, "it at {who}: HTTP /api/v1/runs: 403"),
        ("drain", "", "anonymous at {who}: HTTP /api/v1/server/drain: 401"),
        ("drain", WRONG, "{who}: HTTP /api/v1/server/drain: 401"),
    ],
)  # fmt: skip
def test_the_audit_says_who_has_changed_something_or_tried_to(
    operation: str, authorization: str, told: str
) -> None:
    site = Guarded(rules(it={"manage": "own", "put": "own"}))
    with capturedLogs() as events:
        site.ask(route_of(operation), authorization=authorization)
    (line,) = [formatEvent(each) for each in events if each["event"] == "audit"]
    assert line.startswith(told.format(who="127.0.0.1:4711"))


@given(st.text() | st.text().map("Basic {}".format) | st.text().map("Bearer {}".format))
def test_any_header_is_credentials_or_none(header: str) -> None:
    found = credentials_of(header)
    assert found is None or len(found.token) <= MAX_CREDENTIALS


@given(
    st.text(st.characters(codec="utf-8", exclude_characters=":"), max_size=20),
    st.binary(max_size=50),
)
def test_a_name_and_a_token_are_read_as_they_were_written(name: str, token: bytes) -> None:
    raw = base64.b64encode(name.encode() + b":" + token).decode()
    assert credentials_of(f"Basic {raw}") == Credentials(token, name)
