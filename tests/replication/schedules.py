"""Schedules drawn from a seed: servers of a replicated queue, clients, and all that can befall
them; then everything heals, and what the queue has and has said is checked.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from functools import cache
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.reading.segment import is_trailer
from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import (
    MIN_SEGMENT_BYTES,
    TRAILER_BYTES,
    parse_segment_name,
)
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import T0
from tests.model.ledger import MARGIN_S, check
from tests.replication.followed import loaded
from tests.replication.mishaps import Mishaps, quick
from tests.replication.servers import SOUND, Host, Parts, ReplicatedLog
from tests.replication.talkers import LONG_TTR_S, Memory, Talker
from tests.replication.world import World

STEPS: Final = 24
SLICES_S: Final = (0.01, 0.05, 0.2)
"""Time that passes between what clients do, one of these."""

LINES: Final = 3
"""Connections to each server, of which one only looks, so that it never waits."""

EXPIRE_S: Final = 3600.0, 8.0, 1.0
"""After how long heartbeats expire, one of these.  The last is less than a lease: nothing that is
promised rests on how long they stay.
"""

LONGEST_LEASE_S: Final = 6

OLD_JOBS: Final = 30
"""Jobs of a log that was never replicated."""

HEALED_S: Final = 120.0
"""Until then some server must have become active when nothing is in the way any more."""

REFUSALS: Final = 3
"""Starts of each server that a torn stream ends, before it is filled again as they say."""

TERMS_HEALED: Final = 3
"""Terms that may begin when nothing is in the way any more: a server whose lease has run out
listens until it hears that another one has begun.
"""

SETTLED_S: Final = 30.0
"""Until then, and two leases, all is answered: an active server whose last messages have expired
looks for them for some 25 s (`replication.window.MAX_SHORT_LOOKS`).
"""

COLLECTED_AT: Final = 200_000
"""Objects after which Python's collector looks for cycles, several schedules together."""


TORN: Final = "more than heartbeats"
"""In the message of `replication.local_log.torn`."""


class Broken(Exception):
    """A queue of this schedule has said, or has, what it must not."""


def old_body(number: int) -> bytes:
    return b"%d for %d s " % (number, LONG_TTR_S) + b"o" * 900


@cache
def old_log() -> dict[str, bytes]:
    """The files of a log that was never replicated; its server was killed."""
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=MIN_SEGMENT_BYTES)
    client = server.connect()
    for number in range(OLD_JOBS):
        body = old_body(number)
        client.ask(b"put 0 0 %d %d\r\n%b\r\n" % (LONG_TTR_S, len(body), body))
    server.kill()
    assert server.directory is not None
    return {name: bytes(server.directory.read(name)) for name in server.directory.names()}


class Left(NamedTuple):
    """A job that is there at the end."""

    body: bytes
    priority: int
    tube: bytes
    state: State


