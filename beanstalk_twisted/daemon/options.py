"""The server's options, grouped as its help and the README show them, and the reading of their
values.

What reads a value raises `usage.UsageError`, which names the option.
"""

import math
import re
import socket
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from twisted.internet.endpoints import quoteStringArgument
from twisted.python import usage

from beanstalk_twisted.binlog.compaction import Policy
from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES
from beanstalk_twisted.daemon.replication_options import DEFAULT_LEASE_S, DEFAULT_TIMEOUT_S
from beanstalk_twisted.daemon.sockets import MAX_PORT
from beanstalk_twisted.jobs.unique_keys import MAX_KEYS
from beanstalk_twisted.server.settings import (
    DEFAULT_MAX_CONNECTIONS,
    DEFAULT_SLOW_MS,
    DEFAULT_STALLED_S,
)
from beanstalk_twisted.storage.archiver import DEFAULT_AGE_S
from beanstalk_twisted.storage.fsync import DEFAULT_LIMIT_US
from beanstalk_twisted.storage.watchdog import DEFAULT_LIMIT_S

ADDRESS: Final = "127.0.0.1"
"""Differs from beanstalkd: it listens on all addresses, and the protocol knows no passwords."""

PORT: Final = "11300"

DEFAULT_MAX_JOB_BYTES: Final = 65_535
"""beanstalkd's (prot.h, JOB_DATA_SIZE_LIMIT_DEFAULT); inclusive."""

DEFAULT_MAX_MEMORY: Final = "80%"
"""What is left is for replies, what waits for the disk, and jobs that become reserved."""

POLICY: Final = Policy()
"""The default compaction."""

DEFAULT_METRICS_TUBES: Final = 100
"""Tubes with metrics of their own: with some 45 series each, what one Prometheus takes gladly."""

MAX_METRICS_TUBES: Final = 100_000
"""Each costs some 4 KB of text a scrape."""

TEXT_COLUMN: Final = 26
"""Where explanations begin: behind most options, and half of a narrow terminal is left."""

MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 100
"""Columns that are used: a narrower terminal wraps by itself, and longer lines read badly."""


class Option(NamedTuple):
    """One option.

    :ivar name: the long one without dashes, empty if there is none.
    :ivar letter: beanstalkd's, empty if there is none.
    :ivar value: what stands behind it, empty if nothing does.
    :ivar default: as it is shown, empty if there is none.
    """

    name: str
    letter: str
    value: str
    text: str
    default: str = ""


class Group(NamedTuple):
    """Options that are about the same thing."""

    title: str
    options: tuple[Option, ...]


