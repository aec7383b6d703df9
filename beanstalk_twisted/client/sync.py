"""The client for plain Python: each method waits for the server's answer, and gives it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import random
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.calls import Blocking, Name, Pipelining, tube_bytes
from beanstalk_twisted.client.commands.methods import Commands
from beanstalk_twisted.client.commands.specs import Args, CommandSpec, Job
from beanstalk_twisted.client.commands.tags import check_seconds
from beanstalk_twisted.client.core.continuity import Continuity
from beanstalk_twisted.client.core.requests import Request, reservation_lost
from beanstalk_twisted.client.core.states import CUT
from beanstalk_twisted.client.held_jobs import HeldJob, Holder
from beanstalk_twisted.client.sockets import Link, connect
from beanstalk_twisted.client.stats import ListedJob

if TYPE_CHECKING:
    import socket

TIMEOUT_S: Final = 60.0
"""For a connection, and for silence of the server beyond a command's own time, seconds: a disk may
hang, a log be read first.
"""

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
"""Between two tries to connect, seconds; it doubles from the first."""

IDLE_S: Final = 0.5
"""Seconds without a command after which a connection is looked at before it is used again: one that
the server has closed meanwhile is replaced, and nothing is in doubt.
"""

WINDOW: Final = 1024
"""Commands of a pipeline without an answer: more wait, so that neither side piles them up."""

MANY: Final = 4 * WINDOW
"""Of answers that a pipeline keeps, before those that nobody has to hear of are dropped."""


class Asked(Request):
    """A request, and what came of it.

    :ivar is_done: the result or the error is there.
    """

    is_done = False
    is_told = False
    value: Any = None
    failure: Exception | None = None
    client: "Client"

    def succeed(self, result: Any) -> None:
        self.value = result
        self.is_done = True

    def be_refused(self, error: Exception) -> None:
        self.failure = error
        self.is_done = True

    @property
    def error(self) -> Exception | None:
        """Wait for the answer, and give what is wrong with it; None if nothing is."""
        if not self.is_done:
            self.client._wait_for_answer(self)
        self.is_told = True
        return self.failure

    @property
    def result(self) -> Any:
        """Wait for the answer, and give what it says.

        :raise ClientError: it is an error, or none came.
        """
        if (error := self.error) is not None:
            raise error
        return self.value


_CLIENTS: "WeakSet[Client]" = WeakSet()


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


class Client(Commands, Blocking):
    """A client that connects when it is first used, or entered as a context manager, and again when
    its connection was lost: tubes and modes are restored, and what may be sent again is.  What may
    not fails with `Unanswered`, or `NotCarriedOut`.

    Threads may share one: their commands are sent one after the other, so a `reserve` that waits
    makes others wait.  Give each thread that reserves a client of its own.  A process that was
    forked makes a connection of its own.
    """

    def __init__(
        self, address: str | Address = "127.0.0.1:11300", *, token: str | None = None,
        timeout_s: float = TIMEOUT_S, retry_s: float = 0.0, reconnects: bool = True,
        make_socket: "Callable[[Address, float], socket.socket]" = connect,
    ) -> None:  # fmt: skip
        """:param address: as of `client.addresses`: ``HOST:PORT``, ``tls://TOKEN@HOST?ca=FILE``,
            ``unix:PATH``, or ``beanstalk://A,B`` for one queue on several hosts.
        :param token: shown on each connection before anything else; None for that of the address.
        :param timeout_s: how long a connection may take, and the server be silent beyond what a
            command allows it, seconds.
        :param retry_s: for how long a connection is tried for again when there is none, seconds.
        :param reconnects: whether there is a second connection when the first is lost; without it
            all fails from then on, for those who rely on their reservations.
        :param make_socket: given the address and the limit, connects.
        :raise ValueError: there is no such address, time or token.
        """
        check_seconds("timeout_s", timeout_s, is_zero_allowed=False)
        check_seconds("retry_s", retry_s)
        self.address = Address.of(address)
        self.timeout_s = timeout_s
        self.retry_s = retry_s
        self._reconnects = reconnects
        self._make_socket = make_socket
        token = self.address.token if token is None else token
        self._continuity = Continuity(time.monotonic, token)
        self._link: Link | None = None
        self._lock = RLock()
        self._holder = Holder(self)
        self._ended_of: BaseException | None = None
        _CLIENTS.add(self)

    def __enter__(self) -> "Client":
        self.connect()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect now, also after a `close`; otherwise the first command does.

        :raise NoHost: no host has answered.
        :raise TlsFailed: TLS has failed, or a certificate is not trusted.
        :raise Unauthorized: the token is nobody's.
        """
        with self._lock:
            self._continuity.is_stopped = False
            if self._link is None:
                self._connect()

    def close(self) -> None:
        """Hang up; jobs that are reserved are ready again.  Later commands fail."""
        self._continuity.is_stopped = True
        if not self._lock.acquire(blocking=False):
            # Another thread waits for an answer.
            if (link := self._link) is not None:
                link.wake()
            self._lock.acquire()
        try:
            self._holder.stop()
            if self._link is not None:
                self._end(errors.Closed("the client was closed"), is_over=True)
        finally:
            self._lock.release()

    def _leave_to_parent(self) -> None:
        """In a process that was forked: its own connection is made when one is needed."""
        self._lock, self._holder = RLock(), Holder(self)
        link, self._link = self._link, None
        if link is not None:
            link.close()
            self._continuity.tubes = link.dialogue.exchange.tubes
        self._continuity.drop_waiting()

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Any:  # fmt: skip
        request = Asked(spec, args, body, tube, reserved_on)
        with self._lock:
            try:
                self._ask(request)
                self._wait(request)
            except BaseException:
                self._interrupted(request)
                raise
        if request.failure is not None:
            raise request.failure
        return request.value

    def quit(self) -> None:
        """Part when all that was asked before is answered; later commands fail."""
        with self._lock:
            if self._link is not None:
                super().quit()
            self.close()

    def each_job(self, tube: Name, state: str = "all") -> Iterator[ListedJob]:
        """Describe all jobs of a tube, page by page."""
        cursor: str | None = None
        while True:
            page = self.list_jobs(tube, state, cursor=cursor)
            yield from page.jobs
            if page.cursor is None:
                return
            cursor = page.cursor

    def watch_only(self, *tubes: Name) -> None:
        """Let later reserves take from these tubes alone."""
        wanted = {tube_bytes(tube): tube for tube in tubes}
        with self._lock:
            watched = set(self._watched())
            for tube in wanted.keys() - watched:
                self.watch(tube)
            for tube in watched - wanted.keys():
                self.ignore(tube)

    def announces(self, *words: str) -> bool:
        """Say whether the server has announced these; it is asked once on each connection."""
        with self._lock:
            known = None if self._link is None else self._link.dialogue.announcement.words
            return (self.probe() if known is None else known).issuperset(words)

    def fileno(self) -> int:
        """Give the socket's number, to wait for answers together with something else.

        :raise ClientError: there is no connection, and none can be made.
        """
        with self._lock:
            self.connect()
            assert self._link is not None
            return self._link.fileno()

    def take(self) -> None:
        """Take the answers to a pipeline that have come, without waiting for more."""
        with self._lock:
            link = self._link
            if link is None:
                return
            if not link.dialogue.exchange.unanswered and link.is_over():
                self._end(errors.ServerClosed("the server has closed the connection"))
            else:
                self._carry(link, waits=False)

    def _next_job(self, seconds: int, holding_s: int) -> Job:
        """Reserve a job.

        :param holding_s: how long to wait at most while jobs are reserved.
        """
        with self._lock:
            link = self._link
            is_holding = link is not None and link.dialogue.exchange.reserved
            return self.reserve_with_timeout(min(seconds, holding_s) if is_holding else seconds)

    def _watched(self) -> Iterator[bytes]:
        link = self._link
        tubes = self._continuity.tubes if link is None else link.dialogue.exchange.tubes
        return iter(tubes.watched)

    @contextmanager
    def pipeline(self) -> Iterator["Pipeline"]:
        """Send many commands without waiting for each; the end of the block waits for all.

        :raise ClientError: at the end: of the first that has failed and was not asked for.
        """
        made = Pipeline(self)
        try:
            yield made
        except BaseException:
            with suppress(errors.ClientError):
                made.wait()
            raise
        made.wait()

    def jobs(
        self, *tubes: Name, timeout: float | None = None, delay: int = 60, attempts: int = 10
    ) -> Iterator[HeldJob]:
        """Give job after job of these tubes, or of those watched.  ``with job:`` does with it what
        has to be done: it is deleted at the end of the block.  If that raises an exception, it is
        released; and it is touched as long as the block runs.  A job that the block itself has
        deleted, released, buried, moved or returned is left as it is.

        :param timeout: ends when nothing has come for so many seconds; None waits for ever.
        :param delay: of a job that is released, seconds.
        :param attempts: a job that was reserved so often is buried instead.
        """
        if tubes:
            self.watch_only(*tubes)
        return self._holder.jobs(timeout, delay, attempts)

    # Connections.

    def _ask(self, request: Asked, gathers: bool = False) -> None:
        """Send a request, or let it wait for a connection.

        :param gathers: it may leave together with those after it.
        """
        link = self._link
        if link is not None:
            link.gathers = gathers
            now_s = time.monotonic()
            is_idle = now_s - link.used_s > IDLE_S
            link.used_s = now_s
            if is_idle and not link.dialogue.exchange.unanswered and link.is_over():
                self._end(errors.ServerClosed("the server has closed the connection"))
                link = None
        if request.reserved_on is not None and request.reserved_on is not link:
            request.fail(reservation_lost(request.spec, request.args))
        else:
            self._continuity.send(request, None if link is None else link.dialogue)

    def _wait(self, request: Asked) -> None:
        ends_s, lost = 0.0, 0
        while not request.is_done:
            link = self._link
            if link is not None:
                self._carry(link)
                if (
                    not (request.is_done or link.dialogue.exchange.unanswered)
                    and link is self._link
                ):
                    # Somebody was interrupted between its answer and telling of it.
                    self._interrupted(request)
                continue
            ends_s = ends_s or time.monotonic() + self.retry_s
            # One command may lose two connections, more only as long as is allowed.
            self._connect_for_waiting(may_try=lost < 2 or time.monotonic() < ends_s)
            lost += 1

    def _wait_for_answer(self, request: Asked) -> None:
        """Wait for what a pipeline has sent."""
        with self._lock:
            try:
                self._wait(request)
            except BaseException:
                self._interrupted(request)
                raise

    def _interrupted(self, request: Asked) -> None:
        """Whoever interrupts us may have left half a command there, or a job on its way.  Nobody
        waits for the request any more, so the next connection is not sent it.
        """
        why = errors.Closed("the wait for an answer was interrupted")
        if self._link is not None:
            self._end(why)
        self._continuity.forget(request)
        if not request.is_done:
            # A pipeline may still ask what became of it.
            request.be_refused(errors.Unanswered(request.spec.name, request.job_id, why))

    def _connect_for_waiting(self, *, may_try: bool = True) -> None:
        """Connect, and send what waits for that, or fail it."""
        try:
            if not may_try:
                raise errors.NoHost({str(self.address): self._ended_of or errors.Closed("cut")})
            self._connect()
        except errors.ClientError as problem:
            self._continuity.fail_waiting(problem)

    def _carry(self, link: Link, *, waits: bool = True) -> None:
        """Send what is to be sent, and take what comes next."""
        dialogue = link.dialogue
        try:
            if link.unsent:
                link.flush(self.timeout_s)
            if dialogue.exchange.unanswered and dialogue.state != CUT:
                link.hear(waits)
            if dialogue.state == CUT:
                self._end(dialogue.reason or errors.Closed("cut"))
        except errors.ServerSilent as silent:
            self._end(silent)
        except OSError as problem:
            self._end(self._why(link, problem))

    def _why(self, link: Link, problem: OSError) -> Exception:
        if self.address.tls is not None:
            import ssl

            from beanstalk_twisted.client.ssl_contexts import of_error

            # With TLS 1.3 a server says what it thinks of our certificate only here.
            problem = link.last_word(problem)
            if isinstance(problem, ssl.SSLEOFError):
                return errors.ServerClosed("the server has closed the connection")
            if isinstance(problem, ssl.SSLError):
                return errors.TlsFailed(str(self.address), of_error(problem, self.address.tls))
        return errors.ServerClosed(problem.strerror or str(problem))

    def _end(self, reason: BaseException, *, is_over: bool = False) -> None:
        link, self._link = self._link, None
        self._ended_of = reason
        if link is not None:
            link.close()
            ended = link.dialogue.end(reason)
            is_over = is_over or not self._reconnects
            self._continuity.is_stopped = self._continuity.is_stopped or is_over
            self._continuity.end(ended)
        if is_over:
            self._continuity.fail_waiting(reason)

    def _connect(self) -> None:
        if self._continuity.is_stopped:
            raise errors.Closed("the client was closed")
        ends_s, pause_s = time.monotonic() + self.retry_s, FIRST_PAUSE_S
        while True:
            try:
                return self._connect_once()
            except (errors.NoHost, errors.TlsFailed) as why:
                lasts = isinstance(why, errors.TlsFailed) and not why.fault.may_pass
                if lasts or time.monotonic() + pause_s > ends_s:
                    raise
            time.sleep(pause_s * (1 + random()) / 2)  # noqa: S311 - of no secret.
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _connect_once(self) -> None:
        """:raise ClientError: there is no server, or it does not take us."""
        connected = self._make_socket(self.address, self.timeout_s)
        link = Link(connected, str(self.address), self.timeout_s)
        outcome: list[Exception | None] = []
        self._continuity.greet(link.dialogue, lambda: outcome.append(None), outcome.append)
        try:
            while not outcome:
                link.flush(self.timeout_s)
                link.hear()
                if link.dialogue.is_cut:
                    outcome.append(link.dialogue.reason)
        except errors.ServerSilent as silent:
            outcome.append(silent)
        except OSError as problem:
            outcome.append(self._why(link, problem))
        except BaseException:
            link.close()
            raise
        why = outcome[0]
        if why is None:
            self._link = link
            self._continuity.begin(link.dialogue)
            return
        link.close()
        if isinstance(why, errors.ErrorReply):
            why.server = str(self.address)
        if isinstance(why, errors.ErrorReply | errors.NotAnnounced | errors.TlsFailed):
            raise why
        hint = "" if self.address.tls is not None or not self.address.port else (
            "; if it speaks TLS, write tls://HOST:PORT"
        )  # fmt: skip
        if isinstance(why, errors.ServerClosed):
            why = errors.ServerClosed(f"{why}, or is none of this protocol{hint}")
        raise errors.NoHost({str(self.address): why})


