"""Damage to small logs: one region, each byte, each place to cut, each block of 512 bytes; and
several at once.

Every job whose bytes are outside comes back just as it was, no job comes back whose end can still
be read, and the clean log is one that a server starts on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_tools.logs.stored import StoredJob
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, flipped
from tests.sampling import SHARE, one_in, share
from tests.tools.salvage.logs import (
    POLICIES,
    Bytes,
    Known,
    Owned,
    known,
    log_of,
    names_of,
    trimmed_log,
)
from tests.tools.salvage.salvaged import Salvaged, salvaged, see_that_it_loads, servers_verdict
from tests.tools.tagged import History

BLOCK_BYTES = 512
"""A sector."""

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
    """Judges the results of damage to one log; a clean log is made and loaded once for each
    outcome.
    """

    def __init__(self, name: str) -> None:
        self.files = LOGS[name]()
        self.known = known_of(name)
        self.outcomes: set[tuple[StoredJob, ...]] = set()
        self.verdicts: set[str] = set()
        self.missed: list[tuple[Bytes, int]] = []
        self.resurrected: list[tuple[Bytes, int]] = []

    def over(self, changes: Iterator[Change]) -> None:
        """Salvage after each change.

        :raise AssertionError: a job is missing or changed that is outside of the damage, or one is
            there that was deleted.
        """
        for region, files in changes:
            found = salvaged(files)
            self._judge(region, found)
            self._see_that_it_loads(found)
            self.verdicts.add(found.verdict)
        assert self.missed == []
        assert self.resurrected == []

    def _judge(self, region: Bytes, found: Salvaged) -> None:
        for job_id, owned in self.known.living.items():
            if owned.is_outside(region) and found.jobs.get(job_id) != owned.job:
                self.missed.append((region, job_id))
        for job_id, parts in self.known.deleted.items():
            if job_id in found.jobs and not any(part.touches(region) for part in parts):
                self.resurrected.append((region, job_id))

    def _see_that_it_loads(self, found: Salvaged) -> None:
        outcome = tuple(found.jobs.values())
        if outcome not in self.outcomes:
            self.outcomes.add(outcome)
            see_that_it_loads(found)


def places(raw: bytes) -> list[int]:
    """Each byte of a segment; of the description in its header, where all bytes are alike, one in
    eight.
    """
    return one_in(67, [at for at in range(len(raw)) if not 160 <= at < 4088 or not at % 8])


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


def blocks(files: Files, filling: Callable[[bytes], bytes], step: int = 64) -> Iterator[Change]:
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


@pytest.mark.one_in(3)
@EACH_LOG
def test_one_wrong_bit_in_any_byte(name: str) -> None:
    sweep = Sweep(name)
    sweep.over(flips(sweep.files))
    assert "damaged" in sweep.verdicts


@pytest.mark.one_in(3)
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


@pytest.mark.one_in(3)
@EACH_LOG
def test_any_block_overwritten_with_another_one_of_the_same_log(name: str) -> None:
    """As by a write that went to the wrong place: valid bytes where they do not belong."""
    sweep = Sweep(name)
    for source in names_of(sweep.files):
        raw = sweep.files[source]
        for start in range(4096, len(raw) - BLOCK_BYTES, 1024):
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


def is_outside(owned: Owned, regions: list[Bytes]) -> bool:
    """Whether all that is needed of a job is outside of all regions."""
    if any(part.touches(region) for part in owned.parts for region in regions):
        return False
    return any(
        not any(part.touches(region) for part in name for region in regions) for name in owned.names
    )


@settings(max_examples=share(150), deadline=None)
@given(st.data(), st.sampled_from(["always", "never"]))
def test_what_is_outside_of_all_damages_comes_back(data: st.DataObject, policy: str) -> None:
    sound = files = log_of(policy)
    done = data.draw(st.lists(damages(sound), min_size=2, max_size=6))
    for damage in done:
        files = damage.done_to(files)
    # What was cut off is damaged wherever it is touched again.
    regions = [damage.region for damage in done]
    found = salvaged(files)
    see_that_it_loads(found)
    jobs = known(sound)
    for job_id, owned in jobs.living.items():
        if is_outside(owned, regions):
            assert found.jobs.get(job_id) == owned.job, job_id
    for job_id, parts in jobs.deleted.items():
        if not any(part.touches(region) for part in parts for region in regions):
            assert job_id not in found.jobs


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
