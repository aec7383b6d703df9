"""Jobs done in the test itself, and attempts made by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from twisted.internet.defer import succeed

from beanstalk_twisted.tasks import App
from beanstalk_twisted.testing import Beanstalk, BeanstalkServer
from beanstalk_twisted.testing.double import Double
from beanstalk_twisted.worker import (
    Attempt,
    Bury,
    Decided,
    Delete,
    Json,
    Release,
    Retry,
    Return,
    TooManyAttempts,
    Unreadable,
)


@pytest.fixture(params=["beanstalk", "beanstalk_server"])
def double(request: pytest.FixtureRequest) -> Double:
    made: Double = request.getfixturevalue(request.param)
    return made


def test_ready_jobs_are_done_in_their_order_and_others_stay(double: Double) -> None:
    for body, priority, delay in ((b"b", 2, 0), (b"a", 1, 0), (b"late", 0, 9)):
        double.put(body, tube="mail", priority=priority, delay=delay)
    double.put(b"other", tube="news")
    done = double.drain("mail", lambda attempt: attempt.body)
    assert [(each.job, each.result, each.verdict) for each in done] == [
        (2, b"a", Delete()), (1, b"b", Delete()),
    ]  # fmt: skip
    double.assert_jobs("mail", delayed=1)
    double.assert_jobs("news", ready=1)
    double.advance(9)
    assert [each.body for each in double.drain("mail", lambda attempt: None)] == [b"late"]


def decide(verdict: Any) -> Any:
    raise Decided(verdict)


async def gives(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


@pytest.mark.parametrize(
    ("handler", "state"),
    [
        (lambda attempt: Bury(), "buried"), (lambda attempt: decide(Bury(7)), "buried"),
        (lambda attempt: Release(5), "delayed"), (lambda attempt: Return(5), "delayed"),
        (lambda attempt: 1 // 0, "delayed"), (lambda attempt: succeed(Bury()), "buried"),
    ],
)  # fmt: skip
def test_a_job_is_what_its_handler_decides(beanstalk: Beanstalk, handler: Any, state: str) -> None:
    beanstalk.put(b"x", tube="mail", priority=3)
    (done,) = beanstalk.drain("mail", handler)
    (job,) = beanstalk.jobs("mail")
    assert (job.state, done.job) == (state, 1)
    assert job.priority == (7 if isinstance(done.error, Decided) else 3)


def test_a_coroutine_of_asyncio_is_run_also_where_a_loop_runs(
    beanstalk_server: BeanstalkServer,
) -> None:
    async def main() -> list[Any]:
        beanstalk_server.put(b"x", tube="mail")
        return [each.result for each in beanstalk_server.drain("mail", lambda _: gives(7))]

    assert asyncio.run(main()) == [7]
    beanstalk_server.put(b"x", tube="mail")
    assert beanstalk_server.drain("mail", lambda _: gives(8))[0].result == 8


def test_the_policy_and_the_serialiser_are_those_of_a_worker(beanstalk: Beanstalk) -> None:
    for body in (b"7", b"?"):
        beanstalk.put(body, tube="mail")
    policy, seen = Retry(2, first_delay_s=5), []

    def fail(attempt: Attempt) -> None:
        seen.append(attempt.value)
        raise OSError

    first, unreadable = beanstalk.drain("mail", fail, serialiser=Json(), policy=policy)
    assert first.verdict == Release(5) and isinstance(unreadable.error, Unreadable)
    beanstalk.advance(5)
    (last,) = beanstalk.drain("mail", fail, serialiser=Json(), policy=policy)
    assert last.verdict == Bury() and seen == [7, 7]
    beanstalk.put(b"8", tube="killers", ttr=1)
    with beanstalk.connect() as talk:
        talk.ask(b"watch killers\r\nreserve\r\n")
    (early,) = beanstalk.drain("killers", fail, policy=Retry(1))
    assert isinstance(early.error, TooManyAttempts)


def test_a_handler_that_never_ends_a_job_is_noticed(
    beanstalk: Beanstalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beanstalk_twisted.testing.drain.MAX_ATTEMPTS", 5)
    beanstalk.put(b"x", tube="mail")
    with pytest.raises(AssertionError, match="drain has made 5 attempts"):
        beanstalk.drain("mail", lambda attempt: Release())


def test_an_app_over_plain_sockets_is_drained_and_calls_its_own_tasks(
    beanstalk_server: BeanstalkServer,
) -> None:
    app = App()
    app.connect(f"127.0.0.1:{beanstalk_server.port}")
    seen: list[str] = []

    @app.task(tube="mail")
    def send(to: str) -> None:
        seen.append(to)
        if to == "all":
            send.delay("ada")
            post.delay("grace")

    @app.task(tube="news", process=True)
    def post(to: str) -> None:
        seen.append(to)

    send.delay("all")
    assert len(beanstalk_server.drain(app)) == 3
    assert sorted(seen) == ["ada", "all", "grace"]
    app.close()


def test_an_attempt_made_by_hand_has_what_a_handler_asks_for() -> None:
    attempt = Attempt.of("grün", number=3, tube="mail", ttr=9, metadata="a=b;c=d%3B")
    assert (attempt.body, attempt.value, attempt.number) == ("grün".encode(),) * 2 + (3,)
    assert (attempt.tube, attempt.time_left_s()) == ("mail", 9)
    assert attempt.headers == {"a": "b", "c": "d;"}
    assert (attempt.is_cancelled, attempt.touch().called) == (False, True)
    assert Attempt.of(value={"to": "x"}).value == {"to": "x"}
