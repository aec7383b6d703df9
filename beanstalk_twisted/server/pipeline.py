"""
The hot path: all commands of a chunk in one loop.

`LineReceiver` copies the rest of its buffer for each line, changes its mode for each body, and goes
through six calls for each command.  Here a line is found where it lies, and a body that has wholly
come is cut out right behind its line, or refused if it ends wrongly.  A line that is wrong is
answered here too: it costs no more than one that is right.  Whatever is not so plain (a line or
body that is still coming or is too big, and `quit`) is left to the modes of `BeanstalkProtocol`,
the reference.

Nothing here is Twisted's, so that the loop can be compiled: a class that inherits from Twisted's is
slower compiled than not.  All of the server but its sockets, processor time a command with 50
connections (unoptimised CPython 3.11): 4.4 instead of 5.9 µs, and 2.2 instead of 4.0 compiled, each
against a loop in the protocol's own class.
"""

from collections.abc import Callable
from typing import Final, Protocol

from beanstalk_twisted.jobs.reservations import NO_ROOM, Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.server.commands import LOOKS, MAX_LINE_BYTES
from beanstalk_twisted.server.recognition import ID_DIGITS, recognise, remembered
from beanstalk_twisted.wire.grammar import ParseError
from beanstalk_twisted.wire.replies import EXPECTED_CRLF, JobReply

CRLF: Final = b"\r\n"

MAX_GATHERED_BYTES: Final = 16 << 10
"""
Bytes of gathered replies from which they are sent: a call of the kernel is then a small part of
what they cost, and a peer that does not read is noticed soon.
"""

MAX_JOINED_BYTES: Final = 16 << 10
"""
Bytes of a body from which it is sent from where it lies, together with others who hear of it: to
copy less costs no more than another piece in a call of the kernel.
"""

TURN_NS: Final = 5_000_000
"""
Nanoseconds that a turn's commands may take, but for one more of each connection: with what else
happens in a round of the reactor, others and the timers wait some 10 ms.
"""

MIN_SHARE_NS: Final = 50_000
"""Some ten commands, nanoseconds: what it costs to begin with a connection is then a small part."""

NO_CRLF: Final = Answer(EXPECTED_CRLF, 0)

ALL: Final = 0
"""All that has come is carried out."""

LEFT: Final = 1
"""What is next is not so plain."""

STOPPED: Final = 2
"""It is to be seen whether what is next may be carried out now."""


