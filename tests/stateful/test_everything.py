"""
Clients use all commands on one server, whose process ends now and then: each hears what the `Model`
says, and all jobs are listed as it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

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

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.jobs.tube import NO_JOBS
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import STARTED_S, MemoryServer
from beanstalk_twisted.wire.yaml import read_mapping
from tests.rules.test_policies import check_totals
from tests.stateful.model import TICKS, Job
from tests.stateful.model_commands import Commands

EXAMPLES = 3 * settings().max_examples
STEPS = 50
CLIENTS = 3
TUBES = ("default", "a", "b")
STEP_TICKS = 10
"""Between two commands, so that no two things are due at once."""

TICK_NS = NS // TICKS

# No sum of some of these seconds is another one: what is due together has no order.
DELAYS = st.sampled_from([0, 0, 0, 3])
TTRS = st.sampled_from([7, 100])
TIMEOUTS = st.sampled_from([None, 0, 0, 4])
FILES: list[list[tuple[str, dict[str, str]]]] = [
    [],
    [("a", {"max-jobs": "6", "max-age": "20"})],
    [("b*", {"max-age": "-"}), ("*", {"max-reserved": "2"})],
]
RULES = st.sampled_from([
    "max-reserves=1", "max-reserves=1", "max-reserves=2", "max-reserves=-", "dead-letter=b",
    "dead-letter=b", "dead-letter=-", "backoff=10:2:20", "backoff=-", "max-age=5", "max-age=40",
    "max-age=-", "expired=delete", "expired=-", "max-jobs=4", "max-jobs=-", "max-bytes=9",
    "max-bytes=-", "max-job-size=3", "max-job-size=-", "max-reserved=1", "max-reserved=-",
])  # fmt: skip

WHO = st.integers(0, CLIENTS - 1)
PLACE = st.integers(0, 40)
TUBE = st.sampled_from(TUBES)
PRIORITIES = st.sampled_from([0, 0, 1, 2000])
BODIES = st.sampled_from(["x", "", "yz", "body"])
NEW_JOB = st.tuples(
    PRIORITIES, DELAYS, TTRS, BODIES, st.sampled_from(["", "", "u:6", "u", "v:60"]),
    st.sampled_from(["", "", "k:1", "k:1", "k:2", "m:1"]), st.sampled_from(["", "", "g", "h"]),
    st.sampled_from(["", "", "g", "h"]),
)  # fmt: skip
NewJob = tuple[int, int, int, str, str, str, str, str]


def job_of(job_id: int, new: NewJob) -> tuple[Job, str]:
    """
    Give a new job, and its lines.
    """
    pri, delay, ttr, body, unique, key, group, after = new
    after = "" if after == group else after
    named = (("idp:", unique), ("con:", key), ("grp:", group), ("aft:", after))
    tags = "".join([f" {word}{name}" for word, name in named if name])
    line = f"{pri} {delay} {ttr} {len(body)}{tags}\r\n{body}\r\n"
    (unique, _, unique_s), (key, _, limit) = unique.partition(":"), key.partition(":")
    job = Job(
        job_id, "", pri, delay, ttr, body, unique, int(unique_s or 0), key, int(limit or 0),
        group, after,
    )  # fmt: skip
    return job, line


def ids_of(said: str) -> list[int]:
    """
    Give the ids of the jobs that were reserved.
    """
    lines = said.split("\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith("RESERVED ")]


class Everything(RuleBasedStateMachine):
    """
    A few clients of a server, and one who keeps the tubes and looks at them.
    """

    @initialize(
        pairs=st.lists(st.tuples(TUBE, RULES), max_size=8),
        jobs=st.lists(st.tuples(TUBE, NEW_JOB), min_size=4, max_size=12),
        deeds=st.lists(st.sampled_from(["", "hold", "bury", "die"]), min_size=4, max_size=12),
    )
    def start(
        self, pairs: list[tuple[str, str]], jobs: list[tuple[str, NewJob]], deeds: list[str]
    ) -> None:
        """
        Each history begins with jobs in all states, dead letters among them.
        """
        self.server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
        self.model = Commands(CLIENTS, self.backoff_ends)
        self.connect()
        for tube, pair in pairs:
            self.set_policy(0, tube, pair)
        for tube, job in jobs:
            self.put(0, tube, [job], is_batch=False)
        for place, deed in enumerate(deeds):
            self.do_to_one(place, deed)

    def do_to_one(self, place: int, deed: str) -> None:
        """
        Have a job reserved, and buried or lost for good by its first release.
        """
        if not deed or not self.anybody:
            return
        number, job_id = self.idle(place), self.pick(place, "ready", "delayed")
        if deed == "die" and job_id in self.model.jobs:
            self.set_policy(number, self.model.jobs[job_id].tube, "max-reserves=1")
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip
        if deed == "bury":
            self.bury(number, place, 0)
        elif deed == "die":
            self.release(number, place, 0, 0)

    def connect(self) -> None:
        """
        Come, at first or after a restart.
        """
        self.clients = [self.server.connect() for _ in range(CLIENTS)]
        self.keeper = self.server.connect()
        for tube in TUBES:
            self.keeper.ask(b"watch %b\r\n" % tube.encode())
        self.queue.policies.declare(DeclaredPolicies(self.model.file), self.now_ns)
        self.rest()

    @property
    def queue(self):  # type: ignore[no-untyped-def]
        """
        Give the queue.
        """
        return self.server.service.queue

    @property
    def now_ns(self) -> int:
        """
        Give the wall clock.
        """
        return self.model.now * TICK_NS + STARTED_S * NS

    def backoff_ends(self, job_id: int, now: int, seconds: int) -> int:
        """
        See `Model`; expect it to be about as long.
        """
        job = self.queue.state.jobs.look(job_id)
        assert job is not None
        due = -(-(job.deadline_ns - STARTED_S * NS) // TICK_NS)
        assert 0.9 * seconds * TICKS - 2 <= due - now <= 1.1 * seconds * TICKS + 2
        return int(due)

    # Talking.

    def rest(self) -> None:
        """
        Let the server do all that is to be done now.
        """
        for _ in range(4):
            self.server.advance()

    def talk(self, number: int, request: str, answer: Callable[[str], str]) -> None:
        """
        Send a command, and expect what the model answers.

        :param answer: is given what was heard, and gives what should have been.
        """
        self.go(STEP_TICKS)
        self.model.step += 1
        heard = self.clients[number].ask(request.encode()).decode()
        self.rest()
        self.check({number: (heard, answer(heard))})

    def check(self, replies: dict[int, tuple[str, str]] | None = None) -> None:
        """
        Expect all to hear what the model says.
        """
        for number, peer in enumerate(self.model.peers):
            heard, expected = (replies or {}).get(number, ("", ""))
            heard += self.clients[number].take().decode()
            assert heard == expected + peer.late, f"client {number}"
            peer.late = ""

    def go(self, ticks: int) -> None:
        """
        Let time pass, from one thing that is due to the next.
        """
        end = self.model.now + ticks
        while self.model.now < end:
            self.model.now = min(self.model.next_due(), end)
            self.server.advance(self.model.now / TICKS - self.server.clock.seconds())
            self.rest()
            self.model.end_due()
            self.model.settle()
            self.check()

    def idle(self, number: int) -> int:
        """
        Give a client that does not wait, this one if it does not.
        """
        free = [at for at, peer in enumerate(self.model.peers) if not peer.is_blocked]
        return free[number % len(free)]

    @property
    def anybody(self) -> bool:
        """
        Whether a client does not wait.
        """
        return any(not peer.is_blocked for peer in self.model.peers)

    def pick(self, place: int, *states: str) -> int:
        """
        Give the id of a job, of one in these states if there are any; or one that is not there.
        """
        jobs = self.model.jobs.values()
        ids = sorted(job.job_id for job in jobs if job.state in states) or sorted(self.model.jobs)
        return ids[place % len(ids)] if ids else self.queue.state.next_job_id

    def pick_held(self, number: int, place: int) -> tuple[int, int]:
        """
        Give a client and a job that is mostly its own.
        """
        job_id = self.pick(place, "reserved")
        job = self.model.jobs.get(job_id)
        is_idle = job is not None and job.holder >= 0
        if job is not None and is_idle and not self.model.peers[job.holder].is_blocked:
            number = job.holder if place % 8 else number
        return self.idle(number), job_id

    # Puts.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, jobs=st.lists(NEW_JOB, min_size=1, max_size=3),
          is_batch=st.booleans())  # fmt: skip
    def put(self, number: int, tube: str, jobs: list[NewJob], is_batch: bool) -> None:
        number = self.idle(number)
        self.use(number, tube)
        for batch in [jobs] if is_batch else [[job] for job in jobs]:
            if self.model.peers[number].is_blocked:
                return
            self.put_some(number, batch, is_batch=is_batch)

    def put_some(self, number: int, jobs: list[NewJob], *, is_batch: bool) -> None:
        """
        Put a batch, or one job; ids are what the server says, but higher than all before.
        """
        words = f"put-batch {len(jobs)}\r\n" if is_batch else "put "
        lines = [job_of(0, job)[1] for job in jobs]

        def answer(heard: str) -> str:
            new = [line.split() for line in heard.split("\r\n") if line.startswith("INSERTED ")]
            made = [job_of(0, job)[0] for job in jobs]
            for job, words in zip(made, new, strict=False):
                if len(words) == 2:
                    job.job_id = int(words[1])
                    assert job.job_id > self.last_id
                    self.last_id = job.job_id
            return self.model.put(number, made, is_batch=is_batch)

        self.talk(number, words + "".join(lines), answer)

    last_id = 0

    def use(self, number: int, tube: str) -> None:
        """
        Use a tube.
        """
        if self.model.peers[number].using != tube:
            self.model.peers[number].using = tube
            self.talk(number, f"use {tube}\r\n", lambda heard: f"USING {tube}\r\n")

    # Reserves.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, timeout=TIMEOUTS)
    def reserve(self, number: int, timeout: int | None) -> None:
        number = self.idle(number)
        line = "reserve" if timeout is None else f"reserve-with-timeout {timeout}"
        self.talk(
            number, f"{line}\r\n",
            lambda heard: self.model.reserve(number, timeout, (*ids_of(heard), 0)[0]),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, count=st.integers(1, 4))
    def reserve_batch(self, number: int, count: int) -> None:
        number = self.idle(number)
        self.talk(
            number, f"reserve-batch {count}\r\n",
            lambda heard: self.model.reserve_batch(number, count, ids_of(heard)),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def reserve_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, weight=st.sampled_from([0, 1, 3]))
    def watch(self, number: int, tube: str, weight: int) -> None:
        number = self.idle(number)
        peer = self.model.peers[number]
        if tube in peer.watched and len(peer.watched) > 1 and not weight:
            del peer.watched[tube]
            line = f"ignore {tube}\r\n"
        else:
            peer.watched[tube] = weight or 1
            line = f"watch {tube} {weight}\r\n" if weight else f"watch {tube}\r\n"
        self.talk(number, line, lambda heard: f"WATCHING {len(peer.watched)}\r\n")

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, mode=st.sampled_from(["fifo", "weighted", "weighted-fair"]))
    def reserve_mode(self, number: int, mode: str) -> None:
        number = self.idle(number)
        self.model.peers[number].mode = mode
        self.talk(number, f"reserve-mode {mode}\r\n", lambda heard: f"USING {mode}\r\n")

    # What a worker says of its job.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, is_own=st.booleans())
    def delete(self, number: int, place: int, is_own: bool) -> None:
        number, job_id = self.idle(number), self.pick(place)
        if is_own:
            number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"delete {job_id}\r\n",
            lambda heard: self.model.delete(number, [job_id], is_batch=False),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, places=st.lists(PLACE, min_size=1, max_size=3))
    def delete_batch(self, number: int, places: list[int]) -> None:
        number, ids = self.idle(number), [self.pick(place) for place in places]
        self.talk(
            number, f"delete-batch {' '.join(map(str, ids))}\r\n",
            lambda heard: self.model.delete(number, ids, is_batch=True),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES, delay=DELAYS)
    def release(self, number: int, place: int, pri: int, delay: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"release {job_id} {pri} {delay}\r\n",
            lambda heard: self.model.release(number, job_id, pri, delay),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES)
    def bury(self, number: int, place: int, pri: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"bury {job_id} {pri}\r\n", lambda heard: self.model.bury(number, job_id, pri)
        )

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def touch(self, number: int, place: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(number, f"touch {job_id}\r\n", lambda heard: self.model.touch(number, job_id))

    # Kicks.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, bound=st.integers(1, 3))
    def kick(self, number: int, bound: int) -> None:
        number = self.idle(number)
        self.talk(number, f"kick {bound}\r\n", lambda heard: self.model.kick(number, bound))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def kick_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place, "buried", "delayed")
        self.talk(number, f"kick-job {job_id}\r\n", lambda heard: self.model.kick_job(job_id))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, bound=st.sampled_from([0, 1, 9, 9]))
    def kick_dead(self, number: int, place: int, bound: int) -> None:
        number = self.idle(number)
        dead = sorted({job.dead_from for job in self.model.jobs.values()} - {""}) or TUBES
        tube = dead[place % len(dead)]
        self.talk(
            number, f"kick-dead {tube} {bound}\r\n",
            lambda heard: self.model.kick_dead(tube, bound),
        )  # fmt: skip

    # Moves, updates, flushes.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, tube=TUBE)
    def move(self, number: int, place: int, tube: str) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(
            number, f"move-job {job_id} {tube}\r\n",
            lambda heard: self.model.move(number, job_id, tube),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES, delay=DELAYS, ttr=TTRS,
          body=st.none() | BODIES)  # fmt: skip
    def update(
        self, number: int, place: int, pri: int, delay: int, ttr: int, body: str | None
    ) -> None:  # fmt: skip
        number, job_id = self.idle(number), self.pick(place)
        more = "\r\n" if body is None else f" {len(body)}\r\n{body}\r\n"
        self.talk(
            number, f"update-job {job_id} {pri} {delay} {ttr}{more}",
            lambda heard: self.model.update(number, job_id, pri, delay, ttr, body),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, state=st.sampled_from(["", "ready", "delayed", "buried"]))
    def flush(self, number: int, tube: str, state: str) -> None:
        number = self.idle(number)
        self.talk(
            number, f"flush-tube {tube} {state}".strip() + "\r\n",
            lambda heard: self.model.flush(tube, state),
        )  # fmt: skip

    # Tubes, and the server.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, seconds=st.sampled_from([0, 6]))
    def pause(self, number: int, tube: str, seconds: int) -> None:
        number = self.idle(number)
        self.talk(
            number, f"pause-tube {tube} {seconds}\r\n",
            lambda heard: self.model.pause(tube, seconds),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, pair=RULES)
    def set_policy(self, number: int, tube: str, pair: str) -> None:
        number, (key, value) = self.idle(number), pair.split("=")
        self.talk(
            number, f"tube-policy {tube} {pair}\r\n",
            lambda heard: self.model.set_policy(tube, key, value),
        )  # fmt: skip
        shown = read_mapping(self.keeper.ask(f"tube-policy {tube}\r\n".encode()).split(b"\r\n")[1])
        found = {key: value for key, value in shown if not key.endswith("-from")}
        assert found == self.model.rules(tube)

    @rule(file=st.sampled_from(FILES))
    def declare(self, file: list[tuple[str, dict[str, str]]]) -> None:
        self.go(STEP_TICKS)
        self.model.file = file
        self.queue.policies.declare(DeclaredPolicies(file), self.now_ns)
        self.keeper.ask(b"list-tube-used\r\n")
        self.rest()
        self.model.settle()
        self.check()

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, word=st.sampled_from(["drain", "undrain", "undrain"]))
    def drain(self, number: int, word: str) -> None:
        self.model.is_draining = word == "drain"
        said = "DRAINING\r\n" if word == "drain" else "NOT_DRAINING\r\n"
        self.talk(self.idle(number), f"{word}\r\n", lambda heard: said)

    # Waiting.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, seconds=st.sampled_from([0, 4, 50]))
    def wait_job(self, number: int, place: int, seconds: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(
            number, f"wait-job {job_id} {seconds}\r\n",
            lambda heard: self.model.wait_job(number, job_id, seconds),
        )  # fmt: skip

    @rule(number=WHO)
    def cancel(self, number: int) -> None:
        self.talk(number, "cancel-reserve\r\n", lambda heard: self.model.cancel(number))

    @rule(number=WHO)
    def hang_up(self, number: int) -> None:
        self.go(STEP_TICKS)
        self.model.step += 1
        client = self.clients[number]
        order = list(client.protocol.session.reserved)
        client.hang_up()
        self.rest()
        self.model.hang_up(number, order)
        self.clients[number] = self.server.connect()
        self.check()

    # Looks.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, group=st.sampled_from(["g", "h"]))
    def look(self, number: int, group: str) -> None:
        number = self.idle(number)
        self.talk(number, "peek-ready\r\n", lambda heard: self.model.peek_ready(number))
        if self.model.peers[number].is_blocked:
            return
        said = self.keeper.ask(f"stats-group {group}\r\n".encode())
        expected = self.model.stats_group(group)
        if expected is None:
            assert said == b"NOT_FOUND\r\n"
        else:
            shown = dict(read_mapping(said.split(b"\r\n")[1]))
            assert {key: shown[key] for key in expected} == expected

    # Time, the log, and the end of the process.

    @precondition(lambda self: not self.model.is_draining)
    @rule(count=st.integers(1, 12))
    def others_come_and_go(self, count: int) -> None:
        """
        So that segments end, and are compacted.
        """
        other = self.server.connect()
        other.ask(b"use other\r\n")
        for _ in range(count):
            said = other.ask(b"put 0 0 60 3000\r\n" + b"y" * 3000 + b"\r\n")
            self.last_id = max(self.last_id, int(said.split()[1]))
            other.ask(b"delete %d\r\n" % self.last_id)
        other.hang_up()
        self.rest()
        self.go(TICKS)

    @rule(seconds=st.sampled_from([1, 2, 4, 9]))
    def pass_time(self, seconds: int) -> None:
        self.go(seconds * TICKS)

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        # What no reply waits for is written by then.
        self.go(TICKS)
        if is_killed:
            self.server.kill()
        else:
            self.server.stop()
            self.server.advance()
        self.server.start()
        self.model.restart()
        self.connect()
        self.model.settle()
        self.check()

    @invariant()
    def all_jobs_are_listed_as_the_model_has_them(self) -> None:
        if not hasattr(self, "server"):
            return
        assert not self.server.failures
        for tube in TUBES:
            said = self.keeper.ask(f"list-jobs {tube} all 1000\r\n".encode()).decode()
            pairs = zip_longest(listed(said), self.model.listed(tube))
            assert [pair for pair in pairs if pair[0] != pair[1]] == [], tube

    @invariant()
    def what_is_counted_is_there(self) -> None:
        if not hasattr(self, "server"):
            return
        state, jobs = self.queue.state, self.model.jobs.values()
        assert (NO_JOBS.count, state.groups.ended) == (0, {})
        holders = [job for job in jobs if job.holds_key]
        assert state.unique.lasting == len([job for job in holders if job.unique_s])
        assert state.unique.remembered == len(self.model.remembered)
        assert len(state.unique) == len(holders) + len(self.model.remembered)
        for tube in state.tubes.in_order:
            ready = self.model.of(tube.name.decode(), "ready")
            urgent = [job for job in ready if job.pri < 1024]
            assert (tube.ready_count, tube.urgent) == (len(ready), len(urgent))
        check_totals(self.queue)


TIMES = {"age", "time-left", "connection", "dead-at"}


def listed(said: str) -> list[dict[str, str]]:
    """
    Read what `list-jobs` has said, but for times and connections.
    """
    jobs: list[dict[str, str]] = []
    for line in said.splitlines()[3:]:
        if line.startswith("- "):
            jobs.append({})
        key, _, value = line[2:].strip().partition(": ")
        if key not in TIMES and key:
            jobs[-1][key] = value.strip('"')
    return jobs


def test_all_commands_together_do_what_the_model_says() -> None:
    run_state_machine_as_test(
        Everything,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, derandomize=True
        ),
    )
