"""One partition of rows into one server: what a task of a write does.

A window is put as a batch with a key: sent again, by another connection or another attempt, it puts
nothing.  Where the server has no such keys, or rows have keys of their own, it is single puts.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Lost, announced, connect, parse_stats, tube_request
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import WINDOW_BYTES, JobRows, Puts, SinkOptions

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
"""How long to wait for a server that refuses or is away: it doubles in between."""

MAX_BATCH_BYTES: Final = 15 << 20
"""The bodies of a `put-batch` (docs/extensions.md, "Limits"); a larger row is put alone."""

FORGOTTEN_AT_ONCE: Final = 100
"""Keys that are forgotten with one round trip."""

REFUSALS: Final = (b"DRAINING", b"OUT_OF_MEMORY")
"""The rows were not taken; they may be, later."""

KEYED: Final = "put-batch idp:"
"""What a server announces that knows keys of batches."""


class Clock(Protocol):
    """Where time comes from, in seconds; `time` is one."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class Batch(NamedTuple):
    """What all keys of a batch of rows begin with.

    :ivar write: the query, or the write; the same when it is repeated.
    """

    write: str
    number: int = 0

    def key(self, partition: int, window: int) -> bytes:
        """:param window: counted by tube from 0: keys are forgotten without a list of them."""
        return f"{self.write}.{self.number}.{partition}.{window}".encode()


class Window(NamedTuple):
    """Rows of one tube that are sent together.

    :ivar rows: their numbers in the partition.
    :ivar key: empty: without.
    """

    tube: bytes
    requests: Sequence[bytes]
    rows: Sequence[int]
    key: bytes = b""

    def only(self, places: Sequence[int]) -> "Window":
        chosen = [self.requests[at] for at in places], [self.rows[at] for at in places]
        return Window(self.tube, *chosen, self.key)

    def command(self, ttl_s: int) -> bytes:
        """:param ttl_s: how long the key is remembered."""
        if not self.key:
            return b"".join(self.requests)
        if self.is_alone:
            head, _, rest = self.requests[0].partition(b"\r\n")
            return b"%b idp:%b:%d\r\n%b" % (head, self.key, ttl_s, rest)
        head = b"put-batch %d idp:%b:%d\r\n" % (len(self.requests), self.key, ttl_s)
        return head + b"".join(each.removeprefix(b"put ") for each in self.requests)

    @property
    def is_alone(self) -> bool:
        return len(self.requests) == 1 and len(self.requests[0]) > MAX_BATCH_BYTES

    @property
    def size(self) -> int:
        return sum(map(len, self.requests))


def windows(
    runs: Iterable[Puts], most_jobs: int, key_of: Callable[[int], bytes] = lambda window: b""
) -> Iterator[Window]:
    """Cut rows into windows of one tube each, within `WINDOW_BYTES` or of one row.

    :param key_of: makes the key of a tube's window with this number.
    """
    counts: Counter[bytes] = Counter()
    for puts in runs:
        places: dict[bytes, list[int]] = {}
        for at, tube in enumerate(puts.tubes):
            places.setdefault(tube, []).append(at)
        for tube, own in places.items():
            for part in _cut(own, puts.requests, most_jobs):
                rows = [puts.first + at for at in part]
                key = key_of(counts[tube])
                counts[tube] += 1
                yield Window(tube, [puts.requests[at] for at in part], rows, key)


def _cut(
    places: Sequence[int], requests: Sequence[bytes], most_jobs: int
) -> Iterator[Sequence[int]]:
    start = size = 0
    for number, at in enumerate(places):
        own = len(requests[at])
        if number > start and (size + own > WINDOW_BYTES or number - start >= most_jobs):
            yield places[start:number]
            start, size = number, 0
        size += own
    yield places[start:]


class Tally(NamedTuple):
    """What a task has done, or all of them: ``put`` and ``before`` are together all rows.

    :ivar before: were there, by the key of their window or their own.
    :ivar buried: of those put, how many the server has buried at once, for want of memory.
    :ivar refused: how often a row was refused before it was taken.
    """

    rows: int = 0
    put: int = 0
    before: int = 0
    buried: int = 0
    refused: int = 0

    def __add__(self, other: Any) -> "Tally":
        return Tally(*map(sum, zip(self, other, strict=True)))


