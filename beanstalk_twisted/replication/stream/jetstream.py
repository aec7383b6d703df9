"""The stream in NATS JetStream, and how its servers sync."""

import asyncio
import base64
import difflib
import json
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from beanstalk_twisted.replication.stream import settings
from beanstalk_twisted.replication.stream.connection import (
    NO_JETSTREAM,
    PAUSE_S,
    TIMEOUT_S,
    Connection,
    refuse_if_denied,
    told_subject,
)
from beanstalk_twisted.replication.stream.following import JetStreamFollowing, read_some
from beanstalk_twisted.replication.stream.interface import (
    EXPIRE_S,
    MAX_MESSAGE_BYTES,
    Address,
    Ends,
    Health,
    Message,
    Refused,
    Server,
    StreamError,
    StreamLost,
    Unreachable,
    WrongPosition,
)

R = TypeVar("R")

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


OPEN_S: Final = 10.0
"""`JetStream.open` tries so long: NATS elects a leader in 4 to 9 s."""

MAX_LIKE: Final = 5
"""Streams that are named when another one was made beside them: whoever mistyped a name sees it."""

NO_STREAM: Final = 10059
NO_MESSAGE: Final = 10037
WRONG_LAST: Final = (10071, 10164)
NOT_ENABLED: Final = (10039, 10076)
NOT_CLUSTERED: Final = 10074
NO_PEERS: Final = 10005
TOO_LARGE: Final = 10054
SEALED: Final = 10109
STORE_FAILED: Final = 10077
NO_RESOURCES: Final = (10023, 10047, 10028, 10002)
"""Numbers that JetStream gives its errors."""


