"""`peek-reserved`, and the counts of a group by state."""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.looks import LOOK_RESERVED
from tests.rules.conversation import Client, Server


@pytest.mark.parametrize("more", [0, 1])
def test_with_many_reserved_jobs_it_looks_slice_by_slice(server: Server, more: int) -> None:
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
