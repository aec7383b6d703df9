"""
Schedules drawn from a seed: servers of a replicated queue, clients, and all that can befall them;
then everything heals, and what the queue has and has said is checked.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from beanstalk_twisted.binlog.format import MIN_SEGMENT_BYTES, parse_segment_name
from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.replication.stream.memory import Fate
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.crash.disks import SECTORS, pieces
from tests.replication.followed import loaded
from tests.replication.history import check
from tests.replication.servers import LEASE_S, SOUND, Host, Parts, ReplicatedLog
from tests.replication.talkers import LONG_TTR_S, Memory, Talker
from tests.replication.world import STARTED_NS, Process, World

STEPS: Final = 24
SLICES_S: Final = (0.01, 0.05, 0.2)
"""Time that passes between what clients do, one of these."""

LINES: Final = 3
"""Connections to each server, of which one only looks, so that it never waits."""

OLD_JOBS: Final = 30
"""Jobs of a log that was never replicated."""

HEALED_S: Final = 120.0
"""Until then some server must have become active when nothing is in the way any more."""

COLLECTED_AT: Final = 200_000
"""Objects after which Python's collector looks for cycles, several schedules together."""

QUICK: Final = Fate(0.002, 0.002)
LATE: Final = Fate(0.002, 2.5, 4.0)


class Broken(Exception):
    """
    A queue of this schedule has said, or has, what it must not.
    """


def quick(kind: str) -> Fate:
    """
    A network as it should be.
    """
    return QUICK


def late(kind: str) -> Fate:
    """
    A network whose answers are late.
    """
    return LATE


def old_body(number: int) -> bytes:
    """
    The body of a job of `old_log`.
    """
    return b"%d for %d s " % (number, LONG_TTR_S) + b"o" * 900


@cache
def old_log() -> dict[str, bytes]:
    """
    The files of a log that was never replicated; its server was killed.
    """
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=MIN_SEGMENT_BYTES)
    client = server.connect()
    for number in range(OLD_JOBS):
        body = old_body(number)
        client.ask(b"put 0 0 %d %d\r\n%b\r\n" % (LONG_TTR_S, len(body), body))
    server.kill()
    assert server.directory is not None
    return {name: bytes(server.directory.read(name)) for name in server.directory.names()}


