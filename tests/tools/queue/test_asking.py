"""What is asked beyond single commands: pages, waits, what a server lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.stats import ListedJob
from beanstalk_twisted.client.sync import Client
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES as SERVER_BATCH_BYTES
from binlog_tools.queue import asking
from binlog_tools.queue.asking import MAX_BATCH_BYTES, PATIENCE_S, Missing, Unable, can_page, pages
from tests.server_process import ServerProcess, ours_at_once
from tests.tools.queue.lines import EXTENDED, MemoryLine, StockLine, filled, queue_at, queue_of


def ids(found: Iterable[Sequence[ListedJob]]) -> list[list[int]]:
    """Give the ids of the jobs on each page."""
    return [[job.id for job in page] for page in found]


def test_our_server_announces_all_of_them() -> None:
    assert queue_at(MemoryServer()).announces(*EXTENDED)


def test_what_a_server_lacks_is_said_with_what_can_be_done_instead() -> None:
    line = StockLine(MemoryServer())
    with pytest.raises(Missing, match="this server has no drain; do it by hand") as missing:
        asking.need(queue_of(line), "drain", "do it by hand")
    assert missing.value.word == "drain" and line.sent == 0


def test_limits_are_not_above_those_of_the_server() -> None:
    assert MAX_BATCH_BYTES < SERVER_BATCH_BYTES


@pytest.mark.parametrize(
    ("most", "page_jobs", "found"),
    [
        (None, 1000, [[1, 2, 3]]), (None, 2, [[1, 2], [3]]),
        (2, 1000, [[1, 2]]), (3, 2, [[1, 2], [3]]), (1, 1, [[1]]),
    ],
)  # fmt: skip
def test_jobs_come_in_pages(most: int | None, page_jobs: int, found: list[list[int]]) -> None:
    queue = queue_at(filled("delayed"))
    assert ids(pages(queue, b"a", "delayed", most, page_jobs)) == found
    assert ids(pages(queue, b"a", "ready")) == [[]]


def test_a_tube_that_is_not_there_is_refused_and_one_that_goes_meanwhile_ends() -> None:
    queue = queue_at(filled("ready"))
    with pytest.raises(errors.NotFound):
        list(pages(queue, b"nowhere", "all"))
    found = pages(queue, b"a", "all", page_jobs=2)
    assert len(next(found)) == 2
    assert queue.flush_tube("a") == 3
    assert not any(found)


@pytest.mark.parametrize("longest", [150, 151, 200])
def test_a_long_name_leaves_no_room_for_a_cursor(longest: int) -> None:
    queue = queue_at(MemoryServer())
    tube = b"x" * longest
    for _ in range(2):
        queue.put(b"", tube=tube, priority=(1 << 32) - 1)
    found = pages(queue, tube, "ready", page_jobs=1)
    assert len(next(found)) == 1
    assert can_page(b"x" * 150) and not can_page(b"x" * 200)
    if longest < 200:
        assert len(next(found)) == 1
        return
    with pytest.raises(Unable, match="the tube's name is too long to ask for the rest"):
        next(found)


def test_a_list_that_does_not_go_on_ends() -> None:
    class Saying(MemoryLine):
        def take(self) -> bytes:
            found = super().take()
            text = b"---\njobs: []\ncursor: r1-1\n"
            return b"OK %d\r\n%b\r\n" % (len(text), text) if b"jobs:" in found else found

    with pytest.raises(errors.BadReply):
        list(pages(queue_of(Saying(filled("ready"))), b"a", "all"))


def test_tubes_that_cannot_be_asked_about_are_left_out() -> None:
    class Listing(MemoryLine):
        """A server that lists a tube of a strange name."""

        def take(self) -> bytes:
            found = super().take()
            text = b"---\n- a b\n- default\n"
            return b"OK %d\r\n%b\r\n" % (len(text), text) if b"- default" in found else found

    found = asking.all_tubes(queue_of(Listing(MemoryServer())))
    assert [each.name for each in found] == ["default"]


class Waiting(MemoryLine):
    """A server on which something happens in each part of a wait."""

    def __init__(self, server: MemoryServer, *happens: Callable[[], object]) -> None:
        super().__init__(server)
        self.waits: list[int] = []
        self.happens = list(happens)

    def send(self, request: bytes) -> None:
        super().send(request)
        if request.startswith(b"wait-job"):
            self.waits.append(int(request.split()[2]))
            if self.happens:
                self.happens.pop(0)()
            self._server.advance(self.waits[-1] + 1)
            self._replies += self._client.take()


@pytest.mark.parametrize(
    ("timeout_s", "asked"),
    [(0, [0]), (5, [5]), (PATIENCE_S, [PATIENCE_S]), (PATIENCE_S * 2 + 1, [PATIENCE_S] * 2 + [1])],
)
def test_a_long_wait_for_a_job_is_asked_for_in_parts(timeout_s: float, asked: list[int]) -> None:
    line = Waiting(filled("ready"))
    assert asking.wait(queue_of(line), 2, timeout_s) == "TIMED_OUT"
    assert line.waits == asked


def test_what_becomes_of_a_job_is_told() -> None:
    server = filled("ready")
    other = queue_at(server)
    forever = float("inf")
    queue = queue_of(Waiting(server, lambda: None, lambda: other.delete(1)))
    assert asking.wait(queue, 1, forever) == "DELETED"
    assert asking.wait(queue, 1, forever) == "NOT_FOUND"
    queue = queue_of(Waiting(server, lambda: asking.bury_free(other, 2, 0)))
    assert asking.wait(queue, 2, forever) == "BURIED"
    assert asking.wait(queue, 2, 0) == "BURIED"


def test_a_job_that_goes_between_two_parts_of_a_wait_was_deleted() -> None:
    server = filled("ready")
    other = queue_at(server)

    class Between(Waiting):
        def send(self, request: bytes) -> None:
            if self.waits:
                other.delete(1)
            super().send(request)

    assert asking.wait(queue_of(Between(server)), 1, 100) == "DELETED"


def test_a_unix_socket_works_too(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'socket'}"
    with pytest.raises(errors.NoHost, match="No such file"):
        Client(address).connect()
    with ServerProcess(ours_at_once("-l", address), tmp_path) as server:
        server.wait_for("listening on")
        with Client(address) as queue:
            assert queue.put(b"x") == 1
