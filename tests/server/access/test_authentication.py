"""Comparing tokens: in turns, at a price for guessers, each token once."""

from __future__ import annotations

import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import MAX_TOKEN_BYTES, TokenHash
from beanstalk_twisted.server.access_control import (
    FIRST_S,
    LONGEST_S,
    MAX_AT_ONCE,
    MAX_REMEMBERED,
    MAX_WAITING,
    Authenticator,
    HashingThreads,
)
from tests.server.access.meeting import HASH, OTHER_TOKEN, TOKEN, HeldHashing, rules

WRONG = b"bst_aaaaaaaa_" + b"x" * 32
KEY = bytes(32)


class World:
    """An authenticator whose threads and clock are ours."""

    def __init__(self, held: AccessRules | None = None) -> None:
        self.clock = Clock()
        self.hashing = HeldHashing()
        found = held or rules(it={}, other={})
        self.authenticator = Authenticator(self.clock, found, self.hashing, KEY)  # type: ignore[arg-type]
        self.told: list[tuple[str, TokenHash | None]] = []

    def ask(self, host: str, token: bytes = WRONG, name: str = "") -> None:
        self.authenticator.ask(host, token, lambda shown: self.told.append((name or host, shown)))

    def work(self) -> None:
        while self.hashing.waiting:
            self.hashing.work()


def test_no_more_are_compared_at_once_and_addresses_take_turns() -> None:
    world = World()
    for host in ("1.1.1.1", "1.1.1.1", "1.1.1.1", "2.2.2.2", "3.3.3.3"):
        world.ask(host)
    assert len(world.hashing.waiting) == MAX_AT_ONCE == 2
    world.work()
    assert [host for host, _ in world.told] == ["1.1.1.1", "2.2.2.2", "3.3.3.3"]


