"""
A server without a network or a reactor, its clients, and what they were promised.

`Server` is queue, log and writer on a `MemoryDirectory`; `Clients` draw commands from what they
see.  `Promises` keeps every version of every job, and which of them a client has been told of: what
a server finds after a crash must be that version or a newer one.
"""

import gc
import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.binlog.records import JobImage, Kind, Pause, Reason, Record, State
from beanstalk_twisted.binlog.room import Room
from beanstalk_twisted.facts import LogClock
from beanstalk_twisted.jobs.heap import ID_MASK
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.startup import OpenLog
from beanstalk_twisted.wire.replies import Reserved
from tests.binlog.scribe import NS
from tests.test_startup import no_facts

SEGMENT_BYTES: Final = 5120
TUBES: Final = (b"default", b"mail", b"web", b"news")


class OpenLogFunction(Protocol):
    """
    How a server starts: `startup.open_log`, or a version of it with a flaw.
    """

    def __call__(
        self, directory: MemoryDirectory, queue: WorkQueue, clock: LogClock, segment_bytes: int
    ) -> OpenLog:
        """
        See `startup.open_log`.
        """


class Time:
    """
    The wall clock.

    :ivar now_ns: nanoseconds since the epoch.
    """

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def clock(self) -> LogClock:
        """
        A server's own clock.
        """
        return LogClock(lambda: self.now_ns, lambda: self.now_ns)


# What is seen of a queue.


class JobSeen(NamedTuple):
    """
    All that a job has, as after a restart: a reserved job is ready.
    """

    tube: bytes
    state: State
    priority: int
    deadline_ns: int
    delay_s: int
    ttr_s: int
    counts: tuple[int, int, int, int, int]
    created_ns: int
    body: bytes

    def at(self, now_ns: int) -> "JobSeen":
        """
        The same job when a restart has happened at this time.
        """
        is_due = self.state is State.DELAYED and self.deadline_ns <= now_ns
        if is_due or self.state in (State.RESERVED, State.READY):
            return self._replace(state=State.READY, deadline_ns=0)
        return self


class PauseSeen(NamedTuple):
    """
    A tube's pause.
    """

    seconds: int
    until_ns: int

    def at(self, now_ns: int) -> "PauseSeen | None":
        """
        What is left of it.
        """
        return self if self.until_ns > now_ns else None


Seen = JobSeen | PauseSeen
Thing = int | bytes
"""A job by its id, or a pause by its tube's name."""


class Picture(NamedTuple):
    """
    A queue as it is.
    """

    things: dict[Thing, Seen]
    buried: dict[bytes, list[int]]
    tubes: list[tuple[int, bytes]]
    next_job_id: int


def picture(queue: WorkQueue) -> Picture:
    """
    Look at all of a queue, from outside its heaps.
    """
    state = queue.state
    things: dict[Thing, Seen] = {}
    graves: dict[bytes, list[tuple[int, int]]] = {}
    for job_id in state.jobs:
        job = state.jobs.look(job_id)
        assert job is not None
        tube = state.tubes.by_id(job.tube_id).name
        counts = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
        things[job_id] = JobSeen(
            tube, job.state, job.priority, job.deadline_ns, job.delay_s, job.ttr_s, counts,
            job.created_ns, job.body,
        )  # fmt: skip
        if job.state is State.BURIED:
            graves.setdefault(tube, []).append((job.deadline_ns, job_id))
    for each in state.tubes.in_order:
        if each.pause_until_ns:
            things[each.name] = PauseSeen(each.pause_s, each.pause_until_ns)
    buried = {tube: [job_id for _, job_id in sorted(order)] for tube, order in graves.items()}
    # `default` always exists; its number is that of its first use after a start.
    ids = [0 if each.name == b"default" else each.tube_id for each in state.tubes.in_order]
    tubes = list(zip(ids, (each.name for each in state.tubes.in_order), strict=True))
    return Picture(things, buried, tubes, state.next_job_id)


# What was promised.


class Broken(AssertionError):
    """
    A promise was broken.
    """


class Versions:
    """
    What a thing has been, oldest first; None while it does not exist.

    :ivar committed: the newest version that replies wait for.
    :ivar told: the newest version that a client was told of; ``safe`` the newest such that was
        also synced, so that it survives a power loss.
    """

    def __init__(self, first: Seen | None) -> None:
        self.all = [first]
        self.committed = self.told = self.safe = 0


