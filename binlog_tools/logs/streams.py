"""
A replicated stream as a log: its messages, put together to the files of which they are pieces.

The stream is read once, up to its end at that moment, into a temporary directory (``TMPDIR``); so
it takes as much room there as in the stream, and memory for one write only.
"""

import errno
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.replication.stream.door import Message, Stream, StreamError
from beanstalk_twisted.replication.stream.messages import (
    Assembler,
    Kind,
    Malformed,
    Part,
    Write,
    decode,
)
from beanstalk_twisted.replication.stream.opening import stream_at
from binlog_tools.logs.sources import NoLog, Source

R = TypeVar("R")


class Done(Protocol):
    """
    Gives the result of a future, when it is there.
    """

    def __call__(self, future: "Future[R]", /) -> R: ...


MOST_REMARKS: Final = 5
"""Damaged messages that are told one by one."""


class Assembly:
    """
    Files in a directory, made of messages.

    :ivar remarks: what of the messages could not be used, a line each.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.remarks: list[str] = []
        self._parts = Assembler()
        self._is_filling = False
        self._damaged = 0

    def take(self, message: Message) -> None:
        """
        :raise ValueError: a later version has written it.
        :raise OSError: a file cannot be written.
        """
        found = decode(message.payload)
        if isinstance(found, Malformed):
            self._note_damage(message.position, found)
        elif isinstance(found, Part):
            write = self._parts.add(found)
            if write is not None:
                self._write(write)
        elif found.kind == Kind.FILL_BEGINS:
            self._is_filling = True
            self._parts.fill_begins()
            for name in os.listdir(self.path):
                os.remove(os.path.join(self.path, name))
        elif found.kind == Kind.FILL_ENDS:
            self._is_filling = False

    def end(self) -> None:
        """
        There are no more messages.
        """
        if self._is_filling:
            self.remarks.append("it is still being filled, or was not to its end: jobs are missing")
        if self._damaged > MOST_REMARKS:
            self.remarks.append(f"{self._damaged - MOST_REMARKS} more messages are damaged")

    def files(self) -> Mapping[str, str]:
        """
        Paths of the segments, by name.
        """
        return {name: os.path.join(self.path, name) for name in os.listdir(self.path)}

    def _note_damage(self, position: int, found: Malformed) -> None:
        if found.is_newer:
            raise ValueError(
                f"a later version has written message {position}: {found.why}; read it with that"
                " version, nothing was changed"
            )
        self._damaged += 1
        if self._damaged <= MOST_REMARKS:
            self.remarks.append(f"message {position} is left out: {found.why}")

    def _write(self, write: Write) -> None:
        if write.begins:
            self._cut_predecessor(write)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if write.begins else 0)
        with os.fdopen(os.open(self._path_of(write.segment), flags, 0o600), "wb") as file:
            file.seek(write.offset)
            file.write(write.content)

    def _cut_predecessor(self, write: Write) -> None:
        header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
        before = self._path_of(write.segment - 1)
        if not isinstance(header, SegmentHeader) or not os.path.exists(before):
            return
        if 0 < header.prev_end < os.path.getsize(before):
            os.truncate(before, header.prev_end)

    def _path_of(self, segment: int) -> str:
        return os.path.join(self.path, segment_name(segment))


class StreamSource(Source):
    """
    A `Source` made of a stream.
    """

    has_ends = False

    def __init__(self, stream: Stream, done: Done) -> None:
        """
        :param stream: open.
        :raise OSError: it cannot be read; `NoLog`, there is no log in it.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="binlog-inspect-")
        self._assembly = Assembly(self._folder.name)
        super().__init__(stream.url, self._assembly.files)
        _read(stream, self._assembly, done)
        self._assembly.end()
        self.remarks += self._assembly.remarks
        if not self._assembly.files():
            raise NoLog(stream.url, "there is no log in this stream")

    @classmethod
    def at(cls, url: str) -> "StreamSource":
        """
        :raise OSError: it cannot be read; `NoLog`, there is none.
        """
        try:
            stream = stream_at(url)
            try:
                stream.open(makes=False).result()
                return cls(stream, Future.result)
            finally:
                stream.close().result()
        except StreamError as error:
            raise OSError(errno.EIO, str(error)) from None


def _read(stream: Stream, assembly: Assembly, done: Done) -> None:
    """
    Take all messages that are there now.
    """
    ends = done(stream.ends())
    if ends.is_empty:
        return
    is_over: Future[None] = Future()

    def receive(messages: Sequence[Message]) -> None:
        if is_over.done():
            return
        try:
            for message in messages:
                if message.position <= ends.last:
                    assembly.take(message)
            if messages[-1].position >= ends.last:
                is_over.set_result(None)
        except (OSError, ValueError) as error:
            is_over.set_exception(error)

    def ended(why: StreamError) -> None:
        if not is_over.done():
            is_over.set_exception(why)

    following = stream.follow(ends.first, receive, ended)
    try:
        done(is_over)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), stream.url) from None
    finally:
        following.stop()
