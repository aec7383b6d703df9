"""The client for asyncio: each method gives a future, and many may be on their way at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import random
from typing import Any, Final, cast

from beanstalk_twisted.client import errors, sockets
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.calls import Name, tube_bytes
from beanstalk_twisted.client.commands.methods import AwaitedCommands
from beanstalk_twisted.client.commands.specs import Args, CommandSpec, Job
from beanstalk_twisted.client.commands.tags import check_seconds, check_whole
from beanstalk_twisted.client.core.continuity import Continuity, Losses
from beanstalk_twisted.client.core.deadline import Deadline
from beanstalk_twisted.client.core.dialogue import Dialogue, Ended
from beanstalk_twisted.client.core.requests import Request, reservation_lost
from beanstalk_twisted.client.core.states import CUT, ENDED, PARTING
from beanstalk_twisted.client.held_jobs import (
    FIRST_LOOK_S,
    HOLDING_SLICE_S,
    SLICE_S,
    TOUCH,
    ending_of,
    is_settled,
    warn,
)
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, TlsFault
from beanstalk_twisted.tcp_keepalive import keep_alive

TIMEOUT_S: Final = 60.0
"""For a connection, and for silence of the server beyond a command's own time, seconds."""

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 30.0
"""Between two tries to connect, seconds; it doubles from the first."""


class _Answer(asyncio.Future[Any]):
    """What a command gives; to cancel it is to forget the command, at once."""

    request: "_Asked"
    cancelled_in: Callable[[], object]

    def cancel(self, msg: Any = None) -> bool:
        was_waiting = super().cancel(msg)
        if was_waiting:
            self.request.cancel()
            self.cancelled_in()
        return was_waiting


