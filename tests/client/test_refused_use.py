"""A `use` that the server refuses: nothing goes into another tube than it was meant for."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from beanstalk_twisted.client import Client, errors
from beanstalk_twisted.testing.double import Beanstalk
from tests.client.world import Line, error, result

PUT = b"put 65536 0 60 1\r\nx\r\n"


def used(line: Line, *tubes: str) -> list[Deferred[Any]]:
    return [line.connection.use(tube) for tube in tubes]


def refused() -> Line:
    """Give a connection that uses ``old``, and has been refused ``new``."""
    line = Line()
    _, new = used(line, "old", "new")
    line.say(b"USING old\r\n", b"OUT_OF_MEMORY\r\n")
    error(new, errors.OutOfMemory)
    line.sent()
    return line


def test_a_put_into_the_refused_tube_asks_for_it_once_more() -> None:
    line = refused()
    put = line.connection.put(b"x", tube="new")
    assert line.sent() == b"use new\r\n" + PUT
    line.say(b"USING new\r\nINSERTED 1\r\n")
    assert result(put) == 1


def test_a_put_that_names_no_tube_goes_where_the_ones_before_went() -> None:
    line = refused()
    put = line.connection.put(b"x")
    assert line.sent() == PUT
    line.say(b"INSERTED 1\r\n")
    assert result(put) == 1


def test_a_put_sent_behind_it_is_not_called_done(line: Line) -> None:
    new = line.connection.use("new")
    put = line.connection.put(b"x")
    line.say(b"OUT_OF_MEMORY\r\nINSERTED 1\r\n")
    line.part()
    error(new, errors.OutOfMemory)
    assert isinstance(error(put, errors.Unanswered).reason, errors.OutOfMemory)


def test_what_is_about_no_tube_may_be_sent_behind_it(line: Line) -> None:
    new = line.connection.use("new")
    kicked = line.connection.kick_job(7)
    line.say(b"OUT_OF_MEMORY\r\nKICKED\r\n")
    error(new, errors.OutOfMemory)
    assert result(kicked) is None
    assert line.connection.is_open


def test_the_last_one_that_was_not_refused_counts(line: Line) -> None:
    _, second, _, fourth = used(line, "a", "b", "c", "d")
    line.say(b"USING a\r\n", b"OUT_OF_MEMORY\r\n", b"USING c\r\n", b"OUT_OF_MEMORY\r\n")
    error(second, errors.OutOfMemory)
    error(fourth, errors.OutOfMemory)
    line.sent()
    line.connection.put(b"x")
    line.connection.put(b"x", tube="a")
    line.connection.put(b"x")
    assert line.sent() == PUT + b"use a\r\n" + PUT + b"use c\r\n" + PUT


def test_one_that_is_refused_while_another_is_on_its_way_changes_nothing(line: Line) -> None:
    first, _ = used(line, "a", "b")
    put = line.connection.put(b"x")
    line.say(b"OUT_OF_MEMORY\r\n", b"USING b\r\nINSERTED 1\r\n")
    error(first, errors.OutOfMemory)
    assert result(put) == 1


def test_one_that_nobody_waits_for_any_more_is_refused_all_the_same(line: Line) -> None:
    new = line.connection.use("new")
    new.cancel()
    error(new, CancelledError)
    line.say(b"OUT_OF_MEMORY\r\n")
    line.sent()
    line.connection.put(b"x")
    line.connection.put(b"x", tube="new")
    assert line.sent() == PUT + b"use new\r\n" + PUT


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_client_that_comes_back_does_the_same(beanstalk: Beanstalk, is_lost: bool) -> None:
    client = Client(beanstalk.endpoint, reactor=beanstalk.clock)
    client.startService()
    beanstalk.result(client.use("old"))
    beanstalk.answer_next("use", "OUT_OF_MEMORY")
    new = client.use("new")
    beanstalk.settle()
    error(new, errors.OutOfMemory)
    if is_lost:
        beanstalk.drop_connections()
        beanstalk.advance(60)
    puts = [client.put(b"old"), client.put(b"new", tube="new"), client.put(b"old")]
    for put in puts:
        beanstalk.result(put)
    found = sorted((job.body, job.tube) for job in beanstalk.jobs())
    assert found == [(b"new", "new"), (b"old", "old"), (b"old", "old")]
