"""
The log of commands, which a server keeps that was told to (`-VV`).
"""

from twisted.logger import Logger

from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.replies import Reply


class CommandLog:
    """
    An `executor.Observer` that tells the server's log of each command, without its body.
    """

    log = Logger()

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        """
        Tell of it, unless it is no command.
        """
        if parsed is not None:
            self.log.info(
                "connection {number}: {command} {args}",
                number=session.number, command=parsed.command.name, args=parsed.args,
            )  # fmt: skip

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        """
        All commands are carried out.
        """
        return None

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        """
        Answers are not told of.
        """
