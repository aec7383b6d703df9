"""Walks along the way from a command to its reply, and raises an exception at one moment after the
other; after each the process is killed or its power lost, and the next one started.

`python -m tests.crash.exceptions POLICY EVERY` walks in a process of its own: each exception leaves
Deferreds whose errors nobody takes, and which are told of when they are collected.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import STARTED_S
from tests.crash.clients import Expected, Talker, expect
from tests.crash.disks import after_kill, only_synced
from tests.crash.explorer import Explorer, without_garbage_collection
from tests.crash.history import Broken
from tests.crash.promises import Promises, Recorder
from tests.crash.simulation import SOUND, Server, SteppedIo
from tests.interruption import Interruption, files_of

WAY: Final = files_of(
    "binlog.log", "binlog.segments.framing", "binlog.segments.frames", "binlog.batches",
    "binlog.records", "binlog.space_budget", "binlog.writer", "jobs", "rules",
    "storage.group_commit", "storage.fsync", "storage.store", "storage.compactor",
    "server.service", "server.executor", "server.incoming",
    "server.reply_queue", "server.connections.output", "server.connections.protocol",
    "server.connections.served", "server.connections.turns",
)  # fmt: skip

ERRORS: Final = {"memory": MemoryError, "disk": OSError, "signal": KeyboardInterrupt}
POLICIES: Final = {"always": ALWAYS, "never": NEVER}

REFUSALS: Final = {b"OUT_OF_MEMORY", b"INTERNAL_ERROR"}

LARGE: Final = b"b" * 1500
"""Three of them fill a segment."""


class Thread(SteppedIo):
    """A thread that tells of all that work can raise."""

    @staticmethod
    def _outcome(work: Any) -> Any:
        try:
            return work()
        except (Exception, KeyboardInterrupt):
            return Failure()


class ExposedServer(Server):
    """A server whose reactor goes on whatever a call has raised, as Twisted's does.

    :ivar raised: what has come through to it.
    """

    def __init__(self, promises: Promises) -> None:
        self.raised: list[BaseException] = []
        super().__init__(promises, SOUND, random.Random(0))

    def _make_io(self) -> SteppedIo:
        self.thread = Thread()
        return self.thread

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return bool(self.failures)

    def advance(self, seconds: float = 0.0) -> None:
        if self.is_over:
            return
        try:
            super().advance(seconds)
        except (MemoryError, OSError, KeyboardInterrupt) as error:
            self.raised.append(error)

    def settle(self) -> None:
        """Let the disk do all that it was asked for, and the reactor hear of it."""
        self.advance()
        for _ in range(200):
            if self.is_over or self.is_idle:
                return
            if self.thread.has_news:
                self.thread.tell()
            else:
                self.thread.work()
            self.advance()
        raise AssertionError("the disk never comes to rest")


class ExposedTalker(Talker):
    """A client whose connection Twisted ends when its protocol raises."""

    _server: ExposedServer

    def __init__(self, server: ExposedServer) -> None:
        super().__init__(server)
        transport: Any = self._client.transport
        self._read = transport.read
        transport.read = self._be_read

    def _be_read(self) -> None:
        try:
            self._read()
        except (MemoryError, OSError, KeyboardInterrupt) as error:
            self._server.raised.append(error)
            self.leave()

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._client.is_closed)

    @property
    def is_answered(self) -> bool:
        """Whether there is a reply to all that was sent, or nobody to hear it."""
        return self.is_gone or not self._expected

    def say(self, command: bytes, job_id: int = 0) -> None:
        if not self.is_gone and not self._server.is_over:
            before = self._promises.committed_lsn
            self.send(command)
            is_late = self.session.awaited_id > 0
            self._expected.append(expect(self._promises, command, job_id, before, is_late))

    def send(self, data: bytes) -> None:
        if not self._server.is_over:
            self._client.send(data)

    def leave(self) -> None:
        if self._server.is_over:
            return
        try:
            self._client.transport.end(ConnectionLost())
        except (MemoryError, OSError, KeyboardInterrupt) as error:
            self._server.raised.append(error)

    def hear(self) -> None:
        if not self._server.is_over and not self.is_gone:
            super().hear()

    def _heard(self, expected: Expected, words: list[bytes], body: bytes | None) -> None:
        if words[0] not in REFUSALS:
            super()._heard(expected, words, body)


def conversation(server: ExposedServer, talkers: list[ExposedTalker]) -> Iterator[None]:
    """A little of everything, in steps.  Most jobs are large, so that segments end; the first is
    not, and stays, so that compaction has something to copy.
    """
    one, two, three = talkers
    for word, talker in zip((b"a", b"b", b"a"), talkers, strict=True):
        talker.say(b"watch %b\r\n" % word)
    three.say(b"put 9 0 60 4\r\nkeep\r\n")
    yield
    for _ in range(2):
        one.say(b"put 0 0 60 1500\r\n" + LARGE + b"\r\n")
        two.say(b"put 5 0 1 1500\r\n" + LARGE + b"\r\n")
        yield
    one.say(b"reserve-with-timeout 0\r\n")
    one.say(b"bury 2 3\r\n", 2)
    two.say(b"reserve-job 3\r\n", 3)
    two.say(b"put 7 2 60 2\r\nxy\r\n")
    yield
    one.say(b"use a\r\n")
    three.say(b"watch late\r\n")
    three.say(b"ignore default\r\n")
    three.say(b"reserve-with-timeout 9\r\n")
    one.send(b"put 1 0 60 1500\r\n" + LARGE[:700])
    yield
    one.say(LARGE[700:] + b"\r\n")
    yield
    one.say(b"use default\r\n")
    one.say(b"kick 9\r\n")
    two.say(b"peek 1\r\n", 1)
    two.say(b"stats-job 1\r\n", 1)
    two.say(b"list-tubes\r\n")
    two.say(b"touch 3\r\n", 3)
    yield
    server.advance(2.5)  # A TTR ends, and a delay.
    yield
    two.say(b"reserve-job 3\r\n", 3)
    two.say(b"release 3 3 0\r\n", 3)
    three.say(b"delete 7\r\n", 7)
    three.say(b"wait-job 5 9\r\n", 5)
    one.say(b"pause-tube default 4\r\n")
    yield
    for job_id in (2, 3, 4, 5):
        one.say(b"delete %d\r\n" % job_id, job_id)
        one.say(b"put 0 0 60 1500\r\n" + LARGE + b"\r\n")
        yield
    one.say(b"reserve-job 8\r\n", 8)
    two.leave()
    three.say(b"reserve-with-timeout 9\r\n")
    yield
    three.say(b"cancel-reserve\r\n")
    three.say(b"wait-job 1 9\r\n", 1)
    yield
    for job_id in range(8, 11):
        one.say(b"delete %d\r\n" % job_id, job_id)
    yield
    one.say(b"reserve-job 11\r\n", 11)
    one.leave()
    yield
    three.say(b"put-at 0 0 60 1500\r\n" + LARGE + b"\r\n")
    three.send(b"put-batch 2\r\n0 0 60 1500\r\n" + LARGE[:700])
    yield
    three.say(LARGE[700:] + b"\r\n0 0 60 1500\r\n" + LARGE + b"\r\n")
    yield
    server.advance(30)  # A pause ends, all waits end, and what goes on by itself comes to rest.
    yield


class Outcome:
    """What a conversation has come to.

    :ivar promises: what its clients were told.
    :ivar moments: how many there were; ``where`` the exception was raised.
    """

    def __init__(self, policy: FsyncPolicy, at: int, error: BaseException) -> None:
        self.promises = Promises(policy)
        self.server = server = ExposedServer(self.promises)
        self.promises.starts(0, self.now_ns, was_power_lost=False)
        server.start()
        server.settle()
        talkers = [ExposedTalker(server) for _ in range(3)]
        exempt = (FailStop.__call__, FailStop.caught, ExposedTalker._heard, Recorder._note)
        with Interruption(WAY, at, error, exempt) as interruption:
            for _ in conversation(server, talkers):
                server.settle()
                if server.is_over:
                    break
                for talker in talkers:
                    talker.hear()
        self.moments, self.where = interruption.moments, interruption.where
        self.are_answered = all(talker.is_answered for talker in talkers)

    @property
    def now_ns(self) -> int:
        """The wall clock."""
        return round(self.server.now_s() * NS) + STARTED_S * NS

    @property
    def way(self) -> str:
        """What the exception has cost."""
        if self.server.is_over:
            return "the server"
        return "a connection" if self.server.raised else "nothing, or a reply"

    def check(self) -> None:
        """A server starts after a kill, and after a loss of power, and has what was promised."""
        if not self.server.is_over:
            assert self.are_answered, f"{self.where}: somebody waits for ever"
            self.promises.check_queue(self.now_ns)
        directory: Any = self.server.directory
        explorer = Explorer(0, 1 << 30)
        for left in (after_kill(directory), only_synced(directory)):
            least = self.promises.least(left.is_power_lost)
            explorer.examine(left, self.promises, self.now_ns, least)


def walk(policy: str, every: int) -> Counter[str]:
    """Raise each kind of exception at one of so many moments, another one for each kind.

    :return: what the exceptions have cost, counted.
    :raise AssertionError: a promise is broken; `Broken` likewise.
    """
    costs: Counter[str] = Counter()
    with without_garbage_collection():
        # Only the second conversation is as the next ones: by then its lines are remembered.
        moments = [Outcome(POLICIES[policy], 0, MemoryError()).moments for _ in range(2)][-1]
        for number, kind in enumerate(ERRORS):
            first = 1 + every * number // len(ERRORS)
            for at in range(first, moments + 1, every):
                outcome = Outcome(POLICIES[policy], at, ERRORS[kind]())
                assert outcome.where, at
                try:
                    outcome.check()
                except (AssertionError, Broken) as broken:
                    broken.add_note(f"{kind} at moment {at} of {moments}, {outcome.where}")
                    raise
                costs[outcome.way] += 1
    return costs


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1], int(sys.argv[2]))))
