"""A disk that takes very long is told of, and one that hangs ends the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import pytest
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.storage.fsync import NEVER, FsyncPolicy
from beanstalk_twisted.storage.io_thread import InlineIo
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.storage.watchdog import DEFAULT_LIMIT_S, SLOW_S, WatchedIo
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.server_process import Connection

T = TypeVar("T")


class Bench:
    """A watched disk that does nothing before it is told to.

    :ivar failures: that it was given up, each time.
    """

    def __init__(self, limit_s: int = DEFAULT_LIMIT_S, *, syncs_first: bool = True) -> None:
        self.clock = Clock()
        self.disk = HeldIo()
        self.failures: list[Failure] = []
        self.io = WatchedIo(
            self.disk, self.clock, "/var/lib/bs", limit_s, self.failures.append, syncs_first
        )

    def wait(self, seconds: int) -> None:
        self.clock.pump([1.0] * seconds)


@pytest.fixture
def said() -> Iterator[list[str]]:
    lines: list[str] = []
    observer = cast(ILogObserver, lambda event: lines.append(formatEvent(event)))
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


def test_work_that_ends_in_time_is_not_spoken_of_and_leaves_no_timer(said: list[str]) -> None:
    bench = Bench()
    for number in range(100):
        done: list[int] = []
        bench.io.run(lambda number=number: number).addCallback(done.append)  # type: ignore[misc]
        bench.wait(SLOW_S - 1)
        bench.disk.step()
        assert done == [number]
        assert len(bench.clock.getDelayedCalls()) <= 1
    bench.wait(1)
    assert (said, bench.failures, bench.clock.getDelayedCalls()) == ([], [], [])


def test_work_that_is_done_at_once_costs_no_timer() -> None:
    clock = Clock()
    io = WatchedIo(InlineIo(), clock, "/var/lib/bs", 1, lambda failure: None)
    assert io.run(lambda: 3).result == 3
    assert clock.getDelayedCalls() == []


def test_work_that_takes_long_is_spoken_of_once_and_again_when_it_ends(said: list[str]) -> None:
    bench = Bench()
    bench.io.run(lambda: None)
    bench.wait(SLOW_S - 1)
    assert said == []
    bench.wait(20)
    slow = (
        "the disk is slow: a write or sync in /var/lib/bs has taken 5 s so far; replies wait for it"
    )
    assert said == [slow]
    bench.disk.step()
    assert said == [slow, "the disk goes on, after 24 s: /var/lib/bs"]
    assert bench.failures == []


def test_work_that_takes_long_again_and_again_is_spoken_of_once_a_minute(said: list[str]) -> None:
    bench = Bench()
    for _ in range(4):
        bench.io.run(lambda: None)
        bench.wait(SLOW_S + 1)
        bench.disk.step()
    assert [each[:17] for each in said] == ["the disk is slow:", "the disk goes on,"]
    bench.wait(int(TELL_S))
    (third,) = said[2:]
    assert third.endswith("; the newest of 3 since the last such line")
    bench.wait(int(TELL_S))
    assert len(said) == 3 and bench.clock.getDelayedCalls() == []


@pytest.mark.parametrize("limit_s", [1, SLOW_S, DEFAULT_LIMIT_S])
def test_work_that_hangs_is_given_up_at_the_limit_once(limit_s: int) -> None:
    bench = Bench(limit_s)
    bench.io.run(lambda: None)
    bench.wait(limit_s - 1)
    assert bench.failures == []
    bench.wait(1)
    (failure,) = bench.failures
    assert isinstance(failure.value, WriteFailed) and failure.value.exit_code == 74
    assert f"has not ended for {limit_s} s" in str(failure.value)
    assert "no reply was given for what is not on disk" in str(failure.value)
    assert "binlog-inspect check /var/lib/bs" in str(failure.value)
    bench.io.run(lambda: None)
    bench.wait(2 * limit_s)
    assert (len(bench.failures), bench.clock.getDelayedCalls()) == (1, [])


def test_without_a_sync_before_each_reply_it_is_said_what_a_power_loss_may_take(
    said: list[str],
) -> None:
    bench = Bench(10, syncs_first=False)
    bench.io.run(lambda: None)
    bench.wait(10)
    assert said == [
        "the disk is slow: a write or sync in /var/lib/bs has taken 5 s so far; replies to further "
        "changes wait for it, and a power loss may take back those given last"
    ]
    (failure,) = bench.failures
    assert (
        "has not ended for 10 s; what was answered outlives this process, but a reset or a power "
        "loss before the disk has it may take back the newest of it. Mend the disk"
    ) in str(failure.value)


@pytest.mark.parametrize("fsync", [NEVER, FsyncPolicy(0.02)])
def test_a_hung_sync_holds_up_further_changes_and_what_was_answered_is_not_promised(
    fsync: FsyncPolicy, said: list[str]
) -> None:
    disk = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: disk, fsync=fsync)
    client = server.connect()
    server.advance()
    while disk:
        disk.step()
        server.advance()
    client.send(b"put 0 0 60 1\r\nx\r\n")
    server.advance()
    disk.step()
    assert client.take() == b"INSERTED 1\r\n"
    if fsync is not NEVER:
        server.advance(0.02)
    client.send(b"put 0 0 60 1\r\nx\r\n")
    server.advance(DEFAULT_LIMIT_S + 2)
    assert client.take() == b""
    assert ["further changes wait" in line for line in said if "slow" in line] == [True]
    (failure,) = server.failures
    assert "no reply was given" not in str(failure.value)


def test_without_a_limit_it_waits_for_ever(said: list[str]) -> None:
    bench = Bench(limit_s=0)
    bench.io.run(lambda: None)
    bench.wait(1000)
    assert (len(said), bench.failures) == (1, [])


def test_what_waits_behind_work_that_hangs_does_not_hide_it() -> None:
    bench = Bench(limit_s=10)
    bench.io.run(lambda: None)
    for _ in range(10):
        assert bench.failures == []
        bench.io.run(lambda: None)
        bench.wait(1)
    assert len(bench.failures) == 1


class StuckIo(InlineIo):
    """Keeps the reactor's thread with work that is done here, while the other thread looks.

    :ivar looks: how often, at each piece.
    """

    def __init__(self) -> None:
        self.looks = 0
        self._look: Callable[[], None] = lambda: None

    def watch(self, look: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        self._look = look

    def call(self, work: Callable[[], T]) -> T:
        for _ in range(self.looks):
            self._look()
        return work()


@pytest.mark.parametrize(("looks", "times"), [(3, 0), (4, 1), (9, 1)])
def test_work_that_keeps_the_reactor_is_given_up_too(looks: int, times: int) -> None:
    stuck, clock = StuckIo(), Clock()
    failures: list[Failure] = []
    io = WatchedIo(stuck, clock, "/var/lib/bs", 3, failures.append)
    io.call(lambda: None)
    stuck.looks = looks
    io.call(lambda: None)
    assert len(failures) == times
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("syncs_first", "meanwhile"),
    [
        (True, "all clients wait for it, and so do signals other than SIGKILL"),
        (
            False,
            "all clients wait for it, and so do signals other than SIGKILL, and a power loss may "
            "take back the replies given last",
        ),
    ],
)
def test_of_work_that_keeps_the_reactor_it_is_said_that_all_wait(
    syncs_first: bool, meanwhile: str, said: list[str]
) -> None:
    stuck = StuckIo()
    io = WatchedIo(stuck, Clock(), "/var/lib/bs", 60, lambda failure: None, syncs_first)
    stuck.looks = SLOW_S
    io.call(lambda: None)
    assert said == [
        f"the disk is slow: a write or sync in /var/lib/bs has taken 5 s so far; {meanwhile}",
        "the disk goes on, after 5 s: /var/lib/bs",
    ]


def test_work_that_fails_has_ended_and_its_failure_is_passed_on() -> None:
    bench = Bench(limit_s=1)
    failures: list[Failure] = []

    def fail() -> None:
        raise OSError("no")

    bench.io.run(fail).addErrback(failures.append)
    bench.disk.step()
    bench.wait(5)
    assert [failure.type for failure in failures] == [OSError]
    assert bench.failures == []


def test_a_process_that_was_stopped_itself_does_not_blame_the_disk() -> None:
    bench = Bench(limit_s=60)
    bench.io.run(lambda: None)
    bench.clock.advance(3600)
    assert bench.failures == []
    bench.disk.step()
    bench.wait(100)
    assert bench.failures == []


CLOSES = """
import socket, sys
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.storage.watchdog import close_sockets
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
close_sockets()
print("closed", flush=True)
sys.stdin.read()
"""


def test_a_process_can_part_from_its_clients_before_it_ends() -> None:
    command = [sys.executable, "-c", CLOSES]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        port = int(process.stdout.readline())
        with Connection(port) as client:
            assert process.stdout.readline() == "closed\n"
            assert client.reply() == b""
        with pytest.raises(ConnectionRefusedError):
            Connection(port)
        assert process.poll() is None
        process.stdin.close()
