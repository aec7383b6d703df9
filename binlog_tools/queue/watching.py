"""What the screen of ``beanstalk top`` is told by keys, and what it remembers and colours."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from binlog_tools.console.wording import BARS
from binlog_tools.queue.rates import Row

SORTS: Final = ("tube", "ready", "reserved", "delayed", "buried", "waiting", "puts", "deletes")

LOOKS: Final = 12
"""Looks that a chart shows: 24 s of the default interval, in as many columns."""

MAX_FILTER: Final = 200
"""Characters of a filter: the longest name of a tube."""

ENTER_KEYS: Final = ("\r", "\n")
ESCAPE: Final = "\x1b"
RUBOUTS: Final = ("\x7f", "\b")

HELP: Final = (
    "q        end",
    "s, S     sort by the next column, by the one before",
    "/        show only tubes whose names have this in them; Enter ends it, Esc shows all",
    "?        this help, and back",
    "",
    "red      there are buried jobs",
    "yellow   the tube is paused",
    "cyan     jobs are ready, and nobody waits for them",
    "chart    ready jobs in the last looks, the highest of them as a full bar",
)


class View(NamedTuple):
    """
    What is to be shown.

    :ivar filter: part of the names of tubes; empty for all.
    :ivar is_typing: whether keys are of the filter.
    """

    sort: str = "ready"
    filter: str = ""
    is_typing: bool = False
    shows_help: bool = False
    is_over: bool = False


def pressed(view: View, keys: str) -> View:
    """
    :param keys: that were pressed one after the other; such as send more than one character are
        passed over.
    """
    if keys.startswith(ESCAPE) and len(keys) > 1:
        return view
    for key in keys:
        view = _typed(view, key) if view.is_typing else _chosen(view, key)
    return view


def _typed(view: View, key: str) -> View:
    if key in ENTER_KEYS:
        return view._replace(is_typing=False)
    if key == ESCAPE:
        return view._replace(is_typing=False, filter="")
    if key in RUBOUTS:
        return view._replace(filter=view.filter[:-1])
    if key.isprintable() and len(view.filter) < MAX_FILTER:
        return view._replace(filter=view.filter + key)
    return view


def _chosen(view: View, key: str) -> View:
    if key == "q":
        return view._replace(is_over=True)
    if key == "?":
        return view._replace(shows_help=not view.shows_help)
    if key == "/":
        return view._replace(is_typing=True, shows_help=False)
    if key == ESCAPE:
        return view._replace(filter="", shows_help=False)
    step = {"s": 1, "S": -1}.get(key, 0)
    return view._replace(sort=SORTS[(SORTS.index(view.sort) + step) % len(SORTS)])


def filtered(found: Iterable[Row], part: str) -> list[Row]:
    """The tubes whose names have this in them."""
    return [row for row in found if part in row.tube]


def ordered(found: Iterable[Row], sort: str) -> list[Row]:
    """Rows in the order asked for; equal ones by name."""
    by_name = sorted(found, key=lambda row: row.tube)
    if sort == "tube":
        return by_name
    field = {"puts": "puts_s", "deletes": "deletes_s"}.get(sort, sort)
    return sorted(by_name, key=lambda row: getattr(row, field) or 0, reverse=True)


class History:
    """How many ready jobs each tube had in the last looks."""

    def __init__(self) -> None:
        self._ready: dict[str, deque[int]] = {}

    def note(self, found: Sequence[Row]) -> None:
        """Remember a look; tubes that are gone are forgotten."""
        before: Mapping[str, deque[int]] = self._ready
        self._ready = {
            row.tube: before.get(row.tube, deque(maxlen=LOOKS)) for row in found
        }  # fmt: skip
        for row in found:
            self._ready[row.tube].append(row.ready)

    def chart(self, tube: str) -> str:
        """The last looks at a tube, as wide as all are; empty looks are blanks."""
        return chart(self._ready.get(tube, ())).rjust(LOOKS)


def chart(numbers: Iterable[int]) -> str:
    """A bar for each number, the largest as a full one; a blank for zero."""
    found = list(numbers)
    most = max(found, default=0)
    return "".join(BARS[(n * len(BARS) - 1) // most] if n else " " for n in found)


COLOURS: Final = {"red": 31, "yellow": 33, "cyan": 36, "bold": 1}
"""Of a terminal: parameters of SGR (ECMA-48)."""


def colour_of(row: Row) -> str:
    """
    :return: a name of `COLOURS` for what somebody should look at, most urgent first; else empty.
    """
    if row.buried:
        return "red"
    if row.pause_s:
        return "yellow"
    return "cyan" if row.ready and not row.waiting and not row.reserved else ""


def coloured(line: str, colour: str) -> str:
    """:param colour: empty for none."""
    return f"\x1b[{COLOURS[colour]}m{line}\x1b[0m" if colour else line
