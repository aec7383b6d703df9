"""What each check says of the facts that it is given.

A check is a function of its facts alone: no file, clock or process is asked here.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from beanstalk_twisted.daemon.removed_options import removed_among
from binlog_tools.console.wording import told
from binlog_tools.logs.quantities import format_size

Level = Literal["ok", "warning", "problem"]
"""Of what is found: a problem keeps a server from starting, or from keeping jobs."""


class Finding(NamedTuple):
    check: str
    level: Level
    what: str
    advice: str = ""


class ServerOptions(NamedTuple):
    """What the server makes of its options.

    :ivar problem: why it refuses them; empty if it does not.
    :ivar binlog: the log's directory; empty without one.
    :ivar is_always: whether replies wait for a sync.
    :ivar files: by the names of their options, why they cannot be used; empty if they can.
    :ivar tls: of each endpoint for TLS its name, why its files cannot be used, and warnings.
    :ivar ports: why each cannot be listened on that cannot.
    """

    problem: str = ""
    warnings: Sequence[str] = ()
    binlog: str = ""
    user: str = ""
    segment_bytes: int = 0
    fsync_timeout_s: int = 0
    is_always: bool = True
    files: Mapping[str, str] = {}
    tls: Sequence[tuple[str, str, Sequence[str]]] = ()
    ports: Sequence[str] = ()


class Folder(NamedTuple):
    """The log's directory, or if it is not there yet the one that it will be made in.

    :ivar problem: what the system says when a file is made in it; empty if that can be done.
    :ivar filesystem: as the kernel calls it; empty if that is unknown.
    :ivar log_bytes: of all segments; ``newest_s`` is when one was changed last, 0 if there is none.
    """

    path: str
    problem: str = ""
    is_open_to_others: bool = False
    filesystem: str = ""
    free_bytes: int = 0
    log_bytes: int = 0
    newest_s: float = 0.0


class Syncs(NamedTuple):
    """Of small writes; the last one may not have ended in time."""

    number: int
    median_us: int
    slowest_us: int
    is_ended: bool = True


OLDEST_PYTHON: Final = (3, 11)
"""tomllib and exception groups are used."""

OLDEST_TWISTED: Final = (22, 10)
"""The oldest that the tests have run on; as setup.cfg."""

LEAST_DESCRIPTORS: Final = 4096
"""Each connection takes one; a shell's usual 1024 are used up by 31 hosts of 32 workers."""

LEAST_BACKLOG: Final = 1024
"""Connections that the server asks the kernel to keep; a smaller ``somaxconn`` wins."""

LEAST_MEMORY_BYTES: Final = 256 << 20
"""An empty server takes 60 MB, 300,000 small jobs as much again; below this a burst ends it."""

LEAST_SEGMENTS: Final = 4
"""Segments for which there has to be space: two that are written, two that compaction copies to."""

SLOW_SYNC_US: Final = 20_000
"""A lone client gets 50 replies a second; disks that turn take 8 to 15 ms."""

INSTANT_SYNC_US: Final = 5
"""A system call that does nothing takes as much; the fastest disks with a battery take 15 us."""

OFTEN: Final = 10
"""A sync is slow if it takes more than a tenth of ``--fsync-timeout``, at which the server ends."""

CLOCK_SLACK_S: Final = 60
"""How far a file may be ahead of the clock: file servers have clocks of their own."""

REMOTE: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs",
})  # fmt: skip
"""File systems of other machines."""

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def options(found: ServerOptions, words: Sequence[str] = ()) -> Iterator[Finding]:
    if found.problem:
        for what in removed_among(words) or [found.problem]:
            yield Finding("options", "problem", what, "change the options")
        return
    for warning in found.warnings:
        yield Finding("options", "warning", warning, "change or leave out that option")
    if not found.binlog:
        what = "without --binlog jobs are in memory only, and lost when the server ends"
        yield Finding("options", "warning", what, "name a directory: --binlog /var/lib/bs")
    elif not found.warnings:
        yield Finding("options", "ok", f"binlog {found.binlog}")


