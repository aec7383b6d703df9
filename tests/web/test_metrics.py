"""What is served at /metrics, read by Prometheus's own parsers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.access.rules import AccessRules, Grant, Granted
from beanstalk_twisted.server.anomalies import OUTCOMES, Expiry
from beanstalk_twisted.server.execution_context import SAMPLED_COMMANDS
from beanstalk_twisted.storage.fsync import FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.exposition import OPENMETRICS, PROMETHEUS
from beanstalk_twisted.web.site import HttpSettings
from beanstalk_twisted.wire.commands import COUNTERS
from tests.binlog.memory import MemoryArchive, MemoryDirectory
from tests.held_io import HeldIo
from tests.server.access.meeting import InlineHashing
from tests.web.browsing import Browser, read_openmetrics, read_prometheus, settle, site_of
from tests.web.test_replication import LEADS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraper:
    """A server and who scrapes it."""

    def __init__(self, server: MemoryServer, most_tubes: int = 100) -> None:
        self.server = server
        self.site = site_of(server, HttpSettings(metrics_tubes=most_tubes))
        self.browser = self.browse()
        self.client = server.connect()

    def browse(self) -> Browser:
        return Browser(self.site, self.server.clock)

    def text(self, accept: str = "") -> str:
        reply = self.browser.ask("GET", "/metrics", headers={"accept": accept})
        assert reply.status == 200
        assert reply.headers["content-type"] == (OPENMETRICS if accept else PROMETHEUS)
        return reply.body.decode()

    def samples(self) -> Samples:
        return samples_of(read_prometheus(self.text()))

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, tuple(sorted(labels.items()))]

    def ask(self, request: bytes) -> bytes:
        return self.client.ask(request)


def samples_of(families: Any) -> Samples:
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def with_log(**options: Any) -> Scraper:
    return Scraper(MemoryServer(directory=MemoryDirectory(), **options))


def busy() -> Scraper:
    scraper = with_log(archive=MemoryArchive(), body_cache=0)
    scraper.ask(b"use mail\r\nput 1 0 60 1\r\na\r\nput 2000 0 60 1\r\nb\r\nput 1 99 60 1\r\nc\r\n")
    scraper.server.advance(2)
    scraper.ask(b"watch mail\r\nreserve\r\n")
    scraper.server.advance(10)
    scraper.ask(b"delete 1\r\nreserve\r\nbury 2 0\r\n")
    return scraper


def test_both_formats_are_read_by_prometheus_and_say_the_same() -> None:
    scraper = busy()
    scraper.text()
    plain = samples_of(read_prometheus(scraper.text()))
    modern = samples_of(read_openmetrics(scraper.text("application/openmetrics-text")))
    changing = {"process_cpu_seconds_total", "beanstalkd_http_requests_total"}
    changing |= {name for name, _ in plain if "rusage" in name or name.startswith("process_")}
    assert {key: value for key, value in plain.items() if key[0] not in changing} == {
        key: value for key, value in modern.items() if key[0] not in changing
    }


def test_each_number_of_stats_is_there() -> None:
    scraper = busy()
    stats = scraper.server.service.queue.server_stats()
    samples = scraper.samples()
    for key in COUNTERS:
        value = samples["beanstalkd_commands_total", (("command", key.removeprefix("cmd-")),)]
        assert value == stats[key]
    values = set(samples.values())
    texts = {"version", "draining", "id", "hostname", "os", "platform"}
    for key, number in stats.items():
        if key not in texts and not key.startswith("rusage"):
            assert float(str(number)) in values, key


@pytest.mark.parametrize("name", ["beanstalkd_tube_wait_seconds", "beanstalkd_wait_seconds"])
def test_a_wait_is_from_the_put_to_the_first_reservation(name: str) -> None:
    scraper = busy()
    labels = {"tube": "mail"} if "tube" in name else {}
    assert scraper.value(f"{name}_count", **labels) == 2
    assert scraper.value(f"{name}_sum", **labels) == 2 + 12
    assert scraper.value(f"{name}_bucket", le="1.0", **labels) == 0
    assert scraper.value(f"{name}_bucket", le="5.0", **labels) == 1
    assert scraper.value(f"{name}_bucket", le="+Inf", **labels) == 2


def test_a_run_is_from_the_reservation_to_the_deletion() -> None:
    scraper = busy()
    assert scraper.value("beanstalkd_tube_run_seconds_sum", tube="mail") == 10
    scraper.ask(b"use mail\r\nput 1 0 60 1\r\na\r\ndelete 4\r\n")
    assert scraper.value("beanstalkd_tube_run_seconds_count", tube="mail") == 1
    scraper.ask(b"put 1 0 60 1\r\na\r\nreserve\r\n")
    scraper.server.advance(1)
    scraper.ask(b"touch 5\r\n")
    scraper.server.advance(1)
    scraper.ask(b"delete-batch 5\r\n")
    assert scraper.value("beanstalkd_run_seconds_sum") == 12


DURATIONS = "beanstalkd_command_duration_seconds_count"
OLDEST = 'beanstalkd_tube_oldest_ready_age_seconds{tube="default"}'
NEXT = "beanstalkd_tube_next_delayed_seconds"

HAPPENINGS: dict[str, list[bytes | int | dict[str, float | None]]] = {
    "the delay is no wait, and a later reservation none": [
        b"put 1 5 60 1\r\na\r\n", 5, 1, b"reserve\r\nrelease 1 0 0\r\nreserve\r\n",
        {"beanstalkd_wait_seconds_count": 1, "beanstalkd_wait_seconds_sum": 1},
    ],
    "the oldest ready job counts whatever its priority": [
        {OLDEST: 0}, b"put 9 0 60 1\r\na\r\n", 7,
        b"put 1 0 60 1\r\na\r\nput 1 0 60 1\r\na\r\n", {OLDEST: 7},
    ],
    "timeouts and pauses of a tube": [
        b"put 1 0 1 1\r\na\r\nreserve\r\n", 2, b"pause-tube default 60\r\n",
        {"beanstalkd_job_timeouts_total": 1,
         'beanstalkd_tube_timeouts_total{tube="default"}': 1,
         'beanstalkd_tube_pause_seconds_left{tube="default"}': 60,
         'beanstalkd_tube_pauses_total{tube="default"}': 1},
    ],
    "kicked dead letters are kicks": [
        b"tube-policy default max-reserves=1\r\nput 1 0 60 1\r\na\r\n",
        b"reserve\r\nrelease 1 1 0\r\nkick-dead default 5\r\n",
        {'beanstalkd_tube_kicks_total{tube="default"}': 1},
    ],
    "the next delayed job, if there is one": [
        b"put 1 30 60 1\r\na\r\nput 1 20 60 1\r\na\r\n",
        b"use waits\r\nput 1 0 60 1 aft:g\r\na\r\n", 5,
        {f'{NEXT}{{tube="default"}}': 15, f'{NEXT}{{tube="waits"}}': None},
    ],
    "durations of one command of many": [
        b"use mail\r\n" * (SAMPLED_COMMANDS - 1), {f'{DURATIONS}{{command="use"}}': None},
        b"put 1 0 60 1\r\na\r\n", {f'{DURATIONS}{{command="put"}}': 1},
        b"use mail\r\n" * (2 * SAMPLED_COMMANDS - 1), {f'{DURATIONS}{{command="use"}}': 1},
        # A wrong line is no command.
        b"wrong\r\n", {f'{DURATIONS}{{command="use"}}': 1},
    ],
    "the duration of a command whose body comes in pieces": [
        *([b"put 1 0 60 3\r\n", b"abc\r\n"] * SAMPLED_COMMANDS),
        {f'{DURATIONS}{{command="put"}}': 1},
    ],
    "bodies where they are": [
        b"put 0 0 60 5\r\nhello\r\nput 1 0 60 3\r\nabc\r\n", 0, b"reserve\r\n",
        {"beanstalkd_bodies_memory_bytes": 0, "beanstalkd_bodies_log_bytes": 8,
         "beanstalkd_bodies_dropped_total": 3, "beanstalkd_bodies_read_total": 1,
         "beanstalkd_bodies_lost_total": 0, "beanstalkd_bodies_failed_total": 0,
         "beanstalkd_body_read_seconds_count": 1},
    ],
    "jobs by state": [
        b"put 1 99 60 1\r\na\r\nput 1 0 60 1\r\na\r\nreserve\r\nbury 2 0\r\n",
        b"put 1 0 60 1\r\na\r\nreserve\r\ndelete 3\r\n",
        {f'beanstalkd_{of}{{{tube}state="{state}"}}': count
         for of, tube in (("current_jobs", ""), ("tube_current_jobs", 'tube="default",'))
         for state, count in (("ready", 0), ("reserved", 0), ("delayed", 1), ("buried", 1))},
        {'beanstalkd_tube_jobs_total{tube="default"}': 3,
         'beanstalkd_tube_deletes_total{tube="default"}': 1},
    ],
    "refusals by their word": [
        b"delete 9\r\nnonsense\r\npeek 8\r\nignore default\r\nput 1 0 60 1\r\nlon",
        # A series is there before its first refusal, so that a rule sees the increase.
        {f'beanstalkd_errors_total{{reply="{word}"}}': count
         for word, count in (("NOT_FOUND", 2), ("UNKNOWN_COMMAND", 1), ("NOT_IGNORED", 1),
                             ("EXPECTED_CRLF", 1), ("DRAINING", 0), ("BAD_FORMAT", 0))},
    ],
    "whether new jobs are refused": [
        {"beanstalkd_draining": 0}, b"drain\r\n", {"beanstalkd_draining": 1},
    ],
}  # fmt: skip
"""Commands, seconds, and what is told then; None for a metric that is not there."""


@pytest.mark.parametrize("what", HAPPENINGS)
def test_what_happens_is_told(what: str) -> None:
    scraper = with_log(body_cache=0 if "bodies" in what else None)
    for step in HAPPENINGS[what]:
        if isinstance(step, bytes):
            scraper.ask(step)
        elif isinstance(step, int):
            scraper.server.advance(step)
        else:
            rows = [line.rsplit(" ", 1) for line in scraper.text().splitlines() if line[0] != "#"]
            told = {name: float(value) for name, value in rows}
            assert {name: told.get(name) for name in step} == step


def test_a_refusal_is_counted_whenever_and_on_whatever_port_it_is_answered() -> None:
    scraper = Scraper(MemoryServer())
    scraper.ask(b"put 1 0 2 1\r\na\r\nreserve\r\nreserve\r\n")
    scraper.server.advance(1)
    assert scraper.value("beanstalkd_deadline_soon_total") == 1
    scraper.ask(b"drain\r\nput 1 0 2 1\r\na\r\n")
    # The answer to `drain` has the same word, and is none.
    assert scraper.value("beanstalkd_errors_total", reply="DRAINING") == 1
    scraper.server.service.context.times = None
    scraper.ask(b"delete 9\r\n")
    assert scraper.value("beanstalkd_errors_total", reply="NOT_FOUND") == 1


def test_slow_commands_are_counted() -> None:
    scraper = Scraper(MemoryServer())
    scraper.ask(b"use mail\r\n")
    protocol: Any = next(iter(scraper.server.service._sessions.connections.values()))
    protocol.was_slow(10**9)
    assert scraper.value("beanstalkd_slow_commands_total", command="use") == 1


def test_what_happens_to_the_jobs_of_a_tube_is_counted() -> None:
    scraper = with_log()
    scraper.ask(b"use mail\r\nwatch mail\r\nput 1 0 60 1\r\na\r\nreserve\r\nrelease 1 1 0\r\n")
    scraper.ask(b"reserve\r\nbury 1 0\r\nkick 9\r\nreserve\r\nbury 1 0\r\nkick-job 1\r\n")
    scraper.ask(b"put 1 0 60 1 idp:k\r\na\r\nput 1 0 60 1 idp:k\r\na\r\n")
    scraper.ask(
        b"tube-policy mail max-job-size=10 max-reserves=4\r\nput 1 0 60 11\r\nabcdefghijk\r\n"
    )
    scraper.ask(b"reserve\r\nrelease 1 1 0\r\n")
    counted = {
        name.removeprefix("beanstalkd_tube_").removesuffix("_total"): value
        for (name, labels), value in scraper.samples().items()
        if labels == (("tube", "mail"),) and name.endswith("_total")
    }
    assert counted == {
        "jobs": 2, "deletes": 0, "pauses": 0, "reserves": 4, "releases": 2, "buries": 3,
        "kicks": 2, "timeouts": 0, "dead_lettered": 1, "deduplicated": 1, "rejected": 1,
    }  # fmt: skip


def test_what_the_start_has_loaded_is_told_and_counts_as_nothing_that_happened() -> None:
    directory = MemoryDirectory()
    first = MemoryServer(directory=directory).connect()
    first.ask(b"put 1 0 60 1\r\na\r\nput 1 0 60 1\r\nb\r\nreserve\r\nbury 1 0\r\nkick 1\r\n")
    scraper = Scraper(MemoryServer(directory=directory))
    assert scraper.value("beanstalkd_binlog_replay_jobs") == 2
    assert scraper.value("beanstalkd_binlog_replay_seconds") >= 0
    for what in ("reserves", "buries", "kicks"):
        assert scraper.value(f"beanstalkd_tube_{what}_total", tube="default") == 0


def test_the_busiest_tubes_are_shown_and_the_others_summed() -> None:
    scraper = Scraper(MemoryServer(), most_tubes=2)
    for name, count in ((b"a", 1), (b"b", 3), (b"c", 2), (b"d", 1)):
        scraper.ask(b"use %s\r\n" % name + count * b"put 1 0 60 1\r\nx\r\n")
    samples = scraper.samples()
    tubes = {
        dict(labels)["tube"] for name, labels in samples if name == "beanstalkd_tube_jobs_total"
    }
    assert tubes == {"b", "c"}
    rest = {"tube": "-others-", "state": "ready"}
    assert scraper.value("beanstalkd_tube_current_jobs", **rest) == 2
    # `default`, and two with jobs.
    assert scraper.value("beanstalkd_tubes_not_shown") == 3


def shown_tubes(scraper: Scraper) -> set[str]:
    samples = scraper.samples()
    named = [dict(labels) for name, labels in samples if name == "beanstalkd_tube_jobs_total"]
    return {labels["tube"] for labels in named}


def with_busy_tubes(most_tubes: int) -> Scraper:
    """A server of 12 tubes that are watched, each with more jobs than the one before."""
    scraper = Scraper(MemoryServer(), most_tubes)
    worker = scraper.server.connect()
    for number in range(12):
        scraper.ask(b"use t%02d\r\n" % number + (number + 1) * b"put 0 0 60 1\r\nx\r\n")
        worker.ask(b"watch t%02d\r\n" % number)
    assert scraper.value("beanstalkd_tubes_without_workers") == 0
    return scraper


@pytest.mark.parametrize(("most", "shown"), [(4, {"t09", "t10", "t11"}), (2, {"t11"})])
def test_tubes_in_trouble_are_shown_before_busier_ones_and_the_worst_first(
    most: int, shown: set[str]
) -> None:
    scraper = with_busy_tubes(most)
    scraper.ask(b"use bad\r\nput 0 0 60 1\r\nx\r\nreserve-job 79\r\nbury 79 0\r\nuse default\r\n")
    assert shown_tubes(scraper) == {"bad", *shown}
    scraper.ask(b"use forgotten\r\nput 0 0 60 1\r\nx\r\nuse default\r\n")
    assert shown_tubes(scraper) == {"forgotten", *(shown if most == 2 else {"bad", "t10", "t11"})}
    assert scraper.value("beanstalkd_tubes_without_workers") == 1


@pytest.mark.parametrize("in_trouble", [2, 3])
def test_tubes_in_trouble_take_half_of_the_places_at_most(in_trouble: int) -> None:
    scraper = with_busy_tubes(4)
    for number in range(in_trouble):
        scraper.ask(b"use forgotten-%d\r\nput 0 0 60 1\r\nx\r\n" % number)
    scraper.ask(b"use default\r\n")
    assert shown_tubes(scraper) == {"forgotten-0", "forgotten-1", "t10", "t11"}
    assert scraper.value("beanstalkd_tubes_without_workers") == in_trouble


@pytest.mark.parametrize(("seconds", "is_shown"), [(300, False), (301, True)])
def test_a_tube_whose_jobs_wait_for_five_minutes_is_in_trouble(
    seconds: int, is_shown: bool
) -> None:
    scraper = Scraper(MemoryServer(), most_tubes=1)
    scraper.site.startFactory()
    scraper.ask(b"watch slow\r\nwatch busy\r\nuse slow\r\nput 9 0 60 1\r\nx\r\nuse busy\r\n")
    scraper.server.advance(seconds)
    scraper.ask(3 * b"put 9 0 60 1\r\nx\r\n")
    scraper.browser = scraper.browse()
    assert shown_tubes(scraper) == ({"slow"} if is_shown else {"busy"})


def test_the_oldest_ready_job_of_the_server_is_found_whatever_its_tube_and_priority() -> None:
    scraper = Scraper(MemoryServer(), most_tubes=0)
    scraper.site.startFactory()
    name = "beanstalkd_oldest_ready_age_seconds"
    scraper.server.advance(1)
    assert scraper.value(name) == 0
    scraper.ask(b"use a\r\nput 9 0 60 1\r\nx\r\n")
    scraper.server.advance(4)
    scraper.ask(b"put 1 0 60 1\r\nx\r\nuse b\r\nput 0 0 60 1\r\nx\r\n")
    scraper.server.advance(2)
    assert scraper.value(name) == 6
    scraper.ask(b"delete 1\r\n")
    scraper.server.advance(1)
    assert scraper.value(name) == 3


def test_dead_letters_are_counted_while_they_are_buried() -> None:
    directory = MemoryDirectory()
    scraper = Scraper(MemoryServer(directory=directory))
    name = "beanstalkd_dead_letters"
    scraper.ask(b"tube-policy default max-reserves=1 dead-letter=dead\r\n")
    for number in range(1, 6):
        scraper.ask(b"put 1 0 60 1\r\na\r\nreserve\r\nrelease %d 1 0\r\n" % number)
    # One that was buried by a worker is none.
    scraper.ask(b"put 1 0 60 1\r\na\r\nreserve\r\nbury 6 1\r\n")
    assert scraper.value(name) == 5
    scraper.ask(b"kick-job 1\r\n")
    assert scraper.value(name) == 4
    scraper.ask(b"use dead\r\nkick 1\r\n")
    assert scraper.value(name) == 3
    scraper.ask(b"reserve-job 1\r\nbury 1 0\r\n")
    assert scraper.value(name) == 4
    scraper.ask(b"kick-dead default 1\r\n")
    assert scraper.value(name) == 3
    scraper.ask(b"delete 4\r\n")
    assert scraper.value(name) == 2
    again = Scraper(MemoryServer(directory=directory.after_kill()))
    assert again.value(name) == 2


@pytest.mark.parametrize("most", [0, 1, 2000])
def test_any_number_of_tubes_makes_sound_text(most: int) -> None:
    scraper = Scraper(MemoryServer(), most_tubes=most)
    for number in range(1200):
        scraper.ask(b"watch tube-%d\r\n" % number)
    samples = scraper.samples()
    shown = {labels for name, labels in samples if name == "beanstalkd_tube_jobs_total"}
    assert len(shown) == min(most, 1201)
    not_shown = samples["beanstalkd_tubes_not_shown", ()]
    assert not_shown == 1201 - len(shown)


def test_other_tubes_may_come_and_go_while_the_text_is_made() -> None:
    scraper = Scraper(MemoryServer())
    for number in range(1200):
        scraper.ask(b"watch tube-%d\r\n" % number)
    scraper.browser.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    scraper.client.hang_up()
    scraper.server.advance()
    assert scraper.browser.transport.value.endswith(b"0\r\n\r\n")


def test_the_log_is_told() -> None:
    scraper = busy()
    scraper.text()
    samples = {name: value for (name, labels), value in scraper.samples().items() if not labels}
    total, live = samples["beanstalkd_binlog_bytes"], samples["beanstalkd_binlog_live_bytes"]
    assert 0 < live < total
    assert samples["beanstalkd_binlog_dead_bytes"] == total - live
    free = samples["beanstalkd_binlog_disk_free_bytes"]
    assert 0 < free <= samples["beanstalkd_binlog_disk_size_bytes"]
    assert samples["beanstalkd_binlog_fsync_seconds_count"] > 0
    assert samples["beanstalkd_binlog_group_commit_size_count"] > 0
    assert samples["beanstalkd_binlog_oldest_unsynced_seconds"] == 0
    assert scraper.value("beanstalkd_binlog_state", state="ok") == 1
    assert scraper.value("beanstalkd_binlog_state", state="full") == 0


def test_what_waits_for_the_disk_is_told_and_for_how_long() -> None:
    io = HeldIo()
    scraper = with_log(io=lambda: io)
    settle(scraper.server, io)
    scraper.ask(b"put 1 0 60 1\r\na\r\n")
    scraper.server.advance(3)
    assert scraper.value("beanstalkd_binlog_oldest_unsynced_seconds") == pytest.approx(3)
    assert scraper.value("beanstalkd_binlog_unsynced_bytes") > 0


def test_with_an_interval_what_was_answered_is_unsynced_until_the_sync() -> None:
    scraper = with_log(fsync=FsyncPolicy(10))
    scraper.server.advance(20)
    assert scraper.ask(b"put 1 0 60 1\r\na\r\n") == b"INSERTED 1\r\n"
    scraper.server.advance(6)
    assert scraper.value("beanstalkd_binlog_oldest_unsynced_seconds") == pytest.approx(6)
    scraper.server.advance(10)
    assert scraper.value("beanstalkd_binlog_oldest_unsynced_seconds") < 5


def speak_tls(server: MemoryServer) -> None:
    ends = {second: datetime.fromtimestamp(second, UTC) for second in (1000, 3000, 4000)}
    expiries = server.service.handshakes.expiries
    expiries["--listen"] = lambda: [
        Expiry("certificate", "a.pem", ends[4000]),
        Expiry("revocations", "crl.pem", ends[1000]),
    ]
    expiries["--http"] = lambda: [Expiry("certificate", "b.pem", ends[3000])]


def test_http_is_told_too() -> None:
    scraper = Scraper(MemoryServer())
    scraper.text()
    assert scraper.value("beanstalkd_http_requests_total") == 2
    assert scraper.value("beanstalkd_http_connections") == 1
    assert scraper.value("beanstalkd_connections_rejected_total", protocol="http") == 0


def test_handshakes_are_told_where_there_is_tls() -> None:
    scraper = Scraper(MemoryServer())
    assert not [name for name, _ in scraper.samples() if "_tls_" in name]
    speak_tls(scraper.server)
    handshakes = scraper.server.service.handshakes
    handshakes.completed()
    handshakes.failed("revoked", "10.0.0.7:1", "it was revoked")
    handshakes.failed("left", "10.0.0.7:1", "the client has gone")
    values = {
        each: scraper.value("beanstalkd_tls_handshakes_total", outcome=each) for each in OUTCOMES
    }
    assert {each: count for each, count in values.items() if count} == {
        "completed": 1, "revoked": 1, "left": 1,
    }  # fmt: skip
    ends = {
        kind: scraper.value("beanstalkd_tls_expires_timestamp_seconds", kind=kind)
        for kind in ("certificate", "revocations")
    }
    assert ends == {"certificate": 3000, "revocations": 1000}
    handshakes.stop()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"


def test_what_identities_take_of_what_they_may_is_shown_by_limit() -> None:
    scraper = busy()
    limits = {"jobs": 0, "put-rate": 5}
    anybody = AccessRules((), Grant([Granted("admin", "*")]), anonymous_limits=limits)
    scraper.server.service.require_access(anybody, InlineHashing())
    jobs = len(scraper.server.service.queue.state.jobs)
    scraper.server.connect().ask(b"put 0 0 60 1\r\nx\r\n")
    text = scraper.text()
    for line in (
        'beanstalkd_identity_limit{identity="anonymous",limit="put-rate"} 5',
        f'beanstalkd_identity_used{{identity="anonymous",limit="jobs"}} {jobs}',
        'beanstalkd_identity_refusals_total{identity="anonymous",limit="jobs"} 1',
    ):
        assert f"{line}\n" in text
    assert 'identity_used{identity="anonymous",limit="put-rate"}' not in text


def test_the_page_has_every_metric_and_no_other() -> None:
    section = PAGE.read_text().partition("## Metrics")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    written = {name for row in rows for name in re.findall(r"`([a-z_]+)", row)}
    for page in ("protocol.md", "extensions.md"):
        beside_keys = re.findall(r"`(beanstalkd_[a-z_]+)", PAGE.with_name(page).read_text())
        assert written.isdisjoint(beside_keys) and beside_keys
        written.update(beside_keys)
    scraper = busy()
    anybody = AccessRules((), Grant([Granted("admin", "*")]), anonymous_limits={"jobs": 9})
    scraper.server.service.require_access(anybody, InlineHashing())
    speak_tls(scraper.server)
    scraper.server.service.situation = lambda: LEADS
    scraper.text()
    served = set(re.findall(r"^# TYPE (\S+)", scraper.text(), re.MULTILINE))
    assert written == served
