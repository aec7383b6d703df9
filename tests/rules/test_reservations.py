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


def test_a_ready_job_is_handed_out_at_once_with_its_body() -> None:
    server = Server()
    client = server.connect()
    client.put(b"hello")
    assert client.says("reserve") == "RESERVED 1 5\r\nhello"
    assert client.asks("stats-job 1")["state"] == "reserved"


def test_the_log_says_who_reserved_a_job_and_until_when() -> None:
    server = Server()
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


def test_jobs_of_a_tube_come_by_priority_and_then_by_id() -> None:
    client = Server().connect()
    for pri in (5, 3, 5, 4294967295, 3):
        client.put(pri=pri)
    assert [client.takes() for _ in range(5)] == [2, 5, 1, 3, 4]


def test_jobs_that_come_back_take_the_place_of_their_id() -> None:
    client = Server().connect()
    ids = [client.put() for _ in range(5)]
    for _ in ids:
        client.takes()
    for job_id in reversed(ids):
        client.says(f"release {job_id} 0 0")
    assert [client.takes() for _ in ids] == ids


def test_a_formerly_delayed_job_with_a_smaller_id_comes_first() -> None:
    server = Server()
    client = server.connect()
    delayed = client.put(delay=2)
    later = client.put()
    server.pass_time(2)
    assert [client.takes(), client.takes()] == [delayed, later]


def test_the_best_job_of_all_watched_tubes_comes_first() -> None:
    client = Server().connect()
    for tube, pri in [("ta", 5), ("tb", 5), ("tb", 4), ("ta", 5)]:
        client.says(f"use {tube}")
        client.put(pri=pri)
    client.says("watch tb")
    client.says("watch ta")
    assert [client.takes() for _ in range(4)] == [3, 1, 2, 4]


def test_a_smaller_priority_in_a_tube_watched_later_wins() -> None:
    client = Server().connect()
    for tube, pri in [("abc", 999999), ("def", 99)]:
        client.says(f"use {tube}")
        client.put(pri=pri)
        client.says(f"watch {tube}")
    assert client.takes() == 2


def test_a_tube_that_is_not_watched_gives_nothing() -> None:
    client = Server().connect()
    client.says("use other")
    client.put()
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"


# Waiting.


def test_who_waits_gets_the_next_job_at_once() -> None:
    server = Server()
    (worker,) = waiting(server, 1)
    assert server.connect().put(b"hello") == 1
    assert worker.hears() == "RESERVED 1 5\r\nhello"
    assert not worker.session.is_blocked


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7])
def test_who_waited_first_is_served_first(count: int) -> None:
    server = Server()
    workers = waiting(server, count)
    producer = server.connect()
    for worker in workers:
        job_id = producer.put()
        assert worker.hears() == f"RESERVED {job_id} 1\r\nx"


def test_workers_that_come_back_at_once_take_turns() -> None:
    server = Server()
    workers = waiting(server, 3)
    producer = server.connect()
    turns = []
    for _ in range(12):
        producer.put()
        (number,) = [at for at, worker in enumerate(workers) if worker.hears() is not None]
        turns.append(number)
        assert workers[number].says("reserve") is None
    assert turns == [0, 1, 2] * 4


def test_who_waits_for_many_tubes_keeps_its_place_in_each() -> None:
    server = Server()
    first, second = server.connect(), server.connect()
    for client in (first, second):
        client.says("watch a")
        client.says("reserve")
    producer = server.connect()
    producer.says("use a")
    producer.put()
    assert first.hears() is not None
    first.says("reserve")
    producer.says("use default")
    producer.put()
    assert (first.hears(), second.hears()) == (None, "RESERVED 2 1\r\nx")


def test_who_gave_up_or_left_is_passed_over() -> None:
    server = Server()
    impatient = server.connect()
    impatient.says("reserve-with-timeout 1")
    gone, patient = waiting(server, 2)
    gone.leaves()
    server.pass_time(1)
    assert impatient.hears() == "TIMED_OUT"
    server.connect().put()
    assert patient.hears() == "RESERVED 1 1\r\nx"
    assert impatient.hears() is None


def test_jobs_that_come_back_one_by_one_are_given_away_one_by_one() -> None:
    server = Server()
    owner = server.connect()
    for pri in (10, 1):
        owner.put(pri=pri)
        owner.takes()
    (worker,) = waiting(server, 1)
    owner.leaves()
    assert worker.hears() == "RESERVED 1 1\r\nx", "the job that was reserved first, not the best"


