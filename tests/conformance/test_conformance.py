"""Our server answers as the real beanstalkd does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance import exceptions
from tests.conformance.conversations import CONVERSATIONS, Conversation
from tests.conformance.servers import (
    Heard,
    OnASocket,
    OursInMemory,
    OursOnASocket,
    OursOnASocketWithoutBodies,
    OursWithAByte,
    OursWithFewBodies,
    OursWithoutBodies,
    TheirsOnASocket,
    hold,
)
from tests.sampling import SHARE, one_in
from tests.server_process import Connection, ServerProcess, ours, real_beanstalkd, theirs

TIMED = [talk for talk in CONVERSATIONS if talk.is_timed]
EACH = pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.title)
UNTIMED = [talk for talk in CONVERSATIONS if not talk.is_timed]
"""Those that take time are held together."""


def assert_as_expected(heard: Iterable[Heard]) -> None:
    """See that each reply is of the kind that the conversation says."""
    for each in heard:
        beginning, *lines = each.expected.split(" ... ")
        first, _, document = each.reply.decode("latin-1").partition("\r\n")
        assert first == beginning or (beginning and first.startswith(beginning + " ")), each
        assert set(lines) <= set(document.split("\n")), each


def assert_equal(one: list[Heard], other: list[Heard]) -> None:
    """See that two servers have said the same, but for what may differ."""
    for mine, yours in zip(one, other, strict=True):
        if not exceptions.may_differ(mine.sent):
            assert exceptions.normalised(mine.reply) == exceptions.normalised(yours.reply), mine


def assert_as_in_memory(heard: list[Heard], in_memory: list[Heard]) -> None:
    """See that ours has said what is expected, and the same as in memory."""
    assert_as_expected(heard)
    assert_equal(heard, in_memory)


@EACH
def test_ours_answers_as_expected_wherever_bodies_are(talk: Conversation, tmp_path: Path) -> None:
    in_memory = hold(talk, OursInMemory, tmp_path)
    assert_as_expected(in_memory)
    # One by one, so that a failure shows in which of them it was.
    assert_as_in_memory(hold(talk, OursWithoutBodies, tmp_path), in_memory)
    assert_as_in_memory(hold(talk, OursWithAByte, tmp_path), in_memory)
    assert_as_in_memory(hold(talk, OursWithFewBodies, tmp_path), in_memory)


@pytest.mark.parametrize("talk", one_in(4 * SHARE, UNTIMED), ids=lambda talk: talk.title)
def test_ours_on_a_socket_answers_as_in_memory(talk: Conversation, tmp_path: Path) -> None:
    in_memory = hold(talk, OursInMemory, tmp_path)
    assert_as_in_memory(hold(talk, OursOnASocket, tmp_path), in_memory)


@pytest.mark.parametrize("talk", UNTIMED, ids=lambda talk: talk.title)
def test_the_real_one_answers_as_ours(talk: Conversation, tmp_path: Path) -> None:
    real_beanstalkd()
    theirs_ = hold(talk, TheirsOnASocket, tmp_path)
    for kind in (OursInMemory, OursWithoutBodies):
        assert_equal(hold(talk, kind, tmp_path), theirs_)


@pytest.mark.parametrize("talk", one_in(4 * SHARE, UNTIMED), ids=lambda talk: talk.title)
def test_on_sockets_the_real_one_answers_as_ours_without_bodies(
    talk: Conversation, tmp_path: Path
) -> None:
    real_beanstalkd()
    ours_ = hold(talk, OursOnASocketWithoutBodies, tmp_path / "ours")
    assert_equal(ours_, hold(talk, TheirsOnASocket, tmp_path / "theirs"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [OursOnASocket, TheirsOnASocket])
def test_what_takes_time_is_the_same_on_sockets(kind: type[OnASocket], tmp_path: Path) -> None:
    if kind is TheirsOnASocket:
        real_beanstalkd()
    with ThreadPoolExecutor(len(TIMED)) as pool:
        running = [pool.submit(hold, talk, kind, tmp_path / talk.title) for talk in TIMED]
    for talk, each in zip(TIMED, running, strict=True):
        assert_equal(hold(talk, OursInMemory, tmp_path), each.result())


@pytest.mark.parametrize("command", [ours, theirs])
def test_a_unix_socket_serves_and_a_killed_server_leaves_it_usable(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        for _ in range(2):
            with ServerProcess(command("-l", f"unix:{path}"), tmp_path) as server:
                server.wait_for(str(path))
                connection = Connection(path, waits=True)
                assert connection.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 1\r\n"
                assert connection.ask(b"peek 1\r\n") == b"FOUND 1 1\r\nx\r\n"
                connection.close()


# The exceptions.


def test_quotes_and_volatile_values_may_differ_and_nothing_else() -> None:
    ours_ = b'OK 60\r\n---\nid: 7\ntube: "a"\nstate: ready\nage: 3\ntime-left: 0\nfile: 1\n\r\n'
    theirs_ = b"OK 58\r\n---\nid: 7\ntube: a\nstate: ready\nage: 4\ntime-left: 0\nfile: 0\n\r\n"
    assert exceptions.normalised(ours_) == exceptions.normalised(theirs_)
    for old, new in ((b"id: 7", b"id: 8"), (b"left: 0", b"left: 1"), (b"ready", b"buried"),
                     (b"tube", b"tub"), (b"---\n", b"")):  # fmt: skip
        changed = theirs_.replace(old, new)
        assert exceptions.normalised(ours_) != exceptions.normalised(changed), new
    assert exceptions.normalised(b'FOUND 1 3\r\n"a"\r\n') == b'FOUND 1 3\r\n"a"\r\n'


def test_only_loose_timeouts_are_not_compared() -> None:
    for sent in (b"x", b"", b"-1", b"0 ", b"0x", b"4294967296"):
        assert exceptions.may_differ(b"reserve-with-timeout " + sent + b"\r\n"), sent
    for sent in (b"reserve-with-timeout 0\r\n", b"reserve-with-timeout\r\n", b"reserve\r\n"):
        assert not exceptions.may_differ(sent), sent


def test_every_conversation_has_a_title_of_its_own() -> None:
    titles = [talk.title for talk in CONVERSATIONS]
    assert len(set(titles)) == len(titles)