class Held(NamedTuple):
    """
    A reply that waits for its LSN, and which version of what it tells of.
    """

    lsn: int
    thing: Thing
    version: int


COMMITTING: Final = {Kind.PUT, Kind.RELEASE, Kind.BURY, Kind.KICK, Kind.DELETE}


class Promises:
    """
    What clients were told, and what a log must therefore hold.

    :ivar history: each record with its LSN, as it was appended.
    :ivar written_lsn: all up to here survives a kill; ``synced_lsn`` a power loss.
    """

    def __init__(self) -> None:
        self.history: list[tuple[int, Record]] = []
        self.written_lsn = self.synced_lsn = 0
        self._versions: dict[Thing, Versions] = {}
        self._ids_told: set[int] = set()
        self._tubes = {(0, b"default")}
        self._held: list[Held] = []
        self._committing: Thing | None = None

    def ends(self, last_lsn: int) -> None:
        """
        No server will find more than this; higher LSNs are given out anew.
        """
        self.history = [entry for entry in self.history if entry[0] <= last_lsn]

    def begin(self, found: Picture, durable_lsn: int) -> None:
        """
        A server has started and shows this: from now on all of it is promised.
        """
        self._versions = {thing: Versions(seen) for thing, seen in found.things.items()}
        self._held.clear()
        self._committing = None
        self.written_lsn = self.synced_lsn = durable_lsn

    def note(self, seen: Picture) -> None:
        """
        Something may have happened, by at most one record.
        """
        self._tubes |= set(seen.tubes)
        for thing in self._versions.keys() | seen.things.keys():
            versions = self._versions.setdefault(thing, Versions(None))
            now = seen.things.get(thing)
            if versions.all[-1] != now:
                versions.all.append(now)
        if self._committing is not None:
            versions = self._versions.setdefault(self._committing, Versions(None))
            versions.committed = len(versions.all) - 1
            self._committing = None

    def appended(self, lsn: int, record: Record, pause_of: bytes) -> None:
        """
        A record was appended; `note` tells what came of it.

        :param pause_of: the tube, if it is a pause.
        """
        self.history.append((lsn, record))
        if isinstance(record, JobImage) and record.kind in COMMITTING:
            self._committing = record.job_id
        elif isinstance(record, Pause) and record.reason is Reason.CLIENT:
            self._committing = pause_of

    def hold(self, lsn: int, thing: Thing) -> None:
        """
        A reply about a thing waits for this LSN.
        """
        if thing in self._versions:
            self._held.append(Held(lsn, thing, self._versions[thing].committed))

    def settled(self, lsn: int, is_safe: bool) -> None:
        """
        Replies that wait for this LSN or a lower one are out.

        :param is_safe: whether what is told has to survive a power loss.
        """
        for held in self._held:
            if held.lsn <= lsn:
                versions = self._versions[held.thing]
                versions.told = max(versions.told, held.version)
                if is_safe:
                    versions.safe = versions.told
                if isinstance(held.thing, int):
                    self._ids_told.add(held.thing)
        self._held = [held for held in self._held if held.lsn > lsn]

    def synced(self, lsn: int) -> None:
        """
        All up to here is durable, so all that was told is.
        """
        self.synced_lsn = lsn
        for versions in self._versions.values():
            versions.safe = versions.told

    def power_lost(self) -> None:
        """
        What was told and not synced is no longer to be had.
        """
        self.written_lsn = self.synced_lsn
        for versions in self._versions.values():
            versions.told = versions.safe
        self._ids_told = {k for k in self._ids_told if self._is_kept(k)}

    def _is_kept(self, job_id: int) -> bool:
        versions = self._versions.get(job_id)
        return versions is None or versions.safe > 0 or versions.all[0] is not None

    # The checks.

    def check(self, found: Picture, last_lsn: int, now_ns: int, is_power_lost: bool) -> None:
        """
        What a server finds after a crash.

        :param last_lsn: where the log ends that it found.
        :raise Broken: it is not what was promised.
        """
        for thing in self._versions.keys() | found.things.keys():
            self._check_thing(thing, found.things.get(thing), now_ns, is_power_lost)
        for job_id in self._ids_told:
            if found.next_job_id <= job_id and (self._is_kept(job_id) or not is_power_lost):
                raise Broken(f"id {job_id} would be given a second time")
        self._check_tubes(found)
        least = self.synced_lsn if is_power_lost else self.written_lsn
        if last_lsn < least:
            raise Broken(f"the log ends with LSN {last_lsn}; {least} was reached")
        self._check_prefix(found, last_lsn, now_ns)

    def _check_thing(
        self, thing: Thing, seen: Seen | None, now_ns: int, is_power_lost: bool
    ) -> None:
        versions = self._versions.get(thing)
        if versions is None:
            raise Broken(f"{thing!r} is invented: {seen}")
        least = versions.safe if is_power_lost else versions.told
        allowed = [each.at(now_ns) if each else None for each in versions.all[least:]]
        if (seen.at(now_ns) if seen else None) not in allowed:
            raise Broken(f"{thing!r} is {seen}, and not one of {allowed}")

    def _check_tubes(self, found: Picture) -> None:
        if found.tubes != sorted(found.tubes) or not set(found.tubes) <= self._tubes:
            raise Broken(f"tubes {found.tubes}; there were {self._tubes}")

    def _check_prefix(self, found: Picture, last_lsn: int, now_ns: int) -> None:
        """
        It is what all records up to one of them say, one after the other, and none behind it.
        """
        jobs = {k: seen for k, seen in found.things.items() if isinstance(seen, JobSeen)}
        expected = self._forward(last_lsn)
        if jobs.keys() != expected.keys():
            raise Broken(f"jobs {sorted(jobs)}; LSN 1 to {last_lsn} say {sorted(expected)}")
        for job_id, job in expected.items():
            seen = jobs[job_id]
            counts = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
            if (seen.body, seen.created_ns, seen.priority, seen.counts) != (
                job.body, job.ts_ns, job.priority, counts,
            ):  # fmt: skip
                raise Broken(f"job {job_id} is {seen}; LSN 1 to {last_lsn} say {job}")
        buried_by = {
            record.job_id: lsn
            for lsn, record in self.history
            if lsn <= last_lsn and isinstance(record, JobImage) and record.kind is Kind.BURY
        }
        for tube, order in found.buried.items():
            if order != sorted(order, key=buried_by.__getitem__):
                raise Broken(f"the buried jobs of {tube!r} are in another order: {order}")

    def _forward(self, last_lsn: int) -> dict[int, JobImage]:
        jobs: dict[int, JobImage] = {}
        for lsn, record in self.history:
            if lsn > last_lsn or not isinstance(record, JobImage):
                continue
            old = jobs.pop(record.job_id, None)
            if record.kind is Kind.PUT:
                jobs[record.job_id] = record
            elif record.state is not State.GONE:
                assert old is not None
                jobs[record.job_id] = record._replace(body=old.body, ts_ns=old.ts_ns)
        return jobs


