"""
The wire, on Twisted: one `BeanstalkProtocol` for each connection.

`LineReceiver` cuts lines; the rest is four modes, of which one is on at a time::

    lines      lineReceived: parse, execute, answer
    body       raw: size + 2 bytes of a job
    skip body  raw: size + 2 bytes of a job that is too big, then JOB_TOO_BIG
    skip line  raw: a line of more than 224 bytes up to its CR LF, then BAD_FORMAT

Replies leave in order.  They are gathered, and sent as one when all that has come is carried out.
If by then the disk does not have all that they tell of, they are held as one, and so are all behind
them; those before the first such one are sent alone.  So a turn whose records are written
at its end holds nothing: of round trips on 50 connections with a log and no fsync that
saves 1.2 of 10 µs a command, the kernel's part left aside (unoptimised CPython 3.11).

Flow: the parser rests when the connection has had its share of a turn, and lets others have theirs:
a client that has little to ask is never behind all that others have sent.  It stops while
a `reserve` waits, while a large kick runs, while the peer does not
read its replies or too many are held.  The socket is still read then, so that a hang-up is
noticed, until `MAX_BUFFERED_BYTES` wait to be parsed.  So a connection costs a bounded amount of
memory, whatever its peer does: that buffer, one body, `MAX_HELD_BYTES` of replies and what the
transport buffers, `MAX_GATHERED_BYTES` included.

Differs from beanstalkd: only CR LF ends a line, wherever else a CR may stand, and a line that is
too long costs one BAD_FORMAT; there, a bare CR stalls the connection, and some long lines swallow
the next command.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.jobs.puts import Draft
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.commands import MAX_LINE_BYTES, MODERN, Dialect, Parsed
from beanstalk_twisted.server.epoll_reader import SocketSource
from beanstalk_twisted.server.outlet import Outlet, total_bytes
from beanstalk_twisted.server.pipeline import CRLF, Pipeline
from beanstalk_twisted.server.shell import Shell
from beanstalk_twisted.wire.grammar import ParseError
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    EXPECTED_CRLF,
    JOB_TOO_BIG,
    OUT_OF_MEMORY,
    JobReply,
    Reply,
)

MAX_BUFFERED_BYTES: Final = 64 << 10
"""Unparsed input above which the socket is not read: one read of Twisted's."""

MAX_HELD_BYTES: Final = 1 << 20
"""
Bytes of held replies above which no further command is parsed: a pipeline of tens of thousands of
puts for one group commit.
"""


