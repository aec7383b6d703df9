"""
A rebuilt log gives a server what the old one would have given it.

All but the last tests do without Spark.
"""

from __future__ import annotations

import random
import re
import runpy
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments.format import (
    MADE_BY_TOOL,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_description,
    decode_segment_header,
)
from beanstalk_twisted.binlog.tags import Tags
from benchmarks.spark.history import Made
from binlog_tools.inspect.archives import stores_of
from binlog_tools.inspect.hidden import Why
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.stored import (
    StoredJob,
    StoredPause,
    loaded_jobs,
    loaded_keys,
    loaded_pauses,
    loaded_policies,
)
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.errors import exit_code
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.rebuilding import Rebuilt, Wish, rebuild
from binlog_tools.spark.surviving.gathering import Reading, one_by_one, with_spark
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
    segment_files,
)
from tests.object_storage import s3_server
from tests.sampling import share
from tests.spark.histories import NAMES, any_extended_record, any_image, any_record
from tests.spark.remote import Lent
from tests.tools.conversation import Conversation, Spoken
from tests.tools.folders import archived, contents, stats, written
from tests.tools.salvage.damaging import batches_of
from tests.tools.salvage.outdated import DAMAGES, damaged
from tests.tools.salvage.served_logs import OLD
from tests.tools.salvage.test_outdated import Damager, jobs_in, truth_of
from tests.tools.served import order_of_burial, served, started_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = T0 + 10**6 * NS


def loaded(path: Path | str, now_ns: int = LATER) -> tuple[list[StoredJob], list[StoredPause]]:
    """What a server would load."""
    survey = open_source(str(path)).survey()
    return sorted(loaded_jobs(survey, now_ns)), sorted(loaded_pauses(survey, now_ns))


def rebuilt(*paths: Path | str, to: Path, now_ns: int = 0, **wish: Any) -> Rebuilt:
    """Rebuild a log into small segments; its time is that of its newest record."""
    wish.setdefault("segment_bytes", 8192)
    return rebuild(Wish(tuple(map(str, paths)), str(to), **wish), now_ns=now_ns)


def newest_time(path: Path | str) -> int:
    """The newest time in a log."""
    return open_source(str(path)).survey().small.time_ns


def folders(folder: Path, spoken: Spoken) -> tuple[Path, Path]:
    """The directory of a server and its archive, which lacks the segment in use."""
    newest = max(name for name in spoken.archive if name in segments_in(spoken.files))
    finished = {name: raw for name, raw in spoken.archive.items() if name != newest}
    return written(folder / "log", spoken.files), archived(folder / "archive", finished)


def segments_in(files: Files) -> Files:
    """Without those that are to become segments."""
    return {name: raw for name, raw in files.items() if not name.startswith("spare")}


def headers(path: Path) -> list[SegmentHeader]:
    """Of a log, in order."""
    found = [decode_segment_header(raw[:SEGMENT_HEADER_BYTES])
             for _, raw in sorted(contents(path).items())]  # fmt: skip
    return [each for each in found if isinstance(each, SegmentHeader)]


# Where it is read.


def test_an_archive_and_a_copied_log_in_object_storage_give_the_same_log(tmp_path: Path) -> None:
    spoken = Conversation(3).say(70)
    log, archive = folders(tmp_path, spoken)
    expected = rebuilt(log, archive, to=tmp_path / "one", now_ns=LATER)
    remote = Lent()
    remote.folder("log", spoken.files)
    newest = max(name for name in spoken.archive if name in segments_in(spoken.files))
    remote.archive("archive", {name: spoken.archive[name] for name in spoken.archive
                               if name != newest})  # fmt: skip
    for number, paths in enumerate((["log", "archive"], ["log"])):
        new = tmp_path / f"new-{number}"
        made = rebuilt(*(f"{remote.bucket}/{path}" for path in paths), to=new, now_ns=LATER)
        assert made.written.jobs == expected.written.jobs > 3
        assert loaded(new) == loaded(tmp_path / "one")


