"""The local log of a server that starts, and the check of its history against the stream."""

import os
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.segment import content_end, file_content_end, has_content
from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from beanstalk_twisted.binlog.records.others import Trim, decode_record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    TRAILER_BYTES,
    SegmentHeader,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.replication.followed_log import FollowedLog, Piece, Rejected
from beanstalk_twisted.replication.stream.interface import Message
from beanstalk_twisted.replication.stream.messages import Kind, MessageReader, Note, Write


class StreamHistory:
    """Segments of a stream as its messages describe them: their headers, in order, and ``trim_seq``
    below which they are dead.
    """

    def __init__(self) -> None:
        self.headers: list[SegmentHeader] = []
        self.trim_seq = 0
        self._log = FollowedLog()
        self._reader = MessageReader(0)

    def take(self, message: Message) -> None:
        found = self._reader.take(message)
        if isinstance(found, Note) and found.kind is Kind.FILL_BEGINS:
            self._log = FollowedLog()
            self._reader.discard_log()
        piece = self._log.take(found) if isinstance(found, Write) else None
        if not isinstance(piece, Piece):
            return
        self._reader.accept(piece.write)
        if piece.header is not None:
            self.headers.append(piece.header)
        self.trim_seq = max(self.trim_seq, _told_dead(piece))


def _told_dead(piece: Piece) -> int:
    told = 0 if piece.header is None else piece.header.trim_seq
    for frame, at in piece.of_types(frozenset({Trim.kind})):
        record = decode_record(*frames.whole_record(piece.write.content, frame, at))
        assert isinstance(record, Trim)
        told = max(told, record.seq)
    return told


def began_alone(
    ours: Sequence[SegmentHeader], common: int, theirs: Sequence[SegmentHeader]
) -> SegmentHeader | None:
    """The segment from which on a log was written without the stream; None if there is none.

    :param theirs: the headers in the stream from the incarnation ``common`` on.
    """
    known = {each.incarnation for each in theirs}
    before: SegmentHeader | None = None
    for header in ours:
        if header.incarnation > common:
            starts = before is not None and before.incarnation < header.incarnation
            if header.incarnation not in known or (starts and header not in theirs):
                return header
        before = header
    return None


def written_alone(path: str, url: str, began: SegmentHeader) -> Incompatible:
    return Incompatible(
        f"{path}: from {segment_name(began.seq)} on (incarnation {began.incarnation}) the log was "
        f"written without --replicate, or to a stream that was removed since: the jobs in it were "
        f"acknowledged, and {url} lacks them; nothing was changed. 'binlog-inspect diff {path} "
        f"{url}' shows them. Start without --replicate "
        f"to serve them; or move the directory away and start again: it is read from the stream. "
        f"If the stream has nothing that is wanted, purge it ({purge_command(url)}): it is filled "
        f"from this log then."
    )


def other_store(url: str, ours: bytes, theirs: bytes) -> Incompatible:
    return Incompatible(
        f"the log here is of store {ours.hex()}, that of {url} is of store {theirs.hex()}; nothing "
        f"was changed. Name the right stream with --replicate. If this log has the jobs, and the "
        f"stream was begun by a server with an empty log: end all servers, purge the stream "
        f"({purge_command(url)}), move away the logs that were begun, and start this one first. If "
        f"this log is not wanted any more: move its directory away and start again, it is filled "
        f"from the stream."
    )


def purge_command(url: str) -> str:
    return f"'nats stream purge {url.rpartition('/')[2]}'"


def torn(url: str, position: int) -> Incompatible:
    return Incompatible(
        f"{url}: behind message {position} some are missing that were more than heartbeats: "
        f"somebody has removed them; nothing was removed here. {filled_again(url)}"
    )


def not_whole(url: str, first: int, trim_seq: int) -> Incompatible:
    return Incompatible(
        f"{url}: it begins with {segment_name(first)}, but its log says that segments from "
        f"{segment_name(max(trim_seq, 1))} on are in use: somebody has purged it; nothing was "
        f"changed. {filled_again(url)}"
    )


def newer_message(url: str, position: int, why: str) -> Incompatible:
    return Incompatible(
        f"{url}: message {position}: {why}; nothing was lost. Install the version of the active "
        f"server here, then start again. If no server of another version was active, somebody else "
        f"has written that message: {taken_out(url, position)}"
    )


