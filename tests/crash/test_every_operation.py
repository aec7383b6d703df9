"""A crash at every single operation on the disk: what a server then finds is what was promised.

The histories are drawn by chance, from seeds.  Each has rotation, compaction, failures of the disk
that end the server, and starts after crashes, during which it is crashed again.  `explorer` says
what is looked at, `promises` what must be found.
"""

import os
from collections import Counter
from itertools import pairwise
from typing import Final

import pytest

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from tests.binlog import independent_reader
from tests.binlog.scribe import files_of
from tests.crash.explorer import Explorer, without_garbage_collection
from tests.crash.store import Store
from tests.sampling import one_in, share

INTERVAL: Final = FsyncPolicy(0.1)
POLICIES: Final = {"always": ALWAYS, "interval": INTERVAL, "never": NEVER}

STATES: Final = int(os.environ.get("CRASH_STATES", share(36_000, 36)))
"""How many disks are looked at in all: those of a crash, no two of a case alike, on each of which a
server is started and judged.  36,000 with ``--all``; another number by the environment variable.
"""

STATES_OF_A_CASE: Final = 6_000 if "CRASH_STATES" in os.environ else share(6_000, 6)
"""So many take some seconds, and are four or five histories; one in the sample."""

CASES: Final = -(-STATES // (STATES_OF_A_CASE * len(POLICIES)))
"""Seeds for each policy."""

BODY_STATES: Final = share(1_400, 7)
"""The same of each case with a cache."""

BODY_SEED: Final = 4
"""Of histories in which bodies are read back with each policy."""

TUBE_DEF: Final = 32
TRIM: Final = 48

EXTENSIONS: Final = (
    "move-job", "update-job", "tube-policy", "kick-dead", "cancel-job", "return-job",
)  # fmt: skip
"""Commands that beanstalkd does not have; each has done something, in the mean 15 times or more."""

LIVES: Final = 8
"""Servers after each other on one log."""


def living(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a log, but for those that a TRIM or a header says are dead."""
    segments = [each for each in independent_reader.read_log(files)["segments"].values() if each]
    records = [
        record for each in segments for frame in each["frames"] for record in frame["records"]
    ]
    trims = [record["job_id"] for record in records if record["type"] == TRIM]
    oldest = max([each["header"]["trim_seq"] for each in segments] + trims, default=0)
    return {name: content for name, content in files.items() if name >= f"{oldest:020d}"}


def check_segments(directory: Directory) -> None:
    """A log as the other reader sees it: without a gap, and each segment names the tubes of its
    records.
    """
    log = independent_reader.read_log(living(files_of(directory)))
    assert log["verdict"] != "damaged"
    lsns = [record["lsn"] for record in log["records"]]
    assert all(after == lsn + 1 for lsn, after in pairwise(lsns))
    for segment in log["segments"].values():
        records = [record for frame in segment["frames"] for record in frame["records"]]
        named = {record["tube_id"] for record in records if record["type"] == TUBE_DEF}
        assert {record["tube_id"] for record in records} <= named | {0}


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("policy", one_in(len(POLICIES), POLICIES))
def test_no_crash_breaks_a_promise(policy: str, seed: int) -> None:
    explorer = Explorer(seed, STATES_OF_A_CASE)
    counts: Counter[str] = Counter()
    with without_garbage_collection():
        while not explorer.is_done:
            store = Store(explorer, POLICIES[policy], seed=explorer.states + seed)
            for _ in range(LIVES):
                store.live()
            check_segments(store.directory)
            counts += store.counts + heard_of(store)
    check_what_happened(explorer, counts)


@pytest.mark.parametrize(
    ("body_cache", "verify"),
    [(0, Verify.FULL), (0, Verify.RECORDS), (1, Verify.RECORDS), (64 << 10, Verify.FULL)],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_crash_breaks_a_promise_wherever_bodies_are(
    policy: str, body_cache: int, verify: Verify
) -> None:
    """As above, where almost every body is read back; each that is in the log only is looked at
    there after each step.
    """
    explorer = Explorer(BODY_SEED + body_cache, BODY_STATES)
    counts: Counter[str] = Counter()
    with without_garbage_collection():
        while not explorer.is_done:
            store = Store(
                explorer, POLICIES[policy], seed=1000 * BODY_SEED + explorer.states + body_cache,
                body_cache=body_cache, verify=verify,
            )  # fmt: skip
            for _ in range(LIVES):
                store.live()
            check_segments(store.directory)
            counts += store.counts
    assert counts["bodies lost"] == 0, counts
    if body_cache <= 1:
        assert counts["bodies read"] > BODY_STATES // 1000, counts


def test_a_seed_is_a_history() -> None:
    """Byte for byte: a case that fails fails again."""
    logs = []
    for _ in range(2):
        explorer = Explorer(1, 100)
        store = Store(explorer, ALWAYS, seed=1)
        store.live()
        logs.append((explorer.states, files_of(store.directory)))
    assert logs[0] == logs[1]
    assert logs[0][1]


def heard_of(store: Store) -> Counter[str]:
    """How often clients have heard that each extension did what it does."""
    return Counter({word.decode(): count for word, count in store.promises.heard.items()})


def check_what_happened(explorer: Explorer, counts: Counter[str]) -> None:
    """So that the test cannot come to look at nothing unseen.  Numbers are a quarter of the mean of
    the sample's cases, or less: a change of the server that gives other histories keeps to them.
    """
    assert explorer.states == STATES_OF_A_CASE
    assert explorer.second_crashes > STATES_OF_A_CASE // 20, explorer.second_crashes
    assert counts["segments begun"] > counts["starts"] + 5, counts
    assert counts["copies"] > 0, counts
    assert counts["segments deleted"] > 5, counts
    assert counts["failed writes and syncs"], counts
    assert sum(counts[command] > 0 for command in EXTENSIONS) >= len(EXTENSIONS) - 1, counts
    assert counts["done at once"] > 10, counts
    assert counts["ended by the disk"], counts
