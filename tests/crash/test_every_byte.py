"""Damage at every byte: a log cut at each place, and one bit flipped in each byte.

A server then either finds the same jobs, or refuses by name, or, where nobody can tell damage from
a torn tail, finds all that came before it.  It never finds anything else, nor fails otherwise.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple

import pytest

from beanstalk_twisted.binlog.errors import BinlogError, Damaged, Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import NO_DATA, JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import Pause, Record, TubeDef
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES, segment_name
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    image,
    put,
    quiet,
)
from tests.sampling import SHARE, one_in, share
from tests.storage.test_opening import Started

ONE, TWO = segment_name(1), segment_name(2)
MAIL = TubeDef(2, b"mail", T0)

BATCHES: Final[list[list[Record]]] = [
    [MAIL, put(1, b"one"), put(2, b"two" * 30, tube_id=2)],
    [image(Kind.RESERVE, 1, state=State.RESERVED, reserves=1, deadline_ns=T0 + NS)],
    [delete(1), put(3, b"x" * 3200)],
    [put(4, b"four"), image(Kind.BURY, 2, state=State.BURIED, deadline_ns=T0 + 5, tube_id=2)],
    [Pause(2, 500, T0 + 500 * NS, T0)],
    [put(5, b""), delete(4)],
]
"""They fill one segment and begin another."""


@cache
def log_of(has_marks: bool = True, is_stopped: bool = False) -> dict[str, bytes]:
    """A log whose every batch was promised.

    :param has_marks: whether it fell idle after each.
    :param is_stopped: whether it was ended in order; else the process was killed.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE, MAIL])
    for batch in BATCHES:
        scribe.write(*batch)
        if has_marks and not scribe.log.has_open:
            scribe.mark()
    if is_stopped:
        scribe.finish()
    files = scribe.files()
    assert sorted(files) == [ONE, TWO]
    return files


class Outcome(NamedTuple):
    """What becomes of a log.

    :ivar jobs: what a server loads; None if it refuses.
    :ivar last_lsn: where the log ends for it, ``is_torn`` whether it says that a tail is torn.
    """

    jobs: dict[int, JobImage] | None
    pauses: list[Pause]
    last_lsn: int
    is_torn: bool
    problem: str = ""


SurveyClass = Callable[[MemoryDirectory], Survey]


def shipped(directory: MemoryDirectory) -> Survey:
    return Survey(directory, quiet)


def outcome(files: Files, survey_of: SurveyClass = shipped) -> Outcome:
    """Let a server read it.

    :raise AssertionError: the refusal does not say what it must, or something was changed.
    """
    directory = MemoryDirectory(files)
    try:
        survey = survey_of(directory)
        survey.refuse_if_unsound()
        found = Replay(survey)
        jobs = {each.image.job_id: each.image for each in found.survivors(T0)}
    except BinlogError as problem:
        check_refusal(problem)
        assert directory.operations == 0
        return Outcome(None, [], 0, False, str(problem))
    last_lsn = survey.segments[-1].ending.next_lsn - 1 if survey.segments else 0
    return Outcome(
        jobs, [pause for pause, _ in found.others(T0, [Pause])], last_lsn, survey.torn is not None
    )


def check_refusal(problem: BinlogError) -> None:
    """It names the file, and for a frame its offset and LSN."""
    text = str(problem)
    assert (type(problem), problem.exit_code) in [(Damaged, 65), (Incompatible, 78)]
    assert ".tql: " in text
    assert "nothing was changed" in text
    of_headers = ("the header's checksum", "shorter than its header", "begin as a segment")
    is_of_header = any(words in text for words in of_headers)
    assert is_of_header or re.search(r"offset \d+: LSN \d+ to ", text), text


class Verdicts(NamedTuple):
    """How many changes of a log had which outcome."""

    same: int
    refused: int
    torn: list[tuple[str, int]]
    other: list[tuple[str, int]]


def judge(
    original: Files, changes: Iterator[tuple[str, int, Files]], survey_of: SurveyClass = shipped
) -> Verdicts:
    """What becomes of each change: the same, a refusal, all up to some record behind which nothing
    was known durable, or something else.
    """
    sound = outcome(original)
    same, refused = 0, 0
    torn: list[tuple[str, int]] = []
    other: list[tuple[str, int]] = []
    for name, offset, files in changes:
        found = outcome(files, survey_of)
        if found.jobs is None:
            refused += 1
        elif (found.jobs, found.pauses) == (sound.jobs, sound.pauses):
            same += 1
        elif is_prefix(original, files, found):
            torn.append((name, offset))
        else:
            other.append((name, offset))
    return Verdicts(same, refused, torn, other)


def is_prefix(original: Files, files: Files, found: Outcome) -> bool:
    """It is all up to a record, and no byte that is left bears witness to a later one."""
    watermark = independent_reader.read_log(files)["durable_lsn"]
    if found.last_lsn < watermark:
        return False
    expected = outcome(prefix(found.last_lsn))
    return (found.jobs, found.pauses) == (expected.jobs, expected.pauses)


