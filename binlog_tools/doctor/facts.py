"""What the checks are given: facts about this machine, a directory, and the server's options."""

import ctypes
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

from beanstalk_twisted.binlog.segments.format import parse_segment_name
from binlog_tools.doctor.checks import Folder, ServerOptions, Syncs

FOLDERS: Final = (
    "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
    "usr/lib/systemd/system", "lib/systemd/system",
)  # fmt: skip
"""Where units are (systemd.unit(5)); a file hides those of the same name in later folders."""

DEFAULTS: Final = "etc/default/beanstalk-twisted"
"""The file for options that our unit and the Debian package name."""

COMMENTS: Final = re.compile(r"^[ \t]*[#;].*\n?", re.MULTILINE)
SEPARATORS: Final = re.compile(r"[\s\"'=]+")
"""Between words, also of a shell's command line or a variable."""


def configured(root: Path = Path("/")) -> Mapping[Path, list[str]]:
    """Read the files of all servers, and the file for options.

    :return: the words of the command lines that each has; an option and its value are two.
    """
    found: dict[Path, list[str]] = {root / DEFAULTS: []}
    for files in _services(root).values():
        commands = _effective("ExecStart", files)
        if not any(_is_server(_words(text)) for _, text in commands):
            continue
        for path, text in commands + _effective("Environment", files):
            found.setdefault(path, []).extend(_words(text))
        for _, text in _effective("EnvironmentFile", files):
            found.setdefault(root / text.lstrip("-/"), [])
    for path, words in found.items():
        if not words:
            # The last value of a variable holds.
            words += _words(" ".join(dict(_assignments(path)).values()))
    return found


def _services(root: Path) -> Mapping[str, list[Path]]:
    """:return: of each service the files in force: its unit, then its drop-ins by name."""
    files: dict[str, Path] = {}
    for folder in FOLDERS:
        for pattern in ("*.service", "*.service.d/*.conf"):
            for path in (root / folder).glob(pattern):
                files.setdefault(str(path.relative_to(root / folder)), path)
    services: dict[str, list[Path]] = {}
    for name in sorted(files, key=lambda each: (each.count("/"), each.rpartition("/")[2])):
        # The drop-ins of an instance belong to its template.
        service = re.sub(r"@[^.]*", "@", name.partition(".service")[0])
        services.setdefault(service, []).append(files[name])
    return services


def _effective(setting: str, files: list[Path]) -> list[tuple[Path, str]]:
    """:return: the values in force of a setting; an empty one takes back those before."""
    values: list[tuple[Path, str]] = []
    for path in files:
        for name, text in _assignments(path):
            if name == setting:
                values = [*values, (path, text)] if text else []
    return values


def _assignments(path: Path) -> Iterator[tuple[str, str]]:
    """Read the lines ``NAME=VALUE`` of a unit or a file of variables; those it can read."""
    text = ""
    with suppress(OSError):
        text = path.read_text(errors="replace")
    for line in COMMENTS.sub("", text).replace("\\\n", " ").splitlines():
        name, _, value = line.partition("=")
        yield name.strip(), value.strip()


def _words(text: str) -> list[str]:
    return [word for word in SEPARATORS.split(text) if word]


def _is_server(words: list[str]) -> bool:
    programs = {word.lstrip("@-:+!").rpartition("/")[2] for word in words}
    return bool(programs & {"beanstalk-twisted", "beanstalk_twisted"}) or (
        {"twistd", "beanstalk"} <= programs
    )


SYNCS: Final = 200
"""Writes that are synced, unless time is up before."""

SYNC_BYTES: Final = 4096
"""Of each write: a page, as a small group commit."""

MEASURE_S: Final = 2.0
"""Seconds for all syncs; the one that is under way then is waited for."""

HANG_S: Final = 10.0
"""Seconds that they may take in all, before the disk is said to hang."""

OPTIONS_S: Final = 60.0
"""Seconds in which the server has to have read its options; it takes half of one."""

MOUNTS: Final = Path("/proc/self/mountinfo")
SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
CGROUP: Final = Path("/sys/fs/cgroup")
OWN_GROUP: Final = Path("/proc/self/cgroup")
LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""Of a control group, in its second and its first version."""

ASK: Final = """
import json, sys
from beanstalk_twisted.daemon.listening import ports_in_use, tls_files, wrong_files
from beanstalk_twisted.daemon.command_line import parse
options = parse(sys.argv[1:], "beanstalk-twisted")
print(json.dumps({
    "warnings": options["warnings"], "binlog": options["binlog"] or "",
    "user": options["user"] or "", "segment_bytes": options["segment_bytes"],
    "fsync_timeout_s": options["fsync_timeout_s"], "is_always": options["fsync"].is_always,
    "files": wrong_files(options), "tls": tls_files(options), "ports": ports_in_use(options),
}))
"""
"""Twisted is the server's: these tools do without, so another process is asked."""


