"""Several clients do what comes to their mind, and time passes; the queue keeps its word: as the
model says, as its own records say, and within itself.  ``--hypothesis-profile`` scales it: four
times the profile's ``max_examples`` are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from beanstalk_twisted.binlog.records.jobs import JobImage, State
from beanstalk_twisted.binlog.records.others import Counters, Pause, TubeDef
from beanstalk_twisted.jobs.job import Job as HeldJob
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.bulk import RUN_JOBS
from tests.model.commands import STATES, Commands
from tests.model.queue import FOREVER, TICKS, Job
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.stateful.drawing import CLIENTS, PLACE, PRIORITIES, TUBE, WHO, ids_of
from tests.stateful.words import Words

EXAMPLES = 4 * settings().max_examples
STEPS = 60
TICK_NS = NS // TICKS

JOBS = st.tuples(
    TUBE, PRIORITIES, st.sampled_from([0, 0, 0, 1, 2, 5]), st.sampled_from([0, 1, 2, 3, 10]),
    st.binary(max_size=3),
)  # fmt: skip


A_JOB = HeldJob(1, b"", None, (0,) * 16)
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


class Clients(Words):
    """Clients, and the queue that they expect."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.model = Commands(CLIENTS)
        self.clients = [self.server.connect() for _ in range(CLIENTS)]
        self.next_id = 1

    # What is expected.

    def talk(self, number: int, request: str, answer: Callable[[str], str]) -> None:
        line, _, body = request.partition("\r\n")
        self.model.step += 1
        reply = self.clients[number].says(line, body.removesuffix("\r\n").encode("latin-1"))
        heard = "" if reply is None else f"{reply}\r\n"
        assert heard == answer(heard)
        self.check_lsn(number, heard)
        self.check()

    def check_lsn(self, number: int, reply: str) -> None:
        """Expect a reply that names jobs to wait for their newest committing records."""
        word, _, rest = reply.partition(" ")
        if word in ("INSERTED", "RESERVED", "FOUND", "RESERVED_BATCH"):
            ids = ids_of(reply) or ([] if word == "RESERVED_BATCH" else [int(rest.split()[0])])
            last = self.clients[number].last
            assert last is not None
            assert last[1] == max(map(self.server.log.committed_lsn, ids), default=0)

    def check(self) -> None:
        """Expect those who wait to hear what the model says."""
        self.model.forget_pauses()
        for number, peer in enumerate(self.model.peers):
            reply = self.clients[number].hears()
            assert ("" if reply is None else f"{reply}\r\n") == peer.late
            self.check_lsn(number, peer.late)
            peer.late = ""

    # Connections.

    @initialize(watched=st.lists(st.sets(TUBE, min_size=1), min_size=CLIENTS, max_size=CLIENTS))
    def clients_come(self, watched: list[set[str]]) -> None:
        for number, tubes in enumerate(watched):
            for tube in sorted(tubes):
                self.watch(number, tube, 1)
            if "default" not in tubes:
                self.watch(number, "default", 0)

    @rule(number=WHO)
    def another_client_comes_for_one(self, number: int) -> None:
        client = self.clients[number]
        held = list(client.session.reserved)
        jobs = self.model.jobs.values()
        assert set(held) == {job.job_id for job in jobs if job.holder == number}
        client.leaves()
        self.model.hang_up(number, held)
        self.clients[number] = self.server.connect()
        self.check()

    @rule(number=WHO)
    def a_client_sends_no_more(self, number: int) -> None:
        self.clients[number].half_closes()
        self.model.peers[number].late += self.model.half_close(number)
        self.check()

    @rule(number=WHO)
    def cancel(self, number: int) -> None:
        self.clients[number].cancels()
        self.model.peers[number].late += self.model.end_wait(number)
        self.check()
        if not self.clients[number].session.is_busy:
            self.talk(number, "cancel-reserve\r\n", lambda heard: "CANCELLED\r\n")

    # Commands.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE)
    def use(self, number: int, tube: str) -> None:
        number = self.idle(number)
        self.talk(number, f"use {tube}\r\n", lambda heard: self.model.use(number, tube))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, jobs=st.lists(JOBS, min_size=1, max_size=4))
    def put(self, number: int, jobs: list[tuple[str, int, int, int, bytes]]) -> None:
        """Put a few jobs into some tubes."""
        number = self.idle(number)
        for tube, pri, delay, ttr, body in jobs:
            self.use(number, tube)
            self.put_one(number, pri, delay, ttr, body)

    def put_one(self, number: int, pri: int, delay: int, ttr: int, body: bytes) -> None:
        """Put a job into the used tube."""
        job = Job(self.next_id, "", pri, delay, ttr or 1, body.decode("latin-1"))
        self.next_id += 1
        self.talk(
            number, f"put {pri} {delay} {ttr} {len(body)}\r\n{job.body}\r\n",
            lambda heard: self.model.put(number, [job], is_batch=False),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES)
    def take_and_bury(self, number: int, place: int, pri: int) -> None:
        """Put a job aside that nobody holds, if there is one."""
        number, job_id = self.idle(number), self.pick(place, "ready", "delayed")
        self.take_and_bury_it(number, job_id, pri)

    def take_and_bury_it(self, number: int, job_id: int, pri: int) -> None:
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip
        self.talk(
            number, f"bury {job_id} {pri}\r\n", lambda heard: self.model.bury(number, job_id, pri)
        )

    @precondition(lambda self: self.anybody)
    @rule(
        number=WHO, place=PLACE, state=st.sampled_from(["ready", "reserved", "delayed", "buried"])
    )
    def peek(self, number: int, place: int, state: str) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(number, f"peek {job_id}\r\n", lambda heard: self.model.peek(job_id))
        self.talk(number, f"peek-{state}\r\n", lambda heard: self.model.peek_state(number, state))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE)
    def stats_tube(self, number: int, tube: str) -> None:
        number = self.idle(number)
        if tube not in self.model.tubes():
            self.talk(number, f"stats-tube {tube}\r\n", lambda heard: "NOT_FOUND\r\n")
            return
        stats = self.clients[number].asks(f"stats-tube {tube}")
        for state in STATES:
            assert stats[f"current-jobs-{state}"] == str(len(self.model.of(tube, state)))
        assert stats["current-waiting"] == str(self.waiting(tube))
        assert (stats["pause"] == "0") == (tube not in self.model.paused)

    def waiting(self, tube: str) -> int:
        """Count those who wait for a job of a tube."""
        return len([peer for peer in self.model.peers if peer.waits and tube in peer.watched])

    # Time, and the log.

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 2.0]))
    def time_passes(self, seconds: float) -> None:
        """Let the service's one timer fire whenever something is due."""
        end_ns = self.server.now_ns + round(seconds * NS)
        while (due_ns := self.server.queue.next_due_ns()) is not None and due_ns <= end_ns:
            self.tick_at(max(due_ns, self.server.now_ns))
        self.go_to(end_ns)

    @rule(seconds=st.sampled_from([1.5, 4.0, 20.0]))
    def the_process_is_stopped_for_a_while(self, seconds: float) -> None:
        self.tick_at(self.server.now_ns + round(seconds * NS))

    @rule()
    def a_segment_begins(self) -> None:
        segment = self.server.log.segment + 1
        next_id, head, _ = self.server.queue.opening(segment, self.server.now_ns)
        assert next_id == self.next_id
        self.server.log.begin_segment(head)

    def go_to(self, now_ns: int) -> None:
        """It is another time."""
        self.server.now_ns = now_ns
        self.model.now = (now_ns - START_NS) // TICK_NS

    def tick_at(self, now_ns: int) -> None:
        """Tick, and expect all that is due to have happened.

        What is due in one instant, or comes late in one tick, may happen in any order among tubes
        and sessions: so take the answers as they are, and check that each was right.
        """
        self.go_to(now_ns)
        model, now = self.model, self.model.now
        soon = {number for number in range(CLIENTS) if model.is_soon(number)}
        self.server.tick()
        self.expect_a_slice()
        for job in model.jobs.values():
            if job.state in ("delayed", "reserved") and job.due <= now:
                job.timeouts += job.state == "reserved"
                model.let_go(job)
        model.paused = {tube: due for tube, due in model.paused.items() if due > now}
        model.forget_pauses()
        for number, client in enumerate(self.clients):
            reply = client.hears()
            if reply is not None:
                self.check_late_answer(number, f"{reply}\r\n", number in soon)
        if self.is_at_rest():
            due_ns = self.server.queue.next_due_ns()
            assert due_ns is None or due_ns > now_ns, "nothing is overdue after a tick"

    def check_late_answer(self, number: int, reply: str, is_soon: bool) -> None:
        """Expect an answer that a tick gave to be a right one."""
        peer = self.model.peers[number]
        assert peer.is_blocked
        self.check_lsn(number, reply)
        if reply == "TIMED_OUT\r\n":
            assert peer.until <= self.model.now
        elif reply == "DEADLINE_SOON\r\n":
            assert peer.waits and is_soon, "it has or had a job in its last second"
        else:
            job = self.model.jobs[int(reply.split()[1])]
            assert peer.waits and job in self.model.open_jobs(peer.watched)
            assert self.model.take(job, number) == reply
        peer.hears("")

    def expect_a_slice(self) -> None:
        """Expect the next slice of large work to have been done."""

    # What must hold after each step.

    @invariant()
    def every_job_is_as_the_clients_know_it(self) -> None:
        state = self.server.queue.state
        assert list(state.jobs) == sorted(self.model.jobs)
        for job_id, known in self.model.jobs.items():
            job = state.jobs.look(job_id)
            assert job is not None and job.body is not None
            tube = state.tubes.by_id(job.tube_id).name.decode()
            holder = self.clients[known.holder].session.number if known.holder >= 0 else 0
            assert (job.state.name.lower(), tube, job.priority, job.body.decode("latin-1")) == (
                known.state, known.tube, known.pri, known.body,
            )  # fmt: skip
            assert (job.holder, job.reserves, job.timeouts, job.releases) == (
                holder, known.reserves, known.timeouts, known.releases,
            )  # fmt: skip
            if known.state in ("delayed", "reserved"):
                assert job.deadline_ns == START_NS + known.due * TICK_NS

    @invariant()
    def every_job_stands_in_the_one_place_that_its_state_names(self) -> None:
        state = self.server.queue.state
        for tube in state.tubes.in_order:
            jobs = {known: self.model.of(tube.name.decode(), known) for known in STATES}
            for known in ("ready", "delayed", "buried"):
                keys = tube.queue(State[known.upper()]).behind(LEAST, len(self.model.jobs) + 1)
                assert [key & ID_MASK for key in keys] == [job.job_id for job in jobs[known]]
            assert tube.reserved == len(jobs["reserved"])
        for number, client in enumerate(self.clients):
            jobs_held = [job.job_id for job in self.model.jobs.values() if job.holder == number]
            assert set(client.session.reserved) == set(jobs_held)
        assert set(state.sessions) == {client.session.number for client in self.clients}

    @invariant()
    def the_counts_agree(self) -> None:
        state, jobs = self.server.queue.state, self.model.jobs.values()
        found = Counter(job.state for job in jobs)
        assert {name: state.counts[State[name.upper()]] for name in found} == found
        urgent = [job for job in jobs if job.state == "ready" and job.pri < 1024]
        assert state.urgent == len(urgent) == sum(tube.urgent for tube in state.tubes.in_order)
        peers = self.model.peers
        assert self.server.queue.tally.waiting == len([peer for peer in peers if peer.waits])
        for tube in state.tubes.in_order:
            name = tube.name.decode()
            assert tube.using == sum(peer.using == name for peer in peers)
            assert tube.watching == sum(name in peer.watched for peer in peers)
            assert tube.waiting == self.waiting(name)

    @invariant()
    def who_waits_waits_for_what_is_not_there(self) -> None:
        peers = self.model.peers
        assert set(self.server.queue.state.awaited) == {peer.waits_for for peer in peers} - {0}
        for peer, client in zip(peers, self.clients, strict=True):
            assert client.session.is_waiting == bool(peer.waits)
            assert client.late == []
            assert not peer.waits or not self.model.open_jobs(peer.watched)

    @invariant()
    def nothing_that_is_due_is_forgotten(self) -> None:
        due, due_ns = self.model.next_due(), self.server.queue.next_due_ns()
        assert due == FOREVER or (due_ns is not None and due_ns <= START_NS + due * TICK_NS)

    @invariant()
    def the_tubes_are_those_that_something_refers_to(self) -> None:
        tubes = self.server.queue.state.tubes.in_order
        assert {tube.name.decode() for tube in tubes} == self.model.tubes()

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
        self.use(0, "a")
        for number in range(RUN_JOBS + 20):
            self.put_one(0, number % 3, delay=9, ttr=2, body=b"x")
            self.take_and_bury_it(0, self.next_id - 1, 1)
        self.expect_a_large_kick(0, "buried", RUN_JOBS + 20)

    @precondition(lambda self: self.is_at_rest() and self.anybody)
    @rule(number=WHO)
    def kick_all(self, number: int) -> None:
        number = self.idle(number)
        tube = self.model.peers[number].using
        state = "buried" if self.model.of(tube, "buried") else "delayed"
        count = len(self.model.of(tube, state))
        if count > RUN_JOBS:
            self.expect_a_large_kick(number, state, count)
        else:
            self.talk(
                number, "kick 4294967295\r\n", lambda heard: self.model.kick(number, count)
            )  # fmt: skip

    def idle(self, number: int) -> int:
        return self.free()[number % len(self.free())]

    @property
    def anybody(self) -> bool:
        return bool(self.free())

    def free(self) -> list[int]:
        peers, kicker = enumerate(self.model.peers), self.kicker
        return [at for at, peer in peers if not peer.is_blocked and self.clients[at] is not kicker]

    def expect_a_large_kick(self, number: int, state: str, count: int) -> None:
        """Kick so many jobs, which are more than a slice."""
        client, tube = self.clients[number], self.model.peers[number].using
        assert client.says(f"kick {count}") is None
        self.kicker, self.kicking = client, self.slices(tube, state, count)
        next(self.kicking)
        self.check()

    def slices(self, tube: str, state: str, count: int) -> Iterator[None]:
        """Kick up to that many jobs, slice by slice; the first one serves who waits, in its
        order.
        """
        self.kicked = 0
        while self.kicked < count and (jobs := self.model.of(tube, state)):
            self.model.let_go(jobs[0])
            jobs[0].kicks += 1
            if self.kicked < RUN_JOBS:
                self.model.serve()
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
