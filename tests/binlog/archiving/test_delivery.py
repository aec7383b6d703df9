"""What is delivered to an archive, when, in which bytes, and what a fault at any step leaves
there.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

import pytest

from beanstalk_twisted.binlog.archive import Gap, deliver, deliver_rest, gap, store_uuid
from beanstalk_twisted.binlog.errors import CannotArchive
from beanstalk_twisted.binlog.segments.format import (
    TRAILER_BYTES,
    archive_name,
    parse_archive_name,
    segment_name,
)
from tests.binlog import independent_reader
from tests.binlog.archived import archive_for
from tests.binlog.memory import MemoryArchive, MemoryDirectory, fails_at
from tests.binlog.scribe import DEFAULT_TUBE, UUID, Files, Scribe, edited, flipped, put

ONE, TWO, THREE = (segment_name(seq) for seq in (1, 2, 3))
LARGE = b"x" * 5000
"""A body that fills a segment."""


def log_of(segments: int = 3) -> Scribe:
    """A log of so many segments, of which the newest is in use."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for job_id in range(1, segments):
        scribe.write(put(job_id, LARGE))
    scribe.write(put(segments, b"in use" * 50))
    return scribe


def archived(archive: MemoryArchive) -> Files:
    return {name: bytes(archive.files.read(name)) for name in archive.names()}


BOTH_KINDS = pytest.mark.parametrize("can_link", [True, False], ids=["link", "copy"])


def test_a_name_says_which_segment_and_which_records() -> None:
    name = archive_name(42, 18113)
    assert name == "00000000000000000042-00000000000000018113.tql"
    assert parse_archive_name(name) == (42, 18113)
    largest = archive_name((1 << 64) - 1, (1 << 64) - 1)
    assert parse_archive_name(largest) == ((1 << 64) - 1, (1 << 64) - 1)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000042-00000000000000018113.tql.part",
        "00000000000000000042.tql",
        "00000000000000000042-0000000000000018113.tql",
        "0000000000000000042-00000000000000018113.tql",
        "00000000000000000042-00000000000000018113",
        "00000000000000000042-0000000000000001811x.tql",
        "²0000000000000000042-00000000000000018113.tql",
        "LOCK",
        "",
    ],
)
def test_other_names_are_no_archived_segments(name: str) -> None:
    assert parse_archive_name(name) is None


@BOTH_KINDS
def test_a_sealed_segment_is_delivered_byte_for_byte(can_link: bool) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    for seq in (1, 2):
        assert deliver(archive, scribe.directory, seq, scribe.log.durable_lsn)
    files = scribe.files()
    second = independent_reader.header_of(files[TWO])
    assert archived(archive) == {
        archive_name(1, 1): files[ONE],
        archive_name(2, second["first_lsn"]): files[TWO],
    }
    assert files[ONE].endswith(b"TQLEND\r\n")


@pytest.mark.parametrize(
    ("can_link", "expected"),
    [
        (True, ["link tql", "sync directory "]),
        (False, ["link tql", "create part", "truncate part", "write part", "sync part",
                 "rename tql", "sync directory "]),
    ],
    ids=["link", "copy"],
)  # fmt: skip
def test_a_link_is_made_where_it_can_be_and_a_copy_has_its_name_only_when_it_is_durable(
    can_link: bool, expected: list[str]
) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    operations = []
    archive.fault = lambda operation, name: operations.append(
        f"{operation} {name.rpartition('.')[2]}"
    )
    deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    assert operations == expected


@BOTH_KINDS
def test_a_segment_in_use_or_whose_successor_is_not_durable_is_not_delivered(
    can_link: bool,
) -> None:
    """The successor's name may be there and not be durable; its records tell."""
    scribe, archive = log_of(), archive_for(can_link)
    assert not deliver(archive, scribe.directory, 3, scribe.log.durable_lsn)
    second = independent_reader.header_of(scribe.files()[TWO])
    assert not deliver(archive, scribe.directory, 1, durable_lsn=second["first_lsn"] - 1)
    assert archive.names() == []
    assert deliver(archive, scribe.directory, 1, durable_lsn=second["first_lsn"])


