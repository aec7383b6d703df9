"""The client in the older dialect, on the double in the older dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.commands.specs_v1 import JobV1
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.reconnecting import Backoff
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.testing.double import Beanstalk

pytestmark = pytest.mark.beanstalk(dialect="v1", uses_reactor=False)


def client_of(beanstalk: Beanstalk, **options: Any) -> Client:
    """Make a client, and let it connect."""
    client = Client(
        beanstalk.endpoint, reactor=beanstalk.clock, dialect="v1", backoff=Backoff(lambda: 1.0),
        **options,
    )  # fmt: skip
    client.startService()
    beanstalk.settle()
    return client


def failure(beanstalk: Beanstalk, waited: Deferred[Any]) -> BaseException:
    """Give what a Deferred fails with."""
    with pytest.raises(Exception) as caught:
        beanstalk.result(waited)
    return caught.value


def test_each_command_of_the_dialect_works(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)

    async def script() -> None:
        assert await client.put(b"one", priority=5) is None
        await client.put(b"two", priority=6)
        job = await client.reserve()
        assert isinstance(job, JobV1)
        assert (job, job.priority) == (Job(1, b"one"), 5)
        await client.release(job, priority=7)
        other = await client.reserve()
        await client.bury(other, priority=3)
        looked = await client.peek_buried()
        assert isinstance(looked, JobV1)
        assert (looked, looked.priority) == (Job(2, b"two"), 3)
        assert await client.peek(job) == job
        assert await client.kick(9) == 1
        stats = await client.stats()
        assert (stats.current_jobs_ready, stats.cmd_put, stats.current_workers) == (2, 2, 1)
        of_the_job = await client.stats_job(1)
        assert (of_the_job.state, of_the_job.time_left) == ("ready", 0)
        with pytest.raises(AttributeError, match="no 'pri'"):
            _ = of_the_job.pri
        await client.delete(1)
        with pytest.raises(errors.NotFound):
            await client.delete(1)

    beanstalk.run(script())
    beanstalk.assert_jobs(ready=1, reserved=0, buried=0)


ELSEWHERE: list[Callable[[Client], Deferred[Any]]] = [
    lambda client: client.use("a"),
    lambda client: client.watch("a"),
    lambda client: client.ignore("a"),
    lambda client: client.reserve_with_timeout(1),
    lambda client: client.reserve_job(1),
    lambda client: client.touch(1),
    lambda client: client.peek_ready(),
    lambda client: client.peek_delayed(),
    lambda client: client.kick_job(1),
    lambda client: client.pause_tube("a", 1),
    lambda client: client.stats_tube("a"),
    lambda client: client.list_tubes(),
    lambda client: client.list_tube_used(),
    lambda client: client.list_tubes_watched(),
]


@pytest.mark.parametrize("call", ELSEWHERE)
def test_any_other_command_raises_at_once_and_nothing_is_sent(
    call: Callable[[Client], Deferred[Any]], beanstalk: Beanstalk
) -> None:
    client = client_of(beanstalk)
    with pytest.raises(errors.NotInDialect, match="there is no such command in protocol v1"):
        call(client)
    beanstalk.settle()
    assert beanstalk.commands == []


def test_what_cannot_be_said_raises_at_once(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    with pytest.raises(ValueError, match="put: protocol v1 cannot say delay"):
        client.put(b"x", delay=1)
    with pytest.raises(ValueError, match="put: protocol v1 cannot say ttr"):
        client.put(b"x", ttr=30)
    with pytest.raises(ValueError, match="put: protocol v1 cannot say tube"):
        client.put(b"x", tube="mail")
    with pytest.raises(ValueError, match="release: protocol v1 cannot say delay"):
        client.release(1, delay=1)
    beanstalk.settle()
    assert beanstalk.commands == []


def test_a_dialect_that_there_is_not_is_refused(beanstalk: Beanstalk) -> None:
    with pytest.raises(ValueError, match="no dialect: 'v2'; there are modern, v1"):
        Client(beanstalk.endpoint, reactor=beanstalk.clock, dialect="v2")
    with pytest.raises(ValueError, match="no dialect: 'v2'; there are modern, v1"):
        Connection(beanstalk.clock, dialect="v2")


def test_a_put_that_is_refused_is_an_error(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.drain()
    assert isinstance(failure(beanstalk, client.put(b"x")), errors.NotInserted)
    beanstalk.restart()
    beanstalk.advance(60)
    assert isinstance(failure(beanstalk, client.put(b"x" * 65_536)), errors.NotInserted)
    assert beanstalk.result(client.put(b"x" * 65_535)) is None


def test_a_new_connection_is_made_and_what_waits_is_sent_in_the_dialect(
    beanstalk: Beanstalk,
) -> None:
    losses: list[Losses] = []
    client = client_of(beanstalk, lost=losses.append)
    beanstalk.put(b"one")
    job = beanstalk.result(client.reserve())
    waiting = client.reserve()
    beanstalk.settle()
    beanstalk.kill()
    assert [each.reservations for each in losses] == [(1,)]
    put = client.put(b"two", priority=9)
    beanstalk.start()
    beanstalk.advance(60)
    assert beanstalk.result(waiting) == job
    assert beanstalk.result(put) is None
    beanstalk.assert_jobs(ready=1, reserved=1)


def test_a_number_that_a_loss_tells_may_be_asked_about(beanstalk: Beanstalk) -> None:
    losses: list[Losses] = []
    client = client_of(beanstalk, lost=losses.append)
    beanstalk.put(b"one")
    beanstalk.result(client.reserve())
    beanstalk.drop_connections()
    beanstalk.advance(60)
    (number,) = losses[0].reservations
    assert beanstalk.result(client.peek(number)) == Job(1, b"one")


def test_a_job_that_comes_for_nobody_is_given_back_with_its_priority(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    waiting = client.reserve()
    beanstalk.settle()
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    beanstalk.put(b"one", priority=77)
    beanstalk.settle()
    beanstalk.assert_job_released(1, priority=77)
    beanstalk.assert_jobs(ready=1, reserved=0)


def test_a_reserve_may_take_the_place_of_one_that_was_cancelled(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    waiting = client.reserve()
    beanstalk.settle()
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    again = client.reserve()
    beanstalk.put(b"one")
    assert beanstalk.result(again) == Job(1, b"one")
    beanstalk.assert_command("reserve", 1)


def test_a_client_that_quits_parts_when_all_is_answered(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    put = client.put(b"one")
    done = client.quit()
    late = client.put(b"two")
    assert beanstalk.result(put) is None
    beanstalk.advance(1)
    assert beanstalk.result(done) is None
    assert isinstance(failure(beanstalk, late), errors.NotCarriedOut)
    assert beanstalk.stats().current_connections == 0
    beanstalk.assert_jobs(ready=1)


def test_a_connection_that_quits_ends(beanstalk: Beanstalk) -> None:
    connection = Connection(beanstalk.clock, dialect="v1")
    beanstalk.endpoint.join(connection)
    waited: list[Deferred[Any]] = [connection.put(b"one"), connection.quit()]
    assert [beanstalk.result(each) for each in waited] == [None, None]
    beanstalk.advance(1)
    assert beanstalk.stats().current_connections == 0


def test_a_quit_whose_connection_is_lost_has_what_it_wanted(beanstalk: Beanstalk) -> None:
    connection = Connection(beanstalk.clock, dialect="v1")
    beanstalk.endpoint.join(connection)
    beanstalk.hold_replies()
    quit_ = connection.quit()
    beanstalk.settle()
    beanstalk.drop_connections()
    assert beanstalk.result(quit_) is None


@pytest.mark.beanstalk(dialect="modern")
def test_a_server_of_the_other_dialect_is_not_understood_and_nothing_is_guessed(
    beanstalk: Beanstalk,
) -> None:
    client = client_of(beanstalk)
    # BAD_FORMAT: the server may read the body as commands, so the connection is not used any more.
    assert isinstance(failure(beanstalk, client.put(b"one")), errors.BadFormat)
    beanstalk.assert_no_jobs()


@pytest.mark.beanstalk(dialect="modern")
def test_a_server_of_the_other_dialect_is_tried_less_and_less_often(beanstalk: Beanstalk) -> None:
    other = Client(beanstalk.endpoint, reactor=beanstalk.clock)
    other.startService()
    beanstalk.result(other.put(b"one"))
    client = client_of(beanstalk)
    waiting = client.reserve()
    beanstalk.advance(60)
    # After 0.1, 0.2, 0.4 seconds and so on, up to 30: without that, 600 times.
    assert 5 <= beanstalk.stats_job(1).reserves <= 12
    waiting.addErrback(lambda failure: None)
    client.stopService()


def test_a_job_keeps_its_priority_unless_another_is_given(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)

    async def script() -> None:
        await client.put(b"one", priority=7)
        await client.release(await client.reserve())
        await client.bury(await client.reserve())
        looked = await client.peek_buried()
        assert isinstance(looked, JobV1) and looked.priority == 7

    beanstalk.run(script())
