"""Bodies to values and back."""

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import partial
from types import NoneType, UnionType
from typing import Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Unreadable(ValueError):
    """The body is not what was agreed upon.  The attempt fails with it, and `Retry` buries."""


class Serialiser(Protocol[T]):
    """One way to write values as bodies."""

    def load(self, body: bytes) -> T:
        """:raise Unreadable: it is none of ours."""

    def dump(self, value: T) -> bytes:
        """:raise TypeError, ValueError: the value cannot be written."""


class Bytes(Serialiser[bytes]):
    """The body as it is."""

    def load(self, body: bytes) -> bytes:
        return body

    def dump(self, value: bytes) -> bytes:
        return value


class Json(Serialiser[Any]):
    """JSON in UTF-8; a dataclass is written as an object of its fields."""

    def load(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as problem:
            raise Unreadable(f"not JSON: {problem}") from None

    def dump(self, value: Any) -> bytes:
        try:
            return _ENCODER.encode(value).encode()
        except RecursionError:
            raise ValueError("it is nested too deeply for JSON") from None


class Typed(Serialiser[T]):
    """A dataclass as an object of JSON, each field checked against its type.

    Fields may be ``str``, ``int``, ``float``, ``bool``, ``None``, dataclasses, ``list[…]``,
    ``tuple[…, ...]``, ``dict[str, …]``, unions of these, and ``Any``.  A whole number will do for a
    ``float``.  A field with a default may be missing; one that is not known makes the body
    unreadable, unless those are ignored.
    """

    def __init__(self, kind: type[T], *, ignores_unknown: bool = False) -> None:
        """:param ignores_unknown: leave out the fields that the dataclass, or one in it, does not
            have: producers may then add some before the workers know them.
        :raise TypeError: it is not a dataclass, or one of its fields has another type.
        """
        if not is_dataclass(kind):
            raise TypeError(f"{kind} is not a dataclass")
        try:
            self._read = reader_of(kind, ignores_unknown)
        except RecursionError:
            raise TypeError(f"{kind} contains itself; write a serialiser of your own") from None
        self._json = Json()

    def load(self, body: bytes) -> T:
        value: T = self._read(self._json.load(body), "")
        return value

    def dump(self, value: T) -> bytes:
        return self._json.dump(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


_ENCODER: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
)

Read = Callable[[Any, str], Any]


class WrongType(Unreadable):
    """The value that stands there, and not one within it, is of another type."""

    def __init__(self, value: Any, where: str, wanted: str) -> None:
        super().__init__(f"{where or 'the body'} is {type(value).__name__}, not {wanted}")
        self.where = where


def reader_of(kind: Any, ignores_unknown: bool = False) -> Read:
    """Make what checks a value of JSON at a place, and makes it one of that type.

    :raise TypeError: there is no way to read the type.
    """
    reader = partial(reader_of, ignores_unknown=ignores_unknown)
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, ignores_unknown)
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, where: value
    if kind in (str, int, float, bool, None, NoneType):
        return _scalar(NoneType if kind is None else kind)
    if origin in (Union, UnionType):
        return _union([reader(arg) for arg in args], kind)
    if origin is list:
        return _sequence(reader(args[0]), list)
    if origin is tuple and len(args) == 2 and args[1] is ...:
        return _sequence(reader(args[0]), tuple)
    if origin is dict and args[0] is str:
        return _mapping(reader(args[1]))
    raise TypeError(f"no way to read {kind} from JSON; write a serialiser of your own")


def _scalar(kind: type) -> Read:
    def read(value: Any, where: str) -> Any:
        # bool is an int to Python, not to JSON; a whole number is a float to both.
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise WrongType(value, where, kind.__name__)

    return read


def _union(readers: list[Read], kind: Any) -> Read:
    def read(value: Any, where: str) -> Any:
        within: list[Unreadable] = []
        for each in readers:
            try:
                return each(value, where)
            except Unreadable as problem:
                if not (isinstance(problem, WrongType) and problem.where == where):
                    within.append(problem)
        if len(within) == 1:  # It is of this type, and what is wrong is deeper inside.
            raise within[0]
        raise WrongType(value, where, str(kind))

    return read


def _sequence(read_one: Read, make: Callable[[list[Any]], Any]) -> Read:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise WrongType(value, where, "a list")
        return make([read_one(each, f"{where}[{place}]") for place, each in enumerate(value)])

    return read


def _mapping(read_one: Read) -> Read:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise WrongType(value, where, "an object")
        return {key: read_one(each, f"{where}.{key}") for key, each in value.items()}

    return read


def _object(kind: Any, ignores_unknown: bool) -> Read:
    hints = get_type_hints(kind)
    taken = [each for each in fields(kind) if each.init]
    readers = {each.name: reader_of(hints[each.name], ignores_unknown) for each in taken}
    needed = {
        each.name for each in taken if each.default is MISSING and each.default_factory is MISSING
    }

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise WrongType(value, where, f"an object with the fields of {kind.__name__}")
        if missing := sorted(needed - value.keys()):
            raise Unreadable(f"{where or 'the body'} has no {missing[0]!r}")
        unknown = sorted(value.keys() - readers.keys())
        if unknown and not ignores_unknown:
            raise Unreadable(f"{where or 'the body'} has {unknown[0]!r}, which nobody knows")
        given = {
            name: readers[name](each, f"{where}.{name}")
            for name, each in value.items()
            if name in readers
        }
        try:
            return kind(**given)
        except (TypeError, ValueError) as problem:
            raise Unreadable(f"{where or 'the body'}: {problem}") from None

    return read
