"""What a deploy and a cancel do to a job that a worker has in hand, with processes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.end_to_end.test_stopping import facts, serve
from tests.end_to_end.test_worker import stop, work
from tests.server_process import Connection, wait_until

LONG = "sleep 600"
INSPECT = "from beanstalk_twisted.programs import binlog_inspect; binlog_inspect()"


def put(connection: Connection, ttr_s: int = 600) -> int:
    return int(connection.ask(b"put 7 0 %d 1\r\nx\r\n" % ttr_s).split()[1])


def is_in_hand(connection: Connection, job: int) -> bool:
    return facts(connection, job)["state"] == "reserved"


def test_a_deploy_costs_a_long_job_no_attempt(tmp_path: Path) -> None:
    with serve(tmp_path) as server, server.connect() as connection:
        assert connection.ask(b"tube-policy default max-reserves=1\r\n") == b"POLICY\r\n"
        job = put(connection)
        for deploy in range(3):
            begun = tmp_path / f"begun-{deploy}"
            worker = work(
                server, tmp_path, "--attempts", "1", "--finish", "0", "--shell",
                f"touch {begun}; {LONG}",
            )  # fmt: skip
            wait_until(begun.exists)
            assert f"job {job} of default, attempt 1: returned" in stop(worker)
            found = facts(connection, job)
            assert [found[key] for key in ("state", "pri", "reserves", "timeouts", "releases")] == [
                "ready", "7", "0", "0", "0",
            ]  # fmt: skip
        server.kill()
    with serve(tmp_path) as server, server.connect() as connection:
        assert facts(connection, job)["reserves"] == "0"
        worker = work(
            server, tmp_path, "--attempts", "1", "--shell", "echo $BEANSTALK_ATTEMPT > attempt"
        )
        wait_until(lambda: connection.ask(b"stats-job %d\r\n" % job) == b"NOT_FOUND\r\n")
        stop(worker)
        assert (tmp_path / "attempt").read_text() == "1\n"
        assert server.terminate() in (0, -signal.SIGTERM)
    told = subprocess.run(
        [sys.executable, "-c", INSPECT, "jobs", "--explain", str(job), "log"],
        cwd=tmp_path, text=True, capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert told.count("ready: this reservation does not count") == 3


def with_words(words: str) -> list[str]:
    """The processes with these words in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text())
    return [line for line in found if words in line]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("number", range(5))
def test_a_command_that_begins_while_its_worker_stops_ends_with_it(
    number: int, tmp_path: Path
) -> None:
    with serve(tmp_path) as server, server.connect() as connection:
        job = put(connection)
        worker = work(server, tmp_path, "--finish", "0", "--shell", f": {tmp_path}; {LONG}")
        wait_until(lambda: is_in_hand(connection, job))
        stop(worker)
        wait_until(lambda: not with_words(f": {tmp_path};"))


def test_a_worker_learns_of_a_cancel_at_its_next_touch(tmp_path: Path) -> None:
    with serve(tmp_path) as server, server.connect() as connection:
        job = put(connection, ttr_s=2)
        other = put(connection)
        worker = work(server, tmp_path, "--finish", "0", "--shell", f"echo $$ >> begun; {LONG}")
        begun = tmp_path / "begun"
        wait_until(lambda: begun.is_file() and begun.read_text())
        assert connection.ask(b"cancel-job %d\r\n" % job) == b"CANCELLED\r\n"
        assert connection.ask(b"stats-job %d\r\n" % job) == b"NOT_FOUND\r\n"
        wait_until(lambda: len(begun.read_text().split()) == 2)
        assert is_in_hand(connection, other)
        with pytest.raises(ProcessLookupError):
            os.kill(int(begun.read_text().split()[0]), 0)
        assert connection.ask(b"cancel-job %d\r\n" % other) == b"CANCELLED\r\n"
        log = stop(worker)
        assert f"job {job} of default, attempt 1: cancelled" in log
        # What a worker that stops gives back may be gone without its knowing why.
        assert f"job {job} of default, attempt 1: lost" not in log and "failed" not in log


def test_a_handler_may_put_a_job_off_without_an_attempt(tmp_path: Path) -> None:
    (tmp_path / "snoozes.py").write_text(
        "from beanstalk_twisted.worker import Return\n\n\n"
        "def later(attempt):\n    return Return(delay=3600)\n"
    )
    with serve(tmp_path) as server, server.connect() as connection:
        job = put(connection)
        worker = work(server, tmp_path, "snoozes:later")
        wait_until(lambda: facts(connection, job)["state"] == "delayed")
        assert f"job {job} of default, attempt 1: returned for 3600 s" in stop(worker)
        found = facts(connection, job)
        assert (found["delay"], found["reserves"], found["pri"]) == ("3600", "0", "7")
