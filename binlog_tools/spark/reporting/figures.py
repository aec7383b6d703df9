"""
The figures of the report, each as one piece of SVG that may stand in a page.

The same numbers give the same bytes: no dates, and ids that depend on the figure's name alone.
"""

import io
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import matplotlib
import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from binlog_tools.spark.reporting.readings import ENDS, STATES, Row, Series

COLOURS: Final = ("#2f6690", "#e08e45", "#4c956c", "#a23b72", "#6c757d", "#8d99ae", "#c9ada7")
"""Of tubes; they can be told apart also in grey, and by most eyes."""

STATE_COLOURS: Final = {
    "ready": "#2f6690", "reserved": "#4c956c", "delayed": "#d9b44a", "buried": "#b23a48",
}  # fmt: skip
END_COLOURS: Final = {
    "timeouts": "#b23a48", "buries": "#7d4f50", "releases": "#d9b44a", "disconnects": "#8d99ae",
}  # fmt: skip
DONE: Final = "#4c956c"
INK: Final = "#33383d"
FAINT: Final = "#d5d9dd"

LENGTHS: Final = (
    *(10.0**power for power in range(-7, 2)), *(60.0, 600.0), *(3600.0, 36_000.0),
    *(86_400.0 * 10**power for power in range(4)),
)  # fmt: skip
"""What is marked on an axis of lengths of time, in seconds: what people count in."""

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

CURVE_POINTS: Final = 240
"""Of a distribution: about one for each three points of the page's width."""

STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": FAINT,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#eceff1", "grid.linewidth": 0.8, "legend.frameon": False, "axes.titlesize": 10,
    "axes.titlelocation": "left", "xtick.major.size": 3, "ytick.major.size": 0, "timezone": "UTC",
}  # fmt: skip

_ID: Final = re.compile(r'(\bid="|url\(#|href="#)')
_SIZE: Final = re.compile(r'(<svg [^>]*?)width="[\d.]+pt" height="[\d.]+pt"')
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)


def svg(name: str, title: str, figure: Figure) -> str:
    """
    :param name: unlike that of any other figure of the page: its ids begin with it.
    :param title: for who cannot see the figure.
    """
    out = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = _METADATA.sub("", out.getvalue())
    text = text[text.index("<svg") :]
    text = _ID.sub(rf"\g<1>{name}-", text)
    text = _SIZE.sub(r"\1", text, count=1)
    label = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _new(height: float = 3.0) -> tuple[Figure, Axes]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.2, height), layout="constrained")
        return figure, figure.subplots()


def _time_axis(axes: Axes) -> None:
    locator = mdates.AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        mdates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    )
    axes.margins(x=0)


def _counts(axes: Axes) -> None:
    # Where nothing ever is, there would be nothing but noughts on the axis.
    axes.set_ylim(0, max(1, axes.get_ylim()[1]))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def depth(series: Series) -> str:
    figure, axes = _new()
    stack = [series.depth[state] for state in STATES]
    colours = [STATE_COLOURS[state] for state in STATES]
    axes.stackplot(
        _edges(series), *map(_stepped, stack), labels=STATES, colors=colours, linewidth=0
    )
    _time_axis(axes)
    _counts(axes)
    axes.set_ylabel("jobs")
    figure.legend(*_in_use(axes, stack), loc="outside upper left", frameon=False, ncols=4)
    return svg("depth", "Jobs in the queue over time, by state", figure)


def _edges(series: Series) -> list[Any]:
    width = timedelta(minutes=series.width)
    return [moment for time in series.times for moment in (time, time + width)]


def _stepped(numbers: np.ndarray) -> np.ndarray:
    return np.repeat(numbers, 2)


