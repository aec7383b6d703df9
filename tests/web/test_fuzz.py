"""
Whatever is asked, the answer is sound, nothing fails, and nothing that was not meant is done.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.guards import WRITE_HEADER
from beanstalk_twisted.web.routes import ROUTES, Route
from tests.web.browsing import browse

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
    """
    Queries of fields that the route knows, and a few of any.
    """
    if not route.query:
        return st.just({}) | VALUES
    return st.dictionaries(st.sampled_from(route.query), SCALARS, max_size=4) | VALUES


def path_of(pattern: str, segments: list[str]) -> str:
    """
    A path of a route, with these parameters.
    """
    parts = [
        quote(segments.pop(), safe="") if part.startswith("{") else part
        for part in pattern.split("/")
    ]
    return "/".join(parts)


@given(
    st.lists(
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
)
def test_any_request_is_answered_and_no_operation_fails(requests: list[Any]) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(b"use mail\r\nput 1 0 60 1\r\nx\r\nput 1 9 60 1\r\ny\r\n")
    browser = browse(server, may_write=True)
    for route, method, segments, query, fields in requests:
        pairs = "&".join(
            f"{quote(str(name), safe='')}={quote(str(value), safe='')}"
            for name, value in query.items()
        )
        body = json.dumps(fields).encode() if method == "POST" else b""
        path = f"{path_of(route.path, segments)}?{pairs}"
        reply = browser.ask(method, path, body, {WRITE_HEADER: "1"})
        assert reply.status != 500
        assert reply.status == 405 or method in ("GET", "HEAD", "POST")
        is_json = "json" in reply.headers["content-type"]
        if is_json and method != "HEAD":
            assert (reply.json["status"] == reply.status) if reply.status >= 400 else True
            assert b"<" not in reply.body
    # Nothing of all that is a connection any more, or has hurt this one.
    server.advance()
    assert server.service.queue.tally.connected == 1
    assert client.ask(b"list-tube-used\r\n") == b"USING mail\r\n"