def purged_in_use(url: str, first: int, start: int) -> str:
    """:param start: of the first message in use; ``first`` is the first one that is left."""
    return (
        f"{url}: somebody has removed messages of the log that is in use: that begins at message "
        f"{start}, and what is left at {first}. Nothing is lost while these servers run; but a new "
        f"one cannot become a standby, and one that starts again, or in whose place another "
        f"becomes active, ends. Do not promote: stop the standbys, then the active server, each in "
        f"order; purge all of the stream ({purge_command(url)}); start the one first that was "
        f"active last: it fills the stream from its own log."
    )


def begins_nowhere(url: str) -> Incompatible:
    return Incompatible(
        f"{url}: no segment begins among its first messages, which are those of a queue: somebody "
        f"has purged it; nothing was changed. {filled_again(url)}"
    )


def taken_out(url: str, position: int) -> str:
    """:return: what to do about a message that looks like one of a queue, and is none."""
    name = url.rpartition("/")[2]
    return (
        f"end all servers, remove it ('nats stream rmm {name} {position}'), start them again, and "
        f"give the right to publish to {name}.log to the servers of the queue alone."
    )


def filled_again(url: str) -> str:
    return (
        f"End all servers, purge all of the stream if it is there ({purge_command(url)}), "
        f"and start the one first that was active last: it fills the stream from its own log."
    )


DIFFERS: Final = (
    "are not as in the stream, or follow what is not; they were cut off, and what the stream has "
    "is read from it. What it lacks was never acknowledged, unless NATS has lost it"
)
NOTHING_COMMON: Final = (
    "were removed: no whole segment here is as the stream has it, which is read from its first one"
)


class HistoryCheck:
    """Compares the log here with the stream, up to the first difference, and cuts what follows; in
    the I/O thread.

    :ivar has_cut: whether anything but zeros was cut.
    """

    def __init__(
        self, directory: Directory, first: int | None, notes: list[str], first_alive: int = 0
    ) -> None:
        """:param first: the segment; None if nothing is kept.
        :param first_alive: segments before it are dead, as the log here says.
        """
        self._first_alive = first_alive
        self._directory = directory
        self._notes = notes
        self._first = first
        self._ends: dict[int, int] = {}
        self._begun: tuple[int, int] = 0, 0
        self._log = FollowedLog()
        self._sealed: set[int] = set()
        self.has_cut = False

    @cached_property
    def _local(self) -> dict[int, int]:
        """Where the content of each segment here ends."""
        sizes: dict[int, int] = {}
        for name in self._directory.names():
            if (seq := parse_segment_name(name)) is not None:
                size = len(self._directory.read(name))
                sizes[seq] = file_content_end(self._directory, name, 0, size)
        return sizes

    @property
    def has_common(self) -> bool:
        """Return True if any write was the same."""
        return bool(self._ends)

    def compare(self, write: Write) -> bool | None:
        """:return: False if the local log lacks this write, or differs; None if it counts for
        nothing.
        """
        piece = self._log.take(write)
        if isinstance(piece, Rejected):
            return None
        seq = write.segment
        if piece.header is not None:
            self._end(seq - 1, piece.header.prev_end)
        if write.offset > self._local.get(seq, -1):
            return False
        here = bytes(self._directory.read(segment_name(seq), write.offset, write.end))
        if here != write.content:
            kept = here[: content_end(here, 0)]
            if write.content.startswith(kept):
                # The beginning of a write: as of the last second before a loss of power.
                self._begun = seq, write.offset + len(kept)
            return False
        self._ends[seq] = write.end
        if write.seals:
            self._sealed.add(seq)
        return True

    def _end(self, seq: int, end: int) -> None:
        """A segment ends there, since the next one begins; a trailer may follow."""
        if seq in self._ends and not (
            seq in self._sealed and self._ends[seq] == end + TRAILER_BYTES
        ):
            self._ends[seq] = end

    def _same_to(self, seq: int) -> int:
        """Where that ends which the stream has too."""
        begun, end = self._begun
        return max(self._ends.get(seq, 0), end if seq == begun else 0)

    def finish(self) -> None:
        assert self._first is not None
        for seq in sorted(self._local, reverse=True):
            if seq in self._ends:
                self._cut(seq, self._ends[seq])
            elif seq > self._first:
                self._remove(seq, DIFFERS)
        self._directory.sync()

    def would_cut(self) -> bool:
        """Return True if something here, from the first segment on, is not in the stream."""
        assert self._first is not None
        behind = [(seq, end) for seq, end in self._local.items() if seq >= self._first]
        return any(end > self._same_to(seq) for seq, end in behind)

    def remove_all(self) -> None:
        """Remove the log, with copies of what nobody else may have.  That the stream calls segments
        of these numbers dead says nothing of those here: a start without ``--replicate`` may have
        begun them.
        """
        for seq in sorted(self._local, reverse=True):
            self._remove(seq, NOTHING_COMMON)
        self._directory.sync()

    def _cut(self, seq: int, end: int) -> None:
        name = segment_name(seq)
        size = len(self._directory.read(name))
        if size <= end:
            return
        self._keep(name, self._same_to(seq), self._local[seq], DIFFERS)
        self.has_cut = self.has_cut or self._local[seq] > end
        self._directory.cut(name, end)

    def _remove(self, seq: int, why: str) -> None:
        name = segment_name(seq)
        if seq >= self._first_alive:
            self._keep(name, self._same_to(seq), self._local[seq], why)
        self.has_cut = True
        self._directory.remove(name)

    def _keep(self, name: str, start: int, end: int, why: str) -> None:
        """Copy what is there to the quarantine, if it is anything but zeros."""
        kept = bytes(self._directory.read(name, start, end))
        if has_content(kept, 0, len(kept)):
            path = self._directory.quarantine(f"{name}-{start}.unacknowledged", kept)
            self._notes.append(
                f"{name}: {len(kept)} bytes from offset {start} on {why}. A copy is in {path}"
            )


