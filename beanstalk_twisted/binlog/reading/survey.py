"""Looks at every byte of a log that carries meaning, and says what is wrong.  Changes nothing.
Differs from beanstalkd: a damaged log is refused; there, the rest of a damaged file is skipped.
"""

import shlex
from array import array
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.errors import BinlogError, Damaged, Incompatible
from beanstalk_twisted.binlog.files import TO_END, Files
from beanstalk_twisted.binlog.reading.segment import (
    Ending,
    file_content_end,
    is_trailer,
    walk_to_hole,
)
from beanstalk_twisted.binlog.reading.survival import LogState
from beanstalk_twisted.binlog.records.others import NotUnderstood, UnknownRecord
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    is_unfinished,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

Progress = Callable[[int, int], None]
"""Called now and then with bytes read and bytes in all."""

PROGRESS_FRAMES: Final = 4096
"""Frames between two calls of a `Progress`: a few milliseconds."""

NamedHeader = tuple[str, SegmentHeader | HeaderProblem]
"""A file's name, and what it begins with."""


class Segment(NamedTuple):
    """A segment whose header is sound.

    :ivar frame_offsets: where its good frames start, in order.
    :ivar has_trailer: whether it was sealed, and a trailer, and nothing else, follows its frames.
    """

    name: str
    header: SegmentHeader
    size: int
    frame_offsets: "array[int]"
    ending: Ending
    has_trailer: bool

    def frame(self, buffer: Buffer, offset: int) -> Frame:
        """The frame at one of ``frame_offsets`` of what `Survey.read` gives.  Only one segment
        should be held at a time: each costs a file descriptor.
        """
        return frames.known(buffer, offset)


class TornTail(NamedTuple):
    """The bytes at the end of the log that are not known to have been durable."""

    name: str
    offset: int
    end: int
    first_lsn: int
    why: str

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.end - self.offset} bytes from offset {self.offset} on are torn "
            f"(LSN {self.first_lsn} and later, not known to be durable): {self.why}"
        )


class Problem(NamedTuple):
    """Why a server refuses this log.

    :ivar foreign: the bytes are sound, but of another version or store.
    :ivar option: what lets ``binlog-inspect salvage`` continue all the same.
    :ivar lsns: the first and the last of those that were not read; 0 and 0 if it is not about some.
    :ivar is_newer: the bytes are of a format that this version does not know.
    """

    seq: int
    what: str
    foreign: bool = False
    option: str = ""
    lsns: tuple[int, int] = (0, 0)
    is_newer: bool = False


