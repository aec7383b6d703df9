"""
Finding the function that ``module:function`` names, and the server that a text names.
"""

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IStreamClientEndpoint

DEFAULT_PORT: Final = 11300
"""beanstalkd's."""

ENDPOINTS: Final = ("tcp:", "unix:", "tls:", "ssl:")
"""What begins so is an endpoint of Twisted's already."""

PORTS: Final = range(1, 65_536)
"""TCP's."""


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
        _check_place(text)
        return text
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]") or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or int(port) not in PORTS:
        raise ValueError(f"{text!r} is no server: write HOST:PORT, or an endpoint of Twisted's")
    return f"tcp:{host.replace(':', chr(92) + ':')}:{port}"


def _check_place(text: str) -> None:
    """
    Refuse an endpoint that would be tried for ever: Twisted takes any number for a port.
    """
    kind, *parts = re.split(r"(?<!\\):", text)
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    unnamed = [part for part in parts if "=" not in part]
    if kind == "unix":
        if not (named.get("path") or "".join(unnamed[:1])):
            raise ValueError(f"{text!r} is no server: write unix:PATH")
        return
    port = named.get("port") or "".join(unnamed[1:2])
    if not port.isascii() or not port.isdigit() or int(port) not in PORTS:
        raise ValueError(f"{text!r} is no server: write {kind}:HOST:PORT, a port being 1 to 65535")


def connectable(reactor: Any, text: str) -> IStreamClientEndpoint:
    """
    Make the endpoint that a text describes.

    :param text: as `endpoint` gives it.
    :raise ValueError: there is no such kind here, or it does not take these options.
    """
    try:
        made: IStreamClientEndpoint = clientFromString(reactor, text)
    except NameError as problem:
        # Twisted's way to say that it has found no OpenSSL.
        why = "TLS needs more packages; run: pip install 'twisted[tls]'"
        raise ValueError(f"{text!r}: {why} ({problem})") from None
    except Exception as problem:  # A plug-in may raise any.
        raise ValueError(f"{text!r} is no server: {problem}") from None
    return made
