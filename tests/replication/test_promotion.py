"""A log that was there before is in the stream whole, between two notes."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Opening, Position, RehomedFrame
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.records.jobs import JobImage
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES, segment_name
from beanstalk_twisted.replication.membership import read_note
from beanstalk_twisted.replication.promotion import MAX_AHEAD_BYTES, fill, pieces
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.stream.interface import (
    MAX_MESSAGE_BYTES,
    HeldLease,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import PART_BYTES, Kind, Note, Write
from beanstalk_twisted.replication.window import MAX_IN_FLIGHT_BYTES
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import as_read
from tests.held_io import HeldIo
from tests.replication.publishing import WHO, ActiveLog
from tests.replication.stream.memory import Fate, MemoryLog, MemoryStream
from tests.replication.world import Process

LOG_LSN = 12_345
"""What is told of the whole log's last record."""


class Filled:
    """A stream that is filled from the log of a server that has ended."""

    def __init__(self, before: ActiveLog, fate: Fate | None = None) -> None:
        self.before = before
        self.ends = dict(_replayed(before.directory).position(b"u" * 16).ends)
        # What is in the stream is read as `ActiveLog` does.
        before.messages = self.messages = MemoryLog()
        reactor = self.reactor = Process()
        fates = [] if fate is None else [fate]
        stream = MemoryStream(self.messages, reactor, lambda kind: fates.pop() if fates else Fate())
        self.publisher = Publisher(stream, reactor, reactor.now_ns, HeldLease(10), 0, WHO)
        self.io = HeldIo()
        self.told: list[tuple[int, int]] = []
        self.most_ahead = 0
        self.filled: Deferred[None] = Deferred.fromCoroutine(
            fill(
                self.publisher, before.directory, self.io, self.ends, LOG_LSN, WHO, lambda: 5,
                lambda *told: self.told.append(told),
            )
        )  # fmt: skip

    def run(self) -> None:
        for _ in range(1000):
            while self.io:
                self.io.step()
                self.most_ahead = max(self.most_ahead, self.publisher.waiting_bytes)
            self.reactor.pass_s(0.05)
            if self.filled.called:
                return


def _replayed(directory: MemoryDirectory) -> replay.Replay:
    return replay.read(directory, lambda done, total: None)


def _log(segments: int, *, ends: bool, body: bytes = b"x" * 4000) -> ActiveLog:
    active = ActiveLog()
    while active.log.segment < segments:
        active.put_all(body)
    if ends:
        active.committer.finish()
        active.write_all()
    return active


@pytest.mark.parametrize("ends", [True, False])
def test_the_stream_has_the_segments_as_they_are_on_disk(ends: bool) -> None:
    filled = Filled(_log(4, ends=ends))
    filled.run()
    assert filled.filled.called
    first_positions = filled.publisher.segments.first_positions
    said = filled.before.said()
    notes = [each for each in said if isinstance(each, Note)]
    assert [note.kind for note in notes] == [Kind.FILL_BEGINS, Kind.FILL_ENDS]
    assert notes[0].last_lsn == LOG_LSN
    assert said[0] is not said[-1] and {read_note(note.text).id for note in notes} == {WHO.id}
    assert isinstance(said[0], Note) and isinstance(said[-1], Note)
    files = filled.before.files_of_a_standby()
    assert list(files) == list(filled.ends) == list(first_positions) == [1, 2, 3, 4]
    for seq, content in files.items():
        on_disk = bytes(filled.before.directory.read(segment_name(seq)))
        assert content == on_disk[: len(content)]
        assert not on_disk[len(content) :].strip(b"\0") or not ends
    begun = {write.segment for write in filled.before.writes() if write.begins}
    assert begun == {1, 2, 3, 4}
    sealed = {write.segment for write in filled.before.writes() if write.seals}
    assert sealed == ({1, 2, 3, 4} if ends else {1, 2, 3})
    assert filled.told[-1] == (sum(filled.ends.values()),) * 2


def test_the_files_of_the_stream_are_a_log_with_the_same_jobs() -> None:
    filled = Filled(_log(4, ends=True))
    filled.run()
    copy = MemoryDirectory()
    for seq, content in filled.before.files_of_a_standby().items():
        file = copy.create(segment_name(seq))
        file.write_at(0, [content])
        file.sync()
    copy.sync()
    assert _jobs(copy) == _jobs(filled.before.directory) != []
    assert filled.before.writes()[-1].last_lsn == filled.before.log.last_lsn


def _jobs(directory: MemoryDirectory) -> list[object]:
    found = _replayed(directory).survivors(0)
    return [each.image if isinstance(each.image, JobImage) else each for each in found]


def test_a_frame_larger_than_a_message_goes_in_parts() -> None:
    filled = Filled(_log(2, ends=True, body=b"y" * (PART_BYTES + 1)))
    filled.run()
    assert max(map(len, filled.messages.messages.values())) <= MAX_MESSAGE_BYTES
    assert filled.before.files_of_a_standby().keys() == filled.ends.keys()


@pytest.mark.exhaustive
def test_no_more_is_read_ahead_than_a_few_messages() -> None:
    before = ActiveLog(segment_bytes=1 << 22)
    while before.log.segment < 5:
        before.put_all(b"z" * 50_000)
    filled = Filled(before)
    filled.run()
    assert MAX_IN_FLIGHT_BYTES < filled.most_ahead <= MAX_AHEAD_BYTES + MAX_MESSAGE_BYTES
    assert filled.filled.called


def test_a_segment_without_a_durable_frame_is_its_header() -> None:
    before = _log(2, ends=False)
    (write,) = pieces(before.directory, 2, SEGMENT_HEADER_BYTES)
    assert (write.begins, write.seals, len(write.content)) == (True, False, SEGMENT_HEADER_BYTES)


def test_what_was_re_homed_goes_in_one_write_with_the_names_of_its_tubes() -> None:
    before = ActiveLog(segment_bytes=1 << 23)
    lost: list[RehomedFrame] = []
    for _ in range(3):
        before.put(b"x" * (PART_BYTES // 2))
        # Each in a frame of its own, of which the disk has none.
        batch = before.log.take(0)
        assert batch is not None
        lost += as_read(batch.chunks)
    position = Position(2, lost[0].base_lsn, 0, 1, b"u" * 16, REHOMED, 2, 0, lost)
    opening = Opening(4, [TubeDef(1, b"default", 0)])
    begun = Log(position, 1 << 23, lambda *at: opening, lambda: 8, "test").take(0)
    assert begun is not None and begun.begins
    content = b"".join(begun.chunks)
    file = before.directory.create(segment_name(begun.seq))
    file.write_at(0, [content])
    file.sync()
    first, *others = pieces(before.directory, begun.seq, len(content))
    assert len(first.content) > PART_BYTES
    assert TubeDef.kind in _kinds(first)
    assert TubeDef.kind not in {kind for write in others for kind in _kinds(write)}
    assert b"".join(write.content for write in (first, *others)) == content


def _kinds(write: Write) -> set[int]:
    at = SEGMENT_HEADER_BYTES if write.begins else 0
    found: set[int] = set()
    while at < len(write.content):
        frame = frames.known(write.content, at)
        found |= {kind for kind, _ in frames.kinds_and_ids(write.content, frame)}
        at = frame.end
    return found


def test_damage_ends_it() -> None:
    filled = Filled(_log(3, ends=True))
    filled.before.directory.open(segment_name(2)).write_at(5000, [b"damage"])
    filled.run()
    assert isinstance(_error(filled), Damaged)


def test_another_servers_message_ends_it() -> None:
    filled = Filled(_log(3, ends=True))
    filled.messages.append(b"another server", 0)
    filled.run()
    assert isinstance(_error(filled), WrongPosition)


def _error(filled: Filled) -> BaseException | None:
    errors: list[Failure] = []
    filled.filled.addErrback(errors.append)
    return errors[0].value
