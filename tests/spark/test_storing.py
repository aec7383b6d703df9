"""A stored table: what a commit makes, who wins, and what other people's tables are not."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from binlog_tools.spark.errors import TableError
from binlog_tools.spark.storing import (
    LOG,
    Layout,
    Location,
    Replaced,
    StoredTable,
    dataset_of,
    open_stored,
)
from tests.object_storage.conftest import gs as gs
from tests.object_storage.conftest import s3 as s3
from tests.object_storage.emulators import Emulator
from tests.object_storage.s3_server import BUCKET, S3Server


@pytest.mark.parametrize("text", ["/a/b", "file:/a/b", "file:///a/b/", "file://localhost/a/b"])
def test_a_path_may_be_a_url_of_this_machine(text: str) -> None:
    assert Location.of(text) == Location("/a/b")


def test_a_file_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="it is a file") as caught:
        Location.of(f"{tmp_path}/file").refuse_hopeless()
    assert caught.value.code == "TABLE_EXISTS"
    for there in (tmp_path, tmp_path / "new"):
        Location.of(str(there)).refuse_hopeless()


@pytest.mark.parametrize(
    ("place", "why"), [("/a/b", "Input/output error"), ("hdfs://h:9/t", "no libjvm")]
)
def test_of_another_machine_its_own_words_are_told(place: str, why: str) -> None:
    with pytest.raises(TableError) as caught, Location(place).writing():
        raise OSError(errno.EIO, "no libjvm")
    assert str(caught.value).endswith(f"{place}: {why}; the table is as it was before")


@pytest.mark.exhaustive
def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    url = s3.url("tables")
    Location.of(url).refuse_hopeless()
    with pytest.raises(TableError) as caught:
        Location.of(url.replace(BUCKET, "nobucket")).refuse_hopeless()
    assert str(caught.value) == (
        "[TABLE_UNWRITABLE] s3://nobucket/tables: there is no bucket nobucket; make it, or name "
        "another; nothing was written"
    )


SCHEMA = pa.schema([
    pa.field("server", pa.string()),
    pa.field("date", pa.date32()),
    pa.field("lsn", pa.int64(), metadata={"comment": "number of the record"}),
    pa.field("time", pa.timestamp("us", "UTC")),
])  # fmt: skip
LAYOUT = Layout("events", SCHEMA, ("server", "date"))
DAY = date(2026, 1, 31)
NOON = datetime(2026, 1, 31, 12, 0, 0, 123_456, UTC)
ODD = "a b/c%25=ä"
"""A name of a server that has to be quoted in paths, and again in the log."""


def mine(part: Mapping[str, Any]) -> bool:
    return bool(part["server"] == "1e5")


def rows(lsns: Iterable[int], server: str | None = "1e5", day: date = DAY) -> pa.Table:
    return pa.Table.from_pylist(
        [{"server": server, "date": day, "lsn": lsn, "time": NOON} for lsn in lsns], schema=SCHEMA
    )


def add(
    table: StoredTable, *parts: pa.Table, progress: Mapping[str, int] | None = None,
    replaced: Replaced | None = None,
) -> int:  # fmt: skip
    return table.write(pa.concat_tables(parts), replaced, progress)


def found(place: str) -> list[dict[str, Any]]:
    table = open_stored(place).read(names=SCHEMA.names)
    return sorted(table.to_pylist(), key=lambda row: row["lsn"])


def lsns(place: str) -> list[int]:
    return [row["lsn"] for row in found(place)]


STORES = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("s3", "gs")]


@pytest.fixture(params=["directory", *STORES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "a table, größer")
    store: S3Server | Emulator = request.getfixturevalue(request.param)
    return store.url(f"{os.urandom(8).hex()}/table")


def test_commits_append_and_replace_partitions_and_note_progress(place: str) -> None:
    table = open_stored(place, LAYOUT)
    assert (table.version, table.files(), table.progress(["1e5"])) == (None, [], {})
    assert add(table, rows([1, 2]), rows([3], ODD), progress={"1e5": 2}) == 0
    assert add(table, rows([4], None), progress={"1e5": 4, "other": 9}) == 1
    assert lsns(place) == [1, 2, 3, 4]
    assert [row["server"] for row in found(place)] == ["1e5", "1e5", ODD, None]
    assert open_stored(place).progress(["1e5", "other", "none"]) == {"1e5": 4, "other": 9}
    add(table, rows([7], ODD), rows([5]), replaced=lambda part: part["server"] is not None)
    assert lsns(place) == [4, 5, 7]
    add(table, rows([8]), replaced=lambda part: True)
    assert lsns(place) == [8]
    add(table, rows([]), replaced=mine, progress={"1e5": 9})
    assert lsns(place) == [] and table.progress(["1e5"]) == {"1e5": 9}


def test_a_column_keeps_its_comment_and_its_type(tmp_path: Path) -> None:
    add(open_stored(str(tmp_path / "t"), LAYOUT), rows([1]))
    read = DeltaTable(tmp_path / "t")
    assert pa.schema(read.schema().to_arrow()).field("lsn").metadata == {
        b"comment": b"number of the record"
    }
    (row,) = read.to_pyarrow_table().to_pylist()
    assert row == {"server": "1e5", "date": DAY, "lsn": 1, "time": NOON}


def test_a_file_says_its_partition_and_its_records(tmp_path: Path) -> None:
    table = open_stored(str(tmp_path / "t"), LAYOUT)
    add(table, rows([5, 3, 9]), rows([4], None))
    by_server = {
        file.partition["server"]: file for file in open_stored(str(tmp_path / "t")).files()
    }
    mine = by_server["1e5"]
    assert (mine.rows, mine.lsns, mine.partition["date"]) == (3, (3, 9), DAY)
    assert by_server[None].lsns == (4, 4)
    assert dataset_of(table.location, table.schema(), [mine]).to_table()["lsn"].to_pylist() == [
        5,
        3,
        9,
    ]


# Two at once.


def test_of_two_that_make_a_table_one_is_refused(place: str) -> None:
    one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    add(one, rows([1]))
    with pytest.raises(TableError, match=r"\[TABLE_BUSY\] .*run it again"):
        add(two, rows([1]))
    assert lsns(place) == [1]


def test_of_two_with_the_same_progress_one_is_refused_and_may_go_on_later(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]), progress={"1e5": 1})
    one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    add(one, rows([2]), progress={"1e5": 2})
    with pytest.raises(TableError, match=r"\[TABLE_BUSY\]"):
        add(two, rows([2]), progress={"1e5": 2})
    again = open_stored(place, LAYOUT)
    assert again.progress(["1e5"]) == {"1e5": 2}
    add(again, rows([3]), progress={"1e5": 3})
    assert lsns(place) == [1, 2, 3]


def test_two_that_do_not_disturb_each_other_both_commit(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]))
    one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    add(one, rows([2]), progress={"1e5": 2})
    add(two, rows([9], "2f6"), progress={"2f6": 9})
    assert lsns(place) == [1, 2, 9]
    assert open_stored(place).progress(["1e5", "2f6"]) == {"1e5": 2, "2f6": 9}


def test_many_that_make_a_table_at_once_are_one_and_those_who_know(tmp_path: Path) -> None:
    tables = [open_stored(str(tmp_path / "t"), LAYOUT) for _ in range(4)]

    def make(number: int) -> str:
        try:
            add(tables[number], rows([number]))
        except TableError as problem:
            return problem.code
        return ""

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(make, range(4)))
    assert sorted(said) == ["", *["TABLE_BUSY"] * 3]
    assert lsns(str(tmp_path / "t")) == [said.index("")]


@pytest.mark.parametrize("failing", range(13))
def test_a_commit_names_only_files_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    place = tmp_path / "t"
    add(open_stored(str(place), LAYOUT), rows([1]))
    table, commit = open_stored(str(place), LAYOUT), place / LOG / f"{1:020}.json"
    synced: list[tuple[Path, bool]] = []

    def sync(path: Path) -> None:
        if len(synced) == failing:
            raise OSError(errno.EIO, "Input/output error")
        synced.append((path, commit.exists()))

    monkeypatch.setattr("binlog_tools.spark.storing._sync", sync)
    with suppress(TableError):
        add(table, rows([2], ODD), rows([3]), replaced=mine)
    before = {path for path, has_commit in synced if not has_commit}
    files = {place / file.path for file in open_stored(str(place)).files()}
    if commit.exists():
        assert before == {each for file in files for each in (file, *file.parents)
                          if tmp_path in (each, *each.parents)}  # fmt: skip
    else:
        assert lsns(str(place)) == [1]
    assert (failing < 12) == (len(synced) < 12)
    if failing == 12:
        assert {path for path, has_commit in synced if has_commit} >= {commit, commit.parent, place}


WITHOUT = """
import sys
sys.modules["deltalake"] = None
from binlog_tools.spark import tasks
from binlog_tools.spark.storing import open_stored
try:
    open_stored(sys.argv[1])
