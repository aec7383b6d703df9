"""Who gets which job, and who waits."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.wire.replies import Reserved
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.recording_log import full_disk


def waiting(server: Server, count: int, line: str = "reserve") -> list[Client]:
    """Make sessions that wait, one behind the other."""
    clients = [server.connect() for _ in range(count)]
    for client in clients:
        assert client.says(line) is None
    return clients


def holder_of_a_job(server: Server, ttr: int, tube: str = "default") -> tuple[Client, int]:
    """Make a session that holds a job, and watches `default` and the job's tube."""
    client = server.connect()
    client.says(f"use {tube}")
    client.says(f"watch {tube}")
    job_id = client.put(ttr=ttr)
    assert client.takes() == job_id
    client.says("use default")
    return client, job_id


# Which job.


def test_the_log_says_who_reserved_a_job_and_until_when(server: Server) -> None:
    server.connect()
    client = server.connect()
    client.put(ttr=60)
    client.says("reserve")
    image = server.log.images(1)[-1]
    assert (image.kind, image.state, image.reason) == (Kind.RESERVE, State.RESERVED, Reason.CLIENT)
    assert (image.connection, image.reserves) == (client.session.number, 1)
    assert image.deadline_ns == server.now_ns + 60 * NS
    assert not image.commits


@pytest.mark.parametrize("is_behind", [False, True])
def test_where_replies_wait_for_reservations_none_is_left_out(is_behind: bool) -> None:
    server = Server()
    server.log.commits_reserves, server.log.is_behind = True, is_behind
    client, other = server.connect(), server.connect()
    other.says("reserve")
    client.put(ttr=60)
    ((reply, lsn),) = other.late
    assert isinstance(reply, Reserved)
    assert lsn == len(server.log.records)
    assert other.hears() == "RESERVED 1 1\r\nx"
    other.says("touch 1")
    assert server.log.images(1)[-1].kind is (Kind.RESERVE if is_behind else Kind.TOUCH)


def test_a_full_disk_has_no_room_for_them_and_jobs_leave_all_the_same() -> None:
    server = Server()
    client = server.connect()
    client.put(ttr=60)
    server.log.commits_reserves = True
    server.log.budget = full_disk()
    assert client.takes() == 1
    assert server.log.images(1)[-1].kind is Kind.PUT


# Timeouts.


def test_a_timeout_ends_the_wait_when_it_is_over_and_not_before(server: Server) -> None:
    (worker,) = waiting(server, 1, "reserve-with-timeout 3")
    assert server.queue.next_due_ns() == server.now_ns + 3 * NS
    server.pass_time(2.999999999)
    assert worker.hears() is None
    server.pass_time(0.000000001)
    assert worker.hears() == "TIMED_OUT"
    assert not worker.session.is_blocked
    assert server.queue.next_due_ns() is None


def test_a_job_that_is_ready_in_the_instant_of_the_timeout_wins(server: Server) -> None:
    server.connect().put(delay=2)
    (worker,) = waiting(server, 1, "reserve-with-timeout 2")
    server.pass_time(2)
    assert worker.hears() == "RESERVED 1 1\r\nx"


# DEADLINE_SOON.


def test_a_waiting_owner_is_warned_one_second_before_its_deadline(server: Server) -> None:
    owner, _ = holder_of_a_job(server, ttr=3)
    assert owner.says("reserve") is None
    server.pass_time(1.999999999)
    assert owner.hears() is None
    server.pass_time(0.000000001)
    assert owner.hears() == "DEADLINE_SOON"


def test_if_margin_and_timeout_come_together_the_margin_counts(server: Server) -> None:
    owner, _ = holder_of_a_job(server, ttr=3)
    assert owner.says("reserve-with-timeout 2") is None
    server.pass_time(2)
    assert owner.hears() == "DEADLINE_SOON"
    assert owner.hears() is None


# Sessions that do not hear of it.


def test_a_session_that_hears_of_no_deadline_waits_on_and_gets_its_own_job_again() -> None:
    server = Server()
    owner = server.connect(hears_deadlines=False)
    owner.put(ttr=10)
    owner.takes()
    assert owner.says("reserve") is None
    server.pass_time(9.999)
    assert owner.hears() is None
    server.pass_time(0.001)
    assert owner.hears() == "RESERVED 1 1\r\nx"
    assert owner.asks("stats-job 1")["timeouts"] == "1"


def test_nothing_is_due_at_a_moment_that_nobody_hears_of(server: Server) -> None:
    owner = server.connect(hears_deadlines=False)
    owner.put(ttr=10)
    owner.takes()
    owner.says("reserve")
    assert server.queue.next_due_ns() == START_NS + 10 * NS


# Pauses.


def test_when_a_pause_ends_all_that_wait_are_served_in_turn_with_the_best_first() -> None:
    server = Server()
    client = server.connect()
    client.says("pause-tube default 1")
    workers = waiting(server, 3)
    for pri in (2, 1):
        client.put(pri=pri)
    server.pass_time(1)
    assert [worker.hears() for worker in workers] == [
        "RESERVED 2 1\r\nx", "RESERVED 1 1\r\nx", None,
    ]  # fmt: skip
