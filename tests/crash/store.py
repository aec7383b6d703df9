"""The life of a log: servers follow each other on it, each worked hard and ended in its own way."""

import errno
import os
import random
from collections import Counter
from typing import Final

from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.fsync import FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.testing.memory_server import STARTED_S
from tests.binlog.memory import MemoryDirectory
from tests.crash.clients import Clients
from tests.crash.disks import after_power_loss
from tests.crash.explorer import Explorer
from tests.crash.promises import Promises
from tests.crash.simulation import SOUND, Parts, Server

TURNS: Final = (4, 10, 30, 60)
"""Turns of the reactor in which clients act, one of these for each server.  Several short lives
leave several short segments, of which compaction then deletes one right after the other.
"""

ENDINGS: Final = ("kill", "kill", "power loss", "power loss", "stop")

COUNTED: Final = {"rename": "segments begun", "remove": "segments deleted"}

OF_FILES: Final = ("write", "sync", "create", "allocate", "truncate")
"""Operations that fail now and then, which ends the server."""

OF_NAMES: Final = ("rename", "sync directory", "remove")
"""Seldom one of these does, which ends the server, or compaction."""


class Store:
    """The life of a log: one server after the other.

    :ivar counts: what has happened, by name.
    """

    def __init__(
        self, explorer: Explorer, policy: FsyncPolicy, seed: int, parts: Parts = SOUND,
        failing: str = "", body_cache: int | None = None, verify: Verify = Verify.FULL,
    ) -> None:  # fmt: skip
        """:param failing: an operation that fails once in each life; without it, chance says which
        does, and whether.
        """
        self.promises = Promises(policy)
        self.counts: Counter[str] = Counter()
        self._explorer = explorer
        self._draw = random.Random(seed)
        self._server = Server(self.promises, parts, self._draw, body_cache, verify)
        self._clients: Clients | None = None
        self._failing = failing
        self._fault = 0
        self._fallible: tuple[str, ...] = OF_FILES
        self._chances = 0
        self._was_power_lost = True

    @property
    def directory(self) -> MemoryDirectory:
        """The disk."""
        return self._server.directory

    @property
    def now_ns(self) -> int:
        """The wall clock."""
        return round(self._server.now_s() * NS) + STARTED_S * NS

    def live(self) -> None:
        """A server starts, serves and ends."""
        turns = self._draw.choice(TURNS)
        self._start()
        self._plan_faults(turns)
        ending = self._draw.choice(ENDINGS)
        for _ in range(turns):
            if self._server.failures or self._explorer.is_done:
                break
            self._turn()
        if not self._server.failures and ending == "stop":
            self._stop()
        self._end("ended by the disk" if self._server.failures else ending)

    # Starting and ending.

    def _start(self) -> None:
        found_lsn = self._explorer.found_lsn(self.directory, self.now_ns)
        self.promises.starts(found_lsn, self.now_ns, self._was_power_lost)
        self._fault = 0
        self.directory.fault = self._before
        self._server.start()
        self._clients = Clients(self._server, self._draw)
        self.counts["starts"] += 1

    def _stop(self) -> None:
        last_lsn = self.promises.history.last_lsn
        stopped = self._server.stop()
        stopped.addCallback(lambda ignored: self.promises.stopped(last_lsn))
        while not stopped.called and not self._server.failures:
            self._server.advance(0.001)
            self._step()

    def _end(self, ending: str) -> None:
        self.counts[ending] += 1
        self._hear()
        self.promises.will("end")
        self._explorer.crash(self.directory, self.promises, self.now_ns)
        self.counts["done at once"] += self._server.thread.heres
        self.counts["bodies read"] += self._server.service.queue.state.bodies.read
        self.counts["bodies lost"] += self._server.service.queue.state.bodies.lost
        self.counts["copies"] += self._server.service.queue.tally.copies
        disk = self.directory
        self._server.kill()
        self._was_power_lost = ending == "power loss"
        if self._was_power_lost:
            disk.fault = lambda operation, name: None
            left = self._draw.choice(list(after_power_loss(disk, self._draw)))
            self._server.directory = left.make()

    # Serving.

    def _turn(self) -> None:
        draw = self._draw
        assert self._clients is not None
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            self._clients.act()
        self._advance(draw.choice((0.001, 0.01, 0.06, 0.2, 1.0)))
        for _ in range(draw.choice((0, 1, 2, 4, 8))):
            self._step()
        if draw.random() < 0.3:
            self._calm_down()
        self.promises.check_queue(self.now_ns)

    def _calm_down(self) -> None:
        """Nothing comes for a while; what goes on by itself does."""
        for _ in range(30):
            self._advance(0.006)
            while not self._server.is_idle and not self._server.failures:
                self._step()

    def _step(self) -> None:
        """The I/O thread does something, or the reactor hears of it."""
        thread, reads = self._server.thread, self._server.reads
        if (reads.has_work or reads.has_news) and self._draw.random() < 0.5:
            thread = reads
        if thread.has_news and (not thread.has_work or self._draw.random() < 0.7):
            thread.tell()
            self._hear()
        elif thread.has_work:
            self._hear()
            thread.work()

    def _advance(self, seconds: float) -> None:
        if self._server.failures:
            return
        self._server.advance(seconds)
        self._hear()
        if self._server.is_idle and not self._server.failures:
            self.promises.will("rest")
            self.promises.idle(self._server.now_s())

    def _hear(self) -> None:
        """Clients read what has come, unless the process has ended."""
        assert self._clients is not None
        if not self._server.failures:
            self._clients.hear()

    # The disk.

    def _before(self, operation: str, name: str) -> None:
        """An operation is about to happen: look, count, and let it fail if it is to."""
        self.promises.will(operation, name)
        self._explorer.crash(self.directory, self.promises, self.now_ns)
        if name.endswith(".tql") and operation in COUNTED:
            self.counts[COUNTED[operation]] += 1
        if operation in self._fallible and self._strikes():
            self.promises.fails(operation)
            is_one = operation in OF_FILES
            self.counts["failed writes and syncs" if is_one else "failed names"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    def _strikes(self) -> bool:
        self._chances += 1
        return self._chances == self._fault

    def _plan_faults(self, turns: int) -> None:
        """In half of all lives the disk fails once."""
        self._chances = self._fault = 0
        if self._failing:
            self._fallible = (self._failing,)
            self._fault = self._draw.randrange(turns // 2) + 1
        elif self._draw.random() < 0.5:
            self._fallible = OF_FILES if self._draw.random() < 0.8 else OF_NAMES
            chances = 2 * turns if self._fallible is OF_FILES else 2 + turns // 8
            self._fault = self._draw.randrange(chances) + 1
