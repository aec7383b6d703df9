"""What to look at first: rules that compare figures with thresholds, and say in words what they
found.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from binlog_tools.spark.reporting.page import (
    count_text,
    length_text,
    seconds_text,
    share_text,
    time_text,
)
from binlog_tools.spark.reporting.readings import Readings, server_text
from binlog_tools.spark.reporting.series import OTHERS, Flow, Summary, summaries, whole_summary

MAX_FINDINGS: Final = 8
"""The weightiest: who reads more than that reads the figures."""

MAX_NAMED: Final = 5
"""Other tubes that a finding names."""

FEW_RUNS: Final = 20
"""Of fewer runs no share is told: one more failure would change it by 5 of 100."""

FAILED_SHARE: Final = 0.05
"""Of a tube's runs: one in twenty is more than what a retry is for."""

FEW_LENGTHS: Final = 20
"""Of fewer waits or runs the p95 is the longest of them: one job is no rule."""

KIND_SHARE: Final = 0.5
"""Of all failures: one kind of jobs that has half of them is one cause."""

FEW_FAILURES: Final = 10
"""Of fewer failures none is called the cause."""

LONG_WAIT_S: Final = 60.0
"""p95 of waits: a minute is where people begin to ask where their job is."""

LONG_WAIT_RUNS: Final = 10.0
"""Times p95 of the runs, which the wait must be as well: it is workers that lack, not speed."""

MANY_READY: Final = 100
"""Ready jobs at the end: fewer are a moment's."""

CLIMB: Final = 2.0
"""Times what stood there in the first quarter of the time."""

WORKER_TIMES: Final = 3.0
"""Times the failed share of all workers: one of them is broken, or has the worst jobs."""

RESTARTS_A_DAY: Final = 3.0
"""More than two deploys a day: something ends the server."""

NO_SAMPLE: Final = (
    "To see what they have in common, make the tables in a new folder of events with bodies: "
    "python -m binlog_tools.spark events LOG -o EVENTS --body."
)
"""What to do where no body is known."""


class Finding(NamedTuple):
    """:ivar weight: the heaviest comes first; about 1 at a threshold.
    :ivar figure: the id of what shows it, on the page.
    :ivar tube: to be chosen there; empty: all.
    :ivar subject: whom it is about, if that is no tube.
    """

    weight: float
    text: str
    figure: str
    tube: str = ""
    subject: str = ""


def findings(now: Readings) -> list[Finding]:
    """Return what stands out, the weightiest first; one line a rule, whatever it holds for."""
    rules = [_kinds(now), _dead(now), _workers(now), _restarts(now)]
    if now.flow is not None:
        rows = [row for row in summaries(now.flow) if row.tube != OTHERS]
        rules += [_failing(rows), _waiting(rows), _climbing(now.flow)]
    found = [each for rule in rules for each in _together(list(rule))]
    found.sort(key=lambda finding: (-finding.weight, finding.text))
    return found[:MAX_FINDINGS]


def _together(found: Sequence[Finding]) -> Iterator[Finding]:
    """One finding for all of a rule: the weightiest, and what else it holds for."""
    if not found:
        return
    first, *rest = sorted(found, key=lambda finding: (-finding.weight, finding.text))
    others = list(dict.fromkeys(each.tube or each.subject for each in rest))
    named = ", ".join(others[:MAX_NAMED])
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    yield first._replace(text=f"{first.text} Likewise: {named}{more}.") if others else first


def _failing(rows: Sequence[Summary]) -> Iterator[Finding]:
    for row in rows:
        if row.runs < FEW_RUNS or row.failed < FAILED_SHARE * row.runs:
            continue
        worst = max(("timeouts", "releases", "buries", "disconnects"), key=row.totals.__getitem__)
        advice = {
            "timeouts": "the TTR is too short for them, or workers hang",
            "releases": "workers give them back",
            "buries": "workers give up on them",
            "disconnects": "workers die or lose their connection",
        }[worst]
        yield Finding(
            row.failed / row.runs / FAILED_SHARE,
            f"In tube {row.tube}, {share_text(row.failed, row.runs)} of {row.runs:,} runs failed, "
            f"{row.totals[worst]:,} by {worst}: {advice}.", "flow", row.tube,
        )  # fmt: skip


