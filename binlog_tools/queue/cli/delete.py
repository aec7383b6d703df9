"""``beanstalk dead``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.stats import ListedJob
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Output, columns
from binlog_tools.console.signals import DeferredSignal, end_if_told
from binlog_tools.console.wording import reason, told
from binlog_tools.queue.asking import (
    STATES,
    can_page,
    dead_letters,
    dead_of_others,
    kicked_dead,
    need,
    next_id,
    pages,
    peek_first,
    tube_name,
)
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, PROGRAM, REFUSED, USAGE
from binlog_tools.queue.cli.jobs import each
from binlog_tools.queue.cli.tubes import numbers
from binlog_tools.queue.moving import BATCH_JOBS, count_of

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client


class StateResult(NamedTuple):
    """What became of the jobs of one state.

    :ivar there: how many there were in the beginning.
    :ivar later: the number of the job, put since, at which it stopped; None if it did not.
    """

    state: str
    there: int
    deleted: int
    later: int | None


class TubePurge:
    """Deletes the jobs of a tube that are in some states.

    :ivar counts: how many there are, by state.
    :cvar at_once: how many a command deletes at most, for people.
    """

    at_once = "one"

    def __init__(self, queue: "Client", tube: bytes, states: Sequence[str]) -> None:
        """Look how many there are; nothing is deleted yet.

        :raise NotFound: there is no such tube.
        """
        stats = queue.stats_tube(tube)
        self.counts = {state: count_of(stats, state) for state in states}
        self.deleted = 0
        self._queue = queue
        self._tube = tube
        # Before anybody is asked: what comes while he thinks is not what he agreed to.
        self._end = next_id(queue) if self.total else 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def run(self) -> Iterator[int | StateResult]:
        """Give the number of each job deleted, and behind those of a state what became of it."""
        self._queue.use(self._tube)
        for state, there in self.counts.items():
            yield from self._run(state, there)

    def _run(self, state: str, there: int) -> Iterator[int | StateResult]:
        deleted, later = 0, None
        job = peek_first(self._queue, state) if there else None
        for _ in range(there):
            if job is None:
                break
            if job.id >= self._end:
                later = job.id
                break
            is_ours, following = self._delete(job, state)
            if is_ours:
                deleted += 1
                self.deleted += 1
                yield job.id
            job = following
        yield StateResult(state, there, deleted, later)

    def _delete(self, job: Job, state: str) -> tuple[bool, Job | None]:
        """Say whether a job was deleted, or somebody else was quicker, and give the next, in one
        round trip.
        """
        with self._queue.pipeline() as pipe:
            deleted = pipe.delete(job.id)
            found = getattr(pipe, f"peek_{state}")()
            is_ours = not isinstance(deleted.error, errors.NotFound)
            following = None if isinstance(found.error, errors.NotFound) else found.result
            if is_ours:
                deleted.result  # noqa: B018 - it raises what else was wrong.
            return is_ours, following


class BatchPurge(TubePurge):
    """The same on a server with `list-jobs` and `delete-batch`, many jobs at once; those that were
    put since are passed over.  `run` gives how many each command has deleted, instead of their
    numbers.
    """

    at_once = f"up to {BATCH_JOBS}"

    def __init__(
        self, queue: "Client", tube: bytes, states: Sequence[str], batch_jobs: int = BATCH_JOBS
    ) -> None:
        super().__init__(queue, tube, states)
        self._batch_jobs = batch_jobs

    def _run(self, state: str, there: int) -> Iterator[int | StateResult]:
        deleted, left = 0, there
        found = pages(self._queue, self._tube, state, page_jobs=self._batch_jobs)
        for page in found if there else ():
            ids = [job.id for job in page if job.id < self._end][:left]
            left -= len(ids)
            if ids:
                now = self._queue.delete_batch(ids).deleted
                deleted += now
                self.deleted += now
                yield now
            if not left:
                break
        yield StateResult(state, there, deleted, None)


def purge_of(queue: "Client", tube: bytes, states: Sequence[str]) -> TubePurge:
    if queue.announces("list-jobs", "delete-batch") and can_page(tube):
        return BatchPurge(queue, tube, states)
    return TubePurge(queue, tube, states)


@click.command("delete")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@click.option("-t", "--tube", type=options.TUBE, metavar="NAME", help="With --all, of this tube.")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True,
    help="With --all, the jobs in this state; may be repeated.",
)  # fmt: skip
@click.option("--all", "is_all", is_flag=True, help="All jobs of a tube and state.")
@click.option("-y", "--yes", is_flag=True, help="With --all, do not ask.")
@options.as_json
def delete_command(
    jobs: tuple[int, ...], address: Address, tube: bytes | None, states: tuple[str, ...],
    is_all: bool, yes: bool, is_json: bool,
) -> None:  # fmt: skip
    """Delete jobs that nobody has reserved: those of these numbers, or all of a tube and state.

    --all says how many there are, and asks; without a terminal it wants --yes.  Jobs that are put
    later stay.  SIGINT and SIGTERM end it with the job, or the batch of 200, in hand, and it says
    how many were deleted.

    \b
    Examples:
      beanstalk delete 4711 4712
      beanstalk delete -t mail --state buried --all
      beanstalk delete -t mail --state ready --state delayed --all --yes
    """
    if is_all == bool(jobs):
        both = ", not both" if jobs else ""
        raise click.UsageError(f"give the numbers of jobs, or --all{both}")
    if jobs and (given := options.given("tube", "states", "yes")):
        raise click.UsageError(f"the numbers of jobs are enough: leave out {given}")
    if not is_all:
        with options.connected(address) as queue:
            each(jobs, queue.delete, "deleted", is_json)
        return
    if tube is None or not states:
        raise click.UsageError("--all wants --tube NAME, and --state ready, delayed or buried")
    _empty(address, tube, tuple(dict.fromkeys(states)), yes, is_json)


def _empty(
    address: Address, tube: bytes, states: Sequence[str], is_agreed: bool, is_json: bool
) -> None:
    with options.connected(address) as queue:
        purge = purge_of(queue, tube, states)
        if purge.total and not is_agreed:
            ask(told_counts(purge.counts, tube))
        with DeferredSignal() as stop:
            _run(purge, stop)
    options.show_count(purge.deleted, "deleted", is_json)
    end_if_told(stop, told(purge.deleted, "job"))
    if not purge.deleted:
        raise SystemExit(NOTHING)


def told_counts(counts: Mapping[str, int], tube: bytes) -> str:
    """:param counts: by state; one at least is above 0."""
    *parts, last = [f"{count} {state}" for state, count in counts.items() if count]
    named = f"{', '.join(parts)} and {last}" if parts else last
    return f"{named} job{'s' * (sum(counts.values()) != 1)} of {tube.decode()}"


def ask(what: str, verb: str = "delete", done: str = "deleted") -> None:
    """End the command unless somebody is there to be asked, and agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(USAGE, f"{what} would be {done}; nobody is there to be asked, so give --yes")
    if not click.confirm(f"{verb.capitalize()} {what}?", err=True):
        fail(NOTHING, f"nothing was {done}")


