"""Prometheus's own readers of metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser


def read_prometheus(text: str) -> Any:
    """:return: the families."""
    read: Any = parser.text_string_to_metric_families
    return read(text)


def read_openmetrics(text: str) -> Any:
    """:return: the families."""
    read: Any = openmetrics_parser.text_string_to_metric_families
    return read(text)