class Sender:
    """Puts windows, one after the other, through one connection at a time.

    :ivar counts: as the fields of `Tally`.
    :ivar windows: how many each tube has had.
    """

    def __init__(
        self, line: Connection, connected: Callable[[], Connection], options: SinkOptions,
        clock: Clock,
    ) -> None:  # fmt: skip
        """:param connected: makes another connection when one is lost."""
        self.counts: Counter[str] = Counter()
        self.windows: Counter[bytes] = Counter()
        self.line = line
        self._connected = connected
        self._options = options
        self._clock = clock
        self._tube = b"default"

    def send(self, coming: Iterator[Window]) -> None:
        """Put all rows.  While the server works on a window, the next one is made.

        :raise SinkError: not all are in the queue; it says which may be.
        """
        window = next(coming, None)
        while window is not None:
            self.windows[window.tube] += 1
            problem = self._say(window)
            try:
                following = next(coming, None)
            finally:
                # Also when the rows come to a bad end: what was sent is counted.
                self._finish(window, problem)
            window = following

    def _say(self, window: Window) -> Lost | None:
        command = window.command(self._options.unique_s)
        if window.tube != self._tube:
            command = tube_request(b"use", window.tube) + command
        try:
            self.line.send(command)
        except Lost as problem:
            return problem
        return None

    def _finish(self, window: Window, problem: Lost | None) -> None:
        pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
        while True:
            left, why = window, ""
            try:
                if problem is not None:
                    raise problem
                left, why = self._hear(window)
            except Lost as lost:
                if not window.key:
                    raise self._lost(lost, window.rows) from None
                why = f"cannot be reached ({lost.strerror})"
            if not left.requests:
                return
            if len(left.requests) < len(window.requests):
                pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
            elif self._clock.monotonic() - since_s >= self._options.retry_s:
                raise self._gave_up(left, why)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            window = left
            problem = self._reconnect() if why.startswith("cannot") else None
            problem = problem or self._say(window)

    def _reconnect(self) -> Lost | None:
        self.line.close()
        try:
            self.line = self._connected()
        except Lost as problem:
            return problem
        self._tube = b"default"
        return None

    def _hear(self, window: Window) -> tuple[Window, str]:
        """:return: the rows that were refused, and how."""
        if window.tube != self._tube:
            reply = self.line.line()
            if not reply.startswith(b"USING "):
                raise self._misunderstood(reply, "a `use`", window.rows)
            self._tube = window.tube
        return self._hear_batch(window) if window.key else self._hear_puts(window)

    def _hear_batch(self, window: Window) -> tuple[Window, str]:
        reply = self.line.reply()
        if reply.name in REFUSALS:
            self.counts["refused"] += len(window.requests)
            return window, f"has answered {reply}"
        lines = [b" ".join(reply.words)] if window.is_alone else reply.data.split(b"\r\n")
        jobs = [each.split() for each in lines]
        if reply.name not in (b"INSERTED_BATCH", b"INSERTED", b"BURIED"):
            raise self._misunderstood(b" ".join(reply.words), "a `put-batch`", window.rows)
        # A third word is the state of a job that was there.
        if any(len(job) > 2 for job in jobs):
            self._verify(window, jobs)
            self.counts["before"] += len(jobs)
        else:
            self._count(jobs)
        return window.only(()), ""

    def _count(self, jobs: Sequence[Sequence[bytes]]) -> None:
        self.counts["put"] += len(jobs)
        self.counts["buried"] += sum(job[0] == b"BURIED" for job in jobs)

    def _verify(self, window: Window, jobs: Sequence[Sequence[bytes]]) -> None:
        """Compare the rows with those that an earlier attempt has put, as far as the jobs are
        still there.
        """
        alive = [at for at, job in enumerate(jobs) if job[2:] != [b"DELETED"]]
        differs = len(jobs) != len(window.requests)
        if not differs:
            self.line.send(b"".join(b"peek %b\r\n" % jobs[at][1] for at in alive))
            for at in alive:
                reply = self.line.reply()
                body = window.requests[at].partition(b"\r\n")[2][:-2]
                differs = differs or (reply.name == b"FOUND" and reply.data != body)
        if differs:
            raise SinkError(
                "SINK_ROWS_CHANGED",
                f"{self.line.address}: rows {spans(window.rows)} of this partition are not those "
                f"that an earlier attempt has put; nothing of them was put again; let the rows "
                f"depend on nothing that changes, and give the rows of each partition an order, "
                f"with sortWithinPartitions()",
            )

    def _hear_puts(self, window: Window) -> tuple[Window, str]:
        refused, why = [], ""
        for at in range(len(window.requests)):
            try:
                words = self.line.line().split()
            except Lost as problem:
                raise self._lost(problem, window.rows[at:]) from None
            name = words[0] if words else b""
            if name in REFUSALS:
                refused.append(at)
                why = f"has answered {name.decode()}"
            elif name not in (b"INSERTED", b"BURIED"):
                what = f"the `put` of row {window.rows[at]}"
                raise self._misunderstood(b" ".join(words), what, window.rows[at:])
            elif len(words) > 2:
                self.counts["before"] += 1
            else:
                self._count([words])
        self.counts["refused"] += len(refused)
        return window.only(refused), why

    # How it fails.

    def _lost(self, problem: Lost, rows: Sequence[int]) -> SinkError:
        return SinkError(
            "SINK_CONNECTION_LOST",
            f"{self.line.address}: {problem.strerror}; of this partition, rows {spans(rows)} were "
            f"sent and not answered: each of them is in the queue or is not; {self._others()}",
        )

    def _others(self) -> str:
        return f"{self.counts['put'] + self.counts['before']} others are in the queue, and no more"

    def _gave_up(self, window: Window, why: str) -> SinkError:
        what = "may be in the queue or not" if "reached" in why else "are not in the queue"
        return SinkError(
            "SINK_REFUSED",
            f"{self.line.address} {why} for {self._options.retry_s:g} s; of this partition, rows "
            f"{spans(window.rows)} {what}; {self._others()}; write again when the server takes "
            f"jobs, or raise retryTimeout",
        )

    def _misunderstood(self, line: bytes, what: str, rows: Sequence[int]) -> SinkError:
        return SinkError(
            "SINK_REPLY",
            f"{self.line.address} has answered {line.strip().decode('ascii', 'replace')!r} to "
            f"{what} of this partition; rows {spans(rows)} may be in the queue or not; "
            f"{self._others()}",
        )


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
    """Put all rows of a partition.

    :param batch: names the rows in each attempt; None: they have no keys.
    :param attempt: how often Spark has tried this task before.
    :return: what was done, and how many windows with keys each tube has had.
    :raise SinkError: not all are in the queue.
    """
    server = options.server_of(partition)
    history = "nothing was put of this partition by this attempt"
    if attempt:
        history += f", number {attempt + 1} of this task; those before it may have put rows"
    line = _connected(server, options.timeout_s, history)
    sender = Sender(line, lambda: connect(server, options.timeout_s), options, clock)
    count = 0

    def puts(most_bytes: int) -> Iterator[Puts]:
        nonlocal count
        for each in batches:
            made = rows.puts(each, count, most_bytes)
            count += each.num_rows
            yield made

    try:
        most_bytes, words = _introduced(line, history)
        _refuse_unless_known(line, words, rows.tags, history)
        key_of = lambda window: b""  # noqa: E731
        is_keyed = batch is not None and KEYED in words and "unique_key" not in rows.tags
        if batch is not None and is_keyed:
            key_of = partial(batch.key, partition)
        sender.send(windows(puts(most_bytes), options.window_jobs, key_of))
    finally:
        sender.line.close()
    tally = Tally(count, *(sender.counts[name] for name in Tally._fields[1:]))
    return tally, dict(sender.windows) if is_keyed else {}


