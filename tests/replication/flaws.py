"""Servers with one flaw each, which the schedules must find.

Each takes the place of a shipped part (`servers.Parts`); all else is as it is.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.daemon.replicated import ReplicatedService
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.interface import Message
from beanstalk_twisted.replication.stream.messages import FillMark
from beanstalk_twisted.server.service import BeanstalkService
from tests.replication.servers import Door


class NoFencing(Door):
    """A stream that takes what comes: only leases say who is active."""

    def _accept(self, payload: bytes, expected: int, expires: bool) -> int:
        super()._accept(payload, self.log.last, expires)
        return expected + 1


class RetriesAnywhere(Door):
    """What was not answered is appended again behind whatever is last by then."""

    _tries: dict[bytes, int]

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> Future[int]:
        tries = self.__dict__.setdefault("_tries", {})
        tries[payload] = tries.get(payload, 0) + 1
        if tries[payload] == 1:
            return super().append(payload, expected, expires=expires)

        def decide() -> int:
            super(RetriesAnywhere, self)._accept(payload, self.log.last, expires)
            return expected + 1

        return self._ask("append", decide)


class RetriesBlindly(Publisher):
    """Does not look what has become of those without an answer, but appends them again."""

    async def _reconcile(self) -> None:
        """Nothing is found, so all are sent again."""


class RepliesBeforeQuorum(Publisher):
    """What is sent counts as stored."""

    def publish(self, batch: Batch) -> None:
        super().publish(batch)
        self.acknowledged_lsn = batch.last_lsn


class PurgesTooEarly(Publisher):
    """Purges a segment more than is dead."""

    def trimmed(self, seq: int) -> None:
        super().trimmed(seq + 1)


class IgnoresGaps(Standby):
    """Goes on behind messages that are missing, as if all of them had been heartbeats."""

    def _take(self, message: Message) -> None:
        self._reader.position = message.position - 1
        super()._take(message)


class CountsFromAnswer(Publisher):
    """A lease that begins when it is heard that it was given."""

    def _accept(
        self, pending: Any, number: int, wanted: int, sent_ns: int, sending: Future[int]
    ) -> None:  # fmt: skip
        super()._accept(pending, number, wanted, self._now_ns(), sending)


class TakesOverWhileFilling(Standby):
    """Does not look whether a log is being filled in."""

    def _look(self) -> None:
        self._reader.mark = FillMark()
        super()._look()


class ReservesAtOnce(BeanstalkService):
    """RESERVED does not wait for the stream."""

    def startService(self) -> None:
        super().startService()
        assert self._opened is not None
        self._opened.log.commits_reserves = False


def with_standby(flawed: type[Standby]) -> type[ReplicatedService]:
    made: type[ReplicatedService] = type(flawed.__name__, (ReplicatedService,), {"standby": flawed})
    return made


def with_publisher(flawed: type[Publisher]) -> type[ReplicatedService]:
    made: type[Standby] = type(flawed.__name__, (Standby,), {"publisher": flawed})
    return with_standby(made)
