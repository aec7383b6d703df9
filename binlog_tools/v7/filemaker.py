"""
Writing the files of a log of beanstalkd, in the order in which the records come.

beanstalkd lines buried jobs up as they come in its files, so they wait in a `Spool` until their
order is known: a file, since bodies are never all held in memory.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory, File
from binlog_tools.v7.files import file_name
from binlog_tools.v7.records import V7, VERSION

DEFAULT_FILE_BYTES: Final = 10_485_760
"""beanstalkd's own default (``-s``)."""

MIN_FILE_BYTES: Final = 4_096
"""A block of beanstalkd's files."""

MAX_FILE_BYTES: Final = 1 << 30
"""beanstalkd keeps the size in 31 bits, and gives files up whole: larger ones help nobody."""

DEFAULT_MAX_BODY_SIZE: Final = 65_535
"""
The largest body, its CR LF included, that a beanstalkd loads without ``-z``; at a larger one it
skips the rest of the file.
"""

WRITE_BYTES: Final = 1 << 20
"""Records are gathered up to this before they are written."""

SPOOL: Final = "buried.spool"
"""Where buried jobs wait for their turn; gone when the export is done."""


class _Spooled(NamedTuple):
    """A buried job in the spool, in the order in which tuples compare: that of burial."""

    buried_ns: int
    job_id: int
    offset: int
    size: int
    body_size: int


class FileMaker:
    """
    Writes the files of a log of beanstalkd into an empty directory.

    :ivar files: how many there are; ``bytes``, of all of them.
    """

    def __init__(self, directory: Directory, file_bytes: int) -> None:
        self.files = 0
        self.bytes = 0
        self._directory = directory
        self._file_bytes = file_bytes
        self._file: File | None = None
        self._offset = self._gathered_bytes = 0
        self._gathered: list[bytes] = []
        self._is_alone = False

    def add(self, record: bytes, body_size: int = 0) -> None:
        """
        A record is never spread over two files.

        :param body_size: with its CR LF; one above the default limit gets a file of its own.
        """
        is_large = body_size > DEFAULT_MAX_BODY_SIZE
        is_full = self._offset + len(record) > self._file_bytes
        if self._file is None or is_large or self._is_alone or is_full:
            self._next()
        self._is_alone = is_large
        self._gather(record)

    def finish(self) -> None:
        """All of it is durable then, but for the name of the directory."""
        if self._file is None:
            # Without any file, there would be nothing that says that it is a log.
            self._next()
        self._end()
        self._directory.sync()

    def close(self) -> None:
        """Let go of a file that was not finished."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _next(self) -> None:
        self._end()
        self.files += 1
        self._file = self._directory.create(file_name(self.files))
        self._offset = 0
        self._gather(VERSION.pack(V7.version))

    def _gather(self, content: bytes) -> None:
        self._gathered.append(content)
        self._gathered_bytes += len(content)
        self._offset += len(content)
        self.bytes += len(content)
        if self._gathered_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        self._file.write_at(self._offset - self._gathered_bytes, self._gathered)
        self._gathered = []
        self._gathered_bytes = 0

    def _end(self) -> None:
        if self._file is None:
            return
        self._write()
        self._file.sync()
        self.close()


class Spool:
    """Buried jobs, in a file until their order is known."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._offset = 0
        self._spooled: list[_Spooled] = []

    def add(self, record: bytes, body_size: int, buried_ns: int, job_id: int) -> None:
        if self._file is None:
            self._file = self._directory.create(SPOOL)
        self._file.write_at(self._offset, [record])
        self._spooled.append(_Spooled(buried_ns, job_id, self._offset, len(record), body_size))
        self._offset += len(record)

    def records(self) -> Iterator[tuple[bytes, int]]:
        """
        The records and the sizes of their bodies, in the order of burial; the spool is gone then.
        """
        if self._file is None:
            return
        self.close()
        buffer = self._directory.read(SPOOL)
        for job in sorted(self._spooled):
            yield bytes(buffer[job.offset : job.offset + job.size]), job.body_size
        self._directory.remove(SPOOL)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
