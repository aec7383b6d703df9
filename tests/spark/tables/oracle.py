"""The tables of a history, found another way: job by job and minute by minute, in plain Python.

It is written from the definitions in docs/spark-tables.md, and knows nothing of SQL.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from binlog_tools.spark.histories.failing import readable

Row = dict[str, Any]
MINUTE_NS: Final = 60_000_000_000
FULL: Final = ("put", "move", "update", "copy")


CARRIED: Final = ("unique_key", "concurrency_key", "job_group", "after", "origin")
"""The tags that a row of lifetimes has as its newest full record has them."""


@dataclass
class Stay:
    """A job in a state.

    :ivar over_ns: when it was over, if that is earlier: of a run that a restart interrupts.
    """

    row: Row
    state: str
    since_ns: int
    until_ns: int | None
    ended_by: str | None
    since_known: bool = True
    next_reserves: int = 0
    over_ns: int | None = None


@dataclass
class Run:
    """An attempt, as far as the log tells of it."""

    job: int
    tube: str
    attempt: int
    incarnation: int | None = None
    connection: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    ended_by: str | None = None
    touches: int = 0
    wait_ns: int | None = None
    revivals: int = 0


def told_ns(row: Row) -> int:
    """When what a row tells was written, or happened: full records but `put` do not say when."""
    has_moment = row["event"] not in ("move", "update") and not row["copy"]
    return int(row["time_ns"] if has_moment else row["logged_ns"])


def at_ns(row: Row) -> int:
    """When what a row tells was so: a copy tells of the moment in which it was made."""
    return int(row["at"]) if "at" in row else told_ns(row)


class Server:
    """One server's rows, and what follows from them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: int(row["lsn"]))
        self.last_ns = max(row["logged_ns"] for row in rows)
        self.starts: dict[int, int] = {}
        self.stops: dict[int, int] = {}
        self.jobs: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            number = row["incarnation"]
            self.starts.setdefault(number, row["logged_ns"])
            self.stops[number] = row["logged_ns"]
            if row["job"] is not None:
                self.jobs[row["job"]].append(row)
        self.stays: dict[int, list[Stay]] = {}
        self.runs: dict[int, dict[tuple[int, int], Run]] = {}
        for job, images in self.jobs.items():
            _date(images)
            _count_lives(images)
            self.stays[job], self.runs[job] = self._walk(job, images)

    def _restart_after(self, incarnation: int) -> int | None:
        later = [number for number in self.starts if number > incarnation]
        return self.starts[min(later)] if later else None

    def _walk(self, job: int, images: list[Row]) -> tuple[list[Stay], dict[tuple[int, int], Run]]:
        """From image to image, as one would with a finger on the log."""
        news = [row for place, row in enumerate(images) if place == 0 or not row["copy"]]
        stays: list[Stay] = []
        runs: dict[tuple[int, int], Run] = {}
        for place, row in enumerate(news):
            after = news[place + 1] if place + 1 < len(news) else None
            made = self._stays_of(row, after)
            stays += made
            if row["state"] == "reserved":
                self._run_goes_on(runs, job, row, made, after)
            if row["event"] in ("release", "bury", "ttr-expired", "disconnect-release"):
                run = _run_of(runs, job, row, row)
                run.ended_ns, run.ended_by = at_ns(row), row["event"]
                run.connection = run.connection or row["connection"]
            if after and after["event"] == "reserve" and stays[-1].state == "ready":
                run = _run_of(runs, job, row, after)
                if stays[-1].since_known:
                    run.wait_ns = at_ns(after) - stays[-1].since_ns
        return stays, runs

    def _run_goes_on(
        self,
        runs: dict[tuple[int, int], Run],
        job: int,
        row: Row,
        made: list[Stay],
        after: Row | None,
    ) -> None:
        run = _run_of(runs, job, row, row)
        run.incarnation = row["incarnation"]
        run.connection = row["connection"] or run.connection
        if row["event"] == "reserve":
            run.started_ns = at_ns(row)
        run.touches += row["event"] == "touch"
        lost = _lost(row, after)
        if not lost and after is not None:
            if after["event"] not in ("touch", "update"):
                run.ended_ns, run.ended_by = at_ns(after), after["event"]
        elif len(made) == 2:
            run.ended_ns, run.ended_by = made[0].over_ns, made[0].ended_by

    def _stays_of(self, row: Row, after: Row | None) -> list[Stay]:
        now = at_ns(row)
        until = None if after is None else at_ns(after)
        event = None if after is None else after["event"]
        known = not row["copy"] or row["state"] == "delayed"
        reserves = after["reserves"] if after else 0
        cut: tuple[int, int, str] | None = None
        if row["state"] == "delayed" and (due := self._ripe_ns(row, after)) is not None:
            cut = due, due, "due"
        if row["state"] == "reserved" and (after is None or _lost(row, after)):
            cut = self._given_up(row, after)
        if row["state"] == "gone":
            return []
        if cut is None:
            return [Stay(row, row["state"], now, until, event, known, reserves)]
        over, ready, why = cut
        first = Stay(row, row["state"], now, ready, why, over_ns=over)
        return [first, Stay(row, "ready", ready, until, event, True, reserves)]

    def _ripe_ns(self, row: Row, after: Row | None) -> int | None:
        """When a delayed job became ready by itself."""
        if row["deadline_ns"] is None or row["deadline_ns"] > self.last_ns:
            return None
        due: int = max(row["deadline_ns"], at_ns(row))
        if after is None:
            return due
        goes_on = after["event"] == "move" and after["state"] == "delayed"
        if after["event"] in ("kick", "group-ended") or goes_on:
            return None
        return None if at_ns(after) < due else due

    def _given_up(self, row: Row, after: Row | None) -> tuple[int, int, str] | None:
        """When a reserved job of whose end the log says nothing was given up, when it was ready,
        and why.
        """
        number, begun = row["incarnation"], at_ns(row)
        restart, stop = self._restart_after(number), self.stops[number]
        due = row["deadline_ns"] if row["deadline_ns"] <= self.last_ns else None
        is_last = after is None or after["incarnation"] != number
        if restart is not None and is_last and (due is None or due > stop):
            over = max(stop, begun)
            ready = max(over, restart)
            return over, ready if after is None else min(ready, at_ns(after)), "restart"
        known = [moment for moment in (due, at_ns(after) if after else None) if moment is not None]
        if not known:
            return None
        over = max(min(known), begun)
        return over, over, "unlogged"


