"""An application: its tasks, what wraps them, when they run by themselves, and its servers."""

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from copy import copy
from functools import update_wrapper
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.tags import check_whole
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.tasks.message import Arguments
from beanstalk_twisted.tasks.options import CallOptions, Options, TaskOptions
from beanstalk_twisted.tasks.results import REPLIES, RESULT_TTL_S, Result
from beanstalk_twisted.tasks.sending import AioSender, Sender, SyncSender, TwistedSender

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from beanstalk_twisted.worker.attempt import Attempt


P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)
M = TypeVar("M", bound=Callable[..., Any])

SERVER: Final = "BEANSTALK_SERVER"
"""The variable that names the server of an application that names none."""

DEFAULT_SERVER: Final = "127.0.0.1:11300"

SENDERS: Final[Mapping[str, Callable[[dict[str, Any]], Sender]]] = {
    "sync": SyncSender, "aio": AioSender, "twisted": TwistedSender,
}  # fmt: skip


_current: Final = ContextVar["Attempt[Any]"]("beanstalk_twisted.tasks.attempt")


def current_attempt() -> "Attempt[Any]":
    """Give the attempt that the running task is: its ``id``, ``number``, ``touch()`` and more.

    :raise LookupError: no task runs here.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no task runs here; a worker runs tasks") from None


class Task(Generic[P, R, D]):
    """A function that a worker can run; to call it runs it here.

    :ivar name: what its jobs call it.
    """

    def __init__(self, app: "App[Any]", function: Callable[P, R], options: Options) -> None:
        update_wrapper(self, function)
        self.function = function
        self.options = options
        self.name = options.name or function.__name__
        self.arguments = Arguments(self.name, function)
        self.is_coroutine = iscoroutinefunction(function)
        self._app = app

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> D:
        """Put a job that calls the task with these arguments; gives a `Result`.

        :raise TypeError: the task cannot be called so, or an argument is not JSON.
        """
        given: D = self._app.send(self, self.options, args, kwargs)
        return given

    def using(self, **options: Unpack[CallOptions]) -> "Task[P, R, D]":
        """Give the task with other options for one call, such as ``using(delay=30).delay(…)``."""
        changed = copy(self)
        changed.options = self.options.for_call(options)
        return changed

    def run(self, attempt: "Attempt[Any]") -> Any:
        """Do a job in the middleware: the handler of a function."""
        token = _current.set(attempt)
        try:
            with ExitStack() as stack:
                for each in self._app.wrappers:
                    context = each(attempt)
                    if not hasattr(context, "__enter__"):
                        raise TypeError(
                            f"{each} is asynchronous middleware, which wraps coroutines only; "
                            f"{self.name} is a function"
                        )
                    stack.enter_context(context)
                return self.function(*attempt.value.args, **attempt.value.kwargs)
        finally:
            _current.reset(token)

    async def run_async(self, attempt: "Attempt[Any]") -> Any:
        """Do a job in the middleware: the handler of a coroutine."""
        _current.set(attempt)
        async with AsyncExitStack() as stack:
            for each in self._app.wrappers:
                context = each(attempt)
                if hasattr(context, "__aenter__"):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            coroutine: Any = self.function(*attempt.value.args, **attempt.value.kwargs)
            return await coroutine


class SyncTasks(Protocol):
    """A decorator of functions; `delay` blocks."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> Task[P, Coroutine[Any, Any, V], Result[V]]: ...
    @overload
    def __call__(self, function: Callable[P, V], /) -> Task[P, V, Result[V]]: ...


class AioTasks(Protocol):
    """A decorator of functions; `delay` and `wait` are awaited."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> Task[P, Coroutine[Any, Any, V], Awaitable[Result[Awaitable[V]]]]: ...
    @overload
    def __call__(
        self, function: Callable[P, V], /
    ) -> Task[P, V, Awaitable[Result[Awaitable[V]]]]: ...


class TwistedTasks(Protocol):
    """A decorator of functions; `delay` and `wait` give Deferreds."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> "Task[P, Coroutine[Any, Any, V], Deferred[Result[Deferred[V]]]]": ...
    @overload
    def __call__(
        self, function: Callable[P, V], /
    ) -> "Task[P, V, Deferred[Result[Deferred[V]]]]": ...


