"""Jobs of a tube with all their fields: listed, and as JSON lines out and in (docs/inspect.md)."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from beanstalk_twisted.binlog.records.jobs import COUNTERS
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.stats import ListedJob
from beanstalk_twisted.printable import escape_all
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import TABLE_ROWS, Escaped, Output, as_json, columns, progress
from binlog_tools.console.signals import DeferredSignal, end_if_told
from binlog_tools.console.wording import body_fields, told
from binlog_tools.logs.outputs import opened
from binlog_tools.logs.quantities import NS, format_time_exactly
from binlog_tools.queue.asking import group_awaited, need, pages
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, USAGE
from binlog_tools.queue.cli.tubes import table
from binlog_tools.rewrite.exporting import LineFields, WrongLine, bounded_lines, documents, read_job
from binlog_tools.rewrite.journals import Journal, Stopped
from binlog_tools.rewrite.put_plans import lost_words
from binlog_tools.rewrite.putting import NOT_BURIED, Numbered, Putter

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

LOOKED_AT: Final = 256
"""Jobs whose bodies are asked for at once."""

LOOKED_AT_BYTES: Final = 8 << 20
"""Bytes of bodies that are asked for at once, unless one job has more."""

TAGS: Final = {
    "unique_key": "idempotency-key", "unique_s": "idempotency-ttl",
    "concurrency_key": "concurrency-key", "concurrency_limit": "concurrency-limit",
    "group": "group", "after": "after-group", "metadata": "metadata", "dead_from": "dead-from",
    "dead_reason": "dead-reason", "origin": "origin",
}  # fmt: skip
"""The fields of a line's tags, and the keys that `list-jobs` has for them."""


def listed(
    client: "Client", tube: bytes, states: Sequence[str], most: int | None = None
) -> Iterator[ListedJob]:
    """List the jobs of a tube, state by state.

    :param most: how many at most; None for all.
    :raise NotFound: there is no such tube.
    """
    left = most
    for state in states:
        try:
            for page in pages(client, tube, state, left):
                yield from page
                left = None if left is None else left - len(page)
        except errors.NotFound:
            if state == states[0]:
                raise
            return  # The tube was deleted with its last job.


def to_export(client: "Client", tube: bytes, states: Sequence[str]) -> Iterator[ListedJob]:
    """List the jobs, those that wait for a group last: they have to be put after it."""
    yield from (job for job in listed(client, tube, states) if not group_awaited(job))
    if "delayed" in states:
        yield from filter(group_awaited, listed(client, tube, ["delayed"]))


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
    left_s = job.time_left if job.state == "delayed" and not group_awaited(job) else None
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


MOST_NAMED: Final = 5
"""Of the jobs that were not put: the first say enough for people, and JSON has all."""


JOB_TITLES: Final = columns(
    "#id", "state", "#pri", "#age", "#left", "#size", "#reserves", "#timeouts", "#releases",
    "#buries", "#kicks", "#delay", "#ttr", "#connection", "waits for",
)  # fmt: skip
WAITS_FOR: Final = "waits-for"
"""Our word for the group that a job waits for, of those that a job of a list has."""

JOB_KEYS: Final = (
    "id", "state", "pri", "age", "time-left", "size", "reserves", "timeouts", "releases",
    "buries", "kicks", "delay", "ttr", "connection", WAITS_FOR,
)  # fmt: skip
JOBS_NOT_IF_NARROW: Final = ("delay", "kicks", "ttr", "buries", "timeouts", "releases", WAITS_FOR)
"""What a terminal without room is not shown, the first first."""


