"""One method for each command, and what it gives."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.methods import AwaitedCommands, Commands
from beanstalk_twisted.client.commands.specs import CommandSpec, Job
from beanstalk_twisted.client.service import Client
from tests.client.commands.scripts import scripted

ALL_METHODS = {
    name: method for name, method in {**vars(Commands), **vars(AwaitedCommands)}.items()
    if inspect.isfunction(method) and name != "send" and not name.startswith("_")
}  # fmt: skip


class Recorder(Commands):
    """Keeps what it is to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[CommandSpec, tuple[Any, ...], bytes | None]] = []

    def send(
        self, spec: CommandSpec, args: tuple[Any, ...] = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        self.sent.append((spec, args, body))
        self.tube = tube
        return Deferred()


@scripted
async def test_all_commands_do_what_they_say_and_give_typed_results(client: Client) -> None:
    assert await client.use("work") == "work"
    assert await client.list_tube_used() == "work"
    assert await client.watch("work") == 2
    assert await client.ignore("default") == 1
    assert await client.list_tubes_watched() == ("work",)
    assert set(await client.list_tubes()) == {"default", "work"}
    first = await client.put(b"first", priority=1)
    later = await client.put(b"later", delay=100, ttr=10)
    assert await client.peek_ready() == Job(first, b"first")
    assert await client.peek_delayed() == Job(later, b"later")
    job = await client.reserve()
    assert job == Job(first, b"first") and job.id == first and job.body == b"first"
    assert (await client.stats_job(job)).state == "reserved"
    await client.touch(job)
    await client.bury(job, priority=9)
    assert await client.peek_buried() == job
    assert await client.kick(10) == 1
    await client.kick_job(later)
    assert await client.reserve_job(later) == Job(later, b"later")
    await client.release(later, priority=3, delay=0)
    assert (await client.stats_job(later)).pri == 3
    assert await client.reserve_with_timeout(0) == Job(later, b"later")
    assert await client.peek(later) == Job(later, b"later")
    await client.delete(later)
    await client.pause_tube("work", 60)
    assert (await client.stats_tube("work")).pause == 60
    assert (await client.stats()).current_jobs_ready == 1
    await client.quit()


@scripted
async def test_errors_are_classes_with_the_job_they_are_about(client: Client) -> None:
    for call in (client.delete, client.release, client.bury, client.touch, client.kick_job,
                 client.peek, client.reserve_job, client.stats_job):  # fmt: skip
        with pytest.raises(errors.NotFound) as raised:
            await call(99)
        assert raised.value.job_id == 99
    with pytest.raises(errors.NotFound):
        await client.pause_tube("none", 1)
    with pytest.raises(errors.NotIgnored):
        await client.ignore("default")
    with pytest.raises(errors.TimedOut):
        await client.reserve_with_timeout(0)
    with pytest.raises(errors.JobTooBig):
        await client.put(bytes(65_536))
    await client.put(b"", ttr=1)
    await client.reserve()
    with pytest.raises(errors.DeadlineSoon):
        await client.reserve()
