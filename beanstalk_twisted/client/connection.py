"""One connection to a server, on Twisted.

`connect` makes one that is used as it is; `service.Client` makes one after the other.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from twisted.internet import tcp
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import connectProtocol
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
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.calls import Args, Deferring
from beanstalk_twisted.client.commands.methods import AwaitedCommands
from beanstalk_twisted.client.commands.specs import CommandSpec, Reply
from beanstalk_twisted.client.commands.tags import check_seconds
from beanstalk_twisted.client.endpoints import endpoint_of, shown, the_reactor, without_token
from beanstalk_twisted.client.exchange import (
    MAX_WAITING_BYTES,
    PIECE_BYTES,
    RESERVING,
    Announcement,
    Exchange,
    Outbox,
    overfull,
)
from beanstalk_twisted.client.pending import (
    Deadline,
    Ended,
    FlowControl,
    Implicit,
    Pending,
    cancel,
    lose_all,
    reservation_lost,
)
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.client.tubes import DEFAULT, UsedTube
from beanstalk_twisted.tcp_keepalive import keep_alive, socket_below

T = TypeVar("T")

GRACE_S: Final = 30.0
"""Silence allowed beyond a command's own time, seconds: a disk may hang, a log be read first."""

PART_S: Final = 5.0
"""How long a connection that we close may take to send what it has, seconds; then it is cut."""