@cache
def prefix(last_lsn: int) -> dict[str, bytes]:
    scribe = Scribe(opening=[DEFAULT_TUBE, MAIL])
    for batch in BATCHES:
        if scribe.log.last_lsn + len(batch) > last_lsn:
            break
        scribe.write(*batch)
    return scribe.files()


def flips(files: Files) -> Iterator[tuple[str, int, Files]]:
    """One bit flipped in each byte, another bit in each."""
    for name, raw in files.items():
        for offset in one_in(SHARE, range(len(raw))):
            yield name, offset, {**files, name: flipped(raw, offset, (offset * 5 + 3) % 8)}


def cuts(files: Files, name: str) -> Iterator[tuple[str, int, Files]]:
    for size in one_in(SHARE, range(len(files[name]))):
        yield name, size, {**files, name: files[name][:size]}


# Flips.


@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_no_bit_flip_changes_what_was_promised(is_stopped: bool) -> None:
    files = log_of(is_stopped=is_stopped)
    verdicts = judge(files, flips(files))
    assert verdicts.other == []
    # Each batch is confirmed by what is behind it, so nothing is taken for a torn tail.
    assert verdicts.torn == []
    assert verdicts.refused > share(2 * SEGMENT_HEADER_BYTES + 2000)
    assert verdicts.same > share(100), (
        "padding, the space behind the end, the last mark, the trailer"
    )


def test_without_a_last_mark_only_the_last_frame_can_be_taken_for_torn() -> None:
    """It is what docs/binlog-format.md says a sync mark is for."""
    files = log_of(has_marks=False)
    segment = independent_reader.segment_of(files[TWO])
    last = range(segment["frames"][-1]["offset"], segment["end"])
    verdicts = judge(files, flips(files))
    assert verdicts.other == []
    assert verdicts.torn
    assert all(name == TWO and offset in last for name, offset in verdicts.torn)


def test_no_bit_flip_takes_what_a_start_has_re_homed() -> None:
    """It was promised, and the segment that now holds it was durable before it had its name."""
    directory = MemoryDirectory(log_of(has_marks=False))
    started = Started(directory, now_ns=T0)
    files = files_of(directory)
    newest = max(files)
    before = started.jobs()
    for offset in one_in(SHARE, range(SEGMENT_HEADER_BYTES, len(files[newest]))):
        left = {**files, newest: flipped(files[newest], offset)}
        found = outcome(left)
        assert found.jobs is None or found.jobs.keys() == before.keys(), offset


# Cuts.


def test_a_segment_with_a_successor_cannot_be_cut_unseen() -> None:
    files = log_of()
    segment = independent_reader.segment_of(files[ONE])
    for _, size, cut in cuts(files, ONE):
        found = outcome(cut)
        assert (found.jobs is None) == (size < segment["end"]), size


@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_the_newest_segment_cut_anywhere_is_what_it_was_at_some_time(is_stopped: bool) -> None:
    files = log_of(is_stopped=is_stopped)
    verdicts = judge(files, cuts(files, TWO))
    assert verdicts.other == []
    assert verdicts.refused == len(one_in(SHARE, range(first_frame_end(files[TWO]))))


def first_frame_end(raw: bytes) -> int:
    """Up to where a segment is durable before it has its name, whatever follows."""
    segment = independent_reader.segment_of(raw)
    return SEGMENT_HEADER_BYTES + int(segment["frames"][0]["frame_len"])


def test_a_start_on_a_log_cut_anywhere_leaves_a_sound_log() -> None:
    """The whole start, on each distinct kind of cut."""
    files = log_of()
    segment = independent_reader.segment_of(files[TWO])
    for frame in segment["frames"][1:]:
        for within in (0, 1, 8, 63, 64, 65, frame["frame_len"] - 1):
            cut = {**files, TWO: files[TWO][: frame["offset"] + within]}
            started = Started(MemoryDirectory(cut), now_ns=T0)
            after = started.directory.after_power_loss()
            assert Started(after, now_ns=T0).jobs() == started.jobs()


# Flaws that must be found.


class ChecksumEndsTheLog(Survey):
    """Whatever cannot be read in the newest segment is where the log ends."""

    def refuse_if_unsound(self) -> None:
        newest = self.segments[-1].header.seq if self.segments else 0
        self.problems = [problem for problem in self.problems if problem.seq != newest]
        self.durable_lsn = min(self.durable_lsn, self.segments[-1].ending.next_lsn - 1)
        super().refuse_if_unsound()


def test_it_is_found_if_a_wrong_checksum_ends_the_log() -> None:
    """This loses what was promised after one flipped bit."""
    files = log_of()
    changes = ((name, at, left) for name, at, left in flips(files) if name == TWO and at % 7 == 0)
    verdicts = judge(files, changes, lambda directory: ChecksumEndsTheLog(directory, quiet))
    assert verdicts.other


def test_it_is_found_if_sync_marks_are_left_out() -> None:
    """A bit of the last promise is flipped, while the server is idle."""
    last = put(5, b"").encode(NO_DATA)
    unmarked, marked = (
        outcome(edited(log_of(has_marks), TWO, lambda raw: flipped(raw, raw.rindex(last))))
        for has_marks in (False, True)
    )
    assert unmarked.is_torn, "what was promised is dropped as if it had not been"
    assert "were durable and cannot all be read" in marked.problem
