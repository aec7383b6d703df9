"""``mypy --strict`` knows what `delay` takes and gives, and what a handler is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT

APPLICATION = """
from typing import Any

from twisted.internet.defer import Deferred

from beanstalk_twisted.tasks import App, Cron, Result
from beanstalk_twisted.worker import Attempt, Bury

app = App("127.0.0.1:11300", token="x")
aio = App(client="aio")
tx = App(client="twisted")


@app.task(tube="mail", retries=5, unique_by="{to}", schedule=Cron(cron="0 1 * * *", args=("a",)))
def send(to: str, copies: int = 1) -> bool:
    return True


@app.task()
async def count(text: str) -> int:
    return len(text)


@aio.task(result=True)
async def measure(text: str) -> int:
    return len(text)


@tx.task(result=True)
def weigh(text: str) -> float:
    return 0.5


def handler(attempt: Attempt) -> Bury | None:
    return Bury() if attempt.number > 1 else None


good: Result[bool] = send.delay("a", copies=2)
done: bool = good.wait(1)
same: bool = send("a")
later: Result[int] = count.using(delay=30, group_by="x").delay("a")


async def main() -> None:
    here: int = await count("a")
    there: int = await (await measure.delay("a")).wait(1)
    deferred: Deferred[Result[Deferred[float]]] = weigh.delay("a")


send.delay(7)  # error: arg-type
send.delay()  # error: call-arg
send.delay("a", copy=1)  # error: call-arg
send.using(delay="1").delay("a")  # error: typeddict-item arg-type
send.using(retries=1)  # error: call-arg
app.task(tries=5)  # error: call-arg
wrong: str = send.delay("a").wait(1)  # error: assignment
Attempt.of(7)  # error: arg-type
App(client="curio")  # error: call-overload
"""


@pytest.mark.exhaustive
def test_an_application_is_checked_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary",
         f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}",
         "--follow-imports=silent", "--hide-error-context", "application.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment(),
    )  # fmt: skip
    lines = APPLICATION.splitlines()
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = {int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]") for line in errors}
    wanted = {
        number: line.partition("# error: ")[2].split()
        for number, line in enumerate(lines, 1) if "# error: " in line
    }  # fmt: skip
    assert found.keys() == wanted.keys(), done.stdout + done.stderr
    assert all(found[number] in wanted[number] for number in wanted), done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
