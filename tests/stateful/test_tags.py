"""Jobs with concurrency keys, in groups, and behind groups, over restarts: each client hears what
plain lists of jobs and of waits say, and what is on the disk says the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.tube import NO_JOBS
from beanstalk_twisted.testing.inspection import look
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import share

EXAMPLES = share(400, 10)
STEPS = 60
CLIENTS = 3
TUBES = ("default", "a")
FOREVER = float("inf")

ONE_CLIENT = st.integers(0, CLIENTS - 1)
ONE_JOB = st.integers(0, 30)
PRIORITIES = st.sampled_from([0, 0, 1, 2000])
DELAYS = st.sampled_from([0, 0, 0, 3])
KEYS = st.sampled_from(["", "k:1", "k:1", "k:2", "k:3", "m:1"])
GROUPS = st.sampled_from(["", "", "g", "h"])
TUBE = st.sampled_from(TUBES)
NEW_JOB = st.tuples(PRIORITIES, DELAYS, KEYS, GROUPS, GROUPS)
TTR_S = 8


@dataclass
class Known:
    """A job.

    :ivar due: end of its delay or TTR, seconds, `FOREVER` while it waits for a group; for a buried
        job, how many were buried before.
    """

    job_id: int
    tube: str
    pri: int
    key: str
    limit: int
    group: str
    after: str
    ends: float
    state: str = "ready"
    due: float = 0
    holder: int = -1

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among ready jobs."""
        return self.pri, self.job_id


@dataclass
class Peer:
    """A client, and what it watches; `waits` since which step, 0 if it does not."""

    client: Client
    using: str = "default"
    watched: list[str] = field(default_factory=lambda: ["default"])
    waits: int = 0


