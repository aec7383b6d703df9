"""Making a log of other logs: a server on it has what a server on the others would have."""

import time
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.logs.opening import Loaded, load, open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import Selection, StoredJob
from binlog_tools.rewrite.rewriting import ANY_AGE, Ages, Choice, Renumbered, merge, rewrite
from tests.binlog.scribe import DEFAULT_TUBE, NS, T0, Scribe, put
from tests.tools.conversation import TUBES, Conversation
from tests.tools.folders import stats, written
from tests.tools.served import order_of_burial, served, started_on

LATER = time.time_ns() + 1000 * NS
"""A time at which all delays of the conversations are over."""


def loaded_log(path: Path) -> Loaded:
    return load(open_source(str(path)))


@pytest.mark.parametrize("with_compaction", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_compacting_changes_nothing(seed: int, with_compaction: bool, tmp_path: Path) -> None:
    spoken = Conversation(seed, with_compaction).say(60)
    path, new = written(tmp_path / "log", spoken.files), tmp_path / "new"
    before = stats(path)
    outcome = rewrite(loaded_log(path), str(new), "compact", segment_bytes=8192)
    assert stats(path) == before
    jobs = served(path, LATER)
    assert served(new, LATER) == jobs
    assert (outcome.written.jobs, outcome.dropped) == (len(jobs), 0)
    assert any(job[1] is State.BURIED for job in jobs.values())
    for tube in TUBES:
        assert order_of_burial(new, LATER, tube) == order_of_burial(path, LATER, tube)
    assert started_on(new, LATER).queue.state.next_job_id == spoken.next_job_id
    assert outcome.written.bytes < sum(map(len, spoken.files.values()))


def test_pauses_in_force_are_taken_along(tmp_path: Path) -> None:
    now_ns = time.time_ns()
    scribe = Scribe(opening=[DEFAULT_TUBE])
    from beanstalk_twisted.binlog.records.others import Pause

    scribe.write(put(1), Pause(1, 3600, now_ns + 3600 * NS, now_ns))
    path = written(tmp_path / "log", scribe.files())
    rewrite(loaded_log(path), str(tmp_path / "new"), "compact")
    tube = started_on(tmp_path / "new", now_ns).queue.state.tubes.find(b"default")
    assert tube is not None
    assert tube.pause_until_ns == now_ns + 3600 * NS


def job(job_id: int, **changes: object) -> StoredJob:
    plain = StoredJob(job_id, b"default", State.READY, 1024, 0, 60, T0, 0, b"hello")
    return plain._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ages", "age_s", "is_chosen"),
    [
        (ANY_AGE, 5, True), (Ages(older_than=10 * NS), 10, False),
        (Ages(older_than=10 * NS), 11, True), (Ages(younger_than=10 * NS), 10, False),
        (Ages(younger_than=10 * NS), 9, True), (Ages(5 * NS, 9 * NS), 7, True),
    ],
)  # fmt: skip
def test_jobs_are_chosen_by_age(ages: Ages, age_s: int, is_chosen: bool) -> None:
    assert ages.has(job(1), T0 + age_s * NS) is is_chosen


def test_all_conditions_count_together() -> None:
    chosen = Selection(jobs=Numbers([Span(1, 5)]), tubes=frozenset({b"default"}))
    drops = Choice(chosen, ANY_AGE, keeps_chosen=False)
    keeps = drops._replace(keeps_chosen=True)
    cases = ((job(1), True), (job(6), False), (job(1, tube=b"mail"), False))
    for each, is_chosen in cases:
        assert drops.keeps(each, T0) is not is_chosen
        assert keeps.keeps(each, T0) is is_chosen


def two_logs(tmp_path: Path) -> tuple[Path, Path]:
    first = written(tmp_path / "a", Conversation(5).say(40).files)
    second = written(tmp_path / "b", Conversation(6).say(40).files)
    return first, second


def test_a_merged_log_has_the_jobs_of_all(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    moved: list[Renumbered] = []
    merged = merge(
        [loaded_log(first), loaded_log(second)], str(tmp_path / "new"), 8192, moved.append
    )
    ours, a, b = served(tmp_path / "new", LATER), served(first, LATER), served(second, LATER)
    new_ids = {each.job_id: each.new_id for each in moved}
    assert new_ids.keys() == a.keys() & b.keys()
    assert ours == {**a, **{new_ids.get(n, n): each for n, each in b.items()}}
    assert {each.path for each in moved} == {str(second)}
    highest = max(started_on(p, LATER).queue.state.next_job_id for p in (first, second))
    assert min(new_ids.values()) == highest
    assert merged.written.next_job_id == highest + len(moved)


def test_a_merged_log_begins_above_the_numbers_of_all(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    last = max(open_source(str(p)).survey().segments[-1].ending.next_lsn for p in (first, second))
    new = merge([loaded_log(first), loaded_log(second)], str(tmp_path / "new"))
    assert new.written.first_lsn == last
