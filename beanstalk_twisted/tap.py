"""The server: ``twistd beanstalk``, the service that its options make, and ``beanstalk-twisted``,
which runs that in the foreground.  Files and ports are opened when the service starts.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.application.service import IService, ServiceMaker
from twisted.internet.base import ReactorBase
from twisted.logger import ILogObserver, Logger
from twisted.python import usage
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from beanstalk_twisted.binlog.archive import Archive
from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.daemon.command_line import parse
from beanstalk_twisted.daemon.early_signals import let_through
from beanstalk_twisted.daemon.files import AccessFile, TubesFile
from beanstalk_twisted.daemon.listening import ListeningService, Ports, tls_endpoints
from beanstalk_twisted.daemon.log_lines import LOG_DEFAULTS, ServerLog
from beanstalk_twisted.daemon.memory import machine_bytes
from beanstalk_twisted.daemon.process import (
    Hangup,
    Launcher,
    Signalled,
    StopTwice,
    asked_for,
    drain_on_signal,
    ignore_others,
    reload_on_signal,
)
from beanstalk_twisted.programs import INTERRUPTS, outlive_readers
from beanstalk_twisted.server.access_control import HashingThreads
from beanstalk_twisted.server.connections.accepting import AcceptErrors
from beanstalk_twisted.server.connections.epoll_reader import BUSY_POLL_US
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import DEFAULT_MAX_CONNECTIONS, Limits, Settings
from beanstalk_twisted.storage.archiver import Archiver, archive_at
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import IoThread
from beanstalk_twisted.storage.opening import refuse_beanstalkd

RESERVED_DESCRIPTORS: Final = 32
"""File descriptors kept for the log, ports, reactor and logger: they need about a dozen."""

BODY_CACHE_SHARE: Final = 4
"""One part in so many of the memory of jobs is for bodies, unless told otherwise: the rest is for
the jobs themselves, of which each takes 110 bytes or more.
"""

MAX_ADDRESSES: Final = 8
"""Of a server that others hear of: what it tells of itself is short."""

EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104
"""Of an endpoint: it listens on all addresses."""

HAD_TERMINAL: Final = "had-terminal"
"""Among ``twistd``'s options: whether the process began in a terminal, where that was seen."""


class Options(usage.Options):
    """What ``twistd`` asks for the options after ``beanstalk``: it hands them to our command.

    :cvar command: what was typed before them.
    """

    command = "twistd beanstalk"

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        self.update(parse(sys.argv[1:] if options is None else options, self.command))


def makeService(options: Options, reactor: Any = None) -> IService:
    """Build and wire the server; nothing is opened before it starts."""
    if reactor is None:
        from twisted.internet import reactor
    told: dict[str, Any] = {} if options.parent is None else options.parent
    launcher = Launcher(told)
    _warn_of_descriptors(options)
    memory_bytes = options["memory_bytes"].of(machine_bytes())
    limits = Limits(**_fields(Limits, options))._replace(memory_bytes=memory_bytes)
    settings = Settings(**_fields(Settings, options))._replace(
        pidfile=launcher.pidfile, max_connections=_max_connections(options), limits=limits,
        body_cache=_body_cache(options, memory_bytes), busy_poll_us=_busy_poll_us(_processors()),
    )  # fmt: skip
    if options["uid_gid"] is not None:
        told["uid"], told["gid"] = options["uid_gid"]
    accept_errors = AcceptErrors(reactor)
    log = ServerLog(told, options["log_format"], options["log_level"])
    if log.is_elsewhere and (options["log_format"], options["log_level"]) != LOG_DEFAULTS:
        options["warnings"].append(
            "twistd writes the log itself, so --log-format and --log-level have no effect"
        )
    hashing = HashingThreads(reactor)

    def build() -> Parts:
        return _build(options, settings, reactor, hashing)

    def prepare(signalled: Signalled, reload: Callable[[], None]) -> None:
        """Done once in a process."""
        _count_monotonically(reactor)
        drain_on_signal(signalled, reactor)
        reactor.callWhenRunning(StopTwice(signalled, reactor).take_over)
        reactor.addSystemEventTrigger("before", "shutdown", accept_errors.stop)
        hangup = Hangup(was_there=told.get(HAD_TERMINAL))
        reload_on_signal(signalled, reactor, [log.reopen, reload], hangup)
        ignore_others()
        let_through()
        own_log = Logger("beanstalk_twisted.tap")
        for warning in options["warnings"]:
            own_log.warn("{warning}", event="option", warning=warning)
        if os.geteuid() == 0 and options["user"] is None:
            own_log.warn("running as root; --user NAME runs as somebody else", event="root")

    launcher.keep_terminal()
    observer = partial(log.observer, [accept_errors])
    if options["replication"] is not None:
        return _replicated(options, reactor, build, prepare, launcher, observer)
    parts = build()

    def prepare_all() -> None:
        prepare(lambda: parts.service, parts.reload)
        parts.prepare()

    return ListeningService(
        parts.service, options["endpoints"], reactor, prepare_all, options["endpoints_v1"],
        launcher, observer, _port_option(options), asked_for(os.environ),
        _http_ports(options, parts.site),
    )  # fmt: skip


