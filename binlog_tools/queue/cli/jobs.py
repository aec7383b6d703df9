"""``beanstalk peek``, ``bury``, ``kick``, ``cancel``, ``move`` and ``edit``."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.stats import JobStats
from binlog_tools.console.errors import aside, fail, refused, warn
from binlog_tools.console.output import Output
from binlog_tools.console.signals import DeferredSignal, end_if_told
from binlog_tools.console.wording import text_of, told
from binlog_tools.queue.asking import STATES, bury_free, group_awaited, need, peek_first
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED
from binlog_tools.queue.cli.tubes import numbers
from binlog_tools.queue.moving import DirectMover, Moved, Mover

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

RESERVED: Final = "reserved"

KICKED_AT_ONCE: Final = 1000
"""Jobs of one `kick`: a beanstalkd answers nobody else meanwhile."""

ids: Final = click.argument("jobs", metavar="ID...", nargs=-1, required=True, type=options.JOB)


@click.command("peek")
@click.argument("job", metavar="[ID]", required=False, type=options.JOB)
@options.server
@options.tube
@options.state("Of the tube, the first job in this state.", *STATES, RESERVED)
@options.raw
@options.as_json
def peek_command(
    job: int | None, address: Address, tube: bytes, state: str, raw: bool, is_json: bool
) -> None:
    """Look at a job: the one of that number, or the first of a tube.  It stays as it is.

    \b
    Examples:
      beanstalk peek 4711
      beanstalk peek -t mail --state buried --json
    """
    if job is not None and (given := options.given("tube", "state")):
        raise click.UsageError(f"the number of a job is enough: leave out {given}")
    with options.connected(address) as queue:
        if job is None:
            queue.use(tube)
        if state == RESERVED:
            need(queue, "peek-reserved", "`beanstalk list` needs list-jobs")
        found = peek_first(queue, state) if job is None else queue.peek(job)
        if found is None:
            hint = None if state == RESERVED else options.similar_tube(queue, tube)
            fail(NOTHING, f"{tube.decode()} has no {state} job", hint=hint)
        facts = numbers(queue.stats_job(found.id)) if is_json else {}
        facts.pop("id", None)
        options.show_job(found, is_json, raw, **facts)


def each(jobs: Sequence[int], do: Callable[[int], object], done: str, is_json: bool) -> None:
    """Do the same to several jobs; one that cannot be does not stop the others.

    :param done: what they are then; in JSON the key that says whether a job is.
    """
    left = 0
    for job in jobs:
        document: dict[str, object] = {"id": job, done: True}
        try:
            do(job)
        except errors.ErrorReply as problem:
            left += 1
            refused(str(problem), REFUSED, problem.word)
            document |= {done: False, "reply": text_of(problem.word)}
        if is_json:
            Output(True).document(document)
    if left:
        fail(REFUSED, f"{told(len(jobs) - left, 'job')} {done}, {left} not")


@click.command("bury")
@ids
@options.server
@click.option(
    "-p", "--priority", "--pri", "priority", type=options.SECONDS,
    help="With this priority; without it, as it is.",
)  # fmt: skip
@options.as_json
def bury_command(
    jobs: tuple[int, ...], address: Address, priority: int | None, is_json: bool
) -> None:
    """Bury jobs that nobody has reserved: they are put aside until they are kicked.

    Needs beanstalkd 1.12 or newer, for only who has reserved a job may bury it.  Its counter of
    reservations grows by one.
    """
    with options.connected(address) as queue:

        def one(job: int) -> None:
            pri = queue.stats_job(job).pri if priority is None else priority
            bury_free(queue, job, pri)

        each(jobs, one, "buried", is_json)


@click.command("kick")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@options.tube
@click.option("-n", "--count", type=click.IntRange(1, options.MAX_U32), help="At most so many.")
@click.option("--all", "is_all", is_flag=True, help="All buried jobs of the tube.")
@options.as_json
def kick_command(
    jobs: tuple[int, ...], address: Address, tube: bytes, count: int | None, is_all: bool,
    is_json: bool,
) -> None:  # fmt: skip
    """Make jobs ready: those of these numbers, or of a tube.

    Of a tube, the buried ones are kicked, and only if there are none the delayed ones.

    \b
    Examples:
      beanstalk kick 4711 4712
      beanstalk kick -t mail -n 10
      beanstalk kick -t mail --all
    """
    chosen = bool(jobs) + bool(count) + is_all
    if chosen != 1:
        only = ", only one of them" if chosen else ""
        raise click.UsageError(f"give the numbers of jobs, or --count, or --all{only}")
    if jobs and (given := options.given("tube")):
        raise click.UsageError(f"the numbers of jobs are enough: leave out {given}")
    with options.connected(address) as queue:
        if jobs:
            each(jobs, queue.kick_job, "kicked", is_json)
            return
        kicked = _kick_tube(queue, tube, count)
        if kicked and _is_unwatched(queue, tube):
            warn(f"no connection watches {tube.decode()}: nobody works on these jobs now")
    options.show_count(kicked, "kicked", is_json)
    if not kicked:
        raise SystemExit(NOTHING)


def _is_unwatched(queue: "Client", tube: bytes) -> bool:
    """Whether no connection watches a tube, besides our own, which watches the default one."""
    try:
        watching = queue.stats_tube(tube).current_watching
    except errors.ErrorReply:
        # Somebody has taken all of its jobs, and it is gone.
        return False
    return watching <= (tube == b"default")


def _kick_tube(queue: "Client", tube: bytes, count: int | None) -> int:
    """With a count, kick what the server kicks; without, the jobs that are buried now."""
    left = queue.stats_tube(tube).current_jobs_buried if count is None else count
    queue.use(tube)
    kicked = 0
    while kicked < left:
        now = queue.kick(min(KICKED_AT_ONCE, left - kicked))
        kicked += now
        if not now:
            break
    return kicked


@click.command("cancel")
@ids
@options.server
@options.as_json
def cancel_command(jobs: tuple[int, ...], address: Address, is_json: bool) -> None:
    """Cancel jobs, also those that a worker has reserved: they are deleted.

    A worker learns of it at its next touch, and ends what it does then.

    \b
    Examples:
      beanstalk cancel 4711 4712
    """
    with options.connected(address) as queue:
        need(queue, "cancel-job", "`delete` deletes jobs that nobody has reserved")
        each(jobs, queue.cancel_job, "cancelled", is_json)


@click.command("move")
@click.argument("target", metavar="TO", type=options.TUBE)
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@click.option("-f", "--from", "source", type=options.TUBE, metavar="NAME", help="From this tube.")
@options.state("Of the tube, the jobs in this state.")
@click.option("-n", "--count", type=click.IntRange(1), help="At most so many.")
@click.option("--kick", is_flag=True, help="Buried jobs are ready in the new tube.")
@options.as_json
def move_command(
    target: bytes, jobs: tuple[int, ...], address: Address, source: bytes | None, state: str,
    count: int | None, kick: bool, is_json: bool,
) -> None:  # fmt: skip
    """Move jobs into the tube TO: those of these numbers, or with --from those of a tube.

    A server with move-job moves a job as it is: its number, age, counters and tags stay.  Any other
    gets it put into its new tube before it is deleted in the old one: then it has a new number, and
    keeps its priority, its TTR, what is left of its delay, and whether it is buried.  Needs
    beanstalkd 1.12 or newer but for ready jobs.

    SIGINT and SIGTERM let the jobs in hand be finished.  If it is killed, none is lost; without
    move-job the one in hand is then ready in its old tube, and may be in the new one too.  Workers
    may go on meanwhile.  Jobs that are put into the old tube since it began stay there.

    \b
    Examples:
      beanstalk move mail --from mail-failed --state buried --kick
      beanstalk move attic 4711 4712
    """
    if bool(jobs) == (source is not None):
        both = ", not both" if jobs else ""
        raise click.UsageError(f"give the numbers of jobs, or --from a tube{both}")
    if jobs and (given := options.given("state", "count")):
        raise click.UsageError(f"{given} is for --from; the numbers of jobs are enough")
    if source == target:
        raise click.UsageError("a tube cannot be moved into itself")
    output, moved = Output(is_json), 0
    with options.connected(address) as queue:
        mover: Mover | DirectMover
        found: _Batches
        if queue.announces("move-job"):
            mover = DirectMover(queue, target, keeps_buried=not kick)
        else:
            mover = Mover(queue, target, keeps_buried=not kick)
        if source is None:
            found = ([mover.move_job(job)] for job in jobs)
        elif isinstance(mover, DirectMover):
            found = mover.move_all(source, state, count)
        else:
            found = ([moved] for moved in mover.move_all(source, state, count))
        with DeferredSignal() as stop, closing(found):
            while stop.number is None and (batch := next(found, None)) is not None:
                moved += len(batch)
                for each in batch:
                    output.document(each._asdict()) if is_json else output.row(each)
                sys.stdout.flush()  # Somebody may wait for what we know.
        if mover.later is not None:
            warn(
                f"{told(moved, 'job')} moved; job {mover.later}, put since, is now the first, so "
                "it stopped there"
            )
        taken = mover.duplicates if isinstance(mover, DirectMover) else []
    for sentence in taken:
        warn(sentence)
    end_if_told(stop, f"{told(moved, 'job')}, the last one whole")
    done = f"{told(moved, 'job')} moved into {target.decode()}"
    if taken:
        fail(REFUSED, f"{done}, {len(taken)} not")
    if not moved:
        fail(NOTHING, done)
    if not is_json:
        aside(done)


_Batches = Generator[Sequence[Moved], None, None]
"""Jobs that were moved; what is given together must not stay half done."""


@click.command("edit")
@click.argument("job", metavar="ID", type=options.JOB)
@options.server
@click.option(
    "-p", "--priority", "--pri", "priority", type=options.SECONDS, metavar="N",
    help="0 is the most urgent.",
)  # fmt: skip
@click.option(
    "-d", "--delay", type=options.SECONDS, metavar="S",
    help="Seconds from now until it is ready; 0: it is ready now.",
)  # fmt: skip
@click.option("--ttr", type=options.SECONDS, metavar="S", help="Seconds a worker has for it.")
@click.option(
    "--body", "source", type=click.File("rb"), metavar="FILE",
    help="What is in this file; - is the input.",
)  # fmt: skip
@options.may_be_empty
@options.as_json
def edit_command(
    job: int, address: Address, priority: int | None, delay: int | None, ttr: int | None,
    source: BinaryIO | None, may_be_empty: bool, is_json: bool,
) -> None:  # fmt: skip
    """Give the job ID another priority, delay, TTR or body.

    What is not given stays as it is; so do its number, age, counters and tags.  A buried job, or
    one that waits for a group, stays that.  One that a worker has is refused.

    What is not given is asked for first.  If the job is reserved or deleted in between, it is
    refused, and nothing has changed; if somebody has given it other values in between, those asked
    for before hold.

    \b
    Examples:
      beanstalk edit 4711 --pri 0 --delay 0
      beanstalk edit 4711 --body - < corrected.json
    """
    if priority is None and delay is None and ttr is None and source is None:
        raise click.UsageError("say what to change: --priority, --delay, --ttr or --body")
    body = None if source is None else source.read()
    if body is not None and not body and not may_be_empty:
        fail(NOTHING, "the input is empty, nothing was changed; --empty makes it an empty job")
    with options.connected(address) as queue:
        need(queue, "update-job", "put another job, and delete this one")

        def one(job: int) -> None:
            values = _with_what_it_has(queue, job, priority, delay, ttr)
            queue.update_job(job, *values, body=body)

        each([job], one, "updated", is_json)


def _with_what_it_has(
    queue: "Client", job: int, priority: int | None, delay_s: int | None, ttr_s: int | None
) -> tuple[int, int, int]:
    """Give priority, delay and TTR; ask what the job has, where they are not all given."""
    if priority is not None and delay_s is not None and ttr_s is not None:
        return priority, delay_s, ttr_s
    stats = queue.stats_job(job)
    return (
        stats.pri if priority is None else priority,
        _delay_left_s(stats) if delay_s is None else delay_s,
        stats.ttr if ttr_s is None else ttr_s,
    )


def _delay_left_s(stats: JobStats) -> int:
    """Find the delay with which a job stays what it is."""
    if group_awaited(stats) or stats.state == "buried":
        return stats.delay  # The server keeps it for later.
    return stats.time_left if stats.state == "delayed" else 0
