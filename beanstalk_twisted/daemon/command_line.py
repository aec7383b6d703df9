"""The command line of the server: what is asked for, checked before anything is opened."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn, cast

from twisted.internet import endpoints
from twisted.internet.abstract import isIPv6Address
from twisted.internet.interfaces import IReactorUNIX
from twisted.python import usage

from beanstalk_twisted.binlog.compaction import MAX_FACTOR, MIN_FACTOR, Policy
from beanstalk_twisted.binlog.segments.format import (
    MAX_BODY_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from beanstalk_twisted.daemon.log_lines import FORMATS, LEVELS
from beanstalk_twisted.daemon.memory import memory_share
from beanstalk_twisted.daemon.options import (
    ADDRESS,
    MAX_FSYNC_MS,
    MAX_METRICS_TUBES,
    OPTIONS,
    PORT,
    check_milliseconds,
    check_port,
    decimal,
    endpoint_problem,
    explained,
    http_endpoint,
    port_number,
    whole_number,
)
from beanstalk_twisted.daemon.removed_options import removed_among
from beanstalk_twisted.daemon.replication_options import (
    MAX_LEASE_S,
    MAX_TIMEOUT_S,
    MIN_LEASE_S,
    MIN_TIMEOUT_S,
    REPLICATION_NUMBERS,
    Replication,
    check_url,
    temporary_log,
)
from beanstalk_twisted.daemon.sockets import (
    NAME,
    NOT_PASSED,
    InheritedSocket,
    UnixListener,
    endpoints_named,
    inherited,
)
from beanstalk_twisted.object_storage.store import BadUrl, is_url, local_path, parse_url
from beanstalk_twisted.server.headroom import NO_LIMIT
from beanstalk_twisted.server.settings import (
    LEAST_LOG_SEGMENTS,
    MAX_MAX_CONNECTIONS,
    MAX_SLOW_MS,
    MAX_STALLED_S,
    MIN_SLOW_MS,
    Limits,
)
from beanstalk_twisted.storage.archiver import DEFAULT_AGE_S, MAX_AGE_S
from beanstalk_twisted.storage.fsync import ALWAYS, MAX_LIMIT_US, NEVER, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.storage.watchdog import MAX_LIMIT_S
from beanstalk_twisted.version import VERSION

BACKLOG: Final = 1024
"""Connections that the kernel may keep for us, as beanstalkd's."""

KNOCKED_AT: Final = ("tcp:", "tcp6:", "ssl:", "unix:")
"""Kinds of endpoints that take a ``backlog``; Twisted's own 50 makes others wait for a second."""

ENCRYPTED: Final = ("tls:", "mtls:")
"""Endpoints of ours; Twisted's own ``tls:`` does not ask for certificates, nor count failures."""

LOG_NUMBERS: Final = (
    "segment-size", "compaction-factor", "fsync-timeout", "fsync-inline", "max-log-bytes",
)  # fmt: skip
"""Numbers that have no effect without a log."""

GIVEN: Final = {
    **dict.fromkeys((
        "access", "binlog", "binlog-archive", "binlog-archive-age", "body-cache", "address", "port",
        "tubes", "user", "replicate",
    )),
    "verify-on-start": Verify.FULL.value,
    **{
        name: OPTIONS[name].default
        for name in (
            *LOG_NUMBERS, "max-job-size", "max-keys", "max-memory", "max-connections",
            "max-connections-per-address", "stalled-timeout", "slow-command", "metrics-tubes",
            *REPLICATION_NUMBERS,
        )
    },
}  # fmt: skip
"""Options with one value, and their defaults; None where it matters whether they were given."""

LOG_DEFAULTS: Final = ("text", "info")

MAX_BODY_CACHE: Final = 1 << 62
"""More bytes than any memory has."""

MAX_MAX_KEYS: Final = (1 << 32) - 1
"""More than any memory holds."""

HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
"""One that may stand in the header Host (RFC 9110), of a host in DNS or of a container."""

