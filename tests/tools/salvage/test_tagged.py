"""Salvaging tags, remembered keys and policies."""

import json
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.reading.survival import Why
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import RememberedKey, TubePolicy
from beanstalk_twisted.binlog.tags import EXTENSIONS, Tags
from binlog_tools.logs.stored import LOST_AND_FOUND
from tests.binlog.scribe import DEFAULT_TUBE, FIRST, NS, T0, Files, Scribe, delete, flipped, put
from tests.tools.cli.running import documents, rows, run
from tests.tools.folders import written
from tests.tools.rewrite.test_tagged import loaded
from tests.tools.salvage.salvaged import salvaged, see_that_it_loads
from tests.tools.tagged import KEPT_S, History, left_in

ONE = f"{1:020d}.tql"
UNTIL = T0 + KEPT_S * NS
TAGS = Tags(unique_key=b"some-key", unique_s=KEPT_S, group=b"some-group")


def scribe() -> Scribe:
    return Scribe(opening=[DEFAULT_TUBE], features=EXTENSIONS)


def with_flip_in(files: Files, what: bytes, at: int = -1) -> Files:
    """The log with one wrong bit in these bytes of its first segment.

    :param at: which of the places where they stand.
    """
    raw = files[ONE]
    places = [n for n in range(len(raw)) if raw.startswith(what, n)]
    return {**files, ONE: flipped(raw, places[at])}


@pytest.mark.parametrize("seed", range(8))
def test_a_sound_log_comes_back_with_all_it_has(seed: int, tmp_path: Path) -> None:
    told = History(seed).tell(120)
    path, new = written(tmp_path / "log", told.files), tmp_path / "new"
    result = run("salvage", path, "-o", new, "--json")
    assert result.exit_code == 0, result.output
    (report,) = documents(result)
    assert (report["keys"], report["policies"]) == (len(told.left[1]), len(told.left[2]))
    assert (report["verdict"], report["shared_keys"]) == ("sound", [])
    assert left_in(loaded(new)) == told.left


def test_a_key_that_is_damaged_is_lost_and_no_other() -> None:
    log = scribe()
    log.write(put(1), put(2), put(3))
    log.write(delete(1), RememberedKey(1, b"first-key", 1, UNTIL, T0))
    log.write(delete(2), RememberedKey(1, b"second-key", 2, UNTIL, T0))
    log.finish()
    found = salvaged(with_flip_in(log.files(), b"first-key"))
    assert [key.key for key in found.report.salvage.judge.remembered_keys()] == [b"second-key"]
    assert set(found.jobs) == {3}
    see_that_it_loads(found)


def test_a_policy_that_is_damaged_leaves_the_one_before() -> None:
    log = scribe()
    log.write(put(1), TubePolicy(1, {"max-jobs": "1"}, T0))
    log.write(TubePolicy(1, {"max-jobs": "2"}, T0))
    log.finish()
    found = salvaged(with_flip_in(log.files(), b'{"max-jobs":"2"}'))
    records = found.report.salvage.judge.tube_records()
    assert [each.record.rules for each in records] == [{"max-jobs": "1"}]


def test_a_key_says_that_its_job_is_gone_though_the_deletion_cannot_be_read() -> None:
    key = RememberedKey(1, b"some-key", 1, UNTIL, T0)
    log = scribe()
    log.write(put(1, tags=TAGS), put(2))
    log.write(delete(1, ttr_s=61), key)
    log.write(key)
    log.finish()
    raw = log.files()[ONE]
    gone = raw.index((61).to_bytes(4, "little"), raw.index(b"some-group"))
    found = salvaged({ONE: flipped(raw, gone)})
    assert set(found.jobs) == {2}
    assert [each.key for each in found.report.salvage.judge.remembered_keys()] == [b"some-key"]
    see_that_it_loads(found)


