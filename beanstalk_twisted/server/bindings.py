"""
What the commands do: which method of the queue each operation of the tables is.

The tables (`wire.commands`, `wire.v1`) say how commands are written, for the server and for
clients; this joins them to the rules, for the server alone.
"""

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.workqueue import WorkQueue

METHODS: Final[dict[str, Callable[..., Answer | None]]] = {
    "put": WorkQueue.put,
    "peek": WorkQueue.peek,
    "peek-ready": WorkQueue.peek_ready,
    "peek-delayed": WorkQueue.peek_delayed,
    "peek-buried": WorkQueue.peek_buried,
    "reserve-with-timeout": WorkQueue.reserve_with_timeout,
    "reserve-job": WorkQueue.reserve_job,
    "reserve": WorkQueue.reserve,
    "delete": WorkQueue.delete,
    "release": WorkQueue.release,
    "bury": WorkQueue.bury,
    "kick": WorkQueue.kick,
    "kick-job": WorkQueue.kick_job,
    "touch": WorkQueue.touch,
    "stats-job": WorkQueue.stats_job,
    "stats-tube": WorkQueue.stats_tube,
    "stats": WorkQueue.stats,
    "use": WorkQueue.use,
    "watch": WorkQueue.watch,
    "ignore": WorkQueue.ignore,
    "list-tubes-watched": WorkQueue.list_tubes_watched,
    "list-tube-used": WorkQueue.list_tube_used,
    "list-tubes": WorkQueue.list_tubes,
    "pause-tube": WorkQueue.pause_tube,
    "capabilities": WorkQueue.capabilities,
    "put-at": WorkQueue.put_at,
    "put-batch": WorkQueue.put_batch,
    "reserve-batch": WorkQueue.reserve_batch,
    "delete-batch": WorkQueue.delete_batch,
    "list-jobs": WorkQueue.list_jobs,
    "flush-tube": WorkQueue.flush_tube,
    "wait-job": WorkQueue.wait_job,
    "cancel-reserve": WorkQueue.cancel_reserve,
    "list-connections": WorkQueue.list_connections,
    "drain": WorkQueue.drain,
    "undrain": WorkQueue.undrain,
}
"""Called with the queue, the session, the time and the fields' values, but where jobs follow."""

LOOKS: Final = frozenset({
    "peek", "peek-ready", "peek-delayed", "peek-buried", "stats", "stats-job", "stats-tube",
    "list-tubes", "list-tube-used", "list-tubes-watched",
    "capabilities", "list-jobs", "list-connections",
})  # fmt: skip
"""Operations that only look: whatever such a one fails with, all is as it was."""
