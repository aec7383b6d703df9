"""From a damaged log to a running server, by nothing but what the server says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sampling import one_in
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours
from tests.tools.folders import contents
from tests.tools.salvage.logs import without_locks

BIN = Path(sys.executable).parent
JOBS = 60
BODY = b"." * 400


def serving(tmp_path: Path, log: Path) -> ServerProcess:
    """Start our server on a free port, with small segments."""
    return ServerProcess(ours("-p0", "-b", log, "-s", 8192), tmp_path)


def body_of(number: int) -> bytes:
    return b"%d" % number + BODY


def make_a_log(tmp_path: Path) -> Path:
    """A log of several segments in which every tenth job was buried."""
    log = tmp_path / "the log"
    with serving(tmp_path, log) as server:
        connection = server.connect()
        connection.ask(b"use work\r\n")
        connection.ask(b"watch work\r\n")
        for number in range(1, JOBS + 1):
            body = body_of(number)
            said = connection.ask(b"put %d 0 60 %d\r\n%s\r\n" % (number, len(body), body))
            assert said == b"INSERTED %d\r\n" % number
            if number % 10 == 0:
                connection.ask(b"reserve-job %d\r\n" % number)
                assert connection.ask(b"bury %d 9\r\n" % number) == b"BURIED\r\n"
    assert len(list(log.glob("*.tql"))) > 3
    return log


def overwrite_a_block(log: Path) -> None:
    segment = sorted(log.glob("*.tql"))[1]
    raw = segment.read_bytes()
    segment.write_bytes(raw[:6144] + bytes(512) + raw[6656:])


def spoil_a_header(log: Path) -> None:
    segment = sorted(log.glob("*.tql"))[1]
    segment.write_bytes(bytes(4096) + segment.read_bytes()[4096:])


def lose_a_segment(log: Path) -> None:
    sorted(log.glob("*.tql"))[1].unlink()


def spoil_everything(log: Path) -> None:
    names = sorted(log.glob("*.tql"))
    lose_a_segment(log)
    for segment in (names[0], names[3]):
        segment.write_bytes(bytes(4096) + segment.read_bytes()[4096:])
    raw = names[2].read_bytes()
    names[2].write_bytes(raw[:6144] + bytes(512) + raw[6656:])


def command_in(said: str) -> list[str]:
    (command,) = re.findall(r"'(binlog-inspect salvage .*)' to get all", said)
    return shlex.split(command)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment
    )  # fmt: skip


def jobs_of(connection: Connection) -> dict[int, tuple[str, bytes]]:
    found = {}
    for number in range(1, JOBS + 1):
        head, _, body = connection.ask(b"peek %d\r\n" % number).partition(b"\r\n")
        if head.startswith(b"FOUND"):
            stats = connection.ask(b"stats-job %d\r\n" % number).decode()
            state = re.search(r"state: (\w+)", stats)
            assert state
            if "tube: lost+found" in stats.replace('"', ""):
                assert state[1] == "buried"
                continue
            found[number] = (state[1], body.removesuffix(b"\r\n"))
    return found


def was_put(number: int) -> tuple[str, bytes]:
    return ("ready" if number % 10 else "buried"), body_of(number)


@pytest.mark.parametrize(
    ("damage", "least"),
    one_in(4, [(overwrite_a_block, JOBS - 3), (spoil_a_header, JOBS), (lose_a_segment, JOBS - 12),
               (spoil_everything, JOBS - 15)]),
)  # fmt: skip
def test_the_command_that_the_refusal_names_leads_to_a_server_with_the_jobs(
    damage: Callable[[Path], None], least: int, tmp_path: Path
) -> None:
    log = make_a_log(tmp_path)
    damage(log)
    before = without_locks(contents(log))
    with serving(tmp_path, log) as server:
        status, said = server.ended()
    assert status == 65, said
    new = tmp_path / "new"
    words = [str(new) if word == "NEW_DIRECTORY" else word for word in command_in(said)]
    done = run(words)
    assert (done.returncode, done.stderr) == (3, "")
    assert without_locks(contents(log)) == before
    assert run(["binlog-inspect", "check", str(new)]).returncode == 0
    with serving(tmp_path, new) as server:
        connection = server.connect()
        found = jobs_of(connection)
        assert len(found) >= least
        assert {number: was_put(number) for number in found} == found
        assert connection.ask(b"use work\r\nput 0 0 60 1\r\nx\r\n") == b"USING work\r\n"
        answer = connection.reply()
        assert answer.startswith(b"INSERTED ") and int(answer.split()[1]) > JOBS
        connection.close()
        server.terminate()
