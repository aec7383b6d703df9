"""Logs and counts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel, capturedLogs, formatEvent

from beanstalk_twisted.client.service import Losses
from beanstalk_twisted.worker.handlers import InlineThreads
from beanstalk_twisted.worker.hooks import MAX_TEXT, MAX_TRACEBACK, Event, Tally, log
from beanstalk_twisted.worker.policy import Bury, Retry
from beanstalk_twisted.worker.serialisers import Json
from tests.worker.world import Shop, Slow


def fickle(attempt: Any) -> Any:
    if attempt.body == b"fail":
        raise RuntimeError("as told")
    return Bury() if attempt.body == b"bury" else None


def test_all_that_happens_is_counted(shop: Shop) -> None:
    tally = Tally()
    shop.worker(fickle, hooks=[tally], policy=Retry(first_delay_s=100))
    for body in (b"do", b"fail", b"bury", b"do"):
        shop.put(body)
    assert tally.counts == {"began": 4, "done": 2, "failed": 1, "released": 1, "buried": 1}


def test_events_below_the_level_are_not_written(shop: Shop) -> None:
    with capturedLogs() as events:
        shop.worker(fickle, hooks=[], log_level=LogLevel.warn)
        jobs = [shop.put(body) for body in (b"do", b"bury")]
    assert [formatEvent(each) for each in events] == [
        f"job {jobs[1]} of work, attempt 1: buried after 0.000 s"
    ]


def test_losses_touches_and_time_are_counted(shop: Shop) -> None:
    tally = Tally()
    slow = Slow()
    shop.worker(slow, hooks=[tally])
    job = shop.put(ttr=10)
    shop.world.advance(6)
    shop.links[0].transport.end(ConnectionLost())
    shop.links[0].wire.peer.hang_up()
    shop.world.advance(2)
    slow.finish(job)
    shop.world.settle()
    assert tally.counts == {"began": 2, "touched": 1, "lost": 1, "disconnected": 1, "done": 1}
    assert 1.5 < tally.seconds < 2


def deeper() -> None:
    raise KeyError("amount")


def blocking(attempt: Any) -> None:
    deeper()


async def waiting(attempt: Any) -> None:
    deeper()


def failing_later(attempt: Any) -> Any:
    return succeed(None).addCallback(lambda _: deeper())


def heard(doer: Any, body: bytes = b"x", **options: Any) -> dict[LogLevel, list[str]]:
    """Run a worker of one job with the log alone, and give what it has written."""
    shop = Shop()
    with capturedLogs() as events:
        shop.worker(doer, policy=Retry(first_delay_s=100), **{"hooks": []} | options)
        shop.put(body)
    found: dict[LogLevel, list[str]] = defaultdict(list)
    for each in events:
        found[each["log_level"]].append(str(formatEvent(each)))
    return found


@pytest.mark.parametrize(
    ("doer", "options"),
    [(blocking, {"in_threads": InlineThreads()}), (waiting, {}), (failing_later, {})],
)
def test_a_failure_is_a_warning_with_the_applications_traceback(doer: Any, options: Any) -> None:
    (warning,) = heard(doer, **options)[LogLevel.warn]
    lines = warning.splitlines()
    assert lines[0] == "job 1 of work, attempt 1: failed: KeyError: 'amount'"
    assert lines[1] == "Traceback (most recent call last):"
    assert "test_hooks.py" in lines[2] and "in deeper" in lines[-3]
    assert lines[-1] == "KeyError: 'amount'"
    assert "carrying.py" not in warning


def test_what_no_code_of_the_application_has_raised_is_one_line() -> None:
    (warning, buried) = heard(fickle, serialiser=Json())[LogLevel.warn]
    assert warning.startswith("job 1 of work, attempt 1: failed: Unreadable: not JSON")
    assert "\n" not in warning
    assert buried == "job 1 of work, attempt 1: buried after 0.000 s"


@pytest.mark.parametrize(
    ("body", "level", "end"),
    [
        (b"do", LogLevel.info, "deleted after 0.000 s"),
        (b"fail", LogLevel.info, "released for 50 s after 0.000 s"),
        (b"bury", LogLevel.warn, "buried after 0.000 s"),
    ],
)
def test_an_end_is_told_and_a_burial_is_a_warning(body: bytes, level: LogLevel, end: str) -> None:
    assert heard(fickle, body)[level][-1] == f"job 1 of work, attempt 1: {end}"


class Mute(Exception):
    """Has no text to give."""

    def __str__(self) -> str:
        raise LookupError("no text")


class Strange(Exception):
    """Gives something else as its text."""

    def __str__(self) -> Any:
        return 7


def raising(error: BaseException) -> Any:
    def fail(attempt: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "said"), [(Mute(), "its __str__ raised LookupError"), (Strange(), "raised TypeError")]
)
def test_an_exception_without_a_text_is_logged_with_its_kind(error: Exception, said: str) -> None:
    (warning,) = heard(raising(error))[LogLevel.warn]
    first, *traceback = warning.splitlines()
    assert first.startswith(f"job 1 of work, attempt 1: failed: {type(error).__name__}: (no text: ")
    assert said in first
    assert any("raise error" in line for line in traceback)


def test_an_exception_with_a_long_text_is_cut() -> None:
    (warning,) = heard(raising(ValueError("begin" + "x" * 100_000 + "end")))[LogLevel.warn]
    first, *_, last = warning.splitlines()
    assert "failed: ValueError: beginxxx" in first and first.endswith("xxxend")
    assert "[... 99,008 characters left out ...]" in first
    assert last.startswith("ValueError: beginxxx") and last.endswith("xxxend")
    assert len(first) < 2 * MAX_TEXT and len(last) < 2 * MAX_TEXT


def test_a_traceback_with_many_causes_is_cut_and_ends_with_the_last() -> None:
    error: Exception = ValueError("the first one" + "x" * 100_000)
    for _ in range(100):
        cause, error = error, ValueError("in between" + "x" * 100_000)
        error.__cause__ = cause
    error.args = ("the last one",)
    (warning,) = heard(raising(error))[LogLevel.warn]
    assert len(warning) < 2 * MAX_TRACEBACK
    assert warning.endswith("ValueError: the last one")


def test_hooks_of_ones_own_take_nothing_away_from_the_log() -> None:
    tally = Tally()
    assert len(heard(fickle, b"fail", hooks=[tally])[LogLevel.warn]) == 1
    assert tally.counts["failed"] == 1


def test_the_log_can_be_switched_off() -> None:
    assert LogLevel.warn not in heard(fickle, b"fail", logs=False)


AGAIN = (
    "; others will do these jobs again, and what comes of them here counts only if the same server "
    "is back"
)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ((), "0 reservations"), ((7,), f"1 reservation{AGAIN}"),
        ((7, 8), f"2 reservations{AGAIN}"),
    ],
)  # fmt: skip
def test_the_cost_of_a_lost_connection_is_in_words(lost: tuple[int, ...], words: str) -> None:
    with capturedLogs() as events:
        log(Event("disconnected", losses=Losses(lost, (), ConnectionError("gone"))))
    told = [formatEvent(each) for each in events]
    assert told == [f"connection lost (gone), and with it {words}"]