except Exception as problem:
    print(problem)
"""


@pytest.mark.exhaustive
def test_what_runs_in_tasks_needs_no_deltalake(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert re.match(r"\[NO_PACKAGE\] .*: Delta tables need deltalake: .* install", done.stdout)


# Other people's tables, and other versions of ours.


def test_what_others_have_made_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(TableError, match=r"\[TABLE_EXISTS\] .*no events table"):
        open_stored(str(tmp_path), LAYOUT)
    add(open_stored(str(tmp_path / "t"), LAYOUT._replace(name="lifetimes")), rows([1]))
    with pytest.raises(TableError, match=r"\[TABLE_EXISTS\] .*is a table lifetimes, not events"):
        open_stored(str(tmp_path / "t"), LAYOUT)
    other = LAYOUT._replace(name="lifetimes", partition_by=("server",))
    with pytest.raises(TableError, match=r"\[TABLE_EXISTS\] .*by server, date, not by server"):
        open_stored(str(tmp_path / "t"), other)
    with pytest.raises(TableError, match=r"\[TABLE_UNWRITABLE\] .*[Nn]ot a directory"):
        add(open_stored(str(tmp_path / "letters" / "x"), LAYOUT), rows([1]))
    with pytest.raises(TableError, match=r"\[TABLE_NOT_FOUND\]"):
        open_stored(str(tmp_path / "none"))


@pytest.mark.parametrize("name", ["a%20b", "a[b", "a]b", "a\\b"])
def test_a_path_that_deltalake_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TableError, match=r"\[TABLE_OPTION\] .*b: deltalake cannot use a path with"):
        open_stored(str(tmp_path / name), LAYOUT)


def test_a_column_that_comes_later_is_null_in_older_rows(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]))
    wider = LAYOUT._replace(schema=SCHEMA.append(pa.field("body", pa.binary())))
    add(open_stored(place, wider), rows([2]).append_column("body", pa.array([b"x"])))
    add(open_stored(place, LAYOUT), rows([3]))
    read = open_stored(place).read(names=["lsn", "body"]).sort_by("lsn")
    assert read["body"].to_pylist() == [None, b"x", None]


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    add(open_stored(str(tmp_path / "t"), LAYOUT), rows([1]))
    other = SCHEMA.set(2, pa.field("lsn", pa.string()))
    with pytest.raises(TableError, match=r"\[TABLE_COLUMN\] .*column lsn is int64 there"):
        open_stored(str(tmp_path / "t"), LAYOUT._replace(schema=other))


def test_a_table_of_plain_parquet_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    for layout in (None, LAYOUT):
        with pytest.raises(TableError, match=r"^\[TABLE_FORMAT\] .*again in a new directory$"):
            open_stored(str(tmp_path), layout)


def test_small_files_become_one_and_orphans_are_removed(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    table = open_stored(place, LAYOUT)
    for lsn in range(1, 6):
        add(table, rows([lsn], ODD), progress={"1e5": lsn})
    orphan = tmp_path / "t" / table.files()[0].path
    orphan = orphan.with_name("part-orphan.parquet")
    orphan.write_bytes(b"x")
    done = table.optimize(retention_hours=0)
    assert (done.merged, done.made) == (5, 1)
    assert lsns(place) == [1, 2, 3, 4, 5] and not orphan.exists()
    assert open_stored(place).progress(["1e5"]) == {"1e5": 5}
    add(table, rows([6], ODD))
    assert lsns(place) == [1, 2, 3, 4, 5, 6]


def test_a_writer_goes_on_after_files_were_merged(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    table = open_stored(place, LAYOUT)
    for lsn in range(1, 4):
        add(table, rows([lsn]), progress={"1e5": lsn})
    open_stored(place).optimize()
    add(table, rows([4]), progress={"1e5": 4})
    assert lsns(place) == [1, 2, 3, 4]
