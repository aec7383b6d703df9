"""Clients that write down what a server has acknowledged, and hold it against what it has later.

Each has a tube of its own, so that it knows what every job in it is, and which one comes next.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from threading import Event, Semaphore, Thread
from typing import NamedTuple

from tests.server_process import LIMIT_S, Connection, ServerProcess, reply_bytes

LONG_S = 100_000
"""A delay that does not end while a test runs."""


class Facts(NamedTuple):
    """What a client knows of one of its jobs.

    :ivar reserves: so often at most; the last ones may not have been on disk.
    :ivar sure_reserves: so often at least.
    """

    tube: str
    body: bytes
    state: str
    priority: int
    delay_s: int
    ttr_s: int
    reserves: int = 0
    sure_reserves: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0

    def after_restart(self) -> Facts:
        """Nobody has it any more."""
        return self._replace(state="ready") if self.state == "reserved" else self

    def settled(self) -> Facts:
        """A change of it is on disk, and with it all that was before."""
        return self._replace(sure_reserves=self.reserves)


class Doubt(NamedTuple):
    """A command that was not answered.

    :ivar job_id: None for a `put`.
    :ivar outcome: what the job is if it was carried out; None if it is gone then.
    """

    job_id: int | None
    outcome: Facts | None


class Step(NamedTuple):
    """A command, and what has to come of it.

    :ivar reply: None if the id in it is not known before.
    """

    request: bytes
    reply: bytes | None
    doubt: Doubt


class Journal:
    """What one client knows, over as many connections and servers as it takes.

    :ivar jobs: those that were acknowledged, by id.
    :ivar gone: the ids of those whose deletion was acknowledged.
    :ivar doubt: the command that is not answered, if there is one.
    """

    def __init__(self, tube: str, chance: random.Random, most_jobs: int) -> None:
        self.tube = tube
        self.jobs: dict[int, Facts] = {}
        self.gone: set[int] = set()
        self.doubt: Doubt | None = None
        self._chance = chance
        self._most_jobs = most_jobs
        self._buried: list[int] = []
        self._puts = 0

    # What to do next.

    def next_step(self) -> Step:
        """Choose a command that must succeed."""
        wanted = self._chance.choice(
            [self._put] * (3 if len(self.jobs) < self._most_jobs else 0)
            + [self._reserve, self._release, self._bury, self._touch, self._kick_job, self._kick]
            + [self._delete, self._delete]
        )
        return wanted() or self._put()

    def _put(self) -> Step:
        self._puts += 1
        size = self._chance.choice([0, 10, 300, 3000])
        body = b"%s %d\r\n" % (self.tube.encode(), self._puts) + self._chance.randbytes(size)
        delay_s = self._chance.choice([0, 0, 0, LONG_S])
        facts = Facts(
            self.tube, body, "delayed" if delay_s else "ready", self._chance.randrange(4),
            delay_s, self._chance.randrange(LONG_S, 2 * LONG_S),
        )  # fmt: skip
        request = b"put %d %d %d %d\r\n%s\r\n" % (
            facts.priority, delay_s, facts.ttr_s, len(body), body,
        )  # fmt: skip
        return Step(request, None, Doubt(None, facts))

    def _any(self, *states: str) -> int | None:
        ids = [job_id for job_id, facts in self.jobs.items() if facts.state in states]
        return self._chance.choice(ids) if ids else None

    def _reserve(self) -> Step | None:
        ready = [(facts.priority, job_id) for job_id, facts in self.jobs.items()
                 if facts.state == "ready"]  # fmt: skip
        if not ready:
            return None
        _, job_id = min(ready)
        facts = self.jobs[job_id]
        reply = b"RESERVED %d %d\r\n%s\r\n" % (job_id, len(facts.body), facts.body)
        outcome = facts._replace(state="reserved", reserves=facts.reserves + 1)
        return Step(b"reserve\r\n", reply, Doubt(job_id, outcome))

    def _release(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        facts, priority = self.jobs[job_id], self._chance.randrange(4)
        delay_s = self._chance.choice([0, LONG_S])
        outcome = facts._replace(
            state="delayed" if delay_s else "ready", priority=priority, delay_s=delay_s,
            releases=facts.releases + 1,
        )  # fmt: skip
        request = b"release %d %d %d\r\n" % (job_id, priority, delay_s)
        return Step(request, b"RELEASED\r\n", Doubt(job_id, outcome.settled()))

    def _bury(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        facts, priority = self.jobs[job_id], self._chance.randrange(4)
        outcome = facts._replace(state="buried", priority=priority, buries=facts.buries + 1)
        request = b"bury %d %d\r\n" % (job_id, priority)
        return Step(request, b"BURIED\r\n", Doubt(job_id, outcome.settled()))

    def _touch(self) -> Step | None:
        job_id = self._any("reserved")
        if job_id is None:
            return None
        return Step(b"touch %d\r\n" % job_id, b"TOUCHED\r\n", Doubt(job_id, self.jobs[job_id]))

    def _kick_job(self) -> Step | None:
        job_id = self._any("buried", "delayed")
        if job_id is None:
            return None
        return Step(b"kick-job %d\r\n" % job_id, b"KICKED\r\n", Doubt(job_id, self._kicked(job_id)))

    def _kick(self) -> Step | None:
        """It takes the one that was buried first."""
        if not self._buried:
            return None
        job_id = self._buried[0]
        return Step(b"kick 1\r\n", b"KICKED 1\r\n", Doubt(job_id, self._kicked(job_id)))

    def _kicked(self, job_id: int) -> Facts:
        facts = self.jobs[job_id]
        return facts._replace(state="ready", kicks=facts.kicks + 1).settled()

    def _delete(self) -> Step | None:
        job_id = self._any("ready", "reserved", "buried", "delayed")
        if job_id is None:
            return None
        return Step(b"delete %d\r\n" % job_id, b"DELETED\r\n", Doubt(job_id, None))

    # What has come of it.

    def note(self, job_id: int, outcome: Facts | None) -> None:
        """That is what the job is now."""
        self.doubt = None
        was_buried = job_id in self._buried
        is_buried = outcome is not None and outcome.state == "buried"
        if was_buried and not is_buried:
            self._buried.remove(job_id)
        if is_buried and not was_buried:
            self._buried.append(job_id)
        if outcome is None:
            self.jobs.pop(job_id, None)
            self.gone.add(job_id)
        else:
            self.jobs[job_id] = outcome

    def note_restart(self) -> None:
        """The server is another one."""
        for job_id, facts in self.jobs.items():
            self.jobs[job_id] = facts.after_restart()
        if self.doubt is not None and self.doubt.outcome is not None:
            self.doubt = self.doubt._replace(outcome=self.doubt.outcome.after_restart())


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
        step = self._journal.next_step()
        self._journal.doubt = step.doubt
        reply = self._connection.ask(step.request)
        if reply_bytes(reply) is None:
            return False
        job_id = step.doubt.job_id
        if job_id is None and reply.startswith(b"INSERTED "):
            self._journal.note(int(reply.split()[1]), step.doubt.outcome)
            return True
        if job_id is None or reply != step.reply:
            self.problem = f"{step.request!r} was answered with {reply!r}, not {step.reply!r}"
            return False
        self._journal.note(job_id, step.doubt.outcome)
        return True


class Crowd:
    """Some clients at work, and all that they know together."""

    def __init__(self, clients: int = 4, most_jobs: int = 25, seed: int = 1) -> None:
        self.journals = [
            Journal(f"tube-{number}", random.Random(f"{seed}/{number}"), most_jobs)
            for number in range(clients)
        ]
        self.acknowledged = 0
        self._first_unsearched = 1
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
        """Hold all that is known against a server that has just been started, or left by all."""
        for journal in self.journals:
            journal.note_restart()
        connection = server.connect()
        wait_until_nobody_has_a_job(connection)
        self._find_unanswered_puts(connection)
        for journal in self.journals:
            settle_doubt(connection, journal)
        self.check(connection)
        connection.close()

    def _find_unanswered_puts(self, connection: Connection) -> None:
        """Their ids lie among those of their neighbours, or right behind the highest one."""
        end = self._highest_id() + len(self.journals) + 1
        known = self._known_ids()
        strangers = [job_id for job_id in range(self._first_unsearched, end) if job_id not in known]
        replies = ask_all(connection, [b"peek %d\r\n" % job_id for job_id in strangers])
        for job_id, reply in zip(strangers, replies, strict=True):
            if reply != b"NOT_FOUND\r\n":
                self._adopt(job_id, reply)
        # Not `end`: of the ids that lie behind the highest one, the next puts get the first.
        self._first_unsearched = self._highest_id() + 1

    def _known_ids(self) -> set[int]:
        return {job_id for each in self.journals for job_id in (*each.jobs, *each.gone)}

    def _highest_id(self) -> int:
        return max(self._known_ids(), default=0)

    def _adopt(self, job_id: int, reply: bytes) -> None:
        for journal in self.journals:
            doubt = journal.doubt
            if doubt is not None and doubt.job_id is None:
                assert doubt.outcome is not None
                if reply == found(job_id, doubt.outcome.body):
                    journal.note(job_id, doubt.outcome)
                    return
        raise AssertionError(f"nobody has put {reply!r}")

    def check(self, connection: Connection) -> None:
        """Hold all that is known, which must be all there is, against a server."""
        for journal in self.journals:
            check_jobs(connection, journal)
            gone = sorted(journal.gone)
            replies = ask_all(connection, [b"peek %d\r\n" % job_id for job_id in gone])
            back = [each for each, reply in zip(gone, replies, strict=True) if is_found(reply)]
            assert not back, f"deleted, and back again: {back}"
        stats = values(connection.ask(b"stats\r\n"))
        states = ("ready", "reserved", "delayed", "buried")
        total = sum(int(stats[f"current-jobs-{state}"]) for state in states)
        assert total == sum(len(journal.jobs) for journal in self.journals)


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


def compare(facts: Facts, stats: dict[str, str], peeked: bytes) -> Iterable[str]:
    """Tell what differs between what is known of a job and what the server says."""
    expected = {
        "tube": facts.tube, "state": facts.state, "pri": facts.priority, "delay": facts.delay_s,
        "ttr": facts.ttr_s, "releases": facts.releases, "buries": facts.buries,
        "kicks": facts.kicks,
    }  # fmt: skip
    for key, value in expected.items():
        if stats.get(key, "").strip('"') != str(value):
            yield f"{key} is {stats.get(key)}, not {value}"
    if not facts.sure_reserves <= int(stats.get("reserves", -1)) <= facts.reserves:
        yield f"reserves is {stats.get('reserves')}, not {facts.sure_reserves}-{facts.reserves}"
    if not peeked.endswith(b"\r\n%s\r\n" % facts.body):
        yield f"its body is {peeked[:100]!r}, not {facts.body[:100]!r}"


def look(connection: Connection, ids: Sequence[int]) -> list[tuple[dict[str, str], bytes]]:
    """The answers to `stats-job` and `peek` for some jobs."""
    stats = ask_all(connection, [b"stats-job %d\r\n" % job_id for job_id in ids])
    peeked = ask_all(connection, [b"peek %d\r\n" % job_id for job_id in ids])
    return list(zip(map(values, stats), peeked, strict=True))


def check_jobs(connection: Connection, journal: Journal) -> None:
    """Hold every job of a journal against the server."""
    ids = sorted(journal.jobs)
    for job_id, (stats, peeked) in zip(ids, look(connection, ids), strict=True):
        differences = list(compare(journal.jobs[job_id], stats, peeked))
        assert not differences, f"job {job_id}: {differences}"
        reserves = int(stats["reserves"])
        facts = journal.jobs[job_id]
        journal.jobs[job_id] = facts._replace(reserves=reserves, sure_reserves=reserves)


def settle_doubt(connection: Connection, journal: Journal) -> None:
    """See what has become of the command that was not answered: all of it, or nothing."""
    doubt, journal.doubt = journal.doubt, None
    if doubt is None or doubt.job_id is None:
        return
    ((stats, peeked),) = look(connection, [doubt.job_id])
    if doubt.outcome is None:
        if not is_found(peeked):
            journal.note(doubt.job_id, None)
    elif is_found(peeked) and not list(compare(doubt.outcome, stats, peeked)):
        journal.note(doubt.job_id, doubt.outcome)