GROUPS: Final = (
    Group("Log", (
        Option("binlog", "b", "DIR", "Keep jobs in this directory, which is made if only it is "
               "missing. Without it they are in memory only."),
        Option("fsync", "", "WHEN", "When to sync: always, before each reply; a number of "
               "milliseconds, at most so long after a change; never.", "always"),
        Option("", "f", "MS", "The same as --fsync MS; 0 is always."),
        Option("", "F", "", "The same as --fsync never. The last of the three counts."),
        Option("fsync-inline", "", "US", "What one client alone waits for is synced without "
               "another thread while syncs take no longer than so many microseconds; 0 is never.",
               str(DEFAULT_LIMIT_US)),
        Option("fsync-timeout", "", "S", "End with 74 when one write or sync takes so many "
               "seconds; 0 is never.", str(DEFAULT_LIMIT_S)),
        Option("segment-size", "s", "BYTES", "Size of a file of the log.",
               str(DEFAULT_SEGMENT_BYTES)),
    )),
    Group("Archive", (
        Option("binlog-archive", "", "DIR", "Keep every finished file of the log in this "
               "directory too, which must be there, or at this URL, for ever."),
        Option("binlog-archive-age", "", "S", "Seconds that a change of a job waits for the "
               "archive at most; 0: until the file is full.", str(DEFAULT_AGE_S)),
    )),
    Group("Replication", (
        Option("replicate", "", "URL", "Replicate the log through NATS: "
               "nats://HOST[:PORT],.../STREAM. One server of a stream is active, the others are "
               "standby, with their ports closed."),
        Option("lease-seconds", "", "S", "A standby becomes active when the active server has not "
               "been heard for so many seconds.", str(DEFAULT_LEASE_S)),
        Option("replicate-timeout", "", "S", "Refuse changes when replies have waited for the "
               "stream for so many seconds.", str(DEFAULT_TIMEOUT_S)),
        Option("on-fenced", "", "WHAT", "What a server does when another one has become active: "
               "standby, go on as one; or exit, end with 75.", "standby"),
    )),
    Group("Compaction", (
        Option("compaction-factor", "", "N", "Compact the log when it is larger than N times "
               "what lives in it, plus two segments; more writes less.", str(POLICY.factor)),
    )),
    Group("Network", (
        Option("address", "l", "ADDRESS", "Listen on this address or host name, or unix:PATH.",
               ADDRESS),
        Option("port", "p", "PORT", "Listen on this TCP port, a number or a name; 0 takes a "
               "free one.", PORT),
        Option("listen", "", "ENDPOINT", "Listen on this endpoint of Twisted; without "
               "interface=, on all addresses. May be repeated; excludes --address and --port."),
        Option("listen-v1", "", "ENDPOINT", "Listen on this endpoint too, for old clients, "
               "which speak protocol v1, on the same jobs. May be repeated."),
        Option("access", "", "FILE", "Ask who connects for the rights that this file gives; "
               "SIGHUP reads it again. Without it everybody may do everything."),
    )),
    Group("HTTP", (
        Option("http", "", "ENDPOINT", "Serve a console, health checks, metrics and an API over "
               "HTTP at PORT, HOST:PORT or an endpoint of Twisted, at 127.0.0.1 unless it says "
               "another address. May be repeated."),
        Option("http-host", "", "NAME", "Answer HTTP requests for this host name too, beside "
               "IP addresses and localhost. May be repeated."),
        Option("metrics-tubes", "", "N", "Tubes with metrics of their own: those in trouble and "
               "the most active ones; the others are one sum.", str(DEFAULT_METRICS_TUBES)),
        Option("http-write", "", "", "Let HTTP requests change jobs and tubes."),
    )),
    Group("Limits", (
        Option("max-connections", "", "N", "The most connections of clients; more are closed at "
               "once. 0 is as many as there are file descriptors.", str(DEFAULT_MAX_CONNECTIONS)),
        Option("max-connections-per-address", "", "N", "The most from one IPv4 address, or IPv6 "
               "network of 64 bits; 0 is no limit.", "0"),
        Option("stalled-timeout", "", "S", "Close a connection when what it has begun, a line or "
               "what follows it, does not come within so many seconds, or slower than 1 KiB a "
               "second; 0 is never.", str(DEFAULT_STALLED_S)),
        Option("max-log-bytes", "", "BYTES", "The most that the files of the log may have, at "
               "least six segments: beyond it puts get OUT_OF_MEMORY. 0 is no limit.", "0"),
        Option("body-cache", "", "BYTES", "What bodies may take of memory; the others are in the "
               "log only, and read when they are asked for. Without this a quarter of "
               "--max-memory."),
        Option("verify-on-start", "", "WHAT", "Look at all of the log before ports open: full; or "
               "at its records, and at bodies in the background: records.", "full"),
        Option("max-memory", "", "SIZE", "What jobs may take of memory, bytes or a percentage of "
               "what the machine, or the control group, has: beyond it puts get OUT_OF_MEMORY. "
               "0 is no limit.", DEFAULT_MAX_MEMORY),
    )),
    Group("Jobs", (
        Option("max-job-size", "z", "BYTES", "The largest body of a job.",
               str(DEFAULT_MAX_JOB_BYTES)),
        Option("max-keys", "", "N", "The most unique keys, of jobs and remembered ones.",
               str(MAX_KEYS)),
        Option("tubes", "", "FILE", "Hold the policies of tubes that this file has; SIGHUP reads "
               "it again."),
    )),
    Group("Process", (
        Option("user", "u", "NAME", "Become this user, and its group, before anything is "
               "opened."),
        Option("log-format", "", "FORMAT", "Lines of the log: text, or json, one object each.",
               "text"),
        Option("log-level", "", "LEVEL", "Leave out lines below this level: debug, info, warn, "
               "error or critical; never those of the audit.", "info"),
        Option("slow-command", "", "MS", "Log commands that take longer, and replies that wait "
               "longer for the disk, milliseconds; 0 is never.", str(DEFAULT_SLOW_MS)),
        Option("verbose", "V", "", "Log connections; given twice, commands too."),
        Option("version", "v", "", "Show the version and exit."),
        Option("help", "h", "", "Show the options and exit."),
    )),
)  # fmt: skip

OPTIONS: Final = {each.name: each for group in GROUPS for each in group.options}


def explained(width: int) -> str:
    """:param width: columns of the terminal; taken between `MIN_WIDTH` and `MAX_WIDTH`.
    :return: all groups, one option after the other, wrapped.
    """
    columns = min(max(width, MIN_WIDTH), MAX_WIDTH)
    return "\n\n".join(_group(group, columns) for group in GROUPS)


def _group(group: Group, columns: int) -> str:
    lines = [line for option in group.options for line in _option(option, columns)]
    return "\n".join([f"{group.title}:", *lines])


def _option(option: Option, columns: int) -> Iterator[str]:
    """An option that is too long for its column has its explanation below."""
    head = f"  {_written(option)}"
    text = f"{option.text} [default: {option.default}]" if option.default else option.text
    lines = textwrap.wrap(text, columns - TEXT_COLUMN, break_on_hyphens=False)
    if len(head) < TEXT_COLUMN - 1:
        head = head.ljust(TEXT_COLUMN) + lines.pop(0)
    yield head
    for line in lines:
        yield " " * TEXT_COLUMN + line


def _written(option: Option) -> str:
    """How it is given, the letter first; names without one stand below the others."""
    letter = f"-{option.letter}" if option.letter else "  "
    name = f"--{option.name}" if option.name else ""
    comma = ", " if option.letter and option.name else "  " if option.name else ""
    return f"{letter}{comma}{name} {option.value}".rstrip()


