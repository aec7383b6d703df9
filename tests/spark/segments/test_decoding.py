"""The vectorised decoder gives the rows that the second reader finds, whatever the frames look
like.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import Start, TubeDef
from beanstalk_twisted.binlog.segments.format import SegmentHeader, decode_segment_header
from beanstalk_twisted.binlog.tags import NO_TAGS, BadTags, Tags, split_tags
from binlog_tools.spark.definitions.columns import BY_NAME, TAGS, arrow_schema
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.segments.decoding import batches
from binlog_tools.spark.segments.framing import Run, runs
from binlog_tools.spark.segments.wanted import Place, Stretch, Wanted
from tests.binlog.forging import rechecked
from tests.binlog.scribe import T0, Scribe, files_of, flipped, image, put, segment_files
from tests.sampling import one_in
from tests.spark.expected import Row, rows_of
from tests.spark.histories import NAMES, any_log, any_record, segment_of

ALL = tuple(BY_NAME)
WITHOUT_BODY = tuple(name for name in ALL if name != "body")
WITHOUT_TAGS = tuple(name for name in WITHOUT_BODY if name not in TAGS and name != "policy")
PATH = "/log/1.tql"


def place_of(raw: bytes) -> Place:
    header = decode_segment_header(raw[:4096])
    assert isinstance(header, SegmentHeader)
    return Place(PATH, header, header.store_uuid.hex())


def whole(raw: bytes, end: int | None = None) -> Stretch:
    if end is None:
        end = len(raw) - (40 if raw.endswith(b"TQLEND\r\n") else 0)
    return Stretch(4096, end, place_of(raw).header.first_lsn)


def decoded(
    raw: bytes, wanted: Wanted, stretch: Stretch | None = None, window_bytes: int = 8 << 20
) -> list[Row]:
    found: list[Row] = []
    for batch in batches(
        memoryview(raw), place_of(raw), stretch or whole(raw), wanted, window_bytes=window_bytes
    ):
        assert batch.schema.equals(arrow_schema(wanted.columns))
        assert len(batch)
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def cut_to(rows: list[Row], columns: tuple[str, ...]) -> list[Row]:
    return [{name: row[name] for name in columns} for row in rows]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", one_in(4, range(12)))
@pytest.mark.parametrize("records", ["jobs", "all", "history"])
@pytest.mark.parametrize("copies", ["drop", "keep"])
def test_random_segments_give_the_rows_of_the_second_reader(
    seed: int, records: Any, copies: Any
) -> None:
    wanted = Wanted(ALL, records, copies)
    for raw in segment_files(any_log(seed).directory).values():
        assert decoded(raw, wanted) == rows_of(raw, None, records, copies)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", one_in(4, range(12)))
@pytest.mark.parametrize("records", ["jobs", "all", "history"])
def test_random_segments_with_extensions_give_the_rows_of_the_second_reader(
    seed: int, records: Any
) -> None:
    wanted = Wanted(ALL, records, "keep")
    found: list[Row] = []
    for raw in segment_files(any_log(seed, has_extensions=True).directory).values():
        expected = rows_of(raw, None, records, "keep")
        assert decoded(raw, wanted) == expected
        found += expected
    for name in TAGS:
        assert any(row[name] is not None for row in found)
    assert records != "all" or {"key", "policy"} <= {row["event"] for row in found}


@pytest.mark.parametrize("rec_size", [80, 84, 88, 120])
@pytest.mark.parametrize("window_bytes", [64, 4096, 8 << 20])
def test_the_size_of_records_and_windows_changes_nothing(rec_size: int, window_bytes: int) -> None:
    dice = random.Random(rec_size)
    sizes = [1, 0, 3, 100, 1, 0, 0, 40]
    raw = segment_of([NAMES, *([any_record(dice) for _ in range(n)] for n in sizes)], 5, rec_size)
    expected = rows_of(raw, None, "all", "keep")
    assert len(expected) == 149
    assert decoded(raw, Wanted(ALL, "all", "keep"), window_bytes=window_bytes) == expected


def test_frames_of_more_records_than_a_batch_are_cut_between_frames() -> None:
    raw = segment_of([NAMES] + [[put(n) for n in range(1, 20_001)]] * 5)
    found = list(batches(memoryview(raw), place_of(raw), whole(raw), Wanted(("lsn",))))
    assert [len(batch) for batch in found] == [60_000, 40_000]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ALL)
def test_each_column_can_be_asked_for_alone(name: str) -> None:
    raw = next(iter(segment_files(any_log(3).directory).values()))
    expected = cut_to(rows_of(raw, None, "all", "keep"), (name,))
    assert decoded(raw, Wanted((name,), "all", "keep")) == expected


def test_a_stretch_may_begin_and_end_at_any_frame() -> None:
    raw = next(iter(segment_files(any_log(5, segment_bytes=1 << 17).directory).values()))
    expected = rows_of(raw)
    (run,) = runs(memoryview(raw), place_of(raw).header, whole(raw))
    assert isinstance(run, Run)
    ends = [*run.offset.tolist(), run.end]
    lsns = run.base_lsn.tolist()
    for first, last in [(0, 1), (0, 5), (3, 4), (7, len(lsns)), (len(lsns) - 1, len(lsns))]:
        stretch = Stretch(ends[first], ends[last], lsns[first])
        inside = [row for row in expected if ends[first] <= row["offset"] < ends[last]]
        assert decoded(raw, Wanted(ALL), stretch) == inside


def test_names_that_come_behind_their_use_are_found_in_a_rehomed_segment() -> None:
    raw = segment_of([[put(1, tube_id=2)], NAMES], flags=4)
    assert [row["tube"] for row in decoded(raw, Wanted(("tube",)))] == ["mail"]


def test_rehomed_records_are_of_the_incarnation_that_wrote_them() -> None:
    start = Start(T0, 9, 9, 0)
    raw = segment_of([[*NAMES, put(1)], [start, put(2)], [put(3)], [start], [put(4)]], flags=4)
    last = place_of(raw).header.incarnation
    before = [last - 2, last - 1, last - 1, last]
    assert [row["incarnation"] for row in decoded(raw, Wanted(("incarnation",)))] == before
    assert decoded(raw, Wanted(ALL)) == rows_of(raw)


def test_a_start_in_a_segment_of_its_own_changes_no_incarnation() -> None:
    raw = segment_of([[TubeDef(1, b"x", T0), Start(T0, 9, 9, 0), put(1)], [put(2)]])
    number = place_of(raw).header.incarnation
    assert [row["incarnation"] for row in decoded(raw, Wanted(("incarnation",)))] == [number] * 2


def test_extensions_before_a_body_are_not_part_of_it() -> None:
    data = (4).to_bytes(2, "little") + b"\1\0\0\0" + b"the body"
    raw = with_extensions(segment_of([NAMES, [put(1, b"plain"), put(2, data)]]))
    (plain, extended) = decoded(raw, Wanted(("bytes", "body")))
    assert plain == {"bytes": 5, "body": b"plain"}
    assert extended == {"bytes": 8, "body": b"the body"}


def with_extensions(raw: bytes) -> bytes:
    changed = bytearray(raw)
    at = changed.rindex(b"\xb5TQF\r\n\x1a\x01")
    count = int.from_bytes(changed[at + 20 : at + 24], "little")
    changed[at + 64 + (count - 1) * 80 + 2] |= 1
    return rechecked(changed, at)


def extensions(*parts: tuple[int, bytes]) -> bytes:
    raw = b"".join(bytes((tag, 0)) + len(v).to_bytes(2, "little") + v for tag, v in parts)
    return len(raw).to_bytes(2, "little") + raw


@pytest.mark.parametrize(
    ("data", "is_good"),
    [
        (extensions((3, b"x")), True), (extensions((3, b"x" * 200)), True), (b"\0\0", True),
        (extensions((1, b"\1\0\0\0k"), (5, b"\1" + bytes(8) + b"t"), (6, b"o")), True),
        (extensions((3, b"")), False), (extensions((3, b"x" * 201)), False),
        (extensions((1, b"\1\0\0\0")), False), (extensions((5, bytes(9))), False),
        (extensions((7, b"x")), True), (extensions((7, b"x" * 1024)), True),
        (extensions((7, b"")), False), (extensions((7, b"x" * 1025)), False),
        (extensions((8, b"x")), False), (extensions((0, b"x")), False),
        (extensions((4, b"x"), (3, b"x")), False), (extensions((3, b"x"), (3, b"y")), False),
        (b"\5\0\3\0\2\0x", False), (b"\3\0\3\0\1", False), (b"\xff\xff", False), (b"\1", False),
    ],
)  # fmt: skip
def test_extensions_are_understood_or_refused_as_by_the_server(data: bytes, is_good: bool) -> None:
    raw = with_extensions(segment_of([NAMES, [put(1, b"plain"), put(2, data)]]))
    plain, row = decoded(raw, Wanted((*TAGS, "problem"), damage="skip"))
    assert set(plain.values()) == {None}
    assert (row["problem"] is None) is is_good
    try:
        tags, _ = split_tags(data)
    except BadTags:
        assert not is_good
    else:
        assert is_good and row["job_group"] == ((tags or NO_TAGS).group.decode() or None)


def test_damaged_tags_are_damage_only_if_asked_for() -> None:
    raw = segment_of([NAMES, [put(1, tags=Tags(group=b"night")), put(2)]])
    changed = flipped(raw, raw.index(b"night"))
    assert len(decoded(changed, Wanted(WITHOUT_TAGS))) == 2
    with pytest.raises(SourceError, match=r"LSN 5: the checksum of its data is wrong"):
        decoded(changed, Wanted(("job_group",)))
    one, two = decoded(changed, Wanted(("job", "job_group", "problem"), damage="skip"))
    assert one == {"job": 1, "job_group": None, "problem": "the checksum of its data is wrong"}
    assert two == {"job": 2, "job_group": None, "problem": None}
    (row, _) = decoded(changed, Wanted(("job_group",), verify="headers"))
    assert row["job_group"] is not None


def test_extensions_longer_than_their_data_are_damage() -> None:
    raw = with_extensions(segment_of([NAMES, [put(1, b"\xff\xff")]]))
    with pytest.raises(SourceError, match=r"\[BINLOG_DAMAGED\].*extensions"):
        decoded(raw, Wanted(("body",)))
    (row,) = decoded(raw, Wanted(("body", "bytes", "problem"), damage="skip"))
    assert row["body"] is None and row["bytes"] is None and "extensions" in row["problem"]


def test_a_body_that_looks_like_a_frame_is_a_body() -> None:
    inner = segment_of([[put(5)]])[4096:]
    raw = segment_of([NAMES, [put(1, inner + bytes(-len(inner) % 8))], [put(2)]])
    assert [row["job"] for row in decoded(raw, Wanted(("job", "body")))] == [1, 2]


# Damage.


def frame_at(raw: bytes, number: int) -> int:
    (run,) = runs(memoryview(raw), place_of(raw).header, whole(raw))
    assert isinstance(run, Run)
    return int(run.offset[number])


THREE = segment_of([NAMES, [put(1)], [put(2, b"x" * 50), put(3, b"y" * 50)], [put(4)]])
SECOND = frame_at(THREE, 2)


@pytest.mark.parametrize("offset", [0, 9, 20, 30, 62, 64 + 7, 64 + 81])
def test_a_damaged_frame_fails_the_read_or_is_a_row_of_its_own(offset: int) -> None:
    raw = flipped(THREE, SECOND + offset)
    with pytest.raises(SourceError) as failed:
        decoded(raw, Wanted(("lsn",)))
    said = str(failed.value)
    assert said.startswith(f"[BINLOG_DAMAGED] {PATH}: frame at byte {SECOND}: ")
    assert f"binlog-inspect check {PATH}" in said and "\n" not in said
    columns = ("lsn", "event", "job", "offset", "bytes", "problem", "server", "segment")
    before, damage, behind = decoded(raw, Wanted(columns, damage="skip"))
    assert (before["job"], behind["job"]) == (1, 4)
    assert damage["event"] == "damage" and damage["job"] is None
    assert damage["lsn"] == len(NAMES) + 2 and damage["offset"] == SECOND
    assert damage["bytes"] == frame_at(THREE, 3) - SECOND
    assert PATH in damage["problem"] and "LSN 6 to 7" in damage["problem"]
    assert (damage["server"], damage["segment"]) == (before["server"], 1)


def test_a_segment_that_ends_too_early_is_damaged() -> None:
    short = Stretch(4096, len(THREE), 1)
    raw = THREE[: frame_at(THREE, 3)] + bytes(len(THREE) - frame_at(THREE, 3))
    with pytest.raises(SourceError, match="bytes short"):
        decoded(raw, Wanted(("lsn",)), short)
    *rows, damage = decoded(raw, Wanted(("event", "lsn"), damage="skip"), short)
    assert len(rows) == 3 and damage == {"event": "damage", "lsn": 8}


def test_a_damaged_body_does_not_matter_when_no_body_is_asked_for() -> None:
    raw = flipped(THREE, SECOND + 64 + 160 + 10)
    assert len(decoded(raw, Wanted(WITHOUT_BODY))) == 4


def test_a_damaged_body_is_null_and_the_others_of_its_frame_are_there() -> None:
    raw = flipped(THREE, SECOND + 64 + 160 + 10)
    with pytest.raises(SourceError, match="checksum of its bodies"):
        decoded(raw, Wanted(("body",)))
    rows = decoded(raw, Wanted(("job", "body", "problem"), damage="skip"))
    assert [row["body"] for row in rows] == [b"hello", None, b"y" * 50, b"hello"]
    assert [bool(row["problem"]) for row in rows] == [False, True, False, False]


def test_checksums_are_only_looked_at_as_far_as_asked_for() -> None:
    in_records = flipped(THREE, SECOND + 64 + 7)
    assert len(decoded(in_records, Wanted(("lsn",), verify="headers"))) == 4
    in_header = flipped(THREE, SECOND + 32)
    assert len(decoded(in_header, Wanted(("lsn",), verify="none"))) == 4
    with pytest.raises(SourceError):
        decoded(in_header, Wanted(("lsn",), verify="headers"))


def test_a_tube_whose_name_is_lost_is_said_and_not_guessed() -> None:
    raw = segment_of([[TubeDef(1, b"default", T0)], [put(1), put(2, tube_id=5)]])
    with pytest.raises(SourceError, match="nothing says the name of tube 5"):
        decoded(raw, Wanted(("tube",)))
    one, two = decoded(raw, Wanted(("tube", "problem"), damage="skip"))
    assert one == {"tube": "default", "problem": None}
    assert two == {"tube": None, "problem": "nothing says the name of tube 5"}


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_loses_no_row_that_is_still_there_and_invents_none(seed: int) -> None:
    dice = random.Random(seed)
    files = files_of(any_log(seed).directory)
    raw = files[min(files)]
    changed = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(4096, len(raw) - 40)
        length = dice.choice([1, 8, 200, 1500])
        changed[at : at + length] = dice.randbytes(len(changed[at : at + length]))
    columns = tuple(name for name in ALL if name not in ("tube", "problem"))
    expected = {row["lsn"]: row for row in cut_to(rows_of(raw, None, "all", "keep"), columns)}
    found = decoded(bytes(changed), Wanted(columns, "all", "keep", "skip"), whole(raw))
    rows = [row for row in found if row["event"] != "damage"]
    lsns = [row["lsn"] for row in found]
    assert lsns == sorted(lsns)
    for row in rows:
        if row["body"] is None:
            row["body"] = expected[row["lsn"]]["body"]
        assert row == expected[row["lsn"]]
    intact = [
        row["lsn"] for row in expected.values() if is_intact(raw, bytes(changed), row["offset"])
    ]
    assert set(intact) <= {row["lsn"] for row in rows}
    if len(rows) < len(expected):
        assert any(row["event"] == "damage" for row in found)


def is_intact(raw: bytes, changed: bytes, at: int) -> bool:
    length = int.from_bytes(raw[at + 16 : at + 20], "little")
    return raw[at : at + length] == changed[at : at + length]


# What Spark cannot hold, and what we do not know.


def test_a_job_id_of_2_to_the_63_is_refused() -> None:
    raw = segment_of([NAMES, [put(1 << 63)]])
    with pytest.raises(SourceError, match=r"\[BINLOG_NUMBER_TOO_LARGE\].*9223372036854775808"):
        decoded(raw, Wanted(("job",)))
    assert decoded(segment_of([NAMES, [put((1 << 63) - 1)]]), Wanted(("job",)))


def test_an_lsn_of_2_to_the_63_is_refused() -> None:
    raw = segment_of([[put()]], first_lsn=1 << 63)
    with pytest.raises(SourceError, match=r"\[BINLOG_NUMBER_TOO_LARGE\]"):
        decoded(raw, Wanted(("lsn",)))


@pytest.mark.parametrize("kind", [0, 60, 127])
def test_an_unknown_type_of_record_is_refused(kind: int) -> None:
    raw = segment_of([NAMES, [image(Kind.TOUCH)]])
    changed = with_type(raw, kind)
    with pytest.raises(SourceError, match=rf"\[BINLOG_UNKNOWN_FORMAT\].*record type {kind} "):
        decoded(changed, Wanted(("lsn",)))


def test_a_type_that_may_be_skipped_is_skipped_or_has_its_number() -> None:
    raw = with_type(segment_of([NAMES, [put(), image(Kind.TOUCH)]]), 0x82)
    assert [row["event"] for row in decoded(raw, Wanted(("event",)))] == ["put"]
    every = decoded(raw, Wanted(("event",), "all"))
    assert every[-1]["event"] == "type-130"


def with_type(raw: bytes, kind: int) -> bytes:
    changed = bytearray(raw)
    at = changed.rindex(b"\xb5TQF\r\n\x1a\x01")
    count = int.from_bytes(changed[at + 20 : at + 24], "little")
    changed[at + 64 + (count - 1) * 80] = kind
    return rechecked(changed, at)


def test_many_tubes_far_apart_have_their_names() -> None:
    names = [TubeDef(number, b"t%d" % number, T0) for number in (1, 5, 1 << 25, (1 << 32) - 1)]
    jobs = [put(n, tube_id=each.tube_id) for n, each in enumerate(names, start=1)]
    raw = segment_of([names, jobs])
    found = [row["tube"] for row in decoded(raw, Wanted(("tube",)))]
    assert found == ["t1", "t5", "t33554432", "t4294967295"]


def test_a_real_writer_s_unfinished_segment_is_read_to_where_one_says() -> None:
    scribe = Scribe(opening=NAMES)
    scribe.write(*NAMES, put(1))
    scribe.write(put(2))
    ((_, raw),) = segment_files(scribe.directory).items()
    end = frame_at(raw.rstrip(b"\0") + bytes(-len(raw.rstrip(b"\0")) % 8), 1)
    assert [row["job"] for row in decoded(raw, Wanted(("job",)), whole(raw, end))] == [1]
