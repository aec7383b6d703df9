"""Logs written once and kept for ever: what every reader must see in them."""

import json
from typing import Any

import pytest

from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.reading.survey import Segment, Survey
from beanstalk_twisted.binlog.records.others import DATA_CRC, DATA_LEN, DATA_OFF, decode_record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.segments.frames import Buffer
from tests.binlog import independent_reader
from tests.binlog.make_golden import GOLDEN, STORES, expected, read_golden
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, quiet
from tests.binlog.test_records import documented_types

every_store = pytest.mark.parametrize("name", STORES)


def kept(name: str) -> Any:
    return json.loads((GOLDEN / name / "expected.json").read_text())


def test_no_golden_file_is_without_its_maker() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(STORES)


@every_store
def test_the_encoder_still_writes_them_byte_for_byte(name: str) -> None:
    assert STORES[name]() == read_golden(name)


@every_store
def test_the_other_reader_sees_what_it_always_saw(name: str) -> None:
    assert expected(read_golden(name)) == kept(name)


@every_store
def test_our_reader_sees_the_same(name: str) -> None:
    said = kept(name)
    for segment in said["segments"].values():
        del segment["trailer"]  # Our server does without it.
        known = set(segment["header"]) - {"major", "header_size", "rec_size", "crc_kind", "minor"}
        segment["header"] = {k: segment["header"][k] for k in known - {"align_log2"}}
        for record in (r for frame in segment["frames"] for r in frame["records"]):
            record.pop("index", None)
    assert our_view(read_golden(name)) == said


def our_view(files: Files) -> Any:
    survey = Survey(MemoryDirectory(files), quiet)
    verdict = "damaged" if survey.problems else "torn" if survey.torn else "sound"
    jobs = {} if survey.problems else our_jobs(files)
    said = {
        "verdict": verdict,
        "durable_lsn": survey.durable_lsn,
        "segments": {s.name: our_segment(s, survey.read(s)) for s in survey.segments},
        "jobs": jobs,
    }
    return json.loads(json.dumps(said))


def our_jobs(files: Files) -> dict[int, str]:
    found = replay.read(MemoryDirectory(files), quiet)
    images = [each.image for each in found.survivors(0)]
    return {image.job_id: image.body.decode("latin-1") for image in images}


def our_segment(segment: Segment, buffer: Buffer) -> Any:
    header = {**segment.header._asdict(), "store_uuid": segment.header.store_uuid.hex()}
    ending = segment.ending
    return {
        "header": {name: value for name, value in header.items() if value},
        "frames": [our_frame(segment, buffer, at) for at in segment.frame_offsets],
        "end": ending.offset, "next_lsn": ending.next_lsn, "is_torn": bool(ending.problem),
        "witness": ending.witness_lsn,
    }  # fmt: skip


def our_frame(segment: Segment, buffer: Buffer, offset: int) -> Any:
    frame = segment.frame(buffer, offset)
    raws = list(frames.raw_records(buffer, frame))
    records = []
    for lsn, raw in enumerate(raws, start=frame.base_lsn):
        data = frames.data_of(buffer, frame, raw)
        placed = (raw[DATA_OFF], raw[DATA_LEN], raw[DATA_CRC])
        assert decode_record(raw, data).encode(placed) == RECORD.pack(*raw)
        said: dict[str, Any] = dict(zip(independent_reader.RECORD, raw, strict=True))
        said |= {"lsn": lsn, "data": data.decode("latin-1")}
        records.append({name: value for name, value in said.items() if value})
    return {
        "offset": offset, "base_lsn": frame.base_lsn, "durable_lsn": frame.durable_lsn,
        "time_ns": frame.time_ns, "records": records,
    }  # fmt: skip


def types_in(name: str) -> set[int]:
    segments = kept(name)["segments"].values()
    return {r["type"] for s in segments for f in s["frames"] for r in f["records"]}


def test_every_kind_of_record_is_in_them() -> None:
    types = types_in("v1-every-kind") | types_in("v1.1-extensions")
    assert types == set(documented_types().values())


def test_they_are_what_they_are_called() -> None:
    verdicts = {name: kept(name)["verdict"] for name in STORES}
    assert verdicts == {
        "v1-every-kind": "sound", "v1-rotated": "sound", "v1-torn": "torn",
        "v1-damaged": "damaged", "v1-rehomed": "sound", "v1.1-extensions": "sound",
        "v1.1-metadata": "sound",
    }  # fmt: skip
    first, second = kept("v1-rotated")["segments"].values()
    assert first["trailer"]["n_index"] == 1
    assert second["trailer"] is None
    assert list(kept("v1-rehomed")["segments"].values())[1]["header"]["flags"] == 5


def test_the_jobs_in_them_are_known() -> None:
    assert {name: sorted(kept(name)["jobs"]) for name in STORES if name != "v1-damaged"} == {
        "v1-every-kind": ["8", "9"], "v1-rotated": ["2", "3"], "v1-torn": ["1"],
        "v1-rehomed": ["2"], "v1.1-extensions": ["8"], "v1.1-metadata": ["7", "8"],
    }  # fmt: skip
