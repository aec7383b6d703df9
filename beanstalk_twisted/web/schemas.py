"""Fields of requests, which check what is given, and JSON schemas of fields and replies."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.web.exchange import Refusal
from beanstalk_twisted.wire.grammar import MAX_U32, MAX_U64

Schema = Mapping[str, Any]
"""A JSON schema, as OpenAPI 3.1 takes it."""

REPLY: Final = "#/components/schemas/"


class Field(NamedTuple):
    """A field of a path, of a query or of a request's body.

    :ivar read: takes a value and what to call it, and returns the value; raises a `Refusal` for a
        wrong one.
    :ivar default: of a field that is not given; None leaves it out.
    :ivar about: one sentence, for people.
    :ivar shared: its name among the shared parameters of the description, if it is one.
    """

    name: str
    schema: Schema
    read: Callable[[Any, str], Any]
    default: Any = None
    is_required: bool = False
    about: str = ""
    shared: str = ""

    def of_text(self, text: str) -> Any:
        """Read a value of a path or query as what its schema says, if it can be that."""
        if self.schema["type"] != "integer":
            return text
        longest = len(str(self.schema.get("maximum", MAX_U64)))
        is_number = text.isascii() and text.isdigit() and len(text) <= longest
        return int(text) if is_number else text


def whole(
    name: str, low: int = 0, high: int | None = None, *, default: int | None = None,
    is_required: bool = False, about: str = "", shared: str = "",
) -> Field:  # fmt: skip
    """:param high: None for that of any number here, 2**64 - 1."""
    schema: dict[str, Any] = {"type": "integer", "minimum": low}
    if high is not None:
        schema["maximum"] = high
    if default is not None:
        schema["default"] = default
    most = MAX_U64 if high is None else high

    def read(value: Any, what: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
            raise Refusal(400, f"{what} is a whole number from {low} to {most}")
        return value

    return Field(name, schema, read, default, is_required, about, shared)


def choice(
    name: str, choices: Iterable[str], *, expected: str = "", is_required: bool = False,
    about: str = "",
) -> Field:  # fmt: skip
    """:param choices: the first is the default, unless the field is required.
    :param expected: what a refusal says before the choices.
    """
    values = list(choices)
    default = None if is_required else values[0]
    schema: dict[str, Any] = {"type": "string", "enum": values}
    if default is not None:
        schema["default"] = default

    def read(value: Any, what: str) -> Any:
        if not (isinstance(value, str) or expected):
            raise Refusal(400, f"{what} is a string")
        if value not in values:
            raise Refusal(400, f"{expected or f'{what} is one of'} {', '.join(values)}")
        return value

    return Field(name, schema, read, default, is_required, about)


def text(
    name: str, about: str = "", *, expected: str = "", is_required: bool = False, shared: str = "",
    **schema: Any,
) -> Field:  # fmt: skip
    """:param schema: what else is known of it, which its operation checks; ``minLength`` is checked
    here.
    """
    least = schema.get("minLength", 0)

    def read(value: Any, what: str) -> Any:
        if not isinstance(value, str) or len(value) < least:
            raise Refusal(400, expected or f"{what} is a string")
        return value

    return Field(name, {"type": "string", **schema}, read, None, is_required, about, shared)


def free(name: str, about: str, **schema: Any) -> Field:
    """A field that its operation checks."""
    return Field(name, schema, lambda value, what: value, about=about)


def checked(fields: Iterable[Field], given: Mapping[str, Any], what: str = "{}") -> dict[str, Any]:
    """Check what is given of these fields, in their order; fill in defaults.

    :param what: what a field is called, by its name.
    :raise Refusal: a value is wrong, or one that is required is missing.
    """
    values: dict[str, Any] = {}
    for field in fields:
        if field.name in given or field.is_required:
            value = given.get(field.name)
            values[field.name] = field.read(value, what.format(field.name))
        elif field.default is not None:
            values[field.name] = field.default
    return values


def object_of(body: bytes) -> dict[str, Any]:
    """:raise Refusal: the body is neither empty nor a JSON object."""
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, "the body of the request is a JSON object")
    return value


# Schemas of replies.


def of(kind: str | list[str], about: str = "", **more: Any) -> Schema:
    """Make the schema of a value.  :param kind: its JSON type; several if it may be null."""
    return {"type": kind, **more, **({"description": about} if about else {})}


def count(about: str = "", low: int = 0) -> Schema:
    return of("integer", about, minimum=low)


def ref(name: str) -> Schema:
    return {"$ref": REPLY + name}


def many(items: Schema, about: str = "") -> Schema:
    return of("array", about, items=items)


def record(
    properties: Mapping[str, Schema], about: str = "", kind: str | list[str] = "object",
    **more: Any,
) -> Schema:  # fmt: skip
    """Make the schema of an object.

    :param properties: a ``?`` ends the name of one that may be missing.
    """
    required = [name for name in properties if not name.endswith("?")]
    named = {name.removesuffix("?"): schema for name, schema in properties.items()}
    return {**of(kind, about, **more), "required": required, "properties": named}


STRING: Final = of("string")
NUMBER: Final = of("number")
INTEGER: Final = of("integer")
U32: Final = of("integer", minimum=0, maximum=MAX_U32)
MAYBE_INTEGER: Final = of(["integer", "null"])
NOTHING: Final[Schema] = {"type": "object", "maxProperties": 0}
ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": True}
