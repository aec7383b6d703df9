"""
What a worker is made with, looked at when it is made and not when the first job comes.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import isclass, iscoroutinefunction, signature
from typing import Any, Final

from beanstalk_twisted.client import command_specs as specs
from beanstalk_twisted.worker.hooks import Hooks
from beanstalk_twisted.worker.reserver import Tube
from beanstalk_twisted.worker.threads import PoolThreads, Threads

MAX_CONCURRENCY: Final = 1000
"""Jobs at once: each is at least one timer and a function that waits."""


def check_numbers(
    concurrency: int, connections: int, finish_s: float, limit_s: float | None
) -> None:
    """
    :raise ValueError: one is out of its range.
    """
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ValueError(f"concurrency is 1 to {MAX_CONCURRENCY}, not {concurrency}")
    if connections < 1:
        raise ValueError(f"connections is at least 1, not {connections}")
    if finish_s < 0:
        raise ValueError(f"finish_s is at least 0, not {finish_s}")
    if limit_s is not None and limit_s <= 0:
        raise ValueError(f"limit_s is more than 0, not {limit_s}")


def check_tubes(tubes: Sequence[Tube]) -> None:
    """
    :raise ValueError: there is none, or one has a name that no tube can have.
    """
    if not tubes:
        raise ValueError("no tube to take jobs from")
    for tube in tubes:
        specs.WATCH.line((tube.encode() if isinstance(tube, str) else tube,))


def check_parts(handler: object, serialiser: object, policy: object) -> None:
    """
    :raise TypeError: one cannot be what it is given as.
    """
    if not callable(handler):
        raise TypeError(f"handler is a function that is given an Attempt, not {handler!r}")
    _check_takes_one(handler)
    _has_methods("serialiser", serialiser, "Bytes() or Json()", ("load",))
    _has_methods("policy", policy, "Retry()", ("before", "after"))


def hooks_of(hooks: Iterable[Hooks]) -> tuple[Hooks, ...]:
    """
    :raise TypeError: one is no object of `Hooks`.
    """
    if isinstance(hooks, Hooks) or not isinstance(hooks, Iterable):
        raise TypeError(f"hooks is a list of objects of Hooks, not {hooks!r}")
    found = tuple(hooks)
    for each in found:
        if not isinstance(each, Hooks):
            raise TypeError(f"hooks is a list of objects of Hooks; {each!r} is none")
    return found


def threads_of(
    wanted: bool | Threads, handler: Callable[..., Any], reactor: Any, most: int
) -> Threads | None:
    """
    Give what handlers run in; None for the reactor's own thread.

    :raise ValueError: a coroutine is to run in threads, or the reactor is none.
    :raise TypeError: it is neither true, false, nor threads.
    """
    if wanted is False or wanted is None:
        return None
    if iscoroutinefunction(handler):
        raise ValueError("a coroutine runs in the reactor's thread; leave out in_threads")
    if wanted is not True:
        _has_methods("in_threads", wanted, "True, False or InlineThreads()", ("run", "start"))
        return wanted
    if not hasattr(reactor, "callFromThread"):
        raise ValueError(
            f"in_threads=True needs a real reactor, which {type(reactor).__name__} is not: in a "
            "test on a clock, give in_threads=InlineThreads()"
        )
    return PoolThreads(reactor, most)


def _check_takes_one(handler: Callable[..., object]) -> None:
    """
    What has no signature that Python can tell is taken as it is.
    """
    try:
        taken = signature(handler)
    except (TypeError, ValueError):
        return
    try:
        taken.bind(object())
    except TypeError as problem:
        name = getattr(handler, "__qualname__", repr(handler))
        raise TypeError(
            f"handler is a function that is given an Attempt and nothing else, not {name}{taken}: "
            f"{problem}"
        ) from None


def _has_methods(name: str, given: object, example: str, methods: Sequence[str]) -> None:
    if isclass(given):
        raise TypeError(f"{name} is an object, such as {example}, not the class {given.__name__}")
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise TypeError(f"{name} is {example}, or has {method}() as that has; not {given!r}")
