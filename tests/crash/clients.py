"""Clients that speak the protocol on several connections, draw what they ask from what they see,
and tell `Promises` of every reply.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.testing.memory_server import Client
from tests.crash.history import Broken
from tests.crash.promises import Promises
from tests.crash.simulation import Server

TUBES: Final = (b"default", b"mail", b"web")

MANY_JOBS: Final = 12
"""Living jobs above which clients rather delete than put, so that states stay small."""

ABOUT_ALL: Final = {
    b"DELETED", b"DELETED_BATCH", b"RELEASED", b"BURIED", b"KICKED", b"PAUSED", b"FLUSHED",
    b"NOT_FOUND", b"POLICY", b"CANCELLED", b"RETURNED",
}  # fmt: skip
"""Replies that promise all that came before them, or that whose change is itself the newest."""

ABOUT_A_JOB: Final = {b"TOUCHED", b"FOUND", b"OK", b"MOVED", b"UPDATED"}
ABOUT_NOTHING: Final = {
    b"TIMED_OUT", b"DEADLINE_SOON", b"USING", b"WATCHING", b"OUT_OF_MEMORY",
}  # fmt: skip

DONE: Final = {b"MOVED", b"UPDATED", b"KICKED", b"POLICY", b"CANCELLED", b"RETURNED"}
"""Replies to commands that have changed something, unless that is a number, and 0."""

EDITS: Final = {b"move-job", b"update-job", b"kick-dead"}
"""Commands whose changes may have to wait for room, before all their replies."""

POLICIES: Final = (
    b"max-reserves=1",
    b"max-reserves=1",
    b"max-reserves=2",
    b"max-reserves=-",
    b"dead-letter=web",
    b"dead-letter=-",
    b"backoff=1:2:3",
    b"backoff=-",
    b"max-age=3",
    b"max-age=-",
    b"expired=delete",
    b"expired=-",
)


class Expected(NamedTuple):
    """A command that waits for its reply.

    :ivar job_id: the job that it is about, 0 for none.
    :ivar of_job: LSN of that job's newest change that replies wait for, when it was carried out.
    :ivar of_all: LSN of the newest such change of all.
    :ivar before: the same before it was sent: its own first slice is behind that.
    :ivar is_late: whether its reply tells of something that came after it.
    """

    command: bytes
    job_id: int
    of_job: int
    of_all: int
    before: int
    is_late: bool


def expect(
    promises: Promises, command: bytes, job_id: int, before: int, is_late: bool
) -> Expected:  # fmt: skip
    """What the reply to a command that was just sent will promise."""
    of_job, of_all = promises.committed_of(job_id), promises.committed_lsn
    return Expected(command.split()[0], job_id, of_job, of_all, before, is_late)


class Talker:
    """One connection, whose commands are carried out as they are sent."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._promises = server.promises
        self._client: Client = server.connect()
        self._expected: deque[Expected] = deque()
        self._inserted_next = 0

    @property
    def session(self) -> Any:
        """What the queue knows of it."""
        return self._client.protocol.connection.session

    def say(self, command: bytes, job_id: int = 0) -> None:
        """Send a command."""
        assert not self.session.is_blocked
        before = self._promises.committed_lsn
        self._client.send(command)
        is_late = self.session.awaited_id > 0 or self.session.is_blocked
        self._expected.append(expect(self._promises, command, job_id, before, is_late))

    def hear(self) -> None:
        """Read all replies that have come."""
        output = self._client.take()
        while output:
            line, _, output = output.partition(b"\r\n")
            words = line.split()
            if words[0] == b"RESERVED_BATCH":
                # Each of its jobs is heard of as if it had been reserved alone.
                expected = self._expected.popleft()
                self._expected.extendleft([expected] * int(words[1]))
                continue
            body = None
            if words[0] in (b"RESERVED", b"FOUND", b"OK"):
                size = int(words[-1])
                body, output = output[:size], output[size + 2 :]
            if words[0] == b"INSERTED_BATCH":
                self._inserted_next = int(words[1])
                continue
            self._inserted_next -= self._inserted_next > 0
            expected = self._expected[0] if self._inserted_next else self._expected.popleft()
            self._heard(expected, words, body)

    def _heard(self, expected: Expected, words: list[bytes], body: bytes | None) -> None:
        """What docs/durability.md says that each reply promises."""
        now_s = self._server.now_s()
        if words[0] in DONE and words[-1] != b"0":
            self._promises.heard[expected.command] += 1
        if words[0] in (b"RESERVED", b"FOUND"):
            job_id = int(words[1])
            if body not in self._promises.bodies[job_id]:
                raise Broken(f"job {job_id} has the body {body!r}")
        if words[0] == b"RESERVED":
            self._promises.told_reserved(self.session.number, int(words[1]), now_s)
        elif words[0] == b"INSERTED":
            self._promises.told_inserted(int(words[1]), now_s)
        elif expected.command == b"wait-job" and words[0] != b"NOT_FOUND":
            self._promises.told(self._ending(expected, words[0]), now_s)
        elif expected.is_late and expected.command in EDITS and words[0] != b"NOT_FOUND":
            count = int(words[1]) if words[0] == b"KICKED" else 1
            lsn = self._promises.edit_of(self.session.number, expected.before, count)
            self._promises.told(lsn, now_s)
        elif words[0] in ABOUT_ALL or expected.command == b"list-tubes":
            self._promises.told(expected.of_all, now_s)
        elif words[0] in ABOUT_A_JOB:
            self._promises.told(expected.of_job, now_s)
        else:
            assert words[0] in ABOUT_NOTHING, words

    def _ending(self, expected: Expected, word: bytes) -> int:
        """The LSN of what a `wait-job` has told of."""
        if expected.is_late and word != b"TIMED_OUT":
            return self._promises.end_of(expected.job_id, expected.of_all)
        return expected.of_job

    def leave(self) -> None:
        """Vanish."""
        self._client.hang_up()


