"""What is said, whichever client says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from beanstalk_twisted.client import Inserted, Job, NewJob, Tags, errors

PLAIN: list[Callable[[Any], Any]] = []
"""Of the commands that beanstalkd has."""

EXTENDED: list[Callable[[Any], Any]] = []


def plain(conversation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PLAIN.append(conversation)
    return conversation


def extended(conversation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    EXTENDED.append(conversation)
    return conversation


@plain
async def tubes(client: Any) -> None:
    assert await client.use("work") == "work"
    assert await client.list_tube_used() == "work"
    assert await client.watch("work") == 2
    assert await client.ignore("default") == 1
    assert await client.list_tubes_watched() == ("work",)
    assert "work" in await client.list_tubes()
    with pytest.raises(errors.NotIgnored):
        await client.ignore("work")
    await client.pause_tube("work", 60)
    assert (await client.stats_tube("work")).pause == 60


@plain
async def the_life_of_a_job(client: Any) -> None:
    number = await client.put(b"one\r\ntwo", tube="life", priority=7, ttr=100)
    assert isinstance(number, Inserted) and number.is_new and number.state is None
    await client.watch("life")
    job = await client.reserve()
    assert job == Job(number, b"one\r\ntwo")
    await client.touch(job)
    await client.release(job, priority=3, delay=1000)
    assert (await client.stats_job(job)).state == "delayed"
    await client.kick_job(job)
    job = await client.reserve_with_timeout(0)
    await client.bury(job, priority=9)
    await client.use("life")
    assert await client.peek_buried() == job
    assert (await client.stats_job(job)).pri == 9
    assert await client.kick(10) == 1
    assert await client.peek_ready() == await client.peek(number)
    assert await client.reserve_job(number) == job
    await client.delete(job)
    with pytest.raises(errors.NotFound) as raised:
        await client.delete(number)
    assert (raised.value.command, raised.value.job_id) == ("delete", number)
    assert not raised.value.may_be_done
    with pytest.raises(errors.TimedOut):
        await client.reserve_with_timeout(0)


@plain
async def the_tube_in_use_is_not_that_of_one_put(client: Any) -> None:
    await client.use("mine")
    await client.put(b"there", tube="other")
    await client.put(b"here")
    assert await client.list_tube_used() == "mine"
    assert (await client.peek_ready()).body == b"here"


@plain
async def bodies_of_any_size(client: Any) -> None:
    limit = (await client.stats()).max_job_size
    for size in (0, 1, 65_000, limit):
        number = await client.put(bytes(size), tube="sizes")
        assert len((await client.peek(number)).body) == size
    with pytest.raises(errors.JobTooBig):
        await client.put(bytes(limit + 1), tube="sizes")
    await client.put(b"after", tube="sizes")


@plain
async def wrong_arguments(client: Any) -> None:
    wrongs: list[Callable[[], Any]] = [
        lambda: client.put("text"), lambda: client.put(b"", priority=-1),
        lambda: client.put(b"", tube="no tube"), lambda: client.put(b"", tags="tags"),
        lambda: client.put(b"", tags=Tags(unique="a"), unique="b"), lambda: client.watch(""),
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises((TypeError, ValueError)):
            await wrong()
    assert await client.list_tube_used() == "default"


@plain
async def deadline_soon(client: Any) -> None:
    await client.put(b"", ttr=1)
    await client.reserve()
    with pytest.raises(errors.DeadlineSoon):
        await client.reserve_with_timeout(10)


@extended
async def tags(client: Any) -> None:
    first = await client.put(b"a", unique_by="welcome-42@example.org", metadata="x y")
    again = await client.put(b"b", tags=Tags(unique_by="welcome-42@example.org"))
    assert (first, first.is_new) == (again, True)
    assert (again.is_new, again.state) == (False, "ready")
    assert (await client.stats_job(first))["metadata"] == "x%20y"


@extended
async def batches(client: Any) -> None:
    ids = await client.put_batch([b"1", NewJob(b"2", priority=0)], tube="batch", unique="b1")
    assert await client.put_batch([b"other"], tube="batch", unique="b1") == ids
    await client.watch("batch")
    jobs = await client.reserve_batch(5)
    assert [job.body for job in jobs] == [b"2", b"1"]
    done = await client.delete_batch(jobs)
    assert (done.deleted, done.not_found) == (2, 0)
    assert await client.reserve_batch(5) == ()


@extended
async def lists_and_moves(client: Any) -> None:
    numbers = [await client.put(b"%d" % number, tube="from") for number in range(5)]
    page = await client.list_jobs("from", limit=2)
    assert [job.id for job in page.jobs] == numbers[:2] and page.cursor
    await client.move_job(numbers[0], "to")
    await client.update_job(numbers[0], 1, 2, 3, body=b"new")
    assert (await client.peek(numbers[0])).body == b"new"
    assert await client.flush_tube("from") == 4
    await client.tube_policy("to", {"max-jobs": 1})
    with pytest.raises(errors.OutOfMemory):
        await client.put(b"", tube="to")
    assert (await client.tube_policy("to")).max_jobs == 1
    await client.cancel_job(numbers[0])


@extended
async def what_it_announces(client: Any) -> None:
    assert {"put-batch", "put idp:", "cancel-reserve"} <= await client.probe()
    assert (await client.list_connections())[0].using == "default"
    with pytest.raises(errors.NotFound):
        await client.stats_group("none")
