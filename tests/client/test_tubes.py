"""
What a connection uses and watches, and how another one gets there.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.tubes import TubeChoice
from beanstalk_twisted.testing.memory_server import MemoryServer

COMMANDS = st.tuples(
    st.sampled_from(["use", "watch", "ignore"]), st.sampled_from([b"default", b"a", b"b", b"c"])
)


def test_a_new_connection_needs_only_to_show_that_it_answers() -> None:
    assert TubeChoice().commands() == [("use", b"default")]


@given(st.lists(COMMANDS, max_size=12))
def test_a_new_connection_gets_what_the_old_one_used_and_watched(
    commands: list[tuple[str, bytes]],
) -> None:
    server = MemoryServer()
    old, new = server.connect(), server.connect()
    tubes = TubeChoice()
    for word, tube in commands:
        if not old.ask(b"%b %b\r\n" % (word.encode(), tube)).startswith(b"NOT_IGNORED"):
            tubes.confirm(word, tube)
    for word, tube in tubes.commands():
        new.ask(b"%b %b\r\n" % (word.encode(), tube))
    assert old.ask(b"list-tube-used\r\n") == new.ask(b"list-tube-used\r\n")
    watched = [
        sorted(each.ask(b"list-tubes-watched\r\n").splitlines()) for each in (old, new)
    ]  # fmt: skip
    assert watched[0] == watched[1]