def _in_use(axes: Axes, stack: Sequence[np.ndarray]) -> tuple[list[Any], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    used = [at for at, numbers in enumerate(stack) if numbers.any()] or [0]
    return [handles[at] for at in used], [labels[at] for at in used]


def ready_by_tube(series: Series) -> str:
    figure, axes = _new()
    for (tube, numbers), colour in zip(series.by_tube.items(), COLOURS, strict=False):
        axes.plot(
            _edges(series), _stepped(numbers), label=_short(tube), color=colour, linewidth=1.4
        )
    _time_axis(axes)
    _counts(axes)
    axes.set_ylabel("ready jobs")
    figure.legend(loc="outside upper left", frameon=False, ncols=4)
    return svg("ready", "Jobs that wait for a worker over time, by tube", figure)


def flow(series: Series) -> str:
    figure, axes = _new()
    edges = _edges(series)
    puts, deletes = series.flow["puts"] / series.width, series.flow["deletes"] / series.width
    axes.fill_between(edges, _stepped(puts), color="#2f6690", alpha=0.25, linewidth=0, label="put")
    axes.plot(edges, _stepped(deletes), color=DONE, linewidth=1.4, label="deleted")
    failed = np.sum([series.flow[name] for name in ENDS], axis=0) / series.width
    axes.plot(edges, _stepped(failed), color="#b23a48", linewidth=1.1, label="failed runs")
    _time_axis(axes)
    axes.set_ylim(0, max(0.01, axes.get_ylim()[1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_ylabel("a minute")
    figure.legend(loc="outside upper left", frameon=False, ncols=3)
    return svg("flow", "Jobs put, jobs deleted and failed runs, a minute", figure)


def durations(waits: Mapping[int, int], runs: Mapping[int, int]) -> str:
    figure, axes = _new()
    for name, histogram, colour in (("wait", waits, "#2f6690"), ("run", runs, "#e08e45")):
        if histogram:
            seconds, share = _shares(histogram)
            axes.step(seconds, share, where="post", color=colour, linewidth=1.8, label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(LENGTHS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    for percent in (50, 95, 99):
        axes.axhline(percent, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_yticks([0, 25, 50, 75, 95])
    axes.set_ylim(0, 101)
    axes.set_ylabel("% took no longer")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", frameon=False, ncols=2)
    return svg("durations", "Distribution of waits and runs", figure)


def _shares(histogram: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """
    :return: `CURVE_POINTS` times in seconds, evenly along a logarithmic axis, and which share of
        100 took no longer.
    """
    lengths = np.array(sorted(histogram))
    sums = np.cumsum([histogram[int(length)] for length in lengths])
    low = max(1000, int(lengths[np.searchsorted(sums, sums[-1] / 1000)]))
    high = max(low * 2, int(lengths[-1]))
    points = np.geomspace(low, high, CURVE_POINTS)
    points[-1] = high
    before = np.searchsorted(lengths, points, side="right")
    return points / 1e9, np.concatenate([[0], sums])[before] / sums[-1] * 100


def seconds_text(seconds: float) -> str:
    """
    A length of time in the unit that suits it: ``2 ms``, ``30 s``, ``5 min``, ``3 h``.
    """
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
    for size, unit in units:
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"


def hours(grid: np.ndarray) -> str:
    figure, axes = _new(2.7)
    mesh = axes.pcolormesh(grid, cmap="Blues", vmin=0, edgecolors="white", linewidth=1.5)
    axes.set_yticks(np.arange(7) + 0.5, DAYS)
    axes.set_xticks(np.arange(0, 25, 3), [f"{hour}:00" for hour in range(0, 25, 3)])
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=14)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return svg("hours", "Jobs put, by day of the week and hour", figure)


def poison(rows: Sequence[Row]) -> str:
    names = [f"{_short(row['tube'] or '?')}  {(row['fingerprint'] or '-')[:8]}" for row in rows]
    figure = _bars(names, _ends(rows), "failures")
    return svg("poison", "Failures of the worst kinds of jobs", figure)


def workers(rows: Sequence[Row]) -> str:
    names = [f"{row['server'][:6]}  {row['incarnation']}/{row['connection']}" for row in rows]
    deleted = ("deleted", DONE, [row["deletes"] for row in rows])
    figure = _bars(names, [deleted, *_ends(rows)], "runs")
    return svg("workers", "How the runs of the busiest connections ended", figure)


Stack = Sequence[tuple[str, str, Sequence[int]]]
"""The parts of bars: label, colour, and a number for each bar."""


def _ends(rows: Sequence[Row]) -> Stack:
    return [(end, END_COLOURS[end], [row[end] for row in rows]) for end in ENDS]


def _bars(names: Sequence[str], parts: Stack, counted: str) -> Figure:
    figure, axes = _new(0.9 + 0.3 * len(names))
    left = np.zeros(len(names))
    places = np.arange(len(names))
    for label, colour, numbers in parts:
        if any(numbers):
            axes.barh(places, numbers, left=left, color=colour, label=label, height=0.68)
        left += np.array(numbers)
    axes.set_yticks(places, names, family="monospace", fontsize=9)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(counted)
    figure.legend(loc="outside upper left", frameon=False, ncols=len(parts))
    return figure


def _short(tube: str) -> str:
    """
    A tube's name, cut; matplotlib takes dollars for mathematics, and hides labels that begin with
    ``_``.
    """
    text = tube if len(tube) <= 24 else f"{tube[:23]}…"
    return ("\u200b" + text if text.startswith("_") else text).replace("$", r"\$")
