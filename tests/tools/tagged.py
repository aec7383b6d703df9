"""Logs with all that version 1.1 of the format has brought: a random history, and what it
leaves.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Record, RememberedKey, TubeDef, TubePolicy
from beanstalk_twisted.binlog.tags import EXTENSIONS, NO_TAGS, Tags
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.stored import StoredJob, StoredKey, TubeRecord, stored_policy
from tests.binlog.scribe import FIRST, NS, T0, Files, Scribe, delete
from tests.tools.served import started_on

TUBES = {1: b"default", 2: b"mail", 3: b"dead"}
KEPT_S = 3_000_000_000
"""Seconds: longer than these tests are run."""

Left = tuple[list[StoredJob], list[StoredKey], list[TubeRecord]]
"""Jobs by id, remembered keys by tube and key, policies by tube."""


@dataclass
class Told:
    """A history.

    :ivar jobs: the images of the jobs that live at its end.
    """

    files: Files = field(default_factory=dict)
    jobs: dict[int, JobImage] = field(default_factory=dict)
    keys: dict[tuple[int, bytes], RememberedKey] = field(default_factory=dict)
    policies: dict[int, TubePolicy] = field(default_factory=dict)

    @property
    def left(self) -> Left:
        jobs = [StoredJob.of(image, TUBES[image.tube_id]) for image in self.jobs.values()]
        keys = [StoredKey.of(key, TUBES[key.tube_id]) for key in self.keys.values()]
        policies = [
            stored_policy(TUBES[each.tube_id], each.rules) for each in self.policies.values()
        ]
        return sorted(jobs), sorted(keys), sorted(each for each in policies if each.record.rules)


class History:
    """Changes of all kinds, in segments of 8 KiB; no reservations, which end with a start."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        names = [TubeDef(number, name, T0) for number, name in TUBES.items()]
        position = FIRST._replace(store_uuid=seed.to_bytes(16, "big"))
        self._scribe = Scribe(position=position, opening=names, features=EXTENSIONS)
        self._names: list[Record] = [*names]
        self._told = Told()
        self._buried = T0
        self._next_id = 1

    def tell(self, turns: int) -> Told:
        """Go on for so many changes, and end in order."""
        for _ in range(turns):
            self._scribe.write(*self._change())
            restated = [
                TubePolicy(each.tube_id, each.rules, T0, Reason.NONE)
                for each in self._told.policies.values()
                if each.rules
            ]
            self._scribe.opening[:] = [*self._names, *restated]
        self._scribe.finish()
        self._told.files = self._scribe.files()
        return self._told

    def _change(self) -> list[Record]:
        jobs, chance = self._told.jobs, self._random
        what = chance.randrange(12)
        if what == 0:
            tube_id = chance.choice(list(TUBES))
            rules = chance.choice([{}, {"max-jobs": "9"}, {"backoff": "2", "dead-letter": "dead"}])
            policy = TubePolicy(tube_id, rules, T0)
            self._told.policies[tube_id] = policy
            return [policy]
        if what < 6 or not jobs:
            return [self._set(self._new())]
        job = jobs[chance.choice(list(jobs))]
        if what < 8:
            return self._end(job)
        return [self._set(self._changed(job, what))]

    def _set(self, image: JobImage) -> JobImage:
        """Note a change; a short record leaves body, tags and birth as they are."""
        before = self._told.jobs.get(image.job_id)
        whole = image
        if before is not None and image.kind not in (Kind.MOVE, Kind.UPDATE):
            whole = image._replace(body=before.body, tags=before.tags, ts_ns=before.ts_ns)
        self._told.jobs[image.job_id] = whole
        return image

    def _new(self) -> JobImage:
        chance = self._random
        tube_id, job_id = chance.choice(list(TUBES)), self._next_id
        self._next_id += 1
        key = chance.choice([b"", b"a", b"b", b"c" * 200])
        if not self._is_free(tube_id, key):
            key = b""
        tags = Tags(
            key, chance.choice([0, KEPT_S]) if key else 0, con := chance.choice([b"", b"con"]),
            3 if con else 0, chance.choice([b"", b"group"]), after := chance.choice([b"", b"late"]),
        )  # fmt: skip
        body = bytes(chance.randrange(256) for _ in range(chance.randrange(300)))
        return JobImage(
            Kind.PUT, State.DELAYED if after else State.READY, Reason.CLIENT,
            chance.choice([0, 1024]), job_id, T0 + job_id, NEVER_NS if after else 0, 0, 60,
            tube_id, connection=7, body=body, tags=None if tags == NO_TAGS else tags,
        )  # fmt: skip

    def _is_free(self, tube_id: int, key: bytes) -> bool:
        held = {
            (job.tube_id, job.tags.unique_key)
            for job in self._told.jobs.values()
            if job.tags is not None and job.tags.holds_key
        }
        return (tube_id, key) not in held | self._told.keys.keys()

    def _end(self, job: JobImage) -> list[Record]:
        del self._told.jobs[job.job_id]
        ended: list[Record] = [delete(job.job_id, tube_id=job.tube_id)]
        if job.tags is not None and job.tags.leaves_key:
            until = T0 + job.tags.unique_s * NS
            key = RememberedKey(job.tube_id, job.tags.unique_key, job.job_id, until, T0)
            self._told.keys[key.tube_id, key.key] = key
            ended.append(key)
        return ended

    def _changed(self, job: JobImage, what: int) -> JobImage:
        chance, tags = self._random, job.tags or NO_TAGS
        self._buried += 1
        if what == 8:
            home = tags.origin or TUBES[job.tube_id]
            dead = tags._replace(
                dead_from=TUBES[job.tube_id], dead_reason=Reason.MAX_RESERVES,
                dead_at_ns=self._buried, origin=b"" if home == TUBES[3] else home,
            )  # fmt: skip
            return job._replace(
                kind=Kind.MOVE, state=State.BURIED, tube_id=3, deadline_ns=self._buried, tags=dead
            )
        if what == 9:
            return job._replace(kind=Kind.UPDATE, priority=5, body=chance.randbytes(99))
        short = job._replace(body=b"", tags=None, ts_ns=T0)
        if what == 10 and job.deadline_ns == NEVER_NS:
            return short._replace(kind=Kind.GROUP_ENDED, state=State.READY, deadline_ns=0)
        return short._replace(
            kind=Kind.BURY, state=State.BURIED, deadline_ns=self._buried, buries=1
        )


