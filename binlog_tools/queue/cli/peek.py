"""``beanstalk peek``, ``bury`` and ``kick``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.console.output import Output, text_of, told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, fail, warn
from binlog_tools.queue.cli.tubes import numbers as as_values
from binlog_tools.queue.server import Queue, Refused, Stats

KICKED_AT_ONCE: Final = 1000
"""Jobs of one `kick`: a beanstalkd answers nobody else meanwhile."""

numbers = click.argument("jobs", metavar="ID...", nargs=-1, required=True, type=options.JOB)


@click.command("peek")
@click.argument("job", metavar="[ID]", required=False, type=options.JOB)
@options.server
@options.tube
@options.state("Of the tube, the first job in this state.")
@options.raw
@options.as_json
def peek(
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
        found = queue.peek_first(state) if job is None else queue.peek(job)
        if found is None:
            fail(NOTHING, f"{tube.decode()} has no {state} job")
        facts = queue.stats_job(found.id) if is_json else Stats()
        facts.pop("id", None)
        options.show_job(found, is_json, raw, **as_values(facts))


def each(jobs: Sequence[int], do: Callable[[int], object], done: str, is_json: bool) -> None:
    """Do the same to several jobs; one that cannot be does not stop the others.

    :param done: what they are then; in JSON the key that says whether a job is.
    """
    refused = 0
    for job in jobs:
        try:
            do(job)
        except Refused as problem:
            refused += 1
            warn(str(problem))
            _document(is_json, {"id": job, done: False, "reply": text_of(problem.reply)})
        else:
            _document(is_json, {"id": job, done: True})
    if refused:
        fail(REFUSED, f"{told(len(jobs) - refused, 'job')} {done}, {refused} not")


def _document(is_json: bool, fields: Mapping[str, object]) -> None:
    if is_json:
        Output(True).document(fields)


@click.command("bury")
@numbers
@options.server
@click.option(
    "-p", "--priority", "--pri", "priority", type=options.SECONDS,
    help="With this priority; without it, as it is.",
)  # fmt: skip
@options.as_json
def bury(jobs: tuple[int, ...], address: Address, priority: int | None, is_json: bool) -> None:
    """Bury jobs that nobody has reserved: they are put aside until they are kicked.

    Needs beanstalkd 1.12 or newer, for only who has reserved a job may bury it.  Its counter of
    reservations grows by one.
    """
    with options.connected(address) as queue:

        def one(job: int) -> None:
            pri = (
                queue.stats_job(job, f"bury {job}").number("pri") if priority is None else priority
            )
            queue.bury_free(job, pri)

        each(jobs, one, "buried", is_json)


@click.command("kick")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@options.tube
@click.option("-n", "--count", type=click.IntRange(1, options.MAX_U32), help="At most so many.")
@click.option("--all", "is_all", is_flag=True, help="All buried jobs of the tube.")
@options.as_json
def kick(
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


def _is_unwatched(queue: Queue, tube: bytes) -> bool:
    """Whether no connection watches a tube, besides our own, which watches the default one."""
    try:
        watching = queue.stats_tube(tube).number("current-watching")
    except Refused:
        # Somebody has taken all of its jobs, and it is gone.
        return False
    return watching <= (tube == b"default")


def _kick_tube(queue: Queue, tube: bytes, count: int | None) -> int:
    """With a count, kick what the server kicks; without, the jobs that are buried now."""
    left = queue.stats_tube(tube).number("current-jobs-buried") if count is None else count
    queue.use(tube)
    kicked = 0
    while kicked < left:
        now = queue.kick(min(KICKED_AT_ONCE, left - kicked))
        kicked += now
        if not now:
            break
    return kicked
