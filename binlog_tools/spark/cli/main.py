"""The commands, and the group of them."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Final

import click

from binlog_tools.console.errors import aside
from binlog_tools.console.groups import FiniteRange
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.spark.cli.running import (
    are_events,
    bar,
    common,
    from_,
    line,
    look,
    parsed_time,
    started,
    tables_in,
)
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.events import event_rows, log_rows, write_events
from binlog_tools.spark.following.logs import Lag
from binlog_tools.spark.live import BATCH_BYTES, Follower, LiveTables, Request
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.segments.wanted import DAMAGE_CHOICES
from binlog_tools.spark.session import explained
from binlog_tools.spark.storing import RETENTION_HOURS, open_stored
from binlog_tools.spark.tables.engines import InProcess, Spark
from binlog_tools.spark.tables.increments import INTERNAL, Updated, update


@click.command()
@common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, body: bool, live: str
) -> None:
    """Write logs as one events table, or what is new in them into the table."""
    with explained():
        given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
                 "body": str(body).lower(), "damage": damage, "servers": servers,
                 "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        with line("events") as say:
            done = write_events(asked, output)
            segments, rows = told(done.segments, "segment"), told(done.rows, "row")
            say(f"{segments}, {rows} written to {output}")
    if done.problems:
        rows = "1 row tells" if done.problems == 1 else f"{done.problems} rows tell"
        aside(f"{rows} of damage (problem is not null); when it is repaired, "
              "write a new table")  # fmt: skip


@click.command()
@common
@from_
@click.option("--local", is_flag=True,
              help="Make them in this process, without Spark and Java: for histories up to some "
              "5,000,000 events.")  # fmt: skip
@click.option("--until", help="Take no later events: a time, as 2026-01-31T12:00:00Z or -2h.")
@click.option("--master", help="Of Spark: local[4], or sc://HOST; else what spark-submit or "
              "SPARK_REMOTE says, or this machine.")  # fmt: skip
@click.option("--ui", is_flag=True, help="Open Spark's web pages on this machine.")
def tables(
    inputs: tuple[str, ...], output: str, source: str, damage: str, servers: str, local: bool,
    until: str | None, master: str | None, ui: bool,
) -> None:  # fmt: skip
    """Make the tables of jobs, each in OUTPUT/NAME, or bring them up to date.

    Repeat it if it was killed: each table is as it was before, or as it will be.
    """
    with explained():
        until_ns = None if until is None else parsed_time(until)
        look(inputs, source)
        begun = time.monotonic()
        newer = partial(event_rows, inputs)
        if not are_events(inputs, source):
            given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
                     "body": "true", "damage": damage, "servers": servers}  # fmt: skip
            newer = partial(log_rows, parse_options(given)._replace(paths=inputs))
        engine = InProcess() if local else Spark(lambda: started("tables", master, ui))
        updated = update(output, newer, engine, until_ns)
        has_new = False
        while (each := _next(updated)) is not None:
            has_new = True
            if each.name not in INTERNAL:
                seconds = f"{time.monotonic() - begun:.1f} s after start"
                place = within(output, each.name)
                Output().line(f"{each.name}: {told(each.rows, 'row')} written to {place}, "
                              f"{seconds}")  # fmt: skip
        if not has_new:
            Output().line(f"{output}: nothing new")


def _next(updated: Iterator[Updated]) -> Updated | None:
    with bar("tables"):
        return next(updated, None)


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="A folder or URL; each table gets a folder.")
@click.option("--archive", help="The server's archive: where segments are that it has deleted.")
@click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers.")
@click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail", show_default=True,
              help="What to do about damage in logs.")  # fmt: skip
@click.option("--max-bytes", default=BATCH_BYTES, show_default=True, help="What a step reads.")
@click.option("--once", is_flag=True, help="End with what there is.")
def live(
    logs: tuple[str, ...], output: str, archive: str | None, servers: str, damage: str,
    max_bytes: str, once: bool,
) -> None:  # fmt: skip
    """Keep lifetimes, attempts and tube_minutes up to date in OUTPUT, as Delta tables.

    LOG is the directory of a server, or a pattern.  It goes on where it was ended or killed.
    """
    with explained():
        options = {"servers": servers, "damage": damage, "maxBytesPerTrigger": max_bytes}
        request = Request(logs, options | ({"archive": archive} if archive else {}))
        request.refuse_nothing()
        kept = LiveTables(output)
        follower = Follower(request, kept)
        aside(begin_text(follower.behind()))
        with _interrupted() as is_over:
            began = time.monotonic()
            follower.run(is_over, once)
        for name, rows in kept.rows.items():
            Output().line(f"{name}: {told(rows, 'row')}, {time.monotonic() - began:.1f} s")


SHOWN_SERVERS: Final = 5
"""Servers that the first line names: it has to be read."""


def begin_text(begun: Mapping[str, tuple[int, Lag]]) -> str:
    """What is about to be read."""
    named = [f"{server} from LSN {lsn} on, {lag.records:,} records behind"
             for server, (lsn, lag) in list(begun.items())[:SHOWN_SERVERS]]  # fmt: skip
    if len(begun) > SHOWN_SERVERS:
        named.append(f"and {told(len(begun) - SHOWN_SERVERS, 'server')} more")
    return f"live: reads {'; '.join(named)}"


@contextmanager
def _interrupted() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set."""
    is_over = Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: is_over.set()) for number in signals]
    try:
        yield is_over
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@click.command()
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option("--keep-hours", type=FiniteRange(0), default=RETENTION_HOURS, show_default=True,
              help="How long to keep files that no version needs, for those who still read them."
              )  # fmt: skip
def optimize(tables: tuple[str, ...], keep_hours: float) -> None:
    """Merge small files of Delta tables, and remove those that no version needs.

    TABLE may also be a folder with tables in it, as `tables` and `live` make it.
    """
    with explained():
        found = [each for table in tables for each in tables_in(table)]
    for table in found:
        with explained():
            done = open_stored(table).optimize(keep_hours)
        Output().line(
            f"{table}: {told(done.merged, 'file')} became {done.made}, {done.removed} removed"
        )


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Make tables of the history of queues.

    INPUT is an events table (as `events` writes it), or logs: directories of servers,
    archives, segments, patterns. Convert logs once with `events`; `tables` then is faster.
    """


for _each in (events, optimize, tables, live):
    cli.add_command(_each)
