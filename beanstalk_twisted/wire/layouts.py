"""How answers with the keys of `wire.stats` are written, and which metrics these keys have."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple, get_origin, get_type_hints

from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.stats import (
    COUNTER,
    GAUGE,
    ConnectionStats,
    GroupStats,
    JobStats,
    Key,
    ListedJob,
    ReplicatedStats,
    ReplicationStats,
    ServerStats,
    Stats,
    TubeStats,
)

Values = dict[str, int | str | bool]
"""What a server fills in, by key; numbers with a fraction as text."""


class Row(NamedTuple):
    """A row of the table.

    :ivar metric: with labels if other keys share it; empty if there is none.
    """

    key: str
    kind: object
    about: Key
    metric: str

    @property
    def head(self) -> tuple[str, str, str]:
        """Name, type and help of the metric."""
        return self.metric, self.about.metric, self.about.meaning.partition(";")[0]


def rows_of(table: type[Stats]) -> list[Row]:
    """Read the rows of a class, those keys first that every answer has."""
    hints = get_type_hints(table, include_extras=True)
    names = dict.fromkeys(name for base in table.__mro__ for name in inspect.get_annotations(base))
    rows = []
    for name in names:
        if get_origin(hints[name]) is Annotated:
            about = hints[name].__metadata__[0]
            metric = _metric(table._prefix, name, about)
            rows.append(Row(name.replace("_", "-"), hints[name].__origin__, about, metric))
    return sorted(rows, key=lambda row: row.about.is_optional)


def _metric(prefix: str, name: str, about: Key) -> str:
    if about.metric not in (GAUGE, COUNTER):
        return about.metric and f"beanstalkd_{about.metric}"
    metric = f"beanstalkd_{prefix}{about.name or name}"
    if not metric.endswith(about.unit):
        metric += f"_{about.unit}"
    return f"{metric}_total" if about.metric == COUNTER else metric


def _truth_text(value: bool) -> str:
    return "true" if value else "false"


def _line(row: Row) -> str:
    is_quoted = row.kind is str and not (row.about.is_word or row.about.is_name)
    return f'{row.key}: "%({row.key})s"\n' if is_quoted else f"{row.key}: %({row.key})s\n"


class Layout:
    """Writes the answers with the keys of some classes.

    :ivar keys: in the order of an answer.
    :ivar metrics: rows with a metric of their own, in the order of a scrape.
    """

    def __init__(self, *kinds: type[Stats], is_item: bool = False) -> None:
        """:param is_item: for items of a list, not a document."""
        rows = [row for kind in kinds for row in rows_of(kind)]
        self.keys = tuple(row.key for row in rows)
        singles = [row for row in rows if row.about.metric in (GAUGE, COUNTER)]
        self.metrics = sorted(singles, key=lambda row: row.about.rank)
        self._start, self._indent = ("- ", "  ") if is_item else ("---\n", "")
        self._lines = {row.key: _line(row) for row in rows}
        self._required = {row.key for row in rows if not row.about.is_optional}
        self._texts: dict[str, Callable[[Any], str]] = {
            **{row.key: _truth_text for row in rows if row.kind is bool},
            **{row.key: yaml.name for row in rows if row.about.is_name},
        }
        self._templates: dict[tuple[str, ...], str] = {}

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values in the order of an answer, with ``_`` for ``-`` in the keys."""
        return {key.replace("-", "_"): values[key] for key in self.keys if key in values}

    def write(self, values: Mapping[str, Any]) -> str:
        """:raise KeyError: a key is missing, or not in the table."""
        keys = tuple(values)
        template = self._templates.get(keys) or self._template(keys)
        if self._texts:
            values = {**values, **{key: text(values[key]) for key, text in self._texts.items()}}
        return template % values

    def _template(self, keys: tuple[str, ...]) -> str:
        """Check the keys of an answer, and make its text with places for the values.  There are few
        sets of keys: they differ only by what a job carries.
        """
        wrong = (self._required - {*keys}) | ({*keys} - {*self.keys})
        if wrong:
            raise KeyError(*sorted(wrong))
        lines = [self._lines[key] for key in self.keys if key in keys]
        template = self._templates[keys] = self._start + self._indent.join(lines)
        return template


SERVER: Final = Layout(ServerStats, ReplicatedStats)
REPLICATED: Final = Layout(ReplicatedStats)
TUBE: Final = Layout(TubeStats)
JOB: Final = Layout(JobStats)
LISTED_JOB: Final = Layout(ListedJob, is_item=True)
GROUP: Final = Layout(GroupStats)
REPLICATION: Final = Layout(ReplicationStats)
CONNECTION: Final = Layout(ConnectionStats, is_item=True)
