"""The hot path: all commands of a chunk in one loop, for every connection and dialect."""

from typing import Final

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import NO_ROOM, REFUSED, Answer
from beanstalk_twisted.server.execution_context import ExecutionContext, Observer
from beanstalk_twisted.server.incoming import Incoming, IncomingJobs, IncomingLine, LongLine
from beanstalk_twisted.server.reply_queue import MAX_JOINED_BYTES, ReplyQueue
from beanstalk_twisted.wire.commands import LOOKS, MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import Dialect, Parsed, is_http
from beanstalk_twisted.wire.grammar import CRLF, ParseError
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    EXPECTED_CRLF,
    LINES,
    OUT_OF_MEMORY,
    UNAUTHORIZED,
    CannotHandOver,
    JobReply,
    Refusal,
    Reply,
    ReservedBatch,
)

ALL: Final = 0
"""All that has come is carried out."""

LEFT: Final = 1
"""What is next has not wholly come, or is a body that is too large, or jobs."""

STOPPED: Final = 2
"""The protocol decides whether the next command may be carried out now."""


SPLIT_BYTES: Final = 4 << 10
"""Cut into lines at once: some dozen commands, and little of a large body."""

MAX_SPLITS: Final = 64
"""Lines that are cut at once: that costs no more than a command."""

NO_LINES: Final[list[bytes]] = []


