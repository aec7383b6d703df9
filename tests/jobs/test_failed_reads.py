"""When a body that cannot be read is lost, and for how long its job is left alone before."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.jobs.body_room import MAX_FAILED, PAUSES_S, FailedReads, Unread
from beanstalk_twisted.jobs.job import NS

HERE, THERE = BodyPlace(1, 7), BodyPlace(2, 9)
DAMAGE, FAILURE = Unread("the checksum is wrong.", True), Unread("Input/output error.", False)


def fail_until_lost(failed: FailedReads, others_read: int) -> tuple[int, list[int]]:
    """Have a read fail at the end of each pause.

    :param others_read: how many bodies others have read meanwhile.
    :return: how many reads failed until it was lost, but 100 at most, and the pauses in seconds.
    """
    now_ns, reads, pauses = 0, 1, []
    state, is_news = failed.note(1, HERE, FAILURE, 0, now_ns)
    while not state.is_lost and reads < 100:
        assert not is_news
        assert state.is_left_alone(state.until_ns - 1) and not state.is_left_alone(state.until_ns)
        pauses.append((state.until_ns - now_ns) // NS)
        now_ns, reads = state.until_ns, reads + 1
        state, is_news = failed.note(1, HERE, FAILURE, others_read, now_ns)
    return reads, pauses


def test_what_was_read_and_is_wrong_is_lost_at_once_and_news_once() -> None:
    failed = FailedReads()
    state, is_news = failed.note(1, HERE, DAMAGE, 0, 0)
    assert (state.is_lost, is_news, state.is_left_alone(1 << 62)) == (True, True, True)
    for unread in (DAMAGE, FAILURE):
        state, is_news = failed.note(1, HERE, unread, 0, 99 * NS)
        assert (state.is_lost, is_news) == (True, False)


def test_a_read_that_fails_in_all_pauses_is_lost_if_others_could_be_read() -> None:
    assert fail_until_lost(FailedReads(), 1) == (len(PAUSES_S) + 1, list(PAUSES_S))


def test_a_disk_of_which_nothing_can_be_read_loses_nothing() -> None:
    reads, pauses = fail_until_lost(FailedReads(), 0)
    assert (reads, set(pauses[len(PAUSES_S) :])) == (100, {PAUSES_S[-1]})


def test_who_asks_within_a_pause_makes_it_no_shorter_and_loses_nothing() -> None:
    failed = FailedReads()
    first, _ = failed.note(1, HERE, FAILURE, 0, 0)
    for now_ns in range(0, first.until_ns, NS // 10):
        assert failed.note(1, HERE, FAILURE, 9, now_ns) == (first, False)


def test_nothing_is_known_of_a_body_that_was_read_or_stands_elsewhere() -> None:
    failed = FailedReads()
    failed.note(1, HERE, DAMAGE, 0, 0)
    assert failed.of(1, HERE) is not None
    assert (failed.of(1, THERE), failed.of(1, None), failed.of(2, HERE)) == (None, None, None)
    failed.forget(1)
    assert failed.of(1, HERE) is None
    failed.note(1, HERE, DAMAGE, 0, 0)
    state, is_news = failed.note(1, THERE, FAILURE, 0, 0)
    assert (state.is_lost, is_news) == (False, False)


def test_of_more_jobs_than_are_remembered_the_first_is_forgotten() -> None:
    failed = FailedReads()
    for job_id in range(MAX_FAILED):
        failed.note(job_id, HERE, DAMAGE, 0, 0)
    assert failed.of(0, HERE) is not None
    failed.note(MAX_FAILED, HERE, DAMAGE, 0, 0)
    assert (failed.of(0, HERE), failed.of(1, HERE) is not None) == (None, True)


def test_who_reads_may_say_for_how_long_a_job_is_left_alone_and_when_its_body_is_lost() -> None:
    failed = FailedReads()
    later = FAILURE._replace(until_ns=60 * NS)
    for now_ns in (0, NS, 59 * NS):
        state, is_news = failed.note(1, HERE, later, 0, now_ns)
        assert (state.until_ns, state.is_lost, is_news) == (60 * NS, False, False)
    assert not state.is_left_alone(60 * NS)
    state, is_news = failed.note(1, HERE, DAMAGE, 0, 60 * NS)
    assert (state.is_lost, is_news) == (True, True)
