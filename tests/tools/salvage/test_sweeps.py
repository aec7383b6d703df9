"""Damage to small logs: one region, each byte, each place to cut, each block of 512 bytes; and
several at once.

Every job whose bytes are outside comes back just as it was, no job comes back whose end can still
be read, and the clean log is one that a server starts on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_tools.logs.stored import StoredJob
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, edited, flipped
from tests.sampling import SHARE, one_in, share
from tests.tools.salvage.damaging import Full, batches_of, full_records, inverted, overwritten
from tests.tools.salvage.logs import POLICIES, Bytes, Known, known, log_of, names_of, trimmed_log
from tests.tools.salvage.salvaged import Salvaged, salvaged, see_that_it_loads, servers_verdict
from tests.tools.tagged import History

BLOCK_BYTES, PIECE_BYTES = 512, 64
"""A sector, and a part of it."""

LOGS: dict[str, Callable[[], Files]] = {
    **{policy: lambda policy=policy: log_of(policy) for policy in POLICIES},  # type: ignore[misc]
    "trimmed": trimmed_log,
    "tagged": lambda: History(0).tell(40).files,
}
EACH_LOG = pytest.mark.parametrize("name", LOGS)

Change = tuple[Bytes, Files]


@cache
def known_of(name: str) -> Known:
    return known(LOGS[name]())


class Sweep:
    """Judges what is salvaged after damage to one log; a clean log is made and loaded once for
    each outcome.
    """

    def __init__(self, name: str) -> None:
        self.files = LOGS[name]()
        self.known = known_of(name)
        self.full = full_records(self.files)
        self.outcomes: set[tuple[StoredJob, ...]] = set()
        self.verdicts: set[str] = set()

    def over(self, changes: Iterator[Change]) -> None:
        for region, files in changes:
            self.judge(files, [region], are_pieces=False)

    def judge(self, files: Files, regions: list[Bytes], *, are_pieces: bool = True) -> None:
        """Salvage, and see that nothing is missing that is outside of the damage, and nothing is
        there that was deleted.

        :param are_pieces: whether bodies are looked for whose records are gone: the damage is not
            a record that is still sound and says something else.
        """
        found = salvaged(files)
        for job_id, owned in self.known.living.items():
            if owned.is_outside(regions):
                assert found.jobs.get(job_id) == owned.job, (regions, job_id)
        for job_id, parts in self.known.deleted.items():
            if not any(part.touches(region) for part in parts for region in regions):
                assert job_id not in found.jobs, (regions, job_id)
        if are_pieces:
            self._see_that_bodies_are_there(found, regions)
        see_that_places_are_in_order(found, files)
        outcome = tuple(found.jobs.values())
        if outcome not in self.outcomes:
            self.outcomes.add(outcome)
            see_that_it_loads(found)
        self.verdicts.add(found.verdict)

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


def places(raw: bytes) -> list[int]:
    """Every second byte of a segment; of the description in its header, where all bytes are alike,
    one in sixteen.
    """
    step = [at for at in range(0, len(raw), 2) if not 160 <= at < 4088 or not at % 16]
    return one_in(97, step)


def flips(files: Files, stride: int = 1) -> Iterator[Change]:
    """One bit flipped in each byte, another bit in each."""
    for name in names_of(files):
        for at in places(files[name])[::stride]:
            damaged = flipped(files[name], at, (at * 5 + 3) % 8)
            yield Bytes(name, at, at + 1), {**files, name: damaged}


def cuts(files: Files) -> Iterator[Change]:
    for name in names_of(files):
        size = len(files[name])
        for at in places(files[name]):
            yield Bytes(name, at, size), {**files, name: files[name][:at]}


def blocks(files: Files, filling: Callable[[bytes], bytes], step: int = 128) -> Iterator[Change]:
    """Each block of 512 bytes, at each multiple of ``step``, replaced."""
    for name in names_of(files):
        raw = files[name]
        for at in one_in(2 * SHARE, range(0, len(raw), step)):
            end = min(at + BLOCK_BYTES, len(raw))
            damaged = raw[:at] + filling(raw[at:end]) + raw[end:]
            yield Bytes(name, at, end), {**files, name: damaged}


def zeros(block: bytes) -> bytes:
    """As a disk gives for a sector that it has lost."""
    return bytes(len(block))


def ones(block: bytes) -> bytes:
    """As erased flash."""
    return b"\xff" * len(block)


def noise(block: bytes) -> bytes:
    return random.Random(len(block)).randbytes(len(block))


@pytest.mark.one_in(5)
@EACH_LOG
def test_one_wrong_bit_in_any_byte(name: str) -> None:
    sweep = Sweep(name)
    sweep.over(flips(sweep.files))
    assert "damaged" in sweep.verdicts


@pytest.mark.one_in(5)
@EACH_LOG
def test_a_segment_cut_at_any_byte(name: str) -> None:
    sweep = Sweep(name)
    sweep.over(cuts(sweep.files))
    assert sweep.verdicts >= {"damaged", "torn"}


@pytest.mark.one_in(5)
@EACH_LOG
@pytest.mark.parametrize("filling", [zeros, ones, noise])
def test_any_block_of_512_bytes_overwritten(name: str, filling: Callable[[bytes], bytes]) -> None:
    sweep = Sweep(name)
    sweep.over(blocks(sweep.files, filling))
    assert "damaged" in sweep.verdicts


@pytest.mark.one_in(5)
@EACH_LOG
def test_any_block_overwritten_with_another_one_of_the_same_log(name: str) -> None:
    """As by a write that went to the wrong place: valid bytes where they do not belong."""
    sweep = Sweep(name)
    for source in names_of(sweep.files):
        raw = sweep.files[source]
        for start in one_in(3, range(4096, len(raw) - BLOCK_BYTES, 1536)):
            stray = raw[start : start + BLOCK_BYTES]
            sweep.over(
                blocks(sweep.files, lambda block, stray=stray: stray[: len(block)], BLOCK_BYTES)  # type: ignore[misc]
            )


@EACH_LOG
def test_a_log_that_is_sound_comes_back_as_it_was(name: str) -> None:
    found = salvaged(LOGS[name]())
    assert (found.verdict, found.judgements) == ("sound", {})
    assert found.jobs == {job_id: owned.job for job_id, owned in known_of(name).living.items()}
    see_that_it_loads(found)


@pytest.mark.exhaustive
@EACH_LOG
def test_the_verdict_is_that_of_a_server(name: str) -> None:
    files = LOGS[name]()
    changes = [*flips(files, 7), *blocks(files, zeros, 64)]
    verdicts = {(salvaged(left).verdict, servers_verdict(left)) for _, left in changes}
    assert verdicts <= {(same, same) for same in ("sound", "torn", "damaged")}


def test_the_logs_have_everything_in_them() -> None:
    for policy in POLICIES:
        directory = MemoryDirectory(log_of(policy))
        assert len(directory.names()) >= 3
        states = {owned.job.state.name for owned in known_of(policy).living.values()}
        assert states == {"READY", "DELAYED", "BURIED"}
        assert len(known_of(policy).deleted) > 5


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
    sweep = Sweep(name)
    for region in headers_of(sweep.files):
        assert callable(filling)
        files = overwritten(sweep.files, region, filling)
        sweep.judge(files, [region])
        header = Bytes(region.name, 0, 512)
        sweep.judge(overwritten(files, header, inverted), [region, header])


@EACH_LOG
def test_the_headers_of_any_two_neighbouring_frames_are_gone(name: str) -> None:
    sweep = Sweep(name)
    regions = list(headers_of(sweep.files))
    for first, second in pairwise(regions):
        files = overwritten(overwritten(sweep.files, first, zeros), second, zeros)
        sweep.judge(files, [first, second])


@pytest.mark.one_in(5)
@EACH_LOG
@pytest.mark.parametrize("byte", [1643, 80])
def test_the_header_and_any_64_bytes_of_a_segment_are_damaged(name: str, byte: int) -> None:
    sweep = Sweep(name)
    for segment in names_of(sweep.files):
        header = Bytes(segment, byte, byte + 1)
        without = overwritten(sweep.files, header, inverted)
        for at in one_in(5, range(4096, len(sweep.files[segment]), PIECE_BYTES)):
            region = Bytes(segment, at, min(at + PIECE_BYTES, len(sweep.files[segment])))
            sweep.judge(overwritten(without, region, inverted), [header, region])


@pytest.mark.one_in(5)
@EACH_LOG
def test_any_block_is_doubled_over_its_neighbour(name: str) -> None:
    sweep = Sweep(name)
    for segment in names_of(sweep.files):
        raw = sweep.files[segment]
        for at in range(0, len(raw) - 2 * BLOCK_BYTES + 1, BLOCK_BYTES // 2):
            block = raw[at : at + BLOCK_BYTES]
            region = Bytes(segment, at + BLOCK_BYTES, at + 2 * BLOCK_BYTES)
            sweep.judge(
                overwritten(sweep.files, region, lambda _, block=block: block),  # type: ignore[misc]
                [region],
            )


@pytest.mark.one_in(5)
@EACH_LOG
def test_any_block_is_doubled_so_that_all_behind_it_is_moved(name: str) -> None:
    """What the block is put in the middle of is damaged; all else is only in another place."""
    sweep = Sweep(name)
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
    sweep = Sweep(name)
    for segment in names_of(sweep.files):
        raw = sweep.files[segment]
        for at in range(0, len(raw) - 2 * BLOCK_BYTES + 1, BLOCK_BYTES):
            region = Bytes(segment, at, at + 2 * BLOCK_BYTES)
            swapped = raw[at + BLOCK_BYTES : region.end] + raw[at : at + BLOCK_BYTES]
            sweep.judge(
                overwritten(sweep.files, region, lambda _, swapped=swapped: swapped),  # type: ignore[misc]
                [region],
            )


class Damage(NamedTuple):
    """What happens to a part of a file.

    :ivar filling: what stands there afterwards, repeated; None when the file ends there.
    """

    region: Bytes
    filling: bytes | None

    def done_to(self, files: Files) -> Files:
        """The files after it."""
        name, start, end = self.region
        raw = files[name]
        if self.filling is None:
            return {**files, name: raw[:start]}
        end = min(end, len(raw))
        width = max(0, end - start)
        filling = (self.filling * (width // len(self.filling) + 1))[:width]
        return {**files, name: raw[:start] + filling + raw[start + width :]}


@st.composite
def damages(draw: st.DrawFn, files: Files) -> Damage:
    name = draw(st.sampled_from(names_of(files)))
    size = len(files[name])
    start = draw(st.integers(0, size - 1))
    if draw(st.integers(0, 5)) == 0:
        return Damage(Bytes(name, start, size), None)
    end = min(size, start + draw(st.sampled_from([1, 4, 64, 80, 512, 5000])))
    stray = draw(st.integers(0, size - 64))
    filling = draw(st.sampled_from([b"\0", b"\xff", files[name][stray : stray + 512]]))
    return Damage(Bytes(name, start, end), filling)


@settings(max_examples=share(150), deadline=None)
@given(st.data(), st.sampled_from(["always", "never"]))
def test_what_is_outside_of_all_damages_comes_back(data: st.DataObject, policy: str) -> None:
    sweep = Sweep(policy)
    done = data.draw(st.lists(damages(sweep.files), min_size=2, max_size=6))
    files = sweep.files
    for damage in done:
        files = damage.done_to(files)
    # What was cut off is damaged wherever it is touched again.
    sweep.judge(files, [damage.region for damage in done])


@settings(max_examples=share(100), deadline=None)
@given(st.data())
def test_files_of_anything_are_no_reason_to_fail(data: st.DataObject) -> None:
    """Whole segments exchanged, cut together, or full of noise."""
    files = log_of("always")
    names = names_of(files)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        raw = files[data.draw(st.sampled_from(names))]
        cut = data.draw(st.integers(0, len(raw)))
        noise = data.draw(st.binary(max_size=200))
        files = {**files, name: raw[:cut] + noise + files[name][cut:]}
    damaged = {name: b"?" * 4096 + raw[4096:] for name, raw in files.items()}
    see_that_it_loads(salvaged(damaged))
