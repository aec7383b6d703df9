"""One partition of rows into one server.  A window is put as a batch with a key, so that it can be
sent again; without such keys, or where rows have their own, it is single puts.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import PUT, PUT_TAGGED, SPECS
from beanstalk_twisted.client.commands.tags import JobCount
from beanstalk_twisted.client.sync import Asked, Client, Pipeline
from beanstalk_twisted.wire.forms import Inserted
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES, MAX_METADATA_BYTES, BatchKey, PutTags
from binlog_tools.spark.errors import SinkError
from binlog_tools.spark.writing.job_rows import WINDOW_BYTES, Job, JobRows, Puts, SinkOptions

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
"""How long to wait for a server that refuses or is away: it doubles in between."""

MOST_IN_BATCH: Final = MAX_BATCH_BYTES - MAX_METADATA_BYTES
"""Bytes of a body; a larger one is put alone."""

FORGOTTEN_AT_ONCE: Final = 100
"""Keys that are forgotten with one round trip."""

REFUSALS: Final = (errors.Draining, errors.OutOfMemory)
"""The rows were not taken; they may be, later."""

KEYED: Final = "put-batch idp:"
"""What a server announces that knows keys of batches."""


class Clock(Protocol):
    """Where time comes from, in seconds; `time` is one."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class Batch(NamedTuple):
    """What all keys of a batch begin with; ``write`` is the same when it is repeated."""

    write: str
    number: int = 0

    def key(self, partition: int, window: int) -> bytes:
        """:param window: counted by tube from 0: keys are forgotten without a list of them."""
        return f"{self.write}.{self.number}.{partition}.{window}".encode()


class Window(NamedTuple):
    """Rows of one tube, by number in the partition, that are sent together; ``key`` or none."""

    tube: bytes
    jobs: Sequence[Job]
    rows: Sequence[int]
    key: bytes = b""

    def only(self, places: Sequence[int]) -> "Window":
        chosen = [self.jobs[at] for at in places], [self.rows[at] for at in places]
        return Window(self.tube, *chosen, self.key)

    def ask(self, pipeline: Pipeline, unique_s: int) -> list[Asked]:
        """Send it: with a key as one command, else each row as its own."""
        if not self.key:
            return [self._put(pipeline, job, job.tags) for job in self.jobs]
        if len(self.jobs) == 1 and len(self.jobs[0].body) > MOST_IN_BATCH:
            job = self.jobs[0]
            tags = (job.tags or PutTags())._replace(unique_key=self.key, unique_s=unique_s)
            return [self._put(pipeline, job, tags)]
        count = JobCount(len(self.jobs))
        count.tags = tuple(job.tags for job in self.jobs)
        args = count, BatchKey(self.key, unique_s)
        body = CRLF.join(job.in_batch() for job in self.jobs)
        return [pipeline.send(SPECS["put-batch"], args, body, self.tube)]

    def _put(self, pipeline: Pipeline, job: Job, tags: PutTags | None) -> Asked:
        if tags is None:
            return pipeline.send(PUT, job.numbers, job.body, self.tube)
        return pipeline.send(PUT_TAGGED, (*job.numbers, tags), job.body, self.tube)


def windows(
    runs: Iterable[Puts], most_jobs: int, key_of: Callable[[int], bytes] = lambda window: b""
) -> Iterator[Window]:
    """Cut rows into windows of one tube each, within `WINDOW_BYTES` or of one row."""
    counts: Counter[bytes] = Counter()
    for puts in runs:
        places: dict[bytes, list[int]] = {}
        for at, tube in enumerate(puts.tubes):
            places.setdefault(tube, []).append(at)
        for tube, own in places.items():
            for part in _cut(own, puts.jobs, most_jobs):
                rows = [puts.first + at for at in part]
                key = key_of(counts[tube])
                counts[tube] += 1
                yield Window(tube, [puts.jobs[at] for at in part], rows, key)


def _cut(places: Sequence[int], jobs: Sequence[Job], most_jobs: int) -> Iterator[Sequence[int]]:
    start = size = 0
    for number, at in enumerate(places):
        own = len(jobs[at].body)
        if number > start and (size + own > WINDOW_BYTES or number - start >= most_jobs):
            yield places[start:number]
            start, size = number, 0
        size += own
    yield places[start:]


class Tally(NamedTuple):
    """What tasks have done; ``before``: were there by key, ``buried``: for want of memory."""

    rows: int = 0
    put: int = 0
    before: int = 0
    buried: int = 0
    refused: int = 0

    def __add__(self, other: Any) -> "Tally":
        return Tally(*map(sum, zip(self, other, strict=True)))


