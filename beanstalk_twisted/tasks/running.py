"""Tasks in a worker: which function does a job, what wraps it, and where its result goes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.endpoints import the_reactor
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.tasks.app import App, Task
from beanstalk_twisted.tasks.calling import Coroutine, Function
from beanstalk_twisted.tasks.message import Message
from beanstalk_twisted.tasks.results import put_reply, reply_body
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.handlers import Threads
from beanstalk_twisted.worker.policy import Retry
from beanstalk_twisted.worker.serialisers import Bytes, Unreadable
from beanstalk_twisted.worker.service import FINISH_S, Worker
from beanstalk_twisted.worker.settings import STUCK_S, Reply, Route, Work

if TYPE_CHECKING:
    from beanstalk_twisted.worker.recurring import Recurring, Schedule

REPLY_S: Final = 10.0
"""How long an answer to the put of a reply is waited for, seconds; the job's TTR runs."""


class UnknownTask(LookupError):
    """The job is of a task that this worker does not have: it was renamed, or is of a newer
    version of the application.
    """


class AppRoute(Route):
    """Finds the task of each job."""

    def __init__(
        self, app: App[Any], *, reply: Reply | None = None, processes: str | None = None
    ) -> None:
        """:param processes: where a child finds the app, ``module:app``; None to run all tasks in
        this process.
        """
        self._works = {
            task.name: _work_of(app, task, reply, processes) for task in app.tasks.values()
        }
        self._unknown = Work(handler=self._not_known, serialiser=Bytes(), policy=Retry())

    def work_for(self, attempt: Attempt[Any]) -> Work[Any]:
        try:
            name = Message.load(attempt.body).task
        except Unreadable:
            return self._unknown
        return self._works.get(name, self._unknown)

    def _not_known(self, attempt: Attempt[Any]) -> None:
        name = Message.load(attempt.body).task
        raise UnknownTask(f"no task {name!r}; there are {', '.join(sorted(self._works))}")


def _work_of(
    app: App[Any], task: Task[..., Any, Any], reply: Reply | None, processes: str | None
) -> Work[Any]:
    options = task.options
    handler: Any = Coroutine(app, task) if task.is_coroutine else Function(app, task)
    stuck_s = STUCK_S
    if options.process and processes is not None:
        from beanstalk_twisted.tasks.child import InProcess

        handler = InProcess(processes, task.name)
        stuck_s += handler.ends_within_s
    return Work(
        handler=handler, serialiser=task.arguments, policy=options.policy(),
        in_threads=not task.is_coroutine, limit_s=options.limit, stuck_s=stuck_s, reply=reply,
    )  # fmt: skip


class AppWorker(Service):
    """Runs an application's tasks: a worker for each of its servers, and its schedules."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, app: App[Any], *, tubes: Iterable[str] = (), servers: Iterable[Any] = (),
        concurrency: int = 1, processes: str | None = None, finish_s: float = FINISH_S,
        in_threads: bool | Threads = True, token: str | None = None, reactor: Any = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """:param tubes: whose jobs are done; those of all tasks by default.
        :param servers: instead of those of the app.
        :param concurrency: jobs at once, from each server.
        :param processes: where a child finds the app, ``module:app``, for tasks with
            ``process=True``; None to run these in threads.
        :param options: of `worker.service.Worker`.
        :raise ValueError: there are no tasks, or something is not what it should be.
        """
        if not app.tasks:
            raise ValueError("the app has no task")
        clock = reactor or the_reactor()
        self._app = app
        self._clock = clock
        chosen = list(servers) or app.servers
        self._clients = {each: Client(each, reactor=clock, probes=True, token=token, logs=False)
                         for each in chosen}  # fmt: skip
        self._workers: list[Worker[Any]] = [
            Worker(
                each, sorted(tubes) or app.tubes,
                AppRoute(app, reply=self._reply_over(client), processes=processes), concurrency,
                in_threads=in_threads, finish_s=finish_s, token=token, reactor=clock, **options,
            )
            for each, client in self._clients.items()
        ]  # fmt: skip
        self._schedulers = _schedulers_of(
            {each: [plan for plan in schedules_of(app) if self._has(each, plan.tube)]
             for each in chosen}, reactor=clock, token=token,
        )  # fmt: skip

    @property
    def jobs_in_hand(self) -> int:
        return sum(worker.jobs_in_hand for worker in self._workers)

    def drop(self) -> None:
        """Cancel the jobs in hand: the process ends now."""
        for worker in self._workers:
            worker.drop()

    def startService(self) -> None:
        super().startService()
        for server, client in self._clients.items():
            client.startService()
            for tube, rate in self._app.rates.items():
                if self._has(server, tube):
                    asked = client.tube_policy(tube, {"rate": rate})
                    asked.addErrback(self._no_rate, tube)
        for each in (*self._workers, *self._schedulers):
            each.startService()

    @inlineCallbacks
    def stopService(self) -> Any:
        """Finish the jobs in hand, and then close what their results go over."""
        super().stopService()
        yield gatherResults([each.stopService() for each in (*self._workers, *self._schedulers)])
        yield gatherResults([each.stopService() for each in self._clients.values()])

    def _has(self, server: Any, tube: str) -> bool:
        """Return True if jobs of a tube are put into this server: one alone has all."""
        return len(self._clients) == 1 or self._app.server_of(tube) == server

    def _no_rate(self, failure: Failure, tube: str) -> None:
        if self.running:
            self._log.error("the rate of tube {tube} is not set: {error}", tube=tube,
                            error=failure.value)  # fmt: skip

    def _reply_over(self, client: Client) -> Reply:
        def reply(attempt: Attempt[Any], result: Any, error: BaseException | None) -> Any:
            try:
                is_wanted = Message.load(attempt.body).result
            except Unreadable:
                is_wanted = False
            if not is_wanted:
                return Deferred.fromCoroutine(_nothing())
            body = reply_body(result, error)
            put = inlineCallbacks(put_reply)(
                client, self._app.replies, self._app.result_ttl_s, attempt.id, body
            )
            return put.addTimeout(REPLY_S, self._clock)

        return reply


async def _nothing() -> None:
    pass


def _schedulers_of(plans: "dict[Any, list[Schedule]]", **options: Any) -> "list[Recurring]":
    found = []
    for server, schedules in plans.items():
        if schedules:
            # Only then: it needs cronsim.
            from beanstalk_twisted.worker.recurring import Recurring

            found.append(Recurring(server, schedules, **options))
    return found


def schedules_of(app: App[Any]) -> "list[Schedule]":
    """Give what the tasks say of when they run.

    :raise ValueError: a schedule cannot be.
    """
    found = []
    for task in app.tasks.values():
        options = task.options
        for number, cron in enumerate(options.crons()):
            from beanstalk_twisted.worker.recurring import Schedule

            found.append(Schedule(
                name=f"{task.name}-{number}" if number else task.name, cron=cron.cron,
                tube=options.tube, zone=cron.zone, missed=cron.missed,  # type: ignore[arg-type]
                body=task.arguments.write(cron.args, cron.kwargs, result=False),
                catch_up_s=cron.catch_up_s, priority=options.priority, ttr=options.ttr,
            ))  # fmt: skip
    return found
