"""
The local log of a standby: what the active server has written, at the same places.

It is written as it comes and synced once a second, by the same `Writer` as any log, so that the
order of names and syncs is that of docs/binlog-format.md, "Writing".
"""

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.replication.followed_log import Piece
from beanstalk_twisted.storage.io_thread import Clock, Io

SYNC_S: Final = 1.0
"""Seconds between two syncs: what a power loss takes is read from the stream again."""


class SegmentFiles:
    """The files, in the I/O thread."""

    def __init__(self, directory: Directory, segment_bytes: int) -> None:
        """:param segment_bytes: that a new file is given ahead."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._writer = Writer(directory)
        self._is_dirty = False

    def go_on(self, seq: int) -> None:
        """The next writes go into this segment, which is there."""
        self._writer.resume(seq)

    def write(self, pieces: list[Piece], trim_seq: int) -> None:
        """
        Write, in order; then remove what is dead by then.

        :param trim_seq: segments below are dead, as these pieces say, or others before.
        :raise WriteFailed: the disk refused.
        """
        for piece in pieces:
            self._write(piece)
        if trim_seq:
            self._remove(lambda seq: seq < trim_seq)

    def sync(self) -> None:
        """
        Make durable what was written.

        :raise WriteFailed: the disk refused.
        """
        if self._is_dirty:
            self._writer.sync()
            self._is_dirty = False

    def close(self) -> None:
        """
        Make durable what was written, and let go of the segment.

        :raise WriteFailed: the disk refused.
        """
        self.sync()
        self._writer.close()

    def _write(self, piece: Piece) -> None:
        write = piece.write
        file = None
        if write.begins:
            # A predecessor is durable before its successor has a name.
            self.close()
            size = max(self._segment_bytes, len(write.content))
            file = PreallocatedSegment(write.segment, size, False)
        batch = Batch(
            write.segment, write.offset, (write.content,), write.last_lsn, file, write.seals, False
        )
        self._is_dirty = not self._writer.write(batch, sync=False)
        if piece.cut is not None:
            self._cut(*piece.cut, write.segment)

    def _cut(self, before: int, end: int, seq: int) -> None:
        """A segment has begun, and is durable: nothing that was in its place is needed."""
        self._remove(lambda each: each > seq)
        name = segment_name(before)
        if name in self._directory.names():
            self._directory.cut(name, end)

    def _remove(self, is_dead: Callable[[int], bool]) -> None:
        for name in self._directory.names():
            seq = parse_segment_name(name)
            if seq is not None and is_dead(seq):
                # The record that says so is durable before.
                self.sync()
                self._directory.remove(name)


class LogCopy:
    """
    Hands pieces to the I/O thread, all that have come meanwhile at a time.

    :ivar waiting_bytes: of pieces that are not written.
    """

    def __init__(
        self, files: SegmentFiles, io: Io, reactor: Clock, failed: Callable[[Failure], None]
    ) -> None:
        """:param failed: called once, when the disk has refused."""
        self.waiting_bytes = 0
        self._files = files
        self._io = io
        self._reactor = reactor
        self._failed = failed
        self._pieces: list[Piece] = []
        self._trim_seq = self._trimmed = 0
        self._is_writing = self._has_failed = False
        self._idle: list[Deferred[None]] = []
        self._syncing: IDelayedCall | None = None

    def begin(self, seq: int) -> None:
        """The next pieces go on in this segment; 0: they begin one."""
        if seq:
            self._is_writing = True
            self._io.run(lambda: self._files.go_on(seq)).addCallbacks(
                lambda _: self._written(0), self._refused
            )

    def stop(self) -> None:
        """Write nothing more."""
        self._has_failed = True
        self._stop_syncs()

    def add(self, piece: Piece) -> None:
        """Write this next."""
        self._pieces.append(piece)
        self.waiting_bytes += len(piece.write.content)
        self._go_on()

    def trim(self, seq: int) -> None:
        """Segments below are dead, as pieces say that were added."""
        if seq > self._trimmed:
            self._trim_seq = self._trimmed = seq
            self._go_on()

    async def close(self) -> None:
        """
        Nothing more comes: write all, make it durable, and let go of it.

        :raise WriteFailed: the disk refused.
        """
        self._stop_syncs()
        while self._is_writing:
            idle: Deferred[None] = Deferred()
            self._idle.append(idle)
            await idle
        if not self._has_failed:
            await self._io.run(self._files.close)

    def _stop_syncs(self) -> None:
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None

    def _go_on(self) -> None:
        if self._is_writing or self._has_failed or not (self._pieces or self._trim_seq):
            return
        pieces, self._pieces = self._pieces, []
        trim_seq, self._trim_seq = self._trim_seq, 0
        size = sum(len(piece.write.content) for piece in pieces)
        self._is_writing = True
        writing = self._io.run(lambda: self._files.write(pieces, trim_seq))
        writing.addCallbacks(lambda _: self._written(size), self._refused)

    def _written(self, size: int) -> None:
        self._is_writing = False
        self.waiting_bytes -= size
        if self._syncing is None:
            self._syncing = self._reactor.callLater(SYNC_S, self._sync)
        self._go_on()
        self._tell_idle()

    def _sync(self) -> None:
        self._syncing = None
        self._io.run(self._files.sync).addErrback(self._refused)

    def _refused(self, failure: Failure) -> None:
        self._is_writing = False
        self._stop_syncs()
        if not self._has_failed:
            self._has_failed = True
            self._failed(failure)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self._is_writing:
            idle, self._idle = self._idle, []
            for each in idle:
                each.callback(None)
