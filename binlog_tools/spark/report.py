"""
``python -m binlog_tools.spark.report TABLES -o report.html``: the tables as a page to look at.
"""

from pathlib import Path
from typing import Final

import click

from binlog_tools.cli.exits import CANNOT_READ
from binlog_tools.console.output import Output, aside
from binlog_tools.spark.errors import need

TITLE: Final = "The queue, as its log tells it"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("tables", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False),
    help="The page to write.",
)  # fmt: skip
@click.option("--title", default=TITLE, show_default=True, help="Its title.")
def command(tables: Path, output: Path, title: str) -> None:
    """
    Make a page of the tables in the directory TABLES: tube_minutes, lifetimes, poison, workers.

    Tables that are missing are left out, which is said; of tables that are not whole nothing is
    reported (exit code 4). Neither Spark nor Java is needed.
    """
    need("report", "matplotlib", "pyarrow")
    from binlog_tools.spark.definitions.errors import TableError
    from binlog_tools.spark.reporting.readings import read
    from binlog_tools.spark.reporting.sections import render

    try:
        readings = read(tables)
        output.write_text(render(readings, title), encoding="utf-8")
    except TableError as problem:
        _fail(str(problem))
    except OSError as problem:
        _fail(f"{problem.filename or output}: {problem.strerror}")
    if readings.absent:
        aside(
            f"report: {tables} lacks {', '.join(readings.absent)}: that is left out. To make all: "
            f"python -m binlog_tools.spark tables LOG -o {tables} --mode overwrite"
        )
    Output().line(f"report: written to {output}")


def _fail(message: str) -> None:
    aside(f"report: {message}")
    raise SystemExit(CANNOT_READ)


if __name__ == "__main__":
    command()
