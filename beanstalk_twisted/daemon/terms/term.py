"""What a replicated server builds anew for each of its terms."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from twisted.internet.protocol import Factory

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.server.service import BeanstalkService


class Term(NamedTuple):
    """
    What serves for one term.

    :ivar directory: of the local log, not yet locked.
    :ivar listening: starts the queue and its ports.
    :ivar prepare: locks the directory, reads files; raises `BinlogError` or `Refused`.
    :ivar reload: reads the files again.
    :ivar site: what serves HTTP; None without ``--http``.
    """

    queue: BeanstalkService
    directory: Directory
    listening: ListeningService
    prepare: Callable[[], None]
    reload: Callable[[], None]
    site: Factory | None


class PresentSite(Protocol):
    """What answers HTTP requests; `web.replication.PresentSite` is one."""

    def show(self, site: Factory | None) -> None:
        """:param site: the present term's; None for none."""