@pytest.mark.parametrize("times", [1, 2])
def test_a_log_that_is_trimmed_meanwhile_is_read_once_more(tmp_path: Path, times: int) -> None:
    log = written(tmp_path / "log", Conversation(3).say(70).files)
    failing = [SourceError("BINLOG_TRIMMED", "it is gone")] * times

    def gather(shares: Sequence[Share], reading: Reading) -> Iterable[Any]:
        if failing:
            raise failing.pop()
        return one_by_one(shares, reading)

    wish = Wish((str(log),), str(tmp_path / "new"))
    if times == 2:
        with pytest.raises(SourceError, match="BINLOG_TRIMMED"):
            rebuild(wish, gather, LATER)
        assert not (tmp_path / "new").exists()
    else:
        assert rebuild(wish, gather, LATER).written.jobs > 3


# What a server finds.


@pytest.mark.one_in(3)
@pytest.mark.parametrize("with_compaction", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_rebuilt_log_is_loaded_as_the_old_one(
    seed: int, with_compaction: bool, tmp_path: Path
) -> None:
    spoken = Conversation(seed, with_compaction).say(60)
    log, archive = folders(tmp_path, spoken)
    before, now_ns = stats(log), newest_time(log)
    for number, paths in enumerate(((log,), (archive, log))):
        new = tmp_path / f"new-{number}"
        made = rebuilt(*paths, to=new)
        assert loaded(new, now_ns) == loaded(log, now_ns)
        assert served(new, LATER) == served(log, LATER)
        for tube in (b"default", b"mail", b"images"):
            assert order_of_burial(new, LATER, tube) == order_of_burial(log, LATER, tube)
        assert started_on(new, LATER).queue.state.next_job_id == spoken.next_job_id
        assert (made.flaws, made.lost) == ((), ())
    assert stats(log) == before


def test_the_pauses_in_force_are_taken_along(tmp_path: Path) -> None:
    log = written(tmp_path / "log", Conversation(3).say(70).files)
    now_ns = newest_time(log)
    _, pauses = loaded(log, now_ns)
    assert pauses
    rebuilt(log, to=tmp_path / "new")
    assert loaded(tmp_path / "new", now_ns)[1] == pauses
    rebuilt(log, to=tmp_path / "later", now_ns=LATER)
    assert loaded(tmp_path / "later", now_ns)[1] == []


def remembered(path: Path | str, now_ns: int = LATER) -> tuple[object, ...]:
    """The unique keys and the policies that a server would load."""
    survey = open_source(str(path)).survey()
    policies = {policy.tube: dict(policy.rules) for policy in loaded_policies(survey)}
    return sorted(loaded_keys(survey, now_ns)), policies


def any_sensible_log(
    seed: int, unsafe: int = 5, batches: int = 60, has_extensions: bool = False
) -> Scribe:
    """
    Any records, but of jobs that were put and not yet deleted, each with a unique key of its own.

    :param unsafe: how many batches at the end are not known durable.
    :param has_extensions: whether it is of format 1.1.
    """
    dice = random.Random(seed)
    any_of = any_extended_record if has_extensions else any_record
    scribe = Scribe(opening=NAMES, has_extensions=has_extensions)
    scribe.write(*NAMES)
    alive: set[int] = set()
    put_once: set[int] = set()
    for batch in range(batches):
        records = []
        for _ in range(dice.choice([1, 2, 8, 40])):
            record = any_of(dice) if has_extensions or dice.random() < 0.2 else any_image(dice)
            kind = record.kind
            if isinstance(record, JobImage) and record.tags and record.tags.unique_key:
                own = record.tags._replace(unique_key=b"key-%d" % record.job_id)
                record = record._replace(tags=own)
            if isinstance(record, JobImage):
                job_id = record.job_id
                if (kind == Kind.PUT) == (job_id in put_once) or (
                    kind != Kind.PUT and job_id not in alive
                ):
                    continue
                put_once.add(job_id)
                (alive.discard if kind == Kind.DELETE else alive.add)(job_id)
            records.append(record)
        if records:
            scribe.write(*records, sync=batch < batches - unsafe)
    return scribe


@pytest.mark.parametrize("seed", range(6))
def test_any_records_are_loaded_alike(seed: int, tmp_path: Path) -> None:
    log = written(tmp_path / "log", segment_files(any_sensible_log(seed).directory))
    jobs, _ = loaded(log, T0)
    assert {State.BURIED, State.DELAYED} & {job.state for job in jobs}
    made = rebuilt(log, to=tmp_path / "new", now_ns=T0)
    now_ns = newest_time(log)
    assert loaded(tmp_path / "new", now_ns) == loaded(log, now_ns)
    assert made.written.next_job_id == open_source(str(log)).survey().small.next_job_id


@pytest.mark.parametrize("seed", range(6))
def test_tags_keys_and_policies_are_loaded_alike(seed: int, tmp_path: Path) -> None:
    scribe = any_sensible_log(seed, has_extensions=True)
    log = written(tmp_path / "log", segment_files(scribe.directory))
    now_ns = newest_time(log)
    jobs, _ = loaded(log, now_ns)
    assert len({job.tags for job in jobs}) > 2
    keys, policies = remembered(log, now_ns)
    assert keys and policies
    for number, paths in enumerate(((log,), (tmp_path / "new-0",))):
        new = tmp_path / f"new-{number}"
        made = rebuilt(*paths, to=new)
        assert loaded(new, now_ns) == loaded(log, now_ns)
        assert remembered(new, now_ns) == (keys, policies)
        assert (made.flaws, made.lost) == ((), ())


def test_a_key_that_two_jobs_have_is_told_and_stays_with_the_first(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], has_extensions=True)
    tags = Tags(b"order-7", 60, group=b"night")
    scribe.write(put(1, tags=tags), put(2, tags=tags))
    scribe.finish()
    log = written(tmp_path / "log", segment_files(scribe.directory))
    made = rebuilt(log, to=tmp_path / "new")
    (flaw,) = made.flaws
    assert flaw == "the unique key order-7 of job 2: job 1 of tube default has it"
    one, two = loaded(tmp_path / "new")[0]
    assert (one.tags, two.tags) == (tags, Tags(group=b"night"))


