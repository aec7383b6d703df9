"""``beanstalk tubes``, ``stats``, ``pause``, ``policy`` and ``connections``."""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.tags import hashed_key
from beanstalk_twisted.client.stats import Stats
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.groups import Parsed
from binlog_tools.console.output import Column, Output, columns
from binlog_tools.queue.asking import Policy, all_tubes, need
from binlog_tools.queue.asking import policy as policy_of
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import REFUSED

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

TITLES = columns(
    "~tube", "#ready", "#reserved", "#delayed", "#buried", "#urgent", "#put", "#deleted",
    "#watching", "#waiting", "#pause",
)  # fmt: skip
KEYS = (
    "name", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "current-jobs-urgent", "total-jobs", "cmd-delete", "current-watching",
    "current-waiting", "pause-time-left",
)  # fmt: skip

NOT_IF_NARROW: Final = (
    "current-jobs-urgent", "current-watching", "cmd-delete", "total-jobs", "current-waiting",
)  # fmt: skip
"""What a terminal without room is not shown, the first first."""
TEXTS: Final = frozenset({
    "name", "tube", "id", "hostname", "version", "os", "platform", "idempotency-key", "group",
    "after-group", "concurrency-key", "dead-from", "dead-reason", "origin", "dead-letter",
    "backoff", "expired", "rate",
})  # fmt: skip
"""Values that may look like numbers and are none; `id` is one where it is the number of a job."""
BETWEEN: Final = 2
"""Blanks between two columns, and around all of them together."""

_CHANGE: Final = re.compile(r"[a-z-]+=[!-~]+")
"""Of a policy, on the command line."""


def numbers(stats: Mapping[str, object]) -> dict[str, object]:
    """Statistics for JSON: of keys that are not known here what looks like a number is one."""
    return {key: _number(key, value) for key, value in stats.items()}


def _number(key: str, value: object) -> object:
    if key in TEXTS or not isinstance(value, str):
        return value
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return {"true": True, "false": False}.get(value, value)


@click.command("tubes")
@options.server
@options.as_json
def tubes_command(address: Address, is_json: bool) -> None:
    """Show all tubes, with how many jobs they have."""
    with options.connected(address) as queue:
        found = all_tubes(queue)
    if is_json:
        for each in found:
            Output(True).document(numbers(each))
        return
    rows = [[each[key] for key in KEYS] for each in found]
    table(TITLES, KEYS, NOT_IF_NARROW, rows)


def table(
    titles: Sequence[Column], keys: Sequence[str], not_if_narrow: Sequence[str],
    rows: Sequence[Sequence[object]], more: Iterable[Sequence[object]] = (),
) -> None:  # fmt: skip
    """:param more: rows that are printed as they come; room is made for the others alone."""
    output = Output()
    shown = list(range(len(keys)))
    if output.is_terminal:
        names = [title.title for title in titles]
        places = [keys.index(key) for key in not_if_narrow]
        shown = fitting([names, *rows], places, shutil.get_terminal_size().columns)
    output.table(
        [titles[place] for place in shown],
        ([row[place] for place in shown] for row in chain(rows, more)),
    )


