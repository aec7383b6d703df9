"""Damage that leaves bodies sound and takes away what speaks of them: each such body is saved or
listed, and the report says in order where the log is not as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.binlog.scribe import Files, edited
from tests.tools.salvage.damaging import Full, batches_of, full_records, inverted, overwritten
from tests.tools.salvage.logs import Bytes, names_of
from tests.tools.salvage.salvaged import Salvaged, salvaged, see_that_it_loads
from tests.tools.salvage.test_sweeps import BLOCK_BYTES, EACH_LOG, LOGS, known_of, zeros

PIECE_BYTES = 64


class Regions:
    """Judges what is salvaged after damage to one log."""

    def __init__(self, name: str) -> None:
        self.files = LOGS[name]()
        self.known = known_of(name)
        self.full = full_records(self.files)
        self.outcomes: set[tuple[int, ...]] = set()

    def judge(self, files: Files, regions: list[Bytes]) -> Salvaged:
        """Salvage, and see that nothing is missing that could be there."""
        found = salvaged(files)
        for job_id, owned in self.known.living.items():
            if all(owned.is_outside(region) for region in regions):
                assert found.jobs.get(job_id) == owned.job, (regions, job_id)
        for job_id, parts in self.known.deleted.items():
            if not any(part.touches(region) for part in parts for region in regions):
                assert job_id not in found.jobs, (regions, job_id)
        self._see_that_bodies_are_there(found, regions)
        see_that_places_are_in_order(found, files)
        if tuple(found.jobs) not in self.outcomes:
            self.outcomes.add(tuple(found.jobs))
            see_that_it_loads(found)
        return found

    def _see_that_bodies_are_there(self, found: Salvaged, regions: list[Bytes]) -> None:
        saved = [job.body for job in found.jobs.values()]
        trim_seq = found.report.salvage.live_jobs.trim_seq
        for full in self.full:
            if full.job_id not in self.known.living or int(full.data.name[:20]) < trim_seq:
                continue
            if any(full.data.touches(region) for region in regions):
                continue
            is_left = not any(full.header.touches(region) for region in regions)
            is_left |= not any(full.record.touches(region) for region in regions)
            is_there = full.body in saved or full.job_id in found.judgements
            if is_left and not is_there:
                # Several whose records are gone are one piece.
                assert any(full.body in body for body in saved), (regions, full)
            if not is_there:
                assert _is_in_a_hole(found, full), (regions, full)


def _is_in_a_hole(found: Salvaged, full: Full) -> bool:
    """What was not promised to be there is torn, or in a hole, or in a damaged place after the last
    frame that is sound.
    """
    salvage = found.report.salvage
    is_torn = salvage.torn_lsn is not None and full.lsn >= salvage.torn_lsn
    is_last = any(
        place.name == full.record.name and place.offset <= full.record.start < place.end
        and full.lsn >= place.expected_lsn
        for place in salvage.places[-1:]
    )  # fmt: skip
    return (
        is_torn
        or is_last
        or any(hole.first_lsn <= full.lsn <= hole.last_lsn for hole in salvage.holes)
    )


def see_that_places_are_in_order(found: Salvaged, files: Files) -> None:
    for places in found.report.salvage.places, found.report.salvage.holes:
        reached: dict[str, int] = {}
        for place in places:
            assert reached.get(place.name, 0) <= place.offset <= place.end, place
            assert place.end <= len(files.get(place.name, b"")), place
            reached[place.name] = place.end
    lsns = [lsn for hole in found.report.salvage.holes for lsn in (hole.first_lsn, hole.last_lsn)]
    assert lsns == sorted(lsns)


def headers_of(files: Files) -> Iterator[Bytes]:
    for name in names_of(files):
        for frame in batches_of(files, name):
            yield Bytes(name, frame["offset"], frame["offset"] + 64)


@pytest.mark.one_in(5)
@EACH_LOG
@pytest.mark.parametrize("filling", [zeros, inverted])
def test_the_header_of_any_frame_is_gone(name: str, filling: object) -> None:
    sweep = Regions(name)
    for region in headers_of(sweep.files):
        assert callable(filling)
        files = overwritten(sweep.files, region, filling)
        sweep.judge(files, [region])
        header = Bytes(region.name, 0, 512)
        sweep.judge(overwritten(files, header, inverted), [region, header])


@EACH_LOG
def test_the_headers_of_any_two_neighbouring_frames_are_gone(name: str) -> None:
    sweep = Regions(name)
    regions = list(headers_of(sweep.files))
    for first, second in pairwise(regions):
        files = overwritten(overwritten(sweep.files, first, zeros), second, zeros)
        sweep.judge(files, [first, second])


@pytest.mark.one_in(5)
@EACH_LOG
@pytest.mark.parametrize("byte", [1643, 80])
def test_the_header_and_any_64_bytes_of_a_segment_are_damaged(name: str, byte: int) -> None:
    sweep = Regions(name)
    for segment in names_of(sweep.files):
        header = Bytes(segment, byte, byte + 1)
        without = overwritten(sweep.files, header, inverted)
        for at in range(4096, len(sweep.files[segment]), PIECE_BYTES):
            region = Bytes(segment, at, min(at + PIECE_BYTES, len(sweep.files[segment])))
            sweep.judge(overwritten(without, region, inverted), [header, region])


@pytest.mark.one_in(3)
@EACH_LOG
def test_any_block_is_doubled_over_its_neighbour(name: str) -> None:
    sweep = Regions(name)
    for segment in names_of(sweep.files):
        raw = sweep.files[segment]
        for at in range(0, len(raw) - 2 * BLOCK_BYTES + 1, BLOCK_BYTES // 2):
            block = raw[at : at + BLOCK_BYTES]
            region = Bytes(segment, at + BLOCK_BYTES, at + 2 * BLOCK_BYTES)
            sweep.judge(
                overwritten(sweep.files, region, lambda _, block=block: block),  # type: ignore[misc]
                [region],
            )


@pytest.mark.one_in(3)
@EACH_LOG
def test_any_block_is_doubled_so_that_all_behind_it_is_moved(name: str) -> None:
    """What the block is put in the middle of is damaged; all else is only in another place."""
    sweep = Regions(name)
    for segment in names_of(sweep.files):
        raw = sweep.files[segment]
        for at in range(BLOCK_BYTES, len(raw), BLOCK_BYTES // 2):
            files = edited(
                sweep.files,
                segment,
                lambda raw, at=at: raw[:at] + raw[at - BLOCK_BYTES :],  # type: ignore[misc]
            )
            broken = [
                Bytes(segment, frame["offset"], frame["offset"] + frame["frame_len"])
                for frame in batches_of(sweep.files, segment)
                if frame["offset"] < at < frame["offset"] + frame["frame_len"]
            ]
            header = [Bytes(segment, 0, 4096)] if at < 4096 else []
            sweep.judge(files, [*header, *broken])


@EACH_LOG
def test_any_two_neighbouring_blocks_change_places(name: str) -> None:
    sweep = Regions(name)
    for segment in names_of(sweep.files):
        raw = sweep.files[segment]
        for at in range(0, len(raw) - 2 * BLOCK_BYTES + 1, BLOCK_BYTES):
            region = Bytes(segment, at, at + 2 * BLOCK_BYTES)
            swapped = raw[at + BLOCK_BYTES : region.end] + raw[at : at + BLOCK_BYTES]
            sweep.judge(
                overwritten(sweep.files, region, lambda _, swapped=swapped: swapped),  # type: ignore[misc]
                [region],
            )
