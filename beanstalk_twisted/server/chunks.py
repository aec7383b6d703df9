"""
The quick path: a chunk goes to `Pipeline.carry_out` as it came.

What the pipeline leaves is done in the modes of `BeanstalkProtocol`, the reference: both keep the
same state, so each can go on where the other has stopped.
"""

from beanstalk_twisted.server.commands import MAX_LINE_BYTES, Parsed
from beanstalk_twisted.server.pipeline import ALL, CRLF, LEFT, STOPPED
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.server.recognition import recognise


class ChunkProtocol(BeanstalkProtocol):
    """
    One connection, quickly.
    """

    __slots__ = ()

    def dataReceived(self, data: bytes) -> None:
        """
        See `received`.
        """
        self.received(data, self._shell.now_ns())

    def received(self, data: bytes, now_ns: int) -> None:
        """
        Carry out what has come, as far as that may be done now.
        """
        self._buffer = self._buffer + data if self._buffer else data
        if self._busyReceiving:
            return
        if not self._is_resting:
            self._share_ends_ns = now_ns + self._shell.common.share_ns
        self._busyReceiving = True
        try:
            while self._buffer and not self.paused:
                if not self.line_mode:
                    self._take_raw()
                elif not self._take_lines(now_ns):
                    break
                now_ns = self._shell.now_ns()
        finally:
            self._busyReceiving = False
        self._end_chunk()

    def setLineMode(self, extra: bytes = b"") -> None:
        """
        A body or a long line has ended; `dataReceived` goes on behind it.
        """
        self.line_mode = 1
        self._buffer = extra

    def _take_raw(self) -> None:
        data, self._buffer = self._buffer, b""
        self.rawDataReceived(data)

    def _take_lines(self, now_ns: int) -> bool:
        """
        Carry out the commands that have wholly come.

        :return: whether there may be more to do.
        """
        pipeline = self.pipeline
        try:
            ending = pipeline.carry_out(self._buffer, now_ns, self._share_ends_ns)
        except BaseException:
            if not pipeline.line:
                self.break_off()
                return False
            self._say(self._shell.fault(pipeline.line))
            ending = STOPPED
        self._buffer = self._buffer[pipeline.at :]
        if ending == ALL:
            return bool(self._buffer)
        if ending == LEFT:
            return self._take_line()
        self._rest_if_due()
        self._update_pause()
        return True

    def _take_line(self) -> bool:
        """
        :return: whether there was one.
        """
        data = self._buffer
        end = data.find(CRLF, 0, MAX_LINE_BYTES)
        if end >= 0:
            self._buffer = data[end + len(CRLF) :]
            self.lineReceived(data[:end])
        elif len(data) >= MAX_LINE_BYTES:
            self.lineLengthExceeded(b"")
        else:
            return False
        return True

    def _parse(self, line: bytes) -> Parsed:
        return recognise(line)