def test_each_kicked_job_is_offered_as_it_comes() -> None:
    server = Server()
    client = server.connect()
    for pri in (10, 1):
        client.put()
        client.says(f"bury {client.takes()} {pri}")
    workers = waiting(server, 2)
    assert client.says("kick 10") == "KICKED 2"
    assert [worker.hears() for worker in workers] == ["RESERVED 1 1\r\nx", "RESERVED 2 1\r\nx"]


def test_who_waits_is_counted_in_every_tube_it_watches() -> None:
    server = Server()
    worker, other = server.connect(), server.connect()
    worker.says("watch a")
    worker.says("reserve")
    assert other.asks("stats")["current-waiting"] == "1"
    assert other.asks("stats-tube a")["current-waiting"] == "1"
    assert other.asks("stats-tube default")["current-waiting"] == "1"
    other.put()
    assert other.asks("stats")["current-waiting"] == "0"
    assert other.asks("stats-tube a")["current-waiting"] == "0"
    assert other.asks("stats-tube default")["current-waiting"] == "0"


# Timeouts.


def test_a_timeout_of_0_is_answered_at_once() -> None:
    assert Server().connect().says("reserve-with-timeout 0") == "TIMED_OUT"


def test_a_timeout_ends_the_wait_when_it_is_over_and_not_before() -> None:
    server = Server()
    (worker,) = waiting(server, 1, "reserve-with-timeout 3")
    assert server.queue.next_due_ns() == server.now_ns + 3 * NS
    server.pass_time(2.999999999)
    assert worker.hears() is None
    server.pass_time(0.000000001)
    assert worker.hears() == "TIMED_OUT"
    assert not worker.session.is_blocked
    assert server.queue.next_due_ns() is None


def test_the_longest_timeout_is_a_long_one() -> None:
    server = Server()
    (worker,) = waiting(server, 1, "reserve-with-timeout 2147483647")
    server.pass_time(2147483646)
    assert worker.hears() is None
    server.pass_time(1)
    assert worker.hears() == "TIMED_OUT"


def test_a_plain_reserve_waits_for_ever() -> None:
    server = Server()
    (worker,) = waiting(server, 1)
    assert server.queue.next_due_ns() is None
    server.pass_time(10**9)
    assert worker.hears() is None


def test_the_timeout_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    server = Server()
    (worker,) = waiting(server, 1, "reserve-with-timeout 2")
    producer = server.connect()
    job_id = producer.put()
    assert worker.hears() is not None
    worker.says(f"delete {job_id}")
    worker.says("reserve-with-timeout 10")
    server.pass_time(9)
    assert worker.hears() is None
    server.pass_time(1)
    assert worker.hears() == "TIMED_OUT"


def test_two_sessions_each_have_their_own_timeout() -> None:
    server = Server()
    first, second = server.connect(), server.connect()
    first.says("watch foo")
    assert first.says("reserve-with-timeout 1") is None
    second.says("watch foo")
    assert second.says("reserve-with-timeout 2") is None
    server.pass_time(1)
    assert (first.hears(), second.hears()) == ("TIMED_OUT", None)


def test_a_job_that_is_ready_in_the_instant_of_the_timeout_wins() -> None:
    server = Server()
    server.connect().put(delay=2)
    (worker,) = waiting(server, 1, "reserve-with-timeout 2")
    server.pass_time(2)
    assert worker.hears() == "RESERVED 1 1\r\nx"


# DEADLINE_SOON.


def test_a_waiting_owner_is_warned_one_second_before_its_deadline() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=3)
    assert owner.says("reserve") is None
    server.pass_time(1.999999999)
    assert owner.hears() is None
    server.pass_time(0.000000001)
    assert owner.hears() == "DEADLINE_SOON"


@pytest.mark.parametrize("line", ["reserve", "reserve-with-timeout 0", "reserve-with-timeout 9"])
def test_within_the_margin_every_reserve_is_warned_at_once(line: str) -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=3)
    server.pass_time(2)
    assert owner.says(line) == "DEADLINE_SOON"
    assert owner.says(line) == "DEADLINE_SOON"


def test_just_before_the_margin_a_timeout_of_0_is_only_a_timeout() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=3)
    server.pass_time(1.999999999)
    assert owner.says("reserve-with-timeout 0") == "TIMED_OUT"


def test_a_job_with_a_ttr_of_1_is_always_in_the_margin() -> None:
    owner, job_id = holder_of_a_job(Server(), ttr=1)
    assert owner.says("reserve-with-timeout 1") == "DEADLINE_SOON"
    assert owner.asks(f"stats-job {job_id}")["state"] == "reserved"
    assert owner.says(f"release {job_id} 0 0") == "RELEASED"


