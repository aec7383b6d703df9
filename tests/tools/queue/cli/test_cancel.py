"""``beanstalk cancel``, and what becomes of the job of a ``reserve --exec`` that is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_client import ours
from tests.server_process import LIMIT_S, ServerProcess, theirs
from tests.tools.queue.cli.test_commands import MAX_JOB_BYTES, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run our server; each test has tubes of its own."""
    command = ours("-p", 0, "-z", MAX_JOB_BYTES)
    with ServerProcess(command, tmp_path_factory.mktemp("server")) as running:
        yield Server(running)


def test_jobs_in_any_state_are_cancelled(server: Server) -> None:
    ready, reserved = (int(server.run("put", "-t", "states", "x")) for _ in range(2))
    with server.process.connect() as worker:
        assert worker.ask(b"reserve-job %d\r\n" % reserved).startswith(b"RESERVED")
        server.run("delete", reserved, code=4)
        assert server.documents("cancel", ready, 999_999, reserved, code=4) == [
            {"v": 1, "id": ready, "cancelled": True},
            {"v": 1, "id": 999_999, "cancelled": False, "reply": "NOT_FOUND"},
            {"v": 1, "id": reserved, "cancelled": True},
        ]
        assert worker.ask(b"touch %d\r\n" % reserved) == b"NOT_FOUND\r\n"
    assert f"NOT_FOUND: there is no job {ready}\n" in server.result("cancel", ready).stderr


@pytest.mark.parametrize("word", ["-1", "x", str(1 << 64)])
def test_what_is_no_number_of_a_job_is_refused(server: Server, word: str) -> None:
    result = server.result("cancel", "--", word)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_job_whose_command_is_interrupted_has_lost_no_attempt(server: Server) -> None:
    job = server.run("put", "-t", "returned", "-p", 3, "x").strip()
    process = server.start(
        "reserve", "-t", "returned", "--delay", "60", "--exec", "echo begun; sleep 600"
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (
        143, f"beanstalk: SIGTERM: the command was ended, job {job} was given back\n"
    )  # fmt: skip
    (stats,) = server.documents("stats", "-j", job)
    assert [stats[key] for key in ("state", "pri", "reserves", "releases")] == ["delayed", 3, 0, 0]


def test_a_job_that_is_cancelled_ends_its_command(server: Server) -> None:
    job = server.run("put", "-t", "cancelled", "--ttr", 1, "x").strip()
    process = server.start("reserve", "-t", "cancelled", "--exec", "echo begun; sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    server.run("cancel", job)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 4
    assert f"job {job} is not ours any more" in said


def test_the_real_one_has_no_cancel(tmp_path: Path) -> None:
    with ServerProcess(theirs(), tmp_path) as running:
        server = Server(running)
        job = server.run("put", "x").strip()
        result = server.result("cancel", job)
        assert result.exit_code == 5
        assert "this server has no cancel-job; `delete` deletes jobs" in result.stderr
        assert server.state(job) == "ready"
