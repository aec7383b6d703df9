"""What a server tells of itself, as typed mappings."""

from __future__ import annotations

import pytest

from beanstalk_twisted.client.stats import (
    CarriedStats,
    ConnectionStats,
    JobStats,
    ServerStats,
    Stats,
    TubePolicy,
    TubeStats,
)
from tests.client.world import World
from tests.test_docs import EXTENSIONS_PAGE, names_in, table

CARRIED = list(CarriedStats._known)


def test_the_keys_of_a_policy_are_known_in_their_order() -> None:
    names = names_in(table(EXTENSIONS_PAGE, "Tube policies"))
    both = [key for name in names for key in (name, f"{name}-from")]
    assert list(TubePolicy._known) == both


def test_the_times_of_a_connections_jobs_are_numbers_by_their_ids() -> None:
    assert ConnectionStats(b"---\ntime-left: {7: 55, 9: -1}\n").time_left == {7: 55, 9: -1}
    assert ConnectionStats(b"---\ntime-left: {}\n").time_left == {}
    for wrong in (b"7: 55", b"{7}", b"{7: x}", b"", b"{7: 1"):
        with pytest.raises(ValueError, match="the value of 'time-left'"):
            ConnectionStats(b"---\ntime-left: %b\n" % wrong)


def test_all_that_our_server_sends_is_there_as_a_key_and_as_an_attribute(world: World) -> None:
    client = world.client()
    job = world.result(client.put(b"body", priority=5, ttr=9))
    answers: list[Stats] = [
        world.result(client.stats()), world.result(client.stats_tube("default")),
        world.result(client.stats_job(job)),
    ]  # fmt: skip
    for stats in answers:
        assert list(stats) == [key for key in stats._known if key not in CARRIED]
        for key, value in stats.items():
            assert getattr(stats, key.replace("-", "_")) == value
            assert type(value) in (int, float, bool, str)
    server, tube, of_job = answers
    assert isinstance(server, ServerStats) and isinstance(tube, TubeStats)
    assert isinstance(of_job, JobStats)
    assert (server.current_jobs_ready, server.draining, server["cmd-put"]) == (1, False, 1)
    assert isinstance(server.rusage_utime, float)
    assert (tube.name, tube.pause_time_left) == ("default", 0)
    assert (of_job.id, of_job.state, of_job.pri, of_job.ttr) == (job, "ready", 5, 9)


def test_an_unknown_key_is_kept_as_text() -> None:
    stats = JobStats(b'---\nid: 3\nband: 12\nnote: "a: b"\n')
    assert (stats.id, stats["band"], stats["note"]) == (3, "12", "a: b")
    assert dict(stats) == {"id": 3, "band": "12", "note": "a: b"}
    assert repr(stats) == "JobStats({'id': 3, 'band': '12', 'note': 'a: b'})"


def test_a_key_that_the_server_did_not_send_is_missing_by_name() -> None:
    stats = JobStats(b"---\nid: 3\n")
    with pytest.raises(AttributeError, match="the server's answer has no 'time-left'"):
        _ = stats.time_left
    with pytest.raises(KeyError):
        _ = stats["time-left"]


def test_quotes_of_a_newer_beanstalkd_and_their_lack_in_an_older_one_mean_the_same() -> None:
    old = ServerStats(b'---\nversion: "1.12"\nos: #1 SMP PREEMPT\ndraining: true\n')
    new = ServerStats(b'---\nversion: "1.12"\nos: "#1 SMP PREEMPT"\ndraining: true\n')
    assert old == new
    assert old.os == "#1 SMP PREEMPT" and old.draining


@pytest.mark.parametrize(
    "content", [b"", b"id: 3\n", b"---\nid: three\n", b"---\nid\n", b"---\nid: 3", b"---"]
)
def test_what_is_no_such_document_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        JobStats(content)