# The server.


class Recorder:
    """
    A ledger that tells of what passes through it.
    """

    def __init__(self, log: Log, queue: WorkQueue, promises: Promises) -> None:
        self._log = log
        self._queue = queue
        self._promises = promises

    @property
    def segment(self) -> int:
        """
        See `Ledger.segment`.
        """
        return self._log.segment

    @property
    def room(self) -> Room:
        """
        See `Ledger.room`.
        """
        return self._log.room

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """
        See `Ledger.make_room`.
        """
        self._log.make_room(body_bytes, time_ns)

    def append(self, record: Record) -> int:
        """
        See `Ledger.append`.
        """
        self._promises.note(picture(self._queue))
        lsn = self._log.append(record)
        tube = b""
        if isinstance(record, Pause):
            tube = self._queue.state.tubes.by_id(record.tube_id).name
        self._promises.appended(lsn, record, tube)
        return lsn


class Server:
    """
    A server that has started.

    :ivar found_lsn: the last LSN it found.
    """

    def __init__(
        self, directory: MemoryDirectory, time: Time, start: OpenLogFunction,
        sync_every: int | None = 0, has_marks: bool = True,
    ) -> None:  # fmt: skip
        """
        :param sync_every: 0 syncs before each reply, None never, a number once in so many commits.
        """
        self.queue = WorkQueue(no_facts, (), 65_535)
        self._clock = time.clock()
        opened = start(directory, self.queue, self._clock, SEGMENT_BYTES)
        self.log, self.writer = opened.log, opened.writer
        self.found_lsn = self.log.last_lsn - self.log.records_written
        self.promises = Promises()
        self._sync_every = sync_every
        self._has_marks = has_marks
        self._commits = 0
        self.queue.tick(self.now_ns())

    def adopt(self, promises: Promises) -> None:
        """
        Serve: what is there now is promised.
        """
        promises.begin(picture(self.queue), self.log.durable_lsn)
        self.promises = promises
        self.queue.keep_in(Recorder(self.log, self.queue, promises))

    def now_ns(self) -> int:
        """
        Log time.
        """
        return self._clock.now_ns()

    def do(self, command: Callable[[int], Answer | None], thing: Thing | None = None) -> None:
        """
        Carry out a command.

        :param thing: what its reply tells of.
        """
        answer = command(self.now_ns())
        self.promises.note(picture(self.queue))
        if answer is not None:
            self._hold(answer, thing)
        self._deliver()

    def tick(self) -> None:
        """
        Time has passed.
        """
        while (due_ns := self.queue.next_due_ns()) is not None and due_ns <= self.now_ns():
            self.queue.tick(self.now_ns())
        self.promises.note(picture(self.queue))
        self._deliver()

    def _deliver(self) -> None:
        for _, answer in self.queue.outbox:
            self._hold(answer, None)
        self.queue.outbox.clear()

    def _hold(self, answer: Answer, thing: Thing | None) -> None:
        if isinstance(answer.reply, Reserved):
            thing = answer.reply.job_id
        if thing is not None:
            self.promises.hold(answer.lsn, thing)
            self._settle()

    def _settle(self) -> None:
        """
        Replies go as soon as they may, which is at once for those that wait for nothing new.
        """
        is_always = self._sync_every == 0
        lsn = self.log.durable_lsn if is_always else self.promises.written_lsn
        self.promises.settled(lsn, is_safe=is_always)

    def commit(self) -> None:
        """
        The end of a turn: what was appended goes to disk, and then replies may go.
        """
        batch = self.log.take(self.now_ns())
        if batch is None:
            return
        self._commits += 1
        is_durable = self.writer.write(batch, self._sync_every == 0 and batch.commits)
        self._written(batch.last_lsn, is_durable)
        if self._sync_every and self._commits % self._sync_every == 0:
            self.writer.sync()
            self._written(batch.last_lsn, True)

    def _written(self, lsn: int, is_durable: bool) -> None:
        self.promises.written_lsn = lsn
        if is_durable:
            self.log.durable(lsn)
        self._settle()
        if is_durable:
            self.promises.synced(lsn)

    def idle(self) -> None:
        """
        Nothing comes for a while.
        """
        if self._has_marks and not self.log.has_open:
            self.writer.write(self.log.mark(), False)

    def stop(self) -> None:
        """
        End in order.
        """
        while self.log.has_open:
            batch = self.log.take(self.now_ns())
            assert batch is not None
            self._written(batch.last_lsn, self.writer.write(batch, True))
        self.writer.write(self.log.finish(self.now_ns()), True)


