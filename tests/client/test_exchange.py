"""What was asked, and which reply belongs to what; no clock, no socket."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.exchange import Exchange, Request


def asked(exchange: Exchange[Request], spec: CommandSpec, *args: object) -> Request:
    """Ask something that is sent at once."""
    request = Request(spec, args)
    if exchange.ask(request):
        request.is_begun = request.is_sent = True
    return request


def test_a_reply_belongs_to_the_oldest_command_without_one() -> None:
    exchange: Exchange[Request] = Exchange()
    first, second = asked(exchange, specs.KICK, 1), asked(exchange, specs.DELETE, 2)
    answered = [*exchange.receive(b"KICKED 0\r\nDEL"), *exchange.receive(b"ETED\r\n")]
    assert [(request, reply.word) for request, reply in answered] == [
        (first, b"KICKED"), (second, b"DELETED"),
    ]  # fmt: skip
    assert exchange.fault is None


def test_the_tubes_are_those_that_the_server_has_confirmed() -> None:
    exchange: Exchange[Request] = Exchange()
    for spec, tube in ((specs.USE, b"a"), (specs.WATCH, b"a"), (specs.IGNORE, b"default"),
                       (specs.IGNORE, b"a"), (specs.USE, b"b")):  # fmt: skip
        asked(exchange, spec, tube)
    list(exchange.receive(b"USING a\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\n"))
    assert (exchange.tubes.used, list(exchange.tubes.watched)) == (b"a", [b"a"])


def test_a_job_is_reserved_until_it_is_given_back_or_known_to_be_gone() -> None:
    exchange: Exchange[Request] = Exchange()
    for job in (1, 2, 3, 4):
        asked(exchange, specs.RESERVE_JOB, job)
        list(exchange.receive(b"RESERVED %d 0\r\n\r\n" % job))
    asked(exchange, specs.DELETE, 1)
    asked(exchange, specs.TOUCH, 2)
    asked(exchange, specs.TOUCH, 3)
    asked(exchange, specs.RELEASE, 4, 0, 0)
    list(exchange.receive(b"NOT_FOUND\r\nTOUCHED\r\nNOT_FOUND\r\nRELEASED\r\n"))
    assert list(exchange.reserved) == [2]


def test_a_forgotten_command_keeps_its_place_if_it_was_begun_and_loses_it_if_not() -> None:
    exchange: Exchange[Request] = Exchange()
    begun = asked(exchange, specs.KICK, 1)
    not_begun = Request(specs.KICK, (2,))
    exchange.ask(not_begun)
    exchange.forget(begun)
    exchange.forget(not_begun)
    assert list(exchange.unanswered) == [begun]


def test_a_reserve_takes_the_place_of_a_forgotten_one_only_once() -> None:
    exchange: Exchange[Request] = Exchange()
    first = asked(exchange, specs.RESERVE)
    exchange.forget(first)
    second, third = Request(specs.RESERVE, ()), Request(specs.RESERVE, ())
    assert [exchange.ask(second), exchange.ask(third)] == [False, True]
    assert list(exchange.unanswered) == [second, third]


def test_a_forgotten_reserve_that_was_answered_has_no_place_to_take() -> None:
    exchange: Exchange[Request] = Exchange()
    first = asked(exchange, specs.RESERVE)
    exchange.forget(first)
    list(exchange.receive(b"DEADLINE_SOON\r\n"))
    assert exchange.ask(Request(specs.RESERVE, ()))


JOB = b"RESERVED 7 1\r\nx\r\n"


@pytest.mark.parametrize("first", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 9)])
@pytest.mark.parametrize("second", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 5)])
def test_a_job_for_a_forgotten_reserve_is_the_next_ones_that_waits(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    exchange: Exchange[Request] = Exchange()
    forgotten, other = asked(exchange, *first), asked(exchange, specs.KICK, 1)
    wanted = asked(exchange, *second)
    exchange.forget(forgotten)
    ((served, reply),) = exchange.receive(JOB)
    assert served is wanted and reply.value == 7
    assert list(exchange.reserved) == [7]
    assert list(exchange.unanswered) == [other, forgotten]
    # The place of the one that was served is nobody's; what it asks for has not changed.
    assert (forgotten.spec, forgotten.args) == (second[0], second[1:])
    # So a reserve takes it, if that is what waits in the server.
    assert exchange.ask(Request(specs.RESERVE, ())) is (second[0] is not specs.RESERVE)


def test_a_reserve_of_other_tubes_is_not_given_a_forgotten_ones_job() -> None:
    exchange: Exchange[Request] = Exchange()
    forgotten = asked(exchange, specs.RESERVE)
    asked(exchange, specs.WATCH, b"a")
    asked(exchange, specs.RESERVE)
    exchange.forget(forgotten)
    ((served, _),) = exchange.receive(JOB)
    assert served is forgotten and list(exchange.reserved) == []


def test_nor_is_one_that_was_not_sent_or_is_forgotten_too() -> None:
    exchange: Exchange[Request] = Exchange()
    first, second = (asked(exchange, specs.RESERVE) for _ in range(2))
    third = Request(specs.RESERVE_WITH_TIMEOUT, (0,))
    exchange.ask(third)
    exchange.forget(first)
    exchange.forget(second)
    ((served, _),) = exchange.receive(JOB)
    assert served is first


def test_the_patience_is_that_of_the_oldest_command() -> None:
    exchange: Exchange[Request] = Exchange()
    assert exchange.patience_s(5) is None
    asked(exchange, specs.RESERVE_WITH_TIMEOUT, 60)
    asked(exchange, specs.KICK, 1)
    asked(exchange, specs.RESERVE)
    assert exchange.patience_s(5) == 65
    list(exchange.receive(b"TIMED_OUT\r\n"))
    assert exchange.patience_s(5) == 5
    list(exchange.receive(b"KICKED 0\r\n"))
    assert exchange.patience_s(5) is None


def test_one_reply_too_many_is_a_fault() -> None:
    exchange: Exchange[Request] = Exchange()
    asked(exchange, specs.KICK, 1)
    assert len(list(exchange.receive(b"KICKED 0\r\nK"))) == 1
    assert "more than it was asked" in str(exchange.fault)
