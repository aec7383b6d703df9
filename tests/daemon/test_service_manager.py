"""What a service manager is told: over a real socket, by a real server, and in which order."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.process import (
    EXTENSION_S,
    PROGRESS_S,
    STATUS_S,
    Notifications,
    NotifySocket,
    ServiceManager,
    asked_for,
    how_it_is,
)
from tests.daemon.test_listening import Taken, queue_on
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

EXTENDED = f"\nEXTEND_TIMEOUT_USEC={EXTENSION_S}000000"


class RecordedNotifications(Notifications):
    """Keeps messages.

    :ivar sent: the messages that were taken.
    :ivar is_full: whether the next ones are refused, as by a manager that is busy.
    """

    is_heard = True

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_full = False

    def send(self, message: str) -> bool:
        if not self.is_full:
            self.sent.append(message)
        return not self.is_full


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's end of the socket, at ``tmp_path / "notify"``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(LIMIT_S)
        yield listener


def started(watchdog_s: float | None) -> tuple[RecordedNotifications, Clock, ServiceManager]:
    """Give the manager of a server that has just started."""
    heard, clock = RecordedNotifications(), Clock()
    manager = ServiceManager(heard, watchdog_s)
    manager.start(clock, lambda: "3 jobs")
    return heard, clock, manager


def test_a_server_is_ready_when_the_reactor_turns_and_pings_at_half_of_the_limit() -> None:
    heard, clock, _ = started(watchdog_s=4.0)
    assert heard.sent == []
    clock.advance(0)
    assert heard.sent == ["STATUS=3 jobs\nWATCHDOG=1\nREADY=1"]
    clock.advance(1.9)
    assert len(heard.sent) == 1
    clock.advance(0.1)
    assert heard.sent[1:] == ["STATUS=3 jobs\nWATCHDOG=1"]


def test_nobody_is_pinged_without_a_watchdog_and_the_status_is_told_all_the_same() -> None:
    heard, clock, _ = started(watchdog_s=None)
    clock.pump([0, STATUS_S])
    assert heard.sent == ["STATUS=3 jobs\nREADY=1", "STATUS=3 jobs"]


@pytest.mark.parametrize(("limit_s", "told"), [(2 * STATUS_S, 2), (3 * STATUS_S, 2), (9.0, 3)])
def test_a_status_comes_every_ten_seconds_at_least(limit_s: float, told: int) -> None:
    heard, clock, _ = started(limit_s)
    clock.pump([0] + [STATUS_S / 20] * 20)
    assert len(heard.sent) == told


def test_a_manager_that_was_busy_hears_of_the_ready_server_later() -> None:
    heard, clock, _ = started(watchdog_s=4.0)
    heard.is_full = True
    clock.pump([0, 2])
    heard.is_full = False
    clock.pump([2, 2])
    assert heard.sent == ["STATUS=3 jobs\nWATCHDOG=1\nREADY=1", "STATUS=3 jobs\nWATCHDOG=1"]


def test_a_server_that_stops_says_so_and_is_silent_then() -> None:
    heard, clock, manager = started(watchdog_s=4.0)
    clock.advance(0)
    manager.stopping()
    clock.advance(100)
    assert heard.sent[1:] == ["STOPPING=1\nSTATUS=stopping"]
    assert not clock.getDelayedCalls()


def test_a_server_that_stops_before_its_first_turn_was_never_ready() -> None:
    heard, clock, manager = started(watchdog_s=4.0)
    manager.stopping()
    clock.advance(100)
    assert heard.sent == ["STOPPING=1\nSTATUS=stopping"]


def test_nobody_who_listens_costs_no_timer() -> None:
    clock = Clock()
    manager = ServiceManager()
    manager.start(clock, lambda: "")
    manager.stopping()
    assert not clock.getDelayedCalls()


def test_a_start_tells_how_far_it_is_at_most_once_a_second_and_asks_for_time() -> None:
    heard, clock = RecordedNotifications(), Clock()
    loading = ServiceManager(heard).loading_at(clock.seconds)
    loading.read(0, 1_300 << 20)
    loading.read(1 << 20, 1_300 << 20)
    clock.advance(PROGRESS_S)
    loading.read(650 << 20, 1_300 << 20)
    clock.advance(PROGRESS_S / 2)
    loading.loaded(1_100_000)
    clock.advance(PROGRESS_S / 2)
    loading.loaded(1_200_000)
    clock.advance(PROGRESS_S)
    loading.read(0, 0)
    assert heard.sent == [
        f"STATUS=0 of 1,300 MB of the log read (0 %){EXTENDED}",
        f"STATUS=650 of 1,300 MB of the log read (50 %){EXTENDED}",
        f"STATUS=1,200,000 jobs loaded{EXTENDED}",
        f"STATUS=0 of 0 MB of the log read (100 %){EXTENDED}",
    ]


def test_a_refused_start_says_why_in_one_line() -> None:
    heard, clock = RecordedNotifications(), Clock()
    service = ListeningService(queue_on(clock), [Taken()], clock, manager=ServiceManager(heard))
    with pytest.raises(SystemExit):
        service.startService()
    assert heard.sent == [
        "STATUS=not started: cannot listen on 127.0.0.1:1: address already in use. "
        "Is another beanstalkd running? Try --port 2."
    ]


def test_how_a_server_is_in_words() -> None:
    assert how_it_is(1, 1, False) == "1 job, 1 connection"
    assert how_it_is(1_204, 3_000, True) == "1,204 jobs, 3,000 connections, draining"


# The environment.


def test_without_a_socket_nobody_is_told() -> None:
    environment = {"WATCHDOG_USEC": "1000000", "PATH": "/bin"}
    clock = Clock()
    asked_for(environment).start(clock, lambda: "")
    assert not clock.getDelayedCalls()
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("address", ["vsock:2:1234", "notify", ""])
def test_an_address_of_another_kind_is_left_alone(address: str) -> None:
    clock = Clock()
    asked_for({"NOTIFY_SOCKET": address}).start(clock, lambda: "")
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize(
    ("variables", "interval_s"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, STATUS_S),
        ({"WATCHDOG_USEC": "0"}, STATUS_S),
        ({"WATCHDOG_USEC": "soon"}, STATUS_S),
        ({}, STATUS_S),
    ],
)
def test_the_limit_is_taken_if_it_is_meant_for_this_process(
    manager: socket.socket, variables: dict[str, str], interval_s: float
) -> None:
    clock = Clock()
    environment = {"NOTIFY_SOCKET": manager.getsockname(), **variables}
    asked_for(environment).start(clock, lambda: "well")
    clock.advance(0)
    said = manager.recv(4096).decode().split("\n")
    assert ("WATCHDOG=1" in said) == (interval_s < STATUS_S)
    assert clock.getDelayedCalls()[0].getTime() == interval_s
    assert not environment


# The socket.


def test_a_name_of_linuxs_abstract_ones_is_reached() -> None:
    name = f"beanstalk-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        assert NotifySocket(f"@{name}").send("READY=1")
        assert listener.recv(99) == b"READY=1"


def test_a_socket_that_is_not_there_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    notifications = NotifySocket(str(tmp_path / "none"))
    with capturedLogs() as events:
        assert not notifications.send("READY=1")
        assert not notifications.send("READY=1")
    [line] = [formatEvent(event) for event in events]
    assert line == (
        f"NOTIFY_SOCKET {tmp_path}/none: No such file or directory; the service manager hears "
        "nothing"
    )


def test_a_manager_that_does_not_read_is_not_waited_for(manager: socket.socket) -> None:
    notifications = NotifySocket(manager.getsockname())
    with capturedLogs() as events:
        while notifications.send("x" * 4096):
            pass
    assert not events
    manager.recv(5000)
    assert notifications.send("READY=1")


# A real server.


def messages(manager: socket.socket, until: str) -> list[str]:
    """Read messages up to one with this line."""
    found = [manager.recv(4096).decode()]
    while until not in found[-1].split("\n"):
        found.append(manager.recv(4096).decode())
    return found


def test_a_server_tells_its_manager_from_the_first_to_the_last(
    tmp_path: Path, manager: socket.socket
) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "200000"}
    command = ours_at_once("-p", 0, "-b", tmp_path / "bs")
    for jobs in (0, 1):
        with ServerProcess(command, tmp_path, environment) as server:
            loading = messages(manager, "READY=1")
            assert loading[-1] == f"STATUS={jobs} job{'' if jobs else 's'}, 0 connections" + (
                "\nWATCHDOG=1\nREADY=1"
            )
            assert ("STATUS=0 of" in loading[0]) == bool(jobs)
            connection = server.connect()
            connection.ask(b"put 0 0 9 1\r\nx\r\n")
            # It is told at the next ping.
            messages(manager, f"STATUS={'2 jobs' if jobs else '1 job'}, 1 connection")
            connection.close()
            server.process.send_signal(signal.SIGTERM)
            assert messages(manager, "STOPPING=1")[-1] == "STOPPING=1\nSTATUS=stopping"
            server.ended()
