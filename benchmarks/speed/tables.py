"""
The one table: a line for each figure of each workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.speed.figures import Figure, Target, compare, median, verdict
from benchmarks.speed.running import Result
from benchmarks.speed.servers import OURS, REDIS, THEIRS

HEAD: Final = (
    "workload", "what", "kept", "figure", "ours", "beanstalkd", "ours ÷ theirs", "spread",
    "at least", "aim", "target",
)  # fmt: skip
RIGHT: Final = frozenset({4, 5, 6, 7, 8, 9, 11})
"""Columns that are set flush right."""

NOTHING: Final = "-"


def number(value: float) -> str:
    """
    Show three digits that count, and no exponent.
    """
    if math.isnan(value):
        return NOTHING
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def values(result: Result, side: str, figure: Figure) -> list[float]:
    """
    Give a figure in each round.
    """
    return [each.figures.get(figure.key, math.nan) for each in result.outcomes.get(side, [])]


def bound(figure: Figure, wanted: float) -> str:
    """
    Show what is to be reached, with its direction.
    """
    return f"{'≤' if figure.lower_is_better else '≥'} {wanted:g}{' ms' * figure.is_absolute}"


def row(
    result: Result, figure: Figure, target: Target | None, quick: bool, is_optimised: bool
) -> list[str]:
    """
    Make one line; the last cell is Redis's.
    """
    workload = result.workload
    seen = compare(values(result, OURS, figure), values(result, THEIRS, figure))
    judged = seen.ours if figure.is_absolute else seen.ratio
    return [
        workload.name, workload.says.format(jobs=workload.count(quick)), workload.disk.says,
        figure.label, number(seen.ours), number(seen.theirs), number(seen.ratio),
        f"{number(seen.low)} to {number(seen.high)}",
        bound(figure, target.required(is_optimised)) if target else "",
        bound(figure, target.aim) if target and target.aim is not None else "",
        verdict(figure, target, judged, is_optimised),
        number(median(values(result, REDIS, figure))),
    ]  # fmt: skip


def rows(results: Iterable[Result], quick: bool, is_optimised: bool) -> list[list[str]]:
    """
    Make all lines, the head first; the column of Redis is there if Redis was.
    """
    has_redis = False
    lines = []
    for result in results:
        has_redis = has_redis or REDIS in result.outcomes
        if result.problem:
            lines.append(failed(result, quick))
        else:
            lines += [row(result, *each, quick, is_optimised) for each in result.workload.figures]
    width = len(HEAD) + has_redis
    return [[*HEAD, REDIS][:width], *(line[:width] for line in lines)]


def failed(result: Result, quick: bool) -> list[str]:
    """
    Make the line of a workload that came to nothing.
    """
    workload = result.workload
    what = workload.says.format(jobs=workload.count(quick))
    return [workload.name, what, workload.disk.says, "FAILED", *[NOTHING] * (len(HEAD) - 3)]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """
    Set a table so that it can be read as it is, and as Markdown.

    :param lines: the head first.
    """
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = [
        "-" * (width - 1) + ":" if column in RIGHT else "-" * width
        for column, width in enumerate(widths)
    ]
    return "".join(
        "| " + " | ".join(aligned(line, widths)) + " |\n" for line in (lines[0], rule, *lines[1:])
    )


def aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """
    Fill cells up to their widths.
    """
    return [
        cell.rjust(width) if column in RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
