"""The records of a log as `dump` shows them, held against the reader that was written from the
page; and one frame, byte by byte.
"""

import base64
import struct
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import FULL, KEY, Kind, State
from beanstalk_twisted.binlog.records.others import TubeDef
from binlog_tools.inspect.dumping import (
    BYTES_PER_LINE,
    MAX_HEAP_BYTES,
    Entry,
    Gap,
    body_fields,
    body_text,
    entries,
    fields_of,
    hex_lines,
    view_of,
)
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import MAX_NUMBER, Numbers, Span
from binlog_tools.logs.reading import Bounds, OpenSegment, segments
from binlog_tools.logs.stored import Selection, types_named
from tests.binlog import independent_reader
from tests.binlog.independent_reader import Fields
from tests.binlog.make_golden import GOLDEN, STORES, read_golden
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    MS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
)
from tests.tools.folders import written
from tests.tools.salvage.logs import tags_of

ONE, TWO = (f"{n:020d}.tql" for n in (1, 2))
EVERYTHING = Selection()


def dumped(path: Path, selection: Selection = EVERYTHING) -> list[Entry]:
    found = entries(open_source(str(path)), selection)
    return [each for each in found if isinstance(each, Entry)]


def gaps(path: Path) -> list[Gap]:
    return [each for each in entries(open_source(str(path)), EVERYTHING) if isinstance(each, Gap)]


def as_the_page_has_it(entry: Entry) -> dict[str, object]:
    named = zip(independent_reader.RECORD, entry.raw, strict=True)
    return {"lsn": entry.lsn, **dict(named), "data": entry.data, "tags": entry.tags}


def as_we_have_it(record: Fields) -> Fields:
    """A record of the other reader, its extensions apart from its body."""
    if record["type"] not in FULL:
        return {**record, "tags": None}
    found, body = independent_reader.taken_apart(record)
    return {**record, "data": body, "tags": tags_of(found)}


@pytest.mark.parametrize("name", STORES)
def test_all_that_the_other_reader_reads_is_shown(name: str) -> None:
    records = independent_reader.read_log(read_golden(name))["records"]
    theirs = [as_we_have_it(record) for record in records]
    ours = [as_the_page_has_it(entry) for entry in dumped(GOLDEN / name)]
    if name == "v1-damaged":
        assert theirs == [], "it stops at damage, we go on behind it"
        assert [record["lsn"] for record in ours] == [4]
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", STORES)
def test_each_record_is_where_it_is_said_to_be(name: str) -> None:
    files = read_golden(name)
    for entry in dumped(GOLDEN / name):
        frame = independent_reader.fields(files[entry.segment], entry.offset,
                                          independent_reader.FRAME)  # fmt: skip
        assert frame["base_lsn"] <= entry.lsn < frame["base_lsn"] + frame["n_rec"]
        assert frame["time_ns"] == entry.time_ns


def test_the_fields_say_what_the_record_says() -> None:
    by_lsn = {entry.lsn: fields_of(entry) for entry in dumped(GOLDEN / "v1-every-kind")}
    assert [by_lsn[lsn]["type"] for lsn in sorted(by_lsn)] == [
        "tube-def", "start", "tube-def", "put", "put", "reserve", "touch", "release", "kick",
        "bury", "ttr-expired", "disconnect-release", "copy", "delete", "put", "pause", "state",
        "trim", "clock-step", "clean-stop", "seal",
    ]  # fmt: skip
    release = by_lsn[8]
    assert release == {
        "lsn": 8, "type": "release", "time": "2025-11-20T12:00:00.000000000Z",
        "logged": "2025-11-20T12:00:00.003000000Z", "segment": ONE, "offset": release["offset"],
        "flags": [], "reason": "client", "job": 7, "tube": "default", "tube_id": 1,
        "state": "delayed", "priority": 1024, "delay_s": 9, "ttr_s": 60,
        "deadline": "2025-11-20T12:00:09.000000000Z", "reserves": 0, "timeouts": 0, "releases": 1,
        "buries": 0, "kicks": 0, "connection": 7, "bytes": 0,
    }  # fmt: skip
    assert by_lsn[6]["flags"] == ["relaxed"]
    assert by_lsn[13]["flags"] == ["copy"]
    assert by_lsn[3]["tube"] == "mail"
    assert (by_lsn[2]["next_job_id"], by_lsn[2]["wall_offset_ns"]) == (7, -5_000_000_000)
    assert (by_lsn[16]["seconds"], by_lsn[16]["tube"]) == (5, "mail")
    assert by_lsn[17]["counters"] == '{"cmd-put":3,"total-jobs":3}'
    assert by_lsn[18]["trim_seq"] == 1
    assert by_lsn[19]["wall_offset_ns"] == 3600 * 10**9


