"""Whether NATS servers sync what they acknowledge, which only their HTTP monitors say."""

import asyncio
import json
import os
from contextlib import suppress
from typing import Any, Final

from beanstalk_twisted.replication.stream.addresses import Address, Server

MONITOR_S: Final = 2.0
"""Seconds for a server to greet, and again for its monitor to answer: the start waits for them."""

MAX_MONITOR_BYTES: Final = 1 << 20
"""Limit of a greeting and of an answer: NATS sends some 2 KB, another service may send more."""


async def sync_warnings(url: str, address: Address, limit_s: float = MONITOR_S) -> list[str]:
    """Ask all servers simultaneously; return a warning for each that is not known to sync."""
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
    asked = ""
    try:
        greeting, ip = await _ask(server.host.strip("[]"), server.port, b"", limit_s)
        server_id = _object(greeting.partition(b"\n")[0].removeprefix(b"INFO "))["server_id"]
        asked = f"http://{server.host}:{monitor}/jsz?config=1: "
        request = f"GET /jsz?config=1 HTTP/1.0\r\nHost: {server.host}:{monitor}\r\n\r\n"
        # At the address that has greeted: a name may have several.
        answer, _ = await _ask(ip, monitor, request.encode(), limit_s)
        seconds = _sync_seconds(answer, server_id)
    except ValueError as why:
        what = "could not be asked whether it syncs what it acknowledges"
        return f"{url}: {server} {what}: {asked}{why}"
    if not seconds:
        return ""
    return (
        f"{url}: {server} syncs every {seconds:g} s only (sync_interval): when all machines lose"
        " power, what it acknowledged since is lost. Set `sync_interval: always` there"
    )


def _sync_seconds(answer: bytes, server_id: str) -> float:
    head, _, body = answer.partition(b"\r\n\r\n")
    found = _object(body if head.startswith(b"HTTP/1.") and head[8:13] == b" 200 " else b"")
    # Several servers may share a machine, and one of them is asked at the port of another.
    if found["server_id"] != server_id:
        why = "name one for each, in the order of the URL: ?monitor=PORT,PORT"
        raise ValueError(f"it is the monitor of another server: {why}")
    config = found.get("config")
    if not isinstance(config, dict):
        raise ValueError("JetStream is not switched on there")
    if config.get("sync_always") is True:
        return 0.0
    interval_ns = config.get("sync_interval")
    if type(interval_ns) is not int or not 0 < interval_ns < 1 << 63:
        raise ValueError("its sync_interval is no time")
    return interval_ns / 1e9


async def _ask(host: str, port: int, request: bytes, limit_s: float) -> tuple[bytes, str]:
    """Return the answer to a request, without one the greeting, and the IP address asked."""
    answer = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                while part := await reader.read(MAX_MONITOR_BYTES):
                    answer += part
                    if len(answer) > MAX_MONITOR_BYTES:
                        raise ValueError(f"more than {MAX_MONITOR_BYTES >> 10} KiB have come")
                    if not request and b"\n" in part:
                        break
                return bytes(answer), writer.get_extra_info("peername")[0]
            finally:
                writer.transport.abort()
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ValueError(why or f"it has not answered within {limit_s:g} s") from None


def _object(text: bytes) -> dict[str, Any]:
    with suppress(LookupError, RecursionError, TypeError, ValueError):
        found: dict[str, Any] = json.loads(text)
        if isinstance(found["server_id"], str):
            return found
    raise ValueError("no server of NATS answers there")