WRONG_USAGE: Final = 5
"""Exit code for wrong options, as beanstalkd's."""


class Options(usage.Options):
    """beanstalkd's options, and long names for all of them; `daemon.options` has their help.

    :cvar command: what was typed, before the options; ``launch`` what is to be typed for a server
        in the foreground.
    """

    command = "twistd beanstalk"
    launch = "twistd -n beanstalk"
    synopsis = "[options]"
    longdesc = "A durable work queue that speaks the beanstalkd protocol."

    optParameters = [
        [name, OPTIONS[name].letter or None, given, ""] for name, given in GIVEN.items()
    ]

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []
        self["listen_v1"] = []
        self["http"] = []
        self["http_hosts"] = []
        self["http_write"] = False
        self["fsync"] = ALWAYS
        self["verbosity"] = 0
        self["exits_when_fenced"] = None
        self["is_temporary"] = False
        self["log_format"], self["log_level"] = LOG_DEFAULTS
        self["warnings"] = []
        self._given: list[str] = []

    def opt_listen(self, endpoint: str) -> None:
        self["listen"].append(endpoint)

    def opt_listen_v1(self, endpoint: str) -> None:
        self["listen_v1"].append(endpoint)

    def opt_http(self, endpoint: str) -> None:
        self["http"].append(endpoint)

    def opt_http_host(self, name: str) -> None:
        if not HOST_NAME.fullmatch(name):
            raise usage.UsageError(f"--http-host needs a host name without a port, not {name!r}")
        self["http_hosts"].append(name.lower().rstrip("."))

    def opt_http_write(self) -> None:
        self["http_write"] = True

    def opt_fsync(self, when: str) -> None:
        self._given.append("--fsync")
        if when in ("always", "never"):
            self["fsync"] = ALWAYS if when == "always" else NEVER
        else:
            self["fsync"] = self._interval("--fsync", when, "always, never, or ")

    def opt_f(self, ms: str) -> None:
        self._given.append("-f")
        self["fsync"] = self._interval("-f", ms)

    def _interval(self, option: str, ms: str, others: str = "") -> FsyncPolicy:
        check_milliseconds(option, ms, others)
        return FsyncPolicy(self._in_range(option, ms, 0, MAX_FSYNC_MS) / 1000)

    def opt_F(self) -> None:
        self._given.append("-F")
        self["fsync"] = NEVER

    def opt_c(self) -> NoReturn:
        """Refuse -c and -n, an older beanstalkd's switches of compaction."""
        raise usage.UsageError("leave out -c and -n of beanstalkd: the log is always compacted")

    opt_n = opt_c

    def opt_on_fenced(self, what: str) -> None:
        self["exits_when_fenced"] = _one_of("--on-fenced", what, ("standby", "exit")) == "exit"

    def opt_log_format(self, name: str) -> None:
        self["log_format"] = _one_of("--log-format", name, FORMATS)

    def opt_log_level(self, level: str) -> None:
        self["log_level"] = _one_of("--log-level", level, LEVELS)

    def opt_verbose(self) -> None:
        self["verbosity"] += 1

    def opt_version(self) -> NoReturn:
        print(f"beanstalk-twisted {VERSION}")
        raise SystemExit(0)

    opt_V = opt_verbose
    opt_v = opt_version
    opt_h = usage.Options.opt_help

    def getUsage(self, width: int | None = None) -> str:
        columns = shutil.get_terminal_size().columns if width is None else width
        return (
            f"{self.longdesc}\n\n{explained(columns)}\n\n"
            f"Example:\n  {self.launch} --binlog /var/lib/bs --port 11301\n\n"
            "SIGTERM stops it in order, a second one at once;\n"
            "SIGUSR1 has new jobs refused; SIGHUP opens the log's file\n"
            "again and reads the files of --tubes, --access and TLS.\n"
        )

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Wrong options are one line and exit code 5; removed ones are a line each, all at once."""
        words = sys.argv[1:] if options is None else options
        try:
            super().parseOptions(words)
        except usage.UsageError as error:
            message = f"{' '.join(str(error).split())}; --help shows the options"
            for line in removed_among(words) or [message]:
                print(f"{self.command}: {line}", file=sys.stderr)
            raise SystemExit(WRONG_USAGE) from None

    def parseArgs(self, *words: str) -> None:
        if words:
            raise usage.UsageError(f"unexpected word: {words[0]!r}")

    def postOptions(self) -> None:
        self["max_job_bytes"] = self._limited("max-job-size", 0, MAX_BODY_BYTES)
        self["max_keys"] = self._limited("max-keys", 0, MAX_MAX_KEYS)
        self["max_memory"] = memory_share("--max-memory", self["max-memory"])
        self["body_cache_bytes"] = None
        if self["body-cache"] is not None:
            self["body_cache_bytes"] = self._limited("body-cache", 0, MAX_BODY_CACHE)
        self["verify"] = self._verify()
        self["segment_bytes"] = self._limited("segment-size", MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
        self["limits"] = self._limits()
        self["compaction"] = self._policy()
        self["fsync_timeout_s"] = self._limited("fsync-timeout", 0, MAX_LIMIT_S)
        self["fsync_inline_us"] = self._limited("fsync-inline", 0, MAX_LIMIT_US)
        if self["listen"] and not (self["address"] is self["port"] is None):
            raise usage.UsageError("--listen excludes --address (-l) and --port (-p)")
        self._check_replication()
        if self["binlog"] is not None:
            if not self["binlog"]:
                raise usage.UsageError("--binlog needs the name of a directory")
            self["binlog"] = os.path.abspath(self["binlog"])
            inline = "fsync-inline"
            if self[inline] != self.defaults[inline] and not self["fsync"].is_always:
                self["warnings"].append(
                    f"{self['fsync'].in_words}: no reply waits for a sync, and this has no effect: "
                    f"--{inline}"
                )
        else:
            self._warn_of_idle()
        self._check_archive()
        for name in ("access", "tubes"):
            if self[name] is not None:
                if not self[name]:
                    raise usage.UsageError(f"--{name} needs the name of a file")
                self[name] = os.path.abspath(self[name])
        self["slow_ms"] = self._limited("slow-command", 0, MAX_SLOW_MS)
        if 0 < self["slow_ms"] < MIN_SLOW_MS:
            self["slow_ms"] = self._limited("slow-command", MIN_SLOW_MS, MAX_SLOW_MS)
        passed = self._passed()
        modern = self["listen"] or ([] if passed else [self._address()])
        if self["replication"] is not None and passed:
            raise usage.UsageError(
                "--replicate and sockets of the service manager exclude each other: nobody may "
                "reach a standby; name an address by --listen"
            )
        self["endpoints"] = passed + [_endpoint("--listen", text) for text in modern]
        self["endpoints_v1"] = [_endpoint("--listen-v1", text) for text in self["listen_v1"]]
        self["endpoints_http"] = [_endpoint("--http", http_endpoint(text)) for text in self["http"]]
        self["metrics_tubes"] = self._limited("metrics-tubes", 0, MAX_METRICS_TUBES)
        if (self["http_hosts"] or self["http_write"]) and not self["http"]:
            raise usage.UsageError("--http-host and --http-write need --http, where to listen")
        self["uid_gid"] = _look_up(self["user"]) if self["user"] is not None else None

    def _limits(self) -> Limits:
        return Limits(
            connections=self._limited("max-connections", 0, MAX_MAX_CONNECTIONS),
            connections_per_address=self._limited(
                "max-connections-per-address", 0, MAX_MAX_CONNECTIONS
            ),
            log_bytes=self._log_bytes(),
            stalled_s=self._limited("stalled-timeout", 0, MAX_STALLED_S),
        )

    def _log_bytes(self) -> int:
        most = self._limited("max-log-bytes", 0, NO_LIMIT)
        least = LEAST_LOG_SEGMENTS * self["segment_bytes"]
        return self._limited("max-log-bytes", least, NO_LIMIT) if 0 < most < least else most

    def _passed(self) -> list[Any]:
        """Endpoints that the service manager has passed; none if another address was named."""
        if self["listen"] or not (self["address"] is self["port"] is None):
            return []
        from twisted.internet import reactor

        sockets = inherited(reactor, os.environ)
        try:
            passed = endpoints_named(reactor, sockets, NAME)
        except ValueError as problem:
            raise usage.UsageError(str(problem)) from None
        if sockets and not passed:
            names = ", ".join(dict.fromkeys(each.name for each in sockets))
            raise usage.UsageError(
                f"sockets were passed, and none is called {NAME}, only {names}: set "
                f"FileDescriptorName={NAME} in the socket unit, or name one by --listen "
                f"systemd:domain=INET:name=NAME, or another address"
            )
        return passed

    def _policy(self) -> Policy:
        text = self["compaction-factor"]
        factor = decimal("--compaction-factor", text)
        limited = min(max(factor, MIN_FACTOR), MAX_FACTOR)
        if limited != factor:
            self["warnings"].append(
                f"--compaction-factor {text} is out of range; {limited} is used"
            )
        return Policy(limited)

    def _warn_of_idle(self) -> None:
        names = (*LOG_NUMBERS, "body-cache", "verify-on-start")
        idle = [f"--{name}" for name in names if self[name] != self.defaults[name]]
        if words := ", ".join(dict.fromkeys([*self._given, *idle])):
            self["warnings"].append(
                f"without --binlog (-b) nothing is kept on disk, and this has no effect: {words}"
            )

    def _verify(self) -> Verify:
        text = self["verify-on-start"]
        try:
            verify = Verify(text)
        except ValueError:
            raise usage.UsageError(
                f"--verify-on-start is {' or '.join(Verify)}, not {text!r}"
            ) from None
        if verify is Verify.RECORDS and self["binlog"] is not None and self._keeps_bodies:
            self["warnings"].append(
                "all bodies are read at the start, so --verify-on-start records has no effect: "
                f"{self._keeps_bodies}"
            )
        return verify

    @property
    def _keeps_bodies(self) -> str:
        """Why all bodies are in memory when a server starts; empty if they are not."""
        if self["replicate"] is not None:
            return "with --replicate a standby holds all of them"
        if self["body_cache_bytes"] is None and self["max_memory"].value == 0:
            return "--max-memory is 0, and there is no --body-cache"
        return ""

    def _check_replication(self) -> None:
        """Without ``--replicate`` nothing of it is imported."""
        self["replication"] = None
        if self["replicate"] is None:
            given = [f"--{name}" for name in REPLICATION_NUMBERS if self[name] != GIVEN[name]]
            given += ["--on-fenced"] if self["exits_when_fenced"] is not None else []
            if given:
                raise usage.UsageError(f"{', '.join(given)} needs --replicate")
            return
        check_url(self["replicate"])
        from beanstalk_twisted.replication.stream.addresses import credential_warnings

        self["warnings"] += credential_warnings(os.environ)
        if self["binlog"] is None:
            self["binlog"] = temporary_log()
            self["warnings"].append(
                f"--replicate without --binlog (-b): the local log is in {self['binlog']}, which "
                f"is removed at the end; what is kept is the stream"
            )
            self["is_temporary"] = True
        elif not self["fsync"].is_always:
            self["warnings"].append(
                f"{self['fsync'].in_words}, and --replicate: a reply waits for the stream, not for "
                f"this server's disk; what a loss of power takes from that is read from the stream"
            )
        self["replication"] = Replication(
            self["replicate"], self._limited("lease-seconds", MIN_LEASE_S, MAX_LEASE_S),
            self._limited("replicate-timeout", MIN_TIMEOUT_S, MAX_TIMEOUT_S),
            bool(self["exits_when_fenced"]), self["is_temporary"],
        )  # fmt: skip

    def _check_archive(self) -> None:
        archive, age = self["binlog-archive"], self["binlog-archive-age"]
        if archive is not None:
            if not archive:
                raise usage.UsageError("--binlog-archive needs the name of a directory")
            if self["binlog"] is None:
                raise usage.UsageError("--binlog-archive needs --binlog (-b), a log to archive")
            self["binlog-archive"] = _archive_place(archive)
        elif age is not None:
            raise usage.UsageError("--binlog-archive-age needs --binlog-archive")
        self["binlog-archive-age"] = str(DEFAULT_AGE_S) if age is None else age
        self["archive_age_s"] = self._limited("binlog-archive-age", 0, MAX_AGE_S)

    def _limited(self, option: str, low: int, high: int) -> int:
        return self._in_range(f"--{option}", self[option], low, high)

    def _in_range(self, option: str, text: str, low: int, high: int) -> int:
        """Read a number; one out of range is limited, with a warning, as beanstalkd's ``-z``."""
        value = whole_number(option, text)
        limited = min(max(value, low), high)
        if limited != value:
            self["warnings"].append(f"{option} {value} is out of range; {limited} is used")
        return limited

    def _address(self) -> str:
        address = ADDRESS if self["address"] is None else str(self["address"])
        if not address:
            raise usage.UsageError("--address needs an address")
        if address.startswith("unix:"):
            return f"unix:address={endpoints.quoteStringArgument(address[5:])}"
        kind = "tcp6" if isIPv6Address(address) else "tcp"
        interface = endpoints.quoteStringArgument(address)
        port = port_number(PORT if self["port"] is None else self["port"])
        return f"{kind}:{port}:interface={interface}"


