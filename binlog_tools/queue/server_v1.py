"""Asking a server in the first protocol, v1: the methods that it has, said its way."""

from collections.abc import Mapping
from types import MappingProxyType

from binlog_tools.client import Reply
from binlog_tools.queue.server import Job, Queue, Refused, Stats, parsed


class JobV1(Job):
    """A job as reserved, with its priority."""

    priority: int


class QueueV1(Queue):
    """A server, over one connection to a port that speaks v1."""

    _timeouts: Mapping[int, str] = MappingProxyType({})

    def reserve_any(self) -> JobV1:
        """Wait for a job of `default`, as long as it takes."""
        reply = self.ask(b"reserve\r\n", b"RESERVED")
        job = JobV1(reply.number, reply.data)
        job.priority = reply.number_at(2)
        return job

    def release(self, job: int, priority: int, delay_s: int = 0) -> None:
        assert not delay_s
        self.ask(b"release %d %d\r\n" % (job, priority), b"RELEASED")

    def touch(self, job: int) -> None:
        """
        Look whether a job is still reserved: v1 cannot let its TTR begin anew.

        :raise Refused: its TTR has ended.
        """
        stats = self.stats_job(job)
        if stats["state"] != "reserved" or stats["timeouts"] != self._timeouts.get(job):
            raise Refused(f"reserve {job}", Reply((b"NOT_FOUND",)))

    def facts(self, job: JobV1) -> Stats:
        """
        Say of a job just reserved what a worker wants to know, as far as v1 tells it: its TTR is
        the time left, and each TTR that ended was an attempt.
        """
        stats = self.stats_job(job.id)
        self._timeouts = {job.id: stats["timeouts"]}
        return Stats(
            tube="default", pri=str(job.priority), ttr=stats["time-left"],
            reserves=str(stats.number("timeouts") + 1),
        )  # fmt: skip

    def stats_job(self, job: int, what: str = "") -> Stats:
        return parsed(self.ask(b"stats %d\r\n" % job, b"OK", what=what))


def put_request(body: bytes, priority: int) -> bytes:
    return b"put %d %d\r\n%b\r\n" % (priority, len(body), body)
