"""
``python -m binlog_tools.spark.report TABLES -o report.html``: the tables as a page to look at, or
as JSON, of which the server's console makes one.
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
    "-o", "--output", "outputs", required=True, multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="What to write: a page or, if its name ends with .json, its tables. May be repeated.",
)  # fmt: skip
@click.option("--title", default=TITLE, show_default=True, help="Its title.")
def command(tables: Path, outputs: tuple[Path, ...], title: str) -> None:
    """
    Make a page of the tables in the directory TABLES: tube_minutes, lifetimes, poison, workers.

    Tables that are missing are left out, which is said; of tables that are not whole nothing is
    reported (exit code 4). Neither Spark nor Java is needed.
    """
    need("report", "matplotlib", "pyarrow")
    from binlog_tools.spark.definitions.errors import TableError
    from binlog_tools.spark.reporting.page import as_json, as_page
    from binlog_tools.spark.reporting.readings import read
    from binlog_tools.spark.reporting.sections import content_of

    try:
        readings = read(tables)
        content = content_of(readings, title)
        for output in outputs:
            text = as_json(content) if output.suffix == ".json" else as_page(content)
            output.write_text(text, encoding="utf-8")
    except TableError as problem:
        _fail(str(problem))
    except OSError as problem:
        _fail(f"{problem.filename or tables}: {problem.strerror}")
    if readings.absent:
        aside(
            f"report: {tables} lacks {', '.join(readings.absent)}: that is left out. To make all: "
            f"python -m binlog_tools.spark tables LOG -o {tables} --mode overwrite"
        )
    Output().line(f"report: written to {', '.join(map(str, outputs))}")


def _fail(message: str) -> None:
    aside(f"report: {message}")
    raise SystemExit(CANNOT_READ)


if __name__ == "__main__":
    command()