class Survey:
    """A log as found.  The rule that tells a torn tail from damage is in docs/binlog-format.md,
    "Reading".

    :ivar segments: those whose header is sound and which still count, oldest first.
    :ivar dead: names of files that a TRIM has freed, or that were being made.
    :ivar problems: why a server must not use it; empty when it may.
    :ivar durable_lsn: the highest LSN that some checked bytes vouch for.
    :ivar unchecked: the segments whose bodies were not looked at.
    """

    def __init__(
        self, directory: Files, progress: Progress, is_whole: bool = True,
        is_archive: bool = False, leaves_bodies: bool = False,
    ) -> None:  # fmt: skip
        """:raise Incompatible: a log of the C beanstalkd is there.
        :param is_whole: whether the first segments must be there; not so in an archive.
        :param is_archive: whether the newest segment is finished, too: a crash has torn nothing.
        :param leaves_bodies: whether heaps with nothing but bodies are not looked at, in segments
            with a successor; that of the newest says what is torn.
        """
        self._leaves_bodies = leaves_bodies
        self.unchecked: list[Segment] = []
        self._is_archive = is_archive
        self.is_whole = is_whole
        self.path = directory.path
        self.directory = directory
        self.segments: list[Segment] = []
        self.problems: list[Problem] = []
        self.dead: list[str] = []
        self.small = LogState()
        self._smalls: dict[int, LogState] = {}
        self._progress = progress
        self._read_done = 0
        self._store_uuid: bytes | None = None
        self.names = directory.names()
        refuse_beanstalkds(self.path, self.names)
        self._survey(directory, self.names)
        self._settle()

    def read(self, segment: Segment, start: int = 0, end: int = TO_END) -> Buffer:
        return self.directory.read(segment.name, start, end)

    def refuse_if_unsound(self) -> None:
        """:raise Damaged: durable records cannot be read.
        :raise Incompatible: it is of another version, kind or store.
        """
        if error := self.refusal():
            raise error

    def refusal(self) -> BinlogError | None:
        """The error that a server ends with, or None if it may start."""
        if not self.problems:
            return None
        whats = "\n  ".join(problem.what for problem in self.problems)
        if any(problem.is_newer for problem in self.problems):
            return unknown_format(self.path, whats)
        if any(problem.foreign for problem in self.problems):
            return Incompatible(
                f"not a usable binlog: {self.path}; nothing was changed:\n  {whats}"
            )
        return Damaged(
            f"damaged binlog: {self.path}; nothing was changed:"
            f"\n  {whats}\nRun 'binlog-inspect check {self.path}' to see it all, and "
            f"'{self.salvage_command}' to get all that is not damaged."
        )

    @property
    def salvage_command(self) -> str:
        """The command that makes a sound log of what is left."""
        options = dict.fromkeys(problem.option for problem in self.problems if problem.option)
        return " ".join([salvage_command(self.path), *options])

    @property
    def torn(self) -> TornTail | None:
        """The torn tail, if there is one."""
        if not self.segments or not self.segments[-1].ending.problem:
            return None
        newest = self.segments[-1]
        ending = newest.ending
        end = file_content_end(self.directory, newest.name, ending.offset, newest.size)
        return TornTail(newest.name, ending.offset, end, ending.next_lsn, ending.problem)

    def _survey(self, directory: Files, names: list[str]) -> None:
        """Headers first, since each says where its predecessor ends; then all frames."""
        self.dead += [n for n in names if is_unfinished(n)]
        numbered = {seq: n for n in names if (seq := parse_segment_name(n)) is not None}
        self._read_total = 0
        named: dict[int, NamedHeader] = {}
        for seq, name in sorted(numbered.items()):
            buffer = directory.read(name)
            self._read_total += len(buffer)
            named[seq] = (name, decode_segment_header(bytes(buffer[:SEGMENT_HEADER_BYTES])))
            del buffer  # One segment at a time is mapped: a limit on memory counts it.
        claimed = under_their_numbers(named)
        self._judge_names(named, claimed)
        headers = {
            seq: (name, header)
            for seq, (name, header) in claimed.items()
            if isinstance(header, SegmentHeader) and self._is_of_this_store(seq, name, header)
        }
        for seq, (name, header) in headers.items():
            successor = headers[seq + 1][1] if seq + 1 in headers else None
            self._walk(name, directory.read(name), header, successor, max(claimed))
        trim_seq = max((small.trim_seq for small in self._smalls.values()), default=0)
        for seq, small in self._smalls.items():
            if seq >= trim_seq:
                self.small.update(small)
        self._find_gaps(set(claimed))
        self.dead += [name for seq, name in numbered.items() if seq < self.small.trim_seq]

    def _judge_names(
        self, named: Mapping[int, NamedHeader], claimed: Mapping[int, NamedHeader]
    ) -> None:
        """Refuse headers that cannot be used, and names that are not those of their segments."""
        for seq, (name, header) in named.items():
            if isinstance(header, HeaderProblem):
                what = f"{name}: {header.why}"
                option = "" if header.foreign else "--rebuild-header"
                self.problems.append(
                    Problem(seq, what, header.foreign, option, is_newer=header.foreign)
                )
            elif header.seq != seq:
                what = f"{name}: its header says that it is segment {header.seq}"
                # A needless copy under a dead name does no harm.
                is_copy = claimed[header.seq][0] != name
                self.problems.append(Problem(seq if is_copy else max(seq, header.seq), what))

    def _is_of_this_store(self, seq: int, name: str, header: SegmentHeader) -> bool:
        if self._store_uuid not in (None, header.store_uuid):
            what = f"{name}: it belongs to another store ({header.store_uuid.hex()})"
            self.problems.append(Problem(seq, what, foreign=True))
            return False
        self._store_uuid = header.store_uuid
        return True

    def _walk(
        self, name: str, buffer: Buffer, header: SegmentHeader,
        successor: SegmentHeader | None, newest_seq: int,
    ) -> None:  # fmt: skip
        end = successor.prev_end if successor else None
        if end is None and len(buffer) == SEGMENT_HEADER_BYTES and not self.is_whole:
            # Finished: all its frames were re-homed.
            end = SEGMENT_HEADER_BYTES
        offsets = array("Q")
        small = self._smalls[header.seq] = LogState()
        small.note_header(header)
        leaves_bodies = self._leaves_bodies and successor is not None
        for found in walk_to_hole(buffer, header, end, leaves_bodies):
            if isinstance(found, Ending):
                break
            try:
                small.note_frame(buffer, found, header.seq)
            except NotUnderstood as problem:
                what = f"{name}: offset {found.offset}, LSN {found.base_lsn}: {problem}"
                is_newer = isinstance(problem, UnknownRecord)
                self.problems.append(Problem(header.seq, what, foreign=True, is_newer=is_newer))
            offsets.append(found.offset)
            if not len(offsets) % PROGRESS_FRAMES:
                self._progress(self._read_done + found.end, self._read_total)
        assert isinstance(found, Ending)
        self._read_done += len(buffer)
        self._progress(self._read_done, self._read_total)
        has_trailer = is_trailer(buffer, found.offset, len(buffer))
        self.segments.append(Segment(name, header, len(buffer), offsets, found, has_trailer))
        if header.seq != newest_seq:
            self._check_join(name, header.seq, found, successor)

    def _check_join(
        self, name: str, seq: int, ending: Ending, successor: SegmentHeader | None
    ) -> None:
        """All of a segment that has a successor was durable."""
        if ending.problem:
            last = successor.first_lsn - 1 if successor else "?"
            what = (
                f"{name}: offset {ending.offset}: LSN {ending.next_lsn} to {last} "
                f"cannot all be read: {ending.problem}"
            )
            lsns = (ending.next_lsn, successor.first_lsn - 1) if successor else (0, 0)
            self.problems.append(Problem(seq, what, lsns=lsns))
        elif successor and successor.first_lsn != ending.next_lsn:
            what = (
                f"{name}: ends with LSN {ending.next_lsn - 1}, "
                f"its successor begins with LSN {successor.first_lsn}"
            )
            self.problems.append(Problem(seq, what))

    def _find_gaps(self, present: set[int]) -> None:
        needed = sorted(seq for seq in present if seq >= self.small.trim_seq)
        before = max(self.small.trim_seq, 1) - 1 if self.is_whole else min(needed, default=1) - 1
        for seq in needed:
            if seq != before + 1:
                last = f" to {segment_name(seq - 1)}" if seq - before > 2 else ""
                what = (
                    f"{segment_name(before + 1)}{last}: missing; "
                    f"{segment_name(seq)} builds on what was there"
                )
                option = f"--accept-gap {before + 1}" + (f"-{seq - 1}" if last else "")
                self.problems.append(Problem(seq, what, option=option))
            before = seq

    def last_watermark(self, newest: Segment) -> int:
        """Return what the last frame says is durable."""
        end = newest.ending.offset
        for at in newest.frame_offsets[-1:]:
            return newest.frame(self.read(newest, at, end), 0).durable_lsn
        return 0

    def _settle(self) -> None:
        """Leave out what is dead, and judge the tail of the newest segment by the watermark."""
        trim_seq = self.small.trim_seq
        self.segments = [s for s in self.segments if s.header.seq >= trim_seq]
        self.unchecked = self.segments[:-1] if self._leaves_bodies else []
        self.problems = [p for p in self.problems if p.seq >= trim_seq or not p.seq]
        self.durable_lsn = 0
        if not self.segments:
            return
        newest = self.segments[-1]
        ending = newest.ending
        self.durable_lsn = max(
            max(s.header.first_lsn - 1 for s in self.segments),
            self.last_watermark(newest),
            ending.witness_lsn,
        )
        if self._is_archive and ending.problem:
            self.durable_lsn = max(self.durable_lsn, ending.next_lsn)
        if self.small.is_clean or self._is_archive:
            self.durable_lsn = max(self.durable_lsn, ending.next_lsn - 1)
        if ending.problem and ending.next_lsn <= self.durable_lsn:
            what = (
                f"{newest.name}: offset {ending.offset}: LSN {ending.next_lsn} to "
                f"{self.durable_lsn} were durable and cannot all be read: {ending.problem}"
            )
            lsns = (ending.next_lsn, self.durable_lsn)
            self.problems.append(Problem(newest.header.seq, what, lsns=lsns))


