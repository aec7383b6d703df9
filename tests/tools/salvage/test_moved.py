"""Bytes that were put into a segment or taken out of it, any number of them: what stands behind
them is moved, and is as sound as before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.reading.survival import Why
from binlog_tools.inspect.checking import check
from binlog_tools.logs.opening import open_source
from tests.binlog.forging import with_header_field
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, delete, edited, put
from tests.tools.folders import written
from tests.tools.salvage.damaging import FILL, batches_of, killed
from tests.tools.salvage.logs import ONE, TWO, log_of, names_of, trimmed_log
from tests.tools.salvage.salvaged import EVERYTHING, salvaged, see_that_it_loads

PREV_END = 40
"""Where a segment's header says where the one before it ends."""


def two_segments() -> Files:
    return killed(
        [put(1, b"one" * 9)], [put(2, b"two" * 50), put(3, b"three" * 60)],
        [put(4, b"four" * 50), put(5, b"five" * 60), put(6, b"six" * 70)], [delete(1)],
        [put(9, FILL)], [put(7, b"seven" * 9)],
    )  # fmt: skip


def without(files: Files, name: str, at: int, count: int) -> Files:
    return edited(files, name, lambda raw: raw[:at] + raw[at + count :])


def with_more(files: Files, name: str, at: int, count: int) -> Files:
    return edited(files, name, lambda raw: raw[:at] + b"\xa5" * count + raw[at:])


@pytest.mark.parametrize("count", [1, 3, 7, 8, 65])
@pytest.mark.parametrize("change", [without, with_more])
@pytest.mark.parametrize("name", [ONE, TWO])
def test_what_stands_behind_a_change_comes_back(
    name: str, change: Callable[[Files, str, int, int], Files], count: int
) -> None:
    """In the newest segment too: what is behind is known to be durable, so no tail is torn
    there.
    """
    batches = [[put(n, b"body %d " % n * 9)] for n in range(1, 9)]
    full = [put(20, FILL)]
    files = killed(*batches, full, [put(21)]) if name == ONE else killed(full, *batches)
    frame = batches_of(files, name)[4]
    sound = salvaged(files)
    found = salvaged(change(files, name, frame["offset"] + 70, count))
    see_that_it_loads(found)
    assert found.verdict == "damaged"
    hit = {record["job_id"] for record in frame["records"]}
    assert len(hit) == 1
    for job_id in sound.jobs.keys() - hit:
        assert found.jobs[job_id] == sound.jobs[job_id]
    before = set(range(1, min(hit)))
    assert before
    # The seal of an older segment says that no job was deleted in the hole.
    doubtful = before | {20} if name == TWO else set()
    assert {n for n, each in found.judgements.items() if each.why is Why.DELETED} == doubtful


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("change", [without, with_more])
def test_bodies_behind_a_change_within_their_frame_are_found(
    change: Callable[[Files, str, int, int], Files], count: int
) -> None:
    files = two_segments()
    at = files[ONE].index(b"fourfour") + 20
    found = salvaged(change(files, ONE, at, count))
    sound = salvaged(files)
    assert {n: found.jobs[n] for n in (2, 3, 5, 6, 9, 7)} == {
        n: sound.jobs[n] for n in (2, 3, 5, 6, 9, 7)
    }
    assert found.judgements.keys() == {4}


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("place", ["array", "heap"])
def test_bodies_of_a_frame_without_a_header_are_found(place: str, count: int) -> None:
    files = two_segments()
    start = batches_of(files, ONE)[3]["offset"]
    at = start + 64 + 80 if place == "array" else files[ONE].index(b"fivefive")
    files = edited(files, ONE, lambda raw: raw[:start] + bytes(64) + raw[start + 64 :])
    found = salvaged(with_more(files, ONE, at, count))
    sound = salvaged(two_segments())
    for job_id in (4, 5, 6):
        assert found.jobs[job_id].body == sound.jobs[job_id].body


@pytest.mark.parametrize("name", [ONE, TWO])
@pytest.mark.parametrize("count", [1, 8, 100])
def test_bytes_that_are_taken_out_of_a_header_cost_no_job(name: str, count: int) -> None:
    found = salvaged(without(two_segments(), name, 1000, count))
    assert (found.verdict, found.judgements) == ("damaged", {})
    assert found.jobs == salvaged(two_segments()).jobs


