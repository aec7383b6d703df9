"""What a command prints: tables on a terminal, tab-separated lines in a pipe, or JSON.  Without
``rich``, the extra ``cli``, tables and progress bars are plain.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from beanstalk_twisted.printable import escape, escape_all, escape_json
from binlog_tools.console.wording import text_of

if TYPE_CHECKING:
    from beanstalk_twisted.binlog.reading.survey import Progress


VERSION: Final = 1
"""Of the JSON, as docs/inspect.md says it; each document carries it as ``v``."""

TABLE_ROWS: Final = 500
"""A longer table is drawn in parts, each with its titles: its widths are those of its rows."""

CUT_CHARACTERS: Final = 14
"""So much is shown at least of text that may be cut."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Column(NamedTuple):
    """A column of a table; it may be cut where the terminal is too narrow."""

    title: str
    is_number: bool = False
    may_be_cut: bool = False


class Escaped(str):
    """Text that can break no line and no column any more."""


def columns(*titles: str) -> list[Column]:
    """Columns; a title that begins with ``#`` is one of numbers, with ``~`` one of text that may be
    cut where there is no room.
    """
    return [Column(title.lstrip("#~"), title[0] == "#", title[0] == "~") for title in titles]


class Output:
    def __init__(self, is_json: bool = False, is_terminal: bool | None = None) -> None:
        self.is_json = is_json
        self.is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal

    def can_show(self, text: str) -> bool:
        try:
            text.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            return False
        return True

    def document(self, fields: Mapping[str, object]) -> None:
        sys.stdout.write(as_json(fields) + "\n")

    def line(self, text: str = "") -> None:
        click.echo(escape(text))

    def heading(self, text: str) -> None:
        """What a table is about; a pipe gets an empty line and ``# text``."""
        text = escape(text)
        click.echo(f"\n{text}" if self.is_terminal else f"# {text}")

    def body(self, body: bytes, is_raw: bool = False) -> None:
        """A body on its own; on a terminal, unless ``is_raw``, as one line in which everything can
        be seen.
        """
        if self.is_terminal and not is_raw:
            self.line(escape_all(body))
            return
        sys.stdout.flush()
        out = sys.stdout.buffer
        out.write(body)
        out.flush()

    def row(self, values: Sequence[object]) -> None:
        sys.stdout.write("\t".join([cell(value) for value in values]) + "\n")

    def rows(self, rows: Iterable[Sequence[object]]) -> None:
        for row in rows:
            self.row(row)

    def result(
        self, document: Callable[[], Mapping[str, object]], rows: Iterable[Sequence[object]],
        show: Callable[[], None],
    ) -> None:  # fmt: skip
        """The one result of a command.

        :param document: gives it as JSON.
        :param rows: it for a pipe; the first value of each says what it is.
        :param show: prints it for people.
        """
        if self.is_json:
            self.document(document())
        elif self.is_terminal:
            show()
        else:
            self.rows(rows)

    def table(self, titles: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """A table; a pipe gets a line for each row, with tabs and without titles."""
        if not self.is_terminal:
            self.rows(rows)
            return
        cells = ([cell(value) for value in row] for row in rows)
        part = list(islice(cells, TABLE_ROWS))
        while part:
            _draw(titles, part)
            part = list(islice(cells, TABLE_ROWS))


def as_json(fields: Mapping[str, object]) -> str:
    return escape_json(_encode({"v": VERSION, **fields}))


def cell(value: object) -> str:
    """A value in a table; nothing in it can break a line or a column."""
    if value is None:
        return "-"
    if isinstance(value, int | Escaped):
        return str(value)
    text = text_of(value) if isinstance(value, bytes) else str(value)
    return escape(text.replace("\\", "\\\\"))


def _draw(titles: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    try:
        from rich import box
        from rich.cells import cell_len
        from rich.console import Console, ConsoleDimensions
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _draw_plainly(titles, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    console = Console()
    # Each column has a blank on the right, and what stands between two.
    edges = 2 * len(titles) + 2
    widths = _room(titles, _widths(titles, cells, cell_len), console.width - edges)
    for title, width in zip(titles, widths, strict=True):
        table.add_column(
            title.title, justify="right" if title.is_number else "left", no_wrap=True,
            min_width=width, max_width=width, overflow="ellipsis",
        )  # fmt: skip
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    # A terminal that is too narrow breaks lines; no number is ever cut.  Of a width that is set
    # alone, rich takes no notice on a dumb terminal.
    console.size = ConsoleDimensions(max(console.width, sum(widths) + edges), console.height)
    console.print(table)


def _room(titles: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Divide the room; columns that may be cut share what is left."""
    least = [
        min(width, CUT_CHARACTERS) if title.may_be_cut else width
        for title, width in zip(titles, widths, strict=True)
    ]
    rest = max(0, room - sum(least))
    given = []
    for width, at_least in zip(widths, least, strict=True):
        more = min(rest, width - at_least)
        rest -= more
        given.append(at_least + more)
    return given


def _widths(
    titles: Sequence[Column], cells: Sequence[Sequence[str]], measure: Callable[[str], int] = len
) -> list[int]:
    """:param measure: the places that a text takes on a terminal: some characters take two."""
    everything = [[title.title for title in titles], *cells]
    return [max(map(measure, column)) for column in zip(*everything, strict=True)]


def _draw_plainly(titles: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    widths = _widths(titles, cells)
    for row in [[title.title for title in titles], *cells]:
        padded = (
            text.rjust(width) if title.is_number else text.ljust(width)
            for text, width, title in zip(row, widths, titles, strict=True)
        )  # fmt: skip
        click.echo("  ".join(padded).rstrip())


@contextmanager
def progress(label: str) -> "Iterator[Progress]":
    """A bar on stderr, if that is a terminal, for as long as the block lasts."""
    label = escape(label)
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    try:
        from rich.console import Console
        from rich.markup import escape as without_markup
        from rich.progress import Progress as Bar
    except ImportError:
        with _plain_progress(label) as report:
            yield report
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(without_markup(label), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _plain_progress(label: str) -> "Iterator[Progress]":
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        percent = 100 * done // total if total else 0
        if percent != last:
            last = percent
            click.echo(f"\r{label}: {percent} %", nl=False, err=True)

    yield report
    if last >= 0:
        click.echo("\r" + " " * (len(label) + 8) + "\r", nl=False, err=True)