def left_in(loaded: Loaded) -> Left:
    jobs = sorted(loaded.jobs())
    return jobs, sorted(loaded.remembered_keys()), sorted(loaded.tube_records([TubePolicy]))


def see_that_a_server_has(path: Path, left: Left, now_ns: int) -> None:
    """A server that starts on the log has these tags, keys and policies, and all jobs can end."""
    queue = started_on(path, now_ns).queue
    state = queue.state
    jobs, keys, policies = left
    found = {n: job.tags for n in state.jobs if (job := state.jobs.look(n)) is not None}
    assert found == {each.job_id: each.tags for each in jobs}
    assert state.unique.remembered == len(keys)
    for key in keys:
        tube = state.tubes.find(key.tube)
        assert tube is not None
        assert state.unique.holder(tube.tube_id, key.key, now_ns) == key.job_id
    rules = {tube.name: tube.rules for tube in state.tubes.in_order if tube.rules}
    assert rules == {policy.tube: policy.record.rules for policy in policies}
    for stored in jobs:
        living = state.jobs.get(stored.job_id)
        assert living is not None
        state.apply(
            JobImage(Kind.DELETE, State.GONE, Reason.CLIENT, 0, stored.job_id, now_ns, 0, 0, 1,
                     living.tube_id)
        )  # fmt: skip
    assert not list(state.jobs)