def _date(images: list[Row]) -> None:
    """Say when each `move` and `update` was: before the job's next record that says its moment."""
    for place, row in enumerate(images):
        if row["event"] in ("move", "update"):
            later = [
                other["time_ns"] for other in images[place + 1 :]
                if not other["copy"] and other["event"] not in ("move", "update")
            ]  # fmt: skip
            row["at"] = min([row["logged_ns"], *later[:1]])


def _count_lives(images: list[Row]) -> None:
    """Note of each row how often the job was brought back from the dead, and whether it dies."""
    dead, revivals = None, 0
    for row in images:
        revivals += row["event"] == "move" and dead is not None and row["dead_from"] is None
        row["dies"] = row["event"] == "move" and dead is None and row["dead_from"] is not None
        row["revivals"] = revivals
        dead = row["dead_from"] if row["event"] in FULL else dead


def _run_of(runs: dict[tuple[int, int], Run], job: int, row: Row, begun: Row) -> Run:
    """The run that a record tells of, in the tube of ``row``."""
    place = begun["revivals"], begun["reserves"]
    return runs.setdefault(place, Run(job, row["tube"], place[1], revivals=place[0]))


def _lost(row: Row, after: Row | None) -> bool:
    """Whether the record that ended this run, if it ended, is missing."""
    if after is None:
        return True
    if (after["incarnation"], after["reserves"]) != (row["incarnation"], row["reserves"]):
        return True
    if after["event"] in ("ttr-expired", "disconnect-release"):
        return False
    by_worker = after["event"] in ("touch", "release", "bury", "delete", "move", "update")
    return not (by_worker and after["connection"] == row["connection"])


def attempts(server: Server) -> Iterator[Row]:
    """See docs/spark-tables.md."""
    for runs in server.runs.values():
        for run in runs.values():
            took = None
            if run.started_ns is not None and run.ended_ns is not None:
                took = run.ended_ns - run.started_ns
            yield {**vars(run), "run_ns": took}


