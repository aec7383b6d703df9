"""Tasks with real processes: the service of the examples, results, processes that are killed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.client.errors import NotAnnounced
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.pool.pool import named
from beanstalk_twisted.client.sync import Client
from beanstalk_twisted.tasks import TaskFailed
from beanstalk_twisted.worker.process import FORKED
from tests.server_process import (
    LIMIT_S,
    ServerProcess,
    our_worker,
    ours_at_once,
    theirs,
    wait_until,
)

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
APPLICATION = """
import asyncio, os, time
from pathlib import Path
from beanstalk_twisted.tasks import App, current_attempt

app = App(client={client!r})

class Odd(Exception):
    def __init__(self, number, why):
        super().__init__(why)

@app.task(tube="math", result=True, retries=0)
def halve(number: int) -> float:
    if number % 2:
        raise ValueError(f"{{number}} is odd")
    return number / 2

@app.task(tube="math", result=True, retries=0, process=True, limit=20)
def apart(what: str) -> int:
    if what == "crash":
        os._exit(7)
    if what == "exit":
        os._exit(0)
    if what == "fork":
        if not (child := os.fork()):
            return "child"
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if what == "odd":
        raise Odd(3, "it is odd")
    return os.getpid()

@app.task(tube="hang", result=True, retries=0, process=True, limit=2)
def hang(path: str) -> None:
    Path(path + ".new").write_text(str(os.getpid()))
    os.rename(path + ".new", path)
    while True:
        time.sleep(1)

endless = app.task(name="endless", tube="hang", process=True)(hang.function)

@app.task(tube="math", result=True, retries=0, limit=1)
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"attempt {{current_attempt().number}}"
"""


def work(server: ServerProcess, name: str, folder: Path, *options: str) -> ServerProcess:
    return ServerProcess(our_worker("-v", *options, name), folder, environment(server))


def environment(server: ServerProcess) -> dict[str, str]:
    return {"BEANSTALK_SERVER": f"127.0.0.1:{server.port()}", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as running:
        yield running


def application(server: ServerProcess, folder: Path, client: str = "sync") -> Any:
    """Write the application for its worker, and import it here."""
    (folder / "application.py").write_text(APPLICATION.format(client=client))
    module = imported(folder)
    module.app.connect(f"127.0.0.1:{server.port()}")
    return module


def imported(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("application", folder / "application.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_service_of_the_examples_outlives_the_death_of_its_worker_and_its_server(
    tmp_path: Path,
) -> None:
    def call(*names: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, EXAMPLES / "service.py", *names], env={**os.environ, **facts},
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    (tmp_path / "binlog").mkdir()
    options = ["-b", str(tmp_path / "binlog")]
    with ServerProcess(ours_at_once("-p", 0, *options), tmp_path) as server:
        facts, port = environment(server), server.port()
        with work(server, "service:app", EXAMPLES, "-n", "4") as worker:
            worker.wait_for("report")
            assert call("ada", "greylisted") == ["True", "True"]
            worker.wait_for("welcome ada")
            worker.wait_for("failed: OSError: try again later")
            worker.wait_for("finished monday")
            worker.kill()  # While a job waits for its next attempt.
        assert call("ada", "grace") == ["False", "True"]
        with work(server, "service:app", EXAMPLES, "-n", "4") as worker:
            worker.wait_for("welcome greylisted")
            worker.wait_for("welcome grace")
            server.kill()
            with ServerProcess(ours_at_once("-p", port, *options), tmp_path) as server:
                server.port()
                assert call("ada", "hopper") == ["False", "True"]
                worker.wait_for("welcome hopper")


def test_results_of_threads_processes_and_coroutines_come_back(
    server: ServerProcess, tmp_path: Path
) -> None:
    module = application(server, tmp_path)
    aio = application(server, tmp_path, "aio")

    async def main() -> None:
        results = await asyncio.gather(*(aio.halve.delay(number) for number in (2, 4)))
        assert await asyncio.gather(*(each.wait(LIMIT_S) for each in results)) == [1.0, 2.0]
        await aio.app.close()

    options = ("-n", "3", "--tube", "nope", "--tube", "math")
    with work(server, "application:app", tmp_path, *options) as worker:
        worker.wait_for("no task of application:app has the tube nope; they have hang, math")
        asyncio.run(main())
        assert module.halve.delay(8).wait(LIMIT_S) == 4.0
        assert module.apart.delay("fork").wait(LIMIT_S) == FORKED
        result = module.apart.delay("run")
        assert result.wait(LIMIT_S) not in (0, os.getpid())
        assert module.sleep.delay(0).wait(LIMIT_S) == "attempt 1"
        for call, said in (
            (module.halve.delay(7), "ValueError: 7 is odd"),
            (module.apart.delay("crash"), "CommandFailed: exit code 7"),
            (module.apart.delay("exit"), "CommandFailed: ended with exit code 0 before"),
            (module.apart.delay("odd"), "Odd"),
            (module.sleep.delay(100), "TookTooLong: not done within 1 s"),
        ):
            with pytest.raises(TaskFailed, match=said):
                call.wait(LIMIT_S)
    module.app.close()


def test_a_process_is_killed_at_its_limit_and_when_its_worker_is(
    server: ServerProcess, tmp_path: Path
) -> None:
    module = application(server, tmp_path)
    with work(server, "application:app", tmp_path) as worker:
        result = module.hang.delay(str(tmp_path / "first"))
        with pytest.raises(TaskFailed, match="TookTooLong"):
            result.wait(LIMIT_S)
        wait_until(lambda: not is_running(tmp_path / "first"))
        module.endless.delay(str(tmp_path / "second"))
        wait_until((tmp_path / "second").exists)
        worker.kill()
        wait_until(lambda: not is_running(tmp_path / "second"))
    module.app.close()


def is_running(path: Path) -> bool:
    try:
        state = Path(f"/proc/{path.read_text()}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


SPLIT = """
from beanstalk_twisted.tasks import App

