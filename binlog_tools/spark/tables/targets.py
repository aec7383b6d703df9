"""Targets of tubes, as a TOML file says them:

[[target]]
tube = "mail-*"     # the first target that fits a tube counts
wait_s = 5          # from ready to reserved
run_s = 60          # from reserved to the end of the run
share = 0.99        # of an hour's jobs; 1 by default
"""

from pathlib import Path
from typing import Any, Final

from beanstalk_twisted.toml import BadToml, parse_toml
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.histories.sla import Target, Targets

MAX_BYTES: Final = 1 << 20
"""Of the file: some ten thousand targets."""

MAX_SECONDS: Final = 10 * 365 * 86_400
"""Of a target: ten years, so that nanoseconds fit into 64 bits by far."""

_NAMES: Final = ("tube", "wait_s", "run_s", "share")


def read_targets(path: str) -> Targets:
    """:raise TableError: the file cannot be read, or says something else."""
    try:
        raw = Path(path).read_bytes()
    except OSError as problem:
        raise TableError("TABLE_OPTION", f"{path}: {problem.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise TableError("TABLE_OPTION", f"{path}: it is larger than {MAX_BYTES} bytes")
    try:
        told = parse_toml(raw.decode())
        return [_target(number, each) for number, each in enumerate(_tables(told), start=1)]
    except (BadToml, UnicodeDecodeError, ValueError) as problem:
        raise TableError("TABLE_OPTION", f"{path}: {problem}") from None


def _tables(told: dict[str, Any]) -> list[dict[str, Any]]:
    found = told.get("target")
    if set(told) != {"target"} or not isinstance(found, list):
        raise ValueError("it has to consist of [[target]] tables")
    return found


def _target(number: int, told: dict[str, Any]) -> tuple[str, Target]:
    where = f"target {number}"
    if unknown := sorted(set(told) - set(_NAMES)):
        raise ValueError(f"{where}: {unknown[0]} is not one of {', '.join(_NAMES)}")
    tube, share = told.get("tube"), told.get("share", 1)
    if not isinstance(tube, str) or not tube:
        raise ValueError(f"{where}: tube has to be a tube's name, or a pattern with *")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ValueError(f"{where}: share has to be a number above 0, up to 1")
    wait_ns, run_ns = (_nanoseconds(f"{where}: {name}", told.get(name)) for name in _NAMES[1:3])
    if wait_ns is None and run_ns is None:
        raise ValueError(f"{where}: it has neither wait_s nor run_s")
    return tube, Target(wait_ns, run_ns, float(share))


def _nanoseconds(what: str, seconds: Any) -> int | None:
    if seconds is None:
        return None
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{what} has to be a number of seconds from 0 to {MAX_SECONDS}")
    return round(float(seconds) * 1_000_000_000)
