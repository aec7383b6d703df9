"""The routes: which path and method is which operation."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from beanstalk_twisted.client.commands.specs import DEFAULT_PRIORITY, DEFAULT_TTR_S
from beanstalk_twisted.rules.looks import SHOWN_RESERVED
from beanstalk_twisted.web.api.fields import CRITERIA, LOOK_BODY_BYTES, LOOK_JOBS, STATES
from beanstalk_twisted.web.exchange import Call, Refusal
from beanstalk_twisted.web.schemas import (
    ANYTHING,
    INTEGER,
    NOTHING,
    STRING,
    U32,
    Field,
    Schema,
    checked,
    choice,
    count,
    free,
    many,
    object_of,
    of,
    record,
    ref,
    text,
    whole,
)
from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME, MAX_U32, MAX_U64

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

API: Final = "/api/v1/"

MAX_SHOWN_NAME: Final = 100
"""Characters of an unknown field's name that a refusal repeats: more than any known one has."""

MAX_PAGE_TUBES: Final = 200
"""Tubes of a page: more than anybody reads, and some 4 ms to describe."""

MAX_OFFSET: Final = 1000
"""Tubes before a page: those after them are found by a search, or another order."""

MAX_SEARCH: Final = 200
"""Characters of a search: a name has no more."""

MAX_PAGE_SEGMENTS: Final = 100
"""Segments of a page: the I/O thread reads at most so many headers for it, 3 ms in slices."""

MAX_PAGE_JOBS: Final = 200

MAX_LIST_BODY: Final = 4096
"""Bytes of each body that a list of jobs shows: its beginning tells what it is."""

MAX_SHOWN_BODY: Final = 256 << 10
"""Bytes of a body that a job's description shows."""

MAX_FOUND_JOBS: Final = 200
"""Jobs that one request finds: more than anybody reads."""

MAX_SAMPLE_BYTES: Final = 4096
"""Bytes of each body that are shown."""

ACTIONS: Final = ("kick", "kick-dead", "return", "move", "delete")

MAX_IDS: Final = 1000
"""Jobs that a request may name: five times those that a page of the console shows."""

SORTED_BY: Final = ("name", "activity", "ready", "reserved", "delayed", "buried", "waiting")

FLUSHED: Final = ("ready", "delayed", "buried", "all")

PATH_FIELDS: Final = (
    text("tube", "A tube's name, percent-encoded; a ~ before it is left out, so that clients can "
         "ask for ~. and ~..", shared="tube", minLength=1, maxLength=MAX_TUBE_NAME + 1),
    whole("job", about="A job's id", shared="job"),
    whole("run", 1, about="A run's number", shared="run"),
)  # fmt: skip

BODY: Final = (
    free("body", "as UTF-8", type="string"),
    free("body_base64", "in place of body", type="string", contentEncoding="base64"),
)

SHOWN_BYTES: Final = f"Show so many bytes of each body of at most {LOOK_BODY_BYTES} bytes"

SAMPLE_BYTES: Final = whole(
    "body_bytes", 0, MAX_SAMPLE_BYTES, default=0, about=SHOWN_BYTES, shared="sample_bytes"
)

LOOK_CURSOR: Final = text(
    "cursor", "That of the reply before, with all else the same", shared="look_cursor"
)

