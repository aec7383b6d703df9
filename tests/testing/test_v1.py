"""The double for code that speaks the first protocol: the same record, assertions and faults."""

from __future__ import annotations

import socket

import pytest

from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.testing.sockets import BeanstalkServer

pytestmark = pytest.mark.beanstalk(dialect="v1")


def test_commands_are_counted_and_recorded_as_others_are(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as old:
        old.ask(b"put 5 2\r\nhi\r\nreserve\r\nbury 1 7\r\npeek\r\npeek 1\r\nkick 1\r\nstats\r\n")
        old.ask(b"stats 1\r\nreserve\r\nrelease 1 9\r\ndelete 1\r\ntouch 1\r\n")
    assert beanstalk.counts() == {
        "put": 1, "reserve": 2, "bury": 1, "peek": 2, "kick": 1, "stats": 2, "release": 1,
        "delete": 1,
    }  # fmt: skip
    put, reserve, *_, unknown = beanstalk.commands
    assert (put.tube, put.job_id, put.body, put.reply) == ("default", 1, b"hi", b"INSERTED\r\n")
    assert put.args == {"pri": 5, "delay": 0, "ttr": 120, "bytes": 2}
    assert (reserve.job_id, reserve.word) == (1, "RESERVED")
    assert reserve.reply == b"RESERVED 1 5 2\r\nhi\r\n"
    assert (unknown.name, unknown.word) == ("", "UNKNOWN_COMMAND")


def test_the_assertions_see_them(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as old:
        old.ask(b"put 5 2\r\nhi\r\nreserve\r\nrelease 1 7\r\nreserve\r\nbury 1 3\r\n")
        beanstalk.assert_job_put(1, tube="default", body="hi", priority=5, ttr=120)
        beanstalk.assert_job_reserved(2, body=b"hi")
        beanstalk.assert_job_released(1, job=1, priority=7, delay=0)
        beanstalk.assert_job_buried(1)
        beanstalk.assert_jobs(buried=1, ready=0)
        beanstalk.assert_command("reserve", 2)
        old.ask(b"delete 1\r\n")
    beanstalk.assert_job_deleted(1)
    beanstalk.assert_no_jobs()


def test_a_refused_put_put_nothing(beanstalk: Beanstalk) -> None:
    beanstalk.drain()
    with beanstalk.connect() as old:
        assert old.ask(b"put 5 2\r\nhi\r\n") == b"NOT_INSERTED\r\n"
    beanstalk.assert_job_put(0)
    assert beanstalk.commands[0].word == "NOT_INSERTED"


@pytest.mark.parametrize(
    ("command", "word", "line", "said"),
    [
        ("put", "OUT_OF_MEMORY", b"put 5 2\r\nhi\r\n", b"NOT_INSERTED\r\n"),
        ("put", "JOB_TOO_BIG", b"put 5 2\r\nhi\r\n", b"NOT_INSERTED\r\n"),
        ("release", "OUT_OF_MEMORY", b"release 1 1\r\n", b"OUT_OF_MEMORY\r\n"),
        ("kick", "INTERNAL_ERROR", b"kick 1\r\n", b"INTERNAL_ERROR\r\n"),
        ("peek", "NOT_FOUND", b"peek\r\n", b"NOT_FOUND\r\n"),
    ],
)
def test_a_planted_error_is_said_in_the_words_of_the_dialect(
    command: str, word: str, line: bytes, said: bytes, beanstalk: Beanstalk
) -> None:
    beanstalk.answer_next(command, word)
    with beanstalk.connect() as old:
        assert old.ask(line) == said


def test_a_planted_end_of_a_wait_ends_the_connection_since_there_is_no_word_for_it(
    beanstalk: Beanstalk,
) -> None:
    beanstalk.answer_next("reserve", "TIMED_OUT")
    with beanstalk.connect() as old:
        assert old.ask(b"reserve\r\n") == b""
        assert old.is_closed
    assert beanstalk.commands[0].word is None


def test_the_last_second_of_a_ttr_says_nothing_to_an_old_worker(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as old, beanstalk.connect("modern") as modern:
        old.ask(b"put 5 2\r\nhi\r\nreserve\r\nreserve\r\n")
        beanstalk.deadline_soon()
        assert old.take() == b""
        assert beanstalk.waiting() == 1
        modern.ask(b"put 0 0 9 1\r\nx\r\n")
        assert old.take() == b"RESERVED 2 0 1\r\nx\r\n"


def test_a_test_may_put_jobs_and_speak_either_dialect_itself(beanstalk: Beanstalk) -> None:
    assert beanstalk.put("hi", priority=3, ttr=30) == 1
    with beanstalk.connect() as old, beanstalk.connect("modern") as modern:
        assert modern.ask(b"peek-ready\r\n") == b"FOUND 1 2\r\nhi\r\n"
        assert old.ask(b"reserve\r\n") == b"RESERVED 1 3 2\r\nhi\r\n"
    assert [each.name for each in beanstalk.commands] == ["peek-ready", "reserve"]


@pytest.mark.beanstalk(dialect="modern")
def test_a_modern_double_has_an_old_connection_too(beanstalk: Beanstalk) -> None:
    with beanstalk.connect("v1") as old:
        assert old.ask(b"put 5 2\r\nhi\r\n") == b"INSERTED\r\n"
    with beanstalk.connect() as modern:
        assert modern.ask(b"reserve\r\n") == b"RESERVED 1 2\r\nhi\r\n"


def test_what_was_said_holds_after_a_power_loss(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as old:
        old.ask(b"put 5 2\r\nhi\r\n")
    beanstalk.lose_power()
    beanstalk.start()
    with beanstalk.connect() as old:
        assert old.ask(b"reserve\r\n") == b"RESERVED 1 5 2\r\nhi\r\n"


def test_a_dialect_that_there_is_not_is_refused(beanstalk: Beanstalk) -> None:
    with pytest.raises(ValueError, match="no dialect: 'v0'; there are modern, v1"):
        Beanstalk(dialect="v0")
    with pytest.raises(ValueError, match="no dialect: 'V1'"):
        beanstalk.connect("V1")


def test_the_port_of_the_other_double_speaks_it_too(beanstalk_server: BeanstalkServer) -> None:
    with socket.create_connection(beanstalk_server.address) as old:
        old.sendall(b"put 5 2\r\nhi\r\n")
        assert old.recv(100) == b"INSERTED\r\n"
        old.sendall(b"reserve\r\nreserve\r\n")
        replies = old.makefile("rb")
        assert [replies.readline(), replies.readline()] == [b"RESERVED 1 5 2\r\n", b"hi\r\n"]
        beanstalk_server.wait_until(lambda: beanstalk_server.waiting() == 1)
        beanstalk_server.advance(120)
        assert replies.readline() == b"RESERVED 1 5 2\r\n"
        replies.close()
