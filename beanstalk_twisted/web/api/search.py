"""Searching bodies and fields, and counting what is alike: in slices, a bounded part for each
request, in memory as it is: what is shown may not be on disk yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from beanstalk_twisted.binlog.bodies import fingerprint
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules import statistics
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.web.api import fields
from beanstalk_twisted.web.api.fields import LOOK_BODY_BYTES, criteria_of, reason_of
from beanstalk_twisted.web.api.looking import (
    SLICE_FINGERPRINTS,
    SLICE_JOBS,
    SLICE_READS,
    Look,
    Seeing,
    Seen,
)
from beanstalk_twisted.web.exchange import Call, Document, encoded
from beanstalk_twisted.wire.layouts import LISTED_JOB

MAX_GROUPS: Final = 200
"""Groups that one request tells of, with a sample of each.  A request ends before the next one, so
that all counts are whole.
"""

SLICE_FOUND: Final = 20
"""Jobs that one slice describes: half a millisecond."""

GroupKey = tuple[str, str, str, str]
"""Tube, the tube that it is a dead letter of, why, and fingerprint; empty for none."""


class SearchApi:
    def __init__(self, service: BeanstalkService, seeing: Seeing) -> None:
        self._service = service
        self._seeing = seeing

    def search(self, call: Call) -> Document:
        query = call.query
        limit, most = query["limit"], query["body_bytes"]
        look = self._look(query, is_costly=False, shows=lambda job: _is_shown(job, most))
        return Document(self._found(look, limit, most))

    def list_groups(self, call: Call) -> Document:
        query = call.query
        by, most = query["by"], query["body_bytes"]
        look = self._look(query, is_costly=by == "body", shows=lambda job: by == "body")
        return Document(self._grouped(look, by == "body", most))

    def _look(
        self, query: Mapping[str, Any], *, is_costly: bool, shows: Callable[[Job], bool]
    ) -> Look:
        """:param is_costly: whether each job that is found has its fingerprint taken.
        :param shows: whether the body of a job that is found is needed.
        :raise Refusal: the query is wrong.
        """
        criteria = criteria_of(query)
        slice_jobs = SLICE_FINGERPRINTS if is_costly else SLICE_JOBS
        state, cursor = self._service.queue.state, query.get("cursor", "")
        return Look(state, criteria, cursor, counts_bytes=False, slice_jobs=slice_jobs, shows=shows)

    def _found(self, look: Look, limit: int, most: int) -> Iterator[bytes | Deferred[bytes]]:
        state, rows = self._service.queue.state, 0

        async def piece(jobs: Sequence[Job]) -> bytes:
            nonlocal rows
            seen = await look.settle(jobs, self._seeing, self._service.now_ns)
            now_ns, is_first = self._service.now_ns(), not rows
            rows += len(seen)
            found = [encoded(described(each, state, now_ns, most)) for each in seen]
            return (b"" if is_first or not found else b",") + b",".join(found)

        yield b'{"newest_job":%d,"jobs":[' % (state.next_job_id - 1)
        while rows < limit and not look.is_enough:
            jobs = look.slice(self._service.now_ns(), min(limit - rows, SLICE_FOUND))
            yield Deferred.fromCoroutine(piece(jobs))
        yield b"],%s" % _end(look)

    def _grouped(self, look: Look, by_body: bool, most: int) -> Iterator[bytes | Deferred[bytes]]:
        state = self._service.queue.state
        yield b'{"newest_job":%d,"groups":[' % (state.next_job_id - 1)
        groups: dict[GroupKey, Group] = {}

        async def add(jobs: Sequence[Job]) -> bytes:
            for seen in await look.settle(jobs, self._seeing, self._service.now_ns):
                now_ns, key = self._service.now_ns(), key_of(seen, state, by_body=by_body)
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Group(key, seen, now_ns, most)
                group.add(seen.job, now_ns)
            return b""

        while len(groups) < MAX_GROUPS and not look.is_enough:
            # One job may be one group more.
            jobs = look.slice(self._service.now_ns(), MAX_GROUPS - len(groups))
            yield Deferred.fromCoroutine(add(jobs))
        made = list(groups.values())
        for at in range(0, len(made), SLICE_READS):
            rows = self._described(made[at : at + SLICE_READS], look, by_body, most, at)
            yield Deferred.fromCoroutine(rows)
        yield b"],%s" % _end(look)

    async def _described(
        self, groups: Sequence["Group"], look: Look, by_body: bool, most: int, at: int
    ) -> bytes:
        state = self._service.queue.state
        samples = [state.jobs.look(group.sample) for group in groups if not group.body]
        jobs = [job for job in samples if job is not None and _is_shown(job, most)]
        seen = {each.job.job_id: each for each in await self._seeing.see(jobs, lambda job: True)}
        for group in groups:
            if group.sample in seen:
                group.body = _shown(seen[group.sample], most)
        if not by_body:
            # Otherwise they were counted when they were looked at.
            look.unread += sum(each.is_unread for each in seen.values())
        rows = [encoded(group.described()) for group in groups]
        return (b"," if at else b"") + b",".join(rows)


class Group:
    """Jobs that are alike.

    :ivar sample: the id of one, which is shown.
    :ivar body: as it is shown; empty if it has to be read first.
    """

    def __init__(self, key: GroupKey, seen: Seen, now_ns: int, most: int) -> None:
        self._key = key
        self._jobs = self._bytes = 0
        self._oldest_ns = self._newest_ns = now_ns - seen.job.created_ns
        self.sample = seen.job.job_id
        self.body = _shown(seen, most)

    def add(self, job: Job, now_ns: int) -> None:
        age_ns = now_ns - job.created_ns
        self._jobs += 1
        self._bytes += job.body_bytes
        self._oldest_ns = max(self._oldest_ns, age_ns)
        self._newest_ns = min(self._newest_ns, age_ns)

    def described(self) -> dict[str, Any]:
        tube, dead_from, reason, mark = self._key
        return {
            "tube": tube, "dead_from": dead_from or None, "dead_reason": reason or None,
            "fingerprint": mark or None, "jobs": self._jobs, "bytes": self._bytes,
            "oldest_age": self._oldest_ns // NS, "newest_age": self._newest_ns // NS,
            "sample": self.sample, **self.body,
        }  # fmt: skip


def key_of(seen: Seen, state: QueueState, *, by_body: bool) -> GroupKey:
    job, body = seen.job, seen.body
    tube = state.tubes.by_id(job.tube_id).name.decode("ascii")
    dead_from = job.tags.dead_from.decode("ascii", "replace") if job.tags is not None else ""
    mark = fingerprint(body) if by_body and body is not None else ""
    return tube, dead_from, reason_of(job) or "", mark


def described(seen: Seen, state: QueueState, now_ns: int, most: int) -> dict[str, Any]:
    """Describe a job as `list-jobs` does, with its tube, the segment that it keeps, and its body.

    :param most: bytes of the body.
    """
    job = seen.job
    tube = state.tubes.by_id(job.tube_id).name.decode("ascii")
    stats = LISTED_JOB.plain(statistics.listed(job, now_ns))
    return {"tube": tube, **stats, "file": job.segment, **_shown(seen, most)}


def _is_shown(job: Job, most: int) -> bool:
    """Return whether a body is to be shown, and not too large to be touched."""
    return bool(most) and job.body_bytes <= LOOK_BODY_BYTES


def _shown(seen: Seen, most: int) -> dict[str, Any]:
    if seen.body is None or not _is_shown(seen.job, most):
        return {}
    return {"body": fields.shown_body(seen.body, most)}


def _end(look: Look) -> bytes:
    """Encode how far a look came, as the end of an object."""
    about = {
        "looked": look.looked, "total": look.total, "unread": look.unread,
        "cursor": look.walk.cursor,
    }  # fmt: skip
    return encoded(about)[1:] + b"\n"
