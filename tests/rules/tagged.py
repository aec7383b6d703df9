"""Jobs with tags: put by clients, or given by the test what no line of it says."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.segments.format import EXTENSIONS
from beanstalk_twisted.binlog.tags import Tags
from tests.rules.conversation import Client, Server


def put(client: Client, tags: str, *, pri: int = 0, delay: int = 0, ttr: int = 60) -> int:
    """Put a job with tags and give its id."""
    reply = client.says(f"put {pri} {delay} {ttr} 1 {tags}", b"x")
    assert reply is not None and reply.startswith("INSERTED "), reply
    return int(reply.split()[1])


def heard(reply: str | None) -> int | None:
    """Give the id of a job that was reserved or found; None if none was."""
    words = (reply or "").split()
    return int(words[1]) if words[:1] in (["RESERVED"], ["FOUND"]) else None


def state_of(client: Client, job_id: int) -> str:
    return client.asks(f"stats-job {job_id}")["state"]


def states(client: Client, *ids: int) -> list[str]:
    return [state_of(client, job_id) for job_id in ids]


def tag(server: Server, job_id: int, tags: Tags) -> None:
    """Give a job these tags, in memory and in the log."""
    job = server.queue.state.jobs.job(job_id)
    server.log.allow(EXTENSIONS, server.now_ns)
    image = job.copy()._replace(kind=Kind.UPDATE, tags=tags)
    server.queue.state.apply(image, server.log.append(image), server.log.segment)


def tags_of(server: Server, job_id: int) -> Tags | None:
    """Give what a job carries."""
    job = server.queue.state.jobs.look(job_id)
    assert job is not None
    return job.tags
