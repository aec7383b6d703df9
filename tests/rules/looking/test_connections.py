"""Connections are listed, in slices if there are many."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.looks import (
    SHOWN_RESERVED,
    SLICE_CONNECTIONS,
    ConnectionFacts,
)
from tests.rules.conversation import Client, Server


def listed(reply: str | None) -> list[dict[str, str]]:
    """Read a list of connections."""
    assert reply is not None and reply.startswith("OK ")
    rows = reply.splitlines()[3:]
    starts = [at for at, row in enumerate(rows) if row.startswith("- ")]
    ends = [*starts[1:], len(rows)]
    return [
        dict(row[2:].split(": ", 1) for row in rows[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


def numbers(client: Client, reply: str | None) -> list[int]:
    """Give the numbers of listed connections."""
    return [int(each["connection"]) for each in listed(reply or client.hears())]


def test_a_connection_is_described_with_all_that_there_is_to_say(server: Server) -> None:
    asker, worker = server.connect(), server.connect()
    server.queue.connections.facts = lambda session: ConnectionFacts(
        f"peer {session.number}", 7, "shop" if session.number == 2 else "", session.number == 2
    )
    worker.says("use a")
    worker.says("watch a")
    ids = [worker.put(ttr=60), worker.put(ttr=90)]
    for _ in ids:
        worker.takes()
    server.pass_time(2)
    worker.says("reserve")
    server.pass_time(3)
    assert listed(asker.says("list-connections")) == [
        {"connection": "1", "peer": '"peer 1"', "role": '""', "using": '"default"',
         "watching": "1", "mode": "fifo", "reserved": "0", "time-left": "{}", "waiting": "0",
         "buffered": "7", "identity": '""', "tls": "false"},
        {"connection": "2", "peer": '"peer 2"', "role": '"producer worker waiting"',
         "using": '"a"', "watching": "2", "mode": "fifo", "reserved": "2",
         "time-left": "{1: 55, 2: 85}", "waiting": "3", "buffered": "7",
         "identity": '"shop"', "tls": "true"},
    ]  # fmt: skip
    assert asker.last is not None and asker.last[1] == server.log.committed_lsn() > 0


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_reserved_jobs_are_shown_and_all_are_counted(client: Client, more: int) -> None:
    for _ in range(SHOWN_RESERVED + more):
        client.put()
        client.takes()
    (shown,) = listed(client.says("list-connections"))
    assert int(shown["reserved"]) == SHOWN_RESERVED + more
    assert shown["time-left"].count(":") == SHOWN_RESERVED


def test_who_has_ended_is_not_listed(server: Server) -> None:
    asker, other = server.connect(), server.connect()
    other.leaves()
    assert numbers(asker, asker.says("list-connections")) == [1]
    ended = server.connect().session

    def facts(session: Session) -> ConnectionFacts | None:
        return None if session is ended else ConnectionFacts()

    server.queue.connections.facts = facts
    assert numbers(asker, asker.says("list-connections")) == [1]


def test_one_slice_is_answered_at_once_and_one_connection_more_takes_another() -> None:
    server = Server()
    clients = [server.connect() for _ in range(SLICE_CONNECTIONS)]
    asker = clients[0]
    assert len(numbers(asker, asker.says("list-connections"))) == SLICE_CONNECTIONS
    last = server.connect()
    assert asker.says("list-connections") is None
    assert asker.session.is_busy
    last.leaves()
    clients[1].leaves()
    server.connect()
    assert server.finish_slices() == 1
    assert numbers(asker, None) == list(range(1, SLICE_CONNECTIONS + 1))
    assert not asker.session.is_blocked
    assert server.queue.next_due_ns() is None


def test_a_list_ends_though_its_client_has_left(server: Server) -> None:
    clients = [server.connect() for _ in range(SLICE_CONNECTIONS + 1)]
    assert clients[0].says("list-connections") is None
    clients[0].leaves()
    server.finish_slices()
    assert server.queue.next_due_ns() is None
    assert clients[1].says("list-tube-used") == "USING default"
