"""A soak: jobs that are reserved and released for minutes on end, and how large the log gets by
that.

Nothing is ever put or deleted after the beginning, so all that is written is garbage a moment
later, and a log that is not compacted grows without end.  ``python -m benchmarks.soak --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.releasing import CEILING_FACTOR, FACTOR, Measured, Plan, Sample, soak

REPORT_S: Final = 10
"""Seconds from one line of the table to the next."""

DEFAULT: Final = Plan(180, 8, 1000, 1000, 1 << 18, "always")
"""A log that is compacted many times in three minutes: some MB, in small segments."""

# Judging.


def problems_of(measured: Measured) -> list[str]:
    """Say what is wrong with a log.

    Its size swings: it grows to the bound, then a segment is restated at the end before it is
    deleted.  So half of the samples of the second half have to be within the bound, and all of
    them below the ceiling; and when the load is over it has to come to rest within the bound.
    """
    plan, samples = measured.plan, measured.samples
    bound, ceiling = plan.bound_bytes(FACTOR), plan.bound_bytes(CEILING_FACTOR)
    largest = max(each.log_bytes for each in samples)
    steady = steady_bytes(samples)
    problems = []
    if largest > ceiling:
        problems.append(f"the log took {largest:,} bytes, above the ceiling of {ceiling:,}")
    if steady > bound:
        problems.append(f"the log took {steady:,.0f} bytes half of the time, above {bound:,}")
    if measured.rest_bytes > bound:
        problems.append(f"the log stays at {measured.rest_bytes:,} bytes, above {bound:,}")
    if samples[-1].oldest == samples[0].oldest:
        problems.append(
            "nothing is shown: no segment was ever deleted; "
            "take more --seconds or a smaller --segment-size"
        )
    return problems


def steady_bytes(samples: Sequence[Sample]) -> float:
    """How large the log was in the second half, half of the time."""
    return statistics.median(each.log_bytes for each in samples[len(samples) // 2 :])


# Telling.

HEAD: Final = "seconds    log, bytes  files, bytes   of bound  segments  restated  releases"


def row(each: Sample, plan: Plan) -> str:
    """One line of the table."""
    share = each.log_bytes / plan.bound_bytes(FACTOR)
    segments = f"{each.oldest}-{each.newest}"
    return (
        f"{each.seconds:7.0f}  {each.log_bytes:12,}  {each.file_bytes:12,}  {share:9.2f}  "
        f"{segments:>8}  {each.migrated:8,}  {each.releases:8,}"
    )


def summary(measured: Measured) -> dict[str, float]:
    """The figures to compare."""
    plan, samples = measured.plan, measured.samples
    largest = max(each.log_bytes for each in samples)
    last, bound = samples[-1], plan.bound_bytes(FACTOR)
    return {
        "live bytes": plan.live_bytes,
        "bound, bytes": bound,
        "ceiling, bytes": plan.bound_bytes(CEILING_FACTOR),
        "largest log, bytes": largest,
        "largest log / bound": round(largest / bound, 2),
        "steady log / bound": round(steady_bytes(samples) / bound, 2),
        "log at rest / bound": round(measured.rest_bytes / bound, 2),
        "largest files, bytes": max(each.file_bytes for each in samples),
        "segments deleted": last.oldest - samples[0].oldest,
        "releases a second": round(last.releases / max(last.seconds, 1)),
        "restated for each other record": round(last.migrated / (last.records - last.migrated), 2),
    }


def write_json(path: Path, measured: Measured, problems: Sequence[str]) -> None:
    """All that was seen, for whoever wants to compare."""
    content = {
        "machine": {
            "processors": os.cpu_count(), "architecture": platform.machine(),
            "system": platform.system(), "python": platform.python_version(),
        },
        "plan": measured.plan._asdict(),
        "summary": summary(measured),
        "problems": list(problems),
        "samples": [each._asdict() for each in measured.samples],
    }  # fmt: skip
    path.write_text(json.dumps(content, indent=1) + "\n")


def draw(path: Path, measured: Measured) -> None:
    """The sizes over time.

    :raise ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "soak"
    from matplotlib import pyplot

    plan, samples = measured.plan, measured.samples
    seconds = [each.seconds for each in samples]
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    megabytes = 1 / (1 << 20)
    for label, sizes_, style in (
        ("all files", [each.file_bytes for each in samples], "C7-"),
        ("log", [each.log_bytes for each in samples], "C0-"),
    ):
        axes.plot(seconds, [size * megabytes for size in sizes_], style, label=label)
    for label, size, style in (
        ("4 live + 2 segments", plan.bound_bytes(CEILING_FACTOR), "C3--"),
        ("2 live + 2 segments", plan.bound_bytes(FACTOR), "C1--"),
        ("live", plan.live_bytes, "C2:"),
    ):
        axes.plot(seconds[:1] + seconds[-1:], [size * megabytes] * 2, style, label=label)
    axes.set(xlabel="seconds", ylabel="MiB", title=title(plan), ylim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def title(plan: Plan) -> str:
    """What was done, in one line."""
    return (
        f"{plan.jobs:,} jobs of {plan.body_bytes:,} bytes, reserved and released by "
        f"{plan.connections} connections; segments of {plan.segment_bytes >> 10} KiB"
    )


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Reserve and release jobs for minutes, and watch how large the log gets.  Ends "
        "with 1 if it was ever above 4 times what lives and 2 segments, or was not within 2 times "
        "what lives and 2 segments in its steady state."
    )
    parser.set_defaults(**DEFAULT._asdict())
    parser.add_argument("--seconds", type=float, help="how long (default: %(default)s)")
    parser.add_argument("--connections", type=int, help="clients at a time (%(default)s)")
    parser.add_argument("--jobs", type=int, help="how many there are (%(default)s)")
    parser.add_argument("--body-bytes", type=int, help="size of each (%(default)s)")
    parser.add_argument("--segment-bytes", type=int, help="the server's -s (%(default)s)")
    parser.add_argument("--fsync", help="the server's --fsync (%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("build/soak"), help="folder for soak.json and soak.svg"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    given = options(words)
    plan = Plan(*(getattr(given, name) for name in Plan._fields))
    print(f"{title(plan)}, for {plan.seconds:g} s\n\n{HEAD}", flush=True)

    def seen(each: Sample) -> None:
        if round(each.seconds) % REPORT_S == 0:
            print(row(each, plan), flush=True)

    measured = soak(plan, seen)
    print()
    for name, value in summary(measured).items():
        print(f"{name:32} {value:>12,}")
    problems = problems_of(measured)
    report(given.output, measured, problems)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def report(folder: Path, measured: Measured, problems: Sequence[str]) -> None:
    """Write the files, as far as possible."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "soak.json", measured, problems)
    print(f"\nwritten: {folder / 'soak.json'}")
    try:
        draw(folder / "soak.svg", measured)
        print(f"written: {folder / 'soak.svg'}")
    except ImportError:
        print("no plot: matplotlib is not installed; pip install -e '.[bench]' brings it")


if __name__ == "__main__":
    sys.exit(main())
