"""Put each line of the input as a job, as fast as the server takes them.

    seq 100000 | python examples/producer.py [ENDPOINT [TUBE]]

The endpoint is Twisted's: ``tcp:127.0.0.1:11300`` without one.
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from beanstalk_twisted.client import Client, Inserted


async def main(reactor: Any, endpoint: str = "tcp:127.0.0.1:11300", tube: str = "default") -> None:
    """Put the lines, and say how many there were."""
    client = Client(endpoint, reactor=reactor)
    client.startService()
    await client.use(tube)
    jobs: list[Deferred[Inserted]] = []
    for line in sys.stdin:
        # Without this all lines would be read into memory before the first was sent.
        await client.room()
        jobs.append(client.put(line.rstrip("\n").encode()))
    # Each has its answer: INSERTED, or the error that this raises.
    numbers = await gatherResults(jobs, consumeErrors=True)
    print(f"{len(numbers)} jobs put into {tube}")
    await client.quit()


if __name__ == "__main__":
    react(main, sys.argv[1:])
