"""
Notices that the binlog's directory was removed, renamed, replaced or mounted over.

A server that has its segment open does not see that: the kernel goes on to write into a file that
no path leads to, and the next start finds another directory, or none.  So once a second the I/O
thread compares the open file with the one at its path; nobody waits for that, also if a network
file system does not answer.
"""

import time
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.storage.commit.group_commit import GroupCommit
from beanstalk_twisted.storage.environment import Environment

CHECK_S: Final = 1.0
"""
Seconds between two checks: what is acknowledged in that time may be lost with the directory, and a
check takes 20 us of processor time.
"""


class DirectoryCheck:
    """
    Looks once a second whether the log is where it should be, as long as it is.

    One timer or one piece of work may be pending here.
    """

    log = Logger()

    def __init__(
        self, environment: Environment, committer: GroupCommit,
        wall_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """
        :param environment: its ``failed`` is called when the log is not where it should be.
        :param wall_s: Unix time, for people.
        """
        self._io = environment.unwatched
        self._clock = environment.reactor
        self._path = environment.directory.path
        self._failed = environment.failed
        self._committer = committer
        self._displaced = committer.displaced
        self._wall_s = wall_s
        self._seen = ""
        self._timer: IDelayedCall | None = None
        self._is_stopped = False

    def start(self) -> None:
        """
        Check at once, when the segment has just been begun, and then in a second, and so on.

        A file system that even now shows another file at the path than the one that is open has no
        lasting inode numbers: checks would say nothing there.
        """
        seen = self._now()
        if displaced := self._displaced():
            self.log.warn(
                "binlog {path}: {displaced}, its file system says at once; so it cannot be noticed "
                "there if the directory is removed or renamed", event="directory-unwatched",
                path=self._path, displaced=displaced,
            )  # fmt: skip
        else:
            self._end("", seen)

    def stop(self) -> None:
        """Begin no further check."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        looking = self._io.run(self._displaced).addCallback(self._end, self._now())
        looking.addErrback(self._failed)

    def _end(self, displaced: str, seen: str) -> None:
        """:param seen: when this check began, and what was acknowledgeable then."""
        if self._is_stopped:
            return
        if displaced:
            self._failed(Failure(self._error(displaced)))
        else:
            self._seen = seen
            self._timer = self._clock.callLater(CHECK_S, self._begin)

    def _now(self) -> str:
        time_ = time.strftime("%FT%TZ", time.gmtime(self._wall_s()))
        return f"{time_} (LSN {self._committer.acknowledgeable_lsn})"

    def _error(self, displaced: str) -> WriteFailed:
        return WriteFailed(
            f"the binlog is not at {self._path} any more: {displaced}. The directory was removed, "
            f"renamed, replaced or mounted over, or files in it were. All was in place at "
            f"{self._seen}; what was acknowledged since is only in the files that were.",
            f"Put that directory, or a copy of it, back at {self._path}, run 'binlog-inspect check "
            f"{self._path}', start again.",
            is_final=True,
        )
