"""A stored table: what a commit makes, who wins, and what a kill at any step leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.delta import DeltaStored
from binlog_tools.spark.storing.files import File, Layout, write_files
from binlog_tools.spark.storing.locations import Files, Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import LOG, Change
from tests.object_storage.emulators import Emulator
from tests.object_storage.s3_server import S3Server
from tests.spark.storing.counting import counted_lists, counted_opens
from tests.spark.storing.faulty import FaultyFiles

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


def rows(lsns: Iterable[int], server: str | None = "1e5", day: date = DAY) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"server": server, "date": day, "lsn": lsn, "time": NOON} for lsn in lsns], schema=SCHEMA
    )


def written(
    location: Location,
    *batches: pa.RecordBatch,
    files: Files | None = None,
    layout: Layout = LAYOUT,
) -> tuple[File, ...]:
    door = files if files is not None else location.files()
    return tuple(write_files(door, batches, layout))


def add(
    table: DeltaStored, *batches: pa.RecordBatch, progress: Mapping[str, int] | None = None,
    replaced: tuple[Mapping[str, str | None], ...] = (),
) -> int:  # fmt: skip
    return table.commit(Change(written(table.location, *batches), replaced, progress or {}))


def found(place: str) -> list[dict[str, Any]]:
    """What a reader finds now."""
    table = open_stored(place).dataset().to_table()
    assert table.schema.equals(SCHEMA)
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


def test_commits_append_and_replace_partitions_and_tell_progress(place: str) -> None:
    table = open_stored(place, LAYOUT)
    assert (table.version, table.files(), table.progress(["1e5"])) == (None, [], {})
    assert add(table, rows([1, 2]), rows([3], ODD), progress={"1e5": 2}) == 0
    assert add(table, rows([4], None), progress={"1e5": 4, "other": 9}) == 1
    assert lsns(place) == [1, 2, 3, 4]
    assert [row["server"] for row in found(place)] == ["1e5", "1e5", ODD, None]
    assert open_stored(place).progress(["1e5", "other", "none"]) == {"1e5": 4, "other": 9}

    replaced = ({"server": ODD}, {"server": "1e5", "date": "2026-01-31"}, {"server": "none"})
    add(table, rows([7], ODD), rows([5]), replaced=replaced)
    assert lsns(place) == [4, 5, 7]
    add(table, rows([8]), replaced=({},))
    assert lsns(place) == [8]


def test_a_column_keeps_its_comment_and_its_type(tmp_path: Path) -> None:
    add(open_stored(str(tmp_path / "t"), LAYOUT), rows([1]))
    read = DeltaTable(tmp_path / "t")
    assert pa.schema(read.schema().to_arrow()).field("lsn").metadata == {
        b"comment": b"number of the record"
    }
    (row,) = read.to_pyarrow_table().to_pylist()
    assert row == {"server": "1e5", "date": DAY, "lsn": 1, "time": NOON}


def test_statistics_tell_what_a_file_may_hold(tmp_path: Path) -> None:
    table = open_stored(str(tmp_path / "t"), LAYOUT)
    add(table, rows([5, 3, 9]))
    (file,) = open_stored(str(tmp_path / "t")).files()
    assert file.spans("lsn") == (3, 9)
    assert file.spans("time") == ("2026-01-31T12:00:00.123Z", "2026-01-31T12:00:00.124Z")
    assert file.spans("server") is None
    assert (file.rows, file.partition) == (3, (("server", "1e5"), ("date", "2026-01-31")))
    kept = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    assert kept.count_rows() == 3


def test_files_of_some_partitions_tell_what_is_asked_for(tmp_path: Path) -> None:
    table = open_stored(str(tmp_path / "t"), LAYOUT)
    add(table, rows([5, 9]), rows([3], ODD), rows([4], None))
    assert len(table.files()) == 3 and not table.files({"server": "none"})
    for server in ("1e5", ODD, None):
        (file,) = table.files({"server": server})
        assert file in table.files() and file in table.files({"date": "2026-01-31"})
        assert dict(file.partition)["server"] == server
    (file,) = table.files({"server": "1e5", "date": "2026-01-31"}, ["lsn", "none"])
    assert (file.spans("lsn"), file.spans("time"), file.rows) == ((5, 9), None, 2)
    (file,) = table.files({"server": ODD}, ())
    assert (file.spans("lsn"), file.nulls("lsn"), file.rows) == (None, 1, 1)


def test_a_checkpoint_changes_nothing_and_a_commit_goes_on_from_it(place: str) -> None:
    table = DeltaStored(Location.of(place), LAYOUT)
    add(table, rows([1, 2]), progress={"1e5": 2})
    add(table, rows([3], ODD))
    before = table.files()
    table.checkpoint()
    files = Location.of(place).files()
    assert [name for name in files.names(LOG) if name.endswith(".checkpoint.parquet")] == [
        f"{1:020}.checkpoint.parquet"
    ]
    assert (table.version, table.files(), table.progress(["1e5"])) == (1, before, {"1e5": 2})
    assert add(table, rows([4]), replaced=({"server": ODD},), progress={"1e5": 4}) == 2
    assert lsns(place) == [1, 2, 4]
    assert open_stored(place).progress(["1e5"]) == {"1e5": 4}


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


def test_who_replaces_what_another_has_changed_is_refused(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]), rows([10], "2f6"))
    one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    three = open_stored(place, LAYOUT)
    add(one, rows([2]))
    with pytest.raises(TableError, match=r"\[TABLE_BUSY\]"):
        add(two, rows([3]), replaced=({"server": "1e5"},))
    add(three, rows([11], "2f6"), replaced=({"server": "2f6"},))
    assert lsns(place) == [1, 2, 11]


def test_two_that_do_not_disturb_each_other_both_commit(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]))
    one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    add(one, rows([2]), progress={"1e5": 2})
    add(two, rows([9], "2f6"), progress={"2f6": 9})
    assert lsns(place) == [1, 2, 9]
    assert open_stored(place).progress(["1e5", "2f6"]) == {"1e5": 2, "2f6": 9}


def test_who_goes_on_after_its_commit_is_told_what_others_have_changed(place: str) -> None:
    one = open_stored(place, LAYOUT)
    add(one, rows([1]), progress={"1e5": 1})
    add(one, rows([2]), progress={"1e5": 2})
    add(open_stored(place, LAYOUT), rows([3]), progress={"1e5": 3})
    with pytest.raises(TableError, match=r"\[TABLE_BUSY\]"):
        add(one, rows([3]), progress={"1e5": 3})
    assert lsns(place) == [1, 2, 3]


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


def test_a_commit_whose_answer_was_lost_is_not_made_twice(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]))
    one, same = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
    change = Change(written(one.location, rows([2])), progress={"1e5": 2})
    one.commit(change)
    same.commit(change)
    assert lsns(place) == [1, 2]


def test_a_table_is_opened_once_for_all_commits_of_a_run(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    with counted_opens() as opens:
        table = open_stored(place, LAYOUT)
        versions = [add(table, rows([lsn]), progress={"1e5": lsn}) for lsn in range(5)]
    assert versions == [0, 1, 2, 3, 4]
    # There was none; and the one that the first commit made.
    assert len(opens) == 2
    with counted_opens() as opens:
        table = open_stored(place, LAYOUT)
        assert [add(table, rows([lsn]), replaced=({},)) for lsn in range(5, 8)] == [5, 6, 7]
    assert len(opens) == 1
    assert lsns(place) == [7]


def test_who_only_adds_does_not_list_the_files_that_are_there(tmp_path: Path) -> None:
    table = open_stored(str(tmp_path / "t"), LAYOUT)
    with counted_lists() as lists:
        for lsn in range(3):
            add(table, rows([lsn]))
        assert lists == []
        add(table, rows([9]), replaced=({"server": "1e5"},))
    assert len(lists) == 1
    assert lsns(str(tmp_path / "t")) == [9]


def test_who_was_slower_reads_the_log_once_more(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    add(open_stored(place, LAYOUT), rows([1]))
    with counted_opens() as opens:
        one, two = open_stored(place, LAYOUT), open_stored(place, LAYOUT)
        add(one, rows([2]))
        assert len(opens) == 2
        assert add(two, rows([3])) == 2
    assert len(opens) == 3
    assert lsns(place) == [1, 2, 3]


# Kills and faults.


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_kill_at_any_step_leaves_the_last_whole_state(tmp_path: Path, is_first: bool) -> None:
    """At each call of the door, until a run needs no more calls."""
    for step in range(99):
        place = str(tmp_path / f"{step}")
        if not is_first:
            add(open_stored(place, LAYOUT), rows([1]), rows([2], "2f6"), progress={"1e5": 1})
        before = [] if is_first else [1, 2]
        after = [2, 3, 4] if not is_first else [3, 4]
        steps = iter(range(99))

        def fault(operation: str, name: str, steps: Any = steps, step: int = step) -> None:
            if next(steps) == step:
                raise Killed

        door = FaultyFiles(Location.of(place).files(), fault)
        try:
            table = DeltaStored(Location.of(place), LAYOUT, door)
            files = written(table.location, rows([3]), rows([4], "1e5"), files=door)
            table.commit(Change(files, ({"server": "1e5"},), {"1e5": 4}))
        except Killed:
            pass
        else:
            assert step >= 3
            break
        left = open_stored(place, LAYOUT)
        is_done = left.progress(["1e5"]) == {"1e5": 4}
        assert (lsns(place) if left.version is not None else []) == (after if is_done else before)
        if not is_done:
            add(left, rows([3, 4]), replaced=({"server": "1e5"},), progress={"1e5": 4})
        assert lsns(place) == after
    else:
        raise AssertionError("it never ended")


def test_a_full_disk_leaves_the_table_and_no_file(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    add(open_stored(place, LAYOUT), rows([1]))

    def fault(operation: str, name: str) -> None:
        if operation == "sync":
            raise OSError(28, "No space left on device", name)

    location = Location.of(place)
    there = set(location.files().names(is_deep=True))
    with (
        pytest.raises(TableError, match=r"\[TABLE_UNWRITABLE\] .*/t: No space left.*as it was"),
        location.writing(),
    ):
        written(location, rows([2]), files=FaultyFiles(location.files(), fault))
    assert set(location.files().names(is_deep=True)) == there
    assert lsns(place) == [1]


WITHOUT = """
import sys
sys.modules["deltalake"] = None
from binlog_tools.spark import events, frames
from binlog_tools.spark.storing.opening import open_stored
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
    with pytest.raises(TableError, match=r"\[TABLE_UNWRITABLE\] .*[Nn]ot a directory"):
        open_stored(str(tmp_path / "letters" / "x"), LAYOUT).commit(Change())
    with pytest.raises(TableError, match=r"\[TABLE_NOT_FOUND\]"):
        open_stored(str(tmp_path / "none"))


