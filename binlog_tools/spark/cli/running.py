"""Options that several commands share, and how a command looks while it runs."""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import click
from pyspark.sql import SparkSession

from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.console.errors import aside
from binlog_tools.console.output import Output, progress
from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.definitions.addresses import normal, within
from binlog_tools.spark.errors import TableError
from binlog_tools.spark.reading.finding import named, refuse_nothing
from binlog_tools.spark.segments.wanted import DAMAGE_CHOICES
from binlog_tools.spark.session import active, session, wants_stacks
from binlog_tools.spark.storing import Location, holds_table

LOOK_SECONDS: Final = 0.25
"""How often the bar asks Spark how far it is."""

CONNECT_PORT: Final = 15002
"""Where a Connect server listens, if its URL does not say where."""

CONNECT_S: Final = 10.0
"""How long its machine may take to answer, seconds: lost packets are sent again after 1, 3, 7."""

Report = Callable[[int, int], None]


def started(name: str, master: str | None, has_ui: bool = False) -> SparkSession:
    """The session of a command.

    :param master: as ``local[4]``, or ``sc://HOST`` for a Connect server; None: what
        ``spark-submit`` or ``SPARK_REMOTE`` says, or all processors of this machine.
    """
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
    """Let Java, if it is started within, write its stderr where nobody looks; told if that
    fails.
    """
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


@contextmanager
def bar(label: str) -> Iterator[None]:
    """How many of Spark's tasks are done, on a terminal, while the block runs; it may start
    Spark.
    """
    if not sys.stderr.isatty():
        yield
        return
    is_over = Event()
    with progress(label) as report:
        thread = Thread(target=_watch, args=(report, is_over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def _watch(report: Report, is_over: Event) -> None:
    told_by: Any = None
    while not is_over.wait(LOOK_SECONDS):
        spark: Any = active()
        if spark is None or told_by is not None:
            continue
        if (tasks := running_tasks(spark)) is not None:
            _tell(report, tasks)
        else:
            told_by = spark
            told_by.registerProgressHandler(
                lambda stages, **_: _tell(
                    report, [(each.num_completed_tasks, each.num_tasks) for each in stages]
                )
            )
    if told_by is not None:
        told_by.clearProgressHandlers()


def running_tasks(spark: SparkSession) -> list[tuple[int, int]] | None:
    """:return: tasks done, and all tasks, of each stage that runs; None: a Connect session tells it
    by itself.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    tracker = context.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return [(each.numCompletedTasks, each.numTasks) for each in stages if each is not None]


def _tell(report: Report, stages: Sequence[tuple[int, int]]) -> None:
    if stages:
        report(sum(done for done, _ in stages), sum(total for _, total in stages))


@contextmanager
def line(name: str) -> Iterator[Callable[[str], None]]:
    """A bar, and at the end one line with the time it took.

    :return: what is called with the rest of the line.
    """
    started_at = time.monotonic()
    said: list[str] = []
    with bar(name):
        yield said.append
    seconds = time.monotonic() - started_at
    Output().line(f"{name}: {''.join(said)} in {seconds:.1f} s")


INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


def are_events(inputs: tuple[str, ...], source: str) -> bool:
    """Return True if the inputs are events tables."""
    return source == "events" or (source == "auto" and any(map(holds_table, inputs)))


def look(inputs: tuple[str, ...], source: str) -> None:
    """Look whether the paths are there, and are logs or events, before Spark starts.

    :raise SourceError: one is not there, or there is no log at all.
    """
    found = [each for path in inputs for each in named(path)]
    if not are_events(inputs, source):
        refuse_nothing(found)


def tables_in(place: str) -> list[str]:
    """The place itself; or the tables in it, if it is none and has some."""
    location = Location.of(place)
    if holds_table(place) or (location.is_local and not os.path.isdir(location.path)):
        return [place]
    inner = [within(place, name) for name in location.names()]
    return [each for each in inner if holds_table(each)] or [place]


def _absolute(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """A Connect server, and executors, may be in another working directory."""
    return tuple(each if is_url(each) else os.path.abspath(normal(each)) for each in value)


def _all_of(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


common = _all_of((
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, callback=_absolute),
    click.option("-o", "--output", required=True, help="The directory or URL to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
))  # fmt: skip

from_ = click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                     show_default=True, help="What INPUT is; `auto` looks for tables."
                     )  # fmt: skip


def parsed_time(moment: str) -> int:
    """Return nanoseconds since the epoch.

    :raise TableError: it is not a time.
    """
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None
