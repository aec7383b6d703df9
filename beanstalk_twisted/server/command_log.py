"""
The log of commands, which a server keeps that was told to (`-VV`).
"""

from twisted.logger import Logger

from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.printable import escape_all
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.replies import Reply


class CommandLog:
    """
    An `executor.Observer` that tells the server's log of each line as it came, without bodies: what
    is no command too, which is what one looks for with it.
    """

    log = Logger()

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        """
        Tell of it.
        """
        self.log.info("connection {number}: {line}", number=session.number, line=escape_all(line))

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        """
        All commands are carried out.
        """
        return None

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        """
        Answers are not told of.
        """
