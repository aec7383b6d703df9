"""The policies of tubes: what commands and a file have set, and what follows from it."""

from collections.abc import Mapping, Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS, JobImage, Reason, State
from beanstalk_twisted.binlog.tags import EXTENSIONS
from beanstalk_twisted.jobs.job import NS, Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.policy import (
    Limiter,
    Policy,
    TubeTotals,
    Uncounted,
    is_dead_letter,
    since_ns,
)
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import NO_RULES, Tube
from beanstalk_twisted.rules.moves import Moves
from beanstalk_twisted.rules.policy_keys import (
    ABSENT,
    KEYS,
    TUBE_KEYS,
    BadRule,
    DeclaredPolicies,
    check_rule,
    parse_policy,
    sound_rules,
)
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import Slices, Timekeeping, TubePolicies, Work
from beanstalk_twisted.rules.withheld import Withheld, is_withheld
from beanstalk_twisted.wire import replies, yaml
from beanstalk_twisted.wire.replies import POLICY

MAX_RULED_TUBES: Final = 10_000
"""Tubes with a policy of commands: each file of the log begins with all of them, in 0.1 s."""

SLICE_TUBES: Final = 100
"""Tubes whose policy is found out in one slice: with 100 patterns 3 ms."""

END_JOBS: Final = 128
"""Jobs of a tube that are taken from those that are too old together."""

SLICE_PAGES: Final = 200
"""Pages of one slice: 6,400 jobs, some 5 ms."""

SMALL_TUBE: Final = 500
"""Jobs of a tube that are entered at once: 1 ms."""

QUEUES: Final = (State.READY, State.DELAYED, State.BURIED)


