"""The ledger of promises: what clients have sent and were told, and what a queue may therefore say
and have: `outcomes` where one client knows all that happens, a `Ledger` where clients share jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations
from math import inf
from typing import Final, NamedTuple

from tests.model.commands import Commands
from tests.model.queue import LIMIT

Deed = Callable[[Commands], str]
"""A command, done to a model; gives what it is answered with."""


def outcomes(
    before: Commands, deeds: Sequence[Deed], heard: str = "", rounds: Sequence[int] = (LIMIT,)
) -> Iterator[Commands]:
    """Give what a queue may be behind a command in whose middle its process has ended, the most
    first.

    :param deeds: the ends that the command may come to but the first, which is that nothing
        happens; the last one is the whole of it, of which alone anything is heard.
    :param rounds: how much may be on the disk of what follows from it by itself.
    """
    ends: list[Deed] = [*deeds[-1:]] if heard else [lambda model: "", *deeds]
    for deed in reversed(ends):
        for most in reversed(rounds):
            end = before.copied()
            end.rounds = most
            if heard in ("", deed(end)):
                yield end


MARGIN_S: Final = 1.0
"""How long a job may be in two hands, seconds, beyond the lease that a run has: a client reads the
end of its connection later than the server has given the job to somebody else.
"""


class Kind(Enum):
    """What has happened at a client."""

    PUT_SENT = "put sent"
    PUT_TOLD = "put told"
    RESERVED = "reserved"
    RELEASE_SENT = "release sent"
    DELETE_SENT = "delete sent"
    DELETED = "deleted"
    NOT_DELETED = "not deleted"
    LOST = "connection lost"


class Event(NamedTuple):
    """One line of a history.

    :ivar at_s: when, seconds.
    :ivar connection: which; a client that reconnects has another one.
    :ivar job: its id, where the client knows it.
    :ivar body: of `PUT_SENT`, `PUT_TOLD` and `RESERVED`.
    """

    at_s: float
    connection: str
    kind: Kind
    job: int = 0
    body: bytes = b""


class Fault(Enum):
    """What a queue must not do."""

    LOST = "an acknowledged job is gone, and nobody has deleted it"
    SAME_ID = "an id was given to two jobs"
    TWICE = "one put has made two jobs"
    FROM_NOWHERE = "nobody has put this body"
    BACK = "a job whose deletion was acknowledged is there"
    TWO_HANDS = "a job was in two hands for too long"


class Violation(NamedTuple):
    """One such thing.

    :ivar events: that show it.
    """

    fault: Fault
    job: int
    events: tuple[Event, ...]


class Hold(NamedTuple):
    """A job in somebody's hands.

    :ivar ends_s: when the client has given it up, or has heard that it had to.
    """

    event: Event
    ends_s: float


def check(
    history: Iterable[Event], jobs_left: Mapping[int, bytes], margin_s: float = MARGIN_S,
    ttr_s: float = inf,
) -> list[Violation]:  # fmt: skip
    """Find all violations.

    :param history: of all clients, each connection's events in their order.
    :param jobs_left: the bodies of all jobs in the queue at the end, by ids.
    :param margin_s: how long a job may be in two hands, and a late reply may be on its way.
    :param ttr_s: of all jobs; nobody touches them.
    """
    events = sorted(history, key=lambda event: event.at_s)
    return [
        *_lost(events, jobs_left), *_mistaken(events, jobs_left),
        *_back(events, jobs_left, margin_s), *_two_hands(events, margin_s, ttr_s),
    ]  # fmt: skip


def _of(events: Iterable[Event], *kinds: Kind) -> Iterator[Event]:
    return (event for event in events if event.kind in kinds)


def _may_be_deleted(events: Sequence[Event]) -> set[int]:
    """Give the jobs of which a delete was acknowledged, or never answered."""
    open_deletes: dict[int, int] = defaultdict(int)
    for event in _of(events, Kind.DELETE_SENT):
        open_deletes[event.job] += 1
    for event in _of(events, Kind.NOT_DELETED):
        open_deletes[event.job] -= 1
    return {job for job, count in open_deletes.items() if count > 0}


def _lost(events: Sequence[Event], jobs_left: Mapping[int, bytes]) -> Iterator[Violation]:
    deleted = _may_be_deleted(events)
    for event in _of(events, Kind.PUT_TOLD):
        if event.job not in deleted and event.job not in jobs_left:
            yield Violation(Fault.LOST, event.job, (event,))


def _mistaken(events: Sequence[Event], jobs_left: Mapping[int, bytes]) -> Iterator[Violation]:
    """Look whether ids and bodies belong together, one to one."""
    sent = {event.body for event in _of(events, Kind.PUT_SENT)}
    bodies: dict[int, Event] = {}
    jobs: dict[bytes, Event] = {}
    left = [Event(inf, "", Kind.RESERVED, job, body) for job, body in jobs_left.items()]
    for event in [*_of(events, Kind.PUT_TOLD, Kind.RESERVED), *left]:
        first, other = bodies.setdefault(event.job, event), jobs.setdefault(event.body, event)
        if event.body not in sent:
            yield Violation(Fault.FROM_NOWHERE, event.job, (event,))
        if first.body != event.body:
            yield Violation(Fault.SAME_ID, event.job, (first, event))
        if other.job != event.job:
            yield Violation(Fault.TWICE, event.job, (other, event))


def _back(
    events: Sequence[Event], jobs_left: Mapping[int, bytes], margin_s: float
) -> Iterator[Violation]:
    deleted = {event.job: event for event in reversed(list(_of(events, Kind.DELETED)))}
    for job in deleted.keys() & jobs_left.keys():
        yield Violation(Fault.BACK, job, (deleted[job],))
    for event in _of(events, Kind.RESERVED):
        gone = deleted.get(event.job)
        if gone is not None and event.at_s > gone.at_s + margin_s:
            yield Violation(Fault.BACK, event.job, (gone, event))


def _holds(events: Sequence[Event], ttr_s: float) -> dict[int, list[Hold]]:
    """Give the times for which jobs were in hands, by jobs."""
    ends: dict[tuple[str, int], float] = {}
    found: dict[int, list[Hold]] = defaultdict(list)
    for event in reversed(events):  # So what ends a hold is known when its beginning comes.
        if event.kind is Kind.LOST:
            ends = {key: end for key, end in ends.items() if key[0] != event.connection}
            ends[event.connection, 0] = event.at_s
        elif event.kind in (Kind.RELEASE_SENT, Kind.DELETE_SENT):
            ends[event.connection, event.job] = event.at_s
        elif event.kind is Kind.RESERVED:
            lost_s = ends.get((event.connection, 0), inf)
            own_s = ends.pop((event.connection, event.job), inf)
            ends_s = min(lost_s, own_s, event.at_s + ttr_s)
            found[event.job].append(Hold(event, ends_s))
    return found


def _two_hands(events: Sequence[Event], margin_s: float, ttr_s: float) -> Iterator[Violation]:
    for job, holds in _holds(events, ttr_s).items():
        for later, earlier in combinations(holds, 2):
            if later.event.connection == earlier.event.connection:
                continue  # Its TTR had ended.
            if min(earlier.ends_s, later.ends_s) - later.event.at_s > margin_s:
                yield Violation(Fault.TWO_HANDS, job, (earlier.event, later.event))


@dataclass
class Change:
    """What a client has asked to do to a job.

    :ivar states: in which the job may be when it is done and time passes; none and a ``priority``
        None leave it.
    :ivar told_s: when that was acknowledged; infinite while it was not.
    :ivar lost_s: when it was known that it never will be done, if it was not then.
    """

    states: frozenset[str]
    priority: int | None
    sent_s: float
    told_s: float = inf
    lost_s: float = inf
    is_refused: bool = False

    def may_come_after(self, other: Change) -> bool:
        """Whether this may have been done behind another one that was."""
        ends_s = self.told_s if self.told_s < inf else self.lost_s
        return not self.is_refused and ends_s > other.sent_s


@dataclass
class Promised:
    """What is known of a job."""

    job_id: int
    body: bytes
    told_s: float
    changes: list[Change] = field(default_factory=list)
    deletes_sent: int = 0
    deleted_s: float = inf
    hands: int = 0


class Ledger:
    """What clients that share their jobs know together.  Each put has a body of its own, so a job
    can be told from all others whatever its id.  All times are of one clock that never goes back,
    taken when a client sends or has read.

    :ivar jobs: those whose ids were told, by id; ``puts`` all that were sent, by body.
    :ivar history: for `check`.
    :ivar faults: what a queue has said, or has, that it must not.
    :ivar has_rules: whether a tube may have a policy.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.jobs: dict[int, Promised] = {}
        self.puts: dict[bytes, Change] = {}
        self.history: list[Event] = []
        self.faults: list[str] = []
        self.has_rules = False

    def blame(self, fault: str) -> None:
        """A queue has said, or has, what it must not."""
        self.faults.append(f"{self.now_s():.3f}: {fault}")

    def note(self, connection: str, kind: Kind, job: int = 0, body: bytes = b"") -> None:
        """Write a line of the history."""
        self.history.append(Event(self.now_s(), connection, kind, job, body))

    def knows(self, job_id: int, body: bytes) -> None:
        """A job was there before all others."""
        now_s = self.now_s()
        self.puts[body] = put = Change(frozenset({"ready"}), 0, now_s, now_s)
        self.jobs[job_id] = Promised(job_id, body, now_s, [put])
        self.note("before", Kind.PUT_SENT, 0, body)
        self.note("before", Kind.PUT_TOLD, job_id, body)

    def check_job(self, job_id: int, state: str, priority: int) -> None:
        """Blame a job that cannot be so."""
        job = self.jobs.get(job_id)
        if job is None:
            return
        settled = [each for each in job.changes if each.told_s < inf]
        told = max((each for each in settled if each.states), key=lambda each: each.told_s)
        doubtful = [each for each in job.changes if each is not told and each.may_come_after(told)]
        states = frozenset().union(told.states, *(each.states for each in doubtful))
        if self.has_rules:
            # Who comes back may wait, or be a dead letter.
            states |= {"buried", "delayed", "ready"}
        if state not in states:
            self.blame(f"job {job_id} is {state}, and was told {told}; {doubtful}")
        named = [each for each in job.changes if each.priority is not None]
        last = max((each for each in named if each.told_s < inf), key=lambda each: each.told_s)
        allowed = {last.priority} | {each.priority for each in named if each.may_come_after(last)}
        if priority not in allowed:
            self.blame(f"job {job_id} has priority {priority}, and may have {allowed}")
