"""What the queue is to do, said once more: plain lists of jobs, looked through from end to end.

A statement of docs/protocol.md and docs/extensions.md for tests to compare a server with; it knows
nothing of how that one is made.  Time is in ticks of 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

TICKS = 10_000
"""In a second."""

FOREVER = 1 << 60
LIMIT = 1 << 62
FIFO = "fifo"

REFUSED = "OUT_OF_MEMORY"

M = TypeVar("M", bound="Model")


@dataclass
class Job:
    """A job, and what it carries.

    :ivar due: end of its delay or TTR, `FOREVER` while it waits for a group; for a buried job, how
        many were buried before it.
    :ivar home: the tube that it was put into.
    :ivar created: when it was put.
    :ivar since: what its age counts from for `max-age`: that, or its death.
    :ivar sure_reserves: how many of its reserves came before its newest change that a reply waited
        for; those behind may be lost with the process.
    """

    job_id: int
    tube: str
    pri: int
    delay: int
    ttr: int
    body: str
    unique: str = ""
    unique_s: int = 0
    key: str = ""
    limit: int = 0
    group: str = ""
    after: str = ""
    state: str = "ready"
    due: int = 0
    holder: int = -1
    home: str = ""
    created: int = 0
    since: int = 0
    dead_from: str = ""
    reason: str = ""
    reserves: int = 0
    sure_reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    metadata: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among ready jobs."""
        return self.pri, self.job_id

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a group."""
        return self.state == "delayed" and self.due == FOREVER

    @property
    def holds_key(self) -> bool:
        """Whether it keeps others with its unique key out of its tube."""
        return bool(self.unique) and not self.dead_from

    @property
    def reserved(self) -> str:
        """How it is handed out."""
        return f"RESERVED {self.job_id} {len(self.body)}\r\n{self.body}\r\n"


@dataclass
class Peer:
    """A connection.

    :ivar came: at which step.
    :ivar turns: of the tubes that have had jobs at each choice by weight, how often each was
        chosen.
    :ivar waits: since which step its `reserve` waits, 0 if none does.
    :ivar waits_for: the job of its `wait-job`, 0 for none.
    :ivar until: end of its wait.
    :ivar sends_no_more: it has half closed, and never waits.
    :ivar late: what it hears that answers no command of now.
    """

    came: int = 0
    using: str = "default"
    watched: dict[str, int] = field(default_factory=lambda: {"default": 1})
    mode: str = FIFO
    turns: dict[str, int] = field(default_factory=dict)
    waits: int = 0
    waits_for: int = 0
    until: int = FOREVER
    sends_no_more: bool = False
    late: str = ""

    @property
    def is_blocked(self) -> bool:
        """Whether its next command is not carried out now."""
        return bool(self.waits or self.waits_for)

    def hears(self, reply: str) -> None:
        """It hears what it has waited for."""
        self.late += reply
        self.waits, self.waits_for, self.until = 0, 0, FOREVER


@dataclass
class Bucket:
    """How many jobs a tube with a rate may hand out, in jobs times `TICKS`."""

    rule: str
    rate: int
    most: int
    content: int
    filled: int

    @classmethod
    def full(cls, rule: str, now: int) -> Bucket:
        """A new one; none of these rates has a burst of its own above one job."""
        rate, _, burst = rule.partition(":")
        most = int(burst or 1) * TICKS
        return cls(rule, int(rate), most, most, now)

    def fill(self, now: int) -> None:
        """Time has passed."""
        self.content = min(self.most, self.content + (now - self.filled) * self.rate)
        self.filled = now

    @property
    def opens(self) -> int:
        """When it has a job, if it has none."""
        return self.filled + -(-(TICKS - self.content) // self.rate)


def backoff_is_exact(job_id: int, now: int, seconds: int) -> int:
    """See `Model`."""
    return now + seconds * TICKS


class Model:
    """A server.

    :ivar commands: keys of policies that commands have set, by tube; ``file`` those of the file.
    :ivar remembered: job, and until when, of keys that deleted jobs have left, by tube and key.
    :ivar rounds: after so many rounds of what follows from a command, the process has ended.
    """

    def __init__(
        self, peers: int, backoff_ends: Callable[[int, int, int], int] = backoff_is_exact,
        kept: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """:param backoff_ends: says when the delay of a job ends that came back at a moment and is
        delayed by about so many seconds: by how much it differs is not said here.
        :param kept: the tubes that connections keep of which nothing is known here.
        """
        self.backoff_ends = backoff_ends
        self.kept = {"default", *kept}
        self.now = self.step = self.buried = 0
        self.jobs: dict[int, Job] = {}
        self.peers = [Peer() for _ in range(peers)]
        self.paused: dict[str, int] = {}
        self.commands: dict[str, dict[str, str]] = {}
        self.file: list[tuple[str, dict[str, str]]] = []
        self.remembered: dict[tuple[str, str], tuple[int, int]] = {}
        self.buckets: dict[str, Bucket] = {}
        self.gone: list[int] = []
        self.is_draining = False
        self.rounds = LIMIT

    def copied(self: M) -> M:
        """Give the same server once more."""
        made = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(made, name, deepcopy(value))
        return made

    # What is so.

    def ahead(self, seconds: int) -> int:
        """Give a moment so far ahead."""
        return self.now + seconds * TICKS

    def rules(self, tube: str) -> dict[str, str]:
        """Give the policy that holds for a tube."""
        found = dict(self.commands.get(tube, {}))
        for pattern, rules in reversed(self.file):
            if pattern == tube or (pattern.endswith("*") and tube.startswith(pattern[:-1])):
                found |= rules
        return {key: value for key, value in found.items() if value != "-"}

    def most(self, tube: str, key: str) -> int:
        """Give a number of a tube's policy."""
        return int(self.rules(tube).get(key, LIMIT))

    def tubes(self) -> set[str]:
        """Give the tubes that something refers to."""
        found = self.kept | {job.tube for job in self.jobs.values()}
        for peer in self.peers:
            found |= {peer.using, *peer.watched}
        return found

    def forget_pauses(self) -> None:
        """Pauses go with their tubes."""
        for tube in self.paused.keys() - self.tubes():
            del self.paused[tube]

    def of(self, tube: str, *states: str) -> list[Job]:
        """Give the jobs of a tube that are in these states, or all, in their order."""
        found = [job for job in self.jobs.values() if job.tube == tube]
        return sorted([job for job in found if not states or job.state in states], key=self.place)

    def place(self, job: Job) -> tuple[int, ...]:
        """Give the place of a job among those of its state."""
        if job.state == "ready":
            return job.rank
        if job.state == "reserved":
            return self.peers[job.holder].came, job.holder, job.job_id
        return job.due, job.job_id

    def members(self, group: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.group == group]

    def letters(self, tube: str) -> list[Job]:
        """Give a tube's dead letters, in the order in which they died."""
        found = [job for job in self.jobs.values() if job.dead_from == tube]
        return sorted(found, key=lambda job: (job.since, job.job_id))

    def has_place(self, job: Job) -> bool:
        """Whether its concurrency key lets a job be reserved."""
        reserved = [each for each in self.jobs.values() if each.state == "reserved"]
        return not job.key or len([j for j in reserved if j.key == job.key]) < job.limit

    def may_go(self, job: Job) -> bool:
        """Whether a ready job may be handed out to who asks for any, but for a pause."""
        reserved = len(self.of(job.tube, "reserved"))
        has_room = reserved < self.most(job.tube, "max-reserved")
        bucket = self.bucket(job.tube)
        return has_room and self.has_place(job) and (bucket is None or bucket.content >= TICKS)

    def bucket(self, tube: str) -> Bucket | None:
        """Give what a tube may hand out now; None for any number."""
        rule = self.rules(tube).get("rate")
        found = self.buckets.get(tube)
        if rule is None:
            self.buckets.pop(tube, None)
            return None
        if found is None or found.rule != rule:
            found = self.buckets[tube] = Bucket.full(rule, self.now)
        found.fill(self.now)
        return found

    def open_jobs(self, tubes: Iterable[str]) -> list[Job]:
        """Give the jobs of tubes that may be handed out, the best first."""
        found = [job for tube in tubes if tube not in self.paused for job in self.of(tube, "ready")]
        return sorted([job for job in found if self.may_go(job)], key=lambda job: job.rank)

    def is_seen(self, number: int, job_id: int) -> Job | None:
        """Give a job that a connection may delete, move or update."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.holder in (-1, number) else None

    def own(self, number: int, job_id: int) -> Job | None:
        """Give a job that a connection has reserved."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.holder == number else None

    def holder_of(self, tube: str, key: str) -> tuple[int, str] | None:
        """Give the id and the state of who has a unique key."""
        for job in self.of(tube):
            if job.holds_key and job.unique == key:
                return job.job_id, job.state.upper()
        job_id, until = self.remembered.get((tube, key), (0, 0))
        return (job_id, "DELETED") if until > self.now else None

    def ends_of_age(self, job: Job) -> int:
        """Give the moment when a job is too old."""
        rules = self.rules(job.tube)
        is_over = job.dead_from and rules.get("expired") != "delete"
        if "max-age" not in rules or is_over:
            return FOREVER
        return job.since + int(rules["max-age"]) * TICKS

    def is_soon(self, number: int) -> bool:
        """Whether a connection has a job in its last second."""
        return any(
            job.holder == number and job.due - TICKS <= self.now for job in self.jobs.values()
        )

    # What happens to jobs.

    def take(self, job: Job, number: int) -> str:
        """A connection gets a job."""
        job.state, job.holder, job.due = "reserved", number, self.ahead(job.ttr)
        job.reserves += 1
        bucket = self.bucket(job.tube)
        if bucket is not None:
            bucket.content = max(0, bucket.content - TICKS)
        return job.reserved

    def note_turn(self, number: int, found: list[Job], job: Job) -> None:
        """A tube was chosen by its weight: of two that always have jobs none is behind by more than
        one turn of each.
        """
        peer, tubes = self.peers[number], {each.tube for each in found}
        if peer.mode != "weighted":
            return
        if peer.turns.keys() != tubes:
            peer.turns = dict.fromkeys(tubes, 0)
        peer.turns[job.tube] += 1
        parts = [(turns / peer.watched[at], 1 / peer.watched[at])
                 for at, turns in peer.turns.items()]  # fmt: skip
        for (had, turn), (other_had, other_turn) in combinations(parts, 2):
            assert abs(had - other_had) <= turn + other_turn + 1e-9, peer

    def let_go(self, job: Job, due: int = 0) -> None:
        """A job is ready, or delayed until then."""
        is_delayed = due > self.now
        job.state, job.due, job.holder = ("delayed", due, -1) if is_delayed else ("ready", 0, -1)

    def serve(self) -> None:
        """Give jobs to those who wait, the best one first, and to who has waited longest."""
        while True:
            waiting = sorted([peer for peer in self.peers if peer.waits], key=lambda p: p.waits)
            tubes = {tube for peer in waiting for tube in peer.watched}
            best = next(iter(self.open_jobs(tubes)), None)
            if best is None:
                return
            peer = next(peer for peer in waiting if best.tube in peer.watched)
            peer.hears(self.take(best, self.peers.index(peer)))

    def told_end(self, job: Job, reply: str) -> None:
        """Tell those who wait for a job that it has ended."""
        for peer in self.peers:
            if peer.waits_for == job.job_id:
                peer.hears(f"{reply}\r\n")

    def entomb(self, job: Job) -> None:
        """A job is the last of those that are buried."""
        job.state, job.holder, job.due = "buried", -1, self.buried
        job.sure_reserves = job.reserves
        job.buries += 1
        self.buried += 1
        self.told_end(job, "BURIED")

    def die(self, job: Job, reason: str) -> None:
        """A job is a dead letter."""
        job.dead_from, job.reason, job.since = job.tube, reason, self.now
        job.tube = self.rules(job.tube).get("dead-letter", job.tube)
        self.entomb(job)

    def drop(self, job: Job, *, forgets: bool = False) -> None:
        """A job is deleted.

        :param forgets: whether its key is not remembered.
        """
        del self.jobs[job.job_id]
        self.gone.append(job.job_id)
        if job.holds_key and job.unique_s and not forgets:
            until = self.ahead(job.unique_s)
            self.remembered[job.tube, job.unique] = job.job_id, until
        self.told_end(job, "DELETED")

    def come_back(self, job: Job, how: str, delay: int = 0) -> None:
        """A job comes back from who had it."""
        self.let_go(job, self.ahead(delay) if delay else 0)
        rules = self.rules(job.tube)
        if job.reserves >= self.most(job.tube, "max-reserves"):
            self.die(job, how)
        elif self.ends_of_age(job) <= self.now:
            self.end_old()
        elif "backoff" in rules and not delay:
            base, factor, cap = map(int, rules["backoff"].split(":"))
            about = min(base * factor ** (job.reserves - 1), cap)
            job.state, job.due = "delayed", self.backoff_ends(job.job_id, self.now, about)
            job.delay = -(-(job.due - self.now - 1) // TICKS)

    # What happens by itself.

    def is_shared_moment(self) -> bool:
        """Whether what begins now may end, after some seconds, together with something else: it is
        not said what comes first then.
        """
        moments = [*self.paused.values(), *[peer.until for peer in self.peers]]
        for job in self.jobs.values():
            moments += [job.since, *([job.due] if job.state in ("delayed", "reserved") else [])]
        return any((at - self.now) % TICKS == 0 for at in moments if at != FOREVER)

    def next_due(self) -> int:
        """Give the next moment when something does."""
        dues = [*self.paused.values(), *[peer.until for peer in self.peers]]
        for job in self.jobs.values():
            if job.state in ("delayed", "reserved"):
                dues.append(job.due)
            if job.state == "reserved" and self.peers[job.holder].waits:
                dues.append(job.due - TICKS)
            if job.state != "reserved":
                dues.append(self.ends_of_age(job))
        for tube in list(self.buckets):
            bucket = self.bucket(tube)
            if bucket is not None and bucket.content < TICKS:
                dues.append(bucket.opens)
        return min([due for due in dues if due > self.now], default=FOREVER)

    def end_old(self) -> None:
        """End the jobs that are too old."""
        old = [
            job for job in self.jobs.values()
            if job.state != "reserved" and self.ends_of_age(job) <= self.now
        ]  # fmt: skip
        for job in sorted(old, key=lambda job: (job.since, job.job_id)):
            if self.rules(job.tube).get("expired") == "delete":
                self.drop(job)
            else:
                self.die(job, "max-age")

    def end_groups(self) -> None:
        """Let those go whose groups have no job."""
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        free = [job for job in waiting if not self.members(job.after)]
        for job in sorted(free, key=lambda job: job.rank):
            self.let_go(job, job.created + job.delay * TICKS)
            self.serve()

    def settle(self) -> None:
        """All happens that follows."""
        before, rounds = None, 0
        while before != (before := [(*vars(job).values(),) for job in self.jobs.values()]):
            self.serve()
            if rounds == self.rounds:
                break
            self.end_old()
            self.end_groups()
            rounds += 1
        for tube in list(self.buckets):
            self.bucket(tube)
        self.remembered = {at: kept for at, kept in self.remembered.items() if kept[1] > self.now}

    def end_due(self) -> None:
        """End what is due, in its order."""
        self.paused = {tube: due for tube, due in self.paused.items() if due > self.now}
        timed = [job for job in self.jobs.values() if job.state in ("delayed", "reserved")]
        for job in sorted(timed, key=lambda job: (job.due, job.job_id)):
            if job.due > self.now:
                continue
            if job.state == "delayed":
                self.let_go(job)
            else:
                job.timeouts += 1
                self.come_back(job, "ttr")
            self.serve()
        for number, peer in enumerate(self.peers):
            if peer.waits and self.is_soon(number):
                peer.hears("DEADLINE_SOON\r\n")
            elif peer.until <= self.now:
                peer.hears("TIMED_OUT\r\n")

    def restart(self) -> None:
        """The process ends, and the next one has what is on the disk."""
        self.peers = [Peer() for _ in self.peers]
        self.is_draining = False
        self.rounds = LIMIT
        self.buckets.clear()
        for job in self.jobs.values():
            if job.state == "reserved":
                self.let_go(job)
