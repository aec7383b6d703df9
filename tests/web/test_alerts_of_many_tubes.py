"""The shipped alerts see what happens in one tube of 1,111."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.site import HttpSettings
from tests.web.browsing import Browser, read_prometheus, site_of
from tests.web.test_monitoring_examples import DAY, HOUR, Case, judge, promtool_case, rules

TUBES: Final = 1111

QUIET: Final = b"t1110"
"""The tube that has had the fewest jobs."""

BEFORE: Final = 20
"""Steps for which all is well."""


class Busy:
    """A server on which the jobs of 1,111 tubes are done, and a worker that watches all of them."""

    def __init__(self, most_tubes: int) -> None:
        self.server = MemoryServer()
        self.site = site_of(self.server, HttpSettings(metrics_tubes=most_tubes))
        self.site.startFactory()
        self.client, self.worker = self.server.connect(), self.server.connect()
        self.worker.ask(b"".join(b"watch t%d\r\n" % number for number in range(TUBES)))
        put = b"use t%d\r\nput 0 0 60 1\r\nx\r\n"
        tubes = [*range(TUBES), *range(TUBES - 1)]
        self.client.ask(b"".join(put % number for number in tubes))
        self.client.ask(b"".join(b"delete %d\r\n" % (at + 1) for at in range(len(tubes))))

    def put(self, tube: bytes) -> int:
        reply = self.client.ask(b"use %s\r\nput 0 0 60 1\r\nx\r\n" % tube)
        return int(reply.split()[-1])

    def scrape(self) -> dict[str, float]:
        self.server.advance(2)
        browser = Browser(self.site, self.server.clock)
        text = browser.ask("GET", "/metrics").body.decode()
        return {
            series_of(sample): sample.value
            for family in read_prometheus(text)
            for sample in family.samples
        }


def series_of(sample: Any) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}}" if labels else str(sample.name)


def repeated(value: float | None, times: int) -> str:
    return f"_x{times}" if value is None else f"{value}x{times - 1}"


def forget_a_job(busy: Busy) -> None:
    busy.worker.ask(b"ignore %s\r\n" % QUIET)
    busy.put(QUIET)


def leave_a_job(busy: Busy) -> None:
    busy.put(QUIET)
    busy.server.advance(998)


def bury(busy: Busy, tube: bytes) -> None:
    number = busy.put(tube)
    busy.client.ask(b"reserve-job %d\r\nbury %d 0\r\n" % (number, number))


def bury_in_twelve_tubes(busy: Busy) -> None:
    for number in range(TUBES - 12, TUBES):
        bury(busy, b"t%d" % number)


def let_a_job_die(busy: Busy) -> None:
    busy.client.ask(b"tube-policy %s max-reserves=1\r\n" % QUIET)
    number = busy.put(QUIET)
    busy.client.ask(b"reserve-job %d\r\nrelease %d 0 0\r\n" % (number, number))


class Trouble(NamedTuple):
    """What happens, and what is told of it."""

    happens: Callable[[Busy], None]
    most_tubes: int
    alert: str
    minutes: int
    summary: str
    labels: Mapping[str, str] = {}
    step: int = 1


TUBE: Final = {"tube": QUIET.decode()}
READY: Final = {"state": "ready"}
BURIED: Final = {"state": "buried"}

TROUBLES: Final = (
    Trouble(forget_a_job, 100, "BeanstalkdNoWorkers", 10,
            "t1110 has jobs, and nobody watches it", {**TUBE, **READY}),
    Trouble(forget_a_job, 0, "BeanstalkdNoWorkers", 10,
            "s has jobs in tubes that nobody watches: 1"),
    Trouble(leave_a_job, 100, "BeanstalkdJobsTooOld", 5,
            "The oldest ready job of t1110 has waited for 16m 40s", TUBE),
    Trouble(leave_a_job, 0, "BeanstalkdJobsTooOld", 5,
            "The oldest ready job of s has waited for 16m 40s"),
    Trouble(bury_in_twelve_tubes, 100, "BeanstalkdBuriedJobs", 0, "Jobs of s are being buried",
            BURIED),
    Trouble(lambda busy: bury(busy, QUIET), 100, "BeanstalkdBuriedPile", DAY,
            "s has had buried jobs for a day: 1", step=HOUR),
    Trouble(let_a_job_die, 100, "BeanstalkdDeadLetters", 5, "s has dead letters: 1"),
)  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("most_tubes", [0, 100])
def test_trouble_in_one_tube_of_very_many_is_told(
    promtool: str, tmp_path: Path, most_tubes: int
) -> None:
    troubles = [each for each in TROUBLES if each.most_tubes == most_tubes]
    expressions = {rule["alert"]: rule["expr"] for rule in rules()}
    tests: list[dict[str, Any]] = []
    for trouble in troubles:
        busy = Busy(most_tubes)
        before = busy.scrape()
        trouble.happens(busy)
        after = busy.scrape()
        assert most_tubes or not any('tube="t' in series for series in after)
        read = [s for s in {**before, **after} if s.partition("{")[0] in expressions[trouble.alert]]
        minute = BEFORE * trouble.step + trouble.minutes
        fires = {
            series: f"{repeated(before.get(series), BEFORE)} "
            f"{repeated(after.get(series), trouble.minutes // trouble.step + 1)}"
            for series in read
        }
        quiet = {series: repeated(before.get(series), 50) for series in read}
        labels = dict(trouble.labels)
        case = Case(fires, quiet, minute, trouble.summary, labels, trouble.step)
        tests += promtool_case(trouble.alert, case)
    judge(promtool, tests, tmp_path)
