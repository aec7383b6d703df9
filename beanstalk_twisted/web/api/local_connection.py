"""Connections of this process to itself: requests that change something run the commands on them
that programs use, and those that look have their clients' rights by them.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar, cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, FirstError, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.admissions import Known
from beanstalk_twisted.server.audit import OVER_HTTP
from beanstalk_twisted.server.reply_queue import Durability, ReplyQueue
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.exchange import Call, Refusal
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.replies import NOT_FOUND, UNAUTHORIZED

T = TypeVar("T")

STATUSES: Final[tuple[tuple[type[errors.ClientError], int, str], ...]] = (
    (errors.NotFound, 404, "no such tube, job or remembered key, or others have it reserved"),
    (errors.Draining, 503, "the server drains: new jobs are refused"),
    (errors.JobTooBig, 413, "the body is larger than --max-job-size"),
    (errors.OutOfMemory, 507, "the disk or the memory is full, or a replicated queue's stream is "
                              "silent; nothing was changed"),
    (errors.BadFormat, 400, "a value is wrong; nothing was changed"),
    (errors.CannotHandOver, 409, ""),
    (errors.Duplicate, 409, "a job there has the same unique key"),
    (errors.Unauthorized, 403, "the access file gives no right to this; nothing was changed"),
)  # fmt: skip
"""What the server's refusals are over HTTP; without a text, what the server has said."""

KNOWN: Final = tuple(kind for kind, _, _ in STATUSES)

FULL: Final = Refusal(503, "the server takes no more connections")

_ROWS: Final = {row.operation: row for row in MODERN.rows}