class Policies(TubePolicies):
    """Keeps the policies of all tubes, and carries out what they say.

    For each key the file counts more than commands.  A policy is applied when something happens to
    a job: what has happened before it was set stays as it is.

    :ivar declared: those of the file; to be set before the jobs are loaded, later by `declare`.
    """

    def __init__(self, timekeeping: Timekeeping, moves: Moves, withheld: Withheld) -> None:
        super().__init__(timekeeping)
        self.declared = DeclaredPolicies()
        self._moves = moves
        self._withheld = withheld
        self._recount: Recount | None = None
        timekeeping.policies = self

    # The command.

    def tube_policy(
        self, session: Session, now_ns: int, name: bytes, pairs: Sequence[tuple[str, str]]
    ) -> Answer | None:
        """:param pairs: keys and values to set; none to show the policy."""
        if not pairs:
            texts = [
                (key, yaml.quoted(value) if key in KEYS and isinstance(value, str) else str(value))
                for key, value in self.shown(name).items()
            ]
            return self._changes.of_state(replies.mapping(texts))
        try:
            for key, value in pairs:
                check_rule(key, value)
        except BadRule:
            return replies.BAD_FORMAT, 0
        wanted = dict(pairs)
        if len(wanted) < len(pairs):
            return replies.BAD_FORMAT, 0
        tube = self._state.tubes.find(name)
        old = NO_RULES if tube is None else tube.rules
        rules = {key: value for key, value in {**old, **wanted}.items() if value != ABSENT}
        if rules == old:
            return self._changes.of_state(POLICY)
        if not old and self._state.ruled >= MAX_RULED_TUBES:
            return NO_ROOM
        if not (self._changes.has_room() and self._changes.allows(EXTENSIONS, now_ns)):
            return NO_ROOM
        return self._set(session, self._state.tubes.get_or_make(name), rules, now_ns)

    def _set(
        self, session: Session, tube: Tube, rules: Mapping[str, str], now_ns: int
    ) -> Answer | None:
        answer = POLICY, self._changes.set_policy(tube, rules, now_ns)
        recount = self._hold(tube)
        self._settle(tube, now_ns)
        if recount is None:
            return answer
        self._timekeeping.answer_later(session, self._counted(recount, tube, answer))
        return None

    def _counted(self, recount: "Recount", tube: Tube, answer: Answer) -> Work:
        yield from recount.rest()
        self._timekeeping.arm(tube)
        return answer

    def shown(self, name: bytes) -> dict[str, int | str]:
        """Return the keys of a tube's policy that are set, and by what."""
        tube = self._state.tubes.find(name)
        declared = self.declared.rules_of(name)
        set_by_commands = {} if tube is None else sound_rules(tube.rules)
        values: dict[str, int | str] = {}
        for key in KEYS:
            value = declared.get(key, set_by_commands.get(key, ABSENT))
            if value != ABSENT:
                is_number = value.isdigit() and key not in TUBE_KEYS
                values[key] = int(value) if is_number else value
                values[f"{key}-from"] = "file" if key in declared else "command"
        return values

    # What holds.

    def declare(self, declared: DeclaredPolicies, now_ns: int) -> None:
        """At once for new tubes, slice by slice for those there are."""
        self.declared = declared
        self._watch_new_tubes()
        self._timekeeping.work_in_slices(self._hold_in_slices(now_ns))

    def hold_all(self) -> None:
        """All jobs are loaded: find out the policies of all tubes; no timer is set."""
        self._watch_new_tubes()
        for recount in {self._hold(tube) for tube in self._state.tubes.in_order}:
            if recount is not None:
                for _ in recount.rest():
                    pass

    def hold(self, tube: Tube) -> Slices:
        """The rules of a tube have changed, while a log is followed; no timer is set."""
        recount = self._hold(tube)
        if recount is not None:
            yield from recount.rest()

    def _watch_new_tubes(self) -> None:
        self._state.tubes.made = None if self.declared.is_empty else self._hold

    def _hold_in_slices(self, now_ns: int) -> Slices:
        declared = self.declared
        counted: list[tuple[Tube, Recount]] = []
        for at, tube in enumerate(list(self._state.tubes.in_order), start=1):
            if self._state.tubes.find(tube.name) is tube:
                recount = self._hold(tube)
                if recount is not None:
                    counted.append((tube, recount))
                self._settle(tube, now_ns)
            if not at % SLICE_TUBES:
                now_ns = yield None
                if self.declared is not declared:
                    # The file was read again, and who has read it sees to all tubes.
                    break
        for tube, recount in counted:
            yield from recount.rest()
            self._timekeeping.arm(tube)

    def _hold(self, tube: Tube) -> "Recount | None":
        """:return: what has yet to count the tube's jobs; its totals know of it."""
        policy = parse_policy(sound_rules(tube.rules) | self.declared.rules_of(tube.name))
        if policy == tube.policy:
            return None
        tube.policy = policy
        self._set_limiter(tube, policy)
        if policy is None or not policy.needs_totals:
            tube.totals = None
            return None
        # A dead letter is not buried once more, so its age matters only if it is deleted.
        old, new = tube.totals, TubeTotals(keeps_dead=policy.deletes_expired)
        if old is not None and old.keeps_dead is new.keeps_dead:
            return None
        tube.totals = new
        if _is_small(tube, new, self._state):
            return None
        # With those of others, by a walk that has not begun yet.
        if self._recount is None or self._recount.has_begun:
            self._recount = Recount(self._state.jobs)
        self._recount.add(tube.tube_id, new)
        return self._recount

    def _set_limiter(self, tube: Tube, policy: Policy | None) -> None:
        if policy is None or not (policy.max_reserved or policy.rate):
            tube.limiter = None
        elif tube.limiter is None or tube.limiter.rate != policy.rate:
            tube.limiter = Limiter(policy.max_reserved, policy.rate)
            self._reservations.has_limiters = True
        else:
            tube.limiter.max_reserved = policy.max_reserved

    def _settle(self, tube: Tube, now_ns: int) -> None:
        """The tube may be open now, or closed, or wanted no more."""
        tube.set_closed(now_ns)
        self._timekeeping.settle(tube, now_ns)
        self._timekeeping.drop_if_unused(tube, now_ns)

    # What follows from it.

    def take_back(self, tube: Tube, image: JobImage, now_ns: int) -> int:
        policy = tube.policy
        assert policy is not None
        job = self._state.jobs.job(image.job_id)
        reason = _reason_to_end(image, job, policy, now_ns)
        if reason is None:
            return self._timekeeping.change(_backed_off(image, policy, now_ns), now_ns)
        # Of `max-reserves` the reason says how the job came back.
        code = int(image.reason if reason is Reason.MAX_RESERVES else reason)
        is_deleted = reason is Reason.EXPIRED and policy.deletes_expired
        if not is_deleted:
            # A crash after this record must not leave it ready.
            image = image._replace(state=State.DELAYED, deadline_ns=WITHHELD_NS + code)
        # Nobody is given the job in between.
        lsn = self._changes.make(image)
        job = self._state.jobs.job(image.job_id)
        if is_deleted:
            self._changes.end(job, Reason.EXPIRED, now_ns)
            self._timekeeping.settle(tube, now_ns)
            self._timekeeping.drop_if_unused(tube, now_ns)
        elif not self._moves.dead_letter(job, reason, now_ns, code):
            self._withheld.note(tube)
            self._timekeeping.settle(tube, now_ns)
            return lsn
        return self._changes.committed_lsn

    def due_ns(self, tube: Tube) -> int | None:
        limiter = tube.limiter
        opens_ns = None if limiter is None else limiter.opens_ns()
        ends_ns = _first_end_ns(tube)
        if ends_ns is None or opens_ns is None:
            return opens_ns if ends_ns is None else ends_ns
        return min(opens_ns, ends_ns)

    def expire(self, tube: Tube, now_ns: int) -> None:
        timekeeping = self._timekeeping
        has_ended = False
        while timekeeping.slice_left > 0:
            ends_ns = _first_end_ns(tube)
            if ends_ns is None or ends_ns > now_ns:
                break
            self._end_some(tube, now_ns)
            has_ended = True
        if has_ended and self._state.tubes.find(tube.name) is tube:
            # Otherwise it is gone already.
            self._timekeeping.drop_if_unused(tube, now_ns)

    def _end_some(self, tube: Tube, now_ns: int) -> None:
        totals, policy = tube.totals, tube.policy
        assert totals is not None and policy is not None
        for key in totals.ages.behind(LEAST, END_JOBS):
            if (key >> 64) + policy.max_age_s * NS > now_ns or self._timekeeping.slice_left <= 0:
                return
            job = self._state.jobs.job(key & ID_MASK)
            self._timekeeping.slice_left -= 1
            if policy.deletes_expired:
                self._changes.end(job, Reason.EXPIRED, now_ns)
            elif is_withheld(job) or not self._moves.dead_letter(job, Reason.EXPIRED, now_ns):
                self._set_aside(job, tube, totals)

    def _set_aside(self, job: Job, tube: Tube, totals: TubeTotals) -> None:
        """A job is too old, and is to be a dead letter when that can be written; nobody is given it
        until then.  There is no record of this: a restart finds it too old again.
        """
        if not (job.state is State.BURIED or is_withheld(job)):
            self._state.withhold(job, WITHHELD_NS + Reason.EXPIRED)
        totals.set_aside(job)
        self._withheld.note(tube)


