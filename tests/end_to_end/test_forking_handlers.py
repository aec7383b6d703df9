"""Functions that fork, as `beanstalk-work` runs them on a real server."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from beanstalk_twisted.worker.process import FORKED
from tests.end_to_end.test_client import ours, server
from tests.end_to_end.test_hanging_handlers import facts, put, running
from tests.end_to_end.test_worker import work
from tests.server_process import LIMIT_S, ServerProcess

__all__ = ["server"]  # A fixture is used by being imported.

pytestmark = pytest.mark.parametrize("server", [ours], indirect=True)

FUNCTIONS = """
import asyncio, multiprocessing, os, time

def note(name, text):
    with open("unfinished", "w") as written:
        written.write(str(text))
    os.rename("unfinished", name)

def judge(child):
    _, status = os.waitpid(child, 0)
    note("ended", os.waitstatus_to_exitcode(status))

def returning(attempt):
    child = os.fork()
    if child:
        judge(child)

def raising(attempt):
    child = os.fork()
    if not child:
        raise SystemExit(0)
    judge(child)

async def awaiting(attempt):
    child = os.fork()
    if child:
        judge(child)
    else:
        while True:
            await asyncio.sleep(0.001)

def ending(attempt):
    child = os.fork()
    if not child:
        os._exit(5)
    judge(child)

def using_multiprocessing(attempt):
    child = multiprocessing.get_context("fork").Process(target=note, args=("ran", "x"))
    child.start()
    child.join()
    note("ended", child.exitcode)

def staying(attempt):
    child = os.fork()
    if child:
        note("child", child)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("returning", FORKED), ("raising", FORKED), ("awaiting", FORKED), ("ending", 5),
        ("using_multiprocessing", 0),
    ],
)  # fmt: skip
def test_a_child_does_not_go_on_as_a_worker(
    server: ServerProcess, tmp_path: Path, function: str, code: int
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    first, second = put(server, function, b"x", b"y")
    client = server.connect()
    give_up_s = time.monotonic() + LIMIT_S
    with running(work(server, tmp_path, "--tube", function, f"jobs:{function}")) as process:
        while facts(client, first) or facts(client, second):
            assert process.poll() is None and time.monotonic() < give_up_s
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert (tmp_path / "ended").read_text() == str(code)
    assert log.count("has forked and not ended its child") == (2 if code == FORKED else 0)
    # Each job was done once, by the worker's own connection.
    assert log.count(": deleted after") == 2
    client.close()


@pytest.mark.parametrize("reactor", ["default", "asyncio"])
def test_a_server_notices_the_end_of_a_worker_although_its_child_lives(
    server: ServerProcess, tmp_path: Path, reactor: str
) -> None:
    (tmp_path / "jobs.py").write_text(FUNCTIONS)
    (job,) = put(server, f"staying-{reactor}", b"x")
    options = ("--reactor", reactor, "--tube", f"staying-{reactor}")
    give_up_s = time.monotonic() + LIMIT_S
    with running(work(server, tmp_path, *options, "jobs:staying")) as process:
        while not (tmp_path / "child").exists():
            assert process.poll() is None and time.monotonic() < give_up_s
            time.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    try:
        client = server.connect()
        while facts(client, job)["state"] != "ready":
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        assert facts(client, job)["timeouts"] == "0"
        client.close()
    finally:
        os.kill(child, signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