@implementer(IHalfCloseableProtocol)
class BeanstalkProtocol(LineReceiver):
    """
    One connection.

    :ivar dialect: what it speaks.
    """

    delimiter = CRLF
    MAX_LENGTH = MAX_LINE_BYTES - len(CRLF)
    log = Logger()

    # So many attributes would make a dictionary of their own in each connection: 1.7 KB of 4.4, and
    # with 1,000 connections, whose memory no cache holds, a tenth of our own time a command.
    __slots__ = (
        "_aside", "_buffer", "_busyReceiving", "_chunks", "_feed", "_held_bytes",
        "_is_half_closed", "_is_leaving", "_is_output_full", "_is_reading", "_is_resting",
        "_missing", "_outlet", "_put",
        "_raw", "_share_ends_ns", "_shell", "_write", "dialect", "line_mode", "paused", "pipeline",
        "session", "transport",
    )  # fmt: skip

    session: Session
    transport: Any
    """An ITransport that is also an IConsumer and an IPushProducer."""

    _outlet: Outlet
    pipeline: Pipeline
    _buffer: bytes
    _busyReceiving: bool

    def __init__(self, shell: Shell, dialect: Dialect = MODERN) -> None:
        self.dialect = dialect
        self.transport = None
        self.line_mode = 1
        self.paused = self._busyReceiving = False
        self._buffer = b""
        self._shell = shell
        # How the answer to the newest command is written.  It is given before the next one begins.
        self._write: Callable[[Reply], bytes] | None = None
        self._aside = b""
        self._raw: Mode = BeanstalkProtocol._skip_line
        self._missing = 0
        self._chunks: list[bytes] = []
        self._feed: SocketSource | None = None
        self._put: tuple[Parsed, Draft] | None = None
        self._held_bytes = 0
        self._is_output_full = False
        self._is_reading = True
        self._is_half_closed = False
        self._is_leaving = False
        self._is_resting = False
        self._share_ends_ns = 0

    # What Twisted calls.

    def connectionMade(self) -> None:
        """
        Small replies leave at once, and a peer that vanished is found out.
        """
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self._outlet = Outlet(self.transport, self)
        self._feed = self._shell.feed(self)
        self.session = self._shell.connected(self)
        self.pipeline = Pipeline(self._shell.common, self.session, self._outlet, self)

    def dataReceived(self, data: bytes) -> None:
        """
        `LineReceiver` leaves its loop when a line is too long, with the rest unparsed: feed it
        what was laid aside.
        """
        if self._busyReceiving:
            super().dataReceived(data)
            return
        if not self._is_resting:
            self._share_ends_ns = self._shell.now_ns() + self._shell.common.share_ns
        super().dataReceived(data)
        while self._aside and not self._is_resting:
            aside, self._aside = self._aside, b""
            super().dataReceived(aside)
        self._end_chunk()

    def received(self, data: bytes, now_ns: int) -> None:
        """
        As `dataReceived`, from who knows the time.
        """
        self.dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        """
        A command line has come.
        """
        if not self._is_leaving:
            self._attempt(BeanstalkProtocol._obey, line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """
        Skip the line up to its end, which may be in ``line`` or yet to come.
        """
        self._aside = line
        self._raw = BeanstalkProtocol._skip_line
        self.setRawMode()

    def rawDataReceived(self, data: bytes) -> None:
        """
        Bytes for the mode that is on.
        """
        self._attempt(self._raw, data)

    def readConnectionLost(self) -> None:
        """
        The peer will send no more; what it has sent is still carried out, then we part.
        """
        self._is_half_closed = True
        self._shell.half_closed(self.session)
        self._part_when_done()

    def writeConnectionLost(self) -> None:
        """
        Nobody hears our replies.
        """
        self._stop_reading()
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Give the session's jobs back.  What belongs to the connection refers to it no more: its
        memory is free at once, and a storm of connections is no work for the garbage collector.
        """
        self._is_leaving = self.paused = True
        self._stop_reading()
        self.pipeline.forget()
        self._outlet.forget()
        self._chunks.clear()
        self._shell.disconnected(self.session)

    def pauseProducing(self) -> None:
        """
        The peer does not read its replies.
        """
        self._is_output_full = True
        self._update_pause()

    def resumeProducing(self) -> None:
        """
        The peer has read its replies.
        """
        self._is_output_full = False
        self._go_on_in_turn()

    def stopProducing(self) -> None:
        """
        The connection ends; `connectionLost` says so too.
        """

    # What the service calls.

    def answer(self, answer: Answer) -> None:
        """
        Send a reply as soon as it may be seen, and all before it are.
        """
        reply = answer.reply
        try:
            if self._write is None and isinstance(reply, JobReply):
                self.pipeline.add_job(reply, answer.lsn)
            elif encoded := reply.encode() if self._write is None else self._write(reply):
                self.pipeline.add(encoded, answer.lsn)
            else:
                # The dialect has no word for it: nothing that follows could be understood.
                self._quit()
                return
            if not self._busyReceiving:
                # Whoever is not carrying out what has come has nothing to wait for.
                self._shell.send_soon(self)
        except Exception:
            self.break_off()

    def rested(self) -> None:
        """
        Others have had their turn: parse on.
        """
        self._is_resting = False
        self._go_on()

    def unblocked(self) -> None:
        """
        The answer that the session waited for was given: parse on.
        """
        self._go_on()

    def release(self) -> bool:
        """
        Send the held replies that may be seen by now.

        :return: whether others are still held.
        """
        output = self.pipeline.take_settled()
        has_more = bool(self.pipeline.held)
        if output:
            self._held_bytes -= total_bytes(output)
            self._outlet.write(output)
            if self.paused or self._is_half_closed:
                self._go_on_in_turn()
        return has_more

    def refuse_commands(self) -> None:
        """
        The server stops: what was not begun stays undone.
        """
        self._is_leaving = self.paused = True

    def break_off(self) -> None:
        """
        What has come, or is to be said, may be lost, so that no reply could be told from another
        one: the exception that is being handled costs the connection, and nobody else anything.
        """
        self._is_leaving = self.paused = True
        self.pipeline.forget()
        self._shell.disconnected(self.session)
        self.log.failure("while serving a connection")
        self.transport.abortConnection()

    def part(self) -> None:
        """
        The server stops, and all that was begun is answered.
        """
        self.pipeline.send()
        self._outlet.close()
        self._stop_reading()
        self.transport.loseConnection()

    # Replies.

    def hold(self, pieces: list[bytes]) -> None:
        """
        Keep these replies until they may be seen.
        """
        if not self.pipeline.held:
            self._shell.holds(self)
        self.pipeline.held.append((self.pipeline.lsn, pieces))
        self._held_bytes += total_bytes(pieces)
        self._update_pause()

    # Lines.

    def _attempt(self, step: "Mode", received: bytes) -> None:
        """
        The outermost call for all that a peer sends.  What is wrong with it costs a reply; what is
        wrong with how we read it costs the connection, since what follows could be understood
        wrongly.  The shell has judged what the command itself has failed with.
        """
        try:
            step(self, received)
        except ParseError as error:
            self._refuse(error)
        except Exception:
            self.break_off()
        self._rest_if_due()
        self._update_pause()

    def _refuse(self, error: ParseError) -> None:
        self._shell.count(error.counter)
        self._say(error.reply)

    def _rest_if_due(self) -> None:
        if not self._is_resting and self._shell.now_ns() > self._share_ends_ns:
            self._rest()

    def _rest(self) -> None:
        """
        Others have their turn before this connection's next command.
        """
        if not self._is_resting:
            self._is_resting = self.paused = True
            self._shell.rest(self)

    def _obey(self, line: bytes) -> None:
        parsed = self._parse(line)
        self._write = parsed.command.write
        if parsed.command.run is None:
            self._quit()
        elif parsed.command.has_body:
            self._begin_body(parsed)
        else:
            answer = self._shell.execute(self.session, self._shell.now_ns(), parsed)
            if answer is not None:
                self.answer(answer)

    def _parse(self, line: bytes) -> Parsed:
        return self.dialect.parse(line)

    def _say(self, reply: Reply) -> None:
        self.answer(Answer(reply, 0))

    def _quit(self) -> None:
        """
        Part at once; what the peer sent behind this is lost (beanstalkd prot.c, OP_QUIT).
        """
        self._is_leaving = True
        self._part_when_done()

    # Bodies.

    def _begin_body(self, parsed: Parsed) -> None:
        """
        The size is looked at before what may follow it on the line (beanstalkd prot.c, OP_PUT).
        """
        size = parsed.args[-1]
        if size > self._shell.max_job_bytes:
            self._shell.count(parsed.command.counter)
            self._expect(size + len(CRLF), BeanstalkProtocol._skip_body)
        elif parsed.has_junk:
            self._shell.count(parsed.command.counter)
            self._say(BAD_FORMAT)
        else:
            now_ns = self._shell.now_ns()
            self._put = parsed, self._shell.begin_put(self.session, now_ns, parsed)
            self._expect(size + len(CRLF), BeanstalkProtocol._collect_body)

    def _expect(self, count: int, mode: "Mode") -> None:
        self._missing = count
        self._raw = mode
        self.setRawMode()

    def _collect_body(self, data: bytes) -> None:
        """
        If there is no memory for it the rest is skipped (beanstalkd prot.c, OP_PUT).
        """
        size = min(len(data), self._missing)
        if not self._shell.common.queue.memory.takes(size):
            self._drop_body(data)
            return
        try:
            self._chunks.append(data[:size])
            body = b"".join(self._chunks) if size == self._missing else None
        except MemoryError:
            self._drop_body(data)
            return
        self._missing -= size
        if body is not None:
            self._chunks.clear()
            self.setLineMode(data[size:])
            self._end_body(body)

    def _drop_body(self, data: bytes) -> None:
        self._chunks.clear()
        self._put = None
        self._raw = BeanstalkProtocol._skip_unheld_body
        self._skip_unheld_body(data)

    def _end_body(self, body: bytes) -> None:
        assert self._put is not None
        (parsed, draft), self._put = self._put, None
        if body.endswith(CRLF):
            now_ns = self._shell.now_ns()
            answer = self._shell.put(self.session, now_ns, draft, parsed, body[: -len(CRLF)])
            if answer is not None:
                self.answer(answer)
        else:
            self._say(EXPECTED_CRLF)

    def _skip_body(self, data: bytes) -> None:
        self._skip(data, JOB_TOO_BIG)

    def _skip_unheld_body(self, data: bytes) -> None:
        self._skip(data, OUT_OF_MEMORY)

    def _skip(self, data: bytes, reply: Reply) -> None:
        """
        :param reply: what to say when all is skipped.
        """
        skipped = min(len(data), self._missing)
        self._missing -= skipped
        if not self._missing:
            self.setLineMode(data[skipped:])
            self._say(reply)

    def _skip_line(self, data: bytes) -> None:
        """
        Remember a CR at the end: its LF may come in another packet.
        """
        data = b"".join(self._chunks) + data
        self._chunks.clear()
        _, found, rest = data.partition(CRLF)
        if found:
            self.setLineMode(rest)
            self._say(BAD_FORMAT)
        elif data.endswith(b"\r"):
            self._chunks.append(b"\r")

    # Flow.

    def _update_pause(self) -> None:
        self.paused = (
            self._is_leaving
            or self._is_resting
            or self._is_output_full
            or self.session.is_blocked
            or self._held_bytes > MAX_HELD_BYTES
            or bool(self.pipeline.held and self._shell.is_congested)
        )

    def _go_on(self) -> None:
        """
        Parse what waits, if nothing is in the way any more.
        """
        self._update_pause()
        if not self.paused:
            if self._buffer or self._aside:
                self.dataReceived(b"")
            elif not self._is_reading:
                self._watch_input()
        if self._is_leaving or self._is_half_closed:
            self._part_when_done()

    def _go_on_in_turn(self) -> None:
        """
        As `_go_on`; many connections may be told to at once, so each has its share when it is its
        turn.
        """
        self._update_pause()
        if not self.paused and (self._buffer or self._aside):
            self._rest()
        else:
            self._go_on()

    def _end_chunk(self) -> None:
        try:
            self._shell.end_chunk(self)
        except Exception:
            self.break_off()
        if self.paused or not self._is_reading:
            self._watch_input()

    def _watch_input(self) -> None:
        """
        Read the socket only while there is room for what it brings.  Who has sent more than fits
        into a share sends no more until that is carried out.
        """
        most = 0 if self._is_resting else MAX_BUFFERED_BYTES
        has_room = not (self.paused and len(self._buffer) > most)
        if has_room != self._is_reading and not self._is_half_closed:
            self._is_reading = has_room
            source = self._feed or self.transport
            if has_room:
                source.resumeProducing()
            else:
                source.pauseProducing()

    def _stop_reading(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _part_when_done(self) -> None:
        """
        A connection whose input has ended closes when all was answered.  Its jobs are given back
        before that: whoever connects next finds them.
        """
        if self._is_leaving or (self._is_half_closed and not self.paused):
            self._shell.disconnected(self.session)
            self.pipeline.send()
            if not self.pipeline.held:
                self.part()


Mode = Callable[[BeanstalkProtocol, bytes], None]
"""What is done with the bytes that come."""
