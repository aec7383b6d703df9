"""The history of a queue to look at: a real server, and clients that do all that clients do.

Producers, workers that fail now and then, jobs that nobody can do, workers that fall asleep or
vanish, kicks, pauses, and restarts of the server, in order and by kill -9.  What is left is the
server's log and its archive.  ``python -m benchmarks.spark.history --help``.

One thread speaks for all clients, in rounds: each sends what it has to say, then all replies are
read.  What is said follows from the seed and from the replies; the times are the server's own.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Lost, Reply, connect

LIMIT_S: Final = 30.0
"""How long a start, a reply or an end may take, seconds."""

TUBES: Final = (b"default", b"mail", b"images", b"invoices", b"reports")
"""The first ones are used more."""

DYING: Final = b"images"
"""The tube that has dead letters, if it is asked for; they go to one that no worker watches."""

PUTS_A_ROUND: Final = 16
RESERVES_A_ROUND: Final = 24
"""Of one connection: so many records come into one frame of the log."""

POISONS: Final = 3
"""Different bodies that make every worker fail."""

GIVE_UP_AFTER: Final = 4
"""How often a poison is released before it is buried."""

LAST_ROUNDS: Final = 12
"""For the workers, when nothing is put any more.  Some jobs stay."""

ASLEEP_S: Final = 1.1
"""Longer than the TTR of the jobs that workers fall asleep on, 1 s."""


class Plan(NamedTuple):
    """What is to be done: so many jobs, or for so many seconds, whatever is over first.

    :ivar jobs: 0: any number.  Four more are put at the end: one times out, one comes back when its
        worker parts, two are edited.
    :ivar seconds: 0: any time.
    :ivar rate: jobs in a second, at most; 0: as fast as it goes.
    :ivar restarts: of the server, the first by kill -9, the next in order, and so on.
    :ivar max_reserves: of `DYING`: then a job there is a dead letter; 0: never.
    :ivar fsync: as the server's option; ``never`` for ``--fsync never``.
    """

    jobs: int = 5000
    seconds: float = 0
    rate: float = 0
    producers: int = 4
    workers: int = 6
    restarts: int = 2
    segment_bytes: int = 1 << 18
    archive_age_s: int = 300
    fsync: str = "always"
    seed: int = 1
    max_reserves: int = 0


SMALL: Final = Plan()
"""A few seconds."""


class Made(NamedTuple):
    """What was done, as the clients have seen it.

    :ivar jobs: that were put and confirmed.
    :ivar replies: how many there were of each.
    :ivar starts: of the server.
    """

    log: str
    archive: str
    jobs: int
    replies: dict[str, int]
    starts: int
    seconds: float


class Server:
    """Our own, as a process, on a free port that stays the same.

    :ivar starts: how often it was started.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.log, self.archive = folder / "log", folder / "archive"
        self.archive.mkdir(parents=True, exist_ok=True)
        self.starts = 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._said = folder / "server.log"
        self._command = [
            sys.executable, "-m", "beanstalk_twisted", "--port", str(self.port),
            "--binlog", str(self.log), "--binlog-archive", str(self.archive),
            "--binlog-archive-age", str(plan.archive_age_s), "--fsync", plan.fsync,
            "--segment-size", str(plan.segment_bytes),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers.

        :raise SystemExit: it does not.
        """
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said)
        self.starts += 1
        give_up = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up and self._process.poll() is None:
            # An answer, not only a connection: a signal before that would not end it in order.
            with suppress(OSError), connect(Address("127.0.0.1", self.port), LIMIT_S) as connection:
                connection.send(b"list-tube-used\r\n")
                connection.reply()
                return
            time.sleep(0.02)
        raise SystemExit(f"the server has not started:\n{self._said.read_text()}")

    def end(self, how: signal.Signals) -> None:
        """SIGTERM: in order; SIGKILL: at once."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None


@contextmanager
def running(folder: Path, plan: Plan) -> Iterator[Server]:
    """A server that ends with the block, in order if all went well."""
    server = Server(folder, plan)
    try:
        server.start()
        yield server
        server.end(signal.SIGTERM)
    finally:
        server.end(signal.SIGKILL)


class Job(NamedTuple):
    """A reserved one."""

    job_id: int
    body: bytes


class Clients:
    """All of them.

    :ivar put: how many jobs were put and confirmed.
    :ivar replies: how many there were, by their first word.
    """

    def __init__(self, port: int, plan: Plan) -> None:
        self.put = 0
        self.replies: Counter[str] = Counter()
        self._port, self._plan = port, plan
        self._chance = random.Random(plan.seed)
        self._failures: Counter[int] = Counter()
        self._producers: list[Connection] = []
        self._workers: list[Connection] = []

    def connect(self) -> None:
        """Connect all, the old connections being gone."""
        self.close()
        self._producers = [self._new() for _ in range(self._plan.producers)]
        self._workers = [self._worker() for _ in range(self._plan.workers)]
        if self._plan.max_reserves:
            policy = (DYING, self._plan.max_reserves, DYING)
            rules = b"tube-policy %b max-reserves=%d dead-letter=%b.dead\r\n" % policy
            self._ask([(self._producers[0], [rules])])

    def _new(self) -> Connection:
        return connect(Address("127.0.0.1", self._port), LIMIT_S)

    def _worker(self) -> Connection:
        worker = self._new()
        self._ask([(worker, [b"watch %b\r\n" % tube for tube in TUBES])])
        return worker

    def close(self) -> None:
        """All part."""
        for each in (*self._producers, *self._workers):
            each.close()
        self._producers, self._workers = [], []

    def _ask(self, said: Sequence[tuple[Connection, list[bytes]]]) -> list[list[Reply]]:
        """All send, then all replies are read."""
        for connection, requests in said:
            connection.send(b"".join(requests))
        heard = [[connection.reply() for _ in requests] for connection, requests in said]
        for replies in heard:
            self.replies.update(reply.name.decode() for reply in replies)
        return heard

    # Rounds.

    def round(self, puts: int) -> None:
        """Producers put, workers reserve; then each worker does what it does with its jobs.

        :param puts: how many jobs at most.
        """
        said = [(producer, self._puts(share)) for producer, share in self._shares(puts)]
        reserve = [b"reserve-with-timeout 0\r\n"] * RESERVES_A_ROUND
        heard = self._ask([*said, *((worker, reserve) for worker in self._workers)])
        confirmed = [reply for replies in heard[: len(said)] for reply in replies]
        self.put += sum(reply.name == b"INSERTED" for reply in confirmed)
        jobs = [_jobs(replies) for replies in heard[len(said) :]]
        outcomes = [[self._outcome(job) for job in mine] for mine in jobs]
        spoken = zip(self._workers, outcomes, strict=True)
        self._ask([(worker, [each for each in mine if each]) for worker, mine in spoken])
        self._seldom()

    def _shares(self, puts: int) -> list[tuple[Connection, int]]:
        shares = []
        for producer in self._producers:
            share = min(self._chance.randrange(1, PUTS_A_ROUND), puts)
            shares.append((producer, share))
            puts -= share
        return [(producer, share) for producer, share in shares if share]

    def _puts(self, jobs: int) -> list[bytes]:
        requests = []
        for _ in range(jobs):
            if self._chance.random() < 0.3:
                tube = TUBES[int(len(TUBES) * self._chance.random() ** 2)]
                requests.append(b"use %b\r\n" % tube)
            requests.append(self._job())
        return requests

    def _job(self) -> bytes:
        chance = self._chance
        priority = chance.choice((0, 100, 1024, 1024, 1024, 1 << 31))
        delay = 1 if chance.random() < 0.05 else 0
        ttr = 1 if chance.random() < 0.5 else 60
        body = self._body()
        return b"put %d %d %d %d\r\n%b\r\n" % (priority, delay, ttr, len(body), body)

    def _body(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.01:
            return b'{"poison": %d, "order": %d}' % (
                chance.randrange(POISONS),
                chance.randrange(10_000),
            )
        text = b"x" * int(20 * 10 ** chance.random())
        return b'{"order": %d, "text": "%b"}' % (chance.randrange(10_000), text)

    def _outcome(self, job: Job) -> bytes:
        """What a worker does with a job; nothing: it falls asleep over it."""
        if b"poison" in job.body:
            self._failures[job.job_id] += 1
            if self._failures[job.job_id] > GIVE_UP_AFTER:
                return b"bury %d 1024\r\n" % job.job_id
            return b"release %d 2048 0\r\n" % job.job_id
        luck = self._chance.random()
        if luck < 0.90:
            return b"delete %d\r\n" % job.job_id
        if luck < 0.95:
            return b"release %d 1024 %d\r\n" % (job.job_id, self._chance.randrange(2))
        if luck < 0.96:
            return b"bury %d 1024\r\n" % job.job_id
        return b"touch %d\r\n" % job.job_id if luck < 0.98 else b""

    def _seldom(self) -> None:
        chance = self._chance
        if chance.random() < 0.10:
            which = chance.randrange(len(self._workers))
            self._workers[which].close()
            self._workers[which] = self._worker()
        tube = chance.choice(TUBES)
        if chance.random() < 0.20:
            self._ask([(self._producers[0], [b"use %b\r\n" % tube, b"kick 3\r\n"])])
        if chance.random() < 0.01:
            self._ask([(self._producers[0], [b"pause-tube %b 1\r\n" % tube])])

    def sleep_over_one(self) -> None:
        """Put and reserve one more job whose TTR is a second: so there is one that times out,
        whatever chance and the speed of this machine have left.
        """
        ((inserted,),) = self._ask([(self._producers[0], [b"put 0 0 1 2\r\n{}\r\n"])])
        self.put += 1
        self._ask([(self._workers[0], [b"reserve-job %b\r\n" % inserted.words[1]])])

    def part_from_one(self) -> None:
        """Put one more job, reserve it and part: so there is one that comes back so.  The next
        worker waits for it.
        """
        ((inserted,),) = self._ask([(self._producers[0], [b"put 0 0 60 2\r\n{}\r\n"])])
        self.put += 1
        reserve = [b"reserve-job %b\r\n" % inserted.words[1]]
        self._ask([(self._workers[0], reserve)])
        self._workers[0].close()
        self._workers[0] = self._worker()
        while self._ask([(self._workers[0], reserve)])[0][0].name != b"RESERVED":
            time.sleep(0.005)

    def edit_one(self) -> None:
        """Put two more jobs, one of which waits for the other's group; that is updated, moved and
        deleted.
        """
        jobs = [b"put 0 0 60 2 grp:last\r\n{}\r\n", b"put 0 0 60 2 aft:last\r\n{}\r\n"]
        ((first, _),) = self._ask([(self._producers[0], jobs)])
        self.put += 2
        job_id = first.words[1]
        edits = [b"update-job %b 1 0 60\r\n", b"move-job %b edited\r\n", b"delete %b\r\n"]
        self._ask([(self._producers[0], [edit % job_id for edit in edits])])

    def speak_to_nobody(self) -> None:
        """Put jobs, and do not wait for replies: the server is to be killed over them."""
        with suppress(Lost):
            for producer, share in self._shares(PUTS_A_ROUND * len(self._producers)):
                producer.send(b"".join(self._puts(share)))


def _jobs(replies: Sequence[Reply]) -> list[Job]:
    return [Job(int(each.words[1]), each.data) for each in replies if each.name == b"RESERVED"]


def make(folder: Path, plan: Plan = SMALL) -> Made:
    """Make a history.

    :param folder: gets ``log``, ``archive`` and ``server.log``; the first is new.
    :raise SystemExit: the server does not start.

    An interrupt ends the work earlier, in order; `interruptible` makes a signal one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with running(folder, plan) as server:
        clients = Clients(server.port, plan)
        clients.connect()
        try:
            for stage in range(plan.restarts + 1):
                if stage:
                    _restart(server, clients, signal.SIGKILL if stage % 2 else signal.SIGTERM)
                _work(clients, plan, began, (stage + 1) / (plan.restarts + 1))
            _rest(clients)
        except KeyboardInterrupt:
            # It may have come between two starts: so that there is one that ends in order.
            server.end(signal.SIGTERM)
            server.start()
        clients.close()
    return Made(
        str(server.log), str(server.archive), clients.put, dict(sorted(clients.replies.items())),
        server.starts, round(time.monotonic() - began, 2),
    )  # fmt: skip


def _restart(server: Server, clients: Clients, how: signal.Signals) -> None:
    if how == signal.SIGKILL:
        clients.speak_to_nobody()
    server.end(how)
    server.start()
    clients.connect()


def _work(clients: Clients, plan: Plan, began: float, share: float) -> None:
    """Until so much of the jobs or the time is done."""
    while True:
        passed = time.monotonic() - began
        left = plan.jobs * share - clients.put if plan.jobs else sys.maxsize
        if left <= 0 or (plan.seconds and passed >= plan.seconds * share):
            return
        clients.round(int(-(-left // 1)))
        if plan.rate:
            time.sleep(max(0.0, clients.put / plan.rate - (time.monotonic() - began)))


def _rest(clients: Clients) -> None:
    """Nothing more is put; jobs that were slept over time out, and most of what is left is done."""
    for last in range(LAST_ROUNDS):
        if last == LAST_ROUNDS // 2:
            clients.sleep_over_one()
            clients.part_from_one()
            clients.edit_one()
            time.sleep(ASLEEP_S)
        clients.round(0)


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Run a server of our own on a new directory and a free port, with clients that "
        "do all that clients do, and leave its log and its archive."
    )
    parser.set_defaults(**SMALL._asdict())
    parser.add_argument("folder", type=Path, help="where to; must not be there")
    parser.add_argument("--jobs", type=int, help="how many, 0: any number (%(default)s)")
    parser.add_argument("--seconds", type=float, help="how long, 0: any time (%(default)s)")
    parser.add_argument("--rate", type=float, help="jobs in a second, 0: all it can (%(default)s)")
    parser.add_argument("--producers", type=int, help="clients that put (%(default)s)")
    parser.add_argument("--workers", type=int, help="clients that reserve (%(default)s)")
    parser.add_argument("--restarts", type=int, help="every other by kill -9 (%(default)s)")
    parser.add_argument("--segment-bytes", type=int, help="the server's -s (%(default)s)")
    parser.add_argument("--archive-age-s", type=int, help="the server's option (%(default)s)")
    parser.add_argument("--fsync", help="the server's --fsync (%(default)s)")
    parser.add_argument("--seed", type=int, help="of chance (%(default)s)")
    parser.add_argument("--max-reserves", type=int, help="of the tube images, 0: any (%(default)s)")
    given = parser.parse_args(words)
    if given.folder.exists():
        parser.error(f"{given.folder} is there already; name a new folder")
    if not given.jobs and not given.seconds:
        parser.error("give --jobs or --seconds: else it would never end")
    if given.segment_bytes < MIN_SEGMENT_BYTES:
        parser.error(f"--segment-bytes: {MIN_SEGMENT_BYTES} at least")
    return given


def interruptible() -> None:
    """Let SIGINT and SIGTERM interrupt this process, whatever it has inherited.

    What a script starts with ``&`` inherits that SIGINT is ignored, and Python leaves it at that.
    """
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    given = options(words)
    plan = Plan(*(getattr(given, name) for name in Plan._fields))
    print(json.dumps(make(given.folder, plan)._asdict(), indent=1))
    return 0


if __name__ == "__main__":
    interruptible()
    sys.exit(main())
