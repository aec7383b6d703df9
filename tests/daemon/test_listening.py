"""The whole server as one service: in which order it starts and stops, and how it refuses."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    UNIXServerEndpoint,
    connectProtocol,
    serverFromString,
)
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IProtocolFactory, IStreamServerEndpoint
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactor, RaisingMemoryReactor
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.binlog.errors import Damaged, LockHeld
from beanstalk_twisted.daemon.listening import (
    STOP_LIMIT_S,
    ListeningService,
    ports_in_use,
    wrong_files,
)
from beanstalk_twisted.daemon.log_lines import line
from beanstalk_twisted.daemon.sockets import in_words
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import IN_MEMORY, Limits, Settings
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.storage.io_thread import IoThread, WatchableIo
from beanstalk_twisted.version import BUILD
from tests.binlog.memory import MemoryDirectory
from tests.conftest import the_reactor
from tests.held_io import HeldIo
from tests.uncollected import Uncollected


def queue_on(clock: Any, io: Callable[[], WatchableIo] | None = None) -> BeanstalkService:
    """Make a queue, with a log if there is something to run its work."""
    settings = Settings(65_535, 1 << 16, ALWAYS)
    directory = MemoryDirectory() if io is not None else None
    return BeanstalkService(settings, clock, LogClock(), directory, io)


def listening(*args: Any, **options: Any) -> ListeningService:
    """Make the service, for a process that is not only a server."""
    return ListeningService(*args, **{"collector": Uncollected(), **options})


def local_port() -> TCP4ServerEndpoint:
    return TCP4ServerEndpoint(the_reactor(), 0, interface="127.0.0.1")


@implementer(IStreamServerEndpoint)
class Taken:
    """An endpoint that somebody else listens on."""

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return fail(CannotListenError("127.0.0.1", 1, OSError(98, "Address already in use")))


class Client(Protocol):
    """A client that collects what it gets."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: Deferred[None] = Deferred()
        self._wanted = b""
        self._heard: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if self._wanted and self._wanted in self.received:
            self._wanted = b""
            self._heard.callback(None)

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost.callback(None)

    async def ask(self, request: bytes, answer: bytes) -> None:
        """Send, and wait until that is among what came."""
        self._wanted, self._heard = answer, Deferred()
        assert self.transport is not None
        self.transport.write(request)
        await self._heard


async def connect(service: ListeningService) -> Client:
    host = service.ports[0].getHost()
    assert isinstance(host, IPv4Address)
    endpoint = TCP4ClientEndpoint(the_reactor(), "127.0.0.1", host.port)
    client = Client()
    await connectProtocol(endpoint, client)
    return client


# Starting.


async def test_all_ports_serve_one_queue() -> None:
    reactor = the_reactor()
    service = listening(queue_on(reactor), [local_port(), local_port()], reactor)
    service.startService()
    assert len(service.ports) == 2
    first = await connect(service)
    service.ports.reverse()
    second = await connect(service)
    await first.ask(b"put 0 0 9 1\r\nx\r\n", b"INSERTED 1\r\n")
    await second.ask(b"peek 1\r\n", b"FOUND 1 1\r\nx\r\n")
    await service.stopService()
    await first.lost
    await second.lost


async def test_the_collector_of_garbage_is_told_what_to_leave_alone_while_the_server_runs() -> None:
    reactor, collector = the_reactor(), Uncollected()
    service = ListeningService(queue_on(reactor), [], reactor, collector=collector)
    assert not collector.callbacks
    service.startService()
    assert len(collector.callbacks) == 1
    await service.stopService()
    assert not collector.callbacks


async def test_a_port_of_the_older_dialect_serves_the_same_queue_and_is_closed_like_others() -> (
    None
):
    reactor = the_reactor()
    service = listening(
        queue_on(reactor), [local_port()], reactor, endpoints_v1=[local_port(), local_port()]
    )
    service.startService()
    assert len(service.ports) == 3
    modern = await connect(service)
    await modern.ask(b"put 5 0 9 1\r\nx\r\n", b"INSERTED 1\r\n")
    for _ in range(2):
        service.ports.append(service.ports.pop(0))
        old = await connect(service)
        await old.ask(b"peek 1\r\n", b"FOUND 1 5 1\r\nx\r\n")
    await service.stopService()
    await modern.lost
    await old.lost
    assert [port.connected for port in service.ports] == [False] * 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["only", "second", "older dialect"])