class Schedule(Mishaps):
    """One of them.

    :ivar steps: what was done, in words.
    :ivar counts: how often what has happened.
    """

    def __init__(self, seed: int, parts: Parts = SOUND, most: int = STEPS) -> None:
        """:param most: steps after which all heals, if it does not before."""
        self.draw = draw = random.Random(seed)
        self.seed = seed
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self.world = world = World()
        self.log = log = ReplicatedLog(world)
        log.changed = self._superseded
        log.expire_s = EXPIRE_S[seed % len(EXPIRE_S)]
        self.memory = Memory(lambda: world.now_s, log)
        self._talkers: list[Talker] = []
        self._made = 0
        self._most = most
        self._parts = parts
        self.hosts = [self._host(name) for name in "abc"[: draw.choice((2, 2, 3))]]
        self._stopping = set()
        self._active_last = self.hosts[0]
        self.memory.has_rules = draw.randrange(3) == 0
        if draw.randrange(12) == 0:
            for host, lease_s in zip(
                self.hosts, draw.sample((1, 3, LONGEST_LEASE_S), 3), strict=False
            ):
                host.lease_s = lease_s

    def _host(self, name: str) -> Host:
        return Host(name, self.world, self.log, self.draw, self._parts)

    def run(self) -> None:
        """Go through all steps, heal, check.

        :raise Broken: with the seed and the steps.
        """
        interval_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
        gc.set_threshold(COLLECTED_AT)
        try:
            self._begin()
            for _ in range(min(self.draw.randrange(4, STEPS), self._most)):
                self._step()
                self._look()
            self._heal()
            self._look()
            self._check()
            self._look()
        finally:
            # A log sets it for the thread of its own that a real process has.
            sys.setswitchinterval(interval_s)
            gc.set_threshold(*thresholds)
            # A start freezes what a process has for good; here it is garbage with the schedule.
            gc.unfreeze()

    def _look(self) -> None:
        if self.memory.faults:
            self._broken(self.memory.faults[0])
        if self.world.failures:
            self._broken(self.world.failures[0].getTraceback())
        for host in self.hosts:
            if host.runs and (problems := host.service.situation().problems):
                self._broken(f"{host.name}: {problems[0]}")

    def _broken(self, what: str) -> None:
        notes = [note for host in self.hosts for note in host.notes]
        raise Broken("\n".join([f"seed {self.seed}: {what}", *self.steps, *notes]))

    def _begin(self) -> None:
        if self.draw.randrange(8) == 0:
            self._begin_filling()
            return
        for host in self.hosts:
            host.start()
        self.go(1.0)

    def _begin_filling(self) -> None:
        """One server has a log that was never replicated."""
        first, *others = self.hosts
        first.directory = MemoryDirectory(old_log())
        first.fate = self.draw.choice((quick, self._slow, self._lossy))
        for number in range(OLD_JOBS):
            self.memory.knows(number + 1, old_body(number))
        first.start()
        while not self.log.last:
            # Before that the others would begin a log of their own.
            self.world.go(0.01)
        self.go(self.draw.choice((0.01, 0.1, 1.0)))
        if self.draw.random() < 0.5:
            step = self.draw.choice((self._kill, self._lose_power, self._cut, self._pause))
            self.steps.append(f"while it fills: {step(first)}")
        for host in others:
            host.start()
        self.go(1.0)

    # Time, and what clients do in it.

    def go(self, seconds: float) -> None:
        """Pass time; clients do this and that."""
        end_s = self.world.now_s + seconds
        while self.world.now_s < end_s:
            for _ in range(self.draw.choice((0, 1, 2, 3))):
                self._act()
            self.world.go(self.draw.choice(SLICES_S))

    def _act(self) -> None:
        listening = [host for host in self.hosts if host.listens]
        if not listening:
            return
        host = self.draw.choice(listening)
        if len(host.connections) < LINES:
            self._made += 1
            talker = Talker(host, self.memory, f"c{self._made}", self.draw)
            talker.only_looks = self._made % LINES == 0
        talker = self.draw.choice(host.connections)
        if not talker.is_busy:
            talker.act()

    def _superseded(self) -> None:
        for host in self.hosts:
            if host.process is self.log.active:
                self._active_last = host
            else:
                for talker in list(host.connections):
                    talker.superseded()

    # The end.

    def _heal(self) -> None:
        self.steps.append(f"{self.world.now_s:.3f}: all heals")
        if not self.log.has_quorum:
            self.log.restore_quorum()
        for host in self.hosts:
            host.stalls = host.goes_on
            host.fate = quick
            host.cut_clients(False, False)
            host.directory.space = None
            host.mend()
        self._await_active()
        self.go(1.0)
        for _ in range(TERMS_HEALED):
            self._await_active()
            active = self._active()
            self._settle()
            if self._active() is active:
                return
        self._broken(f"servers become active in turn: {[self._how(h) for h in self.hosts]}")

    def _settle(self) -> None:
        """Pass time until all replies have left and all standbys have all."""
        end_s = self.world.now_s + SETTLED_S + 2 * max(host.lease_s for host in self.hosts)
        while self.world.now_s < end_s:
            self.world.go(0.1)
            if all(host.is_settled for host in self.hosts):
                return

    def _await_active(self) -> None:
        end_s = self.world.now_s + HEALED_S
        refused = {host.name: len(host.notes) for host in self.hosts}
        while self._active() is None:
            if self.world.now_s > end_s:
                self._broken(f"nobody becomes active: {[self._how(h) for h in self.hosts]}")
            if all(self._is_torn(host, refused[host.name]) for host in self.hosts):
                self._fill_again()
                refused = {host.name: len(host.notes) for host in self.hosts}
            for host in self.hosts:
                if not host.runs:
                    host.start()
            self.world.go(0.1)

    def _is_torn(self, host: Host, known: int) -> bool:
        """Whether a server refuses a stream of which more than heartbeats seems to be missing: a
        stale write may look so when the heartbeats before it were gone before anybody had read
        them.

        :param known: its notes before.
        """
        notes = host.notes[known:]
        is_early = self.log.expire_s < host.lease_s
        return is_early and len(notes) >= REFUSALS and all(TORN in note for note in notes)

    def _fill_again(self) -> None:
        """Do what the message of a torn stream says."""
        self.counts["torn"] += 1
        for host in self.hosts:
            host.kill()
        self.log.purge(self.log.last + 1)
        self._active_last.start()
        end_s = self.world.now_s + HEALED_S
        while self._active_last.runs and not self._active_last.listens:
            if self.world.now_s > end_s:
                self._broken(f"a stream is not filled again: {self._how(self._active_last)}")
            self.world.go(0.1)

    def _how(self, host: Host) -> str:
        return f"{host.name}: {host.service.situation()}" if host.runs else f"{host.name}: -"

    def _active(self) -> Host | None:
        if any(host.process in self._stopping or not host.runs for host in self.hosts):
            return None
        for host in self.hosts:
            if host.listens and host.process is self.log.active:
                return host
        return None

    def _check(self) -> None:
        active = self._active()
        if active is None:
            self._broken("the active server has ended though nothing was in the way")
            return
        waiting = [line for line in active.connections if line.is_busy]
        if waiting:
            self._broken(f"{active.name} does not answer {waiting[0].verb!r}")
        new = self._host("new")
        self.hosts.append(new)
        new.start()
        self._settle()
        left = jobs_of(active.queue)
        bodies = {job_id: body for job_id, (body, *_) in left.items()}
        for violation in check(self.memory.history, bodies, MARGIN_S, LONG_TTR_S):
            events = [event._replace(body=event.body[:20]) for event in violation.events]
            self._broken(f"{violation.fault.value}: job {violation.job}: {events}")
        for job_id, (_, priority, _, state) in left.items():
            self.memory.check_job(job_id, state.name.lower(), priority)
        for host in self.hosts:
            if host is not active:
                self._same(host, left, jobs_of(host.queue), "its memory")
        self._check_logs(active, left)

    def _check_logs(self, active: Host, left: dict[int, Left]) -> None:
        files = contents(active.directory)
        now_ns = T0 + int(self.world.now_s * 1e9)
        read: list[dict[int, bytes]] = []
        for host in self.hosts:
            found = contents(host.directory)
            if found not in read:
                read.append(found)
                jobs = jobs_of(loaded(host.directory, now_ns))
                self._same(host, left, jobs, "its log")
            for seq, content in found.items():
                if seq in files and files[seq] != content:
                    self._broken(f"segment {seq} of {host.name} is another than that of the active")

    def _same(
        self, host: Host, left: dict[int, Left], found: dict[int, Left], where: str
    ) -> None:  # fmt: skip
        if found.keys() != left.keys():
            lost, more = left.keys() - found.keys(), found.keys() - left.keys()
            self._broken(f"{host.name}: {where} lacks the jobs {lost}, and has {more} beyond")
        for job_id, job in left.items():
            other = found[job_id]
            # Of a log, reserved jobs are ready; delays end in the active server alone.
            is_buried = State.BURIED in (job.state, other.state) and job.state != other.state
            if job[:3] != other[:3] or is_buried:
                self._broken(f"{host.name}: {where} has {other} as job {job_id}, instead of {job}")