def test_only_the_earliest_deadline_counts() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=10)
    owner.put(ttr=2)
    owner.takes()
    assert owner.says("reserve") is None
    server.pass_time(0.999999999)
    assert owner.hears() is None
    server.pass_time(0.000000001)
    assert owner.hears() == "DEADLINE_SOON"


def test_if_margin_and_timeout_come_together_the_margin_counts() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=3)
    assert owner.says("reserve-with-timeout 2") is None
    server.pass_time(2)
    assert owner.hears() == "DEADLINE_SOON"
    assert owner.hears() is None


def test_a_timeout_before_the_margin_is_a_timeout() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=4)
    assert owner.says("reserve-with-timeout 2") is None
    server.pass_time(4)
    assert (owner.hears(), owner.hears()) == ("TIMED_OUT", None)


def test_a_ready_job_is_handed_out_even_within_the_margin() -> None:
    owner, _ = holder_of_a_job(Server(), ttr=1)
    other = owner.put()
    assert owner.takes() == other


def test_a_ready_job_of_a_paused_tube_does_not_save_from_the_warning() -> None:
    server = Server()
    owner, _ = holder_of_a_job(server, ttr=1)
    owner.put()
    owner.says("pause-tube default 60")
    assert owner.says("reserve") == "DEADLINE_SOON"
    assert owner.says("reserve-with-timeout 0") == "DEADLINE_SOON"
    server.pass_time(1)
    assert owner.asks("stats-job 1")["state"] == "ready", "its TTR ends all the same"


def test_touch_moves_the_margin_too() -> None:
    server = Server()
    owner, job_id = holder_of_a_job(server, ttr=3)
    server.pass_time(2)
    owner.says(f"touch {job_id}")
    assert owner.says("reserve") is None
    server.pass_time(1.999999999)
    assert owner.hears() is None
    server.pass_time(0.000000001)
    assert owner.hears() == "DEADLINE_SOON"


def test_a_job_taken_by_its_id_counts_for_later_reserves() -> None:
    server = Server()
    owner = server.connect()
    job_id = owner.put(delay=1000, ttr=1)
    assert owner.says(f"reserve-job {job_id}") == f"RESERVED {job_id} 1\r\nx"
    assert owner.says("reserve-with-timeout 1") == "DEADLINE_SOON"
    server.pass_time(1)
    assert owner.asks(f"stats-job {job_id}")["state"] == "ready"


def test_who_holds_nothing_is_never_warned() -> None:
    server = Server()
    owner, job_id = holder_of_a_job(server, ttr=1)
    owner.says(f"delete {job_id}")
    assert owner.says("reserve") is None
    server.pass_time(100)
    assert owner.hears() is None


def test_the_owner_of_an_expired_job_gets_it_again() -> None:
    server = Server()
    owner, job_id = holder_of_a_job(server, ttr=1)
    server.pass_time(1)
    assert owner.takes() == job_id
    assert owner.asks(f"stats-job {job_id}")["timeouts"] == "1"


def test_after_a_stall_the_owner_that_waits_hears_of_the_job_it_gets_back() -> None:
    server = Server()
    owner, job_id = holder_of_a_job(server, ttr=3)
    assert owner.says("reserve") is None
    server.stall(10)
    assert owner.hears() == f"RESERVED {job_id} 1\r\nx"
    stats = owner.asks(f"stats-job {job_id}")
    assert (stats["reserves"], stats["timeouts"], stats["time-left"]) == ("2", "1", "3")


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


def test_the_timeout_of_a_wait_ends_it_all_the_same() -> None:
    server = Server()
    owner = server.connect(hears_deadlines=False)
    owner.put(ttr=10)
    owner.takes()
    server.pass_time(9.5)
    assert owner.says("reserve-with-timeout 0") == "TIMED_OUT"
    assert owner.says("reserve-with-timeout 0") == "TIMED_OUT"


def test_nothing_is_due_at_a_moment_that_nobody_hears_of() -> None:
    server = Server()
    owner = server.connect(hears_deadlines=False)
    owner.put(ttr=10)
    owner.takes()
    owner.says("reserve")
    assert server.queue.next_due_ns() == START_NS + 10 * NS


# reserve-job.


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_a_job_can_be_taken_by_its_id_from_any_tube_paused_or_not(state: str) -> None:
    server = Server()
    producer, worker = server.connect(), server.connect()
    producer.says("use elsewhere")
    producer.says("watch elsewhere")
    job_id = producer.put(pri=7, delay=100 if state == "delayed" else 0)
    if state == "buried":
        producer.takes()
        producer.says(f"bury {job_id} 7")
    producer.says("pause-tube elsewhere 100")
    before = producer.asks(f"stats-job {job_id}")
    assert before["state"] == state
    assert worker.says(f"reserve-job {job_id}") == f"RESERVED {job_id} 1\r\nx"
    after = producer.asks(f"stats-job {job_id}")
    assert (after["state"], after["reserves"]) == ("reserved", str(int(before["reserves"]) + 1))
    assert [after[key] for key in ("pri", "delay", "buries", "kicks")] == [
        before[key] for key in ("pri", "delay", "buries", "kicks")
    ]