# The clients.


class Clients:
    """
    A few clients who draw what they do from what there is.
    """

    def __init__(self, server: Server, time: Time, seed: int) -> None:
        self._random = random.Random(seed)
        self._server = server
        self._queue = server.queue
        self._time = time
        self._sessions = [self._queue.connect() for _ in range(4)]

    def run(self, turns: int) -> None:
        """
        So many turns of the server.
        """
        for _ in range(turns):
            self._time.now_ns += self._random.choice([1, 10**6, NS // 5, NS])
            self._server.tick()
            for _ in range(self._random.choice([1, 1, 1, 2, 4])):
                self._act()
            self._server.commit()
            if self._random.random() < 0.4:
                self._server.idle()

    def _act(self) -> None:
        actions: list[tuple[int, Callable[[Session], None]]] = [
            (7, self._put), (7, self._reserve), (3, self._delete), (3, self._release),
            (4, self._bury), (2, self._kick), (1, self._touch), (1, self._pause), (1, self._leave),
            (1, self._delete_any), (1, self._kick_job), (1, self._reserve_job),
        ]  # fmt: skip
        (action,) = self._random.choices([a for _, a in actions], [w for w, _ in actions])
        free = [session for session in self._sessions if not session.is_blocked]
        action(self._random.choice(free) if free else self._sessions[0])

    def _pick(self, ids: Iterable[int]) -> int | None:
        choices = list(ids)
        return self._random.choice(choices) if choices else None

    def _in(self, *states: State) -> int | None:
        jobs = self._queue.state.jobs
        return self._pick(k for k in jobs if (job := jobs.look(k)) and job.state in states)

    def _put(self, session: Session) -> None:
        queue, draw, now_ns = self._queue, self._random, self._server.now_ns()
        tube = draw.choice(TUBES)
        queue.use(session, now_ns, tube)
        queue.watch(session, now_ns, draw.choice(TUBES))
        draft = queue.begin_put(session, now_ns)
        body = bytes([draft.job_id % 256]) * draw.choice([0, 1, 7, 8, 100, 600])
        delay_s, ttr_s = draw.choice([0, 0, 0, 2, 50]), draw.choice([1, 60])
        priority = draw.choice([0, 1024, (1 << 32) - 1])

        def put(now_ns: int) -> Answer | None:
            return queue.put(session, now_ns, draft, priority, delay_s, ttr_s, body)

        self._server.do(put, draft.job_id)

    def _reserve(self, session: Session) -> None:
        timeout_ns = self._random.choice([0, 0, 2 * NS])
        if not session.is_blocked:
            self._server.do(lambda now: self._queue.reserve_with_timeout(session, now, timeout_ns))

    def _reserve_job(self, session: Session) -> None:
        job_id = self._in(State.READY, State.BURIED, State.DELAYED)
        if job_id is not None and not session.is_blocked:
            self._server.do(lambda now: self._queue.reserve_job(session, now, job_id))

    def _delete(self, session: Session) -> None:
        self._delete_it(session, self._pick(session.reserved))

    def _delete_any(self, session: Session) -> None:
        self._delete_it(session, self._in(State.READY, State.BURIED, State.DELAYED))

    def _delete_it(self, session: Session, job_id: int | None) -> None:
        if job_id is not None:
            self._server.do(lambda now: self._queue.delete(session, now, job_id), job_id)
            # Whoever asks for it now hears that it is gone, and may rely on that too.
            self._server.do(lambda now: self._queue.peek(session, now, job_id), job_id)

    def _release(self, session: Session) -> None:
        job_id, delay_s = self._pick(session.reserved), self._random.choice([0, 0, 3])
        if job_id is not None:
            self._server.do(
                lambda now: self._queue.release(session, now, job_id, 7, delay_s), job_id
            )

    def _bury(self, session: Session) -> None:
        job_id = self._pick(session.reserved)
        if job_id is not None:
            self._server.do(lambda now: self._queue.bury(session, now, job_id, 9), job_id)

    def _touch(self, session: Session) -> None:
        job_id = self._pick(session.reserved)
        if job_id is not None:
            self._server.do(lambda now: self._queue.touch(session, now, job_id), job_id)

    def _kick(self, session: Session) -> None:
        jobs = session.using.buried if session.using.buried.count else session.using.delayed
        first = jobs.first()
        thing = None if first is None else first & ID_MASK
        self._server.do(lambda now: self._queue.kick(session, now, 1), thing)

    def _kick_job(self, session: Session) -> None:
        job_id = self._in(State.BURIED, State.DELAYED)
        if job_id is not None:
            self._server.do(lambda now: self._queue.kick_job(session, now, job_id), job_id)

    def _pause(self, session: Session) -> None:
        tube, seconds = session.using.name, self._random.choice([0, 1, 30])
        self._server.do(lambda now: self._queue.pause_tube(session, now, tube, seconds), tube)

    def _leave(self, session: Session) -> None:
        self._queue.disconnect(session, self._server.now_ns())
        self._sessions[self._sessions.index(session)] = self._queue.connect()
        self._server.do(lambda now: None)


class without_garbage_collection:
    """
    Thousands of queues are made and thrown away: `collect` them now and then, and keep none.
    (`open_log` freezes what it has loaded, unless garbage collection is off already.)
    """

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *ignored: object) -> None:
        gc.enable()
        gc.collect()