def _first_end_ns(tube: Tube) -> int | None:
    """:return: when the tube's oldest job is too old, and is to be ended."""
    totals, policy = tube.totals, tube.policy
    first_ns = None if totals is None else totals.first_ns()
    if first_ns is None or policy is None or not policy.max_age_s:
        return None
    return first_ns + policy.max_age_s * NS


def _reason_to_end(image: JobImage, job: Job, policy: Policy, now_ns: int) -> Reason | None:
    """:param image: of a job's return.
    :return: the policy by which the job is not to be tried again; None if it may be.
    """
    if 0 < policy.max_reserves <= image.reserves and image.reason is not Reason.RETURNED:
        return Reason.MAX_RESERVES
    may_expire = policy.deletes_expired or not is_dead_letter(job)
    if policy.max_age_s and may_expire and since_ns(job) + policy.max_age_s * NS <= now_ns:
        return Reason.EXPIRED
    return None


def _backed_off(image: JobImage, policy: Policy, now_ns: int) -> JobImage:
    is_delayed = image.state is not State.READY
    if policy.backoff is None or is_delayed or image.reason is Reason.RETURNED:
        return image
    delay_ns = policy.backoff.delay_ns(image.job_id, image.reserves)
    return image._replace(
        state=State.DELAYED, deadline_ns=now_ns + delay_ns, delay_s=-(-delay_ns // NS)
    )


class Recount:
    """Enters the jobs that tubes have already into totals that are empty, slice by slice.

    It walks through the table of all jobs by pages.  Jobs come, go and change meanwhile, and before
    it begins; the totals know from the page of each whether it was entered already.

    :ivar has_begun: whether no further totals can be added.
    """

    def __init__(self, table: JobTable) -> None:
        self.has_begun = False
        self._table = table
        self._by_tube: dict[int, TubeTotals] = {}
        self._uncounted = Uncounted()
        self._pages: list[int] = []

    def add(self, tube_id: int, totals: TubeTotals) -> None:
        totals.uncounted = self._uncounted
        self._by_tube[tube_id] = totals

    def rest(self) -> Slices:
        """What is left to be done; several may do it by turns."""
        if not self.has_begun:
            self.has_begun = True
            # The first one last, from where it is taken: by age, jobs enter in order.
            self._pages = sorted(self._table.pages(), reverse=True)
            self._uncounted.begin(set(self._pages))
        while self._by_tube:
            for _ in range(min(SLICE_PAGES, len(self._pages))):
                number = self._pages.pop()
                for facts in self._table.facts(number):
                    totals = self._by_tube.get(facts.tube_id)
                    if totals is not None:
                        totals.enter_found(facts)
                self._uncounted.remove(number)
            if self._pages:
                yield None
                continue
            for totals in self._by_tube.values():
                totals.uncounted = None
            self._by_tube.clear()


def _is_small(tube: Tube, totals: TubeTotals, state: QueueState) -> bool:
    """Enter the jobs of a tube at once, if they are few, and nobody has reserved any of them."""
    if tube.job_count > SMALL_TUBE:
        return False
    keys = [key for each in QUEUES for key in tube.queue(each).behind(LEAST, SMALL_TUBE)]
    if len(keys) != tube.job_count:
        return False
    for key in keys:
        totals.enter(state.jobs.job(key & ID_MASK))
    return True
