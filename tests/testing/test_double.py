"""The double as a test uses it: time, restarts, looking, preparing."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as RefusedByTwisted
from twisted.internet.protocol import Protocol

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.client import Tags, errors, hashed_key
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.testing.sockets import BeanstalkServer
from tests.client.world import error


def client_of(beanstalk: Beanstalk, **options: Any) -> Client:
    client = Client(beanstalk.endpoint, reactor=beanstalk.clock, **options)
    client.startService()
    return client


# Time.


def test_a_ttr_ends_at_once_when_time_is_advanced(beanstalk: Beanstalk) -> None:
    number = beanstalk.put(b"slow", ttr=30)
    with beanstalk.connect() as worker:
        assert worker.ask(b"reserve\r\n") == b"RESERVED %d 4\r\nslow\r\n" % number
        beanstalk.advance(29)
        beanstalk.assert_jobs(reserved=1)
        beanstalk.advance(1)
        beanstalk.assert_jobs(ready=1, reserved=0)
    assert beanstalk.stats_job(number).timeouts == 1
    assert beanstalk.time() == pytest.approx(30)


def test_nothing_happens_by_itself(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"later", delay=1)
    with beanstalk.connect() as worker:
        assert worker.ask(b"reserve\r\n") == b""
        assert beanstalk.waiting() == beanstalk.waiting("default") == 1
        assert beanstalk.waiting("other") == 0
        beanstalk.settle()
        assert worker.take() == b""
        beanstalk.advance(1)
        assert worker.take().startswith(b"RESERVED")


def test_what_is_due_in_one_advance_happens_in_its_order(beanstalk: Beanstalk) -> None:
    for name, delay in (("third", 30), ("first", 10), ("second", 20)):
        beanstalk.put(name.encode(), delay=delay)
    with beanstalk.connect() as worker:
        worker.send(b"reserve\r\n" * 3)
        beanstalk.advance(100)
        bodies = worker.take().split(b"\r\n")[1::2]
    assert bodies == [b"first", b"second", b"third"]


def test_the_clock_of_the_code_under_test_goes_with_the_servers(beanstalk: Beanstalk) -> None:
    called: list[float] = []
    beanstalk.clock.callLater(5, lambda: called.append(beanstalk.time()))
    beanstalk.advance(4.9)
    assert called == []
    beanstalk.advance(0.2)
    assert called == [pytest.approx(5, abs=1e-5)]


def test_a_client_that_asks_on_and_on_without_waiting_is_told_of(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.network.max_rounds = 100
    is_asking = True

    def again(_: object) -> None:
        if is_asking:
            client.list_tube_used().addCallback(again)

    again(None)
    with pytest.raises(RuntimeError, match="again and again without waiting"):
        beanstalk.settle()
    is_asking = False
    beanstalk.settle()


# The code under test on Twisted.


def test_a_coroutine_may_let_time_pass_itself(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)

    async def script() -> list[bytes]:
        number = await client.put(b"job", ttr=10)
        first = await client.reserve()
        beanstalk.advance(11)
        beanstalk.assert_jobs(ready=1)
        second = await client.reserve_with_timeout(0)
        await client.delete(number)
        return [first.body, second.body]

    assert beanstalk.run(script()) == [b"job", b"job"]
    beanstalk.assert_no_jobs()


def test_a_result_that_needs_time_says_which_commands_have_no_answer(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    waiting = client.reserve_with_timeout(3)
    with pytest.raises(AssertionError, match="'reserve-with-timeout 3' -> no answer yet"):
        beanstalk.result(waiting)
    failed = client.reserve_with_timeout(5)
    beanstalk.advance(8)
    error(failed, errors.TimedOut)


@pytest.mark.beanstalk(piece_bytes=1)
def test_replies_may_come_byte_by_byte(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.put(b"a body\r\nof two lines")
    assert beanstalk.result(client.reserve()).body == b"a body\r\nof two lines"
    assert beanstalk.result(client.stats_tube("default")).current_jobs_reserved == 1


class Impatient(Protocol):
    """A protocol that lets everything happen whenever it is told something."""

    transport: Any

    def __init__(self, beanstalk: Beanstalk) -> None:
        self.beanstalk = beanstalk
        self.depth = 0
        self.depths: list[int] = []
        self.heard = b""
        self.is_over = False

    def dataReceived(self, data: bytes) -> None:
        """Twisted never calls this before it has come back."""
        self.depth += 1
        self.heard += data
        self.depths.append(self.depth)
        self.transport.pauseProducing()
        self.transport.resumeProducing()
        if self.heard.endswith(b"USING b\r\n"):
            self.beanstalk.connections[0].drop()
        self.beanstalk.advance(1)
        assert not self.is_over
        self.depth -= 1

    def connectionLost(self, reason: object = None) -> None:
        """Nor this."""
        self.is_over = True


@pytest.mark.beanstalk(piece_bytes=3)
def test_a_protocol_is_never_called_before_it_has_come_back(beanstalk: Beanstalk) -> None:
    protocol = Impatient(beanstalk)
    link = beanstalk.endpoint.join(protocol)
    link.transport.unsent += b"more "
    protocol.transport.write(b"use a\r\nuse b\r\nuse c\r\n")
    link.transport.read()
    beanstalk.settle()
    assert set(protocol.depths) == {1} and len(protocol.depths) > 3
    assert protocol.heard.startswith(b"more USING a\r\nUSING b\r\n")
    assert protocol.is_over


async def test_with_a_reactor_await_needs_no_help(beanstalk: Beanstalk) -> None:
    client = Client(beanstalk.endpoint)
    client.startService()
    number = await client.put(b"hello", ttr=60)
    assert (await client.reserve()) == (number, b"hello")
    beanstalk.advance(61)
    waiting: Deferred[Any] = client.reserve_with_timeout(10)
    assert (await waiting).id == number
    late = client.reserve_with_timeout(10)
    beanstalk.advance(10)
    with pytest.raises(errors.TimedOut):
        await late
    await client.stopService()
    beanstalk.assert_job_reserved(2)


def test_a_double_that_is_closed_leaves_nothing_in_the_reactor() -> None:
    with Beanstalk() as double:
        client = Client(double.endpoint, reactor=double.clock)
        client.startService()
        client.put(b"a")
    # The fixture of all tests, clean_reactor, fails this one if a call is left.


# Starts and stops.


@pytest.mark.parametrize("end", ["stop", "kill", "lose_power"])
def test_answered_jobs_are_there_after_each_kind_of_end(beanstalk: Beanstalk, end: str) -> None:
    with beanstalk.connect() as producer:
        assert producer.ask(b"put 7 0 60 1\r\na\r\n") == b"INSERTED 1\r\n"
        getattr(beanstalk, end)()
        assert producer.is_closed
    with pytest.raises(ConnectionRefusedError):
        beanstalk.connect()
    with pytest.raises(ConnectionRefusedError):
        beanstalk.put(b"x")
    with pytest.raises(ConnectionRefusedError):
        beanstalk.jobs()
    beanstalk.start()
    (job,) = beanstalk.jobs()
    assert (job.id, job.priority, job.body) == (1, 7, b"a")
    beanstalk.assert_job_put()


@pytest.mark.beanstalk(has_log=False)
def test_without_a_log_a_restart_forgets_all_jobs(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"a")
    beanstalk.restart()
    beanstalk.assert_no_jobs()
    with pytest.raises(RuntimeError, match="no log"):
        beanstalk.damage_log()


def test_a_server_that_is_up_is_not_started(beanstalk: Beanstalk) -> None:
    with pytest.raises(RuntimeError, match="up"):
        beanstalk.start()


def test_our_client_comes_back_to_a_killed_server(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.result(client.watch("mail"))
    waiting = client.reserve()
    beanstalk.settle()
    beanstalk.kill()
    beanstalk.advance(5)
    beanstalk.start()
    beanstalk.advance(30)
    beanstalk.put(b"after", "mail")
    assert beanstalk.result(waiting).body == b"after"


def test_a_damaged_log_is_refused_at_the_next_start(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"a")
    beanstalk.damage_log()
    beanstalk.assert_jobs(ready=1)
    with pytest.raises(Damaged, match="nothing was changed"):
        beanstalk.restart()
    assert not beanstalk.is_up
    refused: Deferred[Any] = beanstalk.endpoint.connect(None)
    error(refused, RefusedByTwisted)


def test_any_byte_of_the_log_can_be_damaged(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"a" * 1000)
    beanstalk.restart()
    directory = beanstalk.server.directory
    assert directory is not None
    oldest = min(directory.names())
    before = bytes(directory.read(oldest))
    beanstalk.damage_log(oldest, len(before) - 1)
    after = bytes(directory.read(oldest))
    assert [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] \
        == [len(before) - 1]  # fmt: skip


def test_the_speed_of_threads_is_left_as_it_was() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.25)
    try:
        Beanstalk(uses_reactor=False)
        assert sys.getswitchinterval() == 0.25
    finally:
        sys.setswitchinterval(before)


# Inspection.


def test_jobs_are_shown_in_the_order_of_their_turn(beanstalk: Beanstalk) -> None:
    jobs: list[tuple[bytes, dict[str, Any]]] = [
        (b"late", {"delay": 20}), (b"soon", {"delay": 10}), (b"last", {"priority": 9}),
        (b"first", {"priority": 1}),
    ]  # fmt: skip
    for body, options in jobs:
        beanstalk.put(body, "mail", **options)
    beanstalk.put(b"elsewhere")
    bodies = [job.body for job in beanstalk.jobs("mail")]
    assert bodies == [b"first", b"last", b"soon", b"late"]
    beanstalk.advance(4)
    delayed = beanstalk.jobs("mail", "delayed")
    assert [(job.body, round(job.time_left)) for job in delayed] == [(b"soon", 6), (b"late", 16)]
    assert beanstalk.jobs()[0].body == b"elsewhere"
    with pytest.raises(ValueError, match="never 'waiting'"):
        beanstalk.jobs(state="waiting")


def test_buried_jobs_are_shown_as_they_are_kicked(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as worker:
        for body in (b"a", b"b"):
            beanstalk.put(body)
        worker.ask(b"reserve\r\nreserve\r\nbury 2 0\r\nbury 1 0\r\n")
        assert [job.body for job in beanstalk.jobs(state="buried")] == [b"b", b"a"]
        worker.ask(b"kick 1\r\n")
        assert [job.body for job in beanstalk.jobs(state="ready")] == [b"b"]


def test_statistics_are_the_server_s_and_looking_counts_nothing(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as worker, beanstalk.connect() as other:
        worker.ask(b"watch mail\r\nuse mail\r\npause-tube mail 10\r\nreserve\r\n")
        other.ask(b"watch mail\r\n")
        beanstalk.advance(3)
        stats = beanstalk.stats_tube("mail")
        assert (stats.current_using, stats.current_watching, stats.current_waiting) == (1, 2, 1)
        assert (stats.pause, stats.pause_time_left) == (10, 7)
        assert beanstalk.stats().cmd_stats == beanstalk.stats().cmd_stats_tube == 0
        assert beanstalk.stats().cmd_pause_tube == 1
        assert beanstalk.tubes() == ["default", "mail"]
    with pytest.raises(LookupError, match="stats-tube nowhere: NOT_FOUND"):
        beanstalk.stats_tube("nowhere")


def test_commands_are_counted_by_name_also_those_not_in_stats(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as talk:
        talk.ask(b"kick-job 1\r\nput 0 0 1 1\r\nx\r\nnonsense\r\nreserve-job 1\r\nput 0\r\n")
    assert beanstalk.counts() == {"kick-job": 1, "put": 1, "reserve-job": 1}
    assert [each.word for each in beanstalk.commands] == [
        "NOT_FOUND", "INSERTED", "UNKNOWN_COMMAND", "RESERVED", "BAD_FORMAT",
    ]  # fmt: skip


def test_waits_and_what_cancels_them_are_recorded_each_by_itself(beanstalk: Beanstalk) -> None:
    number = beanstalk.put(b"x", "mail", delay=9)
    with beanstalk.connect() as talk:
        talk.ask(b"reserve\r\ncancel-reserve\r\nwait-job %d 60\r\n" % number)
        assert beanstalk.waiting() == 0
        beanstalk.advance(5)
        talk.ask(b"cancel-reserve\r\n")
    waited = beanstalk.commands[2]
    assert (waited.args, waited.tube) == ({"id": number, "seconds": 60}, "mail")
    assert waited.answered_at == pytest.approx(5, abs=1e-5)
    assert [(each.name, each.word) for each in beanstalk.commands] == [
        ("reserve", "TIMED_OUT"), ("cancel-reserve", "CANCELLED"),
        ("wait-job", "TIMED_OUT"), ("cancel-reserve", "CANCELLED"),
    ]  # fmt: skip


def test_clear_ends_the_jobs_that_are_waited_for(beanstalk: Beanstalk) -> None:
    number = beanstalk.put(b"x")
    with beanstalk.connect() as talk:
        assert talk.ask(b"wait-job %d 60\r\n" % number) == b""
        beanstalk.clear()
        assert talk.take() == b"DELETED\r\n"


def test_answers_are_planted_for_commands_beanstalkd_does_not_have(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("wait-job", "TIMED_OUT")
    with beanstalk.connect() as talk:
        assert talk.ask(b"wait-job 1 60\r\n" * 2) == b"TIMED_OUT\r\nNOT_FOUND\r\n"


def test_clear_begins_anew_and_keeps_connections(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as worker:
        worker.ask(b"watch mail\r\nuse mail\r\nput 0 0 9 1\r\nx\r\nreserve\r\nput 0 9 9 1\r\ny\r\n")
        worker.ask(b"pause-tube mail 100\r\n")
        beanstalk.answer_next("reserve", "TIMED_OUT")
        beanstalk.hold_replies()
        beanstalk.clear()
        beanstalk.assert_no_jobs()
        assert beanstalk.commands == [] and beanstalk.stats().cmd_put == 0
        assert beanstalk.stats().total_jobs == beanstalk.stats_tube("mail").total_jobs == 0
        assert beanstalk.stats().current_connections == beanstalk.stats().total_connections == 1
        assert beanstalk.stats_tube("mail").pause_time_left == 0
        assert worker.ask(b"list-tube-used\r\n") == b"USING mail\r\n"
        assert worker.ask(b"put 0 0 9 1\r\nz\r\nreserve\r\n").startswith(
            b"INSERTED 3\r\nRESERVED 3"
        )
    beanstalk.restart()
    assert [job.body for job in beanstalk.jobs()] == [b"z"]


# Preparing.


def test_a_job_that_the_test_puts_is_not_in_the_record(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("put", "DRAINING")
    number = beanstalk.put(b"x", "mail", priority=1, delay=2, ttr=3)
    (job,) = beanstalk.jobs()
    assert job[:7] == (number, "mail", "delayed", b"x", 1, 2, 3)
    assert beanstalk.commands == [] and beanstalk.connections == []


def test_a_job_is_put_with_tags(beanstalk: Beanstalk) -> None:
    first = beanstalk.put(b"x", tube="t", tags=Tags(unique_by="order:7", group="g"))
    assert beanstalk.put(b"y", tube="t", tags=Tags(unique=hashed_key("order:7"))) == first
    later = beanstalk.put(b"z", tube="t", tags=Tags(after="g"))
    beanstalk.assert_jobs("t", ready=1, delayed=1)
    assert later != first


@pytest.mark.parametrize("tube", ["", "a b", "ü", "a\r\ndelete 1"])
def test_a_tube_that_cannot_be_is_refused(beanstalk: Beanstalk, tube: str) -> None:
    with pytest.raises(ValueError, match="not the name of a tube"):
        beanstalk.put(b"x", tube=tube)


@pytest.mark.beanstalk(max_job_bytes=3)
def test_a_job_that_the_server_refuses_is_told_of(beanstalk: Beanstalk) -> None:
    with pytest.raises(ValueError, match="JOB_TOO_BIG"):
        beanstalk.put(b"1234")
    with pytest.raises(ValueError, match="not the name of a tube"):
        beanstalk.put(b"123", "-no-tube")
    beanstalk.put(b"123")
    beanstalk.refuse_puts()
    with pytest.raises(ValueError, match="DRAINING"):
        beanstalk.put(b"123")


# Forgiving what can only be meant in one way, and nothing else.


@pytest.mark.parametrize("seconds", [-5, float("nan"), float("inf")])
def test_only_time_that_can_pass_passes(
    beanstalk: Beanstalk, beanstalk_server: BeanstalkServer, seconds: float
) -> None:
    for double in (beanstalk, beanstalk_server):
        with pytest.raises(ValueError, match="cannot pass"):
            double.advance(seconds)
        assert double.time() == 0


def test_text_is_put_as_utf_8(beanstalk: Beanstalk) -> None:
    beanstalk.put("grüße")
    (job,) = beanstalk.jobs()
    assert job.body == "grüße".encode()


def test_a_deferred_is_run_like_a_coroutine(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    assert beanstalk.run(client.put(b"x")) == 1
