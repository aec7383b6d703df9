"""What is read, and what of it: directories, archives, files, patterns; the segment in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.segments.format import archive_name
from binlog_tools.logs.new_log import NewLog, Origin
from binlog_tools.logs.stored import StoredJob
from binlog_tools.spark.definitions.columns import UNASKED
from binlog_tools.spark.errors import SourceError
from tests.binlog.forging import with_header_field
from tests.binlog.scribe import FIRST, UUID, Scribe, delete, flipped, put, segment_files
from tests.spark.expected import Row, rows_of
from tests.spark.histories import NAMES, any_log, segment_of
from tests.spark.without_spark import read, tasks_of
from tests.tools.folders import archived, written
from tests.tools.single_faults import DAMAGED, cell_of, faulty, states


@pytest.mark.one_in(3)
@pytest.mark.parametrize("state", states())
def test_damage_is_told_where_a_server_refuses_and_nowhere_else(state: str, tmp_path: Path) -> None:
    segment = states()[state]
    differ = []
    for number, (where, what, files) in enumerate(faulty(segment)):
        if files is None:
            continue
        path = tmp_path / str(number)
        said = cell_of(files, segment.jobs, path).said
        try:
            read(path, records="all")
            is_damaged = False
        except SourceError:
            is_damaged = True
        if is_damaged != (said == DAMAGED):
            differ.append((where, what, said))
    assert differ == []


Files = dict[str, bytes]


GOLDEN = Path(__file__).parents[2] / "binlog" / "golden"


LEFT_OUT: frozenset[str] = frozenset().union(*UNASKED.values())
"""The columns that are there only if asked for."""


def all_rows(
    files: Files, records: str = "jobs", copies: str = "drop",
    left_out: frozenset[str] = LEFT_OUT,
) -> list[Row]:  # fmt: skip
    rows = []
    names = sorted(files)
    for name, after in zip(names, [*names[1:], ""], strict=True):
        end = int.from_bytes(files[after][40:48], "little") if after else None
        rows += rows_of(files[name], end, records, copies)
    return [{name: row[name] for name in row if name not in left_out} for row in rows]


@pytest.fixture(scope="module")
def files() -> Files:
    return segment_files(any_log(1).directory)


def test_a_directory_an_archive_and_a_store_in_it_give_the_same_rows(
    tmp_path: Path, files: Files
) -> None:
    log, archive = written(tmp_path / "log", files), archived(tmp_path / "archive", files)
    expected = all_rows(files)
    assert len(files) > 3
    assert read(log) == expected
    assert read(archive) == expected
    assert read(archive / UUID.hex()) == expected


def test_patterns_name_folders_and_a_file_is_refused(tmp_path: Path, files: Files) -> None:
    log = written(tmp_path / "log", files)
    assert read(tmp_path / "l*") == read(f"file://{tmp_path}/lo[g]") == all_rows(files)
    name = min(files)
    with pytest.raises(SourceError, match=rf"\[BINLOG_NO_LOG\] .*/{name}: it is a file; name the"):
        read(log / name)


def test_a_segment_in_the_log_and_in_the_archive_is_read_once(tmp_path: Path, files: Files) -> None:
    names = sorted(files)
    log = written(tmp_path / "log", {name: files[name] for name in names[1:]})
    archive = archived(tmp_path / "archive", {name: files[name] for name in names[:-1]})
    assert read(log, archive) == read(archive, log) == all_rows(files)
    paths = [share.place.path for items in tasks_of(log, archive) for share in items]
    assert [str(archive) in path for path in paths] == [True] * (len(names) - 1) + [False]


def test_two_histories_of_one_store_are_refused(tmp_path: Path) -> None:
    one, other = (segment_of([NAMES, [put(1, body)]]) for body in (b"a", b"b"))
    first = written(tmp_path / "one", {"00000000000000000001.tql": one})
    second = archived(tmp_path / "two", {"00000000000000000001.tql": other})
    third = archived(tmp_path / "three", {"00000000000000000001.tql": one})
    with pytest.raises(SourceError, match=r"\[BINLOG_HISTORIES_DIFFER\].*segment 1 of store"):
        read(second, third)
    assert read(first, third)


@pytest.mark.parametrize("place", ["header", "start", "end", "trailer", "cut"])
def test_a_sound_copy_is_read_where_another_is_damaged(
    tmp_path: Path, files: Files, place: str
) -> None:
    name = sorted(files)[1]
    raw = files[name]
    broken = {
        "header": flipped(raw, 30), "start": flipped(raw, 4096 + 70),
        "end": flipped(raw, len(raw) - 60), "trailer": flipped(raw, len(raw) - 20),
        "cut": raw[: len(raw) // 2],
    }[place]  # fmt: skip
    good = archived(tmp_path / "good", files)
    bad = archived(tmp_path / "bad", {**files, name: broken})
    assert read(bad, good) == read(good, bad) == all_rows(files)


@pytest.mark.parametrize("body", ["false", "true"])
def test_a_sound_copy_is_read_where_another_is_damaged_in_the_middle(
    tmp_path: Path, body: str
) -> None:
    # What lies so far from the end is not compared when the read is planned.
    (name, raw), *_ = segment_files(
        any_log(4, batches=150, segment_bytes=1 << 21).directory
    ).items()
    frame = raw.index(b"\xb5TQF", len(raw) // 2)
    assert len(raw) - frame > 1 << 17
    broken = flipped(raw, frame + 9)
    good = archived(tmp_path / "good", {name: raw})
    bad = archived(tmp_path / "bad", {name: broken})
    expected = read(good, body=body)
    for size in ("64K", "64M"):
        assert read(bad, good, body=body, partitionBytes=size) == expected
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\]"):
        read(bad, body=body)


def test_damage_at_one_place_in_both_copies_is_told(tmp_path: Path, files: Files) -> None:
    name = sorted(files)[1]
    broken = {**files, name: flipped(files[name], 4096 + 70)}
    one, other = (archived(tmp_path / each, broken) for each in ("one", "other"))
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\] .*one/.*frame at byte"):
        read(one, other)


def test_several_stores_are_told_apart_and_can_have_names(tmp_path: Path, files: Files) -> None:
    other = Scribe(position=FIRST._replace(store_uuid=b"\xaa" * 16))
    other.write(*NAMES, put(77))
    other.finish()
    written(tmp_path / "a", files)
    written(tmp_path / "b", segment_files(other.directory))
    rows = read(tmp_path / "a", tmp_path / "b", servers=f"{'AA' * 16}:mail")
    assert {row["server"] for row in rows if row["job"] == 77} == {"mail"}
    assert {row["server"] for row in rows if row["job"] != 77} == {UUID.hex()}


# The segment in use.


def live_log(path: Path) -> Scribe:
    """A server's directory with preallocated space."""
    path.mkdir()
    scribe = Scribe(RealDirectory(str(path)), segment_bytes=1 << 16)
    scribe.write(*NAMES, put(1))
    scribe.write(put(2))
    return scribe


