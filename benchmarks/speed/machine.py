"""Where figures come from: the interpreter, the servers, the machine and its disk."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.speed.ending import RefusedError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout."""

ANSWER_LIMIT_S: Final = 60.0
"""How long a program may take to say what it is, seconds; Twisted is imported in one."""

SYNCS: Final = 50
"""So many are timed to tell how fast the disk is."""

SORTED_BYTES: Final = 256 << 10
"""The functions of one source file are further apart than this where a profile has sorted them by
how often they run: 1.5 MB for Python's lists in Debian's Python, 8 KB where nothing did it.
"""

_ASK: Final = """
import json, platform, sysconfig
from beanstalk_twisted import version
import twisted
try:
    import ctypes
    of_lists = [ctypes.cast(getattr(ctypes.pythonapi, "PyList_" + name), ctypes.c_void_p).value
                for name in ("New", "Append", "Insert", "Reverse", "SetItem", "SetSlice", "Sort")]
except (ImportError, AttributeError):
    of_lists = [0]
print(json.dumps({
    "python": platform.python_implementation() + " " + platform.python_version(),
    "configured": sysconfig.get_config_var("CONFIG_ARGS") or "",
    "apart_bytes": max(of_lists) - min(of_lists),
    "twisted": twisted.__version__, "server": version.VERSION,
    "imported_from": version.__file__,
}))
"""

_EXCEPTION: Final = re.compile(r"[\w.]*(Error|Exception)\b")
"""How the last line of a traceback begins."""


class Machine(NamedTuple):
    """What figures depend on.

    :ivar is_optimised: the interpreter was built with PGO.
    :ivar sync_us: how long appending 4 KiB and fdatasync take, the median, microseconds; into
        space that was allocated before, as both servers write, it is often much quicker.
    :ivar load: processes that wanted to run, mean of the last minute, when measuring began.
    :ivar server: our version; it says whether it is compiled.
    :ivar imported_from: the folder of our server; empty if it is this checkout's.
    :ivar commit: this checkout's, and whether it was changed since; empty if that is not known.
    """

    python: str
    is_optimised: bool
    twisted: str
    server: str
    beanstalkd: str
    redis: str
    processor: str
    processors: int
    system: str
    file_system: str
    sync_us: float
    load: float
    imported_from: str = ""
    commit: str = ""

    @property
    def is_busy(self) -> bool:
        """Tell whether others wanted the processors when measuring began."""
        return self.load > self.processors

    def sentences(self) -> list[str]:
        """Tell it to a reader."""
        build = "built with PGO" if self.is_optimised else "built **without** PGO"
        redis = self.redis or "not installed, so left out"
        return [
            f"Ours: beanstalk-twisted {self.server}, {self.python} ({build}), "
            f"Twisted {self.twisted}{self._elsewhere()}.",
            f"Theirs: {self.beanstalkd}. Redis: {redis}.",
            f"Machine: {self.processors} processors ({self.processor}), {self.system}, "
            f"{self.file_system}, append and fdatasync {self.sync_us:.0f} µs, "
            f"load {self.load:.1f} at the beginning.",
        ]

    def _elsewhere(self) -> str:
        if not self.imported_from:
            return f"; commit {self.commit}" if self.commit else ""
        return f"; **not of this checkout, but imported from `{self.imported_from}`**"


def look(python: str, beanstalkd: str, redis: str | None, directory: Path | None) -> Machine:
    """Find out.

    :param python: the interpreter that runs our server.
    :param directory: where logs are kept.
    :raise RefusedError: the interpreter cannot run our server.
    """
    told = asked(python)
    folder = directory or Path(tempfile.gettempdir())
    return Machine(
        **told, beanstalkd=output_of(beanstalkd, "-v").strip(),
        redis=" ".join(output_of(redis, "--version").split()[:3]) if redis else "",
        processor=processor(Path("/proc/cpuinfo").read_text()), processors=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        file_system=file_system(folder, Path("/proc/mounts").read_text()),
        sync_us=sync_us(folder), load=os.getloadavg()[0], commit=commit(),
    )  # fmt: skip


def asked(python: str) -> dict[str, Any]:
    """Ask an interpreter what it is, and which server it would run.

    :raise RefusedError: it cannot run our server, with what it said.
    """
    try:
        told: dict[str, Any] = json.loads(output_of(python, "-P", "-c", _ASK))
    except OSError as problem:
        raise RefusedError(
            f"--python {python}: {problem.strerror}; name an interpreter, as .venv/bin/python"
        ) from None
    except (subprocess.SubprocessError, UnicodeError, json.JSONDecodeError) as problem:
        raise RefusedError(refusal(python, getattr(problem, "stderr", ""))) from None
    told["is_optimised"] = is_optimised(told.pop("configured"), told.pop("apart_bytes"))
    return {**told, "imported_from": elsewhere(Path(told["imported_from"]).parent)}


def is_optimised(configured: str, apart_bytes: int) -> bool:
    """Tell whether an interpreter was built with PGO: its machine code shows it where ``configure``
    was not asked for it.  Debian does it by targets of its own, and takes the flags out of what
    sysconfig says; to read ``-fprofile-use`` there means only that it could have been done.

    :param configured: what ``configure`` was given.
    :param apart_bytes: how far apart the functions for lists are; see `SORTED_BYTES`.
    """
    return "--enable-optimizations" in configured or apart_bytes > SORTED_BYTES


def refusal(python: str, stderr: str | None) -> str:
    """Say why an interpreter cannot run our server."""
    lines = (stderr or "").strip().splitlines() or [""]
    if _EXCEPTION.match(lines[-1]):
        return (
            f"--python {python} cannot import our server ({lines[-1]}); make a virtual environment "
            f"of it ({python} -m venv build/venv && build/venv/bin/pip install .) and say "
            f"--python build/venv/bin/python"
        )
    said = lines[0] or "nothing that could be read"
    return f"--python {python} is no Python of 3.11 or newer; asked what it is, it said: {said}"


def elsewhere(package: Path) -> str:
    """Name the folder of our server, from the checkout if it is in there; nothing if it is its
    own.
    """
    found = package.resolve()
    if found == ROOT / "beanstalk_twisted":
        return ""
    return str(found.relative_to(ROOT) if found.is_relative_to(ROOT) else found)


def commit(folder: Path = ROOT) -> str:
    """Say what is measured, in git's short words; a copy without its history has none."""
    with suppress(OSError, subprocess.SubprocessError):
        return output_of("git", "-C", str(folder), "describe", "--always", "--dirty").strip()
    return ""


def output_of(*command: str) -> str:
    """Run a command.

    :raise subprocess.SubprocessError: it has failed, or did not end.
    """
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        timeout=ANSWER_LIMIT_S,
    )  # fmt: skip
    return done.stdout


def processor(cpuinfo: str) -> str:
    """Find the model's name in ``/proc/cpuinfo``."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown"


def file_system(folder: Path, mounts: str) -> str:
    """Find what a folder is on, in ``/proc/mounts``."""
    resolved = folder.resolve()
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        _, point, found, *_ = line.split()
        # The one that was mounted last over the same point counts.
        if resolved.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), found
    return kind


def sync_us(folder: Path) -> float:
    """Time the disk."""
    took = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), b"x" * 4096)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6