class _Asked(Request):
    __slots__ = ("answer",)

    def __init__(self, *asked: Any) -> None:
        super().__init__(*asked)
        self.answer = _Answer()
        self.answer.request = self
        self.answer.cancelled_in = lambda: None

    def succeed(self, result: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def be_refused(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Link(asyncio.Protocol):
    """One connection: the transport of its dialogue."""

    def __init__(self, server: str, timeout_s: float) -> None:
        self.dialogue = Dialogue(self, server)
        self.ended: Callable[[Ended], object] = lambda ended: None
        self.has_room = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._deadline = Deadline(loop.time, loop.call_later, timeout_s, self.dialogue)
        self._transport: Any = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.dialogue.on("made")

    def data_received(self, data: bytes) -> None:
        self.dialogue.receive(data)
        self.begin_to_wait()
        if self.dialogue.has_room:
            self.has_room.set()

    def pause_writing(self) -> None:
        self.dialogue.pause()

    def resume_writing(self) -> None:
        self.dialogue.resume()
        self.has_room.set()

    def connection_lost(self, reason: Exception | None) -> None:
        self._deadline.stop()
        self.has_room.set()
        why = reason or errors.ServerClosed("the server has closed the connection")
        if isinstance(why, OSError):
            why = errors.ServerClosed(why.strerror or str(why))
        self.ended(self.dialogue.end(why))

    # What the dialogue calls.

    def write(self, data: bytes, is_alone: bool) -> None:
        if is_alone:
            self.begin_to_wait()
        self._transport.write(data)
        if not self.dialogue.has_room:
            self.has_room.clear()

    def begin_to_wait(self) -> None:
        self._deadline.heard()

    def cut(self) -> None:
        self._transport.abort()

    # The end.

    def part(self) -> None:
        """Close; answers to what was sent are not waited for."""
        if self.dialogue.state not in (PARTING, CUT, ENDED):
            self.dialogue.part(errors.Closed("the client was closed"))
        self._transport.close()


async def _open(address: Address, timeout_s: float) -> _Link:
    """:raise NoHost: no host has answered.
    :raise TlsFailed: TLS has failed, or a certificate is not trusted.
    """
    loop = asyncio.get_running_loop()
    host = address
    if address.others:
        host = await loop.run_in_executor(None, sockets.answering_host, address, timeout_s)
    make = lambda: _Link(str(address), timeout_s)  # noqa: E731
    try:
        async with asyncio.timeout(timeout_s):
            if not host.port:
                return (await loop.create_unix_connection(make, host.host))[1]
            if host.tls is not None:
                return await _open_tls(make, host, timeout_s)
            transport, link = await loop.create_connection(make, host.host, host.port)
            keep_alive(transport.get_extra_info("socket"))
            return link
    except (OSError, UnicodeError) as problem:
        raise errors.NoHost({str(host): problem}) from None


async def _open_tls(make: Callable[[], _Link], host: Address, timeout_s: float) -> _Link:
    from beanstalk_twisted.client import ssl_contexts  # Only who needs it waits for it.

    loop = asyncio.get_running_loop()
    assert host.tls is not None
    # Whether there is a server at all is not a question of TLS.
    plain = await loop.run_in_executor(
        None, sockets.connect, host._replace(tls=None, token=None), timeout_s
    )
    plain.setblocking(False)
    try:
        return (await loop.create_connection(
            make, sock=plain, ssl=ssl_contexts.context_of(host.tls), server_hostname=host.name,
            ssl_handshake_timeout=min(timeout_s, HANDSHAKE_S),
        ))[1]  # fmt: skip
    except TlsFault as of_file:
        raise errors.TlsFailed(str(host), of_file) from None
    except (OSError, ValueError) as problem:
        why = problem
        fault = await loop.run_in_executor(
            None, lambda: ssl_contexts.fault_of(why, host, timeout_s)
        )
        raise errors.TlsFailed(str(host), fault) from None


class Client(AwaitedCommands):
    """A client that stays connected: commands wait for a connection; tubes and modes are restored
    on a new one, and what may be sent again is.  What may not fails with `Unanswered`.

    Every future may be cancelled: a job that comes for a cancelled `reserve` goes to the next one,
    or is given back.
    """

    def __init__(
        self, address: str | Address = "127.0.0.1:11300", *, token: str | None = None,
        timeout_s: float = TIMEOUT_S, lost: Callable[[Losses], object] = lambda losses: None,
    ) -> None:  # fmt: skip
        """:param address: as of `client.addresses`.
        :param token: shown on each connection before anything else; None for that of the address.
        :param timeout_s: how long a connection may take, and the server be silent beyond what a
            command allows it, seconds.
        :param lost: told of each connection that was lost.
        :raise ValueError: there is no such address, time or token.
        """
        check_seconds("timeout_s", timeout_s, is_zero_allowed=False)
        self.address = Address.of(address)
        self.timeout_s = timeout_s
        token = self.address.token if token is None else token
        self._continuity = Continuity(lambda: asyncio.get_running_loop().time(), token)
        self._looking: set[_Asked] = set()
        self._lost = lost
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pause_s = self._connected_s = 0.0

    async def __aenter__(self) -> "Client":
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect now, also after a `close`; otherwise the first command does, and waits until
        there is a server.

        :raise NoHost: no host has answered.
        :raise TlsFailed: TLS has failed, or a certificate is not trusted.
        :raise Unauthorized: the token is nobody's.
        """
        self._be_in_running_loop()
        self._continuity.is_stopped = False
        if self._link is None and self._connecting is None:
            await self._connect_once()

    def _be_in_running_loop(self) -> None:
        """Leave a connection of another loop, which has ended: it would never answer."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._link, self._connecting = loop, None, None

    async def close(self) -> None:
        """Hang up; jobs that are reserved are ready again.  Later commands fail."""
        self._continuity.is_stopped = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._continuity.fail_waiting(errors.Closed("the client was closed"))
        if self._link is not None:
            self._link.part()
            await asyncio.sleep(0)

    async def quit(self) -> None:
        """Part when all that was asked before is answered; later commands fail."""
        if self._link is not None:
            await super().quit()
        await self.close()

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> "asyncio.Future[Any]":  # fmt: skip
        request = _Asked(spec, args, body, tube, reserved_on)
        self._be_in_running_loop()
        link = self._link
        if link is not None and not link.dialogue.is_open:
            link = None
        if reserved_on is not None and reserved_on is not link:
            request.fail(reservation_lost(spec, args))
            return request.answer
        dialogue = None if link is None else link.dialogue
        if dialogue is not None:
            request.answer.cancelled_in = dialogue.part_from_wait
            if spec.row.waits:
                dialogue.ask_how_to_end_waits()
        self._continuity.send(request, dialogue)
        if dialogue is None and self._connecting is None and not self._continuity.is_stopped:
            self._connecting = asyncio.create_task(self._reconnect())
        return request.answer

    async def room(self) -> None:
        """Wait until there is a connection and it takes more without piling it up."""
        while self._link is None or not self._link.dialogue.has_room:
            if self._link is not None:
                self._link.has_room.clear()
                await self._link.has_room.wait()
            elif self._continuity.is_stopped:
                raise errors.Closed("the client was closed")
            else:
                await self.list_tube_used()

    async def watch_only(self, *tubes: Name) -> None:
        """Let later reserves take from these tubes alone."""
        wanted = {tube_bytes(tube): tube for tube in tubes}
        watched = {tube_bytes(tube) for tube in await self.list_tubes_watched()}
        for tube in wanted.keys() - watched:
            await self.watch(tube)
        for tube in watched - wanted.keys():
            await self.ignore(tube)

    async def jobs(
        self, *tubes: Name, timeout: float | None = None, delay: int = 60, attempts: int = 10
    ) -> AsyncIterator["HeldJob"]:
        """Give job after job of these tubes, or of those watched.  ``async with job:`` does with it
        what has to be done: it is deleted at the end of the block.  If that raises an exception, it
        is released; and it is touched as long as the block runs.  A job that the block itself has
        deleted, released, buried, moved or returned is left as it is.

        :param timeout: ends when nothing has come for so many seconds; None waits for ever.
        :param delay: of a job that is released, seconds.
        :param attempts: a job that was reserved so often is buried instead.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        check_whole("attempts", attempts, 1, 1 << 32)
        if tubes:
            await self.watch_only(*tubes)
        while (job := await self._next(timeout)) is not None:
            held = HeldJob(*job)
            held.reserved_on = job.reserved_on
            held._client, held._delay, held._attempts = self, delay, attempts
            yield held

    async def _next(self, timeout: float | None) -> Job | None:
        loop = asyncio.get_running_loop()
        ends_s = None if timeout is None else loop.time() + timeout
        while True:
            is_holding = self._link is not None and self._link.dialogue.exchange.reserved
            seconds = HOLDING_SLICE_S if is_holding else SLICE_S
            if ends_s is not None:
                seconds = min(seconds, int(max(0.0, ends_s - loop.time()) + 0.999))
            answer = self.reserve_with_timeout(seconds)
            asked = cast(_Answer, answer).request
            self._looking.add(asked)
            try:
                return await answer
            except errors.TimedOut:
                if ends_s is not None and loop.time() >= ends_s:
                    return None
            except errors.DeadlineSoon:
                if not is_holding:
                    raise
                await asyncio.sleep(TOUCH)  # Who has the job touches it.
            finally:
                self._looking.discard(asked)

    def _end_looking(self) -> None:
        """Let no command about a job wait for the `reserve` with which `jobs` looks for another."""
        link = self._link
        if link is not None and link.dialogue.waits_for_nothing_but(self._looking):
            link.dialogue.end_wait()

    # Connections.

    async def _reconnect(self) -> None:
        while True:
            # Jitter: of no secret.
            await asyncio.sleep(self._pause_s * (1 + random()) / 2)  # noqa: S311
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LAST_PAUSE_S)
            try:
                await self._connect_once()
                break
            except errors.ClientError as why:
                lasts = isinstance(why, errors.TlsFailed) and not why.fault.may_pass
                if lasts or isinstance(why, errors.Unauthorized):
                    self._continuity.fail_waiting(why)
        self._connecting = None

    async def _connect_once(self) -> None:
        link = await _open(self.address, self.timeout_s)
        greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not greeted.done():
                greeted.set_result(None)

        def refused(why: BaseException) -> None:
            if not greeted.done():
                greeted.set_exception(why)

        link.ended = lambda ended: refused(ended.reason)
        self._continuity.greet(link.dialogue, done, refused)
        try:
            await greeted
        except (errors.ErrorReply, errors.NotAnnounced, errors.TlsFailed):
            link.cut()
            raise
        except BaseException as why:
            link.cut()
            if isinstance(why, errors.ClientError):
                raise errors.NoHost({str(self.address): why}) from None
            raise
        link.ended = self._end
        self._link = link
        self._connected_s = asyncio.get_running_loop().time()
        self._continuity.begin(link.dialogue)

    def _end(self, ended: Ended) -> None:
        self._link = None
        if asyncio.get_running_loop().time() - self._connected_s >= LAST_PAUSE_S:
            self._pause_s = 0.0
        self._continuity.end(ended, self._lost)
        if self._continuity.is_stopped:
            self._continuity.fail_waiting(ended.reason)
        elif self._connecting is None:
            self._connecting = asyncio.create_task(self._reconnect())


class HeldJob(Job):
    """A reserved job; ``async with job:`` settles it, and touches it meanwhile."""

    _client: Client
    _delay: int
    _attempts: int
    _touching: "asyncio.Task[None]"

    async def __aenter__(self) -> "HeldJob":
        self._touching = asyncio.create_task(self._touch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._touching.cancel()
        try:
            await self._settle(kind)
        except errors.ClientError as problem:
            warn("job %d: not settled: %s", self.id, problem)

    async def _touch(self) -> None:
        wait_s = FIRST_LOOK_S
        while True:
            await asyncio.sleep(wait_s)
            if is_settled(self._client._link, self):
                return
            try:
                self._client._end_looking()
                await self._client.touch(self)
                wait_s = max((await self._client.stats_job(self)).time_left, 1) * TOUCH
            except errors.ClientError as problem:
                warn("job %d: not touched: %s", self.id, problem)
                return

    async def _settle(self, kind: type[BaseException] | None) -> None:
        client = self._client
        if is_settled(client._link, self):
            return
        client._end_looking()
        if kind is None:
            await client.delete(self)
            return
        stats = await client.stats_job(self)
        # A task that is cancelled is ordered to end.
        can_return = "return-job" in await client.probe()
        name, values = ending_of(kind, stats, self._attempts, self._delay, can_return)
        await getattr(client, name)(self, **values)
