"""The worker.  `service.Worker` takes jobs out of tubes and has a function of the application do
them.
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.worker.attempt import Attempt as Attempt
    from beanstalk_twisted.worker.attempt import Ending as Ending
    from beanstalk_twisted.worker.handlers import InlineThreads as InlineThreads
    from beanstalk_twisted.worker.handlers import NeedsAsyncio as NeedsAsyncio
    from beanstalk_twisted.worker.handlers import PoolThreads as PoolThreads
    from beanstalk_twisted.worker.handlers import Threads as Threads
    from beanstalk_twisted.worker.hooks import Event as Event
    from beanstalk_twisted.worker.hooks import Tally as Tally
    from beanstalk_twisted.worker.policy import Bury as Bury
    from beanstalk_twisted.worker.policy import Decided as Decided
    from beanstalk_twisted.worker.policy import Delete as Delete
    from beanstalk_twisted.worker.policy import NoResult as NoResult
    from beanstalk_twisted.worker.policy import Policy as Policy
    from beanstalk_twisted.worker.policy import Release as Release
    from beanstalk_twisted.worker.policy import Retry as Retry
    from beanstalk_twisted.worker.policy import Return as Return
    from beanstalk_twisted.worker.policy import TookTooLong as TookTooLong
    from beanstalk_twisted.worker.policy import TooManyAttempts as TooManyAttempts
    from beanstalk_twisted.worker.policy import Verdict as Verdict
    from beanstalk_twisted.worker.policy import times_given_back as times_given_back
    from beanstalk_twisted.worker.policy import times_reserved as times_reserved
    from beanstalk_twisted.worker.recurring import Recurring as Recurring
    from beanstalk_twisted.worker.recurring import Run as Run
    from beanstalk_twisted.worker.recurring import Schedule as Schedule
    from beanstalk_twisted.worker.recurring import read_schedules as read_schedules
    from beanstalk_twisted.worker.serialisers import Bytes as Bytes
    from beanstalk_twisted.worker.serialisers import Json as Json
    from beanstalk_twisted.worker.serialisers import Serialiser as Serialiser
    from beanstalk_twisted.worker.serialisers import Typed as Typed
    from beanstalk_twisted.worker.serialisers import Unreadable as Unreadable
    from beanstalk_twisted.worker.service import Worker as Worker
    from beanstalk_twisted.worker.shell import CommandFailed as CommandFailed
    from beanstalk_twisted.worker.shell import Shell as Shell
else:
    __getattr__ = lazily(__name__, {
        "service": "Worker",
        "attempt": "Attempt Ending",
        "policy": "Bury Decided Delete NoResult Policy Release Retry Return TookTooLong "
        "TooManyAttempts Verdict times_given_back times_reserved",
        "hooks": "Event Tally",
        "serialisers": "Bytes Json Serialiser Typed Unreadable",
        "recurring": "Recurring Run Schedule read_schedules",
        "handlers": "InlineThreads NeedsAsyncio PoolThreads Threads",
        "shell": "CommandFailed Shell",
    })  # fmt: skip
