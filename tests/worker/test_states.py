"""The states of a reserver: every event in every situation, and every trigger in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.service import Losses
from beanstalk_twisted.states import NotAllowed
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.worker.reserver import (
    CLOSING,
    CONNECTING,
    READY,
    RESERVER,
    REST_S,
    STOPPED,
    WAITING,
    Reserver,
)
from beanstalk_twisted.worker.service import Worker
from tests.worker.world import Slow

TRIGGERS = sorted({trigger for triggers in RESERVER.values() for trigger in triggers})

MOST_COMBINATIONS = 24
"""Of a state, a session, reserves without an answer, and somebody who waits for a session."""


class Script:
    """A client and its settings, whose server is a history of events."""

    def __init__(self, events: tuple[str, ...]) -> None:
        self.clock = Clock()
        self.hooks = self
        self.is_started = self.is_connected = False
        self.sent: list[Deferred[Any]] = []
        self.reserves: list[Deferred[Any]] = []
        self.aborted: list[Exception] = []
        self.arrows: set[tuple[str, str]] = set()
        self.reserver = Reserver(cast(Any, self), 0, lambda: None)
        on = self.reserver._on

        def noted(trigger: str) -> None:
            self.arrows.add((self.reserver.state, trigger))
            on(trigger)

        self.reserver._on = noted  # type: ignore[method-assign]
        for event in events:
            EVENTS[event](self)

    @property
    def combination(self) -> tuple[object, ...]:
        it = self.reserver
        return it.state, bool(it.session), len(it.asked), bool(it._waiting)

    @property
    def situation(self) -> tuple[object, ...]:
        """What may matter for what happens next."""
        answers = [answer for answer in (*self.sent, *self.reserves) if not answer.called]
        flags = (self.is_started, self.is_connected, bool(self.clock.getDelayedCalls()))
        return *self.combination, *flags, len(answers)

    # What the reserver calls.

    def make_client(self, number: int, **callbacks: Callable[..., None]) -> Script:
        self.callbacks = callbacks
        return self

    def watch_tubes(self, client: Script) -> list[Deferred[Any]]:
        return [client.stats()]

    def stats(self) -> Deferred[Any]:
        self.sent.append(Deferred())
        return self.sent[-1]

    def reserve_with_timeout(self, seconds: int) -> Deferred[Any]:
        self.reserves.append(Deferred())
        return self.reserves[-1]

    def startService(self) -> None:
        self.is_started = True

    def quit(self) -> Deferred[None]:
        self.is_started = self.is_connected = False
        return succeed(None)

    hang_up = quit

    def abort(self, why: Exception) -> None:
        self.aborted.append(why)

    def call(self, name: str, **facts: object) -> None:
        """See `hooks.Hooks`."""

    # What happens.

    def connect(self) -> None:
        if self.is_started and not self.is_connected:
            self.is_connected = True
            self.callbacks["connected"]()

    def lose(self) -> None:
        if self.is_connected:
            self.is_connected = False
            self.callbacks["lost"](Losses((), (), ConnectionError()))

    def answer(self, answers: list[Deferred[Any]], answer: Any) -> None:
        for each in [each for each in answers if not each.called][:1]:
            each.callback(answer)

    def ask(self, seconds: int) -> None:
        it = self.reserver
        may_wait = it.is_empty if seconds else len(it.asked) < 2 and it.state != WAITING
        if it.session is not None and it.state != CLOSING and may_wait:
            it.ask(seconds).addErrback(
                lambda failure: failure.trap(errors.ClientError, CancelledError)
            )

    def start(self) -> None:
        if self.reserver.state == STOPPED:
            self.reserver.start()

    def give_up(self) -> None:
        self.reserver.take_no_more()
        self.reserver.cancel_reserves()

    def wait(self) -> None:
        if not self.reserver._waiting:
            self.reserver.when_up().addErrback(Failure.trap, errors.Closed)


EVENTS: dict[str, Callable[[Script], object]] = {
    "start": Script.start,
    "stop": lambda it: it.reserver.stop(),
    "take no more": lambda it: it.reserver.take_no_more(),
    "give up": Script.give_up,
    "poll": lambda it: it.ask(0),
    "reserve": lambda it: it.ask(30),
    "when up": Script.wait,
    "connected": Script.connect,
    "lost": Script.lose,
    "confirmed": lambda it: it.answer(it.sent, {}),
    "refused": lambda it: it.answer(it.sent, Failure(errors.OutOfMemory("watch"))),
    "job": lambda it: it.answer(it.reserves, None),
    "none": lambda it: it.answer(it.reserves, Failure(errors.DeadlineSoon("reserve"))),
    "rest": lambda it: it.clock.advance(REST_S),
}


def test_every_event_in_every_situation_goes_along_an_arrow(clean_reactor: list[Failure]) -> None:
    arrows: set[tuple[str, str]] = set()
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    newest: list[tuple[str, ...]] = [()]
    while newest:
        histories, newest = newest, []
        for history in histories:
            it = Script(history)
            assert not it.aborted, (history, it.aborted)
            arrows |= it.arrows
            if it.situation not in found:
                found[it.situation] = it.combination
                newest += [(*history, event) for event in EVENTS]
    assert arrows == {(state, each) for state, triggers in RESERVER.items() for each in triggers}
    combinations = set(found.values())
    print(f"{len(combinations)} combinations of state and what is there")
    assert len(combinations) <= MOST_COMBINATIONS, sorted(map(str, combinations))


@pytest.mark.parametrize("state", RESERVER)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_trigger_that_the_table_does_not_have_closes_the_connection(
    state: str, trigger: str
) -> None:
    it = Script(())
    it.reserver.state = state
    if trigger in RESERVER[state]:
        it.reserver._on(trigger)
        assert it.reserver.state in RESERVER and not it.aborted
    else:
        with pytest.raises(NotAllowed, match=f"'{trigger}' is not one of"):
            it.reserver._on(trigger)
        assert [type(why) for why in it.aborted] == [NotAllowed]


@pytest.mark.parametrize("state", [READY, CONNECTING])
def test_a_worker_whose_connection_was_closed_so_goes_on_with_another(
    beanstalk: Beanstalk, state: str, clean_reactor: list[Failure]
) -> None:
    slow = Slow()
    worker: Worker[Any] = Worker(beanstalk.endpoint, "work", slow, reactor=beanstalk.clock)
    worker.startService()
    beanstalk.put(b"x", tube="work")
    beanstalk.settle()
    (reserver,) = worker._scheduler.reservers
    reserver.state = state  # As an error of ours might.
    with pytest.raises(NotAllowed):
        reserver._on("retry")
    beanstalk.advance(60)
    assert slow.cancelled == [1] and [attempt.id for attempt in slow.begun] == [1, 1]
    slow.finish(1)
    beanstalk.settle()
    beanstalk.assert_no_jobs()
    assert [link.wire.is_over for link in beanstalk.network.links] == [True, False]
    assert all(failure.check(NotAllowed) for failure in clean_reactor)
    clean_reactor.clear()