class LocalEnd:
    """One end of a connection in memory, an ITransport.  What is written arrives in a later turn.

    :cvar how: for the audit.
    """

    how = OVER_HTTP
    is_secure = False

    def __init__(self, reactor: IReactorTime, peer: object) -> None:
        self.other: LocalEnd | None = None
        self.protocol: Any = None
        self.disconnecting = False
        self._reactor = reactor
        self._peer = peer
        self._is_reading = True
        self._is_closed = False
        self._coming: list[bytes] = []
        self._call: IDelayedCall | None = None

    def write(self, data: bytes) -> None:
        other = self.other
        if other is not None and not self.disconnecting:
            other._coming.append(data)
            other._wake()

    def writeSequence(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """A producer never waits: a request asks for a bounded amount."""

    def unregisterProducer(self) -> None: ...

    def pauseProducing(self) -> None:
        self._is_reading = False

    def resumeProducing(self) -> None:
        self._is_reading = True
        self._wake()

    def getPeer(self) -> object:
        return self._peer

    getHost = getPeer

    def loseConnection(self) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self._reactor.callLater(0, self._close)

    abortConnection = loseConnection

    def _wake(self) -> None:
        if self._call is None and self._coming and self._is_reading:
            self._call = self._reactor.callLater(0, self._deliver)

    def _deliver(self) -> None:
        self._call = None
        if self._is_reading and not self._is_closed:
            data, self._coming = b"".join(self._coming), []
            self.protocol.dataReceived(data)

    def _close(self) -> None:
        """Tell both ends, this one last."""
        for end in (self.other, self):
            if end is not None and not end._is_closed:
                end._is_closed = end.disconnecting = True
                if end._call is not None:
                    end._call.cancel()
                end.protocol.connectionLost(Failure(ConnectionDone()))


class Durable:
    """Waits until a reply may leave that says what is the case now; as those of connections do."""

    def __init__(self, durability: Durability, lsn: int) -> None:
        self._replies = ReplyQueue(durability, self, self)
        self.waited: Deferred[None] = Deferred(lambda _: self._replies.forget())
        self._replies.add(b"-", lsn)
        self._replies.send()

    def write(self, pieces: list[bytes]) -> None:
        self.waited.callback(None)

    def replies_held(self) -> None: ...

    replies_released = break_off = replies_held


class Look:
    """A request that looks at the queue, on a connection of its own.

    :ivar queue: whose methods it calls, after it has asked.
    """

    def __init__(self, service: BeanstalkService, session: Session) -> None:
        self.queue = service.queue
        self._service = service
        self._session = session

    def ask(self, *commands: tuple[str, tuple[Any, ...]]) -> None:
        """Count these looks as the commands that they are, and ask for the rights of them all.

        :param commands: operations, and the values of their fields.
        :raise Refusal: the client has no right to one.
        """
        access = self._service.access
        for operation, values in commands:
            row = _ROWS[operation]
            self.queue.count(row.counter)
            if access is not None and access.guard.refuses(self._session, (row, values, False)):
                self.queue.tally.errors[UNAUTHORIZED.text] += 1
                raise _refusal(errors.Unauthorized)

    async def durable(self, lsn: int | None = None) -> None:
        """Wait until all that is the case now, or was up to this LSN, may be shown."""
        lsn = self.queue.committed_lsn if lsn is None else lsn
        await Durable(self._service.context.durability, lsn).waited

    async def not_found(self) -> NoReturn:
        """:raise Refusal: it is not there, as soon as that may be said."""
        await self.durable()
        self.queue.tally.errors[NOT_FOUND.text] += 1
        raise _refusal(errors.NotFound)


class LocalConnections:
    """Makes connections to a server in this process.

    :ivar numbers: those of the connections that are open.
    """

    def __init__(self, service: BeanstalkService, reactor: IReactorTime) -> None:
        self.numbers: set[int] = set()
        self._service = service
        self._reactor = reactor

    def run(
        self, call: Call, work: Callable[[Connection], Deferred[T]], *, is_told: bool = True
    ) -> Deferred[T]:
        """Make a connection for who has sent a request, have something done on it, and close it.

        :param is_told: whether the audit tells of each command.
        :return: what ``work`` gives; fails with a `Refusal` if the server refuses.
        """
        served = self._serve(call)
        if served is None:
            return fail(FULL)
        connection, session = self._connect(served), served.session
        if not is_told:
            self._service.audit.left_out.add(session)
        try:
            outcome = work(connection)
        except ValueError as problem:
            self._part(None, connection, session)
            return fail(Refusal(400, str(problem)))
        outcome.addBoth(self._part, connection, session)
        outcome.addErrback(_refused)
        return outcome

    def _part(self, outcome: T, connection: Connection, session: Session) -> T:
        connection.part()
        self.numbers.discard(session.number)
        self._service.audit.left_out.discard(session)
        return outcome

    def look(self, call: Call, work: Callable[[Look], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Have a request look at the queue with the rights of who has sent it.

        :return: what ``work`` gives; fails with a `Refusal` if that does.
        """
        served = self._serve(call)
        if served is None:
            return fail(FULL)
        done = Deferred.fromCoroutine(work(Look(self._service, served.session)))
        return done.addBoth(self._looked, served)

    def _looked(self, outcome: T, served: Any) -> T:
        self.numbers.discard(served.session.number)
        served.transport.loseConnection()
        return outcome

    def _serve(self, call: Call) -> Any:
        """:return: the server's end of a connection; None if it takes no more."""
        host, _, port = call.peer.rpartition(":")
        kind = IPv6Address if host.startswith("[") else IPv4Address
        address = kind("TCP", host.strip("[]"), int(port)) if call.peer else None
        protocol: Any = self._service.factory.buildProtocol(address)
        if protocol is None:
            return None
        theirs = LocalEnd(self._reactor, address)
        theirs.is_secure = call.is_secure
        theirs.protocol = protocol
        protocol.makeConnection(theirs)
        served = protocol.connection
        self.numbers.add(served.session.number)
        if self._service.access is not None:
            self._service.access.guard.admissions.introduce(served.session, call.known or Known())
        return served

    def _connect(self, served: Any) -> Connection:
        ours = LocalEnd(self._reactor, None)
        ours.other, served.transport.other = served.transport, ours
        connection: Any = Connection(self._reactor)
        ours.protocol = connection
        connection.makeConnection(ours)
        return cast(Connection, connection)


def _refusal(kind: type[errors.ClientError], meaning: str = "") -> Refusal:
    status, detail = next(row[1:] for row in STATUSES if issubclass(kind, row[0]))
    return Refusal(status, detail or meaning)


def _refused(failure: Failure) -> Any:
    """:raise Refusal: the server's refusal."""
    error = failure.value
    if isinstance(error, FirstError):
        error = error.subFailure.value
    if isinstance(error, KNOWN):
        raise _refusal(type(error), getattr(error, "meaning", "")) from None
    if isinstance(error, errors.ClientError):
        raise Refusal(503, "the server stops, or does not answer; it may have been done") from None
    return failure