async def test_a_port_that_is_taken_ends_the_process_with_111(place: str) -> None:
    taken = Taken()
    endpoints, older = {
        "only": ([taken], []),
        "second": ([local_port(), taken], []),
        "older dialect": ([local_port()], [taken]),
    }[place]
    service = listening(queue_on(Clock()), endpoints, Clock(), endpoints_v1=older)
    with pytest.raises(SystemExit) as exit_:
        service.startService()
    assert exit_.value.code == 111
    assert not service.queue.running
    for port in service.ports:
        await maybeDeferred(port.stopListening)


async def test_nobody_can_connect_before_the_log_is_loaded_and_all_is_prepared() -> None:
    reactor = the_reactor()
    queue = queue_on(reactor, lambda: IoThread(reactor))
    seen: list[tuple[bool, int]] = []
    service = listening(
        queue, [local_port()], reactor, lambda: seen.append((bool(queue.running), ports()))
    )

    def ports() -> int:
        return len(service.ports)

    service.startService()
    assert seen == [(False, 0)]
    assert queue.running and ports() == 1
    await service.stopService()


@pytest.mark.parametrize(("error", "code"), [(LockHeld("held"), 10), (Damaged("bad"), 65)])
def test_a_log_that_cannot_be_used_ends_the_process_with_its_exit_code(
    error: Exception, code: int
) -> None:
    def prepare() -> None:
        raise error

    service = listening(queue_on(Clock()), [local_port()], Clock(), prepare)
    with pytest.raises(SystemExit) as exit_:
        service.startService()
    assert exit_.value.code == code
    assert not service.ports and not service.queue.running


def refuse() -> None:
    """Find a damaged log."""
    raise Damaged("segment 7 is damaged")


def test_what_runs_and_how_it_was_told_to_is_said_first_also_when_the_start_is_refused() -> None:
    memory = listening(queue_on(Clock()), [], Clock(), refuse)
    on_disk = listening(queue_on(Clock(), HeldIo), [], Clock(), refuse)
    for service, how in (memory, IN_MEMORY), (on_disk, "binlog (memory), fsync always ("):
        with capturedLogs() as events, pytest.raises(SystemExit):
            service.startService()
        first, second, *others = map(formatEvent, events)
        assert first == BUILD
        assert second is not None and second.startswith(how)
        assert others


def test_what_a_server_was_told_is_said_in_one_line() -> None:
    always = Settings(65_535, 1 << 16, ALWAYS)
    assert always.in_words("", has_hub=True) == (
        "in memory only (jobs are lost when the server ends), shared epoll reader, "
        "max job size 65535 bytes, memory of jobs not limited"
    )
    assert always.in_words("/var/lib/bs", has_hub=False) == (
        "binlog /var/lib/bs, fsync always (inline up to 300 us), fsync timeout 60 s, "
        "max job size 65535 bytes, memory of jobs not limited"
    )
    from_threads = always._replace(fsync_inline_us=0).in_words("/x", has_hub=True)
    assert from_threads.startswith("binlog /x, fsync always (never inline), fsync timeout ")
    within = always._replace(
        fsync=FsyncPolicy(0.02), fsync_timeout_s=0, max_job_bytes=9, limits=Limits(memory_bytes=7),
    )  # fmt: skip
    assert within.in_words("/x", has_hub=True) == (
        "binlog /x, fsync within 20 ms, no fsync timeout, shared epoll reader, "
        "max job size 9 bytes, memory of jobs up to 7 bytes"
    )
    limits = Limits(connections=9, connections_per_address=3, stalled_s=0, log_bytes=5000)
    assert (
        always._replace(limits=limits)
        .in_words("", has_hub=True)
        .endswith(
            "memory of jobs not limited, connections up to 9, up to 3 of one address, no stalled "
            "timeout, log up to 5000 bytes"
        )
    )
    never = always._replace(fsync=NEVER).in_words("/x", has_hub=True)
    assert never.startswith("binlog /x, fsync never, ")


