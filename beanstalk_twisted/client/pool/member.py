"""
One server of a pool: whether it is there, and the connection for all that is not about reserving.

A server is *missing* from the moment its connection is lost, and *down* when it was missing for a
while.  As long as it is merely missing, commands wait: a restart costs nothing but that.  When it
is down they fail at once, with `ServerDown`, those that waited too.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.service import Client, Losses

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How long a server may be missing before it is down, seconds: longer than a restart."""


class PoolMember:
    """
    The way to one server.

    :ivar is_up: there is a connection.
    :ivar is_down: there was none for so long that nobody waits for one.
    """

    _log = Logger(namespace="beanstalk_twisted.client.pool.pool")

    def __init__(
        self, name: str, clock: Any, make_client: Callable[..., Client], patience_s: float,
        changed: Callable[["PoolMember"], object],
    ) -> None:  # fmt: skip
        """
        :param make_client: makes the client, given what it is to call when it has a connection,
            and when it has lost one.
        :param changed: called with this when the server is up, missing or down.
        """
        self.name = name
        self.client = make_client(connected=self._connected, lost=self._lost)
        self.is_up = False
        self.is_down = False
        self._clock = clock
        self._patience_s = patience_s
        self._changed = changed
        self._timer: IDelayedCall | None = None
        self._bound: set[Deferred[Any]] = set()

    def start(self) -> None:
        self._miss()
        self.client.startService()

    def stop(self) -> Deferred[None]:
        """Part.  What waits for a connection, or for an answer, fails."""
        self.is_up = self.is_down = False
        self._stop_timer()
        return self.client.stopService()

    def send(self, name: str, ask: Callable[[Client], Deferred[T]]) -> Deferred[T]:
        """
        Send a command.

        :param name: the command's, for errors.
        :raise ServerDown: through the Deferred: it is down, or was before the command was sent.
        """
        if self.is_down:
            return fail(self._is_gone(name))
        return self._bind(name, ask(self.client))

    def _bind(self, name: str, sent: Deferred[T]) -> Deferred[T]:
        """Give this up when the server is down."""
        self._bound.add(sent)

        def answered(answer: Any) -> Any:
            # Whatever is taken out by `_give_up` has no other end than this one.
            is_given_up = sent not in self._bound
            self._bound.discard(sent)
            if is_given_up and isinstance(answer, Failure) and answer.check(CancelledError):
                return Failure(self._is_gone(name))
            return answer

        return sent.addBoth(answered)

    def _is_gone(self, command: str) -> errors.ServerDown:
        return errors.ServerDown(command, self.name, reason=self.client.trouble)

    # Up and down.

    def _connected(self) -> None:
        self._stop_timer()
        if self.is_down:
            self._log.info("the server {server} is back", server=self.name)
        self.is_up, self.is_down = True, False
        self._changed(self)

    def _lost(self, losses: Losses) -> None:
        self.is_up = False
        self._miss()
        self._changed(self)

    def _miss(self) -> None:
        self._stop_timer()
        self._timer = self._clock.callLater(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        self.is_down = True
        trouble = self.client.trouble
        self._log.warn(
            "no connection to the server {server} for {seconds:g} s{why}: its tubes wait for it",
            server=self.name, seconds=self._patience_s,
            why="" if trouble is None else f" ({errors.without_server(trouble)})",
        )  # fmt: skip
        bound, self._bound = self._bound, set()
        for sent in bound:
            sent.cancel()
        self._changed(self)

    def _stop_timer(self) -> None:
        cancel(self._timer)
        self._timer = None
