"""Following a log that a server writes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.records.others import Start, TubeDef
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment
from beanstalk_twisted.binlog.writer import spare_name
from binlog_tools.inspect.dumping import Entry, Gap, Records
from binlog_tools.inspect.following import READ_BYTES, Follower
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.stored import Selection
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, flipped, put, quiet
from tests.tools.folders import written

ONE, TWO, THREE = (f"{n:020d}.tql" for n in (1, 2, 3))


class Enough(Exception):
    """Nothing more happens in this test."""


def followed(path: Path, *steps: Callable[[], object], first: int = 0) -> list[Entry | Gap]:
    """All that is seen while these things happen, each when there is nothing new."""
    left = iter(steps)

    def wait() -> None:
        step = next(left, None)
        if step is None:
            raise Enough
        step()

    follower = Follower(open_source(str(path)), Records(Selection()), wait)
    seen: list[Entry | Gap] = []

    with pytest.raises(Enough):
        for each in follower.entries(first):
            seen.append(each)
    return seen


def lsns(seen: list[Entry | Gap]) -> list[int]:
    return [each.lsn for each in seen if isinstance(each, Entry)]


def scribe_in(path: Path, segment_bytes: int = 8192) -> Scribe:
    path.mkdir()
    return Scribe(RealDirectory(str(path)), opening=[DEFAULT_TUBE], segment_bytes=segment_bytes)


def test_what_is_there_and_what_comes_is_shown_once(tmp_path: Path) -> None:
    scribe = scribe_in(tmp_path / "log")
    scribe.write(put(1))
    seen = followed(
        tmp_path / "log",
        lambda: scribe.write(put(2)),
        lambda: None,
        scribe.mark,
        lambda: (scribe.write(put(3)), scribe.write(put(4))),
    )
    assert lsns(seen) == [1, 2, 3, 4, 5]
    assert [each.tube for each in seen if isinstance(each, Entry)][1:] == [b"default"] * 4


def test_it_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    scribe = scribe_in(tmp_path / "log")
    scribe.write(put(1))
    seen = followed(
        tmp_path / "log",
        lambda: scribe.write(put(2, b"x" * 5000)),
        lambda: [scribe.write(put(n, b"y" * 3000)) for n in range(3, 9)],
        lambda: scribe.write(put(9)),
    )
    assert lsns(seen) == list(range(1, scribe.log.durable_lsn + 1))
    assert len({each.segment for each in seen}) > 3


def test_files_that_are_to_become_segments_are_not_shown_before(tmp_path: Path) -> None:
    scribe = scribe_in(tmp_path / "log")
    scribe.write(put(1))

    def prepare() -> None:
        spare = PreallocatedSegment(1, 1 << 14, is_ready=True)
        scribe.writer.prepare(spare)
        scribe.log.budget.add(spare)

    def go_on() -> None:
        scribe.end_segment()
        scribe.write(put(3))

    seen = followed(tmp_path / "log", prepare, lambda: scribe.write(put(2)), go_on)
    assert not (tmp_path / "log" / spare_name(1)).exists(), "it was used"
    assert [each.segment for each in seen] == [ONE] * 4 + [TWO] * 2
    assert lsns(seen) == [1, 2, 3, 4, 5, 6]


def test_segments_that_are_deleted_before_one_has_seen_them_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = scribe_in(path)
    scribe.write(put(1))

    def fall_behind() -> None:
        for n in range(2, 12):
            scribe.write(put(n, b"x" * 3000))
        (path / TWO).unlink()

    seen = followed(path, fall_behind)
    (gap,) = (each for each in seen if isinstance(each, Gap))
    assert gap.segment == THREE
    assert gap.why == "a server has deleted the segments that held them"
    assert gap.next_lsn is not None
    missing = set(range(1, scribe.log.durable_lsn + 1)) - set(lsns(seen))
    assert missing == set(range(gap.first_lsn, gap.next_lsn))


def test_segments_that_were_seen_are_read_also_when_they_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = scribe_in(path)
    for n in range(1, 12):
        scribe.write(put(n, b"x" * 3000))
    follower = Follower(open_source(str(path)), Records(Selection()), lambda: None)
    found = follower.entries()
    first = next(found)
    for name in (ONE, TWO, THREE):
        (path / name).unlink()
    last = scribe.log.durable_lsn
    seen = [first, *(next(found) for _ in range(last - 1))]
    assert lsns(seen) == list(range(1, last + 1))


def test_a_segment_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = scribe_in(path)
    scribe.write(put(1))

    def go_on() -> None:
        for n in range(2, 8):
            scribe.write(put(n, b"x" * 3000))
        (path / ONE).unlink()

    seen = followed(path, go_on)
    assert lsns(seen) == list(range(1, scribe.log.durable_lsn + 1))


def test_records_that_were_rehomed_are_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = scribe_in(path)
    scribe.write(put(1))
    mail = TubeDef(2, b"mail", T0)
    scribe.write(mail, put(2, tube_id=2), sync=False)

    def start_again() -> None:
        directory = RealDirectory(str(path))
        found = replay.read(directory, quiet)
        again = Scribe(directory, position=found.position(b""), opening=[DEFAULT_TUBE, mail])
        again.write(Start(T0, 3, 3, 0))
        found.release(directory)
        again.write(put(3, tube_id=2))

    seen = followed(path, start_again)
    assert lsns(seen) == sorted(set(lsns(seen)))
    jobs = [(e.raw[5], e.tube) for e in seen if isinstance(e, Entry) and e.raw[0] == 1]
    assert jobs == [(1, b"default"), (2, b"mail"), (3, b"mail")]


def test_a_frame_that_is_written_in_two_parts_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    scribe = scribe_in(path)
    scribe.write(put(1))
    half = scribe.files()[ONE]
    scribe.write(put(2, b"x" * 500))
    whole = scribe.files()[ONE]
    end = len(whole.rstrip(b"\0"))
    steps = [
        lambda at=at: (path / ONE).write_bytes(whole[:at] + bytes(8192 - at))
        for at in (end - 600, end - 500, end - 300, end - 1, end)
    ]
    (path / ONE).write_bytes(half)
    assert lsns(followed(path, *steps)) == [1, 2, 3]


@pytest.mark.parametrize("size", [READ_BYTES - 200, READ_BYTES, 3 * READ_BYTES])
def test_large_bodies_are_followed(size: int, tmp_path: Path) -> None:
    scribe = scribe_in(tmp_path / "log", 64 << 20)
    scribe.write(put(1))
    seen = followed(
        tmp_path / "log", lambda: (scribe.write(put(2, b"x" * size)), scribe.write(put(3, b"end")))
    )
    assert [len(e.data) for e in seen if isinstance(e, Entry)][1:] == [5, size, 3]


def test_damage_in_a_finished_segment_is_told_and_passed(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 8):
        scribe.write(put(n, b"x" * 1500))
    files = scribe.files()
    files[ONE] = flipped(files[ONE], 6000)
    path = written(tmp_path / "log", files)
    seen = followed(path)
    (gap,) = (each for each in seen if isinstance(each, Gap))
    assert gap.next_lsn is not None
    everything = sorted([*lsns(seen), *range(gap.first_lsn, gap.next_lsn)])
    assert everything == list(range(1, scribe.log.durable_lsn + 1))


def test_one_may_begin_in_a_later_segment(tmp_path: Path) -> None:
    scribe = scribe_in(tmp_path / "log")
    for n in range(1, 8):
        scribe.write(put(n, b"x" * 3000))
    seen = followed(tmp_path / "log", first=2)
    assert {each.segment for each in seen} == set(scribe.files()) - {ONE}


def test_where_there_is_no_log_there_is_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(NoLog):
        list(Follower(open_source(str(tmp_path)), Records(Selection()), print).entries())