def test_the_fields_say_what_version_1_1_has_brought() -> None:
    by_lsn = {entry.lsn: fields_of(entry) for entry in dumped(GOLDEN / "v1.1-extensions")}
    assert by_lsn[5]["tags"] == {
        "unique_key": "key", "unique_s": 60, "concurrency_key": "con", "concurrency_limit": 2,
        "group": "group", "after": "after",
    }  # fmt: skip
    assert (by_lsn[5]["bytes"], by_lsn[5]["deadline"]) == (5, None)
    dead = by_lsn[9]["tags"]
    assert isinstance(dead, dict)
    assert (dead["dead_from"], dead["dead_reason"], dead["origin"]) == (
        "default", "max-reserves", "default",
    )  # fmt: skip
    assert dead["dead_at"] == "2025-11-20T12:00:00.000000005Z"
    assert "tags" not in by_lsn[6]
    assert by_lsn[3]["rules"] == '{"max-jobs":"9"}'
    key = by_lsn[12]
    assert (key["job"], key["tube"], key["key"]) == (7, "mail", "key")
    assert key["deadline"] == "2025-11-20T12:01:00.000000000Z"


def test_a_job_is_chosen_together_with_the_key_that_it_has_left() -> None:
    chosen = Selection(jobs=Numbers([Span(7, 7)]))
    types = [entry.raw.type for entry in dumped(GOLDEN / "v1.1-extensions", chosen)]
    assert types == [Kind.PUT, Kind.GROUP_ENDED, Kind.MOVE, Kind.DELETE, KEY]


def test_a_type_that_is_not_known_yet_is_shown(tmp_path: Path) -> None:
    raw = bytearray(read_golden("v1-torn")[ONE])
    raw[4096 + 64] = 0x91
    from tests.binlog.forging import rechecked

    path = written(tmp_path / "log", {ONE: rechecked(raw, 4096)})
    assert fields_of(dumped(path)[0])["type"] == "type-145"


def mixed() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE, TubeDef(2, b"mail", T0)])
    scribe.write(put(1, b"a" * 500), put(2, b"b", tube_id=2))
    scribe.write(image(Kind.RESERVE, 1, state=State.RESERVED))
    scribe.write(image(Kind.BURY, 1, state=State.BURIED), delete(2, tube_id=2), put(3, b"c" * 2800))
    scribe.end_segment()
    scribe.write(put(4, b"d"))
    scribe.write(image(Kind.KICK, 1))
    return scribe.files()


@pytest.mark.parametrize(
    ("chosen", "lsns"),
    [
        (EVERYTHING, range(1, 14)),
        (Selection(jobs=Numbers([Span(1, 1)])), [3, 5, 6, 13]),
        (Selection(jobs=Numbers([Span(2, 3)])), [4, 7, 8]),
        (Selection(tubes=frozenset({b"mail"})), [2, 4, 7, 11]),
        (Selection(tubes=frozenset({b"none"})), []),
        (Selection(types=types_named(["put", "kick"])), [3, 4, 8, 12, 13]),
        (Selection(types=types_named(["job"])), [3, 4, 5, 6, 7, 8, 12, 13]),
        (Selection(states=frozenset({State.BURIED, State.GONE})), [6, 7]),
        (Selection(lsns=Span(6, 11)), range(6, 12)),
        (Selection(lsns=Span(12, MAX_NUMBER)), [12, 13]),
        (Selection(since_ns=T0 + 3 * MS), [6, 7, 8, 9, 10, 11, 12, 13]),
        (Selection(until_ns=T0 + 3 * MS), range(1, 6)),
        (Selection(since_ns=T0 + 2 * MS, until_ns=T0 + 3 * MS), [5]),
        (Selection(tubes=frozenset({b"mail"}), types=types_named(["delete"])), [7]),
        (Selection(jobs=Numbers([Span(0, 0)])), []),
    ],
)  # fmt: skip
def test_a_selection_chooses(chosen: Selection, lsns: list[int], tmp_path: Path) -> None:
    path = written(tmp_path / "log", mixed())
    assert [entry.lsn for entry in dumped(path, chosen)] == list(lsns)


