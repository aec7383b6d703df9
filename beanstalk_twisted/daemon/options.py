"""The table of the server's options: a click command, and its help.

The manual page and docs/options.md are made of it.
"""

import math
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import click

from beanstalk_twisted.binlog.compaction import MAX_FACTOR, MIN_FACTOR, Policy
from beanstalk_twisted.binlog.segments.format import (
    MAX_BODY_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from beanstalk_twisted.daemon.log_lines import FORMATS, LEVELS, LOG_DEFAULTS
from beanstalk_twisted.daemon.memory import MemoryShare
from beanstalk_twisted.daemon.replication_options import (
    MAX_LEASE_S,
    MAX_TIMEOUT_S,
    MIN_LEASE_S,
    MIN_TIMEOUT_S,
    Replication,
    replicate_url,
)
from beanstalk_twisted.object_storage.store import BadUrl, is_url, local_path, parse_url
from beanstalk_twisted.server.headroom import NO_LIMIT
from beanstalk_twisted.server.settings import (
    MAX_MAX_CONNECTIONS,
    MAX_SLOW_MS,
    MAX_STALLED_S,
    MIN_SLOW_MS,
    Limits,
    Settings,
)
from beanstalk_twisted.storage.archiver import DEFAULT_AGE_S, MAX_AGE_S
from beanstalk_twisted.storage.fsync import ALWAYS, MAX_LIMIT_US, NEVER, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.storage.watchdog import MAX_LIMIT_S
from beanstalk_twisted.version import VERSION

ADDRESS: Final = "127.0.0.1"
"""Differs from beanstalkd: it listens on all addresses, and the protocol knows no passwords."""

PORT: Final = "11300"

DEFAULT_MAX_MEMORY: Final = "80%"
"""What is left is for replies, what waits for the disk, and jobs that become reserved."""

DEFAULT_METRICS_TUBES: Final = 100
"""Tubes with metrics of their own: with some 45 series each, what one Prometheus takes gladly."""

MAX_METRICS_TUBES: Final = 100_000
"""Each costs some 4 KB of text a scrape."""

MAX_BODY_CACHE: Final = 1 << 62
"""More bytes than any memory has."""

MAX_MAX_KEYS: Final = (1 << 32) - 1
"""More than any memory holds."""

MAX_FSYNC_MS: Final = 86_400_000
"""A day.  Differs from beanstalkd: it takes any number, and syncs never if it is large."""

MAX_DIGITS: Final = 1000
"""Python turns no more than 4300 into a number, which is out of any range long before."""

HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
"""One that may stand in the header Host (RFC 9110), of a host in DNS or of a container."""

TEXT_COLUMN: Final = 26
"""Where explanations begin: behind most options, and half of a narrow terminal is left."""

MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 100
"""Columns that are used: a narrower terminal wraps by itself, and longer lines read badly."""

DEFAULTS: Final = {
    **Replication._field_defaults, **Limits._field_defaults, **Settings._field_defaults,
}  # fmt: skip
"""Defaults of options that are a field of the settings."""

COMMANDS: Final = {
    "twistd beanstalk": ("twistd [options] beanstalk", "twistd -n beanstalk"),
    "beanstalk-twisted": ("beanstalk-twisted", "beanstalk-twisted"),
}
"""For each way to start a server: the command in the help, and in its example."""

SIGNALS: Final = """\
SIGTERM stops it in order, a second one at once;
SIGUSR1 has new jobs refused; SIGHUP opens the log's file
again and reads the files of --tubes, --access and TLS.
"""


# The values, read from what was typed.

Read = Callable[[str, str], Any]
"""Reads the value of the option that is named from a text."""


class Whole:
    """Reads a whole number in a range; ``least`` is for numbers other than 0."""

    def __init__(self, low: int, high: int, least: int = 0) -> None:
        self._low, self._high, self._least = low, high, least

    def __str__(self) -> str:
        return f"{self._least or self._low} to {self._high}"

    def __call__(self, option: str, text: str) -> int:
        number = whole_number(option, text)
        low = self._least if number and self._least else self._low
        return int(clamped(option, number, low, self._high, number))


def clamped(option: str, value: float, low: float, high: float, given: object) -> float:
    """Limit a number to its range with a warning, as beanstalkd's ``-z``."""
    limited = min(max(value, low), high)
    if limited != value:
        click.get_current_context().obj.append(
            f"{option} {given} is out of range; {limited} is used"
        )
    return limited


def whole_number(option: str, text: str) -> int:
    """Read a number of any size, 0 or more."""
    stripped = text.strip()
    if not is_digits(stripped):
        raise click.UsageError(f"{option} needs a whole number, 0 or more, not {text!r}")
    if len(stripped) > MAX_DIGITS:
        raise click.UsageError(f"{option} needs a whole number of at most {MAX_DIGITS} digits")
    return int(stripped)


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def one_of(values: Iterable[str], meanings: Iterable[Any] = ()) -> Read:
    """:param meanings: what each value stands for, unless for itself."""
    found = dict(zip(values, meanings or values, strict=True))
    *others, last = found

    def read(option: str, text: str) -> Any:
        if text not in found:
            listed = f"{', '.join(others)} or {last}"
            raise click.UsageError(f"{option} is {listed}, not {text!r}")
        return found[text]

    return read


def fsync_interval(option: str, text: str, others: str = "") -> FsyncPolicy:
    """:param others: what else it may be, at the start of the list."""
    if not is_digits(text.strip()):
        span = f"whole milliseconds from 0 to {MAX_FSYNC_MS}, such as 20"
        raise click.UsageError(f"{option} needs {others}{span}, not {text!r}")
    number = whole_number(option, text)
    return FsyncPolicy(clamped(option, number, 0, MAX_FSYNC_MS, number) / 1000)


def fsync_policy(option: str, text: str) -> FsyncPolicy:
    words = {"always": ALWAYS, "never": NEVER}
    return words.get(text) or fsync_interval(option, text, "always, never, or ")


def compaction(option: str, text: str) -> Policy:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor) or factor < 0:
        raise click.UsageError(f"{option} needs a number, 0 or more, not {text!r}")
    return Policy(clamped(option, factor, MIN_FACTOR, MAX_FACTOR, text))


