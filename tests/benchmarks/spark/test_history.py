"""The maker of histories: what is left is whole, and nothing that clients do is missing from it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import CleanStop, Start
from beanstalk_twisted.binlog.segments.frames import Frame, kinds_and_ids
from benchmarks.spark.history import LIMIT_S, Made, Plan, main, make
from binlog_tools.inspect.archives import stores_of, verify
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.reading import OpenSegment, segments

PLAN = Plan(jobs=1200, restarts=2, segment_bytes=1 << 15, fsync="never")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("history") / "new", PLAN)


@pytest.fixture(scope="module")
def kinds(made: Made) -> Counter[int]:
    return kinds_of(made)


def kinds_of(made: Made) -> Counter[int]:
    """How many records of each type its archive has."""
    found: Counter[int] = Counter()
    for opened in segments(open_source(made.archive)):
        assert isinstance(opened, OpenSegment)
        for frame in opened.pieces():
            assert isinstance(frame, Frame)
            found.update(kind for kind, _ in kinds_and_ids(opened.buffer, frame))
    return found


@pytest.mark.exhaustive
def test_the_archive_of_a_history_is_whole_and_begins_at_the_beginning(made: Made) -> None:
    (store,) = stores_of(made.archive)
    verdict = verify(store)
    assert verdict.is_whole
    assert verdict.spans[0][0] == 1
    assert verdict.segments > PLAN.restarts + 1


@pytest.mark.exhaustive
def test_a_history_has_everything_that_can_happen_to_a_job(kinds: Counter[int]) -> None:
    assert {kind for kind in Kind if kind not in kinds} == set()


@pytest.mark.exhaustive
def test_the_clients_have_seen_what_the_log_says(made: Made, kinds: Counter[int]) -> None:
    assert made.jobs == PLAN.jobs + 4 <= kinds[Kind.PUT], "see `Plan`"
    for reply, kind in (("reserve-with-timeout", Kind.RESERVE), ("touch", Kind.TOUCH),
                        ("delete", Kind.DELETE)):  # fmt: skip
        assert 0 < made.replies[reply] <= kinds[kind]


def test_a_history_has_a_kill_and_an_ordered_restart(made: Made, kinds: Counter[int]) -> None:
    assert made.starts == kinds[Start.kind] == 3
    assert kinds[CleanStop.kind] == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_history_in_the_background(tmp_path: Path, how: signal.Signals) -> None:
    making = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable,
         "-m", "benchmarks.spark.history", str(tmp_path / "new"),
         "--jobs", "0", "--seconds", "300", "--rate", "400", "--segment-bytes", "65536"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        give_up = time.monotonic() + LIMIT_S
        # The second segment: the clients are at work.
        while not list((tmp_path / "new" / "log").glob("*02.tql")):
            assert making.poll() is None and time.monotonic() < give_up
            time.sleep(0.02)
        making.send_signal(how)
        assert making.wait(LIMIT_S) == 0
    finally:
        making.kill()
        making.wait()
    (store,) = stores_of(str(tmp_path / "new" / "archive"))
    assert verify(store).is_whole


def test_a_history_replaces_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "is there already" in capsys.readouterr().err


def test_a_history_has_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "new"), "--jobs", "0"])
    assert "give --jobs or --seconds" in capsys.readouterr().err


def test_a_history_has_dead_letters_if_they_are_asked_for(tmp_path: Path) -> None:
    made = make(tmp_path / "new", Plan(jobs=400, restarts=0, fsync="never", max_reserves=1))
    assert made.replies["tube-policy"] == 1
    assert kinds_of(made)[Kind.MOVE] > made.replies["move-job"] == 1
