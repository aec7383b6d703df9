"""An active server's log without the server: a log on a disk in memory, its committer, and a
stream.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Opening, Position
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Start, TubeDef
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.replication.membership import Identity
from beanstalk_twisted.replication.publisher import Publisher, PublisherEvents, Times
from beanstalk_twisted.replication.stream.interface import HeldLease, StreamError
from beanstalk_twisted.replication.stream.messages import (
    Assembler,
    Note,
    Part,
    Write,
    decode,
    encode_write,
    write_of,
)
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.environment import CommitEvents, Environment
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.fsync import ALWAYS, FsyncPolicy
from beanstalk_twisted.storage.group_commit import GroupCommit
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.replication.stream.memory import Fate, MemoryLog, MemoryStream
from tests.replication.world import Process

LEASE_S = 10.0
WHO = Identity("alpha:11300", "0a1b")


class ActiveLog:
    """A committer, and a publisher as its replica; all that it began with is in the stream.

    :ivar acknowledged: what the committer said might be told, each time.
    :ivar fenced: what the publisher said when it could append no more.
    :ivar refusals: each time it said whether changes are refused.
    """

    def __init__(
        self, policy: FsyncPolicy = ALWAYS, segment_bytes: int = 1 << 16,
        fate: Callable[[str], Fate] = lambda kind: Fate(), door: type[MemoryStream] = MemoryStream,
        lease: HeldLease | None = None,
    ) -> None:  # fmt: skip
        self.reactor = Process()
        self.messages = MemoryLog()
        self.stream = door(self.messages, self.reactor, fate)
        self.directory = MemoryDirectory()
        self.io = HeldIo()
        self.lease = HeldLease(LEASE_S) if lease is None else lease
        self.acknowledged: list[int] = []
        self.failures: list[Failure] = []
        self.fenced: list[StreamError] = []
        self.refusals: list[bool] = []
        self.jobs = 0
        self.demand = Demand()
        self.room_changed: Callable[[], None] = lambda: None
        position = Position(1, 1, 0, 1, b"u" * 16, 1, 1, 0)
        self.log = Log(position, segment_bytes, self._opening, lambda: 7, "test")
        writer = Writer(self.directory)
        clock = LogClock(lambda: 0, self.reactor.now_ns)
        self._begin(writer)
        self.failed = FailStop(self.failures.append)
        self.publisher = Publisher(
            self.stream, self.reactor, self.reactor.now_ns, self.lease, self.messages.last, WHO
        )
        self.publisher.acknowledged_lsn = self.log.last_lsn
        self.publisher.segments.first_positions[1] = 1
        events = PublisherEvents(self.fenced.append, self.refusals.append)
        self.publisher.lead(Times(clock.now_ns), self.failed, events)
        environment = Environment(
            self.directory, self.io, self.io, self.reactor, clock, self.failed
        )
        self.log.commits_reserves = True
        self.committer = GroupCommit(
            self.log, writer, environment, policy,
            CommitEvents(
                self._note, demand=lambda: self.demand,
                space_changed=lambda refusal: self.room_changed(),
            ),
            replica=self.publisher,
        )  # fmt: skip

    def _opening(self, segment: int, now_ns: int) -> Opening:
        return Opening(self.jobs + 1, [TubeDef(1, b"default", now_ns)])

    def _begin(self, writer: Writer) -> None:
        self.log.append(Start(0, 1, 2, 0))
        batch = self.log.take(0)
        assert batch is not None
        writer.write(batch, sync=True)
        for payload in encode_write(write_of(batch, 0)):
            self.messages.append(payload, self.messages.last)
        self.log.durable(batch.last_lsn)
        while (spare := self.log.budget.wanted(Demand())) is not None:
            writer.prepare(spare)
            self.log.budget.add(spare)

    def _note(self) -> None:
        self.acknowledged.append(self.committer.acknowledgeable_lsn)

    def put(self, body: bytes = b"body") -> int:
        """Append a record that replies wait for."""
        self.jobs += 1
        return self._append(Kind.PUT, State.READY, self.jobs, body)

    def put_all(self, body: bytes = b"body") -> int:
        """The same, and write it."""
        lsn = self.put(body)
        self.write_all()
        return lsn

    def reserve(self) -> int:
        """Append a record that replies wait for only with a replica."""
        return self._append(Kind.RESERVE, State.RESERVED, 1)

    def touch(self) -> int:
        """Append a record that no reply waits for."""
        return self._append(Kind.TOUCH, State.RESERVED, 1)

    def _append(self, kind: Kind, state: State, job_id: int, body: bytes = b"") -> int:
        image = JobImage(kind, state, Reason.CLIENT, 0, job_id, 0, 0, 0, 60, 1, body=body)
        lsn = self.log.append(image)
        self.committer.schedule()
        return lsn

    def write_all(self) -> None:
        """Let the disk do all that it was and will be asked for now."""
        self.reactor.settle()
        while self.io:
            self.io.step()
            self.reactor.settle()

    def said(self) -> list[Write | Note]:
        assembler, said = Assembler(), list[Write | Note]()
        for payload in self.messages.messages.values():
            found = decode(payload)
            if isinstance(found, Part):
                write = assembler.add(found)
                said += [] if write is None else [write]
            else:
                assert isinstance(found, Note)
                said.append(found)
        return said

    def writes(self) -> list[Write]:
        return [each for each in self.said() if isinstance(each, Write)]

    def files_of_a_standby(self) -> dict[int, bytes]:
        """Give the segments that one has who has followed from the beginning."""
        files: dict[int, bytes] = {}
        for write in self.writes():
            assert len(files.get(write.segment, b"")) == write.offset
            files[write.segment] = files.get(write.segment, b"") + write.content
        return files
