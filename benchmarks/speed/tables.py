"""The one table: a line for each figure of each workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from benchmarks.speed.figures import Comparison, Figure, Target, compare, median, verdict
from benchmarks.speed.running import Result
from benchmarks.speed.servers import OURS, REDIS, THEIRS

HEAD: Final = (
    "workload", "what", "kept", "figure", "ours", "beanstalkd", "ours ÷ theirs", "spread", "target",
)  # fmt: skip
RIGHT: Final = frozenset({"ours", "beanstalkd", "ours ÷ theirs", "spread", REDIS})
"""Columns that are set flush right."""

BRIEF: Final = (*(name for name in HEAD if name != "kept"), REDIS)
"""The columns of a page, which says once what the names of workloads tell of the log."""

NOTHING: Final = "-"


def number(value: float) -> str:
    """Show three digits that count, and no exponent."""
    if math.isnan(value):
        return NOTHING
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def values(result: Result, side: str, figure: Figure) -> list[float]:
    """Give a figure in each round."""
    return [each.figures.get(figure.key, math.nan) for each in result.outcomes.get(side, [])]


def bound(figure: Figure, wanted: float) -> str:
    """Show what is to be reached, with its direction."""
    return f"{'≤' if figure.lower_is_better else '≥'} {wanted:g}{' ms' * figure.is_absolute}"


def spread(seen: Comparison) -> str:
    """Show how far the ratios of the rounds are apart, if there are two at least."""
    if seen.rounds < 2:
        return NOTHING
    return f"{number(seen.low)} to {number(seen.high)}"


class Terms(NamedTuple):
    """How figures came about, as far as the table depends on it.

    :ivar quick: jobs were fewer.
    :ivar is_optimised: the interpreter was built with PGO: some targets are higher then.
    :ivar is_judged: whether figures say enough to be held against the targets.
    """

    quick: bool
    is_optimised: bool
    is_judged: bool = True


def judged(figure: Figure, target: Target | None, seen: Comparison, terms: Terms) -> str:
    """Say what is to be reached, what was hoped for, and which of the two is, or nothing of it
    where figures do not say enough.
    """
    if target is None:
        return ""
    value = seen.ours if figure.is_absolute else seen.ratio
    wanted = bound(figure, target.required(terms.is_optimised))
    hoped = "" if target.aim is None else f", aim {bound(figure, target.aim)}"
    said = verdict(figure, target, value, terms.is_optimised) if terms.is_judged else NOTHING
    return f"{wanted}{hoped}: {said}"


def row(result: Result, figure: Figure, target: Target | None, terms: Terms) -> list[str]:
    """Make one line; the last cell is Redis's."""
    workload = result.workload
    seen = compare(values(result, OURS, figure), values(result, THEIRS, figure))
    return [
        workload.name, workload.says.format(jobs=workload.count(terms.quick)), workload.disk.says,
        figure.label, number(seen.ours), number(seen.theirs), number(seen.ratio), spread(seen),
        judged(figure, target, seen, terms),
        number(median(values(result, REDIS, figure))),
    ]  # fmt: skip


def rows(results: Iterable[Result], terms: Terms) -> list[list[str]]:
    """Make all lines, the head first; the column of Redis is there if Redis was."""
    has_redis = False
    lines = []
    for result in results:
        has_redis = has_redis or REDIS in result.outcomes
        if result.problem:
            lines.append(failed(result, terms.quick))
        else:
            lines += once([row(result, *each, terms) for each in result.workload.figures])
    width = len(HEAD) + has_redis
    return [[*HEAD, REDIS][:width], *(line[:width] for line in lines)]


def once(lines: list[list[str]]) -> list[list[str]]:
    """Say in the first line of a workload only what it is, and how jobs are kept."""
    return [
        line if number == 0 else [line[0], "", "", *line[3:]] for number, line in enumerate(lines)
    ]


def failed(result: Result, quick: bool) -> list[str]:
    """Make the line of a workload that came to nothing."""
    workload = result.workload
    what = workload.says.format(jobs=workload.count(quick))
    return [workload.name, what, workload.disk.says, "FAILED", *[NOTHING] * (len(HEAD) - 3)]


def brief(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Leave only the columns of a page.

    :param lines: the head first.
    """
    kept = [column for column, name in enumerate(lines[0]) if name in BRIEF]
    return [[line[column] for column in kept] for line in lines]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Set a table so that it can be read as it is, and as Markdown.

    :param lines: the head first.
    """
    right = {column for column, name in enumerate(lines[0]) if name in RIGHT}
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = [
        "-" * (width - 1) + ":" if column in right else "-" * width
        for column, width in enumerate(widths)
    ]
    return "".join(
        "| " + " | ".join(aligned(line, widths, right)) + " |\n"
        for line in (lines[0], rule, *lines[1:])
    )


def aligned(cells: Sequence[str], widths: Sequence[int], right: Set[int]) -> list[str]:
    """Fill cells up to their widths.

    :param right: columns that are set flush right.
    """
    return [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
