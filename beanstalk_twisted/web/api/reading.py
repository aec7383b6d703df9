"""The API's operations that only look."""

from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from beanstalk_twisted.client.commands.specs import JobPage
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.stats import Stats
from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.looks import SHOWN_RESERVED, ConnectionFactsSource
from beanstalk_twisted.rules.policy_keys import KEYS
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.segment_list import SegmentFacts
from beanstalk_twisted.web.api import fields
from beanstalk_twisted.web.api.fields import query_choice, query_number
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.exchange import Call, Document, Refusal, encoded, json_document
from beanstalk_twisted.web.tube_figures import SLICE_TUBES, activity, figures_of
from beanstalk_twisted.wire.grammar import MAX_U64
from beanstalk_twisted.wire.yaml import Quoted, Value

MAX_PAGE_TUBES: Final = 200
"""Tubes of a page: more than anybody reads, and some 4 ms to describe."""

MAX_OFFSET: Final = 1000
"""Tubes before a page: those after them are found by a search, or another order."""

MAX_SEARCH: Final = 200
"""Characters of a search: a name has no more."""

DESCRIBED: Final = 25
"""Tubes that one slice describes."""

MAX_PAGE_SEGMENTS: Final = 100
"""Segments of a page: the I/O thread reads at most so many headers for it, 3 ms in slices."""

MAX_PAGE_JOBS: Final = 200

MAX_LIST_BODY: Final = 4096
"""Bytes of each body that a list of jobs shows: its beginning tells what it is."""

MAX_LOOK_BODY: Final = 256 << 10
"""Bytes of a body of which a list of jobs shows the beginning: larger ones are not touched."""

LOOK_BYTES: Final = 1 << 20
"""Bytes of bodies that a list looks at at once, plus one body: of each it keeps the beginning."""

MAX_LOOKS: Final = 4
"""Lists that look at bodies at a time: with all that is copied on the way, some 16 MiB."""

MAX_SHOWN_BODY: Final = 256 << 10
"""Bytes of a body that a job's description shows."""

SLICE_ROWS: Final = 100
"""Rows that are written as JSON in one turn: a millisecond."""

SORTS: Final[Mapping[str, Callable[[Tube], int] | None]] = {
    "name": None,
    "activity": activity,
    "ready": lambda tube: tube.ready_count,
    "reserved": lambda tube: tube.reserved,
    "delayed": lambda tube: tube.delayed.count,
    "buried": lambda tube: tube.buried.count,
    "waiting": lambda tube: tube.waiting,
}
"""All but the names from the largest to the smallest, and equal ones by name."""


def tube_page(state: QueueState, now_ns: int, query: Mapping[str, str]) -> Iterator[bytes]:
    """:raise Refusal: the query is wrong."""
    limit = query_number(query, "limit", 50, 1, MAX_PAGE_TUBES)
    offset = query_number(query, "offset", 0, 0, MAX_OFFSET)
    sort = SORTS[query_choice(query, "sort", tuple(SORTS))]
    search = query.get("search", "")[:MAX_SEARCH].encode("ascii", "replace")
    tubes = list(state.tubes.in_order)

    def pieces() -> Iterator[bytes]:
        first: list[Tube] = []
        matches = 0
        for at in range(0, len(tubes), SLICE_TUBES):
            some = [tube for tube in tubes[at : at + SLICE_TUBES] if search in tube.name]
            matches += len(some)
            if sort is None:
                first = nsmallest(offset + limit, first + some, key=lambda tube: tube.name)
            else:
                # Ties go to the first in the list; by name they would cost as much again.
                first = nlargest(offset + limit, first + some, key=sort)
            yield b""
        yield b'{"total":%d,"matches":%d,"tubes":[' % (len(tubes), matches)
        page = first[offset:]
        for at in range(0, len(page), DESCRIBED):
            rows = [encoded(described(tube, state, now_ns)) for tube in page[at : at + DESCRIBED]]
            yield (b"," if at else b"") + b",".join(rows)
        yield b"]}\n"

    return pieces()


def described(tube: Tube, state: QueueState, now_ns: int) -> dict[str, Any]:
    """Describe a tube as JSON takes it."""
    row = figures_of(tube, state, now_ns)._asdict()
    times = row.pop("times")
    row["timeouts"] = 0 if times is None else times.timeouts
    row["pause_seconds_left"] = row.pop("pause_ns") / NS
    row["oldest_ready_age_seconds"] = row.pop("oldest_ns") / NS
    next_ns = row.pop("next_delayed_ns")
    row["next_delayed_seconds"] = None if next_ns is None else next_ns / NS
    return row


def _no_log() -> Refusal:
    return Refusal(404, "jobs are in memory only; --binlog DIR keeps a log")