def services(found: Mapping[Path, Sequence[str]]) -> Iterator[Finding]:
    for path, words in found.items():
        for what in removed_among(words):
            yield Finding("services", "problem", f"{path}: {what}", "change that file")


def files(found: ServerOptions) -> Iterator[Finding]:
    for name, problem in found.files.items():
        if problem:
            advice = f"mend it, or name another one by --{name}; no server starts with this one"
            yield Finding(f"{name} file", "problem", problem, advice)
        else:
            yield Finding(f"{name} file", "ok", "it can be used")


def tls(found: ServerOptions) -> Iterator[Finding]:
    for endpoint, problem, warnings in found.tls:
        if problem:
            advice = "mend or renew it; no server starts with this one"
            yield Finding("tls files", "problem", f"{endpoint}: {problem}", advice)
        for warning in warnings:
            what, _, command = warning.partition(". Run ")
            advice = command or "renew it, send SIGHUP to the server"
            yield Finding("tls files", "warning", f"{endpoint}: {what}", advice)
        if not problem and not warnings:
            yield Finding("tls files", "ok", f"{endpoint}: they can be used")


def ports(found: ServerOptions, has_server: bool) -> Iterator[Finding]:
    """:param has_server: whether a server runs on the log: then its ports are in use."""
    if found.problem:
        return
    if has_server and found.ports:
        yield Finding("ports", "ok", "a server runs on this log, so its ports are in use")
        return
    for problem in found.ports:
        yield Finding("ports", "problem", problem, "free it, or listen elsewhere")
    if not found.ports:
        yield Finding("ports", "ok", "none is in use")


def python(version: tuple[int, int, int]) -> Finding:
    words = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Finding("python", "problem", f"{words} is too old", "install Python 3.11 or newer")
    return Finding("python", "ok", words)


def twisted(version: str) -> Finding:
    """:param version: empty if it is not installed."""
    if not version:
        advice = "pip install twisted, for the Python that runs this command"
        return Finding("twisted", "problem", "it is not installed", advice)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_TWISTED:
        return Finding("twisted", "problem", f"{version} is too old", "pip install -U twisted")
    return Finding("twisted", "ok", version)


def user(euid: int, found: ServerOptions) -> Finding:
    if euid == 0 and not found.user:
        what = "the server would run as root"
        return Finding("user", "warning", what, "--user NAME, or start it as somebody else")
    return Finding("user", "ok", found.user or f"user {euid}")


def directory(found: Folder) -> Iterator[Finding]:
    if found.problem:
        advice = f"mkdir -p and chown {found.path} for the server's user, or name another one"
        yield Finding("directory", "problem", f"{found.path}: {found.problem}", advice)
        return
    if found.is_open_to_others:
        what = f"{found.path}: others than its owner may write in it, and so remove the log"
        yield Finding("directory", "warning", what, f"chmod go-w {found.path}")
    else:
        yield Finding("directory", "ok", found.path)


def filesystem(found: Folder) -> Finding:
    kind = found.filesystem
    if kind in IN_MEMORY:
        what = f"{found.path} is on {kind}, which is memory: a reboot loses all jobs"
        return Finding("file system", "problem", what, "name a directory on a disk")
    if kind in REMOTE:
        what = f"{found.path} is on {kind}, of another machine: locks and syncs are its own"
        return Finding("file system", "warning", what, "name a directory on a disk of this machine")
    if kind == "overlay":
        what = f"{found.path} is in a container's own layer, which goes when the container does"
        return Finding("file system", "warning", what, "mount a volume there")
    return Finding("file system", "ok", kind or "unknown")


