"""The whole server as one service: the queue first, then its ports, and down in the other order.
Differs from beanstalkd: ports open when the log is loaded, and SIGTERM stops in order.
"""

import gc
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred, ensureDeferred, maybeDeferred
from twisted.internet.interfaces import (
    IListeningPort,
    IReactorFDSet,
    IReactorTime,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port
from twisted.logger import ILogObserver, Logger
from twisted.python import log as legacy_log
from twisted.python.components import Componentized
from twisted.python.failure import Failure

from beanstalk_twisted.access.rules import BadAccessFile
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.daemon.files import BadTubesFile, read_access, read_tubes
from beanstalk_twisted.daemon.memory import Collecting, Collector
from beanstalk_twisted.daemon.process import (
    Launcher,
    Refused,
    ServiceManager,
    how_it_is,
    refuse_start,
)
from beanstalk_twisted.daemon.sockets import in_words, why_not
from beanstalk_twisted.server.connections.accepting import AcceptLimiter, WatchedConnection
from beanstalk_twisted.server.connections.epoll_reader import EpollReader
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.version import BUILD

LISTEN_FAILED: Final = 111
"""Exit code when a port cannot be opened, as beanstalkd's."""

INTERRUPTED: Final = 130
"""Exit code when Ctrl-C comes before anybody is served, as a shell shows death by SIGINT."""

STOP_LIMIT_S: Final = 10.0
"""Seconds of an ordered stop: half of what container runtimes wait before they kill."""

NOT_LOGGED: Final = {"log_format": ""}
"""What Twisted's ports say of themselves when they open: we say it, with the address."""


class Ports(NamedTuple):
    """Ports that serve one factory; the log says ``words`` behind the address of each."""

    endpoints: Sequence[IStreamServerEndpoint]
    factory: Factory
    option: str
    words: str = ""


class OpenPorts:
    """Opens the ports of some groups together, and closes them."""

    log = Logger()

    def __init__(self, groups: Sequence[Ports], clock: IReactorTime) -> None:
        self.ports: list[IListeningPort] = []
        self._groups = groups
        self._clock = clock
        self._limiters: list[AcceptLimiter] = []

    def open(self) -> list[str]:
        """Return what to say of each.  :raise Refused: one cannot be opened; none is announced."""
        return [
            f"{in_words(port.getHost())}{getattr(each, 'words', '')}{group.words}"
            for group in self._groups
            for each in group.endpoints
            for port in self._open(each, group.factory, group.option)
        ]

    def _open(
        self, endpoint: IStreamServerEndpoint, factory: Factory, option: str
    ) -> list[IListeningPort]:
        """:return: its port; none if the endpoint takes its time."""
        outcome: list[Any] = []
        opening = maybeDeferred(legacy_log.callWithContext, NOT_LOGGED, endpoint.listen, factory)
        opening.addBoth(outcome.append)
        if outcome and isinstance(outcome[0], Failure):
            problem = outcome[0].value
            assert problem is not None
            raise Refused(why_not(problem, option), LISTEN_FAILED)
        self.ports.extend(outcome)
        for port in outcome:
            if isinstance(port, Port):
                self._prepare(port)
        return list(outcome)

    def _prepare(self, port: Any) -> None:
        """Have TCP peers asked whether they are there, and few accepted at a time."""
        if port.addressFamily in (socket.AF_INET, socket.AF_INET6):
            port.transport = WatchedConnection
        if IReactorFDSet.providedBy(self._clock):
            self._limiters.append(AcceptLimiter(self._clock, port))

    def move_to(self, hub: EpollReader | None) -> None:
        if hub is not None:
            for limiter in self._limiters:
                limiter.move_to(hub)

    def announce(self, announcements: Sequence[str]) -> None:
        for words in announcements:
            self.log.info("listening on {address}", event="listening", address=words)

    async def close(self) -> None:
        """Close all; one that does not close in order, such as a removed socket, is only logged."""
        for limiter in self._limiters:
            limiter.stop()
        for port in self.ports:
            address = in_words(port.getHost())
            try:
                await maybeDeferred(port.stopListening)
            except OSError as problem:
                self.log.warn(
                    "closing {address}: {why}; nothing was lost", event="close-failed",
                    address=address, why=problem.strerror,
                )  # fmt: skip


class WholeService(Service):
    """A service that is all that an application runs, whose log our observer writes then."""

    log = Logger()
    _make_observer: Callable[[], ILogObserver | None]

    def setServiceParent(self, parent: Any) -> None:
        """Any parent but an application has no log of its own."""
        super().setServiceParent(parent)
        observer = self._make_observer() if isinstance(parent, Componentized) else None
        if observer is not None:
            parent.setComponent(ILogObserver, observer)

    def _left_undone(self, failure: Failure) -> None:
        """What was acknowledged is safe; the next start sees an unclean stop."""
        self.log.failure("the stop did not end in order", failure, event="stop-failed")


class ListeningService(WholeService):
    """Starts the queue, then ports; stops them the other way round."""

    log = Logger()

    def __init__(
        self,
        queue: BeanstalkService,
        endpoints: Sequence[IStreamServerEndpoint],
        clock: IReactorTime,
        prepare: Callable[[], None] = lambda: None,
        endpoints_v1: Sequence[IStreamServerEndpoint] = (),
        launcher: Launcher | None = None,
        make_observer: Callable[[], ILogObserver | None] = lambda: None,
        option: str = "--port",
        manager: ServiceManager | None = None,
        http: Ports | None = None,
        collector: Collector = gc,
    ) -> None:
        """:param prepare: locks the directory and the like; may raise `BinlogError`.
        :param launcher: ends a start that fails; None for one in the foreground.
        :param collector: Python's, or what takes its place where the process is not a server only.
        """
        self.queue = queue
        groups = [
            Ports(endpoints, queue.factory, option),
            Ports(endpoints_v1, queue.factory_v1, "--listen-v1", ", protocol v1"),
            *([] if http is None else [http]),
        ]
        self._open_ports = OpenPorts(groups, clock)
        self.ports = self._open_ports.ports
        self._clock = clock
        self._prepare = prepare
        self._launcher = Launcher({}) if launcher is None else launcher
        self._make_observer = make_observer
        self._manager = ServiceManager() if manager is None else manager
        self._collecting = Collecting(lambda: queue.connections.wrapped_ended, collector)

    def startService(self) -> None:
        """:raise SystemExit: with the exit code of docs/durability.md, in the foreground.
        :raise Refused: otherwise; the launcher shows its first words.
        """
        super().startService()
        try:
            self._load()
            self.serve()
            self._collecting.start()
        except (BinlogError, Refused) as error:
            refuse_start(self._launcher, self._manager, str(error), error.exit_code)
        except KeyboardInterrupt:
            why = "stopped before anybody was served; nothing was lost"
            refuse_start(self._launcher, self._manager, why, INTERRUPTED)
        self._launcher.let_go()
        self._manager.start(self._clock, self._in_words)

    def serve(self) -> None:
        """:raise Refused: a port cannot be opened.
        :raise BinlogError: the log cannot be used.
        """
        # Nobody is served before the reactor turns.  A port that is taken leaves the log alone.
        announcements = self._open_ports.open()
        self.queue.startService()
        self._open_ports.move_to(self.queue.connections.hub)
        self._open_ports.announce(announcements)

    def _in_words(self) -> str:
        queue = self.queue.queue
        return how_it_is(len(queue.state.jobs), len(queue.state.sessions), queue.puts.is_draining)

    def _load(self) -> None:
        """Load the log, which may take minutes; until the reactor runs Ctrl-C is Python's."""
        try:
            self.introduce()
            self._prepare()
            self.queue.load(self._manager.loading_at(self._clock.seconds))
        except KeyboardInterrupt:
            why = "stopped while the log was read; nothing was changed"
            raise Refused(why, INTERRUPTED) from None

    def introduce(self) -> None:
        queue = self.queue
        self.log.info("{build}", event="version", build=BUILD)
        self.log.info(
            "{how}", event="settings", how=queue.settings.in_words(queue.path, queue.has_hub)
        )

    def stopService(self) -> "Deferred[None]":
        """Ports, then the queue; bounded by `STOP_LIMIT_S`."""
        super().stopService()
        self._manager.stopping()
        self.queue.begin_stop()
        stopping = ensureDeferred(self._stop())
        stopping.addTimeout(STOP_LIMIT_S, self._clock)
        return stopping.addErrback(self._left_undone)

    async def _stop(self) -> None:
        await self._open_ports.close()
        self._collecting.stop()
        await self.queue.stopService()


# What would refuse a start beside wrong options and the log, for ``beanstalk doctor``, which asks
# this in a process of its own.


def wrong_files(options: Mapping[str, Any]) -> dict[str, str]:
    """Say for ``access`` and ``tubes``, where named, why it cannot be used; empty if it can."""
    found = {}
    for name, read in (("access", read_access), ("tubes", read_tubes)):
        if options[name] is not None:
            try:
                read(options[name])
                found[name] = ""
            except (BadAccessFile, BadTubesFile) as problem:
                found[name] = f"{options[name]}: {problem}"
    return found


def tls_endpoints(options: Mapping[str, Any]) -> list[Any]:
    """:return: each `TlsEndpoint` among them; its module is imported where there is one only."""
    groups = ("endpoints", "endpoints_v1", "endpoints_http")
    return [
        each for group in groups for each in options[group] if getattr(each, "is_encrypted", False)
    ]


def tls_files(options: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
    """:return: of each endpoint for TLS its name, why its files cannot be used, empty if they can,
    and what is to be warned of.
    """
    found = []
    for endpoint in tls_endpoints(options):
        try:
            found.append((endpoint.name, "", endpoint.check()))
        except ValueError as problem:
            found.append((endpoint.name, str(problem), []))
    return found


def ports_in_use(options: Mapping[str, Any]) -> list[str]:
    """Listen on all TCP ports until this process ends; nobody is answered, as no reactor runs.  So
    two options that name one port are found too.

    UNIX sockets are left alone: to listen on one makes a file.

    :return: why, for each on which a server could not listen.
    """
    modern = "--listen" if options["listen"] else "--port"
    groups = (
        (modern, options["endpoints"]),
        ("--listen-v1", options["endpoints_v1"]),
        ("--http", options["endpoints_http"]),
    )
    return [why for option, group in groups for why in _refused(option, group)]


def _refused(option: str, group: Iterable[IStreamServerEndpoint]) -> Iterator[str]:
    for endpoint in group:
        # Of the endpoints those of TCP and TLS have one.
        if not isinstance(getattr(endpoint, "_port", None), int):
            continue
        opening: Deferred[IListeningPort] = maybeDeferred(endpoint.listen, Factory())
        outcome: list[Any] = []
        opening.addBoth(outcome.append)
        if outcome and isinstance(outcome[0], Failure):
            problem = outcome[0].value
            assert problem is not None
            yield why_not(problem, option)
