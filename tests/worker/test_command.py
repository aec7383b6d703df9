"""The command's checks of what it is given, and its previews, in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.worker.command import cli
from tests.pages import ROOT

APPLICATION = """
from beanstalk_twisted.tasks import App

app = App()

@app.task(tube="math")
def halve(number: int) -> float:
    return number / 2
"""

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the command where there is an application."""
    (tmp_path / "an_application.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    modules = set(sys.modules)
    yield lambda *options: CliRunner().invoke(cli, list(options))
    for name in {"service", "an_application"} & (sys.modules.keys() - modules):
        del sys.modules[name]
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["json:loads", "--preview", "1"], "--preview is for an app, or for --recurring alone"),
        (["--preview", "1"], "--preview is for an app, or for --recurring alone"),
        (["--recurring", "no/file", "--preview", "1"], "no/file: No such file"),
        (["--recurring", "no/file", "--preview", "0"], "is not in the range"),
        (["--recurring", "no/file", "--preview", "1001"], "is not in the range"),
        (["--recurring", "no/file"], "no/file: No such file"),
        (["--recurring", "no/file", "--tube", "a"], "--tube is for an app, a function"),
        (["json:dumps", "--tube", "a=x", "--mode", "weighted"], "a weight is a number"),
        (["json:dumps", "--tube", "a=0", "--mode", "weighted"], "is 1 to 1000, not 0"),
        (["json:dumps", "--tube", "a=2"], "weights count in the modes"),
        ([], "name an app or a function"), (["json:dumps", "--shell", "true"], "not both"),
        (["--shell", "true", "--json"], "--json is for a function"),
        (["--shell", " "], "the shell command is empty"),
        (["no_such:f"], "No module named"), (["json:dumps", "-s", "host:x"], "is no server"),
        (["json:dumps", "-n", "0"], "is not in the range"),
        (["json:dumps", "--tube", "bad name"], "not the name of a tube"),
        (["json:dumps", "-s", "tcp:x:y"], "is no server"),
        (["json:dumps", "-s", "tcp:x:1:timeout=y"], "is no server"),
        (["an_application:app", "--limit", "5"],
         "--limit is for a function; @app.task(…) says it for a task"),
        (["an_application:app", "--json"], "--json is for a function"),
        (["an_application:app", "--tube", "no tube"], "not the name of a tube"),
        (["an_application:app", "--shell", "true"], "not both"),
        (["an_application:halve"], "an_application:halve is a task: run its app, MODULE:APP"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_with_2(run: Run, options: list[str], why: str) -> None:
    done = run(*options)
    assert done.exit_code == 2
    assert why in done.stderr


def test_the_next_runs_of_a_file_are_shown_without_a_server(run: Run) -> None:
    text = '[yearly]\ncron = "0 12 1 7 *"\ntube = "a"\nzone = "Europe/Berlin"\n'
    Path("jobs.toml").write_text(text + '[minutely]\ncron = "* * * * *"\ntube = "b"\n')
    done = run("--recurring", "jobs.toml", "--preview", "2", "-s", "127.0.0.1:1")
    assert (done.exit_code, done.stderr) == (0, "")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["yearly", "a"]] * 2 + [["minutely", "b"]] * 2
    assert [row[2][4:] for row in rows[:2]] == ["-07-01T12:00:00+02:00"] * 2
    assert [row[3][4:] for row in rows[:2]] == ["-07-01T10:00:00Z"] * 2
    first, second = (datetime.fromisoformat(row[2]) for row in rows[2:])
    assert second - first == timedelta(minutes=1)


def test_the_next_runs_of_an_app_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    done = run("--preview", "2", "service:app")
    assert (done.exit_code, done.stderr) == (0, "")
    shown = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    assert shown == [["report", "reports"]] * 2