class Schedule:
    """
    One of them.

    :ivar steps: what was done, in words.
    :ivar counts: how often what has happened.
    """

    def __init__(self, seed: int, parts: Parts = SOUND, most: int = STEPS) -> None:
        """
        :param most: steps after which all heals, if it does not before.
        """
        self.draw = draw = random.Random(seed)
        self.seed = seed
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self.world = world = World()
        self.log = log = ReplicatedLog(world)
        log.changed = self._superseded
        self._wires = Process(world)
        self.memory = Memory(lambda: world.now_s, log)
        self._talkers: list[Talker] = []
        self._made = 0
        self._most = most
        self._parts = parts
        self.hosts = [self._host(name) for name in "abc"[: draw.choice((2, 2, 3))]]
        self._stopping: set[Process] = set()

    def _host(self, name: str) -> Host:
        return Host(name, self.world, self.log, self._wires, self.draw, self._parts)

    def run(self) -> None:
        """
        Go through all steps, heal, check.

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

    def _look(self) -> None:
        if self.memory.faults:
            self._broken(self.memory.faults[0])
        for host in self.hosts:
            if host.process is not None and host.process.failures:
                self._broken(f"{host.name}: {host.process.failures[0].getTraceback()}")

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
        """
        One server has a log that was never replicated.
        """
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
        """
        Pass time; clients do this and that.
        """
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
            if host.process is not self.log.active:
                for talker in list(host.connections):
                    talker.superseded()

    # Steps.

    def _step(self) -> None:
        draw = self.draw
        steps: list[tuple[int, Callable[[Host], str]]] = [
            (6, self._pass), (3, self._kill), (2, self._lose_power), (6, self._start),
            (3, self._pause), (3, self._stall), (3, self._cut), (4, self._mend), (3, self._weather),
            (2, self._quorum), (2, self._stop), (2, self._promote), (1, self._fill_disk),
        ]  # fmt: skip
        (step,) = draw.choices([step for _, step in steps], [weight for weight, _ in steps])
        # What befalls the active server tells more.
        listening = [host for host in self.hosts if host.listens]
        host = draw.choice(listening if listening and draw.random() < 0.5 else self.hosts)
        words = step(host)
        if words:
            self.counts[step.__name__] += 1
            self.steps.append(f"{self.world.now_s:.3f}: {words}")
        self.go(draw.choice((0.02, 0.1, 0.5, 1.5)))

    def _pass(self, host: Host) -> str:
        seconds = self.draw.choice((0.2, 1.0, LEASE_S * 0.9, LEASE_S * 1.1))
        self.go(seconds)
        return f"{seconds} s pass"

    def _kill(self, host: Host) -> str:
        if not host.runs:
            return ""
        host.kill()
        return f"{host.name} is killed"

    def _lose_power(self, host: Host) -> str:
        if not host.runs:
            return ""
        host.kill(self._power_lost)
        return f"{host.name} loses its power"

    def _power_lost(self, directory: MemoryDirectory) -> MemoryDirectory:
        draw, share, sector = (
            self.draw,
            self.draw.choice((0.0, 0.5, 1.0)),
            self.draw.choice(SECTORS),
        )
        return directory.after_power_loss(
            lambda: draw.random() < share,
            lambda size: [piece for piece in pieces(size, sector) if draw.random() < share],
        )

    def _start(self, host: Host) -> str:
        down = [each for each in self.hosts if not each.runs]
        if not down:
            return ""
        host = self.draw.choice(down)
        host.start()
        return f"{host.name} starts"

    def _pause(self, host: Host) -> str:
        process = host.process
        if process is None:
            return ""
        seconds = self.draw.choice((0.5, LEASE_S, 2 * LEASE_S))
        process.hold()
        self.go(seconds)
        process.go_on()
        return f"{host.name} stood still for {seconds} s"

    def _stall(self, host: Host) -> str:
        """
        A pause in the middle of a turn.
        """
        seconds = self.draw.choice((0.5, LEASE_S, 2 * LEASE_S))
        looks = self.draw.randrange(1, 60)

        def stalls() -> None:
            nonlocal looks
            looks -= 1
            process = host.process
            if not looks and process is not None:
                host.stalls = lambda: None
                self.counts["stalled"] += 1
                process.hold()
                self.go(seconds)
                process.go_on()

        host.stalls = stalls
        return f"{host.name} will stand still for {seconds} s at its {looks}th look"

    def _cut(self, host: Host) -> str:
        sending, receiving = self.draw.choice(((True, True), (True, False), (False, True)))
        host.cut(sending, receiving)
        return f"{host.name} is cut off (sending: {sending}, receiving: {receiving})"

    def _mend(self, host: Host) -> str:
        host.mend()
        return f"{host.name} is connected"

    def _weather(self, host: Host) -> str:
        name, fate = self.draw.choice((
            ("quick", quick), ("slow", self._slow), ("lossy", self._lossy), ("wild", self._wild),
            ("late", late),
        ))  # fmt: skip
        host.fate = fate
        return f"the network of {host.name} is {name}"

    def _slow(self, kind: str) -> Fate:
        draw = self.draw
        return Fate(draw.choice((0.1, 0.4, 1.0)), draw.choice((0.1, 0.4, 1.0)), 2.0)

    def _lossy(self, kind: str) -> Fate:
        draw = self.draw
        there = None if draw.random() < 0.15 else 0.01
        return Fate(there, None if draw.random() < 0.15 else 0.01, 0.5)

    def _wild(self, kind: str) -> Fate:
        draw = self.draw
        there, back = draw.choice((0.001, 0.2, 1.0, 6.0)), draw.choice((0.001, 0.2, 1.0, None))
        return Fate(there, back, 1.0, kind != "append", kind == "deliver" and draw.random() < 0.3)

    def _quorum(self, host: Host) -> str:
        if self.log.has_quorum:
            self.log.lose_quorum()
            return "the stream has no quorum"
        keeps = self.draw.random() < 0.5
        self.log.restore_quorum(keeps)
        return f"the stream has a quorum again (keeps: {keeps})"

    def _stop(self, host: Host) -> str:
        process = host.process
        if process is None:
            return ""
        process.callLater(0, self._begin_stop, host, process)
        return f"{host.name} is stopped"

    def _begin_stop(self, host: Host, process: Process) -> None:
        def stopped(ignored: Any) -> None:
            if host.process is process:
                self._stopping.discard(process)
                host.kill()

        self._stopping.add(process)
        host.service.stopService().addBoth(stopped)

    def _promote(self, host: Host) -> str:
        active = [each for each in self.hosts if each.listens]
        if not active:
            return ""
        host, to = self.draw.choice(active), self.draw.choice(("", *(h.name for h in self.hosts)))
        assert host.process is not None
        host.process.callLater(0, host.service.promote, to)
        return f"{host.name} hands over to {to!r}"

    def _fill_disk(self, host: Host) -> str:
        directory = host.directory
        if directory.space is not None:
            directory.space = None
            return f"{host.name} has space again"
        directory.space = sum(len(directory.read(name)) for name in directory.names())
        directory.space += self.draw.choice((0, 3_000, 10_000))
        host.was_full = True
        return f"the disk of {host.name} is full"

    # The end.

    def _heal(self) -> None:
        self.steps.append(f"{self.world.now_s:.3f}: all heals")
        if not self.log.has_quorum:
            self.log.restore_quorum()
        for host in self.hosts:
            host.stalls = lambda: None
            host.fate = quick
            host.directory.space = None
            host.mend()
        self._await_active()
        self.go(1.0)
        self._await_active()
        self._settle()

    def _settle(self) -> None:
        """
        Pass time until all replies have left and all standbys have all, at most two leases.
        """
        end_s = self.world.now_s + LEASE_S * 2 + 1.0
        while self.world.now_s < end_s:
            self.world.go(0.1)
            if all(host.is_settled for host in self.hosts):
                return

    def _await_active(self) -> None:
        end_s = self.world.now_s + HEALED_S
        while self._active() is None:
            if self.world.now_s > end_s:
                self._broken(f"nobody becomes active: {[self._how(h) for h in self.hosts]}")
            for host in self.hosts:
                if not host.runs:
                    host.start()
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
        bodies = {job_id: body for job_id, (body, _, _) in left.items()}
        for violation in check(self.memory.history, bodies, 1.0, LONG_TTR_S):
            events = [event._replace(body=event.body[:20]) for event in violation.events]
            self._broken(f"{violation.fault.value}: job {violation.job}: {events}")
        for job_id, (_, state, priority) in left.items():
            self.memory.check_job(job_id, state, priority)
        for host in self.hosts:
            if host is not active:
                self._same(host, bodies, jobs_of(host.queue), "its memory")
        self._check_logs(active, bodies)

    def _check_logs(self, active: Host, bodies: dict[int, bytes]) -> None:
        files = contents(active.directory)
        now_ns = STARTED_NS + int(self.world.now_s * 1e9)
        read: list[dict[int, bytes]] = []
        for host in self.hosts:
            found = contents(host.directory)
            if found not in read:
                read.append(found)
                jobs = jobs_of(loaded(host.directory, now_ns))
                self._same(host, bodies, jobs, "its log")
            for seq, content in found.items():
                if seq in files and files[seq] != content:
                    self._broken(f"segment {seq} of {host.name} is another than that of the active")

    def _same(self, host: Host, bodies: dict[int, bytes], jobs: Any, where: str) -> None:
        others = {job_id: body for job_id, (body, _, _) in jobs.items()}
        if others != bodies:
            lost, more = bodies.keys() - others.keys(), others.keys() - bodies.keys()
            self._broken(f"{host.name}: {where} lacks the jobs {lost}, and has {more} beyond")


def explore(seed: int, parts: Parts = SOUND) -> Schedule:
    """
    Go through a schedule.

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


def jobs_of(queue: Any) -> dict[int, tuple[bytes, Any, int]]:
    """
    The body, state and priority of each job.
    """
    jobs = queue.state.jobs
    return {
        job_id: (bytes(job.body), job.state, job.priority)
        for job_id in jobs if (job := jobs.look(job_id)) is not None
    }  # fmt: skip


def contents(directory: MemoryDirectory) -> dict[int, bytes]:
    """
    The segments of a log, without what is allocated ahead.
    """
    return {
        seq: bytes(directory.read(name)).rstrip(b"\0")
        for name in directory.names() if (seq := parse_segment_name(name)) is not None
    }  # fmt: skip
