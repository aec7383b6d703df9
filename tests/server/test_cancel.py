"""`cancel-job` and `return-job` as they come from the wire, wrong lines among them."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer

JOBS = b"put 5 0 60 1\r\nx\r\nput 5 0 60 1\r\ny\r\nreserve\r\n"
"""Job 1 is reserved by who sends this, job 2 is ready."""

WRONG = [
    "", " ", " x", " -1", " +1", " 1x", " 1.0", " 0x1", " 1\0", " \xff", " 1\t", " default",
    " 1 2 3", f" {1 << 64}", " " + "9" * 100, " 1 " + "9" * 100,
]  # fmt: skip


def snapshot(server: MemoryServer) -> list[tuple[object, ...]]:
    jobs = server.service.queue.state.jobs
    looked = [jobs.look(each) for each in jobs]
    return [(job.job_id, job.state, job.reserves, job.deadline_ns) for job in looked if job]


@pytest.mark.parametrize("word", ["cancel-job", "return-job"])
@pytest.mark.parametrize("rest", WRONG)
def test_a_wrong_line_has_one_reply_and_does_nothing(word: str, rest: str) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(JOBS)
    before = snapshot(server)
    line = f"{word}{rest}\r\n".encode("latin-1")
    assert client.ask(line + b"list-tube-used\r\n") == b"BAD_FORMAT\r\nUSING default\r\n"
    assert snapshot(server) == before


@pytest.mark.parametrize(
    "line", ["cancel-job 1 2", "return-job 1 -2", "return-job 1 x", f"return-job 1 {1 << 32}"]
)
def test_so_has_one_with_a_wrong_second_field(line: str) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(JOBS)
    before = snapshot(server)
    assert client.ask(f"{line}\r\n".encode()) == b"BAD_FORMAT\r\n"
    assert snapshot(server) == before


@pytest.mark.parametrize(
    "word", [b"cancel-jobs", b"cancel", b"return", b"return-job1", b"CANCEL-JOB"]
)
def test_other_words_are_unknown(word: bytes) -> None:
    client = MemoryServer().connect()
    client.ask(JOBS)
    assert client.ask(word + b" 1\r\n") == b"UNKNOWN_COMMAND\r\n"


@pytest.mark.parametrize(
    "line", [b"cancel-job " + b"0" * 300 + b"1\r\n", b"return-job 1 " + b"0" * 300]
)
def test_a_line_that_is_too_long_is_skipped(line: bytes) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(JOBS)
    before = snapshot(server)
    assert (
        client.ask(line.rstrip() + b"\r\nlist-tube-used\r\n") == b"BAD_FORMAT\r\nUSING default\r\n"
    )
    assert snapshot(server) == before


@pytest.mark.parametrize("line", ["cancel-job {}", "return-job {}", "return-job {} 4294967295"])
@pytest.mark.parametrize("job_id", ["0", "99", str((1 << 64) - 1)])
def test_a_job_that_is_not_there_is_not_found(line: str, job_id: str) -> None:
    client = MemoryServer().connect()
    client.ask(JOBS)
    assert client.ask(f"{line.format(job_id)}\r\n".encode()) == b"NOT_FOUND\r\n"


def test_the_longest_delay_is_kept() -> None:
    client = MemoryServer().connect()
    client.ask(JOBS)
    assert client.ask(b"return-job 1 4294967295\r\n") == b"RETURNED\r\n"
    assert b"delay: 4294967295\n" in client.ask(b"stats-job 1\r\n")


def test_both_are_announced() -> None:
    known = MemoryServer().connect().ask(b"capabilities\r\n")
    assert b"- cancel-job\n" in known and b"- return-job\n" in known
