"""
Whether servers of NATS sync what they acknowledge, which their monitors say and clients are not
told.

A monitor is an HTTP port of its own, which the URL names.  Its answer counts only if it is of the
server that clients are sent to: several servers may share a machine, and one of them a port.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from beanstalk_twisted.replication.stream.addresses import Address, Server

MONITOR_S: Final = 2.0
"""
For a server, and again for its monitor, to be reached and answer, seconds in all: both do in
milliseconds, and the start waits for them.
"""

MAX_MONITOR_BYTES: Final = 1 << 20
"""Of what a monitor says, which is some 2 KB: whatever else is at that port may say more."""

MAX_INFO_BYTES: Final = 1 << 16
"""Of the first line of a server, which is some 0.5 KB."""

MAX_INTERVAL_NS: Final = 1 << 63
"""What a server of NATS counts its time in, ns, has room for less."""


class Greeting(NamedTuple):
    """
    How a server has greeted.

    :ivar id: of its process, which its monitor has too.
    :ivar ip: where it was reached: its monitor is asked there, whatever else its name stands for.
    """

    id: str
    ip: str


class Unasked(Exception):
    """It is not known whether a server syncs; the text says why."""


async def sync_warnings(url: str, address: Address, limit_s: float = MONITOR_S) -> list[str]:
    """
    Ask each server that the URL names, all at once.

    :param limit_s: see `MONITOR_S`.
    :return: a warning for each that does not sync what it acknowledges, and for each that could not
        be asked.
    """
    if not address.monitors:
        return [
            f"{url}: NATS does not tell its clients whether it syncs what it acknowledges. Have"
            " `sync_interval: always` in the configuration of each server, and monitor=PORT in the"
            " URL, its http_port, to see it checked"
        ]
    pairs = zip(address.servers, address.monitors, strict=True)
    found = await asyncio.gather(*(_sync_warning(url, *pair, limit_s) for pair in pairs))
    return [warning for warning in found if warning]


async def _sync_warning(url: str, server: Server, monitor: int, limit_s: float) -> str:
    try:
        seconds = await _sync_seconds(server, monitor, limit_s)
    except Unasked as why:
        return f"{url}: {server} could not be asked whether it syncs what it acknowledges: {why}"
    if not seconds:
        return ""
    return (
        f"{url}: {server} syncs every {seconds:g} s only (sync_interval): when all machines lose"
        " power, what it acknowledged since is lost. Set `sync_interval: always` there"
    )


async def _sync_seconds(server: Server, monitor: int, limit_s: float) -> float:
    """
    From one sync to the next; 0 for always.

    :raise Unasked: nobody says so, or another server does.
    """
    greeting = await _greeting(server, limit_s)
    asked = f"http://{server.host}:{monitor}/jsz?config=1"
    try:
        async with _connected(greeting.ip, monitor, limit_s) as (reader, writer):
            said = await _said(reader, writer, f"{server.host}:{monitor}")
    except OSError as error:
        raise Unasked(f"{asked}: {_why(error)}") from None
    except ValueError as why:
        raise Unasked(f"{asked}: {why}") from None
    if said.get("server_id") != greeting.id:
        raise Unasked(
            f"{asked} is the monitor of another server. Where several are on one machine give the"
            " port of each, in the order of the URL: ?monitor=PORT,PORT"
        )
    return _seconds(asked, said.get("config"))


def _seconds(asked: str, config: object) -> float:
    if not isinstance(config, dict):
        raise Unasked(f"{asked}: JetStream is not switched on there")
    if config.get("sync_always") is True:
        return 0.0
    interval_ns = config.get("sync_interval")
    if isinstance(interval_ns, bool) or not isinstance(interval_ns, int | float):
        raise Unasked(f"{asked}: its sync_interval is no number")
    if not 0 < interval_ns < MAX_INTERVAL_NS:
        raise Unasked(f"{asked}: its sync_interval is no time")
    return float(interval_ns) / 1e9


async def _greeting(server: Server, limit_s: float) -> Greeting:
    """
    Connect, and read the first line, which NATS sends to everybody, and in clear.

    :raise Unasked: nothing such has come.
    """
    try:
        async with _connected(server.host.strip("[]"), server.port, limit_s) as (reader, writer):
            first = await reader.readline()
            ip = writer.get_extra_info("peername")[0]
        return Greeting(str(_object(first.removeprefix(b"INFO "))["server_id"]), ip)
    except OSError as error:
        raise Unasked(_why(error)) from None
    except (LookupError, ValueError):
        raise Unasked("it does not greet as a server of NATS does") from None


async def _said(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
) -> Mapping[str, Any]:
    """:raise ValueError: no server of NATS answers."""
    # Of this version an answer is all that comes, without parts of its own.
    writer.write(f"GET /jsz?config=1 HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    said = bytearray()
    while part := await reader.read(MAX_INFO_BYTES):
        said += part
        if len(said) > MAX_MONITOR_BYTES:
            raise ValueError(f"more than {MAX_MONITOR_BYTES >> 10} KiB have come")
    head, _, body = bytes(said).partition(b"\r\n\r\n")
    if not (head.startswith(b"HTTP/1.") and head[8:13] == b" 200 "):
        raise ValueError("no server of NATS answers there")
    return _object(body)


@asynccontextmanager
async def _connected(
    host: str, port: int, limit_s: float
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """
    A connection for one question, a line of which may have `MAX_INFO_BYTES`.

    :raise OSError: it cannot be, or the limit is over.
    """
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_INFO_BYTES)
            try:
                yield reader, writer
            finally:
                writer.transport.abort()
    except TimeoutError as error:
        raise OSError(error.strerror or f"it has not answered within {limit_s:g} s") from None


def _why(error: OSError) -> str:
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error.strerror or error)


def _object(said: bytes) -> Mapping[str, Any]:
    """:raise ValueError: it is none."""
    try:
        found = json.loads(said)
    except (RecursionError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("no server of NATS answers there")
    return found