app = App(*{servers})

def say(text: str) -> None:
    print(f"said {{text}}\\n", end="", flush=True)  # One write: threads print here.

for number in range(8):
    app.task(name=f"say{{number}}", tube=f"tube{{number}}", rate=100)(say)
"""


def test_one_worker_takes_the_jobs_of_several_servers_over_which_tubes_are_split(
    server: ServerProcess, tmp_path: Path
) -> None:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as second:
        places = [f"127.0.0.1:{each.port()}" for each in (server, second)]
        (tmp_path / "application.py").write_text(SPLIT.format(servers=places))
        module = imported(tmp_path)
        tubes = module.app.tubes
        chosen = {tube: module.app.server_of(tube) for tube in tubes}
        split = Split(dict.fromkeys(named(places), 1))
        assert chosen == {tube: split.server_of(tube).removeprefix("tcp:") for tube in tubes}
        for name, task in module.app.tasks.items():
            task.delay(name)
        for each, place in ((server, places[0]), (second, places[1])):
            with Client(place) as client:
                assert {tube for tube in client.list_tubes() if tube != "default"} == {
                    tube for tube in tubes if chosen[tube] == place
                }
            assert each.process.poll() is None
        with work(server, "application:app", tmp_path) as worker:
            for name in module.app.tasks:
                worker.wait_for(f"said {name}")
    module.app.close()


PLAIN = """
from beanstalk_twisted.tasks import App, current_attempt

app = App()

@app.task(tube="mail", retries=1, rate=5)
def send(to: str) -> None:
    number = current_attempt().number
    print(f"attempt {number} for {to}\\n", end="", flush=True)
    if number == 1:
        raise OSError("try again")
"""


def test_tasks_without_extensions_work_with_the_real_beanstalkd(tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(PLAIN)
    module = imported(tmp_path)
    with ServerProcess(theirs(), tmp_path) as server:
        module.app.connect(f"127.0.0.1:{server.port()}")
        module.send.delay("ada")
        with pytest.raises(NotAnnounced, match="which results need"):
            module.send.using(result=True).delay("ada")
        with pytest.raises(NotAnnounced, match="idp:"):
            module.send.using(unique_by="ada").delay("ada")
        with work(server, "application:app", tmp_path) as worker:
            worker.wait_for("the rate of tube mail is not set: tube-policy: not sent")
            worker.wait_for("attempt 2 for ada")
    module.app.close()
