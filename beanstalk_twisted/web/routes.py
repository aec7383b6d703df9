"""The routes: which path and method is which operation."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

TUBE: Final = "{tube}"

OPEN: Final = "open"
"""For everybody."""

SOME: Final = "some"
"""For identities that have any right."""

EVERYTHING: Final = "everything"
"""For identities that may look at all tubes, since all are in it."""

LOGIN: Final = "login"
"""As `EVERYTHING`, for the token that the request itself shows: an earlier login does not count."""

MANAGED: Final = "managed"
"""For identities that may manage all tubes."""

METRICS: Final = "metrics"
"""As `EVERYTHING`, or for everybody if the access file says so."""

COMMANDS: Final = "commands"
"""The commands that it runs ask."""

CRITERIA: Final = ("tube", "states", "text", "any_case", "where", "fingerprint")
"""Fields of a query that say which jobs are meant."""


class Route(NamedTuple):
    """One path and method.

    :ivar path: segments in braces are parameters: ``/api/v1/tubes/{tube}``.  In front of a tube's
        name a ``~`` is left out, which no name has: clients take ``.`` and ``..`` for steps in the
        path, even percent-encoded, but not ``~.`` and ``~..``.
    :ivar method: ``GET``, for ``HEAD`` too, or ``POST``, which only a program may send or a page of
        the endpoint itself.
    :ivar operation: its id, which no other row has.
    :ivar writes: whether it changes something; then it needs ``--http-write``.
    :ivar asks: whom it is for, with an access file (docs/access.md).
    :ivar query: the fields that its query may have.
    """

    path: str
    method: str
    operation: str
    writes: bool = False
    asks: str = COMMANDS
    query: tuple[str, ...] = ()

    def unknown_field(self, names: Iterable[str]) -> str | None:
        """Find the first field of a query that the operation would ignore; None outside the API,
        whose clients may have a reason for a query, such as to get around a cache.
        """
        if not self.path.startswith("/api/"):
            return None
        return next((name for name in names if name not in self.query), None)


OF_STANDBYS: Final = frozenset({
    "healthz", "readyz", "metrics", "getDescription", "getReplication",
})  # fmt: skip
"""Operations that a standby has too; all others are refused with the name of the active server."""

HEALTH_CHECKS: Final = frozenset({"healthz", "readyz", "metrics"})
"""Operations that are answered when there are too many connections for others."""

ROUTES: Final = (
    Route("/healthz", "GET", "healthz", asks=OPEN),
    Route("/readyz", "GET", "readyz", asks=OPEN),
    Route("/metrics", "GET", "metrics", asks=METRICS),
    Route("/", "GET", "console", asks=OPEN),
    Route("/static/{file}", "GET", "static", asks=OPEN),
    Route("/login", "GET", "login", asks=OPEN),
    Route("/login", "POST", "beginLogin", asks=LOGIN),
    Route("/logout", "POST", "endLogin", asks=OPEN),
    Route("/live", "GET", "live", asks=EVERYTHING),
    Route("/api/v1/openapi.json", "GET", "getDescription", asks=SOME),
    Route("/api/v1/server", "GET", "getServer", asks=EVERYTHING),
    Route("/api/v1/server/drain", "POST", "drain", writes=True),
    Route("/api/v1/server/undrain", "POST", "undrain", writes=True),
    Route("/api/v1/replication", "GET", "getReplication", asks=EVERYTHING),
    Route("/api/v1/replication/promote", "POST", "promote", writes=True),
    Route("/api/v1/log", "GET", "getLog", asks=EVERYTHING),
    Route("/api/v1/log/segments", "GET", "listSegments", asks=EVERYTHING,
          query=("after", "limit")),
    Route("/api/v1/connections", "GET", "listConnections"),
    Route("/api/v1/tubes", "GET", "listTubes", asks=EVERYTHING,
          query=("limit", "offset", "sort", "search")),
    Route("/api/v1/tubes/{tube}", "GET", "getTube"),
    Route("/api/v1/tubes/{tube}/history", "GET", "getTubeHistory", asks=EVERYTHING),
    Route("/api/v1/tubes/{tube}/pause", "POST", "pauseTube", writes=True),
    Route("/api/v1/tubes/{tube}/kick", "POST", "kickTube", writes=True),
    Route("/api/v1/tubes/{tube}/flush", "POST", "flushTube", writes=True),
    Route("/api/v1/tubes/{tube}/forget-key", "POST", "forgetKey", writes=True),
    Route("/api/v1/tubes/{tube}/policy", "POST", "setPolicy", writes=True),
    Route("/api/v1/policy-keys", "GET", "listPolicyKeys", asks=SOME),
    Route("/api/v1/tubes/{tube}/jobs", "GET", "listJobs",
          query=("state", "limit", "cursor", "body_bytes")),
    Route("/api/v1/tubes/{tube}/jobs", "POST", "putJob", writes=True),
    Route("/api/v1/search", "GET", "search", asks=EVERYTHING,
          query=(*CRITERIA, "limit", "body_bytes", "cursor")),
    Route("/api/v1/groups", "GET", "listGroups", asks=EVERYTHING,
          query=(*CRITERIA, "by", "body_bytes", "cursor")),
    Route("/api/v1/runs", "GET", "listRuns", asks=EVERYTHING),
    Route("/api/v1/runs", "POST", "beginRun", writes=True, asks=MANAGED),
    Route("/api/v1/runs/{run}", "GET", "getRun", asks=EVERYTHING),
    Route("/api/v1/runs/{run}/stop", "POST", "stopRun", writes=True, asks=MANAGED),
    Route("/api/v1/jobs/{job}", "GET", "getJob"),
    Route("/api/v1/jobs/{job}/kick", "POST", "kickJob", writes=True),
    Route("/api/v1/jobs/{job}/delete", "POST", "deleteJob", writes=True),
    Route("/api/v1/jobs/{job}/move", "POST", "moveJob", writes=True),
    Route("/api/v1/jobs/{job}/edit", "POST", "editJob", writes=True),
)  # fmt: skip


class NoRoute(Exception):
    """There is no such path."""


class WrongMethod(Exception):
    """The path has no such method.

    :ivar allowed: those that it has, as the header Allow says them.
    """

    def __init__(self, allowed: str) -> None:
        super().__init__(allowed)
        self.allowed = allowed


class RouteTable:
    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self.routes = routes
        self._literal: dict[str, dict[str, Route]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            if "{" in route.path:
                rows = self._patterns.setdefault(tuple(route.path.split("/")), {})
            else:
                rows = self._literal.setdefault(route.path, {})
            rows[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """:param path: as it came, percent signs included.
        :return: the route, and its parameters, decoded.
        :raise NoRoute: nothing is there, or a parameter is not UTF-8.
        :raise WrongMethod: something is, but not with this method.
        """
        rows, parameters = self._rows(path)
        route = rows.get("GET" if method == "HEAD" else method)
        if route is None:
            methods = [*rows, *(["HEAD"] if "GET" in rows else [])]
            raise WrongMethod(", ".join(sorted(methods)))
        return route, parameters

    def _rows(self, path: str) -> tuple[Mapping[str, Route], Mapping[str, str]]:
        rows = self._literal.get(path)
        if rows is not None:
            return rows, {}
        segments = path.split("/")
        for pattern, rows in self._patterns.items():
            parameters = _matched(pattern, segments)
            if parameters is not None:
                return rows, parameters
        raise NoRoute


def _matched(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """Return the parameters; None if the path is not of this pattern."""
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            try:
                value = unquote(segment, errors="strict")
            except UnicodeDecodeError:
                return None
            if wanted == TUBE:
                value = value.removeprefix("~")
            if not value:
                return None
            parameters[wanted[1:-1]] = value
        elif wanted != segment:
            return None
    return parameters