MAX_UNANSWERED: Final = 4096
"""Commands without an answer above which ``room()`` waits: what our server takes of one at once."""


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
        self.is_open = False
        self._announcement = Announcement(server)
        self._clock: Any = clock
        # The service puts its own in the place of this one: there, waits outlast a connection.
        self.flow = self._own_flow = FlowControl()
        self._made = made
        self._ended = ended
        self._exchange: Exchange[Pending] = Exchange()
        self._outbox: Outbox[Pending] = Outbox()
        self._postponed: list[Pending] = []
        self._choice = UsedTube()
        self._last_used = DEFAULT
        # Answers that have to come before all that is given back is released.
        self._awaited = 0
        self._is_full = False
        self._send_now: Callable[[bytes], object] | None = None
        self._reason: Exception | None = None
        self._is_cut = False
        self._deadline = Deadline(clock, grace_s, self._exchange.patience_s, self._give_up)
        self._part_timer: IDelayedCall | None = None

    # What an application calls, besides the commands.

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        if reserved_on is not None and reserved_on is not self:
            return fail(reservation_lost(spec, args))
        request = Pending(self._forget, spec, args, body)
        request.mean(self._choice, tube)
        deferred = request.deferred
        self.submit(request)
        return deferred

    def room(self) -> Deferred[None]:
        """Wait until more can be sent without piling it up."""
        if not self.is_open:
            return fail(errors.Closed("the connection is closed"))
        return succeed(None) if self.has_room() else self.flow.wait()

    def part(self, *, sends_no_more: bool = False) -> None:
        """Close; what the transport was given is still sent, and answers still count until then.

        :param sends_no_more: only say that nothing more will come, and leave the end to the server,
            which so ends a `reserve` that waits.
        """
        if self._part_timer is None and self._reason is None:
            self.is_open = False
            self._reason = errors.Closed("the connection was closed by us")
            self._part_timer = self._clock.callLater(PART_S, self._cut)
            self.transport.unregisterProducer()
            lose_half = getattr(self.transport, "loseWriteConnection", None)
            if ISSLTransport.providedBy(self.transport):
                lose_half = None  # Its end is said in TLS, and that of the server is waited for.
            (lose_half if sends_no_more and lose_half else self.transport.loseConnection)()

    def abort(self, reason: Exception) -> None:
        self.is_open = False
        self._is_cut = True
        self._reason = self._reason or reason
        self.transport.abortConnection()

    # What the service calls.

    def submit(self, request: Pending) -> None:
        """Send a request, or fail it."""
        spec = request.spec
        if not self.is_open or self._outbox or spec.is_extended:
            error = self._objection(request)
            if error is not None:
                if not request.is_forgotten:
                    request.fail(error)
                return
        request.forget = self._forget
        is_special = spec.is_extended or self._awaited
        if self._postponed or (is_special and self._is_too_early(request)):
            self._postponed.append(request)
            return
        self._go_to(request)
        exchange = self._exchange
        is_alone = not exchange.unanswered
        if not exchange.ask(request):
            return
        if is_alone or spec is specs.CANCEL_RESERVE:
            self._deadline.heard()
        if self._is_full or request.size > PIECE_BYTES:
            self._outbox.add(request)
            self._pump()
        else:
            request.is_begun = request.is_sent = True
            self._write(request.encode(), is_alone)
        if spec is specs.QUIT:
            self.is_open = False

    def _is_too_early(self, request: Pending) -> bool:
        """Return True if a command, and all that is sent after it, has to wait for answers: of a
        job that is being given back, or to what the server knows, which it is asked if need be.
        """
        if self._announcement.is_missing_for(request):
            if all(each.spec is not specs.CAPABILITIES for each in self._exchange.unanswered):
                self._send_implicit(specs.CAPABILITIES)
            return True
        return self._awaited > 0 and request.spec.row.waits

    def _send_implicit(self, spec: CommandSpec) -> None:
        """Send what the application has not asked for, and drop the answer."""
        request = Implicit(self._forget, spec, ())
        request.deferred.addErrback(lambda failure: None)
        self.submit(request)

    def _go_to(self, request: Pending) -> None:
        """Send a `use` right before what is meant for another tube than the one before it."""
        tube = request.tube
        if request.spec is specs.USE:
            self._last_used = request.args[0]
        elif tube is not None and tube != self._last_used:
            use = Implicit(self._forget, specs.USE, (tube,))
            use.deferred.addErrback(self._not_used)
            self.submit(use)

    def _not_used(self, failure: Failure) -> None:
        """Cut the connection: what was sent after it may be in the wrong tube, and not be done."""
        if failure.check(errors.ErrorReply):
            assert isinstance(failure.value, Exception)
            self.abort(failure.value)

    def has_room(self) -> bool:
        """Return True if more can be sent without piling it up."""
        is_flowing = self.is_open and not (self._is_full or self._outbox or self._postponed)
        return is_flowing and len(self._exchange.unanswered) < MAX_UNANSWERED

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
        self.is_open = True
        self._made(self)

    def dataReceived(self, data: bytes) -> None:
        if self._is_cut:
            return  # Whatever still comes cannot be trusted.
        for request, reply in self._exchange.receive(data):
            self._answer(request, reply)
            if self._is_cut:
                break
        if self._exchange.fault is not None:
            self.abort(self._exchange.fault)
        if self._announcement.words:
            self._end_wait()
        self._deadline.heard()
        if self.flow.is_wanted:
            self.flow.let_in(self.has_room)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
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
        self._is_full = True

    def resumeProducing(self) -> None:
        self._is_full = False
        self._deadline.heard()
        self._pump()
        self.flow.let_in(self.has_room)

    def stopProducing(self) -> None:
        """The connection ends; `connectionLost` says so too."""

    # Sending.

    def _objection(self, request: Pending) -> errors.ClientError | None:
        spec = request.spec
        if not self.is_open:
            closed = self._reason or errors.Closed("the connection is closed")
            return errors.NotCarriedOut(spec.name, request.job_id, closed)
        # The answer to a question would come behind that of the command that is to end.
        is_too_late = (
            spec is specs.CANCEL_RESERVE and self._announcement.is_missing_for(request)
            and self._exchange.is_waiting
        )  # fmt: skip
        if is_too_late or self._announcement.refuses(request):
            return self._announcement.refusal(request)
        if self._outbox.bytes > MAX_WAITING_BYTES:
            return overfull(spec)
        return None

    def _write(self, data: bytes, is_alone: bool) -> None:
        """Hand bytes to the transport; past its buffer if all else is answered, for then it is
        empty.  That saves one round through the reactor for a client that waits for each answer.
        """
        if is_alone and self._send_now is not None:
            sent = self._send_now(data)
            if isinstance(sent, int):  # Otherwise it is an error, which the transport will find.
                data = data[sent:]
        if data:
            self.transport.write(data)

    def _forget(self, request: Pending) -> None:
        if not request.is_begun and request.spec is specs.USE:
            request.is_forgotten = True  # What follows it counts on it.
            return
        if request in self._postponed:
            self._postponed.remove(request)
            return
        if not request.is_begun:
            self._outbox.drop(request)
        self._exchange.forget(request)
        if request.spec is specs.CAPABILITIES:
            self._send_postponed()  # What waits for its answer may need another one.
        elif request.spec is specs.RESERVE_BATCH and request.is_begun:
            self._awaited += 1
        self._end_wait()

    def _end_wait(self) -> None:
        """End what waits in the server and is not wanted any more, if the server knows how."""
        can_end = self.is_open and self._announcement.has(specs.CANCEL_RESERVE)
        if can_end and self._exchange.has_unwanted:
            self._send_implicit(specs.CANCEL_RESERVE)

    def _pump(self) -> None:
        while self._outbox and not self._is_full:
            self.transport.write(self._outbox.piece())

    # Answers.

    def _answer(self, request: Pending, reply: Reply) -> None:
        if request.choice is not None:
            self._note_use(request, request.choice, reply)
        if request.spec is specs.CAPABILITIES:
            self._note_announced(request, reply)
        if request.is_forgotten:
            if reply.word == specs.RESERVE.success:
                self._give_back(reply.value)
            elif request.spec is specs.RESERVE_BATCH:
                for part in reply.parts:
                    self._give_back(part.value)
                self._awaited -= 1
                self._send_postponed()
            return
        try:
            result = request.spec.result(request.args, reply)
            if request.spec in RESERVING:
                result.reserved_on = self
            elif request.spec is specs.RESERVE_BATCH:
                for job in result:
                    job.reserved_on = self
        except errors.ClientError as error:
            request.fail(error)
            return
        request.deferred.callback(result)

    def _note_use(self, request: Pending, choice: UsedTube, reply: Reply) -> None:
        """Note what came of a `use` of the application's.  If it is refused, what was sent after it
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
        """Return a job that is not wanted, or release it, with the priority that it has.

        A `reserve` that is wanted meanwhile would be in the way of a release, and wait for another
        job: as long as ``_awaited`` is not 0 it is postponed, and what follows it too.
        """

        def note(failure: Failure) -> None:
            self._log.info("job {job}, which nobody wants, not released: {why}",
                           job=job_id, why=failure.getErrorMessage())  # fmt: skip

        if self._announcement.has(specs.RETURN_JOB):
            self._send_first(lambda: self.return_job(job_id)).addErrback(note)
            return

        def release(stats: JobStats) -> Deferred[None]:
            self._awaited -= 1
            released = self._send_first(lambda: self.release(job_id, priority=stats.pri))
            self._send_postponed()
            return released

        def give_up(failure: Failure) -> Failure:
            self._awaited -= 1
            self._send_postponed()
            return failure

        self._awaited += 1
        asked = self._send_first(lambda: self.stats_job(job_id))
        asked.addErrback(give_up).addCallback(release).addErrback(note)

    def _send_first(self, send: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Send ahead of what is postponed."""
        postponed, self._postponed = self._postponed, []
        sent = send()
        self._postponed = postponed
        return sent

    def _send_postponed(self) -> None:
        postponed, self._postponed = self._postponed, []
        for request in postponed:
            self.submit(request)

    def _note_announced(self, request: Pending, reply: Reply) -> None:
        """Note what the server knows, and send what has waited for that."""
        self._announcement.note(request, reply)
        postponed, self._postponed = self._postponed, []
        for each in postponed:
            if self._announcement.is_missing_for(each):
                each.fail(self._announcement.refusal(each))
            else:
                self.submit(each)

    # Ends.

    def _give_up(self, patience_s: float) -> None:
        oldest = self._exchange.unanswered[0].spec.name
        why = f"no answer to {oldest} in {patience_s:g} s; the connection was cut"
        self.abort(errors.ServerSilent(why))

    def _cut(self) -> None:
        self._is_cut = True
        self.transport.abortConnection()


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
    if isinstance(endpoint, str):
        endpoint, in_address = without_token(endpoint)
        token = token or in_address
    protocol = Connection(reactor, grace_s=grace_s, server=shown(endpoint))
    made: Deferred[Connection] = connectProtocol(endpoint_of(reactor, endpoint), protocol)

    def refused(failure: Failure) -> Failure:
        protocol.part()
        return failure

    def show(connection: Connection, token: str) -> Deferred[Connection]:
        shown: Deferred[Any] = connection.auth(token)
        return shown.addCallbacks(lambda _: connection, refused)

    return made if token is None else made.addCallback(show, token)
