"""
Searching bodies and fields, and counting what is alike: in slices, and a bounded part for each
request.

Both read memory as it is: what they show may not be on disk yet.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from beanstalk_twisted.binlog.fingerprint import fingerprint
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.looking import statistics
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.api import fields
from beanstalk_twisted.web.api.criteria import LOOK_BODY_BYTES, criteria_of, reason_of
from beanstalk_twisted.web.api.looking import SLICE_FINGERPRINTS, SLICE_JOBS, Look
from beanstalk_twisted.web.exchange import Call, Document, encoded
from beanstalk_twisted.wire.yaml import Quoted

NS: Final = 1_000_000_000

MAX_FOUND_JOBS: Final = 200
"""Jobs that one request finds: more than anybody reads."""

MAX_SAMPLE_BYTES: Final = 4096
"""Bytes of each body that are shown."""

MAX_GROUPS: Final = 200
"""
Groups that one request tells of, with a sample of each.  A request ends before the next one, so
that all counts are whole.
"""

SLICE_FOUND: Final = 20
"""Jobs that one slice describes: half a millisecond."""

GroupKey = tuple[str, str, str, str]
"""Tube, the tube that it is a dead letter of, why, and fingerprint; empty for none."""


class SearchApi:
    """
    The operations.
    """

    def __init__(self, service: BeanstalkService) -> None:
        self._service = service

    def search(self, call: Call) -> Document:
        """
        The next jobs that are meant.
        """
        query = call.query
        limit = fields.query_number(query, "limit", 50, 1, MAX_FOUND_JOBS)
        most = fields.query_number(query, "body_bytes", 0, 0, MAX_SAMPLE_BYTES)
        look = self._look(query, is_costly=False)
        return Document(self._found(look, limit, most))

    def groups(self, call: Call) -> Document:
        """
        The next jobs that are meant, by what is alike.
        """
        query = call.query
        by = fields.query_choice(query, "by", ("reason", "body"))
        most = fields.query_number(query, "body_bytes", 0, 0, MAX_SAMPLE_BYTES)
        look = self._look(query, is_costly=by == "body")
        return Document(self._grouped(look, by == "body", most))

    def _look(self, query: Mapping[str, str], *, is_costly: bool) -> Look:
        """
        :param is_costly: whether each job that is found has its fingerprint taken.
        :raise Refusal: the query is wrong.
        """
        criteria = criteria_of(query)
        slice_jobs = SLICE_FINGERPRINTS if is_costly else SLICE_JOBS
        state, cursor = self._service.queue.state, query.get("cursor", "")
        return Look(state, criteria, cursor, counts_bytes=False, slice_jobs=slice_jobs)

    def _found(self, look: Look, limit: int, most: int) -> Iterator[bytes]:
        state, left = self._service.queue.state, limit
        yield b'{"newest_job":%d,"jobs":[' % (state.next_job_id - 1)
        while left and not look.is_enough:
            now_ns = self._service.now_ns()
            jobs = look.slice(now_ns, min(left, SLICE_FOUND))
            rows = [encoded(described(job, state, now_ns, most)) for job in jobs]
            yield (b"," if rows and left < limit else b"") + b",".join(rows)
            left -= len(jobs)
        yield b"],%s" % _end(look)

    def _grouped(self, look: Look, by_body: bool, most: int) -> Iterator[bytes]:
        state = self._service.queue.state
        yield b'{"newest_job":%d,"groups":[' % (state.next_job_id - 1)
        groups: dict[GroupKey, Group] = {}
        while len(groups) < MAX_GROUPS and not look.is_enough:
            now_ns = self._service.now_ns()
            # One job may be one group more.
            for job in look.slice(now_ns, MAX_GROUPS - len(groups)):
                key = key_of(job, state, by_body=by_body)
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Group(key, job, now_ns, most)
                group.add(job, now_ns)
            yield b""
        made = list(groups.values())
        for at in range(0, len(made), SLICE_FOUND):
            rows = [encoded(group.described()) for group in made[at : at + SLICE_FOUND]]
            yield (b"," if at else b"") + b",".join(rows)
        yield b"],%s" % _end(look)


class Group:
    """
    Jobs that are alike.
    """

    def __init__(self, key: GroupKey, job: Job, now_ns: int, most: int) -> None:
        """
        :param job: is shown as a sample, with so many bytes of its body.
        """
        self._key = key
        self._jobs = self._bytes = 0
        self._oldest_ns = self._newest_ns = now_ns - job.created_ns
        self._sample = job.job_id
        self._body = _shown(job, most)

    def add(self, job: Job, now_ns: int) -> None:
        """
        One more.
        """
        age_ns = now_ns - job.created_ns
        self._jobs += 1
        self._bytes += job.body_bytes
        self._oldest_ns = max(self._oldest_ns, age_ns)
        self._newest_ns = min(self._newest_ns, age_ns)

    def described(self) -> dict[str, Any]:
        """
        As JSON takes it.
        """
        tube, dead_from, reason, mark = self._key
        return {
            "tube": tube, "dead_from": dead_from or None, "dead_reason": reason or None,
            "fingerprint": mark or None, "jobs": self._jobs, "bytes": self._bytes,
            "oldest_age": self._oldest_ns // NS, "newest_age": self._newest_ns // NS,
            "sample": self._sample, **self._body,
        }  # fmt: skip


def key_of(job: Job, state: QueueState, *, by_body: bool) -> GroupKey:
    """
    What is alike in a group.
    """
    tube = state.tubes.by_id(job.tube_id).name.decode("ascii")
    dead_from = job.tags.dead_from.decode("ascii", "replace") if job.tags is not None else ""
    mark = fingerprint(job.body) if by_body and job.body is not None else ""
    return tube, dead_from, reason_of(job) or "", mark


def described(job: Job, state: QueueState, now_ns: int, most: int) -> dict[str, Any]:
    """
    A job as `list-jobs` says it, with its tube, the segment that it keeps, and so many bytes of its
    body.
    """
    tube = state.tubes.by_id(job.tube_id).name.decode("ascii")
    pairs = {key.replace("-", "_"): value for key, value in statistics.listed(job, now_ns)}
    plain = {key: each.text if isinstance(each, Quoted) else each for key, each in pairs.items()}
    return {"tube": tube, **plain, "file": job.segment, **_shown(job, most)}


def _shown(job: Job, most: int) -> dict[str, Any]:
    """
    The beginning of a body, if it is asked for, in memory, and not too large to be touched.
    """
    if not most or job.body is None or job.body_bytes > LOOK_BODY_BYTES:
        return {}
    return {"body": fields.shown_body(job.body, most)}


def _end(look: Look) -> bytes:
    """
    How far a look came, as the end of an object.
    """
    about = {"looked": look.looked, "total": look.total, "cursor": look.walk.cursor}
    return encoded(about)[1:] + b"\n"
