"""What connections need of the service, and it of them."""

from typing import Any, Protocol

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.connections.epoll_reader import SocketSource
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.server.reply_queue import ReplyQueue
from beanstalk_twisted.wire.dialects import Dialect


class ServedConnection(Protocol):
    """A connection, as the service sees it; `protocol.BeanstalkProtocol` is one.

    :ivar dialect: what it speaks.
    :ivar transport: an ITransport.
    """

    dialect: Dialect
    transport: Any

    @property
    def buffered_bytes(self) -> int:
        """Input that was read and is not carried out, and replies that wait for the disk."""

    def owes_since(self, now_ns: int) -> int | None:
        """Since when the peer owes the rest of a line, or of what follows it: now if the server
        does not read it; None if it has begun nothing.
        """

    def received(self, data: bytes, now_ns: int) -> None:
        """Carry out what has come, as far as that may be done now."""

    def answer(self, answer: Answer) -> None:
        """Give the late answer to the newest command."""

    def unblocked(self) -> None:
        """Carry on: the answer that the session waited for was given."""

    def rested(self) -> None:
        """Carry on: others have had their turn."""

    def break_off(self) -> None:
        """End the connection, and nothing else, because of the exception that is being handled."""

    def abandon(self) -> None:
        """End the connection at once: its peer does not go on."""

    def refuse_commands(self) -> None:
        """Begin no more commands: the server stops."""

    def part(self) -> None:
        """Close: the server stops, and all that was begun is answered."""


class Turns(Protocol):
    """When connections are served; `turns.TurnScheduler` is one."""

    def rest(self, protocol: ServedConnection) -> None:
        """Call ``protocol.rested`` when others have had their turn."""

    def end_chunk(self, replies: ReplyQueue) -> None:
        """Send the gathered replies now, or at the end of this turn, and see to what was changed:
        all that has come in one piece is carried out.
        """

    def send_soon(self, replies: ReplyQueue) -> None:
        """Send the gathered replies now, or at the end of this turn."""


class ConnectionHost(Protocol):
    """The service, as its connections see it."""

    @property
    def context(self) -> ExecutionContext:
        """What the executors of all connections have in common."""

    @property
    def turns(self) -> Turns:
        """When connections are served."""

    def takes_connection(self, address: object) -> bool:
        """Whether one more connection may be taken; one that may not is counted in the log.

        :param address: of its peer.
        """

    @property
    def is_congested(self) -> bool:
        """Whether so much is on its way to disk that connections waiting for it should not be
        read.
        """

    def feed(self, protocol: ServedConnection) -> SocketSource | None:
        """Begin to read the connection's socket.

        :return: None if that is left to Twisted.
        """

    def connected(self, protocol: ServedConnection) -> Session:
        """A connection was made: begin its session."""

    def owes(self, protocol: ServedConnection) -> None:
        """The peer has begun a command, and the rest is to come."""

    def half_closed(self, session: Session) -> None:
        """The peer will send no more: if the session waits for a job, that ends."""

    def cancel_wait(self, session: Session) -> None:
        """The peer takes back what the session waits for: that ends, if it does."""

    def disconnected(self, session: Session) -> None:
        """End a session, whose connection has ended or is about to; nothing if it has ended
        before.
        """

    def closed(self, protocol: "ServedConnection") -> None:
        """A connection has ended; its session did so before."""
