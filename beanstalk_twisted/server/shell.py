"""
What connections need of the service.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from beanstalk_twisted.jobs.puts import Draft
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.commands import Parsed
from beanstalk_twisted.server.epoll_reader import SocketSource
from beanstalk_twisted.server.pipeline import Common
from beanstalk_twisted.wire.replies import Reply

if TYPE_CHECKING:
    from beanstalk_twisted.server.protocol import BeanstalkProtocol


class Shell(Protocol):
    """
    The service, as its connections see it.

    :ivar common: what all connections have in common.
    :ivar tells_commands: whether `execute` tells the server's log of each command.
    """

    max_job_bytes: int
    common: Common
    tells_commands: bool

    @property
    def is_congested(self) -> bool:
        """
        Whether whoever waits for the disk should be read no further.
        """

    def connected(self, protocol: "BeanstalkProtocol") -> Session:
        """
        A connection was made.
        """

    def feed(self, protocol: "BeanstalkProtocol") -> SocketSource | None:
        """
        Who reads the connection's socket, if not Twisted.
        """

    def disconnected(self, session: Session) -> None:
        """
        A connection has ended, or is about to by its peer's wish.
        """

    def half_closed(self, session: Session) -> None:
        """
        The peer will send no more.
        """

    def execute(self, session: Session, now_ns: int, parsed: Parsed) -> Answer | None:
        """
        Carry out a command.
        """

    @property
    def has_room(self) -> bool:
        """
        Whether one more connection may be taken.
        """

    @property
    def now_ns(self) -> Callable[[], int]:
        """
        Tells the time.
        """

    def rest(self, protocol: "BeanstalkProtocol") -> None:
        """
        Call ``protocol.rested`` when others have had their turn.
        """

    def fault(self, line: bytes) -> Reply:
        """
        The exception that is being handled has ended a command that may have changed something.

        :return: what to answer if the server goes on, since it has no log.
        :raise BaseException: the same, if it is no Exception.
        """

    def count(self, counter: str | None) -> None:
        """
        A command counts although it is not carried out.
        """

    def send_soon(self, protocol: "BeanstalkProtocol") -> None:
        """
        Send what the protocol's pipeline has gathered now, or when this turn is over.
        """

    def end_chunk(self, protocol: "BeanstalkProtocol") -> None:
        """
        All that has come in one piece is carried out; `send_soon` what there is to say.
        """

    def begin_put(self, session: Session, now_ns: int, parsed: Parsed) -> Draft:
        """
        A `put` line was accepted.
        """

    def put(
        self, session: Session, now_ns: int, draft: Draft, parsed: Parsed, body: bytes
    ) -> Answer | None:
        """
        A job's body has come.
        """

    def holds(self, protocol: "BeanstalkProtocol") -> None:
        """
        Call ``protocol.release`` when more is settled.
        """
