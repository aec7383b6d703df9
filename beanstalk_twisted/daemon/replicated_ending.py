"""How the process of a replicated server ends, and what it leaves on its disk."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import MORE_DESCRIPTORS, BinlogError
from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.process import Launcher, Refused, ServiceManager, refuse_start
from beanstalk_twisted.daemon.replication_options import remove_left
from beanstalk_twisted.replication.local_log import filled_again, has_loss_note, leave_loss_note
from beanstalk_twisted.replication.stream.interface import Refused as StreamRefused
from beanstalk_twisted.replication.stream.interface import StreamLost
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.fail_stop import EXIT_CODE, is_out_of_descriptors
from beanstalk_twisted.storage.watchdog import close_sockets


class Term(NamedTuple):
    """What serves for one term.

    :ivar directory: of the local log, not yet locked.
    :ivar prepare: locks the directory, reads files; raises `BinlogError` or `Refused`.
    :ivar site: what serves HTTP; None without ``--http``.
    """

    queue: BeanstalkService
    directory: Directory
    listening: ListeningService
    prepare: Callable[[], None]
    reload: Callable[[], None]
    site: Factory | None


STREAM_REFUSED: Final = 78
"""Exit code when the stream cannot be used as it is, as that of a log of another kind."""


class TermEnding:
    log = Logger()

    def __init__(
        self, end: Callable[[int, Callable[[], None]], object], launcher: Launcher,
        manager: ServiceManager, is_temporary: bool, term: Callable[[], Term],
        last_active: Callable[[], str], url: Callable[[], str],
    ) -> None:  # fmt: skip
        """:param is_temporary: whether the local log is removed at the end."""
        self._end = end
        self._launcher = launcher
        self._manager = manager
        self._is_temporary = is_temporary
        self._term = term
        self._last_active = last_active
        self._url = url

    def refuse(self, message: str, code: int) -> None:
        refuse_start(self._launcher, self._manager, message, code)

    def failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, BinlogError | Refused):
            self.process(error.exit_code, str(error))
        elif isinstance(error, StreamRefused):
            self.refused(error)
        elif is_out_of_descriptors(error):
            self.process(EXIT_CODE, f"no file descriptors are left ({error}). {MORE_DESCRIPTORS}")
        else:
            self.log.failure("what the server ends of", failure, event="server-ends-of")
            self.process(EXIT_CODE, f"{type(error).__name__}: {error}")

    def refused(self, error: StreamRefused) -> None:
        why = str(error)
        if isinstance(error, StreamLost):
            directory = self._term().directory
            with suppress(OSError):
                # Else the next start has to do without it.
                leave_loss_note(directory, why)
            why = (
                f"{why.rstrip('.')}. Nothing was cut off of the log in {directory.path}; "
                f"{self._last_active()} was active last. {filled_again(self._url())}"
            )
        self.process(STREAM_REFUSED, why)

    def process(self, code: int, why: str) -> None:
        self._end(code, partial(self._last_words, why))

    def _last_words(self, why: str) -> None:
        self.log.critical("the server ends: {why}", event="server-ends", why=why)
        self.remove_temporary()
        pidfile = self._term().queue.settings.pidfile
        if pidfile and os.path.exists(pidfile):
            os.unlink(pidfile)
        close_sockets()

    # What is on the disk.

    def remove_left(self) -> None:
        """Remove what killed processes have left of temporary logs."""
        if self._is_temporary:
            for path in remove_left(os.path.dirname(self._term().directory.path), has_loss_note):
                self.log.info(
                    "{path} was removed: the temporary log of a process that is not there; all of "
                    "it is in the stream", event="temporary-removed", path=path,
                )  # fmt: skip

    def remove_temporary(self) -> None:
        """Remove a log that is in the stream as a whole."""
        path = self._term().directory.path
        if self._is_temporary and not has_loss_note(path):
            shutil.rmtree(path, ignore_errors=True)
