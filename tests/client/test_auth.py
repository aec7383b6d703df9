"""Tokens: shown on each connection before anything else, and never told to anybody else."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.connection import Connection, connect
from beanstalk_twisted.client.endpoints import MOST_S, SERVER_LOG, way_to
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.service import Client
from tests.client.world import Line, World, error, is_waiting, result
from tests.server.access.meeting import OTHER_TOKEN, TOKEN, InlineHashing, rules

SECRET = TOKEN.decode()
WRONG = SECRET[:-1] + "x"


def guarded(world: World) -> None:
    """Let the server ask for rights from now on."""
    held = rules(it={"admin": "*"}, other={"look": "*"})
    world.server.service.require_access(held, InlineHashing())


def test_a_client_shows_its_token_on_each_connection_before_anything_else(world: World) -> None:
    guarded(world)
    client = world.client(token=SECRET)
    client.watch("mail")
    assert world.result(client.put(b"x", tube="mail")) == 1
    world.link.transport.end(ConnectionResetError())
    world.settle()
    again = client.put(b"y", tube="mail")
    world.advance(MOST_S)
    assert (result(again), world.connects) == (2, 2)


def test_a_job_waits_for_the_answer_to_the_token(line: Line) -> None:
    shown, put = line.connection.auth(SECRET), line.connection.put(b"x")
    assert line.sent().startswith(b"auth " + TOKEN + b"\r\n")
    line.say(b"AUTHORIZED\r\n")
    assert result(shown) is None and is_waiting(put)


def test_a_client_whose_token_is_nobodys_sends_nothing_else_and_says_so_without_it() -> None:
    world = World()
    guarded(world)
    client = world.client(token=WRONG, starts=False)
    with capturedLogs() as events:
        client.startService()
        world.settle()
        assert not world.server.service.queue.state.jobs
        for _ in range(3):
            put = client.put(b"x")
            assert is_waiting(put)
            world.advance(MOST_S)
            assert "auth: UNAUTHORIZED: the token is nobody's" in str(
                error(put, errors.Unauthorized)
            )
    text = "\n".join(f"{formatEvent(event)} {event}" for event in events)
    told = [event for event in events if event["log_namespace"] == SERVER_LOG]
    assert len(told) == 1 and "UNAUTHORIZED" in str(formatEvent(told[0])) and WRONG not in text


def test_whoever_waits_when_the_token_is_refused_is_told_so_at_once(world: World) -> None:
    guarded(world)
    client = world.client(token=WRONG, starts=False)
    again: list[Deferred[Any]] = []
    puts: list[Deferred[Any]] = [
        client.put(b"x"),
        client.put(b"y"),
        client.reserve(),
        client.use("t"),
    ]
    puts[1].addErrback(lambda _: again.append(client.put(b"z")))
    room = client.room()
    client.startService()
    world.settle()
    for each in (puts[0], puts[2], puts[3], room):
        error(each, errors.Unauthorized)
    assert is_waiting(again[0])
    world.result(client.stopService())
    error(again[0], errors.NotCarriedOut)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_wrong_token_is_a_failure_to_connect(failures: int, world: World) -> None:
    guarded(world)
    client = world.client(token=WRONG, starts=False)
    told: list[object] = []
    connected = client.whenConnected(failAfterFailures=failures).addErrback(told.append)
    client.startService()
    world.settle()
    assert len(told) == (failures == 1)
    world.advance(MOST_S)
    world.settle()
    assert connected.called and "UNAUTHORIZED" in str(told)
    stopped = client.stopService()
    world.settle()
    assert result(stopped) is None


def test_whoever_waits_for_a_connection_waits_for_the_token_to_be_taken(world: World) -> None:
    guarded(world)
    client = world.client(token=WRONG, starts=False)
    told: list[object] = []
    connected = client.whenConnected().addBoth(told.append)
    client.startService()
    world.settle()
    assert not told
    client._continuity.token = SECRET
    world.advance(MOST_S)
    world.settle()
    assert result(connected) is None
    assert told == [client._ready] == [world.result(client.whenConnected(1))]
    assert world.result(client.put(b"x")) == 1


def test_a_client_that_is_stopped_has_nobody_wait_for_the_answer_to_its_token(world: World) -> None:
    client = world.client(token=WRONG, starts=False)
    connected = client.whenConnected()
    client.startService()
    stopped = client.stopService()
    world.settle()
    error(connected, CancelledError)
    assert result(stopped) is None


def test_a_connection_that_ends_before_the_answer_to_the_token_is_a_failure(world: World) -> None:
    client = world.client(token=SECRET, starts=False)
    client.startService()
    connected = client.whenConnected(failAfterFailures=1)
    world.link.transport.end(ConnectionResetError())
    world.settle()
    error(connected, ConnectionResetError)
    put = client.put(b"x")
    world.advance(MOST_S)
    assert result(put) == 1


def test_a_token_that_is_taken_again_has_the_client_go_on(world: World) -> None:
    guarded(world)
    client = world.client(token=SECRET)
    assert world.result(client.put(b"x")) == 1
    access = world.server.service.access
    assert access is not None
    access.change_rules(rules(other={}))
    world.link.transport.end(ConnectionResetError())
    world.settle()
    lost = client.put(b"y")
    world.advance(MOST_S)
    error(lost, errors.Unauthorized)
    access.change_rules(rules(it={"admin": "*"}))
    put = client.put(b"z")
    world.advance(MOST_S)
    world.advance(MOST_S)
    assert result(put) == 2


def test_what_it_has_no_right_to_is_an_error_of_its_own(world: World) -> None:
    guarded(world)
    client = world.client(token=OTHER_TOKEN.decode())
    put = client.put(b"x")
    world.settle()
    assert "no right to this" in str(error(put, errors.Unauthorized))
    assert world.result(client.list_tubes()) == ("default",)


def test_a_server_that_trusts_everybody_takes_any_token(world: World) -> None:
    client = world.client(token=SECRET)
    assert world.result(client.put(b"x")) == 1


def test_another_token_may_be_shown_on_a_connection(world: World) -> None:
    guarded(world)
    connection = world.connection()
    world.settle()
    refused = connection.put(b"x")
    world.settle()
    error(refused, errors.Unauthorized)
    world.result(connection.auth(SECRET))
    assert world.result(connection.put(b"x")) == 1
    wrong = connection.auth("nonsense")
    world.settle()
    error(wrong, errors.Unauthorized)
    assert world.result(connection.put(b"x")) == 2


@pytest.mark.parametrize("token", ["", "a b", "a\r\nquit", "é", "x" * 201])
def test_what_can_be_no_token_is_not_sent_and_not_shown(token: str, line: Line) -> None:
    with pytest.raises(ValueError, match="auth: token is 1 to 200 characters") as caught:
        line.connection.auth(token)
    assert not token or token not in str(caught.value)
    assert line.sent() == b""


def test_an_address_may_have_a_token_in_it() -> None:
    way = way_to(Clock(), "beanstalk://:a%40b@[::1]:7")
    assert (way.name, way.token, f"{way}") == ("[::1]:7", "a@b", "<Way [::1]:7>")


@pytest.mark.parametrize(
    "text", ["", "name:secret@host", ":secret@", ":@host", ":secret@host/path"]
)
def test_a_wrong_address_is_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="no server: write") as caught:
        Client(f"beanstalk://{text}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "x" * 201])
def test_a_token_that_cannot_be_is_refused_when_a_client_is_made(token: str) -> None:
    for make in (Client, lambda where, **options: Pool([where], **options)):
        with pytest.raises(ValueError, match="1 to 200 characters of ASCII") as caught:
            make("127.0.0.1:1", reactor=World().clock, token=token)
        assert token in ("", " ") or token not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"grace_s": float("nan")}, ValueError), ({"grace_s": float("inf")}, ValueError),
        ({"grace_s": -1}, ValueError), ({"grace_s": True}, TypeError),
        ({"grace_s": None}, TypeError),
    ],
)  # fmt: skip
def test_a_time_that_cannot_be_is_refused_when_a_client_is_made(
    options: dict[str, Any], kind: type[Exception]
) -> None:
    for make in (Client, lambda where, **options: Pool([where], ["t"], **options)):
        with pytest.raises(kind, match="grace_s is"):
            make("127.0.0.1:1", reactor=World().clock, **options)


def test_the_token_of_an_address_is_in_no_name_of_the_server(world: World) -> None:
    client = Client(f"beanstalk://:{SECRET}@127.0.0.1:1", reactor=world.clock)
    assert SECRET not in repr(vars(client._logged_endpoint))


def test_the_client_for_several_servers_shows_it_on_all_its_connections(world: World) -> None:
    guarded(world)
    clock: Any = world.clock
    pool = Pool([Server(world.endpoint, "one")], ["t"], reactor=clock, token=SECRET)
    pool.startService()
    world.settle()
    put = world.result(pool.put("t", b"x"))
    taken = world.result(pool.reserve())
    assert (put.id, taken.id, len(world.links)) == (1, 1, 2)
    stopped = pool.stopService()
    world.settle()
    assert result(stopped) is None


def test_the_client_for_several_servers_does_not_show_it_to_others() -> None:
    pool = Pool([f"beanstalk://:{SECRET}@127.0.0.1:1"], ["t"], reactor=World().clock)
    assert pool.split.server_of("t") == "tcp:127.0.0.1:1"
    assert SECRET not in repr([vars(each) for each in (pool, *pool._members.values())])


@pytest.mark.parametrize("is_right", [True, False])
def test_a_single_connection_is_there_when_its_token_was_taken(is_right: bool) -> None:
    world = World()
    guarded(world)
    token = SECRET if is_right else "nonsense"
    made: Deferred[Connection] = connect(world.endpoint, reactor=world.clock, token=token)
    world.settle()
    if is_right:
        assert getattr(result(made), "is_open")  # noqa: B009
    else:
        error(made, errors.Unauthorized)
