"""
Whether servers of NATS sync what they acknowledge, which their monitors say and clients are not
told.

A monitor is an HTTP port of its own, which the URL names.  Its answer counts only if it is of the
server that clients are sent to: several servers may share a machine, and one of them a port.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from beanstalk_twisted.replication.stream.addresses import Address, Server

MONITOR_S: Final = 2.0
"""For a server, and again for its monitor, to answer."""

MAX_MONITOR_BYTES: Final = 1 << 20
"""Of what a monitor says, which is some 2 KB: whatever else is at that port may say more."""

MAX_INFO_BYTES: Final = 1 << 16
"""Of the first line of a server, which is some 0.5 KB."""


class Greeting(NamedTuple):
    """
    How a server has greeted.

    :ivar id: of its process, which its monitor has too.
    :ivar ip: where it was reached: its monitor is asked there, whatever else its name stands for.
    """

    id: str
    ip: str


class Unasked(Exception):
    """
    It is not known whether a server syncs; the text says why.
    """


def sync_warnings(url: str, address: Address) -> list[str]:
    """
    Ask each server that the URL names.

    :return: a warning for each that does not sync what it acknowledges, and for each that could not
        be asked.
    """
    if not address.monitors:
        return [
            f"{url}: NATS does not tell its clients whether it syncs what it acknowledges.  Have"
            " `sync_interval: always` in the configuration of each server, and monitor=PORT in the"
            " URL, its http_port, to see it checked"
        ]
    pairs = zip(address.servers, address.monitors, strict=True)
    found = [_sync_warning(url, server, monitor) for server, monitor in pairs]
    return [warning for warning in found if warning]


def _sync_warning(url: str, server: Server, monitor: int) -> str:
    try:
        seconds = _sync_seconds(server, monitor)
    except Unasked as why:
        return f"{url}: {server} could not be asked whether it syncs what it acknowledges: {why}"
    if not seconds:
        return ""
    return (
        f"{url}: {server} syncs every {seconds:g} s only (sync_interval): when all machines lose"
        " power, what it acknowledged since is lost.  Set `sync_interval: always` there"
    )


def _sync_seconds(server: Server, monitor: int) -> float:
    """
    From one sync to the next; 0 for always.

    :raise Unasked: nobody says so, or another server does.
    """
    greeting = _greeting(server)
    asked = f"http://{server.host}:{monitor}/jsz?config=1"
    try:
        said = _said(greeting.ip, monitor)
        who, config = said["server_id"], said["config"]
        always = config.get("sync_always")
        seconds = 0.0 if always else float(config["sync_interval"]) / 1e9
    except http.client.HTTPException:
        # Its text is what has come.
        raise Unasked(f"{asked}: no proper HTTP") from None
    except OSError as error:
        raise Unasked(f"{asked}: {error.strerror or error}") from None
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Unasked(f"{asked}: no server of NATS with JetStream answers there") from None
    if who != greeting.id:
        raise Unasked(
            f"{asked} is the monitor of another server.  Where several are on one machine give the"
            " port of each, in the order of the URL: ?monitor=PORT,PORT"
        )
    return seconds


def _greeting(server: Server) -> Greeting:
    """
    Connect, and read the first line, which NATS sends to everybody, and in clear.

    :raise Unasked: nothing such has come.
    """
    try:
        with socket.create_connection((server.host.strip("[]"), server.port), MONITOR_S) as line:
            line.settimeout(MONITOR_S)
            with line.makefile("rb") as read:
                first = read.readline(MAX_INFO_BYTES)
            ip = line.getpeername()[0]
    except OSError as error:
        raise Unasked(f"{error.strerror or error}") from None
    try:
        return Greeting(str(_object(first.removeprefix(b"INFO "))["server_id"]), ip)
    except (LookupError, RecursionError, ValueError):
        raise Unasked("it does not greet as a server of NATS does") from None


def _said(ip: str, monitor: int) -> Mapping[str, Any]:
    with closing(http.client.HTTPConnection(ip, monitor, timeout=MONITOR_S)) as line:
        line.request("GET", "/jsz?config=1")
        return _object(line.getresponse().read(MAX_MONITOR_BYTES))


def _object(said: bytes) -> Mapping[str, Any]:
    """
    :raise ValueError: it is none.
    """
    found = json.loads(said)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
