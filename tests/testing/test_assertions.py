"""The assertions: what they let pass, and what they say when they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.testing.inspection import described
from beanstalk_twisted.testing.recording import shown

LIFE = (
    b"use mail\r\nwatch mail\r\nput 1 0 60 1\r\na\r\nput 2 5 70 1\r\nb\r\nreserve\r\n"
    b"touch 1\r\nrelease 1 3 0\r\nreserve\r\nbury 1 4\r\ndelete 1\r\ndelete 9\r\n"
)
"""Two jobs of the tube mail, of which the first has gone through everything."""


@pytest.fixture
def lived(beanstalk: Beanstalk) -> Beanstalk:
    beanstalk.connect().ask(LIFE)
    return beanstalk


TRUE: dict[str, Callable[[Beanstalk], None]] = {
    "put": lambda double: double.assert_job_put(2),
    "put into": lambda double: double.assert_job_put(2, tube="mail"),
    "put elsewhere": lambda double: double.assert_job_put(0, tube="default"),
    "put bytes": lambda double: double.assert_job_put(body=b"a"),
    "put text": lambda double: double.assert_job_put(body="b"),
    "put what": lambda double: double.assert_job_put(2, body=lambda body: len(body) == 1),
    "put how": lambda double: double.assert_job_put(priority=2, delay=5, ttr=70),
    "put at once": lambda double: double.assert_job_put(delay=0, body=b"a"),
    "reserved": lambda double: double.assert_job_reserved(2, tube="mail", body="a"),
    "touched": lambda double: double.assert_job_touched(job=1),
    "released": lambda double: double.assert_job_released(priority=3, delay=0, body=b"a"),
    "buried": lambda double: double.assert_job_buried(tube="mail"),
    "deleted": lambda double: double.assert_job_deleted(body="a", tube="mail", job=1),
    "not deleted": lambda double: double.assert_job_deleted(0, job=9),
    "tried": lambda double: double.assert_command("delete", 2),
    "asked": lambda double: double.assert_command("touch"),
    "never asked": lambda double: double.assert_command("kick", 0),
    "empty": lambda double: double.assert_tube_empty("default"),
    "no such tube": lambda double: double.assert_tube_empty("nowhere"),
    "jobs": lambda double: double.assert_jobs(delayed=1),
    "jobs of": lambda double: double.assert_jobs("mail", ready=0, reserved=0, delayed=1, buried=0),
}

FALSE: dict[str, Callable[[Beanstalk], None]] = {
    "wanted 1 job INSERTED, but 2 were": lambda double: double.assert_job_put(),
    "wanted 1 job INSERTED (body=b'c'), but 0 were\nevery put:\n  t=0s connection 1: "
    "'put 1 0 60 1' in mail body b'a' -> INSERTED\n  t=0s connection 1: "
    "'put 2 5 70 1' in mail body b'b' -> INSERTED": lambda double: double.assert_job_put(body=b"c"),
    "(pri=1, ttr=70), but 0": lambda double: double.assert_job_put(priority=1, ttr=70),
    "wanted 3 jobs RESERVED, but 2": lambda double: double.assert_job_reserved(3),
    "TOUCHED (job=2), but 0": lambda double: double.assert_job_touched(job=2),
    "RELEASED (pri=4), but 0": lambda double: double.assert_job_released(priority=4),
    "BURIED (tube='default'), but 0": lambda double: double.assert_job_buried(tube="default"),
    "wanted 2 jobs DELETED, but 1 was\n": lambda double: double.assert_job_deleted(2),
    "'delete 9' -> NOT_FOUND": lambda double: double.assert_job_deleted(2),
    "kick was to be received at least once, and never was": lambda double: double.assert_command(
        "kick"
    ),
    "delete was to be received once, and was 2": lambda double: double.assert_command("delete", 1),
    "in all tubes: wanted no job\njobs that are there:\n  2 in mail: delayed, 5 s left, "
    "priority 2, b'b'": lambda double: double.assert_no_jobs(),
    "in the tube mail: wanted no job": lambda double: double.assert_tube_empty("mail"),
    "wanted 1 ready, but 0 were; wanted 0 delayed, but 1 was\n": lambda double: double.assert_jobs(
        ready=1, delayed=0
    ),
    "in the tube default: wanted 1 delayed, but 0 were\njobs that are there:\n  2 in": lambda d: (
        d.assert_jobs("default", delayed=1)
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_is_so_passes(lived: Beanstalk, name: str) -> None:
    TRUE[name](lived)


@pytest.mark.parametrize("message", FALSE)
def test_what_is_not_so_fails_and_shows_what_there_was(lived: Beanstalk, message: str) -> None:
    with pytest.raises(AssertionError) as failed:
        FALSE[message](lived)
    assert message in str(failed.value)


def test_each_command_is_recorded_with_all_that_belongs_to_it(lived: Beanstalk) -> None:
    lived.advance(7)
    lived.connect().ask(b"reserve-with-timeout 2\r\n")
    lived.advance(3)
    use, watch, put, *_ = lived.commands
    assert (use.name, use.args, use.tube, use.reply) == ("use", {"tube": "mail"}, "mail",
                                                         b"USING mail\r\n")  # fmt: skip
    assert watch.word == "WATCHING"
    assert put.args == {"pri": 1, "delay": 0, "ttr": 60, "bytes": 1}
    assert (put.connection, put.time, put.line, put.body, put.job_id) == (
        1, 0, b"put 1 0 60 1", b"a", 1,
    )  # fmt: skip
    late = lived.commands[-1]
    assert (late.connection, late.args, late.word) == (2, {"seconds": 2}, "TIMED_OUT")
    assert late.time == pytest.approx(7) and late.answered_at == pytest.approx(9)


def test_a_line_that_is_too_long_is_recorded_in_part(beanstalk: Beanstalk) -> None:
    with beanstalk.connect() as talk:
        assert talk.ask(b"a" * 300 + b"\r\nuse b\r\n") == b"BAD_FORMAT\r\nUSING b\r\n"
    assert [(len(each.line), each.word) for each in beanstalk.commands] == [
        (224, "BAD_FORMAT"), (5, "USING"),
    ]  # fmt: skip


def test_long_bodies_are_shown_in_part(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x" * 61)
    assert described(beanstalk.jobs()[0]).endswith(f"{b'x' * 60!r}... (61 bytes)")
    assert shown(b"x" * 60) == repr(b"x" * 60)


def test_an_assertion_that_says_nothing_is_a_mistake_of_the_test(beanstalk: Beanstalk) -> None:
    with pytest.raises(ValueError, match="no command: 'putt'"):
        beanstalk.assert_command("putt", 0)
    with pytest.raises(ValueError, match="name a state, such as ready=1"):
        beanstalk.assert_jobs("mail")
