"""Each flaw in the order of things is found by crashes: the proof that `test_every_operation` could
fail.
"""

import re
from typing import Final, NamedTuple

import pytest

from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from tests.crash.explorer import Explorer, without_garbage_collection
from tests.crash.flaws import (
    DeletesBeforeCopies,
    DeletesBeforeTrim,
    DeletesWithoutTrim,
    GoodFrameProvesDamage,
    HeaderFirst,
    HeldBack,
    HeldBackDisk,
    MadeSyncsAgain,
    NamesNotSynced,
    NeverSynced,
    NotRehomed,
    PublishedUnsynced,
    RemovesDeadFirst,
    ReplaysLeftovers,
    SealNotSynced,
    SyncsAgain,
    disk_of,
    does_not_wait,
    read_with,
)
from tests.crash.history import Broken
from tests.crash.simulation import Parts
from tests.crash.store import Store
from tests.crash.test_every_operation import INTERVAL, LIVES
from tests.sampling import one_in

LIMIT: Final = 40_000
"""States in which a flaw must be found, in one life of a log after the other: several times what
the best hidden one takes.
"""


class Flaw(NamedTuple):
    """A server with a flaw.

    :ivar found: a part of what is said of it when it is found.
    :ivar policy: what is promised.
    :ivar failing: an operation that has to fail for it.
    """

    parts: Parts
    found: str
    policy: FsyncPolicy = ALWAYS
    failing: str = ""


MISSING: Final = "missing; .* builds on what was there"

FLAWS: Final = {
    # docs/durability.md: a reply waits for what it tells of.
    **{
        f"{word} is answered at once": Flaw(
            Parts(methods=does_not_wait(word)), "the log ends with LSN"
        )
        for word in (
            "move-job",
            "update-job",
            "kick-dead",
            "tube-policy",
            "cancel-job",
            "return-job",
        )
    },
    # docs/binlog-format.md, "Writing": 1 to 3.
    "commits are not synced": Flaw(Parts(disk=disk_of(NeverSynced)), "the log ends with LSN"),
    "replies do not wait": Flaw(Parts(fsync=INTERVAL), "the log ends with LSN"),
    "nothing is synced in time": Flaw(Parts(fsync=NEVER), "the log ends with LSN", INTERVAL),
    "a failed sync is tried again": Flaw(
        Parts(disk=disk_of(SyncsAgain)), "the log ends with LSN", failing="sync"
    ),
    "a failed sync of a segment without a name is tried again": Flaw(
        Parts(disk=disk_of(MadeSyncsAgain)),
        "shorter than its header|no frame follows the header",
        failing="sync",
    ),
    "names are not synced": Flaw(
        Parts(disk=disk_of(disk=NamesNotSynced)), f"the log ends with LSN|{MISSING}"
    ),
    "a segment begins before the one before it is durable": Flaw(
        Parts(disk=disk_of(SealNotSynced)), "cannot all be read|the log ends with LSN"
    ),
    "a segment is named before its content is durable": Flaw(
        Parts(disk=disk_of(PublishedUnsynced)),
        "shorter than its header|does not begin as a segment does|the log ends with LSN",
    ),
    "a segment is named before it has content": Flaw(
        Parts(disk=disk_of(HeldBack, HeldBackDisk)), "does not begin as a segment does"
    ),
    # 4: re-homing.
    "the header comes before what moves": Flaw(
        Parts(disk=disk_of(HeaderFirst, HeldBackDisk)),
        "the log ends with LSN|no frame follows the header",
    ),
    "nothing moves": Flaw(Parts(read=read_with(replay_class=NotRehomed)), "cannot all be read"),
    # 5: compaction.
    "a segment is deleted before the copies are durable": Flaw(
        Parts(compactor=DeletesBeforeCopies), MISSING
    ),
    "a segment is deleted before the TRIM is durable": Flaw(
        Parts(compactor=DeletesBeforeTrim), MISSING, INTERVAL
    ),
    "a segment is deleted without a TRIM": Flaw(Parts(compactor=DeletesWithoutTrim), MISSING),
    "a start deletes what a TRIM frees that is not durable": Flaw(
        Parts(read=read_with(replay_class=RemovesDeadFirst)), MISSING, INTERVAL
    ),
    "what a TRIM has freed is replayed": Flaw(
        Parts(read=read_with(ReplaysLeftovers)),
        "jobs that should be gone|state but no body|cannot all be read",
    ),
    # "Reading".
    "a good frame proves damage": Flaw(
        Parts(read=read_with(GoodFrameProvesDamage)), "a good frame behind it"
    ),
}


@pytest.mark.parametrize("name", one_in(16, FLAWS))
def test_a_flaw_is_found(name: str) -> None:
    flaw = FLAWS[name]
    explorer = Explorer(seed=1, limit=LIMIT, parts=flaw.parts)
    found = ""
    with without_garbage_collection():
        while not (found or explorer.is_done):
            found = violation(explorer, flaw, seed=explorer.states)
    print(f"found after {explorer.states} states: {found}")
    assert re.search(flaw.found, found), found


def violation(explorer: Explorer, flaw: Flaw, seed: int) -> str:
    """The first promise that is found broken in the life of a log, or an empty string."""
    store = Store(explorer, flaw.policy, seed, flaw.parts, flaw.failing)
    try:
        for _ in range(LIVES):
            store.live()
    except Broken as broken:
        return str(broken)
    return ""
