"""Unique keys over kills, restarts and compaction, against a dictionary."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import share

KEYS = st.sampled_from(["a", "b", "c", "d" * 200])
TUBES = st.sampled_from(["default", "mail"])
SECONDS = st.sampled_from([0, 1, 5, 60])

Place = tuple[str, str]


class UniqueKeys(RuleBasedStateMachine):
    """Clients that put and delete, and a server that is killed again and again.

    :ivar living: the job that has a key, by tube and key; ``remembered`` those that had it, and
        until when.
    """

    def __init__(self) -> None:
        super().__init__()
        self.server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
        self.client = self.server.connect()
        self.living: dict[Place, tuple[int, int]] = {}
        self.remembered: dict[Place, tuple[int, float]] = {}
        self.last_id = 0

    def ask(self, line: str) -> str:
        """Send a line, and give the answer."""
        return self.client.ask(line.encode() + b"\r\n").decode()

    @property
    def now_s(self) -> float:
        """The time of the clock."""
        return self.server.clock.seconds()

    def holder(self, place: Place) -> tuple[int, str] | None:
        """Who has a key, and how an answer calls its state."""
        if place in self.living:
            return self.living[place][0], "READY"
        job_id, until_s = self.remembered.get(place, (0, 0.0))
        return (job_id, "DELETED") if until_s > self.now_s else None

    @rule(tube=TUBES, key=KEYS, seconds=SECONDS, size=st.sampled_from([1, 2000]))
    def put(self, tube: str, key: str, seconds: int, size: int) -> None:
        self.ask(f"use {tube}")
        said = self.ask(f"put 0 0 60 {size} idp:{key}:{seconds}\r\n{'x' * size}")
        holder = self.holder((tube, key))
        if holder is None:
            job_id = int(said.split()[1])
            assert said == f"INSERTED {job_id}\r\n"
            assert job_id > self.last_id
            self.last_id = job_id
            self.living[tube, key] = job_id, seconds
            self.remembered.pop((tube, key), None)
        else:
            assert said == f"INSERTED {holder[0]} {holder[1]}\r\n"

    @precondition(lambda self: self.living)
    @rule(draw=st.data())
    def delete(self, draw: st.DataObject) -> None:
        place = draw.draw(st.sampled_from(sorted(self.living)))
        job_id, seconds = self.living.pop(place)
        assert self.ask(f"delete {job_id}") == "DELETED\r\n"
        if seconds:
            self.remembered[place] = job_id, self.now_s + seconds

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.server.advance(seconds)

    @rule(count=st.integers(1, 12))
    def others_come_and_go(self, count: int) -> None:
        """So that segments end, and are compacted."""
        self.ask("use default")
        for _ in range(count):
            said = self.ask("put 0 0 60 3000\r\n" + "y" * 3000)
            self.last_id = int(said.split()[1])
            assert self.ask(f"delete {self.last_id}") == "DELETED\r\n"
        self.server.advance(1)

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        if is_killed:
            self.server.kill_and_restart()
        else:
            self.server.stop()
            self.server.advance()
            self.server.start()
        self.client = self.server.connect()

    @invariant()
    def what_is_counted_is_there(self) -> None:
        unique = self.server.service.queue.state.unique
        living = {place for place, (_, seconds) in self.living.items() if seconds}
        assert unique.lasting == len(living)
        kept = [place for place, (_, end_s) in self.remembered.items() if end_s > self.now_s]
        assert unique.remembered == len(kept)
        assert len(unique) == len(self.living) + len(kept)
        names = {"default"} | {tube for tube, _ in kept} | {tube for tube, _ in self.living}
        assert names <= set(self.ask("list-tubes").split()[4::2])


UniqueKeys.TestCase.settings = settings(
    max_examples=share(60, 3), stateful_step_count=40, deadline=None
)
TestUniqueKeys = UniqueKeys.TestCase