class ApiError(Exception):
    """JetStream has answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error.get("description", "an error without description"))
        self.number = int(error.get("err_code", 0))


class JetStream:
    """A `Stream` on a cluster of NATS servers.  `open` starts a thread that runs asyncio, in which
    all is done and futures are completed.

    :param environment: where ``NATS_CREDS``, ``NATS_USER``, ``NATS_PASSWORD``, ``NATS_CA``,
        ``NATS_CERT`` and ``NATS_KEY`` are looked up, as the command ``nats`` does.
    :param expire_s: how long messages stay that expire, 1 s or more.
    :raise Refused: a file that they name cannot be read.
    """

    def __init__(
        self, address: Address, environment: Mapping[str, str] = os.environ,
        open_s: float = OPEN_S, expire_s: int = EXPIRE_S,
    ) -> None:  # fmt: skip
        self.url = address.shown
        self._open_s = open_s
        self._address = address
        self._name = address.name
        self._subject = settings.subject(address.name)
        self._connection = Connection(address, _options(address, environment))
        self._is_started = False
        self._created = ""
        self._expiry = {"Nats-TTL": f"{expire_s}s"}
        self._can_expire = False
        self._short_since: float | None = None
        self._followings: list[JetStreamFollowing] = []
        self._turns: dict[str, asyncio.Lock] = {
            kind: asyncio.Lock() for kind in ("open", "ends", "health", "read", "purge")
        }

    def open(self, makes: bool = True) -> "Future[list[str]]":
        if not self._is_started:
            self._is_started = True
            self._connection.start()
        return self._in_turn("open", partial(self._open, makes))

    def ends(self) -> "Future[Ends]":
        return self._in_turn("ends", self._ends)

    def health(self) -> "Future[Health]":
        return self._in_turn("health", self._health)

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> "Future[int]":
        return self._connection.submit(self._append(payload, expected, expires))

    def read(self, position: int) -> "Future[Message | None]":
        return self._in_turn("read", partial(self._read, position))

    def read_on(self, position: int) -> "Future[list[Message]]":
        first = max(position, 1)
        read = partial(read_some, self._connection, self._name, first, self._api_for_reader)
        return self._in_turn("read", read)

    def follow(
        self, position: int, receive: Callable[[Sequence[Message]], None],
        ended: Callable[[StreamError], None],
    ) -> JetStreamFollowing:  # fmt: skip
        following = JetStreamFollowing(
            self._connection, self._name, max(position, 1), self._api_for_reader,
            self._check_followed, receive, ended,
        )  # fmt: skip
        self._followings.append(following)
        self._connection.soon(following.begin)
        return following

    def purge(self, below: int) -> "Future[None]":
        return self._in_turn("purge", partial(self._purge, below))

    def tell(self, payload: bytes) -> None:
        self._connection.soon(self._connection.tell, told_subject(self._name), payload)

    def hear(self, receive: Callable[[bytes], None]) -> None:
        self._connection.submit(self._connection.hear(told_subject(self._name), receive))

    def close(self) -> "Future[None]":
        for following in self._followings:
            following.stop()
        return self._connection.stop()

    def _in_turn(self, kind: str, work: Callable[[], Awaitable[R]]) -> "Future[R]":
        return self._connection.submit(self._after_those_before(kind, work))

    async def _after_those_before(self, kind: str, work: Callable[[], Awaitable[R]]) -> R:
        try:
            async with self._turns[kind]:
                return await work()
        except ApiError as error:
            raise Unreachable(f"{self.url}: {error}") from None

    async def _api(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body else b""
        return _checked(await self._connection.request(f"$JS.API.{what}", payload))

    async def _open(self, makes: bool) -> list[str]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._open_s
        while True:
            try:
                return await self._opened(makes)
            except Unreachable as error:
                refuse_if_denied(self.url, str(error).removeprefix(f"{self.url}: "))
                self._refuse_if_unfit()
                if loop.time() > until:
                    raise
            except ApiError as error:
                if error.number in NOT_ENABLED:
                    self._connection.leave()
                    self._refuse_if_unfit()
                if loop.time() > until:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _opened(self, makes: bool) -> list[str]:
        await self._connection.client(min(TIMEOUT_S, self._open_s))
        others: list[str] = []
        try:
            info = await self._api(f"STREAM.INFO.{self._name}", {})
        except ApiError as error:
            if error.number != NO_STREAM:
                raise
            if not makes:
                raise Refused(f"{self.url}: there is no stream {self._name}") from None
            info = await self._make()
            others = await self._others()
        self._created = info["created"]
        self._can_expire = settings.can_expire(info["config"])
        warnings = settings.check(self.url, self._name, info["config"])
        if others:
            warnings.insert(0, settings.made_beside(self.url, self._name, others))
        return warnings + await sync_warnings(self.url, self._address)

    async def _make(self) -> dict[str, Any]:
        try:
            return await self._create(settings.REPLICAS)
        except ApiError as error:
            if error.number == NOT_CLUSTERED:
                return await self._create(1)
            if error.number != NO_PEERS:
                raise
        raise Unreachable(
            f"{self.url}: there is no stream {self._name} yet, and to make it"
            f" {settings.REPLICAS} servers with JetStream must run"
        )

    async def _others(self) -> list[str]:
        """Other streams of queues, those like ours first; none if we may not ask."""
        try:
            found = await self._api("STREAM.NAMES", {"subject": settings.subject("*")})
        except (ApiError, Unreachable):
            return []
        names = [name for name in found.get("streams") or [] if name != self._name]
        return difflib.get_close_matches(self._name, names, MAX_LIKE, cutoff=0.0)

    async def _create(self, replicas: int) -> dict[str, Any]:
        return await self._api(f"STREAM.CREATE.{self._name}", settings.wanted(self._name, replicas))

    async def _ends(self) -> Ends:
        return _ends_of(await self._info())

    async def _info(self) -> dict[str, Any]:
        """:raise StreamLost: the stream that was opened is not there any more."""
        info = await self._api_for_reader(f"STREAM.INFO.{self._name}", {})
        if self._created and info["created"] != self._created:
            raise StreamLost(f"{self.url}: the stream {self._name} was deleted and made anew")
        return info

    async def _health(self) -> Health:
        info = await self._info()
        problems = settings.problems(self.url, self._name, info["config"])
        return Health(problems, settings.copies_of(info), _ends_of(info))

    async def _append(self, payload: bytes, expected: int, expires: bool) -> int:
        if len(payload) > MAX_MESSAGE_BYTES:
            raise Refused(f"{self.url}: a message of {len(payload)} bytes is too large")
        headers = {"Nats-Expected-Last-Sequence": str(expected)}
        if expires and self._can_expire:
            headers |= self._expiry
        try:
            answer = await self._connection.request(self._subject, payload, headers)
            return int(_checked(answer)["seq"])
        except ApiError as error:
            why = f"{self.url}: {error}"
            if error.number in WRONG_LAST:
                raise WrongPosition(f"{why}, not {expected}") from None
            if error.number in (TOO_LARGE, SEALED):
                raise Refused(f"{why}: see `nats stream info {self._name}`") from None
            raise Unreachable(f"{why}{self._remedy(error.number)}") from None

    def _remedy(self, number: int) -> str:
        if number == STORE_FAILED:
            return f": see `nats stream info {self._name}`, and whether its limits are reached"
        if number in NO_RESOURCES:
            return ": make room for JetStream on its servers, or raise max_file_store there"
        return ""

    async def _read(self, position: int) -> Message | None:
        asked = {"seq": max(position, 1), "next_by_subj": self._subject}
        try:
            found = (await self._api(f"STREAM.MSG.GET.{self._name}", asked))["message"]
        except ApiError as error:
            if error.number == NO_MESSAGE:
                return None
            raise
        return Message(found["seq"], base64.b64decode(found.get("data", "")))

    async def _purge(self, below: int) -> None:
        if below > 1:
            await self._api(f"STREAM.PURGE.{self._name}", {"seq": below})

    async def _api_for_reader(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._api(what, body)
        except ApiError as error:
            if error.number == NO_STREAM:
                raise StreamLost(f"{self.url}: the stream {self._name} was deleted") from None
            raise Unreachable(f"{self.url}: {error}") from None

    async def _check_followed(self, last: int) -> None:
        if (found := _ends_of(await self._info()).last) >= last:
            self._short_since = None
            return
        # A server that does not know yet that it leads no longer may say so for a while.
        now = asyncio.get_running_loop().time()
        self._short_since = self._short_since or now
        if now - self._short_since < OPEN_S:
            raise Unreachable(f"{self.url}: no message at {last}")
        raise StreamLost(
            f"{self.url}: the stream {self._name} ends at {found}, and had a message at {last}:"
            " NATS has lost messages that it acknowledged"
        )

    def _refuse_if_unfit(self) -> None:
        why = self._connection.unfit
        if why == NO_JETSTREAM:
            why += (
                ". Put `jetstream { store_dir: …, sync_interval: always }` into the configuration"
                " of each server"
            )
        if why:
            raise Refused(f"{self.url}: {why}")


def _checked(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.data)
    if "error" in found:
        raise ApiError(found["error"])
    return found


def _ends_of(info: Mapping[str, Any]) -> Ends:
    state = info["state"]
    last = state["last_seq"]
    return Ends(state["first_seq"] if state["messages"] else last + 1, last)


def _options(address: Address, environment: Mapping[str, str]) -> dict[str, Any]:
    """Names of variables are those of ``nats``.  :raise Refused: a file cannot be read."""
    options: dict[str, Any] = {"name": "beanstalk-twisted"}
    if creds := address.creds or environment.get("NATS_CREDS"):
        options["user_credentials"] = _readable(creds, "credentials")
    elif user := environment.get("NATS_USER"):
        options |= {"user": user, "password": environment.get("NATS_PASSWORD", "")}
    if address.scheme == "tls":
        options["tls"] = _tls(environment)
    return options


def _readable(path: str, what: str) -> str:
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise Refused(f"the file of {what} for NATS, {path}: {error.strerror}") from None


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=environment.get("NATS_CA") or None)
        if certificate := environment.get("NATS_CERT"):
            context.load_cert_chain(certificate, environment.get("NATS_KEY") or None)
    except OSError as error:
        raise Refused(
            f"the certificates for NATS in NATS_CA, NATS_CERT, NATS_KEY: {error}"
        ) from None
    return context