class App(Generic[D_co]):
    """An application's tasks.

    :ivar servers: where its jobs are; of several servers, each tube has one.
    :ivar tasks: by their names.
    :ivar wrappers: its middleware, each a function of an attempt that gives a context manager.
    :ivar rates: of tubes, jobs a second.
    """

    @overload
    def __init__(
        self: "App[SyncTasks]", *servers: Any, client: Literal["sync"] = "sync",
        middleware: list[Any] | None = None, result_ttl_s: int = RESULT_TTL_S,
        replies: str = REPLIES, **options: Any,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: "App[AioTasks]", *servers: Any, client: Literal["aio"],
        middleware: list[Any] | None = None, result_ttl_s: int = RESULT_TTL_S,
        replies: str = REPLIES, **options: Any,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: "App[TwistedTasks]", *servers: Any, client: Literal["twisted"],
        middleware: list[Any] | None = None, result_ttl_s: int = RESULT_TTL_S,
        replies: str = REPLIES, **options: Any,
    ) -> None: ...  # fmt: skip
    def __init__(
        self, *servers: Any, client: str = "sync", middleware: list[Any] | None = None,
        result_ttl_s: int = RESULT_TTL_S, replies: str = REPLIES, **options: Any,
    ) -> None:  # fmt: skip
        """:param servers: addresses; without one, that of BEANSTALK_SERVER, or 127.0.0.1:11300.
        :param client: what `delay` gives: ``sync`` a result, ``aio`` an awaitable, ``twisted`` a
            Deferred.
        :param result_ttl_s: how long a result is kept that nobody has waited for, seconds.
        :param replies: the tube of results.
        :param options: of the client.
        :raise ValueError: there is no such client, or a number is out of its range.
        """
        if client not in SENDERS:
            raise ValueError(f"client is one of {', '.join(SENDERS)}, not {client!r}")
        check_whole("result_ttl_s", result_ttl_s, 1)
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self.wrappers = [context_of(each) for each in middleware or ()]
        self.rates: dict[str, str | int] = {}
        self.result_ttl_s = result_ttl_s
        self.replies = replies
        self._kind = client
        self.connect(*servers, **options)

    def connect(self, *servers: Any, **options: Any) -> None:
        """Have all further jobs put into these servers, as in a test.

        :raise ValueError: two of them are the same, or only Twisted's client can use them.
        """
        if self._kind != "twisted" and (
            "reactor" in options or not all(isinstance(each, str | Address) for each in servers)
        ):
            raise ValueError(
                f'an endpoint or a reactor of Twisted is for App(client="twisted"); this app has '
                f"client={self._kind!r}, which takes addresses such as {DEFAULT_SERVER}"
            )
        chosen = servers or (os.environ.get(SERVER) or DEFAULT_SERVER,)
        self.servers = list(dict.fromkeys(chosen))
        self._by_name = {_name(each): each for each in self.servers}
        if len(self._by_name) < len(self.servers):
            raise ValueError(f"two servers are the same: {', '.join(self._by_name)}")
        self._split = Split(dict.fromkeys(self._by_name, 1))
        self._sender = SENDERS[self._kind](options)

    def close(self) -> Any:
        """Close the connections over which `delay` has put jobs; awaitable as `delay` is."""
        return self._sender.close()

    def server_of(self, tube: str) -> Any:
        """Give the server that has a tube, as a pool with the same addresses does."""
        return self._by_name[self._split.server_of(tube)]

    @property
    def tubes(self) -> list[str]:
        """Name the tubes of all tasks, in order."""
        return sorted({task.options.tube for task in self.tasks.values()})

    def task(self, **options: Unpack[TaskOptions]) -> D_co:
        """Make a task of a function: ``@app.task(tube="mail", retries=5)``.

        :raise TypeError, ValueError: an option cannot be, or there is a task of this name.
        """
        chosen = Options(**cast(Any, options))

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            task: Task[..., Any, Any] = Task(self, function, chosen)
            self._check(task)
            self.tasks[task.name] = task
            return task

        return cast(D_co, decorate)

    def _check(self, task: Task[..., Any, Any]) -> None:
        if task.name in self.tasks:
            raise ValueError(f"there are two tasks {task.name!r}; give one another name=")
        if task.options.process and task.is_coroutine:
            raise ValueError(f"{task.name}: a coroutine cannot run in a process of its own")
        task.options.check_keys(task.arguments.names)
        for cron in task.options.crons():
            task.arguments.write(cron.args, cron.kwargs, result=False)
        tube, rate = task.options.tube, task.options.rate
        if rate is not None and str(self.rates.setdefault(tube, rate)) != str(rate):
            raise ValueError(f"{task.name}: tube {tube} has one rate, which is {self.rates[tube]}")

    def middleware(self, wrapper: M) -> M:
        """Wrap every attempt in a function of it that yields once."""
        self.wrappers.append(context_of(wrapper))
        return wrapper

    def send(
        self, task: Task[..., Any, Any], options: Options, args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """Put a job of a task; gives what `delay` gives."""
        body = task.arguments.write(args, kwargs, result=options.result)
        headers = dict(options.headers)
        for each in self.wrappers:
            if (sending := getattr(each, "sending", None)) is not None:
                sending(task.name, options.tube, headers)
        tags = options.tags(task.name, lambda: task.arguments.bind(args, kwargs), headers)
        replies = self.replies if options.result else None
        return self._sender.put(
            self.server_of(options.tube), replies, body, tube=options.tube, delay=options.delay,
            priority=options.priority, ttr=options.ttr, tags=tags,
        )  # fmt: skip


def _name(server: Any) -> str:
    """Name a server as a pool does, so that both find the same tubes there."""
    return Address.of(server).pool_name if isinstance(server, str | Address) else str(server)


def context_of(wrapper: Any) -> Any:
    """Make a function that yields one that gives a context manager; others are that already."""
    if isgeneratorfunction(wrapper):
        return contextmanager(wrapper)
    if isasyncgenfunction(wrapper):
        return asynccontextmanager(wrapper)
    return wrapper