async def test_the_shared_reader_is_named_where_there_is_one() -> None:
    settings = Settings(65_535, 1 << 16, ALWAYS)
    for reactor, has_hub in ((the_reactor(), hasattr(select, "epoll")), (Clock(), False)):
        service = listening(BeanstalkService(settings, reactor, LogClock()), [], reactor)
        with capturedLogs() as events:
            service.startService()
        assert ("shared epoll reader, " in str(formatEvent(events[1]))) == has_hub
        await service.stopService()


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


class InterruptedDirectory(MemoryDirectory):
    """A log that nobody has the patience for."""

    def names(self) -> list[str]:
        interrupt()
        return super().names()


def test_ctrl_c_before_anybody_is_served_is_said_in_one_line_and_ends_with_130() -> None:
    log = InterruptedDirectory()
    settings = Settings(65_535, 1 << 16, ALWAYS)
    reading = BeanstalkService(settings, Clock(), LogClock(), log, HeldIo)
    for service in (
        listening(reading, [local_port()], Clock()),
        listening(queue_on(Clock()), [local_port()], Clock(), interrupt),
    ):
        with capturedLogs() as events, pytest.raises(BaseException) as exit_:
            service.startService()
        assert repr(exit_.value) == "SystemExit(130)"
        assert not service.ports and not service.queue.running
        assert [formatEvent(event) for event in events[2:]] == [
            "the server does not start: stopped while the log was read; nothing was changed"
        ]
    assert MemoryDirectory.names(log) == []


def test_ctrl_c_while_a_log_is_opened_is_said_in_one_line_too() -> None:
    def io() -> WatchableIo:
        interrupt()
        return HeldIo()

    service = listening(queue_on(Clock(), io), [], Clock())
    with capturedLogs() as events, pytest.raises(BaseException) as exit_:
        service.startService()
    assert repr(exit_.value) == "SystemExit(130)"
    assert [formatEvent(event) for event in events[2:]] == [
        "the server does not start: stopped before anybody was served; nothing was lost"
    ]


# Stopping.


async def test_ports_are_closed_before_the_queue_stops_and_what_was_begun_is_answered() -> None:
    io = HeldIo()
    reactor = the_reactor()
    service = listening(queue_on(reactor, lambda: io), [local_port()], reactor)
    service.startService()
    client = await connect(service)
    await client.ask(b"use a\r\nput 0 0 9 1\r\nx\r\n", b"USING a\r\n")
    stopped = service.stopService()
    while not io:
        await turn()
    with pytest.raises(Exception, match="refused"):
        await connect(service)
    assert client.received == b"USING a\r\n"
    while not stopped.called:
        if io:
            io.step()
        await turn()
    await client.lost
    assert client.received == b"USING a\r\nINSERTED 1\r\n"


async def turn() -> None:
    passed: Deferred[None] = Deferred()
    the_reactor().callLater(0, passed.callback, None)
    await passed


def test_a_stop_takes_no_longer_than_its_limit_when_the_disk_hangs(
    clean_reactor: list[Failure],
) -> None:
    clock = Clock()
    service = listening(queue_on(clock, HeldIo), [], clock)
    service.startService()
    stopped = service.stopService()
    clock.advance(STOP_LIMIT_S - 0.001)
    assert not stopped.called
    clock.advance(0.001)
    assert stopped.called
    assert len(clean_reactor) == 1
    clean_reactor.clear()


def test_a_stop_in_time_leaves_no_timer() -> None:
    clock = Clock()
    service = listening(queue_on(clock), [], clock)
    service.startService()
    assert service.stopService().called
    assert clock.getDelayedCalls() == []


# What is said.


