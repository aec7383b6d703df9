"""Putting jobs that are read from JSON lines, each one once, also over a crash."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, State
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.calls import Answer
from beanstalk_twisted.client.commands.specs import Inserted
from beanstalk_twisted.client.commands.tags import NewJob, Tags
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredJob
from binlog_tools.rewrite.exporting import LineFields, WrongLine, documents, read_job
from binlog_tools.rewrite.put_plans import MARKS, WORDS
from binlog_tools.rewrite.putting import GUARD_S, Journal, Stopped

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

T = TypeVar("T")

BATCH: Final = 500
"""Jobs that are put at once; without a journal, as many are in doubt when a run breaks off."""

BATCH_BYTES: Final = 4 << 20
"""Bytes of bodies that are put at once, unless one job has more."""

REMEMBERED_S: Final = 7 * 86_400
"""How long the server knows a batch that it was sent: a week to run a broken import again."""

KEYED: Final = "put-batch idp:"
"""What a server announces that puts a batch with a key once, however often it is sent."""


class Line(NamedTuple):
    """A job to put, and the number of its line."""

    number: int
    job: StoredJob


class Refusal(NamedTuple):
    line: int
    why: str


def jobs_of(
    file: Iterable[bytes], tube: bytes | None, now_ns: int, passed: Counter[str]
) -> Iterator[Line]:
    """Read the jobs of an export.

    :param tube: where to put them instead.
    :param passed: counts what is passed over: lines of other kinds, and unknown fields.
    :raise WrongLine: a line cannot be understood.
    """
    for number, document in documents(file, passed):
        kind = document.get("kind", "job")
        if kind in ("log", "pause", "policy", "key"):
            passed[f"line of kind {kind}"] += 1
        elif kind != "job":
            raise WrongLine(number, f"kind {kind!r} is unknown")
        else:
            job = read_job(LineFields(number, document), number, now_ns)
            yield Line(number, job._replace(tube=tube or job.tube))


class Importer:
    """Puts jobs in the order of their lines.

    A batch has a key, made of the file and its first line, so that a server that knows such keys
    puts it once.  Jobs with unique keys of their own need none, and go one by one.

    :ivar lost: how many jobs were put without a tag or mark, by its name.
    :ivar sent: the first and last line of the last batch, until all of it is answered.
    :ivar waiting: jobs that are buried, since there is no job of the group that they wait for.
    """

    def __init__(
        self, client: "Client", run: str, journal: Journal | None, now_ns: Callable[[], int]
    ) -> None:
        """:param run: names the file that is imported, or this run."""
        self.put = self.before = self.buried = self.waiting = 0
        self.refused: list[Refusal] = []
        self.not_buried: list[int] = []
        self.lost: Counter[str] = Counter()
        self.sent: tuple[int, int] | None = None
        self._client = client
        self._run = hashlib.sha256(run.encode()).hexdigest()[:32]
        self._journal = journal
        self._now_ns = now_ns
        self._words = client.probe()
        self._groups: dict[bytes, bool] = {}
        self._may_bury: bool | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether what was sent and not answered may be sent again: it is put once."""
        return KEYED in self._words

    def run(
        self, lines: Iterable[Line], should_stop: Callable[[], bool],
        pace: Callable[[int], object] = lambda done: None,
    ) -> None:  # fmt: skip
        """:param pace: called with the number of jobs that are done, after each batch.
        :raise Stopped: the server takes no more, or we were asked to stop.
        :raise ClientError: the server is gone, or has refused the whole.
        """
        done = 0
        for batch in self._batches(self._left(lines)):
            if should_stop():
                raise Stopped("it was interrupted")
            self._put_batch(batch)
            done += len(batch)
            pace(done)

    def _batches(self, lines: Iterable[Line]) -> Iterator[Sequence[Line]]:
        """Divide the jobs by tube and kind; what was sent together is sent together again."""
        sent = set() if self._journal is None else self._journal.repeated
        batch: list[Line] = []
        kind: object = None
        size = 0
        for line in lines:
            tags = line.job.tags
            own = (
                line.job.tube, line.number in sent, bool(tags and tags.holds_key),
                tags.after if line.job.deadline_ns == NEVER_NS and tags else b"",
            )  # fmt: skip
            body = len(line.job.body)
            if batch and (own != kind or len(batch) == BATCH or size + body > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            kind = own
            batch.append(line)
            size += body
        if batch:
            yield batch

    def _left(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Leave out what an earlier run has put, and bury of it what it has not buried."""
        journal = self._journal
        for line in lines:
            if journal is not None and line.number in journal.unburied:
                self._bury([(line, journal.unburied[line.number])])
            if journal is None or not (
                line.number in journal.done or line.number in journal.skipped
            ):
                yield line
            else:
                self.before += 1

    def _put_batch(self, batch: Sequence[Line]) -> None:
        buries = {line.number: self._is_buried(line.job) for line in batch}
        if any(buries.values()):
            self._need_bury()
        jobs = [self._new_job(line.job, is_buried=buries[line.number]) for line in batch]
        self._note({"sent": [line.number for line in batch]})
        self.sent = batch[0].number, batch[-1].number
        was_sent = self._journal is not None and batch[0].number in self._journal.repeated
        tube = batch[0].job.tube
        notes: list[dict[str, Any]] = []
        to_bury: list[tuple[Line, int]] = []
        problem: errors.ClientError | None = None
        for line, outcome in zip(batch, self._outcomes(tube, batch, jobs), strict=True):
            number = line.number
            if isinstance(outcome, errors.JobTooBig):
                self._refuse(number, str(outcome), notes)
            elif isinstance(outcome, errors.ErrorReply):
                problem = problem or outcome
                notes.append({"again": [number]})
            elif isinstance(outcome, errors.ClientError):
                problem = problem or outcome
                if not outcome.may_be_done:
                    notes.append({"again": [number]})
            else:
                has_key = bool(line.job.tags and line.job.tags.holds_key)
                if has_key and not outcome.is_new and not was_sent:
                    why = f"job {int(outcome)} of the server has its unique key"
                    self._refuse(number, why, notes)
                    continue
                # A job that was put by an earlier run may have been kicked, or taken, meanwhile.
                is_ours = outcome.is_new or not has_key or outcome.state == "delayed"
                more = {"to_bury": True} if buries[number] and is_ours else {}
                notes.append({"put": number, "as": int(outcome), **more})
                self.put += 1
                if more:
                    to_bury.append((line, int(outcome)))
        if notes:
            self._note(*notes)
        self._bury(to_bury)
        if problem is not None:
            raise problem
        self.sent = None
        if self.is_repeatable:
            self._forget(tube, batch)

    def _outcomes(
        self, tube: bytes, batch: Sequence[Line], jobs: Sequence[NewJob]
    ) -> Sequence[Inserted | errors.ClientError]:
        """Put the jobs, and return for each its id, or why it was not put."""
        if self.is_repeatable and not any(line.job.tags and line.job.tags.holds_key
                                          for line in batch):  # fmt: skip
            key = self._key(batch)
            try:
                return self._client.put_batch(
                    jobs, tube=tube, unique=key, unique_seconds=REMEMBERED_S
                )
            except errors.JobTooBig:
                pass  # Which one is found out one by one.
            except errors.ClientError as problem:
                return [problem] * len(batch)
        try:
            with self._client.pipeline() as pipeline:
                answers = [
                    pipeline.put(each.body, tube=tube, priority=each.priority or 0,
                                 delay=each.delay or 0, ttr=each.ttr or 1, tags=each.tags)
                    for each in jobs
                ]  # fmt: skip
                return [_outcome(answer) for answer in answers]
        except errors.ClientError as problem:
            return [problem] * len(batch)

    def _key(self, batch: Sequence[Line]) -> str:
        return f"import-{self._run}-{batch[0].number}"

    def _forget(self, tube: bytes, batch: Sequence[Line]) -> None:
        """Let the server forget the key, now that the journal knows that the batch was put."""
        with suppress(errors.ErrorReply):
            self._client.forget_key(tube, self._key(batch))

    def _new_job(self, job: StoredJob, *, is_buried: bool) -> NewJob:
        left_s = -(-(job.deadline_ns - self._now_ns()) // NS) if job.state is State.DELAYED else 0
        if job.deadline_ns == NEVER_NS:
            left_s = 0
        delay = GUARD_S if is_buried else max(0, left_s)
        return NewJob(job.body, job.priority, delay, job.ttr_s, self._tags(job))

    def _tags(self, job: StoredJob) -> Tags | None:
        """Give the tags that the server announces; a group that was waited for is over."""
        tags = job.tags
        if tags is None:
            return None
        waits = job.deadline_ns == NEVER_NS and self._has_jobs(tags.after)
        own = tags._replace(
            unique_key=tags.unique_key if tags.holds_key else b"",
            after=tags.after if waits else b"",
        )
        for name, mark in MARKS.items():
            self.lost[mark] += bool(getattr(tags, name))
        for name, word in WORDS.items():
            if getattr(own, name) and f"put {word}" not in self._words:
                self.lost[word] += 1
                own = own._replace(**{name: b""})  # type: ignore[arg-type]
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
        if job.deadline_ns == NEVER_NS and not (job.tags and self._has_jobs(job.tags.after)):
            # It must not go before the jobs that it waits for.
            self.waiting += 1
            return True
        return job.state is State.BURIED

    def _has_jobs(self, group: bytes) -> bool:
        """Ask once whether a group has jobs on the server."""
        if group not in self._groups:
            has_words = {"stats-group", "put grp:", "put aft:"} <= self._words
            self._groups[group] = False
            with suppress(errors.NotFound):
                self._groups[group] = has_words and self._client.stats_group(group).pending > 0
        return self._groups[group]

    def _need_bury(self) -> None:
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
                "buried ones: beanstalk export --state ready --state delayed"
            )

    def _bury(self, jobs: Sequence[tuple[Line, int]]) -> None:
        """Bury jobs in their order, and give them the delay that they had."""
        if not jobs:
            return
        updates = "update-job" in self._words
        failed: list[bool] = []
        with self._client.pipeline() as pipeline:
            asked: list[list[Answer[Any]]] = []
            for (_, job), new in jobs:
                asked.append([pipeline.reserve_job(new), pipeline.bury(new, priority=job.priority)])
                if updates:
                    update = pipeline.update_job(new, job.priority, job.delay_s, job.ttr_s)
                    asked[-1].append(update)
            for answers in asked:
                outcomes = [_outcome(answer) for answer in answers]
                failed.append(any(isinstance(each, errors.ClientError) for each in outcomes))
        notes = []
        for (line, _), is_failed in zip(jobs, failed, strict=True):
            notes.append({"buried": line.number})
            if is_failed:
                self.not_buried.append(line.number)
            else:
                self.buried += 1
        self._note(*notes)

    def _refuse(self, number: int, why: str, notes: list[dict[str, Any]]) -> None:
        notes.append({"refused": number, "why": why})
        self.refused.append(Refusal(number, why))

    def _note(self, *documents: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.note(*documents)


def _outcome(answer: Answer[T]) -> T | errors.ClientError:
    try:
        return answer.result
    except errors.ClientError as problem:
        return problem
