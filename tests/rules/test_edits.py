"""`move-job` and `update-job`: what they answer, and what the job is then."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import EXTENSIONS
from beanstalk_twisted.binlog.tags import Tags
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.memory import Scarce
from tests.rules.recording_log import Budget
from tests.rules.tagged import tag, tags_of

STATES = ["ready", "delayed", "buried"]


@pytest.fixture
def budget(server: Server) -> Budget:
    """Give the queue a disk that may become full."""
    budget = server.log.budget = Budget()
    return budget


# move-job


@pytest.mark.parametrize("state", STATES)
def test_a_job_is_moved_in_its_state(server: Server, client: Client, state: str) -> None:
    job_id = client.place(state, 3, "work")
    other = server.connect()
    assert other.says(f"move-job {job_id} other") == "MOVED"
    assert other.last is not None and other.last[1] == len(server.log.records)
    stats = client.asks(f"stats-job {job_id}")
    assert (stats["tube"], stats["state"], stats["origin"]) == ("other", state, "work")
    assert server.log.features == EXTENSIONS


def test_a_job_that_one_holds_is_ready_in_the_other_tube(client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    assert client.says(f"move-job {job_id} other") == "MOVED"
    stats = client.asks(f"stats-job {job_id}")
    assert (stats["tube"], stats["state"]) == ("other", "ready")


def test_a_job_that_another_one_holds_is_not_moved(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    assert server.connect().says(f"move-job {job_id} other") == "NOT_FOUND"
    assert client.says("move-job 99 other") == "NOT_FOUND"
    assert "other" not in client.lists("list-tubes")


def test_a_move_to_where_the_job_is_changes_nothing(server: Server, client: Client) -> None:
    job_id = client.place("buried", 3, "work")
    before = list(server.log.records)
    assert client.says(f"move-job {job_id} work") == "MOVED"
    assert client.last is not None and client.last[1] == server.log.committed_lsn(job_id)
    assert server.log.records == before


def test_a_job_that_one_holds_is_ready_in_its_own_tube(client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    assert client.says(f"move-job {job_id} work") == "MOVED"
    stats = client.asks(f"stats-job {job_id}")
    assert (stats["state"], stats["releases"], "origin" in stats) == ("ready", "0", False)


@pytest.mark.parametrize("is_living", [True, False])
def test_a_job_is_not_moved_to_where_its_key_is(
    server: Server, client: Client, is_living: bool
) -> None:
    first, second = client.place("ready", 0, "work"), client.place("ready", 0, "other")
    for job_id in (first, second):
        tag(server, job_id, Tags(unique_key=b"k", unique_s=60))
    if not is_living:
        client.says(f"delete {second}")
    before = list(server.log.records)
    assert client.says(f"move-job {first} other") == f"DUPLICATE {second}"
    assert server.log.records == before
    server.pass_time(61)
    assert client.says(f"move-job {first} other") == (
        f"DUPLICATE {second}" if is_living else "MOVED"
    )


def test_a_dead_letter_has_no_key_that_keeps_it_out(server: Server, client: Client) -> None:
    first, second = client.place("buried", 0, "work"), client.place("ready", 0, "other")
    tag(server, first, Tags(unique_key=b"k", dead_from=b"work", dead_reason=3, dead_at_ns=7))
    tag(server, second, Tags(unique_key=b"k"))
    assert client.says(f"move-job {first} other") == "MOVED"
    assert client.asks(f"stats-job {first}")["dead-from"] == "work"


def test_a_move_on_a_full_disk_is_refused(client: Client, budget: Budget) -> None:
    job_id = client.place("reserved", 0, "work")
    budget.is_short, budget.largest = True, 0
    assert client.says(f"move-job {job_id} other") == "OUT_OF_MEMORY"
    assert client.asks(f"stats-job {job_id}")["state"] == "reserved"
    assert "other" not in client.lists("list-tubes")
    assert client.says(f"delete {job_id}") == "DELETED"


def test_a_move_waits_for_room_and_looks_again_then(
    server: Server, client: Client, budget: Budget
) -> None:
    job_id = client.place("ready", 0, "work")
    others = [server.connect(), server.connect()]
    budget.largest = 0
    for other in others:
        assert other.says(f"move-job {job_id} other") is None
        assert other.session.is_blocked
    client.says(f"delete {job_id}")
    client.says("use default")
    budget.largest = 1 << 20
    server.queue.room_changed(server.now_ns)
    server.deliver()
    assert [other.hears() for other in others] == ["NOT_FOUND"] * 2
    assert not others[0].session.is_blocked
    assert client.lists("list-tubes") == ["default"]


def test_what_has_waited_for_room_is_refused_on_a_full_disk(
    server: Server, client: Client, budget: Budget
) -> None:
    job_id = client.place("ready", 0, "work")
    budget.largest = 0
    assert client.says(f"update-job {job_id} 1 0 60") is None
    budget.is_short = True
    server.queue.room_changed(server.now_ns)
    server.deliver()
    assert client.hears() == "OUT_OF_MEMORY"


def test_a_log_that_may_have_no_extensions_refuses(client: Client, budget: Budget) -> None:
    job_id = client.place("ready", 0, "work")
    budget.has_segment, budget.is_short = False, True
    assert client.says(f"move-job {job_id} other") == "OUT_OF_MEMORY"
    assert client.says(f"update-job {job_id} 1 0 60") == "OUT_OF_MEMORY"
    assert client.asks(f"stats-job {job_id}")["pri"] == "0"


def test_an_update_waits_for_the_segment_that_may_hold_it(
    server: Server, client: Client, budget: Budget
) -> None:
    job_id = client.place("ready", 0, "work")
    budget.has_segment = False
    assert client.says(f"update-job {job_id} 1 0 60") is None
    budget.has_segment = True
    server.queue.room_changed(server.now_ns)
    server.deliver()
    assert client.hears() == "UPDATED"
    assert client.asks(f"stats-job {job_id}")["pri"] == "1"


# update-job


def test_an_update_is_one_full_record(server: Server, client: Client) -> None:
    client.place("buried", 3, "work")
    tag(server, 1, Tags(group=b"g"))
    server.pass_time(5)
    other = server.connect()
    assert other.says("update-job 1 7 8 9 4", b"body") == "UPDATED"
    (image,) = server.log.images(1)[-1:]
    work = server.queue.state.tubes.find(b"work")
    assert work is not None
    assert image == JobImage(
        Kind.UPDATE, State.BURIED, Reason.CLIENT, priority=7, job_id=1, ts_ns=START_NS,
        deadline_ns=START_NS, delay_s=8, ttr_s=9, tube_id=work.tube_id, reserves=1, buries=1,
        connection=other.session.number, body=b"body", tags=Tags(group=b"g"),
    )  # fmt: skip
    assert other.last is not None and other.last[1] == len(server.log.records)


@pytest.mark.parametrize(
    ("before", "delay", "after"),
    [
        ("ready", 0, "ready"), ("ready", 9, "delayed"), ("delayed", 0, "ready"),
        ("delayed", 9, "delayed"), ("buried", 0, "buried"), ("buried", 9, "buried"),
        ("reserved", 0, "reserved"), ("reserved", 9, "reserved"),
    ],
)  # fmt: skip
def test_what_a_job_is_behind_its_update(
    server: Server, client: Client, before: str, delay: int, after: str
) -> None:
    job_id = client.place(before, 3, "work")
    server.pass_time(5)
    old = client.asks(f"stats-job {job_id}")
    assert client.says(f"update-job {job_id} 4 {delay} 20 2", b"yz") == "UPDATED"
    new = client.asks(f"stats-job {job_id}")
    left = {"delayed": delay, "reserved": 20}.get(after, 0)
    assert new == old | {
        "state": after, "pri": "4", "delay": str(delay), "ttr": "20", "time-left": str(left),
    }  # fmt: skip
    assert client.says(f"peek {job_id}") == f"FOUND {job_id} 2\r\nyz"
    server.pass_time(9)
    assert (client.asks(f"stats-job {job_id}")["state"] == "ready") == (
        after in ("ready", "delayed")
    )


def test_without_a_size_the_body_stays(client: Client) -> None:
    job_id = client.put(b"hello")
    assert client.says(f"update-job {job_id} 4 0 20") == "UPDATED"
    assert client.says(f"peek {job_id}") == f"FOUND {job_id} 5\r\nhello"
    assert client.says(f"update-job {job_id} 4 0 20 0") == "UPDATED"
    assert client.says(f"peek {job_id}") == f"FOUND {job_id} 0\r\n"


def test_a_shorter_ttr_ends_sooner_and_one_of_0_is_1(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    server.pass_time(50)
    assert client.says(f"update-job {job_id} 3 0 0") == "UPDATED"
    server.pass_time(0.9)
    assert client.asks(f"stats-job {job_id}")["state"] == "reserved"
    server.pass_time(0.2)
    stats = client.asks(f"stats-job {job_id}")
    assert (stats["state"], stats["timeouts"], stats["ttr"]) == ("ready", "1", "1")


def test_a_better_priority_counts_at_once(client: Client) -> None:
    first, second = client.put(pri=5), client.put(pri=6)
    assert client.says(f"update-job {second} 4 0 60") == "UPDATED"
    assert [client.takes(), client.takes()] == [second, first]


def test_a_job_that_becomes_ready_goes_to_who_waits(server: Server, client: Client) -> None:
    worker = server.connect()
    job_id = client.put(delay=50)
    assert worker.says("reserve") is None
    assert client.says(f"update-job {job_id} 0 0 60 1", b"y") == "UPDATED"
    assert worker.hears() == f"RESERVED {job_id} 1\r\ny"


def test_a_job_that_waits_for_a_group_goes_on_waiting(server: Server, client: Client) -> None:
    job_id = client.put()
    tag(server, job_id, Tags(after=b"g"))
    job = server.queue.state.jobs.job(job_id)
    image = job.copy()._replace(kind=Kind.UPDATE, state=State.DELAYED, deadline_ns=NEVER_NS)
    server.queue.state.apply(image)
    assert client.says(f"update-job {job_id} 4 0 20") == "UPDATED"
    assert (job.state, job.deadline_ns, job.priority) == (State.DELAYED, NEVER_NS, 4)


def test_who_holds_a_job_updates_it_and_nobody_else(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    assert server.connect().says(f"update-job {job_id} 4 0 20 1", b"z") == "NOT_FOUND"
    assert client.says("update-job 99 4 0 20") == "NOT_FOUND"
    assert client.says(f"peek {job_id}") == f"FOUND {job_id} 1\r\nx"
    assert client.says(f"update-job {job_id} 4 0 20 1", b"z") == "UPDATED"
    assert client.says(f"release {job_id} 0 0") == "RELEASED"


def test_an_update_keeps_key_and_tags(server: Server, client: Client) -> None:
    job_id = client.put()
    tags = Tags(unique_key=b"k", unique_s=5, origin=b"a")
    tag(server, job_id, tags)
    assert client.says(f"update-job {job_id} 4 0 20") == "UPDATED"
    assert tags_of(server, job_id) == tags
    tube_id = server.queue.state.default().tube_id
    assert server.queue.state.unique.holder(tube_id, b"k", server.now_ns) == job_id


def test_who_waits_for_the_end_of_a_job_waits_through_its_update(
    server: Server, client: Client
) -> None:
    job_id = client.put()
    other = server.connect()
    assert other.says(f"wait-job {job_id} 60") is None
    client.says(f"update-job {job_id} 4 9 20")
    assert other.hears() is None
    client.says(f"delete {job_id}")
    assert other.hears() == "DELETED"


def test_an_update_on_a_full_disk_is_refused(client: Client, budget: Budget) -> None:
    job_id = client.place("reserved", 3, "work")
    budget.is_short, budget.largest = True, 2
    assert client.says(f"update-job {job_id} 4 0 20 1", b"z") == "OUT_OF_MEMORY"
    stats = client.asks(f"stats-job {job_id}")
    assert (stats["pri"], stats["ttr"], stats["state"]) == ("3", "60", "reserved")
    assert client.says(f"peek {job_id}") == f"FOUND {job_id} 1\r\nx"


def test_a_body_for_which_there_is_no_memory_is_refused(server: Server, client: Client) -> None:
    job_id = client.put()

    server.queue.puts.memory = Scarce(5000)
    assert client.says(f"update-job {job_id} 4 0 20 5000", b"z" * 5000) == "OUT_OF_MEMORY"
    assert client.says(f"update-job {job_id} 4 0 20 1000", b"z" * 1000) == "UPDATED"


def test_while_it_drains_jobs_are_moved_and_updated(client: Client) -> None:
    job_id = client.put()
    client.says("drain")
    assert client.says(f"update-job {job_id} 4 0 20 1", b"z") == "UPDATED"
    assert client.says(f"move-job {job_id} other") == "MOVED"


# stats-job and list-jobs


def test_the_keys_of_what_a_job_carries(server: Server, client: Client) -> None:
    job_id = client.put()
    stock = list(client.asks(f"stats-job {job_id}"))
    listed = str(client.says("list-jobs default ready 9"))
    tag(server, job_id, Tags(
        unique_key=b"1", unique_s=60, concurrency_key=b"c", concurrency_limit=2, group=b"g",
        after=b"h", dead_from=b"d", dead_reason=Reason.MAX_RESERVES,
        dead_at_ns=START_NS + NS, origin=b"o",
    ))  # fmt: skip
    keys = (
        'idempotency-key: "1"', "idempotency-ttl: 60", 'group: "g"', 'after-group: "h"',
        'concurrency-key: "c"', "concurrency-limit: 2", 'dead-from: "d"',
        "dead-reason: max-reserves", f"dead-at: {START_NS // NS + 1}", 'origin: "o"',
    )  # fmt: skip
    stats = str(client.says(f"stats-job {job_id}"))
    assert stats.splitlines()[2 + len(stock) :] == [*keys]
    behind = "".join(f"  {line}\n" for line in keys)
    after = str(client.says("list-jobs default ready 9"))
    assert after.partition("\r\n")[2] == listed.partition("\r\n")[2] + behind


@pytest.mark.parametrize(
    ("tags", "keys"),
    [
        (Tags(unique_key=b"k"), ["idempotency-key", "idempotency-ttl"]),
        (Tags(group=b"k"), ["group"]),
        (Tags(after=b"k"), ["after-group"]),
        (Tags(concurrency_key=b"k", concurrency_limit=1), ["concurrency-key", "concurrency-limit"]),
        (Tags(dead_from=b"k", dead_reason=99), ["dead-from", "dead-reason", "dead-at"]),
        (Tags(origin=b"k"), ["origin"]),
    ],
)
def test_what_a_job_does_not_carry_is_not_shown(
    server: Server, client: Client, tags: Tags, keys: list[str]
) -> None:
    job_id = client.put()
    stock = list(client.asks(f"stats-job {job_id}"))
    tag(server, job_id, tags)
    assert list(client.asks(f"stats-job {job_id}")) == [*stock, *keys]
