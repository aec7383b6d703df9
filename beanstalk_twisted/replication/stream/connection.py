"""The connection to NATS, in a thread of its own that runs asyncio."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from beanstalk_twisted.replication.stream.interface import Address, Refused, Unreachable
from beanstalk_twisted.replication.stream.settings import too_small

R = TypeVar("R")

TIMEOUT_S: Final = 2.0
"""For an answer: shorter than the default lease, so that its holder can find out and try again."""

CONNECT_S: Final = 2.0
"""For a connection to one server; then the next one is tried."""

PAUSE_S: Final = 0.1
"""Between two attempts, and before a server's "nobody is there" is told: callers try again."""

PING_S: Final = 1
"""Between two pings; a server that leaves `MAX_PINGS` of them unanswered is given up."""

MAX_PINGS: Final = 2

MAX_DENIED: Final = 8
"""Subjects that were not permitted are remembered, more than there are kinds of request."""

NO_JETSTREAM: Final = "JetStream is not switched on there"

NO_ANSWER: Final = (
    "no answer in time: do two of three servers run, reach each other and have space on their"
    " disks?"
)

RIGHTS: Final = "give its user the rights of docs/replication-nats.md, Rights"

_SUBJECT: Final = re.compile(r'permissions violation for publish to "([^"]*)"', re.IGNORECASE)


