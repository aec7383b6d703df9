"""One connection to a server, on Twisted.

`connect` makes one that is used as it is; `service.Client` makes one after the other.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet import tcp
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import connectProtocol
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import Deferring
from beanstalk_twisted.client.commands.methods import AwaitedCommands
from beanstalk_twisted.client.commands.specs import USE, Args, CommandSpec
from beanstalk_twisted.client.commands.tags import check_seconds
from beanstalk_twisted.client.core.deadline import Deadline
from beanstalk_twisted.client.core.dialogue import Dialogue, Ended, lose_all
from beanstalk_twisted.client.core.requests import reservation_lost
from beanstalk_twisted.client.core.states import CUT, ENDED, PARTING
from beanstalk_twisted.client.core.tubes import UsedTube
from beanstalk_twisted.client.endpoints import the_reactor, way_to
from beanstalk_twisted.client.pending import DeferredRequest, FlowControl, cancel
from beanstalk_twisted.tcp_keepalive import keep_alive, socket_below

GRACE_S: Final = 30.0
"""Silence allowed beyond a command's own time, seconds: a disk may hang, a log be read first."""

PART_S: Final = 5.0
"""How long a connection that we close may take to send what it has, seconds; then it is cut."""


@implementer(IPushProducer)
class Connection(Protocol, AwaitedCommands, Deferring):
    """One connection.

    Commands are sent as they come, without waiting for answers; the answers come in their order.
    The connection ends, and says why, when the server is silent past a deadline or says what it
    cannot say.  What was sent whole and not answered fails with `Unanswered`; what was not, with
    `NotCarriedOut`.

    :ivar is_open: whether commands may be sent on it.
    """

    _log = Logger()
    transport: Any

    def __init__(
        self, clock: IReactorTime, *, grace_s: float = GRACE_S,
        made: Callable[["Connection"], object] = lambda connection: None,
        ended: Callable[[Ended], object] = lose_all, server: str = "",
    ) -> None:  # fmt: skip
        """:param made: called when the connection is there.
        :param ended: called when it has ended.
        :param server: its name in errors.
        """
        check_seconds("grace_s", grace_s)
        self.dialogue = Dialogue(self, server, self._not_released)
        self._clock: Any = clock
        # The service puts its own in the place of this one: there, waits outlast a connection.
        self.flow = self._own_flow = FlowControl()
        self._made = made
        self._ended = ended
        self._used = UsedTube()
        self._send_now: Callable[[bytes], object] | None = None
        self._held: list[bytes] | None = None  # What is sent while answers are read.
        self._deadline = Deadline(clock.seconds, clock.callLater, grace_s, self.dialogue)
        self._part_timer: IDelayedCall | None = None

    @property
    def is_open(self) -> bool:
        """Whether commands may be sent on it."""
        return self.dialogue.is_open

    # What an application calls, besides the commands.

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        if reserved_on is not None and reserved_on is not self:
            return fail(reservation_lost(spec, args))
        request = DeferredRequest(spec, args, body, tube)
        if spec is USE:
            self._used.say(request)
        elif tube is None and spec.is_in_use:
            request.tube = self._used.now
        self.dialogue.submit(request)
        return request.deferred

    def room(self) -> Deferred[None]:
        """Wait until more can be sent without piling it up."""
        if not self.is_open:
            return fail(errors.Closed("the connection is closed"))
        return succeed(None) if self.has_room() else self.flow.wait()

    def has_room(self) -> bool:
        """Return True if more can be sent without piling it up."""
        return self.dialogue.has_room

    def part(self, *, sends_no_more: bool = False) -> None:
        """Close; what the transport was given is still sent, and answers still count until then.

        :param sends_no_more: only say that nothing more will come, and leave the end to the server,
            which so ends a `reserve` that waits.
        """
        if self.dialogue.state not in (PARTING, CUT, ENDED):
            self.dialogue.part(errors.Closed("the connection was closed by us"))
            self._part_timer = self._clock.callLater(PART_S, self._part_now)
            self._send_held()
            self.transport.unregisterProducer()
            lose_half = getattr(self.transport, "loseWriteConnection", None)
            if ISSLTransport.providedBy(self.transport):
                lose_half = None  # Its end is said in TLS, and that of the server is waited for.
            (lose_half if sends_no_more and lose_half else self.transport.loseConnection)()

    # What the dialogue calls.

    def write(self, data: bytes, is_alone: bool) -> None:
        """Hand bytes to the transport; past its buffer if all else is answered, for then it is
        empty.  That saves one round through the reactor for a client that waits for each answer.
        """
        if self._held is not None:
            self._held.append(data)
            return
        if is_alone:
            self._deadline.heard()
        if is_alone and self._send_now is not None:
            sent = self._send_now(data)
            if isinstance(sent, int):  # Otherwise it is an error, which the transport will find.
                data = data[sent:]
        if data:
            self.transport.write(data)

    def begin_to_wait(self) -> None:
        self._deadline.heard()

    def cut(self) -> None:
        self.transport.abortConnection()

    # What Twisted calls.

    def connectionMade(self) -> None:
        """Let small commands leave now; find out a peer that is gone even without a deadline."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            keep_alive(socket_below(self.transport))
        # Of no other kind, above all none that wraps a socket: TLS would be passed by.
        if isinstance(self.transport, tcp.Connection) and not self.transport.TLS:
            self._send_now = self.transport.writeSomeData
        self.transport.registerProducer(self, True)
        self.dialogue.on("made")
        self._made(self)

    def dataReceived(self, data: bytes) -> None:
        if self.dialogue.is_cut:
            return  # Whatever still comes cannot be trusted.
        if self._send_now is not None:
            self._held = []  # What the answers lead to leaves together.
        try:
            self.dialogue.receive(data)
        finally:
            self._send_held()
        self._deadline.heard()
        if self.flow.is_wanted:
            self.flow.let_in(self.has_room)

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held:
            self.write(b"".join(held), len(self.dialogue.exchange.unanswered) == len(held))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._deadline.stop()
        cancel(self._part_timer)
        self._own_flow.close(errors.Closed("the connection is closed"))
        assert reason.value is not None
        why = reason.value
        if isinstance(why, ConnectionDone):
            why = errors.ServerClosed("the server has closed the connection")
        elif isinstance(why, ConnectionLost):
            why = errors.ServerClosed(f"{why}".strip(" ."))
        self._ended(self.dialogue.end(why))

    def pauseProducing(self) -> None:
        self.dialogue.pause()

    def resumeProducing(self) -> None:
        self._deadline.heard()
        self.dialogue.resume()
        self.flow.let_in(self.has_room)

    def stopProducing(self) -> None:
        """The connection ends; `connectionLost` says so too."""

    # Ends.

    def _part_now(self) -> None:
        self.dialogue.abort(errors.Closed("the connection was closed by us"))

    def _not_released(self, job: int, why: Exception) -> None:
        self._log.info("job {job}, which nobody wants, not released: {why}", job=job, why=why)


def connect(
    endpoint: str | IStreamClientEndpoint, *, reactor: Any = None, grace_s: float = GRACE_S,
    token: str | None = None,
) -> Deferred[Connection]:  # fmt: skip
    """Make one connection, which does not come back when it ends; `service.Client` does.

    :param token: shown before anything else; None for none, or for that of the address.
    :raise Unauthorized: through the Deferred: the token is nobody's.
    :raise TlsFailed: through the Deferred.
    """
    reactor = reactor or the_reactor()
    way = way_to(reactor, endpoint)
    token = token or way.token
    protocol = Connection(reactor, grace_s=grace_s, server=way.name)
    made: Deferred[Connection] = connectProtocol(way.endpoint, protocol)

    def refused(failure: Failure) -> Failure:
        protocol.part()
        return failure

    def show(connection: Connection, token: str) -> Deferred[Connection]:
        shown: Deferred[Any] = connection.auth(token)
        return shown.addCallbacks(lambda _: connection, refused)

    return made if token is None else made.addCallback(show, token)
