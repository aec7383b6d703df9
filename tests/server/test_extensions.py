"""Commands that beanstalkd does not have, over the wire and over crashes."""

from __future__ import annotations

from functools import partial

import pytest

from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.replies import MAX_WHY_BYTES, CannotHandOver, HandingOver
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo

MANY = 3 * SLICE_JOBS


def filled(count: int = MANY, *, io: HeldIo | None = None) -> MemoryServer:
    """Start a server with a log and so many ready jobs."""
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory) if io is None else MemoryServer(
        directory=directory, io=lambda: io
    )  # fmt: skip
    client = server.connect()
    client.send(b"put 0 0 60 1\r\nx\r\n" * count)
    server.advance()
    while io:
        io.step()
        server.advance()
    assert client.take().count(b"INSERTED") == count
    return server


def test_a_flush_is_answered_in_its_place_and_others_are_served_meanwhile() -> None:
    server = filled()
    client, other = server.connect(), server.connect()
    client.send(b"list-tube-used\r\nflush-tube default ready\r\npeek 1\r\nbogus\r\n")
    other.send(b"use a\r\n")
    assert other.take() == b"USING a\r\n"
    server.advance()
    assert client.take() == (
        b"USING default\r\nFLUSHED %d\r\nNOT_FOUND\r\nUNKNOWN_COMMAND\r\n" % MANY
    )


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_flush_may_come_in_pieces_and_behind_a_body(cut: int) -> None:
    line = b"put 0 0 1 1\r\nx\r\nflush-tube a\r\nflush-tube default all\r\n"
    client = MemoryServer().connect()
    replies = b""
    for at in range(0, len(line), cut):
        replies += client.ask(line[at : at + cut])
    assert replies == b"INSERTED 1\r\nFLUSHED 0\r\nFLUSHED 1\r\n"


def test_a_bad_line_changes_nothing_and_a_body_is_no_command() -> None:
    client = MemoryServer().connect()
    assert client.ask(b"put 0 0 1 18\r\nflush-tube default\r\n") == b"INSERTED 1\r\n"
    assert client.ask(b"flush-tube default 1\r\nflush-tube\r\nflush-tube -a\r\n") == (
        b"BAD_FORMAT\r\n" * 3
    )
    assert client.ask(b"peek 1\r\n") == b"FOUND 1 18\r\nflush-tube default\r\n"


@pytest.mark.parametrize("is_half", [False, True])
def test_a_flush_ends_though_the_peer_does(is_half: bool) -> None:
    server = filled()
    client, other = server.connect(), server.connect()
    client.send(b"flush-tube default\r\n")
    if is_half:
        client.half_close()
    else:
        client.hang_up()
    server.advance()
    assert client.take() == (b"FLUSHED %d\r\n" % MANY if is_half else b"")
    assert b"current-jobs-ready: 0\n" in other.ask(b"stats-tube default\r\n")


def test_a_flush_is_answered_when_all_of_it_is_durable_and_not_before() -> None:
    io = HeldIo()
    server = filled(io=io)
    client = server.connect()
    client.send(b"flush-tube default\r\n")
    server.advance()
    assert (client.take(), len(server.service.queue.state.jobs)) == (b"", 0)
    replies = b""
    while not replies:
        io.step()
        server.advance()
        replies = client.take()
    assert replies == b"FLUSHED %d\r\n" % MANY
    assert server.directory is not None
    found = MemoryServer(directory=server.directory.after_power_loss())
    assert len(found.service.queue.state.jobs) == 0


@pytest.mark.parametrize("steps", range(6))
def test_a_flush_that_was_answered_survives_a_kill_and_one_that_was_not_loses_nothing_else(
    steps: int,
) -> None:
    io = HeldIo()
    server = filled(io=io)
    client = server.connect()
    client.send(b"use a\r\nput 0 0 60 1\r\ny\r\nflush-tube default\r\n")
    server.advance()
    for _ in range(steps):
        if io:
            io.step()
        server.advance()
    replies = client.take()
    assert server.directory is not None
    found = MemoryServer(directory=server.directory.after_kill())
    jobs = found.service.queue.state.jobs
    if b"INSERTED" in replies:
        assert (MANY + 1) in jobs
    if b"FLUSHED" in replies:
        assert list(jobs) == [MANY + 1]
    assert steps in range(1, 5) or (b"FLUSHED" in replies) == (steps == 5)


