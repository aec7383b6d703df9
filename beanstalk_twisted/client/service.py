"""A client that stays connected."""

from collections.abc import Callable
from functools import partial
from random import random as any_random
from typing import Any

from twisted.application.internet import ClientService
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import Deferring
from beanstalk_twisted.client.commands.methods import AwaitedCommands
from beanstalk_twisted.client.commands.specs import Args, CommandSpec
from beanstalk_twisted.client.commands.tags import check_seconds
from beanstalk_twisted.client.connection import GRACE_S, Connection
from beanstalk_twisted.client.core.continuity import Continuity
from beanstalk_twisted.client.core.continuity import Losses as Losses
from beanstalk_twisted.client.core.dialogue import Ended, lose_all
from beanstalk_twisted.client.core.requests import reservation_lost
from beanstalk_twisted.client.endpoints import Backoff, LoggedEndpoint, the_reactor, way_to
from beanstalk_twisted.client.pending import DeferredRequest, FlowControl


class Client(ClientService, AwaitedCommands, Deferring):
    """A client, as a service: it connects when it is started.

    Commands may be called at any time; without a connection they wait for one.  When a connection
    is lost, another one is made after a wait, brought to the tubes used and watched and the mode,
    and sent what waits:

    - what certainly was not carried out, in its order;
    - what was sent without an answer, if doing it twice is the same as doing it once: tubes,
      reserves (a reservation ends with its connection), and what only looks;
    - puts with a unique key, as long as the server certainly remembers it.

    The rest fails with `Unanswered`: a `put` that got no answer is never sent again if it may make
    a second job.
    """

    # `ClientService` tells each of its tries to this one.
    _log = Logger()

    def __init__(
        self, endpoint: str | IStreamClientEndpoint, *, reactor: Any = None,
        grace_s: float = GRACE_S, backoff: Backoff | None = None,
        connected: Callable[[], object] = lambda: None,
        lost: Callable[[Losses], object] = lambda losses: None,
        probes: bool = False, logs: bool = True, token: str | None = None,
    ) -> None:  # fmt: skip
        """:param endpoint: where the server is: an address as of `client.addresses`, such as
            ``127.0.0.1:11300`` or ``tls://TOKEN@queue.example?ca=FILE``, or one of Twisted's.
        :param grace_s: how long a server may be silent beyond what a command allows it, seconds.
        :param connected: called when a connection is there and its tubes are restored.
        :param lost: called when a connection is lost that was.
        :param probes: ask the server at once which commands it has besides beanstalkd's own;
            otherwise the first of them does, and each connection from then on.
        :param logs: write to Twisted's log that the server is not there, and that it is again.
        :param token: shown on each connection before anything else (`auth`); None for none.
        :raise ValueError: the text names no server, or a file that cannot be used; there is no such
            time or token.
        :raise TypeError: it is neither text nor an endpoint.
        """
        reactor = reactor or the_reactor()
        way = way_to(reactor, endpoint)
        token = way.token if token is None else token
        check_seconds("grace_s", grace_s)
        self._continuity = Continuity(reactor.seconds, token, probes)

        self._backoff = backoff or Backoff(any_random)
        factory = Factory.forProtocol(self._connection)
        factory.noisy = False
        self._logged_endpoint = LoggedEndpoint(way.endpoint, way.name, logs, self._not_there)
        super().__init__(self._logged_endpoint, factory, self._backoff, reactor)
        self._reactor = reactor
        self._grace_s = grace_s
        self._connected = connected
        self._lost = lost
        self._ready: Connection | None = None
        self._newest: Connection | None = None
        # With a token: the connection whose server has taken it, and who waits for one.
        self._authorized: Connection | None = None
        self._until_authorized: list[Deferred[Connection]] = []
        self._when_ended: Deferred[None] | None = None
        self._flow = FlowControl()

    # What an application calls, besides the commands.

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        ready = self._ready
        if ready is not None and not ready.dialogue.is_open:
            ready = None
        if reserved_on is not None and reserved_on is not ready:
            return fail(reservation_lost(spec, args))
        request = DeferredRequest(spec, args, body, tube, reserved_on)
        self._continuity.send(request, None if ready is None else ready.dialogue)
        return request.deferred

    @property
    def trouble(self) -> BaseException | None:
        """Why the newest try to connect has failed; None if it has not."""
        return self._logged_endpoint.trouble

    def room(self) -> Deferred[None]:
        """Wait until there is a connection and it takes more without piling it up."""
        if self._continuity.is_stopped:
            return fail(errors.Closed("the client was stopped"))
        has_room = self._ready is not None and self._ready.has_room()
        return succeed(None) if has_room else self._flow.wait()

    def quit(self) -> Deferred[None]:
        """Part when all that was sent is answered, and stop the service."""
        if self._ready is None or not self._ready.is_open:
            return self.stopService()
        self._continuity.is_stopped = True
        return super().quit().addBoth(lambda _: self.stopService())

    def hang_up(self) -> Deferred[None]:
        """Stop the service although a `reserve` may wait in the server: no job is given to us any
        more.  The server learns that nothing more will be sent; it ends the `reserve`, then the
        connection.  Jobs still reserved are ready again; what has no answer fails with
        `Unanswered`.

        :return: fires when the server has ended the connection; after `connection.PART_S` seconds
            it is cut off.
        """
        if self._ready is None or not self._ready.is_open:
            return self.stopService()
        self._continuity.is_stopped = True
        self._when_ended = Deferred()
        ended = self._when_ended.addCallback(lambda _: self.stopService())
        self._ready.part(sends_no_more=True)
        return ended

    def abort(self, why: Exception) -> None:
        """Cut the connection, if there is one; another is made, unless the client was stopped."""
        if self._newest is not None:
            self._newest.dialogue.abort(why)

    def startService(self) -> None:
        self._continuity.is_stopped = False
        self._logged_endpoint.reset()
        super().startService()

    def stopService(self) -> Deferred[None]:
        """Close the connection.  What waits for one, or for an answer, fails."""
        self._continuity.is_stopped = True
        self._fail_waiting(errors.Closed("the client was stopped"))
        if self._newest is not None:
            self._newest.part()
        return super().stopService().addCallback(self._in_another_turn)

    def whenConnected(self, failAfterFailures: int | None = None) -> Deferred[Any]:
        """Wait for a connection, with a token for one whose server has taken it; the client may be
        stopped as soon as the Deferred fires.

        :param failAfterFailures: a token that was refused is a failure too.
        :raise Unauthorized: through the Deferred: the last failure was that.
        """
        connected: Deferred[Any] = super().whenConnected(failAfterFailures)
        if not connected.called:
            connected.addBoth(self._in_another_turn)
        if self._continuity.token is not None:
            connected.addCallback(self._when_authorized, failAfterFailures)
        return connected

    def _when_authorized(
        self, connection: Connection, failures: int | None
    ) -> Connection | Deferred[Any]:
        if connection is self._authorized:
            return connection
        waiter: Deferred[Connection] = Deferred()
        self._until_authorized.append(waiter)

        def again(failure: Failure) -> Failure | Deferred[Any]:
            is_last = failures is not None and failures <= 1
            if is_last or failure.check(CancelledError):
                return failure
            return self.whenConnected(None if failures is None else failures - 1)

        return waiter.addBoth(self._in_another_turn).addErrback(again)

    def _tell_authorized(self, outcome: Connection | Failure) -> None:
        waiters, self._until_authorized = self._until_authorized, []
        for waiter in waiters:
            waiter.callback(outcome)

    def _in_another_turn(self, outcome: Any) -> Deferred[Any]:
        """Let the machine of `ClientService` finish its step: it cannot start or stop before."""
        return deferLater(self._reactor, 0, lambda: outcome)

    # Connections.

    def _connection(self) -> Connection:
        return Connection(
            self._reactor, grace_s=self._grace_s, made=self._greet, ended=self._end,
            server=self._logged_endpoint.name,
        )  # fmt: skip

    def _greet(self, connection: Connection) -> None:
        self._newest = connection
        self._continuity.greet(
            connection.dialogue, partial(self._begin, connection),
            partial(self._refused, connection), partial(self._admit, connection),
        )  # fmt: skip

    def _admit(self, connection: Connection) -> None:
        if self._continuity.token is not None:
            self._authorized = connection
            self._tell_authorized(connection)

    def _refused(self, connection: Connection, error: Exception) -> None:
        """Cut a connection to a server that cannot be used; another try will follow."""
        if isinstance(error, errors.Unauthorized):
            connection.dialogue.abort(error)
            # That may be changed there, so the next try follows late; nothing waits for it.
            self._backoff.turned_away()
            self._fail_waiting(error)
        elif isinstance(error, errors.ClientError) and not isinstance(
            error, errors.Unanswered | errors.NotCarriedOut
        ):
            self._log.warn("cannot use the connection: {error}", error=error)
            connection.dialogue.abort(error)

    def _not_there(self, why: BaseException) -> None:
        """Fail what waits if a certificate is wrong, for that lasts; a restart, say, does not."""
        if isinstance(why, errors.TlsFailed) and not why.fault.may_pass:
            # In another turn, as of `_in_another_turn`: the application may ask for anything then.
            self._reactor.callLater(0, self._not_trusted, why)

    def _not_trusted(self, why: errors.TlsFailed) -> None:
        if self._ready is None:
            self._fail_waiting(why)

    def _fail_waiting(self, error: Exception) -> None:
        self._continuity.fail_waiting(error)
        self._flow.close(error)

    def _begin(self, connection: Connection) -> None:
        self._backoff.succeeded()
        self._logged_endpoint.available()
        self._continuity.begin(connection.dialogue)
        self._ready = connection
        connection.flow = self._flow
        tell(self._log, self._connected)

    def _end(self, ended: Ended) -> None:
        was_ready, self._ready, self._newest = self._ready, None, None
        self._authorized = None
        if was_ready is not None:
            self._continuity.tubes = ended.tubes
        stopped = CancelledError() if self._continuity.is_stopped else None
        self._tell_authorized(Failure(stopped or ended.reason))
        if was_ready is None and not self._continuity.is_stopped:
            self._logged_endpoint.unavailable(ended.reason)
        if was_ready is None or self._continuity.is_stopped:
            lose_all(ended)
            when_ended, self._when_ended = self._when_ended, None
            if when_ended is not None:
                when_ended.callback(None)
            return
        if isinstance(ended.reason, errors.BadReply):
            self._log.warn(
                "no server of our protocol: {error}; it is tried again", error=ended.reason
            )
            self._backoff.disappointed()
        self._continuity.end(ended, partial(tell, self._log, self._lost))


def tell(log: Logger, whom: Callable[..., object], *what: object) -> None:
    """Call the application; an exception of its callback is only logged."""
    try:
        whom(*what)
    except Exception:
        log.failure("in a callback of the application")