def test_a_job_that_is_reserved_or_not_there_cannot_be_taken_by_its_id() -> None:
    server = Server()
    owner, job_id = holder_of_a_job(server, ttr=60)
    assert owner.says(f"reserve-job {job_id}") == "NOT_FOUND"
    assert server.connect().says(f"reserve-job {job_id}") == "NOT_FOUND"
    assert owner.says("reserve-job 99") == "NOT_FOUND"
    assert owner.says("reserve-job 0") == "NOT_FOUND"


def test_a_job_taken_by_its_id_can_be_given_back_by_its_owner_only() -> None:
    client = Server().connect()
    client.put()
    second = client.put(b"second")
    assert client.says(f"reserve-job {second}") == f"RESERVED {second} 6\r\nsecond"
    assert client.says("release 1 0 0") == "NOT_FOUND"
    assert client.says(f"release {second} 0 0") == "RELEASED"


def test_a_job_taken_by_its_id_is_no_more_delayed_or_buried() -> None:
    server = Server()
    client = server.connect()
    job_id = client.put(delay=5)
    client.says(f"reserve-job {job_id}")
    assert client.says("peek-delayed") == "NOT_FOUND"
    client.says(f"release {job_id} 0 0")
    assert client.asks(f"stats-job {job_id}")["state"] == "ready"
    server.pass_time(10)
    assert client.asks(f"stats-job {job_id}")["state"] == "ready"


def test_buried_jobs_can_be_taken_in_any_order() -> None:
    client = Server().connect()
    for _ in range(2):
        client.put()
        client.says(f"bury {client.takes()} 0")
    for job_id in (2, 1):
        assert client.says(f"reserve-job {job_id}") == f"RESERVED {job_id} 1\r\nx"
    assert client.says("peek-buried") == "NOT_FOUND"


# Half close.


def test_who_waits_is_told_so_when_it_sends_no_more() -> None:
    server = Server()
    (worker,) = waiting(server, 1)
    worker.half_closes()
    assert worker.hears() == "TIMED_OUT"
    assert not worker.session.is_blocked
    server.connect().put()
    assert worker.hears() is None


def test_who_sends_no_more_does_not_wait_but_gets_what_is_there() -> None:
    server = Server()
    client = server.connect()
    client.put()
    client.half_closes()
    assert client.hears() is None
    assert client.says("reserve") == "RESERVED 1 1\r\nx"
    assert client.says("reserve") == "TIMED_OUT"
    assert client.says("reserve-with-timeout 9") == "TIMED_OUT"


def test_who_sends_no_more_within_the_margin_is_warned() -> None:
    owner, _ = holder_of_a_job(Server(), ttr=1)
    owner.half_closes()
    assert owner.says("reserve") == "DEADLINE_SOON"


# Pauses.


def test_a_paused_tube_gives_nothing_but_other_tubes_do() -> None:
    server = Server()
    client = server.connect()
    client.put()
    client.says("pause-tube default 60")
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"
    client.says("watch other")
    client.says("use other")
    other = client.put()
    assert client.takes() == other


def test_who_waits_beside_a_paused_job_gets_it_when_the_pause_ends() -> None:
    server = Server()
    client = server.connect()
    client.put()
    assert client.says("pause-tube default 1") == "PAUSED"
    assert client.says("reserve") is None
    server.pass_time(0.999999999)
    assert client.hears() is None
    server.pass_time(0.000000001)
    assert client.hears() == "RESERVED 1 1\r\nx"


def test_who_waits_beside_a_paused_job_gets_it_when_the_pause_is_ended() -> None:
    server = Server()
    client, worker = server.connect(), server.connect()
    client.put()
    client.says("pause-tube default 86400")
    assert worker.says("reserve") is None
    assert client.says("pause-tube default 0") == "PAUSED"
    assert worker.hears() == "RESERVED 1 1\r\nx"


def test_who_waits_beside_a_paused_job_may_time_out() -> None:
    server = Server()
    client = server.connect()
    client.put()
    client.says("pause-tube default 60")
    assert client.says("reserve-with-timeout 1") is None
    server.pass_time(1)
    assert client.hears() == "TIMED_OUT"


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
