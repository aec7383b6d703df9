"""The command line of the server: what is asked for, checked before anything is opened."""

import os
import re
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import click
from twisted.internet.abstract import isIPv6Address
from twisted.internet.endpoints import (
    AdoptedStreamServerEndpoint,
    quoteStringArgument,
    serverFromString,
)
from twisted.internet.interfaces import IReactorUNIX

from beanstalk_twisted.daemon.options import (
    ADDRESS,
    COMMAND,
    OPTIONS,
    clamped,
    is_digits,
    whole_number,
)
from beanstalk_twisted.daemon.removed_options import removed_among
from beanstalk_twisted.daemon.replication_options import Replication, temporary_log
from beanstalk_twisted.daemon.sockets import (
    MAX_PORT,
    NAME,
    NOT_PASSED,
    InheritedSocket,
    UnixListener,
    endpoints_named,
    inherited,
)
from beanstalk_twisted.server.headroom import NO_LIMIT
from beanstalk_twisted.server.settings import LEAST_LOG_SEGMENTS
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER
from beanstalk_twisted.storage.opening import Verify

WRONG_USAGE: Final = 5
"""Exit code for wrong options, as beanstalkd's."""

BACKLOG: Final = 1024
"""Connections that the kernel may keep for us, as beanstalkd's."""

KNOCKED_AT: Final = ("tcp:", "tcp6:", "ssl:", "unix:")
"""Kinds of endpoints that take a ``backlog``; Twisted's own 50 makes others wait for a second."""

ENCRYPTED: Final = ("tls:", "mtls:")
"""Endpoints of ours; Twisted's own ``tls:`` does not ask for certificates, nor count failures."""

EXAMPLES: Final = "tcp:11300:interface=127.0.0.1 or unix:/run/bs.sock"


def parse(words: Sequence[str], command: str = "twistd beanstalk") -> dict[str, Any]:
    """Wrong options are one line and exit code 5; removed ones are a line each, all at once.

    :param command: what was typed, before the options.
    :return: values of the options and what they mean together, with ``warnings``.
    """
    warnings: list[str] = []
    try:
        context = COMMAND.make_context(command, [*words], obj=warnings)
        if context.args:
            raise click.UsageError(f"unexpected word: {context.args[0]!r}")
        with context:
            return check(context.params, context.meta["given"], warnings)
    except click.exceptions.Exit as end:
        raise SystemExit(end.exit_code) from None
    except click.UsageError as error:
        _complain(command, words, error)
        raise SystemExit(WRONG_USAGE) from None


def _complain(command: str, words: Sequence[str], error: click.UsageError) -> None:
    message = f"{' '.join(_why(error).split())}; --help shows the options"
    for line in removed_among(words) or [message]:
        print(f"{command}: {line}", file=sys.stderr)


