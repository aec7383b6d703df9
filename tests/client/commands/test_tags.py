"""Puts with tags: they say whether the job is new, are sent only to a server that knows each of the
tags, and those with a unique key are sent again when a connection is lost.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost

from beanstalk_twisted.client import Inserted, NewJob, Tags, errors, hashed_key
from beanstalk_twisted.client.endpoints import MOST_S
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.testing.memory_server import STARTED_S
from beanstalk_twisted.wire.tags import PutTags
from tests.client.commands.scripts import scripted
from tests.client.test_announcement import PROBE, knows, say
from tests.client.world import Line, World, error, is_waiting, result
from tests.sampling import share

UNIQUE = Tags(unique="k", unique_seconds=60)
ALL = Tags(unique="u", concurrency="c", group="g", after=b"a", metadata="m é%")
NAMES = ("unique", "concurrency", "group", "after")
WORDS = ("put idp:", "put con:", "put grp:", "put aft:", "put meta:")


def test_tags_are_what_stands_on_the_line() -> None:
    assert ALL.for_wire() == PutTags(b"u", 0, b"c", 1, b"g", b"a", b"m%20%C3%A9%25")
    most = Tags(unique="k" * 200, unique_seconds=2**32 - 1, concurrency="c",
                concurrency_limit=2**32 - 1)  # fmt: skip
    assert most.for_wire() == PutTags(b"k" * 200, 2**32 - 1, b"c", 2**32 - 1)
    assert Tags(group="a", after="b") == Tags(group="a", after="b")
    assert len({UNIQUE, UNIQUE, ALL}) == 2


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ({}, ValueError, "there is none; leave them out"),
        *(({name: ""}, ValueError, f"{name} is not ''; it is 1 to 200 letters") for name in NAMES),
        *(({name: b""}, ValueError, f"{name} is not b''; it is 1 to 200") for name in NAMES),
        *(({f"{name}_by": True}, TypeError, f"{name}_by: .*, not True") for name in NAMES),
        *(({f"{name}_by": 0.5}, TypeError, f"{name}_by: .*, not 0.5") for name in NAMES),
        *(
            ({name: "k", f"{name}_by": "k"}, ValueError, f"one of {name} and {name}_by, not both")
            for name in NAMES
        ),
        ({"unique": "", "concurrency": "a"}, ValueError, "unique is not ''"),
        ({"unique_by": "\ud800"}, ValueError, "unique_by: .* is not valid Unicode"),
        ({"group_by": 7, "after_by": 7}, ValueError, "cannot wait for the end of the same group"),
        ({"unique": "k" * 201}, ValueError, "unique is not 'kk"),
        ({"unique": "a:b"}, ValueError, "it is 1 to 200 letters"),
        ({"unique": "ü"}, ValueError, "unique is not 'ü'"),
        ({"group": "a b"}, ValueError, "group is not 'a b'"),
        ({"after": b"-a"}, ValueError, "does not begin with -"),
        ({"concurrency": 7}, TypeError, "concurrency is text or bytes, not 7"),
        ({"unique": "k", "unique_seconds": -1}, ValueError, "is 0 to 4294967295, not -1"),
        ({"unique": "k", "unique_seconds": 0.5}, TypeError, "is a whole number, not 0.5"),
        ({"unique": "k", "unique_seconds": True}, TypeError, "not True"),
        ({"concurrency": "k", "concurrency_limit": 0}, ValueError, "is 1 to 4294967295, not 0"),
        ({"concurrency": "k", "concurrency_limit": 2**32}, ValueError, "is 1 to 4294967295"),
        (
            {"group": "g", "unique_seconds": 1},
            ValueError,
            "unique_seconds needs unique or unique_by",
        ),
        ({"group": "g", "concurrency_limit": 2}, ValueError, "needs concurrency or"),
        ({"metadata": ""}, ValueError, "1 to 1024 bytes when it is percent-encoded, not 0"),
        ({"metadata": "m" * 1025}, ValueError, "not 1025"),
        ({"metadata": b"\xff" * 342}, ValueError, "not 1026"),
        ({"metadata": "\ud800"}, ValueError, "metadata is not valid Unicode"),
        ({"metadata": {"a": 1}}, TypeError, "metadata is text or bytes, not {"),
        ({"group": "g", "after": b"g"}, ValueError, "cannot wait for the end of the same"),
    ],
)
def test_tags_that_cannot_be_are_refused_when_they_are_made(
    values: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=f"tags: .*{said}"):
        Tags(**values)


@pytest.mark.parametrize("value", [bytes(range(256)), b"x" * 1024, 'größe "\\%'.encode()])
def test_metadata_come_back_as_they_were_given(value: bytes) -> None:
    async def script(client: Client) -> None:
        job_id = await client.put(b"a", tags=Tags(metadata=value))
        shown = (await client.stats_job(job_id)).metadata
        (listed,) = (await client.list_jobs("default")).jobs
        assert unquote_to_bytes(shown) == unquote_to_bytes(listed.metadata) == value
        assert (await client.stats_job(await client.put(b""))).get("metadata") is None

    world = World()
    world.run(script(world.client()))


def test_a_batch_with_a_key_is_put_once() -> None:
    async def script(client: Client) -> None:
        first = await client.put_batch([b"a", b"b"], unique="k", unique_seconds=60)
        assert [(each, each.is_new) for each in first] == [(2, True), (3, True)]
        await client.delete(2)
        again = await client.put_batch([b"c"] * 5, unique="k", unique_seconds=60)
        assert [(each, each.state) for each in again] == [(2, "deleted"), (3, "ready")]
        hashed = await client.put_batch([b"d"], unique_by="order:7")
        assert (await client.put_batch([b"e"], unique=hashed_key("order:7"))) == hashed

    world = World()
    world.run(script(world.client()))


@pytest.mark.parametrize(
    ("key", "kind"),
    [({"unique": ""}, ValueError), ({"unique": "a b"}, ValueError), ({"unique": 7}, TypeError),
     ({"unique": "k", "unique_by": 7}, ValueError),
     ({"unique": "k", "unique_seconds": 0}, ValueError),
     ({"unique": "k", "unique_seconds": 2**32}, ValueError),
     ({"unique": "k", "tags": UNIQUE}, ValueError)],
)  # fmt: skip
def test_a_wrong_key_of_a_batch_is_refused_and_nothing_is_sent(
    key: dict[str, Any], kind: type[Exception]
) -> None:
    line = Line()
    with pytest.raises(kind):
        line.connection.put_batch([b"a"], **key)
    assert line.sent() == b""


def test_a_batch_with_a_key_has_no_job_with_a_unique_key() -> None:
    line = Line()
    jobs = [NewJob(b"a", tags=Tags(group="g")), NewJob(b"b", tags=UNIQUE)]
    with pytest.raises(ValueError, match="its jobs have unique keys, so it can have none itself"):
        line.connection.put_batch(jobs, unique_by=7)
    assert line.sent() == b""


def test_values_of_any_kind_are_hashed_into_keys() -> None:
    tags = Tags(unique_by="order:7", concurrency_by=b"\0", group_by=-1, after_by="größe" * 1000)
    assert tags.for_wire() == PutTags(
        hashed_key("order:7").encode(), 0, hashed_key(b"\0").encode(), 1,
        hashed_key(-1).encode(), hashed_key("größe" * 1000).encode(),
    )  # fmt: skip


@scripted
async def test_a_put_says_whether_the_job_is_new(client: Client) -> None:
    first = await client.put(b"a", tube="t", tags=UNIQUE)
    assert isinstance(first, Inserted) and first.is_new
    again = await client.put(b"b", tube="t", delay=9, tags=UNIQUE)
    assert (again, again.is_new, again.state) == (first, False, "ready")
    assert (await client.peek(again)).body == b"a"
    assert (await client.put(b"c", tags=UNIQUE)).is_new  # In another tube.
    later = Tags(unique="later")
    assert (await client.put_at(b"d", STARTED_S + 60, tube="t", tags=later)).is_new
    assert (await client.put_at(b"d", 0, tube="t", tags=later)).state == "delayed"
    await client.watch("t")
    job = await client.reserve_job(first)
    assert (await client.put(b"e", tube="t", tags=UNIQUE)).state == "reserved"
    await client.bury(job)
    assert (await client.put(b"e", tube="t", tags=UNIQUE)).state == "buried"
    await client.delete(first)
    gone = await client.put(b"e", tube="t", tags=UNIQUE)
    assert (gone, gone.state) == (first, "deleted")


@scripted
async def test_jobs_of_a_batch_have_tags_of_their_own_or_those_of_all(client: Client) -> None:
    jobs: list[bytes | NewJob] = [NewJob(b"a", tags=UNIQUE), b"b", NewJob(b"c", tags=UNIQUE)]
    first, second, third = await client.put_batch(jobs, tags=Tags(unique="all"))
    assert (first.is_new, second.is_new, third.state) == (True, True, "ready")
    assert third == first
    assert [each.state for each in await client.put_batch([b"b", b"d"])] == [None, None]
    again = await client.put_batch([b"b"], tags=Tags(unique="all"))
    assert (again[0], again[0].state) == (second, "ready")


# Announced or not.


@pytest.mark.parametrize("missing", WORDS)
def test_each_tag_is_sent_only_to_a_server_that_knows_it(missing: str) -> None:
    line = Line(server="q:1")
    calls: list[Any] = [
        lambda: line.connection.put(b"delete 1", tags=ALL),
        lambda: line.connection.put_at(b"delete 1", 0, tags=ALL),
        lambda: line.connection.put_batch([b"a", NewJob(b"delete 1", tags=ALL)]),
    ]
    asked = [call() for call in calls]
    assert line.sent() == PROBE
    line.say(knows("put-at", "put-batch", *(set(WORDS) - {missing})))
    for each in [*asked, *(call() for call in calls)]:
        refused = error(each, errors.NotAnnounced)
        assert refused.words == (missing,)
        assert str(refused) == (
            f"{refused.command}: not sent: q:1 does not announce '{missing}': tags, which "
            "beanstalkd does not have"
        )
    assert line.sent() == b""
    untagged: list[Deferred[Any]] = [line.connection.put(b"x"), line.connection.put_at(b"x", 0)]
    line.say(b"INSERTED 1\r\n", b"INSERTED 2\r\n")
    assert list(map(result, untagged)) == [1, 2]


def test_only_tags_that_are_used_need_be_known(line: Line) -> None:
    asked = [
        line.connection.put(b"x", tags=Tags(group="g")),
        line.connection.put(b"x", tags=Tags(unique="k", concurrency="c")),
    ]
    line.say(knows("put grp:", "put idp:"))
    assert line.sent() == PROBE + b"put 65536 0 60 1 grp:g\r\nx\r\n"
    assert error(asked[1], errors.NotAnnounced).words == ("put con:",)


# Lost connections.


def test_a_unique_put_is_sent_again_and_finds_the_job_of_the_first_time() -> None:
    world = World(has_log=True)
    client = world.client(probes=True)
    put, batch = client.put(b"x", tags=UNIQUE), client.put_batch([b"y"], tags=Tags(
        unique="b", unique_seconds=60))  # fmt: skip
    plain = client.put(b"z")
    lose_answers(world)
    error(plain, errors.Unanswered)
    world.advance(1)
    assert [(each, each.state) for each in (result(put), *result(batch))] == [
        (1, "ready"), (2, "ready"),
    ]  # fmt: skip
    assert world.losses[0].unanswered[0].command == "put"
    assert world.result(client.stats()).total_jobs == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.put(b"x", tags=Tags(unique="k")),
        lambda client: client.put(b"x", tags=Tags(group="g")),
        lambda client: client.put_at(b"x", 0),
        lambda client: client.put_batch([b"x", NewJob(b"y", tags=UNIQUE)]),
        lambda client: client.put_batch(
            [NewJob(b"x", tags=Tags(unique="a")), NewJob(b"y", tags=UNIQUE)]
        ),
    ],
)
def test_a_put_that_might_make_a_second_job_is_not_sent_again(call: Any, world: World) -> None:
    client = world.client(probes=True)
    put = call(client)
    lose_answers(world)
    error(put, errors.Unanswered)
    world.advance(MOST_S)
    assert world.link.wire.peer is not None
    assert world.result(client.stats()).total_jobs in (1, 2)


def test_a_unique_put_is_not_sent_again_when_its_key_may_be_forgotten(world: World) -> None:
    client = world.client(probes=True)
    short = client.put(b"x", tags=Tags(unique="a", unique_seconds=20))
    long = client.put(b"y", tags=Tags(unique="b", unique_seconds=1000))
    lose_answers(world)
    world.endpoint.is_refusing = True
    world.advance(19)
    assert is_waiting(short)
    world.endpoint.is_refusing = False
    world.advance(MOST_S)
    assert isinstance(error(short, errors.Unanswered).reason, errors.ServerClosed)
    assert result(long).state == "ready"
    assert world.result(client.stats()).cmd_put == 3


def test_a_put_that_was_sent_once_is_never_said_not_to_have_been() -> None:
    for end in (refuse, stop, cancel, another_server):
        world = World()
        client = world.client(probes=True)
        put = client.put(b"x", tags=UNIQUE)
        lose_answers(world)
        assert is_waiting(put)
        end(world, client, put)
        world.settle()
        assert error(put, errors.Unanswered).command == "put", end


def refuse(world: World, client: Client, put: Deferred[Any]) -> None:
    world.result(world.client().drain())
    world.clock.advance(1)
    world.link.transport.drain()
    say(world, b"USING default\r\n", knows(*WORDS), b"DRAINING\r\n")


def stop(world: World, client: Client, put: Deferred[Any]) -> None:
    client.stopService()


def cancel(world: World, client: Client, put: Deferred[Any]) -> None:
    put.cancel()


def another_server(world: World, client: Client, put: Deferred[Any]) -> None:
    world.clock.advance(1)
    world.link.transport.drain()
    say(world, b"USING default\r\n", b"UNKNOWN_COMMAND\r\n")


def test_a_unique_put_that_was_never_sent_is_cancelled_as_any_other(world: World) -> None:
    client = world.client(starts=False)
    put = client.put(b"x", tags=UNIQUE)
    put.cancel()
    error(put, CancelledError)


def lose_answers(world: World) -> None:
    """Let the server carry out what was sent, and end the connection before it can say so."""
    link = world.link
    link.wire.send(link.transport.drain())
    world.server.advance()
    link.transport.end(ConnectionLost())
    world.settle()


@settings(max_examples=share(40), deadline=None)
@given(st.lists(st.integers(0, 120), max_size=12))
def test_one_job_comes_of_a_unique_put_however_often_connections_break(cuts: list[int]) -> None:
    world = World(has_log=True)
    client = world.client(probes=True)
    puts = []
    for at, cut in enumerate(cuts):
        puts.append(client.put(b"%d" % at, tags=Tags(unique=str(at), unique_seconds=10_000)))
        link = world.link
        link.wire.send(link.transport.drain()[:cut])
        world.server.advance()
        link.transport.end(ConnectionLost())
        world.advance(1)
    world.advance(MOST_S)
    assert [int(result(each)) for each in puts] == list(range(1, len(puts) + 1))
    assert world.result(client.stats()).total_jobs == len(puts)
