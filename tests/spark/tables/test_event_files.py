"""
Segments become Parquet files once each, and are seen when they are committed; without Spark.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import SUCCESS
from binlog_tools.spark.events import update
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.tables.agreement import refuse_renamed
from binlog_tools.spark.tables.committing import COMMIT, commit, missing, opened
from binlog_tools.spark.tables.segment_files import GROUP_ROWS, Split, grouped, write_split
from tests.binlog.scribe import UUID, flipped, segment_files
from tests.spark.histories import any_log
from tests.spark.tables import queue_model
from tests.tools.folders import archived

DAY_NS = 86_400 * queue_model.NS


def _rows(lsns: range, days: int = 1) -> pa.Table:
    row = queue_model.Model("1e5", 3).run(20)[0]
    step = days * DAY_NS // len(lsns)
    start_ns = queue_model.EPOCH_NS // DAY_NS * DAY_NS
    return queue_model.table(
        {**row, "server": "1e5", "lsn": lsn, "logged_ns": start_ns + at * step}
        for at, lsn in enumerate(lsns)
    )


def _read(contents: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(contents, Exception):
        raise contents
    yield from contents.to_batches(max_chunksize=3)


def _lsns(out: Path) -> list[int]:
    if not list(out.glob("server=*")):
        return []
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["lsn"])
    return sorted(table["lsn"].to_pylist())


def _run(out: Path, *splits: Split) -> int:
    with opened(out):
        todo = missing(out, splits)
        commit(out, [write_split(out, split, _read) for split in todo])
    return len(todo)


ONE = Split("1e5", "1-1", "a", _rows(range(1, 11), days=2))
TWO = Split("1e5", "2-11", "a", _rows(range(11, 16)))


def test_each_segment_is_written_once(tmp_path: Path) -> None:
    out = tmp_path / "t"
    assert _run(out, ONE) == 1
    assert _run(out, ONE, TWO) == 1
    assert _run(out, ONE, TWO) == 0
    assert _lsns(out) == list(range(1, 16))


def test_a_file_lies_under_its_server_and_day(tmp_path: Path) -> None:
    _run(tmp_path / "t", ONE)
    files = {path.parent.relative_to(tmp_path / "t") for path in tmp_path.rglob("*.parquet")}
    assert files == {Path("server=1e5/date=2025-11-20"), Path("server=1e5/date=2025-11-21")}


def test_a_segment_that_has_grown_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    out = tmp_path / "t"
    _run(out, ONE)
    grown = ONE._replace(version="b", contents=_rows(range(1, 21), days=1))
    assert _run(out, grown) == 1
    assert _lsns(out) == list(range(1, 21))
    assert len(list(out.rglob("server=*/**/*.parquet"))) == 1


def test_what_a_failed_run_has_written_is_not_seen_and_not_written_again(tmp_path: Path) -> None:
    out = tmp_path / "t"
    with pytest.raises(OSError, match="gone"):
        _run(out, ONE, TWO._replace(contents=OSError("gone")))
    assert _lsns(out) == []
    assert not list(out.rglob("*.part"))

    untouchable = ONE._replace(contents=AssertionError("it was read again"))
    assert _run(out, untouchable, TWO) == 2
    assert _lsns(out) == list(range(1, 16))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("after", range(1, 13))
def test_a_commit_that_was_cut_short_is_finished_by_the_next_run(
    tmp_path: Path, after: int
) -> None:
    """
    The commit is killed after so many renames and removals, as far as it has so many.
    """
    out = tmp_path / "t"
    _run(out, ONE)
    grown = ONE._replace(version="b", contents=_rows(range(1, 9)))
    with opened(out):
        receipts = [write_split(out, split, _read) for split in (grown, TWO)]
    pid = os.fork()
    if not pid:
        _commit_until(out, receipts, after)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9)

    decided = (out / COMMIT).exists() or _lsns(out) != list(range(1, 11))
    assert _run(out, grown, TWO) == (0 if decided else 2)
    assert _lsns(out) == [*range(1, 9), *range(11, 16)]
    assert (out / SUCCESS).exists()
    assert not list((out / "_new").iterdir())


def _commit_until(out: Path, receipts: list[Any], after: int) -> None:
    """
    In a process of its own: an audit hook cannot be taken back.
    """
    seen = 0

    def count(event: str, _: tuple[object, ...]) -> None:
        nonlocal seen
        if event in ("os.rename", "os.remove", "os.rmdir"):
            seen += 1
            if seen > after:
                os._exit(9)

    sys.addaudithook(count)
    commit(out, receipts)
    os._exit(0)


def test_small_batches_become_one_row_group_and_large_ones_stay() -> None:
    small = [pa.record_batch({"lsn": pa.array([1, 2])})] * 5
    large = pa.record_batch({"lsn": pa.array(range(GROUP_ROWS))})
    assert [table.num_rows for table in grouped(iter([*small, large, large, *small]))] == [
        10 + GROUP_ROWS, GROUP_ROWS, 10,
    ]  # fmt: skip


# With a log.

FILES = segment_files(any_log(11, batches=30).directory)
UUID_TEXT = UUID.hex()


def _update(log: Path, out: Path, **options: str) -> int:
    asked = parse_options({"path": str(log), "damage": "skip", "copies": "keep", **options})
    return update(asked, out, lambda todo, writing: list(writing(todo)))[0]


def _table(out: Path) -> list[dict[str, Any]]:
    rows = ds.dataset(out, format="parquet", partitioning=hive).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["lsn"] or 0, row["event"]))


hive = ds.partitioning(pa.schema([("server", pa.string()), ("date", pa.string())]), flavor="hive")


def test_a_damaged_segment_that_was_repaired_is_written_anew(tmp_path: Path) -> None:
    log, out, name = tmp_path / "log", tmp_path / "t", sorted(FILES)[1]
    raw = FILES[name]
    path = archived(log, {**FILES, name: flipped(raw, raw.index(b"\xb5TQF", 4200) + 9)})
    assert _update(path, out) == len(FILES)
    assert _update(path, out) == 0
    assert [row["segment"] for row in _table(out) if row["event"] == "damage"] == [2]
    (file,) = path.rglob("2-*.tql")
    times = file.stat()
    file.write_bytes(raw)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert _update(path, out) == 1
    assert _update(path, out) == 0
    _update(path, tmp_path / "fresh")
    assert _table(out) == _table(tmp_path / "fresh")


@pytest.mark.exhaustive
def test_a_gap_that_was_filled_is_no_row_any_more(tmp_path: Path) -> None:
    path, out = archived(tmp_path / "log", FILES), tmp_path / "t"
    lost = [next(path.rglob(f"{seq}-*.tql")) for seq in (2, 3)]
    for each in lost:
        each.rename(tmp_path / each.name)
    _update(path, out)
    (gap,) = (row for row in _table(out) if row["event"] == "damage")
    assert gap["server"] == UUID_TEXT
    (tmp_path / lost[0].name).rename(lost[0])
    _update(path, out)
    (smaller,) = (row for row in _table(out) if row["event"] == "damage")
    assert "segment 3 is missing" in smaller["problem"]
    # A run that sees only a part of the log knows nothing of the gap.
    _update(next(path.rglob("1-*.tql")), out)
    assert smaller in _table(out)
    (tmp_path / lost[1].name).rename(lost[1])
    _update(path, out)
    _update(path, tmp_path / "fresh")
    assert _table(out) == _table(tmp_path / "fresh")
    assert not any(row["event"] == "damage" for row in _table(out))


@pytest.mark.exhaustive
def test_a_name_that_comes_later_is_refused_and_doubles_nothing(tmp_path: Path) -> None:
    path, out = archived(tmp_path / "log", FILES), tmp_path / "t"
    _update(path, out)
    before = _table(out)
    with pytest.raises(TableError, match=rf"\[TABLE_OPTION\].*is called '{UUID_TEXT}' in this"):
        _update(path, out, servers=f"{UUID_TEXT}:mail")
    assert _table(out) == before
    named = tmp_path / "named"
    _update(path, named, servers=f"{UUID_TEXT}:mail")
    assert {row["server"] for row in _table(named)} == {"mail"}
    with pytest.raises(TableError, match="is called 'mail' in this table"):
        _update(path, named)


def test_two_stores_of_one_name_do_not_share_a_table(tmp_path: Path) -> None:
    splits = [Split("mail", f"{1:020}-{1:020}", "a", _rows(range(1, 3)), store * 32)
              for store in "ab"]  # fmt: skip
    assert splits[0].stem != splits[1].stem
    _run(tmp_path / "t", splits[0])
    with pytest.raises(TableError, match=f"store {'a' * 32} has the name 'mail'"):
        refuse_renamed(tmp_path / "t", [splits[1]])
    _run(tmp_path / "old", splits[0]._replace(store=""))
    with pytest.raises(TableError, match="an earlier version wrote this table with names"):
        refuse_renamed(tmp_path / "old", [splits[0]])


def test_a_file_that_can_be_read_again_is_no_damage(tmp_path: Path) -> None:
    path, out = archived(tmp_path / "log", FILES), tmp_path / "t"
    last = next(path.rglob(f"{len(FILES)}-*.tql"))
    raw = last.read_bytes()
    last.write_bytes(flipped(raw, 20))
    _update(path, out)
    assert [row["server"] for row in _table(out) if row["event"] == "damage"] == ["unknown"]
    last.write_bytes(raw)
    _update(path, out)
    assert not any(row["event"] == "damage" for row in _table(out))


def test_a_directory_that_is_no_events_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(TableError, match=r"\[TABLE_EXISTS\] .*no events table"), opened(tmp_path):
        pass


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(TableError, match=r"\[TABLE_UNWRITABLE\] .*/file/x: Not a directory; noth"),
        opened(tmp_path / "file" / "x"),
    ):
        pass


def test_two_runs_do_not_write_one_table_at_once(tmp_path: Path) -> None:
    _run(tmp_path / "t", ONE)
    fd = os.open(tmp_path / "t" / "_lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(TableError, match=r"\[TABLE_BUSY\]"), opened(tmp_path / "t"):
            pass
    finally:
        os.close(fd)
