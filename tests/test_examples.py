"""The examples, run as their readers run them, on our server and on the real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import greenstalk
import pytest

from benchmarks.client import CLIENTS
from tests.end_to_end.test_client import endpoint_of, server
from tests.server_process import LIMIT_S, ServerProcess, ours

__all__ = ["server"]  # A fixture is used by being imported.

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def printed(script: Path, *args: object, typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, script, *map(str, args)], cwd=ROOT, input=typed, capture_output=True,
        text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_the_producer_puts_each_line_of_its_input(server: ServerProcess) -> None:
    connection = server.connect()
    lines = "".join(f"line {number}\n" for number in range(5000))
    said = printed(EXAMPLES / "producer.py", endpoint_of(server), "lines", typed=lines)
    assert said == "5000 jobs put into lines\n"
    assert b"\ncurrent-jobs-ready: 5000\n" in connection.ask(b"stats-tube lines\r\n")
    assert connection.ask(b"use lines\r\n") == b"USING lines\r\n"
    assert connection.ask(b"peek-ready\r\n").endswith(b"\r\nline 0\r\n")
    connection.close()


@pytest.mark.one_in(2)
def test_the_asyncio_application_does_its_jobs(server: ServerProcess) -> None:
    with greenstalk.Client(("127.0.0.1", server.port())) as other:
        job = other.put("somebody else's", priority=0)
        said = printed(EXAMPLES / "asyncio_application.py", endpoint_of(server))
        assert said == "hello, Ada\nhello, Grace\nhello, Edsger\n"
        other.delete(job)  # It is still there.


@pytest.mark.exhaustive
def test_the_tests_with_the_double_pass_as_anybody_s_would(pytester: pytest.Pytester) -> None:
    pytester.makepyfile((EXAMPLES / "test_with_double.py").read_text())
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=LIMIT_S)
    result.assert_outcomes(passed=4)


@pytest.mark.exhaustive
def test_the_worker_does_what_the_producer_puts_and_stops_in_order(server: ServerProcess) -> None:
    printed(EXAMPLES / "producer.py", endpoint_of(server), "words", typed="a b c\n\nd\n")
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / "worker.py", endpoint_of(server), "words"],
        cwd=ROOT, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = sorted(process.stdout.readline().split(" in job")[0] for _ in range(2))
    assert said == ["1 words", "3 words"]
    process.terminate()
    assert process.wait(timeout=LIMIT_S) == 0
    process.stdout.close()
    connection = server.connect()
    stats = connection.ask(b"stats-tube words\r\n")
    assert b"\ncurrent-jobs-buried: 1\n" in stats and b"\ncmd-delete: 2\n" in stats
    connection.close()


@pytest.mark.exhaustive
def test_an_old_producer_and_an_old_worker_share_jobs_with_modern_ones(tmp_path: Path) -> None:
    options = ("-p0", "--listen-v1", "tcp:0:interface=127.0.0.1")
    with ServerProcess(ours(*options), tmp_path) as both:
        where = "127.0.0.1", both.port_v1()
        said = printed(EXAMPLES / "v1_producer.py", *where, typed="a b c\n\nd\n")
        assert said == "3 jobs put\n"
        printed(EXAMPLES / "producer.py", endpoint_of(both), "default", typed="e f\n")
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / "v1_worker.py", *map(str, where)],
            cwd=ROOT, text=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        did = [process.stdout.readline() for _ in range(3)]
        assert did == ["3 words in job 1\n", "1 words in job 3\n", "2 words in job 4\n"]
        connection = both.connect()
        assert connection.ask(b"peek-buried\r\n") == b"FOUND 2 0\r\n\r\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 130
        process.stdout.close()
        connection.close()


def test_an_old_producer_says_what_was_not_put(tmp_path: Path) -> None:
    options = ("-p0", "--listen-v1", "tcp:0:interface=127.0.0.1", "-z", "3")
    with ServerProcess(ours(*options), tmp_path) as both:
        done = subprocess.run(
            [sys.executable, EXAMPLES / "v1_producer.py", "127.0.0.1", str(both.port_v1())],
            cwd=ROOT, input=b"abc\nabcd\n", capture_output=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 1
        assert b"b'abcd' was not put: b'NOT_INSERTED\\r\\n'" in done.stderr


@pytest.mark.exhaustive
def test_the_worker_runs_under_twistd_and_stops_in_order(server: ServerProcess) -> None:
    place = f"127.0.0.1:{server.port()}"
    process = subprocess.Popen(
        [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "--pidfile=",
         "-noy", EXAMPLES / "worker.tac"],
        cwd=ROOT, text=True, stdout=subprocess.PIPE,
        env={**os.environ, "BEANSTALK_SERVER": place, "BEANSTALK_TUBE": "tac"},
    )  # fmt: skip
    assert process.stdout is not None
    printed(EXAMPLES / "producer.py", endpoint_of(server), "tac", typed="a b c\n\n")
    said = ""
    while "3 words in job" not in said or ": buried after" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.terminate()
    said += process.communicate(timeout=LIMIT_S)[0]
    # When all is in order, twistd ends by the signal that it got.
    assert process.returncode == -signal.SIGTERM and "Traceback" not in said, said


def test_every_example_is_run_here_or_with_spark() -> None:
    with_spark = ROOT / "tests" / "spark"
    named_in = (
        Path(__file__), ROOT / "tests" / "end_to_end" / "test_tasks.py",
        with_spark / "test_with_spark.py", with_spark / "test_sink.py",
    )  # fmt: skip
    source = "".join(each.read_text() for each in named_in)
    examples = [path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".tac")]
    assert [path for path in examples if path.name not in source] == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize("client", sorted(CLIENTS.keys() - {"aiostalk"}))  # It is not installed.
def test_the_benchmark_of_the_client_runs(client: str, server: ServerProcess) -> None:
    script = ROOT / "benchmarks" / "client.py"
    said = printed(script, "--one", client, "--port", server.port(), "--jobs", 50)
    assert all(float(seconds) > 0 for seconds in said.split())
