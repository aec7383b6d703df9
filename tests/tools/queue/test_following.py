"""New jobs, without taking any."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.client import Reply
from binlog_tools.queue import following
from binlog_tools.queue.following import Follower
from binlog_tools.queue.server import Queue
from tests.tools.queue.lines import MemoryLine, jobs_of


def bodies(follower: Follower) -> list[bytes]:
    """Give the bodies of the new jobs."""
    return [seen.job.body for seen in follower.new()]


def test_new_jobs_are_seen_once_and_stay() -> None:
    server = MemoryServer()
    producer = Queue(MemoryLine(server))
    producer.put(b"before", 0, 0, 100)
    follower = Follower(Queue(MemoryLine(server)), [])
    assert bodies(follower) == []
    producer.put(b"1", 0, 0, 100)
    producer.put(b"2", 0, 60, 100)
    assert bodies(follower) == [b"1", b"2"]
    assert bodies(follower) == []
    assert [body for _, _, body in jobs_of(server)] == [b"1", b"2", b"before"]
    assert follower.missed == 0


def test_only_the_tubes_asked_for_are_shown_and_what_was_done_before_is_counted() -> None:
    server = MemoryServer()
    producer = Queue(MemoryLine(server))
    follower = Follower(Queue(MemoryLine(server)), [b"a"])
    producer.put(b"other", 0, 0, 100)
    producer.use(b"a")
    producer.delete(producer.put(b"gone", 0, 0, 100))
    producer.put(b"a", 0, 0, 100)
    assert bodies(follower) == [b"a"]
    assert follower.missed == 1


def test_puts_between_our_own_job_and_the_first_count_are_found_all_the_same() -> None:
    server = MemoryServer()
    producer = Queue(MemoryLine(server))

    class Raced(MemoryLine):
        def send(self, request: bytes) -> None:
            if request == b"stats\r\n" and self.sent == 3:
                for number in range(3):
                    producer.put(b"%d" % number, 0, 0, 100)
            super().send(request)

    follower = Follower(Queue(Raced(server)), [])
    assert bodies(follower) == [b"0", b"1", b"2"]
    producer.put(b"3", 0, 0, 100)
    assert bodies(follower) == [b"3"]


@pytest.mark.exhaustive
def test_of_too_many_the_newest_are_shown() -> None:
    server = MemoryServer()
    producer = Queue(MemoryLine(server))
    follower = Follower(Queue(MemoryLine(server)), [])
    requests = (b"put 0 0 9 1\r\nx\r\n" for _ in range(following.MOST_AT_ONCE + 5))
    list(producer.ask_many(requests))
    assert len(bodies(follower)) == following.MOST_AT_ONCE
    assert follower.missed == 5


def test_while_nobody_puts_one_question_a_look_is_enough() -> None:
    line = MemoryLine(MemoryServer())
    follower = Follower(Queue(line), [])
    before = line.sent
    for _ in range(10):
        assert bodies(follower) == []
    assert line.requests[before:] == [b"stats\r\n"] * 10


def test_followers_do_not_miss_each_other_s_jobs() -> None:
    server = MemoryServer()
    first = Follower(Queue(MemoryLine(server)), [])
    second = Follower(Queue(MemoryLine(server)), [])
    producer = Queue(MemoryLine(server))
    producer.put(b"x", 0, 0, 100)
    assert bodies(first) == bodies(second) == [b"x"]
    assert (first.missed, second.missed) == (0, 0)
    producer.delete(producer.put(b"gone", 0, 0, 100))
    assert bodies(first) == bodies(second) == []
    assert (first.missed, second.missed) == (1, 1)


def test_jobs_put_while_it_looks_are_seen_once_and_not_missed() -> None:
    server = MemoryServer()
    producer = Queue(MemoryLine(server))

    class Raced(MemoryLine):
        def reply(self) -> Reply:
            reply = super().reply()
            if self.requests[-1] == b"stats\r\n" and len(self.requests) < 60:
                producer.put(b"%d" % len(self.requests), 0, 0, 100)
            return reply

    follower = Follower(Queue(Raced(server)), [])
    seen = [body for _ in range(60) for body in bodies(follower)]
    assert sorted(seen) == sorted(body for _, _, body in jobs_of(server))
    assert follower.missed == 0