def test_only_what_is_durable_is_read_of_a_segment_in_use(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = live_log(path)
    (segment,) = path.glob("*.tql")
    assert segment.stat().st_size == 1 << 16
    assert [row["job"] for row in read(path)] == [1]
    scribe.write(put(3), sync=False)
    scribe.write(put(4), sync=False)
    assert [row["job"] for row in read(path)] == [1, 2]
    scribe.mark()
    assert [row["job"] for row in read(path)] == [1, 2]
    scribe.write(put(5))
    scribe.mark()
    assert [row["job"] for row in read(path)] == [1, 2, 3, 4, 5]
    assert read(path, live="skip") == []


def test_a_server_that_has_ended_in_order_leaves_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    live_log(path).finish()
    assert [row["job"] for row in read(path)] == [1, 2]
    assert [row["job"] for row in read(path, live="skip")] == [1, 2]


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = live_log(path)
    scribe.mark()
    scribe.write(put(3))
    (segment,) = path.glob("*.tql")
    raw = segment.read_bytes()
    at = raw.rindex(b"\xb5TQF\r\n\x1a\x01")
    segment.write_bytes(raw[: at + 100])
    assert [row["job"] for row in read(path)] == [1, 2]
    segment.write_bytes(flipped(raw, at + 30))
    assert [row["job"] for row in read(path)] == [1, 2]


@pytest.mark.parametrize("how", ["flipped", "zeroed", "cut"])
def test_damage_below_the_watermark_is_damage_also_in_a_segment_in_use(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "log"
    scribe = live_log(path)
    scribe.write(put(3))
    scribe.mark()
    (segment,) = path.glob("*.tql")
    raw = segment.read_bytes()
    (_, second, third, _) = [
        at for at in range(4096, len(raw), 8) if raw[at : at + 8] == b"\xb5TQF\r\n\x1a\x01"
    ]
    changed = {
        "flipped": flipped(raw, second + 30),
        "zeroed": raw[:second] + bytes(third - second) + raw[third:],
        "cut": raw[:second] + bytes(8) + raw[third:],
    }[how]
    segment.write_bytes(changed)
    with pytest.raises(SourceError, match=rf"\[BINLOG_DAMAGED\] {segment}: frame at byte {second}"):
        read(path)
    rows = read(path, damage="skip")
    assert [row["event"] for row in rows] == ["put", "damage", "put"]
    assert read(path, live="skip") == []


@pytest.mark.parametrize("size", [4096, 4200, 1 << 16])
def test_a_segment_in_use_without_its_first_frame_is_damaged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    scribe = live_log(path)
    scribe.end_segment()
    scribe.write(put(3))
    *_, segment = sorted(path.glob("*.tql"))
    segment.write_bytes(segment.read_bytes()[:4096] + bytes(size - 4096))
    with pytest.raises(SourceError, match=rf"\[BINLOG_DAMAGED\] {segment}: frame at byte 4096"):
        read(path)
    assert [row["event"] for row in read(path, damage="skip")] == ["put", "put", "damage"]
    assert [row["job"] for row in read(path, live="skip")] == [1, 2]


@pytest.mark.parametrize("count", [1, 4, 8, 13])
def test_bytes_that_were_put_in_are_damage_also_in_a_segment_in_use(
    tmp_path: Path, count: int
) -> None:
    path = tmp_path / "log"
    live_log(path).mark()
    (segment,) = path.glob("*.tql")
    raw = segment.read_bytes()
    second = raw.index(b"\xb5TQF\r\n\x1a\x01", 4104)
    segment.write_bytes(raw[: second + 90] + bytes(count) + raw[second + 90 :])
    with pytest.raises(SourceError, match=rf"\[BINLOG_DAMAGED\] {segment}: frame at byte {second}"):
        read(path)


def test_what_a_tool_has_made_is_damaged_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with NewLog(str(path), Origin("test", ())) as log:
        log.add(StoredJob.of(put(1), b"default"))
        log.finish()
    assert [row["event"] for row in read(path, records="all")][-2:] == ["clean-stop", "seal"]
    (segment,) = path.glob("*.tql")
    raw = segment.read_bytes()
    seal_at = raw.rindex(b"\xb5TQF\r\n\x1a\x01")
    for short in (raw[:seal_at], raw[:seal_at] + bytes(200)):
        segment.write_bytes(short)
        with pytest.raises(SourceError, match="BINLOG_DAMAGED"):
            read(path)


def test_the_successor_says_where_a_segment_ends(tmp_path: Path) -> None:
    first = segment_of([NAMES, [put(1)], [put(2)]])
    short = segment_of([NAMES, [put(1)]])
    second = bytearray(segment_of([NAMES, [put(9)]], first_lsn=6, seq=2))
    second[40:48] = len(short).to_bytes(8, "little")
    log = {
        "00000000000000000001.tql": first,
        "00000000000000000002.tql": with_header_field(bytes(second), 40, "<Q", len(short)),
    }
    archived(tmp_path / "archive", {**log, "00000000000000000001.tql": short})
    assert [row["job"] for row in read(tmp_path / "archive")] == [1, 9]


# What is missing or broken.


def test_a_missing_segment_is_damage_and_not_silence(tmp_path: Path, files: Files) -> None:
    names = sorted(files)
    some = {name: files[name] for name in names if name != names[2]}
    archive = archived(tmp_path / "archive", some)
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\] segment 3 is missing"):
        read(archive)
    rows = read(archive, damage="skip")
    (damage,) = [row for row in rows if row["event"] == "damage"]
    assert damage["lsn"] == int.from_bytes(files[names[2]][24:32], "little")
    assert "segment 3 is missing" in damage["problem"]


def test_a_broken_header_is_damage(tmp_path: Path, files: Files) -> None:
    names = sorted(files)
    path = written(tmp_path / "log", {**files, names[1]: flipped(files[names[1]], 30)})
    with pytest.raises(SourceError, match=rf"\[BINLOG_DAMAGED\] {path}/{names[1]}: .*header"):
        read(path)
    rows = read(path, damage="skip")
    assert {row["segment"] for row in rows} >= {1, 3}
    assert any(row["event"] == "damage" and names[1] in row["problem"] for row in rows)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"\[BINLOG_NOT_FOUND\] .*/none: there is no such"):
        read(tmp_path / "none")
    with pytest.raises(SourceError, match=r"\[BINLOG_NO_LOG\].*no segments here"):
        read(tmp_path)
    (tmp_path / "binlog.1").write_bytes(b"\7\0\0\0")
    with pytest.raises(SourceError, match=r"\[BINLOG_NO_LOG\].*C beanstalkd.*import-v7"):
        read(tmp_path)


