"""Writes what came out: JSON, plots, and the newest table into the documentation."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.speed import plots, tables
from benchmarks.speed.machine import ROOT, Machine
from benchmarks.speed.running import Result

PAGE: Final = ROOT / "docs" / "performance.md"
PUBLISHED: Final = ROOT / "benchmarks" / "results" / "speed"

BEGIN: Final = "<!-- newest table: begin; written by make bench ARGS=--publish -->"
END: Final = "<!-- newest table: end -->"

QUICK_NOTE: Final = (
    "**This is a quick run**: short rounds, a fiftieth of the jobs. It shows that everything works "
    "and that replies are right; its figures say little."
)

CAPTIONS: Final = {
    "connections.svg": "Throughput and round trips over connections",
    "memory.svg": "Memory over jobs",
    "log.svg": "Size of the log over time",
}


class Report(NamedTuple):
    """A whole run.

    :ivar command: that does it again.
    :ivar unfinished: so many workloads are missing: the run was interrupted.
    """

    command: str
    date: str
    machine: Machine
    quick: bool
    rounds: int
    results: Sequence[Result]
    unfinished: int = 0

    def table(self) -> str:
        """Give the table, as Markdown."""
        terms = tables.Terms(self.quick, self.machine.is_optimised, not self.unjudged())
        return tables.markdown(tables.rows(self.results, terms))

    def page_table(self) -> str:
        """Give the table of the page: without details."""
        told = [each for each in self.results if not each.workload.is_detail]
        terms = tables.Terms(self.quick, self.machine.is_optimised, not self.unjudged())
        return tables.markdown(tables.brief(tables.rows(told, terms)))

    def unjudged(self) -> str:
        """Say why figures are not held against the targets; nothing if they are."""
        if self.quick:
            return "this was a quick run"
        if self.rounds == 1:
            return "one round does not show how far figures vary"
        if self.machine.is_busy:
            return (
                f"the load was {self.machine.load:.1f} at the beginning, and there are "
                f"{self.machine.processors} processors"
            )
        return ""

    def head(self) -> list[str]:
        """Say where the figures are from."""
        rounds = "one round" if self.rounds == 1 else f"up to {self.rounds} rounds"
        done = f"`{self.command}`, {self.date}, {rounds}."
        return [done, *self.machine.sentences(), *self.warnings()]

    def warnings(self) -> list[str]:
        """Say why the figures are not all, or say less than they seem to."""
        found = [QUICK_NOTE] if self.quick else []
        if self.unjudged():
            found.append(f"No target is judged (`-`), since {self.unjudged()}.")
        if self.unfinished:
            done = len(self.results)
            found.append(
                f"**This run was interrupted** after {done} of {done + self.unfinished} workloads."
            )
        return found

    def problems(self) -> list[str]:
        """Say which workloads came to nothing."""
        return [f"{each.workload.name}: {each.problem}" for each in self.results if each.problem]


def as_json(report: Report) -> dict[str, Any]:
    """Give all that was measured."""
    return {
        "command": report.command, "date": report.date, "quick": report.quick,
        "rounds": report.rounds, "unfinished": report.unfinished,
        "unjudged": report.unjudged(), "machine": report.machine._asdict(),
        "workloads": {
            each.workload.name: {
                "what": each.workload.says.format(jobs=each.workload.count(report.quick)),
                "kept": each.workload.disk.says,
                "load": each.workload.words(report.quick),
                "problem": each.problem,
                "outcomes": {
                    side: [known(outcome._asdict()) for outcome in outcomes]
                    for side, outcomes in each.outcomes.items()
                },
            }
            for each in report.results
        },
    }  # fmt: skip


def known(outcome: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not a number: JSON has no word for it."""
    figures = {key: value for key, value in outcome["figures"].items() if not math.isnan(value)}
    return {**outcome, "figures": figures}


def write_json(folder: Path, report: Report) -> Path:
    """Write the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "speed.json"
    path.write_text(json.dumps(as_json(report), indent=1) + "\n")
    return path


def write(folder: Path, report: Report) -> list[Path]:
    """Write the files, as far as possible, and remove the plots of an earlier run that has more.

    :return: what was written.
    """
    written = [write_json(folder, report), folder / "table.md"]
    written[1].write_text("\n".join(report.head()) + "\n\n" + report.table())
    try:
        written += plots.draw(folder, report.results)
    except ImportError:
        print("no plots: matplotlib is not installed; pip install -e '.[bench]' brings it")
    remove_plots(folder, written)
    return written


def remove_plots(folder: Path, but: Sequence[Path]) -> None:
    """Remove the plots in a folder that do not belong to these files."""
    for name in CAPTIONS.keys() - {path.name for path in but}:
        (folder / name).unlink(missing_ok=True)


def published(page: str, report: Report, images: Sequence[str]) -> str:
    """Put the newest table between its two marks on the page.

    :param images: links to plots.
    :raise ValueError: the page has no such place.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the table: {BEGIN!r} and {END!r} are missing")
    lines = "\n".join(f"- {line}" for line in report.head())
    drawn = "".join(f"\n![{CAPTIONS[image.rpartition('/')[2]]}]({image})\n" for image in images)
    return f"{before}{BEGIN}\n\n{lines}\n\n{report.page_table()}{drawn}\n{END}{after}"


def publish(
    report: Report, written: Sequence[Path], page: Path = PAGE, folder: Path = PUBLISHED
) -> None:
    """Bring the page, and the folder of what it shows, up to date."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in written:
        if path.name != "table.md":
            shutil.copy(path, folder)
    remove_plots(folder, written)
    images = [
        f"../benchmarks/results/speed/{each.name}" for each in written if each.suffix == ".svg"
    ]
    page.write_text(published(page.read_text(), report, images))