def opened(path: Path, bounds: Bounds) -> list[str]:
    found = segments(open_source(str(path)), bounds)
    return [each.name for each in found if isinstance(each, OpenSegment)]


def test_segments_that_have_nothing_of_it_are_not_opened(tmp_path: Path) -> None:
    path = written(tmp_path / "log", mixed())
    assert opened(path, Bounds()) == [ONE, TWO]
    assert opened(path, Bounds(first_lsn=9)) == [ONE, TWO]
    assert opened(path, Bounds(first_lsn=10)) == [TWO]
    assert opened(path, Bounds(last_lsn=9)) == [ONE]
    assert opened(path, Bounds(last_lsn=10)) == [ONE, TWO]
    assert opened(path, Bounds(since_ns=T0 + 3 * MS)) == [ONE, TWO]
    assert opened(path, Bounds(since_ns=T0 + 4 * MS)) == [TWO]
    assert opened(path, Bounds(first_seq=2)) == [TWO]


def test_the_tubes_of_a_segment_that_begins_with_rehomed_records_have_their_names() -> None:
    jobs = [entry for entry in dumped(GOLDEN / "v1-rehomed") if entry.raw[0] == Kind.PUT]
    assert [(entry.raw[5], entry.tube) for entry in jobs] == [(1, b"default"), (2, b"mail")]


def test_damage_is_told_where_it_is_and_the_rest_is_shown(tmp_path: Path) -> None:
    files = mixed()
    whole = [e.lsn for e in dumped(written(tmp_path / "whole", files))]
    second = next(e.offset for e in dumped(tmp_path / "whole") if e.lsn == 5)
    path = written(tmp_path / "log", edited(files, ONE, lambda raw: flipped(raw, second + 70)))
    assert [entry.lsn for entry in dumped(path)] == [lsn for lsn in whole if lsn != 5]
    why = "the checksum of its records is wrong"
    assert gaps(path) == [Gap(ONE, second, 5, 6, why)]


def test_a_segment_without_a_header_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "log", edited(mixed(), ONE, lambda raw: flipped(raw, 50)))
    assert [gap.why for gap in gaps(path)] == ["the header's checksum is wrong"]
    assert [entry.lsn for entry in dumped(path)] == [10, 11, 12, 13]


def test_a_frame_that_stands_twice_or_is_left_out_is_told(tmp_path: Path) -> None:
    raw = mixed()[TWO]
    first = 4096
    (length,) = struct.unpack_from("<I", raw, first + 16)
    frame, rest = raw[first : first + length], raw[first + length :]
    twice = written(tmp_path / "twice", {TWO: raw[:first] + frame + frame + rest}) / TWO
    assert [(gap.first_lsn, gap.next_lsn) for gap in gaps(twice)] == [(13, 13)]
    assert [entry.lsn for entry in dumped(twice)] == [10, 11, 12, 13]
    out = written(tmp_path / "out", {TWO: raw[:first] + rest}) / TWO
    assert [(gap.first_lsn, gap.next_lsn) for gap in gaps(out)] == [(10, 13)]