class Common:
    """
    What all pipelines of a server have in common.

    :ivar settled_lsn: replies that wait for this LSN or a lower one may be seen.
    :ivar share_ns: how long one connection's commands are carried out before others have theirs,
        `MIN_SHARE_NS` to `TURN_NS`.
    """

    def __init__(
        self, queue: WorkQueue, now_ns: Callable[[], int], deliver: Callable[[], None],
        refused: Callable[[bytes], Answer],
    ) -> None:  # fmt: skip
        """
        :param deliver: called when the queue has answers for other sessions.
        :param refused: called with the line of a command that has failed and changes nothing, while
            its exception is being handled; says what to answer.
        """
        self.refused = refused
        self.queue = queue
        self.now_ns = now_ns
        self.deliver = deliver
        self.settled_lsn = 0
        self.share_ns = TURN_NS

    def divide(self, connections: int) -> None:
        """
        So many connections, at least one, want to be served: no one of them has more than its part
        of a turn.
        """
        self.share_ns = max(MIN_SHARE_NS, TURN_NS // connections)


class Outlet(Protocol):
    """
    Where replies leave; see `outlet.Outlet`.
    """

    def write(self, pieces: list[bytes]) -> None:
        """
        Send these behind all that was written before.
        """


class Holder(Protocol):
    """
    Whose replies they are; see `BeanstalkProtocol.hold`.
    """

    def hold(self, pieces: list[bytes]) -> None:
        """
        These are the next ones of `Pipeline.held`.
        """


class Pipeline:
    """
    One connection's commands, and the replies that are gathered.

    :ivar at: where in the chunk the commands end that were begun.
    :ivar line: the command that is being carried out; empty between two, so that an exception in
        between is known to have changed nothing.
    :ivar lsn: what has to be settled before all the replies so far may be seen.
    :ivar held: replies that wait for the disk, in order, each with its LSN; what is behind them
        waits too.
    """

    __slots__ = (
        "_common", "_gathered", "_gathered_bytes", "_holder", "_is_large", "_outlet", "_session",
        "at", "held", "line", "lsn",
    )  # fmt: skip

    def __init__(self, common: Common, session: Session, outlet: Outlet, holder: Holder) -> None:
        self._common = common
        self._session = session
        self._outlet = outlet
        self._holder: Holder | None = holder
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._is_large = False
        self.held: list[tuple[int, list[bytes]]] = []
        self.lsn = 0
        self.at = 0
        self.line = b""

    def add(self, encoded: bytes, lsn: int) -> bool:
        """
        Say this behind all that was said before.

        :param lsn: what has to be settled before it may be seen.
        :return: whether replies were sent or held.
        """
        is_first_to_wait = False
        if lsn > self.lsn:
            is_first_to_wait = self.lsn <= self._common.settled_lsn < lsn and bool(self._gathered)
            if is_first_to_wait:
                self.send()
            self.lsn = lsn
        self._gathered.append(encoded)
        self._gathered_bytes += len(encoded)
        if self._gathered_bytes >= MAX_GATHERED_BYTES:
            self.send()
            return True
        return is_first_to_wait

    def add_job(self, reply: JobReply, lsn: int) -> bool:
        """
        As `add`, with a job; a large body is not copied.
        """
        if len(reply.body) < MAX_JOINED_BYTES:
            return self.add(reply.encode(), lsn)
        self.add(reply.line(), lsn)
        self._gathered = [b"".join(self._gathered), reply.body, CRLF]
        self._is_large = True
        self.send()
        self._is_large = False
        return True

    def send(self) -> None:
        """
        Send what there is, or hold it until it may be seen.
        """
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        self._gathered_bytes = 0
        if len(gathered) > 1 and not self._is_large:
            gathered = [b"".join(gathered)]
        if not self.held and self.lsn <= self._common.settled_lsn:
            self._outlet.write(gathered)
        elif self._holder is not None:
            self._holder.hold(gathered)

    def take_settled(self) -> list[bytes]:
        """
        Take those of the held replies that may be seen by now.
        """
        settled_lsn = self._common.settled_lsn
        held = self.held
        count = 0
        while count < len(held) and held[count][0] <= settled_lsn:
            count += 1
        if count == 1:
            return held.pop(0)[1]
        taken = [piece for _, pieces in held[:count] for piece in pieces]
        del held[:count]
        return taken

    def forget(self) -> None:
        """
        Nobody hears the replies, neither these nor those to come.
        """
        self._holder = None
        self.held.clear()
        self._gathered.clear()
        self._gathered_bytes = 0

    def carry_out(self, data: bytes, now_ns: int, ends_ns: int) -> int:
        """
        Carry out the commands that have wholly come, one at least if there is one.

        :param data: not empty; begins with a line.
        :param now_ns: the time of the first of them.
        :param ends_ns: when others are to have their turn.
        :return: `ALL`, `LEFT` or `STOPPED`.
        :raise Exception: what the last one has failed with.
        """
        self.line = b""
        common = self._common
        queue = common.queue
        counts = queue.tally.commands
        size = len(data)
        at = self.at = 0
        while True:
            end = data.find(CRLF, at, at + MAX_LINE_BYTES)
            if end < 0:
                return LEFT
            line = data[at:end]
            word, _, rest = line.partition(b" ")
            answer: Answer | None
            if word == b"put":
                answer = self._put(line, data, end + 2, now_ns)
            elif line == b"reserve":
                self.line, self.at = line, end + 2
                counts["cmd-reserve"] += 1
                answer = queue.reserve(self._session, now_ns)
            elif word == b"delete" and rest.isdigit() and len(rest) <= ID_DIGITS:
                self.line, self.at = line, end + 2
                counts["cmd-delete"] += 1
                answer = queue.delete(self._session, now_ns, int(rest))
            else:
                answer = self._obey(line, end + 2, now_ns)
            if self.at == at:
                return LEFT
            at = self.at
            if queue.outbox:
                common.deliver()
            self.line = b""
            if answer is None:
                return STOPPED
            reply = answer.reply
            if isinstance(reply, JobReply):
                is_sent = self.add_job(reply, answer.lsn)
            else:
                is_sent = self.add(reply.encode(), answer.lsn)
            if is_sent:
                return STOPPED
            if at == size:
                return ALL
            now_ns = common.now_ns()
            if now_ns > ends_ns:
                return STOPPED

    def _put(self, line: bytes, data: bytes, start: int, now_ns: int) -> Answer | None:
        """
        Take a job, or leave ``at`` where it is.

        :param start: where its body does.
        """
        try:
            _, args, has_junk = remembered(line)
        except ParseError as error:
            return self._refuse(line, start, error)
        queue = self._common.queue
        size: int
        priority, delay_s, ttr_s, size = args
        stop = start + size
        end = stop + 2
        if end > len(data) or size > queue.max_job_bytes or has_junk:
            return None
        self.line, self.at = line, end
        queue.tally.commands["cmd-put"] += 1
        draft = queue.begin_put(self._session, now_ns)
        try:
            if data[stop:end] != CRLF:
                return NO_CRLF
            body = data[start:stop]
        except MemoryError:
            return NO_ROOM
        return queue.put(self._session, now_ns, draft, priority, delay_s, ttr_s, body)

    def _obey(self, line: bytes, end: int, now_ns: int) -> Answer | None:
        """
        Carry out any other command, or leave ``at`` where it is.
        """
        try:
            command, args, _ = recognise(line)
        except ParseError as error:
            return self._refuse(line, end, error)
        if command.run is None or command.has_body:
            return None
        self.line, self.at = line, end
        queue = self._common.queue
        queue.count(command.counter)
        try:
            return command.run(queue, self._session, now_ns, *args)
        except Exception:
            if command.run not in LOOKS:
                raise
            return self._common.refused(line)

    def _refuse(self, line: bytes, end: int, error: ParseError) -> Answer:
        """
        A line is wrong, which costs no more than its answer.
        """
        self.line, self.at = line, end
        self._common.queue.count(error.counter)
        return Answer(error.reply, 0)
