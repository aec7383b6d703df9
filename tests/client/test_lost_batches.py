"""A connection that is lost in the middle of a batch: what the Deferred fails with says whether the
command may have been carried out, and what is sent again changes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import MOST_S
from beanstalk_twisted.client.service import Client
from tests.client.test_announcement import knows
from tests.client.world import Line, World, error, is_waiting, result

CHANGES: dict[str, Callable[[Any], Deferred[Any]]] = {
    "put-at": lambda to: to.put_at(b"x", 0), "put-batch": lambda to: to.put_batch([b"x", b"y"]),
    "delete-batch": lambda to: to.delete_batch([1, 2]), "flush-tube": lambda to: to.flush_tube("t"),
    "drain": lambda to: to.drain(), "undrain": lambda to: to.undrain(),
}  # fmt: skip
LOOKS: dict[str, Callable[[Any], Deferred[Any]]] = {
    "reserve-batch": lambda to: to.reserve_batch(2), "wait-job": lambda to: to.wait_job(1, 9),
    "list-jobs": lambda to: to.list_jobs("t"), "cancel-reserve": lambda to: to.cancel_reserve(),
    "list-connections": lambda to: to.list_connections(),
}  # fmt: skip
BOTH = CHANGES | LOOKS


def told() -> Line:
    line = Line()
    line.connection.probe()
    line.say(knows(*BOTH))
    line.sent()
    return line


def ready() -> tuple[World, Client]:
    world = World(max_job_bytes=1 << 20)
    client = world.client(probes=True)
    return world, client


def lose(world: World, through: int) -> None:
    """Break the connection, with so many bytes of what was sent arriving, and no answer."""
    link = world.link
    link.wire.peer.send(bytes(link.transport.unread[:through]))
    link.transport.unread.clear()
    link.transport.end(ConnectionLost())
    world.settle()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("put-batch", b"INSERTED_BATCH 2\r\nINSERTED 1\r\n"),
        ("reserve-batch", b"RESERVED_BATCH 2\r\nRESERVED 1 1\r\nx\r\nRESERVED 2 3\r\ny"),
        ("delete-batch", b"DELETED_BATCH 1"), ("list-jobs", b"OK 99\r\n---\njobs:\n- id: 1\n"),
    ],
)  # fmt: skip
def test_part_of_an_answer_is_none(name: str, part: bytes) -> None:
    line = told()
    asked = BOTH[name](line.connection)
    line.say(part)
    assert is_waiting(asked)
    line.end(ConnectionLost())
    error(asked, errors.Unanswered)


@pytest.mark.parametrize("name", CHANGES)
def test_a_client_does_not_send_again_what_changes_something(name: str) -> None:
    world, client = ready()
    asked = CHANGES[name](client)
    lose(world, 10_000)
    assert error(asked, errors.Unanswered).command == name
    assert [type(each) for each in world.losses[0].unanswered] == [errors.Unanswered]
    world.advance(MOST_S)
    assert world.result(client.stats()).total_jobs == {"put-at": 1, "put-batch": 2}.get(name, 0)


@pytest.mark.parametrize("name", LOOKS)
def test_a_client_sends_again_what_changes_nothing(name: str) -> None:
    world, client = ready()
    world.result(client.put(b"a", tube="t"))
    world.result(client.put(b"b"))
    asked = LOOKS[name](client)
    lose(world, 10_000)
    assert is_waiting(asked) and not world.losses[0].unanswered
    world.advance(MOST_S)
    if name == "reserve-batch":
        (job,) = result(asked)
        assert world.result(client.stats_job(job)).reserves == 2
        assert world.result(client.delete(job)) is None
    elif name == "wait-job":
        error(asked, errors.TimedOut)
    else:
        result(asked)


@pytest.mark.parametrize("through", [0, 1, 40, 100_000, 200_050])
def test_a_batch_that_was_sent_in_part_is_put_whole_by_the_next_connection(through: int) -> None:
    world, client = ready()
    batch = client.put_batch([bytes(100_000), bytes(100_000), b"last" * 20_000])
    lose(world, through)
    assert is_waiting(batch)
    world.advance(MOST_S)
    (first, _, last) = result(batch)
    assert world.result(client.peek(last)).body == b"last" * 20_000
    assert world.result(client.stats()).total_jobs == 3 == last - first + 1


def test_a_batch_that_was_sent_in_part_on_a_plain_connection_was_not_carried_out() -> None:
    line = told()
    batch = line.connection.put_batch([bytes(100_000), bytes(100_000)])
    line.end(ConnectionLost())
    assert error(batch, errors.NotCarriedOut).command == "put-batch"


def test_an_answer_before_the_end_of_a_batch_ends_the_connection() -> None:
    line = told()
    batch, kick = line.connection.put_batch([bytes(100_000)] * 3), line.connection.kick(1)
    line.say(b"BAD_FORMAT\r\n")
    line.part()
    error(batch, errors.BadFormat)
    assert line.transport.is_closed
    assert isinstance(error(kick, errors.NotCarriedOut).reason, errors.BadReply)


@pytest.mark.parametrize("word", [b"UNKNOWN_COMMAND", b"INTERNAL_ERROR"])
@pytest.mark.parametrize("name", ["put-at", "put-batch"])
def test_a_server_that_may_take_a_body_for_commands_is_left(name: str, word: bytes) -> None:
    line = told()
    asked, kick = BOTH[name](line.connection), line.connection.kick(1)
    line.say(word + b"\r\nKICKED 1\r\n")
    line.part()
    error(asked, errors.ErrorReply)
    assert isinstance(error(kick, errors.Unanswered).reason, errors.BadReply)


@pytest.mark.parametrize("name", ["put-at", "put-batch"])
def test_one_that_has_announced_it_drops_the_body_behind_a_wrong_line(name: str) -> None:
    line = told()
    asked, kick = BOTH[name](line.connection), line.connection.kick(1)
    line.say(b"BAD_FORMAT\r\nKICKED 1\r\n")
    error(asked, errors.BadFormat)
    assert result(kick) == 1


def test_reservations_of_a_lost_batch_are_told_and_those_deleted_are_not() -> None:
    world, client = ready()
    world.result(client.put_batch([b"a", b"b", b"c"]))
    jobs = world.result(client.reserve_batch(3))
    world.result(client.delete_batch([jobs[1], 77]))
    lose(world, 0)
    assert world.losses[0].reservations == (1, 3)


def test_a_long_flush_is_waited_for_and_not_for_ever() -> None:
    line = told()
    flush = line.connection.flush_tube("t")
    line.clock.advance(600)
    assert is_waiting(flush)
    line.clock.advance(31)
    line.part()
    assert isinstance(error(flush, errors.Unanswered).reason, errors.ServerSilent)
