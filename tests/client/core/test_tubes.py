"""What a connection uses, watches and chooses, and how another one gets there."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.core.tubes import TubeChoice
from beanstalk_twisted.testing.memory_server import Client, MemoryServer

TUBES = st.sampled_from([b"default", b"a", b"b", b"c"])
COMMANDS = st.one_of(
    st.tuples(st.sampled_from([specs.USE, specs.WATCH, specs.IGNORE]), st.tuples(TUBES)),
    st.tuples(st.just(specs.WATCH_WEIGHTED), st.tuples(TUBES, st.integers(1, 4))),
    st.tuples(
        st.just(specs.RESERVE_MODE),
        st.tuples(st.sampled_from(["fifo", "weighted", "weighted-fair"])),
    ),
)


def test_a_new_connection_needs_only_to_show_that_it_answers() -> None:
    assert TubeChoice().commands() == [(specs.USE, (b"default",))]


@given(st.lists(COMMANDS, max_size=12))
def test_a_new_connection_gets_what_the_old_one_used_and_watched(
    commands: list[tuple[CommandSpec, tuple[Any, ...]]],
) -> None:
    server = MemoryServer()
    old, new = server.connect(), server.connect()
    tubes = TubeChoice()
    for spec, args in commands:
        if not old.ask(spec.line(args)).startswith(b"NOT_IGNORED"):
            tubes.confirm(spec, args)
    for spec, args in tubes.commands():
        assert new.ask(spec.line(args)).startswith(spec.success)
    assert choice_of(old) == choice_of(new)


def choice_of(client: Client) -> tuple[object, ...]:
    session = client.protocol.connection.session
    weights = session._weights or {}
    watched = {tube.name: weights.get(tube, 1) for tube in session.watching}
    return session.using.name, session.mode, watched