def _shown(facts: SegmentFacts, now_ns: int) -> dict[str, Any]:
    row = facts._asdict()
    created_ns = row.pop("created_ns")
    row["age_seconds"] = None if created_ns is None else max(0, now_ns - created_ns) / NS
    return row


def _histogram(values: Histogram, unit: int) -> dict[str, Any]:
    return {
        "bounds": [bound / unit for bound in values.bounds],
        "counts": values.counts,
        "sum": values.total / unit,
    }


class ReadingApi:
    def __init__(self, service: BeanstalkService, connections: LocalConnections) -> None:
        self._service = service
        self._connections = connections
        self._looks = DeferredSemaphore(MAX_LOOKS)

    def server(self, call: Call) -> Document:
        """Show what `stats` says."""
        pairs = self._service.queue.server_pairs()
        return json_document({key.replace("-", "_"): _plain(value) for key, value in pairs})

    def log(self, call: Call) -> Document:
        """Show the log, what it costs, and why its oldest segment is still there."""
        figures = self._service.log_figures()
        if figures is None:
            raise _no_log()
        about: dict[str, Any] = figures._asdict()
        commits = about.pop("commits")
        about["oldest_unsynced_seconds"] = about.pop("unsynced_ns") / NS
        about["fsync_seconds"] = _histogram(commits.syncs, NS)
        about["group_commit_size"] = _histogram(commits.batches, 1)
        return json_document(about)

    def segments(self, call: Call) -> "Deferred[Document]":
        """Show a page of segments, oldest first."""
        if self._service.log_figures() is None:
            raise _no_log()
        after = query_number(call.query, "after", 0, 0, MAX_U64)
        most = query_number(call.query, "limit", 50, 1, MAX_PAGE_SEGMENTS)
        return Deferred.fromCoroutine(self._segment_page(after, most))

    async def _segment_page(self, after: int, most: int) -> Document:
        # One more than fits says whether there is a next page.
        found = await self._service.log_segments(after, most + 1)
        page, now_ns = found[:most], self._service.now_ns()
        behind = page[-1].number if len(found) > most else None
        return json_document({"segments": [_shown(row, now_ns) for row in page], "after": behind})

    def tubes(self, call: Call) -> Document:
        service = self._service
        return Document(tube_page(service.queue.state, service.now_ns(), call.query))

    def tube(self, call: Call) -> "Deferred[Document]":
        name = call.parameters["tube"]

        def ask(connection: Connection) -> "Deferred[list[Any]]":
            return gatherResults(
                [connection.stats_tube(name), connection.tube_policy(name)], consumeErrors=True
            )

        return self._connections.run(call, ask).addCallback(self._tube_document)

    def _tube_document(self, answers: list[Any]) -> Document:
        stats, policy = answers
        state = self._service.queue.state
        tube = state.tubes.find(stats.name.encode())
        if tube is None:
            raise Refusal(404, "there is no such tube any more")
        about = described(tube, state, self._service.now_ns())
        about["body_bytes"] = tube.body_bytes
        return json_document({**about, "policy": _fields(policy)})

    def policy_keys(self, call: Call) -> Document:
        keys = [{"key": key, "expected": rule.expected} for key, rule in KEYS.items()]
        return json_document({"keys": keys})

    def jobs(self, call: Call) -> "Deferred[Document]":
        name, query = call.parameters["tube"], call.query
        which = query_choice(query, "state", ("all", "ready", "reserved", "delayed", "buried"))
        limit = query_number(query, "limit", 50, 1, MAX_PAGE_JOBS)
        most = query_number(query, "body_bytes", 0, 0, MAX_LIST_BODY)
        cursor = query.get("cursor") or None

        def ask(connection: Connection) -> "Deferred[Any]":
            page: Deferred[Any] = connection.list_jobs(name, which, limit, cursor)
            return page.addCallback(
                lambda page: Deferred.fromCoroutine(self._with_bodies(connection, page, most))
            )

        return self._connections.run(call, ask).addCallback(_job_page)

    async def _with_bodies(
        self, connection: Connection, page: JobPage, most: int
    ) -> tuple[JobPage, dict[int, Any]]:
        """Peek at the jobs of a page whose bodies are to be shown.

        :return: and what is shown of the bodies, by the ids of their jobs.
        """
        shown: dict[int, Any] = {}
        for job_ids in _looks(page) if most else ():
            await self._looks.acquire()
            try:
                bodies = await gatherResults([_begun(connection, each, most) for each in job_ids])
            finally:
                self._looks.release()
            shown.update(zip(job_ids, bodies, strict=True))
        return page, shown

    def job(self, call: Call) -> "Deferred[Document]":
        job_id = fields.job_id(call.parameters)

        def ask(connection: Connection) -> "Deferred[list[Any]]":
            return gatherResults(
                [connection.stats_job(job_id), connection.peek(job_id)], consumeErrors=True
            )

        return self._connections.run(call, ask).addCallback(self._job_document)

    def _job_document(self, answers: list[Any]) -> Document:
        stats, job = answers
        about = {**_fields(stats), "body": fields.shown_body(job.body, MAX_SHOWN_BODY)}
        queue, now_ns = self._service.queue, self._service.now_ns()
        by = holder(queue.state, stats.id, queue.connections.facts, now_ns)
        return json_document(about if by is None else {**about, "holder": by})

    def connections(self, call: Call) -> "Deferred[Document]":
        """Show all connections, each with the first jobs that it holds."""

        def ask(connection: Connection) -> "Deferred[Any]":
            listing: Deferred[Any] = connection.list_connections()
            # While this very request has its connection.
            return listing.addCallback(lambda stats: (stats, frozenset(self._connections.numbers)))

        found = self._connections.run(call, ask)
        return found.addCallback(lambda answers: Document(self._rows(*answers)))

    def _rows(self, stats: tuple[Stats, ...], requests: Collection[int]) -> Iterator[bytes]:
        yield b'{"connections":['
        for at in range(0, len(stats), SLICE_ROWS):
            rows = [encoded(self._row(each, requests)) for each in stats[at : at + SLICE_ROWS]]
            yield (b"," if at else b"") + b",".join(rows)
        yield b"]}\n"

    def _row(self, stats: Stats, requests: Collection[int]) -> dict[str, Any]:
        row = _fields(stats)
        row["is_request"] = row["connection"] in requests
        row["held"] = held(self._service.queue.state, row["connection"], self._service.now_ns())
        return row


