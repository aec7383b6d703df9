"""One damaged region anywhere in small logs: each byte, each place to cut, each block of 512 bytes.

Every job whose bytes are outside comes back just as it was, no job comes back whose end can still
be read, and the clean log is one that a server starts on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from binlog_tools.logs.stored import StoredJob
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, flipped
from tests.sampling import SHARE, one_in
from tests.tools.salvage.logs import POLICIES, Bytes, Known, known, log_of, names_of, trimmed_log
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
