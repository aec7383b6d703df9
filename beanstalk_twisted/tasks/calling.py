"""How a task is called, in its middleware."""

from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from beanstalk_twisted.tasks.app import App, Task
    from beanstalk_twisted.worker.attempt import Attempt

_current: Final = ContextVar["Attempt[Any]"]("beanstalk_twisted.tasks.attempt")


def current_attempt() -> "Attempt[Any]":
    """Give the attempt that the running task is: its ``id``, ``number``, ``touch()`` and more.

    :raise LookupError: no task runs here.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no task runs here; a worker runs tasks") from None


class ProcessFailed(Exception):
    """A task has raised what cannot be carried to another process; this is its text."""


class Function:
    """Runs a task in a thread, in its middleware."""

    def __init__(self, app: "App[Any]", task: "Task[..., Any, Any]") -> None:
        self._app = app
        self._task = task

    def __call__(self, attempt: "Attempt[Any]") -> Any:
        token = _current.set(attempt)
        try:
            with ExitStack() as stack:
                for each in self._app.wrappers:
                    context = each(attempt)
                    if not hasattr(context, "__enter__"):
                        raise TypeError(
                            f"{each} is asynchronous middleware, which wraps coroutines only; "
                            f"{self._task.name} is a function"
                        )
                    stack.enter_context(context)
                return self._task.function(*attempt.value.args, **attempt.value.kwargs)
        finally:
            _current.reset(token)


class Coroutine(Function):
    """Runs a task in the reactor, in its middleware."""

    async def __call__(self, attempt: "Attempt[Any]") -> Any:
        _current.set(attempt)
        async with AsyncExitStack() as stack:
            for each in self._app.wrappers:
                context = each(attempt)
                if hasattr(context, "__aenter__"):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            result = self._task.function(*attempt.value.args, **attempt.value.kwargs)
            return await result if isawaitable(result) else result
