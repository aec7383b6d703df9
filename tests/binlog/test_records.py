"""Each kind of record, from value to bytes and back."""

import re
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.jobs import (
    COUNTERS,
    FULL,
    MAX_COUNTER,
    NO_DATA,
    RELAXED,
    Data,
    Flag,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.records.others import (
    CleanStop,
    ClockStep,
    Counters,
    NotUnderstood,
    Pause,
    Record,
    RememberedKey,
    Seal,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
    Unknown,
    decode_record,
)
from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES, MAX_TUBE_NAME_BYTES, RECORD
from beanstalk_twisted.binlog.tags import MAX_METADATA_BYTES, MAX_TAGS_BYTES, NO_TAGS, Tags
from tests.binlog import independent_reader
from tests.binlog.scribe import T0, image, put
from tests.binlog.segments.test_format import DOCUMENT, I64, U32, U64

u32 = st.integers(0, U32) | st.sampled_from([0, 1, U32])
u64 = st.integers(0, U64) | st.sampled_from([0, 1, U64])
i64 = st.integers(-I64 - 1, I64) | st.sampled_from([-I64 - 1, -1, 0, I64])
body = st.binary(max_size=40)


name = st.binary(min_size=1, max_size=MAX_TUBE_NAME_BYTES)
any_tags = st.builds(
    lambda *parts: Tags(*[field for part in parts for field in part]),
    st.just((b"", 0)) | st.tuples(name, u32), st.just((b"", 0)) | st.tuples(name, u32),
    st.tuples(st.just(b"") | name, st.just(b"") | name),
    st.tuples(st.just(b"") | st.just(b"trace=%3A1")),
    st.just((b"", 0, 0)) | st.tuples(name, st.integers(0, 255), i64),
    st.tuples(st.just(b"") | name),
).filter(bool).map(lambda tags: None if tags == NO_TAGS else tags)  # fmt: skip


@st.composite
def images(draw: st.DrawFn) -> JobImage:
    """A job's image, its numbers anywhere within their fields."""
    kind = draw(st.sampled_from(Kind))
    tags = draw(st.none() | any_tags) if kind in FULL else None
    return JobImage(
        kind, draw(st.sampled_from(State)), draw(st.sampled_from(Reason)), draw(u32), draw(u64),
        draw(i64), draw(i64), draw(u32), draw(u32), draw(u32), draw(u32), draw(u32), draw(u32),
        draw(u32), draw(u32), draw(u32), draw(body) if kind in FULL else b"", tags,
    )  # fmt: skip


others: st.SearchStrategy[Record] = st.one_of(
    st.builds(TubeDef, u32, st.binary(min_size=1, max_size=MAX_TUBE_NAME_BYTES), i64),
    st.builds(Pause, u32, u32, i64, i64, st.sampled_from(Reason)),
    st.builds(Counters, u32, i64, st.dictionaries(st.text(max_size=9), u64, max_size=3)),
    st.builds(RememberedKey, u32, name, u64, i64, i64),
    st.builds(TubePolicy, u32, st.dictionaries(st.text(max_size=9), st.text(max_size=9)), i64),
    st.builds(Trim, u64, i64),
    st.builds(Seal, i64, body),
    st.builds(Start, i64, u64, u32, i64),
    st.builds(CleanStop, i64),
    st.builds(ClockStep, i64, i64),
)
any_record: st.SearchStrategy[Record] = st.one_of(images(), others)


def placed(record: Record, offset: int = 0) -> Data:
    return (offset, len(record.data), zlib.crc32(record.data)) if record.data else NO_DATA


def round_trip(record: Record) -> Record:
    return decode_record(RECORD.unpack(record.encode(placed(record))), record.data)


@given(any_record)
def test_every_record_reads_back_as_it_was_written(record: Record) -> None:
    assert round_trip(record) == record


@given(images(), st.integers(0, U32 - 40))
def test_the_other_reader_sees_the_same_job(record: JobImage, offset: int) -> None:
    raw = record.encode(placed(record, offset))
    seen = independent_reader.fields(raw, 0, independent_reader.RECORD)
    alike = set(record._fields) - {"kind", "connection", "body", "tags"}
    assert {name: seen[name] for name in alike} == {name: getattr(record, name) for name in alike}
    assert seen["type"] == record.kind
    assert seen["aux"] == record.connection
    assert seen["data_len"] == len(record.data)
    extensions, seen_body = independent_reader.taken_apart({**seen, "data": record.data})
    assert seen_body == record.body
    tags = record.tags or NO_TAGS
    assert extensions == {name: value for name, value in {
        "unique": (tags.unique_s, tags.unique_key) if tags.unique_key else None,
        "concurrency":
            (tags.concurrency_limit, tags.concurrency_key) if tags.concurrency_key else None,
        "group": tags.group, "after": tags.after,
        "dead": (tags.dead_reason, tags.dead_at_ns, tags.dead_from) if tags.dead_from else None,
        "origin": tags.origin, "metadata": tags.metadata,
    }.items() if value}  # fmt: skip


@pytest.mark.parametrize("chosen", range(1 << 7))
def test_the_size_of_extensions_is_known_without_making_them(chosen: int) -> None:
    fields = (
        "unique_key", "concurrency_key", "group", "after", "dead_from", "origin", "metadata",
    )  # fmt: skip
    named = {name: b"n" * (at + 1) for at, name in enumerate(fields) if chosen >> at & 1}
    tags = NO_TAGS._replace(**named)  # type: ignore[arg-type]
    assert tags.encoded_bytes == len(tags.encode())


def largest(kind: Kind) -> JobImage:
    """A job whose every number is as large as its field."""
    fields: dict[str, Any] = {name: U32 for name in JobImage._fields[3:-2]}
    fields |= {"job_id": U64, "ts_ns": I64, "deadline_ns": I64}
    fields["body"] = b"b" if kind in FULL else b""
    name = b"n" * MAX_TUBE_NAME_BYTES
    largest_tags = Tags(
        name, U32, name, U32, name, name, b"m" * MAX_METADATA_BYTES, name, 255, I64, name
    )
    assert largest_tags.encoded_bytes == MAX_TAGS_BYTES
    fields["tags"] = largest_tags if kind in FULL else None
    return image(kind, state=State.DELAYED, reason=Reason.DAMAGED, **fields)


@pytest.mark.parametrize("kind", Kind)
def test_every_number_of_a_job_fits_at_its_limit(kind: Kind) -> None:
    assert round_trip(largest(kind)) == largest(kind)


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("priority", U32), ("job_id", U64), ("ts_ns", I64), ("deadline_ns", I64),
        ("delay_s", U32), ("ttr_s", U32), ("tube_id", U32), ("connection", U32),
    ],
)  # fmt: skip
def test_a_number_one_past_its_field_is_never_written_as_another(field: str, limit: int) -> None:
    too_large: dict[str, Any] = {field: limit + 1}
    with pytest.raises(struct.error):
        image(**too_large).encode(NO_DATA)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_counter_stays_at_its_limit(counter: str) -> None:
    counts: dict[str, Any] = {counter: MAX_COUNTER}
    at_limit = image(**counts)
    counts = {counter: MAX_COUNTER + 1}
    past = at_limit._replace(**counts)
    assert past.encode(NO_DATA) == at_limit.encode(NO_DATA)
    with pytest.raises(struct.error):
        past._replace(priority=U32 + 1).encode(NO_DATA)


