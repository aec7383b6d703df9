"""Calls of tasks as bodies of jobs, and back."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple, get_type_hints
from urllib.parse import quote

from beanstalk_twisted.worker.serialisers import Json, Read, Serialiser, Unreadable, reader_of

JSON: Final = Json()

_KEYS: Final = {"task", "args", "kwargs", "result"}

_SAFE: Final = "!#$&'()*+,/:<=>?@[]^`{|} "
"""What a value of a header has as it is: not ``;``, which ends it, nor ``%``."""


class Message(NamedTuple):
    """The body of a job of a task.

    :ivar result: whether the producer may wait for the result.
    """

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    result: bool

    @classmethod
    def load(cls, body: bytes) -> "Message":
        """:raise Unreadable: it is none of ours."""
        found = JSON.load(body)
        if not isinstance(found, dict) or not isinstance(found.get("task"), str):
            raise Unreadable('the body is not a call of a task, such as {"task":"send","args":[7]}')
        message = cls(
            found["task"], found.get("args", []), found.get("kwargs", {}),
            bool(found.get("result", False)),
        )  # fmt: skip
        if not isinstance(message.args, list) or not isinstance(message.kwargs, dict):
            raise Unreadable("args of a call is a list, and kwargs an object")
        if unknown := sorted(found.keys() - _KEYS):
            raise Unreadable(f"a call of a task has no {unknown[0]!r}")
        return message


class Arguments(Serialiser[inspect.BoundArguments]):
    """The arguments of one task, checked against its signature and its annotations."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._signature = inspect.signature(function)
        self.names = frozenset(self._signature.parameters)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """:raise TypeError: the task cannot be called so."""
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise TypeError(f"{self._name}{self._signature}: {wrong}") from None

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, result: bool) -> bytes:
        """:raise TypeError: an argument cannot be written, or the task cannot be called so."""
        self.bind(args, kwargs)
        wanted: dict[str, Any] = {"task": self._name}
        for key, value in (("args", args), ("kwargs", kwargs), ("result", result)):
            if value:
                wanted[key] = value
        try:
            body = JSON.dump(wanted)
        except (TypeError, ValueError) as wrong:
            raise TypeError(f"{self._name}: {wrong}; arguments have to be JSON") from None
        try:
            self.load(body)
        except Unreadable as wrong:
            raise TypeError(f"{self._name}: {wrong}") from None
        return body

    def dump(self, value: inspect.BoundArguments) -> bytes:
        return self.write(value.args, value.kwargs, result=False)

    def load(self, body: bytes) -> inspect.BoundArguments:
        message = Message.load(body)
        try:
            bound = self.bind(message.args, message.kwargs)
        except TypeError as wrong:
            raise Unreadable(str(wrong)) from None
        for name, value in bound.arguments.items():
            bound.arguments[name] = self._read(name, value)
        return bound

    def _read(self, name: str, value: Any) -> Any:
        reader = self._readers.get(name)
        if reader is None:
            return value
        kind = self._signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return tuple(reader(each, name) for each in value)
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: reader(each, key) for key, each in value.items()}
        return reader(value, name)

    @cached_property
    def _readers(self) -> dict[str, Read]:
        """Check each argument whose annotation has a form in JSON; made when the first call is
        read, since an annotation may name what is defined after the task.
        """
        found = {}
        for name, kind in get_type_hints(self._function).items():
            with suppress(TypeError, RecursionError):
                found[name] = reader_of(kind)
        return found


def headers_text(headers: Mapping[str, str]) -> str | None:
    """Write headers as metadata, ``name=value;name=value``; None for none.

    :raise ValueError: a name has a character that ends it.
    """
    for name in headers:
        if not name or set(name) & set("=;%"):
            raise ValueError(f"the name of a header has no '=', ';' or '%', unlike {name!r}")
    pairs = (f"{name}={quote(value, safe=_SAFE)}" for name, value in headers.items())
    return ";".join(pairs) or None
