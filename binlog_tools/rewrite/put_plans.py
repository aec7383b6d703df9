"""Which jobs of a log are put into a running server, in which order, and with which tags."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, WITHHELD_NS, State
from beanstalk_twisted.binlog.records.others import TUBE_ID, Pause, TubePolicy
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.rules.policy_keys import sound_rules
from binlog_tools.console.wording import told
from binlog_tools.inspect.listing import released, sound_snapshot
from binlog_tools.logs.live_set import LiveJob, LiveSet, promoted, stored
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import (
    Selection,
    StoredJob,
    StoredKey,
    TubeRecord,
    stored_keys,
    stored_policy,
    tube_records,
)
from binlog_tools.tube_names import is_tube_name

WORDS: Final = {
    "unique_key": "idp:", "concurrency_key": "con:", "group": "grp:", "after": "aft:",
    "metadata": "meta:",
}  # fmt: skip
"""The tag that each of these names goes as; a server announces it as `put idp:`."""

MARKS: Final = {"dead_from": "dead letter", "origin": "origin"}
"""What a job carries and no put can say."""


class Waiting(NamedTuple):
    """A job that is to be put; without its body, and in few bytes, since there may be many.

    :ivar waits: whether it waits for a group, and is to wait on.
    """

    job_id: int
    is_buried: bool
    live: LiveJob
    waits: bool = False

    @property
    def group(self) -> bytes:
        return self.live.tags.group if self.live.tags is not None else b""

    @property
    def after(self) -> bytes:
        """Empty if it does not wait."""
        return self.live.tags.after if self.waits and self.live.tags is not None else b""


class OfTubes(NamedTuple):
    """Policies and remembered keys, by tubes.

    :ivar lost_policies: how many are not put, or not all of them: the server does not announce what
        that takes, or no client may say so; the same of ``lost_keys``.
    """

    policies: Sequence[TubeRecord]
    keys: Sequence[StoredKey]
    lost_policies: int
    lost_keys: int


class Plan(NamedTuple):
    """What is to be put, in order; docs/inspect.md, "replay".

    Jobs go in the order of their ids, which is that of equal priorities; buried ones follow, in the
    order of burial.  A job that waits for a group comes behind the jobs of that, as the server lets
    it go at once when there are none; where that cannot be, it is buried: it must not go too early.

    :ivar unusable: tubes that no client may name, and how many of the chosen jobs are in each.
    :ivar unnamed: chosen jobs that have a key or a group that no client may name.
    :ivar left_out: how many of the jobs that are put lose a tag that the server does not announce,
        or a mark.
    :ivar waiting: jobs that wait for a group, and are buried.
    """

    source: Source
    jobs: list[Waiting]
    tubes: dict[int, bytes]
    pauses: dict[bytes, Pause]
    now_ns: int
    words: frozenset[str]
    unusable: Mapping[bytes, int]
    unnamed: Sequence[int]
    left_out: Mapping[str, int]
    waiting: int
    of_tubes: OfTubes

    def job(self, each: Waiting, body: bytes = b"") -> StoredJob:
        """A job as it is put; what has to be buried waits for nothing."""
        job = released(promoted(stored(each.live, self.tubes, body), self.now_ns))
        return job._replace(state=State.BURIED, deadline_ns=0) if each.is_buried else job


def delay_left_s(job: StoredJob, now_ns: int) -> int:
    """Give what is left of a delay, rounded up; of one that follows a group, since the put."""
    if job.deadline_ns == NEVER_NS:
        return max(0, -(-(job.created_ns + job.delay_s * NS - now_ns) // NS))
    is_delayed = job.state is State.DELAYED and job.deadline_ns < WITHHELD_NS
    return max(0, -(-(job.deadline_ns - now_ns) // NS)) if is_delayed else 0


def announced(tags: Tags, words: frozenset[str], *, waits: bool) -> Tags:
    """Leave out tags that the server does not announce, a dead letter's unique key and a past
    group.
    """
    gone = {name: b"" for name, word in WORDS.items() if f"put {word}" not in words}
    if not tags.holds_key:
        gone["unique_key"] = b""
    if not waits:
        gone["after"] = b""
    return tags._replace(**gone)  # type: ignore[arg-type]


def lost_of(tags: Tags | None, words: frozenset[str]) -> list[str]:
    """Name the tags that the server does not announce, and the marks."""
    if tags is None:
        return []
    lost = [word for name, word in WORDS.items()
            if getattr(tags, name) and f"put {word}" not in words]  # fmt: skip
    return lost + [mark for name, mark in MARKS.items() if getattr(tags, name)]


def plan(
    source: Source, selection: Selection, now_ns: int, words: frozenset[str] = frozenset()
) -> Plan:
    """:param words: what the server announces (`capabilities`).
    :raise BinlogError: a server would refuse the log.
    """
    live = sound_snapshot(source).live
    now_ns = max(now_ns, live.time_ns)
    chosen = _Chosen(live, words)
    for job_id, each in sorted(live.jobs.items()):
        job = released(promoted(stored(each, live.tubes), now_ns))
        chosen.take(job_id, each, job, is_wanted=selection.has_job(job))
    pauses = dict(tube_records(live, now_ns, kinds=[Pause]))
    jobs = chosen.in_order()
    return Plan(
        source, jobs, live.tubes, pauses, now_ns, words, chosen.unusable, chosen.unnamed,
        chosen.left_out(jobs), sum(each.is_buried for each in jobs[chosen.settled :]),
        _of_tubes(live, selection, {RECORD.unpack(each.live.record)[TUBE_ID] for each in jobs},
                  now_ns, words),
    )  # fmt: skip


def _of_tubes(
    live: LiveSet, selection: Selection, used: set[int], now_ns: int, words: frozenset[str]
) -> OfTubes:
    """Those of the tubes that are chosen; if single jobs are, only policies, of their tubes."""
    if selection._replace(tubes=None) == Selection():
        tubes = set(live.tubes.values()) if selection.tubes is None else selection.tubes
        keys = [each for each in stored_keys(live, now_ns) if each.tube in tubes]
    else:
        tubes, keys = {live.tubes.get(each, b"") for each in used}, []
    found = tube_records(live, now_ns, kinds=[TubePolicy])
    policies = [each for each in found if each.tube in tubes]
    # As much of each as a client may set: another version may have written the log.
    sound = [stored_policy(tube, sound_rules(policy.rules) if is_tube_name(tube) else {})
             for tube, policy in policies if "tube-policy" in words]  # fmt: skip
    named = [each for each in keys if is_tube_name(each.tube) and is_tube_name(each.key)]
    named = sorted(named, key=lambda each: each.tube) if "put idp:" in words else []
    lost = len(policies) - sum(each in policies for each in sound)
    return OfTubes(
        [each for each in sound if each.record.rules], named, lost, len(keys) - len(named)
    )


class _Chosen:
    """The jobs that are chosen.

    :ivar settled: how many do not wait for a group, once they are in order.
    """

    def __init__(self, live: LiveSet, words: frozenset[str]) -> None:
        self._live = live
        self._words = words
        self.unusable: Counter[bytes] = Counter()
        self.unnamed: list[int] = []
        self.settled = 0
        self._found: list[Waiting] = []
        self._buried: list[tuple[int, Waiting]] = []
        self._waiting: list[Waiting] = []
        self._held: set[bytes] = set()

    def take(self, job_id: int, each: LiveJob, job: StoredJob, *, is_wanted: bool) -> None:
        """Look at a living job; they come in the order of their ids."""
        if not is_wanted or not self._can_be_put(job):
            self._held.update({each.tags.group} if each.tags is not None else ())
        elif job.deadline_ns == NEVER_NS:
            self._waiting.append(Waiting(job_id, False, each, True))
        elif job.state is State.BURIED or job.deadline_ns >= WITHHELD_NS:
            self._buried.append((job.deadline_ns, Waiting(job_id, True, each)))
        else:
            self._found.append(Waiting(job_id, False, each))

    def _can_be_put(self, job: StoredJob) -> bool:
        if not is_tube_name(job.tube):
            self.unusable[job.tube] += 1
            return False
        if job.tags is not None:
            tags = announced(job.tags, self._words, waits=True)
            names = (tags.unique_key, tags.concurrency_key, tags.group, tags.after)
            if not all(is_tube_name(name) for name in names if name):
                self.unnamed.append(job.job_id)
                return False
        return True

    def in_order(self) -> list[Waiting]:
        buried = sorted(self._buried, key=lambda pair: (pair[0], pair[1].job_id))
        settled = [*self._found, *(each for _, each in buried)]
        self.settled = len(settled)
        if self._words >= {"put grp:", "put aft:"}:
            return settled + _in_turn(self._waiting, self._held)
        return settled + [each._replace(is_buried=True, waits=False) for each in self._waiting]

    def left_out(self, jobs: Iterable[Waiting]) -> Mapping[str, int]:
        lost = Counter(what for each in jobs for what in lost_of(each.live.tags, self._words))
        order = [*WORDS.values(), *MARKS.values()]
        return {what: lost[what] for what in order if lost[what]}


def lost_words(what: str, jobs: int) -> str:
    """Say how many jobs were put without a tag or mark, and why."""
    if what in MARKS.values():
        return f"{told(jobs, 'job')} put without the mark '{what}', which no put can set"
    return f"{told(jobs, 'job')} put without the tag '{what}', which the server does not announce"


def _in_turn(waiting: Sequence[Waiting], held: set[bytes]) -> list[Waiting]:
    """Each behind those of the group that it waits for, and else in the order of their ids.

    :param held: groups with jobs that are not put.
    """
    left = Counter(each.group for each in waiting)
    behind: defaultdict[bytes, list[int]] = defaultdict(list)
    free: list[int] = []
    buried = {at for at, each in enumerate(waiting) if not each.after or each.after in held}
    for at, each in enumerate(waiting):
        if at in buried or not left[each.after]:
            free.append(at)
        else:
            behind[each.after].append(at)
    placed: dict[int, Waiting] = {}
    unplaced = iter(range(len(waiting)))
    while len(placed) < len(waiting):
        if not free:
            # Groups that wait for each other.
            first = next(at for at in unplaced if at not in placed)
            buried.add(first)
            free.append(first)
        at = heappop(free)
        is_buried = at in buried
        each = waiting[at]._replace(is_buried=is_buried, waits=not is_buried)
        placed[at] = each
        left[each.group] -= 1
        if each.group and not left[each.group]:
            for freed in behind.pop(each.group, ()):
                if freed not in buried:
                    heappush(free, freed)
    return list(placed.values())
