"""What goes wrong when a test says so: connections, replies, the server's answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.testing.network import Wire, middle_of_a_body
from beanstalk_twisted.testing.recording import PLANTABLE
from tests.client.world import error, is_waiting
from tests.testing.test_double import client_of

PUT = b"put 0 0 60 5\r\nhello\r\n"

# The end of a connection.


def test_a_dropped_connection_ends_for_both(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x")
    talk = beanstalk.connect()
    talk.ask(b"reserve\r\n")
    (wire,) = beanstalk.connections
    wire.drop()
    assert talk.is_closed and beanstalk.connections == []
    beanstalk.assert_jobs(ready=1, reserved=0)
    assert talk.ask(b"stats\r\n") == b""


def test_a_connection_drops_after_so_many_bytes_of_replies_or_of_commands(
    beanstalk: Beanstalk,
) -> None:
    talk = beanstalk.connect()
    talk.wire.drop(after_reply_bytes=13)
    assert talk.ask(b"list-tube-used\r\n") == b"USING default"
    assert talk.is_closed
    talk = beanstalk.connect()
    talk.wire.drop(after_command_bytes=len(PUT) - 3)
    talk.send(PUT)
    assert talk.is_closed
    beanstalk.assert_no_jobs()
    assert beanstalk.counts() == {"list-tube-used": 1, "put": 1}


def test_a_connection_drops_in_the_middle_of_a_body(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"0123456789")
    talk = beanstalk.connect()
    talk.wire.drop(in_body=True)
    assert talk.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    assert talk.ask(b"peek 1\r\n") == b"FOUND 1 10\r\n01234"
    assert talk.is_closed


@pytest.mark.parametrize(
    ("replies", "middle"),
    [
        (b"", None),
        (b"INSERTED 1\r\n", None),
        (b"RESERVED 1 4\r\nabcd\r\n", 16),
        (b"USING a\r\nOK 0\r\n\r\n", 15),
        (b"FOUND 1 1\r\nx\r\n", 11),
    ],
)
def test_the_middle_of_a_body_is_behind_its_line(replies: bytes, middle: int | None) -> None:
    assert middle_of_a_body(replies) == middle


def test_our_client_tells_which_put_was_not_answered(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.result(client.use("default"))
    beanstalk.drop_connections(after_reply_bytes=5)
    put = client.put(b"x")
    beanstalk.settle()
    assert error(put, errors.Unanswered).command == "put"
    beanstalk.assert_job_put()


def test_a_connection_that_is_cut_off_tells_nobody(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk, grace_s=10)
    beanstalk.result(client.use("mail"))
    beanstalk.connections[0].cut_off()
    asked = client.list_tube_used()
    beanstalk.advance(9)
    assert is_waiting(asked) and beanstalk.counts()["list-tube-used"] == 0
    beanstalk.advance(12)
    assert beanstalk.result(asked) == "mail"
    # The server has not noticed: the first connection is still there.
    assert beanstalk.stats().current_connections == 2


def test_nobody_can_connect_while_connections_are_refused(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.result(client.use("mail"))
    beanstalk.refuse_connections()
    assert beanstalk.result(client.list_tube_used()) == "mail"
    beanstalk.drop_connections()
    asked = client.list_tube_used()
    beanstalk.advance(5)
    assert is_waiting(asked) and len(beanstalk.endpoint.tries) > 2
    beanstalk.accept_connections()
    beanstalk.advance(30)
    assert beanstalk.result(asked) == "mail"


# Slow replies.


def test_replies_are_held_until_they_are_released(beanstalk: Beanstalk) -> None:
    beanstalk.hold_replies()
    talk = beanstalk.connect()
    assert talk.ask(PUT) == b""
    beanstalk.advance(1000)
    assert talk.take() == b""
    beanstalk.assert_job_put()
    beanstalk.release_replies()
    assert talk.take() == b"INSERTED 1\r\n"


def test_replies_take_as_long_as_they_are_told_to(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.delay_replies(2.5)
    put = client.put(b"x")
    beanstalk.advance(2.4)
    assert is_waiting(put)
    beanstalk.advance(0.2)
    # Our client has asked for its tube first.
    beanstalk.advance(2.5)
    assert beanstalk.result(put) == 1
    beanstalk.delay_replies(0)
    assert beanstalk.result(client.put(b"y")) == 2


# The server's answers.


def test_the_next_command_is_answered_with_an_error_and_not_done(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("put", "OUT_OF_MEMORY", times=2)
    with beanstalk.connect() as talk:
        assert talk.ask(PUT + PUT + PUT) == b"OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\nINSERTED 3\r\n"
    beanstalk.assert_job_put(1)
    assert beanstalk.stats().cmd_put == 3


@pytest.mark.parametrize("reply", PLANTABLE)
def test_every_error_can_be_planted(beanstalk: Beanstalk, reply: str) -> None:
    beanstalk.answer_next("reserve", reply)
    with beanstalk.connect() as talk:
        assert talk.ask(b"reserve\r\n") == f"{reply}\r\n".encode()
        assert talk.ask(b"reserve\r\n") == b""


def test_a_fault_that_is_none_or_would_do_nothing_is_refused(beanstalk: Beanstalk) -> None:
    with pytest.raises(ValueError, match="no command: 'quit'"):
        beanstalk.answer_next("quit", "OUT_OF_MEMORY")
    with pytest.raises(ValueError, match="cannot be planted: 'INSERTED 1'"):
        beanstalk.answer_next("put", "INSERTED 1")
    with pytest.raises(ValueError, match="no job is reserved"):
        beanstalk.deadline_soon()
    wire = beanstalk.connect().wire
    with pytest.raises(ValueError, match="leave it out"):
        wire.drop(after_reply_bytes=0)
    with pytest.raises(ValueError, match="leave it out"):
        wire.drop(after_command_bytes=0)
    wire.drop(after_reply_bytes=1, after_command_bytes=1)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds cannot pass"):
            beanstalk.delay_replies(seconds)
    for times in (0, -1):
        with pytest.raises(ValueError, match=f"cannot be planted {times} times"):
            beanstalk.answer_next("put", "OUT_OF_MEMORY", times)


def test_a_worker_that_waits_hears_deadline_soon_now(beanstalk: Beanstalk) -> None:
    client = client_of(beanstalk)
    beanstalk.put(b"x", ttr=3600)
    job = beanstalk.result(client.reserve())
    waiting = client.reserve()
    beanstalk.settle()
    beanstalk.deadline_soon()
    error(waiting, errors.DeadlineSoon)
    with pytest.raises(errors.DeadlineSoon):
        beanstalk.result(client.reserve())
    beanstalk.result(client.touch(job))
    again = client.reserve()
    beanstalk.advance(3598)
    assert is_waiting(again)


def test_a_ttr_that_ends_soon_ends_in_a_second(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x", ttr=3600)
    with beanstalk.connect() as worker:
        worker.ask(b"reserve\r\n")
        beanstalk.deadline_soon()
        beanstalk.advance(0.9)
        beanstalk.assert_jobs(reserved=1)
        beanstalk.advance(0.1)
        beanstalk.assert_jobs(ready=1, reserved=0)
    beanstalk.restart()
    beanstalk.assert_jobs(ready=1)


@pytest.mark.parametrize("fault", [Wire.drop, Wire.cut_off, Wire.hold])
def test_a_fault_of_one_connection_is_none_of_another(
    beanstalk: Beanstalk, fault: Callable[[Wire], None]
) -> None:
    one, other = beanstalk.connect(), beanstalk.connect()
    fault(one.wire)
    assert one.ask(b"list-tube-used\r\n") == b""
    assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
