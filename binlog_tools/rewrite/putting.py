"""
Putting the jobs of a log into a running server of the protocol, ours or beanstalkd.

Jobs go in the order of their ids, which is that of equal priorities; buried ones come last, in the
order of burial: put with a delay, so that no worker gets them, reserved by id and buried.

A journal says which jobs are about to be sent, and then what the server answered: only what was
sent and not answered is uncertain after a crash.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

from beanstalk_twisted.binlog.format import RECORD, RECORD_BYTES
from beanstalk_twisted.binlog.records import NEVER_NS, State
from binlog_tools.client import Line, Reply, tube_request
from binlog_tools.inspect.listing import released, sound_snapshot
from binlog_tools.logs.live_set import Bodies, LiveJob, promoted, stored
from binlog_tools.logs.outputs import naming
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import NS, StoredJob, StoredPause, without_group
from binlog_tools.tube_names import is_tube_name

WINDOW_JOBS: Final = 64
"""Jobs on their way at once: one turn of the server for many, and few that can be uncertain."""

WINDOW_BYTES: Final = 1 << 20
"""Bytes on their way at once, but for one larger job."""

GUARD_S: Final = 86_400
"""The delay under which a buried job waits to be buried: nobody gets it, should we end before."""

VERSION: Final = 1


class Stopped(Exception):
    """
    It did not come to its end; run again, it goes on from there.
    """


class Refused(NamedTuple):
    """
    A job that the server does not take.
    """

    job_id: int
    why: str


class Put(NamedTuple):
    """
    What was done in this run.

    :ivar before: jobs that an earlier run had put.
    :ivar not_buried: jobs that were put, but taken by somebody before they were buried.
    """

    put: int
    before: int
    buried: int
    refused: list[Refused]
    not_buried: list[int]


class Journal:
    """
    What was sent, and what came of it.

    :ivar done: the new id of each job that is there.
    :ivar unburied: of those, buried ones that are not buried yet.
    :ivar skipped: jobs that are not to be put.
    :ivar uncertain: jobs that were sent, and for which no answer was written down.
    """

    def __init__(self, path: str, store_uuid: str, target: str) -> None:
        """
        :raise Stopped: it is the journal of another log or another server.
        """
        self.path = path
        self.done: dict[int, int] = {}
        self.unburied: dict[int, int] = {}
        self.skipped: set[int] = set()
        self.uncertain: set[int] = set()
        self._head = {"v": VERSION, "kind": "journal", "store_uuid": store_uuid, "to": target}
        self._file: TextIO | None = None
        self._read()

    def _read(self) -> None:
        """
        A last line without an end was being written when the process ended.
        """
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        size = 0
        try:
            with file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    document = json.loads(line)
                    if size:
                        self._take(document)
                    elif document != self._head:
                        raise ValueError
                    size += len(line)
            if not size:
                raise ValueError
            os.truncate(self.path, size)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Stopped(
                f"{self.path} is not the journal of this log and this server; "
                f"name another one with --journal"
            ) from None

    def _take(self, document: dict[str, Any]) -> None:
        if "sent" in document:
            self.uncertain.update(document["sent"])
        elif "put" in document:
            job_id, new_id = document["put"], document["as"]
            self.uncertain.discard(job_id)
            self.done[job_id] = new_id
            if document.get("to_bury", False):
                self.unburied[job_id] = new_id
        elif "buried" in document:
            self.unburied.pop(document["buried"], None)
        elif "refused" in document:
            self.uncertain.discard(document["refused"])
        elif "skipped" in document:
            self.uncertain.difference_update(document["skipped"])
            self.skipped.update(document["skipped"])
        elif "again" in document:
            self.uncertain.difference_update(document["again"])
        else:
            raise ValueError

    def _opened(self) -> TextIO:
        """
        It is there from the first thing on that is noted: a run that has sent nothing leaves none.
        """
        file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        if not file.tell():
            file.write(json.dumps(self._head) + "\n")
        return file

    def note(self, *documents: dict[str, Any]) -> None:
        """
        Write down, durably, and remember.
        """
        self.note_answers(*documents)
        self.sync()

    def note_answers(self, *documents: dict[str, Any]) -> None:
        """
        Write down and remember.  A power loss before the next `note` may undo it: then the jobs are
        uncertain.
        """
        with naming(self.path):
            if self._file is None:
                self._file = self._opened()
            self._file.write("".join(json.dumps(document) + "\n" for document in documents))
            self._file.flush()
        for document in documents:
            self._take(document)

    def sync(self) -> None:
        if self._file is not None:
            with naming(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Waiting(NamedTuple):
    """
    A job that is to be put; without its body, and in few bytes, since there may be many.
    """

    job_id: int
    is_buried: bool
    live: LiveJob


class Plan(NamedTuple):
    """
    What is to be put, in order.

    :ivar unusable: tubes that no client may name, and how many of the chosen jobs are in each.
    :ivar tagged: how many of the chosen jobs lose tags; ``waiting`` of those wait for a group, and
        are buried.
    """

    source: Source
    jobs: list[Waiting]
    tubes: dict[int, bytes]
    pauses: dict[bytes, StoredPause]
    now_ns: int
    unusable: Mapping[bytes, int]
    tagged: int = 0
    waiting: int = 0

    def job(self, each: Waiting) -> StoredJob:
        """
        A job as a server has it after a start, without its body.
        """
        return without_group(released(promoted(stored(each.live, self.tubes), self.now_ns)))


def plan(source: Source, selection: Selection, now_ns: int) -> Plan:
    """
    The jobs of a log that are chosen.

    :raise BinlogError: a server would refuse the log.
    """
    live = sound_snapshot(source).live
    now_ns = max(now_ns, live.time_ns)
    found: list[Waiting] = []
    unusable: Counter[bytes] = Counter()
    buried: list[tuple[int, Waiting]] = []
    tagged = waiting = 0
    for job_id, each in sorted(live.jobs.items()):
        job = released(promoted(stored(each, live.tubes), now_ns))
        if not selection.has_job(job):
            continue
        if not is_tube_name(job.tube):
            unusable[job.tube] += 1
            continue
        tagged += job.tags is not None
        waiting += job.deadline_ns == NEVER_NS
        if without_group(job).state is State.BURIED:
            buried.append((job.deadline_ns, Waiting(job_id, True, each)))
        else:
            found.append(Waiting(job_id, False, each))
    found += [each for _, each in sorted(buried, key=lambda pair: (pair[0], pair[1].job_id))]
    pauses = {pause.tube: pause for pause in live.pauses_at(now_ns)}
    return Plan(source, found, live.tubes, pauses, now_ns, unusable, tagged, waiting)


class Putter:
    """
    Puts the jobs of a plan.
    """

    def __init__(
        self, line: Line, journal: Journal, now_ns: Callable[[], int],
        sleep: Callable[[float], None], rate: float | None = None,
    ) -> None:  # fmt: skip
        """
        :param rate: jobs in a second, at most.
        """
        self._line = line
        self._journal = journal
        self._now_ns = now_ns
        self._sleep = sleep
        self._rate = rate
        self._tube = b"default"
        self._paused: set[bytes] = set()
        self._put = self._buried = 0
        self._not_buried: list[int] = []
        self._refused: list[Refused] = []

    def run(
        self, wanted: Plan, should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Put:  # fmt: skip
        """
        Put all jobs that are not there yet.

        :param should_stop: asked between two windows.
        :raise Stopped: the server takes no more, or we were asked to stop.
        :raise OSError: the server is gone.
        """
        journal = self._journal
        if any(each.is_buried for each in wanted.jobs):
            self._refuse_unable()
        known = journal.done.keys() | journal.skipped
        left = [each for each in wanted.jobs if each.job_id not in known]
        total, before = len(wanted.jobs), len(wanted.jobs) - len(left)
        self._bury([(each, journal.unburied[each.job_id]) for each in wanted.jobs
                    if each.job_id in journal.unburied])  # fmt: skip
        bodies = Bodies(wanted.source)
        started_ns, done = self._now_ns(), 0
        try:
            for window in _windows(left, self._window_jobs()):
                if should_stop():
                    raise Stopped(f"{before + done} of {total} jobs are there")
                self._put_window(wanted, window, bodies)
                done += len(window)
                progress(before + done, total)
                self._keep_pace(started_ns, done)
        finally:
            journal.sync()
        return Put(self._put, before, self._buried, self._refused, self._not_buried)

    def _refuse_unable(self) -> None:
        """
        A server without `reserve-job` cannot bury a job of ours for certain.
        """
        self._line.send(b"reserve-job 0\r\n")
        answer = self._line.reply()
        if answer.name == b"UNKNOWN_COMMAND":
            raise Stopped(
                "this server does not know reserve-job, so buried jobs cannot be buried again; "
                "leave them out with --state ready --state delayed. Nothing was put."
            )

    def _window_jobs(self) -> int:
        return WINDOW_JOBS if self._rate is None else max(1, min(WINDOW_JOBS, int(self._rate / 10)))

    def _keep_pace(self, started_ns: int, done: int) -> None:
        if self._rate is None:
            return
        ahead = done / self._rate - (self._now_ns() - started_ns) / NS
        if ahead > 0:
            self._sleep(ahead)

    def _put_window(self, wanted: Plan, window: Sequence[Waiting], bodies: Bodies) -> None:
        self._journal.note({"sent": [each.job_id for each in window]})
        request: list[bytes] = []
        expected: list[Waiting | None] = []
        for each in window:
            job = wanted.job(each)
            for command in self._tube_commands(job.tube, wanted.pauses):
                request.append(command)
                expected.append(None)
            request.append(self._put_command(job, bodies.of(each.live)))
            expected.append(each)
        self._line.send(b"".join(request))
        self._hear(expected)

    def _tube_commands(self, tube: bytes, pauses: dict[bytes, StoredPause]) -> Iterator[bytes]:
        if tube != self._tube:
            yield tube_request(b"use", tube)
            self._tube = tube
        pause = pauses.get(tube)
        if pause is not None and tube not in self._paused:
            # The tube is there as long as we use it.
            self._paused.add(tube)
            seconds = -(-(pause.until_ns - self._now_ns()) // NS)
            if seconds > 0:
                yield tube_request(b"pause-tube", tube, seconds)

    def _put_command(self, job: StoredJob, body: bytes) -> bytes:
        delay = 0
        if job.state is State.BURIED:
            delay = GUARD_S
        elif job.state is State.DELAYED:
            delay = max(0, -(-(job.deadline_ns - self._now_ns()) // NS))
        head = b"put %d %d %d %d\r\n" % (job.priority, delay, job.ttr_s, len(body))
        return b"".join((head, body, b"\r\n"))

    def _hear(self, expected: Sequence[Waiting | None]) -> None:
        """
        All replies of a window are read, and what they say is written down, before anything else.
        """
        notes: list[dict[str, Any]] = []
        to_bury: list[tuple[Waiting, int]] = []
        why = ""
        try:
            for each in expected:
                reply = self._line.reply()
                if each is None:
                    why = why or ("" if reply.name in (b"USING", b"PAUSED") else str(reply))
                else:
                    why = self._hear_put(each, reply, notes, to_bury) or why
        finally:
            if notes:
                self._journal.note_answers(*notes)
        self._bury(to_bury)
        if why:
            raise Stopped(f"the server says {why}; run again when it takes jobs")

    def _hear_put(
        self, each: Waiting, reply: Reply, notes: list[dict[str, Any]],
        to_bury: list[tuple[Waiting, int]],
    ) -> str:  # fmt: skip
        """
        :return: why no more jobs can be put, or an empty string.
        """
        job_id = each.job_id
        if reply.name in (b"INSERTED", b"BURIED") and len(reply.words) == 2:
            new_id = int(reply.words[1])
            more = {"to_bury": True} if each.is_buried else {}
            notes.append({"put": job_id, "as": new_id, **more})
            self._put += 1
            if each.is_buried:
                to_bury.append((each, new_id))
            return ""
        if reply.name == b"JOB_TOO_BIG":
            notes.append({"refused": job_id, "why": str(reply)})
            self._refused.append(Refused(job_id, str(reply)))
            return ""
        notes.append({"again": [job_id]})
        return str(reply)

    def _bury(self, jobs: Sequence[tuple[Waiting, int]]) -> None:
        for at in range(0, len(jobs), WINDOW_JOBS):
            self._bury_window(jobs[at : at + WINDOW_JOBS])

    def _bury_window(self, jobs: Sequence[tuple[Waiting, int]]) -> None:
        request = [
            b"reserve-job %d\r\nbury %d %d\r\n" % (new_id, new_id, _priority(each.live))
            for each, new_id in jobs
        ]
        self._line.send(b"".join(request))
        notes: list[dict[str, Any]] = []
        try:
            for each, _ in jobs:
                self._line.reply()
                if self._line.reply().name == b"BURIED":
                    self._buried += 1
                else:
                    self._not_buried.append(each.job_id)
                notes.append({"buried": each.job_id})
        finally:
            if notes:
                self._journal.note_answers(*notes)


def _windows(jobs: Sequence[Waiting], most: int) -> Iterator[Sequence[Waiting]]:
    start = size = 0
    for at, each in enumerate(jobs):
        own = RECORD_BYTES + each.live.size
        if at > start and (size + own > WINDOW_BYTES or at - start >= most):
            yield jobs[start:at]
            start, size = at, 0
        size += own
    if start < len(jobs):
        yield jobs[start:]


def _priority(live: LiveJob) -> int:
    return int(RECORD.unpack(live.record)[4])
