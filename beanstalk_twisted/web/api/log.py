"""The API's operations that show the log."""

from typing import Any, Final

from twisted.internet.defer import Deferred

from beanstalk_twisted.jobs.figures.histogram import Histogram
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.segment_list import SegmentFacts
from beanstalk_twisted.web.api.fields import MAX_U64, query_number
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.web.figures.tube_figures import NS

MAX_PAGE_SEGMENTS: Final = 100
"""Segments of a page: the I/O thread reads at most so many headers for it, 3 ms in slices."""


class LogApi:
    """Shows the log."""

    def __init__(self, service: BeanstalkService) -> None:
        self._service = service

    def log(self, call: Call) -> Document:
        """The log, what it costs, and why its oldest segment is still there."""
        figures = self._service.log_figures()
        if figures is None:
            raise _no_log()
        about: dict[str, Any] = figures._asdict()
        commits = about.pop("commits")
        about["oldest_unsynced_seconds"] = about.pop("unsynced_ns") / NS
        about["fsync_seconds"] = _histogram(commits.syncs, NS)
        about["group_commit_size"] = _histogram(commits.batches, 1)
        about["fsync_errors"] = commits.rehomings
        return json_document(about)

    def segments(self, call: Call) -> "Deferred[Document]":
        """A page of segments, oldest first."""
        if self._service.log_figures() is None:
            raise _no_log()
        after = query_number(call.query, "after", 0, 0, MAX_U64)
        most = query_number(call.query, "limit", 50, 1, MAX_PAGE_SEGMENTS)
        return Deferred.fromCoroutine(self._page(after, most))

    async def _page(self, after: int, most: int) -> Document:
        # One more than fits says whether there is a next page.
        found = await self._service.log_segments(after, most + 1)
        page, now_ns = found[:most], self._service.now_ns()
        behind = page[-1].number if len(found) > most else None
        return json_document({"segments": [_shown(row, now_ns) for row in page], "after": behind})


def _no_log() -> Refusal:
    return Refusal(404, "jobs are in memory only; --binlog DIR keeps a log")


def _shown(facts: SegmentFacts, now_ns: int) -> dict[str, Any]:
    row = facts._asdict()
    created_ns = row.pop("created_ns")
    row["age_seconds"] = None if created_ns is None else max(0, now_ns - created_ns) / NS
    return row


def _histogram(values: Histogram, unit: int) -> dict[str, Any]:
    """:param unit: what one of the units that are shown has."""
    return {
        "bounds": [bound / unit for bound in values.bounds],
        "counts": values.counts,
        "sum": values.total / unit,
    }