def _looks(page: JobPage) -> Iterator[list[int]]:
    """Group the jobs of a page whose bodies may be looked at, by `LOOK_BYTES`."""
    some: list[int] = []
    size = 0
    for job in page.jobs:
        if job.size <= MAX_LOOK_BODY:
            some.append(job.id)
            size += job.size
            if size >= LOOK_BYTES:
                yield some
                some, size = [], 0
    if some:
        yield some


def _begun(connection: Connection, job_id: int, most: int) -> "Deferred[Any]":
    """Show the beginning of a job's body; None if the job is gone by now."""
    peek: Deferred[Any] = connection.peek(job_id)
    return peek.addCallbacks(lambda job: fields.shown_body(job.body, most), lambda failure: None)


def _job_page(answers: tuple[JobPage, dict[int, Any]]) -> Document:
    page, bodies = answers

    def row(job: Any) -> bytes:
        body = bodies.get(job.id)
        return encoded(_fields(job) if body is None else {**_fields(job), "body": body})

    def pieces() -> Iterator[bytes]:
        yield b'{"cursor":%s,"jobs":[' % encoded(page.cursor)
        for at in range(0, len(page.jobs), SLICE_ROWS // 2):
            rows = map(row, page.jobs[at : at + SLICE_ROWS // 2])
            yield (b"," if at else b"") + b",".join(rows)
        yield b"]}\n"

    return Document(pieces())


def _fields(stats: Any) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in dict(stats).items()}


def _plain(value: Value) -> Any:
    if isinstance(value, Quoted):
        return value.text
    if value in ("true", "false"):
        return value == "true"
    return value


def holding(job: Job, session: Session, now_ns: int) -> dict[str, float]:
    """Say for how many seconds a session has held a job.

    A session knows the deadline that each of its jobs got when it was reserved, and the job the
    one it has now.  Less the TTR these are when it was reserved, and when it was last reserved or
    touched.  If its holder has changed its TTR by ``update-job``, the first is wrong by the
    difference, but never later than the second.
    """
    touched_ns = job.deadline_ns - job.ttr_s * NS
    reserved_ns = min(touched_ns, session.reserved[job.job_id] - job.ttr_s * NS)
    return {
        "reserved_seconds": max(0, now_ns - reserved_ns) / NS,
        "touched_seconds": max(0, now_ns - touched_ns) / NS,
        "seconds_left": max(0, job.deadline_ns - now_ns) / NS,
    }


def holder(
    state: QueueState, job_id: int, facts: ConnectionFactsSource, now_ns: int
) -> dict[str, Any] | None:
    job = state.jobs.look(job_id)
    session = None if job is None else state.sessions.get(job.holder)
    if job is None or session is None or job_id not in session.reserved:
        return None
    known = facts(session)
    peer = "" if known is None else known.peer
    return {"connection": session.number, "peer": peer, **holding(job, session, now_ns)}


def held(state: QueueState, number: int, now_ns: int) -> list[dict[str, Any]]:
    """Show the first jobs that a connection holds.

    :param number: the connection's.
    """
    session = state.sessions.get(number)
    if session is None:
        return []
    jobs = [state.jobs.look(job_id) for job_id in islice(session.reserved, SHOWN_RESERVED)]
    return [{"id": job.job_id, **holding(job, session, now_ns)} for job in jobs if job is not None]
