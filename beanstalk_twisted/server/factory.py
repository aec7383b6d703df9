"""
Who serves a new connection.
"""

from twisted.internet.protocol import Factory

from beanstalk_twisted.server.connection_host import ConnectionHost
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.wire.dialects import MODERN, Dialect


class BeanstalkFactory(Factory):
    """
    Makes a protocol for each connection.
    """

    noisy = False

    def __init__(self, host: ConnectionHost, dialect: Dialect = MODERN) -> None:
        self._host = host
        self._dialect = dialect

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """
        :param addr: the peer's address; all are equal.
        :return: None, and the connection is closed, if there is no room for it.
        """
        return BeanstalkProtocol(self._host, self._dialect) if self._host.has_room else None