class Sender:
    """Puts windows, one after the other; the client repeats those with keys by itself."""

    def __init__(self, client: Client, options: SinkOptions, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self.windows: Counter[bytes] = Counter()
        self._client = client
        self._options = options
        self._clock = clock

    def send(self, coming: Iterator[Window]) -> None:
        """Put all rows; raise SinkError if not all are in the queue."""
        window = next(coming, None)
        while window is not None:
            self.windows[window.tube] += 1
            asked = self._ask(window)
            try:
                following = next(coming, None)
            finally:
                # Also when the rows come to a bad end: what was sent is counted.
                self._finish(window, asked)
            window = following

    def _ask(self, window: Window) -> list[Asked]:
        asked = window.ask(Pipeline(self._client), self._options.unique_s)
        self._client.take()
        return asked

    def _finish(self, window: Window, asked: list[Asked]) -> None:
        pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
        while True:
            left, why = self._hear(window, asked)
            if not left.jobs:
                return
            if len(left.jobs) < len(window.jobs):
                pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
            elif self._clock.monotonic() - since_s >= self._options.retry_s:
                raise self._gave_up(left, why)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            window, asked = left, self._ask(left)

    def _hear(self, window: Window, asked: list[Asked]) -> tuple[Window, str]:
        """:return: the rows that were refused, and how."""
        refused: list[int] = []
        lost: list[int] = []
        why, reason = "", ""
        for at, each in enumerate(asked):
            try:
                self._count(window, each.result)
            except REFUSALS as problem:
                refused.append(at)
                why = f"has answered {problem.word.decode()}"
            except errors.Buried:
                self.counts["put"] += 1
                self.counts["buried"] += 1
            except errors.ClientError as problem:
                if _is_misunderstood(problem):
                    raise self._misunderstood(problem, window.rows[at:]) from None
                lost.append(at)
                reason = _told(problem)
        if lost and window.key:
            return window, f"cannot be reached ({reason})"
        if lost:
            raise self._lost(reason, window.only(lost).rows)
        left = window if refused and window.key else window.only(refused)
        self.counts["refused"] += len(left.jobs)
        return left, why

    def _count(self, window: Window, made: Inserted | tuple[Inserted, ...]) -> None:
        jobs = made if isinstance(made, tuple) else (made,)
        before = len(jobs) - [job.state for job in jobs].count(None)
        if before and window.key:
            self._verify(window, jobs)
        self.counts["put"] += len(jobs) - before
        self.counts["before"] += before

    def _verify(self, window: Window, jobs: Sequence[Inserted]) -> None:
        """Compare the rows with what an earlier attempt has put, as far as it is still there."""
        differs = len(jobs) != len(window.jobs)
        if not differs:
            pipeline = Pipeline(self._client)
            peeked = [
                (job, pipeline.peek(there))
                for job, there in zip(window.jobs, jobs, strict=True) if there.state != "deleted"
            ]  # fmt: skip
            for job, each in peeked:
                if not isinstance(each.error, errors.NotFound):
                    differs = differs or each.result.body != job.body
        if differs:
            raise SinkError(
                "SINK_ROWS_CHANGED",
                f"{self._client.address}: rows {spans(window.rows)} of this partition are not "
                f"those that an earlier attempt has put; nothing of them was put again; let the "
                f"rows depend on nothing that changes, and give the rows of each partition an "
                f"order, with sortWithinPartitions()",
            )

    # How it fails.

    def _lost(self, reason: str, rows: Sequence[int]) -> SinkError:
        return SinkError(
            "SINK_CONNECTION_LOST",
            f"{self._client.address}: {reason}; of this partition, rows {spans(rows)} were "
            f"sent and not answered: each of them is in the queue or is not; {self._others()}",
        )

    def _others(self) -> str:
        return f"{self.counts['put'] + self.counts['before']} others are in the queue, and no more"

    def _gave_up(self, window: Window, why: str) -> SinkError:
        what = "may be in the queue or not" if "reached" in why else "are not in the queue"
        return SinkError(
            "SINK_REFUSED",
            f"{self._client.address} {why} for {self._options.retry_s:g} s; of this partition, "
            f"rows {spans(window.rows)} {what}; {self._others()}; write again when the server "
            f"takes jobs, or raise retryTimeout",
        )

    def _misunderstood(self, problem: errors.ClientError, rows: Sequence[int]) -> SinkError:
        return SinkError(
            "SINK_REPLY",
            f"{self._client.address}: {_told(problem)}; rows {spans(rows)} of this partition may "
            f"be in the queue or not; {self._others()}",
        )


def _is_misunderstood(problem: errors.ClientError) -> bool:
    """Whether the server has answered something that repeating does not change."""
    if isinstance(problem, errors.Unanswered | errors.NotCarriedOut):
        return isinstance(problem.reason, errors.BadReply)
    return isinstance(problem, errors.ErrorReply | errors.NotAnnounced)


def _told(problem: errors.ClientError) -> str:
    """Why there is no answer, where the server is named already."""
    reason = getattr(problem, "reason", None) or problem
    if isinstance(reason, errors.NoHost) and len(reason.reasons) == 1:
        (reason,) = reason.reasons.values()
    return str(errors.without_server(reason))


def spans(rows: Sequence[int]) -> str:
    """Ascending row numbers as people read them: ``3-7, 9``."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row - 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in found)


def put_partition(
    batches: Iterable[pa.RecordBatch], rows: JobRows, options: SinkOptions, partition: int,
    batch: Batch | None = None, clock: Clock = time, attempt: int = 0,
) -> tuple[Tally, dict[bytes, int]]:  # fmt: skip
    """Put all rows of a partition; return what was done, and how many keys each tube has had.

    :param batch: names the rows in each attempt; None: they have no keys.
    """
    server = options.server_of(partition)
    history = "nothing was put of this partition by this attempt"
    if attempt:
        history += f", number {attempt + 1} of this task; those before it may have put rows"
    client = Client(server, timeout_s=options.timeout_s)
    sender = Sender(client, options, clock)
    count = 0

    def puts(most_bytes: int) -> Iterator[Puts]:
        nonlocal count
        for each in batches:
            made = rows.puts(each, count, most_bytes)
            count += each.num_rows
            yield made

    try:
        most_bytes, words = _introduced(client, history)
        _refuse_unless_known(client, words, rows.tags, history)
        is_keyed = batch is not None and KEYED in words and "unique_key" not in rows.tags
        keys = [partial(batch.key, partition)] if batch is not None and is_keyed else []
        sender.send(windows(puts(most_bytes), options.window_jobs, *keys))
    finally:
        client.close()
    tally = Tally(count, *(sender.counts[name] for name in Tally._fields[1:]))
    return tally, dict(sender.windows) if is_keyed else {}


def _introduced(client: Client, history: str) -> tuple[int, frozenset[str]]:
    """:return: the bytes of a body at most, and the commands and tags that the server announces."""
    try:
        client.connect()
        most = client.stats().get("max-job-size")
        if isinstance(most, int):
            return most, client.probe()
        why = "its stats have no max-job-size"
    except errors.ClientError as problem:
        why = _told(problem)
    raise SinkError("SINK_NO_SERVER", f"{client.address}: {why}; {history}. Is the server there, "
                    "and can the executors reach it?")  # fmt: skip


def _refuse_unless_known(
    client: Client, words: frozenset[str], tags: Mapping[str, str], history: str
) -> None:
    """Before anything is put."""
    for column, word in tags.items():
        if f"put {word}" not in words:
            raise SinkError(
                "SINK_NO_TAG",
                f"{client.address}: the server does not announce 'put {word}', which the column "
                f"`{column}` needs; {history}. Upgrade the server, or drop the column",
            )


def forget_keys(options: SinkOptions, batch: Batch, partitions: int, tubes: Iterable[bytes]) -> int:
    """Forget the keys of a batch that is never tried again; return how many there were."""
    count = 0
    for number, server in enumerate(options.servers[:partitions]):
        with Client(server, timeout_s=options.timeout_s) as client:
            own = range(number, partitions, len(options.servers))
            for tube in tubes:
                count += sum(_forget(client, tube, batch, partition) for partition in own)
    return count


def _forget(client: Client, tube: bytes, batch: Batch, partition: int) -> int:
    count = 0
    while True:
        pipeline = Pipeline(client)
        keys = [batch.key(partition, count + at) for at in range(FORGOTTEN_AT_ONCE)]
        asked = [pipeline.forget_key(tube, key) for key in keys]
        problems = [each.error for each in asked]
        for problem in problems:
            if problem is not None and not isinstance(problem, errors.NotFound):
                raise problem
        found = problems.count(None)
        count += found
        if found < len(keys):
            return count
