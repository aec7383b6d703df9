"""What survives of a directory that beanstalkd wrote."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from binlog_tools.logs.stored import LOST_AND_FOUND
from binlog_tools.v7.records import V7, Record, decode
from binlog_tools.v7.survivors import DOUBTFUL_TTR_S, MAX_LISTED, Finding, Kind, Survivors
from tests.binlog.memory import MemoryDirectory
from tests.tools.v7.theirs import (
    BURIED,
    DELAYED,
    NS,
    READY,
    T0,
    VERSION_7,
    bodies,
    buried,
    file_5,
    file_7,
    full,
    full_5,
    gone,
    gone_5,
    kinds,
    read,
    short,
)


def states(found: Survivors) -> dict[int, int]:
    jobs = [*found.ready_and_delayed(), *found.buried()]
    assert len(jobs) == len(found.jobs)
    return {job.fields.job_id: job.fields.state for job in jobs}


def doubtful(found: Survivors) -> list[tuple[int, bytes]]:
    jobs = list(found.doubtful())
    assert len(jobs) == found.doubtful_jobs
    assert all(job.tube == LOST_AND_FOUND and job.fields.state == BURIED for job in jobs)
    return [(job.fields.job_id, found.body(job)) for job in jobs]


def test_files_are_read_in_the_order_of_their_numbers() -> None:
    found = read({"binlog.9": file_7(full(1)), "binlog.10": file_7(gone(1))})
    assert found.jobs == {} and found.findings.verdict == "sound"
    assert found.counts.files == 2


def test_a_short_record_without_a_full_one_is_counted_only_if_its_job_was_deleted() -> None:
    found = read({"binlog.4": file_7(short(1, BURIED), gone(1), gone(2), full(3))})
    assert found.findings.verdict == "sound"
    assert found.counts.orphaned == 3
    assert bodies(found) == {3: b"hello"}


def test_a_job_whose_body_is_in_no_file_is_reported() -> None:
    found = read({"binlog.4": file_7(full(3), short(1, BURIED))})
    assert found.findings.listed == [
        Finding(Kind.MISSING, "binlog.4", 4 + len(full(3)), 4 + len(full(3)), 1,
                "its body is in no file")
    ]  # fmt: skip
    assert found.findings.verdict == "damaged"
    assert bodies(found) == {3: b"hello"}


def test_an_id_that_was_given_again_is_the_new_job() -> None:
    later: dict[str, Any] = {"created": T0 + 9 * NS}
    found = read(file_7(gone(1), full(1, b"again", **later), short(1, BURIED, b"again", **later)))
    assert found.findings.verdict == "sound"
    assert states(found) == {1: BURIED}


def test_a_copy_of_a_buried_job_keeps_its_place() -> None:
    files = {
        "binlog.1": file_7(full(1), full(2), short(1, BURIED), short(2, BURIED)),
        "binlog.2": file_7(full(1, state=BURIED), full(3), short(3, BURIED)),
    }
    assert buried(read(files)) == [1, 2, 3]


def test_a_copy_keeps_its_place_when_its_original_is_gone() -> None:
    """The bury of job 1 is still there; that of job 9 is gone, so it is older than all."""
    content = file_7(
        full(2), short(2, BURIED), short(1, BURIED), full(3), short(3, BURIED),
        full(9, state=BURIED), full(1, state=BURIED),
    )  # fmt: skip
    assert buried(read({"binlog.7": content})) == [9, 2, 1, 3]


def test_a_missing_file_in_the_middle_is_a_gap_and_one_at_the_beginning_is_not() -> None:
    found = read({f"binlog.{n}": file_7(full(n)) for n in (3, 4, 6, 10)})
    assert found.gaps == [(5, 5), (7, 9)]
    assert [str(finding) for finding in found.findings.listed] == [
        "binlog.5: offset 0: missing: the file is missing",
        "binlog.7: offset 0: missing: the file to binlog.9 is missing",
    ]
    assert sorted(found.jobs) == [3, 4, 6, 10]


def test_a_gap_of_any_width_takes_no_time() -> None:
    found = read({"binlog.1": file_7(), f"binlog.{10**18}": file_7()})
    assert found.gaps == [(2, 10**18 - 1)]


def test_a_file_that_was_only_begun_is_torn() -> None:
    for content in (b"", b"\7", bytes(4096)):
        found = read({"binlog.1": file_7(full(1)), "binlog.2": content})
        assert kinds(found) == ["torn"] and found.findings.verdict == "torn"
        assert sorted(found.jobs) == [1]


@pytest.mark.parametrize(
    "torn", [full(1, state=BURIED)[:-4], full(1, state=BURIED)[:-7] + bytes(500), full(1)[:40]]
)
def test_a_torn_copy_does_not_cost_the_older_good_one(torn: bytes) -> None:
    found = read({"binlog.1": file_7(full(1), full(2)), "binlog.2": file_7(torn)})
    assert found.findings.verdict == "torn"
    assert states(found) == {1: READY, 2: READY}
    assert bodies(found)[1] == b"hello"


def test_a_damaged_body_is_no_job_and_costs_no_other() -> None:
    found = read(file_7(full(1), full(2)[:-2] + b"\0\0", full(3)))
    assert sorted(found.jobs) == [1, 3]
    (finding,) = found.findings.listed
    at = 4 + len(full(1))
    assert finding == Finding(
        Kind.DAMAGED, "binlog.1", at, at + len(full(2)), 2, "its body does not end in CR LF"
    )
    assert found.findings.skipped_bytes == len(full(2))


def test_a_whole_body_with_a_damaged_record_goes_to_lost_and_found() -> None:
    found = read(file_7(full(1), full(2, b"two", tube=b"a", state=9, ttr=5), full(3)))
    assert sorted(found.jobs) == [1, 3]
    assert doubtful(found) == [(2, b"two")]
    assert found.next_job_id == 4
    (job,) = found.doubtful()
    assert job.fields.ttr_ns == NS


def test_a_doubtful_job_has_fields_that_any_log_can_hold() -> None:
    wild: dict[str, Any] = {"ttr": -1, "delay": -1, "created": -1, "deadline": -1, "state": 200}
    (job,) = read(file_7(full(2, **wild))).doubtful()
    assert (job.fields.ttr_ns, job.fields.delay_ns, job.fields.created_ns) == (NS, 0, 0)
    assert job.fields.deadline_ns == 0
    (job,) = read(file_7(full(2, ttr=(1 << 62)))).doubtful()
    assert job.fields.ttr_ns == DOUBTFUL_TTR_S * NS


LATER = T0 + 4_000_000
"""When job 4 was put."""

HELLO = b"hello"
NEVER_CHANGES: list[dict[str, Any]] = [{"ttr": 61 * NS}, {"body_size": 8}, {"created": T0}]


@pytest.mark.parametrize(
    ("records", "living", "doubts", "found"),
    [
        # A record of job 4 that says that it is of job 1: it changes no other job.
        *(([full(1), full(2), short(1, state, created=LATER)], {1: HELLO, 2: HELLO}, [],
           ["contradicts"]) for state in (0, READY, BURIED)),
        # What never changes of a job is another.
        *(([full(1), short(1, BURIED, **changes)], {1: HELLO}, [], ["contradicts"])
          for changes in NEVER_CHANGES),
        # A put of 4 that says 2, and one of 2 that says 4 and is met first.
        ([full(1), full(2, b"two"), full(3), full(2, b"four", created=LATER), full(5)],
         {1: HELLO, 2: b"two", 3: HELLO, 5: HELLO}, [(6, b"four")], ["contradicts"]),
        ([full(1), full(4, b"two", created=T0 + 2_000_000), full(3), full(4, b"four"),
          short(4, BURIED, b"four")],
         {1: HELLO, 3: HELLO, 4: b"four"}, [(5, b"two")], ["contradicts"]),
        # Copies that differ: neither body is lost, and the older one has the id.
        ([full(1), full(1, b"he\0\0o", state=BURIED)], {1: HELLO}, [(2, b"he\0\0o")],
         ["contradicts"]),
        ([full(1), full(1, b"longer"), gone(1)], {}, [(2, b"longer")], ["contradicts"]),
        ([full(1, created=T0 - NS), full(1), gone(1)], {}, [], ["contradicts"]),
        # Doubtful jobs: with an id that cannot be, deleted later, with another one's deletion,
        # copies of jobs that are there, and two with one id.
        ([full(0, b"zero"), full(1 << 63, b"huge", created=T0), full(7)], {7: HELLO},
         [(8, b"zero"), (9, b"huge")], ["damaged", "damaged"]),
        ([full(1), full(2, state=9), gone(2)], {1: HELLO}, [], ["damaged"]),
        ([full(2, state=9), gone(2, created=T0), full(3)], {3: HELLO}, [(2, HELLO)],
         ["damaged"]),
        ([full(1), full(1, state=9), full(2)], {1: HELLO, 2: HELLO}, [], ["damaged"]),
        ([full(1, state=9), full(1), full(2)], {1: HELLO, 2: HELLO}, [], ["damaged"]),
        ([full(2, b"a", state=9), full(2, b"b", state=9), full(3)], {3: HELLO},
         [(2, b"a"), (4, b"b")], ["damaged", "damaged"]),
    ],
    ids=[
        "deletion of another", "record of another", "burial of another", "other ttr", "other size",
        "other time", "put of a later job", "put of an earlier job", "copy with another body",
        "longer copy", "earlier copy", "impossible ids", "doubtful and deleted",
        "doubtful beside another deletion", "doubtful copy", "doubtful original", "two with one id",
    ],
)  # fmt: skip
def test_what_contradicts_takes_no_other_jobs_place_and_costs_no_body(
    records: list[bytes], living: dict[int, bytes], doubts: list[tuple[int, bytes]],
    found: list[str],
) -> None:  # fmt: skip
    read_back = read(file_7(*records))
    assert bodies(read_back) == living and doubtful(read_back) == doubts
    assert kinds(read_back) == found and read_back.findings.verdict == "damaged"
    highest = max([*living, *(job_id for job_id, _ in doubts), 0])
    assert read_back.next_job_id > highest


def test_a_change_of_a_copy_counts_though_its_body_does_not() -> None:
    copy = full(1, b"he\0\0o", state=BURIED)
    assert states(read({"binlog.1": file_7(full(1)), "binlog.2": file_7(copy)})) == {1: BURIED}
    assert states(read(file_7(full(1), short(1, BURIED, ttr=61 * NS)))) == {1: READY}


def test_findings_are_listed_up_to_a_limit_and_all_counted() -> None:
    wrong = short(1, 9)
    for number in (MAX_LISTED, MAX_LISTED + 1):
        content = VERSION_7 + full(1) + b"".join([wrong, gone(9)] * number)
        found = read(content)
        assert found.findings.counts == {Kind.DAMAGED: number}
        assert len(found.findings.listed) == MAX_LISTED
        assert found.findings.counts.total() == number


def test_progress_goes_up_to_all_of_it() -> None:
    files = {f"binlog.{n}": file_7(full(n), zeros=n) for n in range(1, 40)}
    told: list[tuple[int, int]] = []
    found = Survivors(MemoryDirectory(files), lambda done, total: told.append((done, total)))
    size = sum(map(len, files.values()))
    assert told == sorted(told) and told[-1] == (size, size)
    assert len(bodies(found)) == 39, "more files than are mapped at once"


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda raw: bytes(len(raw)),
    "zeros at first": lambda raw: bytes(60) + raw[60:],
    "noise": lambda raw: random.Random(7).randbytes(len(raw)),
    "noise, then zeros": lambda raw: random.Random(7).randbytes(60) + raw[60:],
    "ones": lambda raw: b"\xff" * len(raw),
}


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("version", [7, 5])
def test_a_job_that_looks_like_the_end_of_another_is_found(version: int, spoilt: str) -> None:
    """With priority 0 a delay may be taken for a ttr, some bytes before the record itself."""
    make_file, make, end = (file_7, full, gone) if version == 7 else (file_5, full_5, gone_5)
    damaged = SPOILT[spoilt](end(1))
    for name_bytes in (*range(1, 13), 20):
        for pri in (0, 1, 1024, 10**9, 2**32 - 1):
            for delay_s in (0, 1, 3600, 2**32 - 1):
                times = {"delay": delay_s * NS, "deadline": T0 + 3600 * NS, "state": DELAYED}
                second = make(
                    2, b"undamaged", b"abcdefghijklmnopqrst"[:name_bytes], pri=pri, **times
                )
                found = read(make_file(make(1), damaged, second, make(3)))
                case = (name_bytes, pri, delay_s)
                assert bodies(found) == {1: b"hello", 2: b"undamaged", 3: b"hello"}, case
                assert (found.next_job_id, found.doubtful_jobs) == (4, 0), case


def test_a_short_record_is_found_behind_damage_however_it_is_read() -> None:
    for delay_s in (0, 1, 3600):
        for pri in (0, 1024):
            last = short(2, BURIED, pri=pri, delay=delay_s * NS)
            found = read(file_7(full(1), full(2), bytes(84), last))
            assert states(found) == {1: READY, 2: BURIED}, (delay_s, pri)
            assert found.next_job_id == 3


def test_a_full_record_that_begins_within_a_short_one_is_the_right_one() -> None:
    """Here its id, priority and ttr were chosen so that a short one, with a time of creation of our
    days, seems to begin twelve bytes before it.
    """
    second = 10**9
    trick = full(second, b"undamaged", b"mail", pri=10**9, ttr=2 * 10**9 * NS, created=T0)
    damaged = b"\xff" * 72 + bytes(4) + (5).to_bytes(8, "little")
    raw = damaged + trick
    deceiving = decode(raw, 72, len(raw), V7)
    assert isinstance(deceiving, Record) and deceiving.fields.job_id == 5
    found = read(file_7(full(1), damaged, trick, full(second + 1, created=T0)))
    assert bodies(found) == {1: b"hello", second: b"undamaged", second + 1: b"hello"}
    assert found.next_job_id == second + 2
