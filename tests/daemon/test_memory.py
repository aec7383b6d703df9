"""How much memory the process may use, and how it collects garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from beanstalk_twisted.daemon.command_line import parse
from beanstalk_twisted.daemon.memory import (
    FULL,
    MAX_ENDED,
    MEMBERSHIP,
    MIDDLE_RUNS,
    SERVER_BYTES,
    Collecting,
    MemoryShare,
    Phase,
    machine_bytes,
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
    assert parse([f"--max-memory={text}"])["memory_bytes"].of(machine) == expected


@pytest.mark.parametrize("text", ["", "%", "101%", "50%%", "%50", "-1", "1.5", "1G", "x%"])
def test_what_is_neither_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="5"):
        parse([f"--max-memory={text}"])
    assert "--max-memory needs" in capsys.readouterr().err


class FakeCollector:
    """A collector that collects when it is told to.

    :ivar done: what it was asked for.
    """

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Phase, dict[str, int]], object]] = []
        self.done: list[str] = []
        self.threshold = (700, 10, 10)

    def get_threshold(self) -> tuple[int, int, int]:
        return self.threshold

    def set_threshold(self, youngest: int, middle: int, oldest: int, /) -> None:
        self.threshold = (youngest, middle, oldest)

    def freeze(self) -> None:
        self.done.append("freeze")

    def unfreeze(self) -> None:
        self.done.append("unfreeze")

    def collect(self, generation: int) -> list[str]:
        """:return: what it was asked for meanwhile."""
        self.done.clear()
        phases: tuple[Phase, Phase] = ("start", "stop")
        for phase in phases:
            for tell in list(self.callbacks):
                tell(phase, {"generation": generation, "collected": 0, "uncollectable": 0})
        return list(self.done)


class Bench:
    """A server whose connections are counted."""

    def __init__(self) -> None:
        self.ended = 0
        self.collector = FakeCollector()
        self.collecting = Collecting(lambda: self.ended, self.collector)
        self.collecting.start()
        self.done_at_start = list(self.collector.done)
        self.collector.done.clear()


def test_what_a_server_is_made_of_is_looked_at_before_anybody_is_served() -> None:
    assert Bench().done_at_start == ["freeze"]


def test_what_a_full_collection_has_left_is_not_looked_at_again() -> None:
    bench = Bench()
    assert [bench.collector.collect(FULL) for _ in range(3)] == [["freeze"]] * 3


@pytest.mark.parametrize("generation", [0, 1])
def test_small_collections_are_left_alone(generation: int) -> None:
    assert Bench().collector.collect(generation) == []


@pytest.mark.parametrize(("missing", "first"), [(1, ["freeze"]), (0, ["unfreeze", "freeze"])])
def test_when_many_connections_have_ended_all_is_looked_at_once(
    missing: int, first: list[str]
) -> None:
    bench = Bench()
    for _ in range(2):
        bench.ended += MAX_ENDED - missing
        assert bench.collector.collect(FULL) == first
        assert bench.collector.collect(FULL) == ["freeze"]
        bench.ended += missing
        bench.collector.collect(FULL)


def test_connections_that_ended_before_it_began_do_not_count() -> None:
    collector = FakeCollector()
    ended = MAX_ENDED
    collecting = Collecting(lambda: ended, collector)
    collecting.start()
    assert collector.collect(FULL) == ["freeze"]


def test_a_server_that_has_stopped_leaves_pythons_collector_as_it_was() -> None:
    bench = Bench()
    assert bench.collector.threshold == (700, 10, MIDDLE_RUNS)
    bench.collecting.stop()
    assert bench.collector.callbacks == [] and bench.collector.done == ["unfreeze"]
    bench.collecting.stop()
    assert bench.collector.done == ["unfreeze"]
    assert bench.collector.threshold == (700, 10, 10)


@pytest.fixture
def pythons_own() -> Iterator[Collecting]:
    """Let Python's own collector be told, for the time of a test."""
    collecting = Collecting(lambda: 0)
    collecting.start()
    yield collecting
    collecting.stop()


def test_pythons_own_collector_freezes_what_is_there_and_still_finds_new_cycles(
    pythons_own: Collecting,
) -> None:
    kept: list[list[object]] = [[] for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() == 1


def test_a_full_collection_looks_at_few_objects(pythons_own: Collecting) -> None:
    left: list[int] = []

    def count(phase: Phase, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == FULL:
            left.append(sum(len(gc.get_objects(each)) for each in range(FULL + 1)))

    gc.callbacks.insert(0, count)
    try:
        kept = [[each] for each in range(200_000)]
    finally:
        gc.callbacks.remove(count)
    assert len(kept) == 200_000 and len(left) >= 5
    assert max(left) < 35_000