def _why(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        names = [each.opts[-1] for each in OPTIONS] if len(name) > len("-x") else []
        full = " or ".join(each for each in names if each.startswith(name))
        return f"option {name} not recognized{full and f', write it in full: {full}'}"
    if isinstance(error, click.BadOptionUsage):
        name = error.option_name
        is_flag = any(name in each.opts and not each.metavar for each in OPTIONS)
        return f"option {name} {'must not have an' if is_flag else 'requires'} argument"
    return error.message


def check(options: dict[str, Any], given: Sequence[str], warnings: list[str]) -> dict[str, Any]:
    """Check what options mean together.

    :param given: names of the options in the order in which they were given.
    """

    def idle_without(name: str) -> list[str]:
        """Options that need another one and are not as they would be without being given."""
        rows = {each.name: each for each in OPTIONS if each.needs == name}
        needing = [rows[field] for field in dict.fromkeys(given) if field in rows]
        return [each.opts[-1] for each in needing if options[each.name] != each.default]

    has_log = not (options["binlog"] is options["replicate"] is None)
    idle = idle_without("binlog")
    options["warnings"] = warnings
    options["fsync"] = _fsync(options, given)
    least = LEAST_LOG_SEGMENTS * options["segment_bytes"]
    if most := options["log_bytes"]:
        options["log_bytes"] = clamped("--max-log-bytes", most, least, NO_LIMIT, most)
    is_placed = "address" in given or "port" in given
    if options["listen"] and is_placed:
        raise click.UsageError("--listen excludes --address (-l) and --port (-p)")
    needing = idle_without("replicate")
    if needing and options["replicate"] is None:
        raise click.UsageError(f"{', '.join(needing)} needs --replicate")
    if options["archive"] is None and "archive_age_s" in given:
        raise click.UsageError("--binlog-archive-age needs --binlog-archive")
    if options["archive"] is not None and not has_log:
        raise click.UsageError("--binlog-archive needs --binlog (-b), a log to archive")
    if (options["http_hosts"] or options["http_write"]) and not options["http"]:
        raise click.UsageError("--http-host and --http-write need --http, where to listen")
    options["uid_gid"] = _look_up(options["user"]) if options["user"] is not None else None

    fsync = options["fsync"]
    if not has_log and idle:
        warnings.append(
            "without --binlog (-b) nothing is kept on disk, and this has no effect: "
            f"{', '.join(idle)}"
        )
    elif not fsync.is_always and "--fsync-inline" in idle:
        warnings.append(
            f"{fsync.in_words}: no reply waits for a sync, and this has no effect: --fsync-inline"
        )
    keeps_bodies = _keeps_bodies(options)
    if options["verify"] is Verify.RECORDS and options["binlog"] is not None and keeps_bodies:
        warnings.append(
            "all bodies are read at the start, so --verify-on-start records has no effect: "
            f"{keeps_bodies}"
        )
    options["replication"] = None if options["replicate"] is None else _replication(options)
    passed = [] if options["listen"] or is_placed else _passed()
    if passed and options["replication"] is not None:
        raise click.UsageError(
            "--replicate and sockets of the service manager exclude each other: nobody may "
            "reach a standby; name an address by --listen"
        )
    places = options["listen"] or ([] if passed else [_place(options["address"], options["port"])])
    options["endpoints"] = passed + [_endpoint("--listen", each) for each in places]
    options["endpoints_v1"] = [_endpoint("--listen-v1", each) for each in options["listen_v1"]]
    options["endpoints_http"] = [_http_endpoint(each) for each in options["http"]]
    return options


def _fsync(options: dict[str, Any], given: Sequence[str]) -> Any:
    """The last of ``--fsync``, ``-f`` and ``-F`` wins."""
    names = [name for name in given if name in ("fsync", "f", "F")]
    if not names:
        return ALWAYS
    return NEVER if names[-1] == "F" else options[names[-1]][-1]


def _keeps_bodies(options: dict[str, Any]) -> str:
    """Why all bodies are in memory when a server starts; empty if they are not."""
    if options["replicate"] is not None:
        return "with --replicate a standby holds all of them"
    if options["body_cache"] is None and options["memory_bytes"].value == 0:
        return "--max-memory is 0, and there is no --body-cache"
    return ""


def _replication(options: dict[str, Any]) -> Replication:
    """Without ``--replicate`` nothing of it is imported."""
    from beanstalk_twisted.replication.stream.addresses import credential_warnings

    warnings, is_temporary = options["warnings"], options["binlog"] is None
    warnings += credential_warnings(os.environ)
    if is_temporary:
        options["binlog"] = temporary_log()
        warnings.append(
            f"--replicate without --binlog (-b): the local log is in {options['binlog']}, which is "
            f"removed at the end; what is kept is the stream"
        )
    elif not options["fsync"].is_always:
        warnings.append(
            f"{options['fsync'].in_words}, and --replicate: a reply waits for the stream, not for "
            f"this server's disk; what a loss of power takes from that is read from the stream"
        )
    return Replication(
        options["replicate"], options["lease_s"], options["timeout_s"],
        bool(options["exits_when_fenced"]), is_temporary,
    )  # fmt: skip


def _passed() -> list[Any]:
    """Endpoints that the service manager has passed."""
    from twisted.internet import reactor

    sockets = inherited(reactor, os.environ)
    try:
        passed = endpoints_named(reactor, sockets, NAME)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    if sockets and not passed:
        names = ", ".join(dict.fromkeys(each.name for each in sockets))
        raise click.UsageError(
            f"sockets were passed, and none is called {NAME}, only {names}: set "
            f"FileDescriptorName={NAME} in the socket unit, or name one by --listen "
            f"systemd:domain=INET:name=NAME, or another address"
        )
    return passed


def _place(address: str, port: str) -> str:
    """The endpoint of ``--address`` and ``--port``."""
    if address.startswith("unix:"):
        if not address[5:]:
            raise click.UsageError("--address (-l) unix: needs a path, such as unix:/run/bs.sock")
        return f"unix:address={quoteStringArgument(address[5:])}"
    kind = "tcp6" if isIPv6Address(address) else "tcp"
    return f"{kind}:{_port(port)}:interface={quoteStringArgument(address)}"


def _port(text: str) -> int:
    """Read a number or a service's name.  An empty name takes a free port, as for beanstalkd."""
    if not text:
        return 0
    if not is_digits(text):
        try:
            return socket.getservbyname(text, "tcp")
        except (OSError, UnicodeError):
            raise _wrong_port(f"there is no service called {text!r}") from None
    number = whole_number("--port (-p)", text)
    if number > MAX_PORT:
        raise _wrong_port(f"port {number} is larger")
    return number


def _wrong_port(why: str) -> click.UsageError:
    return click.UsageError(
        f"--port (-p) needs a number from 0 to {MAX_PORT} or the name of a service: {why}"
    )


def _endpoint(option: str, text: str) -> Any:
    """Read a Twisted endpoint, or one of ours."""
    from twisted.internet import reactor

    is_unix = text.lower().startswith("unix:")
    listener: Any = UnixListener(cast(IReactorUNIX, reactor)) if is_unix else reactor
    try:
        if text.startswith(ENCRYPTED):
            from beanstalk_twisted.daemon.tls_endpoint import TlsEndpoint

            found: Any = TlsEndpoint(reactor, option, text, BACKLOG)
        else:
            lacks_backlog = text.startswith(KNOCKED_AT) and ":backlog=" not in text
            found = serverFromString(
                listener, f"{text}:backlog={BACKLOG}" if lacks_backlog else text
            )
        number = getattr(found, "_port", 0)
        if isinstance(number, int) and not 0 <= number <= MAX_PORT:
            # Twisted finds it out when it listens, with a traceback.
            raise ValueError(f"port {number} is larger than {MAX_PORT}")
        if isinstance(found, AdoptedStreamServerEndpoint):
            return InheritedSocket(reactor, found.fileno)
        return found
    except Exception as error:
        # Endpoint parsers are plugins: they may raise anything.
        is_missing = isinstance(error, LookupError) and text.startswith("systemd:")
        why = NOT_PASSED if is_missing else _endpoint_problem(error)
        raise click.UsageError(f"{option} {text}: {why}") from None


_PROBLEMS: Final = (
    (re.compile(r"invalid literal for int\(\) with base \d+: (.*)$"), "{} is not a number"),
    (re.compile(r"unexpected keyword argument (.*)$"), "it takes no argument {}"),
    (re.compile(r"missing \d+ required positional arguments?: (.*)$"), "{} is missing"),
)
"""Python's own words, and ours."""


def _endpoint_problem(error: Exception) -> str:
    """Say what is wrong, and how endpoints are written."""
    said = str(error)
    if getattr(error, "is_whole", False):
        return said
    if isinstance(error, ImportError):
        return f"{said}; TLS needs more packages: pip install '.[tls]'"
    for pattern, words in _PROBLEMS:
        if found := pattern.search(said):
            said = words.format(found[1])
    return f"{said}; endpoints are written like {EXAMPLES}"


_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+):([0-9]+)")
_KINDS: Final = ("tcp", "tcp6", "ssl", "tls", "mtls", "unix", "systemd", "haproxy", "fd", "stdio")
_LOOPBACK: Final = {**dict.fromkeys(("tcp", "ssl", "tls", "mtls"), ADDRESS), "tcp6": "::1"}


def _http_endpoint(text: str) -> Any:
    """Read a port, a host with one, or an endpoint, on this machine alone unless it names another
    address.
    """
    kind = text.partition(":")[0]
    found = _HOST_AND_PORT.fullmatch(text)
    if is_digits(text):
        text = f"tcp:{text}:interface={ADDRESS}"
    elif found is not None and kind not in _KINDS:
        host = found[1].strip("[]")
        kind = "tcp6" if ":" in host else "tcp"
        text = f"{kind}:{found[2]}:interface={quoteStringArgument(host)}"
    elif kind in _LOOPBACK and ":interface=" not in text:
        text = f"{text}:interface={quoteStringArgument(_LOOPBACK[kind])}"
    return _endpoint("--http", text)


def _look_up(user: str) -> tuple[int, int]:
    """Differs from beanstalkd: the launcher gives up the supplementary groups of whoever starts it.

    :return: the ids of a user and of its group.
    """
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise click.UsageError(f"there is no user called {user!r}") from None
    if os.geteuid() != 0:
        raise click.UsageError("--user is for root only; nobody else can become another user")
    return entry.pw_uid, entry.pw_gid
