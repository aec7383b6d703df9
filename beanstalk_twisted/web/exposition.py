"""The text of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.

A family is its head (`Writer.head`), then all of its samples, before the next family begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.storage.clock import NS

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Writer:
    """Writes families in one of the two formats."""

    def __init__(self, *, is_openmetrics: bool) -> None:
        self._is_openmetrics = is_openmetrics
        self._lines: list[str] = []

    def take(self) -> bytes:
        """Return what was written since the last call."""
        lines, self._lines = self._lines, []
        return "".join(lines).encode()

    def end(self) -> None:
        if self._is_openmetrics:
            self._lines.append("# EOF\n")

    def head(self, name: str, kind: str, text: str) -> None:
        """Begin a family.

        :param name: with ``_total`` if it is a counter, and ``_info`` if it is an info.
        """
        if self._is_openmetrics:
            name = name.removesuffix("_total") if kind == "counter" else name
            name = name.removesuffix("_info") if kind == "info" else name
        elif kind == "info":
            kind = "gauge"
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")

    def sample(self, name: str, labels: str, value: float) -> None:
        """:param labels: see `labelled`."""
        self._lines.append(f"{name}{labels} {value}\n")

    def single(self, name: str, kind: str, text: str, value: float, labels: str = "") -> None:
        """Write a family of one sample."""
        self.head(name, kind, text)
        self.sample(name, labels, value)

    def gauges(self, prefix: str, rows: Iterable[tuple[str, str, float]], labels: str = "") -> None:
        """Write families of one sample each.

        :param rows: what follows the prefix in the name, the text and the value of each.
        """
        for name, text, value in rows:
            self.single(prefix + name, "gauge", text, value, labels)

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        """:param samples: labels and value of each."""
        self.head(name, kind, text)
        for labels, value in samples:
            self.sample(name, labels, value)

    def histogram(self, name: str, labels: str, values: Histogram, bounds: Sequence[str]) -> None:
        """Write the samples of one histogram of nanoseconds.

        :param labels: without braces, such as ``tube="mail"``; may be empty.
        :param bounds: see `seconds`.
        """
        self._buckets(name, labels, values.counts, bounds, values.total / NS)

    def single_histogram(self, name: str, text: str, values: Histogram) -> None:
        """Write a family of one histogram of nanoseconds."""
        self.head(name, "histogram", text)
        self.histogram(name, "", values, seconds(values.bounds))

    def count_histogram(self, name: str, text: str, values: Histogram) -> None:
        """Write a family of one histogram of counts."""
        self.head(name, "histogram", text)
        bounds = [f"{bound}.0" for bound in values.bounds]
        self._buckets(name, "", values.counts, bounds, values.total)

    def _buckets(
        self, name: str, labels: str, counts: Sequence[int], bounds: Sequence[str], total: float
    ) -> None:
        before = f"{labels}," if labels else ""
        braces = f"{{{labels}}}" if labels else ""
        sum_ = 0
        for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
            sum_ += count
            self._lines.append(f'{name}_bucket{{{before}le="{bound}"}} {sum_}\n')
        self._lines.append(f"{name}_sum{braces} {total}\n{name}_count{braces} {sum_}\n")


def seconds(bounds_ns: Iterable[int]) -> list[str]:
    return [str(bound / NS) for bound in bounds_ns]


def labelled(labels: Mapping[str, str]) -> str:
    """Write labels, braces included."""
    return "{" + ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()]) + "}"


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
