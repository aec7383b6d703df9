"""HTTP requests to an endpoint on a clock that stands still."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.exchange import Operation
from beanstalk_twisted.web.logins import WRITE_HEADER
from beanstalk_twisted.web.routes import ROUTES, Route, RouteTable
from beanstalk_twisted.web.serving import make_site
from beanstalk_twisted.web.site import HttpSettings, Site
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo

V1: Final = "/api/v1"

NO_HEADERS: Final[Mapping[str, str]] = {}


class Reply(NamedTuple):
    """A reply; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebTransport:
    """A transport whose peer reads at once."""

    protocol: Any

    def __init__(self) -> None:
        self.value = b""
        self.address: Any = IPv4Address("TCP", "127.0.0.1", 4711)
        self.is_closed = self.disconnecting = False

    def write(self, data: bytes) -> None:
        self.value += data

    def writeSequence(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """It is never told to wait."""

    def unregisterProducer(self) -> None:
        """It is told of nothing more."""

    def pauseProducing(self) -> None:
        """What comes is the test's to say."""

    resumeProducing = pauseProducing

    def getPeer(self) -> Any:
        return self.address

    getHost = getPeer

    def loseConnection(self) -> None:
        self.abortConnection()

    def abortConnection(self) -> None:
        if not self.is_closed:
            self.is_closed = self.disconnecting = True
            self.protocol.connectionLost(Failure(ConnectionDone()))


class Browser:
    """A connection to a site."""

    def __init__(self, site: Site, clock: Any, host: str = "127.0.0.1") -> None:
        self.clock = clock
        self.transport = WebTransport()
        self.transport.address = IPv4Address("TCP", host, 4711)
        self.channel = site.buildProtocol(self.transport.getPeer())
        if self.channel is not None:
            self.transport.protocol = self.channel
            self.channel.makeConnection(self.transport)

    @property
    def is_closed(self) -> bool:
        return self.channel is None or self.transport.is_closed

    def send(self, data: bytes) -> bytes:
        while not self.is_closed and self.channel.paused:
            self.clock.advance(0)
        self.transport.value = b""
        if not self.is_closed:
            self.channel.dataReceived(data)
        return self.transport.value

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Reply:
        all_headers = {"host": "localhost", **headers}
        if body or method == "POST":
            all_headers["content-length"] = str(len(body))
        lines = [f"{name}: {value}\r\n" for name, value in all_headers.items()]
        self.send(f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body)
        for _ in range(10_000):
            if self.is_closed or not self.channel._handlingRequest:
                break
            self.clock.advance(0)
        return parsed(self.transport.value)


def parsed(data: bytes) -> Reply:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = joined(body)
    return Reply(int(first.split()[1]), headers, body)


def joined(chunks: bytes) -> bytes:
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body


def browse(
    server: MemoryServer, *names: str, may_write: bool = False, **operations: Operation
) -> Browser:
    """Open a connection to an endpoint of a server."""
    settings = HttpSettings(frozenset(names), may_write)
    return Browser(site_of(server, settings, operations), server.clock)


def site_of(
    server: MemoryServer,
    settings: HttpSettings | None = None,
    operations: Mapping[str, Operation] | None = None,
) -> Site:
    clock = cast(Any, server.clock)
    site = make_site(server.service, settings or HttpSettings(), clock)
    names = operations or {}
    site.operations = {**site.operations, **names}
    rows = [Route(f"/{name}", "GET", name) for name in names]
    changes = [Route(f"/{name}", "POST", name, writes=True) for name in names]
    site.table = RouteTable((*ROUTES, *rows, *changes))
    return site


class Caller:
    """A server, a client of it and who calls the API."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer(directory=MemoryDirectory())
        self.client = self.server.connect()
        self._browser = browse(self.server, may_write=True)

    @property
    def browser(self) -> Browser:
        if self._browser.is_closed:
            self._browser = Browser(self._browser.channel.factory, self.server.clock)
        return self._browser

    def get(self, path: str, status: int = 200) -> Any:
        reply = self.browser.ask("GET", V1 + path)
        assert reply.status == status, reply.body
        return reply.json

    def post(self, path: str, status: int = 200, **fields: Any) -> Any:
        reply = self.send(path, json.dumps(fields).encode())
        assert reply.status == status, reply.body
        return reply.json

    def send(self, path: str, body: bytes) -> Reply:
        return self.browser.ask("POST", V1 + path, body, {WRITE_HEADER: "1"})

    def ask(self, request: bytes) -> bytes:
        return self.client.ask(request)

    def put(self, tube: bytes, *bodies: bytes) -> None:
        self.ask(b"use %s\r\n" % tube)
        for body in bodies:
            self.ask(b"put 5 0 60 %d\r\n%s\r\n" % (len(body), body))

    def state(self, job_id: int) -> str:
        return str(self.get(f"/jobs/{job_id}")["state"])


def settle(server: MemoryServer, io: HeldIo) -> None:
    for _ in range(20):
        while io:
            io.step()
        server.advance(0.1)


def read_prometheus(text: str) -> Any:
    read: Any = parser.text_string_to_metric_families
    return read(text)


def read_openmetrics(text: str) -> Any:
    read: Any = openmetrics_parser.text_string_to_metric_families
    return read(text)
