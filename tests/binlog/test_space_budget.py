"""What a log can surely still take: each rule at its limit and one past it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    ALIGN_BYTES,
    FRAME_TARGET_BYTES,
    INDEX_ENTRY_BYTES,
    MAX_TUBE_NAME_BYTES,
    MIN_SEGMENT_BYTES,
    RECORD_BYTES,
    TUBE_IN_SEAL_BYTES,
)
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.binlog.space_budget import (
    DELETE_BYTES,
    KEY_ENDS,
    PLENTY_BYTES,
    TAIL_BYTES,
    Demand,
    PreallocatedSegment,
    SpaceBudget,
    framed_bytes,
    new_job_bytes,
)
from tests.binlog.scribe import delete, encoded, put
from tests.sampling import share

SEGMENT_BYTES = 1 << 16
OVERHEAD = 5000
MOST_SPARES = 64


def budget_with(rest: int = 0, *spares: int, is_short: bool = False) -> SpaceBudget:
    """A budget with so much left of its segment, and ready spares of these sizes."""
    budget = SpaceBudget(SEGMENT_BYTES)
    budget.begin(rest, OVERHEAD, head_bytes=0)
    for number, size in enumerate(spares, start=1000):
        budget.add(PreallocatedSegment(number, size, True))
    budget.is_short = is_short
    return budget


def encoded_bytes(records: list[Record]) -> int:
    """What these records really take, with what a seal says of each frame."""
    total = 0
    for frame in Framing(1).add(encoded(*records), 1, 0):
        total += len(frame) + INDEX_ENTRY_BYTES
    return total


sizes = st.one_of(
    st.integers(0, 300), st.integers(0, FRAME_TARGET_BYTES + 1000),
    st.sampled_from([FRAME_TARGET_BYTES // 2 - RECORD_BYTES + n for n in (-1, 0, 1)]),
    st.sampled_from([FRAME_TARGET_BYTES - RECORD_BYTES + n for n in (-1, 0, 1)]),
)  # fmt: skip


@settings(deadline=None, max_examples=share(60))
@given(st.lists(sizes, max_size=12))
def test_frames_never_take_more_than_was_reckoned_with(body_sizes: list[int]) -> None:
    records: list[Record] = [put(n, bytes(size)) for n, size in enumerate(body_sizes, start=1)]
    record_bytes = sum(RECORD_BYTES + size for size in body_sizes)
    assert encoded_bytes(records) <= framed_bytes(record_bytes)


def test_a_deletion_in_a_frame_of_its_own_takes_exactly_what_is_kept_for_it() -> None:
    assert encoded_bytes([delete()]) - INDEX_ENTRY_BYTES == DELETE_BYTES
    assert DELETE_BYTES % ALIGN_BYTES == 0


@pytest.mark.parametrize("body_bytes", [0, 1, 65_535, FRAME_TARGET_BYTES, 3 << 20])
def test_a_new_job_in_a_new_tube_takes_no_more_than_was_reckoned_with(body_bytes: int) -> None:
    tube = TubeDef(1, b"t" * MAX_TUBE_NAME_BYTES)
    in_seal = TUBE_IN_SEAL_BYTES + MAX_TUBE_NAME_BYTES
    taken = encoded_bytes([tube, put(1, bytes(body_bytes))]) + in_seal
    assert taken <= new_job_bytes(body_bytes)


def needed(body_bytes: int, jobs: int) -> int:
    """The rest that takes a job, beside that of `jobs` others."""
    reserve = SEGMENT_BYTES + SEGMENT_BYTES // 4
    return new_job_bytes(body_bytes) + reserve + (jobs + 1) * DELETE_BYTES + TAIL_BYTES


@pytest.mark.parametrize("jobs", [0, 1000])
@pytest.mark.parametrize("body_bytes", [0, 10_000])
def test_a_job_is_taken_only_with_the_deletion_of_all_and_the_reserve(
    jobs: int, body_bytes: int
) -> None:
    exact = needed(body_bytes, jobs)
    assert budget_with(exact).takes_put(body_bytes, jobs)
    assert not budget_with(exact - 1).takes_put(body_bytes, jobs)
    assert not budget_with(exact).takes_put(body_bytes, jobs + 1)
    assert not budget_with(exact).takes_put(body_bytes + 1, jobs)


def test_a_job_has_to_fit_into_one_piece() -> None:
    own = new_job_bytes(30_000)
    fits, does_not = own + OVERHEAD, own + OVERHEAD - 1
    many = [SEGMENT_BYTES // 2] * 20
    assert not budget_with(0, does_not, *many).takes_put(30_000, 0)
    assert budget_with(0, fits, *many).takes_put(30_000, 0)
    assert budget_with(own, does_not, *many).takes_put(30_000, 0), "the newest segment has a piece"
    assert not budget_with(own - 1, does_not, *many).takes_put(30_000, 0)


def test_what_is_left_of_a_segment_does_not_count_for_a_job_that_is_too_large_for_it() -> None:
    large, rest = 30_000, 20_000
    spare = OVERHEAD + needed(large, 0)
    assert budget_with(rest, spare).takes_put(large, 0)
    assert not budget_with(rest, spare - 1).takes_put(large, 0)


def test_the_end_of_each_segment_is_promised_to_nobody() -> None:
    assert budget_with(TAIL_BYTES).free == 0
    assert budget_with(TAIL_BYTES + 1).free == 1
    assert budget_with(0, OVERHEAD + TAIL_BYTES).free == 0
    assert budget_with(0, OVERHEAD + TAIL_BYTES + 1, OVERHEAD + TAIL_BYTES + 1).free == 2
    assert budget_with(-100).free == 0, "a sync mark may overdraw it"


def test_a_tube_that_was_named_makes_the_next_segments_smaller() -> None:
    budget = budget_with(0, SEGMENT_BYTES, SEGMENT_BYTES)
    before = budget.free
    budget.name_tube(200)
    assert budget.free < before - 2 * 2 * 200


def test_any_change_is_taken_as_long_as_the_disk_gives_more() -> None:
    assert budget_with(0).takes_change(1 << 20)
    assert budget_with(0).takes_copies(1 << 20, 1 << 20)


def test_a_copy_waits_for_its_room_even_if_the_disk_has_refused_nothing_yet() -> None:
    # A large one needs a file of its own, which the disk may refuse: nobody is to wait behind that.
    budget = budget_with(SEGMENT_BYTES, SEGMENT_BYTES)
    assert not budget.takes_copy(2 * SEGMENT_BYTES, 1)
    size = new_job_bytes(2 * SEGMENT_BYTES)
    while (spare := budget.wanted(Demand(1, size, size))) is not None:
        budget.add(spare)
    assert budget.takes_copy(2 * SEGMENT_BYTES, 1)


@pytest.mark.parametrize("jobs", [0, 1000])
def test_on_a_full_disk_changes_leave_a_segment_and_all_deletions(jobs: int) -> None:
    exact = SEGMENT_BYTES + (jobs + 1) * DELETE_BYTES + TAIL_BYTES
    assert budget_with(exact, is_short=True).takes_change(jobs)
    assert not budget_with(exact - 1, is_short=True).takes_change(jobs)
    assert not budget_with(exact, is_short=True).takes_change(jobs + 1)


@pytest.mark.parametrize("jobs", [0, 1000])
def test_on_a_full_disk_copies_leave_all_deletions(jobs: int) -> None:
    one = new_job_bytes(500) + 2 * TAIL_BYTES + jobs * DELETE_BYTES
    assert budget_with(one, is_short=True).takes_copy(500, jobs)
    assert not budget_with(one - 1, is_short=True).takes_copy(500, jobs)


def test_a_segment_is_begun_to_be_copied_only_if_all_of_it_has_room() -> None:
    limit = next(n for n in range(200_000) if budget_with(n, is_short=True).takes_copies(50_000, 9))
    assert limit > framed_bytes(50_000) + 9 * DELETE_BYTES
    assert limit < framed_bytes(50_000) + 9 * DELETE_BYTES + 3 * TAIL_BYTES
    assert not budget_with(limit, is_short=True).takes_copies(50_001, 9)
    assert not budget_with(limit, is_short=True).takes_copies(50_000, 10)


def test_what_copies_leave_is_enough_to_free_a_segment_in_which_nothing_lives() -> None:
    budget = budget_with(new_job_bytes(0) + 2 * TAIL_BYTES, is_short=True)
    assert budget.takes_copy(0, 0)
    budget.rest -= new_job_bytes(0)
    assert budget.takes_copies(0, 0)


def test_spares_are_used_in_the_order_they_were_made_if_they_are_large_enough() -> None:
    budget = budget_with(0, 10_000, 30_000, 20_000)
    assert [budget.choose(least, 8192).size for least in (15_000, 15_000, 1, 1)] == [
        30_000, 20_000, 10_000, 8192,
    ]  # fmt: skip


def test_a_file_that_has_to_be_made_is_as_large_as_usual_or_as_it_must_be() -> None:
    budget = budget_with()
    usual, large = budget.choose(9000, 9000), budget.choose(9001, 9000)
    assert (usual.size, large.size) == (9000, 9001)
    assert (usual.is_ready, large.is_ready) == (False, False)
    assert usual.number != large.number


def test_only_a_ready_file_is_worth_being_given_back() -> None:
    budget = budget_with(0, 10_000, 10_000)
    first = budget.choose(1, 1)
    budget.give_back(first)
    assert budget.choose(1, 1) == first
    before = budget.free
    budget.give_back(PreallocatedSegment(5, 1 << 20, False))
    assert budget.free == before


def test_without_jobs_some_room_is_kept_ready_and_no_more() -> None:
    budget = budget_with()
    fill(budget, Demand())
    assert budget.takes_put(0, 0)
    assert budget.free < 3 * SEGMENT_BYTES


def fill(budget: SpaceBudget, demand: Demand) -> None:
    """Make ready all that is wanted, as a disk without limits does."""
    for _ in range(MOST_SPARES):
        spare = budget.wanted(demand)
        if spare is None:
            return
        assert spare.is_ready
        budget.add(spare)
    raise AssertionError("it never has enough")


@given(
    segment_bytes=st.integers(MIN_SEGMENT_BYTES, 1 << 20),
    rest=st.integers(-200, 1 << 20),
    overhead=st.integers(4_500, 100_000),
    head=st.integers(0, 1 << 20),
    spares=st.lists(st.integers(1, 1 << 20), max_size=4),
    jobs=st.integers(0, 2_000),
    waiting=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3),
)
def test_a_job_that_waits_is_taken_when_all_that_is_wanted_was_made(
    segment_bytes: int, rest: int, overhead: int, head: int, spares: list[int], jobs: int,
    waiting: list[int],
) -> None:  # fmt: skip
    budget = SpaceBudget(segment_bytes)
    budget.begin(rest, overhead + head, head)
    for number, size in enumerate(spares, start=1000):
        budget.add(PreallocatedSegment(number, size, True))
    own = [new_job_bytes(size) for size in waiting]
    demand = Demand(jobs, sum(own), max(own))
    refused = [size for size in waiting if not budget.takes_put(size, jobs)]
    assert not refused or budget.wanted(demand) is not None
    most = (demand.waiting + jobs * DELETE_BYTES) // (segment_bytes // 2 - TAIL_BYTES) + 9
    made = 0
    while (spare := budget.wanted(demand)) is not None:
        budget.add(spare)
        made += 1
        assert made <= most
    assert all(budget.takes_put(size, jobs) for size in waiting)


@given(
    rest=st.integers(1 << 15, 1 << 20),
    jobs=st.integers(0, 2_000),
    records=st.lists(st.tuples(st.integers(90, 2_000), st.integers(0, 1 + KEY_ENDS)), max_size=200),
)
def test_what_is_ample_is_enough_however_many_jobs_were_put_since_it_was_counted(
    rest: int, jobs: int, records: list[tuple[int, int]]
) -> None:
    budget = SpaceBudget(SEGMENT_BYTES)
    budget.begin(rest, 5_000, 0)
    fill(budget, Demand(jobs))
    ample = budget.ample
    for own, ends in records:
        budget.rest, jobs = budget.rest - own, jobs + ends
        if budget.rest > ample:
            assert budget.wanted(Demand(jobs)) is None
        budget.ample = ample
        if budget.is_ample(own):
            assert budget.takes_put(own, jobs)


def test_room_is_counted_again_after_a_refusal() -> None:
    budget = budget_with()
    fill(budget, Demand())
    assert budget.is_ample(0)
    assert not budget.takes_put(1 << 40, 0)
    assert not budget.is_ample(0)


# Where a segment opens with much.

HEAD = 1 << 20


def test_half_of_a_segment_that_opens_with_much_is_for_new_records() -> None:
    budget = SpaceBudget(SEGMENT_BYTES)
    for head in (0, SEGMENT_BYTES // 2, SEGMENT_BYTES // 2 + 1, HEAD):
        budget.begin(0, head, head)
        assert budget.usual_bytes == max(SEGMENT_BYTES, 2 * head)
        assert budget.room_bytes == max(SEGMENT_BYTES, head)
    wanted = budget.wanted(Demand())
    assert wanted is not None and wanted.size == 2 * HEAD


def test_spares_that_were_made_for_fewer_tubes_are_given_back_when_a_segment_opens() -> None:
    small, enough = 2 * HEAD - HEAD // 2 - 1, 2 * HEAD - HEAD // 2
    budget = budget_with(0, SEGMENT_BYTES, small, enough, 4 * HEAD)
    assert budget.take_stale() == []
    budget.begin(0, HEAD, HEAD)
    assert budget.preallocated_bytes == SEGMENT_BYTES + small + enough + 4 * HEAD
    assert [spare.size for spare in budget.take_stale()] == [SEGMENT_BYTES, small]
    assert budget.take_stale() == []
    assert budget.preallocated_bytes == enough + 4 * HEAD
    assert [spare.size for spare in budget.leave()] == [enough, 4 * HEAD]


def test_what_is_to_be_given_back_is_left_too_if_the_log_ends_first() -> None:
    budget = budget_with(0, SEGMENT_BYTES)
    budget.begin(0, HEAD, HEAD)
    assert [spare.size for spare in budget.leave()] == [SEGMENT_BYTES]


def test_a_spare_that_is_too_small_to_be_usual_is_used_on_a_full_disk_only() -> None:
    least, usual = SEGMENT_BYTES, 2 * SEGMENT_BYTES
    budget = budget_with(0, SEGMENT_BYTES)
    assert budget.choose(least, usual).size == usual
    budget = budget_with(0, SEGMENT_BYTES, is_short=True)
    budget.begin(0, HEAD, HEAD)
    assert budget.take_stale() == []
    assert budget.choose(least, usual).size == SEGMENT_BYTES


@pytest.mark.parametrize("body_bytes", [0, 1, 16, 1000, 32_767, 65_535, 65_536, 1 << 20, 1 << 30])
def test_what_is_plenty_for_a_new_job_is_never_too_little(body_bytes: int) -> None:
    assert new_job_bytes(body_bytes) <= 2 * body_bytes + PLENTY_BYTES
