"""A client that stays connected."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.logger import LogEvent, capturedLogs, formatEvent
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import FIRST_S, MOST_S, SERVER_LOG, Backoff
from beanstalk_twisted.client.service import Client
from tests.client.world import World, error, is_waiting, result


def lose(world: World) -> None:
    world.link.transport.end(ConnectionRefusedError())
    world.settle()


def come_back(world: World) -> None:
    world.advance(MOST_S)


# Starting.


def heard(events: Sequence[LogEvent]) -> list[tuple[str, str]]:
    return [
        (each["log_level"].name, str(formatEvent(each)).partition(" ")[0]) for each in events
        if each["log_namespace"] == SERVER_LOG
    ]  # fmt: skip


def test_a_server_that_is_not_there_is_told_once_and_once_when_it_is(world: World) -> None:
    world.endpoint.is_refusing = True
    with capturedLogs() as events:
        client = world.client()
        world.advance(100)
    assert heard(events) == [("warn", "no")]
    message = str(formatEvent(next(each for each in events if each["log_namespace"] == SERVER_LOG)))
    assert "refused" in message and message.endswith("retrying")
    world.endpoint.is_refusing = False
    with capturedLogs() as events:
        come_back(world)
    assert heard(events) == [("info", "connected")]
    with capturedLogs() as events:
        lose(world)
        come_back(world)
    assert heard(events) == []  # It was there at the first try.
    world.result(client.stopService())


def test_one_that_accepts_and_hangs_up_is_told_too(world: World) -> None:
    with capturedLogs() as events:
        client = world.client(starts=False)
        client.startService()
        for _ in range(3):
            world.link.transport.end(ConnectionDone())
            world.clock.advance(MOST_S)
    assert heard(events) == [("warn", "no")]
    world.result(client.stopService())


def test_a_client_may_be_silent_about_it(world: World) -> None:
    world.endpoint.is_refusing = True
    with capturedLogs() as events:
        world.client(logs=False)
        world.advance(100)
    assert heard(events) == []


@pytest.mark.parametrize("name", ["stopService", "quit", "hang_up"])
@pytest.mark.parametrize("is_refusing", [True, False])
def test_who_is_told_of_a_server_may_part_at_once(
    name: str, is_refusing: bool, world: World
) -> None:
    world.endpoint.is_refusing = is_refusing
    client = world.client(starts=False)

    async def script() -> bool:
        try:
            await client.whenConnected(failAfterFailures=1)
            return True
        except ConnectionRefusedError:
            return False
        finally:
            await getattr(client, name)()

    told = Deferred.fromCoroutine(script())
    client.startService()
    assert world.result(told) is not is_refusing


# Losing a connection.


def test_tubes_are_restored_before_anything_else_is_sent(world: World, client: Client) -> None:
    world.result(client.use("a"))
    for tubes in (client.watch("a"), client.watch("b"), client.ignore("default")):
        world.result(tubes)
    lose(world)
    put, reserve = client.put(b"x"), client.reserve()
    assert is_waiting(put)
    come_back(world)
    assert result(put) == 1
    assert result(reserve).body == b"x"
    assert world.result(client.list_tube_used()) == "a"
    watched = world.result(client.list_tubes_watched())
    assert set(watched) == {"a", "b"}
    assert world.connects == 2


def test_a_tube_is_listed_by_its_name_whatever_that_looks_like(world: World) -> None:
    client = world.client()
    names = ("default", "2026-11-29", "1e3", "null", "a")
    for name in names[1:]:
        world.result(client.watch(name))
    assert world.result(client.list_tubes()) == names
    assert world.result(client.list_tubes_watched()) == names


def test_what_may_have_been_done_is_told_and_not_sent_again() -> None:
    world = World(has_log=True)
    client = world.client()
    job = world.result(client.put(b"x"))
    world.result(client.reserve())
    world.link.wire.cut_off()
    calls: dict[str, Any] = {
        "put": client.put(b"y"), "delete": client.delete(job), "touch": client.touch(job),
        "kick": client.kick(1), "pause-tube": client.pause_tube("default", 1),
    }  # fmt: skip
    world.settle()
    world.kill()
    lose(world)
    for name, call in calls.items():
        unanswered = error(call, errors.Unanswered)
        assert unanswered.command == name
        assert "may have been carried out or not" in str(unanswered)
    (losses,) = world.losses
    assert losses.reservations == (job,)
    assert [each.command for each in losses.unanswered] == list(calls)
    assert isinstance(losses.reason, ConnectionRefusedError)
    world.restart()
    come_back(world)
    stats = world.result(client.stats())
    assert (stats.cmd_put, stats.cmd_delete, stats.cmd_kick) == (0, 0, 0)


def test_a_server_that_restarts_with_jobs_in_flight_gives_them_again() -> None:
    world = World(has_log=True)
    client = world.client()
    ids = [world.result(client.put(b"%d" % number)) for number in range(3)]
    held = [world.result(client.reserve()) for _ in range(3)]
    world.result(client.delete(held[0]))
    world.kill()
    assert world.losses[0].reservations == tuple(ids[1:])
    world.restart()
    come_back(world)
    error(client.touch(held[1]), errors.ReservationLost)
    assert world.result(client.stats()).current_jobs_ready == 2
    assert world.result(client.reserve()) == held[1]


ENDINGS = pytest.mark.parametrize("name", ["delete", "release", "bury", "touch"])


@ENDINGS
def test_a_job_of_a_lost_connection_is_never_taken_for_another_of_its_number(name: str) -> None:
    world = World(has_log=False)
    client = world.client()
    world.result(client.put(b"mine"))
    mine = world.result(client.reserve())
    world.kill()
    while_away = getattr(client, name)(mine)
    world.restart()
    come_back(world)
    assert world.result(client.put(b"somebody else's")) == mine.id
    theirs = world.result(client.reserve())
    for asked in while_away, getattr(client, name)(mine):
        assert error(asked, errors.ReservationLost).job_id == mine.id
    assert world.result(client.stats_job(mine.id)).state == "reserved"
    world.result(getattr(client, name)(theirs))


@ENDINGS
def test_what_was_not_sent_of_a_job_is_not_sent_on_the_next_connection(name: str) -> None:
    world = World(has_log=True, max_job_bytes=1 << 20, segment_bytes=1 << 22)
    client = world.client()
    world.result(client.put(b"mine"))
    mine = world.result(client.reserve())
    put, behind = client.put(b"x" * 500_000), getattr(client, name)(mine)
    assert 0 < len(world.link.transport.unread) < 500_000
    world.peer.send(bytes(world.link.transport.unread))
    world.link.transport.unread.clear()
    world.kill()
    error(behind, errors.NotCarriedOut)
    world.restart()
    come_back(world)
    assert result(put) and world.result(client.stats_job(mine.id)).state == "ready"


def test_the_number_of_a_lost_job_deletes_it_all_the_same() -> None:
    world = World(has_log=True)
    client = world.client()
    world.result(client.put(b"mine"))
    mine = world.result(client.reserve())
    world.kill()
    world.restart()
    come_back(world)
    world.result(client.delete(mine.id))
    assert world.result(client.stats()).current_jobs_ready == 0


def test_a_server_that_goes_in_mid_command_has_perhaps_got_it() -> None:
    world = World(has_log=True)
    client = world.client()
    put, delete = client.put(b"x"), client.delete(1)
    world.peer.send(world.link.transport.drain()[:20])
    world.kill()
    error(put, errors.Unanswered)
    error(delete, errors.Unanswered)
    world.restart()
    come_back(world)
    assert world.result(client.stats()).current_jobs_ready == 0


def test_a_body_that_was_not_sent_whole_is_sent_again_and_so_is_what_follows_it() -> None:
    world = World(has_log=True, max_job_bytes=1 << 20, segment_bytes=1 << 22)
    client = world.client()
    world.result(client.use("a"))
    body = bytes(range(250)) * 2000
    put, later = client.put(body), client.put(b"later")
    assert 0 < len(world.link.transport.unread) < len(body)
    world.peer.send(bytes(world.link.transport.unread))
    world.link.transport.unread.clear()
    world.kill()
    assert is_waiting(put) and is_waiting(later)
    world.restart()
    come_back(world)
    assert world.result(client.peek(result(put))).body == body
    assert world.result(client.peek(result(later))).body == b"later"
    assert world.result(client.stats_job(result(later))).tube == "a"
    assert world.result(client.stats()).current_jobs_ready == 2


def test_what_waits_for_the_next_connection_can_still_be_cancelled() -> None:
    world = World(max_job_bytes=1 << 20)
    client = world.client()
    put, later = client.put(bytes(500_000)), client.put(b"later")
    world.link.transport.unread.clear()
    lose(world)
    assert is_waiting(put) and is_waiting(later)
    put.cancel()
    error(put, CancelledError)
    come_back(world)
    assert world.result(client.stats()).total_jobs == 1
    assert world.result(client.peek(result(later))).body == b"later"


def test_what_has_no_answer_can_be_cancelled_when_the_loss_is_told(world: World) -> None:
    sent: list[Deferred[Any]] = []
    endpoint = cast(Any, world.endpoint)
    client = Client(endpoint, reactor=world.clock, lost=lambda losses: sent[0].cancel())
    client.startService()
    world.settle()
    sent += [client.put(b"1"), client.put(b"2")]
    lose(world)
    error(sent[0], CancelledError)
    error(sent[1], errors.Unanswered)


def test_tubes_that_were_asked_for_but_not_confirmed_are_asked_for_again_in_order() -> None:
    world = World()
    client = world.client()
    world.link.wire.cut_off()
    use, lost, other_use = client.use("a"), client.put(b"lost"), client.use("b")
    forgotten = client.use("c")
    forgotten.cancel()
    error(forgotten, CancelledError)
    world.settle()
    lose(world)
    put = client.put(b"x")
    error(lost, errors.Unanswered)
    come_back(world)
    assert (result(use), result(other_use)) == ("a", "b")
    assert world.result(client.stats_job(result(put))).tube == "c"


def test_reserves_and_looks_survive_a_lost_connection(world: World, client: Client) -> None:
    world.link.wire.cut_off()
    calls: list[Deferred[Any]] = [
        client.stats(), client.list_tubes(), client.list_tube_used(), client.peek_ready(),
        client.reserve_with_timeout(0),
    ]  # fmt: skip
    lose(world)
    job = client.put(b"x")
    come_back(world)
    error(calls.pop(), errors.TimedOut)
    error(calls.pop(), errors.NotFound)
    assert [call.called for call in calls] == [True] * 3
    assert result(job) == 1
    assert world.losses[0].unanswered == ()


def test_a_cancelled_reserve_is_not_sent_again(world: World, client: Client) -> None:
    reserve = client.reserve()
    world.settle()
    reserve.cancel()
    error(reserve, CancelledError)
    lose(world)
    come_back(world)
    assert world.result(client.stats()).current_waiting == 0
    assert world.losses[0].unanswered == ()


def test_a_half_open_connection_is_given_up_and_another_one_made(world: World) -> None:
    client = world.client(grace_s=5)
    world.result(client.watch("a"))
    world.link.wire.cut_off()
    put, reserve = client.put(b"x"), client.reserve()
    world.advance(4.9)
    assert is_waiting(put)
    world.advance(0.2)
    assert isinstance(error(put, errors.Unanswered).reason, errors.ServerSilent)
    come_back(world)
    assert world.connects == 2
    assert is_waiting(reserve)
    other = world.client()
    world.result(other.put(b"y"))
    assert result(reserve).body == b"y"


def test_a_server_of_another_protocol_is_tried_less_and_less_often() -> None:
    world, connects = World(), []

    def surprise() -> None:
        connects.append(world.clock.seconds())
        world.link.transport.unsent += b"SURPRISE\r\n"

    backoff = Backoff(lambda: 1.0)
    client = Client(world.endpoint, reactor=world.clock, backoff=backoff, connected=surprise)
    client.startService()
    waiting = client.reserve()
    world.advance(60)
    # After 0.1, 0.2, 0.4 seconds and so on, up to 30; without the backoff it would be 600 times.
    assert 5 <= len(connects) <= 12
    assert is_waiting(waiting)


def test_an_application_that_fails_when_told_harms_nobody(clean_reactor: list[Failure]) -> None:
    def fail(*_: object) -> None:
        raise KeyError("mine")

    world = World()
    client = Client(world.endpoint, reactor=world.clock, connected=fail, lost=fail)
    client.startService()
    world.settle()
    lose(world)
    come_back(world)
    assert world.result(client.put(b"x")) == 1
    assert [failure.type for failure in clean_reactor] == [KeyError] * 3
    clean_reactor.clear()


def test_a_server_that_has_answered_is_soon_tried_again(world: World) -> None:
    world.client()
    for _ in range(3):
        world.endpoint.is_refusing = True
        lose(world)
        world.advance(100)
        world.endpoint.is_refusing = False
        come_back(world)
        lost_s = world.clock.seconds()
        lose(world)
        come_back(world)
        assert world.endpoint.tries[-1] - lost_s == pytest.approx(FIRST_S, abs=0.001)


# A server that cannot be used.


def test_a_server_that_hangs_up_each_time_is_tried_less_and_less_often(world: World) -> None:
    world.client()
    original = world.endpoint.connect

    def hang_up(factory: Any) -> Any:
        made = original(factory)
        world.clock.callLater(0, world.link.transport.end, ConnectionRefusedError())
        world.link.wire.cut_off()
        return made

    world.endpoint.connect = hang_up  # type: ignore[method-assign]
    lose(world)
    start = len(world.endpoint.tries)
    world.advance(300)
    tries = world.endpoint.tries[start:]
    waits = [later - sooner for sooner, later in pairwise(tries)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(MOST_S, abs=0.01)
    assert len(waits) < 20


def test_a_peer_that_is_no_beanstalkd_is_never_sent_a_job(world: World) -> None:
    world.endpoint.is_refusing = True
    client = world.client()
    put = client.put(b"secret")
    world.endpoint.is_refusing = False
    original = world.endpoint.connect

    def speak_http(factory: Any) -> Any:
        made = original(factory)
        world.link.wire.cut_off()
        world.link.transport.unsent += b"HTTP/1.1 400 Bad Request\r\n"
        assert b"secret" not in world.link.transport.unread
        world.clock.callLater(0, world.link.transport.read)
        return made

    world.endpoint.connect = speak_http  # type: ignore[method-assign]
    world.advance(5)
    assert len(world.links) >= 2 and world.connects == 0
    assert is_waiting(put)
    world.result(client.stopService())
    error(put, errors.NotCarriedOut)


def test_a_server_that_cannot_restore_the_tubes_is_not_used(world: World, client: Client) -> None:
    world.result(client.use("a"))
    lose(world)
    put = client.put(b"x")
    original = world.endpoint.connect

    def refuse_once(factory: Any) -> Any:
        made = original(factory)
        world.endpoint.connect = original  # type: ignore[method-assign]
        assert world.link.transport.drain() == b"use a\r\n"
        world.link.transport.unsent += b"OUT_OF_MEMORY\r\n"
        world.clock.callLater(0, world.link.transport.read)
        return made

    world.endpoint.connect = refuse_once  # type: ignore[method-assign]
    come_back(world)
    assert len(world.links) == 3 and world.connects == 2
    assert world.result(client.stats_job(result(put))).tube == "a"


@pytest.mark.parametrize("probes", [True, False])
def test_a_server_is_asked_what_it_announces_when_it_matters(probes: bool, world: World) -> None:
    client = world.client(starts=False, probes=probes)
    client.startService()
    assert (b"\ncapabilities\r\n" in world.link.transport.unread) == probes
    assert world.result(client.put(b"x")) == 1
    assert world.connects == 1


# SpaceBudget.


def test_room_waits_for_a_connection(world: World) -> None:
    client = world.client(starts=False)
    room = client.room()
    world.settle()
    assert is_waiting(room)
    client.startService()
    assert world.result(room) is None
    assert result(client.room()) is None
    lose(world)
    room = client.room()
    assert is_waiting(room)
    come_back(world)
    assert result(room) is None


def test_room_is_not_there_before_all_tubes_are_restored(world: World, client: Client) -> None:
    world.result(client.use("a"))
    world.result(client.watch("b"))
    lose(world)
    room = client.room()
    original = world.endpoint.connect

    def answer_half(factory: Any) -> Any:
        made = original(factory)
        assert world.link.transport.drain() == b"use a\r\nwatch b\r\n"
        world.clock.callLater(0, world.link.transport._protocol.dataReceived, b"USING a\r\n")
        return made

    world.endpoint.connect = answer_half  # type: ignore[method-assign]
    world.advance(1)
    assert len(world.links) == 2
    assert is_waiting(room)
    world.link.transport._protocol.dataReceived(b"WATCHING 2\r\n")
    assert result(room) is None


def test_what_waits_for_a_connection_has_a_limit(world: World) -> None:
    world.endpoint.is_refusing = True
    client = world.client()
    body = bytes(16 << 20)
    taken = [client.put(body) for _ in range(4)]
    error(client.put(b""), errors.Overfull)
    taken[-1].cancel()
    error(taken.pop(), CancelledError)
    taken.append(client.put(b""))
    assert all(map(is_waiting, taken))
    world.result(client.stopService())
    for put in taken:
        error(put, errors.NotCarriedOut)


# Stopping.


def test_stopping_fails_what_waits_and_what_has_no_answer(world: World, client: Client) -> None:
    world.link.wire.cut_off()
    sent, reserve = client.put(b"x"), client.reserve()
    world.settle()
    stopped = client.stopService()
    world.settle()
    assert world.result(stopped) is None
    for call in (sent, reserve):
        assert isinstance(error(call, errors.Unanswered).reason, errors.Closed)
    error(client.put(b"y"), errors.NotCarriedOut)
    error(client.room(), errors.Closed)
    assert world.losses == []
    assert not world.clock.getDelayedCalls()


def test_stopping_without_a_connection_fails_what_waits(world: World) -> None:
    world.endpoint.is_refusing = True
    client = world.client()
    put, room, forgotten = client.put(b"x"), client.room(), client.put(b"y")
    forgotten.cancel()
    error(forgotten, CancelledError)
    assert world.result(client.stopService()) is None
    error(put, errors.NotCarriedOut)
    error(room, errors.Closed)
    assert not world.clock.getDelayedCalls()


def test_a_stopped_client_can_be_started_again(world: World, client: Client) -> None:
    world.result(client.use("a"))
    world.result(client.stopService())
    client.startService()
    job = world.result(client.put(b"x"))
    assert world.result(client.stats_job(job)).tube == "a"


def test_quit_hears_all_answers_and_stops(world: World, client: Client) -> None:
    puts = [client.put(b"%d" % number) for number in range(5)]
    quit = client.quit()
    late = client.put(b"late")
    error(late, errors.NotCarriedOut)
    assert world.result(quit) is None
    assert [result(put) for put in puts] == [1, 2, 3, 4, 5]
    come_back(world)
    assert len(world.links) == 1 and not client.running


@pytest.mark.parametrize("how", ["quit", "stopService"])
def test_a_client_that_has_stopped_may_be_told_to_start_or_stop_at_once(how: str) -> None:
    world = World()
    client = world.client()
    stopped = getattr(client, how)()
    stopped.addCallback(lambda _: client.stopService())
    stopped.addCallback(lambda _: client.startService())
    world.result(stopped)
    assert world.result(client.put(b"x")) == 1


def test_stopping_while_the_tubes_are_restored_leaves_nothing_behind(world: World) -> None:
    client = world.client(starts=False)
    put = client.put(b"x")
    client.startService()
    stopped = client.stopService()
    greeted = world.link.transport._protocol
    greeted.dataReceived(b"USING default\r\n")
    world.settle()
    assert result(stopped) is None
    error(put, errors.NotCarriedOut)
    assert world.connects == 0
    assert not world.clock.getDelayedCalls()
