"""`cancel-job` ends a job whoever holds it; `return-job` takes back a reservation uncounted."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from tests.rules.conversation import Client, Server

# cancel-job


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "reserved"])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_job_in_any_state_is_cancelled(
    server: Server, client: Client, state: str, is_own: bool
) -> None:
    job_id = client.place(state, 3, "work")
    by = client if is_own else server.connect()
    assert by.says(f"cancel-job {job_id}") == "CANCELLED"
    assert by.last is not None and by.last[1] == len(server.log.records)
    image = server.log.images(job_id)[-1]
    assert (image.kind, image.state, image.reason) == (Kind.DELETE, State.GONE, Reason.CANCELLED)
    assert image.connection == by.session.number
    assert client.says(f"stats-job {job_id}") == "NOT_FOUND"
    assert int(client.asks("stats-tube work")["cmd-delete"]) == 1
    assert by.says(f"cancel-job {job_id}") == "NOT_FOUND"


def test_a_job_of_a_connection_that_ends_is_cancelled_between_two_slices(server: Server) -> None:
    worker, other = server.connect(), server.connect()
    for _ in range(600):
        worker.put()
        worker.takes()
    worker.leaves()
    assert other.says("cancel-job 600") == "CANCELLED"
    server.finish_slices()
    assert other.asks("stats-tube default")["current-jobs-ready"] == "599"


# return-job


def test_a_return_is_a_release_that_says_why(server: Server, client: Client) -> None:
    client.put()
    client.takes()
    assert client.says("return-job 1") == "RETURNED"
    image = server.log.images(1)[-1]
    assert (image.kind, image.reason, image.state) == (Kind.RELEASE, Reason.RETURNED, State.READY)
    assert (image.reserves, image.releases) == (0, 0)
    assert image.connection == client.session.number
    assert not server.log.features
