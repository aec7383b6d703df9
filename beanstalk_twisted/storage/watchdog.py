"""Watches the disk: says when it takes very long, and gives up when it hangs.
Differs from beanstalkd: it writes in its only thread, and hangs with the disk for ever.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.storage.io_thread import LOOK_S, Clock, Io, WatchableIo
from beanstalk_twisted.storage.repeats import Repeats, times

T = TypeVar("T")

SLOW_S: Final = 5
"""Seconds after which it is said: no sound disk takes that long, and no client waits so gladly."""

DEFAULT_LIMIT_S: Final = 60
"""Twice what Linux gives a SCSI disk to answer, s, so that its own error, which says more, comes
first.
"""

MAX_LIMIT_S: Final = 86_400
"""A day; 0 says that there is no limit."""

REPLIES_WAIT: Final = "replies wait for it"
NEW_REPLIES_WAIT: Final = (
    "replies to further changes wait for it, and a power loss may take back those given last"
)
"""Without a sync before each reply: the next batch is written when this work has ended."""

ALL_WAIT: Final = "all clients wait for it, and so do signals other than SIGKILL"
ALL_WAIT_IN_DOUBT: Final = f"{ALL_WAIT}, and a power loss may take back the replies given last"
"""While the reactor's thread is kept, nobody is served, and Python calls no handler of a signal;
with and without such a sync.
"""

NOTHING_LOST: Final = "no reply was given for what is not on disk"
NEWEST_DOUBTFUL: Final = (
    "what was answered outlives this process, but a reset or a power loss before the disk has it "
    "may take back the newest of it"
)
"""The kernel has what was answered, and writes it when the disk answers."""


class WatchedIo(Io):
    """An `Io` that is watched.

    The thread that waits for a disk cannot be helped, nor ended: so nothing here waits for it.
    Seconds are counted in looks, one a second, and not by a clock: a process that was itself
    stopped for an hour (SIGSTOP, a paused container or machine) does not blame the disk for it.

    While the reactor's thread writes or syncs by itself (`Io.call`), it is that
    thread that may hang, and the I/O thread that looks and gives up.
    """

    log = Logger()

    def __init__(
        self, io: WatchableIo, clock: Clock, path: str, limit_s: int,
        fail_stop: Callable[[Failure], None], syncs_first: bool = True,
    ) -> None:  # fmt: skip
        """:param path: of the directory that is worked on.
        :param limit_s: how long one piece of work may take, 0 to `MAX_LIMIT_S`; 0 is for ever.
        :param fail_stop: called once, when one has taken longer, in the thread that still can be.
        :param syncs_first: whether replies wait until what they report is synced.
        """
        io.watch(self._look_aside, fail_stop)
        self._io = io
        self._clock = clock
        self._path = path
        self._limit_s = limit_s
        self.fail_stop = fail_stop
        self._syncs_first = syncs_first
        self._waits = REPLIES_WAIT if syncs_first else NEW_REPLIES_WAIT
        self._waits_aside = ALL_WAIT if syncs_first else ALL_WAIT_IN_DOUBT
        self._given = self._ended = 0
        self._ended_before = 0
        self._seconds = 0
        self._repeats: Repeats[tuple[int, str]] = Repeats(clock, self._tell_slow, max)
        self._is_told = False
        self._has_given_up = False
        self._timer: IDelayedCall | None = None

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        self._given += 1
        running = self._io.run(work)
        running.addBoth(self._note_end)
        if self._is_busy and self._timer is None and not self._has_given_up:
            self._ended_before, self._seconds = self._ended, 0
            self._timer = self._clock.callLater(LOOK_S, self._look)
        return running

    @property
    def is_free(self) -> bool:
        return self._io.is_free

    def call(self, work: Callable[[], T]) -> T:
        self._given += 1
        try:
            return self._io.call(work)
        finally:
            self._ended += 1
            if self._seconds:
                self._note_speed()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._repeats.stop()
        self._io.stop()

    @property
    def _is_busy(self) -> bool:
        return self._given > self._ended

    def _note_end(self, result: T) -> T:
        """Work ends in the order in which it was given, so it is the oldest that has ended."""
        self._ended += 1
        if self._seconds:
            self._note_speed()
        return result

    def _note_speed(self) -> None:
        """Work has ended that some looks have seen."""
        if self._is_told:
            self._is_told = False
            self.log.warn(
                "the disk goes on, after {seconds} s: {path}", event="disk-works",
                seconds=self._seconds, path=self._path,
            )  # fmt: skip
        self._seconds = 0

    def _look(self) -> None:
        self._timer = None
        if self._is_busy and not self._gives_up(self._waits):
            self._timer = self._clock.callLater(LOOK_S, self._look)

    def _look_aside(self) -> None:
        """The reactor's thread, whose timers look else, has been in one call for a while."""
        if self._is_busy and not self._has_given_up:
            self._gives_up(self._waits_aside)

    def _gives_up(self, meanwhile: str) -> bool:
        """The oldest work is as old as the looks at which none had ended since the one before;
        ``meanwhile`` is what to say of the others.
        """
        is_same = self._ended == self._ended_before
        self._seconds = self._seconds + 1 if is_same else 0
        self._ended_before = self._ended
        if self._limit_s and self._seconds >= self._limit_s:
            self._has_given_up = True
            lost = NOTHING_LOST if self._syncs_first else NEWEST_DOUBTFUL
            error = WriteFailed(
                f"the disk hangs: a write or sync in {self._path} has not ended for "
                f"{self._seconds} s; {lost}. "
                f"Mend the disk, run 'binlog-inspect check {self._path}', start again."
            )
            self.fail_stop(Failure(error))
        elif self._seconds == SLOW_S:
            self._warn((SLOW_S, meanwhile))
        return self._has_given_up

    def _warn(self, slow: tuple[int, str]) -> None:
        if slow[1] is self._waits:
            self._is_told = self._repeats.note(slow)
        else:
            # In the other thread, so without a timer.  It does not come again soon: after a stall
            # the reactor's thread does no work for `fsync.REST` times as long.
            self._is_told = True
            self._tell_slow(1, slow)

    def _tell_slow(self, count: int, slow: tuple[int, str]) -> None:
        seconds, meanwhile = slow
        self.log.warn(
            "the disk is slow: a write or sync in {path} has taken {seconds} s so far; "
            "{meanwhile}{times}", event="disk-slow", path=self._path, seconds=seconds,
            meanwhile=meanwhile, times=times(count), count=count,
        )  # fmt: skip


def close_sockets() -> None:
    """Part from all clients and close all ports: a process that ends keeps its sockets while one of
    its threads hangs in the kernel.  The log's files stay open, so that its lock holds until the
    disk has let go of that thread.
    """
    for name in os.listdir("/dev/fd"):
        # Standard input and output may be sockets too, and are not ours.
        with contextlib.suppress(OSError):
            if int(name) > 2 and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
