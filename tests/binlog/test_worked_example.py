"""The example in docs/binlog-format.md: both readers understand it, and the encoder writes it."""

import re

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Record, TubeDef, decode_record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.frames import Frame
from tests.binlog import independent_reader
from tests.binlog.segments.test_format import DOCUMENT

SALT = 0x5EED5EED
WHEN = 1_763_700_000_000_000_000
EXPECTED: list[Record] = [
    TubeDef(1, b"default", WHEN),
    JobImage(
        Kind.PUT, State.READY, Reason.NONE, 1024, 1, WHEN, 0, 0, 60, 1, connection=7,
        body=b"hello",
    ),
]  # fmt: skip


def example() -> bytes:
    """The bytes of the document's hex dump, whose addresses are checked on the way."""
    raw = b""
    for address, digits in re.findall(
        r"^([0-9a-f]{4}) ((?:[0-9a-f]{8} ?)+(?: (?:[0-9a-f]{8} ?)+)?)$",
        DOCUMENT.read_text(), re.MULTILINE,
    ):  # fmt: skip
        assert int(address, 16) == 0x1000 + len(raw)
        raw += bytes.fromhex(digits)
    return raw


def test_the_document_has_an_example_of_240_bytes() -> None:
    assert len(example()) == 240


def test_our_reader_understands_the_example() -> None:
    raw = example()
    frame = frames.decode(raw, 0, len(raw), SALT)
    assert isinstance(frame, Frame)
    assert (frame.base_lsn, frame.durable_lsn, frame.time_ns) == (1, 0, WHEN)
    assert [
        decode_record(fields, frames.data_of(raw, frame, fields))
        for fields in frames.raw_records(raw, frame)
    ] == EXPECTED


def test_the_other_reader_understands_the_example() -> None:
    frame = independent_reader.read_frame(example(), 0, SALT)
    assert frame is not None
    tube, job = frame["records"]
    assert (tube["lsn"], tube["type"], tube["tube_id"], tube["data"]) == (1, 32, 1, b"default")
    assert (job["lsn"], job["type"], job["state"], job["priority"]) == (2, 1, 1, 1024)
    assert (job["job_id"], job["ttr_s"], job["aux"], job["data"]) == (1, 60, 7, b"hello")


def test_the_encoder_writes_the_example_byte_for_byte() -> None:
    written = frames.encode(EXPECTED, base_lsn=1, durable_lsn=0, time_ns=WHEN, salt=SALT)
    assert written == example()
