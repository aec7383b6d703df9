"""
A worker as an application of Twisted's, for twistd: the words of each line are counted.

    twistd -noy examples/worker.tac

The variable BEANSTALK_SERVER names the server, BEANSTALK_TUBE the tube.  Without ``-no``, twistd
makes a daemon of it and writes twistd.log and twistd.pid.  SIGTERM ends it when the jobs in hand are
done.
"""

import os

from twisted.application.service import Application

from beanstalk_twisted.worker import Attempt, Bury, Retry, Worker


def count_words(attempt: Attempt[bytes]) -> Bury | None:
    """
    Do one job.  It may block: it has a thread of its own.
    """
    if not attempt.body:
        return Bury()  # Nothing to count; somebody may want to know why.
    print(f"{len(attempt.body.split())} words in job {attempt.id}")
    return None


application = Application("word-counter")
worker = Worker(
    os.environ.get("BEANSTALK_SERVER", "127.0.0.1:11300"),
    os.environ.get("BEANSTALK_TUBE", "lines"),
    count_words,
    concurrency=4,
    in_threads=True,
    policy=Retry(most_attempts=3),
)
worker.setServiceParent(application)