def crashed(seed: int) -> tuple[Files, Files]:
    """A log, and what a crash may have left of it."""
    dice = random.Random(seed)
    files = segment_files(any_sensible_log(seed, (0, 2, 5)[seed % 3]).directory)
    return files, edited(files, max(files), lambda raw: ends(dice, raw))


def ends(dice: random.Random, raw: bytes) -> bytes:
    """The end of a segment as a crash may have left it."""
    at = dice.randrange(SEGMENT_HEADER_BYTES + 700, len(raw))
    torn = dice.choice([raw[:at], raw[:at] + bytes(len(raw) - at), flipped(raw, at),
                        raw[:at] + dice.randbytes(64)])  # fmt: skip
    return torn + bytes(dice.choice([0, 4096]))


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(30))
def test_a_torn_tail_is_treated_as_by_a_server_that_starts(seed: int, tmp_path: Path) -> None:
    files, torn = crashed(seed)
    whole, log = written(tmp_path / "whole", files), written(tmp_path / "log", torn)
    now_ns = newest_time(whole)
    try:
        expected = loaded(log, now_ns)
    except BinlogError:
        # A body that nobody needs may be damaged; otherwise it is refused here too.
        try:
            rebuilt(log, to=tmp_path / "new", now_ns=now_ns)
        except SourceError as refused:
            assert str(refused).startswith("[BINLOG_DAMAGED] ")
        else:
            assert loaded(tmp_path / "new", now_ns) == loaded(whole, now_ns)
        return
    rebuilt(log, to=tmp_path / "new", now_ns=now_ns)
    assert loaded(tmp_path / "new", now_ns) == expected


