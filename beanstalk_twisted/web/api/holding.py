"""
Who holds a reserved job, and since when.

A session knows the deadline that each of its jobs got when it was reserved, and the job the one it
has now: less the TTR that is when it was reserved, and when it was last reserved or touched.  If
its holder has changed its TTR by ``update-job``, the first is wrong by the difference, but never
later than the second.
"""

from itertools import islice
from typing import Any

from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.connections import SHOWN_RESERVED, ConnectionFactsSource
from beanstalk_twisted.web.tube_figures import NS


def holding(job: Job, session: Session, now_ns: int) -> dict[str, float]:
    """
    Since when a job is held by a session that holds it, seconds.
    """
    touched_ns = job.deadline_ns - job.ttr_s * NS
    reserved_ns = min(touched_ns, session.reserved[job.job_id] - job.ttr_s * NS)
    return {
        "reserved_seconds": max(0, now_ns - reserved_ns) / NS,
        "touched_seconds": max(0, now_ns - touched_ns) / NS,
        "seconds_left": max(0, job.deadline_ns - now_ns) / NS,
    }


def holder(
    state: QueueState, job_id: int, facts: ConnectionFactsSource, now_ns: int
) -> dict[str, Any] | None:
    """
    Who holds a job, and since when; None if nobody does.
    """
    job = state.jobs.look(job_id)
    session = None if job is None else state.sessions.get(job.holder)
    if job is None or session is None or job_id not in session.reserved:
        return None
    known = facts(session)
    peer = "" if known is None else known.peer
    return {"connection": session.number, "peer": peer, **holding(job, session, now_ns)}


def held(state: QueueState, number: int, now_ns: int) -> list[dict[str, Any]]:
    """
    The first jobs that a connection holds.

    :param number: the connection's.
    """
    session = state.sessions.get(number)
    if session is None:
        return []
    jobs = [state.jobs.look(job_id) for job_id in islice(session.reserved, SHOWN_RESERVED)]
    return [{"id": job.job_id, **holding(job, session, now_ns)} for job in jobs if job is not None]
