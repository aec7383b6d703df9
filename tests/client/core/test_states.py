"""The states of a connection: every trigger in every state, and what random use goes through."""

from __future__ import annotations

import random
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.core.dialogue import Dialogue, lose_all
from beanstalk_twisted.client.core.requests import Request
from beanstalk_twisted.client.core.states import CONNECTION, CUT, ENDED, LIVE

TRIGGERS = sorted({trigger for triggers in CONNECTION.values() for trigger in triggers})
MOST_COMBINATIONS = 24
"""Of a state and the flags beside it."""

ROUNDS = 400
STEPS = 30
COMMANDS: list[tuple[Any, ...]] = [
    (specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 9), (specs.RESERVE_BATCH, 3, 9),
    (specs.DELETE, 1), (specs.RETURN_JOB, 1, 0), (specs.USE, b"a"), (specs.QUIT,),
]  # fmt: skip
REPLIES: dict[str, list[bytes]] = {
    "reserve": [b"RESERVED 1 1\r\nx\r\n", b"DEADLINE_SOON\r\n"],
    "reserve-with-timeout": [b"RESERVED 1 1\r\nx\r\n", b"TIMED_OUT\r\n"],
    "reserve-batch": [b"RESERVED_BATCH 1\r\nRESERVED 1 1\r\nx\r\n", b"RESERVED_BATCH 0\r\n"],
    "stats-job": [b"OK 14\r\n---\nid: 1\npri: 7\r\n", b"NOT_FOUND\r\n"],
    "capabilities": [
        b"OK 33\r\n---\n- reserve-batch\n- return-job\n\r\n", b"UNKNOWN_COMMAND\r\n",
    ],
    "use": [b"USING a\r\n"], "release": [b"RELEASED\r\n"], "return-job": [b"RETURNED\r\n"],
    "delete": [b"DELETED\r\n", b"NOT_FOUND\r\n"],
}  # fmt: skip


class Asked(Request):
    """A request of which only the number of outcomes counts."""

    outcomes = 0

    def succeed(self, result: Any) -> None:
        self.outcomes += 1

    def be_refused(self, error: Exception) -> None:
        self.outcomes += 1


class Noting(Dialogue):
    """A connection without a server that notes its states, flags and triggers."""

    def __init__(self) -> None:
        super().__init__(self)
        self.cuts = 0
        self.arrows: set[tuple[str, str]] = set()
        self.combinations: set[tuple[object, ...]] = set()

    def on(self, trigger: str) -> None:
        self.arrows.add((self.state, trigger))
        super().on(trigger)

    def note(self) -> None:
        self.combinations.add((self.state, self.is_full, self.has_asked))

    def write(self, data: bytes, is_alone: bool) -> None: ...

    def begin_to_wait(self) -> None: ...

    def cut(self) -> None:
        self.cuts += 1


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("state", CONNECTION)
def test_a_trigger_is_in_the_table_or_cuts_the_connection(state: str, trigger: str) -> None:
    dialogue = Noting()
    dialogue.state = state
    dialogue.on(trigger)
    if trigger in CONNECTION[state]:
        assert dialogue.state == CONNECTION[state][trigger] and dialogue.reason is None
    elif state in (CUT, ENDED):
        assert dialogue.state == state and dialogue.cuts == 0
    else:
        assert dialogue.state == CUT and dialogue.cuts == 1
        assert isinstance(dialogue.reason, errors.Closed)
        assert f"{state}: '{trigger}' is not one of" in str(dialogue.reason)


def test_all_states_can_be_reached() -> None:
    reached, new = set[str](), {next(iter(CONNECTION))}
    while new:
        reached |= new
        new = {after for state in new for after in CONNECTION[state].values()} - reached
    assert reached == set(CONNECTION)


def use(dialogue: Noting, chance: random.Random) -> list[Asked]:
    """Use a connection in any way that a transport and an application may, until it ends."""
    asked: list[Asked] = []
    dialogue.on("made")
    for _ in range(STEPS):
        if dialogue.state not in LIVE and chance.random() < 0.3:
            break
        step = chance.choice("aaaaffrrrrrrppwe")
        unanswered = dialogue.exchange.unanswered
        if step == "a":
            spec, *args = chance.choice(COMMANDS if chance.random() < 0.2 else COMMANDS[:-1])
            asked.append(Asked(spec, tuple(args)))
            dialogue.submit(asked[-1])
        elif step == "f" and asked and not (last := chance.choice(asked)).outcomes:
            if not last.is_forgotten:
                last.cancel()
        elif step == "r" and unanswered and unanswered[0].is_sent:
            words = REPLIES.get(unanswered[0].spec.name)
            is_sound = words is not None and chance.random() < 0.95
            dialogue.receive(chance.choice(words) if is_sound and words else b"NONSENSE\r\n")
        elif step == "p":
            dialogue.pause()
        elif step == "w" and dialogue.is_full:
            dialogue.resume()
        elif step == "e" and dialogue.state == "parting":
            dialogue.abort(errors.Closed("it has taken too long"))
        elif step == "e" and dialogue.state in (*LIVE, "quitting") and chance.random() < 0.2:
            dialogue.part(errors.Closed("by us"))
        dialogue.note()
    lose_all(dialogue.end(errors.ServerClosed("gone")))
    return asked


def test_use_goes_along_the_arrows_and_each_command_has_one_outcome() -> None:
    arrows, combinations = set[tuple[str, str]](), set[tuple[object, ...]]()
    for seed in range(ROUNDS):
        dialogue = Noting()
        asked = use(dialogue, random.Random(seed))
        assert all(each.outcomes == (not each.is_forgotten) for each in asked), seed
        assert dialogue.state == ENDED
        arrows |= dialogue.arrows
        combinations |= dialogue.combinations
    in_table = {(state, each) for state, triggers in CONNECTION.items() for each in triggers}
    assert arrows <= in_table
    assert in_table - arrows == {("connecting", "cut"), ("connecting", "end")}
    print(f"{len(combinations)} combinations of state and flags")
    assert len(combinations) <= MOST_COMBINATIONS