class Connection:
    """A connection to one of several NATS servers, made anew for ever.

    nats-py's own reconnecting is not used: it keeps what could not be sent and sends it later, and
    it ends for good at some errors.  Here a lost connection fails all that waits, at once.

    :ivar trouble: why there is no connection, in words; "" if there is one.
    :ivar url: as it may be shown.
    """

    def __init__(self, address: Address, options: Mapping[str, Any]) -> None:
        self.trouble = "no server has answered yet"
        self.url = address.shown
        self._address = address
        self._options = options
        self._client: Client | None = None
        self._inbox = ""
        self._tokens = itertools.count()
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        self._told: Callable[[bytes], None] | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._ended: Future[None] = Future()
        self._unfit: dict[str, str] = {}
        self._denied: dict[str, str] = {}
        self._server = ""
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="nats", daemon=True)

    @property
    def unfit(self) -> str:
        """Why a server cannot be used, when each of them has said of itself that it cannot when it
        was asked last; else nothing.  One of several may have switched JetStream off, as NATS does
        when its disk is full.
        """
        servers = [str(server) for server in self._address.servers]
        is_each = all(server in self._unfit for server in servers)
        return self._unfit[servers[0]] if is_each else ""

    def leave(self) -> None:
        self._unfit[self._server] = NO_JETSTREAM
        self._over.set()

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, R]) -> "Future[R]":
        """Carry out in the thread.  Those submitted in an order begin in this order."""
        if self._ended.done() or not self._thread.is_alive():
            work.close()
            failed: Future[R] = Future()
            failed.set_exception(Unreachable(f"{self.url}: not open"))
            return failed
        return asyncio.run_coroutine_threadsafe(self._or_closed(work), self._loop)

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call in the thread, if it still runs."""
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                return

    def stop(self) -> "Future[None]":
        """End the thread; what is under way fails with `Unreachable`."""
        if not self._thread.is_alive() and not self._ended.done():
            # It was never started: nobody else closes what asyncio has opened.
            self._loop.close()
            self._ended.set_result(None)
        self.soon(self._stopping.set)
        return self._ended

    async def client(self, seconds: float = TIMEOUT_S) -> Client:
        """:raise Unreachable: there is no connection in time."""
        if self._client is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), seconds)
        if self._client is None:
            raise Unreachable(f"{self.url}: {self.trouble}")
        return self._client

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Msg:
        """Requests leave in the order of the calls.  :raise Unreachable: there was no answer."""
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = self._loop.create_future()
        self._answers[token] = answer
        timer = self._loop.call_later(TIMEOUT_S, self._not_answered, answer, subject)
        try:
            async with self._sending:
                if answer.done():
                    await answer
                client = await self.client()
                # A server that takes no bytes must not keep the next one waiting.
                async with asyncio.timeout(TIMEOUT_S):
                    await client.publish(subject, payload, f"{self._inbox}.{token}", headers)
            found = await answer
        except (errors.Error, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {error or 'nothing can be sent'}") from None
        finally:
            timer.cancel()
            del self._answers[token]
            if answer.done() and not answer.cancelled():
                answer.exception()
        self._denied.pop(subject.lower(), None)
        if found.headers and found.headers.get("Status") == "503":
            await asyncio.sleep(PAUSE_S)
            raise Unreachable(f"{self.url}: nobody answers {subject}: is there a leader?")
        return found

    def tell(self, subject: str, payload: bytes) -> None:
        """Send, in the thread, to whoever hears; what cannot be sent is lost."""
        if self._client is not None:
            self._loop.create_task(self._send(self._client, subject, payload))

    async def hear(self, subject: str, receive: Callable[[bytes], None]) -> None:
        """Give what is told from now on, over all connections to come."""
        is_first, self._told = self._told is None, receive
        if is_first and self._client is not None:
            await self._listen(self._client, subject)

    async def _send(self, client: Client, subject: str, payload: bytes) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await client.publish(subject, payload)
        except (errors.Error, TimeoutError):
            return

    async def _listen(self, client: Client, subject: str) -> None:
        async def give(message: Msg) -> None:
            if self._told is not None:
                self._told(message.data)

        await client.subscribe(subject, cb=give)

    def _run(self) -> None:
        # Signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        finally:
            self._ended.set_result(None)

    async def _main(self) -> None:
        keeping = self._loop.create_task(self._keep_connected())
        await self._stopping.wait()
        keeping.cancel()
        await asyncio.wait([keeping])
        # Runner would do it too, and print what each of them raises.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _or_closed(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            return await work
        except asyncio.CancelledError:
            raise Unreachable(f"{self.url}: closed") from None

    async def _keep_connected(self) -> None:
        for server in itertools.cycle(self._address.servers):
            over = self._over = asyncio.Event()
            self._server = str(server)
            client = EncryptedClient() if self._address.scheme == "tls" else Client()
            try:
                await self._connect(client, f"{self._address.scheme}://{server}", over)
                self.trouble = ""
                await self._until_closed(client, over)
                self._lost(f"{server} has closed the connection")
            except asyncio.CancelledError:
                raise_if_cancelled()
                self._lost(f"{server} has closed the connection")
            except Exception as error:
                self._lost(f"{server}: {self._reason(error)}")
            finally:
                self._client = None
                await self._close(client)
            await asyncio.sleep(PAUSE_S)

    async def _until_closed(self, client: Client, over: asyncio.Event) -> None:
        """Its end is told only behind its last bytes, and a cut-off server leaves those waiting."""
        while not (over.is_set() or client.is_closed):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), PING_S)

    async def _close(self, client: Client) -> None:
        """Whatever goes wrong with the end of one connection, another is made."""
        try:
            await asyncio.wait_for(client.close(), CONNECT_S)
        except asyncio.CancelledError:
            raise_if_cancelled()
        except Exception as error:
            self.trouble = self._reason(error)

    async def _connect(self, client: Client, server: str, over: asyncio.Event) -> None:
        async def closed() -> None:
            over.set()

        self._errors: list[Exception] = []
        self._denied.clear()
        await asyncio.wait_for(
            client.connect(
                [server], allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                connect_timeout=int(CONNECT_S), ping_interval=PING_S,
                max_outstanding_pings=MAX_PINGS, error_cb=self._noted, closed_cb=closed,
                **self._options,
            ),
            CONNECT_S,
        )  # fmt: skip
        self._unfit.pop(self._server, None)
        has_jetstream = client._server_info.get("jetstream")
        # It tells that once, at the beginning of a connection.
        if why := too_small(client.max_payload) if has_jetstream else NO_JETSTREAM:
            self._unfit[self._server] = why
            raise errors.Error(why)
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*", cb=self._answered)
        if self._told is not None:
            await self._listen(client, told_subject(self._address.name))
        self._client = client
        self._arrived.set()

    async def _noted(self, error: Exception) -> None:
        self._errors.append(error)
        del self._errors[:-8]
        if "permissions violation" in str(error).lower():
            found = _SUBJECT.search(str(error))
            # nats-py makes all letters small.
            self._denied[found[1].lower() if found else ""] = str(error).removeprefix("nats: ")
            while len(self._denied) > MAX_DENIED:
                del self._denied[next(iter(self._denied))]

    def _reason(self, error: Exception) -> str:
        if isinstance(error, errors.NoServersError) and self._errors:
            error = self._errors[-1]
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.verify_message}: NATS_CA=FILE names who has signed its certificate"
        if isinstance(error, socket.gaierror):
            return str(error.strerror)
        if isinstance(error, TimeoutError):
            return "no answer in time"
        if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
            return os.strerror(error.errno)
        return str(error).removeprefix("nats: ").strip("'") or type(error).__name__

    async def _answered(self, message: Msg) -> None:
        answer = self._answers.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _lost(self, why: str) -> None:
        self.trouble = why
        self._client = None
        self._arrived.clear()
        for answer in self._answers.values():
            self._fail(answer, why)

    def _not_answered(self, answer: "asyncio.Future[Msg]", subject: str) -> None:
        """What is not permitted is not answered; nor is anything, if hearing the answers is not."""
        denied = self._denied.get(subject.lower()) or self._denied.get("")
        self._fail(answer, f"{denied}: {RIGHTS}" if denied else NO_ANSWER)

    def _fail(self, answer: "asyncio.Future[Msg]", why: str) -> None:
        if not answer.done():
            answer.set_exception(Unreachable(f"{self.url}: {why}"))


class EncryptedClient(Client):
    """Says nothing to a server that does not encrypt.  `Client` encrypts if the server says that it
    wants to, whatever the URL says, and else sends the password and all jobs as they are.
    """

    def _connect_command(self) -> bytes:
        """Called when TLS was begun, if it is, and before anything is sent."""
        if not self._server_info.get("tls_required"):
            raise errors.Error(
                "it does not encrypt, and tls:// was asked for: give it a tls block, or name it "
                "with nats://"
            )
        command: bytes = super()._connect_command()
        return command


def raise_if_cancelled() -> None:
    """Tell whether it is this task that was cancelled: a connection that ends cancels what waits
    for it, which looks the same.  In an ``except`` of `CancelledError`.

    :raise CancelledError: it is this task.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise asyncio.CancelledError


def told_subject(name: str) -> str:
    return f"{name}.told"


def refuse_if_denied(url: str, trouble: str) -> None:
    """:raise Refused: what was denied will be denied again."""
    if any(word in trouble.lower() for word in ("authorization", "permissions violation")):
        raise Refused(
            f"{url}: the credentials were refused: {trouble}. Give those of a user who may use the"
            " stream: ?creds=FILE or NATS_CREDS=FILE, or NATS_USER and NATS_PASSWORD"
        )