def space(found: Folder, segment_bytes: int) -> Finding:
    least = LEAST_SEGMENTS * segment_bytes
    what = f"{format_size(found.free_bytes)} are free at {found.path}"
    if found.free_bytes < least:
        advice = f"free some: {format_size(least)} are {LEAST_SEGMENTS} segments"
        return Finding("space", "warning", what, advice)
    return Finding("space", "ok", what)


def disk(found: Syncs, fsync_timeout_s: int, is_always: bool) -> Finding:
    """:param fsync_timeout_s: 0 for none."""
    if not found.is_ended:
        what = f"after {told(found.number, 'sync')} one has not ended in time: the disk hangs"
        return Finding("disk", "problem", what, "look at the disk and at the kernel's log")
    what = (
        f"a sync takes {_milliseconds(found.median_us)}, of {found.number} the slowest "
        f"{_milliseconds(found.slowest_us)}"
    )
    if found.median_us < INSTANT_SYNC_US:
        advice = "something promises syncs and does none (eatmydata, a virtual disk): turn that off"
        return Finding("disk", "warning", what, advice)
    if fsync_timeout_s and found.slowest_us * OFTEN > fsync_timeout_s * 1_000_000:
        advice = f"the server ends at --fsync-timeout {fsync_timeout_s}: make that longer"
        return Finding("disk", "warning", what, advice)
    if is_always and found.median_us > SLOW_SYNC_US:
        most = 1_000_000 // found.median_us
        advice = (
            f"a lone client gets {told(most, 'reply', 'replies')} a second: take a disk with a "
            f"protected cache, or --fsync 50"
        )
        return Finding("disk", "warning", what, advice)
    return Finding("disk", "ok", what)


def _milliseconds(us: int) -> str:
    return f"{us / 1000:.2f} ms"


def descriptors(soft: int, hard: int) -> Finding:
    """:param soft: the limit of file descriptors that holds; ``hard`` how far it can be raised."""
    what = f"{soft:,} file descriptors"
    if soft < LEAST_DESCRIPTORS:
        can = f"ulimit -n {min(hard, 65_536)}, or " if hard > soft else ""
        return Finding("descriptors", "warning", what, f"{can}LimitNOFILE=65536 in the unit")
    return Finding("descriptors", "ok", what)


def memory(limit_bytes: int, log_bytes: int) -> Finding:
    """:param limit_bytes: of the process, the container or the machine, whichever is least."""
    what = f"{format_size(limit_bytes)} for the server"
    if limit_bytes < LEAST_MEMORY_BYTES:
        return Finding("memory", "warning", what, f"give it {format_size(LEAST_MEMORY_BYTES)}")
    if log_bytes > limit_bytes:
        what += f", and the log has {format_size(log_bytes)}"
        advice = "all living jobs are in memory: see `binlog-inspect stats`, or give it more"
        return Finding("memory", "warning", what, advice)
    return Finding("memory", "ok", what)


def backlog(somaxconn: int) -> Finding:
    """:param somaxconn: the kernel's limit; 0 if it is unknown."""
    if not somaxconn:
        return Finding("backlog", "ok", "unknown")
    what = f"{somaxconn:,} connections may wait"
    if somaxconn < LEAST_BACKLOG:
        return Finding("backlog", "warning", what, "sysctl net.core.somaxconn=4096")
    return Finding("backlog", "ok", what)


def clock(now_s: float, newest_s: float, is_synchronised: bool | None) -> Finding:
    """:param newest_s: when the log was changed last; 0 for never.
    :param is_synchronised: whether the kernel says that the clock is kept; None if it says nothing.
    """
    ahead_s = newest_s - now_s
    if ahead_s > CLOCK_SLACK_S:
        what = f"it is {ahead_s:.0f} s behind the log: it was set back"
        return Finding("clock", "warning", what, "set it, before the server starts")
    if is_synchronised is False:
        advice = "run chrony or systemd-timesyncd"
        return Finding("clock", "warning", "nothing keeps it right", advice)
    return Finding("clock", "ok", "kept" if is_synchronised else "unknown by whom it is kept")