MAX_FSYNC_MS: Final = 86_400_000
"""A day.  Differs from beanstalkd: it takes any number, and syncs never if it is large."""

EXAMPLES: Final = "tcp:11300:interface=127.0.0.1 or unix:/run/bs.sock"

MAX_DIGITS: Final = 1000
"""Python turns no more than 4300 into a number, which is out of any range long before."""


def whole_number(option: str, text: str) -> int:
    """Read a number of any size, 0 or more."""
    stripped = text.strip()
    if not _is_digits(stripped):
        raise usage.UsageError(f"{option} needs a whole number, 0 or more, not {text!r}")
    if len(stripped) > MAX_DIGITS:
        raise usage.UsageError(f"{option} needs a whole number of at most {MAX_DIGITS} digits")
    return int(stripped)


def check_milliseconds(option: str, text: str, others: str = "") -> None:
    """Refuse an interval between syncs that is no whole number.

    :param others: what else it may be, as the sentence goes on behind it.
    """
    if not _is_digits(text.strip()):
        span = f"whole milliseconds from 0 to {MAX_FSYNC_MS}, such as 20"
        raise usage.UsageError(f"{option} needs {others}{span}, not {text!r}")


def decimal(option: str, text: str) -> float:
    """Read a number, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise usage.UsageError(f"{option} needs a number, 0 or more, not {text!r}")
    return value


def check_port(endpoint: object) -> None:
    """Refuse an endpoint's wrong port: Twisted finds it out when it listens, with a traceback."""
    port = getattr(endpoint, "_port", 0)
    if isinstance(port, int) and not 0 <= port <= MAX_PORT:
        raise usage.UsageError(f"port {port} is larger than {MAX_PORT}")


_BARE_PORT: Final = re.compile(r"[0-9]+")
_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+):([0-9]+)")
_KINDS: Final = ("tcp", "tcp6", "ssl", "tls", "mtls", "unix", "systemd", "haproxy", "fd", "stdio")
_LOOPBACK: Final = {**dict.fromkeys(("tcp", "ssl", "tls", "mtls"), ADDRESS), "tcp6": "::1"}


def http_endpoint(text: str) -> str:
    """Read what ``--http`` is given.

    :return: an endpoint of Twisted, on this machine alone unless ``text`` says another address.
    """
    if _BARE_PORT.fullmatch(text):
        return f"tcp:{text}:interface={ADDRESS}"
    found = _HOST_AND_PORT.fullmatch(text)
    if found is not None and found[1] not in _KINDS:
        host = found[1].strip("[]")
        kind = "tcp6" if ":" in host else "tcp"
        return f"{kind}:{found[2]}:interface={quoteStringArgument(host)}"
    kind = text.partition(":")[0]
    if kind in _LOOPBACK and ":interface=" not in text:
        return f"{text}:interface={quoteStringArgument(_LOOPBACK[kind])}"
    return text


def tls_endpoints(options: Mapping[str, Any]) -> list[Any]:
    """:param options: those of the server, checked.
    :return: each `TlsEndpoint` among them; its module is imported where there is one only.
    """
    groups = ("endpoints", "endpoints_v1", "endpoints_http")
    return [
        each for group in groups for each in options[group] if getattr(each, "is_encrypted", False)
    ]


def endpoint_problem(error: Exception) -> str:
    """:param error: what a parser of endpoints has raised.
    :return: what is wrong, and how endpoints are written, in place of Python's own words.
    """
    said = str(error)
    if getattr(error, "is_whole", False):
        return said
    if isinstance(error, ImportError):
        return f"{said}; TLS needs more packages: pip install '.[tls]'"
    if found := _NO_NUMBER.search(said):
        said = f"{found[1]} is not a number"
    elif found := _NO_ARGUMENT.search(said):
        said = f"it takes no argument {found[1]}"
    elif found := _MISSING.search(said):
        said = f"{found[1]} is missing"
    return f"{said}; endpoints are written like {EXAMPLES}"


_NO_NUMBER: Final = re.compile(r"invalid literal for int\(\) with base \d+: (.*)$")
_NO_ARGUMENT: Final = re.compile(r"unexpected keyword argument (.*)$")
_MISSING: Final = re.compile(r"missing \d+ required positional arguments?: (.*)$")


def port_number(text: str) -> int:
    """Read what ``--port`` is given.  An empty name takes a free port, as for beanstalkd."""
    if not text:
        return 0
    if not _is_digits(text):
        try:
            return socket.getservbyname(text, "tcp")
        except OSError:
            raise _wrong_port(f"there is no service called {text!r}") from None
    port = whole_number("--port (-p)", text)
    if port > MAX_PORT:
        raise _wrong_port(f"port {port} is larger")
    return port


def _wrong_port(why: str) -> usage.UsageError:
    return usage.UsageError(
        f"--port (-p) needs a number from 0 to {MAX_PORT} or the name of a service: {why}"
    )


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
