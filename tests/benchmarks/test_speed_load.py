"""The load generator against servers that lie, and a quick run of the whole against real ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.speed.__main__ import main
from benchmarks.speed.building import Tools, build
from benchmarks.speed.figures import WrongRepliesError, parse_outcome
from benchmarks.speed.machine import ROOT
from tests.script_server import Listener, answer
from tests.server_process import LIMIT_S, real_beanstalkd

NO_COMPILER = "gcc is not installed, so no load generator can be built"

BODY = b"abcdefghijklmnop"
"""What the load generator puts."""


def see_that_a_compiler_is_there() -> None:
    """Skip the test without one; in CI, where there must be one, fail."""
    if shutil.which("gcc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NO_COMPILER)
        pytest.skip(NO_COMPILER)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    see_that_a_compiler_is_there()
    return build(tmp_path_factory.mktemp("build"))


@contextmanager
def answering(replies: dict[bytes, bytes]) -> Iterator[int]:
    """Run a server that answers each command by its first word; give its port."""
    with Listener(answer(lambda words: replies[words[0]])) as listener:
        yield listener.port


def run(tools: Tools, port: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the load generator, with this process for the server's."""
    command = [str(tools.loadgen), "--port", str(port), "--pid", str(os.getpid()), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


CYCLES = ("--ops", "put,reserve,delete", "--count", "5")
RIGHT = {
    b"put": b"INSERTED 7\r\n",
    b"reserve": b"RESERVED 7 16\r\n" + BODY + b"\r\n",
    b"delete": b"DELETED\r\n",
}


def test_right_replies_are_counted(tools: Tools) -> None:
    with answering(RIGHT) as port:
        done = run(tools, port, *CYCLES)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["commands"], said["cycles"], said["puts"], said["wrong"]) == (15, 5, 5, 0)
    assert said["latency_us"]["all"]["count"] == 15
    assert said["latency_us"]["reserve"]["count"] == 5
    assert parse_outcome(done.stdout).figures["rate"] > 0


@pytest.mark.parametrize(
    ("word", "reply"),
    [
        (b"put", b"BURIED 7\r\n"),
        (b"reserve", b"RESERVED 7 16\r\n" + BODY[::-1] + b"\r\n"),
        (b"reserve", b"RESERVED 7 15\r\n" + BODY[:15] + b"\r\n"),
        (b"reserve", b"TIMED_OUT\r\n"),
        (b"delete", b"NOT_FOUND\r\n"),
    ],
)
def test_a_wrong_reply_is_found(tools: Tools, word: bytes, reply: bytes) -> None:
    with answering(RIGHT | {word: reply}) as port:
        done = run(tools, port, *CYCLES)
    assert done.returncode == 1
    with pytest.raises(WrongRepliesError, match=f"5 wrong replies, the first to {word.decode()}"):
        parse_outcome(done.stdout)


def test_a_kick_that_kicks_too_few_is_wrong(tools: Tools) -> None:
    with answering({b"kick": b"KICKED 1\r\n"}) as port:
        done = run(tools, port, "--ops", "kick", "--count", "1")
    assert (done.returncode, json.loads(done.stdout)["first_wrong"]) == (1, "kick: KICKED 1")


def test_a_server_that_answers_unasked_is_no_server(tools: Tools) -> None:
    with answering(RIGHT | {b"put": b"INSERTED 1\r\nINSERTED 2\r\n"}) as port:
        done = run(tools, port, "--ops", "put", "--count", "1", "--connections", "1", "--ms", "50")
    assert done.returncode != 0


def test_options_that_make_no_sense_are_refused(tools: Tools) -> None:
    for words in (["--ops", "put"], ["--ops", "fly", "--count", "1"], ["--count", "x"], ["more"]):
        done = run(tools, 1, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("loadgen: ")


@pytest.mark.exhaustive
def test_a_slow_disk_is_slow(tools: Tools, tmp_path: Path) -> None:
    program = "import os, sys; fd = os.open(sys.argv[1], 66); os.fsync(fd); os.fdatasync(fd)"
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")], check=True, timeout=LIMIT_S,
        env={**os.environ, "LD_PRELOAD": str(tools.slowsync), "SLOWSYNC_US": "1500000"},
    )  # fmt: skip
    assert time.monotonic() - began >= 3.0


@pytest.mark.exhaustive
def test_a_quick_run_ends_with_right_replies_and_a_table(
    tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real_beanstalkd()
    assert main(["--quick", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    content = json.loads((tmp_path / "speed.json").read_text())
    assert "FAILED" not in said
    assert content["quick"] is True
    for name, workload in content["workloads"].items():
        assert f"| {name} " in said
        for side in ("ours", "beanstalkd"):
            (outcome,) = workload["outcomes"][side]
            assert outcome["figures"].get("commands", 1) > 0
    assert content["workloads"]["million"]["outcomes"]["ours"][0]["memory"]
    assert content["workloads"]["log-size"]["outcomes"]["beanstalkd"][0]["log"]
    assert (tmp_path / "memory.svg").is_file() != ("no plots" in said)


def commands_with(word: str) -> list[str]:
    """Find the processes that have a word in their commands."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended.
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if word in command]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_stop_tells_what_is_finished_and_leaves_nothing_behind(
    tools: Tools, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    real_beanstalkd()
    logs, results = tmp_path / "logs", tmp_path / "results"
    logs.mkdir()
    words = ["--quick", "--only", "rt1,sync-rt1", "--directory", str(logs)]
    bench = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.speed", *words, "--output", str(results)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert bench.stderr
    for line in bench.stderr:
        if line.startswith("sync-rt1"):
            bench.send_signal(number)
            break
    said, problems = bench.communicate(timeout=LIMIT_S)
    assert (bench.returncode, "Traceback" in problems) == (code, False)
    assert "interrupted** after 1 of 2 workloads" in said
    assert f"written: {results}/speed.json" in said
    assert list(json.loads((results / "speed.json").read_text())["workloads"]) == ["rt1"]
    assert list(logs.iterdir()) == []
    assert commands_with(str(logs)) == []
