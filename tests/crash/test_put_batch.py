"""A batch of jobs, cut at every byte: all of its jobs are there, or none."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.binlog.space_budget import whole_bytes
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, put
from tests.crash.test_every_byte import outcome
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
    segment = independent_reader.segment_of(files[newest])
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
