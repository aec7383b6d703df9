"""
Where those wait who would send more.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from beanstalk_twisted.client.errors import Closed
from beanstalk_twisted.client.flow_control import Gate
from tests.client.world import error, is_waiting, result


def test_they_are_let_in_in_their_order_as_long_as_there_is_room() -> None:
    gate = Gate()
    waiting = [gate.wait() for _ in range(3)]
    rooms = iter([True, True, False])
    gate.let_in(lambda: next(rooms))
    assert [result(each) for each in waiting[:2]] == [None, None]
    assert is_waiting(waiting[2])


def test_who_gives_up_takes_nobodys_place() -> None:
    gate = Gate()
    first, second = gate.wait(), gate.wait()
    first.cancel()
    error(first, CancelledError)
    rooms = iter([True])
    gate.let_in(lambda: next(rooms, False))
    assert result(second) is None


def test_when_there_will_be_no_room_all_are_told() -> None:
    gate = Gate()
    waiting = [gate.wait() for _ in range(2)]
    gate.close(Closed("over"))
    for each in waiting:
        error(each, Closed)
