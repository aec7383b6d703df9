"""``beanstalk list`` and ``connections``."""

import shutil
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.console.output import TABLE_ROWS, Column, Output, columns
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, fail
from binlog_tools.queue.cli.tubes import fitting, numbers
from binlog_tools.queue.extensions import Extensions, group_awaited
from binlog_tools.queue.server import STATES, Stats

JOB_TITLES: Final = columns(
    "#id", "state", "#pri", "#age", "#left", "#size", "#reserves", "#timeouts", "#releases",
    "#buries", "#kicks", "#delay", "#ttr", "#connection", "waits for",
)  # fmt: skip
WAITS_FOR: Final = "waits-for"
"""Our word for the group that a job waits for, of those that a job of a list has."""

JOB_KEYS: Final = (
    "id", "state", "pri", "age", "time-left", "size", "reserves", "timeouts", "releases",
    "buries", "kicks", "delay", "ttr", "connection", WAITS_FOR,
)  # fmt: skip
JOBS_NOT_IF_NARROW: Final = ("delay", "kicks", "ttr", "buries", "timeouts", "releases", WAITS_FOR)
"""What a terminal without room is not shown, the first first."""

LISTED: Final = ("all", "ready", "reserved", "delayed", "buried")

CONNECTION_TITLES: Final = columns(
    "#connection", "~peer", "role", "~using", "#watching", "#reserved", "~time left", "#waiting",
    "#buffered", "~identity", "tls",
)  # fmt: skip
CONNECTION_KEYS: Final = (
    "connection", "peer", "role", "using", "watching", "reserved", "time-left", "waiting",
    "buffered", "identity", "tls",
)  # fmt: skip
CONNECTIONS_NOT_IF_NARROW: Final = ("buffered", "tls", "watching", "time-left")


@click.command("list")
@click.argument("tube", type=options.TUBE, default=b"default")
@options.server
@click.option(
    "--state", "states", type=click.Choice(LISTED), multiple=True, show_default=LISTED[0],
    help="Only the jobs in this state; may be repeated.",
)  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(1), help="At most so many; without it, all.")
@options.as_json
def list_jobs(
    tube: bytes, address: Address, states: tuple[str, ...], limit: int | None, is_json: bool
) -> None:  # fmt: skip
    """Show the jobs of TUBE ('default' without it), and change nothing.

    Ready ones stand in the order in which they are given out, delayed ones as their delays end,
    buried ones as they were buried.  Times are seconds; connection is that of who has reserved it,
    as in `beanstalk connections`.  A delayed job may wait for a group to end instead.

    They are asked for page by page: a job that stays where it is stands there once.

    \b
    Examples:
      beanstalk list mail
      beanstalk list mail --state buried --limit 20 --json
    """
    found = 0
    chosen = tuple(state for state in LISTED if state in states) or LISTED[:1]
    if LISTED[0] in chosen:
        chosen = LISTED[:1]

    def jobs() -> Iterator[Stats]:
        nonlocal found
        for state in chosen:
            left = None if limit is None else limit - found
            for page in extensions.pages(tube, state, left):
                found += len(page)
                yield from page

    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("list-jobs", _instead(tube, chosen[0]))
        if is_json:
            for job in jobs():
                Output(True).document({"tube": tube.decode(), **numbers(job)})
        else:
            _table(JOB_TITLES, JOB_KEYS, JOBS_NOT_IF_NARROW, map(_with_group, jobs()))
    if not found:
        which = "" if chosen == LISTED[:1] else f"{' or '.join(chosen)} "
        fail(NOTHING, f"{tube.decode()} has no {which}job")


def _with_group(job: Stats) -> Stats:
    return Stats({**job, WAITS_FOR: group_awaited(job)})


def _instead(tube: bytes, state: str) -> str:
    shown = state if state in STATES else STATES[0]
    return f"`beanstalk peek --tube {tube.decode()} --state {shown}` shows the first job of a state"


@click.command("connections")
@options.server
@options.as_json
def connections(address: Address, is_json: bool) -> None:
    """Show who is connected to the server, this command too.

    Role is what a connection has done: put (producer), reserved (worker); waiting if it waits for a
    job, and for how many seconds.  Time left is that of the jobs it has reserved, by their numbers.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("list-connections", "`beanstalk stats` says how many there are")
        found = extensions.connections()
    if is_json:
        for each in found:
            Output(True).document(_document(each))
    else:
        _table(CONNECTION_TITLES, CONNECTION_KEYS, CONNECTIONS_NOT_IF_NARROW, iter(found))


def _document(connection: Stats) -> dict[str, object]:
    texts = {key: connection[key] for key in ("peer", "role", "using")}
    # Older servers do not say who it is.
    if "tls" in connection:
        texts["identity"] = connection["identity"]
    return {
        **numbers(connection), **texts, "role": texts["role"].split(),
        "time-left": dict(_times_left(connection)),
    }  # fmt: skip


def _times_left(connection: Stats) -> Iterator[tuple[str, int]]:
    """Of the jobs that a connection has reserved the seconds left, by id."""
    for part in connection["time-left"].strip("{}").split(", "):
        job, colon, seconds = part.partition(": ")
        if colon:
            yield job, Stats(seconds=seconds).number("seconds")


def _table(
    titles: Sequence[Column], keys: Sequence[str], not_if_narrow: Sequence[str],
    found: Iterator[Stats],
) -> None:  # fmt: skip
    """Print what comes as it comes; a terminal without room is not shown all columns."""
    output = Output()
    rows = ([_shown(each.get(key, "")) for key in keys] for each in found)
    first = list(islice(rows, TABLE_ROWS))
    shown = list(range(len(keys)))
    if output.is_terminal:
        names = [title.title for title in titles]
        places = [keys.index(key) for key in not_if_narrow]
        shown = fitting([names, *first], places, shutil.get_terminal_size().columns)
    output.table(
        [titles[place] for place in shown],
        ([row[place] for place in shown] for row in chain(first, rows)),
    )


def _shown(value: str) -> str | None:
    """A value as in a table: what has more than one without its brackets, and what is empty as
    `-`.
    """
    return value.strip("{}") or None
