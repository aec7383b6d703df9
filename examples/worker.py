"""Do the jobs that `producer.py` puts: count the words of each line.

    python examples/worker.py [ENDPOINT [TUBE]]

Ctrl-C, or SIGTERM, ends it when the jobs in hand are done.  ``beanstalk-work`` does the same with
the function alone: ``beanstalk-work --tube lines 'examples.worker:count_words'``.
"""

import sys
from typing import Any

from twisted.internet import reactor as the_reactor
from twisted.internet.task import deferLater

from beanstalk_twisted.worker import Attempt, Bury, Retry, Worker

reactor: Any = the_reactor


async def count_words(attempt: Attempt[bytes]) -> Bury | None:
    """Do one job.  It is touched meanwhile, and deleted when this returns."""
    if not attempt.body:
        return Bury()  # Nothing to count; somebody may want to know why.
    await deferLater(reactor, 0, lambda: None)  # Whatever takes its time.
    print(f"{len(attempt.body.split())} words in job {attempt.id}", flush=True)
    return None


def main(endpoint: str = "tcp:127.0.0.1:11300", tube: str = "default") -> None:
    """Work until told to stop."""
    worker = Worker(endpoint, tube, count_words, concurrency=20, policy=Retry(most_attempts=3))
    reactor.callWhenRunning(worker.startService)
    reactor.addSystemEventTrigger("before", "shutdown", worker.stopService)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
