"""A server is asked once for each connection what it knows, when it matters, and is sent no
more.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost
from twisted.logger import capturedLogs

from beanstalk_twisted.client import Tags, errors
from beanstalk_twisted.client.connection import Connection, connect
from beanstalk_twisted.client.endpoints import MOST_S
from beanstalk_twisted.client.service import Client
from tests.client.world import Line, World, error, is_waiting, result

PROBE = b"capabilities\r\n"
CALLS: dict[str, Any] = {
    "put": lambda to: to.put(b"delete 1", tags=Tags(unique="k", unique_seconds=9)),
    "put-at": lambda to: to.put_at(b"delete 1", 0),
    "put-batch": lambda to: to.put_batch([b"delete 1"]),
    "reserve-batch": lambda to: to.reserve_batch(2),
    "delete-batch": lambda to: to.delete_batch([1, 2]),
    "list-jobs": lambda to: to.list_jobs("default"),
    "flush-tube": lambda to: to.flush_tube("default"),
    "forget-key": lambda to: to.forget_key("t", "k"),
    "wait-job": lambda to: to.wait_job(1, 9),
    "cancel-reserve": lambda to: to.cancel_reserve(),
    "watch <weight>": lambda to: to.watch("t", 3),
    "reserve-mode": lambda to: to.reserve_mode("weighted"),
    "stats-group": lambda to: to.stats_group("g"),
    "move-job": lambda to: to.move_job(1, "t"),
    "update-job": lambda to: to.update_job(1, 0, 0, 1, body=b"delete 1"),
    "kick-dead": lambda to: to.kick_dead("t", 9),
    "tube-policy": lambda to: to.tube_policy("t", {"rate": 5}),
    "list-connections": lambda to: to.list_connections(),
    "drain": lambda to: to.drain(),
    "undrain": lambda to: to.undrain(),
}


def knows(*words: str) -> bytes:
    listed = "".join(["---\n", *(f"- {word}\n" for word in words)]).encode()
    return b"OK %d\r\n%b\r\n" % (len(listed), listed)


def say(world: World, *replies: bytes) -> None:
    for reply in replies:
        world.link.transport.unsent += reply
        world.link.transport.read()


@pytest.mark.parametrize("refusal", [b"UNKNOWN_COMMAND\r\n", b"BAD_FORMAT\r\n", knows("other")])
@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_does_not_know_it_is_only_asked(name: str, refusal: bytes) -> None:
    line = Line(server="queue.example:11300")
    asked = CALLS[name](line.connection)
    assert line.sent() == PROBE
    line.say(refusal)
    refused = error(asked, errors.NotAnnounced)
    assert str(refused).startswith(f"{name}: not sent: queue.example:11300 does not announce")
    assert (refused.command, refused.server) == (name, "queue.example:11300")
    error(CALLS[name](line.connection), errors.NotAnnounced)
    assert line.sent() == b""
    kick = line.connection.kick(1)
    line.say(b"KICKED 0\r\n")
    assert result(kick) == 0


def test_a_server_is_asked_once_and_all_that_is_sent_behind_waits_in_its_order(line: Line) -> None:
    to = line.connection
    use, batch, reserve = to.use("a"), to.put_batch([b"x", b"yz"], tube="b"), to.reserve()
    other, put = to.flush_tube("t"), to.put(b"z")
    assert line.sent() == b"use a\r\n" + PROBE
    assert not to.has_room()
    line.say(b"USING a\r\n", knows("put-batch", "flush-tube"))
    assert line.sent() == (
        b"use b\r\nput-batch 2\r\n65536 0 60 1\r\nx\r\n65536 0 60 2\r\nyz\r\nreserve\r\n"
        b"flush-tube t all\r\nuse a\r\nput 65536 0 60 1\r\nz\r\n"
    )
    line.say(
        b"USING b\r\nINSERTED_BATCH 2\r\nINSERTED 1\r\n", b"INSERTED 2\r\nTIMED_OUT\r\n",
        b"FLUSHED 3\r\nUSING a\r\nINSERTED 4\r\n",
    )  # fmt: skip
    assert (result(use), result(batch), result(other), result(put)) == ("a", (1, 2), 3, 4)
    error(reserve, errors.TimedOut)
    assert to.has_room()
    to.flush_tube("t")
    assert line.sent() == b"flush-tube t all\r\n"


def test_one_question_serves_whoever_asks(line: Line) -> None:
    probe, batch = line.connection.probe(), line.connection.put_batch([b"x"])
    assert line.sent() == PROBE
    line.say(knows("put-batch", "put idp:"))
    assert result(probe) == {"put-batch", "put idp:"}
    assert line.sent().startswith(b"put-batch 1\r\n")
    assert is_waiting(batch)


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_question_that_nobody_waits_for_is_answered_or_asked_anew(
    line: Line, is_sent: bool
) -> None:
    if not is_sent:
        line.connection.pauseProducing()
    probe, batch = line.connection.probe(), line.connection.put_batch([b"x"])
    probe.cancel()
    error(probe, CancelledError)
    line.connection.resumeProducing()
    assert line.sent() == PROBE
    line.say(knows("put-batch"))
    assert line.sent().startswith(b"put-batch 1\r\n")
    assert is_waiting(batch)


def test_a_cancelled_command_is_not_sent_when_the_answer_comes(line: Line) -> None:
    batch, kick = line.connection.put_batch([b"x"]), line.connection.kick(1)
    batch.cancel()
    error(batch, CancelledError)
    line.say(knows("put-batch"))
    assert line.sent() == PROBE + b"kick 1\r\n"
    assert is_waiting(kick)


def test_a_server_that_does_not_answer_the_question_is_asked_again_by_the_next_command() -> None:
    line = Line()
    first, kick = line.connection.drain(), line.connection.kick(1)
    line.say(b"INTERNAL_ERROR\r\n")
    assert "drain: not sent: the server has not said whether it knows this (capabilities: " in str(
        error(first, errors.NotAnnounced)
    )
    assert line.sent() == PROBE + b"kick 1\r\n"
    second = line.connection.drain()
    line.say(b"KICKED 1\r\n", knows("drain"))
    assert result(kick) == 1
    assert line.sent() == PROBE + b"drain\r\n"
    line.say(b"DRAINING\r\n")
    assert result(second) is None


def test_a_connection_that_ends_before_the_answer_has_sent_nothing(line: Line) -> None:
    batch, delete = line.connection.put_batch([b"x"]), line.connection.delete(1)
    line.end(ConnectionLost())
    assert error(batch, errors.NotCarriedOut).command == "put-batch"
    error(delete, errors.NotCarriedOut)


def test_a_client_asks_when_it_needs_to_and_each_later_connection_at_once(world: World) -> None:
    client = world.client()
    assert world.result(client.put(b"x")) == 1
    first = world.link.wire.peer
    assert world.result(client.put_batch([b"y"])) == (2,)
    world.link.transport.end(ConnectionLost())
    batch = client.put_batch([b"z"])
    world.settle()
    client.startService()
    world.clock.advance(MOST_S)
    assert world.link.transport.unread == b"use default\r\n" + PROBE
    assert world.link.wire.peer is not first
    assert world.result(batch) == (3,)
    assert world.result(client.probe()) >= set(CALLS) - {"put"}


def test_a_client_takes_weights_and_mode_to_its_next_connection(world: World) -> None:
    client = world.client()
    asked: list[Any] = [
        client.watch("a", 3), client.watch("b"), client.watch("default", 2), client.watch("c", 9),
        client.watch("c"), client.reserve_mode("weighted-fair"),
    ]  # fmt: skip
    world.settle()
    assert list(map(result, asked)) == [2, 3, 3, 4, 4, "weighted-fair"]
    world.link.transport.end(ConnectionLost())
    reserve = client.reserve()
    world.clock.advance(MOST_S)
    assert world.link.transport.drain() == b"use default\r\n" + PROBE
    say(world, b"USING default\r\n", knows("watch <weight>", "reserve-mode"))
    assert world.link.transport.drain() == (
        b"watch default 2\r\nwatch a 3\r\nwatch b\r\nwatch c\r\nreserve-mode weighted-fair\r\n"
    )
    say(world, b"WATCHING 1\r\nWATCHING 2\r\nWATCHING 3\r\nWATCHING 4\r\n")
    assert world.link.transport.drain() == b""
    say(world, b"USING weighted-fair\r\n")
    assert world.link.transport.drain() == b"reserve\r\n"
    assert is_waiting(reserve)


def test_a_client_does_not_reserve_without_the_weights_that_it_has_chosen(world: World) -> None:
    client = world.client()
    assert world.result(client.watch("a", 3)) == 2
    reserve = client.reserve()
    world.settle()
    world.link.transport.end(ConnectionLost())
    world.clock.advance(MOST_S)
    with capturedLogs() as logs:
        say(world, b"USING default\r\n", b"UNKNOWN_COMMAND\r\n")
    assert [str(each["error"]) for each in logs if "error" in each] == [
        f"watch <weight>: not sent: {world.endpoint!r} does not announce this command, which "
        "beanstalkd does not have"
    ]
    world.clock.advance(0)
    assert world.link.transport.is_closed
    world.advance(MOST_S)
    assert is_waiting(reserve)
    world.result(world.client().put(b"x", tube="a"))
    assert result(reserve).body == b"x"


def test_a_client_finds_another_server_behind_its_address(world: World, client: Client) -> None:
    assert world.result(client.put_batch([b"y"])) == (1,)
    world.link.transport.end(ConnectionLost())
    batch, put = client.put_batch([b"z"]), client.put(b"z")
    world.clock.advance(MOST_S)
    assert world.link.transport.drain() == b"use default\r\n" + PROBE
    say(world, b"USING default\r\nUNKNOWN_COMMAND\r\n")
    error(batch, errors.NotAnnounced)
    assert world.link.transport.drain() == b"put 65536 0 60 1\r\nz\r\n"
    say(world, b"INSERTED 2\r\n")
    assert result(put) == 2


def test_a_client_that_parts_sends_first_what_waits_for_the_answer(world: World) -> None:
    client = world.client()
    batch, quits = client.put_batch([b"x"]), client.quit()
    assert world.result(quits) is None
    assert result(batch) == (1,)


def test_a_client_that_is_stopped_before_the_answer_has_sent_nothing(world: World) -> None:
    client = world.client()
    batch, stopped = client.put_batch([b"x"]), client.stopService()
    assert world.result(stopped) is None
    assert isinstance(error(batch, errors.NotCarriedOut).reason, errors.Closed)
    assert world.result(world.client().stats()).total_jobs == 0


def test_commands_that_wait_for_the_first_connection_have_the_question_ahead_of_them() -> None:
    world = World()
    client = world.client(starts=False)
    reserve, cancel = client.reserve(), client.cancel_reserve()
    client.startService()
    assert world.link.transport.unread == b"use default\r\n" + PROBE
    world.settle()
    error(reserve, errors.TimedOut)
    assert result(cancel) is None


def test_an_error_names_the_server_as_the_application_does(world: World) -> None:
    made: Any = connect(world.endpoint, reactor=world.clock)
    connection: Connection = world.result(made)
    connection.dataReceived = lambda data: Connection.dataReceived(  # type: ignore[method-assign]
        connection, b"UNKNOWN_COMMAND\r\n"
    )
    drain = connection.drain()
    world.settle()
    assert error(drain, errors.NotAnnounced).server == repr(world.endpoint)
