"""
One connection to a server, on Twisted.

Commands are sent as they come, without waiting for answers; the answers come in their order.  The
connection ends, and says why, when the server is silent past a deadline or says what it cannot say.
`connect` makes one that is used as it is; `service.Client` makes one after the other.

What was sent whole and not answered fails with `Unanswered`; what was not, with `NotCarriedOut`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from twisted.internet import tcp
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import connectProtocol
from twisted.internet.interfaces import (
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client import command_specs as specs
from beanstalk_twisted.client import command_specs_v1 as specs_v1
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import endpoint_of
from beanstalk_twisted.client.command_specs import CommandSpec, Reply
from beanstalk_twisted.client.deadline import Deadline, cancel
from beanstalk_twisted.client.exchange import RESERVING, Exchange
from beanstalk_twisted.client.flow_control import FlowControl
from beanstalk_twisted.client.methods import Args, Commands
from beanstalk_twisted.client.outbox import PIECE_BYTES, Outbox
from beanstalk_twisted.client.pending import (
    QUITS,
    Ended,
    ImplicitUse,
    Pending,
    lose_all,
    reservation_lost,
)
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.client.tubes import DEFAULT, UsedTube
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.v1 import NAME as V1
from beanstalk_twisted.wire.v1 import check_dialect

T = TypeVar("T")

GRACE_S: Final = 30.0
"""Silence allowed beyond a command's own time, seconds: a disk may hang, a log be read first."""

PART_S: Final = 5.0
"""How long a connection that we close may take to send what it has, seconds; then it is cut."""

MAX_UNANSWERED: Final = 4096
"""Commands without an answer above which ``room()`` waits: what our server takes of one at once."""

MAX_WAITING_BYTES: Final = 64 << 20
"""What may wait to be sent, bytes (`outbox.cost`); above it, further commands are `Overfull`."""

_WAITING: Final = frozenset((specs.RESERVE, specs.RESERVE_WITH_TIMEOUT, specs_v1.RESERVE))
"""Commands whose answer may be long in coming, and that of all behind them with it."""


