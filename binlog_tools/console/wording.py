"""How counts, names and bodies are written, in all commands alike; needs no package of others."""

import base64
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇█"

ASCII_BARS: Final = "12345678"
"""The same heights where there are no such characters."""


def told(count: int, one: str, many: str = "") -> str:
    """A number of things: ``1 job``, ``2 jobs``."""
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"


def text_of(raw: bytes) -> str:
    """Bytes for people and for JSON: a name is nearly always ASCII, and no byte is ever lost."""
    return raw.decode("utf-8", "backslashreplace")


def place_of(problem: Exception) -> str | None:
    """Name the server or file that an error is about."""
    filename = getattr(problem, "filename", None)
    return None if filename is None else str(filename)


def why(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def reason(problem: Exception) -> str:
    """Say what went wrong, and with which server or file."""
    place = place_of(problem)
    return f"{place}: {why(problem)}" if place else why(problem)


def body_fields(body: bytes) -> dict[str, object]:
    """A body for JSON: ``body``, or ``body_base64`` where it is no UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return body_base64(body)


def body_base64(body: bytes) -> dict[str, object]:
    return {"body_base64": base64.b64encode(body).decode()}
