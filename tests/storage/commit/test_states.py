"""The states of a group commit: every trigger in every state, and how many there are."""

from __future__ import annotations

import errno
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.states import NotAllowed
from beanstalk_twisted.storage.commit_states import (
    ABANDONED,
    END,
    ENDED,
    IDLE,
    NO_SPACE,
    SPACE_RETRY_S,
    SYNCING,
    TRANSITIONS,
)
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S
from tests.binlog.memory import fails_at
from tests.storage.commit.test_group_commit import INTERVAL_S, PERIODIC, Bench, fill_disk

MOST_COMBINATIONS = 24

TRIGGERS = sorted({trigger for triggers in TRANSITIONS.values() for trigger in triggers})


class Explored(Bench):
    """One that a history of events has brought where it is."""

    def __init__(self, policy: FsyncPolicy, events: tuple[str, ...]) -> None:
        super().__init__(policy, is_prepared=False)
        self.has_ended = False
        for event in events:
            EVENTS[event](self)

    @property
    def combination(self) -> tuple[str, int, bool]:
        return self.committer.state, self.committer.wanted, bool(self.failures)

    @property
    def situation(self) -> tuple[object, ...]:
        """What may matter for what happens next."""
        return (
            *self.combination, bool(self.io), self.log.has_open, self.log.is_waited_for,
            self.directory.space is None, self.has_ended, self.log.budget.is_short,
            self.log.open_bytes + self.committer.unacknowledged_bytes > 1 << 16,
        )  # fmt: skip

    def end(self, end: Callable[[], object]) -> None:
        self.has_ended = True
        end()

    def step(self) -> None:
        if self.io:
            self.io.step()


AFTER_THE_END: dict[str, Callable[[Explored], object]] = {
    "turn": Bench.turn,
    "disk": Explored.step,
    "idle flush": lambda it: it.clock.advance(IDLE_FLUSH_S),
    "interval": lambda it: it.clock.advance(INTERVAL_S),
    "retry": lambda it: it.clock.advance(SPACE_RETRY_S),
    "space freed": lambda it: setattr(it.directory, "space", None),
    "disk full": lambda it: fill_disk(it),
    "disk fails": lambda it: it.fail("write"),
}
EVENTS = AFTER_THE_END | {
    "put": Bench.put,
    "large put": lambda it: it.put(b"x" * (1 << 16)),
    "reserve": Bench.reserve,
    "end of turn": lambda it: it.committer.flush(),
    "sync": lambda it: it.committer.sync(lambda: None),
    "when durable": lambda it: it.committer.when_durable(it.log.last_lsn, lambda: None),
    "finish": lambda it: it.end(it.committer.finish),
    "abandon": lambda it: it.end(it.committer.abandon),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [ALWAYS, PERIODIC, NEVER])
def test_every_event_in_every_state_is_allowed_and_the_states_are_few(
    policy: FsyncPolicy,
) -> None:
    found: dict[tuple[object, ...], tuple[str, int, bool]] = {}
    newest: list[tuple[str, ...]] = [()]
    while newest:
        histories, newest = newest, []
        for history in histories:
            bench = Explored(policy, history)
            for failure in bench.failures:
                assert not failure.check(NotAllowed, AssertionError), (history, failure)
            if bench.situation not in found:
                found[bench.situation] = bench.combination
                events = AFTER_THE_END if bench.has_ended else EVENTS
                newest += [(*history, event) for event in events]
    combinations = set(found.values())
    # A failure has no combinations of its own: nothing happens after it, whatever was wanted.
    working = {combination for combination in combinations if not combination[2]}
    print(f"{policy.in_words}: {len(working)} combinations of state and what is wanted, and failed")
    assert {state for state, _, _ in working} == set(TRANSITIONS)
    assert len(working) + 1 <= MOST_COMBINATIONS, sorted(working)


@pytest.mark.parametrize("state", TRANSITIONS)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_trigger_that_the_table_does_not_have_is_an_error(state: str, trigger: str) -> None:
    if trigger not in TRANSITIONS[state]:
        with pytest.raises(NotAllowed, match=f"'{trigger}' is not one of"):
            TRANSITIONS[state][trigger]


def test_a_trigger_that_is_not_allowed_ends_the_server() -> None:
    bench = Bench(ALWAYS)
    bench.put()
    bench.turn()
    bench.committer.state = NO_SPACE  # As an error of ours might.
    bench.finish_io()
    assert [failure.type for failure in bench.failures] == [NotAllowed]


@pytest.mark.parametrize("policy", [ALWAYS, PERIODIC, NEVER])
def test_a_sync_that_is_asked_for_while_one_runs_is_one_that_begins_afterwards(
    policy: FsyncPolicy,
) -> None:
    bench = Bench(policy)
    called: list[int] = []
    for number in (1, 2, 3):
        bench.committer.sync(lambda number=number: called.append(number))  # type: ignore[misc]
        assert bench.committer.state == SYNCING
    assert bench.operations == []
    bench.io.step()
    assert (called, bench.operations) == ([1], ["sync"])
    bench.io.step()
    assert (called, bench.operations) == ([1, 2, 3], ["sync"] * 2)


def test_a_sync_that_is_asked_for_on_a_full_disk_comes_with_the_batch() -> None:
    bench = Bench(ALWAYS, is_prepared=False)
    fill_disk(bench)
    bench.put(b"x" * (1 << 16))
    bench.finish_io()
    called: list[bool] = []
    bench.committer.sync(lambda: called.append(True))
    bench.finish_io()
    assert bench.committer.state == NO_SPACE and not called
    bench.directory.space = None
    bench.clock.advance(SPACE_RETRY_S)
    bench.finish_io()
    assert called and bench.committer.state == IDLE


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("policy", [ALWAYS, PERIODIC])
def test_a_sync_that_fails_once_there_is_space_again_ends_the_server(
    policy: FsyncPolicy, code: int
) -> None:
    bench = Bench(policy, is_prepared=False)
    fill_disk(bench)
    lsn = bench.put(b"x" * (1 << 16))
    bench.finish_io()
    bench.committer.sync(lambda: None)
    bench.wait(INTERVAL_S * 2)
    assert bench.committer.state == NO_SPACE and not bench.failures
    bench.directory.space = None
    bench.directory.fault = fails_at(1, code, "sync")
    bench.clock.advance(SPACE_RETRY_S)
    bench.finish_io()
    assert [failure.type for failure in bench.failures] == [WriteFailed]
    assert bench.committer.acknowledgeable_lsn < lsn


@pytest.mark.parametrize(("end", "state"), [("finish", ENDED), ("abandon", ABANDONED)])
def test_what_the_disk_had_begun_is_acknowledged_unless_it_was_abandoned(
    end: str, state: str
) -> None:
    bench = Bench(ALWAYS)
    lsn = bench.put()
    bench.turn()
    getattr(bench.committer, end)()
    while bench.io:
        bench.io.step()
    assert bench.committer.state == state and not bench.failures
    assert bench.acknowledged == ([lsn] if end == "finish" else [])


def test_an_end_is_wanted_until_it_is_there() -> None:
    bench = Bench(ALWAYS)
    bench.put()
    bench.committer.finish()
    assert bench.committer.wanted == END
    bench.committer.when_durable(bench.log.last_lsn, lambda: None)
    assert bench.committer.wanted == END


def test_the_pictures_in_the_docs_are_what_their_script_writes() -> None:
    docs = Path(__file__).parents[3] / "docs"
    script = runpy.run_path(str(docs / "states.py"))
    for page in script["PICTURES"]:
        assert script["page"](page) == (docs / page).read_text()
