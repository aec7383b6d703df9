"""Putting jobs into a running server of the protocol, ours or beanstalkd, each one once."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, State
from beanstalk_twisted.binlog.records.others import Pause
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import Answer
from beanstalk_twisted.client.commands.specs import Inserted
from beanstalk_twisted.client.commands.tags import NewJob, Tags
from beanstalk_twisted.client.sync import Client, Pipeline
from binlog_tools.logs.live_set import Bodies
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredJob
from binlog_tools.rewrite.journals import Journal, Stopped
from binlog_tools.rewrite.put_plans import Plan, announced, delay_left_s, lost_of

WINDOW_JOBS: Final = 64
"""Jobs on their way to a server that cannot recognize a batch: few, as they can be uncertain."""

BATCH_JOBS: Final = 500
"""Jobs on their way to a server that can; larger batches are hardly quicker."""

WINDOW_BYTES: Final = 4 << 20
"""Bytes of bodies on their way at once, unless one job has more."""

REMEMBERED_S: Final = 7 * 86_400
"""How long the server knows a batch that it was sent: a week to run what broke off again."""

GUARD_S: Final = 86_400
"""The delay under which a buried job waits to be buried: no worker gets it if we end before."""

NOT_BURIED: Final = (
    "it was taken, or as many jobs with its concurrency key are reserved as may be; if it is "
    f"there, it is ready in {GUARD_S // 3600} hours"
)
"""Why a job is not buried, and what becomes of it."""

KEYED: Final = "put-batch idp:"
"""What a server announces that puts a batch with a key once, however often it is sent."""


class Numbered(NamedTuple):
    """A job to put, and its number in the journal: that of its line, or its id in a log."""

    number: int
    job: StoredJob


class Refusal(NamedTuple):
    number: int
    why: str


class Putter:
    """Puts jobs in their order.

    Those of a tube go together, as a batch with a key, to a server that puts such a batch once.
    Jobs with unique keys of their own need none, and go one by one.  Buried jobs are put with a
    delay, so that no worker gets them, reserved by id and buried.

    :ivar before: how many an earlier run had put.
    :ivar lost: how many jobs were put without a tag or mark, by its name.
    :ivar sent: the first and last job of what was sent last, until all of it is answered.
    :ivar waiting: how many are buried, since there is no job of the group that they wait for.
    :ivar not_buried: jobs that were put, but taken by somebody before they were buried.
    :ivar knows_keys: whether the server puts a batch with a key once.
    """

    def __init__(
        self, client: Client, journal: Journal | None, now_ns: Callable[[], int],
        sleep: Callable[[float], object], rate: float | None = None,
        pauses: Mapping[bytes, Pause] | None = None, groups: Iterable[bytes] = (),
    ) -> None:  # fmt: skip
        """:param rate: jobs in a second, at most.
        :param pauses: of tubes, to be paused before their first job.
        :param groups: those whose jobs come before the jobs that wait for them.
        """
        self.put = self.before = self.buried = self.waiting = 0
        self.refused: list[Refusal] = []
        self.not_buried: list[int] = []
        self.lost: Counter[str] = Counter()
        self.sent: tuple[int, int] | None = None
        self._client = client
        self._journal = journal
        self._run = os.urandom(16).hex() if journal is None else journal.run
        self._now_ns = now_ns
        self._sleep = sleep
        self._rate = rate
        self._pauses = dict(pauses or {})
        self._words = client.probe()
        self.knows_keys = KEYED in self._words
        self._repeated = journal.repeated if journal else {}
        self._groups = dict.fromkeys(groups, True)
        self._may_bury: bool | None = None
        self._answered: list[tuple[bytes, str]] = []

    def run(
        self, jobs: Iterable[Numbered], should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[int], object] = lambda done: None,
    ) -> None:  # fmt: skip
        """:param should_stop: asked between two windows.
        :param report: called with the number of jobs that are done, after each window.
        :raise Stopped: we were asked to stop, or the server cannot do what is needed.
        :raise ClientError: the server is gone, or takes no more.
        """
        started_ns, done = self._now_ns(), 0
        try:
            for window in self._windows(self._left(jobs)):
                if should_stop():
                    self._end()
                    raise Stopped("it was interrupted")
                self._put_window(window)
                done += len(window)
                report(done)
                if self._rate is not None:
                    self._sleep(max(0.0, done / self._rate - (self._now_ns() - started_ns) / NS))
            self._end()
        finally:
            if self._journal is not None:
                self._journal.sync()

    def _end(self) -> None:
        """Let the server forget the last keys too."""
        if self._journal is not None:
            self._journal.sync()
        pipe = Pipeline(self._client)
        self._forget(pipe)
        with suppress(errors.ClientError):
            pipe.wait()

    def _left(self, jobs: Iterable[Numbered]) -> Iterator[Numbered]:
        """Leave out what an earlier run has put, and bury of it what it has not buried."""
        journal = self._journal
        for each in jobs:
            number = each.number
            is_known = journal and (number in journal.done or number in journal.skipped)
            if not journal or not is_known or self._repeated.get(number):
                yield each
                continue
            self.before += 1
            if number in journal.unburied:
                self.need_bury()
                self._bury([(each, journal.unburied[number])])
            self.waiting += each.job.deadline_ns == NEVER_NS and number in journal.held

    def _windows(self, jobs: Iterable[Numbered]) -> Iterator[Sequence[Numbered]]:
        """Divide jobs into what is on its way at once.  None goes with a job of the group that it
        waits for: whether that was put must be known first.  A batch is repeated as it was sent.
        """
        most = BATCH_JOBS if self.knows_keys else WINDOW_JOBS
        if self._rate is not None:
            most = max(1, min(most, int(self._rate / 10)))
        mates: defaultdict[int, list[Numbered]] = defaultdict(list)
        window: list[Numbered] = []
        groups: set[bytes] = set()
        size = 0
        for each in jobs:
            batch = self._repeated.get(each.number, [])
            if batch:
                same = mates[batch[0]]
                same.append(each)
                if len(same) == len(batch):
                    if window:
                        yield window
                        window, size = [], 0
                        groups.clear()
                    order = {number: at for at, number in enumerate(batch)}
                    yield sorted(mates.pop(batch[0]), key=lambda mate: order[mate.number])
                continue
            tags, body_bytes = each.job.tags, len(each.job.body)
            is_full = len(window) >= most or size + body_bytes > WINDOW_BYTES
            if window and (is_full or _awaited(each.job) in groups):
                yield window
                window, size = [], 0
                groups.clear()
            window.append(each)
            size += body_bytes
            if tags is not None and tags.group:
                groups.add(tags.group)
        if window:
            yield window
        if mates:
            first, *_ = mates.values()
            raise Stopped(
                f"job {first[0].number} was sent with others by an earlier run, whose answer was "
                "lost: run it once more with the options of that run"
            )

    def _put_window(self, window: Sequence[Numbered]) -> None:
        buried = {each.number for each in window if self._is_buried(each.job)}
        if buried:
            self.need_bury()
        batches: list[list[Numbered]] = []
        for each in window:
            mates = (batches[-1][-1].job, each.job) if batches else ()
            if mates and mates[0].tube == each.job.tube and all(map(self._is_batched, mates)):
                batches[-1].append(each)
            else:
                batches.append([each])
        too_big = self._send(batches, buried)
        if too_big:
            self._send([[each] for each in too_big], buried)

    def _is_batched(self, job: StoredJob) -> bool:
        return self.knows_keys and not (job.tags is not None and job.tags.holds_key)

    def _send(self, batches: Sequence[Sequence[Numbered]], buried: set[int]) -> Sequence[Numbered]:
        """Put batches, and return those jobs that were not put, as one of them was too big."""
        has_key = [self._is_batched(batch[0].job) for batch in batches]
        numbers = [[each.number for each in batch] for batch in batches]
        notes: list[dict[str, Any]] = []
        if self._journal is not None and self.knows_keys:
            self._journal.note(*({"sent": sent, "key": True} for sent in numbers))
        elif self._journal is not None:
            self._journal.note({"sent": [sent[0] for sent in numbers]})
        self.sent = numbers[0][0], numbers[-1][-1]
        pipe = Pipeline(self._client)
        self._forget(pipe)
        pauses: list[Answer[None]] = []
        asked: list[Answer[Any]] = []
        for batch, is_keyed in zip(batches, has_key, strict=True):
            tube = batch[0].job.tube
            pauses += self._pause(pipe, tube)
            jobs = [self._new_job(each.job, is_buried=each.number in buried) for each in batch]
            if is_keyed:
                key = self._key(batch)
                asked.append(
                    pipe.put_batch(jobs, tube=tube, unique=key, unique_seconds=REMEMBERED_S)
                )
            else:
                body, priority, delay, ttr, tags = jobs[0]
                asked.append(
                    pipe.put(
                        body, tube=tube, priority=priority or 0, delay=delay or 0, ttr=ttr or 1,
                        tags=tags,
                    )
                )  # fmt: skip
        to_bury: list[tuple[Numbered, int]] = []
        too_big: list[Numbered] = []
        problems = [each.error for each in pauses]
        for batch, sent, is_keyed, answer in zip(batches, numbers, has_key, asked, strict=True):
            problem = answer.error
            if problem is None:
                new_ids = answer.result if is_keyed else (answer.result,)
                for each, new_id in zip(batch, new_ids, strict=True):
                    self._hear(each, new_id, notes, to_bury if each.number in buried else None)
                if is_keyed:
                    self._answered.append((batch[0].job.tube, self._key(batch)))
            elif isinstance(problem, errors.Buried) and problem.job_id is not None:
                self._hear(batch[0], Inserted(problem.job_id), notes, None)
            elif isinstance(problem, errors.JobTooBig) and len(batch) > 1:
                notes.append({"again": sent})
                too_big += batch
            elif isinstance(problem, errors.JobTooBig):
                self._refuse(batch[0], problem.word.decode(), notes)
            else:
                problems.append(problem)
                is_certain = not getattr(problem, "may_be_done", False)
                if is_certain and sent[0] not in self._repeated:
                    notes.append({"again": sent})
        if notes and self._journal is not None:
            self._journal.note_answers(*notes)
        self._bury(to_bury)
        for problem in problems:
            if problem is not None:
                raise problem
        self.sent = None
        return too_big

    def _pause(self, pipe: Pipeline, tube: bytes) -> Iterator[Answer[None]]:
        """Pause a tube before its first job; it is there as long as we use it."""
        pause = self._pauses.pop(tube, None)
        seconds = 0 if pause is None else -(-(pause.until_ns - self._now_ns()) // NS)
        if seconds > 0:
            pipe.use(tube)
            yield pipe.pause_tube(tube, seconds)

    def _hear(
        self, each: Numbered, new: Inserted, notes: list[dict[str, Any]],
        to_bury: list[tuple[Numbered, int]] | None,
    ) -> None:  # fmt: skip
        """Note that a job is there: put now, or by a run whose answer was lost."""
        has_key = each.job.tags is not None and each.job.tags.holds_key
        if has_key and not new.is_new and each.number not in self._repeated:
            why = f"job {int(new)} of the server has its unique key ({new.state})"
            self._refuse(each, why, notes)
            return
        note: dict[str, Any] = {"put": each.number, "as": int(new)}
        # What an earlier run has put may have been kicked, or taken, meanwhile.
        if to_bury is not None and (new.is_new or new.state == "delayed"):
            note["to_bury"] = True
            to_bury.append((each, int(new)))
            if each.job.deadline_ns == NEVER_NS:
                note["held"] = True
                self.waiting += 1
        notes.append(note)
        self.lost.update(lost_of(each.job.tags, self._words))
        self.put += new.is_new
        self.before += not new.is_new

    def _refuse(self, each: Numbered, why: str, notes: list[dict[str, Any]]) -> None:
        notes.append({"refused": each.number, "why": why})
        self.refused.append(Refusal(each.number, why))
        if each.job.tags is not None and each.job.tags.group:
            # What waits for it must not go too early.
            self._groups[each.job.tags.group] = False

    def _key(self, batch: Sequence[Numbered]) -> str:
        return f"put-{self._run}-{batch[0].number}-{len(batch)}"

    def _forget(self, pipe: Pipeline) -> None:
        """Let the server forget keys, now that the journal knows that their batches were put."""
        for tube, key in self._answered if "forget-key" in self._words else ():
            pipe.forget_key(tube, key)
        self._answered.clear()

    def _new_job(self, job: StoredJob, *, is_buried: bool) -> NewJob:
        delay = GUARD_S if is_buried else delay_left_s(job, self._now_ns())
        return NewJob(job.body, job.priority, delay, job.ttr_s, self._tags(job))

    def _tags(self, job: StoredJob) -> Tags | None:
        if job.tags is None:
            return None
        waits = job.deadline_ns == NEVER_NS and self._has_jobs(job.tags.after)
        own = announced(job.tags, self._words, waits=waits)
        fields: dict[str, Any] = {}
        if own.unique_key:
            fields |= {"unique": own.unique_key, "unique_seconds": own.unique_s}
        if own.concurrency_key:
            limit = own.concurrency_limit or 1
            fields |= {"concurrency": own.concurrency_key, "concurrency_limit": limit}
        fields |= {name: value for name, value in (("group", own.group), ("after", own.after))
                   if value}  # fmt: skip
        if own.metadata:
            fields["metadata"] = unquote_to_bytes(own.metadata)
        return Tags(**fields) if fields else None

    def _is_buried(self, job: StoredJob) -> bool:
        """A job that waits for a group must not go before the jobs of that."""
        if job.deadline_ns == NEVER_NS:
            return not self._has_jobs(_awaited(job))
        return job.state is State.BURIED

    def _has_jobs(self, group: bytes) -> bool:
        """Ask once whether a group has jobs on the server."""
        if group not in self._groups:
            has_words = {"stats-group", "put grp:", "put aft:"} <= self._words
            self._groups[group] = False
            with suppress(errors.NotFound):
                self._groups[group] = (
                    bool(group) and has_words and self._client.stats_group(group).pending > 0
                )
        return self._groups[group]

    def need_bury(self) -> None:
        """:raise Stopped: a server without `reserve-job` cannot bury a job of ours for certain."""
        if self._may_bury is None:
            self._may_bury = True
            try:
                self._client.reserve_job(0)
            except errors.UnknownCommand:
                self._may_bury = False
            except errors.ErrorReply:
                pass
        if not self._may_bury:
            raise Stopped(
                "this server does not know reserve-job, so jobs cannot be buried; leave out the "
                "buried ones with --state ready --state delayed"
            )

    def _bury(self, jobs: Sequence[tuple[Numbered, int]]) -> None:
        """Bury jobs in their order, and give them the delay that they had."""
        pipe = Pipeline(self._client)
        asked: list[Answer[Any]] = []
        for (_, job), new in jobs:
            pipe.reserve_job(new)
            asked.append(pipe.bury(new, priority=job.priority))
            if "update-job" in self._words:
                pipe.update_job(new, job.priority, job.delay_s, job.ttr_s)
        notes = []
        try:
            for (each, _), answer in zip(jobs, asked, strict=True):
                if answer.error is None:
                    self.buried += 1
                    notes.append({"buried": each.number})
                elif isinstance(answer.error, errors.ErrorReply):
                    self.not_buried.append(each.number)
                else:
                    raise answer.error
        finally:
            if notes and self._journal is not None:
                self._journal.note_answers(*notes)


def planned_jobs(plan: Plan, journal: Journal) -> Iterator[Numbered]:
    """Give the jobs of a plan in order; a body is read if the job is not there yet."""
    bodies = Bodies(plan.source)
    known = journal.known - journal.repeated.keys()
    for each in plan.jobs:
        body = b"" if each.job_id in known else bodies.of(each.live)
        yield Numbered(each.job_id, plan.job(each, body))


def _awaited(job: StoredJob) -> bytes:
    return job.tags.after if job.tags is not None and job.deadline_ns == NEVER_NS else b""
