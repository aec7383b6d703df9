"""Connecting again: how long to wait before the next try, and one line in the log when a server
cannot be reached, not one for each try.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client.endpoints import HostsEndpoint
from beanstalk_twisted.client.errors import without_server

FIRST_S: Final = 0.1
"""Before the first try again, seconds: a server that is restarted is often back at once."""

MOST_S: Final = 30.0
"""At most, seconds: a server that is back is found within half a minute."""

FACTOR: Final = 2.0
"""Each wait is so much longer than the one before."""


class Backoff:
    """A retry policy for Twisted's `ClientService`.

    That counts failed tries, and begins anew with each connection made.  Here a connection counts
    as made only when the server has answered on it (`succeeded`): one that accepts and hangs up
    is not tried faster and faster.
    """

    def __init__(
        self, random: Callable[[], float], first_s: float = FIRST_S, most_s: float = MOST_S
    ) -> None:
        """:param random: gives a number from 0 up to 1 for each call."""
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = self._before_s = first_s

    def __call__(self, attempt: int = 0) -> float:
        """Give the seconds to wait: between half and all of what is due, so that a thousand clients
        of a server that was restarted do not come back as one.

        :param attempt: as `ClientService` counts; not looked at.
        """
        due_s, self._next_s = self._next_s, min(self._next_s * FACTOR, self._most_s)
        return due_s * (1 + self._random()) / 2

    def succeeded(self) -> None:
        """The server is there: begin anew."""
        self._next_s, self._before_s = self._first_s, self._next_s

    def turned_away(self) -> None:
        """The server has refused our token, or a tube: wait as long as ever.  No restart mends
        that, and each try has the next token from our address wait longer.
        """
        self._next_s = self._most_s

    def disappointed(self) -> None:
        """What was there was no server of our protocol: go on where `succeeded` came too early."""
        self._next_s = max(self._next_s, self._before_s)


SERVER_LOG: Final = "beanstalk_twisted.client.server"
"""The namespace in which a client logs that its server is not there, and that it is again."""

# One that belongs to a class is renamed after it.
_log = Logger(namespace=SERVER_LOG)


UNANSWERED: Final = (
    "the server has closed it before any answer; if it speaks TLS, write tls://HOST:PORT"
)
"""Of a plain connection."""


@implementer(IStreamClientEndpoint)
class LoggedEndpoint:
    """An endpoint that logs when its server becomes unavailable, and when it is available again, or
    on another host.

    :ivar trouble: why it could not be used the last time; None when it could.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, name: str, logs: bool,
        failed: Callable[[BaseException], object] = lambda why: None,
    ) -> None:  # fmt: skip
        """:param name: the server, as the application has named it.
        :param logs: whether anything is told.
        :param failed: called when there is no connection, with the reason, each time.
        """
        self.name = name
        self.trouble: BaseException | None = None
        self._tell_failed = failed
        self._endpoint = endpoint
        self._logs = logs
        self._is_unavailable = False
        self._host: str | None = None

    def __repr__(self) -> str:
        return f"{self._endpoint!r}"

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addErrback(self._failed)

    def _failed(self, failure: Failure) -> Failure:
        if not failure.check(CancelledError):  # As it is when the client is stopped.
            assert failure.value is not None
            self.unavailable(failure.value)
        return failure

    def unavailable(self, why: BaseException) -> None:
        """It cannot be used, or not yet."""
        was_unavailable, self._is_unavailable = self._is_unavailable, True
        self.trouble = why
        if self._logs and not was_unavailable:
            _log.warn("no connection to {server}: {why}; retrying",
                      server=self.name, why=self._in_words(why))  # fmt: skip
        self._tell_failed(why)

    def _in_words(self, why: BaseException) -> object:
        """Why it cannot be used; a server that expects TLS closes what is plain without a word."""
        is_plain = not self.name.startswith(("tls:", "ssl:"))
        if is_plain and isinstance(why, ConnectionDone | ConnectionLost):
            return UNANSWERED
        return without_server(why)

    def available(self) -> None:
        """It has answered."""
        was_unavailable, self._is_unavailable = self._is_unavailable, False
        self.trouble = None
        host = self._endpoint.host if isinstance(self._endpoint, HostsEndpoint) else None
        before, self._host = self._host, host
        if self._logs and (was_unavailable or before not in (None, host)):
            at = "" if host is None else f", which {host} serves"
            _log.info("connected to {server}{at}", server=self.name, at=at)

    def reset(self) -> None:
        """Begin anew."""
        self._is_unavailable = False
