"""Bodies that the disk damages under a server that has them there only: each is told once, its job
is buried, and all others are delivered.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.journal import values
from tests.server_process import Connection, ServerProcess, ours_at_once

JOBS = 1000
"""Every second one is damaged."""

BATCH = 200


def body(number: int) -> bytes:
    return b"<%06d>" % number * 4


def fill(client: Connection) -> None:
    for first in range(1, JOBS + 1, BATCH):
        numbers = range(first, first + BATCH)
        client.send(b"".join([b"put 0 0 600 32\r\n%b\r\n" % body(each) for each in numbers]))
        assert [client.reply() for _ in numbers] == [b"INSERTED %d\r\n" % each for each in numbers]


def damage(log: Path) -> None:
    left = set(range(1, JOBS, 2))
    for path in log.glob("*.tql"):
        content = path.read_bytes()
        with path.open("r+b") as file:
            for number in [each for each in left if body(each) in content]:
                file.seek(content.index(body(number)) + 9)
                file.write(b"~")
                left.discard(number)
    assert not left


def lost(said: str) -> list[int]:
    """The jobs of which the server has said that their bodies are lost, in that order."""
    return [int(each) for each in re.findall(r"job (\d+): its body cannot be read", said)]


def found(log: Path) -> list[int]:
    checked = subprocess.run(
        [Path(sys.executable).with_name("binlog-inspect"), "check", log],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = [line.split("\t") for line in checked.stdout.splitlines()]
    return sorted(int(each) for row in told if row[0] == "trouble" for each in row[7].split(","))


def test_of_damaged_bodies_each_is_told_once_and_others_are_delivered(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ours_at_once("-p0", "-b", log, "--body-cache", 0, "--segment-size", 32_768)
    with ServerProcess(command, tmp_path) as server:
        client = server.connect()
        fill(client)
        damage(log)
        for number in range(2, JOBS + 1, 2):
            assert client.ask(b"reserve\r\n") == b"RESERVED %d 32\r\n%b\r\n" % (
                number, body(number)
            )  # fmt: skip
        assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
        assert client.ask(b"peek 1\r\n") == b"INTERNAL_ERROR\r\n"
        assert values(client.ask(b"stats\r\n"))["current-jobs-buried"] == str(JOBS // 2)
        server.process.send_signal(signal.SIGTERM)
        status, said = server.ended()
    assert status == -signal.SIGTERM
    assert sorted(lost(said)) == list(range(1, JOBS, 2))
    assert found(log) == list(range(1, JOBS, 2))


def test_damage_before_a_start_is_found_in_the_background(tmp_path: Path) -> None:
    """The first server is killed while it looks, or before: the next one begins anew."""
    log = tmp_path / "log"
    command = ours_at_once(
        "-p0", "-b", log, "--body-cache", 0, "--segment-size", 32_768,
        "--verify-on-start", "records",
    )  # fmt: skip
    with ServerProcess(command, tmp_path) as server:
        client = server.connect()
        fill(client)
        # The segment that is written is read whole by a start.
        for _ in range(400):
            assert client.ask(b"put 0 0 600 100\r\n%b\r\n" % (b"-" * 100)).startswith(b"INSERTED")
        server.process.send_signal(signal.SIGTERM)
        assert server.ended()[0] == -signal.SIGTERM
    damage(log)
    with ServerProcess(command, tmp_path) as server:
        server.kill()
    with ServerProcess(command, tmp_path) as server:
        server.wait_for(f"checked: {JOBS // 2} bodies of jobs are damaged")
        client = server.connect()
        for number in range(2, JOBS + 1, 2):
            assert client.ask(b"reserve\r\n") == b"RESERVED %d 32\r\n%b\r\n" % (
                number, body(number)
            )  # fmt: skip
        server.process.send_signal(signal.SIGTERM)
        status, said = server.ended()
    assert status == -signal.SIGTERM
    assert sorted(lost(said)) == list(range(1, JOBS, 2))
    refused = subprocess.run(
        ours_at_once("-p0", "-b", log), capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode == 65
