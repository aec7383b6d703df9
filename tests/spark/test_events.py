"""Logs become an events table, and what is new in them is appended, once; without Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from binlog_tools.spark.definitions.columns import BY_NAME
from binlog_tools.spark.errors import SourceError, TableError
from binlog_tools.spark.events import Written, event_rows, log_rows, write_events
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.storing import open_stored
from binlog_tools.spark.tasks import Rows
from tests.binlog.scribe import UUID, flipped, segment_files
from tests.spark.expected import rows_of
from tests.spark.histories import NAMES as TUBES
from tests.spark.histories import any_image, any_log, segment_of
from tests.tools.folders import archived, written

FILES = segment_files(any_log(11, batches=30).directory)
NAMES = sorted(FILES)
STORE = UUID.hex()
PUT = any_image(random.Random(1))


def update(log: Path, out: Path, **options: Any) -> Written:
    asked = parse_options({"path": str(log), "copies": "keep", **options})
    return write_events(asked, str(out))


def table(out: Path) -> list[dict[str, Any]]:
    found = open_stored(str(out)).dataset().to_table().to_pylist()
    return sorted(found, key=lambda row: (row["lsn"] or 0, row["event"]))


def events(out: Path) -> list[dict[str, Any]]:
    return [{name: row[name] for name in BY_NAME if name in row} for row in table(out)]


def expected(*names: str) -> list[dict[str, Any]]:
    few = parse_options({"path": "x"}).names
    rows = [row for name in names for row in rows_of(FILES[name], None, "history", "keep")]
    return [{name: row[name] for name in few} for row in rows]


def test_the_table_has_each_record_once_however_the_log_grows(tmp_path: Path) -> None:
    out = tmp_path / "t"
    counts = (1, 2, len(FILES) - 1, len(FILES))
    for version, count in enumerate(counts):
        log = archived(tmp_path / f"{count}", {name: FILES[name] for name in NAMES[:count]})
        done = update(log, out)
        assert done.segments == count - (0, *counts)[version]
        assert update(log, out) == Written(0, 0, 0, version)
    assert events(out) == expected(*NAMES)
    assert {row["date"] for row in table(out)} == {row["logged"].date() for row in table(out)}
    assert update(log, tmp_path / "at once").segments == len(FILES)
    assert table(tmp_path / "at once") == table(out)


def test_a_small_history_is_one_file_a_day(tmp_path: Path) -> None:
    out = tmp_path / "t"
    update(archived(tmp_path / "log", FILES), out)
    days = {row["date"] for row in table(out)}
    assert len(open_stored(str(out)).files()) == len(days)


def test_a_segment_in_use_is_read_as_far_as_it_is_and_later_from_there(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "t"
    versions = set()
    for batches in (2, 3, 5, 8, 12):
        shutil.rmtree(log, ignore_errors=True)
        live = any_log(11, batches, finished=batches == 12)
        versions.add(update(written(log, segment_files(live.directory)), out).version)
    assert len(versions) > 2
    assert [row["lsn"] for row in table(out)] == [
        row["lsn"] for raw in segment_files(live.directory).values()
        for row in rows_of(raw, None, "history", "keep")
    ]  # fmt: skip


# Another history of the same store.


def started_on_a_copy(count: int) -> dict[str, bytes]:
    old = decode_segment_header(FILES[NAMES[count]][:SEGMENT_HEADER_BYTES])
    assert isinstance(old, SegmentHeader)
    raw = segment_of([TUBES, *[[PUT]] * 400], first_lsn=old.first_lsn, seq=old.seq)
    made = decode_segment_header(raw[:SEGMENT_HEADER_BYTES])
    assert isinstance(made, SegmentHeader)
    head = made._replace(prev_end=old.prev_end, created_ns=old.created_ns + 1).encode()
    return {**{name: FILES[name] for name in NAMES[:count]}, NAMES[count]: head + raw[len(head) :]}


def test_another_history_is_not_mixed_in(tmp_path: Path) -> None:
    out = tmp_path / "t"
    a = archived(tmp_path / "a", FILES)
    b = archived(tmp_path / "b", started_on_a_copy(5))
    update(a, out)
    before = table(out)
    with pytest.raises(SourceError, match=r"\[BINLOG_HISTORIES_DIFFER\] .*b/.*6-.*: segment 6 of"):
        update(b, out)
    assert table(out) == before
    # What is so much older is not remembered; where nothing says its end either, none is taken.
    assert update(archived(tmp_path / "c", started_on_a_copy(1)), out).rows == 0


# Damage.


@pytest.fixture
def broken() -> dict[str, bytes]:
    raw = FILES[NAMES[1]]
    return {**FILES, NAMES[1]: flipped(raw, raw.index(b"\xb5TQF", 4200) + 9)}


def damages(out: Path) -> list[dict[str, Any]]:
    return [row for row in table(out) if row["event"] == "damage"]


def test_a_row_of_damage_stays(tmp_path: Path, broken: dict[str, bytes]) -> None:
    log, out = archived(tmp_path / "log", broken), tmp_path / "t"
    with pytest.raises(SourceError, match="BINLOG_DAMAGED"):
        update(log, out)
    assert update(log, out, damage="skip").problems == 1
    assert update(log, out, damage="skip").rows == 0
    (row,) = damages(out)
    assert (row["segment"], row["server"], row["date"]) == (2, STORE, None)
    sound = archived(tmp_path / "sound", FILES)
    assert update(sound, out).rows == 0
    assert damages(out) == [row]


def test_a_gap_and_an_unreadable_file_are_told_once(tmp_path: Path) -> None:
    log, out = archived(tmp_path / "log", FILES), tmp_path / "t"
    (last,) = log.rglob(f"{len(FILES)}-*.tql")
    (second,) = log.rglob("2-*.tql")
    last.write_bytes(flipped(last.read_bytes(), 20))
    second.rename(tmp_path / "second")
    for _ in range(2):
        update(log, out, damage="skip")
        assert [(row["server"], row["lsn"] is None) for row in damages(out)] == [
            (None, True), (STORE, False),
        ]  # fmt: skip


def test_lsns_that_are_missing_behind_the_table_are_told(tmp_path: Path) -> None:
    out = tmp_path / "t"
    update(archived(tmp_path / "1", {NAMES[0]: FILES[NAMES[0]]}), out)
    rest = archived(tmp_path / "2", {name: FILES[name] for name in NAMES[2:]})
    with pytest.raises(SourceError, match=r"LSN \d+ to \d+ of store .* are in no segment before"):
        update(rest, out)
    update(rest, out, damage="skip")
    (row,) = damages(out)
    assert max(e["lsn"] for e in expected(NAMES[0])) < row["lsn"] <= expected(NAMES[1])[0]["lsn"]
    assert update(rest, out, damage="skip").rows == 0


# Names, columns and forms.


def test_a_store_keeps_its_name_and_shares_it_with_none(tmp_path: Path) -> None:
    log, out = archived(tmp_path / "log", FILES), tmp_path / "t"
    update(log, out, servers=f"{STORE}:mail")
    assert {row["server"] for row in table(out)} == {"mail"}
    with pytest.raises(TableError, match=rf"\[TABLE_OPTION\].*not called '{STORE}' in this"):
        update(log, out)
    raw = segment_of([[PUT]], uuid=b"another store!!!")
    alien = archived(tmp_path / "alien", {"00000000000000000001.tql": raw})
    with pytest.raises(TableError, match=rf"another store than {b'another store!!!'.hex()} is"):
        update(alien, out, servers=f"{b'another store!!!'.hex()}:mail")
    assert {row["server"] for row in table(out)} == {"mail"}


def test_a_table_with_bodies_goes_on_with_bodies_and_one_without_may_begin(tmp_path: Path) -> None:
    first = archived(tmp_path / "1", {NAMES[0]: FILES[NAMES[0]]})
    log, out = archived(tmp_path / "2", FILES), tmp_path / "t"
    update(first, out)
    update(log, out, body="true")
    later = [row["body"] for name in NAMES[1:]
             for row in rows_of(FILES[name], None, "history", "keep")]  # fmt: skip
    assert [row["body"] for row in table(out)][-len(later) :] == later


def test_bounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="TABLE_OPTION"):
        update(tmp_path, tmp_path / "t", job="1")


# What tasks read.


def read_rows(found: Rows, names: Sequence[str]) -> list[dict[str, Any]]:
    batches = [batch for part in found.parts for batch in found.read(part, names)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist()
    return sorted(rows, key=lambda row: (row["lsn"] or 0, row["event"]))


def test_tasks_read_the_same_rows_of_a_log_and_of_a_table_of_it(tmp_path: Path) -> None:
    log = archived(tmp_path / "log", FILES)
    out = tmp_path / "table"
    update(log, out, body="true", tags="true")
    names = [name for name in BY_NAME if name not in ("segment", "offset")]
    rows = [{name: row[name] for name in names} for row in table(out)]
    found = event_rows([str(out)])
    assert {*found.schema.names} == {*BY_NAME}
    assert read_rows(found, names) == rows
    asked = {"path": str(log), "copies": "keep", "tags": "true", "body": "true",
             "records": "history"}  # fmt: skip
    assert read_rows(log_rows(parse_options(asked)), names) == rows
    assert read_rows(event_rows([str(out), str(out)]), ["event", "lsn"]) == sorted(
        [{"event": row["event"], "lsn": row["lsn"]} for row in rows] * 2,
        key=lambda row: (row["lsn"] or 0, row["event"]),
    )


def test_segments_of_a_log_that_has_grown_are_not_read_again(tmp_path: Path) -> None:
    asked = parse_options({"path": str(archived(tmp_path / "log", FILES)), "copies": "keep"})
    names = ["lsn", "event", "job", "server"]
    rows = read_rows(log_rows(asked), names)
    (server,) = {row["server"] for row in rows}
    asked = asked._replace(partition_bytes=1)
    lasts = [part[-1].next_lsn - 1 for part in log_rows(asked).parts if part[-1].next_lsn]
    for last in (lasts[0] - 1, lasts[0], lasts[len(lasts) // 2]):
        found = log_rows(asked, {server: last})
        assert len(found.parts) == len(log_rows(asked).parts) - sum(each <= last for each in lasts)
        read = read_rows(found, names)
        assert [row for row in read if row["lsn"] > last] == [
            row for row in rows if row["lsn"] > last
        ]
    assert log_rows(asked, {"another": lasts[-1]}).parts == log_rows(asked).parts


def test_a_table_without_tags_has_none_beside_one_that_has_them(tmp_path: Path) -> None:
    log = archived(tmp_path / "log", FILES)
    for name, tags in (("new", "true"), ("old", "false")):
        update(log, tmp_path / name, tags=tags)
    old = event_rows([str(tmp_path / "old")])
    assert "origin" not in old.schema.names
    both = read_rows(event_rows([str(tmp_path / name) for name in ("old", "new")]),
                     ["event", "lsn", "origin"])  # fmt: skip
    assert len(both) == 2 * len(read_rows(old, ["event", "lsn"]))