def _fields(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say of the fields of a tuple."""
    return {name: options[name] for name in kind._fields if name in options}


class Parts(NamedTuple):
    """What serves, for as long as the process or for one term, and what it needs of the system.

    :ivar files: those that are read at the start, and again when it is asked for.
    :ivar site: what serves HTTP; None without ``--http``.
    """

    service: BeanstalkService
    directory: RealDirectory | None
    archive: Archive | None
    files: Sequence[Any]
    site: Any

    def prepare(self) -> None:
        """Read the files, lock the directory.

        :raise BinlogError: the directory, or the archive, cannot be used.
        :raise Refused: a file cannot be.
        """
        for file in self.files:
            file.load()
        if self.archive is not None:
            self.archive.refuse_unusable()
        if self.directory is not None:
            _lock(self.directory, self.service)

    def reload(self) -> None:
        for file in self.files:
            file.reload()


def _build(options: Options, settings: Settings, reactor: Any, hashing: HashingThreads) -> Parts:
    directory = RealDirectory(options["binlog"]) if options["binlog"] else None
    archive = archive_at(options["archive"]) if options["archive"] else None
    io = partial(IoThread, reactor)
    age_s = options["archive_age_s"]
    archiver = partial(Archiver, archive, age_s, io) if archive is not None else None
    service = BeanstalkService(settings, reactor, LogClock(), directory, io, archiver)
    files: list[Any] = []
    if options["tubes"]:
        files.append(TubesFile(options["tubes"], service))
    if options["access"]:
        files.append(AccessFile(options["access"], service, hashing))
    for each in tls_endpoints(options):
        each.tell(service.handshakes)
        files.append(each)
    site = None
    if options["http"]:
        # Without it nothing of twisted.web is imported.
        from beanstalk_twisted.web.serving import make_site
        from beanstalk_twisted.web.site import HttpSettings

        hosts = frozenset(options["http_hosts"])
        http = HttpSettings(hosts, options["http_write"], options["metrics_tubes"])
        site = make_site(service, http, reactor)
    return Parts(service, directory, archive, files, site)


def _lock(directory: RealDirectory, service: BeanstalkService) -> None:
    directory.make()
    refuse_beanstalkd(directory)
    where, when = socket.gethostname(), time.strftime("%FT%T%z")
    directory.lock(f"process {os.getpid()} on {where} since {when}\n")
    if directory.is_open_to_others():
        service.log.warn(
            "binlog {path}: others than its owner may write in this directory, and so "
            "change or remove the log. Run chmod go-w {path}",
            event="directory-open",
            path=directory.path,
        )


def _replicated(
    options: Options, reactor: Any, build: Callable[[], Parts],
    prepare: Callable[[Signalled, Callable[[], None]], None], launcher: Launcher,
    observer: Callable[[], ILogObserver | None],
) -> IService:  # fmt: skip
    """:return: a server that is a standby or the active one; without ``--replicate`` nothing of
    that is imported.
    """
    from beanstalk_twisted.daemon.replicated import ReplicatedService
    from beanstalk_twisted.daemon.replicated_ending import Term
    from beanstalk_twisted.daemon.replicated_state import OPEN_S
    from beanstalk_twisted.replication.membership import Identity
    from beanstalk_twisted.replication.stream.addresses import stream_at

    def build_term() -> Term:
        parts = build()
        assert parts.directory is not None
        listening = ListeningService(
            parts.service, options["endpoints"], reactor, endpoints_v1=options["endpoints_v1"],
            option=_port_option(options),
        )  # fmt: skip
        return Term(
            parts.service, parts.directory, listening, parts.prepare, parts.reload, parts.site
        )

    served = (*options["endpoints"], *options["endpoints_http"])
    who = Identity(_name(options["endpoints"]), os.urandom(8).hex(), _addresses(served))
    service = ReplicatedService(
        build_term, partial(stream_at, options["replicate"], OPEN_S), options["replication"], who,
        reactor, lease_clock(), partial(IoThread, reactor), prepare, launcher, observer,
        asked_for(os.environ),
    )  # fmt: skip
    if options["http"]:
        from beanstalk_twisted.web.site import PresentSite

        site = PresentSite()
        ports = _http_ports(options, site)
        assert ports is not None
        service.serve_http(ports, site)
    return service


def _name(endpoints: Sequence[Any]) -> str:
    """What a server is called: its host and port, or, if no port is known, its process."""
    numbers = [getattr(each, "_port", 0) for each in endpoints]
    number = next((each for each in numbers if isinstance(each, int) and each), os.getpid())
    return f"{socket.gethostname()}:{number}"


def _addresses(endpoints: Sequence[Any]) -> tuple[str, ...]:
    """Where a server is found, besides by its name; of what listens everywhere nothing is known."""
    found = [(getattr(each, "_interface", ""), getattr(each, "_port", 0)) for each in endpoints]
    return tuple(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in found[:MAX_ADDRESSES]
        if host not in EVERYWHERE and port
    )


def lease_clock() -> Callable[[], int]:
    """:return: a monotonic clock, ns, that counts while the machine sleeps, where there is one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns if boot is None else partial(time.clock_gettime_ns, boot)


def _port_option(options: Options) -> str:
    return "--listen" if options["listen"] else "--port"


def _http_ports(options: Options, site: Any) -> Ports | None:
    if not options["http"]:
        return None
    may_write = "changes allowed" if options["http_write"] else "read-only"
    return Ports(options["endpoints_http"], site, "--http", f", HTTP, {may_write}")


def _body_cache(options: Options, memory_bytes: int) -> int | None:
    """What bodies may take of memory; None for all: without a log, or a limit of memory."""
    if options["body_cache"] is not None:
        return int(options["body_cache"])
    if not (options["binlog"] and memory_bytes):
        return None
    return memory_bytes // BODY_CACHE_SHARE


def _max_connections(options: Options) -> int:
    """As many as there are file descriptors, but for those that the server itself needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = RESERVED_DESCRIPTORS
    if options["http"]:
        from beanstalk_twisted.web.channel import MAX_CONNECTIONS, MAX_FOR_HEALTH

        reserved += MAX_CONNECTIONS + MAX_FOR_HEALTH
    return max(1, soft - reserved) if soft != resource.RLIM_INFINITY else 1 << 20


def _warn_of_descriptors(options: Options) -> None:
    """Warn of more connections, asked for by name, than there are file descriptors."""
    asked, most = options["connections"], _max_connections(options)
    if asked != DEFAULT_MAX_CONNECTIONS and asked > most:
        options["warnings"].append(
            f"--max-connections {asked}: no more than {most} connections fit into the limit of "
            f"file descriptors; raise 'ulimit -n' or LimitNOFILE of the unit"
        )


def _busy_poll_us(processors: int) -> int:
    """Where there is one processor the client needs it to send its next command."""
    return BUSY_POLL_US if processors > 1 else 0


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count_monotonically(reactor: object) -> None:
    """Use the monotonic clock for timers: Twisted's wall clock, set back by an hour, would delay
    all of them by an hour.  It can be exchanged before the first call is pending.
    """
    if isinstance(reactor, ReactorBase) and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


MAKER = ServiceMaker(
    "Beanstalk",
    "beanstalk_twisted.tap",
    "A durable work queue that speaks the beanstalkd protocol.",
    "beanstalk",
)


class CommandOptions(Options):
    """The same after ``beanstalk-twisted``."""

    command = "beanstalk-twisted"


class LaunchOptions(ServerOptions):
    """Those of ``twistd``, which knows of no service but ours."""

    @property
    def subCommands(self) -> Iterator[tuple[str, None, Callable[[], usage.Options], str]]:
        """Name our service; ``runApp`` then finds how to make it in ``loadedPlugins``."""
        self.loadedPlugins = {MAKER.tapname: MAKER}
        yield (MAKER.tapname, None, CommandOptions, MAKER.description)


def main(argv: Sequence[str] | None = None, had_terminal: bool | None = None) -> None:
    """Run the server until it is told to stop.

    :param argv: the options, without the command's name; those of the process if None.
    :param had_terminal: whether the process began in a terminal; None: it is seen later.
    """
    typed = sys.argv[1:] if argv is None else argv
    options = LaunchOptions()
    options.parseOptions(["--nodaemon", "--pidfile=", MAKER.tapname, *typed])
    options[HAD_TERMINAL] = had_terminal
    outlive_readers()
    INTERRUPTS.leave_to_reactor()
    runApp(options)
