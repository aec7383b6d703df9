"""Logs that a server process writes, with what its clients know of the jobs in them."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.binlog.scribe import Files
from tests.server_process import Connection, ServerProcess, ours_at_once
from tests.tools.folders import contents
from tests.tools.salvage.logs import without_locks

OLD, NEW = b"pay 100 to alice", b"pay 999 to bobby"
LONG_S = 100_000
FILL_BYTES = 2400
"""Three bodies of this size fill a segment of 8192 bytes, whose header takes 4096."""


class Seen(NamedTuple):
    """A job as its server shows it to a client."""

    tube: str
    priority: int
    ttr_s: int
    counters: tuple[int, ...]
    body: bytes


class Served(NamedTuple):
    """The log of a server that has stopped in order.

    :ivar jobs: the living ones, by id.
    """

    files: Files
    jobs: dict[int, Seen]


def _served(talk: Callable[[Connection], None]) -> Served:
    """Let a server write a log in small segments."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = ("-b", log, "-p", 0, "-s", 8192, "--compaction-factor", 3)
        with ServerProcess(ours_at_once(*options), Path(folder)) as server:
            connection = Connection(server.port())
            talk(connection)
            last_id = put(connection, b"the last one")
            jobs = {n: seen for n in range(1, last_id + 1) if (seen := _seen(connection, n))}
            connection.close()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(timeout=30)
        return Served(without_locks(contents(log)), jobs)


def _seen(connection: Connection, job_id: int) -> Seen | None:
    reply = connection.ask(b"stats-job %d\r\n" % job_id)
    if not reply.startswith(b"OK"):
        return None
    lines = [line.partition(": ") for line in reply.decode().splitlines() if ": " in line]
    stats = {name: value.strip('"') for name, _, value in lines}
    names = ("reserves", "timeouts", "releases", "buries", "kicks")
    return Seen(
        stats["tube"], int(stats["pri"]), int(stats["ttr"]),
        tuple(int(stats[name]) for name in names),
        connection.ask(b"peek %d\r\n" % job_id).partition(b"\r\n")[2][:-2],
    )  # fmt: skip


def put(connection: Connection, body: bytes, more: bytes = b"", delay_s: int = 0) -> int:
    """Put a job; 0 if its key makes it a duplicate of one that is there."""
    line = b"put 7 %d %d %d%s\r\n" % (delay_s, LONG_S, len(body), more)
    word, job_id, *rest = connection.ask(line + body + b"\r\n").split()
    assert word == b"INSERTED"
    return 0 if rest else int(job_id)


def fill(connection: Connection) -> None:
    for _ in range(3):
        put(connection, b"x" * FILL_BYTES)


@cache
def updated_log(is_deleted: bool = False) -> Served:
    """Job 1 is put in segment 1, updated in segment 2 or 3, and reserved and buried in the last."""

    def talk(connection: Connection) -> None:
        assert put(connection, OLD) == 1
        fill(connection)
        line = b"update-job 1 9 0 %d %d\r\n" % (LONG_S, len(NEW))
        assert connection.ask(line + NEW + b"\r\n") == b"UPDATED\r\n"
        fill(connection)
        assert connection.ask(b"reserve-job 1\r\n").startswith(b"RESERVED 1 ")
        assert connection.ask(b"bury 1 5\r\n") == b"BURIED\r\n"
        if is_deleted:
            assert connection.ask(b"delete 1\r\n") == b"DELETED\r\n"

    return _served(talk)


@cache
def busy_log(seed: int) -> Served:
    """Some 300 commands on 30 jobs and more: updates, moves, dead letters, keys."""
    return _served(_Client(seed).talk)


class _Client:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._jobs: list[int] = []
        self._puts = 0

    def talk(self, connection: Connection) -> None:
        connection.ask(b"watch mail\r\n")
        connection.ask(b"tube-policy mail max-reserves=2 dead-letter=mail.dead\r\n")
        commands = [self._put, self._put, self._update, self._update, self._move, self._fail,
                    self._fail, self._delete, self._bury, self._revive]  # fmt: skip
        for _ in range(6):
            self._put(connection)
        for _ in range(150):
            self._chance.choice(commands)(connection)

    def _body(self) -> bytes:
        self._puts += 1
        return b"body %d " % self._puts + b"." * self._chance.choice([0, 10, 300, 1500])

    def _put(self, connection: Connection) -> None:
        connection.ask(b"use %s\r\n" % self._chance.choice([b"default", b"mail"]))
        tags = [b"", b"", b" idp:key-%d:9000" % self._chance.randrange(20), b" grp:all",
                b" con:few:3"]  # fmt: skip
        delay_s = self._chance.choice([0, 0, LONG_S])
        job_id = put(connection, self._body(), self._chance.choice(tags), delay_s)
        if job_id:
            self._jobs.append(job_id)

    def _any(self) -> int:
        return self._chance.choice(self._jobs)

    def _update(self, connection: Connection) -> None:
        body, priority = self._body(), self._chance.randrange(100)
        line = b"update-job %d %d 0 %d %d\r\n" % (self._any(), priority, LONG_S - 1, len(body))
        connection.ask(line + body + b"\r\n")

    def _move(self, connection: Connection) -> None:
        tube = self._chance.choice([b"default", b"mail", b"other"])
        connection.ask(b"move-job %d %s\r\n" % (self._any(), tube))

    def _fail(self, connection: Connection) -> None:
        job_id = self._any()
        if connection.ask(b"reserve-job %d\r\n" % job_id).startswith(b"RESERVED"):
            connection.ask(b"release %d %d 0\r\n" % (job_id, self._chance.randrange(100)))

    def _bury(self, connection: Connection) -> None:
        job_id = self._any()
        if connection.ask(b"reserve-job %d\r\n" % job_id).startswith(b"RESERVED"):
            connection.ask(b"bury %d 3\r\n" % job_id)

    def _delete(self, connection: Connection) -> None:
        connection.ask(b"delete %d\r\n" % self._any())

    def _revive(self, connection: Connection) -> None:
        connection.ask(b"kick-dead mail 2\r\n")