def test_the_tails_above_are_damaged_torn_and_not_known_durable(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(30):
        survey = open_source(str(written(tmp_path / str(seed), crashed(seed)[1]))).survey()
        is_above = survey.segments[-1].ending.next_lsn - 1 > survey.durable_lsn
        kinds.add((bool(survey.problems), bool(survey.torn), is_above))
    assert {(True, True, False), (False, True, True), (False, True, False)} <= kinds


@pytest.mark.exhaustive
def test_what_a_server_left_behind_is_loaded_alike_from_its_log_and_its_archive(
    history: Made, tmp_path: Path
) -> None:
    now_ns = newest_time(history.log)
    expected = loaded(history.log, now_ns)
    assert expected[0]
    (store,) = (each.path for each in stores_of(history.archive))
    for number, paths in enumerate(((history.log,), (store, history.log), (store,))):
        new = tmp_path / str(number)
        made = rebuilt(*paths, to=new, segment_bytes=1 << 16, now_ns=now_ns)
        assert loaded(new, now_ns) == expected
        assert made.written.bytes < sum(map(len, contents(Path(history.log)).values()))


# The new log.


def test_the_new_log_keeps_the_rules_for_logs_made_by_tools(tmp_path: Path) -> None:
    log = written(tmp_path / "log", Conversation(5).say(40).files)
    survey = open_source(str(log)).survey()
    made = rebuilt(log, to=tmp_path / "new").written
    assert made.first_lsn == survey.segments[-1].ending.next_lsn
    assert made.next_job_id == survey.small.next_job_id
    old, new = headers(log)[0], headers(tmp_path / "new")
    assert len(new) == made.segments > 1
    assert {each.store_uuid for each in new}.isdisjoint({old.store_uuid})
    assert all(each.flags == MADE_BY_TOOL for each in new)
    first = (tmp_path / "new" / min(contents(tmp_path / "new"))).read_bytes()
    origin: Any = decode_description(first[:SEGMENT_HEADER_BYTES])["origin"]
    assert origin["tool"] == "rebuild"
    assert origin["sources"] == [
        {"path": str(log), "store_uuid": old.store_uuid.hex(), "last_lsn": made.first_lsn - 1}
    ]


def test_a_rebuilt_log_can_be_rebuilt(tmp_path: Path) -> None:
    log = written(tmp_path / "log", Conversation(6).say(40).files)
    rebuilt(log, to=tmp_path / "once")
    rebuilt(tmp_path / "once", to=tmp_path / "twice")
    assert loaded(tmp_path / "twice") == loaded(log)


def test_ids_are_not_given_again_though_their_jobs_are_gone(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(3), put(4711), delete(4711))
    log = written(tmp_path / "log", scribe.files())
    assert rebuilt(log, to=tmp_path / "new").written.next_job_id == 4712


def test_bodies_of_jobs_that_are_gone_may_be_damaged(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(1, b"corpse"))
    scribe.write(put(2, b"alive"), delete(1))
    scribe.finish()
    files = scribe.files()
    at = files[min(files)].index(b"corpse")
    log = written(tmp_path / "log", edited(files, min(files), lambda raw: flipped(raw, at)))
    rebuilt(log, to=tmp_path / "new")
    assert [job.body for job in loaded(tmp_path / "new")[0]] == [b"alive"]


# Earlier points.


@pytest.mark.parametrize("seed", range(3))
def test_the_jobs_of_an_earlier_point_are_those_that_there_were(seed: int, tmp_path: Path) -> None:
    spoken = Conversation(seed, with_compaction=True).say(60)
    log, archive = folders(tmp_path, spoken)
    lsns = sorted(spoken.snapshots)
    for place in (len(lsns) // 4, len(lsns) // 2, len(lsns) - 2):
        lsn = lsns[place]
        made = [
            rebuilt(archive, log, to=tmp_path / f"{place}-lsn", point=Point(lsn=lsn)),
            rebuilt(
                archive, log, to=tmp_path / f"{place}-time",
                point=Point(time_ns=spoken.times[lsn]),
            ),
        ]  # fmt: skip
        for each in made:
            jobs, _ = loaded(each.written.path, spoken.times[lsn])
            assert {job.job_id: job.body for job in jobs} == {
                job_id: told[-1] for job_id, told in spoken.snapshots[lsn].items()
            }
            # No number may mean two things, also of what came later.
            assert each.written.first_lsn > max(lsns)
            assert each.written.next_job_id >= spoken.next_job_id


def test_a_point_before_the_log_begins_is_an_error(tmp_path: Path) -> None:
    log = written(tmp_path / "log", Conversation(1).say(5).files)
    with pytest.raises(SourceError, match=r"^\[REBUILD_GAP\] the log begins with LSN 1"):
        rebuilt(log, to=tmp_path / "new", point=Point(lsn=0))


# What is wrong.


def a_log(segments: int = 4) -> Files:
    """One job put in each segment; and the first one is deleted in the last."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE)
    for number in range(1, segments + 1):
        if number > 1:
            scribe.end_segment()
        scribe.write(put(number, b"body %d" % number))
    scribe.write(delete(1))
    scribe.finish()
    return segment_files(scribe.directory)


def refused(*paths: Path, to: Path, **wish: Any) -> str:
    """What is said instead of a new log, of which nothing is there."""
    before = sorted(to.parent.iterdir())
    with pytest.raises(SourceError) as failed:
        rebuilt(*paths, to=to, **wish)
    assert sorted(to.parent.iterdir()) == before
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_missing_segments_are_named(tmp_path: Path) -> None:
    files = a_log()
    names = sorted(files)
    log = written(tmp_path / "log", {name: files[name] for name in (names[0], names[3])})
    said = refused(log, to=tmp_path / "new")
    assert said.startswith(
        "[REBUILD_GAP] segments 2 to 3 are missing between segments 1 and 4 (LSN 5 to 10)"
    )
    log = written(tmp_path / "end", {name: files[name] for name in names[1:]})
    said = refused(log, to=tmp_path / "new")
    assert "[REBUILD_GAP] segment 1 is missing before segment 2 (up to LSN 4)" in said
    assert "--accept-gap" in said


def test_a_segment_whose_header_is_damaged_is_missing_and_says_why(tmp_path: Path) -> None:
    files = a_log()
    names = sorted(files)
    log = written(tmp_path / "log", edited(files, names[1], lambda raw: flipped(raw, 30)))
    said = refused(log, to=tmp_path / "new")
    assert "segment 2 is missing" in said and f"{log}/{names[1]} is damaged: the header's" in said


def test_gaps_can_be_accepted_and_are_told(tmp_path: Path) -> None:
    files = a_log()
    names = sorted(files)
    log = written(tmp_path / "log", {name: files[name] for name in (names[0], names[3])})
    made = rebuilt(log, to=tmp_path / "new", accepts_gaps=True)
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [4]
    (flaw,) = made.flaws
    assert flaw.startswith("segments 2 to 3 are missing")


def test_a_job_whose_body_was_in_a_missing_segment_is_told(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(1), put(2))
    scribe.end_segment()
    scribe.write(put(3), image(Kind.BURY, 2, state=State.BURIED, deadline_ns=T0))
    scribe.finish()
    files = segment_files(scribe.directory)
    log = written(tmp_path / "log", {max(files): files[max(files)]})
    made = rebuilt(log, to=tmp_path / "new", accepts_gaps=True)
    assert made.lost == (2,)
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [3]


def test_segments_that_are_dead_need_not_be_there(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(1), put(2))
    scribe.end_segment()
    scribe.write(delete(1))
    scribe.end_segment()
    scribe.write(image(Kind.COPY, 2, body=b"hello"), Trim(3, T0))
    scribe.finish()
    files = segment_files(scribe.directory)
    names = sorted(files)
    # Job 1 must not come back because only its end is missing.
    log = written(tmp_path / "log", {name: files[name] for name in (names[0], names[2])})
    made = rebuilt(log, to=tmp_path / "new")
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [2]
    assert made.segments == 1
    # But it is said, and said to be harmless.
    (gap,) = made.not_missed
    assert gap.startswith("segment 2 is missing between segments 1 and 3; nothing is lost")
    done = run(log, "-o", tmp_path / "again")
    assert f"not needed: {gap}" in done.stderr
    assert "0 places and 0 jobs were left out" in done.stdout


def test_damage_is_refused_with_its_place_or_left_out_and_told(tmp_path: Path) -> None:
    files = a_log()
    name = sorted(files)[1]
    at = files[name].index(b"\xb5TQF", SEGMENT_HEADER_BYTES)
    log = written(tmp_path / "log", edited(files, name, lambda raw: flipped(raw, at + 100)))
    said = refused(log, to=tmp_path / "new")
    assert said.startswith(f"[BINLOG_DAMAGED] {log}/{name}: frame at byte {at}: ")
    assert "--damage skip" in said and "binlog-inspect check" in said
    made = rebuilt(log, to=tmp_path / "new", damage="skip")
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [3, 4]
    (flaw,) = made.flaws
    assert f"byte {at}" in flaw


def test_a_damaged_body_is_refused_or_left_out_and_told(tmp_path: Path) -> None:
    files = a_log()
    name = sorted(files)[1]
    at = files[name].index(b"body 2")
    log = written(tmp_path / "log", edited(files, name, lambda raw: flipped(raw, at)))
    said = refused(log, to=tmp_path / "new")
    assert f"{name}: frame at byte {at}: the checksum of the body of job 2 is wrong" in said
    made = rebuilt(log, to=tmp_path / "new", damage="skip")
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [3, 4]
    assert made.lost == (2,) and "body of job 2" in made.flaws[0]


def test_a_body_that_is_damaged_in_one_archive_is_taken_from_another(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 18)
    bodies = {number: b"body %d " % number + bytes(1000) for number in range(1, 101)}
    scribe.write(DEFAULT_TUBE, *(put(number, body) for number, body in bodies.items()))
    scribe.finish()
    files = segment_files(scribe.directory)
    name = min(files)
    assert len(files[name]) > 100_000
    damaged = flipped(files[name], files[name].index(b"body 2 "))
    bad, good = (archived(tmp_path / each, {name: raw})
                 for each, raw in (("bad", damaged), ("good", files[name])))  # fmt: skip
    assert "the body of job 2 " in refused(bad, to=tmp_path / "new")
    rebuilt(bad, good, to=tmp_path / "new")
    assert {job.job_id: job.body for job in loaded(tmp_path / "new")[0]} == bodies


@pytest.mark.parametrize("how", DAMAGES)
def test_a_body_is_doubtful_if_its_update_may_be_lost(how: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", damaged(how))
    made = rebuilt(log, to=tmp_path / "new", now_ns=LATER, damage="skip", accepts_gaps=True)
    assert made.doubtful[Why.OUTDATED] == [1]
    [job] = [job for job in loaded(tmp_path / "new")[0] if job.job_id == 1]
    assert (job.body, job.state) == (OLD, State.BURIED)
    done = run(log, "-o", tmp_path / "two", "--damage", "skip", "--accept-gap")
    told = "doubtful, restored as last known: jobs that may have had another body or other tags"
    assert f"{told} there: 1 (1)" in done.stderr


def hidden_change(kind: Kind, is_sealed: bool) -> Files:
    """A log in which a frame cannot be read that has a record of job 1."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"first"))
    scribe.end_segment()
    scribe.write(put(2, b"second"))
    scribe.write(put(1, b"other")._replace(kind=kind))
    if is_sealed:
        scribe.end_segment()
    scribe.write(image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0))
    scribe.mark()
    files = segment_files(scribe.directory)
    name = sorted(files)[1]
    at = batches_of(files, name)[1]["offset"] + 70
    return edited(files, name, lambda raw: flipped(raw, at))


@pytest.mark.parametrize(
    ("kind", "is_sealed", "doubtful"),
    [
        (Kind.UPDATE, True, {"outdated?": [1], "changed?": [2]}),
        (Kind.MOVE, True, {"outdated?": [1], "changed?": [2]}),
        (Kind.COPY, True, {}), (Kind.COPY, False, {"outdated?": [1], "deleted?": [2]}),
    ],
)  # fmt: skip
def test_only_a_seal_proves_that_damage_hides_no_other_body(
    kind: Kind, is_sealed: bool, doubtful: dict[str, list[int]], tmp_path: Path
) -> None:
    log = written(tmp_path / "log", hidden_change(kind, is_sealed))
    made = rebuilt(log, to=tmp_path / "new", damage="skip")
    assert made.doubtful == doubtful
    assert [job.body for job in loaded(tmp_path / "new")[0]] == [b"first", b"second"]


def test_damage_behind_the_point_makes_nothing_doubtful(tmp_path: Path) -> None:
    log = written(tmp_path / "log", hidden_change(Kind.UPDATE, is_sealed=True))
    made = rebuilt(log, to=tmp_path / "new", damage="skip", point=Point(lsn=5))
    assert made.doubtful == {}


@pytest.mark.parametrize("seed", range(1, 5))
def test_no_job_is_certain_that_is_not_as_it_was(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    truth = truth_of(seed, folder)
    damager = Damager(truth, seed + 20)
    whys: Counter[str] = Counter()
    for number in range(share(500, 25)):
        files = damager.damaged()
        log, new = written(folder / f"spoilt-{seed}", files), folder / f"rebuilt-{seed}"
        made = rebuilt(log, to=new, now_ns=LATER, damage="skip", accepts_gaps=True)
        doubtful = {job_id for jobs in made.doubtful.values() for job_id in jobs}
        found = jobs_in(new)
        for job_id in found.keys() - doubtful:
            assert found[job_id] == truth.jobs.get(job_id), (seed, number, made.flaws)
        whys.update({why: len(jobs) for why, jobs in made.doubtful.items()})
        whys["certain"] += len(found) - len(doubtful)
        shutil.rmtree(log)
        shutil.rmtree(new)
    assert whys["certain"] and whys["outdated?"], whys


def test_logs_of_two_servers_are_refused(tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    scribe = Scribe(position=FIRST._replace(store_uuid=b"\7" * 16), opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(1))
    other = written(tmp_path / "other", scribe.files())
    said = refused(log, other, to=tmp_path / "new")
    assert said.startswith("[REBUILD_SERVERS] these are logs of 2 servers (000102")


@pytest.mark.parametrize("name", ["new", "new.part"])
def test_what_is_there_is_not_written_over(name: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").touch()
    said = refused(log, to=tmp_path / "new")
    assert said.startswith(f"[REBUILD_TARGET] {tmp_path / name}: ")


def test_an_empty_directory_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    rebuilt(written(tmp_path / "log", a_log()), to=tmp_path / "new")
    assert len(loaded(tmp_path / "new")[0]) == 3


# The command.


def run(*words: object) -> Result:
    """Run the command."""
    from binlog_tools.spark.cli.main import cli

    return CliRunner().invoke(cli, ["rebuild", *(str(word) for word in words)])


def test_the_command_says_what_it_has_made(tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    done = run(log, "-o", tmp_path / "new", "--segment-size", "8k")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{tmp_path / 'new'}: 3 jobs, ")
    assert "4 segments, read in one process; 0 places and 0 jobs were left out" in done.output


@pytest.mark.exhaustive
def test_a_url_that_does_not_answer_is_left_out_and_told(tmp_path: Path) -> None:
    url = "s3://queue-archive/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    log = written(tmp_path / "log", a_log())
    with s3_server.credentials():
        done = run(url, log, "-o", tmp_path / "new")
        assert done.exit_code == 75, done.output
        (told,) = done.stderr.splitlines()
        assert told.startswith("left out, and the others read: [BINLOG_UNREADABLE] s3://queue")
        assert (tmp_path / "new").exists()
        alone = run(url, "-o", tmp_path / "none")
        assert (alone.exit_code, (tmp_path / "none").exists()) == (74, False)


def test_the_command_says_what_it_has_left_out(tmp_path: Path) -> None:
    files = a_log()
    name = sorted(files)[1]
    at = files[name].index(b"body 2")
    log = written(tmp_path / "log", edited(files, name, lambda raw: flipped(raw, at)))
    done = run(log, "-o", tmp_path / "new", "--damage", "skip", "--single")
    assert done.exit_code == 0
    assert f"left out: {log / name}: byte {at}: the body of job 2" in done.stderr
    assert "jobs without a body, left out: 1 (2)" in done.stderr
    assert done.stdout.endswith("; 1 places and 1 jobs were left out\n")


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(tmp_path: Path) -> None:
    files = a_log()
    log = written(tmp_path / "log", files)
    done = run(log, "-o", tmp_path / "new", "--dry-run")
    assert done.exit_code == 0, done.output
    first, last = done.stdout.splitlines()
    assert first.startswith("would read: 4 segments of 1 server, ")
    assert last == f"would write: {tmp_path / 'new'}, which is new"
    assert not (tmp_path / "new").exists()
    (tmp_path / "log" / sorted(files)[2]).unlink()
    done = run(log, "-o", log, "--lsn", 6, "--dry-run")
    assert "would read: 2 segments " in done.stdout and "damage" not in done.stdout
    assert "which is not empty: name a new directory" in done.stdout
    assert run(log, "-o", tmp_path / "old", "--at", "1999-01-01", "--dry-run").exit_code == 66
    archive = archived(tmp_path / "archive", {name: raw for name, raw in files.items()
                                              if name != sorted(files)[2]})  # fmt: skip
    done = run(archive, "-o", tmp_path / "new", "--dry-run")
    assert re.search(r"^damage: .*: segment 3 is missing between", done.stdout, re.M)


@pytest.mark.parametrize("how", ["short", "failing"])
@pytest.mark.parametrize("which", [1, 3])
def test_a_segment_whose_ranges_cannot_be_had_is_refused_or_left_out_and_told(
    how: str, which: int, tmp_path: Path
) -> None:
    files, remote = a_log(), Lent()
    store = remote.archive("archive", files)
    name = sorted(store.objects)[which]
    store.objects[name] += bytes(200_000)
    getattr(store, how)[name] = SEGMENT_HEADER_BYTES
    with pytest.raises(SourceError, match=rf"BINLOG_UNREADABLE\] .*{name}: .*byte"):
        rebuilt(f"{remote.bucket}/archive", to=tmp_path / "new")
    made = rebuilt(f"{remote.bucket}/archive", to=tmp_path / "new", damage="skip")
    # Job 1 is deleted in the last segment.
    expected = [3, 4] if which == 1 else [1, 2, 3]
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == expected
    (flaw,) = made.flaws
    assert name in flaw and "byte" in flaw


def test_the_command_stops_where_it_is_told(tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    assert run(log, "-o", tmp_path / "new", "--lsn", 6).exit_code == 0
    assert [job.job_id for job in loaded(tmp_path / "new")[0]] == [1, 2]
    assert run(log, "-o", tmp_path / "old", "--at", "1999-01-01T00:00Z").exit_code == 66


@pytest.mark.parametrize("words", [("--segment-size", "1k"), ("--segment-size", "x")])
def test_wrong_options_are_refused(words: tuple[str, str], tmp_path: Path) -> None:
    assert run(tmp_path, "-o", tmp_path / "new", *words).exit_code == 2


def test_an_error_is_one_line_and_a_number(tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    (log / min(contents(log))).unlink()
    done = run(log, "-o", tmp_path / "new")
    assert done.exit_code == 66 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("[REBUILD_GAP] ")


# Through Spark.


def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    log, archive = folders(tmp_path, Conversation(2).say(80))
    new = tmp_path / "new"
    made = rebuild(Wish((str(archive), str(log)), str(new)), with_spark(spark), now_ns=0)
    assert loaded(new) == loaded(log)
    assert made == rebuilt(archive, log, to=tmp_path / "b", segment_bytes=64 << 20)._replace(
        written=made.written
    )


def test_an_error_in_a_task_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    files = a_log()
    name = sorted(files)[1]
    at = files[name].index(b"\xb5TQF", SEGMENT_HEADER_BYTES)
    log = written(tmp_path / "log", edited(files, name, lambda raw: flipped(raw, at + 100)))
    with pytest.raises(Exception, match="BINLOG_DAMAGED") as failed:
        rebuild(Wish((str(log),), str(tmp_path / "new")), with_spark(spark))
    assert exit_code(failed.value) == 65


@pytest.mark.exhaustive
def test_a_rebuilt_log_can_be_replayed_by_the_example(spark: SparkSession, tmp_path: Path) -> None:
    log = written(tmp_path / "log", a_log())
    rebuilt(log, to=tmp_path / "new")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spark_replay.py"))
    rows = {}
    for path in (log, tmp_path / "new"):
        jobs = example["living"](spark, [str(path)])
        rows[path] = sorted(
            jobs.select("job", "body", "tube", "priority", "ttr", "delay").collect()
        )
    assert rows[log] == rows[tmp_path / "new"] and len(rows[log]) == 3
