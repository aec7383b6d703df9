"""Batches with keys, whatever becomes of their jobs, of time and of the process."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory

KEY = st.sampled_from(["k", "l"])
TUBE = st.sampled_from(["default", "a"])


class BatchKeys(RuleBasedStateMachine):
    """What a plain table of keys says, with the moments until which they are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
        self.client = self.server.connect()
        self.now = 0.0
        self.next_id = 1
        self.jobs: dict[int, str] = {}
        self.keys: dict[tuple[str, str], tuple[range, float]] = {}

    def say(self, line: str) -> str:
        return self.client.ask(line.encode()).decode()

    @rule(tube=TUBE, key=KEY, count=st.integers(1, 4), seconds=st.sampled_from([5, 60]))
    def put_batch(self, tube: str, key: str, count: int, seconds: int) -> None:
        self.say(f"use {tube}\r\n")
        jobs = "0 0 60 400 meta:m\r\n" + "b" * 400 + "\r\n"
        said = self.say(f"put-batch {count} idp:{key}:{seconds}\r\n" + jobs * count)
        ids, until = self.keys.get((tube, key), (range(0), 0.0))
        if until > self.now:
            states = [self.jobs.get(job_id, "DELETED") for job_id in ids]
            lines = [f"INSERTED {each} {state}" for each, state in zip(ids, states, strict=True)]
        else:
            ids = range(self.next_id + 1, self.next_id + 1 + count)
            self.next_id = ids.stop
            self.keys[tube, key] = ids, self.now + seconds
            self.jobs |= dict.fromkeys(ids, "READY")
            lines = [f"INSERTED {each}" for each in ids]
        assert said.splitlines() == [f"INSERTED_BATCH {len(lines)}", *lines]

    @rule(data=st.data(), line=st.sampled_from(["delete {}", "move-job {} a", "move-job {} there"]))
    def change(self, data: st.DataObject, line: str) -> None:
        if self.jobs:
            job_id = data.draw(st.sampled_from(sorted(self.jobs)))
            assert self.say(line.format(job_id) + "\r\n") in ("DELETED\r\n", "MOVED\r\n")
            if line.startswith("delete"):
                del self.jobs[job_id]

    @rule(tube=TUBE, key=KEY)
    def forget(self, tube: str, key: str) -> None:
        _, until = self.keys.pop((tube, key), (range(0), 0.0))
        is_known = until > self.now
        said = self.say(f"forget-key {tube} {key}\r\n")
        assert said == ("FORGOTTEN\r\n" if is_known else "NOT_FOUND\r\n")

    @rule(seconds=st.sampled_from([1, 7]))
    def pass_time(self, seconds: int) -> None:
        self.server.advance(seconds)
        self.now += seconds

    @rule()
    def kill(self) -> None:
        self.server.kill_and_restart()
        self.client = self.server.connect()


TestBatchKeys = BatchKeys.TestCase