def test_a_body_whose_tags_are_damaged_is_set_aside_with_their_bytes() -> None:
    log = scribe()
    log.write(put(1, b"the body", tags=TAGS), put(2))
    log.finish()
    found = salvaged(with_flip_in(log.files(), b"\x01\x00\x0c\x00"))
    assert found.judgements[1].why is Why.BODY
    assert found.jobs[1].tube == LOST_AND_FOUND
    assert found.jobs[1].tags is None
    assert found.jobs[1].body.endswith(b"the body")
    assert b"some-group" in found.jobs[1].body


DEAD = TAGS._replace(dead_from=b"mail", dead_reason=10, dead_at_ns=T0)


def dead_letter() -> Files:
    """A log in which a job has become a dead letter: the body is the same, the tags are not."""
    log = scribe()
    log.write(put(1, b"the body", tags=TAGS), put(2))
    log.write(put(1, b"the body", tags=DEAD)._replace(kind=Kind.MOVE))
    log.write(put(3))
    log.finish()
    return log.files()


def test_the_newest_tags_count_though_the_body_beside_them_is_damaged() -> None:
    found = salvaged(with_flip_in(dead_letter(), b"the body"))
    assert (found.jobs[1].tags, found.jobs[1].body, found.judgements) == (DEAD, b"the body", {})
    see_that_it_loads(found)


def test_tags_before_the_damaged_ones_do_not_count() -> None:
    # The name of the tube that it died in.
    found = salvaged(with_flip_in(dead_letter(), b"mailthe body"))
    whys = {each.why for each in found.judgements.values()}
    assert (found.judgements[1].why, whys) == (Why.BODY, {Why.BODY, Why.OLDER})
    assert [job.tags for n, job in found.jobs.items() if n > 3] == [None]
    see_that_it_loads(found)


def test_the_newest_body_counts_though_the_tags_before_it_are_damaged() -> None:
    log = scribe()
    log.write(put(1, b"the body", tags=TAGS), put(2))
    log.write(put(1, b"another", tags=TAGS)._replace(kind=Kind.UPDATE))
    log.write(put(3))
    log.finish()
    for what in (b"some-key", b"\x01\x00\x0c\x00"):
        found = salvaged(with_flip_in(log.files(), what))
        assert (found.jobs[1].tags, found.jobs[1].body) == (TAGS, b"another")
        assert found.judgements == {}


def test_a_job_whose_deletion_is_lost_takes_no_key_of_the_next(tmp_path: Path) -> None:
    log = scribe()
    log.write(put(1, tags=TAGS._replace(unique_s=0)))
    log.write(delete(1, ttr_s=61))
    log.write(put(2, tags=TAGS))
    log.finish()
    raw = log.files()[ONE]
    gone = raw.index((61).to_bytes(4, "little"), raw.index(b"some-group"))
    path = written(tmp_path / "log", {ONE: flipped(raw, gone)})
    result = run("salvage", path, "-o", tmp_path / "new")
    assert ["shared-key", "2", "default", "some-key", "1"] in rows(result)
    assert "job 2: its unique key some-key was taken off it" in result.stderr
    jobs, _, _ = left_in(loaded(tmp_path / "new"))
    assert [each.tags and each.tags.unique_key for each in jobs] == [b"some-key", b""]


def test_the_report_names_the_new_kinds_as_the_page_does(tmp_path: Path) -> None:
    log = Scribe(position=FIRST, opening=[DEFAULT_TUBE], features=EXTENSIONS)
    log.write(put(1))
    log.write(TubePolicy(1, {"max-jobs": "12345"}, T0), put(2))
    log.finish()
    raw = log.files()[ONE]
    place = raw.index((1).to_bytes(8, "little"), raw.index(b"hello"))
    report = tmp_path / "report.json"
    path = written(tmp_path / "log", {ONE: flipped(raw, place)})
    run("salvage", path, "--report", report)
    (hole,) = json.loads(report.read_text())["holes"]
    assert "POLICY" in hole["types"]
