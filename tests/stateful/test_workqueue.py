"""Several clients do what comes to their mind, and time passes; the queue keeps its word.

The machine knows each job as a few plain values (`Known`), and says beforehand what every command
must answer.  After each step the queue is compared with that, with a state that was made from the
recorded records alone, and with itself.

``--hypothesis-profile`` scales it: four times the profile's ``max_examples`` are tried.  Under CI
hypothesis has a profile of its own, in which every run does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
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

from beanstalk_twisted.binlog.records.jobs import JobImage, State
from beanstalk_twisted.binlog.records.others import Counters, Pause, TubeDef
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.bulk import RUN_JOBS
from beanstalk_twisted.rules.reservations import SAFETY_MARGIN_NS
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from tests.rules.conversation import NS, Client, Server

EXAMPLES = 4 * settings().max_examples
STEPS = 60
MOST_CLIENTS = 5

TUBES = ("default", "a", "b")
PRIORITIES = st.sampled_from([0, 1, 1023, 1024, 4294967295])
DELAYS = st.sampled_from([0, 0, 0, 1, 2, 5])
TTRS = st.sampled_from([0, 1, 2, 3, 10])
BODIES = st.binary(max_size=3)
TUBE_NAMES = st.sampled_from(TUBES)
JOBS = st.tuples(TUBE_NAMES, PRIORITIES, DELAYS, TTRS, BODIES)


@dataclass
class Known:
    """What the machine knows of a job.

    :ivar due_ns: end of its delay or TTR; for a buried job, how many were buried before it.
    """

    state: str
    tube: str
    pri: int
    ttr: int
    body: bytes
    due_ns: int = 0
    holder: Client | None = None


@dataclass
class Wait:
    """A `reserve` that is not answered."""

    client: Client
    until_ns: int | None


A_JOB = Job(1, b"", None, (0,) * 16)
FIELDS = [
    name for name in dir(A_JOB) if not name.startswith("_") and not callable(getattr(A_JOB, name))
]
"""All that a job has; not `__slots__`, which a compiled class does not have."""
assert {"body", "holder", "tube_id"} <= set(FIELDS)


def snapshot(state: QueueState, now_ns: int) -> dict[str, Any]:
    """Write down all that is durable: jobs, and the tubes that have jobs or a pause."""
    jobs: dict[str, Any] = {}
    for job_id in state.jobs:
        job = state.jobs.look(job_id)
        assert job is not None
        jobs[f"job {job_id}"] = [getattr(job, name) for name in FIELDS]
    tubes = {}
    for tube in state.tubes.in_order:
        pause = (tube.pause_s, tube.pause_until_ns) if tube.pause_until_ns > now_ns else None
        if tube.job_count or pause:
            tubes[tube.name.decode()] = (
                tube.tube_id, tube.ready.count, tube.reserved, tube.delayed.count,
                tube.buried.count, tube.urgent, pause, tube.ready.first(), tube.delayed.first(),
                tube.buried.first(),
            )  # fmt: skip
    counts = {known: state.counts[known] for known in State}
    return jobs | tubes | {"counts": counts, "urgent": state.urgent}


class Clients(RuleBasedStateMachine):
    """Clients, the jobs they know of, and the rules they expect to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.clients: list[Client] = []
        self.jobs: dict[int, Known] = {}
        self.used: dict[Client, str] = {}
        self.watched: dict[Client, set[str]] = {}
        self.half_closed: set[Client] = set()
        self.waits: list[Wait] = []
        self.paused_until_ns: dict[str, int] = {}
        self.buried_count = 0
        self.next_id = 1

    # What can be chosen.

    def idle(self) -> list[Client]:
        """Give the clients that may say something."""
        return [client for client in self.clients if not client.session.is_blocked]

    def choose_client(self, data: st.DataObject) -> Client:
        """Choose a client that may say something."""
        return data.draw(st.sampled_from(self.idle()), label="client")

    def choose_job(self, data: st.DataObject, *states: str) -> int:
        """Choose a job, mostly one in these states, now and then one that is not there."""
        fitting = [job_id for job_id, job in self.jobs.items() if job.state in states]
        ids = fitting * 3 + list(self.jobs) + [self.next_id]
        return data.draw(st.sampled_from(ids), label="job")

    # What is expected.

    def ordered(self, tube: str, state: str) -> list[int]:
        """Give the ids of a tube's jobs in a state, in that state's order."""
        found = [
            (job.pri if state == "ready" else job.due_ns, job_id)
            for job_id, job in self.jobs.items()
            if (job.tube, job.state) == (tube, state)
        ]
        return [job_id for _, job_id in sorted(found)]

    def is_open(self, tube: str) -> bool:
        """Say whether a tube is not paused."""
        return tube not in self.paused_until_ns

    def best_for(self, client: Client) -> int | None:
        """Find the ready job that the client would get."""
        ready = [
            (job.pri, job_id)
            for job_id, job in self.jobs.items()
            if job.state == "ready" and job.tube in self.watched[client] and self.is_open(job.tube)
        ]
        return min(ready)[1] if ready else None

    def is_deadline_soon(self, client: Client) -> bool:
        """Say whether a job of the client is within its last second."""
        dues = [job.due_ns for job in self.jobs.values() if job.holder is client]
        return bool(dues) and min(dues) - SAFETY_MARGIN_NS <= self.server.now_ns

    def hold(self, client: Client, job_id: int) -> str:
        """Let a client have a job, and give the reply that says so."""
        job = self.jobs[job_id]
        job.state, job.holder = "reserved", client
        job.due_ns = self.server.now_ns + job.ttr * NS
        return f"RESERVED {job_id} {len(job.body)}\r\n{job.body.decode('latin-1')}"

    def make_ready(self, job_id: int) -> None:
        """Let a job be ready, and give it to who has waited longest, if somebody does."""
        job = self.jobs[job_id]
        job.state, job.holder, job.due_ns = "ready", None, 0
        if self.is_open(job.tube):
            self.serve(job.tube)

    def serve(self, tube: str) -> None:
        """Give a tube's ready jobs to those that wait, the best to the first."""
        for wait in list(self.waits):
            ready = self.ordered(tube, "ready")
            if ready and tube in self.watched[wait.client]:
                self.end_wait(wait, self.hold(wait.client, ready[0]))

    def end_wait(self, wait: Wait, reply: str) -> None:
        """Expect that a wait is answered so."""
        self.waits.remove(wait)
        assert wait.client.hears() == reply
        self.check_lsn(wait.client, reply)

    def check_lsn(self, client: Client, reply: str) -> None:
        """Expect a reply that names a job to wait for that job's newest committing record."""
        word, _, rest = reply.partition(" ")
        if word in ("INSERTED", "RESERVED", "FOUND"):
            job_id = int(rest.split()[0])
            assert client.last is not None
            assert client.last[1] == self.server.log.committed_lsn(job_id)

    def tell(self, client: Client, line: str, expected: str) -> None:
        """Send a command and expect this reply."""
        assert client.says(line) == expected
        self.check_lsn(client, expected)

    # Connections.

    @initialize(watched=st.lists(st.sets(TUBE_NAMES, min_size=1), min_size=2, max_size=3))
    def clients_come(self, watched: list[set[str]]) -> None:
        for tubes in watched:
            self.a_client_comes()
            client = self.clients[-1]
            for tube in sorted(tubes):
                client.says(f"watch {tube}")
            if "default" not in tubes:
                client.says("ignore default")
            self.watched[client] = set(tubes)

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule()
    def a_client_comes(self) -> None:
        client = self.server.connect()
        self.clients.append(client)
        self.used[client] = "default"
        self.watched[client] = {"default"}

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients), label="client")
        held = list(client.session.reserved)
        self.clients.remove(client)
        self.waits = [wait for wait in self.waits if wait.client is not client]
        assert set(held) == {job_id for job_id, job in self.jobs.items() if job.holder is client}
        client.leaves()
        for job_id in held:
            self.make_ready(job_id)
        self.forget_pauses()

    @rule(data=st.data())
    def a_client_sends_no_more(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients), label="client")
        self.half_closed.add(client)
        client.half_closes()
        for wait in [wait for wait in self.waits if wait.client is client]:
            self.end_wait(wait, "TIMED_OUT")

    # Commands.

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), tube=TUBE_NAMES)
    def use(self, data: st.DataObject, tube: str) -> None:
        client = self.choose_client(data)
        self.tell(client, f"use {tube}", f"USING {tube}")
        self.used[client] = tube
        self.forget_pauses()

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), tube=TUBE_NAMES)
    def watch(self, data: st.DataObject, tube: str) -> None:
        client = self.choose_client(data)
        self.watched[client].add(tube)
        self.tell(client, f"watch {tube}", f"WATCHING {len(self.watched[client])}")

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), tube=TUBE_NAMES)
    def ignore(self, data: st.DataObject, tube: str) -> None:
        client = self.choose_client(data)
        if self.watched[client] == {tube}:
            self.tell(client, f"ignore {tube}", "NOT_IGNORED")
            return
        self.watched[client].discard(tube)
        self.tell(client, f"ignore {tube}", f"WATCHING {len(self.watched[client])}")
        self.forget_pauses()

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), jobs=st.lists(JOBS, min_size=1, max_size=4))
    def put(self, data: st.DataObject, jobs: list[tuple[str, int, int, int, bytes]]) -> None:
        """Put a few jobs into some tubes."""
        client = self.choose_client(data)
        for tube, pri, delay, ttr, body in jobs:
            self.tell(client, f"use {tube}", f"USING {tube}")
            self.used[client] = tube
            self.forget_pauses()
            self.put_one(client, pri, delay, ttr, body)

    def put_one(self, client: Client, pri: int, delay: int, ttr: int, body: bytes) -> None:
        """Put a job into the used tube."""
        job_id = client.put(body, pri=pri, delay=delay, ttr=ttr)
        assert job_id == self.next_id
        self.check_lsn(client, f"INSERTED {job_id}")
        self.next_id += 1
        self.jobs[job_id] = Known("delayed", self.used[client], pri, ttr or 1, body)
        self.jobs[job_id].due_ns = self.server.now_ns + delay * NS
        if not delay:
            self.make_ready(job_id)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), timeout=st.sampled_from([None, 0, 1, 2, 5]))
    def reserve(self, data: st.DataObject, timeout: int | None) -> None:
        client = self.choose_client(data)
        line = "reserve" if timeout is None else f"reserve-with-timeout {timeout}"
        best = self.best_for(client)
        if best is not None:
            self.tell(client, line, self.hold(client, best))
        elif self.is_deadline_soon(client):
            self.tell(client, line, "DEADLINE_SOON")
        elif timeout == 0 or client in self.half_closed:
            self.tell(client, line, "TIMED_OUT")
        else:
            assert client.says(line) is None
            until_ns = None if timeout is None else self.server.now_ns + timeout * NS
            self.waits.append(Wait(client, until_ns))

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def reserve_job(self, data: st.DataObject) -> None:
        client = self.choose_client(data)
        job_id = self.choose_job(data, "ready", "delayed", "buried")
        is_free = job_id in self.jobs and self.jobs[job_id].state != "reserved"
        expected = self.hold(client, job_id) if is_free else "NOT_FOUND"
        self.tell(client, f"reserve-job {job_id}", expected)

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        client = self.choose_client(data)
        job_id = self.choose_job(data, "reserved")
        job = self.jobs.get(job_id)
        if job is None or job.holder not in (None, client):
            self.tell(client, f"delete {job_id}", "NOT_FOUND")
            return
        del self.jobs[job_id]
        self.tell(client, f"delete {job_id}", "DELETED")
        self.forget_pauses()

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), count=st.integers(1, 4), timeout=st.sampled_from([None, 0]))
    def reserve_batch(self, data: st.DataObject, count: int, timeout: int | None) -> None:
        client = self.choose_client(data)
        line = f"reserve-batch {count}" + ("" if timeout is None else f" {timeout}")
        is_deadline_soon = self.is_deadline_soon(client)
        taken: list[int] = []
        replies: list[str] = []
        while len(taken) < count and (best := self.best_for(client)) is not None:
            taken.append(best)
            replies.append(self.hold(client, best))
        if taken or not (is_deadline_soon and timeout is not None):
            self.tell(client, line, "\r\n".join([f"RESERVED_BATCH {len(taken)}", *replies]))
            assert client.last is not None
            assert client.last[1] == max(map(self.server.log.committed_lsn, taken), default=0)
        else:
            self.tell(client, line, "DEADLINE_SOON")

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), count=st.integers(1, 5))
    def delete_batch(self, data: st.DataObject, count: int) -> None:
        """Delete a few jobs, some of them perhaps twice."""
        client = self.choose_client(data)
        ids = [self.choose_job(data, "reserved", "ready", "buried") for _ in range(count)]
        deleted = 0
        for job_id in ids:
            job = self.jobs.get(job_id)
            if job is not None and job.holder in (None, client):
                del self.jobs[job_id]
                deleted += 1
        line = f"delete-batch {' '.join(map(str, ids))}"
        self.tell(client, line, f"DELETED_BATCH {deleted} {count - deleted}")
        assert client.last is not None
        assert client.last[1] >= max(map(self.server.log.committed_lsn, ids))
        self.forget_pauses()

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), pri=PRIORITIES, delay=DELAYS)
    def release(self, data: st.DataObject, pri: int, delay: int) -> None:
        client, job_id, job = self.choose_held(data)
        line = f"release {job_id} {pri} {delay}"
        if job is None:
            self.tell(client, line, "NOT_FOUND")
            return
        self.tell(client, line, "RELEASED")
        job.pri, job.holder, job.state = pri, None, "delayed"
        job.due_ns = self.server.now_ns + delay * NS
        if not delay:
            self.make_ready(job_id)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), pri=PRIORITIES)
    def take_and_bury(self, data: st.DataObject, pri: int) -> None:
        """Put a job aside that nobody holds, if there is one."""
        client = self.choose_client(data)
        free = [job_id for job_id, job in self.jobs.items() if job.state in ("ready", "delayed")]
        if free:
            job_id = data.draw(st.sampled_from(free), label="job")
            self.tell(client, f"reserve-job {job_id}", self.hold(client, job_id))
            self.bury_one(client, job_id, pri)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), pri=PRIORITIES)
    def bury(self, data: st.DataObject, pri: int) -> None:
        client, job_id, job = self.choose_held(data)
        if job is None:
            self.tell(client, f"bury {job_id} {pri}", "NOT_FOUND")
        else:
            self.bury_one(client, job_id, pri)

    def bury_one(self, client: Client, job_id: int, pri: int) -> None:
        """Bury a job that the client holds."""
        job = self.jobs[job_id]
        self.tell(client, f"bury {job_id} {pri}", "BURIED")
        job.pri, job.holder, job.state = pri, None, "buried"
        job.due_ns = self.buried_count
        self.buried_count += 1

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        client, job_id, job = self.choose_held(data)
        self.tell(client, f"touch {job_id}", "NOT_FOUND" if job is None else "TOUCHED")
        if job is not None:
            job.due_ns = self.server.now_ns + job.ttr * NS

    def choose_held(self, data: st.DataObject) -> tuple[Client, int, Known | None]:
        """Choose a client and a job, which is given only if the client holds it."""
        job_id = self.choose_job(data, "reserved")
        job = self.jobs.get(job_id)
        holder = job.holder if job else None
        idle = self.idle()
        likely = [holder] * 3 if holder in idle else []
        client = data.draw(st.sampled_from([*likely, *idle]), label="client")
        assert client is not None
        return client, job_id, job if holder is client else None

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), bound=st.integers(0, 3))
    def kick(self, data: st.DataObject, bound: int) -> None:
        client = self.choose_client(data)
        tube = self.used[client]
        ids = self.ordered(tube, "buried") or self.ordered(tube, "delayed")
        kicked = ids[:bound]
        self.tell(client, f"kick {bound}", f"KICKED {len(kicked)}")
        for job_id in kicked:
            self.make_ready(job_id)

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def kick_job(self, data: st.DataObject) -> None:
        client = self.choose_client(data)
        job_id = self.choose_job(data, "buried", "delayed")
        if job_id in self.jobs and self.jobs[job_id].state in ("buried", "delayed"):
            self.tell(client, f"kick-job {job_id}", "KICKED")
            self.make_ready(job_id)
        else:
            self.tell(client, f"kick-job {job_id}", "NOT_FOUND")

    @precondition(lambda self: self.idle())
    @rule(
        data=st.data(), tube=TUBE_NAMES, which=st.sampled_from(["ready", "delayed", "buried", ""])
    )
    def flush_tube(self, data: st.DataObject, tube: str, which: str) -> None:
        """Delete what nobody holds, or what is in one state."""
        client = self.choose_client(data)
        states = [which] if which else ["ready", "delayed", "buried"]
        flushed = [job_id for state in states for job_id in self.ordered(tube, state)]
        if len(flushed) >= SLICE_JOBS or not self.is_at_rest():
            return  # Others may act between slices: tests/rules/bulk/test_flushes.py.
        line = f"flush-tube {tube} {which}".strip()
        if which == "buried":
            line = data.draw(st.sampled_from([line, f"flush-buried {tube}"]))
        self.tell(client, line, f"FLUSHED {len(flushed)}")
        for job_id in flushed:
            del self.jobs[job_id]
        self.forget_pauses()

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def peek(self, data: st.DataObject) -> None:
        client = self.choose_client(data)
        job_id = self.choose_job(data)
        self.tell(client, f"peek {job_id}", self.found([job_id] if job_id in self.jobs else []))
        held = [each for each in sorted(self.jobs) if self.jobs[each].holder is not None]
        held = [each for each in held if self.jobs[each].tube == self.used[client]]
        self.tell(client, "peek-reserved", self.found(held))
        for state in ("ready", "delayed", "buried"):
            self.tell(client, f"peek-{state}", self.found(self.ordered(self.used[client], state)))

    def found(self, ids: list[int]) -> str:
        """Give the reply that shows the first of these jobs."""
        if not ids:
            return "NOT_FOUND"
        body = self.jobs[ids[0]].body
        return f"FOUND {ids[0]} {len(body)}\r\n{body.decode('latin-1')}"

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), tube=TUBE_NAMES, seconds=st.sampled_from([0, 1, 3, 10]))
    def pause_tube(self, data: st.DataObject, tube: str, seconds: int) -> None:
        client = self.choose_client(data)
        is_there = tube in self.tubes_referred_to()
        self.tell(client, f"pause-tube {tube} {seconds}", "PAUSED" if is_there else "NOT_FOUND")
        if not is_there:
            return
        if seconds:
            self.paused_until_ns[tube] = self.server.now_ns + seconds * NS
        else:
            self.paused_until_ns.pop(tube, None)
            self.serve(tube)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), tube=TUBE_NAMES)
    def stats_tube(self, data: st.DataObject, tube: str) -> None:
        client = self.choose_client(data)
        if tube not in self.tubes_referred_to():
            self.tell(client, f"stats-tube {tube}", "NOT_FOUND")
            return
        stats = client.asks(f"stats-tube {tube}")
        for state in ("ready", "reserved", "delayed", "buried"):
            assert stats[f"current-jobs-{state}"] == str(len(self.ordered(tube, state)))
        waiting = [wait for wait in self.waits if tube in self.watched[wait.client]]
        assert stats["current-waiting"] == str(len(waiting))
        assert (stats["pause"] == "0") == self.is_open(tube)

    # Time, and the log.

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 2.0]))
    def time_passes(self, seconds: float) -> None:
        """Let the service's one timer fire whenever something is due."""
        end_ns = self.server.now_ns + round(seconds * NS)
        while (due_ns := self.queue_due_ns()) is not None and due_ns <= end_ns:
            self.tick_at(max(due_ns, self.server.now_ns))
        self.server.now_ns = end_ns

    @rule(seconds=st.sampled_from([1.5, 4.0, 20.0]))
    def the_process_is_stopped_for_a_while(self, seconds: float) -> None:
        self.tick_at(self.server.now_ns + round(seconds * NS))

    @rule()
    def a_segment_begins(self) -> None:
        segment = self.server.log.segment + 1
        next_id, head, _ = self.server.queue.opening(segment, self.server.now_ns)
        assert next_id == self.next_id
        self.server.log.begin_segment(head)

    def queue_due_ns(self) -> int | None:
        """Ask when the queue has something to do."""
        return self.server.queue.next_due_ns()

    def tick_at(self, now_ns: int) -> None:
        """Tick, and expect all that is due to have happened.

        What is due in one instant, or comes late in one tick, may happen in any order among tubes
        and sessions: so take the answers as they are, and check that each was right.
        """
        self.server.now_ns = now_ns
        self.server.tick()
        self.expect_a_slice()
        for job in self.jobs.values():
            if job.state in ("delayed", "reserved") and job.due_ns <= now_ns:
                job.state, job.holder, job.due_ns = "ready", None, 0
        for tube in [tube for tube, end_ns in self.paused_until_ns.items() if end_ns <= now_ns]:
            del self.paused_until_ns[tube]
        self.forget_pauses()
        for wait in list(self.waits):
            reply = wait.client.hears()
            if reply is not None:
                self.waits.remove(wait)
                self.check_late_answer(wait, reply)
        if self.is_at_rest():
            due_ns = self.queue_due_ns()
            assert due_ns is None or due_ns > now_ns, "nothing is overdue after a tick"

    def is_at_rest(self) -> bool:
        """Say whether no large work is under way."""
        return True

    def expect_a_slice(self) -> None:
        """Expect the next slice of large work to have been done."""

    def check_late_answer(self, wait: Wait, reply: str) -> None:
        """Expect an answer that a tick gave to be a right one."""
        self.check_lsn(wait.client, reply)
        if reply == "TIMED_OUT":
            assert wait.until_ns is not None and wait.until_ns <= self.server.now_ns
        elif reply == "DEADLINE_SOON":
            assert self.held_before(wait.client), "it has or had a job in its last second"
        else:
            job_id = int(reply.split()[1])
            assert self.jobs[job_id].state == "ready"
            assert self.jobs[job_id].tube in self.watched[wait.client]
            assert self.is_open(self.jobs[job_id].tube)
            assert self.hold(wait.client, job_id) == reply

    def held_before(self, client: Client) -> bool:
        """Say whether the client holds a job in its last second, or has just lost one to its
        TTR.
        """
        lost = [
            image for image in self.server.log.images()
            if image.ts_ns == self.server.now_ns and image.timeouts
        ]  # fmt: skip
        return self.is_deadline_soon(client) or bool(lost)

    # Tubes.

    def tubes_referred_to(self) -> set[str]:
        """Name the tubes that must be there."""
        used = {self.used[client] for client in self.clients}
        watched = {tube for client in self.clients for tube in self.watched[client]}
        return {"default"} | used | watched | {job.tube for job in self.jobs.values()}

    def forget_pauses(self) -> None:
        """Expect the pauses of tubes that are gone to be gone with them."""
        for tube in self.paused_until_ns.keys() - self.tubes_referred_to():
            del self.paused_until_ns[tube]

    # What must hold after each step.

    @invariant()
    def every_job_is_as_the_clients_know_it(self) -> None:
        state = self.server.queue.state
        assert list(state.jobs) == sorted(self.jobs)
        for job_id, known in self.jobs.items():
            job = state.jobs.look(job_id)
            assert job is not None
            tube = state.tubes.by_id(job.tube_id).name.decode()
            holder = known.holder.session.number if known.holder else 0
            assert (job.state.name.lower(), tube, job.priority, job.body, job.holder) == (
                known.state, known.tube, known.pri, known.body, holder,
            )  # fmt: skip
            if known.state in ("delayed", "reserved"):
                assert job.deadline_ns == known.due_ns

    @invariant()
    def every_job_stands_in_the_one_place_that_its_state_names(self) -> None:
        state = self.server.queue.state
        for tube in state.tubes.in_order:
            name = tube.name.decode()
            for place, known in (
                (tube.ready, "ready"), (tube.delayed, "delayed"), (tube.buried, "buried"),
            ):  # fmt: skip
                ids = self.ordered(name, known)
                first = place.first()
                assert place.count == len(ids)
                assert (None if first is None else first & (1 << 64) - 1) == next(iter(ids), None)
            assert tube.reserved == len(self.ordered(name, "reserved"))
        for client in self.clients:
            held = {job_id for job_id, job in self.jobs.items() if job.holder is client}
            assert set(client.session.reserved) == held
        assert set(state.sessions) == {client.session.number for client in self.clients}

    @invariant()
    def the_counts_agree(self) -> None:
        state = self.server.queue.state
        found = Counter(job.state for job in self.jobs.values())
        assert {name: state.counts[State[name.upper()]] for name in found} == found
        urgent = [job for job in self.jobs.values() if job.state == "ready" and job.pri < 1024]
        assert state.urgent == len(urgent) == sum(tube.urgent for tube in state.tubes.in_order)
        assert self.server.queue.tally.waiting == len(self.waits)
        for tube in state.tubes.in_order:
            name = tube.name.decode()
            assert tube.using == sum(self.used[client] == name for client in self.clients)
            assert tube.watching == sum(name in self.watched[client] for client in self.clients)
            waiting = [wait for wait in self.waits if name in self.watched[wait.client]]
            assert tube.waiting == len(waiting)

    @invariant()
    def nobody_waits_beside_a_ready_job(self) -> None:
        for wait in self.waits:
            assert wait.client.session.is_waiting
            assert self.best_for(wait.client) is None
            assert wait.client.late == []

    @invariant()
    def nothing_that_is_due_is_forgotten(self) -> None:
        dues = [job.due_ns for job in self.jobs.values() if job.state in ("delayed", "reserved")]
        dues += [wait.until_ns for wait in self.waits if wait.until_ns is not None]
        dues += self.paused_until_ns.values()
        for wait in self.waits:
            held = [job.due_ns for job in self.jobs.values() if job.holder is wait.client]
            dues += [due_ns - SAFETY_MARGIN_NS for due_ns in held]
        due_ns = self.queue_due_ns()
        assert not dues or (due_ns is not None and due_ns <= min(dues))

    @invariant()
    def the_tubes_are_those_that_something_refers_to(self) -> None:
        tubes = self.server.queue.state.tubes.in_order
        assert {tube.name.decode() for tube in tubes} == self.tubes_referred_to()

    @invariant()
    def the_records_alone_make_the_same_jobs_and_tubes(self) -> None:
        live, now_ns = self.server.queue.state, self.server.now_ns
        made = self.from_records()
        for job_id in list(made.jobs):
            job = made.jobs.look(job_id)
            assert job is not None
            if job.state is State.DELAYED and job.deadline_ns <= now_ns:
                made.promote(job_id)
        assert snapshot(made, now_ns) == snapshot(live, now_ns)

    def from_records(self) -> QueueState:
        """Apply the recorded records to a fresh state, in their order."""
        made = QueueState()
        default = made.default()
        segment = 0
        numbers = {image.connection for image in self.server.log.images()}
        made.sessions = {number: Session(number, default) for number in numbers}
        for lsn, record in enumerate(self.server.log.records, start=1):
            match record:
                case TubeDef() if not made.tubes.has_id(record.tube_id):
                    made.define(record.tube_id, record.name)
                case Pause():
                    made.apply_pause(record)
                case Counters(tube_id=0):
                    segment += 1  # The last record of a segment's head.
                case JobImage():
                    made.apply(record, lsn, segment + 1)
        return made

    def teardown(self) -> None:
        """Take all that is ready, and find it in its order."""
        for tube in sorted({job.tube for job in self.jobs.values()}):
            self.paused_until_ns.pop(tube, None)
            taker = self.server.connect()
            for line in (f"pause-tube {tube} 0", f"watch {tube}"):
                taker.says(line)
            if tube != "default":
                taker.says("ignore default")
            self.serve(tube)
            for job_id in self.ordered(tube, "ready"):
                assert taker.takes() == job_id
            assert taker.says("reserve-with-timeout 0") in ("TIMED_OUT", "DEADLINE_SOON")


