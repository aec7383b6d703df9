"""What the commands do: which method of the queue each operation of the tables is.

The tables (`wire.commands`, `wire.v1`) say how commands are written, for the server and for
clients; this joins them to the rules, for the server alone.
"""

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.workqueue import WorkQueue

Methods = dict[str, Callable[..., Answer | None]]
"""By operation; called with the session, the time and the fields' values, but where jobs follow:
then with the session, the time, when the line came, and what came.
"""


def methods_of(queue: WorkQueue) -> Methods:
    """What each operation is, of this queue."""
    return {
        "put": queue.puts.put,
        "peek": queue.looks.peek,
        "peek-ready": queue.looks.peek_ready,
        "peek-delayed": queue.looks.peek_delayed,
        "peek-buried": queue.looks.peek_buried,
        "reserve-with-timeout": queue.reservations.reserve_with_timeout,
        "reserve-job": queue.reserve_job,
        "reserve": queue.reservations.reserve,
        "delete": queue.delete,
        "release": queue.release,
        "bury": queue.bury,
        "kick": queue.kick,
        "kick-job": queue.kick_job,
        "touch": queue.touch,
        "stats-job": queue.looks.stats_job,
        "stats-tube": queue.looks.stats_tube,
        "stats": queue.stats,
        "use": queue.watching.use,
        "watch": queue.watching.watch,
        "ignore": queue.watching.ignore,
        "list-tubes-watched": queue.looks.list_tubes_watched,
        "list-tube-used": queue.looks.list_tube_used,
        "list-tubes": queue.looks.list_tubes,
        "pause-tube": queue.pause_tube,
        "capabilities": queue.looks.capabilities,
        "put-tagged": queue.put_batches.put_tagged,
        "put-at": queue.put_batches.put_at,
        "put-batch": queue.put_batches.put_batch,
        "reserve-batch": queue.batches.reserve,
        "delete-batch": queue.batches.delete,
        "list-jobs": queue.listing.list_jobs,
        "flush-tube": queue.flushes.flush,
        "forget-key": queue.flushes.forget_key,
        "move-job": queue.edits.move,
        "update-job": queue.edits.update,
        "wait-job": queue.job_waits.wait,
        "cancel-reserve": queue.cancel_reserve,
        "stats-group": queue.looks.stats_group,
        "watch-weighted": queue.watching.watch_weighted,
        "reserve-mode": queue.watching.reserve_mode,
        "tube-policy": queue.policies.tube_policy,
        "kick-dead": queue.dead_kicks.kick,
        "list-connections": queue.connections.list_all,
        "drain": queue.puts.drain,
        "undrain": queue.puts.undrain,
        "promote": queue.promote,
        "stats-replication": queue.stats_replication,
    }


LOOKS: Final = frozenset({
    "peek", "peek-ready", "peek-delayed", "peek-buried", "stats", "stats-job", "stats-tube",
    "list-tubes", "list-tube-used", "list-tubes-watched",
    "capabilities", "list-jobs", "stats-group", "list-connections", "stats-replication",
})  # fmt: skip
"""Operations that only look: whatever such a one fails with, all is as it was."""

CHANGES: Final = frozenset({
    "put", "put-tagged", "put-at", "put-batch", "reserve", "reserve-with-timeout", "reserve-job",
    "reserve-batch", "delete", "delete-batch", "release", "bury", "kick", "kick-job", "kick-dead",
    "pause-tube", "flush-tube", "forget-key", "move-job", "update-job", "tube-policy",
})  # fmt: skip
"""Operations whose replies wait for the log; all others change a connection, a TTR, or nothing."""
