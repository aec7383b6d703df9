"""Where those wait who would send more."""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from beanstalk_twisted.client.errors import Closed
from beanstalk_twisted.client.pending import FlowControl
from tests.client.world import error, is_waiting, result


def test_they_are_let_in_in_their_order_as_long_as_there_is_room() -> None:
    flow = FlowControl()
    waiting = [flow.wait() for _ in range(3)]
    rooms = iter([True, True, False])
    flow.let_in(lambda: next(rooms))
    assert [result(each) for each in waiting[:2]] == [None, None]
    assert is_waiting(waiting[2])


def test_who_gives_up_takes_nobodys_place() -> None:
    flow = FlowControl()
    first, second = flow.wait(), flow.wait()
    first.cancel()
    error(first, CancelledError)
    rooms = iter([True])
    flow.let_in(lambda: next(rooms, False))
    assert result(second) is None


def test_when_there_will_be_no_room_all_are_told() -> None:
    flow = FlowControl()
    waiting = [flow.wait() for _ in range(2)]
    flow.close(Closed("over"))
    for each in waiting:
        error(each, Closed)
