"""
The API's operations that only look.
"""

from collections.abc import Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.extension_specs import JobPage
from beanstalk_twisted.client.stats import Stats
from beanstalk_twisted.jobs.histogram import Histogram
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web import api_fields
from beanstalk_twisted.web.exchange import Call, Document, Refusal, encoded, json_document
from beanstalk_twisted.web.local_connection import LocalConnections
from beanstalk_twisted.web.tube_figures import NS
from beanstalk_twisted.web.tube_pages import TubePage, described
from beanstalk_twisted.wire.yaml import Quoted, Value

MAX_PAGE_JOBS: Final = 200
"""Jobs of a page."""

MAX_LIST_BODY: Final = 4096
"""Bytes of each body that a list of jobs shows: its beginning tells what it is."""

MAX_LOOK_BODY: Final = 256 << 10
"""Bytes of a body of which a list of jobs shows the beginning: larger ones are not touched."""

MAX_SHOWN_BODY: Final = 256 << 10
"""Bytes of a body that a job's description shows."""

SLICE_ROWS: Final = 200
"""Rows that are written as JSON in one turn: a millisecond."""


class ReadingApi:
    """
    Operations that only look.
    """

    def __init__(self, service: BeanstalkService, connections: LocalConnections) -> None:
        self._service = service
        self._connections = connections

    def server(self, call: Call) -> Document:
        """
        What `stats` says.
        """
        pairs = self._service.queue.server_pairs()
        return json_document({key.replace("-", "_"): _plain(value) for key, value in pairs})

    def log(self, call: Call) -> Document:
        """
        The log, and what it costs.
        """
        figures = self._service.log_figures()
        if figures is None:
            raise Refusal(404, "jobs are in memory only; --binlog DIR keeps a log")
        about: dict[str, Any] = figures._asdict()
        commits = about.pop("commits")
        about["oldest_unsynced_seconds"] = about.pop("unsynced_ns") / NS
        about["fsync_seconds"] = _histogram(commits.syncs, NS)
        about["group_commit_size"] = _histogram(commits.batches, 1)
        about["fsync_errors"] = commits.rehomings
        return json_document(about)

    def tubes(self, call: Call) -> Document:
        """
        A page of tubes.
        """
        service = self._service
        page = TubePage(service.queue.state, service.now_ns(), call.query)
        return Document(page.pieces())

    def tube(self, call: Call) -> "Deferred[Document]":
        """
        A tube's figures and policy.
        """
        name = call.parameters["tube"]

        def ask(connection: Connection) -> "Deferred[list[Any]]":
            return gatherResults(
                [connection.stats_tube(name), connection.tube_policy(name)], consumeErrors=True
            )

        return self._asked(call, ask, self._tube_document)

    def _tube_document(self, answers: list[Any]) -> Document:
        stats, policy = answers
        state = self._service.queue.state
        tube = state.tubes.find(stats.name.encode())
        about = {} if tube is None else described(tube, state, self._service.now_ns())
        return json_document({**_fields(stats), **about, "policy": _fields(policy)})

    def jobs(self, call: Call) -> "Deferred[Document]":
        """
        A page of a tube's jobs.
        """
        name, query = call.parameters["tube"], call.query
        which = api_fields.query_choice(
            query, "state", ("all", "ready", "reserved", "delayed", "buried")
        )
        limit = api_fields.query_number(query, "limit", 50, 1, MAX_PAGE_JOBS)
        most = api_fields.query_number(query, "body_bytes", 0, 0, MAX_LIST_BODY)
        cursor = query.get("cursor") or None

        def ask(connection: Connection) -> "Deferred[Any]":
            page = connection.list_jobs(name, which, limit, cursor)
            return page.addCallback(self._with_bodies, connection, most)

        return self._asked(call, ask, _job_page)

    def _with_bodies(self, page: JobPage, connection: Connection, most: int) -> "Deferred[Any]":
        """
        Peek at the jobs of a page whose bodies are to be shown.
        """
        wanted = [job.id for job in page.jobs if most and job.size <= MAX_LOOK_BODY]
        peeks: list[Deferred[Any]] = []
        for job_id in wanted:
            peek: Deferred[Any] = connection.peek(job_id)
            # It may be gone by now.
            peek.addCallbacks(lambda job: job.body, lambda failure: None)
            peeks.append(peek)
        both = gatherResults(peeks)
        return both.addCallback(lambda bodies: (page, dict(zip(wanted, bodies, strict=True)), most))

    def job(self, call: Call) -> "Deferred[Document]":
        """
        A job: its fields and its body.
        """
        job_id = api_fields.job_id(call.parameters)

        def ask(connection: Connection) -> "Deferred[list[Any]]":
            return gatherResults(
                [connection.stats_job(job_id), connection.peek(job_id)], consumeErrors=True
            )

        return self._asked(call, ask, _job_document)

    def connections(self, call: Call) -> "Deferred[Document]":
        """
        All connections.
        """
        return self._asked(call, lambda connection: connection.list_connections(), _rows)

    def _asked(self, call: Call, ask: Any, make: Any) -> "Deferred[Document]":
        return self._connections.run(call.peer, ask).addCallback(make)


def _job_document(answers: list[Any]) -> Document:
    stats, job = answers
    about = {**_fields(stats), "body": api_fields.shown_body(job.body, MAX_SHOWN_BODY)}
    return json_document(about)


def _job_page(answers: Any) -> Document:
    page, bodies, most = answers

    def pieces() -> Iterator[bytes]:
        cursor = page.cursor
        yield b'{"cursor":%s,"jobs":[' % encoded(cursor)
        for at, job in enumerate(page.jobs):
            row = _fields(job)
            body = bodies.get(job.id)
            if body is not None:
                row["body"] = api_fields.shown_body(body, most)
            yield (b"," if at else b"") + encoded(row)
        yield b"]}\n"

    return Document(_gathered(pieces()))


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """
    Some rows a turn.
    """
    some: list[bytes] = []
    for piece in pieces:
        some.append(piece)
        if len(some) == SLICE_ROWS // 4:
            yield b"".join(some)
            some = []
    yield b"".join(some)


def _rows(stats: tuple[Stats, ...]) -> Document:
    def pieces() -> Iterator[bytes]:
        yield b'{"connections":['
        for at in range(0, len(stats), SLICE_ROWS):
            rows = [encoded(_fields(each)) for each in stats[at : at + SLICE_ROWS]]
            yield (b"," if at else b"") + b",".join(rows)
        yield b"]}\n"

    return Document(pieces())


def _fields(stats: Any) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in dict(stats).items()}


def _plain(value: Value) -> Any:
    """
    A value of `stats`: numbers as such.
    """
    if isinstance(value, Quoted):
        return value.text
    if value in ("true", "false"):
        return value == "true"
    return value


def _histogram(values: Histogram, unit: int) -> dict[str, Any]:
    """
    :param unit: what one of the units that are shown has.
    """
    return {
        "bounds": [bound / unit for bound in values.bounds],
        "counts": values.counts,
        "sum": values.total / unit,
    }