def under_their_numbers(named: Mapping[int, NamedHeader]) -> dict[int, NamedHeader]:
    """Each file under the number that its header says, ascending.  A file whose name says the same,
    or whose header says nothing, has the number before one that was copied or renamed.
    """

    def said(seq: int) -> int:
        header = named[seq][1]
        return header.seq if isinstance(header, SegmentHeader) else seq

    found: dict[int, NamedHeader] = {}
    for seq in sorted(named, key=lambda seq: (said(seq) != seq, seq)):
        found.setdefault(said(seq), named[seq])
    return dict(sorted(found.items()))


def unknown_format(path: str, what: str) -> Incompatible:
    """The error of a log in a format that this version does not know; ``what`` says where."""
    return Incompatible(
        f"not a usable binlog: {path}; nothing was changed:\n  {what}\nThe log is not damaged as "
        f"far as this version can tell. Install the version that wrote it, or a newer one, then "
        f"run: binlog-inspect check {shlex.quote(path)}",
        is_unknown_format=True,
    )


def salvage_command(path: str) -> str:
    return f"binlog-inspect salvage {shlex.quote(path)} -o NEW_DIRECTORY"


def import_command(path: str) -> str:
    """The command that makes a log of ours of the C beanstalkd's in ``path``."""
    return shlex.join(["binlog-inspect", "import-v7", path, "-o", _converted(path)])


def _converted(path: str) -> str:
    return f"{path.rstrip('/')}.tql"


def refuse_beanstalkds(path: str, names: list[str]) -> None:
    """:raise Incompatible: a log of the C beanstalkd is among these files of a directory."""
    if theirs := beanstalkd_file(names):
        raise Incompatible(
            f"not a usable binlog: {path}; nothing was changed:\n  it holds {theirs}, a log of the "
            f"C beanstalkd. Convert it: {import_command(path)}, "
            f"then start with --binlog {shlex.quote(_converted(path))}",
            is_unknown_format=True,
        )


def beanstalkd_file(names: list[str]) -> str | None:
    """The first of these files that is a log of the C beanstalkd."""
    return next((n for n in names if n.startswith("binlog.") and n[7:].isdigit()), None)
