"""Finding a route by method and path."""

from __future__ import annotations

import pytest

from beanstalk_twisted.web.routes import ROUTES, NoRoute, Route, RouteTable, WrongMethod

TABLE = RouteTable((
    Route("/tubes", "GET", "list"),
    Route("/tubes/{tube}", "GET", "show"),
    Route("/tubes/{tube}", "POST", "change", writes=True),
    Route("/tubes/{tube}/jobs/{job}", "GET", "job"),
))  # fmt: skip


def test_a_path_without_parameters_is_found() -> None:
    assert TABLE.find("GET", "/tubes") == (Route("/tubes", "GET", "list"), {})


def test_parameters_are_decoded() -> None:
    route, parameters = TABLE.find("GET", "/tubes/a%2Fb%3C/jobs/12")
    assert (route.operation, parameters) == ("job", {"tube": "a/b<", "job": "12"})


def test_the_method_chooses_and_head_is_get() -> None:
    assert TABLE.find("POST", "/tubes/x")[0].operation == "change"
    assert TABLE.find("HEAD", "/tubes/x")[0].operation == "show"


def test_a_wrong_method_says_which_there_are() -> None:
    with pytest.raises(WrongMethod) as wrong:
        TABLE.find("DELETE", "/tubes/x")
    assert wrong.value.allowed == "GET, HEAD, POST"


@pytest.mark.parametrize("path", ["", "/", "/tubes/", "/tubes/x/jobs", "/tubes/%ff", "/Tubes", "*"])
def test_other_paths_are_nowhere(path: str) -> None:
    with pytest.raises(NoRoute):
        TABLE.find("GET", path)


def test_the_table_has_each_operation_once_and_writes_are_posts() -> None:
    assert len({route.operation for route in ROUTES}) == len(ROUTES)
    assert len({(route.path, route.method) for route in ROUTES}) == len(ROUTES)
    posts = {route.operation for route in ROUTES if route.method == "POST"}
    writes = {route.operation for route in ROUTES if route.writes}
    assert posts == writes | {"beginLogin", "endLogin"}
    assert {route.method for route in ROUTES} == {"GET", "POST"}


def test_a_tilde_before_a_tubes_name_is_left_out() -> None:
    table = RouteTable()
    for path, name in (("~..", ".."), ("%7E.", "."), ("~~", "~"), ("a~", "a~"), ("..", "..")):
        assert table.find("GET", f"/api/v1/tubes/{path}")[1] == {"tube": name}
    with pytest.raises(NoRoute):
        table.find("GET", "/api/v1/tubes/~")
    assert table.find("GET", "/api/v1/jobs/~1")[1] == {"job": "~1"}
