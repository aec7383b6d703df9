"""Directories that real beanstalkds wrote (1.12, 1.4.6), and what the real 1.12 makes of each.

We make the same of them, but for the differences that are listed here, each of them deliberate.
"""

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.v7.conversion import stored_jobs
from binlog_tools.v7.survivors import Survivors

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "v7"
NAMES = sorted(path.name for path in SAMPLES.iterdir())
NS = 1_000_000_000

FINDINGS = {
    "v112-bad-namelen": {"damaged": 1},
    "v112-bad-state": {"damaged": 1},
    "v112-gaps-and-strays": {"missing": 1, "torn": 1},
    "v112-truncated-body": {"torn": 1},
    "v112-truncated-struct": {"torn": 1},
    "v112-unknown-version": {"damaged": 1},
}
"""What is found where; nothing anywhere else."""

MORE_JOBS = {
    "v112-bad-namelen": [4, 5],
    "v112-bad-state": [4, 5],
    "v112-maxbody-loss": [2, 3],
    "v112-unknown-version": [1, 2, 3, 4, 5],
}
"""Where it skips the rest of a file, or a body of the largest size, we do not."""

DOUBTFUL = {"v112-bad-state": [3]}
"""Where only the record is damaged, the body is kept."""

BURIED_ORDER = {"v112-basic": {"delta": [16, 14, 17, 15]}}
"""It lines buried jobs up by id, we as they were buried."""


def expected(name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((SAMPLES / name / "expected.json").read_text())
    return said


def survivors(name: str) -> Survivors:
    return Survivors(RealDirectory(str(SAMPLES / name)), lambda done, total: None)


def as_said(found: Survivors, now_ns: int) -> dict[int, dict[str, Any]]:
    """The jobs in the words of ``stats-job``; the doubtful ones are left out."""
    told = {}
    for job in stored_jobs(found, now_ns):
        is_due = job.state is State.DELAYED and job.deadline_ns <= now_ns
        state = State.READY if is_due else job.state
        told[job.job_id] = {
            "id": job.job_id, "tube": job.tube.decode(), "state": state.name.lower(),
            "pri": job.priority, "delay": job.delay_s, "ttr": job.ttr_s,
            "age": (now_ns - job.created_ns) // NS, "reserves": job.reserves,
            "time_left": (job.deadline_ns - now_ns) // NS if state is State.DELAYED else 0,
            "timeouts": job.timeouts, "releases": job.releases, "buries": job.buries,
            "kicks": job.kicks, "body_len": len(job.body),
            "body_sha256": hashlib.sha256(job.body).hexdigest(), "body_terminator_hex": "0d0a",
        }  # fmt: skip
    return {i: job for i, job in told.items() if i in found.jobs}


def checked_jobs(said: dict[str, Any]) -> dict[int, dict[str, Any]]:
    jobs = {job["id"]: {k: v for k, v in job.items() if k != "file"} for job in said["jobs"]}
    for job in jobs.values():
        # It counts a burial with each start.
        job["buries"] -= job["state"] == "buried"
    return jobs


@pytest.mark.parametrize("name", NAMES)
def test_every_job_is_as_the_real_server_has_it(name: str) -> None:
    said = expected(name)["expected"]
    found = survivors(name)
    ours = as_said(found, round(said["checked_at_unix"] * NS))
    jobs = checked_jobs(said)
    assert sorted(set(ours) - set(jobs)) == MORE_JOBS.get(name, [])
    for job_id, job in jobs.items():
        # It says when it was asked to a millisecond, and asked each job a little later.
        for clock in ("age", "time_left"):
            assert abs(ours[job_id].pop(clock) - job.pop(clock)) <= 1
        assert ours[job_id] == job


@pytest.mark.parametrize("name", NAMES)
def test_buried_jobs_are_in_their_order(name: str) -> None:
    order = defaultdict(list)
    for job in survivors(name).buried():
        order[job.tube.decode()].append(job.fields.job_id)
    said = expected(name)["expected"]["buried_order"]
    assert order == {**said, **BURIED_ORDER.get(name, {})}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    found = survivors(name)
    assert found.findings.counts == FINDINGS.get(name, {})
    assert [job.fields.job_id for job in found.doubtful()] == DOUBTFUL.get(name, [])


@pytest.mark.parametrize("name", NAMES)
def test_ids_go_on_where_the_real_server_goes_on(name: str) -> None:
    more = max(MORE_JOBS.get(name, [0])) + 1
    assert survivors(name).next_job_id == max(expected(name)["expected"]["next_id"], more)


def test_what_the_real_server_loses_is_as_it_was_when_it_lived() -> None:
    said = expected("v112-maxbody-loss")["live_just_before_end"]
    found = survivors("v112-maxbody-loss")
    ours = as_said(found, found.jobs[1].fields.created_ns)
    assert [(job["id"], job["body_sha256"], job["pri"]) for job in said] == [
        (job["id"], job["body_sha256"], job["pri"]) for job in ours.values()
    ]
