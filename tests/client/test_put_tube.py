"""Jobs put into a tube of their own, whatever is in use."""

from __future__ import annotations

import pytest

from beanstalk_twisted.client import errors
from tests.client.test_service import come_back, lose
from tests.client.world import Line, World, error, is_waiting, result


def test_a_use_is_sent_right_before_the_put_and_only_when_it_is_needed(line: Line) -> None:
    for _ in range(2):
        line.connection.put(b"x", tube="a")
    line.connection.stats()
    line.connection.put(b"y")
    put = b"put 65536 0 60 1\r\n"
    assert line.sent() == (
        b"use a\r\n" + (put + b"x\r\n") * 2 + b"stats\r\nuse default\r\n" + put + b"y\r\n"
    )


def test_other_commands_find_the_tube_that_was_in_use_for_them(world: World) -> None:
    client = world.client()
    client.use("mine")
    mine = client.put(b"mine")
    client.put(b"other", tube="other")
    peek = client.peek_ready()
    client.put(b"other", tube="other")
    assert world.result(client.list_tube_used()) == "mine"
    assert result(peek).id == result(mine)


def test_after_a_lost_connection_each_still_goes_where_it_was_meant_to(world: World) -> None:
    client = world.client()
    world.result(client.use("mine"))
    world.result(client.put(b"1", tube="a"))
    lose(world)
    puts = [client.put(b"2"), client.put(b"3", tube="b"), client.put(b"4")]
    come_back(world)
    found = [world.result(client.stats_job(result(put))).tube for put in puts]
    assert found == ["mine", "b", "mine"]
    assert world.result(client.list_tube_used()) == "mine"


def test_a_use_without_an_answer_is_not_told_as_a_command_of_the_applications(world: World) -> None:
    client = world.client()
    world.link.wire.cut_off()
    put = client.put(b"x", tube="a")
    world.settle()
    lose(world)
    assert error(put, errors.Unanswered).command == "put"
    assert [each.command for each in world.losses[0].unanswered] == ["put"]
    come_back(world)
    assert world.result(client.list_tube_used()) == "default"


def test_a_use_that_is_cancelled_before_it_is_sent_still_counts(line: Line) -> None:
    line.connection.pauseProducing()
    line.connection.use("a").addErrback(lambda failure: None)
    use = line.connection.use("b")
    use.addErrback(lambda failure: None)
    use.cancel()
    line.connection.put(b"x")
    line.connection.resumeProducing()
    assert line.sent().startswith(b"use a\r\nuse b\r\nput ")


def test_a_job_whose_tube_is_refused_is_not_called_put(line: Line) -> None:
    put = line.connection.put(b"x", tube="a")
    line.say(b"OUT_OF_MEMORY\r\nINSERTED 1\r\n")
    line.part()
    unanswered = error(put, errors.Unanswered)
    assert isinstance(unanswered.reason, errors.OutOfMemory)


@pytest.mark.parametrize("tube", ["", "-x", "a b", "\u00e9", "a" * 201])
def test_a_name_that_no_tube_can_have_is_refused_before_anything_is_sent(tube: str) -> None:
    line = Line()
    with pytest.raises(ValueError, match="not the name of a tube"):
        line.connection.put(b"x", tube=tube)
    assert line.sent() == b""


def test_a_put_that_waits_is_waited_for(world: World) -> None:
    client = world.client(starts=False)
    put = client.put(b"x", tube="a")
    assert is_waiting(put)
    client.startService()
    assert world.result(client.stats_job(world.result(put))).tube == "a"
