"""Counters, and the three stats answers, byte for byte as the real server gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.rules.statistics import Tally
from beanstalk_twisted.wire.layouts import Values
from tests.rules.conversation import FACTS, Client, Server

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "replies" / "HEAD"
VERSION = "1.13-head-25085c5"


def sample(name: str) -> str:
    """Read a reply of the real server, without its last CR LF."""
    return (SAMPLES / name).read_bytes().decode("ascii").removesuffix("\r\n")


# The conversation in which the real server gave its answers: what was said, and the sample of the
# reply if there is one.  A second and a little passes before the last part.
FIRST_PART = (
    ("stats", "stats-fresh"),
    ("list-tubes", "list-tubes-fresh"),
    ("use work-1", "list-tube-used"),
    ("watch work-1", None),
    ("put 5 0 60 5", None),
    ("put 2000 500 61 5", None),
    ("stats-job 1", "stats-job-ready"),
    ("stats-job 2", "stats-job-delayed"),
    ("reserve", "reserve"),
    ("stats-job 1", "stats-job-reserved"),
    ("stats-tube work-1", "stats-tube"),
    ("pause-tube work-1 90", None),
    ("stats-tube work-1", "stats-tube-paused"),
)
LAST_PART = (
    ("bury 1 7", None),
    ("stats-job 1", "stats-job-buried"),
    ("peek-buried", "peek-buried"),
    ("list-tube-used", "list-tube-used"),
    ("list-tubes", "list-tubes"),
    ("list-tubes-watched", "list-tubes-watched"),
    ("stats", "stats-later"),
)


def compare(server: Server, client: Client, part: tuple[tuple[str, str | None], ...]) -> list[str]:
    """Hold the conversation, and name the samples that the replies were equal to."""
    names = []
    for line, name in part:
        reply = client.says(line, b"hello")
        server.pass_time(0.001)
        if name is not None:
            assert reply == sample(name), name
            names.append(name)
    return names


def test_every_answer_is_byte_for_byte_what_the_real_server_gave(server: Server) -> None:
    # What varies from process to process is set to what the real one had.
    server.facts = {**FACTS, "version": VERSION}
    server.connect().leaves()
    client = server.connect()
    compared = compare(server, client, FIRST_PART)
    server.pass_time(1.1)
    later: Values = {"uptime": 2, "rusage-stime": "0.002397", "binlog-records-written": 3}
    server.facts = {**server.facts, **later}
    compared += compare(server, client, LAST_PART)
    assert set(compared) == {path.name for path in SAMPLES.iterdir()}


@pytest.mark.parametrize(
    ("identity", "shown"),
    [("f4ed5ca9442bd1cd", "f4ed5ca9442bd1cd"), ("0123456789012345", '"0123456789012345"'),
     ("1234567890123e45", '"1234567890123e45"')],
)  # fmt: skip
def test_an_id_of_the_process_that_looks_like_a_number_is_quoted(identity: str, shown: str) -> None:
    server = Server()
    server.facts = {**FACTS, "id": identity}
    reply = server.connect().says("stats")
    assert reply is not None and f"\nid: {shown}\n" in reply


# Connections.


def connections(client: Client) -> tuple[str, ...]:
    """Ask for connections, producers, workers, those waiting, and all so far."""
    stats = client.asks("stats")
    names = ("current-connections", "current-producers", "current-workers", "current-waiting")
    return tuple(stats[name] for name in (*names, "total-connections"))


# Seconds.


@pytest.mark.parametrize(
    ("passed", "left"), [(0, "10"), (0.000000001, "9"), (9, "1"), (9.000000001, "0"), (9.9, "0")]
)
def test_seconds_left_are_cut_to_whole_ones(passed: float, left: str) -> None:
    server = Server()
    client = server.connect()
    client.put(ttr=10)
    client.takes()
    client.says("use other")
    client.put(delay=10)
    client.says("pause-tube other 10")
    server.pass_time(passed)
    assert client.asks("stats-job 1")["time-left"] == left
    assert client.asks("stats-job 2")["time-left"] == left
    stats = client.asks("stats-tube other")
    assert (stats["pause"], stats["pause-time-left"]) == ("10", left)


@pytest.mark.parametrize(("overdue", "left"), [(0.5, "0"), (1, "-1"), (1.9, "-1"), (2, "-2")])
def test_seconds_of_what_is_overdue_are_negative_and_cut_toward_0(
    server: Server, client: Client, overdue: float, left: str
) -> None:
    client.put(ttr=10)
    client.takes()
    server.now_ns += round((10 + overdue) * 1e9)
    assert client.asks("stats-job 1")["time-left"] == left


def test_age_runs_from_the_put_line_and_the_delay_from_the_whole_body() -> None:
    server = Server()
    client = server.connect()
    draft = server.queue.puts.begin(client.session, server.now_ns)
    server.pass_time(3)
    server.queue.puts.put(client.session, server.now_ns, draft, 0, 10, 60, b"x")
    stats = client.asks("stats-job 1")
    assert (stats["age"], stats["time-left"]) == ("3", "10")


def test_the_file_of_a_job_is_the_segment_that_has_its_body(server: Server, client: Client) -> None:
    client.put()
    server.log.begin_segment([])
    client.put()
    client.takes()
    client.says("release 1 0 0")
    assert client.asks("stats-job 1")["file"] == "1"
    assert client.asks("stats-job 2")["file"] == "2"


def test_the_totals_for_the_log_have_the_names_of_stats() -> None:
    tally = Tally(["cmd-put", "cmd-kick"])
    tally.commands["cmd-put"] = 4
    tally.timeouts, tally.total_jobs, tally.connections = 1, 2, 3
    assert tally.counts() == {
        "cmd-put": 4, "job-timeouts": 1, "total-jobs": 2, "total-connections": 3,
    }  # fmt: skip
