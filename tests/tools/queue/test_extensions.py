"""Commands that beanstalkd does not have are sent to servers that announce them, and to no
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES as SERVER_BATCH_BYTES
from binlog_tools.client import Lost, Reply
from binlog_tools.queue.extensions import (
    MAX_BATCH_BYTES,
    Extensions,
    Missing,
    NewJob,
    can_page,
    inserted_ids,
)
from binlog_tools.queue.server import PATIENCE_S, Queue, Refused, Stats
from tests.tools.queue.lines import EXTENDED, MemoryLine, StockLine, filled, jobs_of


def extensions_of(server: MemoryServer) -> Extensions:
    """Ask a server what it has."""
    return Extensions(Queue(MemoryLine(server)))


def ids(pages: Iterator[list[Stats]]) -> list[list[str]]:
    """Give the ids of the jobs on each page."""
    return [[job["id"] for job in page] for page in pages]


CALLS: list[Callable[[Extensions], object]] = [
    lambda asked: list(asked.pages(b"a", "all")), lambda asked: asked.connections(),
    lambda asked: asked.flush(b"a", "all"), lambda asked: asked.wait(1, 0),
    lambda asked: asked.put([NewJob(b"", 0, 0, 1)]), lambda asked: asked.delete([1]),
    lambda asked: asked.move([1], b"a"), lambda asked: asked.update(1, 0, 0, 1),
    lambda asked: asked.policy(b"a"), lambda asked: asked.set_policy(b"a", ["max-jobs=1"]),
    lambda asked: asked.kick_dead(b"a", 1), lambda asked: asked.drain(),
    lambda asked: asked.undrain(),
]  # fmt: skip


def test_our_server_announces_all_of_them() -> None:
    assert extensions_of(MemoryServer()).words >= EXTENDED


@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_does_not_announce_a_command_is_not_sent_it(
    call: Callable[[Extensions], object],
) -> None:
    line = StockLine(MemoryServer())
    asked = Extensions(Queue(line))
    assert asked.words == frozenset() and not asked.has("drain")
    with pytest.raises(Missing, match="this server has no "):
        call(asked)
    assert line.sent == 0
    with pytest.raises(Missing, match="no drain; do it by hand") as missing:
        asked.need("drain", "do it by hand")
    assert missing.value.word == "drain"


def test_limits_are_not_above_those_of_the_server() -> None:
    assert MAX_BATCH_BYTES < SERVER_BATCH_BYTES


# Lists.


@pytest.mark.parametrize(
    ("most", "page_jobs", "pages"),
    [
        (None, 1000, [["1", "2", "3"]]), (None, 2, [["1", "2"], ["3"]]),
        (2, 1000, [["1", "2"]]), (3, 2, [["1", "2"], ["3"]]), (1, 1, [["1"]]),
    ],
)  # fmt: skip
def test_jobs_are_listed_page_by_page(
    most: int | None, page_jobs: int, pages: list[list[str]]
) -> None:
    asked = extensions_of(filled("delayed"))
    assert ids(asked.pages(b"a", "delayed", most, page_jobs)) == pages
    assert list(asked.pages(b"a", "ready")) == [[]]


def test_a_tube_that_is_not_there_is_refused_and_one_that_goes_meanwhile_ends() -> None:
    server = MemoryServer()
    producer = server.connect()
    producer.ask(b"use a\r\n" + b"put 0 0 1 0\r\n\r\n" * 3)
    producer.hang_up()
    asked = extensions_of(server)
    with pytest.raises(Refused, match="there is no tube nowhere"):
        list(asked.pages(b"nowhere", "all"))
    pages = asked.pages(b"a", "all", page_jobs=2)
    assert len(next(pages)) == 2
    assert asked.flush(b"a", "all") == 3
    assert list(pages) == []


@pytest.mark.parametrize("longest", [150, 151, 200])
def test_a_long_name_leaves_no_room_for_a_cursor(longest: int) -> None:
    server = MemoryServer()
    queue = Queue(MemoryLine(server))
    tube = b"x" * longest
    queue.use(tube)
    for _ in range(2):
        queue.put(b"", (1 << 32) - 1, 0, 1)
    pages = Extensions(queue).pages(tube, "ready", page_jobs=1)
    assert len(next(pages)) == 1
    assert can_page(b"x" * 150) and not can_page(b"x" * 200)
    if longest < 200:
        assert len(next(pages)) == 1
        return
    with pytest.raises(Refused, match="the tube's name is too long to ask for the rest"):
        next(pages)


class Saying(MemoryLine):
    """A server that answers the same to each of these commands."""

    said: Reply

    def reply(self) -> Reply:
        """See `Line`."""
        found = super().reply()
        return self.said if b"list-" in self.requests[-1] else found


@pytest.mark.parametrize(
    "text",
    [b"---\njobs: []\ncursor: r1-1\n", b"---\njobs: []\ncursor: a b\n", b"---\n- a\n", b"hello"],
)
def test_a_list_that_makes_no_sense_ends(text: bytes) -> None:
    line = Saying(MemoryServer())
    line.said = Reply((b"OK",), text)
    with pytest.raises(Lost, match="no server of this protocol"):
        list(Extensions(Queue(line)).pages(b"a", "all"))


def test_connections_are_described() -> None:
    server = filled("ready")
    (*_, own) = extensions_of(server).connections()
    assert own["using"] == "default" and own.number("reserved") == 0


# Jobs.


def test_a_tube_is_flushed_of_a_state_or_of_all() -> None:
    server = filled("delayed")
    asked = extensions_of(server)
    assert asked.flush(b"a", "buried") == 0
    assert asked.flush(b"a", "delayed") == 3
    assert asked.flush(b"nowhere", "all") == 0


def test_a_batch_is_put_and_deleted() -> None:
    server = MemoryServer()
    asked = extensions_of(server)
    assert asked.put([NewJob(b"1", 5, 0, 9), NewJob(b"\r\n", 0, 7, 9)]) == [1, 2]
    assert jobs_of(server) == [("default", "delayed", b"\r\n"), ("default", "ready", b"1")]
    assert asked.delete([1, 99, 2]) == 2
    server.service.drain()
    with pytest.raises(Refused, match="put-batch 1: the server says DRAINING"):
        asked.put([NewJob(b"", 0, 0, 1)])


@pytest.mark.parametrize("data", [b"INSERTED 1", b"INSERTED 1\r\nFAILED 2", b""])
def test_a_batch_whose_jobs_are_not_named_makes_no_sense(data: bytes) -> None:
    with pytest.raises(Lost, match="what became of 2 jobs"):
        inserted_ids(Reply((b"INSERTED_BATCH", b"2"), data), 2)


def test_a_server_is_drained_and_undrained() -> None:
    server = MemoryServer()
    asked = extensions_of(server)
    asked.drain()
    with pytest.raises(Refused, match="DRAINING"):
        Queue(MemoryLine(server)).put(b"", 0, 0, 1)
    asked.undrain()
    Queue(MemoryLine(server)).put(b"", 0, 0, 1)


# Waiting.


class Waiting(MemoryLine):
    """A server on which something happens in each part of a wait."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.waits: list[int] = []
        self.happens: list[Callable[[], object]] = []
        self._memory = server

    def send(self, request: bytes) -> None:
        """See `Line`."""
        super().send(request)
        if request.startswith(b"wait-job"):
            self.waits.append(int(request.split()[2]))
            if self.happens:
                self.happens.pop(0)()
            self._memory.advance(self.waits[-1] + 1)
            self._replies += self._client.take()


