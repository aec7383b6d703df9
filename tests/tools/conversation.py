"""Logs as a server writes them: a random conversation with the real queue, which is looked at after
each commit, so that one knows what a log has to tell.
"""

import random
from dataclasses import dataclass, field

from beanstalk_twisted.binlog.compaction import full_records
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.jobs.session import Session
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import MS, NS, Files, files_of, segment_files
from tests.storage.test_opening import Started

TUBES = (b"default", b"mail", b"images")


@dataclass
class Spoken:
    """What was said, and what came of it.

    :ivar snapshots: after each commit, by its last LSN: the jobs as `seen` describes them.
    :ivar times: the time of each.
    :ivar files: of the directory, those included that are to become segments.
    :ivar archive: every segment that ever was, by name.
    """

    files: Files
    snapshots: dict[int, dict[int, tuple[object, ...]]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    pauses: dict[int, dict[bytes, int]] = field(default_factory=dict)
    archive: Files = field(default_factory=dict)
    next_job_id: int = 1

    @property
    def last(self) -> dict[int, tuple[object, ...]]:
        return self.snapshots[max(self.snapshots)]


def seen(started: Started) -> dict[int, tuple[object, ...]]:
    """Each job's tube, state, priority, delay, TTR, counters and body."""
    state = started.queue.state
    found: dict[int, tuple[object, ...]] = {}
    for job_id in state.jobs:
        job = state.jobs.look(job_id)
        assert job is not None
        found[job_id] = (
            state.tubes.by_id(job.tube_id).name, job.state, job.priority, job.delay_s, job.ttr_s,
            (job.reserves, job.timeouts, job.releases, job.buries, job.kicks), job.body,
        )  # fmt: skip
    return found


class Conversation:
    """Clients that say anything."""

    def __init__(self, seed: int, with_compaction: bool = False, segment_bytes: int = 8192) -> None:
        self._random = random.Random(seed)
        self._with_compaction = with_compaction
        self._segment_bytes = segment_bytes
        self.directory = MemoryDirectory()
        self._spoken = Spoken({})
        self._start(None)

    def _start(self, now_ns: int | None) -> None:
        more = {"now_ns": now_ns} if now_ns else {}
        self._server = Started(self.directory, segment_bytes=self._segment_bytes, **more)
        self._server.queue.tick(self._server.clock.now_ns())
        self._sessions = [self._server.connect() for _ in range(3)]
        for session in self._sessions:
            for tube in TUBES:
                self._server.queue.watching.watch(session, self._server.now_ns, tube)
        self._note()

    def say(self, turns: int) -> Spoken:
        for turn in range(turns):
            for _ in range(self._random.randrange(1, 6)):
                self._server.now_ns += self._random.randrange(1, 3000) * MS
                self._server.queue.tick(self._server.clock.now_ns())
                self._command(self._random.choice(self._sessions))
            self._note()
            if self._with_compaction and turn % 7 == 6:
                self._compact()
            if turn % 25 == 24:
                self._restart(self._random.random() < 0.5)
        self._spoken.files = files_of(self.directory)
        self._spoken.archive.update(segment_files(self.directory))
        self._spoken.next_job_id = self._server.queue.state.next_job_id
        return self._spoken

    def _note(self) -> None:
        self._server.commit()
        lsn = self._server.log.durable_lsn
        if lsn in self._spoken.snapshots:
            # A delay may have ended since; that leaves no record.
            return
        self._spoken.snapshots[lsn] = seen(self._server)
        self._spoken.times[lsn] = self._server.clock.now_ns()
        self._spoken.pauses[lsn] = {
            tube.name: tube.pause_until_ns
            for tube in self._server.queue.state.tubes.in_order
            if tube.pause_until_ns
        }

    def _command(self, session: Session) -> None:
        queue, now, chance = self._server.queue, self._server.clock.now_ns(), self._random
        job_id = chance.randrange(1, queue.state.next_job_id + 1)
        looked = ((n, queue.state.jobs.look(n)) for n in queue.state.jobs)
        own = [n for n, job in looked if job is not None and job.holder == session.number]
        if own and chance.random() < 0.8:
            job_id = chance.choice(own)
        what = chance.randrange(12)
        if what < 4:
            queue.watching.use(session, now, chance.choice(TUBES))
            body = bytes(chance.randrange(256) for _ in range(chance.randrange(120)))
            draft = queue.puts.begin(session, now)
            delay = chance.choice((0, 0, 0, 5, 500))
            queue.puts.put(session, now, draft, chance.choice((0, 1024)), delay, 20, body)
        elif what < 7:
            queue.reservations.reserve(session, now, 0)
        elif what == 7:
            queue.delete(session, now, job_id)
        elif what == 8:
            queue.release(session, now, job_id, 5, chance.choice((0, 30)))
        elif what == 9:
            queue.bury(session, now, job_id, 7)
        elif what == 10:
            queue.kick_job(session, now, job_id)
        else:
            queue.pause_tube(session, now, chance.choice(TUBES), chance.choice((0, 100)))

    def _restart(self, in_order: bool) -> None:
        if in_order:
            self._server.stop()
        now = self._server.now_ns + NS
        self._spoken.archive.update(segment_files(self.directory))
        self._start(now)

    def _compact(self) -> None:
        """As the compactor does it, all of the oldest segment at once."""
        log, queue = self._server.log, self._server.queue
        oldest = log.oldest
        if oldest >= log.segment:
            return
        self._spoken.archive.update(segment_files(self.directory))
        for ids in full_records(self.directory, oldest, log.ends[oldest]):
            queue.copy(ids, oldest, 0)
        log.append(Trim(oldest + 1, self._server.clock.now_ns()))
        self._note()
        log.trimmed(oldest)
        self.directory.remove(segment_name(oldest))