def named(what: str, read: Callable[[str], str] = os.path.abspath) -> Read:
    """Refuse an empty text; a path becomes absolute, since twistd changes the directory."""

    def read_name(option: str, text: str) -> str:
        if not text:
            raise click.UsageError(f"{option} needs {what}")
        return read(text)

    return read_name


def archive_place(text: str) -> str:
    """Read the path of a directory, or a URL."""
    if not is_url(text):
        return os.path.abspath(local_path(text))
    try:
        parse_url(text)
    except BadUrl as problem:
        # What was given may have a secret in it.
        raise click.UsageError(f"--binlog-archive, a URL: {problem}") from problem
    return text


def host_name(option: str, text: str) -> str:
    if not HOST_NAME.fullmatch(text):
        raise click.UsageError(f"{option} needs a host name without a port, not {text!r}")
    return text.lower().rstrip(".")


def memory_share(option: str, text: str) -> MemoryShare:
    """Read a number of bytes, or a percentage from 0 to 100."""
    number, sign, rest = text.strip().partition("%")
    is_number = number.isascii() and number.isdigit() and not rest
    if not is_number or (sign and whole_number(option, number) > 100):
        raise click.UsageError(f"{option} needs bytes, or 0% to 100%, not {text!r}")
    return MemoryShare(whole_number(option, number), bool(sign))


# The table.


