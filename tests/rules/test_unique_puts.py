"""Puts with a unique key."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage
from beanstalk_twisted.binlog.records.others import RememberedKey
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.wire.tags import PutTags
from tests.rules.conversation import Client, Server


def put(client: Client, tags: str = "idp:k", body: bytes = b"x", *, delay: int = 0) -> str:
    """Put a job with tags; priority 0, TTR 60 s."""
    reply = client.says(f"put 0 {delay} 60 {len(body)} {tags}", body)
    assert reply is not None
    return reply


def test_the_deletion_and_the_key_that_it_leaves_stand_together() -> None:
    server = Server()
    client = server.connect()
    put(client, "idp:k:9")
    first = len(server.log.records) + 1
    client.says("delete 1")
    assert server.log.wholes[-1] == (first, first + 1)
    deletion, key = server.log.records[-2:]
    assert isinstance(deletion, JobImage)
    assert key == RememberedKey(1, b"k", 1, server.now_ns + 9 * 10**9, server.now_ns)
    assert client.last is not None and client.last[1] == first + 1
    put(client)
    assert client.last[1] == first + 1, "that it is there waits for the deletion to be durable"


def test_a_flush_forgets_many_keys_slice_by_slice_and_then_the_tube(server: Server) -> None:
    client, other = server.connect(), server.connect()
    client.says("use mail")
    for number in range(1, 1001):
        put(client, f"idp:{number}:60")
        client.says(f"delete {number}")
    client.says("use default")
    other.says("use mail")
    assert client.says("flush-tube mail") is None
    assert put(other, "idp:1") == "INSERTED 1001", "keys that were forgotten first are free already"
    assert put(other, "idp:1000:60") == "INSERTED 1000 DELETED"
    other.says("delete 1001")
    other.says("use default")
    server.finish_slices()
    assert client.hears() == "FLUSHED 0"
    assert client.lists("list-tubes") == ["default"]


@pytest.mark.parametrize(
    ("tags", "ended", "reply"),
    [
        ("idp:k:9", True, "FORGOTTEN"),
        ("idp:k:9", False, "NOT_FOUND"),
        ("idp:k", True, "NOT_FOUND"),
        ("idp:other:9", True, "NOT_FOUND"),
    ],
)
def test_one_key_of_a_deleted_job_can_be_forgotten(tags: str, ended: bool, reply: str) -> None:
    client = Server().connect()
    assert client.says("forget-key default k") == "NOT_FOUND"
    assert client.says("forget-key nowhere k") == "NOT_FOUND"
    put(client, tags)
    if ended:
        client.says("delete 1")
    assert client.says("forget-key default k") == reply
    assert client.says("forget-key default k") == "NOT_FOUND"
    assert put(client, "idp:k") == ("INSERTED 2" if ended else "INSERTED 1 READY")


def batch(queue: WorkQueue, session: Session, *keys: bytes) -> str:
    """Put a batch of jobs with these keys; an empty one is none."""
    jobs = [(0, 0, 60, PutTags(unique_key=key) if key else None, b"x") for key in keys]
    answer = queue.put_batches.put_batch(session, 0, 0, jobs)
    assert answer is not None
    return answer[0].encode().decode()


@pytest.mark.parametrize("past", [0, 1])
def test_there_are_so_many_keys_at_most(server: Server, past: int) -> None:
    server.queue.state.unique.most = 4
    client = server.connect()
    put(client, "idp:a")
    put(client, "idp:b:9")
    client.says("delete 2")
    keys = [b"c", b"d", *[b"e"] * past]
    assert batch(server.queue, client.session, *keys).startswith("OUT" if past else "INSERTED")
    if past:
        assert len(server.queue.state.jobs) == 1, "all or none"
        return
    assert put(client, "idp:e") == "OUT_OF_MEMORY"
    assert put(client, "idp:a") == "INSERTED 1 READY", "those that are there take nothing"
    assert put(client, "con:e") == "INSERTED 5", "and those without a key neither"
    server.pass_time(9)
    assert put(client, "idp:e") == "INSERTED 6"
