"""
The worker.  `service.Worker` takes jobs out of tubes and has a function of the application do them.

**No command ever waits behind a `reserve`.**  A beanstalkd that has nothing for a `reserve` answers
nothing else on that connection: a `delete` or `touch` sent behind it waits too, until a job comes,
the time-out is over, or (DEADLINE_SOON) a second before the TTR of a job of that connection ends.
And only the connection that has reserved a job may touch, release or bury it.  So a worker that
keeps a `reserve` waiting while it has jobs finishes them late, or loses them.  Hence one rule::

    A reserve that may wait is sent only on a connection that holds no job.

With jobs in hand and room for more, a connection asks without waiting: behind each job that ends,
more and more at once as long as jobs come (`demand.Demand`), and after an empty answer now and
then.  A worker with more than one slot has two connections.  The first holds most jobs; the second
holds none as a rule, and there a `reserve` waits: so a new job comes at once.  While both hold
jobs, the worker polls, at most every quarter of a second.

What was turned down:

- a waiting `reserve` on the connection that holds the jobs: this is the stall;
- the same with a short time-out: the protocol counts whole seconds, so a `delete` waits up to one;
- one connection for reserving, one for the rest: the server lets nobody else touch the job;
- a connection for each job: no stall, no polling, and a hundred connections for a hundred slots;
- waking the waiting `reserve` by a job of our own, put into a tube that only we watch: a write to
  the disk for each wake-up, refused by a server that drains, and litter when a worker is killed.

Layers, each knowing only those before it::

    verdicts     what is to become of a job
    serialisers  bodies to values and back; demand: when to ask for how many; policy: failures
    ──────── the Twisted line ────────
    hooks, threads     for logs and metrics; where functions run that block
    attempt      one go at one job, as the application sees it
    keepalive    touching in time, noticing that it was too late
    on_asyncio   coroutines that await what is asyncio's
    results      what a function has given, and what that says
    reserver     one connection, with what is reserved on it, and which server is behind it
    asking       who is asked for more, and when; settling: telling the server what becomes of a job
    job_run      a job from its reservation to its verdict
    checks       what a worker is made with
    service      the worker: when it begins and when it stops
    shell, loading, signals, command     the command beanstalk-work
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.worker.attempt import Attempt, Ending
    from beanstalk_twisted.worker.hooks import Hooks, Logged, Tally
    from beanstalk_twisted.worker.on_asyncio import NeedsAsyncio
    from beanstalk_twisted.worker.policy import Policy, Retry, times_given_back, times_reserved
    from beanstalk_twisted.worker.serialisers import Bytes, Json, Serialiser, Typed, Unreadable
    from beanstalk_twisted.worker.service import Worker
    from beanstalk_twisted.worker.shell import CommandFailed, Shell
    from beanstalk_twisted.worker.threads import InlineThreads, PoolThreads, Threads
    from beanstalk_twisted.worker.verdicts import (
        Bury,
        Decided,
        Delete,
        NoResult,
        Release,
        TookTooLong,
        TooManyAttempts,
        Verdict,
    )
else:
    __getattr__ = lazily(__name__, {
        "service": "Worker",
        "attempt": "Attempt Ending",
        "verdicts": "Bury Decided Delete NoResult Release TookTooLong TooManyAttempts Verdict",
        "policy": "Policy Retry times_given_back times_reserved",
        "hooks": "Hooks Logged Tally",
        "serialisers": "Bytes Json Serialiser Typed Unreadable",
        "threads": "InlineThreads PoolThreads Threads",
        "on_asyncio": "NeedsAsyncio",
        "shell": "CommandFailed Shell",
    })  # fmt: skip

__all__ = [
    "Attempt",
    "Bury",
    "Bytes",
    "CommandFailed",
    "Decided",
    "Delete",
    "Ending",
    "Hooks",
    "InlineThreads",
    "Json",
    "Logged",
    "NeedsAsyncio",
    "NoResult",
    "Policy",
    "PoolThreads",
    "Release",
    "Retry",
    "Serialiser",
    "Shell",
    "Tally",
    "Threads",
    "TooManyAttempts",
    "TookTooLong",
    "Typed",
    "Unreadable",
    "Verdict",
    "Worker",
    "times_given_back",
    "times_reserved",
]
