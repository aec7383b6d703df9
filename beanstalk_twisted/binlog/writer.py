"""Writes, syncs and names the segments of an open log."""

import contextlib
import errno
from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.directory import Directory, File
from beanstalk_twisted.binlog.errors import MORE_DESCRIPTORS, NoSpace, WriteFailed
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, a quota or a limit on the size of files leaves no space."""

ADVICE: Final = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space or raise the quota",
    errno.EFBIG: "Raise the limit on the size of files ('ulimit -f', LimitFSIZE of the unit)",
    errno.EROFS: "Mount the file system to be written",
    errno.EMFILE: MORE_DESCRIPTORS,
    errno.ENFILE: MORE_DESCRIPTORS,
}
"""What to do about an error of the disk; of any other: mend it."""


def spare_name(number: int) -> str:
    return f"spare.{number:020d}.tmp"


class Writer:
    """Writes the newest segment of a directory.  One thread at a time calls it.

    The order of its steps is the promise (docs/binlog-format.md, "Writing"): a predecessor is
    durable before its successor exists, and a segment's content is durable before its name is.

    After any `WriteFailed` but `NoSpace` it must not be used again: nothing is known about what
    reached the disk.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._seq = 0
        self._is_naming = self._is_syncing = False

    def prepare(self, segment: PreallocatedSegment) -> None:
        """Allocate the space for a segment ahead.  If it raises, no start keeps what is left."""
        try:
            self._make(segment).close()
        except OSError as problem:
            what = "no space for another segment: "
            raise self._refusal(problem, spare_name(segment.number), what) from problem

    def discard(self, segments: Sequence[PreallocatedSegment]) -> None:
        for segment in segments:
            # The next start removes what is left.
            with contextlib.suppress(OSError):
                self._directory.remove(spare_name(segment.number))

    def resume(self, seq: int) -> None:
        try:
            self._file, self._seq = self._directory.open(segment_name(seq)), seq
        except OSError as problem:
            raise self._refusal(problem, segment_name(seq)) from problem

    def write(self, batch: Batch, sync: bool) -> bool:
        """Write a batch.

        :param sync: whether to return only when it is durable.
        :return: whether it is durable now; beginning or sealing a segment always syncs.
        :raise WriteFailed: the disk refused; `NoSpace` if it is full: the batch may be written
            again.
        """
        self._seq = batch.seq
        try:
            if batch.file:
                self._publish(batch, batch.file)
            file = self._file
            assert file is not None, "the log's first batch begins a segment"
            if not batch.file:
                file.write_at(batch.offset, batch.chunks)
                if sync and not batch.seals:
                    self._sync(file)
            if batch.seals:
                self._seal(file, batch.end)
        except OSError as problem:
            raise self._refusal(
                problem, segment_name(batch.seq), "no space for the newest changes: ",
                "no space for the newest changes, which wait: ",
            ) from problem  # fmt: skip
        return sync or batch.syncs

    def end(self, batch: Batch, preallocated: Sequence[PreallocatedSegment]) -> None:
        """Write the last batch, durably, and give the space back that was made ready ahead."""
        self.write(batch, sync=True)
        self.discard(preallocated)

    def sync(self) -> None:
        if self._file is None:
            return
        try:
            self._sync(self._file)
        except OSError as problem:
            raise self._refusal(problem, segment_name(self._seq)) from problem

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def displaced(self) -> str:
        """Look whether the segment is still where the next start looks for it, and whether other
        servers are still kept out.

        :return: empty if so, or if none is open; else what is not in place, and what became of it.
        """
        name = segment_name(self._seq)
        if self._file is None:
            return ""
        if where := self._directory.displaced(name, self._file):
            return f"{name} {where}"
        lock = self._directory.lost_lock()
        return f"{lock}, which keeps other servers out, was deleted or replaced" if lock else ""

    def _seal(self, file: File, end: int) -> None:
        file.truncate(end)
        self._sync(file)
        self.close()

    def _publish(self, batch: Batch, segment: PreallocatedSegment) -> None:
        """Content first, then the name: a crash in between leaves the log as it was."""
        made = spare_name(segment.number)
        self._file = self._directory.open(made) if segment.is_ready else self._make(segment)
        try:
            self._file.write_at(0, batch.chunks)
        except OSError:
            with contextlib.suppress(OSError):
                self.close()
            if not segment.is_ready:
                self.discard((segment,))
            raise
        self._sync(self._file)
        self._is_naming = True
        self._directory.rename(made, segment_name(batch.seq))
        self._directory.sync()
        self._is_naming = False

    def _make(self, segment: PreallocatedSegment) -> File:
        """A file that has its space, or none at all."""
        name = spare_name(segment.number)
        file = self._directory.create(name)
        try:
            file.allocate(segment.size)
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
            # Else the next try would find it there.
            self.discard((segment,))
            raise
        return file

    def _sync(self, file: File) -> None:
        self._is_syncing = True
        file.sync()
        self._is_syncing = False

    def _refusal(self, problem: OSError, name: str, what: str = "", waits: str = "") -> WriteFailed:
        """:param what: what to say if there is no space.
        :param waits: the same where the write is tried again.
        """
        path = self._directory.path
        refusal: WriteFailed
        if problem.errno in NO_SPACE and not (self._is_naming or self._is_syncing):
            refusal = NoSpace(
                f"binlog {path}: {what}{problem.strerror}; nothing was lost. "
                f"{ADVICE[problem.errno]}, then start it again.",
                f"binlog {path}: {waits or what}{problem.strerror}; "
                f"nothing was lost. {ADVICE[problem.errno]}; it is tried again every second.",
            )
        else:
            advice = ADVICE.get(problem.errno or 0, "Mend the disk")
            refusal = WriteFailed(
                f"writing {path}/{name} failed: {problem.strerror}; "
                f"with --fsync always no reply was given for what is not on disk. "
                f"{advice}, run 'binlog-inspect check {path}', start again."
            )
        # Where this is compiled, `raise` with `from` does not set it.
        refusal.__cause__ = problem
        return refusal