def _run(purge: TubePurge, stop: DeferredSignal) -> None:
    try:
        for gone in purge.run():
            if stop.number is not None:
                return
            if isinstance(gone, StateResult) and gone.later is not None:
                warn(
                    f"{told(gone.deleted, 'job')} of {gone.there} {gone.state} deleted; job "
                    f"{gone.later}, put since, is now the first, so it stopped there"
                )
    except errors.ClientError as problem:
        done = f"{told(purge.deleted, 'job')} deleted, and perhaps {purge.at_once} more"
        fail(REFUSED, f"{reason(problem)}; {done}")


@click.command("flush")
@click.argument("tube", type=options.TUBE)
@options.server
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True,
    help="Only the jobs in this state; may be repeated.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.as_json
def flush_command(
    tube: bytes, address: Address, states: tuple[str, ...], yes: bool, is_json: bool
) -> None:  # fmt: skip
    """Delete all jobs of TUBE that nobody has reserved, or those in a state, by one command.

    It says how many there are, and asks; without a terminal it wants --yes.  Jobs that are put
    before you answer are deleted too; `delete --all` leaves those.  The server finishes it even if
    this command is ended.  Without --state, unique keys of deleted jobs are forgotten too.

    \b
    Examples:
      beanstalk flush mail
      beanstalk flush mail --state buried --yes
    """
    chosen = tuple(dict.fromkeys(states)) or STATES
    with options.connected(address) as queue:
        named = "".join(f" --state {state}" for state in chosen)
        instead = f"`beanstalk delete --all --tube {tube.decode()}{named}` deletes job by job"
        need(queue, "flush-tube", instead)
        counts = _counts(queue, tube, chosen)
        if not any(counts.values()) and (hint := options.similar_tube(queue, tube)):
            warn(f"there is no tube {tube.decode()}", hint=hint)
        total = sum(counts.values())
        if total and not yes:
            ask(told_counts(counts, tube))
        elif total:
            warn(f"deleting {told_counts(counts, tube)}")
        parts = ("all",) if set(chosen) == set(STATES) else chosen
        flushed = sum(queue.flush_tube(tube, state) for state in parts)
    options.show_count(flushed, "deleted", is_json)
    if not flushed:
        raise SystemExit(NOTHING)


def _counts(queue: "Client", tube: bytes, states: Sequence[str]) -> dict[str, int]:
    """Count the jobs of a tube, by state: none where it is not there, as after its last job."""
    try:
        stats = queue.stats_tube(tube)
    except errors.NotFound:
        return dict.fromkeys(states, 0)
    return {state: count_of(stats, state) for state in states}


@click.command("forget-key")
@click.argument("tube", type=options.TUBE)
@click.argument("key", type=options.TUBE)
@options.server
@options.as_json
def forget_key_command(tube: bytes, key: bytes, address: Address, is_json: bool) -> None:
    """Forget the unique KEY of a deleted job, or of a batch, of TUBE, so that it can be put again.

    \b
    Example:
      beanstalk forget-key mail welcome-42
    """
    with options.connected(address) as queue:
        need(queue, "forget-key", "a remembered key ends with the time that its job asked for")
        queue.forget_key(tube, key)
    if is_json:
        Output(True).document({"tube": tube.decode(), "key": key.decode(), "forgotten": True})


