"""One connection: order, cancelling, deadlines, back-pressure, and how it ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock

from beanstalk_twisted.client import connection as module
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.connection import GRACE_S, PART_S
from beanstalk_twisted.client.core.dialogue import MAX_UNANSWERED, Ended
from beanstalk_twisted.client.core.exchange import PIECE_BYTES
from beanstalk_twisted.client.endpoints import way_to
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, MemoryTransport
from tests.client.world import Line, World, error, is_waiting, result

STATS_JOB_7 = b"OK 14\r\n---\nid: 7\npri: 5\n\r\n".replace(b"OK 14", b"OK 17")


# Order.


def test_commands_leave_at_once_and_answers_come_in_their_order(line: Line) -> None:
    put, delete, kick = (
        line.connection.put(b"a"), line.connection.delete(3), line.connection.kick(9),
    )  # fmt: skip
    assert line.sent() == b"put 65536 0 60 1\r\na\r\ndelete 3\r\nkick 9\r\n"
    line.say(b"INSERTED 4\r\nNOT_FOUND\r\nKICK", b"ED 2\r\n")
    assert result(put) == 4
    assert error(delete, errors.NotFound).job_id == 3
    assert result(kick) == 2


def test_what_an_answer_leads_to_is_sent_behind_what_was_sent_before(line: Line) -> None:
    line.connection.put(b"a").addCallback(lambda job: line.connection.delete(job))
    later = line.connection.stats_tube("t")
    line.sent()
    line.say(b"INSERTED 1\r\nNOT_FOUND\r\n")
    error(later, errors.NotFound)
    assert line.sent() == b"delete 1\r\n"


def test_an_answered_command_leaves_nothing_for_the_garbage_collector(line: Line) -> None:
    gc.disable()
    try:
        put = line.connection.put(b"a")
        kept = weakref.ref(put)
        line.say(b"INSERTED 1\r\n")
        assert result(put) == 1
        del put
        assert kept() is None
    finally:
        gc.enable()


# What the server cannot say.


@pytest.mark.parametrize(
    "said",
    [b"WHAT_IS_THIS\r\n", b"DELETED\r\n", b"INSERTED x\r\n", b"x" * 300, b"OUT_OF_STORAGE\r\n"],
)
def test_an_impossible_reply_ends_the_connection_and_is_told(said: bytes, line: Line) -> None:
    put, later = line.connection.put(b"a"), line.connection.delete(1)
    line.say(said, b"INSERTED 1\r\nDELETED\r\n")
    line.part()
    assert line.transport.is_closed
    for waited, name in ((put, "put"), (later, "delete")):
        unanswered = error(waited, errors.Unanswered)
        assert unanswered.command == name
        assert isinstance(unanswered.reason, errors.BadReply)
        assert said[:7].decode() in str(unanswered)


def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    line = Line()
    line.say(b"INSERTED 1\r\n")
    line.part()
    assert line.transport.is_closed
    line = Line()
    put = line.connection.put(b"a")
    line.say(b"INSERTED 1\r\nDELETED\r\n")
    assert result(put) == 1
    line.part()
    assert line.transport.is_closed


@pytest.mark.parametrize("refusal", [b"BAD_FORMAT", b"UNKNOWN_COMMAND", b"INTERNAL_ERROR"])
def test_a_refused_put_line_ends_the_connection_before_its_body(refusal: bytes, line: Line) -> None:
    put, later = line.connection.put(b"delete 5"), line.connection.kick(1)
    line.say(refusal + b"\r\nKICKED 1\r\n")
    assert error(put, errors.ErrorReply).word == refusal
    line.part()
    assert line.transport.is_closed
    error(later, errors.Unanswered)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"OUT_OF_MEMORY", errors.OutOfMemory), (b"DRAINING", errors.Draining),
        (b"JOB_TOO_BIG", errors.JobTooBig), (b"EXPECTED_CRLF", errors.ExpectedCrlf),
        (b"BURIED 17", errors.Buried),
    ],
)  # fmt: skip
def test_a_refused_put_costs_only_itself(reply: bytes, kind: type[errors.ErrorReply]) -> None:
    line = Line()
    put, later = line.connection.put(b"a"), line.connection.put(b"b")
    line.say(reply + b"\r\nINSERTED 2\r\n")
    refused = error(put, kind)
    assert refused.job_id == (17 if kind is errors.Buried else None)
    assert result(later) == 2


# Deadlines.


def test_a_peer_that_never_answers_is_given_up_after_the_grace(world: World) -> None:
    connection = world.connection()
    world.link.wire.cut_off()
    put = connection.put(b"a")
    world.advance(GRACE_S - 0.01)
    assert is_waiting(put) and connection.is_open
    world.advance(0.02)
    silent = error(put, errors.Unanswered).reason
    assert isinstance(silent, errors.ServerSilent)
    assert "no answer to put in 30 s" in str(silent)
    assert not connection.is_open and world.link.transport.is_closed


def test_a_server_may_wait_as_long_as_it_was_told_to_and_the_grace() -> None:
    line = Line(grace_s=5)
    reserve = line.connection.reserve_with_timeout(100)
    line.clock.pump([1.0] * 104)
    assert is_waiting(reserve)
    line.clock.advance(2)
    line.part()
    error(reserve, errors.Unanswered)


def test_a_reserve_without_a_timeout_has_no_deadline_but_what_follows_it_has() -> None:
    line = Line(grace_s=5)
    reserve, later = line.connection.reserve(), line.connection.kick(1)
    line.clock.pump([10.0] * 100)
    assert is_waiting(reserve) and is_waiting(later)
    line.say(b"RESERVED 1 1\r\na\r\n")
    assert result(reserve) == Job(1, b"a")
    line.clock.pump([1.0] * 6)
    line.part()
    error(later, errors.Unanswered)


def test_a_deadline_moves_with_each_sign_of_life() -> None:
    line = Line(grace_s=5)
    body = b"x" * 10
    peek = line.connection.peek(1)
    line.say(b"FOUND 1 10\r\n")
    for at in range(10):
        line.clock.advance(4)
        line.say(body[at : at + 1])
    line.say(b"\r\n")
    assert result(peek) == Job(1, body)


def test_the_deadline_of_a_quick_command_behind_a_slow_one_counts_from_its_turn() -> None:
    line = Line(grace_s=5)
    slow, quick = line.connection.reserve_with_timeout(1000), line.connection.kick(1)
    line.clock.advance(900)
    line.say(b"TIMED_OUT\r\n")
    error(slow, errors.TimedOut)
    line.clock.advance(4)
    assert is_waiting(quick)
    line.clock.advance(2)
    line.part()
    error(quick, errors.Unanswered)


def test_a_quiet_connection_without_questions_is_left_alone() -> None:
    line = Line(grace_s=5)
    put = line.connection.put(b"a")
    line.say(b"INSERTED 1\r\n")
    assert result(put) == 1
    line.clock.pump([5.0] * 10)
    assert line.connection.is_open
    assert not line.clock.getDelayedCalls()


def test_a_large_body_that_leaves_slowly_is_no_silence() -> None:
    line = Line(grace_s=5)
    body = bytes(4 * PIECE_BYTES)
    put = line.connection.put(body)
    producer = line.transport._producer
    for _ in range(3):
        line.clock.advance(4)
        line.transport.unread.clear()
        producer.resumeProducing()
    line.clock.advance(4)
    line.say(b"INSERTED 1\r\n")
    assert result(put) == 1


# Cancelling.


def test_the_answer_to_a_cancelled_command_is_swallowed_and_the_order_kept(line: Line) -> None:
    first, second, third = (line.connection.put(b"%d" % number) for number in range(3))
    second.cancel()
    error(second, CancelledError)
    line.say(b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n")
    assert (result(first), result(third)) == (1, 3)


def test_a_job_that_comes_for_a_cancelled_reserve_is_given_back_with_its_priority() -> None:
    line = Line()
    reserve = line.connection.reserve_with_timeout(9)
    reserve.cancel()
    error(reserve, CancelledError)
    line.sent()
    line.say(b"RESERVED 7 1\r\na\r\n")
    assert line.sent() == b"stats-job 7\r\n"
    line.say(STATS_JOB_7)
    assert line.sent() == b"release 7 5 0\r\n"
    line.say(b"RELEASED\r\n")
    assert line.connection.is_open


def given_back(line: Line) -> None:
    reserve = line.connection.reserve()
    reserve.cancel()
    error(reserve, CancelledError)
    line.say(b"RESERVED 7 1\r\na\r\n")
    assert line.sent() == b"reserve\r\nstats-job 7\r\n"


@pytest.mark.parametrize("wanted", ["reserve", "reserve-with-timeout 9"])
def test_a_reserve_waits_until_a_job_that_is_given_back_is(wanted: str, line: Line) -> None:
    given_back(line)
    connection = line.connection
    reserve = connection.reserve() if wanted == "reserve" else connection.reserve_with_timeout(9)
    put = line.connection.put(b"b")
    assert line.sent() == b""
    line.say(STATS_JOB_7)
    behind = f"{wanted}\r\nput 65536 0 60 1\r\nb\r\n"
    assert line.sent() == b"release 7 5 0\r\n" + behind.encode()
    line.say(b"RELEASED\r\nRESERVED 7 1\r\na\r\nINSERTED 8\r\n")
    assert (result(reserve), result(put)) == (Job(7, b"a"), 8)


def test_a_reserve_is_sent_also_if_the_job_to_give_back_is_gone(line: Line) -> None:
    given_back(line)
    line.connection.reserve()
    line.say(b"NOT_FOUND\r\n")
    assert line.sent() == b"reserve\r\n"


def test_a_reserve_that_waits_for_that_can_be_cancelled_and_lost(line: Line) -> None:
    given_back(line)
    cancelled, lost = line.connection.reserve(), line.connection.reserve()
    cancelled.cancel()
    error(cancelled, CancelledError)
    line.end()
    error(lost, errors.NotCarriedOut)


def test_a_job_that_vanishes_while_it_is_given_back_harms_nobody(line: Line) -> None:
    reserve = line.connection.reserve_job(7)
    reserve.cancel()
    error(reserve, CancelledError)
    line.say(b"RESERVED 7 1\r\na\r\n", b"NOT_FOUND\r\n")
    assert line.connection.is_open


def test_a_reserve_after_a_cancelled_one_takes_its_place_in_the_server(line: Line) -> None:
    for _ in range(3):
        tried = line.connection.reserve()
        tried.cancel()
        error(tried, CancelledError)
    reserve = line.connection.reserve()
    assert line.sent() == b"reserve\r\n"
    line.say(b"RESERVED 7 1\r\na\r\n")
    assert result(reserve) == Job(7, b"a")
    assert line.sent() == b""


def test_a_reserve_of_other_tubes_does_not_take_the_place_of_a_cancelled_one() -> None:
    for when in ("before", "after"):
        line = Line()
        cancelled = line.connection.reserve()
        if when == "before":
            line.connection.watch("t")
        cancelled.cancel()
        error(cancelled, CancelledError)
        if when == "after":
            line.connection.watch("t")
        reserve = line.connection.reserve()
        assert line.sent() == b"reserve\r\nwatch t\r\nreserve\r\n"
        line.say(b"DEADLINE_SOON\r\nWATCHING 2\r\nRESERVED 1 1\r\na\r\n")
        assert result(reserve) == Job(1, b"a")


def test_what_was_not_begun_when_it_was_cancelled_is_not_sent(world: World) -> None:
    connection = world.connection()
    large = connection.put(b"x" * 60_000)
    connection.pauseProducing()
    never, later = connection.put(b"never"), connection.put(b"later")
    never.cancel()
    error(never, CancelledError)
    connection.resumeProducing()
    world.settle()
    assert (result(large), result(later)) == (1, 2)
    assert world.result(connection.peek(2)).body == b"later"


# Back-pressure.


def test_a_large_body_goes_to_the_transport_in_pieces_as_it_takes_them(line: Line) -> None:
    body = bytes(10 * PIECE_BYTES)
    put = line.connection.put(body)
    assert len(line.transport.unread) <= OUTPUT_LIMIT_BYTES + PIECE_BYTES
    assert is_waiting(line.connection.room())
    assert line.sent() == b"put 65536 0 60 %d\r\n%b\r\n" % (len(body), body)
    line.say(b"INSERTED 1\r\n")
    assert result(put) == 1


def test_room_waits_while_the_server_does_not_read(line: Line) -> None:
    assert result(line.connection.room()) is None
    line.connection.put(bytes(60_000))
    line.connection.put(bytes(60_000))
    room, given_up = line.connection.room(), line.connection.room()
    assert is_waiting(room)
    given_up.cancel()
    error(given_up, CancelledError)
    line.sent()
    assert result(room) is None


def test_room_waits_while_too_much_has_no_answer(line: Line) -> None:
    for _ in range(MAX_UNANSWERED - 1):
        line.connection.kick(1)
    line.sent()
    assert result(line.connection.room()) is None
    line.connection.kick(1)
    line.sent()
    room = line.connection.room()
    assert is_waiting(room)
    line.say(b"KICKED 0\r\n")
    assert result(room) is None


def test_those_who_wait_for_room_are_let_in_one_by_one(line: Line) -> None:
    for _ in range(MAX_UNANSWERED):
        line.connection.kick(1)
    rooms = [line.connection.room() for _ in range(3)]
    for room in rooms:
        room.addCallback(lambda _: line.connection.kick(1))
    line.say(b"KICKED 0\r\n")
    assert [room.called for room in rooms] == [True, False, False]
    line.say(b"KICKED 0\r\nKICKED 0\r\n")
    assert all(room.called for room in rooms)


def test_more_than_may_wait_is_refused_and_the_rest_goes_through(line: Line) -> None:
    line.connection.pauseProducing()
    body = bytes(16 << 20)
    taken = [line.connection.put(body) for _ in range(4)]
    refused = error(line.connection.put(b""), errors.Overfull)
    assert "await room()" in str(refused)
    assert all(map(is_waiting, taken))
    line.end()
    for put in taken:
        error(put, errors.NotCarriedOut)


# How it ends.


def test_a_server_that_closes_the_connection_is_said_to_have_done_so(line: Line) -> None:
    sent = line.connection.delete(1)
    line.end(ConnectionDone())
    assert str(error(sent, errors.Unanswered).reason) == "the server has closed the connection"


def test_a_server_that_goes_in_mid_body_has_not_carried_it_out(line: Line) -> None:
    sent, partly, not_begun = (
        line.connection.kick(1), line.connection.put(bytes(500_000)), line.connection.delete(1),
    )  # fmt: skip
    line.end(ConnectionLost())
    assert isinstance(error(sent, errors.Unanswered).reason, errors.ServerClosed)
    assert error(partly, errors.NotCarriedOut).command == "put"
    assert error(not_begun, errors.NotCarriedOut).job_id == 1


def test_an_answer_before_a_body_was_sent_ends_the_connection(line: Line) -> None:
    put = line.connection.put(bytes(500_000))
    line.say(b"JOB_TOO_BIG\r\n")
    error(put, errors.JobTooBig)
    line.part()
    assert line.transport.is_closed


def test_who_owns_a_connection_hears_what_is_left() -> None:
    ends: list[Ended] = []
    line = Line(ended=ends.append)
    line.connection.use("a")
    line.connection.watch("b")
    assert line.connection.is_open
    jobs = [line.connection.reserve() for _ in range(5)]
    line.say(b"USING a\r\nWATCHING 2\r\n")
    for number in range(1, 6):
        line.say(b"RESERVED %d 0\r\n\r\n" % number)
    assert [result(job).id for job in jobs] == [1, 2, 3, 4, 5]
    done = [line.connection.delete(1), line.connection.bury(3), line.connection.touch(5)]
    gone = [line.connection.release(2), line.connection.touch(4)]
    line.say(b"DELETED\r\nBURIED\r\nTOUCHED\r\nNOT_FOUND\r\nNOT_FOUND\r\n")
    assert [result(each) for each in done] == [None] * 3
    for each in gone:
        error(each, errors.NotFound)
    left = line.connection.kick(1)
    line.end(ConnectionLost())
    (ended,) = ends
    assert ended.reserved == (5,)
    assert (ended.tubes.used, list(ended.tubes.watched)) == (b"a", [b"default", b"b"])
    assert [request.spec for request in ended.left] == [specs.SPECS["kick"]]
    assert is_waiting(left)


def test_a_job_that_nobody_has_got_is_no_reservation_lost() -> None:
    ends: list[Ended] = []
    line = Line(ended=ends.append)
    reserve = line.connection.reserve_with_timeout(9)
    reserve.cancel()
    error(reserve, CancelledError)
    line.say(b"RESERVED 7 0\r\n\r\n")
    line.end(ConnectionLost())
    assert ends[0].reserved == ()


def test_after_its_end_a_connection_takes_nothing(line: Line) -> None:
    line.end()
    refused = error(line.connection.put(b"a"), errors.NotCarriedOut)
    assert "the connection is closed" in str(refused)
    error(line.connection.room(), errors.Closed)


def test_who_waits_for_room_hears_of_the_end(line: Line) -> None:
    line.connection.pauseProducing()
    room = line.connection.room()
    line.end()
    error(room, errors.Closed)


def test_parting_sends_what_the_transport_has_and_is_cut_if_that_takes_too_long(line: Line) -> None:
    put = line.connection.put(b"a")
    line.connection.part()
    line.part()
    assert not line.transport.is_closed
    line.clock.advance(PART_S)
    line.part()
    assert line.transport.is_closed
    assert isinstance(error(put, errors.Unanswered).reason, errors.Closed)
    assert not line.clock.getDelayedCalls()


def test_nothing_counts_that_comes_after_the_connection_was_cut_while_parting(line: Line) -> None:
    put = line.connection.put(b"a")
    line.sent()
    line.connection.part()
    line.connection.dataReceived(b"NONSENSE\r\n")
    line.connection.dataReceived(b"INSERTED 1\r\n")
    line.part()
    assert isinstance(error(put, errors.Unanswered).reason, errors.Closed)


def test_an_answer_that_comes_after_the_connection_was_given_up_counts_no_more(line: Line) -> None:
    put = line.connection.put(b"a")
    line.connection.dialogue.abort(errors.ServerSilent("too late"))
    line.connection.dataReceived(b"INSERTED 1\r\n")
    line.part()
    error(put, errors.Unanswered)


# Past the buffer of the transport.


def test_the_first_command_goes_past_the_buffer_and_what_is_left_of_it_does_not() -> None:
    for taken in (0, 5, 9, ConnectionLost()):
        line = Line()
        line.connection._send_now = lambda data, taken=taken: taken
        line.connection.touch(7)
        line.connection.kick(1)
        sent = taken if isinstance(taken, int) else 0
        assert line.sent() == b"touch 7\r\n"[sent:] + b"kick 1\r\n"


def test_a_transport_that_only_wraps_a_socket_is_not_passed_by() -> None:
    class Wrapper(MemoryTransport):
        """As TLS does, it has the methods of what it wraps."""

        def writeSomeData(self, data: bytes) -> int:
            """Send it in the clear."""
            raise AssertionError

    connection = module.Connection(cast(Any, Clock()))
    transport = Wrapper(Clock(), cast(Any, connection))
    cast(Any, connection).makeConnection(transport)
    connection.kick(1)
    assert transport.drain() == b"kick 1\r\n"


# Commands that are not beanstalkd's own.


@pytest.mark.parametrize("refusal", [b"UNKNOWN_COMMAND\r\n", b"BAD_FORMAT\r\n"])
def test_a_server_that_does_not_know_the_probe_has_announced_nothing(refusal: bytes) -> None:
    line = Line()
    probe = line.connection.probe()
    assert line.sent() == b"capabilities\r\n"
    line.say(refusal)
    assert result(probe) == frozenset()


def test_a_server_may_be_an_endpoint() -> None:
    world = World()
    assert way_to(Clock(), world.endpoint).endpoint is world.endpoint