LOSS_NOTE: Final = "STREAM-LOST"
"""Of the file; it has one line, what was found."""


def has_loss_note(path: str) -> bool:
    """Whether there is a note in a directory, which is then not to be removed."""
    return os.path.lexists(os.path.join(path, LOSS_NOTE))


def leave_loss_note(directory: Directory, why: str) -> None:
    """:raise OSError: the note cannot be written."""
    if LOSS_NOTE in directory.names():
        return
    with closing(directory.create(LOSS_NOTE)) as file:
        file.write_at(0, [f"{why}\n".encode()])
        file.sync()
    directory.sync()


def why_left(directory: Directory) -> str | None:
    """:return: what the note says, nothing if the disk was full; None if there is none.
    :raise OSError: it cannot be read.
    """
    if LOSS_NOTE not in directory.names():
        return None
    return bytes(directory.read(LOSS_NOTE)).decode(errors="replace").rstrip("\0\n")


def remove_loss_note(directory: Directory) -> None:
    """:raise OSError: the note cannot be removed."""
    if LOSS_NOTE in directory.names():
        directory.remove(LOSS_NOTE)
        directory.sync()


def lost_by_stream(path: str, url: str, why: str) -> Incompatible:
    """The log here has what the stream lacks, and replies were given for it."""
    found = f" ({why})" if why else ""
    return Incompatible(
        f"{path}: {url} has lost what it had acknowledged, when this server was last there{found}, "
        f"and lacks some of the log here; nothing was changed. 'binlog-inspect diff {path} {url}' "
        f"shows which jobs. To go on with those of this log: {filled_again(url)} To go on with "
        f"those of the stream, move the directory away and start again."
    )


class LocalLog(NamedTuple):
    """:ivar first_bad: the first damaged segment; above all numbers if none is."""

    survey: Survey
    names_of_segments: list[str]
    first_bad: int

    @property
    def oldest_alive(self) -> int:
        """Number of the oldest segment that the log here does not call dead; 0 if there is none."""
        alive = set(self.names_of_segments) - set(self.survey.dead)
        return min((parse_segment_name(name) or 0 for name in alive), default=0)


def remove_segments(directory: Directory) -> None:
    for name in reversed(directory.names()):
        if parse_segment_name(name) is not None:
            directory.remove(name)
    directory.sync()


def look_at_log(directory: Directory) -> LocalLog:
    """:raise Incompatible: the log is of another version or kind."""
    survey = Survey(directory, lambda done, total: None, is_whole=False, is_archive=True)
    refusal = survey.refusal()
    if isinstance(refusal, Incompatible):
        raise refusal
    names = [name for name in survey.names if parse_segment_name(name) is not None]
    first_bad = min((problem.seq for problem in survey.problems), default=1 << 64)
    seqs = [segment.header.seq for segment in survey.segments]
    for before, after in pairwise(seqs):
        if after > before + 1:
            # What is missing between two is read behind the first of them.
            first_bad = min(first_bad, before)
    return LocalLog(survey, names, first_bad)


def read_followed(directory: Directory, progress: Progress) -> Replay:
    """Read a log all of which is in the stream.  :raise Damaged: some of it cannot be read."""
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    survey.refuse_if_unsound()
    return Replay(survey)


class NullReport:
    """A report of a load that nobody reads."""

    def read(self, done: int, total: int) -> None: ...

    def loaded(self, jobs: int) -> None: ...
