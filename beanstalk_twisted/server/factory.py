"""
Who serves a new connection.
"""

from twisted.internet.protocol import Factory

from beanstalk_twisted.server.chunks import ChunkProtocol
from beanstalk_twisted.server.commands import MODERN, Dialect
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.server.shell import Shell


class BeanstalkFactory(Factory):
    """
    Makes a protocol for each connection.

    :ivar makes: which one: the quick one, or `BeanstalkProtocol` itself, its reference.  The quick
        one speaks the modern dialect only, and tells nobody what it carries out.
    """

    noisy = False
    makes: type[BeanstalkProtocol] = ChunkProtocol

    def __init__(self, shell: Shell, dialect: Dialect = MODERN) -> None:
        self._shell = shell
        self._dialect = dialect
        if dialect is not MODERN or shell.tells_commands:
            self.makes = BeanstalkProtocol

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """
        :param addr: the peer's address; all are equal.
        :return: None, and the connection is closed, if there is no room for it.
        """
        return self.makes(self._shell, self._dialect) if self._shell.has_room else None
