"""
Standbys on one stream: they follow, and one of them becomes active.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.replication.roster import Identity, note_text
from beanstalk_twisted.replication.standby import Standby, Succession
from beanstalk_twisted.replication.stream.memory import MemoryLog, MemoryStream
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    encode_note,
    encode_write,
    write_of,
)
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import InlineIo
from beanstalk_twisted.wire.replies import DELETED
from tests.binlog.scribe import T0, segment_files
from tests.replication.followed import new_queue
from tests.replication.simulated import SimulatedReactor

LEASE_S = 2.0


class Host:
    """
    A server of a replicated queue: a standby, then perhaps the active one.

    :ivar outcome: of its `Standby.run`, None while it stands by.
    """

    def __init__(
        self, cluster: MemoryLog, reactor: SimulatedReactor, name: str,
        directory: MemoryDirectory | None = None,
    ) -> None:  # fmt: skip
        self.reactor = reactor
        self.name = name
        self.directory = MemoryDirectory() if directory is None else directory
        self.stream = MemoryStream(cluster, reactor)
        self.queue = new_queue()
        self.clock = LogClock(self.log_ns, reactor.now_ns)
        self.outcome: Any = None
        self.standby = Standby(
            self.stream, self.directory, self.queue, self.clock, reactor, InlineIo(), LEASE_S, 8192,
            reactor.now_ns, Identity(name, f"id-{name}"),
        )  # fmt: skip
        self.standby.run().addBoth(self._ended)

    def log_ns(self) -> int:
        """
        The wall clock.
        """
        return T0 + self.reactor.now_ns()

    def _ended(self, outcome: Any) -> None:
        self.outcome = outcome

    @property
    def is_active(self) -> bool:
        """
        Whether it has succeeded.
        """
        return isinstance(self.outcome, Succession)

    def put(self, body: bytes = b"hello", delay_s: int = 0) -> int:
        """
        Put a job and publish it.
        """
        session = self.queue.connect()
        now_ns = self.clock.now_ns()
        draft = self.queue.puts.begin(session, now_ns)
        self.queue.puts.put(session, now_ns, draft, 1024, delay_s, 60, body)
        self.commit()
        return draft[0]

    def delete(self, job_id: int) -> None:
        """
        Delete a job and publish that.
        """
        session = self.queue.connect()
        reply, _ = self.queue.delete(session, self.clock.now_ns(), job_id)
        assert reply == DELETED
        self.commit()

    def commit(self) -> None:
        """
        Publish and write all that is open.
        """
        opened, appender = self.outcome.opened, self.outcome.appender
        while (batch := opened.log.take(self.clock.now_ns())) is not None:
            for payload in encode_write(write_of(batch, self.clock.now_ns())):
                appender.append(payload).addErrback(lambda _: None)
            opened.writer.write(batch, True)
            opened.log.durable(batch.last_lsn)

    def beat(self) -> None:
        """
        Send a heartbeat.
        """
        self.note(Kind.HEARTBEAT)

    def note(self, kind: Kind, to: str = "") -> None:
        """
        Send a note.
        """
        text = note_text(Identity(self.name, f"id-{self.name}"), to)
        lsn, now_ns = self.outcome.opened.log.last_lsn, self.clock.now_ns()
        self.outcome.appender.append(encode_note(kind, lsn, now_ns, text)).addErrback(
            lambda _: None
        )

    def bodies(self) -> list[bytes]:
        """
        The bodies of all jobs.
        """
        jobs = self.queue.state.jobs
        return [job.body for each in jobs if (job := jobs.look(each)) is not None]


class Cluster:
    """
    A stream and its servers.
    """

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.reactor = SimulatedReactor()
        self.hosts: list[Host] = []

    def start(self, name: str, directory: MemoryDirectory | None = None) -> Host:
        """
        Start a server.
        """
        host = Host(self.log, self.reactor, name, directory)
        self.hosts.append(host)
        return host

    def go(self, seconds: float, beats: Host | None = None) -> None:
        """
        Pass time.
        """
        for _ in range(max(1, round(seconds / 0.1))):
            if beats is not None:
                beats.beat()
            self.reactor.pass_s(0.1)

    def active(self, name: str = "a") -> Host:
        """
        A server that has become active.
        """
        host = self.start(name)
        self.go(LEASE_S + 1)
        assert host.is_active, host.outcome
        return host


def test_the_first_server_becomes_active_after_a_lease() -> None:
    cluster = Cluster()
    host = cluster.start("a")
    cluster.go(LEASE_S - 0.5)
    assert host.outcome is None
    cluster.go(1)
    assert host.is_active
    assert host.put() == 1


def test_a_standby_has_the_jobs_and_the_files_of_the_active_server() -> None:
    cluster = Cluster()
    active = cluster.active()
    standby = cluster.start("b")
    for n in range(300):
        active.put(b"job %d" % n)
    active.delete(7)
    cluster.go(0.5, active)
    assert sorted(standby.bodies()) == sorted(active.bodies())
    assert standby.outcome is None
    there, here = segment_files(active.directory), segment_files(standby.directory)
    assert {name: content.rstrip(b"\0") for name, content in here.items()} == {
        name: content.rstrip(b"\0") for name, content in there.items()
    }
    assert standby.standby.figures().active == "a"


def test_a_standby_becomes_active_when_the_other_is_silent_for_a_lease() -> None:
    cluster = Cluster()
    active = cluster.active()
    standby = cluster.start("b")
    job_id = active.put(b"kept")
    cluster.go(LEASE_S, active)
    cluster.go(LEASE_S - 0.3)
    assert standby.outcome is None
    cluster.go(0.5)
    assert standby.is_active
    assert standby.bodies() == [b"kept"]
    assert standby.put() == job_id + 1
    active.put(b"too late")
    cluster.go(1)
    assert cluster.log.messages[cluster.log.last] != b"too late"


def test_of_two_standbys_one_becomes_active_and_the_other_follows_it() -> None:
    cluster = Cluster()
    active = cluster.active()
    others = [cluster.start("b"), cluster.start("c")]
    active.put(b"one")
    cluster.go(0.5)
    cluster.go(LEASE_S + 0.5)
    [new] = [each for each in others if each.is_active]
    [other] = [each for each in others if not each.is_active]
    new.put(b"two")
    cluster.go(0.5)
    assert other.bodies() == [b"one", b"two"]
    cluster.go(LEASE_S + 0.5)
    assert other.is_active
    assert other.put(b"three") == 3


def test_a_standby_begins_at_once_when_it_is_handed_over_to() -> None:
    cluster = Cluster()
    active = cluster.active()
    standby = cluster.start("b")
    cluster.go(0.5, active)
    active.note(Kind.HANDED_OVER, "c")
    cluster.go(0.3)
    assert standby.outcome is None
    active.note(Kind.HANDED_OVER)
    cluster.go(0.3)
    assert standby.is_active


def test_nobody_takes_over_while_the_stream_is_filled() -> None:
    cluster = Cluster()
    active = cluster.active()
    standby = cluster.start("b")
    active.note(Kind.FILL_BEGINS)
    cluster.go(2 * LEASE_S)
    assert standby.outcome is None
    active.note(Kind.FILL_ENDS)
    cluster.go(2 * LEASE_S)
    assert standby.is_active


def test_a_stopped_standby_says_so() -> None:
    cluster = Cluster()
    active = cluster.active()
    standby = cluster.start("b")
    cluster.go(0.5, active)
    standby.standby.stop()
    assert isinstance(standby.outcome, Failure)
    assert standby.outcome.check(CancelledError)
    cluster.go(LEASE_S + 1)
