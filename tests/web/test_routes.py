"""Finding a route by method and path."""

from __future__ import annotations

import pytest

from beanstalk_twisted.web.routes import NoRoute, Route, RouteTable, WrongMethod

TABLE = RouteTable((
    Route("/tubes", "GET", "list"),
    Route("/tubes/{tube}", "GET", "show"),
    Route("/tubes/{tube}", "POST", "change", writes=True),
    Route("/tubes/{tube}/jobs/{job}", "GET", "job"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "operation", "parameters"),
    [
        ("GET", "/tubes", "list", {}),
        ("GET", "/tubes/a%2Fb%3C/jobs/12", "job", {"tube": "a/b<", "job": "12"}),
        ("POST", "/tubes/x", "change", {"tube": "x"}), ("HEAD", "/tubes/x", "show", {"tube": "x"}),
    ],
)  # fmt: skip
def test_a_path_is_found_by_its_method_with_parameters_decoded(
    method: str, path: str, operation: str, parameters: dict[str, str]
) -> None:
    route, found = TABLE.find(method, path)
    assert (route.operation, found) == (operation, parameters)


def test_a_wrong_method_says_which_there_are() -> None:
    with pytest.raises(WrongMethod) as wrong:
        TABLE.find("DELETE", "/tubes/x")
    assert wrong.value.allowed == "GET, HEAD, POST"


@pytest.mark.parametrize("path", ["", "/", "/tubes/", "/tubes/x/jobs", "/tubes/%ff", "/Tubes", "*"])
def test_other_paths_are_nowhere(path: str) -> None:
    with pytest.raises(NoRoute):
        TABLE.find("GET", path)


def test_a_tilde_before_a_tubes_name_is_left_out() -> None:
    table = RouteTable()
    for path, name in (("~..", ".."), ("%7E.", "."), ("~~", "~"), ("a~", "a~"), ("..", "..")):
        assert table.find("GET", f"/api/v1/tubes/{path}")[1] == {"tube": name}
    with pytest.raises(NoRoute):
        table.find("GET", "/api/v1/tubes/~")
    assert table.find("GET", "/api/v1/jobs/~1")[1] == {"job": "~1"}