def test_each_wrong_token_has_the_next_one_from_there_wait_longer() -> None:
    world = World()
    waits = []
    for count in range(14):
        began = world.clock.seconds()
        world.ask("1.1.1.1")
        while len(world.told) == count:
            world.work()
            if len(world.told) == count:
                world.clock.advance(FIRST_S / 2)
        waits.append(world.clock.seconds() - began)
    assert waits[:4] == [0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[7] < LONGEST_S == waits[9] == waits[-1]


def test_many_connections_of_one_address_guess_no_faster_than_one() -> None:
    world = World()
    for _ in range(1000):
        world.ask("2001:db8::1")
    for _ in range(60):
        world.work()
        world.clock.advance(1)
    assert len(world.told) < 10
    world.ask("10.0.0.1", TOKEN)
    world.work()
    assert world.told[-1] == ("10.0.0.1", HASH)


def test_a_network_of_ipv6_is_one_address_and_ipv4_in_it_is_ipv4() -> None:
    world = World()
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:1.2.3.4", "1.2.3.4"):
        world.ask(host)
    world.work()
    assert [host for host, _ in world.told] == ["2001:db8::1", "2001:db8:0:1::1", "::ffff:1.2.3.4"]


def test_a_right_token_ends_no_wait_but_needs_none_when_it_was_right_before() -> None:
    world = World()
    world.ask("1.1.1.1", TOKEN)
    world.ask("1.1.1.1")
    world.work()
    world.ask("1.1.1.1", OTHER_TOKEN, "must wait")
    world.ask("1.1.1.1", TOKEN, "known")
    world.work()
    assert [host for host, _ in world.told][2:] == ["known"]
    world.clock.advance(FIRST_S)
    world.work()
    assert world.told[-1][0] == "must wait" and world.told[-1][1] is not None


def test_a_token_of_a_thousand_connections_is_hashed_once() -> None:
    world = World()
    for _ in range(1000):
        world.ask("1.1.1.1", TOKEN)
    world.hashing.work()
    assert not world.hashing.waiting
    assert [shown for _, shown in world.told] == [HASH] * 1000
    assert world.authenticator.successes == 1000 and world.authenticator.failures == 0


def test_what_was_right_and_is_in_the_file_that_is_read_again_costs_nothing_and_never_waits() -> (
    None
):
    world = World()
    waits = []
    world.authenticator.tell_wait = lambda address, wait_s: waits.append((address, wait_s))
    world.ask("1.1.1.1", TOKEN)
    world.ask("1.1.1.1")
    world.work()
    world.ask("1.1.1.1", name="guess")
    assert waits == [("1.1.1.1", FIRST_S)]
    world.authenticator.change_rules(rules(it={"look": "*"}))
    world.ask("1.1.1.1", TOKEN, "again")
    assert world.told[-1] == ("again", HASH) and not world.hashing.waiting


def test_a_token_that_has_another_hash_now_is_compared_with_that() -> None:
    world = World()
    world.ask("1.1.1.1", TOKEN)
    world.work()
    identity = rules(it={}).identities["it"]
    changed = identity._replace(tokens=[HASH._replace(digest=bytes(32))])
    world.authenticator.change_rules(AccessRules([changed]))
    world.ask("1.1.1.1", TOKEN)
    world.work()
    assert [shown for _, shown in world.told] == [HASH, None]


def test_a_token_that_is_compared_while_the_file_is_read_is_not_remembered() -> None:
    world = World()
    world.ask("1.1.1.1", TOKEN)
    world.authenticator.change_rules(rules(other={}))
    world.work()
    assert not world.authenticator._right


def test_unknown_tokens_cost_as_much_as_wrong_ones() -> None:
    dear = HASH._replace(log2_n=3, token_id="eeeeeeee")
    found = AccessRules([rules(it={}).identities["it"]._replace(tokens=[HASH, dear])])
    assert found.hash_for(b"bst_zzzzzzzz_" + b"x" * 32).cost == dear.cost
    assert found.hash_for(b"nonsense").cost == dear.cost
    assert not found.stand_in.matches(b"")


def test_a_token_that_is_too_long_is_nobodys_at_once() -> None:
    world = World()
    world.ask("1.1.1.1", b"x" * MAX_TOKEN_BYTES)
    assert world.told == []
    world.ask("2.2.2.2", b"x" * (MAX_TOKEN_BYTES + 1))
    assert world.told == [("2.2.2.2", None)]


def test_one_too_many_is_at_the_cost_of_whoever_asks_for_most() -> None:
    world = World()
    for _ in range(MAX_WAITING):
        world.ask("1.1.1.1")
    assert world.told == []
    world.ask("3.3.3.3", TOKEN)
    assert world.told == [("1.1.1.1", None)]
    world.work()
    assert ("3.3.3.3", HASH) in world.told


def test_what_nobody_wants_to_know_any_more_takes_no_place_and_no_turn() -> None:
    world = World()
    ask = world.authenticator.ask
    withdrawn = [ask(host, WRONG, lambda shown: None) for host in ("1.1.1.1", "2.2.2.2") * 2]
    withdrawn += [ask("4.4.4.4", WRONG, lambda shown: None)]
    for withdraw in (*withdrawn, *withdrawn):
        withdraw()
    world.ask("3.3.3.3", TOKEN)
    world.ask("1.1.1.1")
    world.work()
    assert world.told == [("3.3.3.3", HASH)]
    world.clock.advance(FIRST_S)
    world.work()
    assert world.told[1:] == [("1.1.1.1", None)]
    assert not world.clock.getDelayedCalls() and not world.authenticator._waiting


def test_who_is_withdrawn_while_it_waits_for_its_time_leaves_no_timer() -> None:
    world = World()
    world.ask("1.1.1.1")
    world.work()
    world.authenticator.ask("1.1.1.1", WRONG, lambda shown: None)()
    assert not world.clock.getDelayedCalls()
    world.ask("1.1.1.1")
    world.clock.advance(FIRST_S)
    world.work()
    assert len(world.told) == 2


def test_remembered_tokens_are_bounded() -> None:
    world = World()
    for number in range(MAX_REMEMBERED):
        world.authenticator._right[b"%d" % number] = HASH
    world.ask("1.1.1.1", TOKEN)
    world.work()
    assert len(world.authenticator._right) == MAX_REMEMBERED
    assert b"0" not in world.authenticator._right


def test_a_stop_leaves_no_timer_and_tells_nobody() -> None:
    world = World()
    world.ask("1.1.1.1")
    world.work()
    world.ask("1.1.1.1")
    world.ask("2.2.2.2")
    world.authenticator.stop()
    world.work()
    assert len(world.told) == 1 and not world.clock.getDelayedCalls()


@pytest_twisted.ensureDeferred
async def test_threads_compare_and_tell_in_the_reactors_thread() -> None:
    from twisted.internet import reactor

    threads = HashingThreads(reactor)  # type: ignore[arg-type]
    threads.stop()
    outcomes: list[Deferred[bool]] = [Deferred(), Deferred(), Deferred()]
    works = [lambda: True, lambda: False, lambda: HASH.matches(TOKEN)]
    for work, outcome in zip(works, outcomes, strict=True):
        threads.run(work, outcome.callback)
    assert [await outcome for outcome in outcomes] == [True, False, True]
    threads.stop()