class Executor:
    """Carries out one connection's commands, and gives the answers to its `ReplyQueue`.

    `LineReceiver` copies the rest of its buffer for each line, changes its mode for each body, and
    makes six calls for each command.  Here a few lines are cut at once, and a body that has wholly
    come is, as a rule, the next of them.

    Nothing here is Twisted's, so that the loop can be compiled: a class that inherits from
    Twisted's is slower compiled than not.

    :ivar at: where in the chunk the commands end that were begun.
    :ivar line: the command that is being carried out; empty between two, where an exception has
        changed nothing.
    :ivar is_over: the peer has sent `quit` or HTTP, or waits for an answer that its dialect has no
        word for: nothing that follows is carried out.
    """

    __slots__ = (
        "_command", "_context", "_dialect", "_error", "_remembered", "_replies", "_session", "at",
        "is_over", "line",
    )  # fmt: skip

    def __init__(
        self, context: ExecutionContext, dialect: Dialect, session: Session, replies: ReplyQueue
    ) -> None:
        self._context = context
        self._dialect = dialect
        self._remembered = dialect.remembered
        self._session = session
        self._replies = replies
        # The newest command, whose row says how its answer is written; None for a wrong line.
        self._command: Command | None = None
        self._error = ParseError(BAD_FORMAT)
        self.at = 0
        self.line = b""
        self.is_over = False

    def execute(self, data: bytes, now_ns: int, ends_ns: int) -> int:
        """Carry out the commands that have wholly come, one at least if there is one.

        :param data: not empty; begins with a line.
        :param ends_ns: when others have their turn.
        :return: `ALL`, `LEFT` or `STOPPED`.
        :raise BaseException: of the last command: `answer_failure` has the answer.
        """
        context, session = self._context, self._session
        queue, observer = context.queue, context.observer
        counts = queue.tally.commands
        self.line = b""
        at = self.at = index = last = 0
        lines = NO_LINES
        while True:
            if index == last:
                lines = data[at : at + SPLIT_BYTES].split(CRLF, MAX_SPLITS)
                index, last = 0, len(lines) - 1
                if not last:
                    return LEFT
            line = lines[index]
            index += 1
            if len(line) > MAX_LINE_BYTES - len(CRLF):
                return LEFT
            end = at + len(line) + len(CRLF)
            parsed = self._remembered.get(line)
            answer: Answer | None = None
            if parsed is None:
                parsed = self._parse(line)
            if parsed is None:
                answer = self._refuse_line(line, end)
                if answer is None and not self.is_over:
                    return LEFT
            else:
                command, args, has_junk = parsed
                self._command = command
                if command.takes_job:
                    if command.is_collected:
                        return LEFT
                    start = end
                    size: int = args[3]
                    end += size + len(CRLF)
                    if has_junk or end > len(data) or size > queue.max_job_bytes:
                        answer = self._leave_or_refuse(line, parsed, start)
                        if answer is None:
                            return LEFT
                    else:
                        self.line, self.at = line, end
                        wrong: Reply | None = None
                        if index < last and len(lines[index]) == size:
                            body = lines[index]
                            index += 1
                        else:
                            body, wrong = self._cut(data, start, end)
                            index = last
                        answer = self._put(line, parsed, body, wrong, now_ns)
                else:
                    self.line, self.at = line, end
                    counter = command.counter
                    if counter is not None:
                        counts[counter] += 1
                    if observer is not None:
                        answer = self._announce(observer, line, parsed, None, None)
                    if command.ends_connection:
                        self.is_over = True
                    elif answer is None:
                        run = context.methods[command.operation]
                        # With an asterisk a call costs 175 ns instead of 60 (CPython 3.11).
                        if not args:
                            answer = run(session, now_ns)
                        elif len(args) == 1:
                            answer = run(session, now_ns, args[0])
                        else:
                            answer = run(session, now_ns, *args)
            at = self.at
            times = context.times
            if times is not None and times.takes_next():
                self._note_time(now_ns)
            if queue.outbox:
                context.deliver()
            self.line = b""
            if answer is None or self.answer(answer):
                return STOPPED
            if at == len(data):
                return ALL
            now_ns = context.clock.now_ns()
            if now_ns > ends_ns:
                return STOPPED

    def _note_time(self, begun_ns: int) -> None:
        times, command = self._context.times, self._command
        if times is not None and command is not None:
            times.note(command.name, self._context.clock.now_ns() - begun_ns)

    def _announce(
        self, observer: Observer, line: bytes, parsed: Parsed, body: bytes | None,
        answer: Answer | None,
    ) -> Answer | None:  # fmt: skip
        """:param answer: if it is known already.
        :return: what to answer instead of carrying the command out, if anything.
        """
        observer.command_received(self._session, line, parsed)
        if answer is None and not parsed[0].ends_connection:
            answer = observer.plant(self._session, parsed, body)
        return answer

    def _parse(self, line: bytes) -> Parsed | None:
        """:return: None if the line is wrong; ``_error`` says how."""
        try:
            return self._dialect.parse(line)
        except ParseError as error:
            # Its traceback would keep the chunk.
            self._error = error.with_traceback(None)
            return None

    def _refuse_line(self, line: bytes, end: int) -> Answer | None:
        """Refuse what `_parse` could not understand.

        :return: None if jobs may follow, which will be skipped, or the connection `is_over`.
        """
        if self._dialect.with_jobs(line) is not None:
            return None
        self._command = None
        if self.ends_at(line):
            self.at = end
            return None
        return self._refuse(line, end, self._error.reply, self._error.counter, None)

    def ends_at(self, line: bytes) -> bool:
        """End the connection if its peer sends an HTTP request, whose body may be commands."""
        if not is_http(line):
            return False
        self._received(line, None)
        self._context.http_came(self._session)
        self.is_over = True
        return True

    def _refuse(
        self, line: bytes, end: int, reply: Reply, counter: str | None, parsed: Parsed | None
    ) -> Answer:
        self.line, self.at = line, end
        self._received(line, parsed)
        self._context.queue.count(counter)
        return self._wrong(line, reply)

    def _received(self, line: bytes, parsed: Parsed | None) -> None:
        observer = self._context.observer
        if observer is not None:
            observer.command_received(self._session, line, parsed)

    def _wrong(self, line: bytes, reply: Reply) -> Answer:
        self._context.wrong(self._session, line, reply)
        return reply, 0

    def _cut(self, data: bytes, start: int, end: int) -> tuple[bytes, Reply | None]:
        """Cut out a body that has ends of lines in it, or a wrong end.

        :return: also why it is refused.
        """
        try:
            body, rest = data[start : end - len(CRLF)], data[end - len(CRLF) : end]
        except MemoryError:
            return b"", OUT_OF_MEMORY
        return body, None if rest == CRLF else EXPECTED_CRLF

    def _put(
        self, line: bytes, parsed: Parsed, body: bytes, wrong: Reply | None, now_ns: int
    ) -> Answer | None:
        """Take a job that has wholly come.

        :param wrong: why it is refused; then there is no body.
        """
        context, session = self._context, self._session
        queue, observer = context.queue, context.observer
        if context.gate is not None and self._is_refused(line, parsed):
            return REFUSED
        command, args, _ = parsed
        answer: Answer | None = None
        if wrong is not None:
            answer = NO_ROOM if wrong is OUT_OF_MEMORY else self._wrong(line, wrong)
        if command.has_jobs:
            queue.count(command.counter)
            if observer is not None:
                answer = self._announce(observer, line, parsed, body, answer)
            if answer is None:
                priority, delay_s, ttr_s, _, tags = args
                run = context.methods[command.operation]
                answer = run(session, now_ns, now_ns, priority, delay_s, ttr_s, tags, body)
            return answer
        queue.tally.commands["cmd-put"] += 1
        draft = queue.puts.begin(session, now_ns)
        if observer is not None:
            answer = self._announce(observer, line, parsed, body, answer)
        if answer is not None:
            return answer
        priority, delay_s, ttr_s, _ = args
        return queue.puts.put(session, now_ns, draft, priority, delay_s, ttr_s, body)

    def _leave_or_refuse(self, line: bytes, parsed: Parsed, start: int) -> Answer | None:
        command, args, has_junk = parsed
        # The size is looked at before what may follow it (beanstalkd prot.c, OP_PUT).
        if not has_junk or args[3] > self._context.queue.max_job_bytes:
            return None
        return self._refuse(line, start, BAD_FORMAT, command.counter, parsed)

    def _is_refused(self, line: bytes, parsed: Parsed) -> bool:
        """Return True if no job may be put into the tube in use; then it is counted.  The methods
        of commands with tags ask for themselves.
        """
        gate, session = self._context.gate, self._session
        # To call the gate for each put would be a percent of what it costs.
        if gate is None or session.using is session.may_put_into or parsed[0].has_jobs:
            return False
        if not gate.refuses_put(session):
            return False
        self._context.queue.tally.commands["cmd-put"] += 1
        self._received(line, parsed)
        return True

    # What has not wholly come.

    def begin(self, line: bytes, now_ns: int, refusal: Reply | None = None) -> IncomingJobs:
        """Begin the jobs that follow a line which `execute` has left, or which was collected.

        :param refusal: the reply if the line is too long.
        :raise BaseException: as `execute`, but what follows is unknown.
        """
        context, session, dialect = self._context, self._session, self._dialect
        queue, gate = context.queue, context.gate
        parsed = None
        if refusal is None:
            parsed = self._remembered.get(line) or self._parse(line)
        command = dialect.with_jobs(line) if parsed is None else parsed[0]
        assert command is not None
        self.line = line
        self._command = command
        if parsed is not None:
            queue.count(command.counter)
        self._received(line, parsed)
        incoming = IncomingJobs(
            line, command, parsed, queue.memory, max_job_bytes=queue.max_job_bytes, now_ns=now_ns
        )
        if gate is not None and parsed is not None and gate.refuses(session, parsed):
            incoming.refuse(UNAUTHORIZED)
            # A client without the right gets this reply, whatever else is wrong.
            incoming.refusal = UNAUTHORIZED
        elif incoming.refusal is None:
            if context.refuses_changes:
                context.changes_refused += 1
                incoming.refuse(OUT_OF_MEMORY)
            elif parsed is not None and command.has_body:
                if queue.puts.lacks(session, 1, parsed[1][3], now_ns):
                    incoming.refuse(OUT_OF_MEMORY)
                else:
                    incoming.draft = queue.puts.begin(session, now_ns)
        self.line = b""
        return incoming

    def begin_long_line(self, line: bytes) -> Incoming:
        """Begin a line of more than 224 bytes: skip it, unless its command may have more.

        :param line: its first 224 bytes.
        """
        self._command = None
        has_jobs = self._dialect.with_jobs(line) is not None
        max_bytes = self._dialect.max_line_bytes(line)
        if max_bytes > MAX_LINE_BYTES:
            return IncomingLine(line, max_bytes, has_jobs=has_jobs)
        self._received(line, None)
        return LongLine(line, is_lost=has_jobs)

    def finish(self, incoming: Incoming, now_ns: int) -> None:
        """Carry out what has wholly come, or answer why not; fails as `execute`."""
        self.line = incoming.line
        incoming.let_go()
        answer: Answer | None
        if isinstance(incoming, IncomingLine):
            answer = self._obey(incoming, now_ns)
        elif incoming.refusal in (OUT_OF_MEMORY, UNAUTHORIZED):
            # No mistake of the client's.
            answer = incoming.refusal, 0
        elif incoming.refusal is not None:
            answer = self._wrong(incoming.line, incoming.refusal)
        else:
            assert isinstance(incoming, IncomingJobs)
            answer = self._put_collected(incoming, now_ns)
        times = self._context.times
        if times is not None and times.takes_next():
            self._note_time(now_ns)
        if self._context.queue.outbox:
            self._context.deliver()
        self.line = b""
        if answer is not None:
            self.answer(answer)
        if incoming.is_lost:
            self.is_over = True

    def _put_collected(self, incoming: IncomingJobs, now_ns: int) -> Answer | None:
        context, jobs = self._context, incoming.jobs
        command, parsed = incoming.command, incoming.parsed
        assert parsed is not None
        if context.observer is not None:
            body = None if incoming.is_batch else jobs[0][-1]
            planted = context.observer.plant(self._session, parsed, body)
            if planted is not None:
                return planted
        if incoming.draft is not None:
            if context.gate is not None and context.gate.refuses_put(self._session):
                # It had the right when its line came.
                return REFUSED
            priority, delay_s, ttr_s, _, body = jobs[0]
            return context.queue.puts.put(
                self._session, now_ns, incoming.draft, priority, delay_s, ttr_s, body
            )
        run = context.methods[command.operation]
        args = (jobs, parsed[1][1]) if incoming.is_batch else jobs[0]
        return run(self._session, now_ns, incoming.begun_ns, *args)

    def _obey(self, incoming: IncomingLine, now_ns: int) -> Answer | None:
        """Carry out a command that has a long line, and no body."""
        context = self._context
        if incoming.refusal is not None:
            return self._refuse(incoming.line, self.at, incoming.refusal, None, None)
        line = incoming.whole
        parsed = self._parse(line)
        if parsed is None:
            return self._refuse(line, self.at, self._error.reply, self._error.counter, None)
        command, args, _ = parsed
        self._command = command
        context.queue.count(command.counter)
        if context.observer is not None:
            answer = self._announce(context.observer, line, parsed, None, None)
            if answer is not None:
                return answer
        return context.methods[command.operation](self._session, now_ns, *args)

    # Answers.

    def tell_slow(self, took_ns: int) -> None:
        context, command = self._context, self._command
        name = "a wrong line" if command is None else command.name
        if context.times is not None:
            context.times.slow[name] += 1
        context.slow(self._session, name, took_ns)

    def answer(self, answer: Answer) -> bool:
        """Answer the newest command, in the words of the dialect.

        :return: whether replies were sent or held meanwhile, or the connection `is_over`.
        """
        reply, lsn = answer
        context, command = self._context, self._command
        is_plain = context.observer is None and (command is None or command.write is None)
        if type(reply) not in LINES:
            if isinstance(reply, Refusal):
                context.queue.tally.errors[reply.text] += 1
            elif is_plain and isinstance(reply, JobReply):
                if len(reply.body) >= MAX_JOINED_BYTES:
                    return self._replies.add_pieces([reply.line(), reply.body, CRLF], lsn)
            elif is_plain and isinstance(reply, ReservedBatch):
                return self._replies.add_pieces(reply.pieces(), lsn)
        if is_plain:
            encoded = reply.encode()
        else:
            encoded = self._translated(reply)
            if not encoded:
                self.is_over = True
                return True
        if not lsn and context.durability.lease is not None and self._needs_no_lease(reply):
            return self._replies.add_without_lease(encoded)
        return self._replies.add(encoded, lsn)

    def _translated(self, reply: Reply) -> bytes:
        """:return: nothing if the dialect has no word for it."""
        write = None if self._command is None else self._command.write
        encoded = reply.encode() if write is None else write(reply)
        if self._context.observer is not None:
            self._context.observer.answered(self._session, reply, encoded)
        return encoded

    def _needs_no_lease(self, reply: Reply) -> bool:
        """Return True if the reply may leave though another server may be active."""
        is_own = self._command is not None and self._command.is_own
        return is_own or reply == OUT_OF_MEMORY or isinstance(reply, CannotHandOver)

    def answer_failure(self) -> None:
        """Answer the failed command; raise the exception being handled if it is no Exception."""
        line, self.line = self.line, b""
        has_looked = self._command is not None and self._command.effect == LOOKS
        self.answer(self._context.failed(line, has_looked))
