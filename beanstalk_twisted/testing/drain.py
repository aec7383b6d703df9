"""Jobs of the double, done in the test itself, without a worker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from threading import Thread
from typing import Any, Final, NamedTuple

from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.tasks.app import App
from beanstalk_twisted.tasks.running import AppRoute
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.handlers import verdict_of
from beanstalk_twisted.worker.policy import (
    Bury,
    Decided,
    Delete,
    Policy,
    Release,
    TooManyAttempts,
    Verdict,
)
from beanstalk_twisted.worker.serialisers import Serialiser
from beanstalk_twisted.worker.settings import BYTES, RETRY, Handler, Route, Work

MAX_ATTEMPTS: Final = 10_000
"""Attempts of one `drain`: a handler that releases its job without a delay has no end."""

CHANCE: Final = 1.0
"""Delays after a failure are as long as the policy has them: a test wants the same each time."""


class Drained(NamedTuple):
    """What one attempt came to.

    :ivar result: what the handler has returned.
    :ivar error: what it has raised.
    """

    job: int
    body: bytes
    tube: str
    verdict: Verdict
    result: Any = None
    error: BaseException | None = None


def drained(
    ask: Callable[[bytes], bytes], tubes: list[str], route: Route,
    finish: Callable[[Awaitable[Any]], Any], clock: Any,
) -> Iterator[Drained]:  # fmt: skip
    """Do ready jobs until there are none.

    :param ask: sends a command and gives the reply.
    :param finish: waits for what a handler gives that can be awaited.
    """
    for tube in tubes:
        ask(b"watch %b\r\n" % tube.encode())
    if "default" not in tubes:
        ask(b"ignore default\r\n")
    for _ in range(MAX_ATTEMPTS):
        line, _, rest = ask(b"reserve-with-timeout 0\r\n").partition(b"\r\n")
        if line == b"TIMED_OUT":
            return
        number = _number(line)
        stats = JobStats(ask(b"stats-job %d\r\n" % number).partition(b"\r\n")[2][:-2])
        attempt: Attempt[Any] = Attempt(clock, Job(number, rest[:-2]))
        attempt.learn(stats, clock.seconds())
        done = _attempt(attempt, route.work_for(attempt), finish)
        attempt.end()
        ask(_command(done.verdict, number, stats))
        yield done
    raise AssertionError(f"drain has made {MAX_ATTEMPTS} attempts, and there are still ready jobs")


def _number(line: bytes) -> int:
    """:raise AssertionError: no job was reserved, because of a fault that the test has planted."""
    words = line.split()
    if len(words) != 3 or words[0] != b"RESERVED":
        raise AssertionError(f"reserve was answered with {line.decode(errors='replace')!r}")
    return int(words[1])


def _attempt(
    attempt: Attempt[Any], work: Work[Any], finish: Callable[[Awaitable[Any]], Any]
) -> Drained:
    def came_to(verdict: Verdict, result: Any = None, error: Any = None) -> Drained:
        return Drained(attempt.id, attempt.body, attempt.tube, verdict, result, error)

    early = work.policy.before(attempt.stats)
    if early is not None:
        return came_to(early, error=TooManyAttempts(f"this would be attempt {attempt.number}"))
    try:
        attempt.read(work.serialiser.load)
        result = work.handler(attempt)
        if isawaitable(result):
            result = finish(result)
        return came_to(verdict_of(result), result)
    except Decided as decided:
        return came_to(decided.verdict, error=decided)
    except Exception as error:
        return came_to(work.policy.after(attempt.stats, error, CHANCE), error=error)


def _command(verdict: Verdict, number: int, stats: JobStats) -> bytes:
    if isinstance(verdict, Delete):
        return b"delete %d\r\n" % number
    if isinstance(verdict, Release | Bury):
        priority = stats.pri if verdict.priority is None else verdict.priority
        if isinstance(verdict, Bury):
            return b"bury %d %d\r\n" % (number, priority)
        return b"release %d %d %d\r\n" % (number, priority, verdict.delay)
    return b"return-job %d %d\r\n" % (number, verdict.delay)


def finish_in_asyncio(waited: Awaitable[Any]) -> Any:
    """Run what can be awaited to its end, in a loop of its own, also if one runs here."""
    outcome: list[Any] = []

    async def all_of() -> Any:
        return await waited

    def run() -> None:
        try:
            outcome.append((asyncio.run(all_of()), None))
        except BaseException as error:
            outcome.append((None, error))

    runner = Thread(target=run, name="drain")
    runner.start()
    runner.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


class Drains:
    """The double as a worker of its own."""

    network: Any

    def connect(self) -> Any:
        raise NotImplementedError

    def drain(
        self, work: str | App[Any], handler: Handler[Any] | None = None, *,
        serialiser: Serialiser[Any] = BYTES, policy: Policy = RETRY,
    ) -> list[Drained]:  # fmt: skip
        """Do all jobs that are ready, and those that become so by it, in the test's thread.  A job
        that fails is released with its delay; `advance` and another call try it again.

        :param work: the tube whose jobs the handler does, or an app, whose tasks do theirs.
        :return: what each attempt came to, in order.
        """
        if isinstance(work, App):
            return self._drain(work.tubes, AppRoute(work))
        assert handler is not None, "a tube's jobs need a handler"
        return self._drain([work], Work(handler=handler, serialiser=serialiser, policy=policy))

    def _drain(self, tubes: list[str], route: Route) -> list[Drained]:
        with self.connect() as talk:
            return list(drained(talk.ask, tubes, route, self._finish, self.network.clock))

    def _finish(self, waited: Awaitable[Any]) -> Any:
        return finish_in_asyncio(waited)
