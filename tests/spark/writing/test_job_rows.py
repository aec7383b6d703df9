"""Rows into commands, and what is said about rows that are no jobs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.wire.tags import PutTags
from binlog_tools.spark.errors import SinkError
from binlog_tools.spark.writing.job_rows import (
    U32_MAX,
    WINDOW_JOBS,
    Job,
    JobRows,
    Puts,
    SinkOptions,
)

OPTIONS = SinkOptions((Address("a", 1),), tube=b"mail", priority=5, delay_s=6, ttr_s=7, unique_s=8)
KINDS = {pa.string(): "string", pa.binary(): "binary", pa.int32(): "int", pa.int64(): "bigint"}


def puts(most_bytes: int = 100, first: int = 0, **columns: Any) -> Puts:
    arrays = {
        name: given if isinstance(given, pa.Array) else pa.array(given)
        for name, given in columns.items()
    }
    batch = pa.RecordBatch.from_pydict(arrays)
    fields = [(name, KINDS[array.type]) for name, array in arrays.items()]
    return JobRows(fields, OPTIONS).puts(batch, first, most_bytes)


def refusal(**columns: Any) -> str:
    with pytest.raises(SinkError) as raised:
        puts(**columns)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_body_alone_takes_all_else_from_the_options() -> None:
    assert puts(body=["one", ""]) == Puts(
        [b"mail", b"mail"], [Job((5, 6, 7, 3), b"one"), Job((5, 6, 7, 0), b"")]
    )


def test_columns_say_what_they_say_and_nulls_take_the_options() -> None:
    made = puts(
        ttr=pa.array([1, None], pa.int32()), Tube=["a", None], delay=pa.array([2, None]),
        body=[b"\r\n\0", b"x"], priority=pa.array([U32_MAX, None]),
    )  # fmt: skip
    assert made.tubes == [b"a", b"mail"]
    assert [job.in_batch() for job in made.jobs] == [
        b"4294967295 2 1 3\r\n\r\n\0", b"5 6 7 1\r\nx",
    ]  # fmt: skip


def test_columns_of_tags_stand_behind_the_size() -> None:
    made = puts(
        body=["a", "b"], unique_key=pa.array([b"k-1", None], pa.binary()),
        unique_s=pa.array([None, 5]), concurrency_key=["c", "d"],
        concurrency_limit=pa.array([3, None]), after=pa.array([None, "g"]), job_group=["g", "h"],
    )  # fmt: skip
    assert [job.in_batch() for job in made.jobs] == [
        b"5 6 7 1 idp:k-1:8 con:c:3 grp:g\r\na", b"5 6 7 1 con:d grp:h aft:g\r\nb",
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["", "-a", "a:b", "a b", "x" * 201, "a\r\nkick 1"])
@pytest.mark.parametrize("column", ["unique_key", "concurrency_key", "job_group", "after"])
def test_a_key_that_cannot_be_is_named(column: str, key: str) -> None:
    said = refusal(first=3, body=["a", "b"], **{column: ["x" * 200, key]})
    assert said.startswith(f"[SINK_VALUE] row 4 of its partition: its {column} is {key.encode()!r}")


def test_numbers_of_tags_have_their_limits() -> None:
    key: dict[str, Any] = {"body": ["a"], "concurrency_key": ["c"], "unique_key": ["u"]}
    made = puts(**key, concurrency_limit=[U32_MAX], unique_s=[0])
    assert made.jobs[0].tags == PutTags(b"u", 0, b"c", U32_MAX)
    assert "its concurrency_limit is 0, not from 1 to" in refusal(**key, concurrency_limit=[0])
    assert "its unique_s is 4294967296, not from 0" in refusal(**key, unique_s=[U32_MAX + 1])


def test_a_job_that_would_wait_for_itself_is_named() -> None:
    said = refusal(body=["a", "b"], job_group=["x", "g"], after=["g", "g"])
    assert said.startswith("[SINK_VALUE] row 1 of its partition: it waits for b'g', its own group")


def test_a_body_may_have_as_many_bytes_as_the_server_takes_and_not_one_more() -> None:
    assert len(puts(most_bytes=4, body=["é" * 2]).jobs) == 1
    said = refusal(most_bytes=3, first=10, body=["", "é" * 2])
    assert said.startswith("[SINK_JOB_TOO_BIG] row 11 of its partition: the body has 4 bytes, the")
    assert "where(octet_length(body) <= 3)" in said


def test_a_row_without_a_body_is_named() -> None:
    said = refusal(first=7, body=pa.array(["a", None]))
    assert said == "[SINK_VALUE] row 8 of its partition: its body is null"


@pytest.mark.parametrize("value", [-1, U32_MAX + 1])
def test_a_number_out_of_range_is_named(value: int) -> None:
    said = refusal(body=["a", "b"], delay=[0, value])
    assert said == f"[SINK_VALUE] row 1 of its partition: its delay is {value}, not from 0 to " + (
        str(U32_MAX)
    )


def test_a_tube_that_cannot_be_is_named_and_sends_no_command_of_its_own() -> None:
    said = refusal(body=["a", "b"], tube=["ok", "x\r\nkick 1"])
    assert said == r"[SINK_VALUE] row 1 of its partition: b'x\r\nkick 1' is no name of a tube"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("id", "bigint")], "`id` is none of body, tube, priority, delay, ttr, unique_key,"),
        ([("body", "string"), ("unique_s", "int")], "`unique_s` says nothing without a column `un"),
        ([("tube", "string")], "there is no column `body`; it has the job itself"),
        ([("body", "int")], "`body` is of type int; cast it to binary or string"),
        ([("body", "string"), ("ttr", "double")], "`ttr` is of type double; cast it to tinyint"),
        ([("body", "string"), ("Body", "string")], "there are two columns `body`"),
    ],
)
def test_columns_that_make_no_jobs_are_refused(fields: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SinkError) as raised:
        JobRows(fields, OPTIONS)
    assert str(raised.value).startswith(f"[SINK_COLUMNS] {said}")


# Options.


def test_only_the_address_has_to_be_given() -> None:
    options = SinkOptions.of({"address": "queue:11301"})
    assert options == SinkOptions((Address("queue", 11301),))


def test_the_case_of_an_option_does_not_matter_and_servers_are_listed_with_commas() -> None:
    options = SinkOptions.of(
        {"ADDRESS": "a, b:1", "retrytimeout": "2.5", "resultPath": "/r", "TTR": "7", "tube": "mail"}
    )
    assert options.servers == (Address("a", 11300), Address("b", 1))
    assert (options.retry_s, options.result_path, options.ttr_s) == (2.5, "/r", 7)
    assert options.tube == b"mail"


def test_one_queue_on_several_hosts_is_one_server() -> None:
    options = SinkOptions.of({"address": "beanstalk://a,b:1, c, beanstalk://d", "token": "t"})
    assert [len(server.hosts) for server in options.servers] == [3, 1]
    assert {host.token for server in options.servers for host in server.hosts} == {"t"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, 'say which server: .option("address", "127.0.0.1:11300")'),
        ({"address": ""}, "address: it is empty; leave it out"),
        ({"address": "a", "token": ""}, "token: it is empty; leave it out"),
        ({"address": "a", "writeId": "a b"}, "writeId: 'a b' has not 1 to 120 of the characters"),
        ({"address": "a", "writeId": "x" * 121}, "writeId: 'xxxxxxxxxxxxxxxxxxxx' has not 1 to 12"),
        ({"address": "a", "batchId": "1"}, "batchId: give a writeId too"),
        ({"address": "a", "writeId": "x", "batchId": "-1"}, "batchId: '-1' is no whole number"),
        ({"address": "a", "resultPath": ""}, "resultPath: it is empty; leave it out"),
        ({"address": "a:b"}, "address: 'a:b' is no server: write HOST:PORT"),
        ({"address": "a", "tubes": "x"}, "there is no option 'tubes'; there are address, token"),
        ({"address": "a", "path": "/x"}, "a queue has no path"),
        ({"address": "a", "tube": "-x"}, "tube: '-x' is no name of a tube"),
        ({"address": "a", "ttr": "-1"}, "ttr: '-1' is no whole number from 0 to 4294967295"),
        ({"address": "a", "priority": str(U32_MAX + 1)}, "priority: '4294967296' is no whole"),
        ({"address": "a", "window": "0"}, "window: '0' is no whole number from 1 to 1000"),
        ({"address": "a", "window": str(WINDOW_JOBS + 1)}, "window: '1001' is no whole"),
        ({"address": "a", "retryTimeout": "nan"}, "retryTimeout: 'nan' is no number of seconds"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError) as raised:
        SinkOptions.of(wrong)
    assert str(raised.value).startswith(f"[SINK_OPTION] {said}")
    assert "\n" not in str(raised.value)


def test_a_priority_and_a_window_may_be_as_large_as_their_limits() -> None:
    options = SinkOptions.of({"address": "a", "priority": str(U32_MAX), "window": str(WINDOW_JOBS)})
    assert (options.priority, options.window_jobs) == (U32_MAX, WINDOW_JOBS)
