"""One partition of rows into one server: what a task of a write does."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Lost, announced, parse_stats
from binlog_tools.connections import connect
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import JobRows, Puts
from binlog_tools.spark.writing.options import SinkOptions
from binlog_tools.spark.writing.progress import Progress
from binlog_tools.spark.writing.sending import Clock, Sender, windows


class Tally(NamedTuple):
    """
    What a task has done, or all of them: ``put`` and ``before`` are together all rows.

    :ivar before: were put by an earlier attempt, or were there by their unique keys.
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


def put_partition(
    batches: Iterable[pa.RecordBatch], rows: JobRows, options: SinkOptions, partition: int,
    folder: str = "", clock: Clock = time, attempt: int = 0,
) -> Tally:  # fmt: skip
    """
    Put all rows of a partition.

    :param folder: of the files of progress, empty: none is written.
    :param attempt: how often Spark has tried this task before.
    :raise SinkError: not all are in the queue.
    """
    server = options.servers[partition % len(options.servers)]
    progress = Progress(folder, partition, str(server)) if folder else None
    history = _history(attempt, progress)
    try:
        with _connected(server, options.timeout_s, history) as connection:
            puts = _Puts(rows, batches, _most_bytes(connection, history))
            _refuse_unless_known(connection, rows.tags, history)
            runs = progress.fresh(puts) if progress else puts
            note = progress.note if progress else lambda rows, others: None
            sender = Sender(connection, options.retry_s, clock, note)
            sender.send(windows(runs, options.window_jobs))
        if progress:
            progress.finish()
    finally:
        if progress:
            progress.close()
    before = sender.before + (progress.before if progress else 0)
    return Tally(puts.rows, sender.put, before, sender.buried, sender.refused)


class _Puts:
    def __init__(self, rows: JobRows, batches: Iterable[pa.RecordBatch], most_bytes: int) -> None:
        self.rows = 0
        self._meaning = rows
        self._batches = batches
        self._most_bytes = most_bytes

    def __iter__(self) -> Iterator[Puts]:
        for batch in self._batches:
            puts = self._meaning.puts(batch, self.rows, self._most_bytes)
            self.rows += batch.num_rows
            yield puts


def _history(attempt: int, progress: Progress | None) -> str:
    """What was put, in words, if this attempt comes to nothing."""
    if progress is not None:
        put = f"{progress.before} rows of it are in the queue" if progress.before else "none before"
        return f"nothing was put of this partition by this attempt, {put}"
    if attempt:
        return (f"nothing was put by this attempt, number {attempt + 1} of this task; those before "
                f"it may have put rows")  # fmt: skip
    return "nothing was put of this partition by this attempt, the first one of this run"


def _connected(server: Address, timeout_s: float, history: str) -> Connection:
    try:
        return connect(server, timeout_s)
    except Lost as problem:
        raise SinkError(
            "SINK_NO_SERVER",
            f"{server}: {_why(problem, server)}; {history}. Is the server there, and can the "
            f"executors reach it?",
        ) from None


def _why(problem: Lost, server: Address) -> str:
    """Say what it is, with the file if it is about one of TLS."""
    is_file = server.tls is not None and problem.filename in server.tls
    return f"{problem.filename}: {problem.strerror}" if is_file else f"{problem.strerror}"


def _most_bytes(connection: Connection, history: str) -> int:
    try:
        connection.send(b"stats\r\n")
        reply = connection.reply()
    except Lost as problem:
        why = f"{problem.strerror}"
    else:
        most = parse_stats(reply.data).get(b"max-job-size", b"")
        if most.isdigit():
            return int(most)
        why = f"it answers {str(reply)!r} to stats"
    raise SinkError(
        "SINK_NO_SERVER", f"{connection.address}: {why}; {history}. Is this a beanstalkd?"
    )


def _refuse_unless_known(connection: Connection, tags: Mapping[str, bytes], history: str) -> None:
    """
    A server that does not know a tag would take the body for commands.

    :param tags: columns of tags, and their words.
    """
    if not tags:
        return
    try:
        words = announced(connection)
    except Lost as problem:
        raise SinkError(
            "SINK_NO_SERVER", f"{connection.address}: {problem.strerror}; {history}"
        ) from None
    for column, word in tags.items():
        if f"put {word.decode()}" not in words:
            raise SinkError(
                "SINK_NO_TAG",
                f"{connection.address}: the server does not announce 'put {word.decode()}', which "
                f"the column `{column}` needs; {history}. Upgrade the server, or drop the column",
            )
