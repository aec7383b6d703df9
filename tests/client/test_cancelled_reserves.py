"""Reserves that are cancelled: what becomes of a job that comes for one, and how `cancel-reserve`
ends what waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.connection import GRACE_S, Connection
from beanstalk_twisted.client.service import Client
from tests.client.test_announcement import knows
from tests.client.world import Line, World, error, is_waiting, result

# `cancel-reserve`.

WAITS: list[Callable[[Any], Deferred[Any]]] = [
    lambda to: to.reserve(), lambda to: to.reserve_with_timeout(60),
    lambda to: to.reserve_batch(2, 60), lambda to: to.wait_job(1, 60),
]  # fmt: skip
EACH_WAIT = pytest.mark.parametrize("wait", WAITS)
KNOWS = knows("cancel-reserve", "reserve-batch", "wait-job")


def asked(world: World) -> Client:
    """Make a client that knows what its server knows; job 1 is delayed."""
    client = world.client(probes=True)
    assert world.result(client.put(b"", delay=1000)) == 1
    return client


def told() -> Line:
    """Make a connection whose server has announced what it knows."""
    line = Line()
    line.connection.probe()
    line.say(KNOWS)
    line.sent()
    return line


@EACH_WAIT
def test_what_waits_has_timed_out_and_then_the_cancel_is_answered(
    wait: Callable[[Client], Deferred[Any]], world: World
) -> None:
    client = asked(world)
    ends: list[object] = []

    def note(failure: Failure) -> None:
        ends.append(failure.type)

    waiting = wait(client).addCallbacks(ends.append, note)
    world.settle()
    assert is_waiting(waiting)
    cancelled = client.cancel_reserve().addCallback(lambda _: ends.append("cancel"))
    assert is_waiting(cancelled)
    world.settle()
    assert ends in ([errors.TimedOut, "cancel"], [(), "cancel"])
    assert world.result(client.put(b"")) == 2
    assert world.connects == 1


def test_a_job_that_came_before_is_the_reserves(world: World) -> None:
    client, producer = asked(world), world.client()
    reserve = client.reserve()
    world.settle()
    put = producer.put(b"x")
    cancelled = client.cancel_reserve()
    world.links[-1].carry()
    world.settle()
    assert result(reserve).id == result(put)
    assert result(cancelled) is None
    assert world.result(client.delete(result(reserve))) is None


def test_nothing_that_waits_is_nothing_to_cancel(world: World, connection: Connection) -> None:
    assert world.result(connection.cancel_reserve()) is None
    assert world.result(connection.put(b"")) == 1


@pytest.mark.parametrize("wait", WAITS[:2])
def test_a_server_that_was_not_asked_before_it_cannot_be_asked_while_something_waits(
    wait: Callable[[Any], Deferred[Any]], line: Line
) -> None:
    waiting = wait(line.connection)
    line.sent()
    refused = error(line.connection.cancel_reserve(), errors.NotAnnounced)
    assert "await probe() first" in str(refused)
    assert line.sent() == b""
    line.say(b"DEADLINE_SOON\r\n")
    error(waiting, errors.DeadlineSoon)
    line.connection.cancel_reserve()
    assert line.sent() == b"capabilities\r\n"


def test_a_server_that_does_not_answer_a_cancel_is_dead() -> None:
    line = told()
    reserve, cancelled = line.connection.reserve(), line.connection.cancel_reserve()
    assert line.sent() == b"reserve\r\ncancel-reserve\r\n"
    line.clock.advance(GRACE_S)
    line.part()
    for each in (reserve, cancelled):
        assert isinstance(error(each, errors.Unanswered).reason, errors.ServerSilent)


@EACH_WAIT
def test_a_cancelled_deferred_cancels_what_waits_if_the_server_can(
    wait: Callable[[Client], Deferred[Any]], world: World
) -> None:
    client = asked(world)
    waiting = wait(client)
    world.settle()
    waiting.cancel()
    error(waiting, CancelledError)
    assert world.link.transport.unread == b"cancel-reserve\r\n"
    assert world.result(client.put(b"x")) == 2
    stats = world.result(client.stats_job(2))
    assert (stats.state, stats.reserves) == ("ready", 0)
    assert world.result(client.reserve()).id == 2
    assert world.connects == 1


def test_it_is_not_cancelled_where_something_else_was_sent_behind_it() -> None:
    line = told()
    reserve = line.connection.reserve()
    line.connection.kick(1)
    reserve.cancel()
    error(reserve, CancelledError)
    assert line.sent() == b"reserve\r\nkick 1\r\n"


def test_nor_on_a_server_that_has_no_such_command(line: Line) -> None:
    line.connection.probe()
    line.say(knows("put-batch"))
    reserve = line.connection.reserve()
    reserve.cancel()
    error(reserve, CancelledError)
    assert line.sent() == b"capabilities\r\nreserve\r\n"


def test_a_reserve_behind_a_cancelled_one_is_not_cancelled_with_it() -> None:
    line = told()
    first = line.connection.reserve()
    first.cancel()
    error(first, CancelledError)
    second = line.connection.reserve()
    assert line.sent() == b"reserve\r\ncancel-reserve\r\nreserve\r\n"
    line.say(b"TIMED_OUT\r\nCANCELLED\r\n")
    assert is_waiting(second)
    line.say(b"RESERVED 3 1\r\nx\r\n")
    assert result(second) == (3, b"x")
    # A cancel of the application's is no other than ours.
    third = line.connection.reserve()
    cancelled = line.connection.cancel_reserve()
    third.cancel()
    error(third, CancelledError)
    fourth = line.connection.reserve()
    assert line.sent() == b"reserve\r\ncancel-reserve\r\nreserve\r\n"
    line.say(b"TIMED_OUT\r\nCANCELLED\r\nRESERVED 4 0\r\n\r\n")
    assert result(cancelled) is None
    assert result(fourth).id == 4


def test_a_job_that_comes_all_the_same_is_the_next_reserves_and_what_then_waits_is_ended() -> None:
    line = told()
    first = line.connection.reserve()
    first.cancel()
    error(first, CancelledError)
    second = line.connection.reserve()
    line.sent()
    line.say(b"RESERVED 3 1\r\nx\r\n")
    assert result(second) == (3, b"x")
    assert line.sent() == b"cancel-reserve\r\n"
    delete = line.connection.delete(result(second))
    line.say(b"CANCELLED\r\nTIMED_OUT\r\nCANCELLED\r\nDELETED\r\n")
    assert result(delete) is None


def test_jobs_of_a_cancelled_batch_are_given_back_with_their_priorities(world: World) -> None:
    client = asked(world)
    jobs = [world.result(client.put(b"", priority=each)) for each in (5, 6)]
    batch = client.reserve_batch(9)
    batch.cancel()
    error(batch, CancelledError)
    world.settle()
    for job, priority in zip(jobs, (5, 6), strict=True):
        stats = world.result(client.stats_job(job))
        assert (stats.state, stats.pri, stats.reserves) == ("ready", priority, 0)


def test_a_reserve_behind_a_cancelled_batch_waits_until_its_jobs_are_given_back() -> None:
    line = told()
    batch = line.connection.reserve_batch(2, 60)
    batch.cancel()
    error(batch, CancelledError)
    reserve, kick = line.connection.reserve(), line.connection.kick(1)
    assert line.sent() == b"reserve-batch 2 60\r\ncancel-reserve\r\n"
    line.say(b"RESERVED_BATCH 1\r\nRESERVED 7 1\r\nx\r\nCANCELLED\r\n")
    assert line.sent() == b"stats-job 7\r\n"
    line.say(b"OK 17\r\n---\nid: 7\npri: 5\n\r\n")
    assert line.sent() == b"release 7 5 0\r\nreserve\r\nkick 1\r\n"
    line.say(b"RELEASED\r\nRESERVED 7 1\r\nx\r\nKICKED 0\r\n")
    assert (result(reserve).id, result(kick)) == (7, 0)


def test_nothing_is_given_back_of_a_cancelled_batch_that_gets_no_job() -> None:
    line = told()
    for said in (b"RESERVED_BATCH 0\r\n", b"DEADLINE_SOON\r\n"):
        batch = line.connection.reserve_batch(2, 60)
        batch.cancel()
        error(batch, CancelledError)
        reserve = line.connection.reserve()
        line.sent()
        line.say(said + b"CANCELLED\r\n")
        assert line.sent() == b"reserve\r\n"
        line.say(b"RESERVED 7 1\r\nx\r\n")
        assert result(reserve).id == 7


def test_a_batch_that_is_cancelled_before_it_is_sent_holds_nothing_up() -> None:
    line = told()
    line.connection.pauseProducing()
    batch = line.connection.reserve_batch(2, 60)
    batch.cancel()
    error(batch, CancelledError)
    line.connection.resumeProducing()
    line.connection.reserve()
    assert line.sent() == b"reserve\r\n"


def test_a_lost_connection_takes_a_reserve_and_its_cancel_to_the_next_one_together() -> None:
    world = World()
    client = asked(world)
    reserve = client.reserve()
    world.settle()
    cancelled = client.cancel_reserve()
    world.link.transport.end(ConnectionLost())
    world.advance(30)
    error(reserve, errors.TimedOut)
    assert result(cancelled) is None