class Tags(RuleBasedStateMachine):
    """Clients of a server with a log."""

    @initialize()
    def start(self) -> None:
        self.server = MemoryServer(directory=MemoryDirectory())
        self.jobs: dict[int, Known] = {}
        self.paused: dict[str, float] = {}
        self.kept = {*TUBES[:1]}
        self.next_id = 1
        self.step = self.buried = 0
        self.heard: dict[int, int] = {}
        self.peers = [Peer(self.server.connect()) for _ in range(CLIENTS)]

    # What is expected.

    def may_go(self, job: Known) -> bool:
        """Say whether its concurrency key lets a job be reserved."""
        same = [each for each in self.jobs.values() if each.key == job.key]
        reserved = [each for each in same if each.state == "reserved"]
        return not job.key or len(reserved) < job.limit

    def open_jobs(self, tubes: list[str]) -> list[Known]:
        """Give the jobs of these tubes that may be reserved, in order."""
        found = [
            job for job in self.jobs.values()
            if job.state == "ready" and job.tube in tubes and job.tube not in self.paused
            and self.may_go(job)
        ]  # fmt: skip
        return sorted(found, key=lambda job: job.rank)

    def reserve(self, job: Known, number: int) -> None:
        """A client gets a job."""
        job.state, job.holder, job.due = "reserved", number, self.ahead(TTR_S)

    def serve(self) -> None:
        """Give jobs to those who wait, the best job first."""
        while True:
            pairs = [
                (job, peer) for job in self.open_jobs([*TUBES])
                for peer in sorted(self.peers, key=lambda peer: peer.waits)
                if peer.waits and job.tube in peer.watched
            ]  # fmt: skip
            if not pairs:
                return
            job, peer = pairs[0]
            peer.waits = 0
            number = self.peers.index(peer)
            self.reserve(job, number)
            assert number not in self.heard
            self.heard[number] = job.job_id

    def members(self, group: str) -> int:
        """Count the jobs of a group."""
        return len([job for job in self.jobs.values() if job.group == group])

    def is_waiting(self, job: Known) -> bool:
        """Say whether a job waits for a group."""
        return job.state == "delayed" and job.due == FOREVER

    def end_groups(self) -> None:
        """Let those go whose groups have no job."""
        free = [
            job for job in self.jobs.values()
            if self.is_waiting(job) and not self.members(job.after)
        ]  # fmt: skip
        for job in sorted(free, key=lambda job: job.rank):
            self.make_ready(job, job.ends)
            self.serve()

    def make_ready(self, job: Known, due: float = 0) -> None:
        """A job is ready, or delayed until then."""
        is_delayed = due > self.now
        job.state, job.due, job.holder = "ready", 0, -1
        if is_delayed:
            job.state, job.due = "delayed", due

    def forget_pauses(self) -> None:
        """A tube that nothing refers to any more is forgotten with its pause; one that nothing
        refers to since a restart is paused on.
        """
        kept = {TUBES[0], *(job.tube for job in self.jobs.values())}
        for peer in self.peers:
            kept |= {peer.using, *peer.watched}
        for tube in self.kept - kept:
            self.paused.pop(tube, None)
        self.kept = kept

    @property
    def now(self) -> float:
        """The time, to the millisecond."""
        return round(self.server.clock.seconds(), 3)

    def ahead(self, seconds: int) -> float:
        """Give a moment so far ahead."""
        return round(self.now + seconds, 3)

    # Talking.

    def say(self, number: int, request: bytes) -> bytes:
        """Send a command at a moment of its own: no two things are due at once."""
        self.server.advance(0.001)
        self.catch_up()
        self.step += 1
        self.heard.clear()
        return self.peers[number].client.ask(request)

    def check(self) -> None:
        """Compare what came late with what is expected."""
        self.forget_pauses()
        self.server.advance()
        for number, peer in enumerate(self.peers):
            said = peer.client.take()
            job_id = self.heard.pop(number, None)
            assert said == (b"" if job_id is None else b"RESERVED %d 1\r\nx\r\n" % job_id)

    def idle(self, number: int) -> int:
        """Give a client that does not wait, this one if it does not."""
        free = [at for at, peer in enumerate(self.peers) if not peer.waits]
        return free[number % len(free)]

    @property
    def anybody(self) -> bool:
        """Say whether a client does not wait."""
        return any(not peer.waits for peer in self.peers)

    def pick(self, place: int) -> int:
        """Give the id of a job, or one past the last if there is none."""
        ids = sorted(self.jobs)
        return ids[place % len(ids)] if ids else self.next_id

    # Commands.

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, tube=TUBE, jobs=st.lists(NEW_JOB, min_size=1, max_size=3))
    def put(
        self, number: int, tube: str, jobs: list[tuple[int, int, str, str, str]]
    ) -> None:  # fmt: skip
        number = self.idle(number)
        if self.peers[number].using != tube:
            self.say(number, b"use %s\r\n" % tube.encode())
            self.peers[number].using = tube
        lines = []
        for pri, delay, key, group, after in jobs:
            other = "" if after == group else after
            named = (("con:", key), ("grp:", group), ("aft:", other))
            tags = "".join([f" {word}{name}" for word, name in named if name])
            lines.append(f"{pri} {delay} {TTR_S} 1{tags}\r\nx\r\n")
        if len(jobs) == 1:
            said = self.say(number, f"put {lines[0]}".encode())
            assert said == b"INSERTED %d\r\n" % self.next_id
        else:
            said = self.say(number, f"put-batch {len(jobs)}\r\n{''.join(lines)}".encode())
            assert said.startswith(b"INSERTED_BATCH %d\r\n" % len(jobs))
        for pri, delay, key, group, after in jobs:
            name, _, limit = key.partition(":")
            other = "" if after == group else after
            job = Known(
                self.next_id, tube, pri, name, int(limit or 0), group, other, self.ahead(delay)
            )  # fmt: skip
            self.make_ready(job, job.ends if delay else 0)
            if other and self.members(other):
                job.state, job.due = "delayed", FOREVER
            self.jobs[job.job_id] = job
            self.next_id += 1
        self.serve()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT)
    def reserve_at_once(self, number: int) -> None:
        number = self.idle(number)
        said = self.say(number, b"reserve-with-timeout 0\r\n")
        found = self.open_jobs(self.peers[number].watched)
        if found:
            assert said == b"RESERVED %d 1\r\nx\r\n" % found[0].job_id
            self.reserve(found[0], number)
        else:
            assert said in (b"TIMED_OUT\r\n", b"DEADLINE_SOON\r\n")
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT)
    def wait(self, number: int) -> None:
        number = self.idle(number)
        if any(job.holder == number for job in self.jobs.values()):
            # It would hear DEADLINE_SOON.
            return
        said = self.say(number, b"reserve\r\n")
        found = self.open_jobs(self.peers[number].watched)
        if found:
            assert said == b"RESERVED %d 1\r\nx\r\n" % found[0].job_id
            self.reserve(found[0], number)
        else:
            assert said == b""
            self.peers[number].waits = self.step
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, count=st.integers(1, 4))
    def reserve_batch(self, number: int, count: int) -> None:
        number = self.idle(number)
        said = self.say(number, b"reserve-batch %d\r\n" % count)
        expected = []
        for _ in range(count):
            found = self.open_jobs(self.peers[number].watched)
            if found:
                expected.append(found[0].job_id)
                self.reserve(found[0], number)
        told = b"".join([b"RESERVED %d 1\r\nx\r\n" % job_id for job_id in expected])
        assert said == b"RESERVED_BATCH %d\r\n" % len(expected) + told
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def reserve_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        said = self.say(number, b"reserve-job %d\r\n" % job_id)
        job = self.jobs.get(job_id)
        if job is None or job.state == "reserved" or not self.may_go(job):
            assert said == b"NOT_FOUND\r\n"
        else:
            assert said == b"RESERVED %d 1\r\nx\r\n" % job_id
            self.reserve(job, number)
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def delete(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        said = self.say(number, b"delete %d\r\n" % job_id)
        job = self.jobs.get(job_id)
        if job is None or (job.state == "reserved" and job.holder != number):
            assert said == b"NOT_FOUND\r\n"
        else:
            assert said == b"DELETED\r\n"
            del self.jobs[job_id]
            self.serve()
            self.end_groups()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB, pri=PRIORITIES, delay=DELAYS)
    def release(self, number: int, place: int, pri: int, delay: int) -> None:
        number, job_id = self.idle(number), self.pick_held(place)
        said = self.say(number, b"release %d %d %d\r\n" % (job_id, pri, delay))
        job = self.jobs.get(job_id)
        if job is None or job.holder != number:
            assert said == b"NOT_FOUND\r\n"
        else:
            assert said == b"RELEASED\r\n"
            job.pri = pri
            self.make_ready(job, self.ahead(delay) if delay else 0)
            self.serve()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB, pri=PRIORITIES)
    def bury(self, number: int, place: int, pri: int) -> None:
        number, job_id = self.idle(number), self.pick_held(place)
        said = self.say(number, b"bury %d %d\r\n" % (job_id, pri))
        job = self.jobs.get(job_id)
        if job is None or job.holder != number:
            assert said == b"NOT_FOUND\r\n"
        else:
            assert said == b"BURIED\r\n"
            job.pri, job.state, job.holder, job.due = pri, "buried", -1, self.buried
            self.buried += 1
            self.serve()
        self.check()

    def pick_held(self, place: int) -> int:
        """Give the id of a reserved job, or one past the last if there is none."""
        ids = sorted(job.job_id for job in self.jobs.values() if job.state == "reserved")
        return ids[place % len(ids)] if ids else self.next_id

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, bound=st.integers(1, 3))
    def kick(self, number: int, bound: int) -> None:
        number = self.idle(number)
        here = [job for job in self.jobs.values() if job.tube == self.peers[number].using]
        said = self.say(number, b"kick %d\r\n" % bound)
        buried = [job for job in here if job.state == "buried"]
        kicked = buried or [job for job in here if job.state == "delayed"]
        kicked = sorted(kicked, key=lambda job: (job.due, job.job_id))[:bound]
        assert said == b"KICKED %d\r\n" % len(kicked)
        is_waited_for = any(
            peer.waits and self.peers[number].using in peer.watched for peer in self.peers
        )
        for job in kicked:
            self.make_ready(job)
            if is_waited_for:
                self.serve()
        self.serve()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def kick_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        said = self.say(number, b"kick-job %d\r\n" % job_id)
        job = self.jobs.get(job_id)
        if job is None or job.state not in ("buried", "delayed"):
            assert said == b"NOT_FOUND\r\n"
        else:
            assert said == b"KICKED\r\n"
            self.make_ready(job)
            self.serve()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, tube=TUBE, seconds=st.sampled_from([0, 4]))
    def pause(self, number: int, tube: str, seconds: int) -> None:
        number = self.idle(number)
        said = self.say(number, b"pause-tube %s %d\r\n" % (tube.encode(), seconds))
        if said == b"PAUSED\r\n":
            self.paused.pop(tube, None)
            if seconds:
                self.paused[tube] = self.ahead(seconds)
        self.serve()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, tube=TUBE)
    def watch(self, number: int, tube: str) -> None:
        number = self.idle(number)
        self.say(number, b"watch %s\r\n" % tube.encode())
        if tube not in self.peers[number].watched:
            self.peers[number].watched.append(tube)
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, tube=TUBE)
    def peek_ready(self, number: int, tube: str) -> None:
        number = self.idle(number)
        using = self.peers[number].using
        said = self.say(number, b"peek-ready\r\n")
        ready = [job for job in self.jobs.values() if job.tube == using and job.state == "ready"]
        ready.sort(key=lambda job: (not self.may_go(job), job.rank))
        assert said == (b"FOUND %d 1\r\nx\r\n" % ready[0].job_id if ready else b"NOT_FOUND\r\n")
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=ONE_CLIENT, group=st.sampled_from(["g", "h"]))
    def stats_group(self, number: int, group: str) -> None:
        number = self.idle(number)
        said = self.say(number, b"stats-group %s\r\n" % group.encode()).decode()
        members = [job for job in self.jobs.values() if job.group == group]
        waiting = [
            job for job in self.jobs.values() if self.is_waiting(job) and job.after == group
        ]  # fmt: skip
        if members or waiting:
            states = [job.state for job in members]
            counts = [
                f"{state}: {states.count(state)}"
                for state in ("ready", "reserved", "delayed", "buried")
            ]
            assert said.splitlines()[3:-1] == [
                f"pending: {len(members)}", *counts, "complete: false",
                f"waiting-jobs: {len(waiting)}",
            ]  # fmt: skip
        else:
            assert said == "NOT_FOUND\r\n"
        self.check()

    # Time, ends of connections and of processes.

    @rule(seconds=st.sampled_from([1, 3, 9]))
    def pass_time(self, seconds: int) -> None:
        end = round(self.now + seconds, 3)
        while (due := self.next_due()) <= end:
            self.server.advance(max(0.0, due - self.server.clock.seconds()))
            self.catch_up()
            self.check()
        self.server.advance(end - self.server.clock.seconds())
        self.check()

    def next_due(self) -> float:
        """Say when the next delay, pause or TTR ends."""
        timed = [job.due for job in self.jobs.values() if job.state in ("delayed", "reserved")]
        return min([*timed, *self.paused.values()], default=FOREVER)

    def catch_up(self) -> None:
        """End what is due by now."""
        for tube, due in list(self.paused.items()):
            if due <= self.now:
                del self.paused[tube]
        timed = [job for job in self.jobs.values() if job.state in ("delayed", "reserved")]
        for job in sorted(timed, key=lambda job: (job.due, job.job_id)):
            if job.due <= self.now:
                self.make_ready(job)
                self.serve()
        self.serve()

    @rule(number=ONE_CLIENT)
    def hang_up(self, number: int) -> None:
        self.say(number, b"")
        peer = self.peers[number]
        held = [job for job in self.jobs.values() if job.holder == number]
        order = list(peer.client.protocol.session.reserved)
        peer.client.hang_up()
        self.peers[number] = Peer(self.server.connect())
        for job in sorted(held, key=lambda job: order.index(job.job_id)):
            self.make_ready(job)
            self.serve()
        self.check()

    @rule()
    def kill(self) -> None:
        self.server.advance(1)
        self.catch_up()
        self.check()
        self.server.kill_and_restart()
        self.peers = [Peer(self.server.connect()) for _ in range(CLIENTS)]
        for job in self.jobs.values():
            if job.state == "reserved":
                self.make_ready(job)
        self.kept.clear()
        self.forget_pauses()

    @invariant()
    def all_is_as_expected(self) -> None:
        if not hasattr(self, "server"):
            return
        assert not self.server.failures
        queue = self.server.service.queue
        views = {view.id: view.state for view in look(queue.state, 0)}
        assert views == {job.job_id: job.state for job in self.jobs.values()}
        assert (NO_JOBS.count, queue.state.groups.ended) == (0, {})
        for tube in queue.state.tubes.in_order:
            ready = [
                job for job in self.jobs.values()
                if job.state == "ready" and job.tube == tube.name.decode()
            ]  # fmt: skip
            assert tube.ready_count == len(ready)
            assert tube.urgent == len([job for job in ready if job.pri < 1024])
            keys = tube.queue(State.READY).behind(-1, 100)
            ranks = sorted(job.rank for job in ready)
            assert keys == [pri << 64 | job_id for pri, job_id in ranks]


def test_each_hears_what_plain_lists_say() -> None:
    run_state_machine_as_test(
        Tags, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
