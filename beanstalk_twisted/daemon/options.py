"""The server's options, grouped for the help and the README, and the reading of their values."""

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
    :ivar value: placeholder of the argument, empty for a flag.
    :ivar default: as it is shown, empty if there is none.
    :ivar page: where docs/ says more, relative to docs/.
    """

    name: str
    letter: str
    value: str
    text: str
    default: str = ""
    page: str = ""


class Group(NamedTuple):
    title: str
    options: tuple[Option, ...]


GROUPS: Final = (
    Group("Binlog", (
        Option("binlog", "b", "DIR", "Keep jobs in DIR, which is created if missing (its parent "
               "must exist). Without it jobs are in memory only.", page="durability.md"),
        Option("fsync", "", "WHEN", "When to sync: always, before each reply; N milliseconds "
               "(0 to 86400000) after a change; or never.", "always",
               "durability.md#what-a-reply-promises"),
        Option("", "f", "MS", "Same as --fsync MS; 0 is always."),
        Option("", "F", "", "Same as --fsync never. The last of --fsync, -f and -F wins."),
        Option("fsync-inline", "", "US", "With --fsync always, sync for a single waiting client in "
               "the main thread while a sync takes at most US microseconds (0 to 10000). 0 "
               "disables it.", str(DEFAULT_LIMIT_US), "durability.md#inline-sync"),
        Option("fsync-timeout", "", "S", "Exit with 74 when one write or sync takes S seconds (0 "
               "to 86400). 0 disables it.", str(DEFAULT_LIMIT_S)),
        Option("segment-size", "s", "BYTES", "Size of a binlog file, 8192 to 1073741824.",
               str(DEFAULT_SEGMENT_BYTES)),
    )),
    Group("Archive", (
        Option("binlog-archive", "", "DIR", "Copy each finished binlog file to DIR, which must "
               "exist, or to this URL. The server deletes nothing there.",
               page="operations.md#archive"),
        Option("binlog-archive-age", "", "S", "Finish a file early so that a change reaches the "
               "archive within S seconds (0 to 604800). 0: only when the file is full.",
               str(DEFAULT_AGE_S), "operations.md#archive"),
    )),
    Group("Replication", (
        Option("replicate", "", "URL", "Replicate the binlog through NATS JetStream: "
               "nats://HOST[:PORT],.../STREAM. One server is active; standbys keep their ports "
               "closed.", page="replication.md"),
        Option("lease-seconds", "", "S", "Seconds without a heartbeat before a standby takes over, "
               "1 to 300.", str(DEFAULT_LEASE_S), "replication.md"),
        Option("replicate-timeout", "", "S", "Refuse changes after replies have waited S seconds "
               "for the stream, 1 to 3600.", str(DEFAULT_TIMEOUT_S), "replication.md"),
        Option("on-fenced", "", "WHAT", "After another server took over: standby, or exit (with "
               "75).", "standby", "replication.md"),
    )),
    Group("Compaction", (
        Option("compaction-factor", "", "N", "Compact the binlog when it exceeds N times its live "
               "records (1.25 to 100) plus two files. A larger factor writes less.",
               str(POLICY.factor), "operations.md#log-size"),
    )),
    Group("Network", (
        Option("address", "l", "ADDRESS", "Listen on this address or host name, or unix:PATH.",
               ADDRESS),
        Option("port", "p", "PORT", "Listen on this TCP port, a number or a service name; 0 picks "
               "a free one.", PORT),
        Option("listen", "", "ENDPOINT", "Listen on this Twisted endpoint, or with TLS: tls:, "
               "mtls:. Without interface= on all addresses. May be repeated; excludes --address "
               "and --port.", page="operations.md#listen"),
        Option("listen-v1", "", "ENDPOINT", "Also listen on this endpoint for old clients that "
               "speak protocol v1. May be repeated.", page="protocol.md#protocol-v1"),
        Option("access", "", "FILE", "Grant clients only the rights in FILE; SIGHUP reloads it. "
               "Without it every client may do everything.", page="access.md"),
    )),
    Group("HTTP", (
        Option("http", "", "ENDPOINT", "Serve the console, health checks, metrics and API at PORT, "
               "HOST:PORT or a Twisted endpoint; on 127.0.0.1 unless it names an address. May be "
               "repeated.", page="monitoring.md"),
        Option("http-host", "", "NAME", "Also answer HTTP requests for this host name. IP "
               "addresses and localhost are always answered. May be repeated.",
               page="monitoring.md#who-is-answered"),
        Option("metrics-tubes", "", "N", "Export metrics of N tubes, 0 to 100000: tubes in trouble "
               "first, then the busiest. The other tubes are added up.",
               str(DEFAULT_METRICS_TUBES), "monitoring.md#metrics"),
        Option("http-write", "", "", "Let HTTP requests change jobs and tubes.",
               page="monitoring.md#who-is-answered"),
    )),
    Group("Limits", (
        Option("max-connections", "", "N", "Maximum client connections, 0 to 1048576; further ones "
               "are closed immediately. 0: as many as file descriptors allow.",
               str(DEFAULT_MAX_CONNECTIONS), "operations.md#limits"),
        Option("max-connections-per-address", "", "N", "Maximum connections per IPv4 address or "
               "IPv6 /64 network, 0 to 1048576. 0: no limit.", "0", "operations.md#limits"),
        Option("stalled-timeout", "", "S", "Close a connection whose command does not arrive "
               "within S seconds (0 to 86400), or arrives slower than 1 KiB a second. 0 disables "
               "it.", str(DEFAULT_STALLED_S), "operations.md#limits"),
        Option("max-log-bytes", "", "BYTES", "Maximum size of the binlog, at least six files; "
               "beyond it puts get OUT_OF_MEMORY. 0: no limit.", "0", "operations.md#limits"),
        Option("body-cache", "", "BYTES", "Memory for job bodies; other bodies are read from the "
               "binlog when needed. Default: a quarter of --max-memory.",
               page="operations.md#bodies-in-the-log"),
        Option("verify-on-start", "", "WHAT", "Check at startup: full, the whole binlog; or "
               "records, which checks bodies of finished files in the background.", "full",
               "durability.md#what-a-start-checks"),
        Option("max-memory", "", "SIZE", "Memory limit for jobs, in bytes or percent of the "
               "machine or control group; beyond it puts get OUT_OF_MEMORY. 0: no limit.",
               DEFAULT_MAX_MEMORY, "operations.md#limits"),
    )),
    Group("Jobs", (
        Option("max-job-size", "z", "BYTES", "Maximum size of a job's body, 0 to 1073741824.",
               str(DEFAULT_MAX_JOB_BYTES)),
        Option("max-keys", "", "N", "Maximum number of unique keys, including remembered ones, 0 "
               "to 4294967295.", str(MAX_KEYS), "extensions.md#tags"),
        Option("tubes", "", "FILE", "Apply the tube policies in FILE; SIGHUP reloads it.",
               page="extensions.md#the-file-of-policies"),
    )),
    Group("Process", (
        Option("user", "u", "NAME", "Drop privileges to this user and its group before opening "
               "anything."),
        Option("log-format", "", "FORMAT", "Format of the server log: text, or json with one "
               "object a line.", "text", "operations.md#log"),
        Option("log-level", "", "LEVEL", "Lowest level to log: debug, info, warn, error or "
               "critical. Audit lines are always logged.", "info", "operations.md#audit"),
        Option("slow-command", "", "MS", "Log commands that take longer than MS milliseconds (10 "
               "to 60000), and replies that wait longer for the disk. 0 disables it.",
               str(DEFAULT_SLOW_MS), "operations.md#slow-commands"),
        Option("verbose", "V", "", "Log connections; given twice, commands too."),
        Option("version", "v", "", "Show the version and exit."),
        Option("help", "h", "", "Show the options and exit."),
    )),
)  # fmt: skip

OPTIONS: Final = {each.name: each for group in GROUPS for each in group.options}


def explained(width: int) -> str:
    """:param width: columns of the terminal; taken between `MIN_WIDTH` and `MAX_WIDTH`."""
    columns = min(max(width, MIN_WIDTH), MAX_WIDTH)
    groups = []
    for group in GROUPS:
        lines = [line for option in group.options for line in _option(option, columns)]
        groups.append("\n".join([f"{group.title}:", *lines]))
    return "\n\n".join(groups)


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
    """:param others: what else it may be, as the sentence goes on behind it."""
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
    """Read what ``--http`` is given: on this machine alone unless it says another address."""
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
    """:return: each `TlsEndpoint` among them; its module is imported where there is one only."""
    groups = ("endpoints", "endpoints_v1", "endpoints_http")
    return [
        each for group in groups for each in options[group] if getattr(each, "is_encrypted", False)
    ]


def endpoint_problem(error: Exception) -> str:
    """Say what is wrong, and how endpoints are written, in place of Python's own words."""
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
