"""Tests with the test double: of code on Twisted, in memory, and of code that blocks, over a port.

    python -m pytest examples/test_with_double.py

The fixtures ``beanstalk`` and ``beanstalk_server`` come with the package.  No server has to be
installed or started, and no test waits for time to pass.
"""

import json

import greenstalk
import pytest

from beanstalk_twisted.client import Client, errors
from beanstalk_twisted.testing import Beanstalk, BeanstalkServer

# The code under test: orders that are put, and a worker that ships them.


async def order(client: Client, item: str) -> int:
    """Put an order."""
    await client.use("orders")
    return await client.put(json.dumps({"item": item}).encode(), ttr=30)


async def ship_one(client: Client, shipped: list[str]) -> None:
    """Ship the next order; one that cannot be read is put aside."""
    await client.watch("orders")
    await client.ignore("default")  # Watched from the start: its jobs belong to somebody else.
    job = await client.reserve()
    try:
        shipped.append(json.loads(job.body)["item"])
    except ValueError:
        await client.bury(job)
        return
    await client.delete(job)


def order_blocking(address: tuple[str, int], item: str) -> None:
    """Put an order, from a program without Twisted."""
    with greenstalk.Client(address, use="orders") as client:
        client.put(json.dumps({"item": item}), ttr=30)


# The tests.


def connected(beanstalk: Beanstalk) -> Client:
    """Make a client of the double, on its clock."""
    client = Client(beanstalk.endpoint, reactor=beanstalk.clock)
    client.startService()
    return client


def test_an_order_is_put_and_shipped(beanstalk: Beanstalk) -> None:
    """An order comes and is shipped, and the jobs of others are left alone."""
    shipped: list[str] = []
    beanstalk.put("somebody else's", priority=0)
    beanstalk.run(order(connected(beanstalk), "tea"))
    beanstalk.assert_job_put(1, tube="orders", body='{"item": "tea"}')
    beanstalk.run(ship_one(connected(beanstalk), shipped))
    assert shipped == ["tea"]
    beanstalk.assert_job_deleted()
    beanstalk.assert_tube_empty("orders")
    beanstalk.assert_jobs("default", ready=1)


def test_an_order_that_cannot_be_read_is_put_aside(beanstalk: Beanstalk) -> None:
    """A poisonous job does not come back."""
    beanstalk.put(b"not JSON", tube="orders")
    beanstalk.run(ship_one(connected(beanstalk), []))
    beanstalk.assert_jobs("orders", buried=1, ready=0)


def test_an_order_comes_back_when_its_worker_hangs(beanstalk: Beanstalk) -> None:
    """Thirty seconds pass at once; a server that has no room is one line."""
    client = connected(beanstalk)
    beanstalk.run(order(client, "tea"))
    with beanstalk.connect() as hanging:
        hanging.ask(b"watch orders\r\nreserve\r\n")
        beanstalk.advance(30)
        beanstalk.assert_jobs("orders", ready=1, reserved=0)
    beanstalk.answer_next("put", "OUT_OF_MEMORY")
    with pytest.raises(errors.OutOfMemory):
        beanstalk.run(order(client, "coffee"))
    beanstalk.assert_job_put(1)


def test_a_program_without_twisted_puts_an_order(beanstalk_server: BeanstalkServer) -> None:
    """The same server, on a port."""
    order_blocking(beanstalk_server.address, "tea")
    beanstalk_server.assert_job_put(tube="orders", body=lambda body: b"tea" in body)
    beanstalk_server.advance(3600)
    (job,) = beanstalk_server.jobs("orders")
    assert job.age >= 3600
