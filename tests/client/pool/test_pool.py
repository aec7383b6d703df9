"""A pool of servers: where jobs go, where they come from, and what happens when a server is
away.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client import Inserted, NewJob, Tags, errors, hashed_key
from beanstalk_twisted.client.pool.connections import BLOCKING_RESERVE_S, PATIENCE_S, PoolJob
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.pool.reserving import LATE_S, REST_S
from beanstalk_twisted.wire import rights
from beanstalk_twisted.wire.extensions import BY_OPERATION
from tests.client.commands.test_tags import lose_answers
from tests.client.fleet import Fleet
from tests.client.world import error, is_waiting, result

TWO = ("a", "b")


def both(fleet: Fleet) -> tuple[str, str]:
    return fleet.tube_on("a"), fleet.tube_on("b")


OF_A_JOB = (rights.JOB, rights.HELD)
OF_A_TUBE = (rights.USED, rights.NAMED)


def test_a_method_is_given_what_its_command_is_about() -> None:
    about = dict.fromkeys(OF_A_JOB, "job") | dict.fromkeys(OF_A_TUBE, "tube")
    routed = [row for row in BY_OPERATION.values() if row.needs.of in about]
    found = {row.name: getattr(Pool, row.name.replace("-", "_"), None) for row in routed}
    methods = {name: method for name, method in found.items() if method is not None}
    given = {name: [*inspect.signature(each).parameters][1] for name, each in methods.items()}
    assert len(given) > 15
    assert given == {name: about[BY_OPERATION[name].needs.of] for name in given}


# Putting.


def test_jobs_go_to_the_server_of_their_tube(fleet: Fleet) -> None:
    pool = fleet.pool()
    for name in TWO:
        tube = fleet.tube_on(name)
        job = fleet.result(pool.put(tube, b"x", priority=7, ttr=9))
        assert (job.server, job.id, job.body) == (name, 1, b"x")
        assert pool.server_of(tube) == name
        stats = fleet.result(pool.stats_job(job))
        assert (stats.tube, stats.pri, stats.ttr) == (tube, 7, 9)


def test_commands_about_a_tube_go_to_its_server(fleet: Fleet) -> None:
    pool = fleet.pool()
    for tube in both(fleet):
        job = fleet.result(pool.put(tube, b"x"))
        assert fleet.result(pool.peek_ready(tube)) == job
        later = fleet.result(pool.put(tube, b"later", delay=9))
        assert fleet.result(pool.peek_delayed(tube)) == later
        fleet.result(pool.kick_job(later))
        assert fleet.result(pool.stats_tube(tube)).current_jobs_ready == 2
        fleet.result(pool.pause_tube(tube, 5))
        assert fleet.result(pool.stats_tube(tube)).pause == 5
        assert fleet.result(pool.peek(job)).body == b"x"
        assert fleet.result(pool.room(tube)) is None
        fleet.result(pool.delete(job))
        error(pool_peek(fleet, pool, job), errors.NotFound)


def test_extensions_about_a_tube_go_to_its_server(fleet: Fleet) -> None:
    pool = fleet.pool()
    for name, tube in zip(TWO, both(fleet), strict=True):
        batch: list[bytes | NewJob] = [b"x", NewJob(b"yz", priority=3)]
        jobs = fleet.result(pool.put_batch(tube, iter(batch), ttr=9))
        assert jobs == (PoolJob(name, 1, b"x"), PoolJob(name, 2, b"yz"))
        stats = fleet.result(pool.stats_job(jobs[1]))
        assert (stats.tube, stats.pri, stats.ttr) == (tube, 3, 9)
        job = fleet.result(pool.put_at(tube, b"x", 0))
        assert job == PoolJob(name, 3, b"x")
        page = fleet.result(pool.list_jobs(tube, "ready", 1))
        assert [each.id for each in page.jobs] == [2]
        rest = fleet.result(pool.list_jobs(tube, "ready", cursor=page.cursor))
        assert [each.id for each in rest.jobs] == [1, 3]
        assert fleet.result(pool.flush_tube(tube, "buried")) == 0
        assert fleet.result(pool.flush_tube(tube)) == 3
        with pytest.raises(TypeError, match="a body is bytes, not str"):
            pool.put_batch(tube, ["x"])  # type: ignore[list-item]
    assert fleet.result(pool.stats()).total["total-jobs"] == 6


def test_a_pool_puts_with_tags_and_says_whether_the_job_is_new(fleet: Fleet) -> None:
    pool = fleet.pool()
    tags = Tags(unique="k", group="g")
    for tube in both(fleet):
        first = fleet.result(pool.put(tube, b"x", tags=tags))
        again = fleet.result(pool.put_at(tube, b"y", 0, tags=tags))
        (batch,) = fleet.result(pool.put_batch(tube, [b"z"], tags=tags))
        assert first.id == again.id == batch.id
        alike = [
            fleet.result(pool.put(tube, b"x", unique="k")),
            fleet.result(pool.put_at(tube, b"y", 0, unique="k")),
        ]
        states = [cast(Inserted, job.id).state for job in (first, again, batch, *alike)]
        assert states == [None, "ready", "ready", "ready", "ready"]
        fleet.result(pool.delete(again))
    assert fleet.result(pool.stats()).total["total-jobs"] == 2


def test_a_unique_put_that_waits_to_be_sent_again_is_not_called_undone() -> None:
    fleet = Fleet("a")
    pool = fleet.pool(patience_s=5)
    fleet.result(pool.put("t", b"x", tags=Tags(group="g")))
    put = pool.put("t", b"x", tags=Tags(unique="k", unique_seconds=60))
    fleet["a"].kill()
    fleet.advance(6)
    error(put, errors.Unanswered)
    error(pool.put("t", b"x"), errors.ServerDown)


def test_a_pool_puts_a_batch_with_a_key_once(fleet: Fleet) -> None:
    pool = fleet.pool()
    for name, tube in zip(TWO, both(fleet), strict=True):
        batch: list[bytes | NewJob] = [b"a", b"b"]
        first = fleet.result(pool.put_batch(tube, batch, unique="k", unique_seconds=60))
        again = fleet.result(pool.put_batch(tube, batch, unique="k"))
        assert first == again and [job.body for job in again] == batch
        assert [cast(Inserted, job.id).state for job in again] == ["ready", "ready"]
        # The bodies of a batch with another number of jobs are not known.
        assert fleet.result(pool.put_batch(tube, [b"c"], unique="k")) == tuple(
            PoolJob(name, job.id) for job in first
        )
        hashed = fleet.result(pool.put_batch(tube, [b"d"], unique_by="order:7"))
        key = hashed_key("order:7")
        assert fleet.result(pool.put_batch(tube, [b"d"], unique=key)) == hashed
    assert fleet.result(pool.stats()).total["total-jobs"] == 6


def test_a_pool_sends_a_batch_with_a_key_again() -> None:
    fleet = Fleet("a")
    pool = fleet.pool()
    fleet.result(pool.put_batch("t", [b"a"], unique="before"))
    sent = pool.put_batch("t", [b"x", b"y"], unique="k")
    plain = pool.put_batch("t", [b"z"])
    lose_answers(fleet["a"])
    error(plain, errors.Unanswered)
    fleet.advance(2)
    found = [(cast(Inserted, job.id).state, job.body) for job in fleet.result(sent)]
    assert found == [("ready", b"x"), ("ready", b"y")]


def pool_peek(fleet: Fleet, pool: Pool, job: PoolJob) -> Deferred[PoolJob]:
    found = pool.peek(job)
    fleet.settle()
    return found


def test_a_server_without_a_name_is_called_by_its_endpoint_in_full() -> None:
    pool = Pool(["10.0.0.1:11300", "tcp:10.0.0.2:11300", "10.0.0.3"], reactor=Fleet("a").clock)
    assert set(pool.split.weights) == {f"tcp:10.0.0.{number}:11300" for number in (1, 2, 3)}


# Reserving.


def test_jobs_come_from_all_servers_and_end_where_they_came_from(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    for tube in tubes:
        fleet.result(pool.put(tube, tube.encode()))
    jobs = [fleet.result(pool.reserve()) for _ in tubes]
    assert {(job.server, job.id, job.body.decode()) for job in jobs} == {
        ("a", 1, tubes[0]), ("b", 1, tubes[1]),
    }  # fmt: skip
    assert jobs[0] != jobs[1]
    fleet.result(pool.touch(jobs[0]))
    fleet.result(pool.delete(jobs[0]))
    assert fleet.result(pool.stats_job(jobs[1])).state == "reserved"
    fleet.result(pool.bury(jobs[1]))
    assert fleet.result(pool.kick(tubes[TWO.index(jobs[1].server)], 9)) == 1
    again = fleet.result(pool.reserve())
    assert again == jobs[1]
    fleet.result(pool.release(again, priority=3))
    assert fleet.result(pool.stats_job(again)).pri == 3


def test_jobs_of_other_tubes_are_left_alone_default_too() -> None:
    fleet = Fleet("a")
    pool = fleet.pool(tubes=["mine"])
    fleet.result(pool.put("default", b"x"))
    fleet.result(pool.put("other", b"x"))
    error(settled(fleet, pool.reserve_with_timeout(0)), errors.TimedOut)
    mine = fleet.result(pool.put("mine", b"x"))
    assert fleet.result(pool.reserve_with_timeout(0)) == mine


def settled(fleet: Fleet, waited: Deferred[PoolJob]) -> Deferred[PoolJob]:
    fleet.settle()
    return waited


def test_a_pool_may_take_from_default(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=["default"])
    fleet.result(pool.put("default", b"x"))
    assert fleet.result(pool.reserve()).body == b"x"


@pytest.mark.parametrize("name", TWO)
def test_a_job_that_comes_later_is_given_at_once_wherever_it_comes(name: str, fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    reserve = pool.reserve()
    fleet.settle()
    assert is_waiting(reserve)
    job = fleet.result(pool.put(fleet.tube_on(name), b"x"))
    assert fleet.result(reserve) == job


def test_each_server_has_its_turn(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    for tube in tubes * 5:
        fleet.result(pool.put(tube, b"x"))
    servers = [fleet.result(pool.reserve()).server for _ in range(6)]
    assert servers.count("a") == servers.count("b") == 3


def test_many_callers_are_served_in_the_order_in_which_they_asked(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    order: list[int] = []

    def note(number: int, job: PoolJob) -> None:
        order.append(number)

    for number in range(6):
        pool.reserve().addCallback(partial(note, number))
    fleet.settle()
    for tube in tubes * 3:
        fleet.result(pool.put(tube, b"x"))
    fleet.settle()
    assert order == [0, 1, 2, 3, 4, 5]


# Nothing is reserved that nobody wants.


def test_of_two_jobs_that_come_at_once_the_second_is_ready_again_at_once(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool, other = fleet.pool(tubes=tubes), fleet.pool(tubes=tubes)
    reserve = pool.reserve()
    fleet.settle()
    # Both servers give their job out before the pool hears of the first.
    for name in TWO:
        fleet[name].server.connect().send(
            f"use {fleet.tube_on(name)}\r\nput 5 0 9 1\r\nx\r\n".encode()
        )
    first = fleet.result(reserve)
    second = fleet.result(other.reserve_with_timeout(0))
    assert {first.server, second.server} == set(TWO)
    stats = fleet.result(pool.stats_job(second))
    assert (stats.pri, stats.releases, stats.timeouts) == (5, 0, 0)
    assert fleet.lost == []
    assert fleet.result(pool.delete(first)) is None


def test_of_two_jobs_that_come_at_once_the_second_goes_to_the_next_caller() -> None:
    fleet = Fleet(*TWO)
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    reserves = [pool.reserve(), pool.reserve()]
    fleet.settle()
    for name in TWO:
        fleet[name].server.connect().send(
            f"use {fleet.tube_on(name)}\r\nput 5 0 9 1\r\nx\r\n".encode()
        )
    jobs = [fleet.result(reserve) for reserve in reserves]
    assert {job.server for job in jobs} == set(TWO)
    assert all(fleet.result(pool.stats_job(job)).reserves == 1 for job in jobs)


def test_a_cancelled_reserve_takes_nothing(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    reserve = pool.reserve()
    fleet.settle()
    reserve.cancel()
    error(reserve, CancelledError)
    fleet.settle()
    for tube in tubes:
        job = fleet.result(pool.put(tube, b"x"))
        assert fleet.result(pool.stats_job(job)).reserves == 0


@pytest.mark.parametrize("held", [0, 1])
def test_a_job_for_a_reserve_cancelled_on_its_way_is_ready_again(held: int) -> None:
    fleet = Fleet("a")
    pool = fleet.pool(tubes=["t"])
    for _ in range(held + 1):
        fleet.result(pool.put("t", b"x", priority=3))
    jobs = [fleet.result(pool.reserve()) for _ in range(held)]
    reserve = pool.reserve()
    if held:  # Sent, and cancelled before the answer.
        reserve.cancel()
    else:  # The connection is made first.
        fleet["a"].step()
        reserve.cancel()
    error(reserve, CancelledError)
    fleet.settle()
    stats = fleet.result(pool.peek_ready("t"))
    assert fleet.result(pool.stats_job(stats)).pri == 3
    assert fleet.result(pool.stats()).total["current-jobs-reserved"] == held
    for job in jobs:
        fleet.result(pool.delete(job))
    assert fleet.result(pool.reserve()).body == b"x"


def test_a_delete_never_waits_behind_a_reserve(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    fleet.result(pool.put(fleet.tube_on("a"), b"x"))
    job = fleet.result(pool.reserve())
    waits = pool.reserve()
    fleet.settle()
    assert is_waiting(waits)
    assert fleet.result(pool.delete(job)) is None


def test_a_job_that_came_to_a_waiting_reserve_does_not_hold_up_the_next() -> None:
    fleet = Fleet("a")
    pool = fleet.pool(tubes=["t"])
    jobs = []
    for _ in range(5):
        reserve = pool.reserve()
        fleet.settle()
        fleet.result(pool.put("t", b"x"))
        jobs.append(fleet.result(reserve))
    for job in jobs:
        assert fleet.result(pool.delete(job)) is None
    assert fleet.result(pool.stats()).total["current-jobs-ready"] == 0


def test_connections_do_not_pile_up(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    for number in range(30):
        reserves = [pool.reserve() for _ in range(3)]
        fleet.settle()
        for _ in reserves:
            fleet.result(pool.put(fleet.tube_on(TWO[number % 2]), b"x"))
        for reserve in reserves:
            fleet.result(pool.delete(fleet.result(reserve)))
    fleet.settle()
    # For each server one for commands and one that polls.
    assert fleet.result(pool.stats()).total["current-connections"] <= 4


def test_a_reserve_that_waits_for_long_is_sent_anew(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    reserve = pool.reserve()
    fleet.advance(3.5 * BLOCKING_RESERVE_S)
    assert [fleet.waiting(name) for name in TWO] == [1, 1]
    fleet.result(pool.put(fleet.tube_on("b"), b"x"))
    assert fleet.result(reserve).server == "b"


# Times.


def test_who_waits_for_a_time_is_told_when_it_is_over(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    reserve = pool.reserve_with_timeout(5)
    fleet.advance(4.9)
    assert is_waiting(reserve)
    fleet.advance(0.2)
    error(reserve, errors.TimedOut)
    assert [fleet.waiting(name) for name in TWO] == [0, 0]


def test_wrong_arguments_raise_at_once() -> None:
    fleet = Fleet("a")
    pool = fleet.pool(tubes=["t"])
    with pytest.raises(ValueError, match="0 or more"):
        pool.reserve_with_timeout(-1)
    with pytest.raises(ValueError, match="name of a tube"):
        pool.put("not a tube", b"x")
    with pytest.raises(ValueError, match="name of a tube"):
        pool.kick("not a tube", 1)
    with pytest.raises(TypeError):
        pool.put("t", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="was not reserved"):
        pool.release(PoolJob("a", 1))
    with pytest.raises(ValueError, match="no server 'z'"):
        pool.delete(PoolJob("z", 1))
    with pytest.raises(ValueError, match="no tubes"):
        fleet.pool().reserve()
    with pytest.raises(ValueError, match="two servers"):
        Pool(["tcp:127.0.0.1:11300", "127.0.0.1"], reactor=fleet.clock)
    with pytest.raises(ValueError, match="needs a name"):
        Pool([Server(fleet["a"].endpoint)], reactor=fleet.clock)
    with pytest.raises(ValueError, match="the name of a server is 1 to 255 bytes to print, not ''"):
        Pool([Server("127.0.0.1", "")], reactor=fleet.clock)
    with pytest.raises(ValueError, match="patience_s is 0 to 4294967295, not nan"):
        Pool(["127.0.0.1"], reactor=fleet.clock, patience_s=float("nan"))
    assert fleet.result(pool.put("t", b"x")).id == 1


@pytest.mark.parametrize("one", ["mail", b"mail"])
def test_one_tube_is_no_list_of_tubes(one: Any) -> None:
    fleet = Fleet("a")
    with pytest.raises(TypeError, match=r"^tubes: give a list, such as \[.mail.\], not b?'mail'$"):
        fleet.pool(tubes=one)
    with pytest.raises(TypeError, match=r"^tubes: give a list"):
        fleet.pool().by_server(one)


@pytest.mark.parametrize("one", ["127.0.0.1:1", b"127.0.0.1:1", Server("127.0.0.1:1")])
def test_one_server_is_no_list_of_servers(one: Any) -> None:
    clock = Fleet("a").clock
    with pytest.raises(TypeError, match=r"^servers: give a list, such as \[.*, not .*127"):
        Pool(one, reactor=clock)
    with pytest.raises(TypeError, match=r"^former: give a list, such as \[.*, not .*127"):
        Pool(["127.0.0.1:2"], former=one, reactor=clock)


def test_what_is_in_the_lists_is_looked_at_too() -> None:
    clock = Fleet("a").clock
    with pytest.raises(TypeError, match=r"^servers: each is HOST:PORT or a Server, not b'127"):
        Pool([b"127.0.0.1:1"], reactor=clock)  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^the name of a tube is not 3"):
        Pool(["127.0.0.1:1"], [3], reactor=clock)  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["bad tube", b"bad tube", "", "-x", "ü", "x" * 201])
def test_a_name_that_no_tube_can_have_is_refused_when_the_pool_is_made(name: str) -> None:
    fleet = Fleet("a")
    with pytest.raises(ValueError, match=r"^not the name of a tube: b'"):
        fleet.pool(tubes=["good", name])
    with pytest.raises(ValueError, match=r"^not the name of a tube: b'"):
        fleet.pool().by_server([name])
    assert fleet.pool(tubes=["x" * 200]).by_server(["x" * 200])


# A server that is away.


def test_a_server_that_is_down_takes_its_tubes_with_it_and_no_others(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    fleet["a"].kill()
    fleet.advance(PATIENCE_S + 0.1)
    assert (pool.up, pool.down) == (["b"], ["a"])
    down = error(pool.put(tubes[0], b"x"), errors.ServerDown)
    assert (down.command, down.server) == ("put", "a")
    error(pool.stats_tube(tubes[0]), errors.ServerDown)
    error(pool.kick(tubes[0], 1), errors.ServerDown)
    job = fleet.result(pool.put(tubes[1], b"x"))
    assert fleet.result(pool.reserve()) == job
    stats = fleet.result(pool.stats())
    assert list(stats.servers) == ["b"] and list(stats.failed) == ["a"]
    assert isinstance(stats.failed["a"], errors.ServerDown)


def test_a_server_that_restarts_quickly_costs_nothing_but_waiting() -> None:
    fleet = Fleet(*TWO, has_log=True)
    pool = fleet.pool()
    fleet["a"].kill()
    fleet.settle()
    put = pool.put(fleet.tube_on("a"), b"x")
    fleet.advance(0.5 * PATIENCE_S)
    assert is_waiting(put) and pool.down == []
    fleet["a"].restart()
    fleet.advance(PATIENCE_S)
    assert result(put).server == "a"
    assert pool.up == ["a", "b"]


def test_what_waits_for_a_server_fails_when_it_is_down_and_is_not_sent_later() -> None:
    fleet = Fleet(*TWO, has_log=True)
    pool = fleet.pool()
    tube = fleet.tube_on("a")
    fleet.result(pool.put(tube, b"x"))
    fleet["a"].kill()
    fleet.settle()
    another = next(other for other in map("u{}".format, range(99)) if pool.server_of(other) == "a")
    waits: list[Deferred[Any]] = [
        pool.put(tube, b"y"),
        pool.kick(another, 1),
        pool.stats_tube(tube),
    ]
    fleet.advance(PATIENCE_S + 0.1)
    for wait in waits:
        assert "not carried out" in str(error(wait, errors.ServerDown))
    fleet["a"].restart()
    fleet.advance(60)
    assert pool.up == ["a", "b"]
    other = fleet.result(pool.put(tube, b"z"))
    assert fleet.result(pool.stats_job(other)).tube == tube
    assert fleet.result(pool.stats_tube(tube)).current_jobs_ready == 2


def test_who_waits_for_jobs_goes_on_when_a_server_goes_away() -> None:
    fleet = Fleet(*TWO, has_log=True)
    pool = fleet.pool(tubes=both(fleet))
    first, second = pool.reserve(), pool.reserve()
    fleet.settle()
    fleet["a"].kill()
    fleet.advance(PATIENCE_S + 1)
    assert is_waiting(first)
    fleet.result(pool.put(fleet.tube_on("b"), b"x", ttr=600))
    assert fleet.result(first).server == "b"
    fleet["a"].restart()
    fleet.advance(60)
    assert fleet.waiting("a") == 1
    fleet.result(pool.put(fleet.tube_on("a"), b"x"))
    assert fleet.result(second).server == "a"


def test_a_server_that_was_away_from_the_start_is_found_later(fleet: Fleet) -> None:
    fleet["a"].endpoint.is_refusing = True
    pool = fleet.pool(tubes=both(fleet))
    put = pool.put(fleet.tube_on("a"), b"x")
    fleet.settle()
    assert is_waiting(put)
    fleet.advance(PATIENCE_S + 0.1)
    error(put, errors.ServerDown)
    reserve = pool.reserve()
    fleet["a"].endpoint.is_refusing = False
    fleet.advance(60)
    job = fleet.result(pool.put(fleet.tube_on("a"), b"x"))
    assert fleet.result(reserve) == job


def test_who_does_not_wait_waits_for_no_server_that_is_missing(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    fleet["a"].endpoint.is_refusing = True
    fleet["a"].kill()
    began_s = fleet.clock.seconds()
    error(settled(fleet, pool.reserve_with_timeout(0)), errors.TimedOut)
    job = fleet.result(pool.put(tubes[1], b"x"))
    assert fleet.result(pool.reserve_with_timeout(0)) == job
    assert (fleet.clock.seconds(), pool.down) == (began_s, [])
    short = pool.reserve_with_timeout(0.1)
    fleet.advance(0.11)
    error(short, errors.TimedOut)
    assert pool.down == []


def test_who_does_not_wait_waits_for_the_first_server_while_none_is_there(fleet: Fleet) -> None:
    for name in TWO:
        fleet[name].endpoint.is_refusing = True
    pool = fleet.pool(tubes=both(fleet))
    asked = pool.reserve_with_timeout(0)
    fleet.settle()
    assert is_waiting(asked)
    fleet["b"].endpoint.is_refusing = False
    fleet.advance(0.9 * PATIENCE_S)
    assert pool.up == ["b"] and pool.down == []
    error(asked, errors.TimedOut)


def test_when_all_servers_are_down_who_waits_for_a_time_is_told_so(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    forever, for_a_time = pool.reserve(), pool.reserve_with_timeout(60)
    for name in TWO:
        fleet[name].kill()
    fleet.advance(61)
    assert error(for_a_time, errors.ServerDown).server in ("a, b", "b, a")
    down = error(settled(fleet, pool.reserve_with_timeout(0)), errors.ServerDown)
    assert down.command == "reserve-with-timeout"
    assert str(down) == (
        f"reserve-with-timeout: not carried out: no connection to the servers {down.server}; "
        "their tubes wait for them, and no other server takes them"
    )
    assert is_waiting(forever)


def test_jobs_of_a_connection_that_is_lost_are_told_and_cannot_be_ended(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    for _ in range(2):
        fleet.result(pool.put(fleet.tube_on("a"), b"x"))
    jobs = [fleet.result(pool.reserve()) for _ in range(2)]
    fleet["a"].kill()
    assert fleet.lost == [("a", (1, 2))]
    fleet["a"].restart()  # Without a log: its numbers begin anew.
    fleet.advance(60)
    other = fleet.result(pool.put(fleet.tube_on("a"), b"another"))
    assert other.id == jobs[0].id
    for job in jobs:
        error(pool.delete(job), errors.NotCarriedOut)
        error(pool.touch(job), errors.NotCarriedOut)
    assert fleet.result(pool.peek(other)).body == b"another"


def test_a_reserve_waits_on_while_a_server_refuses_to_give_any(fleet: Fleet) -> None:
    pool = fleet.pool(tubes=both(fleet))
    reserve = pool.reserve()
    fleet.settle()
    parked = [
        link for link in fleet["a"].links if link.wire.peer.protocol.connection.session.is_waiting
    ]
    (link,) = parked
    link.transport.unsent += b"OUT_OF_MEMORY\r\n"
    link.transport.read()
    fleet.settle()
    assert is_waiting(reserve) and fleet.waiting("a") == 0
    fleet.advance(REST_S + 0.1)
    assert fleet.waiting("a") == 1
    fleet.result(pool.put(fleet.tube_on("a"), b"x"))
    assert fleet.result(reserve).server == "a"


def test_a_server_that_hangs_keeps_nobody_from_the_jobs_of_the_others(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    error(settled(fleet, pool.reserve_with_timeout(0)), errors.TimedOut)
    for link in fleet["a"].links:
        link.wire.cut_off()
    for _ in range(2):
        fleet.result(pool.put(tubes[1], b"x"))
    first = pool.reserve()
    fleet.advance(0.6 * LATE_S)
    second = pool.reserve()
    fleet.advance(0.5 * LATE_S)
    assert [result(each).server for each in (first, second)] == ["b", "b"]
    asked = pool.reserve_with_timeout(0)
    fleet.advance(LATE_S + 0.01)
    error(asked, errors.TimedOut)
    third = pool.reserve()
    fleet.settle()
    fleet.result(pool.put(tubes[1], b"x"))
    assert fleet.result(third).server == "b"


def test_the_application_is_told_when_servers_come_and_go(fleet: Fleet) -> None:
    pool = fleet.pool()
    assert fleet.changes == 2
    fleet["a"].kill()
    fleet.advance(PATIENCE_S + 0.1)
    assert fleet.changes == 4
    assert pool.down == ["a"]


def test_a_fault_in_a_callback_does_no_harm(clean_reactor: list[Failure], fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = Pool(fleet.servers(), tubes, reactor=fleet.clock, changed=fail, lost=fail)
    pool.startService()
    fleet.result(pool.put(tubes[0], b"x"))
    job = fleet.result(pool.reserve())
    fleet["a"].kill()
    error(pool.delete(job), errors.NotCarriedOut)
    fleet.result(pool.put(tubes[1], b"x"))
    assert fleet.result(pool.reserve()).server == "b"
    fleet.result(pool.stopService())
    assert [failure.type for failure in clean_reactor] == [ZeroDivisionError] * 4
    clean_reactor.clear()


def fail(*_: object) -> None:
    raise ZeroDivisionError


# Moving.


def test_after_a_server_was_added_jobs_come_from_the_former_one_too() -> None:
    fleet = Fleet("a", "b", "c")
    moved = next(
        tube for tube in map("t{}".format, range(999))
        if fleet.pool("a", "b").server_of(tube) == "a" and fleet.pool().server_of(tube) == "c"
    )  # fmt: skip
    old = fleet.pool("a", "b")
    fleet.result(old.put(moved, b"old"))
    new = fleet.pool(tubes=[moved], former=fleet.servers("a", "b"))
    assert set(new.by_server([moved])) == {"a", "c"}
    (found,) = fleet.result(new.misplaced())
    assert (found.tube, found.server, found.home) == (moved, "a", "c")
    assert found.stats.current_jobs_ready == 1
    assert fleet.result(new.put(moved, b"new")).server == "c"
    jobs = [fleet.result(new.reserve()) for _ in range(2)]
    assert {(job.server, job.body) for job in jobs} == {("a", b"old"), ("c", b"new")}
    for job in jobs:
        fleet.result(new.delete(job))
    assert fleet.result(new.misplaced()) == ()


# Stopping.


def test_a_pool_that_stops_gives_all_back_and_may_start_again(fleet: Fleet) -> None:
    tubes = both(fleet)
    pool = fleet.pool(tubes=tubes)
    job = fleet.result(pool.put(tubes[0], b"x"))
    assert fleet.result(pool.reserve()) == job
    waits = pool.reserve()
    fleet.settle()
    stopped = pool.stopService()
    error(waits, errors.NotCarriedOut)
    fleet.result(stopped)
    assert [fleet.waiting(name) for name in TWO] == [0, 0]
    assert fleet.lost == []
    error(pool.reserve(), errors.NotCarriedOut)
    error(pool.put(tubes[0], b"x"), errors.NotCarriedOut)
    pool.startService()
    fleet.settle()
    assert fleet.result(pool.reserve()) == job
    fleet.result(pool.stopService())
    assert not fleet.clock.getDelayedCalls()


def test_a_pool_that_stops_while_it_connects_leaves_nothing(fleet: Fleet) -> None:
    for name in TWO:
        fleet[name].endpoint.is_refusing = True
    pool = fleet.pool(tubes=both(fleet))
    waits = pool.reserve()
    fleet.advance(1)
    stopped = pool.stopService()
    error(waits, errors.NotCarriedOut)
    fleet.result(stopped)
    assert not fleet.clock.getDelayedCalls()