def _connected(server: Address, timeout_s: float, history: str) -> Connection:
    try:
        return connect(server, timeout_s)
    except Lost as problem:
        is_file = server.tls is not None and problem.filename in server.tls
        why = f"{problem.filename}: {problem.strerror}" if is_file else f"{problem.strerror}"
        raise SinkError(
            "SINK_NO_SERVER",
            f"{server}: {why}; {history}. Is the server there, and can the executors reach it?",
        ) from None


def _introduced(line: Connection, history: str) -> tuple[int, list[str]]:
    """:return: the bytes of a body at most, and the commands and tags that the server announces."""
    try:
        line.send(b"stats\r\n")
        reply = line.reply()
        most = parse_stats(reply.data).get(b"max-job-size", b"")
        if most.isdigit():
            return int(most), announced(line)
        why = f"it answers {str(reply)!r} to stats"
    except Lost as problem:
        why = f"{problem.strerror}"
    raise SinkError("SINK_NO_SERVER", f"{line.address}: {why}; {history}. Is this a beanstalkd?")


def _refuse_unless_known(
    line: Connection, words: Sequence[str], tags: Mapping[str, bytes], history: str
) -> None:
    """A server that does not know a tag would take the body for commands."""
    for column, word in tags.items():
        if f"put {word.decode()}" not in words:
            raise SinkError(
                "SINK_NO_TAG",
                f"{line.address}: the server does not announce 'put {word.decode()}', which "
                f"the column `{column}` needs; {history}. Upgrade the server, or drop the column",
            )


def forget_keys(options: SinkOptions, batch: Batch, partitions: int, tubes: Iterable[bytes]) -> int:
    """Forget the keys of a batch that is never tried again.

    :param partitions: how many to look at.
    :return: how many keys there were.
    :raise Lost: a server cannot be reached; then keys stay until their time is over.
    """
    count = 0
    for number, server in enumerate(options.servers[:partitions]):
        with connect(server, options.timeout_s) as line:
            own = range(number, partitions, len(options.servers))
            for tube in tubes:
                count += sum(_forget(line, tube, batch, partition) for partition in own)
    return count


def _forget(line: Connection, tube: bytes, batch: Batch, partition: int) -> int:
    count = 0
    while True:
        keys = [batch.key(partition, count + at) for at in range(FORGOTTEN_AT_ONCE)]
        line.send(b"".join(tube_request(b"forget-key", tube, key) for key in keys))
        found = [line.line() for _ in keys].count(b"FORGOTTEN\r\n")
        count += found
        if found < len(keys):
            return count
