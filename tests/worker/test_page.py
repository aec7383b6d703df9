"""The page on the worker: its tables are those of the code, its examples print what it says."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.tasks import child, results
from beanstalk_twisted.tasks.options import Options, TaskOptions
from beanstalk_twisted.worker import (
    command,
    hooks,
    policy,
    process,
    recurring,
    service,
    settings,
)
from beanstalk_twisted.worker import recurring as schedule
from beanstalk_twisted.worker.attempt import EARLIEST, LATEST, Attempt
from beanstalk_twisted.worker.hooks import EVENTS, Event
from beanstalk_twisted.worker.policy import Retry
from beanstalk_twisted.worker.recurring import Schedule
from beanstalk_twisted.worker.settings import STUCK_S
from beanstalk_twisted.worker.shell import KILL_S, USELESS, Shell
from tests.pages import ROOT, examples_of, see_that_examples_print
from tests.test_docs import blocks, section, table

PAGE = ROOT / "docs" / "worker.md"
HALF = {0.5: "half"}
EXAMPLES = examples_of(PAGE)


@pytest.mark.exhaustive
def test_the_examples_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 1
    see_that_examples_print(EXAMPLES, tmp_path)


def named(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`(\w+)", row[0])]


def test_what_an_attempt_has_is_what_the_page_lists() -> None:
    made = inspect.getsource(Attempt.__init__)
    ours = {"begin", "learn", "read", "end", "cancel"}
    public = {name for name in vars(Attempt) if name[0] != "_"} - ours
    public |= set(re.findall(r"self\.([a-z]\w*) ?[:=]", made)) - {"deadline_s", "known"}
    (rows,) = [rows for rows in tables_of("Handlers") if "`touch()`" in str(rows)]
    assert set(named(rows)) == public


def tables_of(heading: str) -> list[list[list[str]]]:
    from tests.test_docs import tables

    return tables(section(PAGE, heading))


def test_the_policy_has_these_options_with_these_defaults() -> None:
    rows = tables_of("Failures")[0]
    fields: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(Retry)}
    assert set(named(rows)) == set(fields)
    for name, default in [(name, row[1]) for row in rows for name in named([row])]:
        value = fields[name]
        told = default.strip("`")
        if value is None or isinstance(value, int | float):
            assert told == str(value).removesuffix(".0")
        elif name in ("exhausted", "unreadable"):
            assert told == "Bury()" and value == policy.Bury()
        else:
            names = [getattr(each, "__name__", "") for each in _each(value)]
            assert re.findall(r"\w+", told) == names


def _each(value: Any) -> Any:
    return value if isinstance(value, tuple) else (value,)


def test_a_schedule_has_these_values_with_these_defaults() -> None:
    fields = {each.name: each.default for each in dataclasses.fields(Schedule)}
    defaults: list[Any] = []
    for row in tables_of("Recurring jobs")[0]:
        told = [ast.literal_eval(word) if word[:2] == 'b"' else word
                for word in row[1].replace("`", "").split(", ") if word]  # fmt: skip
        defaults += told or [dataclasses.MISSING]
    assert dict(zip(named(tables_of("Recurring jobs")[0]), defaults, strict=True)) == {
        name: str(value) if isinstance(value, int) else value for name, value in fields.items()
    }


def test_the_file_of_schedules_of_the_page_is_one(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "toml")
    (tmp_path / "jobs.toml").write_text(block)
    nightly = Schedule(
        name="nightly", cron="30 3 * * *", zone="Europe/Berlin", tube="reports", body=b"all",
        missed="one",
    )  # fmt: skip
    assert schedule.read_schedules(str(tmp_path / "jobs.toml")) == [nightly]
    fields = {each.name for each in dataclasses.fields(Schedule)}
    assert set(schedule.KINDS) == fields - {"name"}


def test_the_events_are_those_of_the_code() -> None:
    text = section(PAGE, "Logs and metrics")
    assert re.findall(r"`(\w+)`", text.partition("events are")[2].partition(".")[0]) == list(EVENTS)
    facts = re.findall(r"`(\w+)`", text.partition("An event has")[2].partition(".")[0])
    assert facts == list(Event._fields)


def test_the_options_of_a_task_are_those_of_the_code() -> None:
    fields = {each.name: each.default for each in dataclasses.fields(Options)} | {"name": ""}
    told: set[str] = set()
    for row in table(PAGE, "Options of a task"):
        defaults = [ast.literal_eval(each) for each in re.findall("`([^`]+)`", row[1])]
        told |= set(named([row]))
        with_default = [name for name in named([row]) if fields[name] not in (None, "")]
        if row[0] not in ("`name`", "`schedule`"):
            assert defaults == [fields[name] for name in with_default], row
    assert told == set(TaskOptions.__annotations__)


def test_the_service_of_the_examples_is_short() -> None:
    lines = (ROOT / "examples" / "service.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and line.strip()[0] != "#"]) <= 35


def test_the_shell_is_as_the_page_tells() -> None:
    text = " ".join(section(PAGE, "The command").split())
    facts = set(re.findall(r'"(BEANSTALK_\w+)"', (ROOT / Path(inspect.getfile(Shell))).read_text()))
    assert facts <= set(re.findall(r"`(BEANSTALK_\w+)`", text))


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("Recurring jobs", f"1 to {schedule.MAX_NAME} bytes"),
        ("Recurring jobs", f"{schedule.LATE_S} to {schedule.MAX_CATCH_UP_S:,} |"),
        ("Recurring jobs", f"cannot be put within {schedule.LATE_S} seconds"),
        ("Recurring jobs", f"(the newest {schedule.MAX_MISSED:,})"),
        ("Recurring jobs", f"tried again after {recurring.RETRY_S:g} seconds"),
        ("Recurring jobs", {3600: "clocks may differ by an hour"}[schedule.SKEW_S]),
        ("Results", f"at most {results.MAX_ERROR:,} characters"),
        ("Results", f"App(result_ttl_s={results.RESULT_TTL_S})"),
        ("Results", f"into the tube `{results.REPLIES}`"),
        ("Processes", f"SIGKILL {child.KILL_S:g} second later"),
        ("The command", f"0 means done, {USELESS} buries"),
        ("The command", f"SIGKILL {KILL_S:g} seconds later"),
        ("The command", f"A stop that takes {command.STOP_S:g} seconds longer than `--finish`"),
        ("Handlers that hang", f"within `stuck_s` ({STUCK_S:g} second)"),
        ("Handlers that hang", f"`beanstalk-work` exits with {process.STUCK}, so"),
        ("Handlers that hang", f"exits with {process.STUCK} after {process.TRIES} tries"),
        ("Handlers that hang", f"exits with 1 after {process.HELD_S:g} more seconds"),
        ("Logs and metrics", f"with {hooks.MAX_TEXT:,} characters"),
        ("Logs and metrics", f"{hooks.MAX_TRACEBACK:,} of its traceback"),
        ("Touching and losing a job", f"after {HALF[EARLIEST]} of its TTR"),
        ("Touching and losing a job", f"or by chance up to {LATEST:.0%}".replace("%", " %")),
    ],
)
def test_numbers_of_the_page_are_those_of_the_code(heading: str, said: str) -> None:
    assert said in " ".join(section(PAGE, heading).split())


def test_the_limits_are_those_of_the_code() -> None:
    shell = Shell("true")
    assert table(PAGE, "Limits") == [
        ["`concurrency`", f"{settings.MAX_CONCURRENCY:,} jobs"],
        ["file of schedules", f"{schedule.MAX_FILE_BYTES:,} bytes"],
        ["`finish_s`", f"{service.FINISH_S:g} seconds"],
        [
            "`stuck_s`",
            f"{STUCK_S:g} second, of `--shell` {shell.ends_within_s + STUCK_S:g}, of a "
            f"task's process {child.InProcess.ends_within_s + STUCK_S:g}",
        ],
    ]