def _waiting(rows: Sequence[Summary]) -> Iterator[Finding]:
    for row in rows:
        wait, run = row.wait[1], row.run[1]
        if row.wait_count < FEW_LENGTHS:
            continue
        if wait >= LONG_WAIT_S * 1e9 and not wait < LONG_WAIT_RUNS * run:
            behind = "" if run != run else f", and runs no longer than {length_text(run)}"
            yield Finding(
                wait / 1e9 / LONG_WAIT_S,
                f"In tube {row.tube}, one in twenty jobs waits {length_text(wait)} or longer for a "
                f"worker{behind}: it lacks workers, at least at times.", "wait", row.tube,
            )  # fmt: skip


def _climbing(flow: Flow) -> Iterator[Finding]:
    quarter = max(1, flow.tubes.count // 4)
    for at, tube in enumerate(flow.tubes.names):
        ready = flow.tubes.numbers["ready"][at]
        first, last = float(ready[:quarter].mean()), int(ready[-1])
        if last >= MANY_READY and last >= CLIMB * first and last >= 0.9 * ready.max():
            yield Finding(
                min(100.0, last / max(1.0, CLIMB * first)),
                f"In tube {tube}, {last:,} jobs were ready at the end, as many as ever, and "
                f"{first:,.0f} on average in the first quarter of the time: more comes in than "
                "goes out.", "depth", tube,
            )  # fmt: skip


def _kinds(now: Readings) -> Iterator[Finding]:
    total = sum(kind["failures"] for kind in now.kinds)
    for kind in now.kinds[:1]:
        if total >= FEW_FAILURES and kind["failures"] >= KIND_SHARE * total:
            is_kind = kind["fingerprint"] is not None
            who = f"tube {kind['tube']}"
            who = f"One kind of jobs, in {who}," if is_kind else f"T{who[1:]}"
            known = "Its sample says what they are." if kind.get("sample") else NO_SAMPLE
            yield Finding(
                2 * kind["failures"] / total / KIND_SHARE,
                f"{who} has {kind['failures']:,} of {total:,} failures of jobs that fail again and "
                f"again: {count_text(kind['jobs'], 'job')}, {kind['alive']:,} still there. {known}",
                "jobs" if now.jobs else "kinds",
            )


def _dead(now: Readings) -> Iterator[Finding]:
    count = sum(dead.jobs for dead in now.dead.values())
    if count:
        (tube, reason), most = max(now.dead.items(), key=lambda pair: pair[1].jobs)
        yield Finding(
            1.0 + float(np.log10(count)),
            f"{count_text(count, 'dead letter')} there, {most.jobs:,} of tube {tube} by {reason}: "
            "they stay until somebody tries them again or deletes them.", "dead",
        )  # fmt: skip


def _workers(now: Readings) -> Iterator[Finding]:
    if now.flow is None:
        return
    whole = whole_summary(now.flow)
    for row in now.workers:
        failed = sum(row[end] or 0 for end in ("timeouts", "releases", "buries", "disconnects"))
        if row["runs"] < FEW_RUNS or failed < FAILED_SHARE * row["runs"] or not whole.runs:
            continue
        times = failed / row["runs"] / max(whole.failed / whole.runs, 1e-9)
        if times >= WORKER_TIMES:
            yield Finding(
                times / WORKER_TIMES,
                f"Worker {worker_text(row)} failed {share_text(failed, row['runs'])} of its "
                f"{row['runs']:,} runs, all together {share_text(whole.failed, whole.runs)}.",
                "workers", subject=worker_text(row),
            )  # fmt: skip


def _restarts(now: Readings) -> Iterator[Finding]:
    if now.flow is None or len(now.marks) < RESTARTS_A_DAY:
        return
    days = max(1.0, (now.flow.survey.last - now.flow.survey.start) / 86_400)
    if len(now.marks) >= RESTARTS_A_DAY * days:
        kills = sum(mark.kind == "kill" for mark in now.marks)
        yield Finding(
            len(now.marks) / days / RESTARTS_A_DAY,
            f"Servers were restarted {len(now.marks)} times in {seconds_text(days * 86_400)}, "
            f"{kills} of them after a kill or crash, last at {time_text(now.marks[-1].at)}.",
            "marks",
        )  # fmt: skip


def worker_text(row: dict[str, object]) -> str:
    """How a server's log names it."""
    server = str(row["server"])
    return f"connection {row['connection']} of start {row['incarnation']} of {server_text(server)}"
