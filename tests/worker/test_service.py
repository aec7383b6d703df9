"""A worker, and a whole server, on a clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.client import errors
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.hooks import Tally
from beanstalk_twisted.worker.policy import (
    Bury,
    Decided,
    Delete,
    Release,
    Retry,
    Return,
    TookTooLong,
    TooManyAttempts,
)
from beanstalk_twisted.worker.reserver import PATIENCE_S, POLL_MOST_S, REST_S
from beanstalk_twisted.worker.serialisers import Json
from beanstalk_twisted.worker.service import Worker
from beanstalk_twisted.worker.settings import MAX_CONCURRENCY, STUCK_S
from tests.client.world import is_waiting, result
from tests.worker.world import TUBE, Shop, Slow, Stubborn


def break_all(shop: Shop) -> None:
    for link in shop.links:
        link.transport.end(ConnectionLost())
    shop.world.settle()


# Doing jobs.


def test_several_tubes_may_be_watched_and_default_among_them(shop: Shop) -> None:
    bodies = set()
    shop.worker(lambda attempt: bodies.add((attempt.tube, attempt.body)), tubes=["default", "b"])
    for tube in ("default", "b", "c"):
        shop.world.result(shop.producer.use(tube))
        shop.put(tube.encode())
    assert bodies == {("default", b"default"), ("b", b"b")}


@pytest.mark.parametrize("connections", [1, 2, 9])
def test_as_many_jobs_are_done_at_once_as_there_is_room_for(connections: int, shop: Shop) -> None:
    for _ in range(20):
        shop.put()
    slow = Slow()
    worker = shop.worker(slow, 5, connections=connections)
    assert len(slow.begun) == 5 == worker.jobs_in_hand
    slow.finish(slow.begun[2].id)
    shop.world.settle()
    assert len(slow.begun) == 6
    assert shop.jobs() == {"ready": 14, "reserved": 5}
    while slow.waiting:
        slow.finish(next(iter(slow.waiting)))
        shop.world.settle()
    assert shop.jobs() == {}
    assert len(slow.begun) == 20


async def coroutine(attempt: Attempt[Any]) -> None:
    """A function that does jobs."""


def deferred(attempt: Attempt[Any]) -> Deferred[None]:
    done: Deferred[None] = Deferred()
    done.callback(None)
    return done


@pytest.mark.parametrize("doer", [coroutine, deferred, lambda attempt: "what it gives"])
def test_a_job_that_is_done_by_a_function_of_any_kind_is_deleted(
    doer: Callable[[Attempt[Any]], Any], shop: Shop
) -> None:
    shop.worker(doer)
    job = shop.put()
    assert shop.jobs() == {}
    assert shop.noted.told == [("began", job), ("ended", job, Delete())]


def test_an_attempt_knows_its_job_and_its_time(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, serialiser=Json(), touches=False)
    job = shop.put(b'{"a":1}', ttr=10, priority=7)
    (attempt,) = slow.begun
    assert (attempt.id, attempt.body, attempt.value) == (job, b'{"a":1}', {"a": 1})
    assert (attempt.tube, attempt.number, attempt.stats.pri) == (TUBE, 1, 7)
    assert repr(attempt) == f"<Attempt job {job} of {TUBE}, attempt 1>"
    assert attempt.time_left_s() == 10
    shop.world.advance(4)
    assert attempt.time_left_s() == pytest.approx(6)
    touched = attempt.touch()
    shop.world.result(touched)
    assert attempt.time_left_s() == pytest.approx(10)
    slow.finish(job)
    shop.world.settle()
    with pytest.raises(RuntimeError, match="the attempt is over"):
        shop.world.result(attempt.touch())


# What becomes of them.


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(Release(60), "delayed"), (Release(60, priority=3), "delayed"), (Bury(), "buried")],
)
@pytest.mark.parametrize("is_raised", [False, True])
def test_a_verdict_that_is_given_or_raised_is_carried_out(
    verdict: Release | Bury, state: str, is_raised: bool
) -> None:
    def do(attempt: Attempt[Any]) -> Any:
        if is_raised:
            raise Decided(verdict)
        return verdict

    shop = Shop()
    shop.worker(do)
    job = shop.put(priority=9)
    stats = shop.stats(job)
    assert stats.state == state
    assert stats.pri == (9 if verdict.priority is None else 3)
    assert shop.noted.named("failed") == []


def test_a_job_that_fails_is_tried_later_and_later_and_then_buried(shop: Shop) -> None:
    times = []

    def do(attempt: Attempt[Any]) -> None:
        times.append((attempt.number, shop.world.clock.seconds()))
        raise RuntimeError("no")

    policy = Retry(most_attempts=4, first_delay_s=10, factor=2, most_delay_s=15)
    shop.worker(do, policy=policy, chance=lambda: 1.0)
    job = shop.put()
    shop.world.advance(100)
    waits = [later - earlier for (_, earlier), (_, later) in pairwise(times)]
    assert waits == [pytest.approx(10, abs=0.1), *[pytest.approx(15, abs=0.1)] * 2]
    assert [number for number, _ in times] == [1, 2, 3, 4]
    assert shop.stats(job).state == "buried"
    shop.world.result(shop.producer.kick_job(job))
    shop.world.settle()
    assert len(times) == 5 and shop.stats(job).state == "buried"


def test_a_job_whose_workers_die_of_it_is_not_tried_for_ever(shop: Shop) -> None:
    job = shop.put()
    for _ in range(3):
        victim = shop.world.client()
        shop.world.result(victim.watch(TUBE))
        shop.world.result(victim.reserve())
        shop.world.link.transport.end(ConnectionLost())
        shop.world.result(victim.stopService())
    slow = Slow()
    shop.worker(slow, policy=Retry(most_attempts=3))
    assert slow.begun == []
    assert shop.stats(job).state == "buried"
    ((failed, error),) = shop.noted.named("failed")
    assert failed == job and isinstance(error, TooManyAttempts)


# Keeping the reservation.


@pytest.mark.parametrize("ttr", [1, 2, 3, 10, 3600])
@pytest.mark.parametrize("chance", [0.0, 0.999])
def test_a_job_is_touched_while_it_is_done_and_neither_too_late_nor_too_often(
    ttr: int, chance: float, shop: Shop, slow: Slow
) -> None:
    shop.worker(slow, chance=lambda: chance)
    job = shop.put(ttr=ttr)
    shop.world.advance(10 * ttr)
    assert slow.cancelled == []
    assert shop.stats(job).timeouts == 0
    assert 15 <= len(shop.noted.named("touched")) <= 20
    slow.finish(job)
    shop.world.settle()
    assert shop.jobs() == {}


def test_without_touching_the_attempt_is_cancelled_when_the_ttr_ends(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow, touches=False)
    job = shop.put(ttr=5)
    shop.world.advance(4.9)
    assert slow.cancelled == []
    shop.world.advance(0.2)
    assert slow.cancelled == [job]
    assert shop.noted.named("lost") == [(job, Ending.TTR)]
    assert [attempt.number for attempt in slow.begun] == [1, 2]


def test_a_job_that_was_taken_away_is_noticed_at_the_next_touch(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, connections=1)
    job = shop.put(ttr=10)
    # The server's clock runs away: to it, the TTR is over.
    shop.world.server.advance(11)
    shop.world.advance(6)
    assert slow.cancelled == [job]
    assert shop.noted.named("lost") == [(job, Ending.NOT_OURS)]


def test_a_job_that_was_done_too_late_is_told(shop: Shop, slow: Slow) -> None:
    shop.worker(slow)
    job = shop.put(ttr=10)
    other = shop.world.client()
    shop.world.result(other.watch(TUBE))
    reserve = other.reserve()
    shop.world.settle()
    shop.world.server.advance(11)
    shop.world.settle()
    assert not is_waiting(reserve)
    slow.finish(job)
    shop.world.settle()
    assert shop.noted.named("lost") == [(job, Ending.NOT_OURS)]
    assert shop.stats(job).state == "reserved"


def test_an_attempt_that_takes_too_long_is_cancelled_and_counts_as_failed(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow, limit_s=25, policy=Retry(first_delay_s=100))
    job = shop.put(ttr=10)
    shop.world.advance(24.9)
    assert slow.cancelled == []
    shop.world.advance(0.2)
    assert slow.cancelled == [job]
    ((_, error),) = shop.noted.named("failed")
    assert isinstance(error, TookTooLong)
    assert shop.stats(job).state == "delayed"


def test_a_handler_that_heeds_no_limit_has_its_job_failed_by_the_policy(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    worker = shop.worker(stubborn, 2, limit_s=25, policy=Retry(first_delay_s=100))
    job = shop.put(b"hang", ttr=10)
    shop.world.advance(25 + STUCK_S - 0.1)
    assert (shop.stats(job).state, worker.jobs_in_hand) == ("reserved", 1)
    shop.world.advance(0.2)
    ((_, error),) = shop.noted.named("failed")
    assert isinstance(error, TookTooLong)
    assert shop.noted.named("ended") == [(job, Release(50))]
    assert shop.noted.named("stuck") == [(job, 1, 2)]
    assert shop.stats(job).state == "delayed"
    assert (worker.jobs_in_hand, worker.stuck_slots) == (0, 1)
    # The other slot goes on, and waits on a connection that holds no job.
    shop.put(b"good")
    assert stubborn.bodies == [b"hang", b"good"]
    # What comes of it counts no more, but its slot is free again.
    stubborn.waiting[0].errback(RuntimeError("too late to matter"))
    shop.world.settle()
    assert worker.stuck_slots == 0
    assert [name for name, *_ in shop.noted.told if name in ("failed", "lost")] == ["failed"]
    assert len(shop.noted.named("ended")) == 2


def test_a_handler_that_ends_while_its_job_is_given_up_leaves_no_stuck_slot(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    worker = shop.worker(stubborn, limit_s=25, policy=Retry(first_delay_s=100))
    job = shop.put(b"hang", ttr=60)
    shop.world.clock.advance(25)
    shop.world.clock.advance(STUCK_S)  # The release is on its way.
    stubborn.waiting[0].callback(None)
    shop.world.settle()
    assert shop.noted.named("ended") == [(job, Release(50))]
    assert shop.noted.named("stuck") == []
    assert (worker.jobs_in_hand, worker.stuck_slots) == (0, 0)
    shop.put(b"good")
    assert stubborn.bodies == [b"hang", b"good"]


def test_a_handler_that_ends_soon_after_the_limit_is_judged_by_its_result(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    worker = shop.worker(stubborn, limit_s=25)
    job = shop.put(b"hang", ttr=10)
    shop.world.advance(25 + STUCK_S / 2)
    stubborn.waiting[0].callback(None)
    shop.world.settle()
    assert shop.noted.named("ended") == [(job, Delete())]
    assert worker.stuck_slots == 0


def test_a_job_that_was_lost_before_the_limit_is_only_told_as_lost(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    worker = shop.worker(stubborn, limit_s=25, touches=False)
    job = shop.put(b"hang", ttr=10)
    shop.world.advance(25)
    shop.world.advance(STUCK_S)
    assert shop.noted.named("lost") == [(job, Ending.TTR)]
    assert shop.noted.named("failed") == []
    assert shop.noted.named("stuck") == [(job, 1, 1)]
    stubborn.waiting[0].callback(None)
    shop.world.settle()
    assert shop.noted.named("lost") == [(job, Ending.TTR)]
    assert worker.stuck_slots == 0


def test_when_all_slots_are_stuck_that_is_told_and_no_job_is_taken(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    told: list[str] = []
    worker = shop.worker(
        stubborn, 2, limit_s=25, policy=Retry(most_attempts=1), all_stuck=lambda: told.append("all")
    )
    first = shop.put(b"hang 1")
    shop.world.advance(10)
    second = shop.put(b"hang 2")
    shop.world.advance(20)
    assert told == []
    shop.world.advance(10)
    assert told == ["all"]
    assert [shop.stats(job).state for job in (first, second)] == ["buried", "buried"]
    shop.put(b"good")
    shop.world.advance(60)
    assert stubborn.bodies == [b"hang 1", b"hang 2"]
    # It does not wait for them when it stops, and after a start has all its slots.
    stopped = worker.stopService()
    shop.world.settle()
    assert result(stopped) is None
    worker.startService()
    shop.world.settle()
    assert stubborn.bodies[2:] == [b"good"]


def test_without_a_callback_all_stuck_slots_are_logged(shop: Shop) -> None:
    with capturedLogs() as events:
        shop.worker(Stubborn(b"hang"), limit_s=1)
        shop.put(b"hang")
        shop.world.advance(3)
    said = [formatEvent(event) for event in events]
    assert (
        "job 1 of work, attempt 1: given up, but its function still runs: 1 of 1 slots are "
        "stuck" in said
    )
    assert said[-1].startswith("all 1 slots are stuck in functions that do not end")


# No command waits behind a reserve.


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.parametrize("connections", [1, 2])
def test_a_job_that_is_done_is_deleted_at_once_whatever_else_is_asked_for(
    concurrency: int, connections: int, shop: Shop, slow: Slow
) -> None:
    shop.worker(slow, concurrency, connections=connections)
    job = shop.put(ttr=20)
    shop.world.advance(7.123)
    slow.finish(job)
    shop.world.settle()
    assert shop.jobs() == {}


def test_a_new_job_is_begun_at_once_while_another_is_done(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, 3)
    shop.put()
    shop.world.advance(5)
    second = shop.put()
    assert slow.begun[-1].id == second


@pytest.mark.parametrize("connections", [1, 2])
def test_when_all_connections_hold_jobs_a_new_one_is_begun_at_the_next_poll(
    connections: int, shop: Shop, slow: Slow
) -> None:
    shop.worker(slow, 5, connections=connections)
    for _ in range(connections):
        shop.put()
        shop.world.advance(5)
    last = shop.put()
    shop.world.advance(POLL_MOST_S)
    assert slow.begun[-1].id == last


@pytest.mark.parametrize(
    ("slots", "connections", "ttrs", "seconds", "asked"),
    [
        (5, 2, [], 10 * PATIENCE_S, 10), (5, 2, [1000], 10 * PATIENCE_S, 10),
        (5, 1, [1000], 10, 10 / POLL_MOST_S), (2, 2, [1000] * 3, 100, 0),
        # DEADLINE_SOON is an empty answer, and no reason to ask faster.
        (5, 1, [1], 10, 10 / POLL_MOST_S),
    ],
    ids=["idle", "one waits", "none can wait", "full", "deadline soon"],
)  # fmt: skip
def test_a_worker_asks_so_often(
    shop: Shop, slow: Slow, slots: int, connections: int, ttrs: list[int], seconds: float,
    asked: float,
) -> None:  # fmt: skip
    shop.worker(slow, slots, connections=connections)
    for ttr in ttrs:
        shop.put(ttr=ttr)
    shop.world.advance(5)
    before = shop.commands("reserve-with-timeout")
    shop.world.advance(seconds)
    found = shop.commands("reserve-with-timeout") - before
    assert found == pytest.approx(asked, abs=asked and 1)
    assert (slow.cancelled, shop.noted.named("troubled")) == ([], [])


# Losing the connection.


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_lost_connection_cancels_its_attempts_and_the_jobs_are_done_anew(
    concurrency: int, shop: Shop, slow: Slow
) -> None:
    shop.worker(slow, concurrency)
    jobs = [shop.put() for _ in range(concurrency)]
    shop.world.advance(1)
    break_all(shop)
    assert sorted(slow.cancelled) == jobs
    assert {told for told in shop.noted.named("lost")} == {
        (job, Ending.DISCONNECTED) for job in jobs
    }
    shop.world.advance(1)
    assert sorted(attempt.id for attempt in slow.begun) == sorted(jobs * 2)
    for job in jobs:
        slow.finish(job)
    shop.world.settle()
    assert shop.jobs() == {}


def test_the_other_connection_goes_on(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, 4)
    first, second = shop.put(), shop.put()
    shop.links[1].transport.end(ConnectionLost())
    shop.world.settle()
    assert slow.cancelled == [second]
    slow.finish(first)
    shop.world.settle()
    assert [attempt.id for attempt in slow.begun] == [first, second, second]


def test_a_delete_without_an_answer_is_tried_again_before_the_job_is_done_twice(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow)
    job = shop.put()
    link = shop.links[0]
    link.wire.cut_off()
    slow.finish(job)
    shop.world.settle()
    link.transport.end(ConnectionLost())
    link.wire.peer.hang_up()
    shop.world.settle()
    assert shop.stats(job).state == "ready"
    shop.world.advance(1)
    assert shop.jobs() == {}
    assert len(slow.begun) == 1
    assert shop.noted.named("ended") == [(job, Delete())]


def test_a_delete_that_was_done_and_not_answered_is_called_unsettled(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow)
    job = shop.put()
    slow.finish(job)
    link = shop.links[0]
    link.wire.peer.send(link.transport.drain())
    link.transport.end(ConnectionLost())
    shop.world.advance(1)
    ((unsettled, verdict, error),) = shop.noted.named("unsettled")
    assert (unsettled, verdict) == (job, Delete()) and isinstance(error, errors.Unanswered)
    assert shop.jobs() == {}


def test_a_half_open_connection_ends_the_attempt_with_the_ttr_and_the_worker_recovers() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow, grace_s=30, connections=1)
    job = shop.put(ttr=10)
    link = shop.links[0]
    link.wire.cut_off()
    shop.world.advance(11)
    assert slow.cancelled == [job]
    assert shop.noted.named("lost") == [(job, Ending.TTR)]
    link.wire.peer.hang_up()
    shop.world.advance(60)
    assert [attempt.id for attempt in slow.begun] == [job, job]


def test_a_connection_lost_before_the_attempt_begins_leaves_the_job_to_others(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow)
    link = shop.links[0]
    link.transport.unsent += b"RESERVED 77 1\r\nx\r\n"
    link.transport.read()
    link.transport.end(ConnectionLost())
    link.wire.peer.hang_up()
    shop.world.advance(1)
    assert slow.begun == []
    number = shop.put()
    assert slow.begun[-1].id == number


def test_after_an_error_the_worker_rests_before_it_asks_again(shop: Shop) -> None:
    shop.worker(Slow())
    link = shop.links[0]
    link.transport.unsent += b"OUT_OF_MEMORY\r\n"
    link.transport.read()
    assert isinstance(shop.noted.named("troubled")[0][0], errors.OutOfMemory)
    assert link.transport.drain() == b""
    shop.world.clock.advance(REST_S)
    assert link.transport.drain() == b"reserve-with-timeout 30\r\n"


# Stopping.


def test_an_idle_worker_stops_at_once(shop: Shop) -> None:
    worker = shop.worker(Slow(), 3)
    shop.world.result(worker.stopService())
    shop.put()
    assert shop.jobs() == {"ready": 1}
    assert all(link.transport.is_closed for link in shop.links)


def test_a_worker_that_stops_finishes_what_it_has_and_takes_no_more(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow, 2)
    first, second, third = shop.put(), shop.put(), shop.put()
    stopped = worker.stopService()
    shop.world.advance(5)
    assert is_waiting(stopped)
    slow.finish(first)
    slow.fail(second, RuntimeError("fails as ever"))
    shop.world.settle()
    shop.world.result(stopped)
    assert shop.stats(second).state == "delayed"
    assert shop.stats(third).state == "ready"
    assert [attempt.id for attempt in slow.begun] == [first, second]


@pytest.mark.parametrize("touches", [True, False])
def test_what_takes_too_long_is_given_back(touches: bool, shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow, 2, finish_s=15, touches=touches)
    jobs = [shop.put(ttr=20, priority=5), shop.put(ttr=20)]
    stopped = worker.stopService()
    shop.world.advance(14.9)
    assert slow.cancelled == [] and is_waiting(stopped)
    shop.world.advance(0.2)
    shop.world.result(stopped)
    assert sorted(slow.cancelled) == jobs
    for job in jobs:
        stats = shop.stats(job)
        assert (stats.state, stats.reserves, stats.releases) == ("ready", 0, 0)
    assert shop.stats(jobs[0]).pri == 5
    assert {verdict for _, verdict in shop.noted.named("ended")} == {Return()}
    assert shop.noted.named("failed") == []


def test_what_heeds_no_cancelling_is_left_behind_and_its_job_given_back(shop: Shop) -> None:
    stubborn = Stubborn(b"hang")
    worker = shop.worker(stubborn, finish_s=15)
    job = shop.put(b"hang")
    stopped = worker.stopService()
    shop.world.advance(16)
    shop.world.result(stopped)
    assert shop.stats(job).state == "ready"
    stubborn.waiting[0].callback(None)
    shop.world.settle()
    assert shop.stats(job).state == "ready"


def test_a_worker_that_stops_without_a_server_stops_within_its_bound(shop: Shop) -> None:
    slow = Slow()
    worker = shop.worker(slow, 2, finish_s=15)
    shop.put()
    shop.world.endpoint.is_refusing = True
    break_all(shop)
    shop.world.result(worker.stopService())


def test_a_worker_may_be_told_to_stop_more_than_once(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow)
    job = shop.put()
    told = [worker.stopService() for _ in range(3)]
    shop.world.advance(1)
    assert all(is_waiting(each) for each in told)
    slow.finish(job)
    shop.world.settle()
    for each in told:
        shop.world.result(each)
    shop.world.result(worker.stopService())


# Limits.


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0}, {"concurrency": MAX_CONCURRENCY + 1}, {"connections": 0},
        {"finish_s": -1}, {"limit_s": 0}, {"tubes": []}, {"tubes": ""}, {"tubes": "-x"},
        {"tubes": ["a", "a b"]}, {"tubes": "\u00e9"}, {"tubes": b"a\r\n"}, {"tubes": "a" * 201},
        {"handler": coroutine, "in_threads": True}, {"limit_s": math.nan}, {"limit_s": math.inf},
        {"limit_s": 2**32}, {"limit_s": -1}, {"finish_s": math.nan}, {"finish_s": 2**32},
        {"grace_s": math.nan}, {"grace_s": -1}, {"token": ""}, {"token": "a b"},
        {"connections": MAX_CONCURRENCY + 1}, {"mode": ""},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    usual = {"endpoint": Shop().world.endpoint, "tubes": "t", "handler": print}
    with pytest.raises(ValueError):
        Worker(**usual | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"handler": None}, "handler is a function that is given an Attempt, not None"),
        ({"handler": lambda: None}, "an Attempt and nothing else, not .*<lambda>.*: too many"),
        ({"handler": lambda job, more: None}, "missing a required argument: 'more'"),
        ({"handler": Retry().before, "in_threads": 4}, "in_threads is True, False or"),
        ({"policy": "x"}, r"policy is Retry\(\), or has before\(\) as that has; not 'x'"),
        ({"policy": Retry}, "policy is an object, such as"), ({"serialiser": "json"}, "serialiser"),
        ({"serialiser": Json}, "serialiser is an object, such as"), ({"hooks": "x"}, "hooks is a"),
        ({"hooks": [7]}, "7 is none"), ({"hooks": [Tally]}, "is none"),
        ({"hooks": Shop().noted}, "hooks is a list"),
        ({"in_threads": 4}, "in_threads is True, False or"),
        ({"concurrency": True}, "concurrency is a whole number, not True"),
        ({"concurrency": 1.5}, "concurrency is a whole number"),
        ({"connections": None}, "connections is a whole number, not None"),
        ({"limit_s": "5"}, "limit_s is a number of seconds, not '5'"),
        ({"limit_s": True}, "limit_s is a number of seconds, not True"),
        ({"finish_s": None}, "finish_s is a number of seconds, not None"),
        ({"grace_s": "5"}, "grace_s is a number of seconds, not '5'"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_refused_at_once(options: dict[str, Any], wanted: str) -> None:
    usual = {"endpoint": Shop().world.endpoint, "tubes": "t", "handler": print}
    with pytest.raises(TypeError, match=wanted):
        Worker(**usual | options)  # type: ignore[arg-type]


def test_threads_on_a_clock_are_refused_with_what_to_give_instead() -> None:
    world = Shop().world
    with pytest.raises(ValueError, match=r"Clock is not: .* in_threads=InlineThreads\(\)"):
        Worker(world.endpoint, "t", print, in_threads=True, reactor=world.clock)


def test_the_limits_themselves_are_taken() -> None:
    endpoint = Shop().world.endpoint
    Worker(endpoint, "t" * 200, print, MAX_CONCURRENCY, connections=1, finish_s=0, limit_s=0.001)


def test_another_job_is_asked_for_right_behind_a_delete(shop: Shop, slow: Slow) -> None:
    shop.worker(slow)
    job = shop.put()
    slow.finish(job)
    sent = shop.links[0].transport.drain()
    assert sent == b"delete %d\r\nreserve-with-timeout 0\r\n" % job
