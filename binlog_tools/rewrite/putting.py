"""Putting the jobs of a log into a running server of the protocol, ours or beanstalkd."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TextIO

from beanstalk_twisted.binlog.records.others import PRIORITY
from beanstalk_twisted.binlog.segments.format import RECORD, RECORD_BYTES
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import Answer
from beanstalk_twisted.client.commands.specs import PUT_TAGGED, Inserted
from beanstalk_twisted.client.commands.tags import words_of
from beanstalk_twisted.client.sync import Client, Pipeline
from binlog_tools.console.streams import naming
from binlog_tools.logs.live_set import Bodies
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredPause
from binlog_tools.rewrite.put_plans import Plan, Waiting

WINDOW_JOBS: Final = 64
"""Jobs on their way at once: one turn of the server for many, and few that can be uncertain."""

WINDOW_BYTES: Final = 1 << 20
"""Bytes on their way at once, but for one larger job."""

GUARD_S: Final = 86_400
"""The delay under which a buried job waits to be buried: nobody gets it, should we end before."""

VERSION: Final = 1


class Stopped(Exception):
    """It did not come to its end; run again, it goes on from there."""


class Refused(NamedTuple):
    job_id: int
    why: str


class Put(NamedTuple):
    """:ivar before: jobs that an earlier run had put.
    :ivar not_buried: jobs that were put, but taken by somebody before they were buried.
    """

    put: int
    before: int
    buried: int
    refused: list[Refused]
    not_buried: list[int]


class Journal:
    """Which jobs are about to be sent, and then what the server answered: only what was sent and
    not answered is uncertain after a crash.

    :ivar done: the new id of each job that is there.
    :ivar unburied: of those, buried ones that are not buried yet.
    :ivar held: of those, jobs that were buried because one of the group that they wait for was
        refused.
    :ivar uncertain: jobs that were sent, and for which no answer was written down; ``repeated``
        those of an earlier run that are to be sent again.
    """

    def __init__(self, path: str, store_uuid: str, target: str) -> None:
        """:raise Stopped: it is the journal of another log or another server."""
        self.path = path
        self.done: dict[int, int] = {}
        self.unburied: dict[int, int] = {}
        self.held: set[int] = set()
        self.skipped: set[int] = set()
        self.uncertain: set[int] = set()
        self.repeated: set[int] = set()
        self._head = {"v": VERSION, "kind": "journal", "store_uuid": store_uuid, "to": target}
        self._file: TextIO | None = None
        self._read()

    def _read(self) -> None:
        """A last line without an end was being written when the process ended."""
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
                f"{self.path} is not the journal of these jobs and this server; "
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
            if document.get("held", False):
                self.held.add(job_id)
        elif "buried" in document:
            self.unburied.pop(document["buried"], None)
        elif "refused" in document:
            self.uncertain.discard(document["refused"])
        elif "skipped" in document:
            self.uncertain.difference_update(document["skipped"])
            self.skipped.update(document["skipped"])
        elif "again" in document:
            self.uncertain.difference_update(document["again"])
            if document.get("may_be_there", False):
                self.repeated.update(document["again"])
        else:
            raise ValueError

    def note(self, *documents: dict[str, Any]) -> None:
        self.note_answers(*documents)
        self.sync()

    def note_answers(self, *documents: dict[str, Any]) -> None:
        """After a power loss before the next `note`, their jobs may be uncertain."""
        with naming(self.path):
            if self._file is None:
                # From the first note on: a run that has sent nothing leaves none.
                self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
                if not self._file.tell():
                    self._file.write(json.dumps(self._head) + "\n")
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


class Putter:
    """Buried jobs are put with a delay, so that no worker gets them, reserved by id and buried."""

    def __init__(
        self, client: Client, journal: Journal, now_ns: Callable[[], int],
        sleep: Callable[[float], None], rate: float | None = None,
    ) -> None:  # fmt: skip
        """:param rate: jobs in a second, at most."""
        self._client = client
        self._journal = journal
        self._now_ns = now_ns
        self._sleep = sleep
        self._rate = rate
        self._tube = b"default"
        self._paused: set[bytes] = set()
        self._put = self._buried = self._found = 0
        self._held_groups: set[bytes] = set()
        self._not_buried: list[int] = []
        self._refused: list[Refused] = []

    def run(
        self, wanted: Plan, should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Put:  # fmt: skip
        """Put all jobs that are not there yet.

        :param should_stop: asked between two windows.
        :raise Stopped: the server takes no more, or we were asked to stop.
        :raise ClientError: the server is gone.
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
            rate = self._rate
            most = WINDOW_JOBS if rate is None else max(1, min(WINDOW_JOBS, int(rate / 10)))
            for window in _windows(left, most):
                if should_stop():
                    raise Stopped(f"{before + done} of {total} jobs are there")
                self._put_window(wanted, window, bodies)
                done += len(window)
                progress(before + done, total)
                self._keep_pace(started_ns, done)
        finally:
            journal.sync()
        before += self._found
        return Put(self._put, before, self._buried, self._refused, self._not_buried)

    def _refuse_unable(self) -> None:
        """A server without `reserve-job` cannot bury a job of ours for certain."""
        try:
            self._client.reserve_job(0)
        except errors.UnknownCommand:
            raise Stopped(
                "this server does not know reserve-job, so buried jobs cannot be buried again; "
                "leave them out with --state ready --state delayed. Nothing was put."
            ) from None
        except errors.ErrorReply:
            return

    def _keep_pace(self, started_ns: int, done: int) -> None:
        if self._rate is None:
            return
        ahead = done / self._rate - (self._now_ns() - started_ns) / NS
        if ahead > 0:
            self._sleep(ahead)

    def _put_window(self, wanted: Plan, window: Sequence[Waiting], bodies: Bodies) -> None:
        self._journal.note({"sent": [each.job_id for each in window]})
        pipe = Pipeline(self._client)
        expected: list[tuple[Waiting | None, Answer[object]]] = []
        for chosen in window:
            # It must not go too early if a job of the group that it waits for was refused.
            is_held = chosen.after in self._held_groups
            each = chosen._replace(is_buried=True) if is_held else chosen
            for asked in self._tube_commands(pipe, wanted.tube(each), wanted.pauses):
                expected.append((None, asked))
            expected.append((each, self._put_one(pipe, wanted, each, bodies.of(each.live))))
        self._hear(expected)

    def _tube_commands(
        self, pipe: Pipeline, tube: bytes, pauses: dict[bytes, StoredPause]
    ) -> Iterator[Answer[object]]:
        if tube != self._tube:
            yield pipe.use(tube)
            self._tube = tube
        pause = pauses.get(tube)
        if pause is not None and tube not in self._paused:
            # The tube is there as long as we use it.
            self._paused.add(tube)
            seconds = -(-(pause.until_ns - self._now_ns()) // NS)
            if seconds > 0:
                yield pipe.pause_tube(tube, seconds)

    def _put_one(
        self, pipe: Pipeline, wanted: Plan, each: Waiting, body: bytes
    ) -> Answer[Inserted]:
        job, tags = wanted.job(each), wanted.tags(each)
        delay = GUARD_S if each.is_buried else wanted.delay_s(each, self._now_ns())
        if not words_of(tags):
            return pipe.put(body, priority=job.priority, delay=delay, ttr=job.ttr_s)
        values = (job.priority, delay, job.ttr_s, len(body), tags)
        return pipe.send(PUT_TAGGED, values, body)

    def _hear(self, expected: Sequence[tuple[Waiting | None, Answer[Any]]]) -> None:
        """Read and note all replies of a window before anything else."""
        notes: list[dict[str, Any]] = []
        to_bury: list[tuple[Waiting, int]] = []
        why = ""
        try:
            for each, answer in expected:
                problem = answer.error
                if problem is not None and not isinstance(problem, errors.ErrorReply):
                    raise problem
                if each is not None:
                    why = self._hear_put(each, answer, problem, notes, to_bury) or why
                elif problem is not None:
                    why = why or problem.word.decode()
        finally:
            if notes:
                self._journal.note_answers(*notes)
        self._bury(to_bury)
        if why:
            raise Stopped(f"the server says {why}; run again when it takes jobs")

    def _hear_put(
        self, each: Waiting, answer: Answer[Inserted], problem: errors.ErrorReply | None,
        notes: list[dict[str, Any]], to_bury: list[tuple[Waiting, int]],
    ) -> str:  # fmt: skip
        """:return: why no more jobs can be put, or an empty string."""
        if problem is None and not answer.result.is_new:
            self._hear_there(each, answer.result, notes, to_bury)
        elif problem is None or isinstance(problem, errors.Buried):
            new = answer.result if problem is None else problem.job_id
            assert new is not None
            self._note_put(each, int(new), notes, to_bury)
            self._put += 1
        elif isinstance(problem, errors.JobTooBig):
            self._refuse(each, problem.word.decode(), notes)
        else:
            notes.append({"again": [each.job_id]})
            return problem.word.decode()
        return ""

    def _hear_there(
        self, each: Waiting, there: Inserted, notes: list[dict[str, Any]],
        to_bury: list[tuple[Waiting, int]],
    ) -> None:  # fmt: skip
        """A job with the unique key is there: this one, if it was sent before without an answer."""
        if each.job_id in self._journal.repeated:
            moved = each._replace(is_buried=each.is_buried and there.state == "delayed")
            self._note_put(moved, int(there), notes, to_bury)
            self._found += 1
        else:
            why = f"job {there} of the server has its unique key ({there.state})"
            self._refuse(each, why, notes)

    def _note_put(
        self, each: Waiting, new_id: int, notes: list[dict[str, Any]],
        to_bury: list[tuple[Waiting, int]],
    ) -> None:  # fmt: skip
        more = {"to_bury": True} if each.is_buried else {}
        if each.is_buried and each.after:
            more["held"] = True
        notes.append({"put": each.job_id, "as": new_id, **more})
        if each.is_buried:
            to_bury.append((each, new_id))

    def _refuse(self, each: Waiting, why: str, notes: list[dict[str, Any]]) -> None:
        notes.append({"refused": each.job_id, "why": why})
        self._refused.append(Refused(each.job_id, why))
        if each.group:
            self._held_groups.add(each.group)

    def _bury(self, jobs: Sequence[tuple[Waiting, int]]) -> None:
        for at in range(0, len(jobs), WINDOW_JOBS):
            self._bury_window(jobs[at : at + WINDOW_JOBS])

    def _bury_window(self, jobs: Sequence[tuple[Waiting, int]]) -> None:
        pipe = Pipeline(self._client)
        asked = []
        for each, new_id in jobs:
            pipe.reserve_job(new_id)
            priority = RECORD.unpack(each.live.record)[PRIORITY]
            asked.append(pipe.bury(new_id, priority=priority))
        notes: list[dict[str, Any]] = []
        try:
            for (each, _), buried in zip(jobs, asked, strict=True):
                if buried.error is None:
                    self._buried += 1
                elif isinstance(buried.error, errors.ErrorReply):
                    self._not_buried.append(each.job_id)
                else:
                    raise buried.error
                notes.append({"buried": each.job_id})
        finally:
            if notes:
                self._journal.note_answers(*notes)


def _windows(jobs: Sequence[Waiting], most: int) -> Iterator[Sequence[Waiting]]:
    """None goes with a job of its awaited group: whether that was put must be known first."""
    start = size = 0
    groups: set[bytes] = set()
    for at, each in enumerate(jobs):
        own = RECORD_BYTES + each.live.size
        is_full = size + own > WINDOW_BYTES or at - start >= most
        if at > start and (is_full or each.after in groups):
            yield jobs[start:at]
            start, size = at, 0
            groups.clear()
        size += own
        if each.group:
            groups.add(each.group)
    if start < len(jobs):
        yield jobs[start:]