def list_tube(
    tube: bytes, address: Address, states: tuple[str, ...], limit: int | None, has_bodies: bool,
    pattern: re.Pattern[bytes] | None, is_json: bool,
) -> None:  # fmt: skip
    """Do what ``beanstalk list`` says."""
    name, found = tube.decode(), 0
    chosen: tuple[str, ...] = options.LISTED[:1]
    if states and options.LISTED[0] not in states:
        chosen = tuple(state for state in options.LISTED if state in states)

    def jobs() -> Iterator[tuple[ListedJob, bytes]]:
        nonlocal found
        wanted = listed(client, tube, chosen, None if pattern else limit)
        looked: Iterator[tuple[ListedJob, bytes]] = ((job, b"") for job in wanted)
        if pattern is not None or has_bodies:
            looked = with_bodies(client, wanted)
        for job, body in looked:
            if pattern is None or pattern.search(body):
                found += 1
                yield job, body
                if found == limit:
                    return

    with options.connected(address) as client:
        shown = chosen[0] if chosen[0] in ("delayed", "buried") else "ready"
        peek = f"`beanstalk peek --tube {name} --state {shown}`"
        need(client, "list-jobs", f"{peek} shows the first job of a state")
        if is_json:
            for job, body in jobs():
                bodies = body_fields(body) if has_bodies else {}
                Output(True).document({"tube": name, **job, **bodies})
        else:
            _show(jobs(), has_bodies)
    if not found:
        which = "" if chosen == options.LISTED[:1] else f"{' or '.join(chosen)} "
        fail(NOTHING, f"{name} has no {which}job{' with that in its body' if pattern else ''}")


def _show(jobs: Iterator[tuple[ListedJob, bytes]], has_bodies: bool) -> None:
    titles, keys = list(JOB_TITLES), list(JOB_KEYS)
    if has_bodies:
        titles, keys = [*titles, *columns("~body")], [*keys, "body"]
    rows = (_row(job, body, has_bodies) for job, body in jobs)
    table(titles, keys, JOBS_NOT_IF_NARROW, list(islice(rows, TABLE_ROWS)), rows)


def _row(job: ListedJob, body: bytes, has_body: bool) -> list[object]:
    facts = {**job, WAITS_FOR: group_awaited(job) or None}
    row: list[object] = [facts.get(key) for key in JOB_KEYS]
    return [*row, Escaped(escape_all(body))] if has_body else row


def export_tube(
    tube: bytes, address: Address, states: tuple[str, ...], target: str | None, is_json: bool
) -> None:  # fmt: skip
    """Do what ``beanstalk export`` says."""
    name = tube.decode()
    chosen = [state for state in options.LISTED[1:] if state in states] or list(options.LISTED[1:])
    found = 0
    with options.connected(address) as client:
        total = _count(client, tube, chosen)
        with progress(f"exporting {name}") as report, opened(target) as out:
            jobs = with_bodies(client, to_export(client, tube, chosen))
            for found, (job, body) in enumerate(jobs, 1):
                out.write(as_json(line_of(name, job, body, time.time_ns())) + "\n")
                report(found, max(total, found))
    if not found:
        fail(NOTHING, f"{name} has no {'' if not states else ' or '.join(chosen) + ' '}job")
    if target is not None:
        warn(f"{told(found, 'job')} exported to {target}")


def _count(client: "Client", tube: bytes, states: Sequence[str]) -> int:
    instead = "of a beanstalkd that is stopped, `binlog-inspect import-v7` reads the binlog"
    need(client, "list-jobs", instead)
    stats = client.stats_tube(tube)
    return sum(int(str(stats[f"current-jobs-{state}"])) for state in states)