LOOKED: Final = {
    "looked": count(f"jobs that this request looked at: at most {LOOK_JOBS}, in slices; fewer if "
                    "many bodies are read from the log"),
    "total": count("jobs in the tube and states"),
    "unread": count("jobs whose bodies this request needed and could not read from the log; of "
                    "these a text or a fingerprint is not found"),
    "cursor": of(["string", "null"], "where to go on; null if there is no more"),
    "newest_job": count("the newest job when the request began"),
}  # fmt: skip


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
    :ivar query: the fields that its query may have; ``body`` those of the request's object, None if
        its operation checks them, and `free_body` is its schema.
    :ivar summary: one sentence; outside the API it, and what follows, is left out.
    :ivar reply: the schema, or its name in `replies.SCHEMAS`.
    :ivar needs_body: whether an empty object is always wrong.
    :ivar problems: statuses of refusals that not every route has.
    """

    path: str
    method: str
    operation: str
    writes: bool = False
    asks: str = COMMANDS
    query: tuple[Field, ...] = ()
    summary: str = ""
    reply: str | Schema = NOTHING
    body: tuple[Field, ...] | None = ()
    free_body: Schema = ANYTHING
    needs_body: bool = False
    problems: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return hash((self.path, self.method))

    @property
    def path_fields(self) -> list[Field]:
        return [field for field in PATH_FIELDS if f"{{{field.name}}}" in self.path]

    def check_names(self, names: Iterable[str]) -> None:
        """Check that the operation ignores no field of a query.  Outside the API clients may have a
        reason for a query, such as to get around a cache.

        :raise Refusal: it would ignore one.
        """
        known = [field.name for field in self.query]
        unknown = [name for name in names if name not in known]
        if unknown and self.path.startswith("/api/"):
            said = f"known are {', '.join(known)}" if known else "this path takes none"
            detail = f"unknown field of the query: {unknown[0][:MAX_SHOWN_NAME]}; {said}"
            raise Refusal(400, detail)

    def checked(self, call: Call) -> Call:
        """Check all values of a request of the API; they are then of the types of their schemas.

        :raise Refusal: one is wrong.
        """
        if not self.path.startswith("/api/"):
            return call
        path = _of_text(self.path_fields, call.parameters)
        query = _of_text(self.query, call.query)
        path = checked(self.path_fields, path, "the {}")
        query = checked(self.query, query)
        given = object_of(call.body) if self.writes else {}
        if self.body is not None:
            names = [field.name for field in self.body]
            values = checked(self.body, given)
            unknown = sorted(given.keys() - names)
            if unknown:
                raise Refusal(400, f"unknown field: {unknown[0][:MAX_SHOWN_NAME]}")
            given = values
        return call._replace(parameters=path, query=query, fields=given)


def _of_text(fields: Iterable[Field], given: Mapping[str, str]) -> dict[str, Any]:
    return {field.name: field.of_text(given[field.name]) for field in fields if field.name in given}


def _get(
    path: str, operation: str, summary: str, reply: str | Schema, *, asks: str = COMMANDS,
    query: tuple[Field, ...] = (), may_be_missing: bool = False,
) -> Route:  # fmt: skip
    problems = (404,) if may_be_missing or "{" in path else ()
    return Route(API + path, "GET", operation, False, asks, query, summary, reply,
                 problems=problems)  # fmt: skip


def _post(
    path: str, operation: str, summary: str, body: tuple[Field, ...] | None = (),
    reply: str | Schema = NOTHING, *, asks: str = COMMANDS, free_body: Schema = ANYTHING,
    needs_body: bool = False, may_be_missing: bool = False, problems: tuple[int, ...] = (),
) -> Route:  # fmt: skip
    needs_body |= body is None or any(field.is_required for field in body)
    problems = (404, *problems) if may_be_missing or "{" in path else problems
    return Route(API + path, "POST", operation, True, asks, (), summary, reply, body, free_body,
                 needs_body, problems)  # fmt: skip


OF_STANDBYS: Final = frozenset({
    "healthz", "readyz", "metrics", "getDescription", "getReplication",
})  # fmt: skip
"""Operations that a standby has too; all others are refused with the name of the active server."""

HEALTH_CHECKS: Final = frozenset({"healthz", "readyz", "metrics"})
"""Operations that are answered when there are too many connections for others."""

API_ROUTES: Final = (
    _get("openapi.json", "getDescription", "This description", ANYTHING, asks=SOME),
    _get("server", "getServer", "What stats says", "Stats", asks=EVERYTHING),
    _post("server/drain", "drain", "Refuse new jobs"),
    _post("server/undrain", "undrain", "Take new jobs again"),
    _get("replication", "getReplication", "State of replication", "Replication", asks=EVERYTHING),
    _post("replication/promote", "promote", "Hand over to a standby", (
        text("standby", "A name or address of it, or the host or port of one; the one that has the "
                        "most by default"),
    ), record({"handed_over_to": of("string", "The name of the standby")})),
    _get("log", "getLog", "The log: its size, what is not durable yet, how long syncs take, "
         "why its oldest segment is kept", "Log", asks=EVERYTHING, may_be_missing=True),
    _get("log/segments", "listSegments", "The log's segments, oldest first", record({
        "segments": many(ref("Segment")),
        "after": of(["integer", "null"], "the last one's number, if there are more"),
    }), asks=EVERYTHING, may_be_missing=True, query=(
        whole("after", default=0, about="The number of the last segment of the page before"),
        whole("limit", 1, MAX_PAGE_SEGMENTS, default=50, about="Segments of the page"),
    )),
    _get("connections", "listConnections",
         f"All connections, each with the first {SHOWN_RESERVED} jobs that it holds",
         record({"connections": many(ref("Connection"))})),
    _get("tubes", "listTubes", "A page of tubes", record({
        "total": U32, "matches": U32, "tubes": many(ref("Tube")),
    }), asks=EVERYTHING, query=(
        whole("limit", 1, MAX_PAGE_TUBES, default=50, about="Tubes of the page"),
        whole("offset", 0, MAX_OFFSET, default=0, about="Tubes before it"),
        choice("sort", SORTED_BY, about="Order: names ascending, numbers descending"),
        text("search", "Only tubes whose names have this in them", maxLength=MAX_SEARCH),
    )),
    _get("tubes/{tube}", "getTube", "A tube: its figures and its policy", "Tube"),
    _get("tubes/{tube}/history", "getTubeHistory",
         "The figures of the last hour, of the 100 most active tubes", record({
            "seconds": count("from one row to the next"), "fields": many(STRING),
            "counted": many(STRING, "fields that only grow"),
            "rows": many(many(INTEGER), "in the order of the fields, oldest first; none of a tube "
                                        "that is not among the most active"),
         }), asks=EVERYTHING),
    _post("tubes/{tube}/pause", "pauseTube", "Pause a tube; 0 seconds end a pause", (
        whole("seconds", 0, MAX_U32, is_required=True),
    )),
    _post("tubes/{tube}/kick", "kickTube",
          "Kick buried jobs of a tube, or delayed ones if there are none", (
        whole("count", 0, MAX_U32, default=MAX_U32),
    ), record({"kicked": U32})),
    _post("tubes/{tube}/flush", "flushTube",
          "Delete the jobs of a tube in a state; no reserved ones", (
        choice("state", FLUSHED, is_required=True,
               expected="state says which jobs are deleted: one of"),
    ), record({"flushed": U32})),
    _post("tubes/{tube}/forget-key", "forgetKey",
          "Forget the unique key of a deleted job or of a batch", (
        text("key", is_required=True, minLength=1, maxLength=200,
             expected="key is the unique key to forget, a string"),
    )),
    _post("tubes/{tube}/policy", "setPolicy", "Set keys of a tube's policy; null removes one", None,
          free_body={
        "type": "object", "minProperties": 1,
        "additionalProperties": {"type": ["integer", "string", "null"]},
    }),
    _get("policy-keys", "listPolicyKeys", "The keys that a tube's policy may have", record({
        "keys": many(record({
            "key": STRING, "expected": of("string", "what values are, for people"),
        })),
    }), asks=SOME),
    _get("tubes/{tube}/jobs", "listJobs", "A page of a tube's jobs", record({
        "cursor": of(["string", "null"], "for the next page; null if this is the last"),
        "jobs": many(ref("Job")),
    }), query=(
        choice("state", ("all", *STATES), about="Only jobs in this state"),
        whole("limit", 1, MAX_PAGE_JOBS, default=50, about="Jobs of the page"),
        text("cursor", "That of the page before"),
        whole("body_bytes", 0, MAX_LIST_BODY, default=0, about=SHOWN_BYTES),
    )),
    _post("tubes/{tube}/jobs", "putJob", "Put a job", (
        *BODY,
        whole("priority", 0, MAX_U32, default=DEFAULT_PRIORITY),
        whole("delay", 0, MAX_U32, default=0),
        whole("ttr", 0, MAX_U32, default=DEFAULT_TTR_S),
    ), record({"id": count(low=1)}), needs_body=True),
    _get("search", "search", "The next jobs that match", record({
        "jobs": many(ref("Job")), **LOOKED,
    }), asks=EVERYTHING, may_be_missing=True, query=(
        *CRITERIA, whole("limit", 1, MAX_FOUND_JOBS, default=50, about="Jobs to find"),
        SAMPLE_BYTES, LOOK_CURSOR,
    )),
    _get("groups", "listGroups", "Count the next jobs that match, by group; sum the groups "
         "of several replies", record({"groups": many(ref("Group")), **LOOKED}),
         asks=EVERYTHING, may_be_missing=True, query=(
        *CRITERIA,
        choice("by", ("reason", "body"), about="Whether bodies have to be alike too: reason takes "
               "the tube, the tube that they died in and why"),
        SAMPLE_BYTES, LOOK_CURSOR,
    )),
    _get("runs", "listRuns", "The running and the last runs",
         record({"runs": many(ref("Run"))}), asks=EVERYTHING),
    _post("runs", "beginRun", "Kick, move or delete many jobs in the background", (
        choice("action", ACTIONS, is_required=True,
               about="kick-dead takes the dead letters of a tube, and no other criteria; return "
                     "takes each dead letter back to the tube that it died in"),
        text("to", "where to move them", maxLength=MAX_TUBE_NAME),
        whole("count", 0, MAX_U64, is_required=True, about="how many it touches at most: as were "
              "seen"),
        whole("newest_job", 0, MAX_U64, about="newer ones are left alone, but by kick-dead"),
        free("ids", "only these jobs", type="array", maxItems=MAX_IDS,
             items=of("integer", minimum=0, maximum=MAX_U64)),
        *CRITERIA,
    ), "Run", asks=MANAGED, may_be_missing=True, problems=(503,)),
    _get("runs/{run}", "getRun", "The progress of a run", "Run", asks=EVERYTHING),
    _post("runs/{run}/stop", "stopRun", "End a run after its slice", reply="Run", asks=MANAGED),
    _get("jobs/{job}", "getJob",
         f"A job: stats-job, and at most {MAX_SHOWN_BODY} bytes of its body", "Job"),
    _post("jobs/{job}/kick", "kickJob", "Make a buried or delayed job ready"),
    _post("jobs/{job}/delete", "deleteJob", "Delete an unreserved job"),
    _post("jobs/{job}/cancel", "cancelJob", "Delete a job, even a reserved one"),
    _post("jobs/{job}/move", "moveJob", "Take a job into another tube", (
        text("tube", is_required=True),
    )),
    _post("jobs/{job}/edit", "editJob", "Change values of a job; others stay, and so does the time "
          "left of a delay", (
        *BODY, *(whole(name, 0, MAX_U32) for name in ("priority", "delay", "ttr")),
    )),
)  # fmt: skip

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
    *API_ROUTES,
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