async def test_what_happens_is_said_in_its_order_with_the_address_as_options_take_it(
    tmp_path: Path,
) -> None:
    reactor = the_reactor()
    unix = UNIXServerEndpoint(reactor, str(tmp_path / "s"))
    service = listening(
        queue_on(reactor, lambda: IoThread(reactor)), [local_port(), unix], reactor,
        endpoints_v1=[local_port()],
    )  # fmt: skip
    with capturedLogs() as events:
        service.startService()
    said = [line(event) for event in events]
    tcp, _, old = (in_words(port.getHost()) for port in service.ports)
    ends = ["0 jobs loaded, segment 1 begun", f"listening on {tcp}",
            f"listening on unix:{tmp_path}/s", f"listening on {old}, protocol v1"]  # fmt: skip
    shown = [each for each in said[2:] if each is not None]
    assert len(shown) == len(ends), shown
    for each, end in zip(shown, ends, strict=True):
        assert each.endswith(f"{end}\n")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", tcp)
    await service.stopService()


async def test_a_port_that_is_taken_is_told_with_advice_for_the_option_that_named_it() -> None:
    for option, advice in ("--port", "Try --port 2."), ("--listen", "Try another port in --listen"):
        service = listening(queue_on(Clock()), [Taken()], Clock(), option=option)
        with capturedLogs() as events, pytest.raises(SystemExit):
            service.startService()
        said = str(formatEvent(events[-1]))
        assert "cannot listen on 127.0.0.1:1: address already in use. Is another" in said
        assert advice in said


async def test_a_socket_that_somebody_has_removed_does_not_keep_the_log_from_its_end(
    tmp_path: Path,
) -> None:
    reactor = the_reactor()
    queue = queue_on(reactor, lambda: IoThread(reactor))
    unix = UNIXServerEndpoint(reactor, str(tmp_path / "s"))
    service = listening(queue, [unix], reactor)
    service.startService()
    os.unlink(tmp_path / "s")
    with capturedLogs() as events:
        await service.stopService()
    assert not queue.running
    said = [str(formatEvent(event)) for event in events]
    assert f"closing unix:{tmp_path}/s: No such file or directory; nothing was lost" in said


def endpoint(text: str, reactor: Any = None) -> Any:
    """One of a reactor without sockets."""
    return serverFromString(reactor or MemoryReactor(), text)


def options(*endpoints: Any, listen: bool = False, http: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Those that name ports."""
    return {
        "listen": listen, "endpoints": endpoints, "endpoints_v1": (), "endpoints_http": http,
    }  # fmt: skip


def test_files_are_read_as_a_server_does(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("")
    bad.write_text("[mail]\nmax-fun = 1\n")
    assert wrong_files({"access": None, "tubes": None}) == {}
    assert wrong_files({"access": str(good), "tubes": str(good)}) == {"access": "", "tubes": ""}
    told = wrong_files({"access": str(tmp_path / "none"), "tubes": str(bad)})
    assert told["access"] == f"{tmp_path}/none: it cannot be read: No such file or directory"
    assert told["tubes"].startswith(f"{bad}: line 2, max-fun of ['mail']: there is no key")


def test_why_a_port_cannot_be_had_is_told_with_its_option() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    refusing = RaisingMemoryReactor(listenException=CannotListenError("", 11300, taken))
    one = endpoint("tcp:11300", refusing)
    free = endpoint("tcp:11301")
    (why,) = ports_in_use(options(free, one))
    assert why.startswith("cannot listen on *:11300: address already in use")
    assert "--port 11301" in why
    (why,) = ports_in_use(options(one, free, listen=True))
    assert "another port in --listen" in why
    (why,) = ports_in_use(options(free, http=(one,)))
    assert "another port in --http" in why
    assert ports_in_use(options(free, http=(free,))) == []


def test_unix_sockets_are_left_alone(tmp_path: Path) -> None:
    refusing = RaisingMemoryReactor(listenException=CannotListenError("", "socket", OSError()))
    assert ports_in_use(options(endpoint(f"unix:{tmp_path}/socket", refusing))) == []
