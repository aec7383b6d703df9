"""The source as Spark calls it, but without Spark: options, schemas, conditions, tasks, damage."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from binlog_tools.spark.definitions.columns import COLUMNS, UNASKED
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.source import ATTEMPTS, BinlogSource, started
from tests.binlog.scribe import NS, T0, Scribe, flipped, put, segment_files
from tests.sampling import one_in
from tests.spark.expected import Row
from tests.spark.histories import NAMES, any_log
from tests.spark.without_spark import read, reader_of, tasks_of
from tests.tools.folders import archived

FILES = segment_files(any_log(2, batches=60).directory)
GOLDEN = Path(__file__).parent.parent / "binlog" / "golden"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archived(tmp_path_factory.mktemp("archive"), FILES)


# Options.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tubes": "mail"}, "option tubes: unknown; did you mean tube? There are: archive, body"),
        ({"colums": "lsn"}, "unknown; did you mean columns? There are: "),
        ({"records": "some"}, "option records: 'some' is none of jobs, all, history"),
        ({"copies": "yes"}, "drop, keep"),
        ({"damage": "ignore"}, "fail, skip"),
        ({"verify": "no"}, "frames, headers, none"),
        ({"live": "true"}, "include, skip"),
        ({"body": "yes"}, "false, true"),
        ({"columns": "lsn,jobs"}, "no column 'jobs'; did you mean job?"),
        ({"columns": "lsn,lsn"}, "twice"),
        ({"columns": "lsn", "body": "true"}, "either columns or body"),
        ({"columns": "lsn", "tags": "true"}, "either columns or tags"),
        ({"servers": "mail:1"}, "not UUID:name"),
        ({"servers": f"{'1' * 32}:a,{'2' * 32}:a"}, "this name, was there before"),
        ({"servers": f"{'1' * 32}:a,{'1' * 32}:b"}, "this store, or this name"),
        ({"servers": f"{'1' * 32}:{'a' * 241}"}, "is too long; at most 240 bytes"),
        ({"since": "2026-01-31T12:00"}, "says no zone; write 2026-01-31T12:00Z"),
        ({"until": "soon"}, "option until: 'soon' is no time"),
        ({"lsnFrom": "-1"}, "option lsnFrom: '-1' is no whole number"),
        ({"lsnTo": "1,2"}, "'1,2' is not one number"),
        ({"job": str(1 << 63)}, "below 2**63"),
        ({"tube": "mail,"}, "'mail,' names no tube"),
        ({"view": "segments"}, "option view: unknown"),
        ({"partitionBytes": "1"}, "65536 bytes are the least"),
        ({"partitionBytes": "many"}, "partitionBytes"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(SourceError) as failed:
        BinlogSource({"path": "/log", **options}).schema()
    assert str(failed.value).startswith("[BINLOG_OPTION] option ")
    assert said in str(failed.value) and "\n" not in str(failed.value)


def test_a_path_is_needed() -> None:
    with pytest.raises(SourceError, match=r"\[BINLOG_OPTION\] option path: there is none"):
        BinlogSource({}).schema()


def test_options_may_be_written_in_any_case() -> None:
    assert BinlogSource({"PATH": "/log", "COLUMNS": "lsn"}).schema() == "`lsn` bigint"


def test_without_options_there_are_all_columns_but_the_body_and_the_tags() -> None:
    given = [column.name for column in COLUMNS]
    assert given.index("body") > 0
    without = [name for name in given if not any(name in each for each in UNASKED.values())]
    schema = BinlogSource({"path": "/log"}).schema()
    assert [field.split("`")[1] for field in schema.split(", ")] == without
    assert "`body` binary" in BinlogSource({"path": "/log", "body": "true"}).schema()
    every = BinlogSource({"path": "/log", "body": "true", "tags": "true"}).schema()
    assert [field.split("`")[1] for field in every.split(", ")] == given


# Schemas.


def test_a_schema_of_the_user_s_chooses_the_columns(archive: Path) -> None:
    rows = read(archive, schema="job bigint, lsn bigint, body binary")
    assert list(rows[0]) == ["job", "lsn", "body"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id bigint", "there is no column 'id'"),
        ("jobb bigint", "did you mean job?"),
        ("job int", "column job is bigint, and not int"),
        ("time bigint", "column time is timestamp, and not bigint"),
    ],
)
def test_a_schema_with_another_column_is_refused(schema: str, said: str) -> None:
    with pytest.raises(SourceError) as failed:
        reader_of("/log", schema=schema)
    assert str(failed.value).startswith("[BINLOG_SCHEMA] ") and said in str(failed.value)


# Tasks.


def test_small_segments_are_packed_into_one_task(archive: Path) -> None:
    (items,) = tasks_of(archive)
    assert len(items) == len(FILES) > 5


def test_tasks_are_no_larger_than_asked_for(archive: Path) -> None:
    tasks = tasks_of(archive, partitionBytes="64K")
    sizes = [sum(share.stretch.end - share.stretch.start for share in items) for items in tasks]
    assert len(tasks) > 1 and max(sizes) <= 64 << 10


def test_a_large_segment_is_split_by_its_seal_and_gives_the_same_rows(tmp_path: Path) -> None:
    scribe = any_log(4, batches=150, segment_bytes=1 << 21)
    archive = archived(tmp_path, segment_files(scribe.directory))
    whole = read(archive, body="true", records="all", copies="keep")
    tasks = tasks_of(archive, partitionBytes="64K")
    assert len(tasks) > 5
    split = read(archive, body="true", records="all", copies="keep", partitionBytes="64K")
    assert split == whole
    assert {row["tube"] for row in split} >= {"default", "mail", "café", "raw\\xff"}


def test_what_travels_to_the_tasks_can_be_pickled(archive: Path) -> None:
    reader = pickle.loads(pickle.dumps(reader_of(archive)))
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))
    assert sum(len(batch) for batch in reader.read(partition)) == len(read(archive))


def test_no_partitions_at_all_give_no_rows(archive: Path) -> None:
    reader = reader_of(archive, tube="nobody")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


# Conditions.


def segments_read(archive: Path, **options: Any) -> list[int]:
    return [share.place.header.seq for items in tasks_of(archive, **options) for share in items]


def segments_of_jobs(count: int) -> dict[str, bytes]:
    """A job a segment, each 100 s after the one before."""
    scribe = Scribe(opening=NAMES)
    for number in range(1, count + 1):
        scribe.now_ns = T0 + number * 100 * NS
        scribe.write(*NAMES, put(number, ts_ns=scribe.now_ns, tube_id=2))
        scribe.end_segment()
    scribe.write(*NAMES)
    scribe.finish()
    return segment_files(scribe.directory)


def test_conditions_spare_segments(tmp_path: Path) -> None:
    files = segments_of_jobs(5)
    archive = archived(tmp_path, files)
    assert segments_read(archive, since=f"@{T0 // NS + 150}", until=f"@{T0 // NS + 350}") == [2, 3]
    assert segments_read(archive, job=3) == [3]
    assert segments_read(archive, job="1,4") == [1, 4]
    assert segments_read(archive, tube="nobody") == []
    assert len(segments_read(archive, tube="mail,nobody")) == 6
    head = files["00000000000000000004.tql"]
    lsn = int.from_bytes(head[24:32], "little")
    assert segments_read(archive, lsnFrom=lsn - 1, lsnTo=lsn - 1) == [3]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", one_in(5, range(10)))
@pytest.mark.parametrize("copies", ["keep", "drop"])
def test_bounds_give_exactly_the_rows_within_them(archive: Path, seed: int, copies: str) -> None:
    dice = random.Random(seed)
    rows = read(archive, records="all", copies=copies)
    some, other = sorted(dice.sample(rows, 2), key=lambda row: int(row["lsn"]))
    cases: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
        ({"lsnFrom": some["lsn"], "lsnTo": other["lsn"]},
         lambda row: some["lsn"] <= row["lsn"] <= other["lsn"]),
        ({"since": iso(some["logged_ns"]), "until": iso(other["logged_ns"])},
         lambda row: some["logged_ns"] <= row["logged_ns"] < other["logged_ns"]),
        ({"job": "3,17", "lsnFrom": some["lsn"]},
         lambda row: row["job"] in (3, 17) and row["lsn"] >= some["lsn"]),
        ({"tube": "mail,raw\\xff"}, lambda row: row["tube"] in ("mail", "raw\\xff")),
    ]  # fmt: skip
    for options, is_within in cases:
        for size in ("64K", "64M"):
            found = read(archive, records="all", copies=copies, partitionBytes=size, **options)
            assert found == [row for row in rows if is_within(row)], options


def iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NS)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def test_what_is_missing_outside_the_bounds_is_no_failure(tmp_path: Path) -> None:
    files = segments_of_jobs(4)
    del files["00000000000000000002.tql"]
    last = files["00000000000000000004.tql"]
    first_lsn = int.from_bytes(last[24:32], "little")
    path = archived(tmp_path, files)
    for options in ({"lsnFrom": first_lsn}, {"since": iso(T0 + 350 * NS)}):
        assert [row["job"] for row in read(path, **options)] == [4]
    assert [row["job"] for row in read(path, until=iso(T0 + 100 * NS))] == []
    for options in ({"job": 4}, {"lsnFrom": 1}, {"since": iso(T0)}):
        with pytest.raises(SourceError, match="segment 2 is missing"):
            read(path, **options)


def test_a_damaged_frame_outside_the_bounds_is_no_failure(tmp_path: Path) -> None:
    names = sorted(FILES)
    raw = FILES[names[1]]
    path = archived(tmp_path, {**FILES, names[1]: flipped(raw, raw.index(b"\xb5TQF", 4200) + 9)})
    rows = read(path, damage="skip")
    (at,) = (number for number, row in enumerate(rows) if row["event"] == "damage")
    before, behind = rows[at - 1]["lsn"], rows[at + 1]["lsn"]
    assert rows[at + 1]["segment"] == 2
    with pytest.raises(SourceError, match="BINLOG_DAMAGED"):
        read(path, lsnFrom=before)
    assert read(path, lsnFrom=behind) == rows[at + 1 :]
    assert read(path, lsnTo=before) == read(path, lsnTo=before, damage="skip") == rows[:at]


# A busy machine.


class Query:
    """A stream that has ended with an error, if there is one, before its first batch."""

    def __init__(self, error: str) -> None:
        self.isActive = not error
        self.lastProgress = None if error else {"batchId": 0}
        self._error = error

    def exception(self) -> str:
        return self._error


LATE_ERROR = "org.apache.spark.SparkException: Python worker failed to connect back."


@pytest.mark.parametrize(
    "errors",
    [[""], ["another"], [LATE_ERROR, ""], [*[LATE_ERROR] * (ATTEMPTS - 1), ""],
     [LATE_ERROR] * ATTEMPTS],
)  # fmt: skip
def test_a_stream_that_spark_could_not_start_in_time_is_started_again(
    errors: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    queries = [Query(error) for error in errors]
    coming = iter(queries)
    assert started(lambda: next(coming)) is queries[-1]  # type: ignore[arg-type, return-value, comparison-overlap]
    assert len(caplog.records) == errors.count(LATE_ERROR)
    assert list(coming) == []
