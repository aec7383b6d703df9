"""What happens by itself, and large work slice by slice."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Pause
from beanstalk_twisted.rules.bulk import DEAD_SLICE_JOBS, RUN_JOBS
from beanstalk_twisted.rules.timekeeping import LEAST_SHARE_JOBS, REWRITTEN_JOBS, SLICE_JOBS
from tests.rules.conversation import NS, Client, Server


def counts(client: Client) -> dict[str, int]:
    """Ask how many jobs are in each state."""
    stats = client.asks("stats")
    names = ("ready", "reserved", "delayed", "buried")
    return {name: int(stats[f"current-jobs-{name}"]) for name in names}


def bury_many(client: Client, count: int) -> list[int]:
    """Put jobs and bury them, in this order."""
    ids = [client.put() for _ in range(count)]
    for _ in ids:
        client.says(f"bury {client.takes()} 0")
    return ids


def delay_many(client: Client, count: int) -> None:
    """Put jobs that can be kicked."""
    for _ in range(count):
        client.put(delay=9)


def hold_many(client: Client, count: int, ttr: int = 60) -> list[int]:
    """Put jobs and reserve them, in this order."""
    ids = [client.put(ttr=ttr) for _ in range(count)]
    assert [client.takes() for _ in ids] == ids
    return ids


# Delays.


def test_that_a_delay_ends_is_not_logged_since_its_record_says_when() -> None:
    server = Server()
    client = server.connect()
    client.put(delay=1)
    server.pass_time(1)
    (image,) = server.log.images()
    assert (image.state, image.deadline_ns) == (State.DELAYED, server.now_ns)


# Pauses.


def test_a_pause_is_forgotten_with_its_tube_and_the_log_says_so() -> None:
    server = Server()
    client = server.connect()
    client.says("use work")
    client.says("pause-tube work 100")
    client.says("use default")
    record = server.log.records[-1]
    assert isinstance(record, Pause)
    assert (record.seconds, record.until_ns, record.reason) == (0, 0, Reason.NONE)
    client.says("use work")
    assert client.asks("stats-tube work")["pause"] == "0"
    server.pass_time(100)
    assert client.lists("list-tubes") == ["default", "work"]


# TTRs.


def test_the_log_says_that_a_ttr_has_ended(server: Server, client: Client) -> None:
    client.put(ttr=1)
    client.takes()
    server.pass_time(1)
    image = server.log.images()[-1]
    assert (image.kind, image.state, image.reason) == (Kind.TTR_EXPIRED, State.READY, Reason.TTR)
    assert (image.timeouts, image.connection, image.ts_ns) == (1, 0, server.now_ns)


# Slices: a large kick.


def test_a_kick_of_more_is_done_in_slices_and_answered_at_the_end(server: Server) -> None:
    client, other = server.connect(), server.connect()
    delay_many(client, RUN_JOBS + 1)
    assert client.says(f"kick {RUN_JOBS + 1}") is None
    assert client.session.is_blocked
    assert server.queue.next_due_ns() == 0
    assert counts(other)["ready"] == RUN_JOBS
    server.tick()
    assert counts(other)["ready"] == RUN_JOBS + 1
    assert client.hears() == f"KICKED {RUN_JOBS + 1}"
    assert not client.session.is_blocked
    assert server.queue.next_due_ns() != 0


def test_a_kick_in_slices_takes_the_oldest_first_and_no_more_than_its_bound() -> None:
    server = Server()
    client = server.connect()
    ids = bury_many(client, 2 * RUN_JOBS + 100)
    bound = RUN_JOBS + 50
    assert client.says(f"kick {bound}") is None
    server.finish_slices()
    assert client.hears() == f"KICKED {bound}"
    assert [client.takes() for _ in range(bound)] == ids[:bound]
    assert client.says("peek-buried") == f"FOUND {ids[bound]} 1\r\nx"


def test_others_are_served_between_the_slices_of_a_kick(server: Server, client: Client) -> None:
    other = server.connect()
    delay_many(client, 2 * RUN_JOBS + 1)
    client.says("kick 4294967295")
    other.says("use elsewhere")
    other.says("watch elsewhere")
    other.says("ignore default")
    assert other.put() == other.takes()
    server.tick()
    assert other.says("reserve-with-timeout 0") == "TIMED_OUT"
    assert client.hears() is None


def test_a_kick_in_slices_keeps_its_bound_though_others_bury_more_meanwhile(server: Server) -> None:
    client, other = server.connect(), server.connect()
    bury_many(client, RUN_JOBS + 10)
    bound = RUN_JOBS + 10
    client.says("kick 4294967295")
    bury_many(other, 30)
    server.finish_slices()
    assert client.hears() == f"KICKED {bound}"
    assert counts(other)["buried"] == 30


def test_a_kick_in_slices_counts_what_it_kicked_though_others_delete_meanwhile() -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    ids = bury_many(client, RUN_JOBS + 10)
    client.says("kick 4294967295")
    for job_id in ids[-7:]:
        assert other.says(f"delete {job_id}") == "DELETED"
    server.finish_slices()
    assert client.hears() == f"KICKED {RUN_JOBS + 3}"


def test_two_kicks_in_slices_take_turns(server: Server) -> None:
    clients = [server.connect(), server.connect()]
    for at, client in enumerate(clients):
        client.says(f"use t{at}")
        client.says(f"watch t{at}")
        delay_many(client, 3 * RUN_JOBS - 1)
        client.says("kick 4294967295")
    ready = []
    while server.queue.next_due_ns() == 0:
        server.tick()
        tubes = [server.queue.state.tubes.find(name) for name in (b"t0", b"t1")]
        ready.append([tube.ready.count // RUN_JOBS for tube in tubes if tube is not None])
    assert ready == [[2, 1], [2, 2], [2, 2], [2, 2]]
    assert [client.hears() for client in clients] == [f"KICKED {3 * RUN_JOBS - 1}"] * 2


# Slices: the end of a session with many jobs.


def test_a_session_that_ends_with_many_jobs_gives_them_back_in_slices(server: Server) -> None:
    owner, other = server.connect(), server.connect()
    hold_many(owner, 2 * SLICE_JOBS + 1)
    owner.leaves()
    assert counts(other) == {
        "ready": SLICE_JOBS, "reserved": SLICE_JOBS + 1, "delayed": 0, "buried": 0,
    }  # fmt: skip
    assert server.queue.next_due_ns() == 0
    server.tick()
    assert counts(other)["ready"] == 2 * SLICE_JOBS
    server.tick()
    assert counts(other)["ready"] == 2 * SLICE_JOBS + 1
    server.finish_slices()
    assert owner.session.number not in server.queue.state.sessions
    assert server.queue.next_due_ns() is None


def test_the_jobs_of_a_session_that_ends_come_back_once_whatever_their_ttr(server: Server) -> None:
    owner, other = server.connect(), server.connect()
    hold_many(owner, SLICE_JOBS + 10, ttr=1)
    owner.leaves()
    server.stall(5)
    server.finish_slices()
    kinds = [image.kind for image in server.log.images()]
    assert kinds.count(Kind.DISCONNECT_RELEASE) == SLICE_JOBS + 10
    assert Kind.TTR_EXPIRED not in kinds
    assert counts(other)["ready"] == SLICE_JOBS + 10


def test_who_gets_a_job_from_a_late_slice_of_a_sessions_end_has_the_whole_ttr() -> None:
    server = Server()
    owner, others, worker = server.connect(), server.connect(), server.connect()
    ids = hold_many(owner, SLICE_JOBS + 1, ttr=5)
    owner.leaves()
    for _ in range(SLICE_JOBS):
        others.takes()
    worker.says("reserve")
    server.stall(5)
    assert worker.hears() == f"RESERVED {ids[-1]} 1\r\nx"
    stats = worker.asks(f"stats-job {ids[-1]}")
    assert (stats["state"], stats["timeouts"]) == ("reserved", "0")


# Slices: much that is due at once.


def test_delays_that_end_together_end_in_slices(server: Server, client: Client) -> None:
    for _ in range(2 * SLICE_JOBS + 1):
        client.put(delay=9)
    server.stall(9)
    assert counts(client)["ready"] == SLICE_JOBS
    due_ns = server.queue.next_due_ns()
    assert due_ns is not None and due_ns <= server.now_ns
    assert client.takes() == 1, "nobody has to wait for the rest"
    assert server.finish_slices() == 2
    assert counts(client)["delayed"] == 0
    assert server.queue.next_due_ns() == server.now_ns + 60 * NS


def test_ttrs_that_end_together_end_in_slices(server: Server) -> None:
    owner = server.connect()
    hold_many(owner, 2 * SLICE_JOBS + 1, ttr=9)
    server.stall(9)
    assert counts(owner)["ready"] == SLICE_JOBS
    assert server.finish_slices() == 2
    assert counts(owner) == {
        "ready": 2 * SLICE_JOBS + 1, "reserved": 0, "delayed": 0, "buried": 0,
    }  # fmt: skip
    assert server.queue.next_due_ns() is None


def test_timeouts_that_end_together_end_in_slices(server: Server) -> None:
    workers = [server.connect() for _ in range(SLICE_JOBS + 1)]
    for worker in workers:
        assert worker.says("reserve-with-timeout 9") is None
    server.stall(9)
    assert sum(bool(worker.late) for worker in workers) == SLICE_JOBS
    server.tick()
    assert {worker.hears() for worker in workers} == {"TIMED_OUT"}


def test_all_kinds_of_work_share_one_tick_and_none_of_them_starves(server: Server) -> None:
    owner, asker, worker = server.connect(), server.connect(), server.connect()
    owner.says("tube-policy default max-age=10 dead-letter=dead")
    count = 10 * DEAD_SLICE_JOBS
    for _ in range(count):
        owner.put()
    server.pass_time(10)
    server.finish_slices()
    owner.says("use other")
    delayed = [owner.put(delay=1) for _ in range(SLICE_JOBS)]
    worker.says("watch mail")
    worker.says("ignore default")
    worker.says("reserve-with-timeout 1")
    # Each dead letter that is kicked is too old, and dies again.
    assert asker.says(f"kick-dead default {count}") is None
    server.now_ns += NS
    first = len(server.log.records)
    server.tick()
    moves = [each for each in server.log.records[first:] if isinstance(each, JobImage)]
    assert len(moves) <= DEAD_SLICE_JOBS + LEAST_SHARE_JOBS // REWRITTEN_JOBS
    assert counts(owner)["delayed"] == len(delayed) - LEAST_SHARE_JOBS
    assert worker.hears() == "TIMED_OUT"
    server.finish_slices()
    assert counts(owner)["delayed"] == 0