def import_file(
    file: BinaryIO, address: Address, tube: bytes | None, rate: float | None,
    journal_path: str | None, uncertain: str, max_line: int, is_json: bool,
) -> None:  # fmt: skip
    """Do what ``beanstalk import`` says."""
    passed: Counter[str] = Counter()
    now_ns = time.time_ns()
    name = getattr(file, "name", "<stdin>")
    size, digest = _checked(file, tube, max_line, now_ns)
    if journal_path is not None and digest is None:
        raise click.UsageError("--journal needs a file that can be read again")
    into = "" if tube is None else f" {tube.decode()}"
    with options.connected(address) as client, DeferredSignal() as stop:
        journal, putter = None, None
        try:
            if journal_path is not None:
                journal = Journal(journal_path, str(digest), f"{address}{into}")
            putter = Putter(client, journal, time.time_ns, time.sleep, rate)
            if journal is not None:
                journal.settle(uncertain, "lines", knows_keys=putter.knows_keys)
            with progress(f"importing {name}") as report:
                putter.run(
                    jobs_of(bounded_lines(file, max_line), tube, now_ns, passed),
                    lambda: stop.number is not None,
                    lambda done: report(*((file.tell(), size) if size else (done, done))),
                )  # fmt: skip
        except (errors.ClientError, Stopped, WrongLine) as problem:
            if putter is None:
                if isinstance(problem, Stopped):
                    fail(REFUSED, str(problem))
                raise
            _tell_problems(putter, passed)
            end_if_told(stop, f"{told(putter.put, 'job')}{_again(journal)}")
            code = USAGE if isinstance(problem, WrongLine) else REFUSED
            fail(code, f"{name}: {problem}; {_so_far(putter, problem)}{_again(journal)}")
        finally:
            if journal is not None:
                journal.close()
    _tell(putter, passed, is_json)


def _checked(
    file: BinaryIO, tube: bytes | None, max_line: int, now_ns: int
) -> tuple[int, str | None]:  # fmt: skip
    """Read all lines of a file, before anything is put.

    :return: its size and its digest; 0 and None of what can be read once only.
    """
    if not file.seekable():
        return 0, None
    digest = hashlib.sha256()

    def noted() -> object:
        for line in bounded_lines(file, max_line):
            digest.update(line)
            yield line

    try:
        for _ in jobs_of(noted(), tube, now_ns, Counter()):  # type: ignore[arg-type]
            pass
    except WrongLine as problem:
        fail(USAGE, f"{problem}; nothing was put", file.name)
    size = file.tell()
    file.seek(0)
    return size, digest.hexdigest()


def _so_far(putter: Putter, problem: Exception) -> str:
    words = f"{told(putter.put, 'job')} put"
    if putter.sent is not None and getattr(problem, "may_be_done", False):
        first, last = putter.sent
        words += f", and those of lines {first} to {last} may be"
    return words


def _again(journal: Journal | None) -> str:
    return "" if journal is None else "; run it again with the same journal to go on"


def _tell(putter: Putter, passed: Counter[str], is_json: bool) -> None:
    if is_json:
        Output(True).document({
            "put": putter.put, "before": putter.before, "buried": putter.buried,
            "waiting": putter.waiting, "not_buried": putter.not_buried, "left_out": putter.lost,
            "refused": [{"line": each.number, "why": each.why} for each in putter.refused],
        })  # fmt: skip
    else:
        buried = f", {putter.buried} of them buried" if putter.buried else ""
        before = f", {putter.before} were put before" if putter.before else ""
        Output().line(f"{told(putter.put, 'job')} put{buried}{before}")
    _tell_problems(putter, passed)
    if putter.refused or putter.not_buried:
        raise SystemExit(REFUSED)
    if not putter.put + putter.before:
        fail(NOTHING, "there is no job in it")


def _tell_problems(putter: Putter, passed: Counter[str]) -> None:
    for what, count in sorted(passed.items()):
        kind = what if what.startswith("line") else f"field {what}, which is unknown"
        warn(f"passed over: {kind}: {count}")
    for what, count in putter.lost.items():
        warn(lost_words(what, count))
    if putter.waiting:
        warn(
            f"{told(putter.waiting, 'job')} buried: no job of the group that it waits for is "
            "there", hint="kick them when the group is done",
        )  # fmt: skip
    for line, why in putter.refused[:MOST_NAMED]:
        warn(f"line {line} was not put: {why}")
    if (more := len(putter.refused) - MOST_NAMED) > 0:
        warn(f"{more} more were not put")
    for line in putter.not_buried[:MOST_NAMED]:
        warn(f"line {line} was put, but not buried: {NOT_BURIED}")
