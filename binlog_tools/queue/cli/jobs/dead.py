"""``beanstalk dead``."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import LIMIT_S
from binlog_tools.connections import connect
from binlog_tools.console.output import Output, columns
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, PROGRAM, fail, warn
from binlog_tools.queue.cli.jobs.delete import ask
from binlog_tools.queue.cli.jobs.flush import FLUSHED_PER_S
from binlog_tools.queue.cli.tubes import numbers
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.server import Queue, Stats, tube_name

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
def dead(tube: bytes, address: Address, bound: int | None, yes: bool, is_json: bool) -> None:
    """
    Show the dead letters of TUBE, or let them be tried again there.

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
    with connect(address) as line:
        queue = Queue(line)
        extensions = Extensions(queue)
        if bound is None:
            _show(extensions, queue, tube, is_json)
            return
        extensions.need("kick-dead", "it has no dead letters")
        _tell_of_kicked(extensions, queue, tube)
        there = sum(1 for _ in extensions.dead_letters(tube))
        _agree(extensions, min(there, bound), tube, yes)
        line.limit(LIMIT_S + there / FLUSHED_PER_S)
        kicked = extensions.kick_dead(tube, bound)
        if kicked < min(there, bound):
            warn(_why_some_stay(extensions, tube))
    options.show_count(kicked, "kicked", is_json)
    if not kicked:
        raise SystemExit(NOTHING)


def _show(extensions: Extensions, queue: Queue, tube: bytes, is_json: bool) -> None:
    extensions.need("tube-policy", "it has no dead letters")
    found = 0

    def letters() -> Iterator[tuple[str, Stats]]:
        nonlocal found
        for letter in extensions.dead_letters(tube):
            found += 1
            yield letter

    if is_json:
        for place, job in letters():
            Output(True).document({"tube": place, **numbers(job)})
    else:
        Output().table(COLUMNS, (_row(place, job) for place, job in letters()))
    _tell_of_kicked(extensions, queue, tube)
    if not found:
        fail(NOTHING, _none_of(extensions, tube))


def _row(place: str, job: Stats) -> list[object]:
    rest = [job[key] for key in ("pri", "reserves", "age", "size")]
    return [job["id"], job["dead-reason"], _moment(job.number("dead-at")), place, *rest]


def _moment(unix_s: int) -> str:
    """A moment in UTC; the number itself where there is no such date."""
    try:
        moment = EPOCH + timedelta(seconds=unix_s)
    except OverflowError:
        return str(unix_s)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _agree(extensions: Extensions, count: int, tube: bytes, is_agreed: bool) -> None:
    """Ask whether so many are to be kicked; end the command if not."""
    what = f"{told(count, 'dead letter')} of {tube.decode()}"
    if is_agreed:
        warn(f"kicking {what}")
    elif count:
        ask(what, "kick", "kicked")
    else:
        fail(NOTHING, f"{_none_of(extensions, tube)}; --yes kicks what was moved elsewhere")


def _tell_of_kicked(extensions: Extensions, queue: Queue, tube: bytes) -> None:
    """Say where dead letters are that are not buried any more, and how to take them back."""
    grave, kicked = extensions.kicked_dead(tube)
    if not kicked:
        return
    letters = "1 dead letter was" if kicked.total() == 1 else f"{kicked.total()} dead letters were"
    states = ", ".join(f"{count} {state}" for state, count in kicked.items())
    watching = queue.stats_tube(tube_name(grave)).number("current-watching")
    name = tube.decode()
    warn(
        f"{letters} kicked in {grave}, which {told(watching, 'connection')} "
        f"{'watches' if watching == 1 else 'watch'}: {states}; see: {PROGRAM} list {grave}; "
        f"all ready jobs there go to {name} by: {PROGRAM} move {name} --from {grave}"
    )


def _why_some_stay(extensions: Extensions, tube: bytes) -> str:
    """Say how many were not kicked, and how many of them have a unique key that may be taken."""
    left = [job for _, job in extensions.dead_letters(tube)]
    with_key = sum("idempotency-key" in job for job in left)
    stay = "dead letter stays" if len(left) == 1 else "dead letters stay"
    return (
        f"{len(left)} {stay}, {with_key} with a unique key: one stays if another job of "
        f"{tube.decode()} has that key, or it is remembered; `move` takes it to another tube"
    )


def _none_of(extensions: Extensions, tube: bytes) -> str:
    """
    Say that there is none; and of which tubes those are that it holds, as who names where dead
    letters go means the tube that they come from.
    """
    none = f"{tube.decode()} has no dead letter, there or where they go now"
    others = extensions.dead_of_others(tube).most_common(MOST_OTHERS)
    if not others:
        return none
    counts = ", ".join(f"{count} of {name}" for name, count in others)
    return f"{none}; it holds {counts}, see: {PROGRAM} dead {others[0][0]}"


MOST_OTHERS: Final = 3
"""Tubes whose dead letters are told, those with most of them: a line is to be read."""
