"""Clients use all commands on one server, whose process ends now and then: each hears what the
`Model` says, and all jobs are listed as it has them.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from beanstalk_twisted.jobs.tube import NO_JOBS
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from beanstalk_twisted.testing.memory_server import STARTED_S
from beanstalk_twisted.wire.yaml import read_mapping
from tests.model.queue import TICKS, Job
from tests.rules.test_policies import check_totals
from tests.stateful.crashing import Crashing
from tests.stateful.drawing import (
    BODIES,
    DELAYS,
    FILES,
    NEW_JOB,
    PLACE,
    PRIORITIES,
    RULES,
    TTRS,
    TUBE,
    TUBES,
    WHO,
    NewJob,
    job_of,
    lines_of,
    near,
)
from tests.stateful.talking import STEP_TICKS


class Everything(Crashing):
    """What they do; where they begin, a class of this one says."""

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

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, job=NEW_JOB, ahead=st.sampled_from([-5, 0, 3, 11]))
    def put_at(self, number: int, tube: str, job: NewJob, ahead: int) -> None:
        """At a whole second, and no two of them for the same one."""
        number = self.idle(number)
        self.use(number, tube)
        dues = {each.due for each in self.model.jobs.values()}
        at = self.model.now // TICKS + ahead
        while at * TICKS in dues:
            at += 1
        if not self.model.peers[number].is_blocked:
            self.put_some(number, [job], is_batch=False, at=at)

    @precondition(lambda self: self.anybody and any(self.keys()))
    @rule(number=WHO, place=PLACE, job=NEW_JOB, is_batch=st.booleans(),
          late=st.sampled_from([None, -1, 1]))  # fmt: skip
    def put_rival(
        self, number: int, place: int, job: NewJob, is_batch: bool, late: int | None
    ) -> None:  # fmt: skip
        """Put a job whose unique key another one has, or had before it died or was deleted.

        :param late: if it is remembered, whether just before its end, or just behind.
        """
        keys = self.keys()
        tube, unique = keys[place % len(keys)]
        _, until = self.model.remembered.get((tube, unique), (0, 0))
        wait = until - self.model.now + (late or 0) * 5 * STEP_TICKS
        if late is not None and 0 < wait < 10 * TICKS:
            self.go(wait)
        if not self.anybody:
            return
        self.put(number, tube, [(*job[:4], unique, *job[5:])], is_batch)

    def keys(self) -> list[tuple[str, str]]:
        """Give the tubes and the unique keys of jobs that are or were there."""
        jobs = [job for job in self.model.jobs.values() if job.unique]
        return [*self.model.remembered, *[(job.dead_from or job.tube, job.unique) for job in jobs]]

    def put_some(
        self, number: int, jobs: list[NewJob], *, is_batch: bool, at: int | None = None
    ) -> None:  # fmt: skip
        """Put a batch, or one job; ids are what the server says, but higher than all before.

        :param at: the second when it is ready.
        """
        words = f"put-batch {len(jobs)}\r\n" if is_batch else "put " if at is None else "put-at "
        lines = [lines_of(job, None if at is None else STARTED_S + at) for job in jobs]
        due = None if at is None else at * TICKS

        def answer(heard: str) -> str:
            new = [line.split() for line in heard.split("\r\n") if line.startswith("INSERTED ")]
            made = [job_of(job) for job in jobs]
            for job, words in zip(made, new, strict=False):
                if len(words) == 2:
                    job.job_id = int(words[1])
                    assert job.job_id > self.last_id
                    self.last_id = job.job_id
            return self.model.put(number, made, is_batch=is_batch, at=due)

        self.talk(number, words + "".join(lines), answer)

    def use(self, number: int, tube: str) -> None:
        if self.model.peers[number].using != tube:
            self.talk(number, f"use {tube}\r\n", lambda heard: self.model.use(number, tube))

    # Reserves.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, weights=st.tuples(*[st.sampled_from([1, 3])] * 2), count=st.integers(6, 9))
    def share(self, number: int, weights: tuple[int, int], count: int) -> None:
        """Choose by weight among two tubes with many jobs, for some time."""
        number = self.idle(number)
        self.reserve_mode(number, "weighted")
        for tube, weight in zip(("a", "b"), weights, strict=True):
            if self.model.peers[number].is_blocked:
                return
            self.put(number, tube, [(0, 0, 100, "", "", "", "", "")] * 9, True)
            self.watch(number, tube, weight)
        self.reserve_batch(number, count, "")
        for tube in TUBES:
            self.flush(number, tube, "ready")

    # What a worker says of its job.

    # Kicks.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, more=st.sampled_from([-1, -1, 0, 1]))
    def kick_dead(self, number: int, place: int, more: int) -> None:
        """Kick about as many as there are."""
        number = self.idle(number)
        dead = sorted([job.dead_from for job in self.letters()]) or [*TUBES]
        tube = dead[place % len(dead)] if place % 2 else max(dead, key=dead.count)
        bound = max(0, dead.count(tube) + more)
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
          body=st.none() | BODIES,
          state=st.sampled_from(["", "reserved", "delayed", True]))  # fmt: skip
    def update(
        self, number: int, place: int, pri: int, delay: int, ttr: int, body: str | None,
        state: str | bool,
    ) -> None:  # fmt: skip
        number, job_id = self.idle(number), self.pick(place, state)
        if state == "reserved":
            number, job_id = self.pick_held(number, place)
        more = "\r\n" if body is None else f" {len(body)}\r\n{body}\r\n"
        self.talk(
            number, f"update-job {job_id} {pri} {delay} {ttr}{more}",
            lambda heard: self.model.update(number, job_id, pri, delay, ttr, body),
        )  # fmt: skip

    # Tubes, and the server.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, rules=st.lists(RULES, min_size=1, max_size=2))
    def set_policy(self, number: int, tube: str, rules: list[str]) -> None:
        number, pairs = self.idle(number), dict([near(self.model, tube, each) for each in rules])
        words = " ".join(f"{key}={value}" for key, value in pairs.items())
        self.talk(
            number, f"tube-policy {tube} {words}\r\n",
            lambda heard: self.model.set_policy(tube, pairs),
        )  # fmt: skip
        shown = read_mapping(self.keeper.ask(f"tube-policy {tube}\r\n".encode()).split(b"\r\n")[1])
        found = {key: value for key, value in shown if not key.endswith("-from")}
        assert found == self.model.rules(tube)

    @precondition(lambda self: self.anybody and any(self.letters()))
    @rule(number=WHO, place=PLACE, ahead=st.integers(1, 3))
    def end_dead(self, number: int, place: int, ahead: int) -> None:
        """Have dead letters deleted, some time after their deaths."""
        letters = self.letters()
        tube = letters[place % len(letters)].tube
        self.set_policy(number, tube, ["expired=delete", f"max-age=~{ahead}"])
        self.pass_time(ahead)

    def letters(self) -> list[Job]:
        """Give all dead letters."""
        return [job for job in self.model.jobs.values() if job.dead_from]

    @rule(file=st.sampled_from(FILES))
    def declare(self, file: list[tuple[str, dict[str, str]]]) -> None:
        self.go(STEP_TICKS)
        self.model.file = file
        self.server.declared = DeclaredPolicies(file)
        self.queue.policies.declare(self.server.declared, self.now_ns)
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

    @rule(number=WHO)
    def cancel_reserve(self, number: int) -> None:
        self.cancel(number)

    @rule(number=WHO)
    def hang_up(self, number: int) -> None:
        self.go(STEP_TICKS)
        self.model.step += 1
        client = self.clients[number]
        order = list(client.protocol.connection.session.reserved)
        client.hang_up()
        self.rest()
        self.model.hang_up(number, order)
        self.clients[number] = self.come(number)
        self.check()

    # Looks.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, group=st.sampled_from(["g", "h"]))
    def look(self, number: int, group: str) -> None:
        number = self.idle(number)
        self.talk(number, "peek-ready\r\n", lambda heard: self.model.peek_state(number, "ready"))
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
        """So that segments end, and are compacted."""
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

    @rule()
    def wait_for_what_is_due(self) -> None:
        due = self.model.next_due() - self.model.now
        if due <= 100 * TICKS:
            self.go(due + STEP_TICKS)

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        self.write_all()
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
        assert self.differences(self.model) == []

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