def lifetimes(server: Server) -> Iterator[Row]:
    """See docs/spark-tables.md."""
    for job, images in server.jobs.items():
        news = [row for place, row in enumerate(images) if place == 0 or not row["copy"]]
        newest, stays = news[-1], server.stays[job]
        spent: Counter[str] = Counter()
        for stay in stays:
            # What lasts does not count.
            if stay.until_ns is not None:
                over_ns = stay.until_ns if stay.over_ns is None else stay.over_ns
                spent[stay.state] += over_ns - stay.since_ns
        full = [row for row in news if row["event"] in FULL]
        carried = dict.fromkeys(CARRIED)
        for row in images:
            if row["event"] in FULL and row["lsn"] <= newest["lsn"]:
                carried = row
        is_dead = bool(stays) and stays[-1].state == "buried" and bool(carried.get("dead_from"))
        gone = newest["state"] == "gone"
        deaths = [row for row in images if row["event"] in FULL and row["dead_from"] is not None
                  and row["lsn"] <= newest["lsn"]]  # fmt: skip
        death = deaths[-1] if deaths else dict.fromkeys(("dead_from", "dead_reason", "dead_at_ns"))
        yield {
            "job": job, "tube": newest["tube"], "state": "gone" if gone else stays[-1].state,
            "outcome": _outcome(news, is_dead),
            **{name: carried[name] for name in CARRIED},
            "dead_from": death["dead_from"], "dead_reason": death["dead_reason"],
            "dead_at": _moment(death["dead_at_ns"]),
            "moves": sum(row["event"] == "move" for row in news),
            "updates": sum(row["event"] == "update" for row in news),
            "deaths": sum(row["dies"] for row in news),
            "revivals": newest["revivals"],
            "last_event": newest["event"],
            "life_ns": at_ns(newest) - full[0]["time_ns"] if gone and full else None,
            "attempts": newest["reserves"], "timeouts": newest["timeouts"],
            "releases": newest["releases"], "buries": newest["buries"], "kicks": newest["kicks"],
            "priority": newest["priority"], "delay_s": newest["delay_s"], "ttr_s": newest["ttr_s"],
            "bytes": full[-1]["bytes"] if full else None,
            "disconnects": sum(row["event"] == "disconnect-release" for row in news),
            "waits": sum(stay.state == "ready" and stay.ended_by == "reserve" for stay in stays),
            "wait_ns": spent["ready"], "run_ns": spent["reserved"],
            "delayed_ns": spent["delayed"], "buried_ns": spent["buried"],
            "is_whole": any(row["event"] == "put" for row in news),
            "since": None if gone else _moment(_since_ns(stays[-1], server.runs[job])),
        }  # fmt: skip


def _outcome(news: list[Row], is_dead: bool) -> str:
    """What became of a job."""
    newest = news[-1]
    if newest["event"] == "delete" and newest["connection"]:
        for row in reversed(news[:-1]):
            if row["state"] == "reserved":
                if (row["connection"], row["incarnation"]) == (
                    newest["connection"], newest["incarnation"]
                ):  # fmt: skip
                    return "done"
                break
            if row["event"] in ("release", "bury", "move") and (
                row["connection"] == newest["connection"]
            ):
                break
    if is_dead:
        return "dead"
    if newest["state"] != "gone":
        return "alive"
    return "expired" if newest["reason"] == "expired" else "deleted"


def _since_ns(stay: Stay, runs: Mapping[tuple[int, int], Run]) -> int | None:
    """When a job came into the state that it is in."""
    if stay.state == "reserved":
        return runs[stay.row["revivals"], stay.row["reserves"]].started_ns
    return stay.since_ns if stay.since_known else None


def _moment(ns: int | None) -> datetime | None:
    if ns is None:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=ns // 1000)


