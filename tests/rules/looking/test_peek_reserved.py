"""`peek-reserved`, and the counts of a group by state."""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.looks import LOOK_RESERVED
from tests.rules.conversation import Client, Server
from tests.rules.tagged import put


def test_the_smallest_id_of_the_used_tube_is_shown_whoever_has_it() -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    ids = [client.put() for _ in range(3)]
    assert client.says("peek-reserved") == "NOT_FOUND"
    other.says(f"reserve-job {ids[2]}")
    assert client.says("peek-reserved") == f"FOUND {ids[2]} 1\r\nx"
    client.says(f"reserve-job {ids[1]}")
    assert other.says("peek-reserved") == f"FOUND {ids[1]} 1\r\nx"
    client.says("use elsewhere")
    assert client.says("peek-reserved") == "NOT_FOUND"
    other.says(f"touch {ids[2]}")
    client.says(f"delete {ids[1]}")
    assert other.says("peek-reserved") == f"FOUND {ids[2]} 1\r\nx"


@pytest.mark.parametrize("more", [0, 1])
def test_with_many_reserved_jobs_it_looks_slice_by_slice(more: int) -> None:
    server = Server()
    client, first, last = server.connect(), server.connect(), server.connect()
    ids = [client.put() for _ in range(LOOK_RESERVED + more)]
    last.says(f"reserve-job {ids[1]}")
    for _ in ids[2:]:
        first.takes()
    first.takes()
    first.says(f"delete {ids[0]}")
    client.put()
    first.takes()
    said = client.says("peek-reserved")
    assert (said is None) == client.session.is_blocked == bool(more)
    server.finish_slices()
    assert (said or client.hears()) == f"FOUND {ids[1]} 1\r\nx"
    assert not client.session.is_blocked


def counts(client: Client) -> dict[str, str]:
    return client.asks("stats-group g")


def test_a_group_is_counted_by_state_through_all_that_happens_to_its_jobs() -> None:
    server = Server()
    client = server.connect()
    ids = [put(client, "grp:g"), put(client, "grp:g", delay=1), put(client, "grp:g con:k")]
    assert put(client, "aft:g") == 4
    for line, after in [
        ("", "2 0 1 0"), ("reserve-job 1", "1 1 1 0"), ("bury 1 0", "1 0 1 1"),
        ("reserve-job 3", "0 1 1 1"), ("release 3 0 5", "0 0 2 1"), ("kick 9", "1 0 2 0"),
        ("kick 9", "3 0 0 0"), ("move-job 1 there", "3 0 0 0"), ("flush-tube there", "2 0 0 0"),
        ("reserve-job 3", "1 1 0 0"), ("touch 3", "1 1 0 0"), ("release 3 0 1", "1 0 1 0"),
    ]:  # fmt: skip
        client.says(line) if line else None
        found = counts(client)
        names = ("ready", "reserved", "delayed", "buried")
        assert " ".join(found[name] for name in names) == after, line
        assert int(found["pending"]) == sum(int(found[name]) for name in names)
    server.pass_time(2)
    assert (counts(client)["ready"], counts(client)["delayed"]) == ("2", "0")
    for job_id in ids[1:]:
        client.says(f"delete {job_id}")
    server.finish_slices()
    assert client.says("stats-group g") == "NOT_FOUND"
