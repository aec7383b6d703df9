"""How metrics are written."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.exposition import OPENMETRICS, PROMETHEUS, Writer, labelled, seconds
from tests.web.browsing import browse, read_openmetrics, read_prometheus

NASTY = 'a"b\\c\nd{}=,<script>'


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_any_value_of_a_label_comes_back(is_openmetrics: bool) -> None:
    out = Writer(is_openmetrics=is_openmetrics)
    out.head("x", "gauge", "X")
    out.sample("x", labelled({"a": NASTY}), 1.5)
    out.end()
    read = read_openmetrics if is_openmetrics else read_prometheus
    (family,) = read(out.take().decode())
    assert (family.samples[0].labels, family.samples[0].value) == ({"a": NASTY}, 1.5)


def test_a_histogram_counts_up() -> None:
    values = Histogram((1_000_000, 1_000_000_000))
    for value in (1, 1_000_000, 1_000_001, 5_000_000_000):
        values.note(value)
    out = Writer(is_openmetrics=True)
    out.head("x_seconds", "histogram", "X")
    out.histogram("x_seconds", 'a="b"', values, seconds(values.bounds))
    out.end()
    (family,) = read_openmetrics(out.take().decode())
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert found == {
        ("x_seconds_bucket", "0.001"): 2,
        ("x_seconds_bucket", "1.0"): 3,
        ("x_seconds_bucket", "+Inf"): 4,
        ("x_seconds_sum", None): pytest.approx(5.002000002),
        ("x_seconds_count", None): 4,
    }


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", True),
    ],
)
def test_the_format_is_what_the_request_prefers(accept: str, wants: bool) -> None:
    reply = browse(MemoryServer()).ask("GET", "/metrics", headers={"accept": accept})
    assert reply.headers["content-type"] == (OPENMETRICS if wants else PROMETHEUS)
