"""How much memory the process may use, and the share of it that jobs may take."""

from __future__ import annotations

import pytest
from twisted.python.usage import UsageError

from beanstalk_twisted.daemon.memory import (
    MEMBERSHIP,
    SERVER_BYTES,
    MemoryShare,
    machine_bytes,
    memory_share,
)

GB = 1 << 30

V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"
NO_V1_LIMIT = "9223372036854771712\n"

MACHINES: dict[str, tuple[dict[str, str], int]] = {
    "no groups": ({}, 8 * GB),
    "version 2": (
        {MEMBERSHIP: "0::/a/b\n", f"{V2}/a/b/memory.max": f"{GB}\n", f"{V2}/a/memory.max": "max\n"},
        GB,
    ),
    "version 2, the group above has less": (
        {MEMBERSHIP: "0::/a/b\n", f"{V2}/a/b/memory.max": f"{3 * GB}\n",
         f"{V2}/a/memory.max": f"{2 * GB}\n"},
        2 * GB,
    ),
    "version 2, slowed down before": (
        {MEMBERSHIP: "0::/a\n", f"{V2}/a/memory.max": "max\n", f"{V2}/a/memory.high": f"{GB}\n"},
        GB,
    ),
    "version 2, in a container": (
        {MEMBERSHIP: "0::/\n", f"{V2}/memory.max": f"{GB}\n"}, GB,
    ),
    "version 2, in a container's parent": (
        {MEMBERSHIP: "0::/../x\n", f"{V2}/memory.max": f"{GB}\n"}, GB,
    ),
    "version 2, without limits": ({MEMBERSHIP: "0::/a\n", f"{V2}/a/memory.max": "max\n"}, 8 * GB),
    "version 1": (
        {MEMBERSHIP: "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
         f"{V1}/a/memory.limit_in_bytes": f"{GB}\n", f"{V1}/memory.limit_in_bytes": NO_V1_LIMIT},
        GB,
    ),
    "version 1, in a container": (
        {MEMBERSHIP: "4:memory:/docker/4711\n", f"{V1}/memory.limit_in_bytes": f"{GB}\n"}, GB,
    ),
    "version 1, without limits": (
        {MEMBERSHIP: "4:memory:/a\n", f"{V1}/a/memory.limit_in_bytes": NO_V1_LIMIT}, 8 * GB,
    ),
    "more than there is": (
        {MEMBERSHIP: "0::/\n", f"{V2}/memory.max": f"{99 * GB}\n"}, 8 * GB,
    ),
    "nonsense": ({MEMBERSHIP: "x\n0::\n::::\n", f"{V2}/memory.max": "many\n"}, 8 * GB),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), MACHINES.values(), ids=MACHINES)
def test_the_least_of_the_machines_memory_and_the_groups_limits_counts(
    files: dict[str, str], expected: int
) -> None:
    assert machine_bytes(lambda path: files.get(path), 8 * GB) == expected


def test_where_nothing_is_known_there_is_no_limit() -> None:
    assert machine_bytes(lambda path: None, 0) is None
    assert MemoryShare(80, is_percentage=True).of(None) == 0


def test_this_machine_has_memory() -> None:
    found = machine_bytes()
    assert found is not None and found > SERVER_BYTES


@pytest.mark.parametrize(
    ("text", "machine", "expected"),
    [
        ("0", GB, 0),
        ("1", GB, 1),
        ("5000000000", GB, 5_000_000_000),
        ("0%", GB, 0),
        ("50%", GB, (GB - SERVER_BYTES) // 2),
        ("100%", GB, GB - SERVER_BYTES),
        (" 100% ", SERVER_BYTES, 1),
        ("80%", SERVER_BYTES // 2, 1),
    ],
)
def test_bytes_are_taken_as_they_are_and_a_percentage_of_what_the_server_leaves(
    text: str, machine: int, expected: int
) -> None:
    assert memory_share("--max-memory", text).of(machine) == expected


@pytest.mark.parametrize("text", ["", "%", "101%", "50%%", "%50", "-1", "1.5", "1G", "x%"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-memory needs"):
        memory_share("--max-memory", text)
