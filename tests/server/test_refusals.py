"""Refused connections are counted, and told once a minute."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.server.connections.accepting import (
    OUT_OF_DESCRIPTORS,
    AcceptErrors,
    RefusalLog,
)
from beanstalk_twisted.storage.repeats import TELL_S


def said(events: Any) -> list[str]:
    """Give what was logged as text."""
    return [str(formatEvent(event)) for event in events]


def test_the_first_refusal_is_told_at_once_and_further_ones_once_a_minute() -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    with capturedLogs() as events:
        refusals.note("it is full")
        assert said(events) == ["1 connection refused: it is full"]
        for _ in range(3000):
            refusals.note("it is full")
        assert len(events) == 1
        clock.advance(TELL_S)
        refusals.note("it is full")
        clock.advance(TELL_S)
        clock.advance(TELL_S)
    assert said(events)[1:] == [
        "3000 connections refused: it is full",
        "1 connection refused: it is full",
    ]
    assert clock.getDelayedCalls() == []


def test_after_a_quiet_minute_the_next_is_told_at_once_again() -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    with capturedLogs() as events:
        refusals.note("it is full")
        clock.advance(TELL_S)
        refusals.note("it is full")
    assert len(events) == 2
    refusals.stop()


def test_a_stop_tells_what_was_not_told_and_leaves_no_timer() -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    with capturedLogs() as events:
        for _ in range(5):
            refusals.note("it is full")
        refusals.stop()
        refusals.stop()
    assert said(events)[1:] == ["4 connections refused: it is full"]
    assert clock.getDelayedCalls() == []


def accept_event(text: str, **others: Any) -> LogEvent:
    """Make an event as Twisted's ports do while they accept."""
    return {"log_namespace": "twisted.internet.tcp.Port", "log_format": text, **others}


def test_what_ports_say_at_the_limit_of_descriptors_is_counted_by_connections() -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    with capturedLogs() as events:
        for _ in range(100):
            texts = (
                "EMFILE encountered; releasing reserved file descriptor.",
                "EMFILE recovery: Closed socket from {address}",
                "Re-reserving EMFILE recovery file descriptor.",
            )
            for text in texts:
                assert accept_errors(accept_event(text)).name == "no"
        clock.advance(TELL_S)
        clock.advance(TELL_S)
    assert said(events) == [
        f"1 connection refused: {OUT_OF_DESCRIPTORS}",
        f"99 connections refused: {OUT_OF_DESCRIPTORS}",
    ]
    assert clock.getDelayedCalls() == []


def test_other_errors_of_accepting_are_counted_by_their_reason() -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    text = "Could not accept new connection ({acceptError})"
    with capturedLogs() as events:
        for reason in ("ENFILE", "ENOBUFS", "ENFILE"):
            assert accept_errors(accept_event(text, acceptError=reason)).name == "no"
        clock.advance(TELL_S)
        clock.advance(TELL_S)
    assert said(events) == [
        "1 connection refused: they cannot be accepted (ENFILE)",
        "1 connection refused: they cannot be accepted (ENOBUFS)",
        "1 connection refused: they cannot be accepted (ENFILE)",
    ]


@pytest.mark.parametrize(
    "event",
    [
        accept_event("something else"),
        {"log_namespace": "other", "log_format": "EMFILE"},
        {"log_namespace": "other"},
        {},
    ],
)
def test_all_else_stays_in_the_log(event: LogEvent) -> None:
    assert AcceptErrors(Clock())(event).name == "maybe"


def test_a_stop_tells_the_rest_of_what_ports_say() -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    with capturedLogs() as events:
        for _ in range(3):
            accept_errors(accept_event("EMFILE recovery: Closed socket from {address}"))
        accept_errors.stop()
    assert said(events)[1:] == [f"2 connections refused: {OUT_OF_DESCRIPTORS}"]
    assert clock.getDelayedCalls() == []
