"""How the server's log names addresses, and what it advises when one cannot be listened on."""

import errno
import os
import socket
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import CannotListenError

MAX_PORT: Final = 65_535
"""TCP's."""

LOWEST_FREE_PORT: Final = 1024
"""Ports below it are for root, as a rule."""


def in_words(address: object) -> str:
    """
    :param address: of a port or a peer.
    :return: ``HOST:PORT``, ``[HOST]:PORT`` or ``unix:PATH``, as options take it; the address's own
        words if it is of another kind.
    """
    if isinstance(address, UNIXAddress):
        return _unix(address.name)
    if isinstance(address, IPv4Address | IPv6Address):
        return _tcp(address.host, address.port)
    return str(address)


def why_not(error: BaseException, option: str) -> str:
    """
    :param error: what listening has raised.
    :param option: the option that named the address; for the advice.
    :return: where, why, and what to do, in one line.
    """
    if not isinstance(error, CannotListenError):
        return f"cannot listen: {error}"
    problem = error.socketError
    number = problem.errno if isinstance(problem, OSError) else None
    system_says = problem.strerror if isinstance(problem, OSError) else None
    # In the middle of a sentence.
    why = system_says[:1].lower() + system_says[1:] if system_says else str(problem)
    if isinstance(error.port, int):
        where = _tcp(error.interface or "*", error.port)
        advice = _advice(problem, error.port, option)
        return f"cannot listen on {where}: {why}. {advice}"
    advice = f" Name a path where user {os.geteuid()} may write." if number == errno.EACCES else ""
    return f"cannot listen on {_unix(error.port)}: {why}.{advice}"


def _tcp(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unix(name: bytes | str | None) -> str:
    path = os.fsdecode(name or b"")
    shown = f"@{path[1:]}" if path.startswith("\0") else path
    return f"unix:{shown}"


def _advice(problem: object, port: int, option: str) -> str:
    if isinstance(problem, socket.gaierror):
        return "Name an address of this machine: --address 127.0.0.1."
    number = problem.errno if isinstance(problem, OSError) else None
    if number == errno.EADDRINUSE:
        return f"Is another beanstalkd running? Try {_other_port(port, option)}."
    if number == errno.EADDRNOTAVAIL:
        return "This machine has no such address; 'ip address' shows those that it has."
    if number == errno.EACCES:
        return f"Try {_other_port(max(port, LOWEST_FREE_PORT), option)}."
    return f"Try {_other_port(port, option)}."


def _other_port(port: int, option: str) -> str:
    other = port + 1 if port < MAX_PORT else port - 1
    return f"{option} {other}" if option == "--port" else f"another port in {option}"