def _one_of(option: str, given: str, values: Iterable[str]) -> str:
    *others, last = values
    if given not in (*others, last):
        raise usage.UsageError(f"{option} is {', '.join(others)} or {last}, not {given!r}")
    return given


def _endpoint(option: str, text: str) -> Any:
    from twisted.internet import reactor

    is_unix = text.lower().startswith("unix:")
    listener: Any = UnixListener(cast(IReactorUNIX, reactor)) if is_unix else reactor
    try:
        if text.startswith(ENCRYPTED):
            from beanstalk_twisted.daemon.tls_endpoint import TlsEndpoint

            endpoint: Any = TlsEndpoint(reactor, option, text, BACKLOG)
        else:
            lacks_backlog = text.startswith(KNOCKED_AT) and ":backlog=" not in text
            whole = f"{text}:backlog={BACKLOG}" if lacks_backlog else text
            endpoint = endpoints.serverFromString(listener, whole)
        check_port(endpoint)
        if isinstance(endpoint, endpoints.AdoptedStreamServerEndpoint):
            return InheritedSocket(reactor, endpoint.fileno)
        return endpoint
    except Exception as error:
        # Endpoint parsers are plugins: they may raise anything.
        is_missing = isinstance(error, LookupError) and text.startswith("systemd:")
        why = NOT_PASSED if is_missing else endpoint_problem(error)
        raise usage.UsageError(f"{option} {text}: {why}") from None


def _archive_place(given: str) -> str:
    """The path of a directory, absolute, since twistd changes to another; or a URL."""
    if not is_url(given):
        return os.path.abspath(local_path(given))
    try:
        parse_url(given)
    except BadUrl as problem:
        # What was given may have a secret in it.
        raise usage.UsageError(f"--binlog-archive, a URL: {problem}") from problem
    return given


def _look_up(user: str) -> tuple[int, int]:
    """Differs from beanstalkd: the launcher gives up the supplementary groups of whoever starts it.

    :return: the ids of a user and of its group.
    """
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise usage.UsageError(f"there is no user called {user!r}") from None
    if os.geteuid() != 0:
        raise usage.UsageError("--user is for root only; nobody else can become another user")
    return entry.pw_uid, entry.pw_gid
