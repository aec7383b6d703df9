"""A batch of jobs, cut at every byte and lost with the power at every operation: all of its jobs
are there, or none.
"""

from __future__ import annotations

from functools import partial

import pytest

from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.binlog.space_budget import whole_bytes
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, put
from tests.crash.test_every_byte import outcome
from tests.held_io import HeldIo
from tests.sampling import SHARE, one_in

MAIL = TubeDef(2, b"mail", T0)
SIZES = {"small": [5] * 40, "several frames' worth": [300_000] * 5}


def log_with_batch(sizes: list[int], segment_bytes: int, is_behind: bool) -> tuple[Scribe, int]:
    """Write job 1; then, in one group commit, perhaps job 2, a batch from 3 on, and another job.

    :return: it, and the id behind those of the batch.
    """
    scribe = Scribe(segment_bytes=segment_bytes, opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"before"))
    if is_behind:
        scribe.log.append(put(2, b"in the same commit" * 100))
    scribe.log.make_room(whole_bytes(len(sizes), sum(sizes)), T0)
    scribe.log.append(MAIL)
    scribe.log.append_whole([put(at, bytes(n), tube_id=2) for at, n in enumerate(sizes, 3)])
    scribe.write(put(1000, b"behind"))
    return scribe, 3 + len(sizes)


MOST_PLACES = 1000
"""Where a log is cut, in so many places at most: megabytes are read anew for each."""


@pytest.mark.one_in(5)
@pytest.mark.parametrize("segment_bytes", [MIN_SEGMENT_BYTES, 8 << 20])
@pytest.mark.parametrize("is_behind", [False, True], ids=["alone", "in a group commit"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_log_cut_anywhere_has_all_of_a_batch_or_none(
    sizes: list[int], is_behind: bool, segment_bytes: int
) -> None:
    scribe, end = log_with_batch(sizes, segment_bytes, is_behind)
    batch = set(range(3, end))
    files = scribe.files()
    newest = max(files)
    segment = independent_reader.read_segment(files[newest])
    assert segment is not None
    (frame,) = [each for each in segment["frames"] if each["n_rec"] >= len(sizes)]
    stops = [each["offset"] + each["frame_len"] for each in segment["frames"]]
    places = {stop + by for stop in stops for by in (-1, 0, 1)}
    length = stops[-1] - frame["offset"]
    places |= set(one_in(SHARE, range(frame["offset"], stops[-1], length // MOST_PLACES + 1)))
    seen = set()
    for place in sorted(places):
        found = outcome({**files, newest: files[newest][:place]})
        if found.jobs is None:
            continue
        there = batch & found.jobs.keys()
        assert there in (set(), batch), place
        seen.add(bool(there))
        assert bool(there) == (place >= frame["offset"] + frame["frame_len"])
    assert True in seen


def _same(io: HeldIo) -> HeldIo:
    return io


def batch_of(bodies: list[bytes]) -> bytes:
    jobs = b"".join(b"0 0 60 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
    return b"put-batch %d\r\n" % len(bodies) + jobs


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("segment_bytes", "body_bytes"), [(MIN_SEGMENT_BYTES, 5_000), (4 << 20, 300_000)]
)
def test_a_power_loss_at_any_operation_leaves_all_of_a_batch_or_none(
    segment_bytes: int, body_bytes: int
) -> None:
    bodies = [b"%d" % n * body_bytes for n in range(5)]
    counts = set()
    for operations in range(25):
        io = HeldIo()
        directory = MemoryDirectory()
        server = MemoryServer(
            directory=directory, io=partial(_same, io), max_job_bytes=1 << 20,
            segment_bytes=segment_bytes,
        )  # fmt: skip
        client = server.connect()
        client.send(batch_of(bodies))
        for _ in range(operations):
            server.advance()
            if io:
                io.step()
        answer = client.take()
        server.advance()
        for left in (directory.after_power_loss(), directory.after_kill()):
            after = MemoryServer(directory=left)
            there = len(after.service.queue.state.jobs)
            assert there in (0, 5)
            assert there == 5 or not answer
            counts.add(there)
    assert counts == {0, 5}
