"""Conversations in which time passes, and room comes and goes: who waits, until when, for what."""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.put_batches import MAX_AHEAD_S
from tests.rules.conversation import NS, START_NS
from tests.rules.scripts import hold

PUT = "put 0 0 60 1"
START_S = START_NS // NS

SCRIPTS: dict[str, list[str]] = {
    # Puts wait for room.
    "a put without room waits, and there is no job until then": [
        "room none", f"a: {PUT} -> ...", "b: peek 1 -> NOT_FOUND", "room none", "a -> ...",
        "room 1", "a -> INSERTED 1", f"a: {PUT} -> INSERTED 2",
    ],
    "puts that wait are taken in order": [
        "room none", "a: put 0 0 60 5 -> ...", "b: put 0 0 60 3 -> ...", "c: put 0 0 60 4 -> ...",
        "room 4", "a -> ...", "b -> ...", "c -> ...",
        "room 5", "a -> INSERTED 1", "b -> INSERTED 2", "c -> INSERTED 3",
    ],
    "the first that has no room keeps its place": [
        "room none", f"a: {PUT} -> ...", "b: put 0 0 60 5 -> ...", f"c: {PUT} -> ...",
        "room 1", "a -> INSERTED 1", "b -> ...", "c -> ...",
        "room 5", "b -> INSERTED 2", "c -> INSERTED 3",
    ],
    "a put is refused when the disk has no more to give, and uses up an id": [
        "short none", f"a: {PUT} -> OUT_OF_MEMORY", "short 1", f"a: {PUT} -> INSERTED 2",
    ],
    "a small put is taken from a full disk as long as it has room": [
        "short 10", "a: put 0 0 60 11 -> OUT_OF_MEMORY", "a: put 0 0 60 10 -> INSERTED 2",
    ],
    "all that wait are refused when the disk turns out to be full": [
        "room none", f"a: {PUT} -> ...", f"b: {PUT} -> ...",
        "short none", "a -> OUT_OF_MEMORY", "b -> OUT_OF_MEMORY", "no demand",
    ],
    "the put of a connection that has gone is forgotten": [
        "room none", f"a: {PUT} -> ...", f"b: {PUT} -> ...", "a leaves",
        "room 1", "b -> INSERTED 2", "b: peek 1 -> NOT_FOUND",
    ],
    "the time of a put is when its body was there, and its delay when it was taken": [
        "room none", "a: put 7 10 60 1 -> ...", "+5", "room 1", "a -> INSERTED 1",
        "a: stats-job 1 -> state=delayed age=5 time-left=10",
    ],
    "a put that waits is taken although the server has begun to drain": [
        "room none", f"a: {PUT} -> ...", "b: drain -> DRAINING", "room 1", "a -> INSERTED 1",
        f"a: {PUT} -> DRAINING",
    ],
    # So do edits.
    "a move on a full disk is refused": [
        "a: use work -> USING work", f"a: {PUT} -> INSERTED 1", "a: reserve-job 1 -> RESERVED 1 1",
        "short 0", "a: move-job 1 other -> OUT_OF_MEMORY", "a: stats-job 1 -> state=reserved",
        "a: stats-tube other -> NOT_FOUND", "a: delete 1 -> DELETED",
    ],
    "a move waits for room, and looks again then": [
        "a: use work -> USING work", f"a: {PUT} -> INSERTED 1", "room 0",
        "b: move-job 1 other -> ...", "c: move-job 1 other -> ...", "a: delete 1 -> DELETED",
        "a: use default -> USING default", "room 9999", "b -> NOT_FOUND", "c -> NOT_FOUND",
        "b: stats-tube work -> NOT_FOUND", "b: stats-tube other -> NOT_FOUND",
    ],
    "an update on a full disk is refused": [
        "a: put 3 0 60 1 -> INSERTED 1", "a: reserve-job 1 -> RESERVED 1 1", "short 2",
        "a: update-job 1 4 0 20 1 -> OUT_OF_MEMORY",
        "a: stats-job 1 -> pri=3 ttr=60 state=reserved", "a: peek 1 -> FOUND 1 1",
    ],
    "a full disk does not hinder a cancel, and takes no return": [
        f"a: {PUT} -> INSERTED 1", f"a: {PUT} -> INSERTED 2", "a: reserve -> RESERVED 1 1",
        "a: reserve -> RESERVED 2 1", "full", "b: cancel-job 1 -> CANCELLED",
        "a: return-job 2 5 -> OUT_OF_MEMORY", "a: stats-job 2 -> state=reserved reserves=1",
    ],
    # Reserves wait.
    "a timeout ends the wait when it is over, and not before": [
        "a: reserve-with-timeout 3 -> ...", "due 3", "+2.999999999", "a -> ...",
        "+0.000000001", "a -> TIMED_OUT", "idle", "a: list-tube-used -> USING default",
    ],
    "a job that is ready in the instant of the timeout wins": [
        "b: put 0 2 60 1 -> INSERTED 1", "a: reserve-with-timeout 2 -> ...", "+2",
        "a -> RESERVED 1 1",
    ],
    "a pause that ends in the instant of a timeout comes first": [
        f"a: {PUT} -> INSERTED 1", "a: pause-tube default 2 -> PAUSED",
        "a: reserve-with-timeout 2 -> ...", "+2", "a -> RESERVED 1 1",
    ],
    "a waiting owner is warned one second before its deadline": [
        "a: put 0 0 3 1 -> INSERTED 1", "a: reserve -> RESERVED 1 1", "a: reserve -> ...",
        "+1.999999999", "a -> ...", "+0.000000001", "a -> DEADLINE_SOON",
        "a: reserve-with-timeout 9 -> DEADLINE_SOON",
    ],
    "if margin and timeout come together, the margin counts": [
        "a: put 0 0 3 1 -> INSERTED 1", "a: reserve -> RESERVED 1 1",
        "a: reserve-with-timeout 2 -> ...", "+2", "a -> DEADLINE_SOON", "a -> ...",
    ],
    "a session that hears of no deadline waits on, and gets its own job again": [
        "deaf: put 0 0 10 1 -> INSERTED 1", "deaf: reserve -> RESERVED 1 1", "deaf: reserve -> ...",
        "due 10", "+9.999", "deaf -> ...", "+0.001", "deaf -> RESERVED 1 1",
        "deaf: stats-job 1 -> timeouts=1",
    ],
    "when a pause ends, all that wait are served in turn with the best first": [
        "d: pause-tube default 1 -> PAUSED", "a: reserve -> ...", "b: reserve -> ...",
        "c: reserve -> ...", "d: put 2 0 60 1 -> INSERTED 1", "d: put 1 0 60 1 -> INSERTED 2",
        "+1", "a -> RESERVED 2 1", "b -> RESERVED 1 1", "c -> ...",
    ],
    # What is due.
    "what was planned in vain is found to be nothing": [
        "a: put 0 1 60 1 -> INSERTED 1", "a: delete 1 -> DELETED", "a: put 0 0 1 1 -> INSERTED 2",
        "a: reserve -> RESERVED 2 1", "a: bury 2 0 -> BURIED", "+1", "idle",
        "a: stats -> current-jobs-ready=0 current-jobs-buried=1",
    ],
    "the earliest of all that can happen is due": [
        "a: put 0 50 60 1 -> INSERTED 1", "due 50", "a: pause-tube default 40 -> PAUSED", "due 40",
        "a: use other -> USING other", "a: watch other -> WATCHING 2",
        "a: put 0 0 30 1 -> INSERTED 2", "a: reserve -> RESERVED 2 1", "due 30",
        "b: reserve-with-timeout 20 -> ...", "due 20",
    ],
    "delays end by time and then by id": [
        "p: use crowd -> USING crowd",
        *[f"p: put 0 {delay} 60 1 -> INSERTED {at}" for at, delay in enumerate((3, 1, 2, 1), 1)],
        *[step for who in "abcd" for step in
          (f"{who}: watch crowd -> WATCHING 2", f"{who}: reserve -> ...")],
        "!3", "a -> RESERVED 2 1", "b -> RESERVED 4 1", "c -> RESERVED 3 1", "d -> RESERVED 1 1",
    ],
    # Dead letters wait for room.
    "on a full disk a job that was reserved too often waits for space": [
        "a: tube-policy default max-reserves=1 -> POLICY", f"a: {PUT} -> INSERTED 1",
        "a: reserve -> RESERVED 1 1", "full 1", "a: release 1 0 0 -> RELEASED",
        "a: stats-job 1 -> state=delayed", "a: reserve-with-timeout 0 -> TIMED_OUT",
        "free", "+2", "a: stats-job 1 -> state=buried dead-reason=release",
    ],
    "what waits for space waits in the tube that it is moved to": [
        "a: tube-policy default max-reserves=1 -> POLICY", f"a: {PUT} -> INSERTED 1",
        "a: reserve -> RESERVED 1 1", "full 1", "a: release 1 0 0 -> RELEASED", "free",
        "a: move-job 1 other -> MOVED", "+2",
        "a: stats-job 1 -> state=buried tube=other dead-from=other",
    ],
    "a buried job that is too old stays buried until there is space": [
        "a: tube-policy default max-age=10 dead-letter=dead -> POLICY", f"a: {PUT} -> INSERTED 1",
        "a: reserve -> RESERVED 1 1", "a: bury 1 0 -> BURIED", "full", "+12",
        "a: stats-job 1 -> tube=default state=buried", "free", "+2", "a: stats-job 1 -> tube=dead",
    ],
    "old jobs that have no room are withheld, and tried again": [
        "a: tube-policy default max-age=10 -> POLICY", f"a: {PUT} -> INSERTED 1", "full", "+10",
        "a: stats-job 1 -> state=delayed", "a: reserve-with-timeout 0 -> TIMED_OUT", "due 1",
        "free", "+1", "a: stats-job 1 -> state=buried",
    ],
    "a paused tube with a rate keeps nobody busy": [
        "a: tube-policy default rate=1:1 -> POLICY", "a: put 0 0 100 1 -> INSERTED 1",
        "a: reserve -> RESERVED 1 1", "a: pause-tube default 60 -> PAUSED", "!2", "due 58",
        f"a: {PUT} -> INSERTED 2", "a: reserve-with-timeout 0 -> TIMED_OUT", "+58",
        "a: reserve -> RESERVED 2 1",
    ],
    # Tags and policies wait for a segment that may hold them.
    "a log that cannot begin a segment takes no tags, and no edits": [
        "a: put 0 0 60 1 -> INSERTED 1", "segment none short",
        f"a: {PUT} idp:k -> OUT_OF_MEMORY", f"a: {PUT} -> INSERTED 2",
        "a: move-job 1 other -> OUT_OF_MEMORY", "a: update-job 1 1 0 60 -> OUT_OF_MEMORY",
        "a: stats-job 1 -> pri=0 tube=default",
    ],
    "a put with tags waits for the segment that may hold them": [
        "segment none", f"a: {PUT} idp:k -> ...", f"b: {PUT} -> INSERTED 1", "segment",
        "a -> INSERTED 2",
    ],
    "an update waits for the segment that may hold it": [
        f"a: {PUT} -> INSERTED 1", "segment none", "a: update-job 1 1 0 60 -> ...", "segment",
        "a -> UPDATED", "a: stats-job 1 -> pri=1",
    ],
    "what is there already needs no room": [
        f"a: {PUT} idp:a -> INSERTED 1", "room none",
        "a: put 0 0 60 9000 idp:a -> INSERTED 1 READY", "short none",
        "a: put 0 0 60 9000 idp:a -> INSERTED 1 READY", f"a: {PUT} idp:b -> OUT_OF_MEMORY",
    ],
    "a full disk takes no policy": [
        "full 1", "a: tube-policy default rate=1 -> OUT_OF_MEMORY",
        "a: tube-policy default -> OK 4",
    ],
    "a policy keeps its tube, and its end lets it go": [
        "a: tube-policy kept max-jobs=7 rate=3 -> POLICY", "a: stats-tube kept -> name=kept",
        "a: tube-policy kept max-jobs=- -> POLICY",
        "a: tube-policy kept -> rate=3 rate-from=command",
        "a: tube-policy kept rate=- -> POLICY", "a: stats-tube kept -> NOT_FOUND",
    ],
    # Moments.
    "a moment that passes while the job waits for room is now": [
        "room none", f"a: put-at 0 {START_S + 2} 60 1 -> ...", "+5", "room 1000",
        "a -> INSERTED 1", "a: reserve -> RESERVED 1 1",
    ],
    "a moment is no further ahead than the longest delay": [
        f"a: put-at 0 {START_S + MAX_AHEAD_S + 1} 60 1 -> BAD_FORMAT",
        f"a: put-at 0 {'9' * 100} 60 1 -> BAD_FORMAT",
        f"a: put-at 0 {START_S + MAX_AHEAD_S} 60 1 -> INSERTED 1",
        f"a: stats-job 1 -> delay={MAX_AHEAD_S} time-left={MAX_AHEAD_S}",
    ],
    # Batches wait for their first job.
    "with seconds a batch is a reserve with timeout for the first job": [
        "a: reserve-batch 5 0 -> RESERVED_BATCH 0", "a: reserve-batch 5 2 -> ...", "+1.5",
        "a -> ...", "+0.5", "a -> RESERVED_BATCH 0", "a: put 0 0 3 1 -> INSERTED 1",
        "a: reserve -> RESERVED 1 1", "a: reserve-batch 5 60 -> ...", "+2", "a -> DEADLINE_SOON",
        "a: reserve-batch 5 60 -> DEADLINE_SOON",
    ],
    "a wait that has ended makes no batch of the next reserve": [
        "a: reserve-batch 3 1 -> ...", "+1", "a -> RESERVED_BATCH 0", "a: reserve -> ...",
        f"b: {PUT} -> INSERTED 1", "a -> RESERVED 1 1",
    ],
    "who waits gets all that becomes ready in the same turn": [
        "a: reserve-batch 3 60 -> ...", *[f"b: {PUT} -> INSERTED {at}" for at in range(1, 6)],
        "a -> ...", "+0", "a -> RESERVED_BATCH 3", "b: reserve -> RESERVED 4 1",
    ],
    # Keys and groups.
    **{f"who waits gets the next job of a key after {end}": [
        "b: watch other -> WATCHING 2", f"a: {PUT} con:k -> INSERTED 1",
        f"a: {PUT} con:k -> INSERTED 2", "a: reserve -> RESERVED 1 1", "b: reserve -> ...",
        f"a: {end} -> {reply}", "b -> RESERVED 2 1",
    ] for end, reply in [
        ("delete 1", "DELETED"), ("release 1 9 0", "RELEASED"), ("release 1 9 5", "RELEASED"),
        ("bury 1 0", "BURIED"), ("delete-batch 1", "DELETED_BATCH 1 0"),
        ("return-job 1 60", "RETURNED"), ("cancel-job 1", "CANCELLED"),
    ]},
    "the end of a TTR lets the next job of a key go": [
        "a: put 9 0 5 1 con:k -> INSERTED 1", "a: put 9 0 5 1 con:k -> INSERTED 2",
        "b: watch other -> WATCHING 2", "a: reserve -> RESERVED 1 1",
        f"a: {PUT} con:k -> INSERTED 3", "b: reserve -> ...", "+4", "b -> ...", "+1",
        "b -> RESERVED 3 1", "a: stats-job 1 -> state=ready", "a: stats-job 2 -> state=ready",
    ],
    **{f"a delay that {word} over when its group ends": [
        f"a: {PUT} grp:g -> INSERTED 1", "a: put 0 3 60 1 aft:g -> INSERTED 2", f"!{seconds}",
        "a: delete 1 -> DELETED", f"a: stats-job 2 -> state={state}",
    ] for word, seconds, state in [("is not", 2.999999999, "delayed"), ("is just", 3, "ready")]},
    "on a full disk those that wait for a group wait for room, and nobody is busy meanwhile": [
        f"a: {PUT} grp:g -> INSERTED 1", f"a: {PUT} aft:g -> INSERTED 2",
        f"a: {PUT} grp:h -> INSERTED 3", "full", "a: delete 1 -> DELETED", "idle", "!0",
        "a: stats-group g -> pending=0 complete=true waiting-jobs=1",
        "a: stats-job 2 -> state=delayed", "a: delete 3 -> DELETED", "free", "due 0", "+0",
        "a: stats-job 2 -> state=ready", "idle",
    ],
    # What a job goes through.
    "puts above what a policy takes are refused": [
        "a: tube-policy default max-jobs=2 max-bytes=10 max-job-size=8 -> POLICY",
        "a: put 0 0 60 9 -> JOB_TOO_BIG", "a: put 0 0 60 8 -> INSERTED 2",
        "a: put 0 0 60 3 -> OUT_OF_MEMORY", "a: put 0 9 60 2 -> INSERTED 4",
        "a: put 0 0 60 0 -> OUT_OF_MEMORY", "a: delete 2 -> DELETED",
        "a: put 0 0 60 8 -> INSERTED 6",
    ],
    "a burst is served at once, and comes back with time": [
        "a: tube-policy default rate=10:2 -> POLICY",
        *[f"a: {PUT} -> INSERTED {at}" for at in range(1, 5)],
        "a: reserve -> RESERVED 1 1", "a: reserve -> RESERVED 2 1",
        "a: reserve-with-timeout 0 -> TIMED_OUT", "+0.1", "a: reserve -> RESERVED 3 1",
        "a: reserve-with-timeout 0 -> TIMED_OUT",
    ],
    "a returned job is as it was, or delayed": [
        "a: put 5 0 60 1 -> INSERTED 1", "a: put 5 0 60 1 -> INSERTED 2",
        "a: reserve -> RESERVED 1 1", "b: return-job 1 -> NOT_FOUND", "a: return-job 1 -> RETURNED",
        "a: stats-job 1 -> state=ready reserves=0 releases=0", "b: reserve -> RESERVED 1 1",
        "b: return-job 1 5 -> RETURNED", "a: stats-job 1 -> state=delayed delay=5 time-left=5",
        "+5", "b: reserve -> RESERVED 1 1",
    ],
    "who has reserved a cancelled job finds it no more": [
        "a: put 0 0 5 1 -> INSERTED 1", "a: reserve -> RESERVED 1 1", "b: wait-job 1 60 -> ...",
        "a: reserve-with-timeout 10 -> ...", "c: cancel-job 1 -> CANCELLED", "b -> DELETED",
        "+9", "a -> ...", "+1", "a -> TIMED_OUT", "a: touch 1 -> NOT_FOUND",
    ],
    "a dead letter that is kicked was never tried": [
        "a: tube-policy default max-reserves=1 dead-letter=dead -> POLICY",
        "a: put 7 0 60 1 -> INSERTED 1", "a: reserve -> RESERVED 1 1",
        "a: release 1 7 0 -> RELEASED",
        "a: stats-job 1 -> state=buried tube=dead dead-from=default dead-reason=release reserves=1",
        "b: kick-dead default 5 -> KICKED 1",
        "a: stats-job 1 -> state=ready tube=default pri=7 reserves=0 releases=0 kicks=1",
        "a: move-job 1 dead -> MOVED", "a: stats-job 1 -> tube=dead origin=default",
    ],
    "the smallest id of the used tube is shown, whoever has reserved it": [
        f"a: {PUT} -> INSERTED 1", f"a: {PUT} -> INSERTED 2", "a: peek-reserved -> NOT_FOUND",
        "b: reserve-job 2 -> RESERVED 2 1", "a: peek-reserved -> FOUND 2 1",
        "a: reserve-job 1 -> RESERVED 1 1", "b: peek-reserved -> FOUND 1 1",
        "a: use elsewhere -> USING elsewhere", "a: peek-reserved -> NOT_FOUND",
    ],
    "a group is counted by state": [
        f"a: {PUT} grp:g -> INSERTED 1", "a: put 0 9 60 1 grp:g -> INSERTED 2",
        f"a: {PUT} aft:g -> INSERTED 3", "a: reserve -> RESERVED 1 1",
        "a: stats-group g -> pending=2 reserved=1 delayed=1 waiting-jobs=1",
        "a: bury 1 0 -> BURIED", "a: kick 9 -> KICKED 1", "a: move-job 1 there -> MOVED", "+9",
        "a: stats-group g -> ready=2 reserved=0 delayed=0 buried=0 complete=false",
    ],
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_held_to_its_end(script: list[str]) -> None:
    hold(script)
