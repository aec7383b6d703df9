"""The comparison with beanstalkd: how runs are read, compared, judged and told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import publishing, tables
from benchmarks.speed.figures import (
    CPU,
    JOB_BYTES,
    PAUSE,
    RATE,
    REPLAY,
    Figure,
    Outcome,
    Target,
    WrongRepliesError,
    compare,
    parse_outcome,
    verdict,
)
from benchmarks.speed.machine import Machine, file_system, processor
from benchmarks.speed.running import Result, order, replayed
from benchmarks.speed.servers import beanstalkd, ours
from benchmarks.speed.workloads import MEMORY, WORKLOADS, Workload, chosen

SIDES = (ours("python3"), beanstalkd("beanstalkd"))
MACHINE = Machine("CPython 3.11.7", False, "26.10", "0.1", "beanstalkd 1.12", "", "Some CPU", 2,
                  "Linux", "ext4", 80.0, 0.5)  # fmt: skip
TERMS = tables.Terms(quick=False, is_optimised=True)
LATENCY = {"count": 9, "mean": 5.0, "p50": 4.0, "p90": 6.0, "p99": 8.0, "longest": 9000.0}


def workload(**changes: Any) -> Workload:
    """Make a row with a target for the processor time."""
    row = Workload("row", "put {jobs:,} jobs", MEMORY, "--ops put --count {jobs}",
                   ((CPU, Target(1.6, 1.0, 1.9)),), jobs=1_000_000)  # fmt: skip
    return row._replace(**changes)


def result(ours_us: float, theirs_us: float, **changes: Any) -> Result:
    outcomes = {
        "ours": [Outcome({CPU.key: ours_us})], "beanstalkd": [Outcome({CPU.key: theirs_us})],
    }  # fmt: skip
    return Result(workload(**changes), outcomes)


def twice(ours_us: float, theirs_us: float) -> Result:
    outcomes = result(ours_us, theirs_us).outcomes
    return Result(workload(), {side: rounds * 2 for side, rounds in outcomes.items()})


def printed(**changes: Any) -> str:
    content: dict[str, Any] = {
        "commands": 9, "cycles": 3, "puts": 4, "wrong": 0, "wall_s": 0.5, "commands_per_s": 18.0,
        "server": {"cpu_us_per_command": 7.5, "memory_kb_before": 100, "memory_kb_after": 108},
        "client": {"cpu_share": 0.1}, "latency_us": {"unit": "us", "all": LATENCY},
        "memory_kb": [], "first_wrong": "",
    }  # fmt: skip
    return json.dumps(content | changes)


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_values() -> None:
    seen = compare([10.0, 40.0, 12.0], [5.0, 20.0, 4.0])
    assert (seen.ours, seen.theirs) == (12.0, 5.0)
    assert (seen.ratio, seen.low, seen.high) == (2.0, 2.0, 3.0)


def test_a_round_without_a_figure_does_not_count() -> None:
    seen = compare([10.0, 10.0, math.nan], [5.0, 0.0, 5.0])
    assert (seen.ratio, seen.low, seen.high) == (2.0, 2.0, 2.0)
    assert math.isnan(compare([1.0], [0.0]).ratio)


@pytest.mark.parametrize(
    ("figure", "target", "value", "is_optimised", "said"),
    [
        # What should be small is met up to its target, what should be large from it on.
        *((CPU, Target(1.6, 1.0, 1.9), value, True, said)
          for value, said in ((1.0, "aim"), (1.01, "met"), (1.6, "met"), (1.61, "missed"))),
        *((RATE, Target(1.7, 5.0), value, True, said)
          for value, said in ((5.0, "aim"), (4.99, "met"), (1.7, "met"), (1.69, "missed"))),
        # An interpreter without PGO has a target of its own.
        (CPU, Target(1.6, 1.0, 1.9), 1.9, False, "met"),
        (CPU, Target(1.6, 1.0, 1.9), 1.91, False, "missed"),
        (CPU, Target(1.6, 1.0), 1.61, False, "missed"),
        (CPU, None, 99.0, True, ""), (CPU, Target(1.0), math.nan, True, "unknown"),
    ],
)  # fmt: skip
def test_a_figure_is_judged_by_its_target(
    figure: Figure, target: Target | None, value: float, is_optimised: bool, said: str
) -> None:
    assert verdict(figure, target, value, is_optimised=is_optimised) == said


def test_a_run_is_read_off() -> None:
    figures, memory, _ = parse_outcome(printed())
    assert (figures[CPU.key], figures[RATE.key], figures["p99_us"]) == (7.5, 18.0, 8.0)
    assert PAUSE.key not in figures and JOB_BYTES.key not in figures and not memory
    # Memory a job is what the server has grown by; the pause the longest round trip of the probe.
    figures, memory, _ = parse_outcome(printed(memory_kb=[[2, 104], [4, 108]]))
    assert figures[JOB_BYTES.key] == 8 * 1024 / 4
    assert memory == [(2, 104 * 1024), (4, 108 * 1024)]
    said = printed(latency_us={"unit": "us", "all": LATENCY, "probe": LATENCY | {"longest": 17e3}})
    assert parse_outcome(said).figures[PAUSE.key] == 17.0


def test_one_wrong_reply_or_none_at_all_makes_a_run_worthless() -> None:
    with pytest.raises(WrongRepliesError, match="the first to put: BURIED"):
        parse_outcome(printed(wrong=1, first_wrong="put: BURIED"))
    with pytest.raises(WrongRepliesError, match="not one command"):
        parse_outcome(printed(commands=0))


def test_a_replay_is_what_a_full_start_takes_beyond_an_empty_one() -> None:
    assert replayed(1000, 0.5, 2.5).figures[REPLAY.key] == 500.0
    for lost_in_noise_s in (0.5, 0.4):
        figures = replayed(1000, 0.5, lost_in_noise_s).figures
        assert math.isnan(figures[REPLAY.key])
        assert (figures["empty_start_s"], figures["full_start_s"]) == (0.5, lost_in_noise_s)
        assert verdict(REPLAY, Target(1.5), figures[REPLAY.key], is_optimised=True) == "unknown"


def test_names_are_told_apart_and_every_load_can_be_written() -> None:
    assert len({each.name for each in WORKLOADS}) == len(WORKLOADS)
    for each in WORKLOADS:
        words = each.words(quick=False)
        assert "{" not in " ".join([*words, each.says.format(jobs=1)])
        assert "--ms" in words or "--count" in words or each.flood


def test_a_quick_run_takes_a_fiftieth_of_the_jobs_but_not_too_few() -> None:
    assert workload().words(quick=True)[3] == "20000"
    assert workload(jobs=1000).words(quick=True)[3] == "100"
    assert workload().words(quick=False)[3] == "1000000"


def test_workloads_are_chosen_by_names_and_stars_and_an_unknown_one_is_refused() -> None:
    assert [each.name for each in chosen(["rt50", "kick"], quick=False)] == ["rt50", "kick"]
    assert {each.name[:4] for each in chosen(["sync*"], quick=False)} == {"sync"}
    assert chosen([], quick=False) == list(WORKLOADS)
    assert 0 < len(chosen([], quick=True)) < len(WORKLOADS)
    with pytest.raises(ValueError, match=r"no workload 'rt49'; there are: rt1 .*replay"):
        chosen(["rt50", "rt49"], quick=False)


def test_servers_take_turns_at_being_first() -> None:
    names = [[side.name for side in order(SIDES, round_)] for round_ in range(3)]
    assert names == [["ours", "beanstalkd"], ["beanstalkd", "ours"], ["ours", "beanstalkd"]]


def test_a_line_shows_medians_ratio_spread_and_target() -> None:
    head, line = tables.rows([twice(19.0, 10.0)], tables.Terms(quick=False, is_optimised=False))
    shown = dict(zip(head, line, strict=True))
    assert shown["what"] == "put 1,000,000 jobs"
    assert (shown["ours"], shown["beanstalkd"], shown["ours ÷ theirs"]) == ("19.0", "10.0", "1.90")
    assert shown["spread"] == "1.90 to 1.90"
    assert shown["target"] == "≤ 1.9, aim ≤ 1: met"


def test_where_figures_say_too_little_targets_are_shown_and_not_judged() -> None:
    terms = tables.Terms(quick=False, is_optimised=False, is_judged=False)
    head, line, other = tables.rows([twice(19.0, 10.0), result(1.0, 1.0, figures=((CPU, None),))],
                                    terms)  # fmt: skip
    shown = dict(zip(head, line, strict=True))
    assert shown["target"] == "≤ 1.9, aim ≤ 1: -"
    assert other[-1] == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rounds": 1}, "one round does not show how far figures vary"),
        ({"machine": MACHINE._replace(load=2.01)},
         "the load was 2.0 at the beginning, and there are 2 processors"),
        ({"quick": True}, "this was a quick run"),
    ],
)  # fmt: skip
def test_why_no_target_is_judged_is_told(changes: dict[str, Any], why: str) -> None:
    told = report()._replace(**changes)
    assert f"No target is judged (`-`), since {why}." in told.head()
    assert publishing.as_json(told)["unjudged"] == why
    assert " met " not in told.table()
    judged = report()._replace(machine=MACHINE._replace(load=2.0), rounds=2)
    assert " met " in judged.table() and not any("judged" in line for line in judged.head())


def test_a_pause_is_judged_by_its_own_length() -> None:
    outcomes = {"ours": [Outcome({PAUSE.key: 99.0})], "beanstalkd": [Outcome({PAUSE.key: 0.5})]}
    row = workload(figures=((PAUSE, Target(100.0, 20.0)),))
    _, line = tables.rows([Result(row, outcomes)], TERMS)
    assert line[-1] == "≤ 100 ms, aim ≤ 20 ms: met"


def test_a_workload_that_failed_is_a_line_and_not_a_gap() -> None:
    lines = tables.rows([Result(workload(), {}, "ours: gone")], TERMS)
    assert lines[1][0] == "row"
    assert "FAILED" in lines[1]
    assert len(lines[0]) == len(lines[1])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123, "0.12"), (9.99, "9.99"), (10.04, "10.0"), (1234567.0, "1,234,567"), (math.nan, "-")],
)
def test_numbers_have_three_digits_that_count(value: float, shown: str) -> None:
    assert tables.number(value) == shown


def report(quick: bool = False) -> publishing.Report:
    lines = [result(19.0, 10.0)]
    return publishing.Report("make bench", "2026-01-02", MACHINE, quick, 3, lines)


def test_the_page_gets_the_newest_table_and_keeps_the_rest() -> None:
    page = f"before\n{publishing.BEGIN}\nan old table\n{publishing.END}\nafter\n"
    once = publishing.published(page, report(), ["x/log.svg"])
    assert once.startswith("before\n") and once.endswith("\nafter\n")
    assert "an old table" not in once
    assert "built **without** PGO" in once
    assert "`make bench`, 2026-01-02" in once
    assert "![Size of the log over time](x/log.svg)" in once
    assert publishing.published(once, report(), ["x/log.svg"]) == once
    with pytest.raises(ValueError, match="no place for the table"):
        publishing.published("a page", report(), [])
    assert "| row" in publishing.published(publishing.PAGE.read_text(), report(), [])


def test_the_page_leaves_out_details_and_how_jobs_are_kept() -> None:
    told, left_out = result(19.0, 10.0), result(1.0, 1.0)
    told.outcomes["redis"] = [Outcome({CPU.key: 3.0})]
    detail = workload()._replace(name="detail", is_detail=True)
    made = report()._replace(results=[told, left_out._replace(workload=detail)])
    head, _, *lines = made.page_table().splitlines()
    assert head.split()[1::2][:3] == ["workload", "what", "figure"]
    assert [line.split()[1] for line in lines] == ["row"]
    assert "redis" in head and "kept" not in head
    assert "detail" in made.table()


def test_the_json_has_no_word_that_json_has_not() -> None:
    content = publishing.as_json(report()._replace(results=[result(math.nan, 1.0)]))
    outcomes = json.loads(json.dumps(content, allow_nan=False))["workloads"]["row"]["outcomes"]
    assert outcomes["ours"][0]["figures"] == {}
    assert outcomes["beanstalkd"][0]["figures"] == {CPU.key: 1.0}


def test_the_plots_of_an_earlier_run_go_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("log.svg", "connections.svg", "mine.svg"):
        (tmp_path / name).write_text("an earlier one")
    publishing.write(tmp_path, report())
    assert {each.name for each in tmp_path.iterdir()} == {"mine.svg", "speed.json", "table.md"}


def test_what_is_published_has_no_plots_of_an_earlier_run(tmp_path: Path) -> None:
    page, folder, drawn = tmp_path / "page.md", tmp_path / "results", tmp_path / "memory.svg"
    folder.mkdir()
    (folder / "log.svg").write_text("an earlier one")
    drawn.write_text("a plot")
    page.write_text(f"{publishing.BEGIN}\n![Size](../x/log.svg)\n{publishing.END}")
    publishing.publish(report(), [drawn], page, folder)
    assert [each.name for each in folder.iterdir()] == ["memory.svg"]
    assert "memory.svg" in page.read_text()
    assert "log.svg" not in page.read_text()


def test_the_head_says_where_a_server_is_from_or_the_commit_of_this_checkout() -> None:
    (ours_is, *_) = MACHINE._replace(imported_from="/a/beanstalk_twisted").sentences()
    assert "not of this checkout, but imported from `/a/beanstalk_twisted`" in ours_is
    assert "not of this checkout" not in MACHINE.sentences()[0]
    of_here = MACHINE._replace(commit="abc1234-dirty")
    assert of_here.sentences()[0].endswith("; commit abc1234-dirty.")
    assert "commit" not in of_here._replace(imported_from="/a/beanstalk_twisted").sentences()[0]


def test_the_processor_and_the_file_system_are_named() -> None:
    assert processor("processor\t: 0\nmodel name\t: Some CPU\nflags\t: a b\n") == "Some CPU"
    assert processor("") == "unknown"
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /some tmpfs rw 0 0\n/dev/b /somewhere xfs rw 0 0\n"
    assert file_system(Path("/some/log"), mounts) == "tmpfs"
    assert file_system(Path("/somewhere/log"), mounts) == "xfs"
    assert file_system(Path("/other"), mounts) == "ext4"
