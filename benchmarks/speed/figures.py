"""What is read off one run of one server, and how the runs of two servers are compared."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

NO_FIGURE: Final = math.nan
"""Where nothing can be said, as for a ratio to 0."""


class Figure(NamedTuple):
    """One thing that is measured.

    :ivar key: its name in an `Outcome` and in the JSON.
    :ivar label: its name in the table, with the unit.
    :ivar is_absolute: its target is a number of its own unit, not a ratio.
    """

    key: str
    label: str
    lower_is_better: bool
    is_absolute: bool = False


CPU: Final = Figure("cpu_us", "CPU a command, µs", lower_is_better=True)
RATE: Final = Figure("rate", "commands/s", lower_is_better=False)
JOB_BYTES: Final = Figure("job_bytes", "memory a job, bytes", lower_is_better=True)
REPLAY: Final = Figure("replay", "replay, jobs a CPU second", lower_is_better=False)
PAUSE: Final = Figure("pause_ms", "longest pause, ms", lower_is_better=True, is_absolute=True)
LOG_BYTES: Final = Figure("log_bytes", "largest log, bytes", lower_is_better=True)

ASK_P99: Final = Figure("ask_p99_ms", "a question, p99, ms", True, is_absolute=True)
ASK_WORST: Final = Figure("ask_worst_ms", "a question, worst, ms", True, is_absolute=True)
CYCLE_P99: Final = Figure("cycle_p99_ms", "put or delete, p99, ms", True, is_absolute=True)
CYCLE_WORST: Final = Figure("cycle_worst_ms", "put or delete, worst, ms", True, is_absolute=True)
PEAK_BYTES: Final = Figure("peak_bytes", "memory taken, bytes", lower_is_better=True)
KEPT_BYTES: Final = Figure("kept_bytes", "memory kept, bytes", lower_is_better=True)

P50: Final = "p50_us"
P99: Final = "p99_us"
"""Keys of the round trip that 50 and 99 of 100 commands do not exceed; for the plots."""


class Target(NamedTuple):
    """What a figure has to reach: a ratio to beanstalkd's, or a value if the figure is absolute.

    :ivar unoptimised: in place of `at_least`, for an interpreter that was built without PGO.
    :ivar aim: what would be better still.
    """

    at_least: float
    aim: float | None = None
    unoptimised: float | None = None

    def required(self, is_optimised: bool) -> float:
        """Say what this interpreter has to reach."""
        if is_optimised or self.unoptimised is None:
            return self.at_least
        return self.unoptimised


class Outcome(NamedTuple):
    """One run of one server.

    :ivar figures: by `Figure.key`.
    :ivar memory: pairs of jobs and resident bytes.
    :ivar log: pairs of seconds and bytes of all files of the log.
    """

    figures: dict[str, float]
    memory: Sequence[tuple[float, float]] = ()
    log: Sequence[tuple[float, float]] = ()


class WrongRepliesError(Exception):
    """The server has answered something else than it should; its figures mean nothing."""


def parse_outcome(text: str) -> Outcome:
    """Read what the load generator prints.

    :raise WrongRepliesError: the server's replies were wrong, or there were none.
    """
    said = json.loads(text)
    if said["wrong"]:
        raise WrongRepliesError(
            f"{said['wrong']} wrong replies, the first to {said['first_wrong']}"
        )
    if not said["commands"]:
        raise WrongRepliesError("not one command was answered")
    latency = said["latency_us"]
    found = {
        CPU.key: said["server"]["cpu_us_per_command"],
        RATE.key: said["commands_per_s"],
        P50: latency["all"]["p50"],
        P99: latency["all"]["p99"],
        "commands": said["commands"],
        "generator_share": said["client"]["cpu_share"],
    }
    if "probe" in latency:
        found[PAUSE.key] = latency["probe"]["longest"] / 1000
    memory = [(jobs, kilobytes * 1024) for jobs, kilobytes in said["memory_kb"]]
    if memory:
        found[JOB_BYTES.key] = job_bytes(said)
    return Outcome(found, memory)


def job_bytes(said: dict[str, Any]) -> float:
    """Say how much memory a job took, bytes."""
    server = said["server"]
    grown = server["memory_kb_after"] - server["memory_kb_before"]
    return float(grown * 1024 / said["puts"]) if said["puts"] else NO_FIGURE


class Comparison(NamedTuple):
    """Two servers in one figure.

    :ivar ours: the median; likewise theirs.
    :ivar ratio: the median of the ratios of each round, ours to theirs.
    :ivar low: the smallest of these.
    :ivar high: the largest.
    :ivar rounds: how many ratios there were.
    """

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    rounds: int


def ratio(ours: float, theirs: float) -> float:
    """Divide, if there is something to divide by."""
    return ours / theirs if theirs > 0 else NO_FIGURE


def median(values: Iterable[float]) -> float:
    """The middle of those that are numbers."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else NO_FIGURE


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare round by round: what disturbs the machine disturbs both of a round alike.

    :param ours: one value for each round; theirs in the same order.
    """
    ratios = [ratio(*pair) for pair in zip(ours, theirs, strict=True)]
    known = [each for each in ratios if not math.isnan(each)]
    low, high = min(known, default=NO_FIGURE), max(known, default=NO_FIGURE)
    return Comparison(median(ours), median(theirs), median(ratios), low, high, len(known))


def verdict(figure: Figure, target: Target | None, value: float, is_optimised: bool) -> str:
    """Say whether a target is met.

    :param value: the ratio, or ours if the figure is absolute.
    """
    if target is None:
        return ""
    if math.isnan(value):
        return "unknown"
    if target.aim is not None and reaches(figure, value, target.aim):
        return "aim"
    return "met" if reaches(figure, value, target.required(is_optimised)) else "missed"


def reaches(figure: Figure, value: float, wanted: float) -> bool:
    """Compare in the direction that is better."""
    return value <= wanted if figure.lower_is_better else value >= wanted