class Option(click.Option):
    """A row of the table.

    :ivar shown: the default as it is shown, empty if there is none.
    :ivar page: where docs/ says more, relative to docs/.
    :ivar needs: the option without which this one has no effect.
    """

    def __init__(
        self, names: str, field: str, value: str, text: str, read: Read | None = None,
        *, page: str = "", shown: str = "", needs: str = "", **more: Any,
    ) -> None:  # fmt: skip
        """:param value: placeholder of the argument, empty for a flag."""
        text = text.replace("{range}", str(read))
        if value:
            more.setdefault("default", DEFAULTS.get(field) if not more.get("multiple") else None)
        default = more.get("default")
        self.shown = shown or ("" if default is None else str(default))
        self.page, self.needs = page, needs
        words = names.split()

        def convert(given: Any) -> Any:
            """Read a text; a default that is none is the value."""
            return read(words[-1], given) if read and isinstance(given, str) else given

        kind = None if read is None else convert
        super().__init__([*words, field], metavar=value, help=text, type=kind, **more)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        default = f" [default: {self.shown}]" if self.shown else ""
        return f"{', '.join(self.opts)} {self.metavar}".strip(), f"{self.help}{default}"


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"beanstalk-twisted {VERSION}")
        ctx.exit()


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(ctx.get_help())
        ctx.exit()