def with_a_mark_twice() -> Files:
    """A sync mark of a segment that has a successor stands twice, so that the rest is moved."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.mark()
    scribe.write(put(2))
    scribe.end_segment()
    scribe.write(put(3))
    scribe.mark()
    raw = scribe.files()[ONE]
    at = raw.index(b"\xb5TQF\r\n\x1a\x01", raw.index(b"hello"))
    assert int.from_bytes(raw[at + 20 : at + 24], "little") == 0, "it has no record"
    return edited(scribe.files(), ONE, lambda raw: raw[:at] + raw[at : at + 64] + raw[at:])


def with_prev_end(by: int) -> Files:
    """The second header says that the first segment ends elsewhere."""
    files = two_segments()
    end = int.from_bytes(files[TWO][PREV_END : PREV_END + 8], "little")
    return edited(files, TWO, lambda raw: with_header_field(raw, PREV_END, "<Q", end + by))


@pytest.mark.parametrize("by", [-4000, -264, -64, -8, -1, 1, 8, 40, 41, 4000])
def test_an_end_that_is_said_wrong_is_damage(by: int, tmp_path: Path) -> None:
    files = with_prev_end(by)
    found = salvaged(files)
    assert checked(files, tmp_path) == 3
    assert found.verdict == "damaged"
    assert found.report.salvage.places
    assert found.jobs == salvaged(two_segments()).jobs


def test_a_sync_mark_that_stands_twice_is_damage(tmp_path: Path) -> None:
    files = with_a_mark_twice()
    found = salvaged(files)
    assert checked(files, tmp_path) == 3
    assert (found.verdict, set(found.jobs), found.judgements) == ("damaged", {1, 2, 3}, {})
    assert [place.name for place in found.report.salvage.places] == [ONE]


def checked(files: Files, path: Path) -> int:
    return check(open_source(str(written(path / "log", files)))).exit_code


CODES = {"sound": 0, "torn": 1, "damaged": 3}


def damaged(files: Files, rng: random.Random) -> Files:
    name = rng.choice(names_of(files))
    raw = files[name]
    marks = [at for at in range(4096, len(raw), 8) if raw[at : at + 4] == b"\xb5TQF"]
    at = rng.choice([rng.randrange(len(raw)), rng.choice(marks or [0])])
    width = rng.choice([1, 3, 8, 40, 64, 512])
    kind = rng.choice(["invert", "zero", "take", "add", "double", "cut", "end", "move"])
    part, rest = raw[at : at + width], raw[at + width :]
    if kind == "end" and len(raw) >= 4096:
        by = rng.choice([-64, -8, -1, 1, 8, 40, 64])
        end = max(0, int.from_bytes(raw[PREV_END : PREV_END + 8], "little") + by)
        return {**files, name: with_header_field(raw, PREV_END, "<Q", end)}
    changed = {
        "invert": bytes(each ^ 0x55 for each in part) + rest,
        "zero": bytes(len(part)) + rest,
        "take": rest,
        "add": rng.randbytes(width) + part + rest,
        "double": part + part + rest,
        "cut": b"",
        "move": rest[:width] + part + rest[width:],
    }
    return {**files, name: raw[:at] + changed.get(kind, part + rest)}


@cache
def logs() -> list[Files]:
    return [log_of("always"), log_of("never"), trimmed_log(), two_segments(), with_prev_end(0)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", range(8))
def test_what_check_calls_damaged_is_never_called_sound(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    seen = set()
    for number in range(40):
        files = rng.choice(logs())
        for _ in range(rng.choice([1, 1, 2])):
            files = damaged(files, rng)
        said = CODES[salvaged(files).verdict]
        # Salvage reads behind a torn place, and finds more there than a server looks for.
        assert said >= checked(files, tmp_path / str(number)), number
        seen.add(said)
    assert {0, 3} <= seen or {1, 3} <= seen


@pytest.mark.parametrize("right", [TWO, "00000000000000009999.tql"])
def test_a_copy_is_known_by_its_frames_when_its_header_is_damaged(right: str) -> None:
    files = two_segments()
    spoilt = bytes(4096) + files[TWO][4096:]
    copy = "00000000000000009999.tql"
    both = {**files, copy: spoilt}
    found = salvaged(both, EVERYTHING._replace(prefer=frozenset({right})))
    assert found.jobs == salvaged(files).jobs
    assert found.report.salvage.missing == []
    assert found.report.salvage.plan.left_out == [name for name in (TWO, copy) if name != right]
