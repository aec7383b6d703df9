"""
The oracle of the executor: the same protocol, one plain step at a time.

Each line is matched by the pattern of its row, and each body is waited for until all of it is
there.  What is not about commands (held replies, flow, who is served when) is the server's own.
"""

from __future__ import annotations

from collections.abc import Callable

from beanstalk_twisted.jobs.puts import Draft
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.server.bindings import METHODS
from beanstalk_twisted.server.connection_host import ConnectionHost
from beanstalk_twisted.server.protocol import BeanstalkFactory, BeanstalkProtocol
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import MODERN, Dialect, Parsed
from beanstalk_twisted.wire.extensions import MAX_BATCH_LINE_BYTES
from beanstalk_twisted.wire.grammar import ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, EXPECTED_CRLF, JOB_TOO_BIG, Reply

CRLF = b"\r\n"


class OracleProtocol(BeanstalkProtocol):
    """
    A connection whose commands are carried out in the plainest way.
    """

    def __init__(self, host: ConnectionHost, dialect: Dialect = MODERN) -> None:
        super().__init__(host, dialect)
        self._step: Callable[[], bool] = self._take_command
        self._command: Command | None = None
        self._put: tuple[Parsed, Draft] | None = None
        self._missing = 0

    def received(self, data: bytes, now_ns: int) -> None:
        """
        See `BeanstalkProtocol.received`.
        """
        self._input += data
        if self._is_executing:
            return
        if not self._is_resting:
            self._share_ends_ns = now_ns + self._context.share_ns
        self._is_executing = True
        while self._input and self._may_go_on() and self._step():
            self._heed()
        self._is_executing = False
        self._end_chunk()

    def answer(self, answer: Answer) -> None:
        """
        See `BeanstalkProtocol.answer`.
        """
        write = None if self._command is None else self._command.write
        reply, lsn = answer
        encoded = reply.encode() if write is None else write(reply)
        if not encoded:
            self._quit()
            return
        self.replies.add(encoded, lsn)
        if not self._is_executing:
            self._turns.send_soon(self.replies)

    def _may_go_on(self) -> bool:
        """
        Whether nothing is in the way, once the peer has cancelled what it waits for.
        """
        line, found, _ = self._input.partition(CRLF)
        if self.paused and found and line == b"cancel-reserve" and self.dialect is MODERN:
            answer = self._context.queue.cancel_wait(self.session)
            if answer is not None:
                self.answer(answer)
            self._update_pause()
        return not self.paused

    def _say(self, reply: Reply) -> None:
        self.answer((reply, 0))

    def _take_command(self) -> bool:
        most = MAX_LINE_BYTES
        if self.dialect is MODERN and self._input.startswith(b"delete-batch "):
            most = MAX_BATCH_LINE_BYTES
        line, found, _ = self._input[:most].partition(CRLF)
        if found:
            self._input = self._input[len(line) + len(CRLF) :]
            self._obey(line)
        elif len(line) == most:
            self._step = self._skip_line
        return bool(found) or self._step == self._skip_line

    def _obey(self, line: bytes) -> None:
        queue, now_ns = self._context.queue, self._context.now_ns()
        self._command = None
        try:
            parsed = self.dialect.parse_by_pattern(line)
        except ParseError as error:
            queue.count(error.counter)
            self._say(error.reply)
            return
        command, args, _ = parsed
        self._command = command
        queue.count(command.counter)
        if command.ends_connection:
            self._quit()
        elif command.has_body:
            self._begin_body(parsed)
        else:
            self._end(METHODS[command.operation](queue, self.session, now_ns, *args))

    def _begin_body(self, parsed: Parsed) -> None:
        queue = self._context.queue
        _, (*_, size), has_junk = parsed
        self._missing = size + len(CRLF)
        if size > queue.max_job_bytes:
            self._step = self._skip_body
        elif has_junk:
            self._say(BAD_FORMAT)
        else:
            self._put = parsed, queue.begin_put(self.session, self._context.now_ns())
            self._step = self._take_body

    def _take_body(self) -> bool:
        if len(self._input) < self._missing:
            return False
        assert self._put is not None
        (parsed, draft), self._step = self._put, self._take_command
        body, self._input = self._input[: self._missing], self._input[self._missing :]
        if not body.endswith(CRLF):
            self._say(EXPECTED_CRLF)
            return True
        queue, now_ns = self._context.queue, self._context.now_ns()
        priority, delay_s, ttr_s, _ = parsed[1]
        body = body.removesuffix(CRLF)
        self._end(queue.put(self.session, now_ns, draft, priority, delay_s, ttr_s, body))
        return True

    def _skip_body(self) -> bool:
        skipped = min(self._missing, len(self._input))
        self._input = self._input[skipped:]
        self._missing -= skipped
        if not self._missing:
            self._step = self._take_command
            self._say(JOB_TOO_BIG)
        return True

    def _skip_line(self) -> bool:
        _, found, rest = self._input.partition(CRLF)
        if found:
            self._input, self._step = rest, self._take_command
            self._say(BAD_FORMAT)
            return True
        # Its end may begin with the last byte.
        self._input = self._input[-1:]
        return False

    def _end(self, answer: Answer | None) -> None:
        self._context.deliver()
        if answer is not None:
            self.answer(answer)


class OracleFactory(BeanstalkFactory):
    """
    Makes an `OracleProtocol` for each connection.
    """

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """
        See `BeanstalkFactory.buildProtocol`.
        """
        return OracleProtocol(self._host, self._dialect)
