"""A replicated stream as a log: its messages, put together to the files that they are of."""

import errno
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from beanstalk_twisted.binlog.files import LocalFiles
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.replication.stream.addresses import credential_warnings, stream_at
from beanstalk_twisted.replication.stream.interface import Message, Stream, StreamError
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    Malformed,
    MessageReader,
    Note,
    Write,
    is_of,
)
from binlog_tools.logs.sources import NoLog, Source

R = TypeVar("R")


class Done(Protocol):
    """Gives the result of a future, when it is there."""

    def __call__(self, future: "Future[R]", seconds: float | None = None, /) -> R:
        """:raise TimeoutError: it is not there after so many seconds; None for as long as it
        takes.
        """


LOOK_S: Final = 0.5
"""Between two looks whether more is to come, seconds."""

MOST_REMARKS: Final = 5


class Assembly:
    """Files in a directory, made of messages."""

    def __init__(self, path: str, first: int) -> None:
        """:param first: position of the first message."""
        self.path = path
        self.remarks: list[str] = []
        self._reader = MessageReader(first - 1)
        self._damaged = 0
        self._headers: dict[int, SegmentHeader] = {}
        self._end = 0, 0

    def take(self, message: Message) -> None:
        """:raise ValueError: a later version has written the message.
        :raise OSError: a file cannot be written.
        """
        match found := self._reader.take(message):
            case Malformed():
                self._note_damage(message.position, found)
            case Write():
                self._take_write(found)
            case Note():
                self._take_note(found)

    def _take_note(self, note: Note) -> None:
        if note.kind == Kind.FILL_BEGINS:
            self._reader.discard_log()
            self._headers.clear()
            self._end = 0, 0
            for name in os.listdir(self.path):
                os.remove(os.path.join(self.path, name))
        elif note.kind != Kind.FILL_ENDS:
            self._reader.gaps.told_of(note.last_lsn, self._reader.last_lsn)

    def end(self) -> None:
        mark, gaps = self._reader.mark, self._reader.gaps
        if mark.is_filling and not mark.has_ended:
            self.remarks.append("it is still being filled, or was not to its end: jobs are missing")
        if gaps.is_torn:
            self.remarks.append(
                f"behind message {gaps.since} some are missing that were more than heartbeats"
            )
        if self._damaged > MOST_REMARKS:
            self.remarks.append(f"{self._damaged - MOST_REMARKS} more messages are damaged")

    def _note_damage(self, position: int, found: Malformed) -> None:
        if found.is_newer:
            raise ValueError(
                f"a later version has written message {position}: {found.why}; read it with that"
                " version, nothing was changed"
            )
        self._damaged += 1
        if self._damaged <= MOST_REMARKS:
            self.remarks.append(f"message {position} is left out: {found.why}")

    def _take_write(self, write: Write) -> None:
        header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
        if write.begins and isinstance(header, SegmentHeader):
            if self._headers.get(write.segment) == header:
                # Sent again; what follows it was not all sent again perhaps.
                return
            self._headers[write.segment] = header
        known = self._headers.get(write.segment)
        if known is not None and not is_of(write, known):
            # A server that was fenced has left it.
            return
        if self._goes_on(write, known):
            self._reader.accept(write)
            self._end = write.segment, write.end
        elif write.begins and self._reader.gaps.since is None and not self._damaged:
            # What comes before it was refused, and its server ended before it sent all again.
            del self._headers[write.segment]
            return
        else:
            self._reader.reject(write)
        self._write(write)

    def _goes_on(self, write: Write, header: SegmentHeader | None) -> bool:
        if not write.begins:
            return (write.segment, write.offset) == self._end
        last_lsn = self._reader.last_lsn
        return header is None or not last_lsn or header.first_lsn <= last_lsn + 1

    def _write(self, write: Write) -> None:
        if write.begins:
            header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
            end = header.prev_end if isinstance(header, SegmentHeader) else 0
            before = self._path_of(write.segment - 1)
            if end > 0 and os.path.exists(before) and end < os.path.getsize(before):
                os.truncate(before, end)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if write.begins else 0)
        with os.fdopen(os.open(self._path_of(write.segment), flags, 0o600), "wb") as file:
            file.seek(write.offset)
            file.write(write.content)

    def _path_of(self, segment: int) -> str:
        return os.path.join(self.path, segment_name(segment))


class StreamSource(Source):
    """A `Source` made of a stream, which is read once, up to its end at that moment, into a
    temporary directory (``TMPDIR``): it takes as much room there as in the stream.

    :raise OSError: it cannot be read; `NoLog`, there is no log in it.
    """

    has_ends = False

    def __init__(self, stream: Stream, done: Done) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="binlog-inspect-")
        super().__init__(LocalFiles(self._folder.name))
        self.path = stream.url
        self.remarks += _read(stream, self._folder.name, done)
        if not self.names():
            raise NoLog(stream.url, "there is no log in this stream")

    @classmethod
    def at(cls, url: str) -> "StreamSource":
        warnings = credential_warnings(os.environ)
        try:
            stream = stream_at(url)
            try:
                stream.open(makes=False).result()
                source = cls(stream, Future.result)
            finally:
                stream.close().result()
        except StreamError as error:
            raise OSError(errno.EIO, ". ".join([str(error), *warnings])) from None
        source.remarks += warnings
        return source


def _is_done(future: "Future[None]", done: Done) -> bool:
    try:
        done(future, LOOK_S)
    except TimeoutError:
        return False
    return True


def _read(stream: Stream, path: str, done: Done) -> list[str]:
    """:return: remarks."""
    ends = done(stream.ends())
    if ends.is_empty:
        return []
    assembly = Assembly(path, ends.first)
    is_over: Future[None] = Future()
    received = ends.first - 1

    def receive(messages: Sequence[Message]) -> None:
        nonlocal received
        if is_over.done():
            return
        try:
            for message in messages:
                if message.position <= ends.last:
                    assembly.take(message)
            received = messages[-1].position
            if received >= ends.last:
                is_over.set_result(None)
        except (OSError, ValueError) as error:
            is_over.set_exception(error)

    def ended(why: StreamError) -> None:
        if not is_over.done():
            is_over.set_exception(why)

    following = stream.follow(ends.first, receive, ended)
    try:
        while not _is_done(is_over, done):
            # The last ones may have expired.
            before = received
            left = done(stream.read(before + 1))
            if before == received and (left is None or left.position > ends.last):
                break
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), stream.url) from None
    finally:
        following.stop()
    assembly.end()
    return assembly.remarks