def garbage_behind(content: bytes, kind: str) -> bytes:
    """A segment that a crash or a failed write has cut off, and what it still has behind its
    end.
    """
    sealed = content[:-TRAILER_BYTES]
    return sealed + {
        "nothing": b"",
        "zeros": bytes(5000),
        "a frame": content[4096:4800],
        "a trailer and zeros": content[-TRAILER_BYTES:] + bytes(64),
        "forty bytes": b"y" * TRAILER_BYTES,
        "a spoilt trailer": flipped(content[-TRAILER_BYTES:], 3),
    }[kind]  # fmt: skip


@BOTH_KINDS
@pytest.mark.parametrize(
    "kind",
    ["nothing", "zeros", "a frame", "a trailer and zeros", "forty bytes", "a spoilt trailer"],
)
def test_of_a_segment_that_was_cut_off_only_what_its_successor_vouches_for_is_delivered(
    kind: str, can_link: bool
) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    files = edited(scribe.files(), ONE, lambda content: garbage_behind(content, kind))
    directory = MemoryDirectory(files)
    assert deliver(archive, directory, 1, scribe.log.durable_lsn)
    second = independent_reader.header_of(files[TWO])
    assert archived(archive)[archive_name(1, 1)] == files[ONE][: second["prev_end"]]
    assert bytes(directory.read(ONE)) == files[ONE], "the log is left as it is"


def test_the_store_is_that_of_the_segments() -> None:
    assert store_uuid(log_of().directory, 1) == UUID


@BOTH_KINDS
def test_to_deliver_a_segment_again_changes_nothing(can_link: bool) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    before = archived(archive)
    operations = []
    archive.fault = lambda operation, name: operations.append(operation)
    assert deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    assert archived(archive) == before
    assert operations == ["sync directory"]


@BOTH_KINDS
@pytest.mark.parametrize(
    "change",
    [
        lambda content: flipped(content, 100),
        lambda content: flipped(content, len(content) - 1),
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: b"",
    ],
    ids=["first", "last", "shorter", "longer", "empty"],
)
def test_other_bytes_are_refused_and_never_overwritten(
    change: Callable[[bytes], bytes], can_link: bool
) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    other = change(scribe.files()[ONE])
    archive.files.replace(archive_name(1, 1), other)
    operations = []
    archive.fault = lambda operation, name: operations.append(operation)
    with pytest.raises(CannotArchive) as caught:
        deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    said = str(caught.value)
    assert ONE in said and f"{archive.path}/{archive_name(1, 1)}" in said
    assert "other bytes, and is not overwritten" in said and "nothing is lost" in said
    assert (archived(archive), operations) == ({archive_name(1, 1): other}, [])


@BOTH_KINDS
def test_after_an_ordered_stop_the_last_segment_is_delivered_too(can_link: bool) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    scribe.finish()
    deliver_rest(archive, scribe.directory, first=2)
    assert [parse_archive_name(name) for name in archive.names()] == [(2, 4), (3, 7)]
    assert list(archived(archive).values()) == [scribe.files()[TWO], scribe.files()[THREE]]


def test_a_segment_without_an_end_is_not_delivered_as_the_last_one() -> None:
    scribe, archive = log_of(), archive_for()
    deliver_rest(archive, scribe.directory, first=1)
    assert [parse_archive_name(name) for name in archive.names()] == [(1, 1), (2, 4)]


OPERATIONS = {True: 2, False: 7}
"""Of one delivery, by whether it is a link."""


