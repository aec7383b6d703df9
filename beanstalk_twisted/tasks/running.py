"""Tasks in a worker: which function does a job, what wraps it, and where its result goes."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.endpoints import the_reactor
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.tasks.app import App, Task
from beanstalk_twisted.tasks.message import Message
from beanstalk_twisted.tasks.results import put_reply, reply_body
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.handlers import Threads
from beanstalk_twisted.worker.policy import Retry
from beanstalk_twisted.worker.serialisers import Bytes, Unreadable
from beanstalk_twisted.worker.service import FINISH_S, Worker
from beanstalk_twisted.worker.settings import STUCK_S, Reply, Route, Work

if TYPE_CHECKING:
    from beanstalk_twisted.worker.recurring import Schedule

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
        self._works = {task.name: _work_of(task, reply, processes) for task in app.tasks.values()}
        self._unknown = Work(handler=self._not_known, serialiser=Bytes(), policy=Retry())

    def work_for(self, attempt: Attempt[Any]) -> Work[Any]:
        try:
            attempt.task = Message.load(attempt.body).task
        except Unreadable:
            return self._unknown
        return self._works.get(attempt.task, self._unknown)

    def _not_known(self, attempt: Attempt[Any]) -> None:
        Message.load(attempt.body)
        raise UnknownTask(f"no task {attempt.task!r}; there are {', '.join(sorted(self._works))}")


def _work_of(task: Task[..., Any, Any], reply: Reply | None, processes: str | None) -> Work[Any]:
    options = task.options
    handler: Any = task.run_async if task.is_coroutine else task.run
    stuck_s = STUCK_S
    if options.process and processes is not None:
        from beanstalk_twisted.tasks.child import InProcess

        handler = InProcess(processes, task.name)
        stuck_s += handler.ends_within_s
    return Work(
        handler=handler, serialiser=task.arguments, policy=options.policy(),
        in_threads=not task.is_coroutine, limit_s=options.limit, stuck_s=stuck_s, reply=reply,
    )  # fmt: skip


class AppLink:
    """What an application says to one server besides taking jobs: rates, and results of tasks."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, app: App[Any], make_client: Callable[..., Client], is_here: Callable[[str], bool],
        clock: Any,
    ) -> None:  # fmt: skip
        """:param is_here: whether the jobs of a tube are put into this server."""
        self._app = app
        self._clock = clock
        self._rates = {tube: rate for tube, rate in app.rates.items() if is_here(tube)}
        self.client = make_client(connected=self._connected)
        self._expires = False

    def _connected(self) -> None:
        """Set the policies again: a server without a log forgets them."""
        self._expires = False
        for tube, rate in self._rates.items():
            self.client.tube_policy(tube, {"rate": rate}).addErrback(self._no_rate, tube)

    def _no_rate(self, failure: Failure, tube: str) -> None:
        if self.client.running:
            self._log.error("the rate of tube {tube} is not set: {error}", tube=tube,
                            error=failure.value)  # fmt: skip

    def reply(
        self, attempt: Attempt[Any], result: Any, error: BaseException | None
    ) -> Deferred[None]:
        """Put the result of a job, if its producer wants one."""
        replying: Deferred[None] = self._reply(attempt, result, error)
        return replying.addTimeout(REPLY_S, self._clock)

    @inlineCallbacks
    def _reply(self, attempt: Attempt[Any], result: Any, error: BaseException | None) -> Any:
        try:
            is_wanted = Message.load(attempt.body).result
        except Unreadable:
            return
        if is_wanted:
            tube = self._app.replies
            if not self._expires:
                # Without it replies that no producer collects would stay for ever.
                wanted: dict[str, int | str | None] = {
                    "max-age": self._app.result_ttl_s,
                    "expired": "delete",
                }
                yield self.client.tube_policy(tube, wanted)
                self._expires = True
            yield from put_reply(self.client, tube, attempt.id, reply_body(result, error))


class AppWorker(Service):
    """Runs an application's tasks: a worker for each of its servers, and its schedules."""

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
        chosen = list(servers) or app.servers
        wanted = sorted(tubes) or app.tubes
        client = partial(Client, reactor=clock, probes=True, token=token, logs=False)
        self._clients: list[Client] = []
        self._services: list[Any] = []
        for server in chosen:
            # Of several servers, each tube has one.
            is_here = partial(_is_at, app, None if len(chosen) == 1 else server)
            link = AppLink(app, partial(client, server), is_here, clock)
            self._clients.append(link.client)
            self._services.append(Worker(
                server, wanted, AppRoute(app, reply=link.reply, processes=processes), concurrency,
                in_threads=in_threads, finish_s=finish_s, token=token, reactor=clock, **options,
            ))  # fmt: skip
            if schedules := [each for each in schedules_of(app) if is_here(each.tube)]:
                # Only then: it needs cronsim.
                from beanstalk_twisted.worker.recurring import Recurring

                self._services.append(
                    Recurring(server, schedules, reactor=clock, token=token, logs=False)
                )

    @property
    def _workers(self) -> "list[Worker[Any]]":
        return [each for each in self._services if isinstance(each, Worker)]

    @property
    def jobs_in_hand(self) -> int:
        return sum(worker.jobs_in_hand for worker in self._workers)

    def drop(self) -> None:
        """Cancel the jobs in hand: the process ends now."""
        for worker in self._workers:
            worker.drop()

    def startService(self) -> None:
        super().startService()
        for each in (*self._clients, *self._services):
            if not each.running:
                each.startService()

    @inlineCallbacks
    def stopService(self) -> Any:
        """Finish the jobs in hand, and then close what their results go over."""
        super().stopService()
        yield gatherResults([each.stopService() for each in self._services])
        if not self.running:  # It may have been started meanwhile.
            yield gatherResults([each.stopService() for each in self._clients])


def _is_at(app: App[Any], server: Any, tube: str) -> bool:
    return server is None or app.server_of(tube) == server


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
