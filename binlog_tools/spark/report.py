"""``python -m binlog_tools.spark.report TABLES -o report.html``: the tables as a page to look at
and to send, or as JSON.
"""

import time
from pathlib import Path
from typing import Final, NoReturn

import click

from binlog_tools.cli.commands import CANNOT_READ, USAGE
from binlog_tools.console.errors import aside
from binlog_tools.console.output import Output
from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.errors import need

_MINUTE_NS: Final = 60 * 10**9
_NOW: Final = f"{__name__}.now_ns"
"""What all options of a command count from."""

TITLE: Final = "The queue, as its log tells it"


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return seconds since the epoch; ``now`` is the end of this minute."""
    now_ns = ctx.meta.setdefault(_NOW, -(-time.time_ns() // _MINUTE_NS) * _MINUTE_NS)
    try:
        return None if value is None else parse_time(value, now_ns) / 1e9
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("tables")
@click.option(
    "-o", "--output", "outputs", required=True, multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="What to write: a page or, if its name ends with .json, its tables. May be repeated.",
)  # fmt: skip
@click.option("--title", default=TITLE, show_default=True, help="Its title.")
@click.option("--from", "start", callback=_moment,
              help="Begin there: 2026-01-31T12:00:00Z, -7d. Whole minutes are taken.")  # fmt: skip
@click.option("--to", "end", callback=_moment, help="End before it.")
@click.option("--events",
              help="The events table, for samples of bodies and for damage.")  # fmt: skip
def command(
    tables: str, outputs: tuple[Path, ...], title: str, start: float | None, end: float | None,
    events: str | None,
) -> None:  # fmt: skip
    """Make a page of the tables in TABLES, a directory or URL, as `tables` makes them.

    What is missing is said in the page; of tables that are not whole nothing is reported (exit code
    4). Neither Spark nor Java is needed.
    """
    need("report", "numpy", "pyarrow", "deltalake")
    from binlog_tools.spark.errors import TableError
    from binlog_tools.spark.reporting.sections import PeriodError, Request, make
    from binlog_tools.spark.reporting.series import Period

    period = Period(*(
        default if given is None else given
        for given, default in zip((start, end), Period(), strict=True)
    ))  # fmt: skip
    try:
        made = make(Request(tables, title, period, events))
        for output in outputs:
            output.write_text(made.text_for(output), encoding="utf-8")
    except PeriodError as problem:
        _fail(str(problem), USAGE)
    except TableError as problem:
        _fail(str(problem))
    except OSError as problem:
        _fail(f"{problem.filename or tables}: {problem.strerror or problem}")
    if made.taken:
        aside(f"report: {made.taken}")
    if made.absent:
        aside(
            f"report: {tables} lacks {', '.join(made.absent)}: that is left out. To make all: "
            f"python -m binlog_tools.spark tables LOG -o {tables}"
        )
    if made.is_empty:
        aside(
            f"report: {tables} has nothing in this time: the page has no figures; give another "
            "--from and --to, or leave them away"
        )
    Output().line(f"report: written to {', '.join(map(str, outputs))}")


def _fail(message: str, code: int = CANNOT_READ) -> NoReturn:
    aside(f"report: {message}")
    raise SystemExit(code)


if __name__ == "__main__":
    command()