class Clients:
    """A few clients who draw what they do from what there is."""

    def __init__(self, server: Server, draw: random.Random) -> None:
        self._draw = draw
        self._server = server
        self._talkers = [Talker(server) for _ in range(4)]
        for talker in self._talkers:
            self._settle_in(talker)

    def _settle_in(self, talker: Talker) -> None:
        talker.say(b"use %b\r\n" % self._draw.choice(TUBES))
        talker.say(b"watch %b\r\n" % self._draw.choice(TUBES))

    def hear(self) -> None:
        """All of them read their replies."""
        for talker in self._talkers:
            talker.hear()

    def act(self) -> None:
        """One of them does something."""
        is_full = len(self._server.service.queue.state.jobs) > MANY_JOBS
        puts, deletes = (2, 5) if is_full else (7, 1)
        actions: list[tuple[int, Callable[[Talker], None]]] = [
            (puts, self._put), (1, self._put_batch), (7, self._reserve),
            (deletes + 1, self._delete), (deletes, self._delete_any), (3, self._release),
            (1, self._cancel), (1, self._return),
            (4, self._bury), (2, self._kick), (1, self._touch), (1, self._pause),
            (1, self._leave), (1, self._kick_job), (1, self._reserve_job), (1, self._look),
            (1, self._use), (1, self._flush), (2, self._wait_job), (1, self._reserve_batch),
            (deletes, self._delete_batch), (2, self._move), (2, self._update), (4, self._kick_dead),
            (3, self._policy),
        ]  # fmt: skip
        free = [talker for talker in self._talkers if not talker.session.is_blocked]
        (action,) = self._draw.choices([a for _, a in actions], [w for w, _ in actions])
        if free:
            action(self._draw.choice(free))

    def _pick(self, ids: Iterable[int]) -> int | None:
        choices = list(ids)
        return self._draw.choice(choices) if choices else None

    def _in(self, *states: State) -> int | None:
        jobs = self._server.service.queue.state.jobs
        return self._pick(k for k in jobs if (job := jobs.look(k)) and job.state in states)

    def _say(self, talker: Talker, command: bytes, job_id: int | None) -> None:
        if job_id is not None:
            talker.say(command % job_id, job_id)

    def _put(self, talker: Talker) -> None:
        draw = self._draw
        body = bytes([draw.randrange(97, 123)]) * draw.choice([0, 1, 7, 8, 100, 400])
        priority = draw.choice([0, 1024, (1 << 32) - 1])
        delay_s, ttr_s = draw.choice([0, 0, 0, 2, 50]), draw.choice([1, 60])
        line = b"put %d %d %d %d\r\n" % (priority, delay_s, ttr_s, len(body))
        talker.say(line + body + b"\r\n")

    def _put_batch(self, talker: Talker) -> None:
        draw = self._draw
        jobs = []
        for _ in range(draw.choice([1, 2, 3])):
            body = bytes([draw.randrange(97, 123)]) * draw.choice([0, 7, 400, 3000])
            more = b" meta:of=%20it" if len(body) == 7 else b""
            line = b"7 %d 60 %d%b\r\n" % (draw.choice([0, 2]), len(body), more)
            jobs.append(line + body + b"\r\n")
        talker.say(b"put-batch %d\r\n" % len(jobs) + b"".join(jobs))

    def _use(self, talker: Talker) -> None:
        talker.say(b"use %b\r\n" % self._draw.choice(TUBES))

    def _reserve(self, talker: Talker) -> None:
        talker.say(b"reserve-with-timeout %d\r\n" % self._draw.choice([0, 0, 2]))

    def _reserve_job(self, talker: Talker) -> None:
        job_id = self._in(State.READY, State.BURIED, State.DELAYED)
        self._say(talker, b"reserve-job %d\r\n", job_id)

    def _reserve_batch(self, talker: Talker) -> None:
        talker.say(b"reserve-batch %d\r\n" % self._draw.choice([1, 3]))

    def _delete_batch(self, talker: Talker) -> None:
        jobs = [*self._server.service.queue.state.jobs, 9999]
        ids = self._draw.choices(jobs, k=self._draw.choice([2, 5]))
        talker.say(b"delete-batch %b\r\n" % b" ".join(b"%d" % job_id for job_id in ids))

    def _delete(self, talker: Talker) -> None:
        self._delete_it(talker, self._pick(talker.session.reserved))

    def _delete_any(self, talker: Talker) -> None:
        self._delete_it(talker, self._in(State.READY, State.BURIED, State.DELAYED))

    def _delete_it(self, talker: Talker, job_id: int | None) -> None:
        self._say(talker, b"delete %d\r\n", job_id)
        # Whoever asks for it now hears that it is gone, and may rely on that too.
        self._say(talker, b"peek %d\r\n", job_id)

    def _release(self, talker: Talker) -> None:
        command = b"release %%d 7 %d\r\n" % self._draw.choice([0, 0, 3])
        self._say(talker, command, self._pick(talker.session.reserved))

    def _cancel(self, talker: Talker) -> None:
        job_id = self._in(*State)
        self._say(talker, b"cancel-job %d\r\n", job_id)
        self._say(talker, b"peek %d\r\n", job_id)

    def _return(self, talker: Talker) -> None:
        command = b"return-job %%d %d\r\n" % self._draw.choice([0, 0, 3])
        self._say(talker, command, self._pick(talker.session.reserved))

    def _bury(self, talker: Talker) -> None:
        self._say(talker, b"bury %d 9\r\n", self._pick(talker.session.reserved))

    def _touch(self, talker: Talker) -> None:
        self._say(talker, b"touch %d\r\n", self._pick(talker.session.reserved))

    def _kick(self, talker: Talker) -> None:
        talker.say(b"kick %d\r\n" % self._draw.choice([1, 2]))

    def _kick_job(self, talker: Talker) -> None:
        self._say(talker, b"kick-job %d\r\n", self._in(State.BURIED, State.DELAYED))

    def _flush(self, talker: Talker) -> None:
        state = self._draw.choice([b"ready", b"delayed", b"buried", b"all"])
        talker.say(b"flush-tube %b %b\r\n" % (self._draw.choice(TUBES), state))

    def _pause(self, talker: Talker) -> None:
        tube, length = talker.session.using.name, self._draw.choice([0, 1, 30])
        talker.say(b"pause-tube %b %d\r\n" % (tube, length))

    def _look(self, talker: Talker) -> None:
        command = self._draw.choice([b"peek %d\r\n", b"stats-job %d\r\n"])
        self._say(talker, command, self._in(*State))
        if not talker.session.is_blocked:
            talker.say(b"list-tubes\r\n")

    def _wait_job(self, talker: Talker) -> None:
        self._say(talker, b"wait-job %%d %d\r\n" % self._draw.choice([0, 1, 5]), self._in(*State))

    def _move(self, talker: Talker) -> None:
        tube = self._draw.choice(TUBES)
        self._say(talker, b"move-job %%d %b\r\n" % tube, self._movable(talker))

    def _update(self, talker: Talker) -> None:
        draw, job_id = self._draw, self._movable(talker)
        if job_id is None:
            return
        line = b"update-job %d %d %d 60" % (job_id, draw.choice([0, 2000]), draw.choice([0, 0, 2]))
        if draw.random() < 0.5:
            body = bytes([draw.randrange(97, 123)]) * draw.choice([0, 9, 400])
            line += b" %d\r\n%b" % (len(body), body)
        talker.say(line + b"\r\n", job_id)

    def _movable(self, talker: Talker) -> int | None:
        own = self._pick(talker.session.reserved)
        return own or self._in(State.READY, State.BURIED, State.DELAYED)

    def _kick_dead(self, talker: Talker) -> None:
        jobs = self._server.service.queue.state.jobs
        tags = [job.tags for job_id in jobs if (job := jobs.look(job_id)) and job.tags]
        tube = self._draw.choice([each.dead_from for each in tags if each.dead_from] or TUBES)
        talker.say(b"kick-dead %b %d\r\n" % (tube, self._draw.choice([1, 5])))

    def _policy(self, talker: Talker) -> None:
        tube, rule = self._draw.choice(TUBES), self._draw.choice(POLICIES)
        talker.say(b"tube-policy %b %b\r\n" % (tube, rule))

    def _leave(self, talker: Talker) -> None:
        talker.leave()
        new_job = self._talkers[self._talkers.index(talker)] = Talker(self._server)
        self._settle_in(new_job)