@pytest.mark.parametrize(
    ("body", "how", "fields"),
    [
        (b"hello", "text", {"body": "hello"}),
        ("é".encode(), "text", {"body": "é"}),
        (b"\xff\x00", "text", {"body_base64": "/wA="}),
        (b"\xff\x00", "hex", {"body_hex": "ff00"}),
        (b"hello", "base64", {"body_base64": base64.b64encode(b"hello").decode()}),
        (b"hello", "none", {}), (b"", "text", {"body": ""}),
    ],
)  # fmt: skip
def test_bodies_in_json(body: bytes, how: str, fields: dict[str, str]) -> None:
    assert body_fields(body, how) == fields


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"hello", "hello"), (b"a\tb\n", "a\\tb\\n"), (b"\\t", "\\\\t"), (b"\xff", "\\xff"),
     (b"\\xff", "\\\\xff"), (b"\x00", "\\x00"), ("é".encode(), "é"), (b"", "")],
)  # fmt: skip
def test_no_two_bodies_are_the_same_text(body: bytes, text: str) -> None:
    assert body_text(body, "text") == text


ONE = f"{1:020d}.tql"


def viewed(path: Path, offset: int) -> list[str]:
    """The lines for a frame of the first segment."""
    opened = next(segments(open_source(str(path))))
    assert isinstance(opened, OpenSegment)
    return list(view_of(opened, offset))


def test_every_field_of_the_page_is_shown_with_what_it_says() -> None:
    lines = viewed(GOLDEN / "v1-every-kind", 4096)
    frame = independent_reader.read_frame(read_golden("v1-every-kind")[ONE], 4096, 0x5EED5EED)
    assert frame is not None
    end = 4096 + frame["frame_len"]
    assert lines[0] == f"{ONE}: offset 4096: a good frame, LSN 1 to 5, ends at {end}"
    said = [line.split() for line in lines]
    header = said[3 : 3 + 14]
    assert [words[2] for words in header] == ["magic", "hdr_crc", *independent_reader.FRAME]
    assert {w[2]: int(w[3]) for w in header[2:]} == {
        name: frame[name] for name in independent_reader.FRAME
    }
    first = next(n for n, line in enumerate(lines) if line.startswith("record 0, LSN 1, tube-def"))
    fields = said[first + 1 : first + 21]
    assert {w[2]: int(w[3]) for w in fields} == {
        name: frame["records"][0][name] for name in independent_reader.RECORD
    }
    assert "default" in lines[-1]


def test_a_spoilt_frame_is_shown_with_what_is_wrong() -> None:
    lines = viewed(GOLDEN / "v1-damaged", 4096)
    assert lines[0].endswith("the checksum of its bodies is wrong")
    wrong = [n for n, line in enumerate(lines) if line.startswith("  !! the data of this record")]
    assert len(wrong) == 1
    assert any(line.startswith("record 1, LSN 2, put") for line in lines[: wrong[0]])


def test_where_no_frame_is_the_bytes_are_shown_all_the_same() -> None:
    lines = viewed(GOLDEN / "v1-every-kind", 4104)
    assert lines[0].endswith("no frame begins here")
    assert any(line.split()[2:3] == ["magic"] for line in lines)
    assert not any(line.startswith("record") for line in lines)


def test_an_offset_outside_the_file_is_told() -> None:
    size = len(read_golden("v1-every-kind")[ONE])
    assert "no frame fits at offset" in viewed(GOLDEN / "v1-every-kind", size - 63)[0]
    assert "no frame fits at offset" in viewed(GOLDEN / "v1-every-kind", -1)[0]
    assert "no frame fits" not in viewed(GOLDEN / "v1-every-kind", size - 64)[0]


def test_of_large_bodies_only_the_beginning_is_shown(tmp_path: Path) -> None:
    for size, note in ((MAX_HEAP_BYTES, ""), (MAX_HEAP_BYTES + 1, f", {MAX_HEAP_BYTES} shown")):
        scribe = Scribe()
        scribe.write(put(1, b"x" * size))
        lines = viewed(written(tmp_path / str(size), scribe.files()), 4096)
        heap = next(n for n, line in enumerate(lines) if line.startswith("heap"))
        assert lines[heap] == f"heap, {size} bytes{note}"
        assert len(lines) - heap - 1 == MAX_HEAP_BYTES // BYTES_PER_LINE


def test_a_hex_dump_has_offsets_bytes_and_text() -> None:
    assert list(hex_lines(b"0123456789abcdef\x00\xffz", 0, 19)) == [
        "  00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "  00000010  00 ff 7a                                         ..z",
    ]
