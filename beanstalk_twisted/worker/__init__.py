"""
The worker.  `service.Worker` takes jobs out of tubes and has a function of the application do them.

A beanstalkd that has nothing for a `reserve` answers nothing else on that connection meanwhile, and
only that connection may touch, release or bury the jobs reserved on it (docs/worker.md, "Reserve
blocks a connection").  Hence one rule::

    A reserve that may wait is sent only on a connection that holds no job.

With jobs in hand and room for more, `scheduler` polls instead.  Turned down were:

- the same with a short time-out: the protocol counts whole seconds, so a `delete` waits up to one;
- one connection for reserving, one for the rest: the server lets nobody else touch the job;
- a connection for each job: no stall, no polling, and a hundred connections for a hundred slots;
- waking the waiting `reserve` by a job of our own, put into a tube that only we watch: a write to
  the disk for each wake-up, refused by a server that drains, and litter when a worker is killed.
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
