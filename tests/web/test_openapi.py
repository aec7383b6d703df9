"""The description of the API is that of the routes."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest

from beanstalk_twisted.storage.compactor import Kept
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.api import fields, reading, runs
from beanstalk_twisted.web.api.search import MAX_FOUND_JOBS, MAX_SAMPLE_BYTES
from beanstalk_twisted.web.logins import WRITE_HEADER, credentials_of, secret_in
from beanstalk_twisted.web.routes import CRITERIA, ROUTES, Route
from beanstalk_twisted.wire.grammar import MAX_U32
from tests.web.browsing import browse, site_of

API = [route for route in ROUTES if route.path.startswith("/api/")]
DESCRIPTION: Any = json.loads(
    resources.files("beanstalk_twisted.web").joinpath("openapi.json").read_text()
)


def resolved(value: Any) -> Any:
    while "$ref" in value:
        found = DESCRIPTION
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def operation(route: Route) -> Any:
    return DESCRIPTION["paths"][route.path][route.method.lower()]


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
    assert set(parameters(route, "query")) == set(route.query)
    assert len(route.query) == len(set(route.query))
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


def test_its_limits_are_those_of_the_code() -> None:
    by_name = {route.operation: route for route in API}
    tubes = parameters(by_name["listTubes"], "query")
    assert tubes["limit"]["maximum"] == reading.MAX_PAGE_TUBES
    assert tubes["offset"]["maximum"] == reading.MAX_OFFSET
    assert tubes["sort"]["enum"] == list(reading.SORTS)
    jobs = parameters(by_name["listJobs"], "query")
    assert jobs["limit"]["maximum"] == reading.MAX_PAGE_JOBS
    assert jobs["body_bytes"]["maximum"] == reading.MAX_LIST_BODY
    segments = parameters(by_name["listSegments"], "query")
    assert segments["limit"]["maximum"] == reading.MAX_PAGE_SEGMENTS
    kept = DESCRIPTION["components"]["schemas"]["Log"]["properties"]["oldest_kept"]["enum"]
    assert kept == list(Kept)
    search = parameters(by_name["search"], "query")
    assert search["limit"]["maximum"] == MAX_FOUND_JOBS
    assert search["body_bytes"]["maximum"] == MAX_SAMPLE_BYTES
    assert search["text"]["maxLength"] == fields.MAX_TEXT_BYTES
    assert search["where"]["maxLength"] == fields.MAX_WHERE
    begun = operation(by_name["beginRun"])["requestBody"]["content"]["application/json"]["schema"]
    assert begun["properties"]["action"]["enum"] == list(runs.ACTIONS)
    assert begun["properties"]["ids"]["maxItems"] == runs.MAX_IDS
    assert set(CRITERIA) < set(begun["properties"])
    told = search["where"], parameters(by_name["listGroups"], "query")["where"]
    assert told[0] == told[1]
    pause = operation(by_name["pauseTube"])["requestBody"]["content"]["application/json"]
    assert pause["schema"]["properties"]["seconds"]["maximum"] == MAX_U32


def test_each_route_of_the_table_has_its_operation() -> None:
    site = site_of(MemoryServer())
    assert {route.operation for route in ROUTES} == set(site.operations)


def test_it_is_served() -> None:
    reply = browse(MemoryServer()).ask("GET", "/api/v1/openapi.json")
    assert reply.json == DESCRIPTION
    assert b"<" not in reply.body, "as in all replies; the file has \\u003c"