def explore(seed: int, parts: Parts = SOUND) -> Schedule:
    """Go through a schedule.

    :raise Broken: for as few of its first steps as break it.
    """
    schedule = Schedule(seed, parts)
    try:
        schedule.run()
    except Broken:
        for most in range(STEPS):
            Schedule(seed, parts, most).run()
        raise
    return schedule


def jobs_of(queue: Any) -> dict[int, Left]:
    jobs, tubes = queue.state.jobs, queue.state.tubes
    return {
        job_id: Left(bytes(job.body), job.priority, tubes.by_id(job.tube_id).name, job.state)
        for job_id in jobs if (job := jobs.look(job_id)) is not None
    }  # fmt: skip


def contents(directory: MemoryDirectory) -> dict[int, bytes]:
    """The segments of a log, without what is allocated ahead, and without trailers: who was killed
    while it sealed a segment cuts the trailer off.
    """
    return {
        seq: without_trailer(bytes(directory.read(name))).rstrip(b"\0")
        for name in directory.names() if (seq := parse_segment_name(name)) is not None
    }  # fmt: skip


def without_trailer(content: bytes) -> bytes:
    """The bytes of a segment, up to its trailer."""
    is_sealed = is_trailer(content, len(content) - TRAILER_BYTES, len(content))
    return content[:-TRAILER_BYTES] if is_sealed else content
