"""What the API shows of the log."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.api.reading import MAX_PAGE_SEGMENTS
from tests.binlog.memory import MemoryDirectory
from tests.web.test_api import Caller


@pytest.fixture
def caller() -> Caller:
    """One whose log has several segments, which all jobs live in."""
    made = Caller(MemoryServer(directory=MemoryDirectory(), segment_bytes=8192))
    made.put(b"mail", *(40 * [b"x" * 500]))
    made.server.advance(10)
    return made


def test_the_log_says_why_its_oldest_segment_is_kept(caller: Caller) -> None:
    shown = caller.get("/log")
    assert (shown["oldest_kept"], shown["debt_bytes"]) == ("small", 0)
    assert shown["total_bytes"] <= shown["may_be_bytes"]
    assert shown["oldest_jobs"] > 0


def test_segments_are_shown_by_pages(caller: Caller) -> None:
    shown = caller.get("/log/segments")
    rows, log = shown["segments"], caller.get("/log")
    assert len(rows) == log["segments"]
    assert (rows[0]["jobs"], rows[0]["live_bytes"]) == (
        log["oldest_jobs"],
        log["oldest_live_bytes"],
    )
    assert sum(row["size"] for row in rows) == log["total_bytes"]
    assert (rows[0]["is_sealed"], rows[-1]["is_sealed"]) == (True, False)
    assert (rows[0]["first_lsn"], rows[0]["is_archived"]) == (1, None)
    assert 10 <= rows[0]["age_seconds"] < 11
    assert shown["after"] is None
    pages: list[Any] = []
    after = 0
    while after is not None:
        page = caller.get(f"/log/segments?limit=2&after={after}")
        pages += page["segments"]
        after = page["after"]
    assert pages == rows


def test_the_jobs_that_keep_a_segment_are_found(caller: Caller) -> None:
    rows, found = caller.get("/log/segments")["segments"], []
    assert caller.get("/log")["oldest_segment"] == rows[0]["number"]
    for row in rows:
        jobs = caller.get(f"/search?where=file={row['number']}&limit=200")["jobs"]
        assert [job["file"] for job in jobs] == row["jobs"] * [row["number"]]
        found += [job["id"] for job in jobs]
    assert found == list(range(1, 41)), "each in one of them"


@pytest.mark.parametrize(
    "query",
    ["limit=0", f"limit={MAX_PAGE_SEGMENTS + 1}", "after=-1", "after=x", f"after={1 << 64}"],
)
def test_a_wrong_page_is_refused(caller: Caller, query: str) -> None:
    caller.get(f"/log/segments?{query}", 400)


def test_the_largest_page_is_taken(caller: Caller) -> None:
    caller.get(f"/log/segments?limit={MAX_PAGE_SEGMENTS}&after={(1 << 64) - 1}")


def test_without_a_log_there_are_none() -> None:
    assert "in memory only" in Caller(MemoryServer()).get("/log/segments", 404)["detail"]
