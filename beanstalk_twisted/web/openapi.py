"""The description of the API, made from its routes (OpenAPI 3.1)."""

from collections.abc import Iterable
from typing import Any, Final

from beanstalk_twisted.web.logins import WRITE_HEADER
from beanstalk_twisted.web.replies import SCHEMAS
from beanstalk_twisted.web.routes import API, ROUTES, Route
from beanstalk_twisted.web.schemas import Field, Schema, ref

PARAMETERS: Final = "#/components/parameters/"

PROBLEM: Final = {"$ref": "#/components/responses/Problem"}

ABOUT: Final = (
    "What docs/monitoring.md tells of: a server's tubes, jobs, connections and log; with "
    "--http-write, changes. Numbers are counted as in stats, stats-tube and stats-job, with _ "
    "for -."
)

SCHEMES: Final[dict[str, Schema]] = {
    "token": {
        "type": "http", "scheme": "bearer",
        "description": "With --access: a token of its file, made by beanstalk token",
    },
    "password": {
        "type": "http", "scheme": "basic",
        "description": "The same as the password; as the user the identity's name, or nothing",
    },
    "login": {
        "type": "apiKey", "in": "cookie", "name": "beanstalk-login-9300",
        "description": "The console's, by POST /login; behind its last - the port of the address, "
                       "over TLS __Host- before it",
    },
}  # fmt: skip

WRITE: Final = {
    "name": WRITE_HEADER.title(), "in": "header", "required": True,
    "description": "Any value: says that no other web page sends this",
    "schema": {"type": "string"},
}  # fmt: skip


def description(routes: Iterable[Route] = ROUTES) -> dict[str, Any]:
    """Describe these routes, those outside the API aside."""
    paths: dict[str, dict[str, Any]] = {}
    shared: dict[str, Any] = {"request": WRITE}
    for route in routes:
        if route.path.startswith(API):
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shared)
    return {
        "openapi": "3.1.0",
        "info": {"title": "beanstalk-twisted", "version": "1", "description": ABOUT},
        "security": [{}, *({name: []} for name in SCHEMES)],
        "paths": paths,
        "components": {
            "parameters": shared,
            "responses": {"Problem": {
                "description": "Why not (RFC 9457)",
                "content": {"application/problem+json": {"schema": ref("Problem")}},
            }},
            "schemas": SCHEMAS, "securitySchemes": SCHEMES,
        },
    }  # fmt: skip


def _operation(route: Route, shared: dict[str, Any]) -> dict[str, Any]:
    """:param shared: takes the parameters that several operations have."""
    parameters = []
    for place, fields in (("path", route.path_fields), ("query", route.query)):
        parameters += [_parameter(field, place, shared) for field in fields]
    if route.writes:
        parameters.append({"$ref": PARAMETERS + "request"})
    about: dict[str, Any] = {"operationId": route.operation, "summary": route.summary}
    if parameters:
        about["parameters"] = parameters
    if route.writes:
        about["requestBody"] = {"required": route.needs_body, "content": _json(_body(route))}
    reply = ref(route.reply) if isinstance(route.reply, str) else route.reply
    done = {
        "description": "Done" if route.writes else "What was asked for",
        "content": _json(reply),
    }
    problems = ("400", "401", "403", *map(str, route.problems), "default")
    about["responses"] = {"200": done, **dict.fromkeys(problems, PROBLEM)}
    return about


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameter(field: Field, place: str, shared: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": field.name, "in": place, "schema": field.schema}
    if place == "path":
        made["required"] = True
    if field.about:
        made["description"] = field.about
    if not field.shared:
        return made
    shared[field.shared] = made
    return {"$ref": PARAMETERS + field.shared}


def _body(route: Route) -> Schema:
    if route.body is None:
        return route.free_body
    required = [field.name for field in route.body if field.is_required]
    described = {
        field.name: {**field.schema, **({"description": field.about} if field.about else {})}
        for field in route.body
    }
    schema = {"type": "object", "properties": described, "additionalProperties": False}
    return {**schema, "required": required} if required else schema
