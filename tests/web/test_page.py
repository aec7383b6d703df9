"""The page on monitoring has the limits of the code."""

from __future__ import annotations

import re
from pathlib import Path

from beanstalk_twisted.web.channel import (
    HEALTH_S,
    MAX_BODY_BYTES,
    MAX_CONNECTIONS,
    MAX_FOR_HEALTH,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_PER_ADDRESS,
    REPLY_S,
    REQUEST_S,
)
from beanstalk_twisted.web.site import MAX_QUERY_FIELDS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "monitoring.md"


def test_the_limits_are_those_of_the_code() -> None:
    section = PAGE.read_text().partition("## HTTP limits")[2]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    written = [int(re.sub(r"\D", "", cell)) for cell in rows]
    assert written == [
        MAX_HEAD_BYTES, MAX_HEADERS, MAX_BODY_BYTES, MAX_QUERY_FIELDS, REQUEST_S, REPLY_S,
        MAX_CONNECTIONS, MAX_PER_ADDRESS, MAX_FOR_HEALTH, HEALTH_S,
    ]  # fmt: skip
