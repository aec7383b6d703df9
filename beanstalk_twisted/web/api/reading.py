"""The API's operations that only look."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from beanstalk_twisted.client.commands.calls import tube_bytes
from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules import statistics
from beanstalk_twisted.rules.looks import (
    LISTED,
    SHOWN_RESERVED,
    ConnectionFactsSource,
    Place,
    place_of,
    places_behind,
)
from beanstalk_twisted.rules.policy_keys import KEYS
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.segment_list import SegmentFacts
from beanstalk_twisted.web.api import fields
from beanstalk_twisted.web.api.local_connection import LocalConnections, Look
from beanstalk_twisted.web.api.looking import SLICE_BYTES, SLICE_READS, Seeing
from beanstalk_twisted.web.exchange import Call, Document, Refusal, encoded, json_document
from beanstalk_twisted.web.openapi import description
from beanstalk_twisted.web.replication import replication_document
from beanstalk_twisted.web.routes import MAX_SEARCH, MAX_SHOWN_BODY
from beanstalk_twisted.web.tube_figures import SLICE_TUBES, activity, figures_of
from beanstalk_twisted.wire import layouts
from beanstalk_twisted.wire.grammar import write_tube
from beanstalk_twisted.wire.replies import BAD_FORMAT

DESCRIBED: Final = 25
"""Tubes that one slice describes."""

MAX_LOOK_BODY: Final = 256 << 10
"""Bytes of a body of which a list of jobs shows the beginning: larger ones are not touched."""

SLICE_ROWS: Final = 100
"""Rows that are written as JSON in one turn: a millisecond."""

TEXTS: Final = ("backoff", "rate")
"""Keys of policies that are no numbers, even where they look so."""

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


def tube_page(state: QueueState, now_ns: int, query: Mapping[str, Any]) -> Iterator[bytes]:
    limit, offset, sort = query["limit"], query["offset"], SORTS[query["sort"]]
    search = query.get("search", "")[:MAX_SEARCH].encode("ascii", "replace")
    tubes = list(state.tubes.in_order)
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


TUBE_FIELDS: Final = {
    "name": "name", "urgent": "current-jobs-urgent", "ready": "current-jobs-ready",
    "reserved": "current-jobs-reserved", "delayed": "current-jobs-delayed",
    "buried": "current-jobs-buried", "using": "current-using", "watching": "current-watching",
    "waiting": "current-waiting", "total_jobs": "total-jobs", "deletes": "cmd-delete",
    "pauses": "cmd-pause-tube",
}  # fmt: skip
"""The fields of a tube that are keys of `stats-tube`."""


def described(tube: Tube, state: QueueState, now_ns: int) -> dict[str, Any]:
    """Describe a tube as JSON takes it."""
    stats, pause_ns, oldest_ns, next_ns, times = figures_of(tube, state, now_ns)
    return {
        **{name: stats[key] for name, key in TUBE_FIELDS.items()},
        "timeouts": 0 if times is None else times.timeouts,
        "pause_seconds_left": pause_ns / NS,
        "oldest_ready_age_seconds": oldest_ns / NS,
        "next_delayed_seconds": None if next_ns is None else next_ns / NS,
    }


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
    def __init__(
        self, service: BeanstalkService, connections: LocalConnections, seeing: Seeing,
        reactor: IReactorTime,
    ) -> None:  # fmt: skip
        self._service = service
        self._connections = connections
        self._seeing = seeing
        self._reactor = reactor
        self._described = encoded(description()) + b"\n"

    def get_description(self, call: Call) -> Document:
        return Document(self._described)

    def get_replication(self, call: Call) -> Document:
        return replication_document(self._service.situation())

    def get_server(self, call: Call) -> Document:
        """Show what `stats` says."""
        return json_document(layouts.SERVER.plain(self._service.queue.server_stats()))

    def get_log(self, call: Call) -> Document:
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

    def list_segments(self, call: Call) -> "Deferred[Document]":
        """Show a page of segments, oldest first."""
        if self._service.log_figures() is None:
            raise _no_log()
        page = self._segment_page(call.query["after"], call.query["limit"])
        return Deferred.fromCoroutine(page)

    async def _segment_page(self, after: int, most: int) -> Document:
        # One more than fits says whether there is a next page.
        found = await self._service.log_segments(after, most + 1)
        page, now_ns = found[:most], self._service.now_ns()
        behind = page[-1].number if len(found) > most else None
        return json_document({"segments": [_shown(row, now_ns) for row in page], "after": behind})

    def list_tubes(self, call: Call) -> Document:
        service = self._service
        return Document(tube_page(service.queue.state, service.now_ns(), call.query))

    def get_tube(self, call: Call) -> "Deferred[Document]":
        return self._connections.look(call, lambda look: self._tube(look, call.parameters["tube"]))

    async def _tube(self, look: Look, given: str) -> Document:
        name, queue = _tube_name(given), look.queue
        look.ask(("stats-tube", (name,)), ("tube-policy", (name, ())))
        tube = queue.state.tubes.find(name) or await look.not_found()
        about = described(tube, queue.state, self._service.now_ns())
        policy = {key.replace("-", "_"): value for key, value in queue.policies.shown(name).items()}
        about |= {"body_bytes": tube.body_bytes, "policy": policy}
        policy.update({key: str(policy[key]) for key in TEXTS if key in policy})
        await look.durable()
        return json_document(about)

    def list_policy_keys(self, call: Call) -> Document:
        keys = [{"key": key, "expected": rule.expected} for key, rule in KEYS.items()]
        return json_document({"keys": keys})

    def list_jobs(self, call: Call) -> "Deferred[Document]":
        return self._connections.look(
            call, lambda look: self._jobs(look, call.parameters["tube"], call.query)
        )

    async def _jobs(self, look: Look, given: str, query: Mapping[str, Any]) -> Document:
        name, state, states = _tube_name(given), look.queue.state, LISTED[query["state"].encode()]
        limit, cursor = query["limit"], query.get("cursor", "").encode("utf-8", "replace")
        look.ask(("list-jobs", (name, query["state"].encode(), limit, cursor)))
        start = place_of(states, cursor)
        if start is None:
            look.queue.tally.errors[BAD_FORMAT.text] += 1
            raise Refusal(400, "a value is wrong; nothing was changed")
        tube = state.tubes.find(name) or await look.not_found()
        places, end = places_behind(state, tube, states, limit, start)
        now_ns = self._service.now_ns()
        jobs = [job for place in places if (job := state.jobs.look(place.key & ID_MASK))]
        rows = [layouts.LISTED_JOB.plain(statistics.listed(job, now_ns)) for job in jobs]
        await look.durable()
        return Document(self._page(look, jobs, rows, query["body_bytes"], end))

    def _page(
        self, look: Look, jobs: Sequence[Job], rows: Sequence[dict[str, Any]], most: int,
        end: Place | None,
    ) -> Iterator[bytes | Deferred[bytes]]:  # fmt: skip
        yield b'{"cursor":%s,"jobs":[' % encoded(None if end is None else str(end))
        at = 0
        while at < len(jobs):
            some = _slice(jobs, at) if most else jobs[at : at + SLICE_ROWS]
            piece = self._piece(look, some, rows[at : at + len(some)], most)
            yield b"," if at else b""
            yield Deferred.fromCoroutine(piece)
            at += len(some)
        yield b"]}\n"

    async def _piece(
        self, look: Look, jobs: Sequence[Job], rows: Sequence[dict[str, Any]], most: int
    ) -> bytes:
        """Encode jobs as they were on the page, with the bodies that they have now, if asked to."""
        if most:
            tubes = {job.job_id: job.tube_id for job in jobs if job.body_bytes <= MAX_LOOK_BODY}
            asked = [job for job in jobs if job.job_id in tubes]
            seen = await self._seeing.see(asked, lambda job: job.job_id in tubes)
            bodies = {
                each.job.job_id: fields.shown_body(each.body, most) for each in seen
                if each.body is not None and each.job.tube_id == tubes[each.job.job_id]
            }  # fmt: skip
            await look.durable(max((each.job.lsn for each in seen), default=0))
            for row in rows:
                if row["id"] in bodies:
                    row["body"] = bodies[row["id"]]
        return b",".join(map(encoded, rows))

    def get_job(self, call: Call) -> "Deferred[Document]":
        return self._connections.look(call, lambda look: self._job(look, call.parameters["job"]))

    async def _job(self, look: Look, job_id: int) -> Document:
        look.ask(("stats-job", (job_id,)), ("peek", (job_id,)))
        queue = look.queue
        job = queue.state.jobs.look(job_id) or await look.not_found()
        found = await self._seeing.see([job], lambda job: True)
        if not found:
            await look.not_found()
        [(job, body, _)] = found
        if body is None:
            raise Refusal(503, "its body cannot be read; the server's log says why")
        tube, now_ns = queue.state.tubes.by_id(job.tube_id), self._service.now_ns()
        about = layouts.JOB.plain(statistics.job(job, tube, now_ns))
        about["body"] = fields.shown_body(body, MAX_SHOWN_BODY)
        by = holder(queue.state, job_id, queue.connections.facts, now_ns)
        await look.durable(job.lsn)
        return json_document(about if by is None else {**about, "holder": by})

    def list_connections(self, call: Call) -> "Deferred[Document]":
        """Show all connections, each with the first jobs that it holds."""
        return self._connections.look(call, self._all_connections)

    async def _all_connections(self, look: Look) -> Document:
        look.ask(("list-connections", ()))
        state, numbers = look.queue.state, sorted(look.queue.state.sessions)
        # While this very request has its connection.
        requests, pieces = frozenset(self._connections.numbers), [b'{"connections":[']
        for at in range(0, len(numbers), SLICE_ROWS):
            if at:
                await deferLater(self._reactor, 0)
            now_ns = self._service.now_ns()
            found = look.queue.connections.described(numbers[at : at + SLICE_ROWS], now_ns)
            rows = [_connection(each, state, requests, now_ns) for each in found]
            pieces.append((b"," if at and rows else b"") + b",".join(map(encoded, rows)))
        await look.durable()
        return Document([*pieces, b"]}\n"])


def _connection(
    values: dict[str, Any], state: QueueState, requests: Container[int], now_ns: int
) -> dict[str, Any]:
    row = layouts.CONNECTION.plain(values)
    number = row["connection"]
    return {**row, "is_request": number in requests, "held": held(state, number, now_ns)}


def _tube_name(given: str) -> bytes:
    """:raise Refusal: it is no name of a tube."""
    try:
        return write_tube("tube", tube_bytes(given))
    except ValueError as problem:
        raise Refusal(400, str(problem)) from None


def _slice(jobs: Sequence[Job], at: int) -> Sequence[Job]:
    """Return the next jobs of a page whose bodies are looked at as one."""
    size, end = 0, at
    while end < min(len(jobs), at + SLICE_READS) and size < SLICE_BYTES:
        size += jobs[end].body_bytes if jobs[end].body_bytes <= MAX_LOOK_BODY else 0
        end += 1
    return jobs[at:end]


def holding(job: Job, session: Session, now_ns: int) -> dict[str, float]:
    """Say for how many seconds a session has held a job.

    A session knows the deadline that each of its jobs got when it was reserved, and the job the
    one it has now.  Less the TTR these are when it was reserved, and when it was last reserved or
    touched.  If its holder has changed its TTR by ``update-job``, the first is wrong by the
    difference, but never later than the second.
    """
    touched_ns = job.deadline_ns - job.ttr_s * NS
    reserved_ns = min(touched_ns, session.was_given_until(job.job_id) - job.ttr_s * NS)
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
    """Show the first jobs that a connection holds.  :param number: the connection's."""
    session = state.sessions.get(number)
    if session is None:
        return []
    jobs = [state.jobs.look(job_id) for job_id in islice(session.reserved, SHOWN_RESERVED)]
    return [{"id": job.job_id, **holding(job, session, now_ns)} for job in jobs if job is not None]
