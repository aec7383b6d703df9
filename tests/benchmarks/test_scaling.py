"""One process beside several: a short run, and the table that is made of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import LOADS, added, main, table
from benchmarks.speed.machine import ROOT
from tests.benchmarks.test_speed_load import see_that_a_compiler_is_there
from tests.server_process import LIMIT_S


def said(commands: int, server_s: float, share: float) -> dict[str, object]:
    return {
        "commands": commands, "commands_per_s": commands / 2.0,
        "server": {"cpu_s": server_s, "cpu_share": share}, "client": {"cpu_s": 0.001},
    }  # fmt: skip


def test_what_several_did_is_added_up_by_their_commands() -> None:
    total = added([said(1000, 0.01, 0.5), said(3000, 0.05, 0.75)])
    assert (total.rate, total.server_us, total.busy) == (2000, 15, 1.25)
    assert total.generator_us == 0.5


def test_a_line_has_medians_and_the_median_ratio_of_processor_times() -> None:
    one = [{"rate": 10.0, "server_us": us, "generator_us": 1.0, "busy": 0.5} for us in (10, 20, 90)]
    two = [{"rate": 30.0, "server_us": us, "generator_us": 2.0, "busy": 1.5} for us in (20, 25, 45)]
    head, _, line = table([{"load": "x", "processes": {"1": one, "2": two}}], 2).splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "x", "20.0", "25.0", "1.25", "0.50 to 2.00", "50,000", "80,000", "10", "30", "0.50",
        "1.50", "2.0",
    ]  # fmt: skip
    assert len(head.strip("|").split("|")) == len(cells)
    only = table([{"load": "x", "processes": {"1": one[:1], "2": one[:1]}}], 2).splitlines()[-1]
    assert "| 1.00 | - |" in only  # One round has no spread.


def test_a_missing_interpreter_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", "/nope"]) == 2
    said = capsys.readouterr().err
    assert "--python /nope: No such file or directory" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["--only", LOADS[0].name], "--only"),
        (["--rounds", "5"], "--rounds"),
        (["--seconds", "1", "--processes", "3"], "--processes, --seconds"),
    ],
)
def test_what_says_nothing_of_one_process_is_refused_in_one_line(
    words: list[str], idle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--one", *words], [*words, "--one"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr().err
        assert (ended.value.code, said.count("\n")) == (2, 1)
        assert f"with --one this has no effect: {idle};" in said


@pytest.mark.exhaustive
def test_a_short_run_makes_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    see_that_a_compiler_is_there()
    load = LOADS[0]
    assert main(["--rounds", "1", "--seconds", "0.2", "--only", load.name]) == 0
    assert f"| {load.says} |" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_a_run_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    see_that_a_compiler_is_there()
    words = ["--seconds", "60", "--only", LOADS[0].name]
    run = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scaling", *words], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert run.stderr
    assert run.stderr.readline().startswith(f"{LOADS[0].name}, round 1")
    run.send_signal(signal.SIGTERM)
    said, problems = run.communicate(timeout=LIMIT_S)
    assert (run.returncode, problems) == (143, "")
    assert "**Interrupted** after 0 of 1 loads." in said
    assert list(tmp_path.iterdir()) == []