@pytest.mark.parametrize(
    ("can_link", "nth"),
    [(can_link, nth) for can_link, count in OPERATIONS.items() for nth in range(1, count + 1)],
)
def test_whatever_fails_no_partial_file_has_a_final_name_and_the_next_attempt_works(
    can_link: bool, nth: int
) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    archive.fault = fails_at(nth, errno.ENOSPC)
    expected = {archive_name(1, 1): scribe.files()[ONE]}
    if nth == 1:
        assert deliver(archive, scribe.directory, 1, scribe.log.durable_lsn), "it is copied instead"
    else:
        with pytest.raises(CannotArchive) as caught:
            deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
        said = str(caught.value)
        assert re.search(rf"archiving .*{ONE} in \(archive\)/.* failed: No space left", said), said
        assert all(name.endswith(".part") for name in archive.names())
        assert archive.names() == [] or nth == 6, "a full disk is not kept full"
        assert deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    assert archived(archive) == expected
    survivor = archive.files.after_power_loss()
    assert {name: bytes(survivor.read(name)) for name in survivor.names()} == expected


class Crash(Exception):
    """The process is gone."""


@pytest.mark.parametrize("is_power_lost", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize(
    ("can_link", "nth"),
    [(can_link, nth) for can_link, count in OPERATIONS.items() for nth in range(1, count + 1)],
)
@pytest.mark.parametrize("keeps", [False, True], ids=["unsynced is lost", "unsynced is kept"])
def test_after_a_crash_at_any_step_the_next_server_delivers_the_rest(
    can_link: bool, nth: int, is_power_lost: bool, keeps: bool
) -> None:
    scribe, archive = log_of(), archive_for(can_link)
    seen = 0

    def crash(operation: str, name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            raise Crash

    archive.fault = crash
    with pytest.raises(Crash):
        deliver(archive, scribe.directory, 1, scribe.log.durable_lsn)
    files = archive.files.after_kill()
    if is_power_lost:
        files = archive.files.after_power_loss(lambda: keeps, lambda size: [(0, size // 2)])
    left = {name: bytes(files.read(name)) for name in files.names()}
    whole = scribe.files()[ONE]
    assert left.get(archive_name(1, 1), whole) == whole, "never partial"

    archive.fault = lambda operation, name: None
    archive.folders[UUID.hex()] = files
    archive.open(UUID)
    deliver_rest(archive, scribe.directory, first=1)
    assert archived(archive) == {archive_name(1, 1): whole, archive_name(2, 4): scribe.files()[TWO]}


def test_a_segment_that_is_cut_short_is_not_archived() -> None:
    scribe, archive = log_of(), archive_for()
    files = edited(scribe.files(), ONE, lambda content: content[:5000])
    with pytest.raises(CannotArchive, match=f"{ONE} in .* failed: it ends at offset 5000"):
        deliver(archive, MemoryDirectory(files), 1, scribe.log.durable_lsn)
    assert archive.names() == []


@pytest.mark.parametrize("spoilt", [ONE, TWO])
def test_a_segment_whose_end_or_beginning_is_not_known_is_not_archived(spoilt: str) -> None:
    scribe, archive = log_of(), archive_for()
    files = edited(scribe.files(), spoilt, lambda content: flipped(content, 20))
    with pytest.raises(CannotArchive, match=f"{spoilt}: the header's checksum is wrong"):
        deliver(archive, MemoryDirectory(files), 1, scribe.log.durable_lsn)
    assert archive.names() == []


@pytest.mark.parametrize(
    ("archived_seqs", "oldest", "expected"),
    [
        ([], 1, None),
        ([], 7, None),
        ([1, 2, 3], 4, None),
        ([1, 2, 3], 2, None),
        ([1, 2, 3], 5, Gap(4, 4)),
        ([3], 9, Gap(4, 8)),
    ],
)
def test_a_gap_is_what_neither_the_archive_nor_the_log_has(
    archived_seqs: list[int], oldest: int, expected: Gap | None
) -> None:
    names = [archive_name(seq, seq * 10) for seq in archived_seqs]
    assert gap([*names, archive_name(99, 1) + ".part", "notes.txt"], oldest) == expected
