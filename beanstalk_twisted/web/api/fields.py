"""What requests of the API say, as values; wrong ones are refused."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from beanstalk_twisted.web.exchange import Refusal

MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1


def query_number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """:raise Refusal: it is no number from ``low`` to ``high``."""
    return _number(name, query.get(name, str(default)), low, high)


def query_choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """:return: one of them, the first if it is not given.
    :raise Refusal: it is none of them.
    """
    value = query.get(name, choices[0])
    if value not in choices:
        raise Refusal(400, f"{name} is one of {', '.join(choices)}")
    return value


def job_id(parameters: Mapping[str, str]) -> int:
    """The number of the job that the path names."""
    return _number("the job", parameters["job"], 0, MAX_U64)


def run_number(parameters: Mapping[str, str]) -> int:
    """The number of the run that the path names."""
    return _number("the run", parameters["run"], 1, MAX_U64)


def fields_of(body: bytes) -> dict[str, Any]:
    """The fields of a request that changes something: a JSON object, or nothing.

    :raise Refusal: it is none.
    """
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, "the body of the request is a JSON object")
    return value


def number(fields: dict[str, Any], name: str, default: int | None, high: int = MAX_U32) -> int:
    """Take a field that is a number from 0 to ``high``.

    :raise Refusal: it is none, or is missing and has no default.
    """
    value = fields.pop(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise Refusal(400, f"{name} is a whole number from 0 to {high}")
    return value


def text(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    """Take a field that is a string.

    :raise Refusal: it is none, or is missing and has no default.
    """
    value = fields.pop(name, default)
    if not isinstance(value, str):
        raise Refusal(400, f"{name} is a string")
    return value


def body_of(fields: dict[str, Any]) -> bytes | None:
    """Take the body of a job: ``body``, a string, or ``body_base64``.

    :return: None if there is neither.
    :raise Refusal: it is wrong, or there are both.
    """
    plain, coded = fields.pop("body", None), fields.pop("body_base64", None)
    if plain is not None and coded is not None:
        raise Refusal(400, "there is either body or body_base64")
    try:
        if plain is not None:
            return text({"body": plain}, "body").encode()
        if coded is None:
            return None
        return base64.b64decode(text({"body_base64": coded}, "body_base64"), validate=True)
    except (ValueError, binascii.Error):
        raise Refusal(400, "body is a string of Unicode, body_base64 of base64") from None


def no_more(fields: dict[str, Any]) -> None:
    """:raise Refusal: there is a field that nobody has taken."""
    if fields:
        raise Refusal(400, f"unknown field: {sorted(fields)[0][:100]}")


def shown_body(body: bytes, most: int) -> dict[str, Any]:
    """A body, or its beginning, as text if it is UTF-8, else in base64."""
    part = body[:most]
    about: dict[str, Any] = {"size": len(body), "truncated": len(body) > most}
    try:
        # The cut may be within a character.
        about["text"] = part.decode() if len(part) == len(body) else _whole_characters(part)
    except UnicodeDecodeError:
        about["base64"] = base64.b64encode(part).decode()
    return about


def _whole_characters(part: bytes) -> str:
    for cut in range(4):
        try:
            return part[: len(part) - cut].decode()
        except UnicodeDecodeError:
            continue
    return part.decode()


def _number(name: str, value: str, low: int, high: int) -> int:
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(high))
    if not is_number or not low <= int(value) <= high:
        raise Refusal(400, f"{name} is a whole number from {low} to {high}")
    return int(value)
