"""One method for each command that beanstalkd does not have, and what it gives."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, cast

import pytest

from beanstalk_twisted.client import Job, NewJob, Tags, errors
from beanstalk_twisted.client.commands.specs import SPECS, BatchDeleted
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.testing.memory_server import STARTED_S
from beanstalk_twisted.wire.replies import MAX_WHY_BYTES, CannotHandOver
from tests.client.commands.scripts import scripted
from tests.client.commands.test_methods import ALL_METHODS, Recorder
from tests.client.world import World, error, is_waiting, result

CALLED = {"capabilities": "probe", "watch-weighted": "watch", "put-tagged": "put"}
"""Methods that are not called as their operations."""

OPTIONAL = ("weight", "tags", "body", "standby")
SAMPLES: dict[str, Any] = {
    "body": b"b", "jobs": [7], "tube": "t", "job": 7, "seconds": 3, "count": 5, "unix_seconds": 9,
    "weight": 3, "mode": "weighted", "tags": Tags(group="g"), "group": "g", "priority": 1,
    "delay": 2, "ttr": 3, "bound": 4, "key": "k", "token": "bst_x", "standby": "b:11300",
}  # fmt: skip


def method_of(operation: str) -> str:
    return CALLED.get(operation, operation.replace("-", "_"))


def test_every_method_has_a_spec() -> None:
    assert set(ALL_METHODS) == {*map(method_of, SPECS), "each_job"}


@pytest.mark.parametrize("name", SPECS)
def test_a_method_sends_its_own_command_with_its_own_fields(name: str) -> None:
    method = ALL_METHODS[method_of(name)]
    samples = SAMPLES | ({"jobs": [b"b"]} if name == "put-batch" else {})
    given = OPTIONAL if SPECS[name].is_extended else ()
    wanted = {
        each.name: samples[each.name] for each in inspect.signature(method).parameters.values()
        if each.name not in ("self", "tag_values")
        and (each.default is each.empty or each.name in given)
    }  # fmt: skip
    sender = Recorder()
    method(sender, **wanted)
    ((spec, args, body),) = sender.sent
    assert spec is SPECS[name]
    assert spec.line(args).startswith(spec.row.prefix)
    assert (body is not None) == (spec.row.has_jobs or spec.row.has_body)
    if spec.row.has_body:
        assert args[-1] == len(samples["body"])


@scripted
async def test_jobs_are_put_reserved_and_deleted_in_batches(client: Client) -> None:
    ids = await client.put_batch([b"a", NewJob(b"\r\n", priority=1), b""], priority=5, ttr=9)
    assert ids == (1, 2, 3)
    stats = await client.stats_job(1)
    assert (stats.tube, stats.pri, stats.ttr) == ("default", 5, 9)
    jobs = await client.reserve_batch(2)
    assert jobs == (Job(2, b"\r\n"), Job(1, b"a"))
    assert await client.reserve_batch(9, 0) == ((3, b""),)
    assert await client.reserve_batch(9) == await client.reserve_batch(9, 0) == ()
    assert await client.peek_reserved() == Job(1, b"a")
    await client.release(jobs[0])
    assert await client.delete_batch([*jobs, 3, 99]) == BatchDeleted(3, 1)
    await client.put(b"", ttr=1)
    await client.reserve()
    with pytest.raises(errors.DeadlineSoon):
        await client.reserve_batch(1, 9)


@scripted
async def test_a_batch_goes_into_the_tube_it_names_and_no_other_put_does(client: Client) -> None:
    await client.use("used")
    batch = client.put_batch([b"a", b"b"], tube="named", delay=9)
    put, at = client.put(b"c"), client.put_at(b"d", STARTED_S + 60, tube="named")
    (first, _), used, later = await batch, await put, await at
    assert (await client.stats_job(first)).tube == "named"
    assert (await client.stats_job(used)).tube == "used"
    stats = await client.stats_job(later)
    assert (stats.tube, stats.state, stats.delay) == ("named", "delayed", 60)
    for past in (0, -315_619_200):
        assert (await client.stats_job(await client.put_at(b"", past))).state == "ready"
    assert await client.list_tube_used() == "used"


@scripted
async def test_a_batch_is_refused_as_a_whole_and_the_connection_goes_on(client: Client) -> None:
    with pytest.raises(errors.JobTooBig, match="of the tube's policy, or all together"):
        await client.put_batch([b"a", bytes(65_536), b"b"])
    with pytest.raises(errors.BadFormat, match="the moment is more than 4,294,967,295 s"):
        await client.put_at(b"a", STARTED_S + (1 << 32) + 1)
    await client.drain()
    with pytest.raises(errors.Draining):
        await client.put_batch([b"a"])
    with pytest.raises(errors.Draining):
        await client.put_at(b"a", 0)
    assert (await client.stats()).draining is True
    await client.undrain()
    assert await client.put(b"a") > 0
    assert (await client.stats()).current_jobs_ready == 1


@scripted
async def test_jobs_are_listed_page_by_page_and_flushed(client: Client) -> None:
    ids = await client.put_batch([b"x" * size for size in range(7)], tube="t")
    await client.put_batch([b""] * 2, tube="t", delay=50)
    first = await client.list_jobs("t", "ready", 3)
    assert [(job.id, job.size, job.state) for job in first.jobs] == [
        (number, size, "ready") for size, number in enumerate(ids[:3])
    ]
    second = await client.list_jobs("t", "ready", 3, first.cursor)
    last = await client.list_jobs("t", "ready", 3, second.cursor)
    assert [job.id for job in (*second.jobs, *last.jobs)] == list(ids[3:])
    assert last.cursor is None
    assert (await client.list_jobs("t", "buried")) == ((), None)
    await client.watch("t")
    await client.reserve()
    (held,) = (await client.list_jobs("t", "reserved")).jobs
    (connection,) = await client.list_connections()
    assert held.connection == connection.connection
    assert connection.time_left == {held.id: 60}
    assert (connection.role, connection.reserved) == ("producer worker", 1)
    assert await client.flush_tube("t", "delayed") == 2
    assert await client.flush_tube(b"t") == 6
    with pytest.raises(errors.NotFound) as raised:
        await client.list_jobs("none")
    assert raised.value.tube == "none"
    assert await client.flush_tube("none") == await client.flush_buried("none") == 0
    await client.bury(held.id)
    assert await client.flush_buried("t") == 1
    with pytest.raises(errors.NotFound):
        await client.peek_reserved()


@scripted
async def test_all_jobs_of_a_tube_are_walked_over_all_pages(client: Client) -> None:
    ids = [
        number for _ in range(3) for number in await client.put_batch([b""] * 700, tube="t")
    ]  # fmt: skip
    assert [job.id async for job in client.each_job("t")] == ids
    assert [job.id async for job in client.each_job("t", "ready")] == ids
    assert [job async for job in client.each_job("t", "buried")] == []


def test_a_producer_hears_what_its_job_came_to(world: World) -> None:
    producer, worker = world.client(), world.client()
    done, failed = world.result(producer.put_batch([b"a", b"b"]))
    waits = producer.wait_job(done, 60)
    world.settle()
    first, second = world.result(worker.reserve_batch(2))
    world.result(worker.delete(first))
    assert result(waits) == "deleted"
    waits = producer.wait_job(failed, 60)
    world.settle()
    assert is_waiting(waits)
    world.result(worker.bury(second))
    assert result(waits) == "buried" == world.result(producer.wait_job(second, 0))
    world.settle()
    gone = producer.wait_job(done, 1)
    world.settle()
    assert error(gone, errors.NotFound).job_id == done
    world.result(worker.kick_job(failed))
    late = producer.wait_job(failed, 1)
    world.advance(1)
    assert error(late, errors.TimedOut).job_id == failed


@scripted
async def test_tubes_are_chosen_by_their_weights(client: Client) -> None:
    for tube in ("a", "b"):
        await client.put_batch([tube.encode()] * 40, tube=tube, priority=ord(tube))
    assert await client.watch("a", 3) == 2
    assert await client.watch(b"b", weight=1) == 3
    assert await client.watch("b") == 3
    assert (await client.list_connections())[0].mode == "fifo"
    assert await client.reserve_mode("weighted") == "weighted"
    assert (await client.list_connections())[0].mode == "weighted"
    jobs = await client.reserve_batch(40)
    assert [job.body for job in jobs].count(b"a") == 30


@scripted
async def test_a_job_is_moved_and_updated(client: Client) -> None:
    tags = Tags(unique="k", unique_seconds=9, concurrency="c", group="g", after="a")
    number = await client.put(b"a", tags=tags)
    other = await client.put(b"b", tube="t", tags=Tags(unique="k"))
    with pytest.raises(errors.Duplicate) as raised:
        await client.move_job(number, "t")
    assert raised.value.job_id == other
    await client.move_job(number, "u")
    stats = await client.stats_job(number)
    assert (stats.tube, stats.origin, stats.group) == ("u", "default", "g")
    assert (stats.idempotency_key, stats.idempotency_ttl, stats.after_group) == ("k", 9, "a")
    assert (stats.concurrency_key, stats.concurrency_limit) == ("c", 1)
    assert "dead-from" not in stats
    (listed,) = (await client.list_jobs("u")).jobs
    assert (listed.id, listed.origin) == (number, "default")
    await client.watch("u")
    job = await client.reserve()
    await client.update_job(job, 5, 0, 70)
    stats = await client.stats_job(job)
    assert (stats.state, stats.pri, stats.ttr) == ("reserved", 5, 70)
    await client.update_job(job, 5, 0, 70, body=b"longer\r\n")
    assert (await client.peek(job)).body == b"longer\r\n"
    with pytest.raises(errors.JobTooBig):
        await client.update_job(job, 5, 0, 70, body=bytes(65_536))
    await client.move_job(job, "default")
    assert (await client.stats_job(job)).state == "ready"
    assert await client.kick_dead("default", 9) == 0
    for call in (client.move_job(99, "t"), client.update_job(99, 0, 0, 1, body=b"x")):
        with pytest.raises(errors.NotFound) as raised_too:
            await call
        assert raised_too.value.job_id == 99


@scripted
async def test_the_policy_of_a_tube_is_shown_and_changed(client: Client) -> None:
    assert dict(await client.tube_policy("t") or {}) == {}
    policy: dict[str, int | str | None] = {
        "max-reserves": 1,
        "dead-letter": "d",
        "rate": "500:1000",
    }
    assert await client.tube_policy("t", policy) is None
    shown = await client.tube_policy("t")
    assert shown is not None
    assert (shown.max_reserves, shown.dead_letter, shown.rate) == (1, "d", "500:1000")
    assert shown.rate_from == "command"
    await client.tube_policy("t", {"rate": None})
    assert "rate" not in (await client.tube_policy("t") or {})
    number = await client.put(b"x", tube="t")
    await client.watch("t")
    await client.release(await client.reserve())
    stats = await client.stats_job(number)
    assert (stats.tube, stats.state, stats.dead_from) == ("d", "buried", "t")
    assert stats.dead_reason == "release" and stats.dead_at > 0
    assert await client.kick_dead("t", 9) == 1
    assert (await client.stats_job(number)).state == "ready"
    with pytest.raises(errors.BadFormat, match="no such key, or the key cannot have this"):
        await client.tube_policy("t", {"max-reserves": 0})
    await client.tube_policy("t", {"max-jobs": 0, "max-job-size": 1})
    with pytest.raises(errors.OutOfMemory, match="a limit is reached: of the tube's policy"):
        await client.put(b"1", tube="t")
    with pytest.raises(errors.JobTooBig, match="of the server, or of the tube's policy; not"):
        await client.put(b"12", tube="t")


@scripted
async def test_a_group_says_who_is_in_it_and_who_waits(client: Client) -> None:
    first, second = await client.put_batch([b"a", b"b"], tags=Tags(group="g"))
    await client.put(b"last", tags=Tags(after="g"))
    await client.reserve_job(first)
    await client.bury(first)
    stats = await client.stats_group("g")
    assert (stats.name, stats.pending, stats.buried, stats.waiting_jobs) == ("g", 2, 1, 1)
    assert (stats.ready, stats.reserved, stats.delayed) == (1, 0, 0)
    assert stats.complete is False
    await client.delete_batch([first, second])
    assert (await client.reserve()).body == b"last"
    with pytest.raises(errors.NotFound):
        await client.stats_group(b"g")


def test_jobs_of_a_connection_that_has_ended_are_not_deleted_with_others(world: World) -> None:
    client = world.client()
    world.result(client.put_batch([b"a", b"b", b"c"]))
    lost = world.result(client.reserve_batch(2))
    world.link.transport.end(ConnectionError())
    world.advance(30)
    held = world.result(client.reserve_batch(1))
    mixed: list[list[Job | int]] = [[*lost], [*held, *lost], [*lost, 99]]
    for jobs in mixed:
        error(client.delete_batch(jobs), errors.ReservationLost)
    assert world.result(client.delete_batch([*held, 3])) == (2, 0)
    connection = world.connection()
    error(connection.delete_batch(lost), errors.ReservationLost)
    for call in (connection.move_job(lost[0], "t"), connection.update_job(lost[0], 0, 0, 1)):
        error(call, errors.ReservationLost)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda to: to.put("text"), TypeError), (lambda to: to.put(b"", priority=-1), ValueError),
        (lambda to: to.put(b"", ttr=0.5), TypeError), (lambda to: to.use("ü"), ValueError),
        (lambda to: to.use(""), ValueError), (lambda to: to.delete("7"), TypeError),
        (lambda to: to.watch("a b"), ValueError), (lambda to: to.kick(1 << 32), ValueError),
        (lambda to: to.put_batch([]), ValueError), (lambda to: to.put_batch(b"ab"), TypeError),
        (lambda to: to.put_batch([b""] * 1001), ValueError),
        (lambda to: to.put_batch(["a"]), TypeError),
        (lambda to: to.put_batch([b"a", NewJob(b"b", delay=-1)]), ValueError),
        (lambda to: to.put_batch(NewJob(b"a")), TypeError),
        (lambda to: to.put_batch([b"a"], tube="ü"), ValueError),
        (lambda to: to.put_at("a", 0), TypeError), (lambda to: to.put_at(b"", 0.5), TypeError),
        (lambda to: to.put_at(b"", 0, tube=""), ValueError),
        (lambda to: to.delete_batch([]), ValueError), (lambda to: to.delete_batch(b"1"), TypeError),
        (lambda to: to.delete_batch(Job(1, b"")), TypeError),
        (lambda to: to.delete_batch(["1"]), TypeError),
        (lambda to: to.reserve_batch(0), ValueError),
        (lambda to: to.reserve_batch(1, 0.5), TypeError),
        (lambda to: to.list_jobs("t", "any"), ValueError),
        (lambda to: to.list_jobs("t", limit=1001), ValueError),
        (lambda to: to.list_jobs("t", cursor="a b"), ValueError),
        (lambda to: to.flush_tube("t", "reserved"), ValueError),
        (lambda to: to.put(b"", tags="idp:k"), TypeError),
        (lambda to: to.put("", tags=Tags(group="g")), TypeError),
        (lambda to: to.put(b"", tags=Tags(group="g"), delay=-1), ValueError),
        (lambda to: to.put_at(b"", 0, tags={"group": "g"}), TypeError),
        (lambda to: to.put_batch([NewJob(b"", tags=cast(Any, "g"))]), TypeError),
        (lambda to: to.stats_group(""), ValueError), (lambda to: to.stats_group("a b"), ValueError),
        (lambda to: to.stats_group(None), TypeError), (lambda to: to.stats_group(7), TypeError),
        (lambda to: to.move_job(1, "a b"), ValueError),
        (lambda to: to.move_job("1", "t"), TypeError),
        (lambda to: to.update_job(1, 0, 0, 1, body="text"), TypeError),
        (lambda to: to.update_job(1, -1, 0, 1), ValueError),
        (lambda to: to.tube_policy("t", {}), ValueError),
        (lambda to: to.tube_policy("t", {"max-jobs": True}), TypeError),
        (lambda to: to.tube_policy("t", True), TypeError),
        (lambda to: to.tube_policy("t", {"max-jobs": 1.5}), TypeError),
        (lambda to: to.tube_policy("t", {"max-jobs": ""}), ValueError),
        (lambda to: to.tube_policy("t", {"rate": "5 max-age=1"}), ValueError),
        (lambda to: to.tube_policy("t", {"Rate": 5}), ValueError),
        (lambda to: to.kick_dead("t", -1), ValueError),
        (lambda to: to.kick_dead("", 1), ValueError),
        (lambda to: to.wait_job("7", 1), TypeError), (lambda to: to.watch("t", 0), ValueError),
        (lambda to: to.watch("t", 1001), ValueError), (lambda to: to.watch("t", 1.0), TypeError),
        (lambda to: to.watch("t u", 2), ValueError),
        (lambda to: to.reserve_mode("lifo"), ValueError),
    ],
)  # fmt: skip
def test_wrong_arguments_raise_at_once_and_nothing_is_sent(call: Any, kind: type) -> None:
    world = World()
    connection = world.connection()
    with pytest.raises(kind):
        call(connection)
    assert not world.link.transport.unread
    assert world.result(connection.put_batch([b"still in step"])) == (1,)


def test_why_nobody_is_handed_over_to_is_read_however_long_the_server_makes_it() -> None:
    world = World()
    client = world.client()
    for size in (205, 206, 400, MAX_WHY_BYTES, MAX_WHY_BYTES + 1):
        world.server.service.queue.hand_over = partial(_refuse, "y" * size)
        answer = client.promote()
        world.settle()
        refused = error(answer, errors.CannotHandOver)
        assert str(refused) == f"promote: {'y' * min(size, MAX_WHY_BYTES)}"
    assert world.losses == []


def _refuse(why: str, name: str) -> CannotHandOver:
    return CannotHandOver(why)