@implementer(IPushProducer)
class Connection(Protocol, Commands):
    """
    One connection.

    :ivar is_open: whether commands may be sent on it.
    :ivar flow: where those wait who would send more.
    :ivar announced: the names of the commands beside beanstalkd's own that the server knows, as far
        as it was asked (`probe`).
    """

    log = Logger()
    transport: Any

    def __init__(
        self, clock: IReactorTime, *, grace_s: float = GRACE_S,
        made: Callable[["Connection"], object] = lambda connection: None,
        ended: Callable[[Ended], object] = lose_all, dialect: str = MODERN.name,
    ) -> None:  # fmt: skip
        """
        :param made: called when the connection is there.
        :param ended: called when it is no more, with what is left to be told.
        :param dialect: what the server's port speaks, ``modern`` or ``v1``.
        """
        check_dialect(dialect)
        self.is_open = False
        self._is_v1 = dialect == V1
        self.announced: frozenset[str] = frozenset()
        self._clock: Any = clock
        # The service puts its own in the place of this one: there, who waits goes on waiting.
        self.flow = self._own_flow = FlowControl()
        self._made = made
        self._ended = ended
        self._exchange: Exchange[Pending] = Exchange()
        self._outbox: Outbox[Pending] = Outbox()
        self._postponed: list[Pending] = []
        self._choice = UsedTube()
        self._last_used = DEFAULT
        self._giving_back = 0
        self._is_full = False
        self._send_now: Callable[[bytes], object] | None = None
        self._reason: Exception | None = None
        self._is_cut = False
        self._deadline = Deadline(clock, grace_s, self._exchange.patience_s, self._give_up)
        self._part_timer: IDelayedCall | None = None

    # What an application calls, beside the commands.

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        if reserved_on is not None and reserved_on is not self:
            return fail(reservation_lost(spec, args))
        if self._is_v1:
            spec, args = specs_v1.in_v1(spec, args, tube)
        request = Pending(self._forget, spec, args, body)
        request.mean(self._choice, tube)
        deferred = request.deferred
        self.submit(request)
        return deferred

    def room(self) -> Deferred[None]:
        """
        Wait until more can be sent without piling it up.
        """
        if not self.is_open:
            return fail(errors.Closed("the connection is closed"))
        return succeed(None) if self.has_room() else self.flow.wait()

    def probe(self) -> Deferred[frozenset[str]]:
        """
        Ask which commands the server has beside beanstalkd's own; none, says one that knows none.
        """
        asked = self.send(specs.CAPABILITIES)
        return asked.addCallbacks(self._note_announced, self._note_nothing_announced)

    def part(self, *, sends_no_more: bool = False) -> None:
        """
        Close; what the transport was given is still sent, and answers still count until then.

        :param sends_no_more: only say that nothing more will come, and leave the end to the server:
            so it ends a `reserve` that waits.
        """
        if self._part_timer is None and self._reason is None:
            self.is_open = False
            self._reason = errors.Closed("the connection was closed by us")
            self._part_timer = self._clock.callLater(PART_S, self._cut)
            self.transport.unregisterProducer()
            lose_half = getattr(self.transport, "loseWriteConnection", None)
            (lose_half if sends_no_more and lose_half else self.transport.loseConnection)()

    def abort(self, reason: Exception) -> None:
        """
        Cut the connection.
        """
        self.is_open = False
        self._is_cut = True
        self._reason = self._reason or reason
        self.transport.abortConnection()

    # What the service calls.

    def submit(self, request: Pending) -> None:
        """
        Send a request, or fail it.
        """
        if not self.is_open or self._outbox or request.spec.is_extended:
            error = self._objection(request)
            if error is not None:
                request.fail(error)
                return
        request.forget = self._forget
        if self._postponed or (self._giving_back and request.spec in _WAITING):
            self._postponed.append(request)
            return
        self._go_to(request)
        exchange = self._exchange
        is_alone = not exchange.unanswered
        if not exchange.ask(request):
            return
        if is_alone:
            self._deadline.heard()
        if self._is_full or request.size > PIECE_BYTES:
            self._outbox.add(request)
            self._pump()
        else:
            request.is_begun = request.is_sent = True
            self._write(request.encode(), is_alone)
        if request.spec in QUITS:
            self.is_open = False

    def _go_to(self, request: Pending) -> None:
        """
        Send a `use` right before what is meant for another tube than the one before it.
        """
        tube = request.tube
        if request.spec is specs.USE:
            self._last_used = request.args[0]
        elif tube is not None and tube != self._last_used:
            use = ImplicitUse(self._forget, specs.USE, (tube,))
            use.deferred.addErrback(self._not_used)
            self.submit(use)

    def _not_used(self, failure: Failure) -> None:
        """
        What is behind it may be in the wrong tube: it must not be called done.
        """
        if failure.check(errors.ErrorReply):
            assert isinstance(failure.value, Exception)
            self.abort(failure.value)

    def has_room(self) -> bool:
        """
        Whether more can be sent without piling it up.
        """
        is_flowing = self.is_open and not self._is_full and not self._outbox
        return is_flowing and len(self._exchange.unanswered) < MAX_UNANSWERED

    # What Twisted calls.

    def connectionMade(self) -> None:
        """
        Small commands leave at once, and a peer that vanished is found out even without a deadline.
        """
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        # Of no other kind, above all none that wraps a socket: TLS would be passed by.
        if isinstance(self.transport, tcp.Connection) and not self.transport.TLS:
            self._send_now = self.transport.writeSomeData
        self.transport.registerProducer(self, True)
        self.is_open = True
        self._made(self)

    def dataReceived(self, data: bytes) -> None:
        """
        Replies have come, or parts of them.
        """
        if self._is_cut:
            return  # Whatever still comes cannot be trusted.
        for request, reply in self._exchange.receive(data):
            self._answer(request, reply)
            if self._is_cut:
                break
        if self._exchange.fault is not None:
            self.abort(self._exchange.fault)
        self._deadline.heard()
        if self.flow.is_wanted:
            self.flow.let_in(self.has_room)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Fail what has no answer yet, and those who wait to send.
        """
        self.is_open = False
        self._deadline.stop()
        cancel(self._part_timer)
        self._own_flow.close(errors.Closed("the connection is closed"))
        exchange = self._exchange
        left = [*exchange.unanswered, *self._postponed]
        exchange.unanswered.clear()
        self._postponed.clear()
        assert reason.value is not None
        why = self._reason or reason.value
        self._ended(Ended(why, left, tuple(exchange.reserved), exchange.tubes))

    def pauseProducing(self) -> None:
        """
        The server does not read.
        """
        self._is_full = True

    def resumeProducing(self) -> None:
        """
        The server has read.
        """
        self._is_full = False
        self._deadline.heard()
        self._pump()
        self.flow.let_in(self.has_room)

    def stopProducing(self) -> None:
        """
        The connection ends; `connectionLost` says so too.
        """

    # Sending.

    def _objection(self, request: Pending) -> errors.ClientError | None:
        """
        Say why a request cannot be sent.
        """
        spec = request.spec
        if not self.is_open:
            closed = self._reason or errors.Closed("the connection is closed")
            return errors.NotCarriedOut(spec.name, request.job_id, closed)
        if spec.is_extended and spec is not specs.CAPABILITIES and spec.name not in self.announced:
            return errors.NotAnnounced(
                f"{spec.name}: the server has not announced that it knows it"
            )
        if self._outbox.bytes > MAX_WAITING_BYTES:
            return overfull(spec)
        return None

    def _write(self, data: bytes, is_alone: bool) -> None:
        """
        Hand bytes to the transport; past its buffer if nothing else has no answer, for then it is
        empty.  That saves one round through the reactor for whoever waits for each answer.
        """
        if is_alone and self._send_now is not None:
            sent = self._send_now(data)
            if isinstance(sent, int):  # Otherwise it is an error, which the transport will find.
                data = data[sent:]
        if data:
            self.transport.write(data)

    def _forget(self, request: Pending) -> None:
        if request in self._postponed:
            self._postponed.remove(request)
            return
        if not request.is_begun and request.spec is specs.USE:
            request.is_forgotten = True  # What is behind it counts on it.
            return
        if not request.is_begun:
            self._outbox.drop(request)
        self._exchange.forget(request)

    def _pump(self) -> None:
        while self._outbox and not self._is_full:
            self.transport.write(self._outbox.piece())

    # Answers.

    def _answer(self, request: Pending, reply: Reply) -> None:
        if request.choice is not None:
            self._note_use(request, request.choice, reply)
        if request.is_forgotten:
            if reply.word == specs.RESERVE.success:
                self._give_back(reply.value)
            return
        try:
            result = request.spec.result(request.args, reply)
            if request.spec in RESERVING:
                result.reserved_on = self
        except errors.ClientError as error:
            request.fail(error)
            return
        request.succeed(result)
        if request.spec is specs_v1.QUIT:
            self.part()

    def _note_use(self, request: Pending, choice: UsedTube, reply: Reply) -> None:
        """
        Note what came of a `use` of the application's.  If it is refused, what was sent behind it
        for its tube is carried out in another one: that must not be called done, and only the end
        of the connection keeps the answers away.
        """
        if reply.word == request.spec.success:
            choice.confirm(request)
            return
        choice.take_back(request)
        for behind in self._exchange.unanswered:
            if behind.spec is specs.USE:
                return
            if behind.tube is not None:
                self.abort(errors.BY_WORD[reply.word](request.spec.name, None))
                return
        self._last_used = self._exchange.tubes.used

    def _give_back(self, job_id: int) -> None:
        """
        Release a job that came when its `reserve` was cancelled, with the priority it has.

        A `reserve` that is wanted meanwhile would be in the way of that release, and wait for
        another job: it is postponed, and what follows it too.
        """

        def release(stats: JobStats) -> Deferred[None]:
            self._giving_back -= 1
            released = self._send_first(lambda: self.release(job_id, priority=stats.pri))
            self._send_postponed()
            return released

        def give_up(failure: Failure) -> Failure:
            self._giving_back -= 1
            self._send_postponed()
            return failure

        def note(failure: Failure) -> None:
            self.log.info("job {job}, which nobody wants, not released: {why}",
                          job=job_id, why=failure.getErrorMessage())  # fmt: skip

        if isinstance(job_id, specs_v1.NumberAndPriority):
            priority = job_id.priority
            self._send_first(lambda: self.release(job_id, priority=priority)).addErrback(note)
            return
        self._giving_back += 1
        asked = self._send_first(lambda: self.stats_job(job_id))
        asked.addErrback(give_up).addCallback(release).addErrback(note)

    def _send_first(self, send: Callable[[], Deferred[T]]) -> Deferred[T]:
        """
        Send ahead of what is postponed.
        """
        postponed, self._postponed = self._postponed, []
        sent = send()
        self._postponed = postponed
        return sent

    def _send_postponed(self) -> None:
        postponed, self._postponed = self._postponed, []
        for request in postponed:
            self.submit(request)

    def _note_announced(self, names: Sequence[str]) -> frozenset[str]:
        self.announced = frozenset(names)
        return self.announced

    def _note_nothing_announced(self, failure: Failure) -> frozenset[str]:
        failure.trap(errors.UnknownCommand, errors.BadFormat)
        return frozenset()

    # Ends.

    def _give_up(self, patience_s: float) -> None:
        oldest = self._exchange.unanswered[0].spec.name
        why = f"no answer to {oldest} in {patience_s:g} s; the connection was cut"
        self.abort(errors.ServerSilent(why))

    def _cut(self) -> None:
        self._is_cut = True
        self.transport.abortConnection()


def overfull(spec: CommandSpec) -> errors.Overfull:
    """
    Say that no more is taken.
    """
    return errors.Overfull(
        f"{spec.name}: more than {MAX_WAITING_BYTES} bytes wait to be sent; "
        "await room() before sending more"
    )


def the_reactor() -> Any:
    """
    Give the one that is installed, or install the default.
    """
    from twisted.internet import reactor

    return reactor


def connect(
    endpoint: str | IStreamClientEndpoint, *, reactor: Any = None, grace_s: float = GRACE_S,
    dialect: str = MODERN.name,
) -> Deferred[Connection]:  # fmt: skip
    """
    Make one connection.  When it ends, it has ended: `service.Client` is what comes back.

    :param dialect: what the server's port speaks, ``modern`` or ``v1``.
    """
    reactor = reactor or the_reactor()
    protocol = Connection(reactor, grace_s=grace_s, dialect=dialect)
    made: Deferred[Connection] = connectProtocol(endpoint_of(reactor, endpoint), protocol)
    return made
