"""
One connection told from those before and after it, and which server is behind it.
"""

from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.stats import ServerStats


class Session:
    """
    One connection, told from those before and after it.
    """

    def __init__(self, server: str | None) -> None:
        """
        :param server: the ``id`` that the server has given in ``stats``, random for each of its
            processes; None if it has told none.
        """
        self._server = server

    def knows_jobs_of(self, other: "Session") -> bool:
        """
        Whether a number that was a job's there is the same job's here.

        No process gives a number twice.  Another one may: a server without a log begins with 1
        again, and behind one address there may be several servers.
        """
        return self is other or (self._server is not None and self._server == other._server)


def server_id(stats: ServerStats) -> str | None:
    """
    Give what a process of a server calls itself; None if it does not.
    """
    server = stats.get("id")
    return None if server is None else str(server)


def no_server_id(failure: Failure) -> None:
    failure.trap(errors.ErrorReply, errors.BadReply)
