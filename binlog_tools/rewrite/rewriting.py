"""Making a log of other logs: compact, merge, filter.  Bodies pass through one at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES, decode_description
from binlog_tools.logs.loading import Loaded
from binlog_tools.logs.new_log import (
    Floors,
    NewLog,
    Origin,
    OriginSource,
    SharedKey,
    Written,
    origin_stores,
)
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.stored import StoredJob, StoredKey, StoredPolicy


class SameStore(ValueError):
    """Two of the logs are copies of one store, whose jobs would be there twice."""


class SameJobs(SameStore):
    """
    One of the logs was made from another one, or both from a third, and has jobs of the same ids.
    """


class Ages(NamedTuple):
    """How long ago a job was put, in nanoseconds; None is any."""

    older_than: int | None = None
    younger_than: int | None = None

    def has(self, job: StoredJob, now_ns: int) -> bool:
        age = now_ns - job.created_ns
        return (self.older_than is None or age > self.older_than) and (
            self.younger_than is None or age < self.younger_than
        )


ANY_AGE: Final = Ages()


class Choice(NamedTuple):
    """Which jobs are kept: the chosen ones, or with ``keeps_chosen`` false the others."""

    selection: Selection
    ages: Ages
    keeps_chosen: bool

    def keeps(self, job: StoredJob, now_ns: int) -> bool:
        is_chosen = self.selection.has_job(job) and self.ages.has(job, now_ns)
        return is_chosen is self.keeps_chosen


EVERYTHING: Final = Choice(Selection(), ANY_AGE, keeps_chosen=True)


class Outcome(NamedTuple):
    """The log that was made, and how many jobs were left out."""

    written: Written
    dropped: int


def rewrite(
    loaded: Loaded, output: str, tool: str, choice: Choice = EVERYTHING,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    notice: Callable[[StoredJob], None] = lambda job: None,
) -> Outcome:  # fmt: skip
    """
    Write the jobs of a log that stay into a new one.

    :param notice: hears of each job that is dropped.
    """
    origin = Origin(tool, [OriginSource.of(loaded.survey)])
    dropped = 0
    with NewLog(
        output, origin, floors=loaded.floors, pauses=loaded.pauses(),
        policies=loaded.policies(), segment_bytes=segment_bytes,
    ) as log:  # fmt: skip
        for job in loaded.jobs():
            if choice.keeps(job, loaded.now_ns):
                log.add(job)
            else:
                dropped += 1
                notice(job)
        log.add_keys(loaded.remembered_keys())
        return Outcome(log.finish(), dropped)


class Renumbered(NamedTuple):
    """A job that has another id in the merged log."""

    path: str
    job_id: int
    new_id: int


class OtherPolicy(NamedTuple):
    """A policy that is not in the merged log: the tube has another one, of a log named before."""

    path: str
    tube: bytes
    rules: Mapping[str, str]


class Merged(NamedTuple):
    """
    What `merge` made.

    :ivar shared_keys: jobs whose unique keys jobs of other logs have, in the merged one.
    :ivar policies: those that are not in it.
    """

    written: Written
    shared_keys: Sequence[SharedKey]
    policies: Sequence[OtherPolicy]


def merge(
    logs: Sequence[Loaded], output: str, segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    notice: Callable[[Renumbered], None] = lambda moved: None, accepts_copies: bool = False,
) -> Merged:  # fmt: skip
    """
    Write the jobs of several logs into one.  A job keeps its id if no log before has one of it;
    else it gets a new one, above all that were ever given.  Of two jobs of a tube with one unique
    key the first keeps it; of two policies of a tube, the first holds.

    :param notice: hears of each job that gets another id.
    :param accepts_copies: whether jobs of one id in logs of one origin are different jobs.
    :raise SameStore: two of them are copies of one store, or have jobs in common.
    """
    _refuse_copies(logs)
    floors = Floors.of(*(log.survey for log in logs))
    until = attrgetter("until_ns")
    pauses = {pause.tube: pause for log in logs for pause in sorted(log.pauses(), key=until)}
    policies, others = _merged_policies(logs)
    origin = Origin("merge", [OriginSource.of(log.survey) for log in logs])
    before: list[_Relative] = []
    next_id = floors.next_job_id
    with NewLog(
        output, origin, floors=floors, pauses=pauses.values(), policies=policies,
        segment_bytes=segment_bytes,
    ) as new:  # fmt: skip
        for log in logs:
            own = _Relative(log.source.path, _stores_of(log), set())
            for job in log.jobs():
                first = next((each for each in before if job.job_id in each.ids), None)
                if first is not None:
                    if not accepts_copies and not own.stores.isdisjoint(first.stores):
                        raise _same_jobs(first.path, own.path, job.job_id)
                    notice(Renumbered(log.source.path, job.job_id, next_id))
                    new.add(job._replace(job_id=next_id))
                    next_id += 1
                else:
                    own.ids.add(job.job_id)
                    new.add(job)
            before.append(own)
        taken = {job_id for each in before for job_id in each.ids}
        new.add_keys(_merged_keys(logs, taken, next_id))
        return Merged(new.finish(), new.shared_keys, others)


def _merged_policies(logs: Sequence[Loaded]) -> tuple[list[StoredPolicy], list[OtherPolicy]]:
    chosen: dict[bytes, StoredPolicy] = {}
    others: list[OtherPolicy] = []
    for log in logs:
        for policy in log.policies():
            first = chosen.setdefault(policy.tube, policy)
            if first.rules != policy.rules:
                others.append(OtherPolicy(log.source.path, policy.tube, policy.rules))
    return list(chosen.values()), others


def _merged_keys(logs: Sequence[Loaded], taken: set[int], next_id: int) -> Iterator[StoredKey]:
    """
    The remembered keys, those first that are remembered longest; each with an id of its own.

    :param taken: the ids of the jobs.
    """
    keys = chain.from_iterable(log.remembered_keys() for log in logs)
    for key in sorted(keys, key=lambda key: -key.until_ns):
        if key.job_id in taken:
            key, next_id = key._replace(job_id=next_id), next_id + 1
        taken.add(key.job_id)
        yield key


class _Relative(NamedTuple):
    """
    A log that is merged.

    :ivar stores: its own one, and those that it was made from.
    :ivar ids: of its jobs, those that kept theirs.
    """

    path: str
    stores: frozenset[str]
    ids: set[int]


def _stores_of(log: Loaded) -> frozenset[str]:
    headers = (log.source.header_bytes(segment.name) for segment in log.survey.segments)
    made_from = {uuid for raw in headers for uuid in origin_stores(decode_description(raw))}
    own = {segment.header.store_uuid.hex() for segment in log.survey.segments[:1]}
    return frozenset(own | made_from)


def _same_jobs(first: str, second: str, job_id: int) -> SameJobs:
    return SameJobs(
        f"{first} and {second}: one was made from the other, or both from one log, and both have "
        f"job {job_id}: it would be there twice; nothing was written. 'binlog-inspect diff' shows "
        f"what differs. If they are different jobs, say --accept-copies."
    )


def _refuse_copies(logs: Sequence[Loaded]) -> None:
    seen: dict[bytes, Loaded] = {}
    for log in logs:
        for segment in log.survey.segments[:1]:
            first = seen.setdefault(segment.header.store_uuid, log)
            if first is not log:
                raise SameStore(
                    f"{first.source.path} and {log.source.path} are copies of one store: each job "
                    f"would be there twice; nothing was written. 'binlog-inspect diff' shows what "
                    f"differs."
                )
