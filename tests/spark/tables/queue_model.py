"""Histories of queues, made up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from binlog_tools.spark.definitions import columns

NS: Final = 1_000_000_000
EPOCH_NS: Final = 1_763_640_000 * NS
RELAXED: Final = ("reserve", "touch", "ttr-expired", "disconnect-release")
TUBES: Final = ("default", "mail", "thumbs")
DEAD_TUBE: Final = "dead"
FULL: Final = ("put", "move", "update", "copy")
NEVER_NS: Final = (1 << 63) - 1
TAGS: Final = (
    "unique_key", "job_group", "after", "dead_from", "dead_reason", "dead_at_ns", "origin",
)  # fmt: skip

Row = dict[str, Any]


@dataclass
class Job:
    """A job as its newest image says."""

    job: int
    tube: str
    put_ns: int
    body: bytes
    state: str = "ready"
    priority: int = 0
    delay_s: int = 0
    ttr_s: int = 60
    deadline_ns: int = 0
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    connection: int = 0
    unique_key: str | None = None
    job_group: str | None = None
    after: str | None = None
    dead_from: str | None = None
    dead_reason: str | None = None
    dead_at_ns: int | None = None
    origin: str | None = None


class Model:
    """A server, its jobs, and the rows that its log has."""

    def __init__(self, server: str, seed: int, epoch_ns: int = EPOCH_NS) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.restarts = random.Random(seed + 1)
        self.now_ns = epoch_ns + self.chance.randrange(3600 * NS)
        self.jobs: dict[int, Job] = {}
        self.logged: dict[int, Job] = {}
        self.rows: list[Row] = []
        self.lsn = self.chance.randrange(1000)
        self.incarnation = 1
        self.next_job = self.next_connection = 1
        self.connections: list[int] = []
        self.held_by: dict[int, int] = {}
        self.is_full = False
        self.logged_ns = self.now_ns

    def run(self, steps: int) -> list[Row]:
        """So many things happen."""
        acts = (
            [self.put] * 6 + [self.reserve] * 6 + [self.finish] * 6 + [self.touch] * 2
            + [self.reserve_job, self.kick, self.delete, self.compact, self.connect, self.hang_up,
               self.move, self.update, self.kick_dead, self.end_group]
        )  # fmt: skip
        for _ in range(steps):
            self.pass_time()
            if self.chance.random() < 0.9:
                self.tick()
            self.chance.choice(acts)()
            if self.chance.random() < 0.03:
                self.restart()
            if self.chance.random() < 0.05:
                self.is_full = not self.is_full
        return self.rows

    def pass_time(self) -> None:
        self.now_ns += self.chance.choice(
            [0, 0, self.chance.randrange(NS), self.chance.randrange(20 * NS), 7 * NS,
             self.chance.randrange(NS) if self.chance.random() < 0.8
             else self.chance.randrange(400 * NS)]
        )  # fmt: skip

    def log(self, event: str, job: Job, connection: int = 0, reason: str = "none") -> None:
        """The job is now exactly so."""
        self.jobs[job.job] = job
        is_copy = event == "copy"
        logged = self.logged.get(job.job)
        if event in RELAXED and self.is_full and logged and logged.state in ("ready", "reserved"):
            return
        self.logged[job.job] = job
        self.lsn += self.chance.choice([1, 1, 1, 2, 5])
        self.logged_ns = max(self.logged_ns, self.now_ns + self.chance.choice([0, 0, 900]))
        is_full = event in FULL
        body = job.body if is_full else None
        self.rows.append({
            "server": self.server, "incarnation": self.incarnation, "segment": self.lsn // 50,
            "offset": 0, "lsn": self.lsn, "event": event,
            "time_ns": job.put_ns if is_full else self.now_ns,
            "logged_ns": self.logged_ns, "job": job.job, "tube": job.tube, "state": job.state,
            "priority": job.priority, "delay_s": job.delay_s, "ttr_s": job.ttr_s,
            "deadline_ns": None if job.deadline_ns in (0, NEVER_NS) else job.deadline_ns,
            "reserves": job.reserves,
            "timeouts": job.timeouts, "releases": job.releases, "buries": job.buries,
            "kicks": job.kicks, "reason": reason, "connection": connection or None,
            "copy": is_copy, "relaxed": event in RELAXED,
            "bytes": None if body is None else len(body), "body": body, "problem": None,
            **{name: getattr(job, name) if is_full else None for name in TAGS},
            "unique_s": None, "concurrency_key": None, "concurrency_limit": None, "policy": None,
        })  # fmt: skip

    def tick(self) -> None:
        for job in list(self.jobs.values()):
            if job.state == "delayed" and job.deadline_ns <= self.now_ns:
                self.jobs[job.job] = replace(job, state="ready", deadline_ns=0)
            if job.state == "reserved" and job.deadline_ns <= self.now_ns:
                image = replace(_ready(job), timeouts=job.timeouts + 1)
                self.log("ttr-expired", image)
                self.may_die(image, "ttr")

    def some(self, *states: str) -> Job | None:
        jobs = [job for job in self.jobs.values() if job.state in states]
        return self.chance.choice(jobs) if jobs else None

    def connection(self) -> int:
        if not self.connections:
            self.connect()
        return self.chance.choice(self.connections)

    def put(self) -> None:
        """A new job; its line came a little before it was there."""
        delay_s = self.chance.choice([0, 0, 0, 3, 90])
        put_ns = self.now_ns
        self.now_ns += self.chance.choice([0, 1000])
        job = Job(
            self.next_job, self.chance.choice(TUBES), put_ns,
            (b"Job %d of %d", b'{"n": %d, "kind": "k%d"}')[self.next_job % 2]
            % (self.next_job, self.chance.randrange(3)),
            priority=self.chance.randrange(5), delay_s=delay_s,
            ttr_s=self.chance.choice([1, 10, 120]),
        )  # fmt: skip
        self.next_job += 1
        if delay_s:
            job = replace(job, state="delayed", deadline_ns=put_ns + delay_s * NS)
        match self.chance.randrange(10):
            case 0:
                job = replace(job, unique_key=f"key-{job.job}", job_group="night")
            case 1:
                job = replace(job, state="delayed", deadline_ns=NEVER_NS, after="night")
        self.log("put", job, self.connection())

    def reserve(self) -> None:
        self.hand_out(self.some("ready"))

    def reserve_job(self) -> None:
        self.hand_out(self.some("ready", "delayed", "buried"))

    def hand_out(self, job: Job | None) -> None:
        if job:
            connection = self.connection()
            deadline_ns = self.now_ns + job.ttr_s * NS
            image = replace(
                job, state="reserved", deadline_ns=deadline_ns, reserves=job.reserves + 1,
                connection=connection,
            )  # fmt: skip
            self.log("reserve", image, connection)
            self.held_by[job.job] = connection

    def touch(self) -> None:
        job = self.some("reserved")
        if job:
            image = replace(job, deadline_ns=self.now_ns + job.ttr_s * NS)
            self.log("touch", image, job.connection)

    def finish(self) -> None:
        """A worker is ready with a job, in one way or another."""
        job = self.some("reserved")
        if not job:
            return
        match self.chance.randrange(4):
            case 0 | 1:
                self.end(job, job.connection)
            case 2:
                image = replace(_ready(job), releases=job.releases + 1, delay_s=0)
                if self.chance.random() < 0.5:
                    image = replace(
                        image, state="delayed", delay_s=5, deadline_ns=self.now_ns + 5 * NS
                    )
                self.log("release", image, job.connection)
                self.may_die(image, "client")
            case 3:
                image = replace(_ready(job), state="buried", buries=job.buries + 1)
                self.log("bury", replace(image, deadline_ns=self.now_ns), job.connection)

    def may_die(self, job: Job, reason: str) -> None:
        if self.chance.random() < 0.3:
            tube = self.chance.choice([DEAD_TUBE, job.tube])
            image = replace(
                _in_tube(job, tube), state="buried", deadline_ns=self.now_ns, buries=job.buries + 1,
                dead_from=job.tube, dead_reason=reason, dead_at_ns=self.now_ns,
            )  # fmt: skip
            self.log("move", image)

    def kick_dead(self) -> None:
        dead = [job for job in self.jobs.values() if job.dead_from and job.state == "buried"]
        if dead:
            job = self.chance.choice(dead)
            image = replace(
                _ready(_in_tube(job, job.dead_from or "")), reserves=0, timeouts=0, releases=0,
                kicks=job.kicks + 1, dead_from=None, dead_reason=None, dead_at_ns=None,
            )  # fmt: skip
            self.log("move", image, self.connection())

    def move(self) -> None:
        job = self.some("ready", "delayed", "buried", "reserved")
        if job:
            connection = job.connection or self.connection()
            image = _in_tube(job, self.chance.choice(TUBES))
            self.log("move", _ready(image) if job.state == "reserved" else image, connection)

    def update(self) -> None:
        """A job gets another priority, delay, TTR and maybe body."""
        job = self.some("ready", "delayed", "buried", "reserved")
        if not job:
            return
        connection, delay_s = job.connection or self.connection(), self.chance.choice([0, 3])
        image = replace(job, priority=7, delay_s=delay_s, ttr_s=self.chance.choice([2, 60]))
        if job.state == "reserved":
            image = replace(image, deadline_ns=self.now_ns + image.ttr_s * NS)
        elif job.state != "buried" and job.deadline_ns != NEVER_NS:
            image = _ready(image)
            if delay_s:
                image = replace(image, state="delayed", deadline_ns=self.now_ns + delay_s * NS)
        if self.chance.random() < 0.5:
            image = replace(image, body=job.body + b" again")
        self.log("update", image, connection)

    def end_group(self) -> None:
        waiting = [job for job in self.jobs.values() if job.deadline_ns == NEVER_NS]
        if waiting:
            self.log("group-ended", _ready(self.chance.choice(waiting)))

    def end(self, job: Job, connection: int, reason: str = "client") -> None:
        self.log("delete", replace(_ready(job), state="gone"), connection, reason)
        del self.jobs[job.job]

    def kick(self) -> None:
        job = self.some("buried", "delayed")
        if job:
            self.log("kick", replace(_ready(job), kicks=job.kicks + 1), self.connection())

    def delete(self) -> None:
        job = self.some("ready", "buried", "delayed")
        if job:
            connection = self.connection()
            match self.restarts.randrange(4):
                case 0:
                    self.end(job, 0, "expired")
                case 1:
                    self.end(job, self.held_by.get(job.job, connection))
                case _:
                    self.end(job, connection)

    def compact(self) -> None:
        for job in list(self.jobs.values()):
            if self.chance.random() < 0.3:
                self.log("copy", job, job.connection if job.state == "reserved" else 0)

    def connect(self) -> None:
        self.connections.append(self.next_connection)
        self.next_connection += 1

    def hang_up(self) -> None:
        if not self.connections:
            return
        gone = self.connections.pop(self.chance.randrange(len(self.connections)))
        for job in list(self.jobs.values()):
            if job.state == "reserved" and job.connection == gone:
                self.log("disconnect-release", _ready(job))

    def restart(self) -> None:
        """The server has ended and starts again."""
        before = len(self.rows)
        if self.chance.random() < 0.5:
            while self.rows and self.rows[-1]["relaxed"] and self.chance.random() < 0.7:
                self.rows.pop()
        if len(self.rows) == before and self.restarts.random() < 0.5:
            self.log_of_server("clean-stop")
        self.logged = {}
        for row in self.rows:
            if row["job"] is not None:
                self.logged[row["job"]] = _job_of(row)
        full = {row["job"]: row for row in self.rows if row["body"]}
        for number, job in self.logged.items():
            row = full[number]
            tags = {name: row[name] for name in TAGS}
            self.logged[number] = replace(job, body=row["body"], put_ns=row["time_ns"], **tags)
        self.jobs = {
            number: _ready(job) if job.state == "reserved" else job
            for number, job in self.logged.items() if job.state != "gone"
        }  # fmt: skip
        length_ns, starts = self.chance.choice([0, NS // 3, 200 * NS]), self.restarts.choice([1, 2])
        for _ in range(starts):
            self.now_ns += length_ns // starts
            self.incarnation += 1
            self.log_of_server("start")
        self.next_connection = 1
        self.connections = []

    def log_of_server(self, event: str) -> None:
        self.lsn += 1
        self.logged_ns = max(self.logged_ns, self.now_ns)
        self.rows.append({
            **dict.fromkeys(columns.BY_NAME), "server": self.server, "event": event,
            "incarnation": self.incarnation, "segment": self.lsn // 50, "offset": 0,
            "lsn": self.lsn, "time_ns": self.now_ns, "logged_ns": self.logged_ns,
            "reason": "none", "copy": False, "relaxed": False,
        })  # fmt: skip


def _ready(job: Job) -> Job:
    return replace(job, state="ready", deadline_ns=0, connection=0)


def _in_tube(job: Job, tube: str) -> Job:
    home = job.origin or job.tube
    return replace(job, tube=tube, origin=None if tube == home else home)


def _job_of(row: Row) -> Job:
    deadline_ns = row["deadline_ns"] or (NEVER_NS if row["state"] == "delayed" else 0)
    return Job(
        row["job"], row["tube"], 0, b"", row["state"], row["priority"], row["delay_s"],
        row["ttr_s"], deadline_ns, row["reserves"], row["timeouts"], row["releases"],
        row["buries"], row["kicks"], row["connection"] or 0,
    )  # fmt: skip


def history(seed: int, epoch_ns: int = EPOCH_NS) -> list[Row]:
    chance = random.Random(seed)
    rows = Model(f"{seed:032x}", seed, epoch_ns).run(chance.choice([5, 40, 150]))
    if seed % 5 == 4:
        # An earlier version has read them.
        rows = [row for row in rows if row["job"] is not None]
    return rows[chance.randrange(len(rows)) :] if rows and chance.random() < 0.3 else rows


def table(rows: Iterable[Row]) -> pa.Table:
    names = tuple(columns.BY_NAME)
    told = list(rows)
    for row in told:
        for name in ("time", "logged", "deadline", "dead_at"):
            at_ns = row[f"{name}_ns"]
            row[name] = None if at_ns is None else at_ns // 1000
    return pa.Table.from_pylist(told, columns.arrow_schema(names))
