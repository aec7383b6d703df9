"""
Finding the function that ``module:function`` names, and the server that a text names.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

DEFAULT_PORT: Final = 11300
"""beanstalkd's."""

ENDPOINTS: Final = ("tcp:", "unix:", "tls:", "ssl:")
"""What begins so is an endpoint of Twisted's already."""


def load(name: str) -> Callable[..., Any]:
    """
    Import a function; modules are looked for in the current directory too.

    :param name: ``package.module:function``, or ``module:object.method``.
    :raise ValueError: there is none.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(f"{name!r} is not MODULE:FUNCTION")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise ValueError(f"{name}: {problem}") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{name}: there is no {part!r} in {module_name}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name} cannot be called")
    function: Callable[..., Any] = found
    return function


def endpoint(text: str) -> str:
    """
    Make an endpoint of ``HOST``, ``HOST:PORT``, ``[::1]:PORT`` or what is one already.

    :raise ValueError: it is none.
    """
    if text.startswith(ENDPOINTS):
        return text
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]") or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no server: write HOST:PORT, or an endpoint of Twisted's")
    return f"tcp:{host.replace(':', chr(92) + ':')}:{port}"
