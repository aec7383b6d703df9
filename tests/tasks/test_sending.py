"""Connections over which plain Python puts jobs."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from beanstalk_twisted.client.errors import ClientError
from beanstalk_twisted.client.sync import Client
from beanstalk_twisted.tasks import App, NotDone, Result, TaskFailed
from beanstalk_twisted.tasks.results import REPLIES, reply_tags
from beanstalk_twisted.testing import Beanstalk, BeanstalkServer


def test_each_thread_and_each_child_of_a_fork_has_a_connection_of_its_own(
    beanstalk_server: BeanstalkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(beanstalk_server.endpoint)
    task = app.task(tube="mail")(len)
    both = Barrier(2)

    def call(number: int) -> int:
        ids = [task.delay(f"{number}").id for _ in range(5)]
        both.wait()
        app.close()
        return len(ids)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(call, range(2))) == [5, 5]
    beanstalk_server.assert_job_put(10)
    puts = {each.connection for each in beanstalk_server.commands if each.name == "put"}
    assert len(puts) == 2
    task.delay("here")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    task.delay("in a child")
    puts = {each.connection for each in beanstalk_server.commands if each.name == "put"}
    assert len(puts) == 4
    app.close()


@pytest.mark.parametrize("client", ["sync", "aio"])
def test_what_twisted_alone_can_use_is_refused_at_once(beanstalk: Beanstalk, client: Any) -> None:
    app: Any = App(client=client)
    for servers, options in (
        ((beanstalk.endpoint,), {}), ((), {"reactor": beanstalk.clock}),
        ((beanstalk.endpoint,), {"reactor": beanstalk.clock}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f'for App.client="twisted".; this app has .*{client}'):
            app.connect(*servers, **options)


def test_a_server_that_comes_back_is_found_again(beanstalk_server: BeanstalkServer) -> None:
    app = App(beanstalk_server.endpoint)
    task = app.task(tube="mail")(len)
    task.delay("first")
    beanstalk_server.kill()
    with pytest.raises(ClientError):
        task.delay("lost")
    beanstalk_server.start()
    task.delay("second")
    assert [each.body for each in beanstalk_server.jobs("mail")] == [
        b'{"task":"len","args":["first"]}', b'{"task":"len","args":["second"]}',
    ]  # fmt: skip
    app.close()


def waited(client: str, result: Any, seconds: float) -> Any:
    return result.wait(seconds) if client == "sync" else asyncio.run(in_loop(result, seconds))


async def in_loop(result: Any, seconds: float) -> Any:
    return await result.wait(seconds)


@pytest.mark.beanstalk(clock="real")
@pytest.mark.parametrize("client", ["sync", "aio"])
def test_a_result_is_waited_for_over_a_restart_of_the_server(
    beanstalk_server: BeanstalkServer, client: Any
) -> None:
    app = App(beanstalk_server.endpoint)
    task = app.task(tube="mail", result=True)(len)
    results: list[Any] = [task.delay("ada"), task.delay("grace")]
    if client == "aio":
        other: Any = App(beanstalk_server.endpoint, client="aio")
        wait = partial(other._sender._wait, app.servers[0])
        results = [Result(job, True, partial(wait, [], REPLIES, job)) for job in (1, 2)]
    app.close()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(waited, client, results[0], 60)
        beanstalk_server.wait_until(lambda: beanstalk_server.counts()["wait-job"] > 0)
        beanstalk_server.kill()
        beanstalk_server.start()
        with Client(beanstalk_server.endpoint) as worker:
            worker.put(b'{"result":3}', tube=REPLIES, tags=reply_tags(1))
            worker.delete(1)
        assert waiting.result(60) == 3
    beanstalk_server.kill()
    with pytest.raises(NotDone, match=r"job 2 has not ended within 0\.1 s"):
        waited(client, results[1], 0.1)


@pytest.mark.beanstalk(clock="real")
@pytest.mark.parametrize("reply", [b'{"result":3}', b'{"error":"OSError: full"}'])
def test_all_who_wait_for_a_result_get_it_together_and_later(
    beanstalk_server: BeanstalkServer, reply: bytes
) -> None:
    app = App(beanstalk_server.endpoint)
    result = app.task(tube="mail", result=True)(len).delay("ada")

    def wait() -> object:
        try:
            return result.wait(60)
        except TaskFailed as failed:
            return str(failed)

    with ThreadPoolExecutor(6) as threads:
        waiting = [threads.submit(wait) for _ in range(6)]
        beanstalk_server.wait_until(lambda: beanstalk_server.counts()["wait-job"] == 6)
        with Client(beanstalk_server.endpoint) as worker:
            worker.put(reply, tube=REPLIES, tags=reply_tags(result.id))
            worker.delete(result.id)
        got = {each.result(60) for each in waiting}
    beanstalk_server.assert_no_jobs()
    beanstalk_server.kill()
    assert got == {wait()} and got < {3, "OSError: full"}
    app.close()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, None])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout is"):
        Result(1, True, lambda seconds: None).wait(seconds)
