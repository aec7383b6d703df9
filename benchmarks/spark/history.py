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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.errors import ClientError, ErrorReply
from beanstalk_twisted.client.sync import Asked, Client, Pipeline

LIMIT_S: Final = 30.0
"""How long a start, a reply or an end may take, seconds."""

TUBES: Final = ("default", "mail", "images", "invoices", "reports")
"""The first ones are used more."""

DYING: Final = "images"
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
            with suppress(ClientError), connected(self.port):
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


Say = Callable[[Pipeline], Any]
"""Sends one command."""


def connected(port: int) -> Client:
    """A client that knows when its connection is gone: it makes no second one."""
    return Client(f"127.0.0.1:{port}", timeout_s=LIMIT_S, reconnects=False)


class Clients:
    """All of them.

    :ivar put: how many jobs were put and confirmed.
    :ivar replies: how many there were: of each command, and of each error.
    """

    def __init__(self, port: int, plan: Plan) -> None:
        self.put = 0
        self.replies: Counter[str] = Counter()
        self._port, self._plan = port, plan
        self._chance = random.Random(plan.seed)
        self._failures: Counter[int] = Counter()
        self._producers: list[Client] = []
        self._workers: list[Client] = []

    def connect(self) -> None:
        """Connect all, the old connections being gone."""
        self.close()
        self._producers = [self._new() for _ in range(self._plan.producers)]
        self._workers = [self._worker() for _ in range(self._plan.workers)]
        if self._plan.max_reserves:
            rules = {"max-reserves": self._plan.max_reserves, "dead-letter": f"{DYING}.dead"}
            self._ask([(self._producers[0], [methodcaller("tube_policy", DYING, rules)])])

    def _new(self) -> Client:
        return connected(self._port).__enter__()

    def _worker(self) -> Client:
        worker = self._new()
        self._ask([(worker, [methodcaller("watch", tube) for tube in TUBES])])
        return worker

    def close(self) -> None:
        """All part."""
        for each in (*self._producers, *self._workers):
            each.close()
        self._producers, self._workers = [], []

    def _ask(self, said: Sequence[tuple[Client, Sequence[Say]]]) -> list[list[Asked]]:
        """All send, then all replies are waited for."""
        asked = [_said(client, words) for client, words in said]
        for each in (answer for answers in asked for answer in answers):
            error = each.error
            if error is not None and not isinstance(error, ErrorReply):
                raise error
            name = each.spec.name if error is None else error.word.decode()
            self.replies[name] += 1
        return asked

    # Rounds.

    def round(self, puts: int) -> None:
        """Producers put, workers reserve; then each worker does what it does with its jobs.

        :param puts: how many jobs at most.
        """
        said = [(producer, self._puts(share)) for producer, share in self._shares(puts)]
        reserve = [methodcaller("reserve_with_timeout", 0)] * RESERVES_A_ROUND
        heard = self._ask([*said, *((worker, reserve) for worker in self._workers)])
        self.put += sum(each.error is None for answers in heard[: len(said)] for each in answers)
        jobs = [_jobs(answers) for answers in heard[len(said) :]]
        outcomes = [[self._outcome(job) for job in mine] for mine in jobs]
        spoken = zip(self._workers, outcomes, strict=True)
        self._ask([(worker, [each for each in mine if each]) for worker, mine in spoken])
        self._seldom()

    def _shares(self, puts: int) -> list[tuple[Client, int]]:
        shares = []
        for producer in self._producers:
            share = min(self._chance.randrange(1, PUTS_A_ROUND), puts)
            shares.append((producer, share))
            puts -= share
        return [(producer, share) for producer, share in shares if share]

    def _puts(self, jobs: int) -> list[Say]:
        return [self._job() for _ in range(jobs)]

    def _job(self) -> Say:
        chance = self._chance
        return methodcaller(
            "put", self._body(), tube=TUBES[int(len(TUBES) * chance.random() ** 2)],
            priority=chance.choice((0, 100, 1024, 1024, 1024, 1 << 31)),
            delay=1 if chance.random() < 0.05 else 0, ttr=1 if chance.random() < 0.5 else 60,
        )  # fmt: skip

    def _body(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.01:
            return b'{"poison": %d, "order": %d}' % (
                chance.randrange(POISONS),
                chance.randrange(10_000),
            )
        text = b"x" * int(20 * 10 ** chance.random())
        return b'{"order": %d, "text": "%b"}' % (chance.randrange(10_000), text)

    def _outcome(self, job: Job) -> Say | None:
        """What a worker does with a job; None: it falls asleep over it."""
        if b"poison" in job.body:
            self._failures[job.id] += 1
            if self._failures[job.id] > GIVE_UP_AFTER:
                return methodcaller("bury", job.id, priority=1024)
            return methodcaller("release", job.id, priority=2048)
        luck = self._chance.random()
        if luck < 0.90:
            return methodcaller("delete", job.id)
        if luck < 0.95:
            delay = self._chance.randrange(2)
            return methodcaller("release", job.id, priority=1024, delay=delay)
        if luck < 0.96:
            return methodcaller("bury", job.id, priority=1024)
        return methodcaller("touch", job.id) if luck < 0.98 else None

    def _seldom(self) -> None:
        chance = self._chance
        if chance.random() < 0.10:
            which = chance.randrange(len(self._workers))
            self._workers[which].close()
            self._workers[which] = self._worker()
        tube = chance.choice(TUBES)
        if chance.random() < 0.20:
            self._first(methodcaller("use", tube), methodcaller("kick", 3))
        if chance.random() < 0.01:
            self._first(methodcaller("pause_tube", tube, 1))

    def _first(self, *words: Say) -> list[Asked]:
        """What the first producer says."""
        ((*asked,),) = self._ask([(self._producers[0], words)])
        return asked

    def _put_one(self, ttr: int = 1, **tags: str) -> int:
        (inserted,) = self._first(methodcaller("put", b"{}", priority=0, ttr=ttr, **tags))
        self.put += 1
        return int(inserted.result)

    def sleep_over_one(self) -> None:
        """Put and reserve one more job whose TTR is a second: so there is one that times out,
        whatever chance and the speed of this machine have left.
        """
        self._ask([(self._workers[-1], [methodcaller("reserve_job", self._put_one())])])

    def part_from_one(self) -> None:
        """Put one more job, reserve it and part: so there is one that comes back so.  The next
        worker waits for it.
        """
        reserve = [methodcaller("reserve_job", self._put_one(ttr=60))]
        self._ask([(self._workers[0], reserve)])
        self._workers[0].close()
        self._workers[0] = self._worker()
        while self._ask([(self._workers[0], reserve)])[0][0].error is not None:
            time.sleep(0.005)

    def edit_one(self) -> None:
        """Put two more jobs, one of which waits for the other's group; that is updated, moved and
        deleted.
        """
        job_id = self._put_one(ttr=60, group="last")
        self._put_one(ttr=60, after="last")
        self._first(
            methodcaller("update_job", job_id, priority=1, delay=0, ttr=60),
            methodcaller("move_job", job_id, "edited"), methodcaller("delete", job_id),
        )  # fmt: skip

    def speak_to_nobody(self) -> None:
        """Put jobs, and do not wait for replies: the server is to be killed over them."""
        for producer, share in self._shares(PUTS_A_ROUND * len(self._producers)):
            _said(producer, self._puts(share))


def _said(client: Client, words: Sequence[Say]) -> list[Asked]:
    pipeline = Pipeline(client)
    asked = [say(pipeline) for say in words]
    client.take()
    return asked


def _jobs(answers: Sequence[Asked]) -> list[Job]:
    return [each.result for each in answers if each.error is None]


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
