"""Draws what a table cannot show: curves over connections, jobs and time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.speed.figures import P50, P99, RATE, median
from benchmarks.speed.running import Result
from benchmarks.speed.servers import OURS, REDIS, THEIRS

COLOURS: Final = {OURS: "C0", THEIRS: "C1", REDIS: "C7"}
STYLES: Final = ("-", "--")

MIB: Final = 1 << 20


def prepare() -> Any:
    """Get the library, set to write the same bytes for the same figures.

    :raise ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "speed"
    from matplotlib import pyplot

    return pyplot


def draw(folder: Path, results: Sequence[Result]) -> list[Path]:
    """Draw all plots there are figures for.

    :return: what was written.
    :raise ImportError: matplotlib is not installed.
    """
    pyplot = prepare()
    return [
        *draw_connections(pyplot, folder / "connections.svg", results),
        *draw_memory(pyplot, folder / "memory.svg", results),
        *draw_log(pyplot, folder / "log.svg", results),
    ]


def curves(results: Sequence[Result], key: str) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Gather a figure over connections.

    :return: for each server and disk, connections and the median of the rounds.
    """
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for result in sorted(results, key=lambda each: each.workload.connections):
        if not result.workload.connections:
            continue
        for side, outcomes in result.outcomes.items():
            value = median(outcome.figures[key] for outcome in outcomes)
            curve = found.setdefault((side, result.workload.disk.says), [])
            curve.append((result.workload.connections, value))
    return found


def draw_connections(pyplot: Any, path: Path, results: Sequence[Result]) -> list[Path]:
    """Throughput and latency over connections."""
    if not curves(results, P50):
        return []
    disks = sorted({disk for _, disk in curves(results, P50)}, reverse=True)
    figure, axes = pyplot.subplots(
        2, len(disks), figsize=(5.5 * len(disks), 8), squeeze=False, layout="constrained"
    )
    for column, disk in enumerate(disks):
        draw_curves(axes[0][column], results, disk, (RATE.key,))
        draw_curves(axes[1][column], results, disk, (P50, P99))
        axes[0][column].set(title=disk, ylabel="commands/s", ylim=(0, None))
        axes[1][column].set(ylabel="round trip, ms: median, and 99 of 100 (dashed)", yscale="log")
    return save(pyplot, figure, path)


def draw_curves(axes: Any, results: Sequence[Result], disk: str, keys: Sequence[str]) -> None:
    """Draw one figure, or two in different styles, of all servers."""
    for key, style in zip(keys, STYLES, strict=False):
        factor = 1.0 if key == RATE.key else 1e-3
        for (side, kept), points in curves(results, key).items():
            if kept != disk:
                continue
            label = side if style == "-" else None
            axes.plot(
                [at for at, _ in points], [value * factor for _, value in points],
                style + "o", color=COLOURS[side], label=label, markersize=4,
            )  # fmt: skip
    axes.set(xlabel="connections", xscale="log")
    axes.legend()


def draw_memory(pyplot: Any, path: Path, results: Sequence[Result]) -> list[Path]:
    """Resident memory while jobs are put."""
    drawn = [result for result in results if any(map(has_memory, result.outcomes.values()))]
    if not drawn:
        return []
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for style, result in zip(STYLES, drawn, strict=False):
        for side, outcomes in result.outcomes.items():
            points = outcomes[-1].memory
            axes.plot(
                [jobs for jobs, _ in points], [size / MIB for _, size in points],
                style, color=COLOURS[side], label=f"{side}, {result.workload.name}",
            )  # fmt: skip
    axes.set(xlabel="jobs", ylabel="resident memory, MiB", ylim=(0, None), xlim=(0, None))
    axes.legend()
    return save(pyplot, figure, path)


def has_memory(outcomes: Sequence[Any]) -> bool:
    """Tell whether memory was looked at."""
    return bool(outcomes and outcomes[-1].memory)


def draw_log(pyplot: Any, path: Path, results: Sequence[Result]) -> list[Path]:
    """The size of the log over time."""
    drawn = [
        (side, outcomes[-1].log)
        for result in results
        for side, outcomes in result.outcomes.items()
        if outcomes and outcomes[-1].log
    ]
    if not drawn:
        return []
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for side, points in drawn:
        seconds = [at for at, _ in points]
        axes.plot(seconds, [size / MIB for _, size in points], color=COLOURS[side], label=side)
    axes.set(
        xlabel="seconds", ylabel="all files of the log, MiB", ylim=(0, None),
        title="jobs are put, reserved and deleted, a few stand by",
    )  # fmt: skip
    axes.legend()
    return save(pyplot, figure, path)


def save(pyplot: Any, figure: Any, path: Path) -> list[Path]:
    """Write a plot."""
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return [path]
