"""`move-job` and `update-job`: what they answer, and what the job is then."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.memory import Scarce
from tests.rules.recording_log import Budget
from tests.rules.tagged import tag


@pytest.fixture
def budget(server: Server) -> Budget:
    """Give the queue a disk that may become full."""
    budget = server.log.budget = Budget()
    return budget


# move-job


def test_a_move_to_where_the_job_is_changes_nothing(server: Server, client: Client) -> None:
    job_id = client.place("buried", 3, "work")
    before = list(server.log.records)
    assert client.says(f"move-job {job_id} work") == "MOVED"
    assert client.last is not None and client.last[1] == server.log.committed_lsn(job_id)
    assert server.log.records == before


# update-job


def test_an_update_is_one_full_record(server: Server, client: Client) -> None:
    client.place("buried", 3, "work")
    tag(server, 1, Tags(group=b"g"))
    server.pass_time(5)
    other = server.connect()
    assert other.says("update-job 1 7 8 9 4", b"body") == "UPDATED"
    (image,) = server.log.images(1)[-1:]
    work = server.queue.state.tubes.find(b"work")
    assert work is not None
    assert image == JobImage(
        Kind.UPDATE, State.BURIED, Reason.CLIENT, priority=7, job_id=1, ts_ns=START_NS,
        deadline_ns=START_NS, delay_s=8, ttr_s=9, tube_id=work.tube_id, reserves=1, buries=1,
        connection=other.session.number, body=b"body", tags=Tags(group=b"g"),
    )  # fmt: skip
    assert other.last is not None and other.last[1] == len(server.log.records)


def test_a_body_for_which_there_is_no_memory_is_refused(server: Server, client: Client) -> None:
    job_id = client.put()

    server.queue.puts.memory = Scarce(5000)
    assert client.says(f"update-job {job_id} 4 0 20 5000", b"z" * 5000) == "OUT_OF_MEMORY"
    assert client.says(f"update-job {job_id} 4 0 20 1000", b"z" * 1000) == "UPDATED"


# stats-job and list-jobs


def test_the_keys_of_what_a_job_carries(server: Server, client: Client) -> None:
    job_id = client.put()
    stock = list(client.asks(f"stats-job {job_id}"))
    listed = str(client.says("list-jobs default ready 9"))
    tag(server, job_id, Tags(
        unique_key=b"1", unique_s=60, concurrency_key=b"c", concurrency_limit=2, group=b"g",
        after=b"h", dead_from=b"d", dead_reason=Reason.MAX_RESERVES,
        dead_at_ns=START_NS + NS, origin=b"o",
    ))  # fmt: skip
    keys = (
        'idempotency-key: "1"', "idempotency-ttl: 60", 'group: "g"', 'after-group: "h"',
        'concurrency-key: "c"', "concurrency-limit: 2", 'dead-from: "d"',
        "dead-reason: max-reserves", f"dead-at: {START_NS // NS + 1}", 'origin: "o"',
    )  # fmt: skip
    stats = str(client.says(f"stats-job {job_id}"))
    assert stats.splitlines()[2 + len(stock) :] == [*keys]
    behind = "".join(f"  {line}\n" for line in keys)
    after = str(client.says("list-jobs default ready 9"))
    assert after.partition("\r\n")[2] == listed.partition("\r\n")[2] + behind