def test_a_path_that_deltalake_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"\[TABLE_OPTION\] .*a%20b: deltalake cannot use"):
        open_stored(str(tmp_path / "a%20b"), LAYOUT)


def test_a_column_that_comes_later_is_null_in_older_rows(place: str) -> None:
    add(open_stored(place, LAYOUT), rows([1]))
    wider = LAYOUT._replace(schema=SCHEMA.append(pa.field("body", pa.binary())))
    table = open_stored(place, wider)
    one = rows([2]).append_column("body", pa.array([b"x"]))
    table.commit(Change(written(table.location, one, layout=wider)))
    add(open_stored(place, LAYOUT), rows([3]))
    read = open_stored(place).dataset().to_table(columns=["lsn", "body"]).sort_by("lsn")
    assert read["body"].to_pylist() == [None, b"x", None]


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    add(open_stored(str(tmp_path / "t"), LAYOUT), rows([1]))
    other = SCHEMA.set(2, pa.field("lsn", pa.string()))
    table = open_stored(str(tmp_path / "t"), LAYOUT._replace(schema=other))
    with pytest.raises(TableError, match=r"\[TABLE_COLUMN\] .*column lsn is .*long"):
        table.commit(Change())


def test_rows_without_a_column_are_refused_and_other_columns_left_out(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "t"))
    with pytest.raises(TableError, match=r"\[TABLE_COLUMN\] rows without the columns time "):
        written(location, rows([1]).drop_columns(["time"]))
    odd = rows([1]).append_column("more", pa.array([1]))
    berlin = pa.timestamp("us", "Europe/Berlin")
    here = odd.set_column(3, "time", odd.column("time").cast(berlin))
    open_stored(location.path, LAYOUT).commit(Change(written(location, here)))
    assert found(location.path) == rows([1]).to_pylist()


def test_a_table_of_plain_parquet_files_is_refused(place: str) -> None:
    with Location.of(place).files().create("_SUCCESS"):
        pass
    for layout in (None, LAYOUT):
        with pytest.raises(TableError, match=r"^\[TABLE_FORMAT\] .*again in a new directory$"):
            open_stored(place, layout)


# Optimizing.


def test_small_files_become_one_and_orphans_are_removed(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    table = open_stored(place, LAYOUT)
    for lsn in range(1, 6):
        add(table, rows([lsn], ODD), progress={"1e5": lsn})
    orphan = written(table.location, rows([99]))
    done = table.optimize(retention_hours=0)
    assert (done.merged, done.made) == (5, 1)
    assert lsns(place) == [1, 2, 3, 4, 5]
    left = [name for name in table.location.files().names(is_deep=True) if LOG not in name]
    assert left == [file.path for file in open_stored(place).files()] != [orphan[0].path]
    assert open_stored(place).progress(["1e5"]) == {"1e5": 5}
    add(open_stored(place, LAYOUT), rows([6], ODD))
    assert lsns(place) == [1, 2, 3, 4, 5, 6]