def test_a_body_at_the_limit_can_be_described() -> None:
    raw = RECORD.unpack(put().encode((U32 - MAX_BODY_BYTES, MAX_BODY_BYTES, U32)))
    assert raw[16:19] == (U32 - MAX_BODY_BYTES, MAX_BODY_BYTES, U32)


@pytest.mark.parametrize("kind", Kind)
def test_replies_wait_for_what_a_job_must_not_lose_and_its_flags_say_so(kind: Kind) -> None:
    lost_without_harm = {Kind.RESERVE, Kind.TOUCH, Kind.TTR_EXPIRED, Kind.DISCONNECT_RELEASE}
    lost_without_harm |= {Kind.COPY}
    assert image(kind).commits == (kind not in lost_without_harm)
    flags = image(kind).encode(NO_DATA)[2]
    assert bool(flags & Flag.RELAXED) == (kind in RELAXED)
    assert bool(flags & Flag.COPY) == (kind is Kind.COPY)


@pytest.mark.parametrize(
    ("record", "waits"),
    [
        (Pause(1, 5, T0, T0, Reason.CLIENT), True),
        (Pause(1, 0, 0, T0, Reason.NONE), False),
        (Trim(1, T0), True),
        (RememberedKey(1, b"k", 1, T0, T0), True),
        (TubePolicy(1, {}, T0), True),
        (TubePolicy(1, {}, T0, Reason.NONE), False),
        (TubeDef(1, b"t"), False),
        (Counters(0, T0, {}), False),
        (Seal(T0, b""), False),
        (Start(T0, 1, 1, 0), False),
        (CleanStop(T0), False),
        (ClockStep(T0, 0), False),
    ],
)
def test_of_the_other_records_replies_wait_for_pauses_and_trims(
    record: Record, waits: bool
) -> None:
    assert record.commits is waits


