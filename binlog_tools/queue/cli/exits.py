"""How a command ends; what ``binlog-inspect`` has too has its codes."""

from typing import Final

from beanstalk_twisted.programs import INTERRUPTED

PROGRAM: Final = "beanstalk"

DONE: Final = 0
NOTHING: Final = 1
"""There was no job."""
USAGE: Final = 2
BURIED: Final = 3
"""The job that was waited for was buried."""
REFUSED: Final = 4
"""There is no server, or no such job or tube, or the server has refused."""
MISSING: Final = 5
"""The server does not have the command that is needed."""
TIMED_OUT: Final = 124
"""The job that was waited for is still there; as of timeout(1)."""


WORDS: Final = {
    NOTHING: "NOTHING", USAGE: "USAGE", BURIED: "BURIED", REFUSED: "REFUSED", MISSING: "MISSING",
    TIMED_OUT: "TIMED_OUT", INTERRUPTED: "INTERRUPTED",
}  # fmt: skip
"""The ``code`` of errors in JSON; where the server has refused, it is the server's reply."""

NO_SERVER: Final = "NO_SERVER"
"""The ``code`` where there is no server, or the connection was lost."""
