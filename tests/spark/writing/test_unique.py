"""Rows with unique keys are in the queue once, whatever is killed and repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from binlog_tools.spark.errors import SinkError
from binlog_tools.spark.writing.job_rows import JobRows, SinkOptions
from binlog_tools.spark.writing.putting import Batch, Tally, put_partition
from tests.server_process import ServerProcess, ours_at_once, real_beanstalkd, theirs
from tests.spark.writing.scripted import ScriptedServer, inserted

FIELDS = [("body", "string"), ("unique_key", "string")]
ALL_TAGS = b"---\n- put-at\n- put idp:\n- put con:\n- put grp:\n- put aft:\n"


def table(first: int, behind: int) -> pa.RecordBatch:
    numbers = range(first, behind)
    return pa.RecordBatch.from_pydict({
        "body": pa.array([f"job {number}" for number in numbers], "string"),
        "unique_key": pa.array([f"key-{number}" for number in numbers], "string"),
    })  # fmt: skip


def put(port: int, batches: Iterator[pa.RecordBatch]) -> Tally:
    options = SinkOptions.of({"address": f"127.0.0.1:{port}", "window": "40"})
    return put_partition(batches, JobRows(FIELDS, options), options, 0, Batch("w"))[0]


def test_rows_that_were_there_are_counted_as_such() -> None:
    answers = [b"INSERTED 7 READY\r\n", b"INSERTED 8 DELETED\r\n", b"INSERTED 9\r\n"]
    with ScriptedServer(lambda number: answers[number], capabilities=ALL_TAGS) as server:
        assert put(server.port, iter([table(0, 3)])) == Tally(3, put=1, before=2)
    assert server.lines[0] == b"put 1024 0 60 5 idp:key-0:86400\r\n"


@pytest.mark.parametrize("known", [None, b"---\n", b"---\n- put grp:\n- put-at\n"])
def test_a_server_that_does_not_know_the_word_gets_no_row(known: bytes | None) -> None:
    with ScriptedServer(inserted, capabilities=known) as server, pytest.raises(SinkError) as raised:
        put(server.port, iter([table(0, 3)]))
    assert str(raised.value).startswith(
        f"[SINK_NO_TAG] {server.address}: the server does not announce 'put idp:', which the "
        "column `unique_key` needs; nothing was put of this partition by this attempt"
    )
    assert server.puts == []


def test_a_real_beanstalkd_gets_no_row_and_no_body_as_a_command(tmp_path: Path) -> None:
    real_beanstalkd()
    with ServerProcess(theirs(), tmp_path) as server:
        with pytest.raises(SinkError, match="SINK_NO_TAG"):
            put(server.port(), iter([table(0, 3)]))
        assert b"cmd-put: 0\n" in server.connect().ask(b"stats\r\n")


def test_the_real_server_keeps_all_tags(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({
        "body": ["a", "b"], "unique_key": ["k", None], "unique_s": [7, 8],
        "concurrency_key": [None, "c"], "concurrency_limit": [None, 3],
        "job_group": ["g", "h"], "after": [None, "g"],
    })  # fmt: skip
    kinds = [(name, "bigint" if "_s" in name or "limit" in name else "string")
             for name in batch.schema.names]  # fmt: skip
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        options = SinkOptions.of({"address": f"127.0.0.1:{server.port()}"})
        assert put_partition([batch], JobRows(kinds, options), options, 0)[0] == Tally(2, put=2)
        client = server.connect()
        assert client.ask(b"put 0 0 60 1 idp:k\r\nx\r\n") == b"INSERTED 1 READY\r\n"
