"""Rows into a queue, by Spark."""

from __future__ import annotations

import json
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, Reason, State
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.tags import Tags
from benchmarks.spark.history import Made
from binlog_tools.logs.live_set import live_at
from binlog_tools.logs.opening import open_source
from binlog_tools.spark.errors import SinkError, explain_error
from binlog_tools.spark.session import PATIENCE_S
from binlog_tools.spark.sink import (
    BeanstalkSink,
    Done,
    JobStreamWriter,
    forget,
    register,
    tell,
    total_of,
)
from binlog_tools.spark.source import register as register_source
from binlog_tools.spark.writing.job_rows import SinkOptions
from binlog_tools.spark.writing.putting import Batch, Tally, forget_keys, spans
from tests.binlog.scribe import T0
from tests.server_process import Connection, ServerProcess, ours, ours_at_once
from tests.spark.writing.scripted import ScriptedServer, inserted
from tests.tools.logs.test_new_log import job
from tests.tools.rewrite.test_tagged import log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = StructType().add("body", "string")


@pytest.fixture(scope="module")
def sinking(spark: SparkSession) -> SparkSession:
    return register(spark)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Connection]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        yield server.connect()


def address_of(client: Connection) -> str:
    host, port = client.socket.getpeername()
    return f"{host}:{port}"


def jobs_in(client: Connection, tube: str) -> list[str]:
    client.ask(f"watch {tube}\r\n".encode())
    found = []
    while (reply := client.ask(b"reserve-with-timeout 0\r\n")).startswith(b"RESERVED "):
        found.append(reply.split(b"\r\n")[1].decode())
        client.ask(b"delete %b\r\n" % reply.split()[1])
    return found


def keys_of(client: Connection, write: str, batch: int, tube: bytes) -> int:
    options = SinkOptions.of({"address": address_of(client)})
    return forget_keys(options, Batch(write, batch), 4, [tube])


