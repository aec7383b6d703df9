"""Clients wait for the ends of jobs, and take that back, while others move the jobs about: each
hears what a plain list of jobs and of waits says.
"""

from __future__ import annotations

from dataclasses import dataclass

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

from tests.rules.conversation import NS, Client, Server

EXAMPLES = 4 * settings().max_examples
STEPS = 50
CLIENTS = 4
MOST_JOBS = 6
TTR_S = 5

ONE_CLIENT = st.integers(0, CLIENTS - 1)
ONE_JOB = st.integers(0, 2 * MOST_JOBS)
SECONDS = st.sampled_from([0, 3, 8, 8])


@dataclass
class Known:
    """A job in a tube that nobody watches.

    :ivar due_ns: until when ``holder`` has it.
    """

    state: str = "delayed"
    holder: Client | None = None
    due_ns: int = 0


@dataclass
class Wait:
    """A `wait-job`, or with job 0 a `reserve-with-timeout`, that is not answered."""

    client: Client
    job_id: int
    until_ns: int


class Waits(RuleBasedStateMachine):
    """Clients that watch a tube without jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.clients: list[Client] = []
        self.half_closed: list[Client] = []
        self.jobs: dict[int, Known] = {}
        self.next_id = 1
        self.waits: list[Wait] = []

    # What is expected.

    def end(self, wait: Wait, reply: str) -> None:
        """Expect that a wait is answered so."""
        self.waits.remove(wait)
        assert wait.client.hears() == reply
        assert wait.client.last is not None
        if wait.job_id:
            assert wait.client.last[1] == self.server.log.committed_lsn(wait.job_id)

    def end_all(self, job_id: int, reply: str) -> None:
        """Expect that all who wait for this job are answered so."""
        for wait in [wait for wait in self.waits if wait.job_id == job_id]:
            self.end(wait, reply)

    def of(self, client: Client) -> list[Wait]:
        """Give what a client waits for."""
        return [wait for wait in self.waits if wait.client is client]

    # Connections.

    @initialize(number=ONE_CLIENT)
    def clients_come(self, number: int) -> None:
        for _ in range(CLIENTS):
            self.clients.append(self.a_client())
        self.put(number)

    def a_client(self) -> Client:
        """Connect."""
        client = self.server.connect()
        client.says("watch empty")
        client.says("ignore default")
        return client

    @rule(number=ONE_CLIENT)
    def another_client_comes_for_one(self, number: int) -> None:
        old, self.clients[number] = self.clients[number], self.a_client()
        old.leaves()
        self.waits = [wait for wait in self.waits if wait.client is not old]
        for job in self.jobs.values():
            if job.holder is old:
                job.state, job.holder = "ready", None

    @precondition(lambda self: not set(self.half_closed) & set(self.clients))
    @rule(number=ONE_CLIENT)
    def a_client_sends_no_more(self, number: int) -> None:
        client = self.clients[number]
        self.half_closed.append(client)
        client.half_closes()
        for wait in self.of(client):
            self.end(wait, "TIMED_OUT")

    @rule(number=ONE_CLIENT)
    def cancel(self, number: int) -> None:
        client = self.clients[number]
        client.cancels()
        for wait in self.of(client):
            self.end(wait, "TIMED_OUT")
        assert client.says("cancel-reserve") == "CANCELLED"

    # Jobs.

    def idle(self, number: int) -> Client:
        """Give a client that does not wait, this one if it does not."""
        busy = [wait.client for wait in self.waits]
        free = [client for client in self.clients if client not in busy]
        return free[number % len(free)]

    def a_job(self, number: int) -> int:
        """Give a job's id, now and then of one that is not there yet."""
        ids = [*self.jobs, *self.jobs, self.next_id]
        return ids[number % len(ids)]

    def anybody(self) -> bool:
        """Say whether a client does not wait."""
        return len(self.waits) < CLIENTS

    @precondition(lambda self: self.anybody() and len(self.jobs) < MOST_JOBS)
    @rule(number=ONE_CLIENT)
    def put_one(self, number: int) -> None:
        self.put(number)

    def put(self, number: int) -> None:
        """Put a job that is delayed for longer than all of this takes."""
        assert self.idle(number).put(delay=1000, ttr=TTR_S) == self.next_id
        self.jobs[self.next_id] = Known()
        self.next_id += 1

    @precondition(anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB, seconds=SECONDS)
    def wait_job(self, number: int, place: int, seconds: int) -> None:
        job_id = self.a_job(place)
        client, job = self.idle(number), self.jobs.get(job_id)
        reply = client.says(f"wait-job {job_id} {seconds}")
        if job is None:
            assert reply == "NOT_FOUND"
        elif job.state == "buried":
            assert reply == "BURIED"
        elif seconds == 0 or client in self.half_closed:
            assert reply == "TIMED_OUT"
        else:
            assert reply is None
            self.waits.append(Wait(client, job_id, self.server.now_ns + seconds * NS))

    @precondition(anybody)
    @rule(number=ONE_CLIENT, seconds=SECONDS)
    def reserve(self, number: int, seconds: int) -> None:
        client = self.idle(number)
        dues = [job.due_ns for job in self.jobs.values() if job.holder is client]
        reply = client.says(f"reserve-with-timeout {seconds}")
        if dues and min(dues) - NS <= self.server.now_ns:
            assert reply == "DEADLINE_SOON"
        elif seconds == 0 or client in self.half_closed:
            assert reply == "TIMED_OUT"
        else:
            assert reply is None
            self.waits.append(Wait(client, 0, self.server.now_ns + seconds * NS))

    @precondition(anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def reserve_job(self, number: int, place: int) -> None:
        job_id = self.a_job(place)
        client, job = self.idle(number), self.jobs.get(job_id)
        is_free = job is not None and job.holder is None
        said = client.says(f"reserve-job {job_id}")
        assert said == (f"RESERVED {job_id} 1\r\nx" if is_free else "NOT_FOUND")
        if is_free:
            due_ns = self.server.now_ns + TTR_S * NS
            self.jobs[job_id] = Known("reserved", client, due_ns)

    @precondition(anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def delete(self, number: int, place: int) -> None:
        job_id = self.a_job(place)
        client, job = self.idle(number), self.jobs.get(job_id)
        if job is None or job.holder not in (None, client):
            assert client.says(f"delete {job_id}") == "NOT_FOUND"
            return
        assert client.says(f"delete {job_id}") == "DELETED"
        del self.jobs[job_id]
        self.end_all(job_id, "DELETED")

    @precondition(anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def bury(self, number: int, place: int) -> None:
        """Put a job aside; one that nobody holds is taken first."""
        job_id = self.a_job(place)
        client, job = self.idle(number), self.jobs.get(job_id)
        if job is None or job.holder not in (None, client):
            assert client.says(f"bury {job_id} 0") == "NOT_FOUND"
            return
        if job.holder is None:
            client.says(f"reserve-job {job_id}")
        assert client.says(f"bury {job_id} 0") == "BURIED"
        self.jobs[job_id] = Known("buried")
        self.end_all(job_id, "BURIED")

    @precondition(anybody)
    @rule(number=ONE_CLIENT, place=ONE_JOB)
    def kick(self, number: int, place: int) -> None:
        job_id = self.a_job(place)
        job = self.jobs.get(job_id)
        is_aside = job is not None and job.state in ("delayed", "buried")
        said = self.idle(number).says(f"kick-job {job_id}")
        assert said == ("KICKED" if is_aside else "NOT_FOUND")
        if is_aside:
            self.jobs[job_id] = Known("ready")

    # Time.

    @rule(tenths=st.sampled_from([1, 10, 10, 25, 50]))
    def time_passes(self, tenths: int) -> None:
        """Each instant has its own answers: a job's last second, the end of its TTR, of a wait."""
        for _ in range(tenths):
            self.server.pass_time(0.1)
            self.see()

    def see(self) -> None:
        """Expect what happens at this very instant."""
        now_ns = self.server.now_ns
        for wait in list(self.waits):
            dues = [job.due_ns for job in self.jobs.values() if job.holder is wait.client]
            if not wait.job_id and dues and min(dues) - NS <= now_ns:
                self.end(wait, "DEADLINE_SOON")
            elif wait.until_ns <= now_ns:
                self.end(wait, "TIMED_OUT")
        for job in self.jobs.values():
            if job.holder is not None and job.due_ns <= now_ns:
                job.state, job.holder = "ready", None

    @invariant()
    def nobody_else_hears_anything_and_only_those_who_wait_are_kept(self) -> None:
        assert [client.late for client in self.clients] == [[]] * len(self.clients)
        waited_for = {wait.job_id for wait in self.waits} - {0}
        assert set(self.server.queue.state.awaited) == waited_for
        waiting = [wait.client for wait in self.waits]
        for client in self.clients:
            assert client.session.is_blocked == (client in waiting)


@pytest.mark.exhaustive
def test_each_hears_what_became_of_what_it_waits_for() -> None:
    run_state_machine_as_test(
        Waits, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