class Pipeline(Commands, Pipelining):
    """Its methods give an `Answer` each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: list[Asked] = []

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Asked:  # fmt: skip
        request = Asked(spec, args, body, tube, reserved_on)
        client = request.client = self._client
        with client._lock:
            try:
                client._ask(request, gathers=True)
                self._asked.append(request)
                if client._link is None and not request.is_done:
                    client._connect_for_waiting()
                if (link := client._link) is not None:
                    self._limit(link)
            except BaseException:
                client._interrupted(request)
                raise
        if len(self._asked) >= MANY:
            self._asked = [each for each in self._asked if not each.is_done or each.failure]
        return request

    def _limit(self, link: Link) -> None:
        """Let neither side pile up: half the window is answered before more is sent."""
        unanswered, client = link.dialogue.exchange.unanswered, self._client
        if len(unanswered) >= WINDOW:
            while len(unanswered) > WINDOW // 2 and client._link is link:
                client._carry(link)
        elif len(link.unsent) >= WINDOW // 4 or link.dialogue.is_full:
            client._carry(link, waits=False)

    def wait(self) -> None:
        """Wait for all answers.  :raise ClientError: of the first that nobody has asked for."""
        for each in self._asked:
            if not each.is_done:
                self._client._wait_for_answer(each)
        failed = [each for each in self._asked if each.failure is not None and not each.is_told]
        self._asked.clear()
        if failed:
            raise failed[0].failure or AssertionError
