"""Names of servers and tubes, also those that clients may use, and waiting for a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import grammar
from binlog_tools.client import Lost, Reply
from binlog_tools.connections import connect
from binlog_tools.queue.server import PATIENCE_S, Queue, Refused, tube_name
from binlog_tools.tube_names import NoTube, is_tube_name, quoted
from tests.server.access.meeting import guarded, rules
from tests.server_process import ServerProcess, ours_at_once
from tests.tools.queue.lines import MemoryLine


@pytest.mark.parametrize("text", ["a b", "", "-a", "ä", "a\r\nquit", "x" * 201])
def test_what_is_not_the_name_of_a_tube_is_never_sent(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a tube"):
        tube_name(text)
    assert tube_name("x" * 200) == b"x" * 200


def test_an_answer_is_given_when_it_is_said_to_be_there() -> None:
    line = MemoryLine(MemoryServer())
    asked: list[int] = []

    def requests() -> Iterator[bytes | None]:
        for tube in (b"a", b"b", None, b"c", None, None):
            asked.append(line.sent)
            yield None if tube is None else b"use %b\r\n" % tube

    answers = iter(Queue(line).ask_many(requests()))
    for number, (tube, sent) in enumerate(((b"a", 2), (b"b", 3), (b"c", 3))):
        assert next(answers).words[1] == tube
        assert line.sent == sent, number
    assert list(answers) == []


def test_an_answer_to_nothing_is_nonsense() -> None:
    class Talking(MemoryLine):
        def reply(self) -> Reply:
            return Reply((b"HELLO",))

    with pytest.raises(Lost, match="no server of this protocol"):
        list(Queue(Talking(MemoryServer())).ask_many([None]))


def test_nor_is_it_when_a_log_has_brought_it() -> None:
    line = MemoryLine(MemoryServer())
    queue = Queue(line)
    strange = b"x\r\nput 0 0 1 1\r\ny"
    for ask in (queue.use, queue.stats_tube, lambda tube: queue.pause(tube, 1),
                lambda tube: queue.watch_only([tube])):  # fmt: skip
        with pytest.raises(ValueError, match="is not the name of a tube"):
            ask(strange)
    assert line.sent == 0


def test_tubes_that_cannot_be_asked_about_are_left_out() -> None:
    class Listing(MemoryLine):
        """A server that lists a tube of a strange name."""

        def reply(self) -> Reply:
            reply = super().reply()
            is_list = b"- default" in reply.data
            return reply._replace(data=b"---\n- a b\n- default\n") if is_list else reply

    found = Queue(Listing(MemoryServer())).all_tubes()
    assert [each["name"] for each in found] == ["default"]


@pytest.mark.parametrize(
    ("timeout_s", "asked"),
    [(0, [0]), (5, [5]), (PATIENCE_S, [PATIENCE_S]), (PATIENCE_S * 2 + 1, [PATIENCE_S] * 2 + [1])],
)
def test_a_long_wait_is_asked_for_in_parts(timeout_s: float, asked: list[int]) -> None:
    class Patient(MemoryLine):
        def send(self, request: bytes) -> None:
            waits.append(int(request.split()[1]))
            super().send(request)
            server.advance(waits[-1] + 1)
            self._replies += self._client.take()

    waits: list[int] = []
    server = MemoryServer()
    assert Queue(Patient(server)).reserve(timeout_s) is None
    assert waits == asked


def test_a_unix_socket_works_too(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    address = Address.parse(f"unix:{socket}")
    with pytest.raises(OSError, match="No such file"):
        connect(address)
    with ServerProcess(ours_at_once("-l", f"unix:{socket}"), tmp_path) as server:
        server.wait_for("listening on")
        with connect(address) as line:
            assert Queue(line).put(b"x", 0, 0, 1) == 1


@pytest.mark.parametrize(
    ("what", "meaning"),
    [
        ("stats-tube a", "no right to stats-tube a; ask: beanstalk access check FILE --as NAME "
                         "stats-tube a"),
        ("peek-ready", "no right to peek-ready in_use; ask: beanstalk access check FILE --as NAME "
                       "peek-ready in_use"),
        ("delete 5", "no right to delete TUBE; ask: beanstalk access check FILE --as NAME delete "
                     "TUBE"),
        ("drain", "no right to drain; ask: beanstalk access check FILE --as NAME drain"),
    ],
)  # fmt: skip
def test_a_refusal_for_lack_of_a_right_says_how_to_find_out_which(what: str, meaning: str) -> None:
    refused = Refused(what, Reply((b"UNAUTHORIZED",)), b"in_use")
    assert str(refused) == f"{what}: the server says UNAUTHORIZED: {meaning}"


def test_a_put_that_is_refused_names_its_tube() -> None:
    queue = Queue(MemoryLine(guarded(rules(it={}))))
    queue.use(b"secret")
    with pytest.raises(Refused, match=r"check FILE --as NAME put secret$"):
        queue.put(b"x", 0, 0, 9)


ALPHABET = st.sampled_from([bytes((code,)) for code in range(256)])


def is_right_for_the_server(name: bytes) -> bool:
    try:
        return bool(grammar.TUBE.convert(name))
    except grammar.ParseError:
        return False


@given(st.lists(ALPHABET, max_size=3).map(b"".join) | st.from_regex(rb"[a-z-]{1,202}"))
@example(b"a\n")
@example(b"x" * 200)
@example(b"x" * 201)
@example(b"")
def test_they_are_those_that_the_server_takes(name: bytes) -> None:
    assert is_tube_name(name) == is_right_for_the_server(name)


def test_a_wrong_one_is_told_on_one_line() -> None:
    assert quoted(b"a\r\n\xff") == r"'a\r\n\\xff'"
    assert str(NoTube(b"a b")).startswith("'a b' is not the name of a tube: 1 to 200 of ")
