"""Recurring jobs: one for each time, whoever and however many put them, and whatever was away."""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import ConnectionLost
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.client.endpoints import MOST_S, Backoff
from beanstalk_twisted.worker import Recurring, Run, Schedule
from beanstalk_twisted.worker.recurring import (
    LATE_S,
    MAX_CATCH_UP_S,
    MAX_FILE_BYTES,
    MAX_MISSED,
    MAX_NAME,
    RETRY_S,
    SKEW_S,
    read_schedules,
)
from tests.client.world import World
from tests.sampling import share

NOON_S = int(datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp())
HOUR_S = 3600


def every(cron: str = "0 * * * *", **options: Any) -> Schedule:
    return Schedule(**{"name": "n", "tube": "t", "body": b"x"} | options, cron=cron)


def times(schedule: Schedule, start: datetime, count: int) -> list[str]:
    found, after_s = [], start.timestamp()
    for _ in range(count):
        after_s = schedule.next_s(after_s)
        found.append(f"{datetime.fromtimestamp(after_s, UTC):%m-%d %H:%M}")
    return found


class Place:
    """A server and its schedulers, on a wall clock that begins at noon."""

    def __init__(self, **options: Any) -> None:
        self.world = World(**options)
        self.runs: list[Run] = []

    def scheduler(self, *schedules: Schedule, skew_s: float = 0) -> Recurring:
        recurring = Recurring(
            cast(Any, self.world.endpoint), schedules, put=self.runs.append,
            reactor=self.world.clock, wall_clock=lambda: self.now_s + skew_s,
            backoff=Backoff(lambda: 1.0),
        )  # fmt: skip
        recurring.startService()
        self.world.settle()
        return recurring

    @property
    def now_s(self) -> float:
        return NOON_S + self.world.clock.seconds()

    def stop(self, recurring: Recurring) -> None:
        self.world.result(recurring.stopService())

    def done(self) -> list[str]:
        """Say which runs have made a job, in the order of putting."""
        return [
            f"{datetime.fromtimestamp(run.time_s, UTC):%H:%M}" for run in self.runs
            if run.job.is_new
        ]  # fmt: skip

    def finish(self) -> int:
        client = self.world.client()
        self.world.result(client.use("t"))
        # A flush of all states would forget the keys of runs that were made.
        flushed = self.world.result(client.flush_tube("t", "ready"))
        self.world.result(client.stopService())
        return flushed


# When.


