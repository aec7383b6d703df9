"""
Whether a server is there, told to the log once and not at each try.
"""

from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

SERVER_LOG: Final = "beanstalk_twisted.client.server"
"""The namespace in which a client logs that its server is not there, and that it is again."""

# One that belongs to a class is renamed after it.
_log = Logger(namespace=SERVER_LOG)


@implementer(IStreamClientEndpoint)
class Presence:
    """
    An endpoint that notices when it cannot connect.
    """

    def __init__(self, endpoint: IStreamClientEndpoint, name: str, logs: bool) -> None:
        """
        :param name: the server, as the application has named it.
        :param logs: whether anything is told.
        """
        self.name = name
        self._endpoint = endpoint
        self._logs = logs
        self._is_absent = False

    def __repr__(self) -> str:
        return f"{self._endpoint!r}"

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """
        See `IStreamClientEndpoint.connect`.
        """
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addErrback(self._failed)

    def _failed(self, failure: Failure) -> Failure:
        if not failure.check(CancelledError):  # As it is when the client is stopped.
            assert failure.value is not None
            self.absent(failure.value)
        return failure

    def absent(self, why: BaseException) -> None:
        """
        It cannot be used, or not yet.
        """
        was_absent, self._is_absent = self._is_absent, True
        if self._logs and not was_absent:
            _log.warn("no connection to {server}: {why}; it is waited for",
                      server=self.name, why=why)  # fmt: skip

    def present(self) -> None:
        """
        It has answered.
        """
        was_absent, self._is_absent = self._is_absent, False
        if self._logs and was_absent:
            _log.info("connected to {server}", server=self.name)

    def forget(self) -> None:
        """
        Begin anew.
        """
        self._is_absent = False
