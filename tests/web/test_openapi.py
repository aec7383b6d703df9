"""The description of the API is that of the routes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.logins import WRITE_HEADER, credentials_of, secret_in
from beanstalk_twisted.web.routes import ROUTES, Route
from beanstalk_twisted.wire.grammar import MAX_U64
from tests.web.browsing import V1, Caller, browse

API = [route for route in ROUTES if route.path.startswith("/api/")]
DESCRIPTION: Any = browse(MemoryServer()).ask("GET", "/api/v1/openapi.json").json


def resolved(value: Any) -> Any:
    while "$ref" in value:
        found = DESCRIPTION
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def operation(route: Route) -> Any:
    return DESCRIPTION["paths"][route.path][route.method.lower()]


def body_of(route: Route) -> Any:
    return operation(route)["requestBody"]["content"]["application/json"]["schema"]


def parameters(route: Route, place: str) -> dict[str, Any]:
    given = [resolved(each) for each in operation(route).get("parameters", ())]
    return {each["name"]: each["schema"] for each in given if each["in"] == place}


def test_it_has_the_routes_of_the_table_and_no_others() -> None:
    described = {
        (path, method.upper(), about["operationId"])
        for path, methods in DESCRIPTION["paths"].items()
        for method, about in methods.items()
    }
    assert described == {(route.path, route.method, route.operation) for route in API}


@pytest.mark.parametrize("route", API, ids=lambda route: route.operation)
def test_a_route_is_described_as_it_is(route: Route) -> None:
    about = operation(route)
    assert set(parameters(route, "path")) == set(re.findall(r"{(\w+)}", route.path))
    headers = {name.lower() for name in parameters(route, "header")}
    assert headers == ({WRITE_HEADER} if route.writes else set())
    names = [field.name for field in route.query]
    assert list(parameters(route, "query")) == names
    assert len(names) == len(set(names))
    assert ("requestBody" in about) is route.writes
    assert {"401", "403"} <= set(about["responses"]) and "security" not in about
    assert about["summary"]
    for reply in about["responses"].values():
        assert resolved(reply)["description"]


def test_it_says_how_a_request_shows_who_asks_and_that_without_access_nobody_has_to() -> None:
    schemes = DESCRIPTION["components"]["securitySchemes"]
    assert DESCRIPTION["security"] == [{}, *({name: []} for name in schemes)]
    http = {each["scheme"] for each in schemes.values() if each["type"] == "http"}
    (cookie,) = [each["name"] for each in schemes.values() if each["type"] == "apiKey"]
    for scheme in http:
        assert credentials_of(f"{scheme} Ong=") is not None
    assert secret_in({"host": "localhost:9300", "cookie": f"{cookie}=x"}) == "x"


LOOKS = [route for route in API if route.query]


def wrong_and_right(schema: Any) -> tuple[list[Any], list[Any]]:
    """Values of a query's field, by what the description says of it."""
    if "enum" in schema:
        return ["nonsense", "1e1"], schema["enum"]
    if schema["type"] == "string":
        return [], [""]
    low, high = schema["minimum"], schema.get("maximum", MAX_U64)
    return [low - 1, high + 1, "", "x", "1.0", f"%2B{high}", "%C2%B2", 5000 * "9"], [
        low,
        high,
        schema["default"],
    ]


@pytest.mark.parametrize("route", LOOKS, ids=lambda route: route.operation)
def test_values_are_taken_up_to_their_limits_and_not_beyond(route: Route) -> None:
    caller = Caller()
    caller.put(b"mail", b"x")
    path = route.path.removeprefix(V1).replace("{tube}", "mail")
    for name, schema in parameters(route, "query").items():
        wrong, right = wrong_and_right(schema)
        for value in right if name != "cursor" else ():
            reply = caller.browser.ask("GET", f"{V1}{path}?{name}={value}")
            assert reply.status in (200, 404), (name, value)
        for value in wrong:
            assert name in caller.get(f"{path}?{name}={value}", 400)["detail"], (name, value)


WRITES = [
    (route, name, schema)
    for route in API if route.writes
    for name, schema in body_of(route).get("properties", {}).items()
]  # fmt: skip


@pytest.mark.parametrize(
    ("route", "name", "schema"), WRITES, ids=[f"{each[0].operation}-{each[1]}" for each in WRITES]
)
def test_fields_of_a_body_are_checked_by_what_is_said_of_them(
    route: Route, name: str, schema: Any
) -> None:
    path = route.path.removeprefix(V1).replace("{tube}", "mail").replace("{run}", "1")
    path = path.replace("{job}", "1")
    caller = Caller()
    caller.put(b"mail", b"x")
    given = {"seconds": 1, "state": "all", "key": "k", "body": "x", "tube": "other"}
    given |= {"action": "delete", "count": 1, "standby": "x"}
    of_it = {key: given[key] for key in given if key in body_of(route)["properties"]}
    wrong: list[Any] = [[], {}, True, 1.5]
    if schema["type"] == "integer":
        wrong += [schema["minimum"] - 1, schema["maximum"] + 1, "1", None]
    for value in wrong if schema["type"] != "array" else ({}, "x", [-1], [True], ["1"]):
        if "base64" in name:
            of_it.pop("body", None)
        detail = caller.post(path, 400, **{**of_it, name: value})["detail"]
        assert detail.startswith((f"{name} ", "tube "))
    assert caller.post(path, 400, **of_it, unknown=1)["detail"] == "unknown field: unknown"
    assert caller.state(1) == "ready"


KINDS = {
    "integer": int, "number": int | float, "string": str, "boolean": bool, "array": list,
    "object": dict, "null": type(None),
}  # fmt: skip


def is_a(value: object, kinds: str | list[str]) -> bool:
    named = [kinds] if isinstance(kinds, str) else kinds
    return any(isinstance(value, KINDS[kind]) for kind in named)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/server", "Stats"), ("/jobs/1", "Job"), ("/tubes/default/jobs", "Job"),
        ("/search", "Job"), ("/connections", "Connection"), ("/tubes/default", "Tube"),
        ("/tubes", "Tube"), ("/log", "Log"), ("/log/segments", "Segment"), ("/groups", "Group"),
        ("/replication", "Replication"),
    ],
)  # fmt: skip
def test_all_keys_of_a_reply_are_described(path: str, name: str) -> None:
    caller = Caller()
    caller.ask(b"put 1 0 61 1 meta:a grp:g con:c idp:k\r\nx\r\n")
    caller.ask(b"watch default\r\nreserve\r\n")
    described = DESCRIPTION["components"]["schemas"][name]
    shown = caller.get(path)
    (shown, *_) = next((value for value in shown.values() if isinstance(value, list)), [shown])
    assert set(described["required"]) <= set(shown)
    for key, value in shown.items():
        about = resolved(described["properties"][key])
        assert is_a(value, about["type"]), key
