"""No job is called certain whose newest body, tags or state damage may hide.

Logs come from a server process; the commands are called as a user calls them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import Seal
from tests.binlog import independent_reader
from tests.binlog.independent_reader import Fields
from tests.binlog.scribe import Files
from tests.sampling import one_in, share
from tests.tools.cli.running import documents, run
from tests.tools.folders import written
from tests.tools.salvage.logs import FULL
from tests.tools.salvage.outdated import DAMAGES, damaged, place_of_update
from tests.tools.salvage.served_logs import NEW, OLD, busy_log, updated_log

EACH_DAMAGE = pytest.mark.parametrize("how", DAMAGES)
CONSENT = ("--accept-gap", "1-1000", "--rebuild-header")


def jobs_in(path: Path) -> dict[int, Fields]:
    """All that `jobs` says of the jobs in a log, except what depends on the clock."""
    listed = documents(run("jobs", path, "--json", "--bodies", "base64"))
    for each in listed:
        del each["v"], each["age_s"], each["left_s"]
    return {each["job"]: each for each in listed}


@EACH_DAMAGE
def test_salvage_doubts_a_body_if_its_update_may_be_lost(how: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", damaged(how))
    result = run("salvage", log, "-o", tmp_path / "new", "--json", *CONSENT)
    assert result.exit_code == 3, result.output
    [document] = documents(result)
    [doubt] = [each for each in document["doubtful"] if each["job"] == 1]
    assert (doubt["why"], doubt["outdated"], doubt["state"]) == ("outdated?", True, "buried")
    assert doubt["hole"] in [[each["first_lsn"], each["last_lsn"]] for each in document["holes"]]
    job = jobs_in(tmp_path / "new")[1]
    assert (job["state"], job["tube"]) == ("buried", "default")
    assert run("jobs", tmp_path / "new", "--body", "1").stdout_bytes == OLD
    # The newer body is saved too where its frame is left.
    listed = run("jobs", tmp_path / "new", "--bodies", "text").stdout
    assert (NEW.decode() in listed) == (how == "bit flipped")


@EACH_DAMAGE
def test_undelete_doubts_a_body_if_its_update_may_be_lost(how: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", damaged(how, is_deleted=True))
    since = ("--since", "2020-01-01")
    listed = run("undelete", log, *since, "--json")
    assert listed.exit_code == 3
    [job] = documents(listed)
    assert (job["job"], job["state"], job["why"], job["outdated"]) == (
        1, "buried", "outdated?", True,
    )  # fmt: skip
    assert "job 1: doubtful: its body and tags may have been changed in LSN" in listed.stderr
    [made] = documents(run("undelete", log, *since, "-o", tmp_path / "new", "--json"))
    assert made["doubtful"] == [{"job": 1, "why": "outdated?", "outdated": True,
                                 "hole": job["hole"]}]  # fmt: skip
    run("undelete", log, *since, "--files", tmp_path / "files")
    [line] = (tmp_path / "files" / "index.jsonl").read_text().splitlines()
    assert json.loads(line)["outdated"] is True


@EACH_DAMAGE
def test_jobs_names_the_places_where_a_newer_body_may_have_been(how: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", damaged(how))
    result = run("jobs", log, "--body", "1")
    assert (result.exit_code, result.stdout_bytes) == (3, OLD)
    frame, _ = place_of_update(updated_log().files)
    assert f"{frame.name}: offset " in result.stderr
    assert "job 1 may have had a newer body there: " in result.stderr


def test_nothing_is_doubtful_of_a_log_without_damage(tmp_path: Path) -> None:
    log = written(tmp_path / "log", updated_log().files)
    [document] = documents(run("salvage", log, "--json"))
    assert (document["verdict"], document["doubtful"]) == ("sound", [])
    deleted = written(tmp_path / "deleted", updated_log(is_deleted=True).files)
    [job] = documents(run("undelete", deleted, "--since", "2020-01-01", "--json"))
    assert (job["why"], job["outdated"], job["hole"]) == (None, False, None)
    for path in (log, deleted):
        result = run("jobs", path, "--body", "1")
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, NEW, "")


SEEDS = range(1, 5)
"""Of busy logs."""

DELETIONS = share(100, 10)
"""Damaged logs of each seed in which deleted jobs are looked for."""

REWRITES = (Kind.UPDATE, Kind.MOVE)


class Record(NamedTuple):
    """A record of a sound log, and the bytes without which it cannot be read."""

    lsn: int
    kind: int
    job_id: int
    name: str
    start: int
    end: int


class Truth:
    """What is in a log.

    :ivar jobs: what `jobs` says of it.
    """

    def __init__(self, seed: int, path: Path) -> None:
        served = busy_log(seed)
        self.files = served.files
        self.jobs = jobs_in(written(path, served.files))
        assert {n: seen_in(job) for n, job in self.jobs.items()} == {
            n: (seen.tube, seen.priority, seen.ttr_s, *seen.counters)
            for n, seen in served.jobs.items()
        }
        self.records = list(records_of(served.files))

    def readable(self, files: Files) -> list[Record]:
        """The records that can still be read where they were written."""
        return [
            each
            for each in self.records
            if files.get(each.name, b"")[each.start : each.end]
            == self.files[each.name][each.start : each.end]
        ]


def seen_in(job: Fields) -> tuple[Any, ...]:
    names = ("tube", "priority", "ttr_s", "reserves", "timeouts", "releases", "buries", "kicks")
    return tuple(job[name] for name in names)


def records_of(files: Files) -> Iterator[Record]:
    """All records in order.  The head of a frame and its array of records have checksums of their
    own; a seal needs the rest of its frame as well.
    """
    for name in sorted(files):
        for frame in (independent_reader.read_segment(files[name]) or {})["frames"]:
            start = frame["offset"]
            end = start + 64 + frame["n_rec"] * frame["rec_size"]
            for at, record in enumerate(frame["records"]):
                needed = start + frame["frame_len"] if record["type"] == Seal.kind else end
                yield Record(
                    frame["base_lsn"] + at, record["type"], record["job_id"], name, start, needed
                )


@cache
def truth_of(seed: int, folder: Path) -> Truth:
    return Truth(seed, folder / f"sound-{seed}")


class Damager:
    """Chooses damages."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self._chance = random.Random(seed)
        self._truth = truth

    def damaged(self) -> Files:
        """One to three damages, all of them before the record that says that all was durable."""
        files = dict(self._truth.files)
        for _ in range(self._chance.choice([1, 1, 2, 3])):
            self._chance.choice([self._remove, self._zero, self._zero, self._flip, self._flip,
                                 self._cut, self._overwrite])(files)  # fmt: skip
        return files

    def _frame(self, files: Files) -> Record:
        """The frame of a change that is not near the end."""
        records = [
            each for each in self._truth.records[:-2] if each.end <= len(files.get(each.name, b""))
        ]
        changes = [each for each in records if each.kind in (*REWRITES, Kind.DELETE)]
        return self._chance.choice(self._chance.choice([changes or records, records]))

    def _older(self, files: Files) -> str:
        """The name of a segment that has a successor."""
        return self._chance.choice(sorted(self._truth.files)[:-1])

    def _remove(self, files: Files) -> None:
        files.pop(self._older(files), None)

    def _zero(self, files: Files) -> None:
        self._write(files, self._frame(files), lambda width: bytes(width))

    def _overwrite(self, files: Files) -> None:
        self._write(files, self._frame(files), self._chance.randbytes)

    def _write(self, files: Files, frame: Record, filling: Any) -> None:
        raw = files[frame.name]
        files[frame.name] = raw[: frame.start] + filling(frame.end - frame.start) + raw[frame.end :]

    def _flip(self, files: Files) -> None:
        frame = self._frame(files)
        raw = bytearray(files[frame.name])
        at = self._chance.randrange(frame.start, frame.end)
        raw[at] ^= 1 << self._chance.randrange(8)
        files[frame.name] = bytes(raw)

    def _cut(self, files: Files) -> None:
        name = self._older(files)
        if name in files:
            files[name] = files[name][: self._chance.randrange(4096, len(files[name]) + 1)]