def _refuse_compaction(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Refuse -c and -n, an older beanstalkd's switches of compaction."""
    if value:
        raise click.UsageError("leave out -c and -n of beanstalkd: the log is always compacted")


GROUPS: Final[dict[str, Sequence[Option]]] = {
    "Binlog": (
        Option("-b --binlog", "binlog", "DIR", "Keep jobs in DIR, which is created if missing (its "
            "parent must exist). Without it jobs are in memory only.",
            named("the name of a directory"), page="durability.md"),
        Option("--fsync", "fsync", "WHEN", "When to sync: always, before each reply; N "
            f"milliseconds (0 to {MAX_FSYNC_MS}) after a change; or never.", fsync_policy,
            page="durability.md#what-a-reply-promises", shown="always", multiple=True,
            needs="binlog"),
        Option("-f", "f", "MS", "Same as --fsync MS; 0 is always.", fsync_interval, multiple=True,
            needs="binlog"),
        Option("-F", "F", "", "Same as --fsync never. The last of --fsync, -f and -F wins.",
            is_flag=True, needs="binlog"),
        Option("--fsync-inline", "fsync_inline_us", "US", "With --fsync always, sync in the main "
            "thread while a sync takes at most US microseconds ({range}). 0 disables it.",
            Whole(0, MAX_LIMIT_US), page="durability.md#inline-sync",
            needs="binlog"),
        Option("--fsync-timeout", "fsync_timeout_s", "S", "Exit with 74 when one write or sync "
            "takes S seconds ({range}). 0 disables it.", Whole(0, MAX_LIMIT_S), needs="binlog"),
        Option("-s --segment-size", "segment_bytes", "BYTES", "Size of a binlog file, {range}.",
            Whole(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES), needs="binlog"),
    ),
    "Archive": (
        Option("--binlog-archive", "archive", "DIR", "Copy each finished binlog file to DIR, which "
            "must exist, or to this URL. The server deletes nothing there.",
            named("the name of a directory", archive_place), page="operations.md#archive"),
        Option("--binlog-archive-age", "archive_age_s", "S", "Finish a file early so that a change "
            "reaches the archive within S seconds ({range}). 0: only when the file is full.",
            Whole(0, MAX_AGE_S), page="operations.md#archive", default=DEFAULT_AGE_S),
    ),
    "Replication": (
        Option("--replicate", "replicate", "URL", "Replicate the binlog through NATS JetStream: "
            "nats://HOST[:PORT],.../STREAM. One server is active; standbys keep their ports "
            "closed.", replicate_url, page="replication.md"),
        Option("--lease-seconds", "lease_s", "S", "Seconds without a heartbeat before a standby "
            "takes over, {range}.", Whole(MIN_LEASE_S, MAX_LEASE_S), page="replication.md",
            needs="replicate"),
        Option("--replicate-timeout", "timeout_s", "S", "Refuse changes after replies have waited "
            "S seconds for the stream, {range}.", Whole(MIN_TIMEOUT_S, MAX_TIMEOUT_S),
            page="replication.md", needs="replicate"),
        Option("--on-fenced", "exits_when_fenced", "WHAT", "After another server took over: "
            "standby, or exit (with 75).", one_of(("standby", "exit"), (False, True)),
            page="replication.md", default=None, shown="standby", needs="replicate"),
    ),
    "Compaction": (
        Option("--compaction-factor", "compaction", "N", "Compact the binlog when it exceeds N "
            f"times its live records ({MIN_FACTOR:g} to {MAX_FACTOR:g}) plus two files. A larger "
            "factor writes less.", compaction, page="operations.md#log-size",
            shown=str(Policy().factor), needs="binlog"),
    ),
    "Network": (
        Option("-l --address", "address", "ADDRESS", "Listen on this address or host name, or "
            "unix:PATH.", named("an address", str), default=ADDRESS),
        Option("-p --port", "port", "PORT", "Listen on this TCP port, a number or a service name; "
            "0 picks a free one.", default=PORT),
        Option("--listen", "listen", "ENDPOINT", "Listen on this Twisted endpoint, or with TLS: "
            "tls:, mtls:. Without interface= on all addresses. May be repeated; excludes --address "
            "and --port.", page="operations.md#listen", multiple=True),
        Option("--listen-v1", "listen_v1", "ENDPOINT", "Also listen on this endpoint for old "
            "clients that speak protocol v1. May be repeated.",
            page="protocol.md#protocol-v1", multiple=True),
        Option("--access", "access", "FILE", "Grant clients only the rights in FILE; SIGHUP "
            "reloads it. Without it every client may do everything.", named("the name of a file"),
            page="access.md"),
    ),
    "HTTP": (
        Option("--http", "http", "ENDPOINT", "Serve the console, health checks, metrics "
            "and API at PORT, HOST:PORT or a Twisted endpoint; on 127.0.0.1 unless it names an "
            "address. May be repeated.", page="monitoring.md", multiple=True),
        Option("--http-host", "http_hosts", "NAME", "Also answer HTTP requests for this host name. "
            "IP addresses and localhost are always answered. May be repeated.", host_name,
            page="monitoring.md#who-is-answered", multiple=True),
        Option("--metrics-tubes", "metrics_tubes", "N", "Export metrics of N tubes, {range}: tubes "
            "in trouble first, then the busiest. The other tubes are added up.",
            Whole(0, MAX_METRICS_TUBES), page="monitoring.md#metrics",
            default=DEFAULT_METRICS_TUBES),
        Option("--http-write", "http_write", "", "Let HTTP requests change jobs and tubes.",
            page="monitoring.md#who-is-answered", is_flag=True),
    ),
    "Limits": (
        Option("--max-connections", "connections", "N", "Maximum client connections, {range}; "
            "further ones are closed immediately. 0: as many as file descriptors allow.",
            Whole(0, MAX_MAX_CONNECTIONS), page="operations.md#limits"),
        Option("--max-connections-per-address", "connections_per_address", "N", "Maximum "
            "connections per IPv4 address or IPv6 /64 network, {range}. 0: no limit.",
            Whole(0, MAX_MAX_CONNECTIONS), page="operations.md#limits"),
        Option("--stalled-timeout", "stalled_s", "S", "Close a connection whose command does not "
            "arrive within S seconds ({range}), or arrives slower than 1 KiB a second. 0 disables "
            "it.", Whole(0, MAX_STALLED_S), page="operations.md#limits"),
        Option("--max-log-bytes", "log_bytes", "BYTES", "Maximum size of the binlog, at least six "
            "files; beyond it puts get OUT_OF_MEMORY. 0: no limit.", Whole(0, NO_LIMIT),
            page="operations.md#limits", needs="binlog"),
        Option("--body-cache", "body_cache", "BYTES", "Memory for job bodies; other bodies are "
            "read from the binlog when needed. Default: a quarter of --max-memory.",
            Whole(0, MAX_BODY_CACHE), page="operations.md#bodies-in-the-log", needs="binlog"),
        Option("--verify-on-start", "verify", "WHAT", "Check at startup: full, the whole binlog; "
            "or records, which checks bodies of finished files in the background.",
            one_of(Verify, Verify), page="durability.md#what-a-start-checks", needs="binlog"),
        Option("--max-memory", "memory_bytes", "SIZE", "Memory limit for jobs, in bytes or percent "
            "of the machine or control group; beyond it puts get OUT_OF_MEMORY. 0: no limit.",
            memory_share, page="operations.md#limits", default=DEFAULT_MAX_MEMORY),
    ),
    "Jobs": (
        Option("-z --max-job-size", "max_job_bytes", "BYTES", "Maximum size of a job's body, "
            "{range}.", Whole(0, MAX_BODY_BYTES)),
        Option("--max-keys", "max_keys", "N", "Maximum number of unique keys, including remembered "
            "ones, {range}.", Whole(0, MAX_MAX_KEYS), page="extensions.md#tags"),
        Option("--tubes", "tubes", "FILE", "Apply the tube policies in FILE; SIGHUP reloads it.",
            named("the name of a file"), page="extensions.md#the-file-of-policies"),
    ),
    "Process": (
        Option("-u --user", "user", "NAME", "Drop privileges to this user and its group before "
            "opening anything."),
        Option("--log-format", "log_format", "FORMAT", "Format of the server log: text, or json "
            "with one object a line.", one_of(FORMATS), page="operations.md#log",
            default=LOG_DEFAULTS[0]),
        Option("--log-level", "log_level", "LEVEL", "Lowest level to log: debug, info, warn, error "
            "or critical. Audit lines are always logged.", one_of(LEVELS),
            page="operations.md#audit", default=LOG_DEFAULTS[1]),
        Option("--slow-command", "slow_ms", "MS", "Log commands that take longer than MS "
            "milliseconds ({range}), and replies that wait longer for the disk. 0 disables it.",
            Whole(0, MAX_SLOW_MS, MIN_SLOW_MS), page="operations.md#slow-commands"),
        Option("-V --verbose", "verbosity", "", "Log connections; given twice, commands too.",
            count=True),
        Option("-v --version", "version", "", "Show the version and exit.", is_flag=True,
            is_eager=True, expose_value=False, callback=_show_version),
        Option("-h --help", "help", "", "Show the options and exit.", is_flag=True, is_eager=True,
            expose_value=False, callback=_show_help),
    ),
}  # fmt: skip

OPTIONS: Final = [option for group in GROUPS.values() for option in group]


def help_text(command: str, width: int) -> str:
    """:param width: columns of the terminal; taken between `MIN_WIDTH` and `MAX_WIDTH`."""
    usage, launch = COMMANDS[command]
    columns = min(max(width, MIN_WIDTH), MAX_WIDTH)
    parts = [f"Usage: {usage} [options]\n{COMMAND.help}"]
    for title, group in GROUPS.items():
        lines = [line for option in group for line in _explained(option, columns)]
        parts.append("\n".join([f"{title}:", *lines]))
    example = f"Example:\n  {launch} --binlog /var/lib/bs --port 11301"
    return "\n\n".join([*parts, example, SIGNALS])


def _explained(option: Option, columns: int) -> Iterator[str]:
    """An option that is too long for its column has its explanation below."""
    written, text = option.get_help_record(click.Context(COMMAND))
    # Names without a letter stand below the others.
    head = f"  {written}" if len(option.opts[0]) == 2 else f"      {written}"
    lines = textwrap.wrap(text, columns - TEXT_COLUMN, break_on_hyphens=False)
    if len(head) < TEXT_COLUMN - 1:
        head = head.ljust(TEXT_COLUMN) + lines.pop(0)
    yield head
    for line in lines:
        yield " " * TEXT_COLUMN + line


class ServerCommand(click.Command):
    """Notes in ``meta["given"]`` the names of all options in the order in which they were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args([*args])
        ctx.meta["given"] = [each.name for each in order]
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return help_text(ctx.command_path, shutil.get_terminal_size().columns)


COMMAND: Final = ServerCommand(
    "beanstalk-twisted",
    params=[*OPTIONS, Option(
        "-c -n", "compacts", "", "", is_flag=True, expose_value=False, callback=_refuse_compaction,
    )],
    help="A durable work queue that speaks the beanstalkd protocol.",
    add_help_option=False,
    context_settings={"allow_interspersed_args": False, "allow_extra_args": True},
)  # fmt: skip
