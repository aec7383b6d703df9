"""
Comparing a local log with what the stream says, write by write, and making it the same.

What the stream lacks, and what it has otherwise, is copied to ``quarantine/`` before it is cut off
or written anew.
"""

from typing import Final

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.reading.segment import content_end, file_content_end, has_content
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.replication.followed_log import FollowedLog, Stray
from beanstalk_twisted.replication.stream.messages import Write

NOT_IN_STREAM: Final = (
    "are not in the stream: unless NATS has lost them, no reply was given for them. They were cut "
    "off"
)
NOTHING_COMMON: Final = (
    "were removed: no whole segment here is as the stream has it, which is read from its first one"
)
"""Of bytes that were here, what a note says."""


class Comparison:
    """
    Compares the local log from a segment on with what the stream says, and makes it the same.  In
    the I/O thread.
    """

    def __init__(
        self, directory: Directory, first: int | None, notes: list[str], heals: bool = True,
        first_alive: int = 0,
    ) -> None:  # fmt: skip
        """
        :param first: the segment; None if nothing is kept.
        :param notes: gets what is done.
        :param heals: whether what is another than in the stream is mended; else that ends it.
        :param first_alive: segments before it are dead, as the log here says.
        """
        self._first_alive = first_alive
        self._heals = heals
        self._directory = directory
        self._notes = notes
        self._first = first
        self._ends: dict[int, int] = {}
        self._log = FollowedLog()
        self._sealed: set[int] = set()
        self._sizes: dict[int, int] | None = None
        self._why = NOT_IN_STREAM

    @property
    def _local(self) -> dict[int, int]:
        """Where the content of each segment here ends."""
        if self._sizes is None:
            self._sizes = {}
            for name in self._directory.names():
                seq = parse_segment_name(name)
                if seq is not None:
                    size = len(self._directory.read(name))
                    self._sizes[seq] = file_content_end(self._directory, name, 0, size)
        return self._sizes

    def compare(self, write: Write) -> bool | None:
        """
        :return: False if this is the first write that the local log lacks altogether, or has
            another one instead of which others follow; None if it counts for nothing.
        """
        if isinstance(self._log.take(write), Stray):
            return None
        local, seq = self._local, write.segment
        if write.begins:
            header = _header_of(write)
            if header is not None:
                self._end(header.seq - 1, header.prev_end)
        newest, name = max(local, default=0), segment_name(seq)
        if seq > newest or (seq == newest and write.offset >= local[seq]):
            return False
        if seq not in local:
            if not self._heals:
                return False
            self._directory.create(name).close()
            local[seq] = 0
        here = bytes(self._directory.read_part(name, write.offset, write.end))
        head = slice(0, SEGMENT_HEADER_BYTES)
        if write.begins and here[head] != write.content[head]:
            sound = decode_segment_header(here[head])
            if isinstance(sound, SegmentHeader):
                # Another server has begun this segment: what is here was never acknowledged.
                return False
        if here != write.content:
            if not self._heals:
                self._note_beginning(write, here)
                return False
            self._heal(name, write, here)
        self._ends[seq] = write.end
        if write.seals:
            self._sealed.add(seq)
        return True

    def _note_beginning(self, write: Write, here: bytes) -> None:
        """What is here may be the beginning of a write."""
        kept = here[: content_end(here, 0)]
        if write.content.startswith(kept):
            self._ends[write.segment] = write.offset + len(kept)

    def _end(self, seq: int, end: int) -> None:
        """A segment ends there, since the next one begins; a trailer may follow."""
        if seq in self._ends and not (
            seq in self._sealed and self._ends[seq] == end + TRAILER_BYTES
        ):
            self._ends[seq] = end

    def _heal(self, name: str, write: Write, here: bytes) -> None:
        kept = here[: content_end(here, 0)]
        if kept and not write.content.startswith(kept):
            path = self._directory.quarantine(f"{name}-{write.offset}.damaged", kept)
            self._notes.append(
                f"{name}: {len(kept)} bytes from offset {write.offset} on are not what the stream "
                f"has; they were written anew from there. A copy is in {path}"
            )
        else:
            # As of the last second before a kill, or of a filling that this server had begun.
            self._notes.append(
                f"{name}: what the log here did not have, from offset "
                f"{write.offset + len(kept)} on, was written from the stream; nothing was lost"
            )
        file = self._directory.open(name)
        try:
            file.write_at(write.offset, [write.content])
            file.sync()
        finally:
            file.close()

    def finish(self) -> None:
        """Cut what the stream lacks."""
        assert self._first is not None
        for seq in sorted(self._local, reverse=True):
            if seq in self._ends:
                self._cut(seq, self._ends[seq])
            elif seq > self._first:
                self._remove(seq)
        self._directory.sync()

    def would_cut(self) -> bool:
        """Whether `finish` would cut anything but zeros."""
        assert self._first is not None
        behind = [(seq, end) for seq, end in self._local.items() if seq >= self._first]
        return any(end > self._ends.get(seq, 0) for seq, end in behind)

    def remove_all(self) -> None:
        """
        Nothing here can be gone on with: keep copies of what nobody else may have, and begin anew.
        That the stream calls segments of these numbers dead says nothing of those here: a start
        without ``--replicate`` may have begun them.
        """
        self._why = NOTHING_COMMON
        for seq in sorted(self._local, reverse=True):
            self._remove(seq)
        self._directory.sync()

    def _cut(self, seq: int, end: int) -> None:
        name = segment_name(seq)
        size = len(self._directory.read(name))
        if size <= end:
            return
        rest = self._directory.read_part(name, end, size)
        if has_content(rest, 0, len(rest)):
            kept = bytes(rest[: content_end(rest, 0)])
            self._tell(name, end, kept)
        self._directory.cut(name, end)

    def _remove(self, seq: int) -> None:
        name = segment_name(seq)
        if seq >= self._first_alive:
            content = self._directory.read(name)
            self._tell(name, 0, bytes(content[: self._local[seq]]))
            del content
        self._directory.remove(name)

    def _tell(self, name: str, offset: int, kept: bytes) -> None:
        path = self._directory.quarantine(f"{name}-{offset}.unacknowledged", kept)
        self._notes.append(
            f"{name}: {len(kept)} bytes from offset {offset} on {self._why}. A copy is in {path}"
        )


def _header_of(write: Write) -> SegmentHeader | None:
    header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
    return header if isinstance(header, SegmentHeader) else None
