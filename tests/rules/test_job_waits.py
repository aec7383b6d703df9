"""`wait-job`: who hears what became of a job, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conversation import NS, Client, Server

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


def test_who_waits_hears_that_the_job_was_deleted(server: Server, worker: Client) -> None:
    client = waiting(server, 1)
    assert client.hears() is None
    worker.says("delete 1")
    assert client.hears() == "DELETED"
    assert client.says("wait-job 1 5") == "NOT_FOUND"


def test_who_waits_hears_that_the_job_was_buried(server: Server, worker: Client) -> None:
    client = waiting(server, worker.takes())
    worker.says("bury 1 0")
    assert client.hears() == "BURIED"


@pytest.mark.parametrize("seconds", [0, LONG])
def test_a_job_that_is_buried_already_is_told_of_at_once(
    server: Server, worker: Client, seconds: int
) -> None:
    worker.takes()
    worker.says("bury 1 0")
    assert server.connect().says(f"wait-job 1 {seconds}") == "BURIED"


@pytest.mark.parametrize("seconds", [0, LONG])
def test_a_job_that_is_not_there_is_told_of_at_once(server: Server, seconds: int) -> None:
    assert server.connect().says(f"wait-job 1 {seconds}") == "NOT_FOUND"


def test_whatever_else_happens_to_the_job_is_waited_through(server: Server, worker: Client) -> None:
    client = waiting(server, worker.takes())
    worker.says("release 1 7 5")
    server.pass_time(5)
    worker.takes()
    worker.says("touch 1")
    server.pass_time(60)
    assert worker.takes() == 1, "its TTR has ended"
    worker.says("release 1 7 9")
    assert worker.says("kick-job 1") == "KICKED"
    worker.takes()
    worker.leaves()
    assert client.hears() is None
    server.connect().says("delete 1")
    assert client.hears() == "DELETED"


def test_a_burial_is_told_of_once(server: Server, worker: Client) -> None:
    client = waiting(server, worker.takes())
    worker.says("bury 1 0")
    worker.says("kick-job 1")
    worker.says("delete 1")
    assert (client.hears(), client.hears()) == ("BURIED", None)


def test_who_waits_again_after_a_kick_hears_of_the_next_end(server: Server, worker: Client) -> None:
    worker.takes()
    worker.says("bury 1 0")
    worker.says("kick-job 1")
    client = waiting(server, 1)
    worker.says("delete 1")
    assert client.hears() == "DELETED"


def test_other_jobs_end_unheard(server: Server, worker: Client) -> None:
    worker.put()
    client = waiting(server, 1)
    worker.says("delete 2")
    assert client.hears() is None


def test_the_holder_of_a_job_may_wait_for_it(server: Server, worker: Client) -> None:
    worker.takes()
    assert worker.says("wait-job 1 100") is None
    server.pass_time(60)
    assert server.connect().says("delete 1") == "DELETED", "its TTR has ended"
    assert worker.hears() == "DELETED"


def test_many_hear_of_one_job_in_the_order_they_came(server: Server, worker: Client) -> None:
    clients = [waiting(server, 1) for _ in range(1000)]
    server.queue.delete(worker.session, server.now_ns, 1)
    assert [session for session, _ in server.queue.outbox] == [client.session for client in clients]
    server.deliver()
    assert {client.hears() for client in clients} == {"DELETED"}


# Until when.


def test_a_wait_of_no_time_is_over_at_once(server: Server, worker: Client) -> None:
    assert worker.says("wait-job 1 0") == "TIMED_OUT"


def test_a_wait_ends_when_its_time_is_up_and_no_sooner(server: Server, worker: Client) -> None:
    client = waiting(server, 1, 5)
    server.pass_time(5 - 1 / NS)
    assert client.hears() is None
    server.pass_time(1 / NS)
    assert client.hears() == "TIMED_OUT"
    worker.says("delete 1")
    assert client.hears() is None


def test_the_time_of_a_wait_is_not_that_of_an_earlier_one(server: Server, worker: Client) -> None:
    client = waiting(server, 1, 5)
    client.cancels()
    assert client.hears() == "TIMED_OUT"
    assert client.says("wait-job 1 10") is None
    server.pass_time(9)
    assert client.hears() is None
    server.pass_time(1)
    assert client.hears() == "TIMED_OUT"


def test_nothing_is_due_when_nobody_waits_any_more(server: Server, worker: Client) -> None:
    client = waiting(server, 1, 5)
    worker.says("delete 1")
    assert client.hears() == "DELETED"
    server.pass_time(5)
    assert client.hears() is None
    assert server.queue.next_due_ns() is None


def test_a_ttr_that_ends_meanwhile_is_not_told_of(server: Server, worker: Client) -> None:
    worker.put(ttr=3)
    worker.says("reserve-job 2")
    assert worker.says("wait-job 1 5") is None
    server.pass_time(4)
    assert worker.hears() is None, "no DEADLINE_SOON"
    assert worker.session.reserved == {}
    server.pass_time(1)
    assert worker.hears() == "TIMED_OUT"


def test_who_waits_for_a_job_does_not_wait_for_one_to_reserve(
    server: Server, worker: Client
) -> None:
    worker.takes()
    client = waiting(server, 1)
    assert worker.asks("stats")["current-waiting"] == "0"
    assert worker.asks("stats-tube default")["current-waiting"] == "0"
    worker.put()
    assert client.hears() is None
    assert worker.takes() == 2


# Who goes.


def test_who_leaves_is_forgotten_and_others_wait_on(server: Server, worker: Client) -> None:
    leaving, staying = waiting(server, 1), waiting(server, 1)
    leaving.leaves()
    assert list(server.queue.state.awaited) == [1]
    worker.says("delete 1")
    assert staying.hears() == "DELETED"
    assert server.queue.state.awaited == {}


@pytest.mark.parametrize("end", [Client.leaves, Client.cancels, Client.half_closes])
def test_nothing_is_kept_of_who_waits_no_longer(
    server: Server, worker: Client, end: Callable[[Client], None]
) -> None:
    client = waiting(server, 1)
    end(client)
    assert server.queue.state.awaited == {}
    assert client.session.awaited_id == 0


def test_who_half_closes_hears_that_time_is_out(server: Server, worker: Client) -> None:
    client = waiting(server, 1)
    client.half_closes()
    assert client.hears() == "TIMED_OUT"
    assert client.says("wait-job 1 5") == "TIMED_OUT"


def test_a_large_kick_is_no_wait(server: Server) -> None:
    client = server.connect()
    for _ in range(2001):
        client.put(delay=9)
    assert client.says("kick 2001") is None
    client.cancels()
    assert client.hears() is None
    server.finish_slices()
    assert client.hears() == "KICKED 2001"


# A reserve is cancelled too.


def test_a_reserve_that_is_cancelled_gets_no_job(server: Server, worker: Client) -> None:
    worker.takes()
    assert worker.says("reserve-with-timeout 9") is None
    worker.cancels()
    assert worker.hears() == "TIMED_OUT"
    assert worker.says("cancel-reserve") == "CANCELLED"
    other = server.connect()
    other.put()
    assert other.asks("stats")["current-jobs-ready"] == "1"
    server.pass_time(9)
    assert worker.hears() is None


def test_who_does_not_wait_has_nothing_to_cancel(server: Server, worker: Client) -> None:
    worker.cancels()
    assert worker.hears() is None
    assert worker.says("cancel-reserve") == "CANCELLED"


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
