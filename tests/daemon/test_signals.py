"""What the signals do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.daemon.process import (
    IGNORED,
    Hangup,
    StopTwice,
    drain_on_signal,
    ignore_others,
    reload_on_signal,
)
from beanstalk_twisted.testing.memory_server import MemoryServer

NUMBERS = (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, *IGNORED)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Put the handlers back as they were."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Reactor(Clock):
    """A reactor whose turns are ours.

    :ivar stops: how often it was asked to stop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stops = 0
        self.turns: list[Callable[[], object]] = []

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """See `IReactorFromThreads.callFromThread`."""
        self.turns.append(lambda: callable(*args))

    def turn(self) -> None:
        """Do what was left for this turn."""
        turns, self.turns = self.turns, []
        for each in turns:
            each()

    def stop(self, number: int, frame: object) -> None:
        """Receive a signal as the real one does."""
        self.stops += 1


def said(events: list[LogEvent]) -> list[str]:
    """Give what was logged, each behind the name of its event."""
    return [f"{event['event']}: {formatEvent(event)}" for event in events]


def test_sigusr1_drains_in_a_turn_of_the_reactor_and_undrain_undoes_it() -> None:
    server, reactor = MemoryServer(), Reactor()
    drain_on_signal(server.service, reactor)
    os.kill(os.getpid(), signal.SIGUSR1)
    client = server.connect()
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"INSERTED 1\r\n"
    with capturedLogs() as events:
        reactor.turn()
    assert said(list(events)) == ["audit: SIGUSR1: drain", "drain: draining: new jobs are refused"]
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == b"DRAINING\r\n"
    assert client.ask(b"undrain\r\nput 0 0 1 0\r\n\r\n") == b"NOT_DRAINING\r\nINSERTED 3\r\n"


def test_sighup_takes_its_steps_in_order_in_a_turn_of_the_reactor() -> None:
    reactor, taken = Reactor(), list[str]()
    steps = [lambda: taken.append("log"), lambda: taken.append("tubes")]
    reload_on_signal(MemoryServer().service, reactor, steps, Hangup(lambda: True))
    os.kill(os.getpid(), signal.SIGHUP)
    assert taken == []
    with capturedLogs() as events:
        reactor.turn()
    assert taken == ["log", "tubes"]
    assert said(list(events)) == ["audit: SIGHUP: reload"]


def test_a_server_whose_terminal_is_gone_stops_in_order() -> None:
    reactor, taken, terminals = Reactor(), list[int](), [True]
    signal.signal(signal.SIGTERM, reactor.stop)
    hangup = Hangup(lambda: bool(terminals))
    reload_on_signal(MemoryServer().service, reactor, [lambda: taken.append(1)], hangup)
    terminals.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    reactor.turn()
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
    StopTwice(server.service, reactor, end).take_over()
    with capturedLogs() as events:
        signal.raise_signal(first)
        reactor.turn()
        assert (reactor.stops, codes, pidfile.exists()) == (1, [], True)
        signal.raise_signal(second)
    assert (reactor.stops, codes, pidfile.exists()) == (1, [128 + second], False)
    assert said(list(events)) == [
        f"audit: {first.name}: stop",
        f"stopped-at-once: stopped at once by a second signal, {second.name}; nothing that was "
        f"answered is lost",
    ]