def test_what_nobody_may_look_at_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(SourceError, match=r"\[BINLOG_UNREADABLE\] .*/loop: Too many levels"):
        read(tmp_path / "loop")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, files: Files) -> None:
    store = archived(tmp_path, files) / UUID.hex()
    (store / archive_name(99, 9999)).mkdir()
    with pytest.raises(SourceError, match=r"\[BINLOG_UNREADABLE\].*Is a directory"):
        read(tmp_path)


def test_an_archived_segment_without_a_seal_is_whole(tmp_path: Path) -> None:
    raw = segment_of([NAMES, [put(1)], [delete(1)]])
    store = tmp_path / "archive" / UUID.hex()
    written(store, {archive_name(1, 1): raw})
    assert [row["event"] for row in read(tmp_path / "archive")] == ["put", "delete"]


@pytest.mark.parametrize(
    "name",
    ["v1-every-kind", "v1-rehomed", "v1-rotated", "v1.1-extensions", "v1.1-metadata"],
)
def test_the_golden_logs_give_the_rows_of_the_second_reader(name: str) -> None:
    files = {path.name: path.read_bytes() for path in (GOLDEN / name).glob("*.tql")}
    expected = all_rows(files, "all", "keep", frozenset())
    found = read(GOLDEN / name, records="all", copies="keep", body="true", tags="true")
    assert found == expected[: len(found)]
    assert len(found) >= len(expected) - 3


def test_the_golden_damage_and_the_golden_torn_tail_are_told_apart() -> None:
    with pytest.raises(SourceError, match="BINLOG_DAMAGED"):
        read(GOLDEN / "v1-damaged", body="true")
    assert read(GOLDEN / "v1-damaged")
    assert read(GOLDEN / "v1-torn")