def server_options(words: Sequence[str]) -> ServerOptions:
    try:
        done = subprocess.run(  # noqa: S603 - our own program; the words are its arguments.
            [sys.executable, "-c", ASK, *words], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=OPTIONS_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ServerOptions(problem=f"the server has not read them in {OPTIONS_S:g} s")
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        return ServerOptions(problem=said[-1] if said else f"exit code {done.returncode}")
    return ServerOptions(**json.loads(done.stdout.splitlines()[-1]))


def has_server(path: str) -> bool:
    # Imported with it: `beanstalk` knows no more of the log than names, but for this.
    from beanstalk_twisted.binlog.directory import holder_of

    try:
        return holder_of(path) != 0
    except OSError:
        return False


def twisted_version() -> str:
    try:
        return metadata.version("twisted")
    except metadata.PackageNotFoundError:
        return ""


def folder(path: str) -> Folder:
    """Look at a directory, or if it is not there at the one that it is to be made in."""
    there = path if os.path.isdir(path) else os.path.dirname(path) or "."
    try:
        os.close(_nameless(there))
    except OSError as problem:
        return Folder(there, problem.strerror or str(problem))
    state = os.statvfs(there)
    sizes, newest_s = _segments(there)
    return Folder(
        there, "", there == path and bool(os.stat(there).st_mode & 0o022), filesystem(there),
        state.f_bavail * state.f_frsize, sizes, newest_s,
    )  # fmt: skip


def _nameless(path: str) -> int:
    """:return: the descriptor of a new file, whose name is gone already."""
    name = os.path.join(path, f"doctor-{os.getpid()}.tmp")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return fd


def _segments(path: str) -> tuple[int, float]:
    found = []
    for entry in os.scandir(path):
        if parse_segment_name(entry.name) is not None:
            with suppress(FileNotFoundError):
                found.append(entry.stat())
    return sum(each.st_size for each in found), max((each.st_mtime for each in found), default=0.0)


def filesystem(path: str, mounts: Path = MOUNTS) -> str:
    """:param mounts: the kernel's list; proc(5), "mountinfo".
    :return: the kind of file system that a path is on; empty if that is unknown.
    """
    real = os.path.realpath(path)
    best, kind = "", ""
    with suppress(OSError):
        for line in mounts.read_text().splitlines():
            before, _, behind = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape")
            if os.path.commonpath((point, real)) == point and len(point) >= len(best):
                best, kind = point, behind.split()[0]
    return kind


def measured_syncs(
    path: str, hang_s: float = HANG_S, sync: Callable[[int], None] = os.fdatasync
) -> Syncs:
    """Write and sync small pages of a nameless file in a thread, which a hanging disk keeps."""
    taken_us: list[int] = []
    thread = threading.Thread(target=_sync_often, args=(path, taken_us, sync), daemon=True)
    thread.start()
    thread.join(hang_s)
    taken = list(taken_us)
    if not taken:
        return Syncs(0, 0, 0, is_ended=not thread.is_alive())
    return Syncs(len(taken), int(statistics.median(taken)), max(taken), not thread.is_alive())


def _sync_often(path: str, taken_us: list[int], sync: Callable[[int], None]) -> None:
    fd = _nameless(path)
    try:
        ends_s = time.monotonic() + MEASURE_S
        while len(taken_us) < SYNCS and time.monotonic() < ends_s:
            os.write(fd, os.urandom(SYNC_BYTES))
            began_ns = time.monotonic_ns()
            sync(fd)
            taken_us.append((time.monotonic_ns() - began_ns) // 1000)
    finally:
        os.close(fd)


def memory_limit(groups: Path = CGROUP, own: Path = OWN_GROUP) -> int:
    """:param groups: where the control groups are; ``own`` says which this process is in.
    :return: the least of what the machine has, and what this process and its groups may take.
    """
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [pages, resource.getrlimit(resource.RLIMIT_AS)[0]]
    for group in _groups(groups, own):
        for name in LIMITS:
            with suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return min(limit for limit in limits if limit > 0)


def _groups(groups: Path, own: Path) -> list[Path]:
    """Give the control group of this process and those that it is in, as far as it sees them."""
    name = ""
    with suppress(OSError):
        names = [line.split(":", 2)[2] for line in own.read_text().splitlines() if line[0] == "0"]
        name = names[0].lstrip("/") if names else ""
    group = groups / name
    return [group, *(each for each in group.parents if each.is_relative_to(groups))]


def somaxconn(path: Path = SOMAXCONN) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


TIMEX_BYTES: Final = 512
"""More than adjtimex(2) writes, 208."""

TIME_ERROR: Final = 5
"""What it returns while nothing keeps the clock."""


def clock_is_kept() -> bool | None:
    """Ask the kernel whether something keeps the clock right; None if it does not say."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except AttributeError:
        return None
    # All zeros: nothing is to be set.
    state = adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    return None if state < 0 else state != TIME_ERROR


def descriptors() -> tuple[int, int]:
    """:return: how many file descriptors this process may have, and how far that can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20
    return tuple(most if each == resource.RLIM_INFINITY else each for each in (soft, hard))  # type: ignore[return-value]