def fitting(
    rows: Sequence[Sequence[object]], not_if_narrow: Sequence[int], columns: int
) -> list[int]:  # fmt: skip
    """Say which columns of a table, its titles among the rows, a terminal has room for.

    :param not_if_narrow: the places of those that may be left out, the first first.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) + BETWEEN for column in zip(*cells, strict=True)]
    shown = list(range(len(widths)))
    for place in not_if_narrow:
        if BETWEEN + sum(widths[place] for place in shown) > columns:
            shown.remove(place)
    return shown


@click.command("stats")
@options.server
@click.option("-t", "--tube", type=options.TUBE, metavar="NAME", help="Of a tube.")
@click.option("-j", "--job", type=options.JOB, metavar="ID", help="Of a job.")
@click.option("-g", "--group", type=options.TUBE, metavar="NAME", help="Of a group of jobs.")
@click.option(
    "--group-by", type=Parsed("text", lambda text: hashed_key(text).encode()), metavar="VALUE",
    help="Of the group that put --group-by names.",
)  # fmt: skip
@options.as_json
def stats_command(
    address: Address, tube: bytes | None, job: int | None, group: bytes | None,
    group_by: bytes | None, is_json: bool,
) -> None:  # fmt: skip
    """Show what the server says of itself, of a tube, of a job, or of a group of jobs.

    The keys are explained in docs/protocol.md, those of a group in docs/extensions.md, and in
    beanstalkd's protocol.txt.
    """
    if sum(each is not None for each in (tube, job, group, group_by)) > 1:
        raise click.UsageError("only one of --tube, --job, --group and --group-by")
    group = group_by if group is None else group
    with options.connected(address) as queue:
        if group is not None:
            need(queue, "stats-group", "it has no groups")
            found: Stats = queue.stats_group(group)
        elif tube is not None:
            found = queue.stats_tube(tube)
        else:
            found = queue.stats() if job is None else queue.stats_job(job)
    output = Output(is_json)
    if is_json:
        output.document(numbers(found))
    else:
        output.table(columns("key", "value"), found.items())


@click.command("pause")
@click.argument("tube", type=options.TUBE)
@click.argument("seconds", type=options.SECONDS)
@options.server
@options.as_json
def pause_command(tube: bytes, seconds: int, address: Address, is_json: bool) -> None:
    """Let nobody reserve from TUBE for so many SECONDS; 0 ends a pause."""
    with options.connected(address) as queue:
        # 0 is a pause of 1 ns on a beanstalkd: over before anybody sees it.
        queue.pause_tube(tube, seconds)
    if is_json:
        Output(True).document({"tube": tube.decode(), "seconds": seconds})


def _change(text: str) -> str:
    """:raise ValueError: it is no change of a policy."""
    if not _CHANGE.fullmatch(text):
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return text


@click.command("policy")
@click.argument("tube", type=options.TUBE)
@click.argument("changes", metavar="[KEY=VALUE]...", nargs=-1, type=Parsed("text", _change))
@options.server
@options.as_json
def policy_command(tube: bytes, changes: tuple[str, ...], address: Address, is_json: bool) -> None:
    """Show the policy of TUBE, or change it and show what holds then.

    A value of - removes what a command has set.  Nothing is changed if one key or value is wrong.
    From is where a value comes from: a command like this one, or the server's file of policies,
    which wins.  Keys and values are explained in docs/extensions.md.

    \b
    Examples:
      beanstalk policy mail
      beanstalk policy mail max-reserves=5 dead-letter=mail.dead
      beanstalk policy mail max-reserves=-
    """
    with options.connected(address) as queue:
        need(queue, "tube-policy", "its tubes have no policies")
        if changes:
            _change_policy(queue, tube, changes)
        found = policy_of(queue, tube)
    for sentence in _without_effect(changes, found):
        warn(sentence)
    if is_json:
        shown: dict[str, object] = {"tube": tube.decode()}
        for key, (value, source) in found.items():
            shown |= {**numbers({key: value}), f"{key}-from": source}
        Output(True).document(shown)
    else:
        rows = ([key, value, source] for key, (value, source) in found.items())
        Output().table(columns("key", "~value", "from"), rows)


def _change_policy(queue: "Client", tube: bytes, changes: Sequence[str]) -> None:
    """End the command if the server refuses; say which key is wrong, as far as is known here: it
    may be a newer server, so it is asked first.
    """
    pairs = [change.split("=", 1) for change in changes]
    keys = Counter(key for key, _ in pairs)
    for key, count in keys.items():
        if count > 1:
            fail(REFUSED, f"tube-policy: {key} stands {count} times; nothing was changed")
    try:
        queue.tube_policy(tube, dict(pairs))
    except ValueError as wrong:
        fail(REFUSED, str(wrong))
    except errors.BadFormat as refused:
        # It takes long to import, and is for mistakes only.
        from beanstalk_twisted.rules.policy_keys import BadRule, check_rule

        try:
            for key, value in pairs:
                check_rule(key, value)
        except BadRule as wrong:
            fail(REFUSED, f"tube-policy (tube {tube.decode()}): {wrong}; nothing was changed")
        refused.args = (f"{refused}; refused: {' or '.join(changes)}",)
        raise


def _without_effect(changes: Sequence[str], found: Policy) -> Iterator[str]:
    """Say of each value that was set and does not hold what the file of policies says instead."""
    for change in changes:
        key, _, value = change.partition("=")
        holds, source = found.get(key, ("-", "file"))
        if value != "-" and source == "file":
            yield (
                f"{key}={value} is kept and does not count: the server's file of policies, which "
                f"wins, has {key}={holds}"
            )


CONNECTION_TITLES: Final = columns(
    "#connection", "~peer", "role", "~using", "#watching", "#reserved", "~time left", "#waiting",
    "#buffered", "~identity", "tls",
)  # fmt: skip
CONNECTION_KEYS: Final = (
    "connection", "peer", "role", "using", "watching", "reserved", "time-left", "waiting",
    "buffered", "identity", "tls",
)  # fmt: skip
CONNECTIONS_NOT_IF_NARROW: Final = ("buffered", "tls", "watching", "time-left")


@click.command("connections")
@options.server
@options.as_json
def connections_command(address: Address, is_json: bool) -> None:
    """Show who is connected to the server, this command too.

    Role is what a connection has done: put (producer), reserved (worker); waiting if it waits for a
    job, and for how many seconds.  Time left is that of the jobs it has reserved, by their numbers.
    """
    with options.connected(address) as queue:
        need(queue, "list-connections", "`beanstalk stats` says how many there are")
        found = queue.list_connections()
    if is_json:
        for each in found:
            left = {str(job): seconds for job, seconds in each.time_left.items()}
            Output(True).document({**each, "role": each.role.split(), "time-left": left})
    else:
        rows = ([_cell(each.get(key)) for key in CONNECTION_KEYS] for each in found)
        table(CONNECTION_TITLES, CONNECTION_KEYS, CONNECTIONS_NOT_IF_NARROW, list(rows))


def _cell(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{job}: {seconds}" for job, seconds in value.items()) or None
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value) or None