async def coroutine(moment: datetime) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cron": "61 * * * *"}, "'61 . . . .': Bad minute"),
        ({"cron": "* * * *"}, "is not five fields"), ({"cron": "* * * * * *"}, "not five fields"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"), ({"cron": "0 0 * 2 MON#6"}, "Bad day"),
        ({"zone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ({"zone": "Europe"}, "there is no time zone 'Europe'"),
        ({"zone": "../etc"}, "there is no time zone '../etc'"),
        ({"missed": "some"}, "missed is none, one or all, not 'some'"),
        ({"catch_up_s": LATE_S - 1}, "catch_up_s is 60 to 604800, not 59"),
        ({"catch_up_s": MAX_CATCH_UP_S + 1}, "not 604801"),
        ({"name": ""}, "has 1 to 180 bytes"), ({"name": "n" * (MAX_NAME + 1)}, "has 1 to 180"),
        ({"name": "a b"}, "a schedule's name is not 'a b'"),
        ({"name": "-n"}, "does not begin with -"), ({"name": b"n"}, "name is a string, not b'n'"),
        ({"name": None}, "name is a string, not None"), ({"name": "\ud800"}, "name is not"),
        ({"tube": "a b"}, "n: not the name of a tube"), ({"tube": ""}, "not the name of a tube"),
        ({"tube": None}, "tube is a string, not None"), ({"tube": "ü"}, "not the name of a tube"),
        ({"ttr": -1}, "ttr is 1 to 4294967295, not -1"), ({"ttr": 0}, "ttr is 1 to .*, not 0"),
        ({"ttr": 1 << 32}, "ttr is 1 to .*, not 4294967296"),
        ({"ttr": True}, "ttr is a whole number, not True"),
        ({"ttr": 1.5}, "ttr is a whole number, not 1.5"),
        ({"ttr": math.nan}, "ttr is a whole number, not nan"), ({"ttr": "60"}, "not '60'"),
        ({"priority": 1 << 32}, "priority is 0 to 4294967295, not 4294967296"),
        ({"priority": -1}, "priority is 0 to 4294967295, not -1"),
        ({"priority": False}, "priority is a whole number, not False"),
        ({"priority": None}, "priority is a whole number, not None"),
        ({"catch_up_s": 86_400.0}, "catch_up_s is a whole number, not 86400.0"),
        ({"catch_up_s": math.nan}, "catch_up_s is a whole number, not nan"),
        ({"body": "text"}, "body is bytes or a function, not 'text'"),
        ({"body": None}, "body is bytes or a function, not None"),
        ({"body": 7}, "body is bytes or a function, not 7"),
        ({"body": coroutine}, "body is a function that is not a coroutine's"),
        ({"missed": None}, "missed is a string, not None"), ({"missed": ""}, "not ''"),
        ({"zone": ""}, "there is no time zone ''"), ({"zone": None}, "zone is a string"),
        ({"zone": UTC}, "zone is a string"),
        *(
            ({"zone": zone}, f"there is no time zone '{zone}'")
            for zone in ("posixrules", "Factory", "localtime", "posix/UTC", "right/UTC", "/etc")
        ),
        ({"cron": ""}, "'' is not five fields"), ({"cron": None}, "cron is a string, not None"),
        ({"cron": b"* * * * *"}, "cron is a string"),
        ({"cron": "*/61 * * * *"}, "the step of ./61 is longer than its range"),
        ({"cron": "*/0 * * * *"}, "Bad minute"), ({"cron": "*/ * * * *"}, "Bad minute"),
        ({"cron": "0 */25 * * *"}, "the step of ./25"), ({"cron": "0 0 */32 * *"}, "of ./32"),
        ({"cron": "0 0 1 */13 *"}, "the step of ./13"), ({"cron": "0 0 * * */8"}, "of ./8"),
        ({"cron": "10-14/6 * * * *"}, "the step of 10-14/6 is longer"),
        ({"cron": "5,58/3 * * * *"}, "the step of 58/3 is longer"),
        ({"cron": "0 0 * * MON-FRI/6"}, "the step of MON-FRI/6 is longer"),
        ({"cron": "0 0 31 2 *"}, "Bad day-of-month"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schedule(**{"name": "n", "tube": "t", "cron": "0 * * * *"} | options)


@pytest.mark.parametrize(
    "cron",
    [
        "*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7",
        "10-14/5 * * * *", "57/3 * * * *", "0 0 * * MON-FRI/5", "0 0 L * *", "0 0 * * 5L",
        "0 0 * JAN MON#1",
    ],
)  # fmt: skip
def test_steps_as_long_as_their_range_are_taken(cron: str) -> None:
    assert every(cron).next_s(NOON_S) > NOON_S


def test_a_scheduler_without_a_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no schedule"):
        Place().scheduler()


HEAD = '[n]\ncron = "* * * * *"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no schedule in it"), ("[n", "it is no TOML: "), ("n = 1", "[n]: it stands"),
        ("x = " + "1" * 5000, "it is no TOML: "), ("[" * 9999, "it is no TOML: "),
        (HEAD, "[n]: there is no tube"), ("[n]", "[n]: there is no cron and no tube"),
        (HEAD + "tube = 1", "[n]: tube is a string, not 1"),
        (HEAD + 'tube = "t"\nttr = true', "[n]: ttr is a whole number, not True"),
        (HEAD + 'tube = "t"\nage = 1', "[n]: there is no key 'age'; there are cron, tube"),
        (HEAD + 'tube = "a b"', "[n]: not the name of a tube"),
        ('["a b"]\ncron = "0 0 * * *"\ntube = "t"', "[a b]: a schedule's name is not"),
    ],
)  # fmt: skip
def test_a_file_of_schedules_that_is_wrong_says_where(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/jobs.toml: {said}")):
        read_schedules(str(tmp_path / "jobs.toml"))


def test_a_file_of_schedules_has_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text((HEAD + 'tube = "t"\n#').ljust(MAX_FILE_BYTES, "#"))
    assert [each.tube for each in read_schedules(str(path))] == ["t"]
    path.write_text(path.read_text() + "#")
    with pytest.raises(ValueError, match="it has more than 65536 bytes"):
        read_schedules(str(path))
    with pytest.raises(ValueError, match="No such file"):
        read_schedules(str(path) + "x")


def test_the_schedules_of_a_file_are_run(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(HEAD + 'tube = "t"\nbody = "\u00fc"\n[m]\ncron = "0 * * * *"\ntube = "t"\n')
    place = Place()
    place.scheduler(*read_schedules(str(path)))
    assert [(run.schedule.name, run.schedule.body) for run in place.runs] == [
        ("n", "\u00fc".encode()), ("m", b""),
    ]  # fmt: skip


def test_the_longest_name_at_the_farthest_time_makes_a_key() -> None:
    tags = every(name="n" * MAX_NAME, catch_up_s=MAX_CATCH_UP_S, missed="all").tags(10**11)
    assert tags.unique_seconds == MAX_CATCH_UP_S + SKEW_S


def test_times_are_those_of_the_zone() -> None:
    start = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert times(every("30 3 * * MON-FRI"), start, 2) == ["01-06 03:30", "01-07 03:30"]
    berlin = every("30 3 * * *", zone="Europe/Berlin")
    assert times(berlin, start, 1) == ["01-06 02:30"]
    assert times(berlin, start.replace(month=7), 1) == ["07-06 01:30"]


def test_a_time_that_is_skipped_in_spring_comes_right_after_and_one_that_comes_twice_once() -> None:
    nightly = every("30 2 * * *", zone="Europe/Berlin")
    assert times(nightly, datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == [
        "03-29 01:00", "03-30 00:30",
    ]  # fmt: skip
    assert times(nightly, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == [
        "10-25 00:30", "10-26 01:30",
    ]  # fmt: skip
    hourly = every("30 * * * *", zone="Europe/Berlin")
    assert times(hourly, datetime(2026, 10, 24, 23, tzinfo=UTC), 4) == [
        "10-24 23:30", "10-25 00:30", "10-25 01:30", "10-25 02:30",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cron", "wanted"),
    [
        ("0,15,30,45 2 * * *", ["03-29 01:00", "03-30 00:00"]),
        ("0,30 2,3 * * *", ["03-29 01:00", "03-29 01:30", "03-30 00:00"]),
        # These go by the time that passes.
        ("*/30 2 * * *", ["03-30 00:00", "03-30 00:30"]),
    ],
)
def test_all_times_of_day_in_a_gap_become_one_run(cron: str, wanted: list[str]) -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    schedule = every(cron, zone="Europe/Berlin")
    assert times(schedule, start, len(wanted)) == wanted
    runs = schedule.runs(start.timestamp(), len(wanted))
    assert [f"{each.astimezone(UTC):%m-%d %H:%M}" for each in runs] == wanted


@settings(max_examples=share(60), deadline=None)
@given(
    st.sampled_from(["*/7 * * * *", "30 2,3 * * *", "15 */2 * * *", "0 0 29 2 *", "5 1 * * SUN"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"]),
    st.integers(1_700_000_000, 1_800_000_000),
)
def test_the_runs_that_are_shown_are_those_that_come(cron: str, zone: str, after_s: int) -> None:
    schedule = every(cron, zone=zone)
    shown = schedule.runs(after_s, 5)
    coming = []
    for _ in range(5):
        after_s = schedule.next_s(after_s)
        coming.append(after_s)
    assert [int(each.timestamp()) for each in shown] == coming
    assert {str(each.tzinfo) for each in shown} == {zone}


@given(
    st.integers(0, 3 * HOUR_S), st.integers(0, 3 * HOUR_S),
    st.sampled_from(["30 2 * * *", "*/20 2,3 * * *", "5 * * * *", "*/7 * * * *"]),
    st.sampled_from([datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)]),
)  # fmt: skip
@settings(max_examples=share(200), deadline=None)
def test_times_do_not_depend_on_looking(first: int, second: int, cron: str, day: datetime) -> None:
    schedule = every(cron, zone="Europe/Berlin", missed="all", catch_up_s=6 * HOUR_S)
    start_s = day.timestamp()
    looks = sorted((first, second))
    end_s = start_s + 5 * HOUR_S
    bounds = [start_s, *(start_s + look for look in looks), end_s]
    piecewise = [
        time_s for after_s, now_s in pairwise(bounds)
        for time_s in schedule.due(after_s, now_s)
    ]  # fmt: skip
    assert piecewise == schedule.due(start_s, end_s)


# One job for each time.


def test_each_time_has_its_job_with_the_body_of_that_time() -> None:
    place = Place()
    place.scheduler(
        every("*/30 * * * *", body=lambda moment: b"%d" % moment.hour, zone="Asia/Kolkata",
              priority=5, ttr=9),
        every("30 12 * * *", name="other", body=b"once"),
    )  # fmt: skip
    place.world.advance(HOUR_S + 1)
    assert place.done() == ["12:00", "12:30", "12:30", "13:00"]
    client = place.world.client()
    jobs = [place.world.result(client.peek(run.job)).body for run in place.runs]
    assert jobs == [b"17", b"18", b"once", b"18"]
    stats = place.world.result(client.stats_job(place.runs[0].job))
    assert (stats.tube, stats.pri, stats.ttr) == ("t", 5, 9)


def test_several_schedulers_make_one_job_for_each_time_whoever_is_quicker() -> None:
    place = Place()
    first = place.scheduler(every("*/10 * * * *"))
    place.scheduler(every("*/10 * * * *"), skew_s=-20)
    place.scheduler(every("*/10 * * * *"), skew_s=45)
    place.world.advance(HOUR_S / 2)
    assert place.finish() == len(place.done())
    place.stop(first)
    place.world.advance(HOUR_S / 2 + 30)
    made = Counter(run.time_s for run in place.runs if run.job.is_new)
    assert len(made) == 7 and set(made.values()) == {1}
    assert len(place.runs) > len(place.done())


def test_two_schedules_of_a_tube_are_told_apart_by_their_names() -> None:
    place = Place()
    with pytest.raises(ValueError, match="two schedules of a tube have the same name"):
        place.scheduler(every(), every("1 * * * *"))
    place.scheduler(every(), every(name="m"), every(tube="u"))
    place.world.advance(1)
    assert place.done() == ["12:00"] * 3


# What was missed.


@pytest.mark.parametrize(
    ("missed", "made"),
    [("none", []), ("one", ["15:00"]), ("all", ["13:00", "14:00", "15:00"])],
)
def test_a_scheduler_that_was_away_makes_up_as_it_is_told(missed: str, made: list[str]) -> None:
    place = Place()
    first = place.scheduler(every(missed=missed, catch_up_s=3 * HOUR_S))
    place.world.advance(60)
    place.stop(first)
    place.finish()
    place.runs.clear()
    place.world.advance(3 * HOUR_S + 600)
    again = place.scheduler(every(missed=missed, catch_up_s=3 * HOUR_S))
    place.world.advance(1)
    assert place.done() == made
    place.stop(again)
    place.finish()
    place.runs.clear()
    place.scheduler(every(missed=missed, catch_up_s=3 * HOUR_S))
    place.world.advance(1)
    assert place.done() == []


@pytest.mark.parametrize(
    ("missed", "made"),
    [("none", ["16:00"]), ("one", ["15:00", "16:00"]),
     ("all", ["13:00", "14:00", "15:00", "16:00"])],
)  # fmt: skip
def test_a_server_that_was_away_gets_what_the_schedule_says(missed: str, made: list[str]) -> None:
    place = Place(has_log=True)
    place.scheduler(every(missed=missed, catch_up_s=3 * HOUR_S))
    place.world.advance(60)
    place.runs.clear()
    place.world.kill()
    place.world.clock.advance(3 * HOUR_S + 600)
    place.world.restart()
    place.world.advance(HOUR_S)
    assert place.done() == made


def test_a_run_is_put_late_if_it_is_not_missed_yet() -> None:
    place = Place()
    place.world.advance(LATE_S - 1)
    place.scheduler(every())
    assert place.done() == ["12:00"]
    place = Place()
    place.world.advance(LATE_S + 1)
    place.scheduler(every())
    assert place.done() == []


def test_of_many_missed_runs_the_newest_are_made_up_for() -> None:
    place = Place()
    place.scheduler(every("* * * * *", missed="all"))
    assert len(place.done()) == MAX_MISSED
    assert place.runs[-1].time_s == NOON_S
    assert place.runs[0].time_s == NOON_S - 60 * (MAX_MISSED - 1)


# What goes wrong.


def test_a_put_that_is_refused_is_tried_again_until_the_run_is_missed() -> None:
    place = Place()
    client = place.world.client()
    place.world.result(client.drain())
    with capturedLogs() as events:
        place.scheduler(every("0,30 * * * *"))
        place.world.advance(2 * RETRY_S)
        place.world.result(client.undrain())
        place.world.advance(RETRY_S)
        assert place.done() == ["12:00"]
        place.world.result(client.drain())
        place.world.advance(HOUR_S / 2 + LATE_S + RETRY_S)
        place.world.result(client.undrain())
        place.world.advance(60)
    assert place.done() == ["12:00"]
    said = [str(formatEvent(event)) for event in events if event["log_namespace"].endswith("ring")]
    assert "n: put: DRAINING: the server takes no new jobs; put it elsewhere, or later; " in said[0]
    assert said[-1] == "n: a run was missed: no job could be put in 60 s"


def test_a_server_that_knows_no_uniques_is_given_nothing() -> None:
    place = Place()
    recurring = Recurring(cast(Any, place.world.endpoint), [every()], reactor=place.world.clock,
                          wall_clock=lambda: place.now_s)  # fmt: skip
    recurring.startService()
    transport = place.world.link.transport
    assert transport.drain() == b"use default\r\ncapabilities\r\n"
    with capturedLogs() as events:
        transport.unsent += b"USING default\r\nUNKNOWN_COMMAND\r\n"
        transport.read()
    assert "does not announce 'put idp:'" in str(formatEvent(events[-1]))
    assert transport.drain() == b""


def test_a_body_that_cannot_be_made_is_told_and_holds_nobody_up() -> None:
    def fail(moment: datetime) -> bytes:
        raise LookupError("no body")

    place = Place()
    with capturedLogs() as events:
        place.scheduler(every(body=fail), every(name="m"))
    assert "n: no body; retrying" in [formatEvent(event) for event in events]
    assert place.done() == ["12:00"]


def test_a_scheduler_that_stops_sends_nothing_more() -> None:
    place = Place()
    place.world.endpoint.is_refusing = True
    recurring = place.scheduler(every())
    place.stop(recurring)
    place.world.endpoint.is_refusing = False
    place.world.advance(HOUR_S)
    assert place.runs == []
    recurring.startService()
    place.world.advance(1)
    assert place.done() == ["13:00"]


@pytest.mark.exhaustive
@settings(max_examples=share(15), deadline=None)
@given(st.lists(
    st.tuples(st.sampled_from(["lose", "start", "stop", "finish", "kill"]), st.integers(1, 1500)),
    max_size=12,
))  # fmt: skip
def test_no_time_has_two_jobs_and_none_to_be_made_up_has_none(steps: list[tuple[str, int]]) -> None:
    place = Place(has_log=True)
    schedule = every("*/10 * * * *", missed="all")
    running = [place.scheduler(schedule)]
    for step, seconds in steps:
        if step == "lose":
            for link in place.world.links:
                if not cast(Any, link).transport.is_closed:
                    cast(Any, link).transport.end(ConnectionLost())
        elif step == "kill":
            place.world.kill()
            place.world.restart()
        elif step == "start":
            running.append(place.scheduler(schedule, skew_s=len(running) * 7))
        elif step == "stop" and running:
            place.stop(running.pop(0))
        elif step == "finish":
            place.finish()
        place.world.advance(seconds)
    place.scheduler(schedule)
    place.world.advance(MOST_S + 60)
    last_s = place.now_s - MOST_S - 60
    made = Counter(run.time_s for run in place.runs if run.job.is_new)
    assert set(made.values()) == {1}
    wanted = {time_s for time_s in range(NOON_S, int(last_s) + 1, 600)}
    assert wanted <= {run.time_s for run in place.runs}
