"""From a request to its operation, and who is not answered."""

from __future__ import annotations

import re

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.web.logins import HEADERS, WRITE_HEADER
from beanstalk_twisted.web.routes import MAX_SHOWN_NAME, ROUTES, Route
from beanstalk_twisted.web.site import MAX_QUERY_FIELDS
from tests.web.browsing import Browser, browse

WRITING = {WRITE_HEADER: "1"}


def echo(call: Call) -> Document:
    return json_document({"query": dict(call.query), "body": call.body.decode(), "peer": call.peer})


def test_what_was_asked_comes_to_the_operation() -> None:
    reply = browse(MemoryServer(), echo=echo).ask("GET", "/echo?a=1&b=%3Cscript%3E&a=2")
    assert reply.json == {
        "query": {"a": "2", "b": "<script>"},
        "body": "",
        "peer": "127.0.0.1:4711",
    }
    assert b"<" not in reply.body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path.startswith("/api/")],
    ids=lambda route: route.operation,
)
def test_a_field_of_a_query_that_nobody_reads_is_refused_with_those_that_are(
    route: Route, method: str
) -> None:
    path = re.sub(r"{\w+}", "1", route.path)
    browser = browse(MemoryServer(), may_write=True)
    asked = "POST" if route.writes else method
    names = [field.name for field in route.query]
    for name in ("nonsense", "", "Limit", "x" * 101):
        reply = browser.ask(asked, f"{path}?{name}=1", headers=WRITING)
        assert reply.status == 400, name
        if asked != "HEAD":
            known = ", ".join(names)
            told = f"known are {known}" if known else "this path takes none"
            detail = f"unknown field of the query: {name[:MAX_SHOWN_NAME]}; {told}"
            assert reply.json["detail"] == detail
    for name in names:
        reply = browser.ask("GET", f"{path}?{name}=1")
        assert "unknown" not in reply.json.get("detail", ""), name


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/static/console.js"])
def test_a_query_outside_the_api_is_nobodys_concern(path: str) -> None:
    assert browse(MemoryServer()).ask("GET", f"{path}?v=1").status == 200


def test_each_reply_has_the_headers_that_bind_browsers_and_none_that_tells_of_us() -> None:
    browser = browse(MemoryServer())
    for path in ("/healthz", "/nowhere"):
        reply = browser.ask("GET", path)
        assert all(reply.headers[name.lower()] == value for name, value in HEADERS.items())
        assert "server" not in reply.headers


def test_an_unknown_path_is_404_and_a_wrong_method_405() -> None:
    browser = browse(MemoryServer())
    assert browser.ask("GET", "/%3Cscript%3E").status == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"):
        reply = browser.ask(method, "/healthz")
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_another_host_is_misdirected() -> None:
    browser = browse(MemoryServer(), "queue.example")
    assert browser.ask("GET", "/healthz", headers={"host": "evil.example"}).status == 421
    assert browser.ask("GET", "/healthz", headers={"host": "queue.example:9300"}).status == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n", b"421"),
    ],
)
def test_a_request_of_http_1_1_names_its_host_once(request_: bytes, status: bytes) -> None:
    assert browse(MemoryServer()).send(request_).split()[1] == status


def test_nothing_is_changed_unless_the_server_was_told_that_it_may_be() -> None:
    calls: list[Call] = []

    def change(call: Call) -> Document:
        calls.append(call)
        return json_document(None)

    closed = browse(MemoryServer(), change=change)
    assert closed.ask("POST", "/change", headers=WRITING).status == 403
    open_ = browse(MemoryServer(), may_write=True, change=change)
    assert open_.ask("POST", "/change").status == 403
    for foreign in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
        assert open_.ask("POST", "/change", headers={**WRITING, **foreign}).status == 403
    assert not calls
    assert open_.ask("POST", "/change", headers=WRITING).status == 200
    assert len(calls) == 1


def test_a_query_of_too_many_fields_is_refused() -> None:
    browser = browse(MemoryServer(), echo=echo)
    most = "&".join(f"{number}=1" for number in range(MAX_QUERY_FIELDS))
    assert browser.ask("GET", f"/echo?{most}").status == 200
    assert browser.ask("GET", f"/echo?{most}&x=1").status == 400
    assert browser.ask("GET", "/echo?a=%ff").status == 400


def test_a_failing_operation_shows_nothing_of_why(clean_reactor: list[Failure]) -> None:
    def fail(call: Call) -> Document:
        raise ValueError("secret")

    reply = browse(MemoryServer(), fail=fail).ask("GET", "/fail")
    assert reply.status == 500
    assert b"secret" not in reply.body
    (failure,) = clean_reactor
    assert failure.check(ValueError)
    clean_reactor.clear()


def refuse(call: Call) -> Document:
    raise Refusal(409, "not now")


def test_an_operation_may_refuse() -> None:
    reply = browse(MemoryServer(), refuse=refuse).ask("GET", "/refuse")
    assert (reply.status, reply.headers["content-type"]) == (409, "application/problem+json")
    assert reply.json == {"status": 409, "title": "Conflict", "detail": "not now"}


class Waiting:
    """An operation that answers later."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.answer: Deferred[Document] = Deferred(self._cancel)

    def _cancel(self, answer: object) -> None:
        self.is_cancelled = True

    def __call__(self, call: Call) -> Deferred[Document]:
        return self.answer


def asked(waiting: Waiting) -> Browser:
    browser = browse(MemoryServer(), wait=waiting)
    assert browser.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    return browser


def test_an_answer_may_come_later_and_be_a_refusal() -> None:
    waiting, other = Waiting(), Waiting()
    browser, second = asked(waiting), asked(other)
    waiting.answer.errback(Failure(Refusal(404, "gone")))
    assert b" 404 Not Found\r\n" in browser.transport.value
    other.answer.callback(json_document(7))
    assert second.transport.value.endswith(b"\r\n\r\n7\n")


def test_an_answer_that_nobody_waits_for_is_cancelled() -> None:
    waiting = Waiting()
    asked(waiting).transport.abortConnection()
    assert waiting.is_cancelled
