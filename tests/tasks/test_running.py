"""A worker for the tasks of an app, against the server's own rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from beanstalk_twisted.client.errors import NotAnnounced
from beanstalk_twisted.tasks import (
    App,
    Cron,
    NotDone,
    ResultLost,
    TaskFailed,
    current_attempt,
)
from beanstalk_twisted.tasks.results import MAX_ERROR, REPLIES
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.worker import Bury, Decided, Delete, Release, Unreadable
from tests.tasks.world import NESTED, Office


def test_a_task_is_called_with_its_arguments_and_knows_its_attempt(beanstalk: Beanstalk) -> None:
    office, seen = Office(beanstalk), []

    @office.app.task(tube="mail")
    def send(to: str, *, n: int = 1) -> int:
        seen.append((to, n, current_attempt().number))
        return n

    assert office.result(send.delay("ada", n=3)).id == 1
    office.start()
    assert seen == [("ada", 3, 1)]
    beanstalk.assert_job_deleted()
    with pytest.raises(LookupError, match="no task runs here"):
        current_attempt()


def test_to_call_a_task_runs_it_here(beanstalk: Beanstalk) -> None:
    @App().task(tube="mail")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    beanstalk.assert_no_jobs()


def test_one_worker_does_the_tasks_of_all_tubes_each_with_its_policy(beanstalk: Beanstalk) -> None:
    office, done = Office(beanstalk), []

    @office.app.task(tube="mail", retries=1, backoff="5")
    def send(to: str) -> None:
        done.append((to, current_attempt().number))
        raise OSError(to)

    @office.app.task(tube="news", retries=0)
    async def post(text: str) -> None:
        await succeed(None)
        done.append((text, current_attempt().number))
        raise OSError(text)

    office.result(send.delay("ada"))
    office.result(post.delay("all"))
    office.start(concurrency=2)
    beanstalk.assert_jobs("news", buried=1)
    beanstalk.assert_jobs("mail", delayed=1)
    beanstalk.advance(5)
    beanstalk.assert_jobs("mail", buried=1)
    assert sorted(done) == [("ada", 1), ("ada", 2), ("all", 1)]


def test_a_job_of_an_unknown_task_is_tried_again_until_a_worker_has_the_task(
    beanstalk: Beanstalk,
) -> None:
    office, done = Office(beanstalk), []
    office.app.task(tube="mail")(lambda: None)
    beanstalk.put(b'{"task":"send"}', tube="mail")
    worker = office.start()
    assert office.errors() == ["UnknownTask: no task 'send'; there are <lambda>"]
    office.result(worker.stopService())
    office.app.task(tube="mail", name="send")(lambda: done.append(1))
    office.start()
    beanstalk.advance(3600)
    assert done == [1]
    beanstalk.assert_no_jobs()


@pytest.mark.parametrize(
    "body", [b"hello", b'{"task":"send","args":[1,2,3]}', b'{"task":"send","args":[7]}']
)
def test_a_job_that_is_no_call_of_the_task_is_buried(beanstalk: Beanstalk, body: bytes) -> None:
    office = Office(beanstalk)

    @office.app.task(tube="mail")
    def send(to: str) -> None:
        raise AssertionError("it was called")

    beanstalk.put(body, tube="mail")
    office.start()
    beanstalk.assert_jobs("mail", buried=1)
    ((_, error),) = office.noted.named("failed")
    assert isinstance(error, Unreadable)


def test_duplicates_are_one_job_and_tell_so(beanstalk: Beanstalk) -> None:
    office = Office(beanstalk)

    @office.app.task(tube="mail", unique_by="{to}")
    def send(to: str) -> None:
        pass

    results = [office.result(send.delay(to)) for to in ("ada", "ada", "grace")]
    assert [(each.id, each.is_new) for each in results] == [(1, True), (1, False), (2, True)]


def test_middleware_wraps_functions_and_coroutines_from_outside_in(beanstalk: Beanstalk) -> None:
    office, seen = Office(beanstalk), []

    @office.app.middleware
    def outer(attempt: Any) -> Iterator[None]:
        seen.append("outer")
        try:
            yield
        except OSError as error:
            seen.append("caught")
            raise Decided(Release(7)) from error

    @office.app.task(tube="mail")
    def send() -> None:
        seen.append("send")
        raise OSError

    office.result(send.delay())
    office.start()
    beanstalk.assert_job_released(delay=7)
    assert seen == ["outer", "send", "caught"]

    @office.app.middleware
    async def inner(attempt: Any) -> AsyncIterator[None]:
        await succeed(None)
        seen.append("inner")
        yield
        seen.append("end")

    @office.app.task(tube="news")
    async def post() -> None:
        seen.append("post")

    office.result(post.delay())
    office.start(tubes=["news"])
    assert seen[3:] == ["outer", "inner", "post", "end"]
    beanstalk.advance(7)
    office.start(tubes=["mail"])
    assert "asynchronous middleware, which wraps coroutines only" in office.errors()[-1]


def test_a_rate_is_the_policy_of_the_tube_and_what_is_scheduled_is_put(
    beanstalk: Beanstalk,
) -> None:
    office, done = Office(beanstalk), []

    @office.app.task(tube="mail", rate="2:1", schedule=Cron(cron="* * * * *", args=("all",)))
    def send(to: str) -> None:
        done.append(to)

    office.start()
    with beanstalk.connect() as talk:
        assert b"\nrate: 2:1\n" in talk.ask(b"tube-policy mail\r\n").replace(b'"', b"")
    beanstalk.assert_job_put(tube="mail")  # That of this minute.
    assert done == ["all"]


# Results.


def test_a_result_stays_with_its_caller_and_its_reply_is_gone(beanstalk: Beanstalk) -> None:
    office = Office(beanstalk)

    @office.app.task(tube="math", result=True, unique_by="{n}")
    def halve(n: int) -> float:
        return n / 2

    result, same = office.result(halve.delay(7)), office.result(halve.delay(7))
    assert (same.id, same.is_new) == (result.id, False)
    waiting: Deferred[Any] = result.wait(60)
    office.start()
    assert office.result(waiting) == office.result(result.wait(60)) == 3.5
    beanstalk.assert_tube_empty(REPLIES)
    with pytest.raises(ResultLost, match="job 1 is gone, and there is no result"):
        office.result(same.wait(60))
    beanstalk.assert_tube_empty(REPLIES)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (ValueError("no"), "ValueError: no"), (ValueError("x" * 2000), "x" * 900),
        ({1}, "TypeError: the result cannot be written: set"),
        ("x" * 70_000, "ValueError: the result has 70013 bytes, too many for a job"),
        (ValueError("\ud800"), "ValueError: ?"),
        (NESTED, "TypeError: the result cannot be written: it is nested too deeply"),
    ],
    ids=["text", "long text", "no JSON", "too big", "no Unicode", "nested"],
)  # fmt: skip
def test_a_failure_comes_with_its_text_when_there_are_no_more_attempts(
    beanstalk: Beanstalk, outcome: Any, said: str
) -> None:
    office = Office(beanstalk)

    @office.app.task(tube="math", result=True, retries=1, backoff="1")
    def halve() -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    result = office.result(halve.delay())
    office.start()
    waiting = result.wait(60)
    beanstalk.settle()
    beanstalk.advance(2)
    with pytest.raises(TaskFailed, match=said[:300].replace("?", r"\?")) as failed:
        office.result(waiting)
    assert len(str(failed.value)) <= MAX_ERROR


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("verdict", [Delete(), Bury()])
def test_a_job_that_its_task_buries_is_no_success_and_one_that_it_deletes_has_no_value(
    beanstalk: Beanstalk, verdict: Any, raises: bool
) -> None:
    office = Office(beanstalk)

    @office.app.task(tube="math", result=True)
    def halve() -> Any:
        if raises:
            raise Decided(verdict)
        return verdict

    result = office.result(halve.delay())
    office.start()
    if verdict == Delete():
        assert office.result(result.wait(60)) is None
        return
    with pytest.raises(TaskFailed, match=r"^Decided: buried$"):
        office.result(result.wait(60))


def test_a_worker_that_is_started_while_it_stops_still_gives_results(beanstalk: Beanstalk) -> None:
    office, slow = Office(beanstalk), Deferred[None]()

    @office.app.task(tube="math", result=True)
    async def add(n: int) -> int:
        if n == 1:
            await slow
        return n + 1

    results = [office.result(add.delay(1))]
    worker = office.start()
    stopped = worker.stopService()
    worker.startService()
    slow.callback(None)
    office.result(stopped)
    results.append(office.result(add.delay(2)))
    beanstalk.advance(1)
    assert [office.result(each.wait(1)) for each in results] == [2, 3]


def test_a_result_that_no_producer_waits_for_expires(beanstalk: Beanstalk) -> None:
    office = Office(beanstalk, result_ttl_s=100)
    task = office.app.task(tube="math", result=True)(lambda: 1)
    office.result(task.delay())
    office.start()
    beanstalk.assert_jobs(REPLIES, ready=1)
    beanstalk.advance(99)
    beanstalk.assert_jobs(REPLIES, ready=1)
    beanstalk.advance(2)
    beanstalk.assert_tube_empty(REPLIES)


def test_a_job_that_is_done_twice_has_one_reply_the_newest(beanstalk: Beanstalk) -> None:
    office, results = Office(beanstalk), [OSError("first"), 2]

    @office.app.task(tube="math", result=True, retries=0)
    def halve() -> int:
        outcome = results.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return int(str(outcome))

    result = office.result(halve.delay())
    office.start()
    with beanstalk.connect() as talk:
        assert talk.ask(b"kick-job 1\r\n") == b"KICKED\r\n"
    beanstalk.settle()
    beanstalk.advance(1)
    beanstalk.assert_jobs(REPLIES, ready=1)
    assert office.result(result.wait(1)) == 2


def test_no_result_in_time_none_asked_for_and_none_that_a_server_could_keep(
    beanstalk: Beanstalk,
) -> None:
    office = Office(beanstalk)
    task = office.app.task(tube="math")(lambda: 1)
    result = office.result(task.using(result=True).delay())
    waiting = result.wait(5)
    beanstalk.settle()
    beanstalk.advance(5)
    with pytest.raises(NotDone, match="job 1 has not ended within 5 s"):
        office.result(waiting)
    with pytest.raises(TypeError, match=r"using\(result=True\)"):
        office.result(task.delay()).wait(5)
    beanstalk.answer_next("capabilities", "UNKNOWN_COMMAND", times=9)
    office.app.connect(beanstalk.endpoint, reactor=beanstalk.clock)
    with pytest.raises(NotAnnounced, match="which results need"):
        office.result(task.using(result=True).delay())
    assert len(beanstalk.jobs("math")) == 2  # Nothing was put.


@pytest.mark.beanstalk(has_log=False)
def test_policies_are_set_once_and_again_on_a_server_that_has_forgotten_them(
    beanstalk: Beanstalk,
) -> None:
    office = Office(beanstalk, result_ttl_s=100)
    task = office.app.task(tube="math", result=True, rate=50)(lambda: 1)
    office.start()
    for _ in range(2):
        for _ in range(3):
            office.result(task.delay())
        beanstalk.advance(1)
        set_now = [each.line for each in beanstalk.commands if each.name == "tube-policy"]
        assert set_now == [
            b"tube-policy math rate=50", b"tube-policy tasks.replies max-age=100 expired=delete",
        ]  # fmt: skip
        beanstalk.assert_jobs(REPLIES, ready=3)
        beanstalk.kill()
        beanstalk.start()
        beanstalk.clear()
        beanstalk.advance(60)
