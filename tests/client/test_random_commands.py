"""Any commands, sent all at once, are answered as if each had waited for the answer before."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.core.requests import Implicit
from beanstalk_twisted.client.errors import ClientError
from tests.client.world import World
from tests.sampling import share

IDS = st.integers(1, 6)
TUBES = st.sampled_from(["default", "a", "b"])
SMALL = st.integers(0, 3)


class Call(NamedTuple):
    """One command, and what becomes of it.

    :ivar is_cancelled: nobody waits for its answer; it is carried out all the same.
    """

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    is_cancelled: bool


def calls(
    name: str, *args: st.SearchStrategy[Any], cancels: bool = True, **options: Any
) -> st.SearchStrategy[Call]:
    """Give calls of a method.

    :param cancels: whether it may be cancelled: a cancelled reserve is undone.
    """
    return st.builds(
        Call, st.just(name), st.tuples(*args), st.fixed_dictionaries(options),
        st.booleans() if cancels else st.just(False),
    )  # fmt: skip


CALLS = st.one_of(
    calls("put", st.binary(max_size=40), priority=SMALL, delay=SMALL, ttr=SMALL),
    calls("put", st.just(b"\r\n" * 40_000)),
    calls("put", st.binary(max_size=40), tube=TUBES, delay=SMALL),
    calls("reserve_with_timeout", st.just(0), cancels=False),
    calls("reserve_job", IDS, cancels=False),
    calls("delete", IDS),
    calls("release", IDS, priority=SMALL, delay=SMALL),
    calls("bury", IDS, priority=SMALL),
    calls("touch", IDS),
    calls("kick", SMALL),
    calls("kick_job", IDS),
    calls("peek", IDS),
    calls("peek_ready"),
    calls("peek_delayed"),
    calls("peek_buried"),
    calls("use", TUBES),
    calls("watch", TUBES),
    calls("ignore", TUBES),
    calls("pause_tube", TUBES, st.just(0)),
    calls("stats_job", IDS),
    calls("stats_tube", TUBES),
    calls("list_tubes"),
    calls("list_tube_used"),
    calls("list_tubes_watched"),
    calls("probe"),
    calls("put_batch", st.lists(st.binary(max_size=40), min_size=1, max_size=3), delay=SMALL),
    calls("put_batch", st.just([b"\r\n" * 17_000] * 2), tube=TUBES),
    calls("put_at", st.binary(max_size=40), st.just(0), tube=TUBES),
    calls("reserve_batch", st.integers(1, 3), cancels=False),
    calls("reserve_batch", st.integers(1, 3), st.just(0), cancels=False),
    calls("delete_batch", st.lists(IDS, min_size=1, max_size=4)),
    calls("list_jobs", TUBES),
    calls("flush_tube", TUBES),
    calls("wait_job", IDS, st.just(0)),
    calls("cancel_reserve"),
)


def begin(connection: Connection, call: Call) -> Deferred[Any]:
    sent: Deferred[Any] = getattr(connection, call.name)(*call.args, **call.options)
    return sent


def outcome(answered: Deferred[Any]) -> Any:
    """Give what came out of it, in a form that can be compared."""
    outcomes: list[Any] = []
    answered.addBoth(outcomes.append)
    assert outcomes, "it was not answered"
    if isinstance(outcomes[0], Failure):
        problem = outcomes[0].check(ClientError, CancelledError)
        assert problem is not None, outcomes[0]
        return str(outcomes[0].value)
    return outcomes[0]


def told(**options: Any) -> tuple[World, Connection]:
    """Make a connection that knows what its server knows: no command waits to be sent."""
    world = World(**options)
    connection = world.connection()
    world.result(connection.probe())
    return world, connection


def one_by_one(script: list[Call]) -> list[Any]:
    world, connection = told()
    outcomes = []
    for call in script:
        answered = begin(connection, call)
        world.settle()
        outcomes.append(outcome(answered))
    return outcomes


def all_at_once(script: list[Call], piece_bytes: int) -> list[Any]:
    world, connection = told(piece_bytes=piece_bytes)
    answered = [begin(connection, call) for call in script]
    sent = [
        request for request in connection.dialogue.exchange.unanswered
        if request.is_begun and not isinstance(request, Implicit)
    ]  # fmt: skip
    for call, deferred in zip(script[: len(sent)], answered, strict=False):
        if call.is_cancelled:
            deferred.cancel()
    world.settle()
    return [outcome(each) for each in answered]


@settings(max_examples=share(150), deadline=None)
@given(st.lists(CALLS, max_size=30), st.sampled_from([1, 3, 64, 1 << 16]))
def test_commands_sent_all_at_once_have_the_answers_that_each_would_have_had(
    script: list[Call], piece_bytes: int
) -> None:
    expected = one_by_one(script)
    for call, alone, piped in zip(script, expected, all_at_once(script, piece_bytes), strict=True):
        # What was cancelled was done all the same, as the answers to the others show.
        assert piped == alone or call.is_cancelled
