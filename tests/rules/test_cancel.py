"""`cancel-job` ends a job whoever holds it; `return-job` takes back a reservation uncounted."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.recording_log import full_disk
from tests.rules.tagged import heard, put, state_of

COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")


def counters(client: Client, job_id: int) -> list[int]:
    stats = client.asks(f"stats-job {job_id}")
    return [int(stats[name]) for name in COUNTERS]


# cancel-job


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "reserved"])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_job_in_any_state_is_cancelled(
    server: Server, client: Client, state: str, is_own: bool
) -> None:
    job_id = client.place(state, 3, "work")
    by = client if is_own else server.connect()
    assert by.says(f"cancel-job {job_id}") == "CANCELLED"
    assert by.last is not None and by.last[1] == len(server.log.records)
    image = server.log.images(job_id)[-1]
    assert (image.kind, image.state, image.reason) == (Kind.DELETE, State.GONE, Reason.CANCELLED)
    assert image.connection == by.session.number
    assert client.says(f"stats-job {job_id}") == "NOT_FOUND"
    assert int(client.asks("stats-tube work")["cmd-delete"]) == 1
    assert by.says(f"cancel-job {job_id}") == "NOT_FOUND"


@pytest.mark.parametrize(
    "command", ["touch {}", "release {} 0 0", "bury {} 0", "delete {}", "return-job {}"]
)
def test_its_holder_finds_it_no_more(server: Server, client: Client, command: str) -> None:
    job_id = client.place("reserved", 3, "work")
    assert server.connect().says(f"cancel-job {job_id}") == "CANCELLED"
    assert client.says(command.format(job_id)) == "NOT_FOUND"


def test_its_holder_hears_no_deadline_of_it(server: Server, client: Client) -> None:
    client.put(ttr=5)
    assert client.takes() == 1
    assert client.says("reserve-with-timeout 10") is None
    assert server.connect().says("cancel-job 1") == "CANCELLED"
    server.pass_time(9)
    assert client.hears() is None
    server.pass_time(1)
    assert client.hears() == "TIMED_OUT"
    assert server.queue.tally.timeouts == 0


def test_it_counts_no_more_where_its_tube_has_a_limit(server: Server, client: Client) -> None:
    assert client.says("tube-policy default max-reserved=1") == "POLICY"
    first, second = client.put(), client.put()
    assert client.takes() == first
    other = server.connect()
    assert other.says("reserve") is None
    assert server.connect().says(f"cancel-job {first}") == "CANCELLED"
    assert heard(other.hears()) == second


def test_its_concurrency_key_is_free(server: Server, client: Client) -> None:
    first, second = put(client, "con:k"), put(client, "con:k")
    assert client.takes() == first
    other = server.connect()
    assert other.says("reserve") is None
    assert server.connect().says(f"cancel-job {first}") == "CANCELLED"
    assert heard(other.hears()) == second


def test_what_waits_for_its_group_goes_on(server: Server, client: Client) -> None:
    first = put(client, "grp:g")
    second = put(client, "aft:g")
    assert client.takes() == first
    assert state_of(client, second) == "delayed"
    assert server.connect().says(f"cancel-job {first}") == "CANCELLED"
    assert state_of(client, second) == "ready"


@pytest.mark.parametrize(("tag", "is_remembered"), [("idp:k", False), ("idp:k:60", True)])
def test_its_unique_key_is_remembered_as_after_a_delete(
    server: Server, client: Client, tag: str, is_remembered: bool
) -> None:
    job_id = put(client, tag)
    assert client.takes() == job_id
    assert server.connect().says(f"cancel-job {job_id}") == "CANCELLED"
    reply = client.says(f"put 0 0 60 1 {tag}", b"x")
    assert reply == (f"INSERTED {job_id} DELETED" if is_remembered else f"INSERTED {job_id + 1}")


def test_who_waits_for_its_end_is_told(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    waiting = server.connect()
    assert waiting.says(f"wait-job {job_id} 60") is None
    assert client.says(f"cancel-job {job_id}") == "CANCELLED"
    assert waiting.hears() == "DELETED"
    assert waiting.last is not None and waiting.last[1] == len(server.log.records)


def test_a_job_that_used_up_its_reserves_is_no_dead_letter(server: Server, client: Client) -> None:
    assert client.says("tube-policy work max-reserves=1 dead-letter=dead") == "POLICY"
    job_id = client.place("reserved", 3, "work")
    assert client.says(f"cancel-job {job_id}") == "CANCELLED"
    assert "dead" not in client.lists("list-tubes")


def test_a_full_disk_does_not_hinder_a_cancel(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    server.log.budget = full_disk()
    assert server.connect().says(f"cancel-job {job_id}") == "CANCELLED"


def test_a_job_of_a_connection_that_ends_is_cancelled_between_two_slices(server: Server) -> None:
    worker, other = server.connect(), server.connect()
    for _ in range(600):
        worker.put()
        worker.takes()
    worker.leaves()
    assert other.says("cancel-job 600") == "CANCELLED"
    server.finish_slices()
    assert other.asks("stats-tube default")["current-jobs-ready"] == "599"


# return-job


def test_a_returned_job_is_as_it_was(server: Server, client: Client) -> None:
    first, job_id, last = client.put(pri=5), client.put(pri=5), client.put(pri=5)
    client.says(f"reserve-job {job_id}")
    server.pass_time(3)
    assert client.says(f"release {job_id} 5 0") == "RELEASED"
    before = client.asks(f"stats-job {job_id}")
    client.says(f"reserve-job {job_id}")
    assert client.says(f"return-job {job_id}") == "RETURNED"
    assert client.last is not None and client.last[1] == len(server.log.records)
    assert client.asks(f"stats-job {job_id}") == before
    assert [client.takes() for _ in range(3)] == [first, job_id, last]


def test_a_return_is_a_release_that_says_why(server: Server, client: Client) -> None:
    client.put()
    client.takes()
    assert client.says("return-job 1") == "RETURNED"
    image = server.log.images(1)[-1]
    assert (image.kind, image.reason, image.state) == (Kind.RELEASE, Reason.RETURNED, State.READY)
    assert (image.reserves, image.releases) == (0, 0)
    assert image.connection == client.session.number
    assert not server.log.features


@pytest.mark.parametrize("delay", [1, 3600])
def test_it_may_be_delayed(server: Server, client: Client, delay: int) -> None:
    client.put(pri=7)
    client.takes()
    assert client.says(f"return-job 1 {delay}") == "RETURNED"
    stats = client.asks("stats-job 1")
    assert (stats["state"], stats["delay"], stats["time-left"]) == (
        "delayed",
        f"{delay}",
        f"{delay}",
    )
    assert (stats["pri"], counters(client, 1)) == ("7", [0] * 5)
    server.pass_time(delay - 0.1)
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"
    server.pass_time(0.1)
    assert client.takes() == 1
    assert counters(client, 1) == [1, 0, 0, 0, 0]


def test_without_a_delay_it_keeps_the_one_it_was_put_with(server: Server, client: Client) -> None:
    client.put(delay=10)
    server.pass_time(10)
    client.takes()
    assert client.says("return-job 1") == "RETURNED"
    stats = client.asks("stats-job 1")
    assert (stats["state"], stats["delay"], stats["reserves"]) == ("ready", "10", "0")


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_only_a_job_that_one_has_reserved_is_returned(client: Client, state: str) -> None:
    job_id = client.place(state, 3, "work")
    assert client.says(f"return-job {job_id}") == "NOT_FOUND"
    assert client.says("return-job 99") == "NOT_FOUND"
    assert state_of(client, job_id) == state


def test_no_job_of_another_one_is_returned(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    assert server.connect().says(f"return-job {job_id}") == "NOT_FOUND"
    assert state_of(client, job_id) == "reserved"


@pytest.mark.parametrize("delay", ["", " 0", " 5"])
def test_a_return_uses_up_none_of_the_reserves_of_a_policy(client: Client, delay: str) -> None:
    assert client.says("tube-policy default max-reserves=1 backoff=60") == "POLICY"
    client.put()
    for _ in range(3):
        client.says("reserve-job 1")
        assert client.says(f"return-job 1{delay}") == "RETURNED"
        assert state_of(client, 1) == ("delayed" if delay == " 5" else "ready")
    client.says("reserve-job 1")
    assert client.says("release 1 0 0") == "RELEASED"
    stats = client.asks("stats-job 1")
    assert (stats["state"], stats["reserves"]) == ("buried", "1")


def test_one_that_has_used_up_its_reserves_before_is_returned_too(client: Client) -> None:
    client.put()
    for _ in range(3):
        client.takes()
        client.says("release 1 0 0")
    assert client.says("tube-policy default max-reserves=2") == "POLICY"
    client.takes()
    assert client.says("return-job 1") == "RETURNED"
    assert state_of(client, 1) == "ready"


def test_one_that_is_too_old_by_now_is_a_dead_letter(server: Server, client: Client) -> None:
    assert client.says("tube-policy default max-age=10") == "POLICY"
    client.put()
    client.takes()
    server.pass_time(20)
    other = server.connect()
    assert other.says("reserve") is None
    assert client.says("return-job 1") == "RETURNED"
    assert other.hears() is None
    stats = client.asks("stats-job 1")
    assert (stats["state"], stats["dead-reason"], stats["reserves"]) == ("buried", "max-age", "0")


def test_who_waits_is_given_a_returned_job(server: Server, client: Client) -> None:
    client.put()
    client.takes()
    other = server.connect()
    assert other.says("reserve") is None
    assert client.says("return-job 1") == "RETURNED"
    assert heard(other.hears()) == 1
    assert counters(other, 1) == [1, 0, 0, 0, 0]


def test_its_concurrency_key_is_free_again(server: Server, client: Client) -> None:
    first, second = put(client, "con:k"), put(client, "con:k")
    assert client.takes() == first
    other = server.connect()
    assert other.says("reserve") is None
    assert client.says(f"return-job {first} 60") == "RETURNED"
    assert heard(other.hears()) == second


def test_who_waits_for_its_end_waits_on(server: Server, client: Client) -> None:
    job_id = client.place("reserved", 3, "work")
    waiting = server.connect()
    assert waiting.says(f"wait-job {job_id} 60") is None
    assert client.says(f"return-job {job_id}") == "RETURNED"
    assert waiting.hears() is None
    assert client.says(f"cancel-job {job_id}") == "CANCELLED"
    assert waiting.hears() == "DELETED"


def test_a_full_disk_takes_no_return(server: Server, client: Client) -> None:
    client.put()
    client.takes()
    server.log.budget = full_disk()
    assert client.says("return-job 1 5") == "OUT_OF_MEMORY"
    assert (state_of(client, 1), counters(client, 1)[0]) == ("reserved", 1)


def test_a_return_after_the_ttr_finds_no_job(server: Server, client: Client) -> None:
    client.put(ttr=1)
    client.takes()
    server.pass_time(1)
    assert client.says("return-job 1") == "NOT_FOUND"
    assert counters(client, 1) == [1, 1, 0, 0, 0]
    assert server.now_ns == START_NS + NS
