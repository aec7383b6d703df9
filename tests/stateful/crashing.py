"""Power that is lost, and processes that are killed, in the middle of a command: what it was to do
is done, or nothing of it; of commands that may stop between two jobs, for the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import rule

from beanstalk_twisted.wire.yaml import read_mapping
from tests.binlog.memory import MemoryDirectory
from tests.model.commands import Commands
from tests.model.ledger import Deed, outcomes
from tests.model.queue import LIMIT, Job
from tests.stateful.drawing import NEW_JOB, PLACE, TUBE, TUBES, WHO, NewJob, job_of, lines_of
from tests.stateful.talking import STEP_TICKS, Talking


class Request(NamedTuple):
    """A command.

    :ivar steps: the ends that it may come to, see `outcomes`.
    :ivar new: the jobs that it puts.
    """

    request: str
    steps: list[Deed]
    new: list[Job]


class Crash(NamedTuple):
    """A command, and how it ends.

    :ivar operations: how many changes the disk has made by then, of files and of names.
    :ivar kept: of each write that was not synced, in quarters; and whether names are.
    """

    number: int
    word: str
    tube: str
    places: list[int]
    jobs: list[NewJob]
    operations: int
    is_killed: bool
    kept: int
    keeps_names: bool


CRASHES = st.lists(
    st.builds(
        Crash, WHO,
        st.sampled_from(
            ["put-batch", "put-batch", "delete-batch", "move-job", "update-job", "kick-dead",
             "kick-dead", "flush-tube", "tube-policy"]
        ),
        TUBE, st.lists(PLACE, min_size=1, max_size=4), st.lists(NEW_JOB, min_size=1, max_size=4),
        st.sampled_from([0, 1, 1, 2, 2, 3, 9]), st.booleans(), st.integers(0, 4), st.booleans(),
    ), min_size=1, max_size=4,
)  # fmt: skip


ROUNDS = (0, 1, 2, LIMIT)
"""Of what follows from a command by itself, so much may be on the disk: that a group has ended, and
that jobs which were let go were too old.
"""


class Crashing(Talking):
    """A server that loses its power."""

    last_id = 0

    @rule(crashes=CRASHES)
    def crash_in_commands(self, crashes: list[Crash]) -> None:
        for crash in crashes:
            self.crash(crash)

    def crash(self, crash: Crash) -> None:
        """Lose the power once."""
        number, tube = crash.number, crash.tube
        for each in range(len(self.clients)):
            self.cancel(each)
        self.talk(number, f"use {tube}\r\n", lambda heard: self.model.use(number, tube))
        self.go(STEP_TICKS)
        # What has happened by itself by then, and nobody has heard of, may be lost too.
        self.write_all()
        deed = self.deed(crash)
        heard = self.cut(deed.request, crash)
        self.go_on(deed, tube, heard)

    def cancel(self, number: int) -> None:
        """A client waits no more."""
        self.talk(number, "cancel-reserve\r\n", lambda heard: self.model.cancel(number))

    def deed(self, crash: Crash) -> Request:
        """Make up a command."""
        number, word, tube, places, jobs, *_ = crash
        ids, new = [self.pick(place) for place in places], [job_of(job) for job in jobs]
        at, numbers = ids[0], " ".join(map(str, ids))
        dead = [job.dead_from for job in self.model.jobs.values() if job.dead_from] or [tube]
        died = dead[places[0] % len(dead)]
        queued = len(self.model.of(tube, "ready", "delayed", "buried"))
        left = [at for at in self.model.remembered if at[0] == tube]
        lines = "".join(map(lines_of, jobs))

        def kicks(most: int) -> Deed:
            return lambda model: model.kick_dead(died, most)

        def flushes(most: int, keys: int = 0) -> Deed:
            return lambda model: model.flush(tube, "", most, keys)

        return {
            "put-batch": Request(
                f"put-batch {len(jobs)}\r\n{lines}",
                [lambda model: model.put(number, [*map(copy, new)], is_batch=True)], new,
            ),
            "delete-batch": Request(
                f"delete-batch {numbers}\r\n",
                [lambda model: model.delete(number, ids, is_batch=True)], [],
            ),
            "move-job": Request(
                f"move-job {at} {tube}\r\n", [lambda model: model.move(number, at, tube)], []
            ),
            "update-job": Request(
                f"update-job {at} 1 3 7 3\r\nnew\r\n",
                [lambda model: model.update(number, at, 1, 3, 7, "new")], [],
            ),
            "kick-dead": Request(
                f"kick-dead {died} 9\r\n",
                [kicks(most) for most in (*range(1, len(dead)), 9)], [],
            ),
            "flush-tube": Request(
                f"flush-tube {tube}\r\n",
                [
                    *[flushes(most) for most in range(1, max(queued, 1) + 1)],
                    *[flushes(max(queued, 1), keys) for keys in range(1, len(left) + 1)],
                ],
                [],
            ),
            "tube-policy": Request(
                f"tube-policy {tube} max-jobs=9 backoff=10:2:20\r\n",
                [lambda model: model.set_policy(tube, {"max-jobs": "9", "backoff": "10:2:20"})],
                [],
            ),
        }[word]  # fmt: skip

    def cut(self, request: str, crash: Crash) -> str:
        """Send a command, and end the server in the middle of it.

        :return: what was heard until then.
        """
        client, server = self.clients[crash.number], self.server
        disk = server.directory
        assert isinstance(disk, MemoryDirectory)
        seen: list[tuple[MemoryDirectory, str]] = []

        def look(operation: str = "", name: str = "") -> None:
            is_now = not operation or disk.operations - before > crash.operations
            if is_now and not seen:
                seen.append((self.left(disk, crash), client.transport.unread.decode()))

        before, disk.fault = disk.operations, look
        client.send(request.encode())
        self.rest()
        look()
        server.kill()
        server.directory, heard = seen[0]
        server.start()
        return heard

    def left(self, disk: MemoryDirectory, crash: Crash) -> MemoryDirectory:
        """Give what is left on the disk if it happens now."""
        if crash.is_killed:
            return disk.after_kill()
        return disk.after_power_loss(
            lambda: crash.keeps_names, lambda size: [(0, size * crash.kept // 4)]
        )

    def go_on(self, deed: Request, tube: str, heard: str) -> None:
        """Find out what the command has come to, and go on from there."""
        before = self.model
        self.model = before.copied()
        self.model.restart()
        self.connect()
        self.name_new_jobs(before, before.new_ones(tube, deed.new))
        found = next((end for end in self.ends(before, deed, heard) if self.is_as(end)), None)
        if found is None:
            ends = self.ends(before, deed, heard)
            raise AssertionError(deed.request, heard, [self.differences(end) for end in ends])
        self.model = found
        self.check()

    def ends(self, before: Commands, deed: Request, heard: str) -> Iterator[Commands]:
        """Give what may have come of a command, the most first."""
        return map(self.restarted, outcomes(before, deed.steps, heard, ROUNDS))

    def restarted(self, model: Commands) -> Commands:
        """Restart the server of a model; the clients watch all tubes again."""
        model.restart()
        for peer in model.peers:
            peer.watched = dict.fromkeys(TUBES, 1)
        model.settle()
        return model

    def name_new_jobs(self, before: Commands, jobs: list[Job]) -> None:
        """Give new jobs the ids of those that are there now, and were not before."""
        shown = [self.keeper.ask(f"list-jobs {tube} all 1000\r\n".encode()) for tube in TUBES]
        there = {int(job["id"]) for said in shown for job in self.listed(said.decode())}
        ids = sorted(there - before.jobs.keys())
        self.last_id = max([self.last_id, *ids])
        for job, job_id in zip(jobs, ids, strict=False):
            job.job_id = job_id

    def is_as(self, model: Commands) -> bool:
        """Say whether all is as a model has it, policies and keys too."""
        for tube in TUBES:
            said = self.keeper.ask(f"tube-policy {tube}\r\n".encode()).split(b"\r\n")[1]
            shown = {key: value for key, value in read_mapping(said) if not key.endswith("-from")}
            if shown != model.rules(tube):
                return False
        is_known = self.queue.state.unique.remembered == len(model.remembered)
        return bool(is_known and not self.differences(model))
