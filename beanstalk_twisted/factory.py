"""
Who serves a new connection.
"""

from twisted.internet.protocol import Factory

from beanstalk_twisted.chunks import ChunkProtocol
from beanstalk_twisted.protocol import BeanstalkProtocol
from beanstalk_twisted.shell import Shell


class BeanstalkFactory(Factory):
    """
    Makes a protocol for each connection.

    :ivar makes: which one: the quick one, or `BeanstalkProtocol` itself, its reference.
    """

    noisy = False
    makes: type[BeanstalkProtocol] = ChunkProtocol

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """
        :param addr: the peer's address; all are equal.
        :return: None, and the connection is closed, if there is no room for it.
        """
        return self.makes(self._shell) if self._shell.has_room else None
