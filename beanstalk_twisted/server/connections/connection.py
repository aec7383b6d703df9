"""One client's connection: its input, its replies, and what holds the next command up.

Nothing here inherits from Twisted's classes, so that it can be compiled to native classes.
"""

from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.connections.epoll_reader import SocketSource
from beanstalk_twisted.server.connections.output import Output
from beanstalk_twisted.server.executor import ALL, LEFT, STOPPED, Executor
from beanstalk_twisted.server.incoming import Incoming, IncomingLine
from beanstalk_twisted.server.reply_queue import ReplyQueue
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import Dialect
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.replies import Reply

if TYPE_CHECKING:
    from beanstalk_twisted.server.connections.served import ServedConnections

MAX_BUFFERED_BYTES: Final = 64 << 10
"""Unparsed input above which the socket is not read: one read of Twisted's."""

MAX_HELD_BYTES: Final = 1 << 20
"""Bytes of held replies above which no further command is parsed: a pipeline of tens of thousands
of puts for one group commit.
"""

log: Final = Logger("beanstalk_twisted.server.connections.protocol")


class Connection:
    """Takes bytes as they come, a turn's share at a time, and gives them to the `Executor`.

    What has wholly come is carried out, all that one packet brings in one call.  The rest of a job,
    and a line of more than 224 bytes, is an `Incoming`, which collects or skips it; meanwhile the
    protocol is in raw mode.

    Commands stop when the connection has had its share of a turn, and while a `reserve` waits,
    large work runs, the peer does not read its replies or too many are held.  The socket is still
    read, so that a hang-up is noticed, until `MAX_BUFFERED_BYTES` wait to be parsed.  So a
    connection costs a bounded amount of memory: that buffer, one body, batch or line,
    `MAX_HELD_BYTES` of replies, what the transport buffers, `MAX_GATHERED_BYTES` included, and one
    reply, which is no larger than a body or 1 MiB while memory is short (`BodyRoom`).

    Differs from beanstalkd: only CR LF ends a line, wherever else a CR may stand, and a line that
    is too long costs one BAD_FORMAT; there, a bare CR stalls the connection, and some long lines
    swallow the next command.  And an HTTP request ends the connection (`dialects.is_http`): there,
    its body, which a web page can have a browser send, is carried out as commands.

    :ivar paused: whether something holds the next command up.
    """

    # Attributes of a dictionary would take 1.7 KB of 4.4 of each connection, and with 1,000
    # connections, whose memory no cache holds, a tenth of our own time a command.
    __slots__ = (
        "_begun_ns", "_came_bytes", "_context", "_executor", "_feed", "_host", "_incoming",
        "_input", "_is_executing", "_is_half_closed", "_is_leaving", "_is_output_full",
        "_is_reading", "_is_resting", "_output", "_share_ends_ns", "_turns", "dialect", "paused",
        "replies", "session", "transport",
    )  # fmt: skip

    def __init__(self, transport: Any, host: "ServedConnections", dialect: Dialect) -> None:
        """:param transport: an ITransport that is also an IConsumer and an IPushProducer."""
        self.dialect = dialect
        self.transport = transport
        self.paused = False
        self._host: ServedConnections = host
        self._context = host.context
        self._turns = host.turns
        self._input = b""
        self._incoming: Incoming | None = None
        self._is_executing = False
        self._is_output_full = False
        self._is_reading = True
        self._is_half_closed = False
        self._is_leaving = False
        self._is_resting = False
        self._share_ends_ns = 0
        # When the line in the input began, or the last bytes of what follows it that were enough,
        # and how many have come since.
        self._begun_ns = self._came_bytes = 0
        durability = self._context.durability
        self._output = Output(self.transport, self, durability.room)
        self._feed: SocketSource | None = host.feed(self)
        self.session: Session = host.connected(self)
        self.replies = ReplyQueue(durability, self._output, self)
        self._executor = Executor(self._context, dialect, self.session, self.replies)

    def received(self, data: bytes, now_ns: int) -> None:
        """Carry out what has come, as far as that may be done now."""
        if self._input:
            data = self._input + data
        elif self._incoming is None:
            self._begun_ns = now_ns
        self._input = data
        if self._is_executing:
            return
        if not self._is_resting:
            self._share_ends_ns = now_ns + self._context.share_ns
        self._is_executing = True
        try:
            while self._input and (not self.paused or self._cancels()):
                if self._incoming is not None:
                    self._collect(self._incoming, now_ns)
                elif not self._carry_out(now_ns):
                    break
                now_ns = self._context.clock.now_ns()
        finally:
            self._is_executing = False
        if self._turns.is_in_turn:
            self._turns.unsent.append(self.replies)
        else:
            self._end_chunk()
        if self.paused or not self._is_reading:
            self._watch_input()

    def _carry_out(self, now_ns: int) -> bool:
        """Carry out the commands that have wholly come, or begin one that has not.

        :return: whether there may be more to do.
        """
        executor = self._executor
        data, self._input = self._input, b""
        ending = STOPPED
        try:
            ending = executor.execute(data, now_ns, self._share_ends_ns)
        except BaseException:
            self._answer_failure()
        if ending != ALL:
            self._input = data[executor.at :] + self._input
        if ending == STOPPED:
            self._heed()
        elif ending == LEFT:
            if executor.at:
                self._begun_ns = now_ns
            return self._begin_next()
        return bool(self._input)

    def _begin_next(self) -> bool:
        """Begin what the executor leaves: what follows its line has not wholly come, or is too
        large, or the line is too long.

        :return: whether there is such a line.
        """
        data = self._input
        end = data.find(CRLF, 0, MAX_LINE_BYTES)
        if end >= 0:
            self._input = data[end + len(CRLF) :]
            self._begin_jobs(data[:end], None)
        elif len(data) < MAX_LINE_BYTES:
            self._host.owes(self)
            return False
        elif self._executor.ends_at(data[:MAX_LINE_BYTES]):
            self._heed()
        else:
            self._begin(self._executor.begin_long_line(data[:MAX_LINE_BYTES]))
        return True

    def _begin_jobs(self, line: bytes, refusal: Reply | None) -> None:
        try:
            incoming = self._executor.begin(line, self._context.clock.now_ns(), refusal)
        except BaseException:
            self._answer_failure()
            if not self._is_leaving:
                # What follows could be understood wrongly.
                self.break_off()
        else:
            self._begin(incoming)
            if incoming.is_whole:
                self._take(incoming, b"")

    def _begin(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._came_bytes = 0
        self._host.owes(self)

    def _collect(self, incoming: Incoming, now_ns: int) -> None:
        data, self._input = self._input, b""
        self._came_bytes += len(data)
        if self._came_bytes >= self._context.enough_bytes:
            # That is enough of a body: the time for the next bytes begins.
            self._came_bytes, self._begun_ns = 0, now_ns
        self._take(incoming, data)

    def _take(self, incoming: Incoming, data: bytes) -> None:
        try:
            rest = incoming.receive(data)
            if rest is not None:
                self._incoming = None
                now_ns = self._context.clock.now_ns()
                self._begun_ns = now_ns
                self._input = rest + self._input
                if isinstance(incoming, IncomingLine) and incoming.has_jobs:
                    self._begin_jobs(incoming.whole, incoming.refusal)
                else:
                    self._executor.finish(incoming, now_ns)
        except BaseException:
            self._answer_failure()
        self._heed()

    # How it ends.

    def half_closed(self) -> None:
        """Carry out what the peer has sent, then close."""
        self._is_half_closed = True
        answer = self._host.half_closed(self.session)
        if answer is not None:
            self.answer_late(answer)
        self._part_when_done()

    def stop_reading(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def lost(self) -> None:
        """Release the session and all that refers to the connection: its memory is free without
        work for the garbage collector.
        """
        self.refuse_commands()
        self.stop_reading()
        self.replies.forget()
        self._output.forget()
        if self._incoming is not None:
            self._incoming.let_go()
            self._incoming = None
        self._host.disconnected(self.session)
        self._host.closed(self)

    # What the output calls: see `output.Source`.

    def pauseProducing(self) -> None:
        self._is_output_full = True
        self._update_pause()

    def resumeProducing(self) -> None:
        self._is_output_full = False
        self._go_on_in_turn()

    # What the service calls.

    @property
    def is_midway(self) -> bool:
        """Whether what comes next continues what has not wholly come, or waits behind it."""
        return self._incoming is not None or bool(self._input)

    @property
    def buffered_bytes(self) -> int:
        """Input that was read and is not carried out, and replies that wait for the disk."""
        incoming = 0 if self._incoming is None else self._incoming.held_bytes
        return len(self._input) + incoming + self.replies.held_bytes

    def owes_since(self, now_ns: int) -> int | None:
        """Return since when the peer owes the rest of a line, or of what follows it: now if the
        server does not read it; None if it has begun nothing.
        """
        if self._incoming is None and not self._input:
            return None
        return now_ns if self.paused else self._begun_ns

    def was_slow(self, took_ns: int) -> None:
        # As a share of a turn is shorter than what is slow, it was the newest command.
        self._executor.tell_slow(took_ns)

    def answer_late(self, answer: Answer) -> None:
        """Answer the newest command, which has waited, then carry out the next ones."""
        try:
            self._executor.answer(answer)
            if self._executor.is_over:
                self._quit()
            elif not self._is_executing:
                self._turns.send_soon(self.replies)
            self._go_on()
        except Exception:
            self.break_off()

    def rested(self) -> None:
        """Carry on: others have had their turn."""
        self._is_resting = False
        self._go_on()

    def refuse_commands(self) -> None:
        """Begin no more commands: the server stops, or the connection ends."""
        self._is_leaving = self.paused = True

    def break_off(self) -> None:
        """End the connection, and nothing else, because of the exception that is being handled."""
        # Input or replies may be lost, so that no reply could be told from another.
        log.failure("while serving a connection", event="connection-failed")
        self.abandon()

    def abandon(self) -> None:
        """End the connection immediately, with no more replies."""
        self.refuse_commands()
        self.replies.forget()
        self._host.disconnected(self.session)
        self.transport.abortConnection()

    def part(self) -> None:
        """Close: all that was begun is answered."""
        self.replies.send()
        self._output.close()
        self.stop_reading()
        self.transport.loseConnection()

    # What the replies call: see `reply_queue.Connection`.

    def replies_held(self) -> None:
        self._update_pause()

    def replies_released(self) -> None:
        if self.paused or self._is_half_closed:
            self._go_on_in_turn()

    # What holds the next command up.

    def _cancels(self) -> bool:
        """End the wait of the connection if its next command says so.

        :return: whether that command may be carried out now.
        """
        if self._is_leaving or not self._input.startswith(self.dialect.cancel_lines):
            return False
        answer = self._host.cancel_wait(self.session)
        if answer is not None:
            self.answer_late(answer)
        return not self.paused

    def _answer_failure(self) -> None:
        """Answer the command that the exception being handled has ended.  Between two commands it
        costs the connection, since what follows could be understood wrongly.
        """
        try:
            if self._executor.line:
                self._executor.answer_failure()
            else:
                self.break_off()
        except Exception:
            self.break_off()

    def _quit(self) -> None:
        """Close at once; what the peer sent after this is lost (beanstalkd prot.c, OP_QUIT)."""
        self._is_leaving = True
        self._part_when_done()

    def _heed(self) -> None:
        """Close if the executor says so, rest if this connection's share is used up, and see what
        else holds the next command up.
        """
        if self._executor.is_over:
            self._quit()
        if not self._is_resting and self._context.clock.now_ns() > self._share_ends_ns:
            self._rest()
        self._update_pause()

    def _rest(self) -> None:
        """Give others their turn before this connection's next command."""
        if not self._is_resting:
            self._is_resting = self.paused = True
            self._turns.rest(self)

    def _update_pause(self) -> None:
        held_bytes = self.replies.held_bytes
        self.paused = (
            self._is_leaving
            or self._is_resting
            or self._is_output_full
            or self.session.is_blocked
            or held_bytes > MAX_HELD_BYTES
            or (held_bytes > 0 and self._host.is_log_congested())
        )

    def _go_on(self) -> None:
        """Carry out what waits, if nothing holds it up any more."""
        self._update_pause()
        if self._incoming is not None or self._input:
            self._begun_ns = self._context.clock.now_ns()
        if self._input and not self.paused:
            self.received(b"", self._begun_ns)
        elif not self._is_reading:
            self._watch_input()
        if self._is_leaving or self._is_half_closed:
            self._part_when_done()

    def _go_on_in_turn(self) -> None:
        """As `_go_on`, with a share of a turn: many connections may continue simultaneously."""
        self._update_pause()
        if not self.paused and self._input:
            self._rest()
        else:
            self._go_on()

    def _end_chunk(self) -> None:
        """Send the replies, and see to what was changed: no turn does."""
        try:
            self.replies.send()
            self._turns.plan()
        except Exception:
            self.break_off()

    def _watch_input(self) -> None:
        """Read the socket only while there is room for what it brings; not while resting."""
        most = 0 if self._is_resting else MAX_BUFFERED_BYTES
        has_room = not (self.paused and len(self._input) > most)
        if has_room != self._is_reading and not self._is_half_closed:
            self._is_reading = has_room
            source = self._feed or self.transport
            if has_room:
                source.resumeProducing()
            else:
                source.pauseProducing()

    def _part_when_done(self) -> None:
        """Close a connection whose input has ended when all was answered.  Its jobs are given back
        before, so that the next connection finds them.
        """
        # After what has come was carried out this is called again.
        is_done = self._is_half_closed and not (self.paused or self._is_executing)
        if self._is_leaving or is_done:
            self._host.disconnected(self.session)
            self.replies.send()
            if not self.replies.is_holding:
                self.part()