def differences(found: Fields, truth: Fields | None) -> list[str]:
    """The names of the fields that are not as they were."""
    return [name for name in found if truth is None or found[name] != truth.get(name)]


def certain_by_the_seals(truth: Truth, files: Files) -> set[int]:
    """The jobs that are certain: what says all of them can be read, and what cannot be read is
    proven to have nothing newer, by the seals or because nothing that cannot be read stands behind
    it.
    """
    readable = truth.readable(files)
    whole = {each.lsn for each in readable}
    hidden = [each for each in truth.records if each.lsn not in whole]
    # Of what stands behind the end of a segment that was cut off, its lost seal says nothing.
    sealed = {each.name for each in readable if each.kind == Seal.kind}
    lost: dict[str, Counter[int]] = {}
    for each in hidden:
        lost.setdefault(each.name, Counter())[each.kind] += 1
    harmful = [
        each for each in hidden if each.name not in sealed or set(lost[each.name]) & set(REWRITES)
    ]
    found = set()
    for job_id, job in truth.jobs.items():
        records = [each for each in truth.records if each.job_id == job_id and each.kind <= 16]
        full = [each for each in records if each.kind in FULL][-1]
        newest = records[-1]
        is_there = {full.lsn, newest.lsn} <= whole and job["tube"] != "lost+found"
        is_last = all(each.lsn < newest.lsn for each in hidden)
        if is_there and is_last and not any(each.lsn > full.lsn for each in harmful):
            found.add(job_id)
    return found


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_certain_jobs_are_as_they_were(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """And none is doubtful that the seals prove."""
    folder = tmp_path_factory.getbasetemp()
    truth = truth_of(seed, folder)
    damager = Damager(truth, seed)
    certain: Counter[str] = Counter()
    for number in range(share(250, 12)):
        files = damager.damaged()
        log = written(folder / f"damaged-{seed}", files)
        new = folder / f"salvaged-{seed}"
        result = run("salvage", log, "-o", new, "--json", *CONSENT)
        [document] = documents(result)
        doubtful = {each["job"]: each["why"] for each in document["doubtful"]}
        found = jobs_in(new)
        wrong = {
            job_id: differences(job, truth.jobs.get(job_id))
            for job_id, job in found.items()
            if job_id not in doubtful and differences(job, truth.jobs.get(job_id))
        }
        assert not wrong, (seed, number, document["holes"])
        proven = certain_by_the_seals(truth, files)
        assert not proven & doubtful.keys(), (seed, number, doubtful)
        assert proven <= found.keys(), (seed, number)
        certain.update({"proven": len(proven), "doubtful": len(doubtful)})
        certain.update(doubtful.values())
        shutil.rmtree(log)
        shutil.rmtree(new)
    assert certain["proven"] and certain["outdated?"], certain


def test_certain_deleted_jobs_are_as_they_were(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    whys: Counter[str | None] = Counter()
    for seed in one_in(4, SEEDS):
        truth = truth_of(seed, folder)
        everything = undeleted(folder / f"sound-{seed}")
        damager = Damager(truth, seed + 10)
        for number in range(DELETIONS):
            log = written(folder / f"half-{seed}", damager.damaged())
            for job_id, job in undeleted(log).items():
                whys[job["why"]] += 1
                if job["why"] is None:
                    assert not differences(job, everything[job_id]), (seed, number, job_id)
            shutil.rmtree(log)
    # Whether a log has a deleted job that may be outdated depends on how it was cut: few have.
    assert whys[None] and (whys["outdated?"] or DELETIONS < 100), whys


def undeleted(path: Path) -> dict[int, Fields]:
    """What `undelete` says of each job, and its body."""
    since, folder = ("--since", "2020-01-01"), path.with_name("bodies")
    run("undelete", path, *since, "--files", folder)
    found = documents(run("undelete", path, *since, "--json"))
    for each in found:
        each["file"] = (folder / f"{each['job']}.body").read_bytes()
    shutil.rmtree(folder)
    return {each["job"]: each for each in found}
