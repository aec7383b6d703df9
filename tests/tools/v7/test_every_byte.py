"""Damage of every single byte, cuts at every length, and blocks of zeros or noise: no intact job is
lost, none that was deleted comes back, and nothing fails.

The oracle knows which bytes speak of which job; it does not know how the reader finds its way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_tools.v7.conversion import stored_jobs
from binlog_tools.v7.survivors import Survivors
from tests.sampling import SHARE, one_in, share
from tests.tools.v7 import theirs
from tests.tools.v7.theirs import BURIED, DELAYED, NS, READY, RESERVED, T0, read, wholes


@dataclass
class Made:
    """Files, and where in them each job is spoken of."""

    files: dict[str, bytes] = field(default_factory=dict)
    places: list[tuple[str, int, int, int]] = field(default_factory=list)

    def begin(self, name: str, version: bytes) -> None:
        """A new file."""
        self.name = name
        self.files[name] = version

    def add(self, job_id: int, record: bytes) -> None:
        start = len(self.files[self.name])
        self.files[self.name] += record
        self.places.append((self.name, start, start + len(record), job_id))

    def zeros(self, count: int) -> None:
        """The end of a file."""
        self.files[self.name] += bytes(count)

    def concerned(self, name: str, start: int, end: int) -> set[int]:
        return {
            job_id for where, at, upto, job_id in self.places
            if where == name and at < end and start < upto
        }  # fmt: skip


def made(version: int = 7) -> Made:
    """All kinds of records in two files: jobs that are deleted, copied, buried, delayed; bodies
    with lines, zeros and nothing; a job of 128 bytes beside another.
    """
    full = theirs.full if version == 7 else theirs.full_5
    short = theirs.short if version == 7 else theirs.short_5
    header = theirs.VERSION_7 if version == 7 else theirs.VERSION_5
    binary = bytes(range(20)) + b"\r\n\r\n"
    of_128 = b"b" * (128 - len(full(1, b"")))
    log = Made()
    log.begin("binlog.3", header)
    log.add(1, full(1, b"a line\r\nand one more\r\n"))
    log.add(2, full(2, b"", b"alpha", state=DELAYED, delay=5 * NS, deadline=T0 + 5 * NS))
    log.add(3, full(3, binary, b"alpha", pri=0))
    log.add(4, full(4))
    log.add(3, short(3, BURIED, binary, buries=1))
    log.add(5, full(5, of_128))
    log.add(6, full(6, of_128))
    log.add(4, short(4, 0))
    log.add(5, short(5, DELAYED, of_128, delay=NS, deadline=T0 + NS, releases=1))
    log.zeros(300)
    log.begin("binlog.4", header)
    log.add(1, full(1, b"a line\r\nand one more\r\n", state=RESERVED, reserves=1))
    log.add(7, full(7, b"last"))
    log.add(6, short(6, BURIED, of_128, buries=1))
    log.add(7, short(7, READY, b"last", kicks=1))
    log.zeros(700)
    return log


def without(log: Made, name: str, cut: int) -> dict[str, bytes]:
    """The files with the whole records of one up to a length."""
    ends = [upto for where, _, upto, _ in log.places if where == name and upto <= cut]
    return {**log.files, name: log.files[name][: max(ends, default=4)]}


def all_of(found: Survivors) -> None:
    jobs = list(stored_jobs(found, T0 + 10**6 * NS))
    assert len({job.job_id for job in jobs}) == len(jobs)
    assert all(1 <= job.job_id < found.next_job_id for job in jobs)
    assert all(str(finding) for finding in found.findings.listed)


def check_intact(log: Made, damaged: dict[str, bytes], hurt: set[int]) -> Survivors:
    """All jobs but those that are hurt are as they were, there or gone."""
    found = read(damaged)
    before, after = wholes(read(log.files)), wholes(found)
    ids = {job_id for _, _, _, job_id in log.places} - hurt
    assert {i: after.get(i) for i in ids} == {i: before.get(i) for i in ids}
    all_of(found)
    return found


LOGS = [made(7), made(5)]
EACH_LOG = pytest.mark.parametrize("log", LOGS, ids=["version 7", "version 5"])
EACH_BIT = [1 << bit for bit in range(8)]


def places_of(log: Made) -> Iterator[tuple[str, int]]:
    """Every byte, and the first of the zeros at the end."""
    for name, content in log.files.items():
        for at in one_in(SHARE, range(len(content.rstrip(b"\0")) + 30)):
            yield name, at


def test_the_oracle_agrees_with_itself() -> None:
    for log in LOGS:
        found = read(log.files)
        assert found.findings.verdict == "sound"
        assert sorted(found.jobs) == [1, 2, 3, 5, 6, 7]
    of_7, of_5 = wholes(read(LOGS[0].files)), wholes(read(LOGS[1].files))
    assert [of_7[i] for i in (1, 2, 3, 7)] == [of_5[i] for i in (1, 2, 3, 7)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("log", "pattern"),
    [*((LOGS[0], bit) for bit in [*EACH_BIT, 0xFF]), (LOGS[1], 1), (LOGS[1], 0x80)],
    ids=[*(f"version 7, {bit:#04x}" for bit in [*EACH_BIT, 0xFF]), "version 5, 1", "version 5, 80"],
)
def test_a_changed_byte_costs_no_job_that_it_does_not_speak_of(log: Made, pattern: int) -> None:
    for name, at in places_of(log):
        content = bytearray(log.files[name])
        content[at] ^= pattern
        check_intact(log, {**log.files, name: bytes(content)}, log.concerned(name, at, at + 1))


@EACH_LOG
@pytest.mark.parametrize("zeros", [0, 200])
def test_a_cut_at_any_place_leaves_all_that_was_whole(log: Made, zeros: int) -> None:
    for name, at in places_of(log):
        found = read({**log.files, name: log.files[name][:at] + bytes(zeros)})
        expected = read(without(log, name, at))
        # A short record with zeros instead of its end is a deletion, byte for byte.
        unclear = log.concerned(name, at - 1, at + 1) if zeros else set()
        for job_id in {*found.jobs, *expected.jobs} - unclear:
            assert wholes(found).get(job_id) == wholes(expected).get(job_id)
        assert not found.doubtful_jobs
        if name == "binlog.4" and not zeros:
            assert found.findings.verdict in ("sound", "torn")


@pytest.mark.one_in(5)
@EACH_LOG
@pytest.mark.parametrize("size", [16, 64, 300])
@pytest.mark.parametrize("noise", [False, True], ids=["zeros", "noise"])
def test_an_overwritten_block_costs_no_other_job(log: Made, size: int, noise: bool) -> None:
    random = Random(size)
    for name, content in log.files.items():
        for at in one_in(SHARE, range(4, len(content) - size, 5)):
            block = random.randbytes(size) if noise else bytes(size)
            damaged = content[:at] + block + content[at + size :]
            check = {**log.files, name: damaged}
            check_intact(log, check, log.concerned(name, at, at + size))


@settings(max_examples=share(150), deadline=None)
@given(st.data())
def test_no_bytes_make_it_fail(data: st.DataObject) -> None:
    log = LOGS[0]
    pieces = [log.files["binlog.3"][at:upto] for name, at, upto, _ in log.places[:9]]
    piece = st.sampled_from(pieces) | st.binary(max_size=120) | st.just(bytes(90))
    contents = data.draw(
        st.lists(st.lists(piece, max_size=12).map(b"".join), min_size=1, max_size=4)
    )
    version = st.sampled_from([theirs.VERSION_7, theirs.VERSION_5, b"", b"\0\0\0\7", b"\x08\0\0\0"])
    files = {f"binlog.{n}": data.draw(version) + raw for n, raw in enumerate(contents)}
    found = read(files)
    jobs = list(stored_jobs(found, T0))
    assert len({job.job_id for job in jobs}) == len(jobs)
