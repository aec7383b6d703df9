"""Options of a task, and of one call of it."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from inspect import BoundArguments
from string import Formatter
from typing import Any, Final, TypedDict

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import DEFAULT_PRIORITY, DEFAULT_TTR_S
from beanstalk_twisted.client.commands.tags import (
    HashedValue,
    Tags,
    check_seconds,
    check_whole,
)
from beanstalk_twisted.tasks.message import headers_text
from beanstalk_twisted.worker.policy import (
    FACTOR,
    MAX_U32,
    MOST_ATTEMPTS,
    MOST_DELAY_S,
    Kinds,
    Retry,
)

Key = str | Callable[..., HashedValue]
"""What a key is made of: a function of the task's arguments, or a text such as ``"{order}"``."""

OFTEN: Final = MOST_ATTEMPTS - 1
"""Retries by default."""


_NUMBERS: Final = {"unique_seconds": 0, "concurrency_limit": 1}
"""Of tags, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class Cron:
    """When a task runs by itself, and its arguments then; as `worker.recurring.Schedule` has it."""

    cron: str
    zone: str = "UTC"
    missed: str = "none"
    catch_up_s: int = 86_400
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class JobOptions(TypedDict, total=False):
    """Options of a task and of a call."""

    tube: str
    delay: int
    priority: int
    ttr: int
    result: bool
    unique_seconds: int
    concurrency_limit: int


class CallOptions(JobOptions, total=False):
    """Options of one call, ``send.using(…)``; each takes the place of the task's."""

    unique_by: HashedValue
    concurrency_by: HashedValue
    group_by: HashedValue
    after_by: HashedValue
    headers: Mapping[str, str]


class TaskOptions(JobOptions, total=False):
    """Options of a task, ``@app.task(…)``."""

    name: str
    unique_by: Key
    concurrency_by: Key
    group_by: Key
    after_by: Key
    retries: int
    backoff: str
    bury: Kinds
    limit: float
    rate: str | int
    process: bool
    schedule: str | Cron | tuple[Cron, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a task with their defaults (docs/worker.md)."""

    name: str = ""
    tube: str = "default"
    delay: int = 0
    priority: int = DEFAULT_PRIORITY
    ttr: int = DEFAULT_TTR_S
    result: bool = False
    unique_by: Key | HashedValue | None = None
    unique_seconds: int = _NUMBERS["unique_seconds"]
    concurrency_by: Key | HashedValue | None = None
    concurrency_limit: int = _NUMBERS["concurrency_limit"]
    group_by: Key | HashedValue | None = None
    after_by: Key | HashedValue | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    retries: int = OFTEN
    backoff: str | None = None
    bury: Kinds = ()
    limit: float | None = None
    rate: str | int | None = None
    process: bool = False
    schedule: str | Cron | tuple[Cron, ...] = ()

    def __post_init__(self) -> None:
        """:raise TypeError, ValueError: something is not what it should be."""
        specs.WATCH.line((self.tube.encode(),))
        check_whole("delay", self.delay, 0, MAX_U32)
        check_whole("priority", self.priority, 0, MAX_U32)
        check_whole("ttr", self.ttr, 1, MAX_U32)
        check_whole("retries", self.retries, 0)
        if self.limit is not None:
            check_seconds("limit", self.limit, is_zero_allowed=False)
        self.policy()
        headers_text(self.headers)
        # Numbers without a key are refused there.
        self._tags({name: None if key is None else name for name, key in self._keys().items()})

    def policy(self) -> Retry:
        """:raise ValueError: the backoff is not as a tube policy has it."""
        if self.backoff is None:
            return Retry(self.retries + 1, bury=self.bury)
        first, _, rest = self.backoff.partition(":")
        factor, _, most = rest.partition(":")
        try:
            return Retry(
                self.retries + 1, float(first), factor=float(factor or FACTOR),
                most_delay_s=float(most or MOST_DELAY_S), bury=self.bury,
            )  # fmt: skip
        except ValueError as wrong:
            raise ValueError(
                f'backoff is "first:factor:most" in seconds, such as "5:2:3600", not '
                f"{self.backoff!r}: {wrong}"
            ) from None

    def crons(self) -> tuple[Cron, ...]:
        if isinstance(self.schedule, str):
            return (Cron(cron=self.schedule),)
        return (self.schedule,) if isinstance(self.schedule, Cron) else self.schedule

    def check_keys(self, arguments: Collection[str]) -> None:
        """:raise ValueError: a key has in it what is no argument of the task."""
        for place, key in self._keys().items():
            if isinstance(key, str):
                for _, wanted, _, _ in Formatter().parse(key):
                    name = wanted and re.split(r"[.\[]", wanted)[0]
                    if name is not None and name not in arguments:
                        has = ", ".join(sorted(arguments)) or "none"
                        raise ValueError(f"{place}={key!r}: {name!r} is no argument, of {has}")

    def for_call(self, changes: CallOptions) -> "Options":
        """:raise TypeError: there is no such option of a call."""
        unknown = sorted(changes.keys() - CallOptions.__annotations__.keys())
        if unknown:
            names = ", ".join(CallOptions.__annotations__)
            raise TypeError(f"a call has no option {unknown[0]!r}; it has {names}")
        given: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in changes.items():
            # A value of a call stands for itself: it may have a brace in it.
            given[name] = _Literal(value) if name.endswith("_by") else value
        return Options(**given)

    def tags(
        self, name: str, bound: Callable[[], BoundArguments], headers: Mapping[str, str]
    ) -> Tags | None:
        """Give the tags of one job.

        :param name: the task's, so that two tasks of a tube have keys of their own.
        """
        keys: dict[str, Any] = {}
        for place, key in self._keys().items():
            keys[place] = None if key is None else _value(key, bound)
        if keys["unique_by"] is not None:
            keys["unique_by"] = f"{name}:{keys['unique_by']}"
        return self._tags(keys, headers_text(headers))

    def _keys(self) -> dict[str, Any]:
        names = ("unique_by", "concurrency_by", "group_by", "after_by")
        return {name: getattr(self, name) for name in names}

    def _tags(self, keys: Mapping[str, Any], metadata: str | None = None) -> Tags | None:
        """Give None where nothing differs from the defaults: beanstalkd takes no tags."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        if metadata is None and numbers == _NUMBERS and all(key is None for key in keys.values()):
            return None
        return Tags(**keys, **numbers, metadata=metadata)


@dataclass(frozen=True)
class _Literal:
    value: Any


def _value(key: Any, bound: Callable[[], BoundArguments]) -> HashedValue:
    if isinstance(key, _Literal):
        literal: HashedValue = key.value
        return literal
    given = bound()
    given.apply_defaults()
    if callable(key):
        made: HashedValue = key(*given.args, **given.kwargs)
        return made
    return str(key).format(**given.arguments)