@pytest.mark.parametrize("kind", [0, 13, 15, 17, 31, 36, 47, 50, 54, 127])
def test_an_unknown_type_is_refused(kind: int) -> None:
    with pytest.raises(NotUnderstood, match=f"type {kind} "):
        decode_record((kind, *[0] * 19), b"")


@pytest.mark.parametrize("kind", [128, 129, 255])
def test_an_unknown_type_with_bit_7_may_be_skipped(kind: int) -> None:
    assert decode_record((kind, *[0] * 19), b"anything") == Unknown(kind)


def test_what_is_not_understood_is_not_written() -> None:
    with pytest.raises(ValueError, match="129"):
        Unknown(129).encode(NO_DATA)


def test_an_unknown_state_of_a_job_is_refused_and_an_unknown_reason_is_not() -> None:
    raw = list(RECORD.unpack(put().encode(NO_DATA)))
    with pytest.raises(NotUnderstood, match="state 5"):
        decode_record((raw[0], 5, *raw[2:]), b"")
    raw[3] = 200
    assert decode_record(tuple(raw), b"").reason is Reason.NONE  # type: ignore[union-attr]


def extended(data: bytes) -> Record:
    raw = list(RECORD.unpack(put().encode(NO_DATA)))
    raw[2] |= Flag.EXT
    return decode_record(tuple(raw), data)


@pytest.mark.parametrize("body", [b"", b"body"])
def test_no_extensions_before_a_body_are_none(body: bytes) -> None:
    assert extended(b"\0\0" + body) == put(body=body)


@pytest.mark.parametrize(
    "extensions",
    [
        b"\x08\0\x01\0x", b"\x07\0\0\0",
        b"\x07\0\x01\4" + b"m" * 1025, b"\0\0\x01\0x", b"\x03\0\0\0", b"\x03\0\xc9\0" + bytes(201),
        b"\x04\0\x01\0a\x03\0\x01\0b", b"\x03\0\x01\0a\x03\0\x01\0b", b"\x03\0\x02\0a",
        b"\x03\0\x01", b"\x01\0\x04\0\0\0\0\0", b"\x02\0\x02\0ab", b"\x05\0\x09\0" + bytes(9),
    ],
)  # fmt: skip
def test_extensions_that_are_damaged_or_of_later_are_refused(extensions: bytes) -> None:
    with pytest.raises(NotUnderstood, match="extension"):
        extended(len(extensions).to_bytes(2, "little") + extensions + b"body")


@pytest.mark.parametrize("data", [b"", b"\0", b"\x01\0", b"\xff\xff" + bytes(65534)])
def test_extensions_longer_than_their_data_are_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstood, match="extensions"):
        extended(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"{'a': 1}", b"3", b"[]", b"null", b"[" * 100_000],
    ids=lambda data: repr(data[:9]),
)
def test_counters_that_are_no_json_object_are_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstood):
        decode_record((Counters.kind, *[0] * 19), data)


@given(st.binary(min_size=80, max_size=80), st.binary(max_size=60))
def test_arbitrary_bytes_are_a_record_or_are_not_understood(raw: bytes, data: bytes) -> None:
    try:
        decode_record(RECORD.unpack(raw), data)
    except NotUnderstood as problem:
        assert str(problem)


def documented_types() -> dict[str, int]:
    """The names and numbers of the document's two tables of records."""
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return {name: int(number) for number, name in rows}


def test_the_document_has_every_kind_of_record_and_no_other() -> None:
    classes: list[Any] = [
        TubeDef, Pause, RememberedKey, TubePolicy, Counters, Trim, Seal, Start, CleanStop,
        ClockStep,
    ]  # fmt: skip
    names = [
        "TUBE_DEF", "PAUSE", "KEY", "POLICY", "STATE", "TRIM", "SEAL", "START", "CLEAN_STOP",
        "CLOCK_STEP",
    ]  # fmt: skip
    ours = {kind.name: int(kind) for kind in Kind}
    ours |= {name: each.kind for name, each in zip(names, classes, strict=True)}
    assert documented_types() == ours


def test_the_document_has_every_reason() -> None:
    listed = DOCUMENT.read_text().replace("\n", " ")
    said = ", ".join(f"{int(reason)} {reason.name.lower().replace('_', '-')}" for reason in Reason)
    said = said.replace("9 expired", "9 expired (max-age)")
    assert said in re.sub(r"\s+", " ", listed)
