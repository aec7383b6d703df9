"""`wait-job`: who hears what became of a job, and when."""

from __future__ import annotations

import pytest

from tests.rules.conversation import Client, Server

LONG = 1000


def waiting(server: Server, job_id: int, seconds: int = LONG) -> Client:
    """Make a connection that waits for the end of a job."""
    client = server.connect()
    assert client.says(f"wait-job {job_id} {seconds}") is None
    return client


@pytest.fixture
def worker(server: Server) -> Client:
    """Make a connection that has put job 1."""
    client = server.connect()
    client.put()
    return client


# What became of it.


def test_many_hear_of_one_job_in_the_order_they_came(server: Server, worker: Client) -> None:
    clients = [waiting(server, 1) for _ in range(1000)]
    server.queue.delete(worker.session, server.now_ns, 1)
    assert [session for session, _ in server.queue.outbox] == [client.session for client in clients]
    server.deliver()
    assert {client.hears() for client in clients} == {"DELETED"}


# Who goes.


def test_a_large_kick_is_no_wait(server: Server) -> None:
    client = server.connect()
    for _ in range(2001):
        client.put(delay=9)
    assert client.says("kick 2001") is None
    client.cancels()
    assert client.hears() is None
    server.finish_slices()
    assert client.hears() == "KICKED 2001"


# What has to be durable.


def last_lsn(client: Client) -> int:
    """Give what the newest reply waits for."""
    assert client.last is not None
    return client.last[1]


def test_an_end_is_told_of_when_its_record_is_durable(server: Server, worker: Client) -> None:
    worker.put()
    first, second = waiting(server, 1), waiting(server, 2)
    worker.takes()
    worker.says("bury 1 0")
    worker.says("delete 2")
    worker.put()
    assert (first.hears(), second.hears()) == ("BURIED", "DELETED")
    assert last_lsn(first) == server.log.committed_lsn(1)
    assert last_lsn(second) == server.log.committed_lsn(2)
    first.says("wait-job 1 0")
    assert last_lsn(first) == server.log.committed_lsn(1)
    second.says("wait-job 2 0")
    assert last_lsn(second) == server.log.committed_lsn()


def test_that_time_is_out_tells_that_the_job_is_there(server: Server, worker: Client) -> None:
    worker.put()
    client = waiting(server, 1, 1)
    server.pass_time(1)
    assert client.hears() == "TIMED_OUT"
    assert last_lsn(client) == server.log.committed_lsn(1)
    client.says("wait-job 2 0")
    assert last_lsn(client) == server.log.committed_lsn(2)
