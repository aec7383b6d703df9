"""What is said in other threads, waited for in the reactor's."""

from concurrent.futures import Future
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.replication.receiving import ReceiveBuffer
from beanstalk_twisted.replication.stream.interface import Silence, Unreachable
from beanstalk_twisted.replication.waits import Node, Waits, in_reactor
from tests.replication.stream.memory import MemoryLog, MemoryStream
from tests.replication.world import Process


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("error", [None, Unreachable("nobody answers")])
def test_an_answer_comes_in_the_reactors_turn_unless_nobody_waits(
    error: Unreachable | None, is_dropped: bool
) -> None:
    reactor, asked, told = Process(), Future[int](), list[Any]()
    answer = in_reactor(asked, reactor).addErrback(lambda failure: failure.type)
    answer.addCallback(told.append)
    if is_dropped:
        answer.cancel()
        assert told.pop() is CancelledError
    if error is None:
        asked.set_result(7)
    else:
        asked.set_exception(error)
    assert not told
    reactor.settle()
    assert told == ([] if is_dropped else [7 if error is None else Unreachable])


def test_all_that_is_waited_for_ends_at_once() -> None:
    reactor = Process()
    waits, waited, failures = Waits(reactor), Deferred[None](), list[Failure]()
    for work in (waits.wait(waited), waits.sleep(60)):
        Deferred.fromCoroutine(work).addErrback(failures.append)
    assert waits.count == 2
    waits.end()
    assert [failure.type for failure in failures] == [CancelledError] * 2
    assert not waits.count
    assert not reactor.getDelayedCalls()


def test_who_waits_for_what_is_left_ends_when_the_answer_comes() -> None:
    waits, waited, failures = Waits(Process()), Deferred[None](), list[Failure]()
    Deferred.fromCoroutine(waits.wait(waited)).addErrback(failures.append)
    waits.leave()
    assert not failures
    waited.callback(None)
    assert [failure.type for failure in failures] == [CancelledError]


def test_a_sleep_ends_after_its_time() -> None:
    reactor, done = Process(), list[None]()
    Deferred.fromCoroutine(Waits(reactor).sleep(2)).addCallback(done.append)
    reactor.pass_s(1.9)
    assert not done
    reactor.pass_s(0.2)
    assert done == [None]


def test_a_standby_that_cannot_take_what_it_receives_ends() -> None:
    def has_no_room() -> None:
        raise MemoryError

    reactor, failures, log = Process(), list[Failure](), MemoryLog()
    unused: Any = None
    node = Node(
        MemoryStream(log, reactor), unused, unused, unused, reactor, unused, 1, 0, reactor.now_ns,
        unused,
    )  # fmt: skip
    buffer = ReceiveBuffer(
        node, Silence(1, 0), Waits(reactor), lambda work: work.close(), failures.append,
        has_no_room,
    )  # fmt: skip
    buffer.follow()
    log.append(b"one", 0)
    reactor.pass_s(0.1)
    assert [failure.type for failure in failures] == [MemoryError]
    buffer.leave()
    log.append(b"two", 1)
    reactor.pass_s(0.1)
    assert len(failures) == 1


def test_who_is_dropped_while_it_waits_says_nothing() -> None:
    waits = Waits(Process())
    work = waits.wait(Deferred[None]())
    work.send(None)
    waits.leave()
    # As the interpreter does when nobody refers to it; an exception would be printed then.
    work.close()
    assert not waits.count