def workers(server: Server) -> Iterator[Row]:
    """See docs/spark-tables.md."""
    mine: dict[tuple[int, int], list[Run]] = defaultdict(list)
    for runs in server.runs.values():
        for run in runs.values():
            if run.connection is not None and run.incarnation is not None:
                mine[run.incarnation, run.connection].append(run)
    for (incarnation, connection), held in mine.items():
        ends = Counter(run.ended_by for run in held)
        spans = sorted(
            (run.started_ns, run.ended_ns)
            for run in held
            if run.started_ns is not None and run.ended_ns is not None
        )
        yield {
            "incarnation": incarnation, "connection": connection,
            "jobs": len({run.job for run in held}), "runs": len(held),
            "run_ns": sum(end - start for start, end in spans), "busy_ns": _covered(spans),
            "deletes": ends["delete"], "releases": ends["release"], "buries": ends["bury"],
            "timeouts": ends["ttr-expired"], "disconnects": ends["disconnect-release"],
            "moves": ends["move"], "lost": ends["restart"] + ends["unlogged"],
            "running": ends[None],
        }  # fmt: skip


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How much time lies in at least one of these, which begin one after the other."""
    covered, until = 0, 0
    for start, end in spans:
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered


def snapshot(rows: Iterable[Row], now_ns: int | None, lsn: int | None) -> Iterator[Row]:
    """See docs/spark-tables.md."""
    seen = [
        row for row in rows
        if (now_ns is None or told_ns(row) <= now_ns) and (lsn is None or row["lsn"] <= lsn)
    ]  # fmt: skip
    if not seen:
        return
    if now_ns is None:
        now_ns = max(row["logged_ns"] for row in seen)
    newest = {row["job"]: row for row in sorted(seen, key=lambda row: int(row["lsn"]))
              if row["job"] is not None}  # fmt: skip
    lives = max(row["incarnation"] for row in seen)
    for job, row in newest.items():
        state = row["state"]
        if state == "gone":
            continue
        if state in ("delayed", "reserved") and (row["deadline_ns"] or now_ns + 1) <= now_ns:
            state = "ready"
        if state == "reserved" and row["incarnation"] < lives:
            state = "ready"
        yield {
            "job": job, "tube": row["tube"], "state": state, "priority": row["priority"],
            "is_inferred": state != row["state"], "reserves": row["reserves"],
            "deadline_ns": row["deadline_ns"] if state == row["state"] else None,
            "connection": row["connection"] if state == "reserved" else None,
            "timeouts": row["timeouts"], "lsn": row["lsn"],
        }  # fmt: skip


def tube_minutes(server: Server) -> Iterator[Row]:
    """See docs/spark-tables.md.  Each minute looks at all stays again."""
    last = server.last_ns // MINUTE_NS
    for tube in {row["tube"] for row in server.rows}:
        rows = [
            row for jobs in server.jobs.values() for place, row in enumerate(jobs)
            if row["tube"] == tube and (place == 0 or not row["copy"])
        ]  # fmt: skip
        stays = [
            stay for held in server.stays.values() for stay in held if stay.row["tube"] == tube
        ]  # fmt: skip
        runs = [
            run for held in server.runs.values() for run in held.values() if run.tube == tube
        ]  # fmt: skip
        told = _told_minutes(rows, stays)
        if not told:
            continue
        minute = min(told)
        while minute <= max(told) or (minute <= last and any(_at(stays, minute - 1).values())):
            if minute in told or any(_at(stays, minute).values()):
                yield _tube_minute(tube, minute, rows, stays, runs, server.last_ns)
            minute += 1


def _told_minutes(rows: list[Row], stays: list[Stay]) -> set[int]:
    told = {
        at_ns(row) // MINUTE_NS for row in rows if row["event"] not in ("touch", "update", "copy")
    }  # fmt: skip
    for stay in stays:
        since = stay.since_ns // MINUTE_NS
        if stay.until_ns is None or stay.until_ns // MINUTE_NS != since:
            told.add(since)
            told |= {stay.until_ns // MINUTE_NS} if stay.until_ns is not None else set()
    return told


def _at(stays: list[Stay], minute: int) -> Counter[str]:
    """How many jobs stand where when a minute ends."""
    end = (minute + 1) * MINUTE_NS
    return Counter(
        stay.state for stay in stays
        if stay.since_ns < end and (stay.until_ns is None or stay.until_ns >= end)
    )  # fmt: skip


def _tube_minute(
    tube: str, minute: int, rows: list[Row], stays: list[Stay], runs: list[Run], last_ns: int
) -> Row:
    end = (minute + 1) * MINUTE_NS
    events = Counter(row["event"] for row in rows if at_ns(row) // MINUTE_NS == minute)
    ready = [
        stay.since_ns for stay in stays
        if stay.state == "ready" and stay.since_ns < end
        and (stay.until_ns is None or stay.until_ns >= end)
    ]  # fmt: skip
    waits = [
        rounded(stay.until_ns - stay.since_ns) for stay in stays
        if stay.state == "ready" and stay.ended_by == "reserve" and stay.since_known
        and stay.until_ns is not None and stay.until_ns // MINUTE_NS == minute
    ]  # fmt: skip
    took = [
        rounded(run.ended_ns - run.started_ns) for run in runs
        if run.started_ns is not None and run.ended_ns is not None
        and run.ended_by not in ("restart", "unlogged") and run.ended_ns // MINUTE_NS == minute
    ]  # fmt: skip
    standing = _at(stays, minute)
    return {
        "tube": tube, "minute": minute * 60, "puts": events["put"], "reserves": events["reserve"],
        "deletes": events["delete"], "timeouts": events["ttr-expired"],
        "releases": events["release"], "buries": events["bury"], "kicks": events["kick"],
        "disconnects": events["disconnect-release"], "moves": events["move"],
        "ready": standing["ready"],
        "reserved": standing["reserved"], "delayed": standing["delayed"],
        "buried": standing["buried"],
        "oldest_ns": min(end, last_ns) - min(ready) if ready else None,
        "wait_histogram": sorted(Counter(waits).items()),
        "run_histogram": sorted(Counter(took).items()),
        "wait_p50_ns": _percentile(waits, 50), "wait_p95_ns": _percentile(waits, 95),
        "wait_p99_ns": _percentile(waits, 99), "run_p50_ns": _percentile(took, 50),
        "run_p95_ns": _percentile(took, 95), "run_p99_ns": _percentile(took, 99),
    }  # fmt: skip


def rounded(length_ns: int) -> int:
    """To three significant digits, down."""
    digits = str(length_ns)
    return int(digits[:3] + "0" * (len(digits) - 3))


def _percentile(lengths_ns: list[int], percent: int) -> int | None:
    return int(np.percentile(lengths_ns, percent)) if lengths_ns else None


def poison(rows: Sequence[Row], failures: int) -> Iterator[Row]:
    """See docs/spark-tables.md; of all servers together."""
    jobs: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["job"] is not None:
            jobs[row["server"], row["job"]].append(row)
    kinds: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for (server, job), images in jobs.items():
        counts = {name: max(row[name] for row in images) for name in ("timeouts", "releases")}
        counts["buries"] = max(_buries(images))
        counts["disconnects"] = sum(row["event"] == "disconnect-release" for row in images)
        if sum(counts.values()) >= failures:
            full = [row for row in images if row["event"] in FULL]
            body = full[-1]["body"] if full else None
            found = {**counts, "server": server, "job": job, "state": images[-1]["state"]}
            found["sample"] = None if body is None else readable(body)
            found["is_dead"] = found["state"] == "buried" and bool(full and full[-1]["dead_from"])
            kinds[images[-1]["tube"], None if body is None else fingerprint(body)].append(
                {**found, "failures": sum(counts.values())}
            )
    for (tube, mark), found_jobs in kinds.items():
        worst = max(found_jobs, key=lambda job: (job["failures"], job["server"], job["job"]))
        yield {
            "tube": tube, "fingerprint": mark, "jobs": len(found_jobs),
            "alive": sum(job["state"] != "gone" for job in found_jobs),
            "dead": sum(job["is_dead"] for job in found_jobs),
            "most_failures": worst["failures"], "example_server": worst["server"],
            "example_job": worst["job"], "sample": worst["sample"],
            **{
                name: sum(job[name] for job in found_jobs)
                for name in ("failures", "timeouts", "releases", "buries", "disconnects")
            },
        }  # fmt: skip


def _buries(images: Sequence[Row]) -> Iterator[int]:
    """At each record; a death counts as one to the server, and is no failure of its own."""
    is_dead = False
    for row in images:
        is_dead = bool(row["dead_from"]) if row["event"] in FULL else is_dead
        yield row["buries"] - is_dead


def fingerprint(body: bytes) -> str:
    """See docs/spark-tables.md."""
    text = body[:512].decode("latin-1")
    try:
        value = json.loads(body) if len(body) <= 4096 else None
    except ValueError:
        value = None
    if isinstance(value, dict):
        text = "\n".join(sorted(keys(value)))[:1024]
    text = text.lower()
    text = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "U", text)
    text = re.sub("[ \t\r\n]+", " ", re.sub("[0-9]+", "0", text))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keys(value: dict[str, Any], above: str = "") -> Iterator[str]:
    """The keys of an object, those of objects in it behind theirs; four deep."""
    kinds = ("action", "class", "command", "event", "job", "kind", "task", "type")
    for key, inside in value.items():
        line = above + key
        yield line
        if isinstance(inside, str) and key in kinds:
            yield f"{line}\0{inside}"
        if isinstance(inside, dict) and line.count("\n\0") < 3:
            yield from keys(inside, f"{line}\n\0")
