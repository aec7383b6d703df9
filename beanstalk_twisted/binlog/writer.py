"""
Carries batches out: the one place that writes, syncs and renames segments.  One thread calls it.

The order of its steps is the promise (docs/binlog-format.md, "Writing"): a predecessor is durable
before its successor exists, and a segment's content is durable before its name is.
"""

import contextlib
from collections.abc import Callable

from beanstalk_twisted.binlog.directory import Directory, File
from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.format import segment_name
from beanstalk_twisted.binlog.log import Batch


def spare_name(seq: int) -> str:
    """
    The name of a segment while it is being made.
    """
    return f"spare.{seq:020d}.tmp"


class Writer:
    """
    Writes the newest segment of a directory.

    After any `WriteFailed` it must not be used again: nothing is known about what reached the disk.
    """

    def __init__(self, directory: Directory, segment_bytes: int) -> None:
        """
        :param segment_bytes: how much space to allocate for each new segment.
        """
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._file: File | None = None
        self._name = ""
        self._is_naming = False

    def write(self, batch: Batch, sync: bool) -> bool:
        """
        Write a batch.

        :param sync: whether to return only when it is durable.
        :return: whether it is durable now; beginning or sealing a segment always syncs.
        :raise WriteFailed: the disk refused.
        """
        return self._guard(lambda: self._write(batch, sync))

    def sync(self) -> None:
        """
        Make all that was written durable.

        :raise WriteFailed: the disk refused.
        """
        if self._file is not None:
            self._guard(self._file.sync)

    def close(self) -> None:
        """
        Let go of the segment, without a sync.
        """
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def abandon(self) -> "Writer":
        """
        Never touch the segment again, after a `WriteFailed`.

        :return: a writer for the one that takes its place.
        """
        with contextlib.suppress(OSError):
            self.close()
        return Writer(self._directory, self._segment_bytes)

    def _write(self, batch: Batch, sync: bool) -> bool:
        if batch.begins:
            self._publish(batch)
        else:
            self._open_file.write_at(batch.offset, batch.chunks)
        if batch.seals:
            self._finish(batch.end)
        elif sync and not batch.begins:
            self._open_file.sync()
        return sync or batch.begins or batch.seals

    @property
    def _open_file(self) -> File:
        assert self._file is not None, "the log's first batch begins a segment"
        return self._file

    def _publish(self, batch: Batch) -> None:
        """
        Content first, then the name: a crash in between leaves the log as it was.
        """
        spare = spare_name(batch.seq)
        self._name = segment_name(batch.seq)
        self._file = self._create(spare)
        self._file.allocate(max(self._segment_bytes, batch.end))
        self._file.write_at(0, batch.chunks)
        self._file.sync()
        self._is_naming = True
        self._directory.rename(spare, self._name)
        self._directory.sync()
        self._is_naming = False

    def _create(self, spare: str) -> File:
        try:
            return self._directory.create(spare)
        except FileExistsError:
            # Left behind by an attempt that failed.
            self._directory.remove(spare)
            return self._directory.create(spare)

    def _finish(self, end: int) -> None:
        self._open_file.truncate(end)
        self._open_file.sync()
        self.close()

    def _guard(self, operation: "Callable[[], bool | None]") -> bool:
        try:
            return bool(operation())
        except OSError as problem:
            raise WriteFailed(
                f"writing {self._directory.path}/{self._name} failed: {problem.strerror}; "
                f"no reply was given for what is not on disk. "
                f"Mend the disk, run 'binlog-inspect check {self._directory.path}', start again.",
                is_final=self._is_naming,
            ) from problem
