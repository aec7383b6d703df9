"""
``twistd beanstalk``: the service that its options make.

Files and ports are opened when the service starts.
"""

import os
import resource
import socket
import time
from functools import partial
from typing import Any, Final, cast

from twisted.application.service import IService
from twisted.internet.base import ReactorBase

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.daemon.access_file import AccessFile
from beanstalk_twisted.daemon.command_line import LOG_DEFAULTS
from beanstalk_twisted.daemon.command_line import Options as Options
from beanstalk_twisted.daemon.early_signals import let_through
from beanstalk_twisted.daemon.launching import Launcher
from beanstalk_twisted.daemon.listening import ListeningService, Ports
from beanstalk_twisted.daemon.log_lines import ServerLog
from beanstalk_twisted.daemon.machine_memory import machine_bytes
from beanstalk_twisted.daemon.options import tls_endpoints
from beanstalk_twisted.daemon.service_manager import asked_for
from beanstalk_twisted.daemon.signals import (
    Hangup,
    StopTwice,
    drain_on_signal,
    reload_on_signal,
)
from beanstalk_twisted.daemon.tubes_file import TubesFile
from beanstalk_twisted.server.accepting import AcceptErrors
from beanstalk_twisted.server.access.authentication import HashingThreads
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.archiver import Archiver
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import IoThread
from beanstalk_twisted.storage.object_archive import archive_at
from beanstalk_twisted.storage.opening import refuse_beanstalkd

RESERVED_DESCRIPTORS: Final = 32
"""File descriptors kept for the log, ports, reactor and logger: they need about a dozen."""

HAD_TERMINAL: Final = "had-terminal"
"""Among ``twistd``'s options: whether the process began in a terminal, where that was seen."""


def makeService(options: Options, reactor: Any = None) -> IService:
    """
    Build and wire the server; nothing is opened before it starts.
    """
    if reactor is None:
        from twisted.internet import reactor
    told: dict[str, Any] = {} if options.parent is None else options.parent
    launcher = Launcher(told)
    _warn_of_descriptors(options)
    settings = Settings(
        options["max_job_bytes"], options["segment_bytes"], options["fsync"],
        verbosity=options["verbosity"], pidfile=launcher.pidfile,
        may_rehome=options["may_rehome"], max_connections=_max_connections(options),
        compaction=options["compaction"],
        fsync_timeout_s=options["fsync_timeout_s"], has_hub=options["has_hub"],
        v1_ttr_s=options["v1_ttr_s"], fsync_inline_us=options["fsync_inline_us"],
        max_keys=options["max_keys"], slow_ms=options["slow_ms"],
        limits=options["limits"]._replace(memory_bytes=options["max_memory"].of(machine_bytes())),
    )  # fmt: skip
    if options["uid_gid"] is not None:
        told["uid"], told["gid"] = options["uid_gid"]
    directory = RealDirectory(options["binlog"]) if options["binlog"] else None
    archive = archive_at(options["binlog-archive"]) if options["binlog-archive"] else None

    def io() -> IoThread:
        return IoThread(reactor)

    age_s = options["archive_age_s"]
    archiver = partial(Archiver, archive, age_s, io) if archive is not None else None
    service = BeanstalkService(settings, reactor, LogClock(), directory, io, archiver)

    files: list[Any] = []
    if options["tubes"]:
        files.append(TubesFile(options["tubes"], service))
    if options["access"]:
        files.append(AccessFile(options["access"], service, HashingThreads(reactor)))

    for each in tls_endpoints(options):
        each.tell(service.handshakes)
        files.append(each)

    accept_errors = AcceptErrors(reactor)
    log = ServerLog(told, options["log_format"], options["log_level"])
    if log.is_elsewhere and (options["log_format"], options["log_level"]) != LOG_DEFAULTS:
        options["warnings"].append(
            "twistd writes the log itself, so --log-format and --log-level have no effect"
        )

    def prepare() -> None:
        _count_monotonically(reactor)
        drain_on_signal(service, reactor)
        reactor.callWhenRunning(StopTwice(service, reactor).take_over)
        reactor.addSystemEventTrigger("before", "shutdown", accept_errors.stop)
        for file in files:
            file.load()
        steps = [log.reopen, *[file.reload for file in files]]
        reload_on_signal(service, reactor, steps, Hangup(was_there=told.get(HAD_TERMINAL)))
        let_through()
        for warning in options["warnings"]:
            service.log.warn("{warning}", event="option", warning=warning)
        if os.geteuid() == 0 and options["user"] is None:
            service.log.warn("running as root; --user NAME runs as somebody else", event="root")
        if archive is not None:
            archive.refuse_unusable()
        if directory is not None:
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

    launcher.keep_terminal()
    return ListeningService(
        service, options["endpoints"], reactor, prepare, options["endpoints_v1"], launcher,
        partial(log.observer, [accept_errors]),
        "--listen" if options["listen"] else "--port", asked_for(os.environ),
        _http_ports(options, service, reactor),
    )  # fmt: skip


def _http_ports(options: Options, service: BeanstalkService, reactor: Any) -> Ports | None:
    """
    :return: those of ``--http``; without it nothing of twisted.web is imported.
    """
    if not options["http"]:
        return None
    from beanstalk_twisted.web.serving import make_site
    from beanstalk_twisted.web.site import HttpSettings

    settings = HttpSettings(
        frozenset(options["http_hosts"]), options["http_write"], options["metrics_tubes"],
        options["has_messagebird"], options["http-report"] or "",
    )  # fmt: skip
    may_write = "changes allowed" if options["http_write"] else "read-only"
    site = make_site(service, settings, reactor, partial(IoThread, reactor))
    return Ports(options["endpoints_http"], cast(Any, site), "--http", f", HTTP, {may_write}")


def _max_connections(options: Options) -> int:
    """
    As many as there are file descriptors, but for those that the server itself needs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = RESERVED_DESCRIPTORS
    if options["http"]:
        from beanstalk_twisted.web.site import MAX_CONNECTIONS

        reserved += MAX_CONNECTIONS
    return max(1, soft - reserved) if soft != resource.RLIM_INFINITY else 1 << 20


def _warn_of_descriptors(options: Options) -> None:
    """
    Warn of more connections, asked for by name, than there are file descriptors.
    """
    name, most = "max-connections", _max_connections(options)
    if options[name] != options.defaults[name] and options["limits"].connections > most:
        options["warnings"].append(
            f"--{name} {options[name]}: no more than {most} connections fit into the limit of "
            f"file descriptors; raise 'ulimit -n' or LimitNOFILE of the unit"
        )


def _count_monotonically(reactor: object) -> None:
    """
    Use the monotonic clock for timers: Twisted's wall clock, set back by an hour, would delay all
    of them by an hour.  It can be exchanged before the first call is pending.
    """
    if isinstance(reactor, ReactorBase) and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic
