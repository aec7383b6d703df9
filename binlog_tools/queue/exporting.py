"""The jobs of a tube, with their bodies, and as JSON lines out and in (docs/inspect.md)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.stats import ListedJob
from beanstalk_twisted.wire.extensions import MAX_PAGE_JOBS
from binlog_tools.console.wording import body_fields
from binlog_tools.logs.quantities import NS, format_time_exactly
from binlog_tools.rewrite.exporting import LineFields, WrongLine, documents, read_job
from binlog_tools.rewrite.putting import Numbered

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

LOOKED_AT: Final = 256
"""Jobs whose bodies are asked for at once."""

LOOKED_AT_BYTES: Final = 8 << 20
"""Bytes of bodies that are asked for at once, unless one job has more."""

COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")

TAGS: Final = {
    "unique_key": "idempotency-key", "unique_s": "idempotency-ttl",
    "concurrency_key": "concurrency-key", "concurrency_limit": "concurrency-limit",
    "group": "group", "after": "after-group", "metadata": "metadata", "dead_from": "dead-from",
    "dead_reason": "dead-reason", "origin": "origin",
}  # fmt: skip
"""The fields of a line's tags, and the keys that `list-jobs` has for them."""


def listed(
    client: "Client", tube: str, states: Sequence[str], most: int | None = None
) -> Iterator[ListedJob]:
    """List the jobs of a tube, state by state and page by page.

    :param most: how many at most; None for all.
    :raise NotFound: there is no such tube.
    """
    left = most
    for state in states:
        cursor: str | None = None
        while left is None or left > 0:
            count = MAX_PAGE_JOBS if left is None else min(left, MAX_PAGE_JOBS)
            try:
                page = client.list_jobs(tube, state, count, cursor)
            except errors.NotFound:
                if cursor is None and state == states[0]:
                    raise
                return  # The tube was deleted with its last job.
            yield from page.jobs
            left = None if left is None else left - len(page.jobs)
            cursor = page.cursor
            if cursor is None:
                break


def to_export(client: "Client", tube: str, states: Sequence[str]) -> Iterator[ListedJob]:
    """List the jobs, those that wait for a group last: they have to be put after it."""
    yield from (job for job in listed(client, tube, states) if not awaits(job))
    if "delayed" in states:
        yield from filter(awaits, listed(client, tube, ["delayed"]))


def awaits(job: ListedJob) -> bool:
    """Return True if the job waits for a group."""
    return job.state == "delayed" and not job.time_left and "after-group" in job


def with_bodies(
    client: "Client", jobs: Iterable[ListedJob]
) -> Iterator[tuple[ListedJob, bytes]]:  # fmt: skip
    """Add the bodies, some at a time; a job that is deleted meanwhile is left out."""
    for batch in _batches(jobs):
        with client.pipeline() as pipeline:
            answers = [pipeline.peek(job.id) for job in batch]
            for job, answer in zip(batch, answers, strict=True):
                with suppress(errors.NotFound):
                    yield job, answer.result.body


def _batches(jobs: Iterable[ListedJob]) -> Iterator[Sequence[ListedJob]]:
    batch: list[ListedJob] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) == LOOKED_AT or size + job.size > LOOKED_AT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += job.size
    if batch:
        yield batch


def line_of(tube: str, job: ListedJob, body: bytes, now_ns: int) -> dict[str, object]:
    """Describe a job; `binlog_tools.rewrite.exporting` reads it."""
    left_s = job.time_left if job.state == "delayed" and not awaits(job) else None
    tags: dict[str, object] = {name: job[key] for name, key in TAGS.items() if key in job}
    if "dead-at" in job:
        tags["dead_at"] = format_time_exactly(job.dead_at * NS)
    return {
        "kind": "job", "job": job.id, "tube": tube, "state": job.state,
        "priority": job.pri, "delay_s": job.delay, "ttr_s": job.ttr,
        "created": format_time_exactly(now_ns - job.age * NS),
        "deadline": None if left_s is None else format_time_exactly(now_ns + left_s * NS),
        **{name: job[name] for name in COUNTERS}, **({"tags": tags} if tags else {}),
        **body_fields(body),
    }  # fmt: skip


def jobs_of(
    file: Iterable[bytes], tube: bytes | None, now_ns: int, passed: Counter[str]
) -> Iterator[Numbered]:
    """Read the jobs of an export, each with the number of its line.

    :param tube: where to put them instead.
    :param passed: counts what is passed over: lines of other kinds, and unknown fields.
    :raise WrongLine: a line cannot be understood.
    """
    for number, document in documents(file, passed):
        kind = document.get("kind", "job")
        if kind in ("log", "pause", "policy", "key"):
            passed[f"line of kind {kind}"] += 1
        elif kind != "job":
            raise WrongLine(number, f"kind {kind!r} is unknown")
        else:
            job = read_job(LineFields(number, document), number, now_ns)
            yield Numbered(number, job._replace(tube=tube or job.tube))
