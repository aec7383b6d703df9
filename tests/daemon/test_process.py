"""The process as others see it: a start that fails, the service manager, signals."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.process import (
    EXTENSION_S,
    IGNORED,
    PROGRESS_S,
    STATUS_S,
    STDERR,
    Hangup,
    Launcher,
    Notifications,
    NotifySocket,
    Refused,
    ServiceManager,
    StopTwice,
    asked_for,
    drain_on_signal,
    how_it_is,
    ignore_others,
    reload_on_signal,
)
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.daemon.test_listening import Taken, queue_on
from tests.replication.world import Process
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once


@pytest.fixture(autouse=True)
def own_excepthook() -> Iterator[None]:
    """Put the hook for exceptions that nobody catches back as it was."""
    before = sys.excepthook
    yield
    sys.excepthook = before


def test_without_a_launcher_the_server_is_in_the_foreground() -> None:
    launcher = Launcher({})
    assert launcher.is_foreground and launcher.pidfile == ""
    with pytest.raises(SystemExit) as end:
        launcher.refuse("no", 73)
    assert end.value.code == 73


def test_a_pidfile_is_removed_in_the_foreground(tmp_path: Path) -> None:
    pidfile = tmp_path / "server.pid"
    pidfile.write_text("1")
    with pytest.raises(SystemExit):
        Launcher({"nodaemon": True, "pidfile": str(pidfile)}).refuse("no", 73)
    assert not pidfile.exists()


def test_what_a_daemon_dies_of_begins_with_the_reason() -> None:
    with pytest.raises(Refused) as refused:
        Launcher({"nodaemon": False}).refuse("cannot listen on 127.0.0.1:11300", 111)
    (said,) = traceback.format_exception_only(refused.value)
    assert said == "Refused: cannot listen on 127.0.0.1:11300\n"
    assert refused.value.exit_code == 111


def test_the_way_of_a_refusal_through_the_code_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Refused):
        Launcher({"nodaemon": False}).refuse("no", 111)
    sys.excepthook(Refused, Refused("no", 111), None)
    assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("wrong"), None)
    assert capsys.readouterr().err == "ValueError: wrong\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodaemon": False}, "error: no\n"),
        ({"nodaemon": False, "logfile": "a.log"}, "error: no\n"),
        ({"nodaemon": True, "logfile": "a.log"}, "error: no\n"),
        ({"nodaemon": True, "logfile": "-"}, ""),
        ({"nodaemon": True}, ""),
        ({}, ""),
    ],
)
def test_where_the_log_is_not_seen_the_reason_is_told_on_stderr(
    options: dict[str, object], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher = Launcher(options)
    launcher.keep_terminal()
    with pytest.raises((SystemExit, Refused)):
        launcher.refuse("no", 73)
    assert capfd.readouterr().err == said


def test_a_server_that_has_started_keeps_no_stderr() -> None:
    before = os.dup(STDERR)
    os.close(before)
    launcher = Launcher({"nodaemon": False})
    launcher.keep_terminal()
    launcher.let_go()
    launcher.let_go()
    after = os.dup(STDERR)
    os.close(after)
    assert after == before


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


NUMBERS = (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, *IGNORED)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Reactor(Process):
    """A reactor whose turns are ours.

    :ivar stops: how often it was asked to stop.
    """

    stops = 0

    def stop(self, number: int, frame: object) -> None:
        """Receive a signal as the real one does."""
        self.stops += 1


def said(events: list[LogEvent]) -> list[str]:
    return [f"{event['event']}: {formatEvent(event)}" for event in events]


def test_sigusr1_drains_in_a_turn_of_the_reactor_and_undrain_undoes_it() -> None:
    server, reactor = MemoryServer(), Reactor()
    drain_on_signal(lambda: server.service, reactor)
    os.kill(os.getpid(), signal.SIGUSR1)
    client = server.connect()
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"INSERTED 1\r\n"
    with capturedLogs() as events:
        reactor.settle()
    assert said(list(events)) == ["audit: SIGUSR1: drain", "drain: draining: new jobs are refused"]
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"DRAINING\r\n"
    assert client.ask(b"undrain\r\nput 0 0 1 0\r\n\r\n") == b"NOT_DRAINING\r\nINSERTED 3\r\n"


def test_sighup_takes_its_steps_in_order_in_a_turn_of_the_reactor() -> None:
    reactor, taken = Reactor(), list[str]()
    steps = [lambda: taken.append("log"), lambda: taken.append("tubes")]
    reload_on_signal(lambda: MemoryServer().service, reactor, steps, Hangup(lambda: True))
    os.kill(os.getpid(), signal.SIGHUP)
    assert taken == []
    with capturedLogs() as events:
        reactor.settle()
    assert taken == ["log", "tubes"]
    assert said(list(events)) == ["audit: SIGHUP: reload"]


def test_a_server_whose_terminal_is_gone_stops_in_order() -> None:
    reactor, taken, terminals = Reactor(), list[int](), [True]
    signal.signal(signal.SIGTERM, reactor.stop)
    hangup = Hangup(lambda: bool(terminals))
    reload_on_signal(lambda: MemoryServer().service, reactor, [lambda: taken.append(1)], hangup)
    terminals.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    reactor.settle()
    assert (reactor.stops, taken) == (1, [])


def test_a_server_that_ignored_hangups_goes_on_without_its_terminal() -> None:
    terminals = [True]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    hangup = Hangup(lambda: bool(terminals))
    terminals.clear()
    assert not hangup.has_come


@pytest.mark.parametrize(("was_there", "has_come"), [(True, True), (False, False), (None, False)])
def test_a_terminal_that_went_before_the_handlers_were_set_is_known_of(
    was_there: bool | None, has_come: bool
) -> None:
    assert Hangup(lambda: False, was_there).has_come == has_come


@pytest.mark.parametrize("number", IGNORED)
def test_a_signal_without_a_meaning_is_ignored_unless_it_is_handled(number: int) -> None:
    ignore_others()
    signal.raise_signal(number)
    heard = list[int]()
    signal.signal(number, lambda received, frame: heard.append(received))
    ignore_others()
    signal.raise_signal(number)
    assert heard == [number]


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_in_order_and_the_second_at_once(
    tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    server, reactor, codes = MemoryServer(), Reactor(), list[int]()
    pidfile = tmp_path / "pid"
    pidfile.write_text("1")
    server.service.settings = server.service.settings._replace(pidfile=str(pidfile))

    def end(code: int, last_words: Callable[[], None]) -> None:
        codes.append(code)
        last_words()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, reactor.stop)
    StopTwice(lambda: server.service, reactor, end).take_over()
    with capturedLogs() as events:
        signal.raise_signal(first)
        reactor.settle()
        assert (reactor.stops, codes, pidfile.exists()) == (1, [], True)
        signal.raise_signal(second)
    assert (reactor.stops, codes, pidfile.exists()) == (1, [128 + second], False)
    assert said(list(events)) == [
        f"audit: {first.name}: stop",
        f"stopped-at-once: stopped at once by a second signal, {second.name}; nothing that was "
        f"answered is lost",
    ]
