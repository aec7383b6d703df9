"""What stood, came and went along the time, by tube, and histograms of lengths, of three digits.  A
length and its group are one number, so that sorted numbers are sorted by group, then by length.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.errors import TableError
from binlog_tools.spark.histories.counters import lengths_of, slots_of
from binlog_tools.spark.reporting.page import MINUTE_S, TUBE_CELLS, WHOLE_STEPS, width_for
from binlog_tools.spark.storing import LOG, Location, StoredTable, holds_table, open_stored


class Rows:
    """A table, read batch by batch; ``names``: its columns, ``is_live``: `live` keeps it."""

    def __init__(self, place: str, table: StoredTable) -> None:
        self._place = place
        self._found = table.dataset() if table.files() else None
        self.names = frozenset(() if self._found is None else self._found.schema.names)
        self.progress = table.progress
        self.is_live = (table.name or "").startswith("live ")

    def batches(self, names: Sequence[str], where: Any = None) -> Iterator[pa.RecordBatch]:
        """Yield rows that match an expression; raise TableError if a column is missing."""
        if self._found is None:
            return
        if missing := set(names) - self.names:
            raise TableError(
                "TABLE_COLUMN",
                f"{self._place}: there is no column {', '.join(sorted(missing))}: is it a table of "
                "python -m binlog_tools.spark?",
            )
        for batch in self._found.to_batches(columns=list(names), filter=where):
            if batch.num_rows:
                yield batch


def open_table(place: str) -> Rows | None:
    """Return a table, None if there is none; raise TableError if it is not whole."""
    shown = Location.of(place)
    if not shown.names():
        return None
    if not holds_table(place):
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{shown}: it is not whole (no {LOG}): whoever writes it has not finished, or was "
            f"killed; wait, or make it again",
        )
    try:
        return Rows(str(shown), open_stored(place))
    except pa.ArrowException as problem:
        text = str(problem).partition("\n")[0]
        raise TableError("TABLE_NOT_FOUND", f"{shown}: it is no table: {text}") from None


def seconds_of(times: Any) -> np.ndarray:
    """A column of moments as seconds since the epoch, float64; NaN where there is none."""
    micros = pc.cast(pc.cast(times, pa.timestamp("us", "UTC"), safe=False), pa.int64())
    return np.asarray(micros.to_numpy(zero_copy_only=False), np.float64) / 1e6


SLOTS: Final = 18_000
"""Lengths that are told apart in a group: 1,000 for each count of digits that 64 bits hold."""

MOST_LOOSE: Final = 4_000_000
"""Entries that are not added up yet: 64 MB of memory."""


class Lengths:
    """How many lengths there were, by group and length."""

    def __init__(self) -> None:
        self._codes: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._loose = 0

    def add(self, groups: np.ndarray, maps: Any) -> None:
        """Add maps from nanoseconds to how many, each to its row's group."""
        # Of a slice, `keys` gives those of the whole; `offsets` says where the slice is.
        offsets = maps.offsets.to_numpy(zero_copy_only=False)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys = maps.keys.slice(first, count).to_numpy(zero_copy_only=False)
        counts = maps.items.slice(first, count).to_numpy(zero_copy_only=False)
        self._put(np.repeat(groups, np.diff(offsets)) * SLOTS + slots_of(keys), counts)

    def add_each(self, groups: np.ndarray, lengths_ns: np.ndarray) -> None:
        """:param lengths_ns: of each row, one length; below 0: there is none."""
        known = lengths_ns >= 0
        codes = groups[known] * SLOTS + slots_of(lengths_ns[known])
        self._put(codes, np.ones(len(codes), np.int64))

    def _put(self, codes: np.ndarray, counts: np.ndarray) -> None:
        self._codes.append(codes)
        self._counts.append(np.asarray(counts, np.int64))
        self._loose += len(codes)
        if self._loose > MOST_LOOSE:
            self._settle()

    def _settle(self) -> tuple[np.ndarray, np.ndarray]:
        if len(self._codes) != 1 or self._loose:
            nothing = np.zeros(0, np.int64)
            codes, places = np.unique(np.concatenate([nothing, *self._codes]), return_inverse=True)
            counts = np.zeros(len(codes), np.int64)
            np.add.at(counts, places, np.concatenate([nothing, *self._counts]))
            self._codes, self._counts, self._loose = [codes], [counts], 0
        return self._codes[0], self._counts[0]

    def regrouped(self, group_of: Callable[[np.ndarray], np.ndarray]) -> "Lengths":
        """The same lengths in other groups; those of a group below 0 are left out."""
        codes, counts = self._settle()
        groups = group_of(codes // SLOTS)
        kept = groups >= 0
        made = Lengths()
        made._put(groups[kept] * SLOTS + codes[kept] % SLOTS, counts[kept])
        return made

    def counts(self, groups: int) -> np.ndarray:
        """How many there are in each of the groups from 0."""
        codes, counts = self._settle()
        return np.bincount(codes // SLOTS, counts, groups).astype(np.int64)[:groups]

    def percentiles(self, shares: Sequence[float], groups: int) -> np.ndarray:
        """Return, shaped (shares, groups), the least length that such a share does not exceed."""
        codes, counts = self._settle()
        found = np.full((len(shares), groups), np.nan)
        if not len(codes):
            return found
        sums = np.cumsum(counts)
        ends = np.searchsorted(codes, (np.arange(groups) + 1) * SLOTS)
        until = np.concatenate([[0], sums])[ends]
        before = np.concatenate([[0], until[:-1]])
        has_any = until > before
        for at, share in enumerate(shares):
            # A share of 0.95 of 20 is 19, and not 19.000000000000004.
            wanted = before + np.maximum(np.ceil((until - before) * share - 1e-9), 1)
            places = np.minimum(np.searchsorted(sums, wanted), len(codes) - 1)
            found[at] = np.where(has_any, lengths_of(codes[places] % SLOTS), np.nan)
        return found


ALL: Final = "all tubes"
OTHERS: Final = "other tubes"
STATES: Final = ("ready", "reserved", "delayed", "buried")
ENDS: Final = ("timeouts", "releases", "buries", "disconnects")
FLOW: Final = ("puts", "reserves", "deletes", *ENDS)
COUNTED: Final = (*FLOW, "kicks")

MAX_TUBES: Final = 50
"""Tubes with numbers of their own, the busiest; the others are added up: few read more lines."""


class Period(NamedTuple):
    """From a moment up to another one, seconds since the epoch."""

    start: float = -np.inf
    end: float = np.inf


ALWAYS: Final = Period()


@dataclass
class Survey:
    """What is known at first: of servers their first and last minute, of tubes sums."""

    edges: dict[str, tuple[int, int]] = field(default_factory=dict)
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    oldest_ns: int = 0

    @property
    def start(self) -> int:
        return min(first for first, _ in self.edges.values())

    @property
    def last(self) -> int:
        """The last minute: it ends 60 s later."""
        return max(last for _, last in self.edges.values())

    def busiest(self) -> list[str]:
        def work(tube: str) -> tuple[int, str]:
            return -self.totals[tube]["puts"] - self.totals[tube]["reserves"], tube

        return sorted(self.totals, key=work)


@dataclass
class Series:
    """Numbers by tube and step.

    :ivar start: of the first step, seconds since the epoch; ``width`` of a step, seconds; there are
        ``count``.
    :ivar numbers: by name, shaped (tubes, steps): of `FLOW`, how many in the step; of `STATES`, how
        many at its end; ``oldest_ns``, how long the oldest ready job had waited at the end of one
        of its minutes.
    :ivar waits: by tube times ``count`` plus step; likewise ``runs``.
    """

    names: Sequence[str]
    start: int
    width: int
    count: int
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    waits: Lengths = field(default_factory=Lengths)
    runs: Lengths = field(default_factory=Lengths)

    def __post_init__(self) -> None:
        shape = (len(self.names), self.count)
        self.numbers = {name: np.zeros(shape, np.int64) for name in (*FLOW, *STATES, "oldest_ns")}

    def add(self, batch: pa.RecordBatch, minutes: np.ndarray, tubes: np.ndarray, last: int) -> None:
        """:param minutes: of each row, in seconds since the epoch; ``last`` is the last of all.
        :param tubes: of each row, the place in `names`.
        """
        steps = (minutes - self.start) // self.width
        for name in FLOW:
            np.add.at(self.numbers[name], (tubes, steps), _whole(batch[name]))
        ends = (steps + 1) * self.width + self.start
        at_end = (minutes + MINUTE_S == ends) | (minutes == last)
        for name in STATES:
            np.add.at(
                self.numbers[name], (tubes[at_end], steps[at_end]), _whole(batch[name])[at_end]
            )
        np.maximum.at(self.numbers["oldest_ns"], (tubes, steps), _whole(batch["oldest_ns"]))
        groups = tubes * self.count + steps
        self.waits.add(groups, batch["wait_histogram"])
        self.runs.add(groups, batch["run_histogram"])


@dataclass
class Flow:
    """All that is known by time.

    :ivar hours: jobs put, by day of the week (Monday first) and hour, in UTC.
    :ivar fine: the same in steps of seconds, without what stood in the queue; or None.
    """

    survey: Survey
    whole: Series
    tubes: Series
    hours: np.ndarray = field(default_factory=lambda: np.zeros((7, 24), np.int64))
    fine: tuple[Series, Series] | None = None


def _whole(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int64)


def _within(
    rows: Rows, names: Sequence[str], period: Period
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a period, with their minutes in seconds since the epoch."""
    for batch in rows.batches(names):
        minutes = seconds_of(batch["minute"]).astype(np.int64)
        kept = (minutes >= period.start) & (minutes < period.end)
        if kept.all():
            yield batch, minutes
        elif kept.any():
            yield batch.filter(pa.array(kept)), minutes[kept]


def survey(rows: Rows, period: Period) -> Survey:
    found = Survey()
    names = ("server", "tube", "minute", "oldest_ns", *COUNTED)
    for batch, minutes in _within(rows, names, period):
        found.oldest_ns = max(found.oldest_ns, int(_whole(batch["oldest_ns"]).max()))
        _widen(found.edges, batch["server"], minutes)
        sums = pa.table({"tube": batch["tube"], **{name: batch[name] for name in COUNTED}})
        grouped = sums.group_by("tube").aggregate([(name, "sum") for name in COUNTED])
        for row in grouped.to_pylist():
            total = found.totals.setdefault(row["tube"] or "?", Counter())
            total.update({name: row[f"{name}_sum"] for name in COUNTED})
    return found


def _widen(edges: dict[str, tuple[int, int]], servers: pa.Array, minutes: np.ndarray) -> None:
    table = pa.table({"server": servers, "minute": minutes})
    spans = table.group_by("server").aggregate([("minute", "min"), ("minute", "max")])
    for row in spans.to_pylist():
        first, last = row["minute_min"], row["minute_max"]
        known = edges.get(row["server"], (first, last))
        edges[row["server"]] = min(first, known[0]), max(last, known[1])


def flow(rows: Rows, period: Period, coarser: int = 1) -> Flow | None:
    """Return None if there is no row in the period; ``coarser``: so many times fewer steps."""
    found = survey(rows, period)
    if not found.edges:
        return None
    ranks = found.busiest()
    shown = ranks if len(ranks) <= MAX_TUBES + 1 else ranks[:MAX_TUBES]
    names = [*shown, *([OTHERS] if len(ranks) > len(shown) else [])]
    made = Flow(found, *in_steps(found, names, coarser))
    _fill(made, rows, period, {tube: at for at, tube in enumerate(shown)})
    return made


def in_steps(
    found: Survey, names: Sequence[str], coarser: int = 1, least: int = MINUTE_S
) -> tuple[Series, Series]:
    """Return series for all tubes together and for each, in as narrow steps as there is room."""
    steps = min(WHOLE_STEPS, max(2, TUBE_CELLS // len(names)))
    return (
        _empty(found, [ALL], WHOLE_STEPS // coarser, least),
        _empty(found, names, steps // coarser, least),
    )


def _empty(found: Survey, names: Sequence[str], steps: int, least: int) -> Series:
    end = found.last + MINUTE_S
    width = width_for(end - found.start, max(2, steps), least)
    start = found.start - found.start % width
    return Series(names, start, width, (end - 1 - start) // width + 1)


def _fill(made: Flow, rows: Rows, period: Period, places: Mapping[str, int]) -> None:
    names = ("tube", "minute", "oldest_ns", "wait_histogram", "run_histogram", *FLOW, *STATES)
    last = made.survey.last
    for batch, minutes in _within(rows, names, period):
        own = batch["tube"].dictionary_encode()
        by_code = [places.get(tube or "?", len(places)) for tube in own.dictionary.to_pylist()]
        unnamed = places.get("?", len(places))
        codes = pc.fill_null(own.indices, len(by_code)).to_numpy(zero_copy_only=False)
        tubes = np.array([*by_code, unnamed], np.int64)[codes]
        made.tubes.add(batch, minutes, tubes, last)
        made.whole.add(batch, minutes, np.zeros_like(tubes), last)
        days, hours = (minutes // 86_400 + 3) % 7, minutes // 3600 % 24
        np.add.at(made.hours, (days, hours), _whole(batch["puts"]))


SHARES: Final = (0.5, 0.95, 0.99)


class Summary(NamedTuple):
    """Numbers of a tube in the period; ``depth`` at its end.

    :ivar wait: lengths that `SHARES` of the waits were no longer than, NaN if there was none.
    :ivar oldest_ns: the longest wait of a job that still waited at the end of a minute.
    """

    tube: str
    totals: Mapping[str, int]
    depth: Mapping[str, int]
    wait: tuple[float, ...]
    run: tuple[float, ...]
    wait_count: int
    run_count: int
    oldest_ns: int

    @property
    def runs(self) -> int:
        return self.totals["reserves"]

    @property
    def failed(self) -> int:
        return sum(self.totals[end] for end in ENDS)


def summaries(flow: Flow) -> list[Summary]:
    """Return those of the tubes with numbers of their own, the busiest first, and of the others."""
    return _of(flow.tubes)


def whole_summary(flow: Flow) -> Summary:
    return _of(flow.whole)[0]._replace(tube=ALL)


def _of(series: Series) -> list[Summary]:
    (waits, wait_counts), (runs, run_counts) = (
        _percentiles(series, lengths) for lengths in (series.waits, series.runs)
    )
    return [
        Summary(
            name,
            {each: int(series.numbers[each][at].sum()) for each in FLOW},
            {each: int(series.numbers[each][at, -1]) for each in STATES},
            tuple(waits[:, at].tolist()), tuple(runs[:, at].tolist()),
            int(wait_counts[at]), int(run_counts[at]),
            int(series.numbers["oldest_ns"][at].max()),
        )
        for at, name in enumerate(series.names)
    ]  # fmt: skip


def _percentiles(series: Series, lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
    """Of each tube, and of how many lengths they are."""
    by_tube = lengths.regrouped(lambda groups: groups // series.count)
    tubes = len(series.names)
    return by_tube.percentiles(SHARES, tubes), by_tube.counts(tubes)
