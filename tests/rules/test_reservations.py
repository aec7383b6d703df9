"""Who gets which job, and who waits."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.wire.replies import Reserved
from tests.rules.conversation import NS, Server
from tests.rules.recording_log import full_disk


def test_the_log_says_who_reserved_a_job_and_until_when(server: Server) -> None:
    server.connect()
    client = server.connect()
    client.put(ttr=60)
    client.says("reserve")
    image = server.log.images(1)[-1]
    assert (image.kind, image.state, image.reason) == (Kind.RESERVE, State.RESERVED, Reason.CLIENT)
    assert (image.connection, image.reserves) == (client.session.number, 1)
    assert image.deadline_ns == server.now_ns + 60 * NS
    assert not image.commits


@pytest.mark.parametrize("is_behind", [False, True])
def test_where_replies_wait_for_reservations_none_is_left_out(is_behind: bool) -> None:
    server = Server()
    server.log.commits_reserves, server.log.is_behind = True, is_behind
    client, other = server.connect(), server.connect()
    other.says("reserve")
    client.put(ttr=60)
    ((reply, lsn),) = other.late
    assert isinstance(reply, Reserved)
    assert lsn == len(server.log.records)
    assert other.hears() == "RESERVED 1 1\r\nx"
    other.says("touch 1")
    assert server.log.images(1)[-1].kind is (Kind.RESERVE if is_behind else Kind.TOUCH)


def test_a_full_disk_has_no_room_for_them_and_jobs_leave_all_the_same() -> None:
    server = Server()
    client = server.connect()
    client.put(ttr=60)
    server.log.commits_reserves = True
    server.log.budget = full_disk()
    assert client.takes() == 1
    assert server.log.images(1)[-1].kind is Kind.PUT