COLUMNS: Final = columns("#id", "reason", "died", "~in", "#pri", "#reserves", "#age", "#size")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@click.command("dead")
@click.argument("tube", type=options.TUBE)
@options.server
@click.option(
    "--kick", "bound", type=click.IntRange(1, options.MAX_U32), is_flag=False,
    flag_value=options.MAX_U32, metavar="[N]",
    help="Let them be tried again in TUBE, the first N, or without N all.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="With --kick, do not ask.")
@options.as_json
def dead_command(
    tube: bytes, address: Address, bound: int | None, yes: bool, is_json: bool
) -> None:
    """Show the dead letters of TUBE, or let them be tried again there.

    Those are shown that are in TUBE, or in the tube where its dead letters go now.  --kick says how
    many these are, and asks; without a terminal it wants --yes.  It finds those that were moved
    elsewhere too, and makes them all ready; their attempts begin anew.  The server goes on with it
    even if this command is ended.

    \b
    Examples:
      beanstalk dead mail
      beanstalk dead mail --kick 10
      beanstalk dead mail --kick --yes
    """
    if bound is None and yes:
        raise click.UsageError("--yes is for --kick")
    with options.connected(address) as queue:
        if bound is None:
            _show(queue, tube, is_json)
            return
        need(queue, "kick-dead", "it has no dead letters")
        _tell_of_kicked(queue, tube)
        there = sum(1 for _ in dead_letters(queue, tube))
        _agree(queue, min(there, bound), tube, yes)
        kicked = queue.kick_dead(tube, bound)
        if kicked < min(there, bound):
            warn(_why_some_stay(queue, tube))
    options.show_count(kicked, "kicked", is_json)
    if not kicked:
        raise SystemExit(NOTHING)


def _show(queue: "Client", tube: bytes, is_json: bool) -> None:
    need(queue, "tube-policy", "it has no dead letters")
    found = 0

    def letters() -> Iterator[tuple[str, ListedJob]]:
        nonlocal found
        for letter in dead_letters(queue, tube):
            found += 1
            yield letter

    if is_json:
        for place, job in letters():
            Output(True).document({"tube": place, **numbers(job)})
    else:
        Output().table(COLUMNS, (
            [job.id, job.dead_reason, _moment(job.dead_at), place, job.pri, job.reserves, job.age,
             job.size] for place, job in letters()
        ))  # fmt: skip
    _tell_of_kicked(queue, tube)
    if not found:
        fail(NOTHING, _none_of(queue, tube))


def _moment(unix_s: int) -> str:
    """A moment in UTC; the number itself where there is no such date."""
    try:
        moment = EPOCH + timedelta(seconds=unix_s)
    except OverflowError:
        return str(unix_s)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _agree(queue: "Client", count: int, tube: bytes, is_agreed: bool) -> None:
    what = f"{told(count, 'dead letter')} of {tube.decode()}"
    if is_agreed:
        warn(f"kicking {what}")
    elif count:
        ask(what, "kick", "kicked")
    else:
        fail(NOTHING, f"{_none_of(queue, tube)}; --yes kicks what was moved elsewhere")


def _tell_of_kicked(queue: "Client", tube: bytes) -> None:
    """Say where dead letters are that are not buried any more, and how to take them back."""
    grave, kicked = kicked_dead(queue, tube)
    if not kicked:
        return
    letters = "1 dead letter was" if kicked.total() == 1 else f"{kicked.total()} dead letters were"
    states = ", ".join(f"{count} {state}" for state, count in kicked.items())
    watching = queue.stats_tube(tube_name(grave)).current_watching
    name = tube.decode()
    warn(
        f"{letters} kicked in {grave}, which {told(watching, 'connection')} "
        f"{'watches' if watching == 1 else 'watch'}: {states}; see: {PROGRAM} list {grave}; "
        f"all ready jobs there go to {name} by: {PROGRAM} move {name} --from {grave}"
    )


def _why_some_stay(queue: "Client", tube: bytes) -> str:
    left = [job for _, job in dead_letters(queue, tube)]
    with_key = sum("idempotency-key" in job for job in left)
    stay = "dead letter stays" if len(left) == 1 else "dead letters stay"
    return (
        f"{len(left)} {stay}, {with_key} with a unique key: one stays if another job of "
        f"{tube.decode()} has that key, or it is remembered; `move` takes it to another tube"
    )


def _none_of(queue: "Client", tube: bytes) -> str:
    """Say that there is none; and of which tubes those are that it holds, as who names where dead
    letters go means the tube that they come from.
    """
    none = f"{tube.decode()} has no dead letter, there or where they go now"
    others = dead_of_others(queue, tube).most_common(MOST_OTHERS)
    if not others:
        return none
    counts = ", ".join(f"{count} of {name}" for name, count in others)
    return f"{none}; it holds {counts}, see: {PROGRAM} dead {others[0][0]}"


MOST_OTHERS: Final = 3
"""Tubes whose dead letters are told, those with most of them: a line is to be read."""
