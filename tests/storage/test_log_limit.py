"""A whole server whose log may have so many bytes: as on a full disk, on one that is not."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.server.settings import LEAST_LOG_SEGMENTS, Limits
from beanstalk_twisted.storage.commit_states import SPACE_RETRY_S
from beanstalk_twisted.storage.store import SPACE_NEWS_S
from tests.storage.test_full_disk import SEGMENT_BYTES, Bounded

MOST_BYTES = 10 * SEGMENT_BYTES


class Limited(Bounded):
    """A server with a limit on its log's bytes, on a disk without one."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(space=None)
        self.server.settings = self.server.settings._replace(limits=Limits(log_bytes=most_bytes))
        self.most_bytes = most_bytes
        self.kill_and_restart()

    @property
    def allocated(self) -> int:
        figures = self.server.service.log_figures()
        assert figures is not None and figures.most_bytes == self.most_bytes
        return figures.allocated_bytes

    def check(self) -> None:
        super().check()
        assert self.used() <= self.allocated <= self.most_bytes


def test_a_log_at_its_limit_refuses_new_jobs_and_serves_the_rest() -> None:
    limited = Limited()
    with capturedLogs() as events:
        limited.fill()
    limited.check()
    assert limited.allocated > MOST_BYTES - 2 * SEGMENT_BYTES
    (line,) = [formatEvent(each) for each in events if each["event"] == "disk-full"]
    assert line is not None and "--max-log-bytes is 163840, and its files have" in line
    assert "full" in limited.server.service.why_not_ready()
    assert limited.ask(b"reserve\r\n").startswith(b"RESERVED 1 500\r\n")
    assert limited.ask(b"release 1 0 0\r\n") == b"RELEASED\r\n"
    limited.delete(1)
    limited.check()


def test_it_can_be_emptied_and_then_takes_as_many_jobs_again_by_itself() -> None:
    limited = Limited()
    counts = []
    for _ in range(3):
        limited.fill()
        counts.append(len(limited.promised))
        limited.delete_all()
        limited.server.advance(5)
        assert limited.server.service.why_not_ready() == ""
        limited.check()
    assert min(counts) > 0.8 * max(counts)


def test_that_there_is_room_again_is_logged_before_anybody_puts() -> None:
    limited = Limited()
    limited.fill()
    limited.delete_all()
    with capturedLogs() as events:
        limited.server.advance(SPACE_RETRY_S + SPACE_NEWS_S)
    assert limited.server.service.why_not_ready() == ""
    assert "disk-space" in [each["event"] for each in events]


def test_what_is_dead_is_compacted_before_a_job_is_refused() -> None:
    limited = Limited()
    for _ in range(500):
        assert limited.put()
        limited.delete(max(limited.promised))
        limited.check()


def test_the_least_limit_takes_jobs() -> None:
    limited = Limited(LEAST_LOG_SEGMENTS * SEGMENT_BYTES)
    limited.fill()
    assert len(limited.promised) > 5
    limited.check()
    limited.delete_all()
    limited.server.advance(5)
    assert limited.put()


def test_a_start_with_a_larger_log_serves_it_and_takes_nothing() -> None:
    limited = Limited()
    limited.fill()
    settings = limited.server.settings
    limited.most_bytes = LEAST_LOG_SEGMENTS * SEGMENT_BYTES
    limited.server.settings = settings._replace(limits=Limits(log_bytes=limited.most_bytes))
    limited.kill_and_restart()
    assert not limited.put()
    assert limited.allocated > limited.most_bytes
    limited.delete_all()
    limited.server.advance(5)
    assert limited.put()
    limited.check()