def waiting(server: MemoryServer, *happens: Callable[[], object]) -> Waiting:
    """Make a connection of one that waits."""
    line = Waiting(server)
    line.happens = list(happens)
    return line


@pytest.mark.parametrize(
    ("timeout_s", "asked"),
    [(0, [0]), (5, [5]), (PATIENCE_S, [PATIENCE_S]), (PATIENCE_S * 2 + 1, [PATIENCE_S] * 2 + [1])],
)
def test_a_long_wait_for_a_job_is_asked_for_in_parts(timeout_s: float, asked: list[int]) -> None:
    line = waiting(filled("ready"))
    assert Extensions(Queue(line)).wait(2, timeout_s) == "TIMED_OUT"
    assert line.waits == asked


def test_what_becomes_of_a_job_is_told() -> None:
    server = filled("ready")
    other = Queue(MemoryLine(server))
    forever = float("inf")
    line = waiting(server, lambda: None, lambda: other.delete(1))
    assert Extensions(Queue(line)).wait(1, forever) == "DELETED"
    assert Extensions(Queue(line)).wait(1, forever) == "NOT_FOUND"
    line = waiting(server, lambda: other.bury_free(2, 0))
    assert Extensions(Queue(line)).wait(2, forever) == "BURIED"
    assert Extensions(Queue(line)).wait(2, 0) == "BURIED"


def test_a_job_that_goes_between_two_parts_of_a_wait_was_deleted() -> None:
    server = filled("ready")
    other = Queue(MemoryLine(server))

    class Between(Waiting):
        def send(self, request: bytes) -> None:
            if self.waits:
                other.delete(1)
            super().send(request)

    assert Extensions(Queue(Between(server))).wait(1, 100) == "DELETED"