def stat(client: Connection, name: str, command: bytes = b"stats") -> int:
    found = re.search(rb"^%b: (\d+)$" % name.encode(), client.ask(command + b"\r\n"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def ready(client: Connection) -> int:
    return stat(client, "current-jobs-ready")


def numbered(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("concat('job ', id) as body", "'mail' as tube")


# Through Spark.


def test_a_table_becomes_jobs_and_the_count_is_told(
    sinking: SparkSession, client: Connection, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    write = numbered(sinking, 2500).write.format("beanstalk").mode("append")
    write.option("address", address_of(client)).option("resultPath", str(result)).save()
    assert sorted(jobs_in(client, "mail")) == sorted(f"job {n}" for n in range(2500))
    assert json.loads(result.read_text()) == {
        "complete": True, "rows": 2500, "put": 2500, "before": 0, "buried": 0, "refused": 0,
    }  # fmt: skip


@pytest.mark.exhaustive
def test_what_cannot_be_written_is_said_in_one_line(
    sinking: SparkSession, client: Connection
) -> None:
    def said(mode: str, table: DataFrame, **options: str) -> str:
        with pytest.raises(Exception, match="SINK_") as raised:
            table.write.format("beanstalk").mode(mode).options(**options).save()
        return explain_error(raised.value)

    address = address_of(client)
    said_of = said("overwrite", numbered(sinking, 1), address=address)
    assert said_of.startswith("[SINK_MODE] a queue cannot be overwritten")
    assert "[SINK_OPTION] say which server" in said("append", numbered(sinking, 1))
    assert "[SINK_COLUMNS] `id` is none of" in said("append", sinking.range(1), address=address)
    large = sinking.range(1).selectExpr("repeat('x', 65536) as body")
    assert "[SINK_JOB_TOO_BIG] row 0 of its partition: the body has 65536 bytes, the server " in (
        said("append", large, address=address)
    )


@pytest.mark.exhaustive
def test_a_batch_of_a_stream_that_is_tried_again_is_put_once(
    sinking: SparkSession, client: Connection, tmp_path: Path
) -> None:
    incoming, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    incoming.mkdir()
    result = tmp_path / "result.json"

    def run() -> dict[str, Any]:
        rows = (
            sinking.readStream.schema(JOBS).text(str(incoming)).withColumnRenamed("value", "body")
        )
        query = (
            rows.writeStream.format("beanstalk").outputMode("append")
            .option("address", address_of(client)).option("tube", "stream")
            .option("resultPath", str(result))
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(PATIENCE_S)
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    (incoming / "one").write_text("a\nb\nc\n")
    assert run() == {"complete": True, "batch": 0, **Tally(3, 3)._asdict()}
    # As if the driver had been killed after the tasks, before the batch was noted as done.
    for noted in (checkpoint / "commits").iterdir():
        noted.unlink()
    assert run() == {"complete": True, "batch": 0, **Tally(3, 0, 3)._asdict()}
    (incoming / "two").write_text("d\n")
    assert run() == {"complete": True, "batch": 1, **Tally(1, 1)._asdict()}
    # Those of the batch before were forgotten.
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert [keys_of(client, query, batch, b"stream") for batch in (0, 1)] == [0, 1]
    assert jobs_in(client, "stream") == ["a", "b", "c", "d"]


@pytest.mark.exhaustive
def test_batches_of_foreach_batch_are_put_once_and_leave_the_keys_of_the_last(
    sinking: SparkSession, client: Connection
) -> None:
    def write(batch: int) -> None:
        put = numbered(sinking, 10).write.format("beanstalk").mode("append")
        put = put.option("address", address_of(client)).option("writeId", "query")
        put.option("batchId", str(batch)).save()

    for batch in (0, 1, 1, 2):
        write(batch)
    assert sorted(jobs_in(client, "mail")) == sorted([f"job {n}" for n in range(10)] * 3)
    assert [keys_of(client, "query", batch, b"mail") for batch in (0, 1, 2)] == [0, 0, 2]


DRIVER = """
import sys
from binlog_tools.spark.session import session

spark = session("killed", {"spark.master": "local[2,100]", "spark.ui.enabled": "false"})
rows = spark.range(0, 6000, 1, 4).selectExpr("concat('job ', id) body")
write = rows.write.format("beanstalk").mode("append").option("window", "10")
write.option("writeId", "killed").option("address", sys.argv[1]).save()
"""
"""A driver that tries each task again, and puts few rows at a time."""


@contextmanager
def driver_of(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, f"127.0.0.1:{port}"], cwd=folder,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as driver:  # fmt: skip
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


def wait_for_jobs(client: Connection, count: int, driver: subprocess.Popen[bytes]) -> None:
    while stat(client, "total-jobs") < count:
        assert driver.poll() is None
        time.sleep(0.01)


@pytest.mark.exhaustive
def test_keys_keep_each_row_once_through_kills_of_the_server_its_tasks_and_the_driver(
    sinking: SparkSession, tmp_path: Path
) -> None:
    result, log = tmp_path / "result.json", tmp_path / "log"
    with ServerProcess(ours("-p", 0, "-b", log), tmp_path) as server:
        port = server.port()
        with driver_of(port, tmp_path) as driver:
            wait_for_jobs(server.connect(), 300, driver)
            server.kill()
            with ServerProcess(ours("-p", port, "-b", log), tmp_path) as again:
                assert again.port() == port
                wait_for_jobs(again.connect(), 1000, driver)
    with ServerProcess(ours("-p", port, "-b", log), tmp_path) as last:
        assert last.port() == port
        rows = sinking.range(0, 6000, 1, 4).selectExpr("concat('job ', id) body")
        write = rows.write.format("beanstalk").mode("append").option("resultPath", str(result))
        write = write.option("window", "10").option("writeId", "killed")
        write.option("address", f"127.0.0.1:{port}").save()
        found = jobs_in(last.connect(), "default")
    assert Counter(found) == {f"job {number}": 1 for number in range(6000)}
    told = json.loads(result.read_text())
    assert told["rows"] == told["put"] + told["before"] == 6000 and told["before"] >= 300


@pytest.mark.exhaustive
def test_the_example_puts_what_lives_in_a_log(
    sinking: SparkSession, client: Connection, history: Made
) -> None:
    living = runpy.run_path(str(EXAMPLES / "spark_replay.py"))["living"]
    jobs = living(register_source(sinking), [history.archive]).sortWithinPartitions("job")
    write = jobs.drop("job").write.format("beanstalk").mode("append")
    write.option("address", address_of(client)).save()
    live = live_at(open_source(history.log)).live
    expected = Counter(
        live.tubes[RECORD.unpack(each.record)[10]]
        for each in live.jobs.values()
        if RECORD.unpack(each.record)[1] != State.BURIED
    )
    assert expected.total() > 10
    states = ("current-jobs-ready", "current-jobs-delayed")
    found = {
        tube: sum(stat(client, state, b"stats-tube %b" % tube) for state in states)
        for tube in expected
    }
    assert found == expected


@pytest.mark.exhaustive
def test_the_example_puts_tags_and_counts_what_is_left_out(
    sinking: SparkSession, client: Connection, tmp_path: Path
) -> None:
    from pyspark.sql import Observation

    example = runpy.run_path(str(EXAMPLES / "spark_replay.py"))
    waits: dict[str, Any] = {"state": State.DELAYED, "deadline_ns": NEVER_NS}
    dead = Tags(b"u", dead_from=b"default", dead_reason=Reason.MAX_RESERVES, dead_at_ns=T0)
    log_of(tmp_path / "log", [
        job(1, b"one", tags=Tags(b"u", 60, b"c", 3, b"g")), job(2, b"two", tags=Tags(after=b"g")),
        job(3, tags=Tags(after=b"g"), **waits), job(4, state=State.BURIED, deadline_ns=T0),
        job(5, b"five", tags=dead),
    ])  # fmt: skip
    left_out = Observation("left out")
    jobs = example["living"](register_source(sinking), [str(tmp_path / "log")], True, left_out)
    write = jobs.drop("job").coalesce(1).write.format("beanstalk").mode("append")
    write.option("address", address_of(client)).save()
    assert left_out.get == {"buried": 1, "waiting": 1}
    listed = client.ask(b"list-jobs default all 10\r\n").decode()
    words = ("size", "idempotency-key", "idempotency-ttl", "group", "concurrency-limit")
    found = re.findall(rf'({"|".join(words)}): "?(\w+)', listed)
    one = [*zip(words, ("3", "u", "60", "g", "3"), strict=True)]
    assert sorted(found) == sorted([*one, ("size", "3"), ("size", "4")])
    assert "state: delayed" not in listed


# Without Spark.


def test_a_queue_is_not_read_nor_overwritten_by_a_stream() -> None:
    sink = BeanstalkSink({"address": "a"})
    with pytest.raises(SinkError, match=r"\[SINK_MODE\] a queue is not a table"):
        sink.schema()
    with pytest.raises(SinkError, match=r"\[SINK_MODE\] a queue cannot be overwritten"):
        sink.streamWriter(JOBS, True)


def test_a_writer_and_its_errors_travel_to_other_processes() -> None:
    writer = BeanstalkSink({"address": "a"}).streamWriter(JOBS, False)
    assert isinstance(pickle.loads(pickle.dumps(writer)), JobStreamWriter)
    error = pickle.loads(pickle.dumps(SinkError("SINK_X", "what [SINK_X] is")))
    assert (error.code, str(error)) == ("SINK_X", "[SINK_X] what [SINK_X] is")


def test_tasks_that_have_not_told_are_not_counted() -> None:
    assert total_of([Done(Tally(3, 2, 1)), None, Done(Tally(1, 1, 0, 1, 5))]) == Tally(
        4, 3, 1, 1, 5
    )


def test_jobs_that_were_buried_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = tmp_path / "result.json"
    options = SinkOptions.of({"address": "a", "resultPath": str(result)})
    tell(options, [Done(Tally(9, 9, 0, 2))], False, 7)
    assert "2 of 9 jobs were buried by the server" in caplog.text
    found = json.loads(result.read_text())
    assert (found["complete"], found["batch"], found["put"]) == (False, 7, 9)


def test_what_untold_tasks_have_put_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    options = SinkOptions.of({"address": "a", "resultPath": str(result)})
    tell(options, [None, Done(Tally(3, 3))], False, None)
    told = json.loads(result.read_text())
    assert (told["complete"], told["put"], told["untold"]) == (False, None, 1)


def test_a_server_that_is_away_keeps_its_keys_and_fails_no_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedServer(inserted) as server:
        pass
    options = SinkOptions.of({"address": server.address})
    forget(options, [Done(Tally(1, 1), Batch("w", 2), {b"t": 1})], Batch("w", 1))
    assert "the keys of batch 1 stay for 86400 s" in caplog.text


def test_rows_are_named_in_spans() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert spans([]) == ""
