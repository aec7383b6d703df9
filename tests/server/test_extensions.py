"""Commands that beanstalkd does not have, over the wire and over crashes."""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.storage.io_thread import InlineIo
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.replies import MAX_WHY_BYTES, CannotHandOver, HandingOver
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.server.conversing import LOGGED, check_conversation

MANY = 3 * SLICE_JOBS


def filled(io: HeldIo | None = None) -> MemoryServer:
    server = MemoryServer(directory=MemoryDirectory(), io=InlineIo if io is None else lambda: io)
    client = server.connect()
    client.send(b"put 0 0 60 1\r\nx\r\n" * MANY)
    finish(server, HeldIo() if io is None else io)
    assert client.take().count(b"INSERTED") == MANY
    return server


CONVERSATIONS = {
    "flushes": (
        b"put 0 0 1 18\r\nflush-tube default\r\nflush-tube a\r\nflush-tube default 1\r\n"
        b"flush-tube\r\nflush-tube -a\r\npeek 1\r\nflush-tube default all\r\n",
        b"INSERTED 1\r\nFLUSHED 0\r\nBAD_FORMAT\r\nBAD_FORMAT\r\nBAD_FORMAT\r\n"
        b"FOUND 1 18\r\nflush-tube default\r\nFLUSHED 1\r\n",
    ),
    "weights and modes": (
        b"watch a 3\r\nwatch b 1\r\nignore default\r\nreserve-mode weighted\r\nuse b\r\n"
        b"put 0 0 60 1\r\nx\r\nput 0 0 60 19\r\nreserve-mode fifo\r\n\r\nreserve-mode x\r\n"
        b"watch a 1001\r\nreserve-with-timeout 0\r\nreserve\r\nreserve-mode fifo\r\n",
        b"WATCHING 2\r\nWATCHING 3\r\nWATCHING 2\r\nUSING weighted\r\nUSING b\r\n"
        b"INSERTED 1\r\nINSERTED 2\r\nBAD_FORMAT\r\nBAD_FORMAT\r\nRESERVED 1 1\r\nx\r\n"
        b"RESERVED 2 19\r\nreserve-mode fifo\r\n\r\nUSING fifo\r\n",
    ),
    "cancels and returns": (
        b"put 5 0 60 1\r\nx\r\nput 5 0 60 1\r\ny\r\nreserve\r\ncancel-job\r\nreturn-job x\r\n"
        b"cancel-job -1\r\nreturn-job 1x\r\ncancel-job 1 2\r\nreturn-job 1 -2\r\n"
        b"return-job 1 4294967296\r\nreturn-job 1 2 3\r\ncancel-job " + b"0" * 300 + b"1\r\n"
        b"cancel-jobs 1\r\nreturn-job1 1\r\nCANCEL-JOB 1\r\ncancel-job 18446744073709551615\r\n"
        b"return-job 99\r\nreturn-job 0 4294967295\r\npeek-ready\r\n"
        b"return-job 1 4294967295\r\npeek-delayed\r\ncancel-job 2\r\n",
        b"INSERTED 1\r\nINSERTED 2\r\nRESERVED 1 1\r\nx\r\n"
        + b"BAD_FORMAT\r\n" * 9
        + b"UNKNOWN_COMMAND\r\n" * 3
        + b"NOT_FOUND\r\n" * 3
        + b"FOUND 2 1\r\ny\r\n"
        b"RETURNED\r\nFOUND 1 1\r\nx\r\nCANCELLED\r\n",
    ),
    "wrong waits": (
        b"wait-job\r\nwait-job 1\r\nwait-job 1 x\r\nwait-job 1 5 6\r\nwait-job 1 5 \r\n"
        b"wait-job x 5\r\nwait-job -1 5\r\nwait-job 1 -5\r\nwait-job 1 2147483648\r\n"
        b"wait-job 18446744073709551616 1\r\ncancel-reserve \r\ncancel-reserve 1\r\n",
        b"BAD_FORMAT\r\n" * 12,
    ),
    "policies": (
        b"put 0 0 1 1\r\nx\r\ntube-policy default max-jobs=1 max-reserves=3\r\nput 0 0 1 1\r\nx\r\n"
        b"tube-policy default\r\nbogus\r\n",
        b"INSERTED 1\r\nPOLICY\r\nOUT_OF_MEMORY\r\n"
        b"OK 82\r\n---\nmax-reserves: 3\nmax-reserves-from: command\nmax-jobs: 1\n"
        b"max-jobs-from: command\n\r\nUNKNOWN_COMMAND\r\n",
    ),
}


@LOGGED
@pytest.mark.parametrize("title", CONVERSATIONS)
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], 1000, is_logged=is_logged)


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
        server.service.queue.hand_over = {"b": refusal}.__getitem__
        assert client.ask(b"promote b\r\n") == said