def test_the_double_records_a_flush_and_answers_it_as_planted(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x", tube="mail")
    beanstalk.answer_next("flush-tube", "OUT_OF_MEMORY")
    with beanstalk.connect() as client:
        assert client.ask(b"flush-tube mail\r\n" * 2) == b"OUT_OF_MEMORY\r\nFLUSHED 1\r\n"
    first, second = [each for each in beanstalk.commands if each.name == "flush-tube"]
    assert (first.tube, first.word, second.word) == ("mail", "OUT_OF_MEMORY", "FLUSHED")
    assert second.args == {"tube": "mail", "state": "all"}


def test_a_list_is_answered_in_its_place_between_other_commands() -> None:
    client = MemoryServer().connect()
    client.ask(b"put 0 0 60 1\r\nx\r\n" * 3)
    replies = client.ask(b"peek 9\r\nlist-jobs default all 2\r\nlist-jobs a all 0\r\npeek 9\r\n")
    assert replies.startswith(b"NOT_FOUND\r\nOK ")
    assert replies.endswith(b"\ncursor: r0-2\n\r\nBAD_FORMAT\r\nNOT_FOUND\r\n")
    reply = client.ask(b"list-jobs default all 2 r0-2\r\n")
    head, _, document = reply.partition(b"\r\n")
    assert head == b"OK %d" % (len(document) - 2)
    assert document.startswith(b"---\njobs:\n- id: 3\n") and b"cursor" not in document


def test_a_page_of_many_jobs_that_nobody_reads_ends_with_its_connection() -> None:
    server = filled()
    client, other = server.connect(), server.connect()
    client.send(b"list-jobs default all 1000\r\n" * 10)
    client.hang_up()
    server.advance()
    assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_connections_are_listed_with_their_peers_and_what_waits_of_them() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    other.send(b"put 0 0 60 9\r\nabc")
    other.send(b"defghi\r\nreserve\r\nreserve\r\npeek 1\r\n")
    reply = client.ask(b"list-connections\r\n")
    assert reply.count(b'  peer: "127.0.0.1:1"\n') == 2
    assert b"- connection: 2\n" in reply
    assert b'  role: "producer worker waiting"\n' in reply
    assert reply.endswith(b'  buffered: 8\n  identity: ""\n  tls: false\n\r\n')
    other.hang_up()
    assert client.ask(b"list-connections\r\n").count(b"- connection: ") == 1


@pytest.mark.parametrize(
    ("sent", "held"),
    [
        (b"put 0 0 60 9\r\nhalf", 4), (b"put-at 0 0 60 9\r\nhalf", 4), (b"put-batch 2\r\n0 0 6", 5),
        (b"put-batch 3\r\n0 0 60 5\r\nwhole\r\n0 0 60 9\r\nhalf", 9),
    ],
)  # fmt: skip
def test_what_has_come_of_an_unfinished_job_is_buffered(sent: bytes, held: int) -> None:
    server = MemoryServer()
    asker, producer = server.connect(), server.connect()
    producer.send(sent)
    shown = asker.ask(b"list-connections\r\n").split(b"  buffered: ")[-1]
    assert shown.startswith(b"%d\n" % held)


WEIGHED = (
    b"watch a 3\r\nwatch b 1\r\nignore default\r\nreserve-mode weighted\r\nuse b\r\n"
    b"put 0 0 60 1\r\nx\r\nput 0 0 60 19\r\nreserve-mode fifo\r\n\r\nreserve-mode x\r\n"
    b"watch a 1001\r\nreserve-with-timeout 0\r\nreserve\r\nreserve-mode fifo\r\n"
)


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50, 1000])
def test_weights_and_modes_may_come_in_pieces_and_between_bodies(cut: int) -> None:
    client = MemoryServer().connect()
    replies = b"".join(client.ask(WEIGHED[at : at + cut]) for at in range(0, len(WEIGHED), cut))
    assert replies == (
        b"WATCHING 2\r\nWATCHING 3\r\nWATCHING 2\r\nUSING weighted\r\nUSING b\r\n"
        b"INSERTED 1\r\nINSERTED 2\r\nBAD_FORMAT\r\nBAD_FORMAT\r\nRESERVED 1 1\r\nx\r\n"
        b"RESERVED 2 19\r\nreserve-mode fifo\r\n\r\nUSING fifo\r\n"
    )


def test_a_mode_behind_a_reserve_that_waits_is_set_when_that_has_ended() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    client.send(b"reserve-with-timeout 5\r\nreserve-mode weighted\r\nwatch a 2\r\n")
    assert b"  mode: fifo\n" in other.ask(b"list-connections\r\n")
    server.advance(5)
    assert client.take() == b"TIMED_OUT\r\nUSING weighted\r\nWATCHING 2\r\n"
    assert b"  mode: weighted\n" in other.ask(b"list-connections\r\n")
    client.send(b"reserve\r\n")
    client.hang_up()
    assert other.ask(b"use a\r\nput 0 0 60 1\r\nx\r\n") == b"USING a\r\nINSERTED 1\r\n"
    assert b"current-watching: 0\n" in other.ask(b"stats-tube a\r\n")


def test_the_double_records_a_weight(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as client:
        client.ask(b"watch mail 5\r\nreserve-mode weighted\r\n")
    first, second = beanstalk.commands[:2]
    assert (first.name, first.args, first.word) == (
        "watch", {"tube": "mail", "weight": 5}, "WATCHING",
    )  # fmt: skip
    assert (second.name, second.args, second.word) == (
        "reserve-mode", {"mode": "weighted"}, "USING",
    )  # fmt: skip


def test_promote_takes_a_name_or_none_and_no_empty_one() -> None:
    server = MemoryServer()
    names: list[str] = []

    def hand_over(name: str) -> HandingOver:
        names.append(name)
        return HandingOver(b"b:1")

    server.service.queue.hand_over = hand_over
    client = server.connect()
    for line in (b"promote ", b"promote  ", b"promote a b", b"promote \xff"):
        assert client.ask(line + b"\r\n") == b"BAD_FORMAT\r\n"
    assert names == []
    assert client.ask(b"promote\r\npromote b:1\r\n") == b"HANDING_OVER b:1\r\n" * 2
    assert names == ["", "b:1"]


def test_why_nobody_is_handed_over_to_is_one_line_that_clients_can_take() -> None:
    server = MemoryServer()
    client = server.connect()
    assert client.ask(b"promote\r\n").startswith(b"CANNOT_HAND_OVER the server is not replicated")
    assert client.ask(b"stats-replication\r\n") == b"OK 16\r\n---\nrole: alone\n\r\n"
    said = b"CANNOT_HAND_OVER %s\r\n" % (b"?" * MAX_WHY_BYTES)
    for size in (MAX_WHY_BYTES, MAX_WHY_BYTES + 1):
        refusal = CannotHandOver("\xe9" * size)
        server.service.queue.hand_over = partial(_always, refusal)
        assert client.ask(b"promote b\r\n") == said


def _always(refusal: CannotHandOver, name: str) -> CannotHandOver:
    return refusal
