"""Whatever is asked, the answer is sound, nothing fails, and nothing that was not meant is done."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.logins import SECRET_BYTES, WRITE_HEADER, Logins
from beanstalk_twisted.web.routes import OPEN, ROUTES, Route
from beanstalk_twisted.web.site import HttpSettings
from tests.server.access.meeting import OTHER_HASH, TOKEN, guarded, rules
from tests.web.browsing import Browser, Reply, browse, site_of

SECRET = base64.urlsafe_b64encode(bytes(SECRET_BYTES)).decode().rstrip("=")
"""Of a login whose chance was all zeros."""

WORDS = st.sampled_from(["mail", "default", "1", "2", "99", "ready", "all", "-1", "0", "<script>",
                         "delete", "kick-dead", "size>0", "group=<b>", "1.r0-1"])  # fmt: skip
SEGMENTS = WORDS | st.text(min_size=1, max_size=20)
SCALARS: SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats(allow_nan=False) | SEGMENTS
)
FIELDS = st.sampled_from([
    "seconds", "count", "state", "body", "body_base64", "priority", "delay", "ttr", "tube",
    "max-reserves", "limit", "offset", "sort", "search", "cursor", "body_bytes",
    "action", "to", "newest_job", "ids", "states", "text", "any_case", "where", "fingerprint", "by",
])  # fmt: skip
VALUES = st.dictionaries(FIELDS | SEGMENTS, SCALARS | st.lists(SCALARS, max_size=2), max_size=4)
# A stream goes on: nothing behind it on its connection is answered.
ROUTE = st.sampled_from([route for route in ROUTES if route.operation != "live"])
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"])


def queries(route: Route) -> SearchStrategy[Any]:
    if not route.query:
        return st.just({}) | VALUES
    names = st.sampled_from([field.name for field in route.query])
    return st.dictionaries(names, SCALARS, max_size=4) | VALUES


def path_of(pattern: str, segments: list[str]) -> str:
    parts = [
        quote(segments.pop(), safe="") if part.startswith("{") else part
        for part in pattern.split("/")
    ]
    return "/".join(parts)


REQUESTS = st.lists(
    ROUTE.flatmap(
        lambda route: st.tuples(
            st.just(route),
            METHODS,
            st.lists(SEGMENTS, min_size=2, max_size=2),
            queries(route),
            VALUES,
        )
    ),
    max_size=8,
)
COOKIE = "beanstalk-login="
SHOWN: SearchStrategy[dict[str, str]] = st.fixed_dictionaries({}, optional={
    "authorization": st.sampled_from([f"Bearer {TOKEN.decode()}", "Basic Ong=", "Bearer x", ""]),
    "cookie": st.sampled_from(["", "=;=", COOKIE, f"{COOKIE}{'B' * 43}", f"{COOKIE}{SECRET}"]),
    "sec-fetch-dest": st.sampled_from(["empty", "document"]),
})  # fmt: skip
"""What says who asks: the token of a worker, the login of an administrator."""


def sent(browser: Browser, request: Any, shown: Mapping[str, str]) -> Reply:
    route, method, segments, query, fields = request
    pairs = "&".join(
        f"{quote(str(name), safe='')}={quote(str(value), safe='')}" for name, value in query.items()
    )
    body = json.dumps(fields).encode() if method == "POST" else b""
    path = f"{path_of(route.path, list(segments))}?{pairs}"
    reply = browser.ask(method, path, body, {WRITE_HEADER: "1", **shown})
    assert reply.status != 500
    assert reply.status == 405 or method in ("GET", "HEAD", "POST")
    if "json" in reply.headers["content-type"] and method != "HEAD":
        assert (reply.json["status"] == reply.status) if reply.status >= 400 else True
        assert b"<" not in reply.body
    return reply


def is_open(route: Route, method: str) -> bool:
    """Whether what this method does on the path of a route is for everybody."""
    of = "GET" if method == "HEAD" else method
    return any((each.path, each.method, each.asks) == (route.path, of, OPEN) for each in ROUTES)


@given(REQUESTS)
def test_any_request_is_answered_and_no_operation_fails(requests: list[Any]) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(b"use mail\r\nput 1 0 60 1\r\nx\r\nput 1 9 60 1\r\ny\r\n")
    browser = browse(server, may_write=True)
    for request in requests:
        sent(browser, request, {})
    # Nothing of all that is a connection any more, or has hurt this one.
    server.advance()
    assert server.service.queue.tally.connected == 1
    assert client.ask(b"list-tube-used\r\n") == b"USING mail\r\n"


@given(REQUESTS, st.lists(SHOWN, min_size=8, max_size=8))
def test_any_request_is_answered_where_rights_are_asked_for(
    requests: list[Any], headers: list[dict[str, str]]
) -> None:
    server = guarded(rules(it={"worker": "mail"}, other={"admin": "*"}))
    site = site_of(server, HttpSettings(may_write=True))
    site.logins = Logins(server.clock.seconds, bytes)
    site.logins.begin(OTHER_HASH, {})
    for request, shown in zip(requests, headers, strict=False):
        # After a wrong token the next one of the address waits for its time.
        server.advance(60)
        reply = sent(Browser(site, server.clock), request, shown)
        is_known = SECRET in shown.get("cookie", "") or TOKEN.decode() in str(shown)
        if not is_open(*request[:2]) and not is_known:
            assert reply.status in (400, 401, 404, 405), (request, shown, reply)
        assert (reply.status == 401) == ("www-authenticate" in reply.headers)
    server.advance()
    assert server.service.queue.tally.connected == 0
