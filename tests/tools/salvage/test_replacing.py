"""Putting the clean log in the place of the damaged one, also when ``salvage --in-place`` is killed
before any of its file operations, and run again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.logs.new_log import NewLog, Origin
from binlog_tools.logs.stored import StoredJob, loaded_jobs
from binlog_tools.salvage.salvaging import kept_path, new_path, replace, steps
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, edited, flipped, put, quiet
from tests.tools.cli.running import run
from tests.tools.folders import contents, written
from tests.tools.salvage.logs import names_of

OLD, NEW = b"x" * 4200, b"y" * 4200
"""Bodies that fill a segment."""


def old_log(count: int, first: int) -> Files:
    """A log of so many segments, those before ``first`` being gone."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for number in range(first + count - 1):
        scribe.write(put(number + 1, OLD))
    return dict(sorted(scribe.files().items())[first - 1 : first + count - 1])


def make_new_log(path: Path, count: int) -> None:
    """Make a clean log of so many segments beside the old one."""
    with NewLog(new_path(str(path)), Origin("salvage"), segment_bytes=8192) as new:
        for number in range(count):
            new.add(StoredJob(number + 1, b"default", State.READY, 1, 0, 60, 1, 0, NEW))
        assert new.finish().segments == count


def survey_of(path: Path) -> Survey:
    return Survey(RealDirectory(str(path)), quiet)


def bodies_of(survey: Survey) -> list[bytes]:
    return [job.body for job in loaded_jobs(survey, survey.small.time_ns)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("old", [1, 2, 3])
@pytest.mark.parametrize("new", [1, 2, 3])
def test_no_server_starts_on_a_part_of_it(old: int, new: int, first: int, tmp_path: Path) -> None:
    """Interrupted after each step: it is refused, or is the whole of the old or of the new log."""
    for done in range(30):
        path = written(tmp_path / str(done), old_log(old, first))
        before = contents(path)
        whole = bodies_of(survey_of(path)) if first == 1 else None
        make_new_log(path, new)
        going = steps(str(path), kept_path(str(path)))
        has_ended = False
        for _ in range(done):
            has_ended = next(going, 0) == 0
        survey = survey_of(path)
        if survey.refusal() is None:
            assert bodies_of(survey) in (whole, [NEW] * new), done
        kept = contents(path / "quarantine") if done > old else {}
        assert set(kept.values()) == (set(before.values()) if done > old else set())
        if has_ended:
            assert bodies_of(survey) == [NEW] * new
            return
    raise AssertionError("it never ends")


def test_what_is_damaged_is_kept_byte_for_byte(tmp_path: Path) -> None:
    files = old_log(2, 1)
    files = edited(files, max(files), lambda raw: flipped(raw, 10))
    path = written(tmp_path / "log", files)
    make_new_log(path, 1)
    kept_at = replace(str(path))
    assert contents(Path(kept_at)) == files
    assert bodies_of(survey_of(path)) == [NEW]


def test_an_older_quarantine_is_never_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "log", old_log(1, 1))
    for number in (1, 2):
        make_new_log(path, 1)
        assert replace(str(path)) == str(path / "quarantine" / f"salvage-{number}")
    assert len(list((path / "quarantine").iterdir())) == 2


OPERATIONS = frozenset({"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"})
"""What a process is killed before: the names are those of Python's audit events."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "binlog_tools.cli.salvage"])
"""What makes the processes: it is small, and has one thread.  After thousands of tests to fork this
one takes 80 ms, and there are some hundred forks.
"""


def log_of(segments: int, first: int = 1) -> Files:
    """A sound log of so many segments, with a job in each, those before ``first`` being gone."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for number in range(first + segments - 1):
        scribe.write(put(number + 1, b"%d " % number + b"x" * 4200))
    return dict(sorted(scribe.files().items())[first - 1 :])


def damaged_log() -> Files:
    files = log_of(3)
    return edited(files, names_of(files)[1], lambda raw: flipped(raw, 5000))


def torn_log() -> Files:
    """A log whose last frame was not wholly written."""
    files = log_of(3)
    return edited(files, names_of(files)[-1], lambda raw: raw[:-2000])


def is_killed(path: Path, at: int) -> bool:
    """Salvage in place in a process of its own.

    :param at: the number of the operation before which it is killed.
    :return: False if it ended before.
    """
    process = FORKS.Process(target=_salvage, args=(path, at))
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL


def _salvage(path: Path, at: int) -> None:
    _die_before(str(path), at)
    run("salvage", path, "--in-place", "--accept-gap", "1-9")


def _die_before(path: str, at: int) -> None:
    left = at

    def note(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in OPERATIONS:
            return
        is_inside = any(isinstance(each, str) and each.startswith(path) for each in arguments)
        # What is opened or removed relative to a folder stands in it.
        if is_inside or event in ("os.remove", "os.rmdir"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)


def jobs_of(path: Path) -> dict[int, StoredJob] | None:
    """What a server would load, or None if it refuses the log."""
    survey = Survey(RealDirectory(str(path)), quiet)
    if survey.refusal() is not None:
        return None
    return {job.job_id: job for job in loaded_jobs(survey, survey.small.time_ns)}


def see_that_it_goes_on(path: Path, files: Files, wanted: dict[int, StoredJob]) -> None:
    """Run again, and nothing is left of the run that was killed but what is in quarantine."""
    result = run("salvage", path, "--in-place", "--accept-gap", "1-9")
    assert result.exit_code in (0, 1, 3), result.output
    assert jobs_of(path) == wanted
    left = {each.name for each in path.iterdir()} - {"LOCK", "lock", "quarantine"}
    assert left == {name for name in left if name.endswith(".tql")}
    kept = [contents(folder) for folder in (path / "quarantine").iterdir()]
    assert files in kept


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "files", [damaged_log(), torn_log(), log_of(2, first=2)],
    ids=["damaged", "torn", "beheaded"],
)  # fmt: skip
def test_a_run_that_was_killed_is_no_obstacle_to_the_next(files: Files, tmp_path: Path) -> None:
    path = written(tmp_path / "whole", files)
    before = jobs_of(path)
    assert run("salvage", path, "--in-place", "--accept-gap", "1-9").exit_code in (1, 3)
    wanted = jobs_of(path)
    assert wanted
    at = 0
    while is_killed(path := written(tmp_path / str(at), files), at):
        assert jobs_of(path) in (before, wanted, None)
        see_that_it_goes_on(path, files, wanted)
        at += 1
    assert at > 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("files", [damaged_log(), log_of(2, first=2)], ids=["damaged", "beheaded"])
def test_a_run_that_takes_back_another_can_be_killed_as_well(files: Files, tmp_path: Path) -> None:
    path = written(tmp_path / "whole", files)
    before = jobs_of(path)
    run("salvage", path, "--in-place", "--accept-gap", "1-9")
    wanted = jobs_of(path)
    assert wanted
    interrupted = 0
    for first in range(200):
        path = written(tmp_path / str(first), files)
        if not is_killed(path, first):
            break
        if not (path / "salvaged").exists():
            continue
        for second in range(9):
            if not is_killed(path, second):
                # The first run had all but ended: there was nothing left to mend.
                assert jobs_of(path) == wanted
                break
            assert jobs_of(path) in (before, wanted, None)
        else:
            interrupted += 1
        see_that_it_goes_on(path, files, wanted)
    assert interrupted > 5
