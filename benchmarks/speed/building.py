"""Compiles the load generator and the slow disk, when they are not there or older than their
sources.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).with_name("load")
SLOWSYNC: Final = SOURCES / "slowsync.c"
WARNINGS: Final = ("-Wall", "-Wextra")

LIMIT_S: Final = 120.0
"""How long gcc may take, seconds; it takes one or two."""


class Tools(NamedTuple):
    """What was built.

    :ivar slowsync: a library to preload, by which fsync takes longer.
    """

    loadgen: Path
    slowsync: Path


def build(folder: Path) -> Tools:
    """Bring what is built up to date.

    :raise SystemExit: gcc has failed, or found something to warn of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(folder / "loadgen", folder / "slowsync.so")
    parts = sorted(set(SOURCES.glob("*.c")) - {SLOWSYNC})
    bring_up_to_date(tools.loadgen, parts, ["-std=gnu11", *map(str, parts)])
    shared = ["-shared", "-fPIC", str(SLOWSYNC), "-ldl"]
    bring_up_to_date(tools.slowsync, [SLOWSYNC], shared)
    return tools


def bring_up_to_date(target: Path, parts: Sequence[Path], words: Sequence[str]) -> None:
    """Compile, unless the target is newer than all it is made of."""
    newest = max(path.stat().st_mtime for path in [*parts, *SOURCES.glob("*.h")])
    if target.exists() and target.stat().st_mtime > newest:
        return
    # Under another name first: two builds at a time do not run half of each other's.
    fresh = target.with_name(f"{target.name}.{os.getpid()}.new")
    command = ["gcc", "-O2", *WARNINGS, "-o", str(fresh), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        raise SystemExit("gcc is not installed, so there is nothing to make a load with") from None
    if done.returncode or done.stderr:
        raise SystemExit(f"gcc has failed:\n{done.stderr}")
    fresh.replace(target)
