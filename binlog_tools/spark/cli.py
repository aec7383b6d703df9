"""The pipelines as programs: what ``python -m binlog_tools.spark`` runs."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, Final
from urllib.parse import urlsplit

import click
from pyspark.sql import SparkSession

from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.console.errors import aside
from binlog_tools.console.groups import FiniteRange
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.definitions.addresses import normal, within
from binlog_tools.spark.errors import TableError
from binlog_tools.spark.events import event_rows, log_rows, write_events
from binlog_tools.spark.following.logs import Lag
from binlog_tools.spark.live import BATCH_BYTES, Follower, LiveTables, Request
from binlog_tools.spark.reading.finding import named, refuse_nothing
from binlog_tools.spark.reading.options import Asked, parse_options
from binlog_tools.spark.segments.wanted import DAMAGE_CHOICES
from binlog_tools.spark.session import active, explained, session, wants_stacks
from binlog_tools.spark.storing import RETENTION_HOURS, Location, holds_table, open_stored
from binlog_tools.spark.tables.engines import InProcess, Spark
from binlog_tools.spark.tables.increments import INTERNAL, update

CONNECT_PORT: Final = 15002
"""Where a Connect server listens, if its URL does not say where."""

CONNECT_S: Final = 10.0
"""How long its machine may take to answer, seconds: lost packets are sent again after 1, 3, 7."""

Command = Callable[..., Any]


def started(name: str, master: str | None, has_ui: bool = False) -> SparkSession:
    """Return the session of a command; ``master``: as ``local[4]``, or ``sc://HOST``."""
    remote = master if master and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote:
        _refuse_deaf(remote)
        return session(name, {"spark.remote": remote})
    # The stacks of what fails would stand before the line that tells it.
    settings = {"spark.log.level": "ERROR" if wants_stacks() else "FATAL"}
    if master:
        settings["spark.master"] = master
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return session(f"beanstalk {name}", settings)
    with quiet(wants_stacks() or active() is not None):
        spark = session(f"beanstalk {name}", settings | {"spark.ui.enabled": str(has_ui).lower()})
    if has_ui:
        aside(f"Spark's pages: {spark.sparkContext.uiWebUrl}")
    return spark


def _refuse_deaf(remote: str) -> None:
    """:raise TableError: nobody listens there, for which Spark would try again for many minutes."""
    place = urlsplit(remote)
    if place.scheme != "sc" or not place.hostname:
        return
    port = place.port or CONNECT_PORT
    try:
        socket.create_connection((place.hostname, port), CONNECT_S).close()
    except OSError as problem:
        why = problem.strerror or problem
        raise TableError("SPARK_NO_SERVER", f"{place.hostname}:{port}: no server of Spark Connect "
                         f"answers: {why}") from None  # fmt: skip


@contextmanager
def quiet(is_off: bool = False) -> Iterator[None]:
    """Keep what Java says on stderr, if it is started within, and show it only if that fails."""
    if is_off:
        yield
        return
    with tempfile.TemporaryFile() as lines:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(lines.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            lines.seek(0)
            aside(lines.read().decode(errors="replace").rstrip())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def are_events(inputs: tuple[str, ...], source: str) -> bool:
    """Return True if the inputs are events tables."""
    return source == "events" or (source == "auto" and any(map(holds_table, inputs)))


def tables_in(place: str) -> list[str]:
    """The place itself; or the tables in it, if it is none and has some."""
    location = Location.of(place)
    if holds_table(place) or (location.is_local and not os.path.isdir(location.path)):
        return [place]
    inner = [within(place, name) for name in location.names()]
    return [each for each in inner if holds_table(each)] or [place]


def _asked(paths: tuple[str, ...], **options: str) -> Asked:
    given = {"path": paths[0], "copies": "keep", "records": "history", "tags": "true", **options}
    return parse_options(given)._replace(paths=paths)


def _absolute(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """A Connect server, and executors, may be in another working directory."""
    return tuple(each if is_url(each) else os.path.abspath(normal(each)) for each in value)


def _common(command: Command) -> Command:
    """Add the parameters that `events` and `tables` share."""
    for parameter in (
        click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
        click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                     show_default=True, help="What to do about damage in logs."),
        click.option("-o", "--output", required=True, help="The directory or URL to write."),
        click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, callback=_absolute),
    ):  # fmt: skip
        command = parameter(command)
    return command


@click.command()
@_common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, body: bool, live: str
) -> None:
    """Write logs as one events table, or what is new in them into the table."""
    with explained():
        begun = time.monotonic()
        asked = _asked(inputs, body=str(body).lower(), damage=damage, servers=servers, live=live)
        done = write_events(asked, output)
        segments, rows = told(done.segments, "segment"), told(done.rows, "row")
        seconds = f"{time.monotonic() - begun:.1f} s"
        Output().line(f"events: {segments}, {rows} written to {output} in {seconds}")
    if done.problems:
        rows = "1 row tells" if done.problems == 1 else f"{done.problems} rows tell"
        aside(f"{rows} of damage (problem is not null); when it is repaired, write a new table")


@click.command()
@_common
@click.option("--from", "source", type=click.Choice(["auto", "events", "logs"]), default="auto",
              show_default=True, help="What INPUT is; `auto` looks for tables.")  # fmt: skip
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
        try:
            until_ns = None if until is None else parse_time(until, time.time_ns())
        except ValueError as problem:
            raise TableError("TABLE_OPTION", str(problem)) from None
        begun = time.monotonic()
        # What is no log is refused before Spark starts.
        found = [each for path in inputs for each in named(path)]
        newer = partial(event_rows, inputs)
        if not are_events(inputs, source):
            refuse_nothing(found)
            newer = partial(log_rows, _asked(inputs, body="true", damage=damage, servers=servers))
        engine = InProcess() if local else Spark(lambda: started("tables", master, ui))
        has_new = False
        for each in update(output, newer, engine, until_ns):
            has_new = True
            if each.name not in INTERNAL:
                seconds = f"{time.monotonic() - begun:.1f} s after start"
                place = within(output, each.name)
                Output().line(f"{each.name}: {told(each.rows, 'row')} written to {place}, "
                              f"{seconds}")  # fmt: skip
        if not has_new:
            Output().line(f"{output}: nothing new")


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
