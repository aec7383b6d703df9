"""Putting the clean log in the place of the damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.logs.new_log import NewLog, Origin
from binlog_tools.logs.stored import StoredJob, loaded_jobs
from binlog_tools.salvage.salvaging import kept_path, new_path, replace, steps
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, edited, flipped, put, quiet
from tests.tools.folders import contents, written

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
