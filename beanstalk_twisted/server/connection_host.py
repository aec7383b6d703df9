"""
What connections need of the service.
"""

from typing import TYPE_CHECKING, Protocol

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.epoll_reader import SocketSource
from beanstalk_twisted.server.executor import ExecutionContext
from beanstalk_twisted.server.reply_queue import ReplyQueue

if TYPE_CHECKING:
    from beanstalk_twisted.server.protocol import BeanstalkProtocol


class Turns(Protocol):
    """
    When connections are served; `turns.TurnScheduler` is one.
    """

    def rest(self, protocol: "BeanstalkProtocol") -> None:
        """
        Call ``protocol.rested`` when others have had their turn.
        """

    def end_chunk(self, replies: ReplyQueue) -> None:
        """
        All that has come in one piece is carried out: send what is gathered now, or when this turn
        is over, and see to what was changed.
        """

    def send_soon(self, replies: ReplyQueue) -> None:
        """
        Send what is gathered now, or when this turn is over.
        """


class ConnectionHost(Protocol):
    """
    The service, as its connections see it.
    """

    @property
    def context(self) -> ExecutionContext:
        """
        What the executors of all connections have in common.
        """

    @property
    def turns(self) -> Turns:
        """
        When connections are served.
        """

    @property
    def has_room(self) -> bool:
        """
        Whether one more connection may be taken.
        """

    @property
    def is_congested(self) -> bool:
        """
        Whether whoever waits for the disk should be read no further.
        """

    def feed(self, protocol: "BeanstalkProtocol") -> SocketSource | None:
        """
        Begin to read the connection's socket.

        :return: None if that is left to Twisted.
        """

    def connected(self, protocol: "BeanstalkProtocol") -> Session:
        """
        A connection was made: begin its session.
        """

    def half_closed(self, session: Session) -> None:
        """
        The peer will send no more: if the session waits for a job, that ends.
        """

    def disconnected(self, session: Session) -> None:
        """
        End a session, whose connection has ended or is about to; nothing if it has ended before.
        """