class ClientsOfACrowd(Clients):
    """The same, beside a tube with more buried jobs than a slice of work moves, which are
    kicked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kicker: Client | None = None
        self.kicking: Iterator[None] = iter(())
        self.kicked = 0

    @initialize()
    def a_crowd_is_buried_and_kicked(self) -> None:
        self.a_client_comes()
        client = self.clients[-1]
        client.says("use a")
        self.used[client] = "a"
        for number in range(RUN_JOBS + 20):
            job_id = self.next_id
            self.put_one(client, number % 3, delay=9, ttr=2, body=b"x")
            self.tell(client, f"reserve-job {job_id}", self.hold(client, job_id))
            self.bury_one(client, job_id, number % 3)
        self.expect_a_large_kick(client, "buried", RUN_JOBS + 20)

    @precondition(lambda self: self.is_at_rest() and self.idle())
    @rule(data=st.data())
    def kick_all(self, data: st.DataObject) -> None:
        client = self.choose_client(data)
        tube = self.used[client]
        state = "buried" if self.ordered(tube, "buried") else "delayed"
        ids = self.ordered(tube, state)
        if len(ids) > RUN_JOBS:
            self.expect_a_large_kick(client, state, len(ids))
            return
        self.tell(client, "kick 4294967295", f"KICKED {len(ids)}")
        for job_id in ids:
            self.make_ready(job_id)

    def expect_a_large_kick(self, client: Client, state: str, count: int) -> None:
        """Kick so many jobs, which are more than a slice."""
        assert client.says(f"kick {count}") is None
        self.kicker, self.kicking = client, self.slices(self.used[client], state, count)
        next(self.kicking)

    def slices(self, tube: str, state: str, count: int) -> Iterator[None]:
        """Kick up to that many jobs, slice by slice; the first one serves who waits, in its
        order.
        """
        self.kicked = 0
        while self.kicked < count and (ids := self.ordered(tube, state)):
            if self.kicked < RUN_JOBS:
                self.make_ready(ids[0])
            else:
                self.jobs[ids[0]].state = "ready"
            self.kicked += 1
            if not self.kicked % RUN_JOBS:
                yield

    def is_at_rest(self) -> bool:
        return self.kicker is None

    def expect_a_slice(self) -> None:
        if self.kicker is not None and next(self.kicking, self) is self:
            if self.kicker in self.clients:
                assert self.kicker.hears() == f"KICKED {self.kicked}"
            self.kicker = None


def test_whatever_clients_do_the_queue_keeps_its_word() -> None:
    run_state_machine_as_test(
        Clients,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None),
    )


@pytest.mark.exhaustive
def test_whatever_clients_do_during_a_large_kick_the_queue_keeps_its_word() -> None:
    examples = max(settings().max_examples // 5, 1)
    run_state_machine_as_test(
        ClientsOfACrowd,
        settings=settings(max_examples=examples, stateful_step_count=25, deadline=None),
    )
