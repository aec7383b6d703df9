"""Clients that write down what a server has acknowledged, and hold it against what it has later.

Each has a tube of its own, so that the `Model` says what every job in it is, and which one comes
next.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import Event, Semaphore, Thread
from typing import NamedTuple

from tests.model.commands import Commands, described
from tests.model.ledger import Deed, outcomes
from tests.model.queue import Job
from tests.server_process import LIMIT_S, Connection, ServerProcess, reply_bytes

LONG_S = 100_000
"""A delay that does not end while a test runs."""

COMPARED = ("state", "pri", "delay", "ttr", "timeouts", "releases", "buries", "kicks")


class Step(NamedTuple):
    """A command that must succeed.

    :ivar new: the job that it puts, whose id is not known before.
    """

    request: bytes
    deed: Deed
    new: Job | None = None


class Journal:
    """What one client knows, over as many connections and servers as it takes.

    :ivar model: its tube, as it was acknowledged.
    :ivar doubt: the command that is not answered, if there is one.
    """

    def __init__(self, tube: str, chance: random.Random, most_jobs: int) -> None:
        self.tube = tube
        self.model = self.settled_in(Commands(1))
        self.doubt: Step | None = None
        self._chance = chance
        self._most_jobs = most_jobs
        self._puts = 0

    def settled_in(self, model: Commands) -> Commands:
        """The client uses and watches its tube."""
        model.use(0, self.tube)
        model.watch(0, self.tube)
        return model

    # What to do next.

    def next_step(self) -> Step:
        """Choose a command that must succeed."""
        wanted = self._chance.choice(
            [self._put] * (3 if len(self.model.jobs) < self._most_jobs else 0)
            + [self._reserve, self._release, self._bury, self._touch, self._kick_job, self._kick]
            + [self._delete, self._delete]
        )
        return wanted() or self._put()

    def _put(self) -> Step:
        self._puts += 1
        size = self._chance.choice([0, 10, 300, 3000])
        body = b"%s %d\r\n" % (self.tube.encode(), self._puts) + self._chance.randbytes(size)
        job = Job(
            0, "", self._chance.randrange(4), self._chance.choice([0, 0, 0, LONG_S]),
            self._chance.randrange(LONG_S, 2 * LONG_S), body.decode("latin-1"),
        )  # fmt: skip
        line = b"put %d %d %d %d\r\n" % (job.pri, job.delay, job.ttr, len(body))
        return Step(line + body + b"\r\n", lambda model: model.put(0, [job], is_batch=False), job)

    def _any(self, *states: str) -> int | None:
        ids = [job.job_id for job in self.model.of(self.tube, *states)]
        return self._chance.choice(ids) if ids else None

    def _reserve(self) -> Step | None:
        if not self.model.of(self.tube, "ready"):
            return None
        return Step(b"reserve\r\n", lambda model: model.reserve(0, None))

    def _release(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        pri, delay = self._chance.randrange(4), self._chance.choice([0, LONG_S])
        request = b"release %d %d %d\r\n" % (job_id, pri, delay)
        return Step(request, lambda model: model.release(0, job_id, pri, delay))

    def _bury(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        pri = self._chance.randrange(4)
        return Step(b"bury %d %d\r\n" % (job_id, pri), lambda model: model.bury(0, job_id, pri))

    def _touch(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        return Step(b"touch %d\r\n" % job_id, lambda model: model.touch(0, job_id))

    def _kick_job(self) -> Step | None:
        job_id = self._any("buried", "delayed")
        if job_id is None:
            return None
        return Step(b"kick-job %d\r\n" % job_id, lambda model: model.kick_job(job_id))

    def _kick(self) -> Step | None:
        """It takes the one that was buried first."""
        if not self.model.of(self.tube, "buried"):
            return None
        return Step(b"kick 1\r\n", lambda model: model.kick(0, 1))

    def _delete(self) -> Step | None:
        job_id = self._any("ready", "reserved", "buried", "delayed")
        if job_id is None:
            return None
        return Step(
            b"delete %d\r\n" % job_id, lambda model: model.delete(0, [job_id], is_batch=False)
        )

    # What has come of it.

    def settle(self, connection: Connection, there: Mapping[int, bytes]) -> None:
        """The server is another one, or has been left: see what has become of the command that was
        not answered, all of it or nothing.

        :param there: what `peek` answers, for all jobs there are.
        """
        deeds = [] if self.doubt is None else [self.doubt.deed]
        found: list[list[str]] = []
        for model in outcomes(self.model, deeds):
            model.restart()
            self.settled_in(model)
            found.append(list(differences(connection, model, there)))
            if not found[-1]:
                self.model, self.doubt = model, None
                return
        raise AssertionError(f"{self.tube}: {found}")


class Client(Thread):
    """Works and keeps its journal until the server is gone or it is told to stop.

    :ivar problem: what was wrong, if anything was.
    """

    def __init__(self, journal: Journal, connection: Connection, acknowledged: Semaphore) -> None:
        """:param acknowledged: released for each reply."""
        super().__init__(daemon=True)
        self.problem: str | None = None
        self.stop = Event()
        self._journal = journal
        self._connection = connection
        self._acknowledged = acknowledged

    def run(self) -> None:
        """Work."""
        tube = self._journal.tube.encode()
        hello = b"use %s\r\nwatch %s\r\nignore default\r\n" % (tube, tube)
        try:
            self._connection.send(hello)
            if all(self._connection.reply().endswith(b"\r\n") for _ in range(3)):
                while not self.stop.is_set() and self._work():
                    self._acknowledged.release()
        except TimeoutError:
            self.problem = f"{self._journal.tube}: no reply"
        except OSError:
            pass  # Its end may come as a reset, too.
        finally:
            self._connection.close()

    def _work(self) -> bool:
        """:return: whether the server still answers."""
        step = self._journal.doubt = self._journal.next_step()
        reply = self._connection.ask(step.request)
        if reply_bytes(reply) is None:
            return False
        if step.new is not None and reply.startswith(b"INSERTED "):
            step.new.job_id = int(reply.split()[1])
        expected = step.deed(self._journal.model).encode("latin-1")
        if reply != expected:
            self.problem = f"{step.request!r} was answered with {reply!r}, not {expected!r}"
            return False
        self._journal.doubt = None
        return True


class Crowd:
    """Some clients at work, and all that they know together."""

    def __init__(self, clients: int = 4, most_jobs: int = 25, seed: int = 1) -> None:
        self.journals = [
            Journal(f"tube-{number}", random.Random(f"{seed}/{number}"), most_jobs)
            for number in range(clients)
        ]
        self.acknowledged = 0
        self._replies = Semaphore(0)
        self._clients: list[Client] = []

    def work(self, server: ServerProcess) -> None:
        """Begin, each on a connection of its own."""
        assert not self._clients
        for journal in self.journals:
            self._clients.append(Client(journal, server.connect(), self._replies))
        for client in self._clients:
            client.start()

    def wait_for(self, replies: int) -> None:
        """Wait until so many more were acknowledged, from now on."""
        self._count_replies()
        for _ in range(replies):
            assert self._replies.acquire(timeout=LIMIT_S), [each.problem for each in self._clients]
        self.acknowledged += replies

    def stop(self) -> None:
        """Let each end what it has begun."""
        for client in self._clients:
            client.stop.set()
        self.join()

    def join(self) -> None:
        """Wait until all have parted: they were told to, or the server has."""
        for client in self._clients:
            client.join(LIMIT_S)
            assert not client.is_alive()
        problems = [client.problem for client in self._clients if client.problem]
        assert not problems, problems
        self._count_replies()
        self._clients.clear()

    def _count_replies(self) -> None:
        while self._replies.acquire(blocking=False):
            self.acknowledged += 1

    # Comparing.

    def check_after_restart(self, server: ServerProcess) -> None:
        """Hold all that is known, which must be all there is, against a server that has just been
        started, or left by all.
        """
        connection = server.connect()
        wait_until_nobody_has_a_job(connection)
        there = self._all_jobs(connection)
        known = {job_id for each in self.journals for job_id in each.model.jobs}
        for job_id in there.keys() - known:
            self._adopt(job_id, there[job_id])
        for journal in self.journals:
            journal.settle(connection, there)
        known = {job_id for each in self.journals for job_id in each.model.jobs}
        assert there.keys() == known, f"nobody has put {there.keys() - known}"
        connection.close()

    def _all_jobs(self, connection: Connection) -> dict[int, bytes]:
        """Those of puts that were not answered lie among their neighbours, or right behind the
        highest one.
        """
        ids = [job_id for each in self.journals for job_id in (*each.model.jobs, *each.model.gone)]
        asked = range(1, max(ids, default=0) + len(self.journals) + 1)
        replies = ask_all(connection, [b"peek %d\r\n" % job_id for job_id in asked])
        return {job_id: reply for job_id, reply in zip(asked, replies, strict=True)
                if is_found(reply)}  # fmt: skip

    def _adopt(self, job_id: int, reply: bytes) -> None:
        """A put that was not answered may have been carried out."""
        for journal in self.journals:
            new = None if journal.doubt is None else journal.doubt.new
            if new is not None and reply == found(job_id, new.body.encode("latin-1")):
                new.job_id = job_id


def wait_until_nobody_has_a_job(connection: Connection) -> None:
    """A server may hear a moment later that its clients have parted."""
    give_up = time.monotonic() + LIMIT_S
    while b"current-jobs-reserved: 0\n" not in connection.ask(b"stats\r\n"):
        assert time.monotonic() < give_up


def is_found(reply: bytes) -> bool:
    """Whether there is such a job."""
    return reply != b"NOT_FOUND\r\n"


def found(job_id: int, body: bytes) -> bytes:
    """The answer to `peek`."""
    return b"FOUND %d %d\r\n%s\r\n" % (job_id, len(body), body)


def ask_all(connection: Connection, requests: Sequence[bytes]) -> list[bytes]:
    """Send many at once, then read all replies."""
    replies: list[bytes] = []
    for start in range(0, len(requests), 200):
        some = requests[start : start + 200]
        connection.send(b"".join(some))
        replies += [connection.reply() for _ in some]
    return replies


def values(reply: bytes) -> dict[str, str]:
    """Read the answer to one of the `stats`."""
    lines = reply.decode().splitlines()[2:]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def differences(
    connection: Connection, model: Commands, there: Mapping[int, bytes]
) -> Iterable[str]:
    """Tell what of its jobs is not as a model has it; how often each was reserved, as far as that
    is on disk, it learns.
    """
    yield from [f"deleted, and back again: {each}" for each in model.gone if each in there]
    ids = sorted(model.jobs)
    stats = ask_all(connection, [b"stats-job %d\r\n" % job_id for job_id in ids])
    for job_id, shown in zip(ids, map(values, stats), strict=True):
        job, body = model.jobs[job_id], there.get(job_id, b"")
        expected = {"tube": job.tube} | described(job, model.now)
        for key in ("tube", *COMPARED):
            if shown.get(key, "").strip('"') != expected[key]:
                yield f"{key} of {job_id} is {shown.get(key)}, not {expected[key]}"
        reserves = int(shown.get("reserves", -1))
        if not job.sure_reserves <= reserves <= job.reserves:
            yield f"reserves is {reserves}, not {job.sure_reserves}-{job.reserves}"
        if body != found(job_id, job.body.encode("latin-1")):
            yield f"the body of {job_id} is {body[:100]!r}, not {job.body[:100]!r}"
        job.reserves = job.sure_reserves = reserves
