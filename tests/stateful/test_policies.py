"""Policies change while clients put, reserve and give back; a model of plain values says beforehand
what every command must answer, and where each job is.  Nobody waits, and there is no rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from tests.rules.conversation import NS, Server
from tests.rules.test_policies import check_totals, restarted

TUBES = st.sampled_from(["a", "b", "dead"])
RULES = st.sampled_from([
    "max-reserves=1", "max-reserves=2", "max-reserves=-", "dead-letter=dead", "dead-letter=a",
    "dead-letter=-", "backoff=5:2:20", "backoff=-", "max-age=10", "max-age=40", "max-age=-",
    "expired=delete", "expired=-", "max-jobs=3", "max-jobs=-", "max-bytes=10", "max-bytes=-",
    "max-job-size=3", "max-job-size=-", "max-reserved=1", "max-reserved=-",
])  # fmt: skip
FILES: list[list[tuple[str, dict[str, str]]]] = [
    [],
    [("a", {"max-jobs": "2", "max-age": "30"})],
    [("b*", {"max-age": "-"}), ("*", {"max-age": "20", "max-reserved": "2"})],
]
BODIES = st.binary(max_size=5)


@dataclass
class Known:
    """What the model knows of a job.

    :ivar due_ns: end of its delay or TTR.
    :ivar since_ns: what its age counts from.
    """

    tube: str
    state: str
    pri: int
    body: bytes
    since_ns: int
    ttr: int
    due_ns: int = 0
    reserves: int = 0
    holder: int = 0
    is_dead: bool = False


class Policies(RuleBasedStateMachine):
    """Two clients, three tubes, and what the model holds of them."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.jobs: dict[int, Known] = {}
        self.commands: dict[str, dict[str, str]] = {"a": {}, "b": {}, "dead": {}}
        self.file: list[tuple[str, dict[str, str]]] = []
        self.next_id = 1

    def connect_clients(self) -> None:
        """Connect them, at first or after a restart."""
        self.clients = [self.server.connect(hears_deadlines=False) for _ in range(2)]
        for client in self.clients:
            for name in self.commands:
                client.says(f"watch {name}")

    # What holds.

    def policy(self, tube: str) -> dict[str, str]:
        """Give the rules that hold for a tube."""
        found = dict(self.commands[tube])
        for pattern, rules in reversed(self.file):
            if pattern in (tube, "*") or (pattern.endswith("*") and tube.startswith(pattern[:-1])):
                found |= rules
        return {key: value for key, value in found.items() if value != "-"}

    def of(self, tube: str, state: str = "") -> list[Known]:
        """Give the tube's jobs, of this state or all."""
        return [job for job in self.jobs.values() if job.tube == tube and state in ("", job.state)]

    def refusal(self, tube: str, bodies: list[bytes]) -> str | None:
        """Say what a put of these bodies is answered with, if they are not taken."""
        policy, sizes = self.policy(tube), list(map(len, bodies))
        if max(sizes) > int(policy.get("max-job-size", 99)):
            return "JOB_TOO_BIG"
        if len(self.of(tube)) + len(sizes) > int(policy.get("max-jobs", 9999)):
            return "OUT_OF_MEMORY"
        used = sum(len(job.body) for job in self.of(tube))
        return "OUT_OF_MEMORY" if used + sum(sizes) > int(policy.get("max-bytes", 9999)) else None

    def bury_for_good(self, job: Known) -> None:
        """A job is a dead letter now."""
        job.tube = self.policy(job.tube).get("dead-letter", job.tube)
        job.state, job.is_dead, job.since_ns = "buried", True, self.server.now_ns
        job.holder = 0

    def take_back(self, job_id: int, delay: int = 0) -> None:
        """A job comes back."""
        job, now_ns = self.jobs[job_id], self.server.now_ns
        policy, job.holder = self.policy(job.tube), 0
        job.state, job.due_ns = ("delayed", now_ns + delay * NS) if delay else ("ready", 0)
        if job.reserves >= int(policy.get("max-reserves", 9999)):
            self.bury_for_good(job)
        elif "backoff" in policy and not delay and self.ends_ns(job) > now_ns:
            real = self.server.queue.state.jobs.look(job_id)
            assert real is not None
            # By how much it differs is tested elsewhere.
            seconds = min(5 * 2 ** (job.reserves - 1), 20)
            assert 0.9 * seconds * NS <= real.deadline_ns - now_ns <= 1.1 * seconds * NS
            job.state, job.due_ns = "delayed", real.deadline_ns

    def end_old(self) -> None:
        """End the jobs that are too old now."""
        for job_id, job in list(self.jobs.items()):
            if job.state != "reserved" and self.ends_ns(job) <= self.server.now_ns:
                if self.policy(job.tube).get("expired") == "delete":
                    del self.jobs[job_id]
                else:
                    self.bury_for_good(job)

    def ends_ns(self, job: Known) -> int:
        """Say when the job is too old."""
        policy = self.policy(job.tube)
        if "max-age" not in policy or (job.is_dead and policy.get("expired") != "delete"):
            return 1 << 70
        return job.since_ns + int(policy["max-age"]) * NS

    def settle(self) -> None:
        """All that is due now happens."""
        self.server.finish_slices()
        before = None
        while before != (before := [(*vars(job).values(),) for job in self.jobs.values()]):
            self.end_old()

    # Commands.

    @initialize(pairs=st.lists(st.tuples(TUBES, RULES), min_size=3, max_size=10))
    def begin_with_policies(self, pairs: list[tuple[str, str]]) -> None:
        """Begin with two clients that watch all tubes, and some keys."""
        self.connect_clients()
        for tube, pair in pairs:
            self.set_policy(tube, pair)

    @rule(tube=TUBES, pair=RULES)
    def set_policy(self, tube: str, pair: str) -> None:
        """Set one key."""
        key, value = pair.split("=")
        reply = self.clients[0].says(f"tube-policy {tube} {pair}")
        self.commands[tube].pop(key, None)
        if value != "-":
            self.commands[tube][key] = value
        self.server.finish_slices()
        assert (reply or self.clients[0].hears()) == "POLICY"
        self.settle()
        shown = self.clients[0].asks(f"tube-policy {tube}")
        assert {k: v for k, v in shown.items() if not k.endswith("-from")} == self.policy(tube)

    @rule(file=st.sampled_from(FILES))
    def declare(self, file: list[tuple[str, dict[str, str]]]) -> None:
        """Read another file."""
        self.file = file
        self.server.queue.policies.declare(DeclaredPolicies(file), self.server.now_ns)
        self.settle()

    @rule(tube=TUBES, pri=st.integers(0, 2), delay=st.sampled_from([0, 0, 3]), body=BODIES,
          ttr=st.sampled_from([4, 100]))  # fmt: skip
    def put(self, tube: str, pri: int, delay: int, body: bytes, ttr: int) -> None:
        self.clients[0].says(f"use {tube}")
        reply = self.clients[0].says(f"put {pri} {delay} {ttr} {len(body)}", body)
        job_id, self.next_id = self.next_id, self.next_id + 1
        refusal = self.refusal(tube, [body])
        assert reply == (refusal or f"INSERTED {job_id}")
        if refusal is None:
            self.add(job_id, tube, pri, delay, body, ttr)
        self.settle()

    def add(self, job_id: int, tube: str, pri: int, delay: int, body: bytes, ttr: int) -> None:
        """A job was put."""
        now_ns = self.server.now_ns
        state, due_ns = ("delayed", now_ns + delay * NS) if delay else ("ready", 0)
        self.jobs[job_id] = Known(tube, state, pri, body, now_ns, ttr, due_ns)

    @rule(tube=TUBES, bodies=st.lists(BODIES, min_size=1, max_size=4))
    def put_batch(self, tube: str, bodies: list[bytes]) -> None:
        """Put jobs together."""
        self.clients[0].says(f"use {tube}")
        reply = self.clients[0].puts_batch(*((1, 0, 9, body) for body in bodies))
        refusal = self.refusal(tube, bodies)
        if refusal is None:
            for body in bodies:
                self.add(self.next_id, tube, 1, 0, body, 9)
                self.next_id += 1
            assert reply is not None and reply.startswith(f"INSERTED_BATCH {len(bodies)}")
        else:
            assert reply == refusal
        self.settle()

    @rule(who=st.integers(0, 1))
    def reserve(self, who: int) -> None:
        best = min((
            (job.pri, job_id) for job_id, job in self.jobs.items()
            if job.state == "ready" and len(self.of(job.tube, "reserved"))
            < int(self.policy(job.tube).get("max-reserved", 9999))
        ), default=None)  # fmt: skip
        reply = self.clients[who].says("reserve-with-timeout 0")
        if best is None:
            assert reply == "TIMED_OUT"
            return
        job = self.jobs[best[1]]
        assert reply is not None and reply.startswith(f"RESERVED {best[1]} ")
        job.state, job.holder, job.reserves = "reserved", who + 1, job.reserves + 1
        job.due_ns = self.server.now_ns + job.ttr * NS

    @rule(data=st.data(), what=st.sampled_from(["release", "later", "bury", "delete"]))
    def end(self, data: st.DataObject, what: str) -> None:
        """Give a reserved job back, bury it or delete it."""
        held = [job_id for job_id, job in self.jobs.items() if job.state == "reserved"]
        if not held:
            return
        job_id = data.draw(st.sampled_from(held))
        job = self.jobs[job_id]
        client = self.clients[job.holder - 1]
        if what == "delete":
            assert client.says(f"delete {job_id}") == "DELETED"
            del self.jobs[job_id]
        elif what == "bury":
            assert client.says(f"bury {job_id} {job.pri}") == "BURIED"
            job.state, job.holder = "buried", 0
        else:
            delay = 3 if what == "later" else 0
            assert client.says(f"release {job_id} {job.pri} {delay}") == "RELEASED"
            self.take_back(job_id, delay)
        self.settle()

    @rule(data=st.data())
    def kick(self, data: st.DataObject) -> None:
        idle = [n for n, job in self.jobs.items() if job.state in ("buried", "delayed")]
        if idle:
            job_id = data.draw(st.sampled_from(idle))
            assert self.clients[0].says(f"kick-job {job_id}") == "KICKED"
            self.jobs[job_id].state = "ready"

    @rule(seconds=st.integers(1, 15))
    def pass_time(self, seconds: int) -> None:
        """Let time pass, from one thing that is due to the next."""
        end_ns = self.server.now_ns + seconds * NS
        while True:
            jobs = self.jobs.values()
            dues = [job.due_ns for job in jobs if job.state in ("delayed", "reserved")]
            dues += [self.ends_ns(job) for job in jobs if job.state != "reserved"]
            at_ns = min([*dues, end_ns])
            self.server.pass_time((at_ns - self.server.now_ns) / NS)
            self.server.now_ns = at_ns
            self.server.finish_slices()
            for job in jobs:
                if job.state == "delayed" and job.due_ns <= at_ns:
                    job.state, job.due_ns = "ready", 0
            self.end_old()
            for job_id, job in self.jobs.items():
                if job.state == "reserved" and job.due_ns <= at_ns:
                    self.take_back(job_id)
            self.settle()
            if at_ns == end_ns:
                return

    @rule()
    def restart(self) -> None:
        """The server starts anew with what its log has."""
        self.server, _ = restarted(self.server)
        for job in self.jobs.values():
            if job.state == "reserved":
                job.state, job.holder = "ready", 0
        self.connect_clients()
        self.settle()

    @invariant()
    def each_job_is_where_the_model_has_it(self) -> None:
        """Compare all jobs, and what totals know of them."""
        state = self.server.queue.state
        found: dict[int, Any] = {}
        for job_id in state.jobs:
            job = state.jobs.look(job_id)
            assert job is not None
            tube = state.tubes.by_id(job.tube_id).name.decode()
            found[job_id] = tube, State(job.state).name.lower(), job.reserves
        assert found == {
            job_id: (job.tube, job.state, job.reserves) for job_id, job in self.jobs.items()
        }
        check_totals(self.server.queue)


def test_policies_hold_whatever_happens() -> None:
    examples = 2 * settings().max_examples
    run_state_machine_as_test(
        Policies, settings=settings(max_examples=examples, stateful_step_count=50)
    )
