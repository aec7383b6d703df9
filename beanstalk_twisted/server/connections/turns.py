"""Fair turns: when connections are served, when their replies leave, and the one timer."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.execution_context import TURN_NS, ExecutionContext
from beanstalk_twisted.server.reply_queue import ReplyQueue
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock, Timer

TURN_S: Final = 0.001
"""Seconds of a turn in which pieces of replies, or steps of handshakes, are begun, all together:
others wait no longer.
"""


class Connection(Protocol):
    """What turns need of a connection."""

    def answer_late(self, answer: Answer) -> None:
        """Answer the newest command, which has waited."""

    def rested(self) -> None:
        """Carry on: others have had their turn."""

    def break_off(self) -> None:
        """End, because of the exception that is being handled."""


class TurnScheduler:
    """Gives connections their turns and their late answers, and the queue the time.

    All that have sent something are served in one turn, each for its share of it.  A connection
    that has sent more than fits into its share rests until all others have had theirs, and
    continues in a later turn, so that sockets and timers come in between.

    :ivar flush: called at the end of a turn, before replies leave: has the disk begin with what was
        changed; None without a log.
    :ivar schedule: called outside of turns after what may have changed something: sees that it goes
        to disk; None without a log.
    :ivar unsent: queues with replies of the turn that is under way, if `is_in_turn`.
    """

    def __init__(
        self, reactor: Clock, context: ExecutionContext,
        connections: Mapping[Session, Connection], fail_stop: FailStop,
    ) -> None:  # fmt: skip
        self.flush: Callable[[], None] | None = None
        self.schedule: Callable[[], None] | None = None
        self._context = context
        self.fail_stop = fail_stop
        self._reactor = reactor
        self._connections = connections
        self.unsent: list[ReplyQueue] = []
        self._resting: deque[Connection] = deque()
        self._rest_call: Timer | None = None
        self.is_in_turn = False
        self._is_delivering = False
        self._is_running = False
        self._timer: Timer | None = None
        self._timer_due_ns = 0

    def start(self) -> None:
        self._is_running = True
        self._set_timer()

    def stop(self) -> None:
        """Give no more turns to connections that rest, and no more time to the queue."""
        self._is_running = False
        for call in (self._rest_call, self._timer):
            if call is not None and call.active():
                call.cancel()

    # Turns.

    def begin_turn(self, connections: int) -> None:
        """Divide the turn among the connections that have sent something."""
        self.is_in_turn = True
        self._context.divide(connections)

    def end_turn(self) -> bool:
        """Have the disk begin, then send replies, one right after the other.

        :return: whether nobody waits for the disk, or for others to have had their turn.
        """
        self.is_in_turn = False
        if self.flush is not None:
            self.flush()
        self.send_unsent()
        self._set_timer()
        return not self._context.durability.holding and self._rest_call is None

    def send_unsent(self) -> None:
        """Send the replies of the turn that ends, if one does, or have them held."""
        if self.is_in_turn:
            return
        unsent, self.unsent = self.unsent, []
        for replies in unsent:
            try:
                replies.send()
            except Exception:
                replies.break_off()

    def send_soon(self, replies: ReplyQueue) -> None:
        """Send the gathered replies now, or at the end of this turn."""
        if self.is_in_turn:
            self.unsent.append(replies)
        else:
            replies.send()

    def count_waiting(self) -> int:
        """Count the connections that wait for the disk, or may: they have sent something in this
        turn.
        """
        return len(self._context.durability.holding) + len(self.unsent)

    # Rests.

    def rest(self, connection: Connection) -> None:
        """Call ``connection.rested`` when others have had their turn."""
        self._resting.append(connection)
        self._arm_rest()

    def _arm_rest(self) -> None:
        if self._rest_call is None and self._is_running:
            self._rest_call = cast("Timer", self._reactor.callLater(0, self._end_rest))

    @fail_stop
    def _end_rest(self) -> None:
        self._rest_call = None
        self.after_change()
        resting = self._resting
        if resting:
            self.begin_turn(len(resting))
            ends_ns = self._context.clock.now_ns() + TURN_NS
            for _ in range(len(resting)):
                connection = resting.popleft()
                try:
                    connection.rested()
                except Exception:
                    connection.break_off()
                if self._context.clock.now_ns() > ends_ns:
                    break
            self.end_turn()
        if resting:
            self._arm_rest()

    # Answers that come later than their commands.

    def after_change(self) -> None:
        """Deliver the queue's late answers, and see to what was changed outside of commands."""
        self.deliver()
        if not self.is_in_turn:
            self.plan()

    def deliver(self) -> None:
        """Deliver the queue's late answers, one after the other: each may set off its connection's
        next command, and so further answers.  A long chain continues after a turn of the others.
        """
        context = self._context
        outbox = context.queue.outbox
        if self._is_delivering or not outbox:
            return
        self._is_delivering = True
        # As `fail_stop`, without another call for each late answer.
        try:
            ends_ns = context.clock.now_ns() + TURN_NS
            while outbox:
                session, answer = outbox.popleft()
                session.has_answer = False
                if context.late and session in context.late:
                    context.late.pop(session)(answer)
                connection = self._connections.get(session)
                if connection is not None:
                    connection.answer_late(answer)
                if outbox and context.clock.now_ns() > ends_ns:
                    self._arm_rest()
                    break
        except BaseException:
            self.fail_stop.caught()
            raise
        finally:
            self._is_delivering = False

    # What is due next.

    def plan(self) -> None:
        """See that what was changed outside of turns goes to disk, and what is due next is done in
        time.
        """
        # As `fail_stop`, without another call for each chunk.
        try:
            if self.schedule is not None:
                self.schedule()
            self._set_timer()
        except BaseException:
            self.fail_stop.caught()
            raise

    def _set_timer(self) -> None:
        """Set the one timer to what the queue waits for.  If it fires early, it is set again."""
        due_ns = self._context.queue.next_due_ns()
        if due_ns is None or not self._is_running:
            return
        if self._timer is not None:
            if self._timer_due_ns <= due_ns:
                return
            self._timer.cancel()
        delay_s = max(0, due_ns - self._context.clock.now_ns()) / NS
        self._timer_due_ns = due_ns
        self._timer = cast("Timer", self._reactor.callLater(delay_s, self._tick))

    @fail_stop
    def _tick(self) -> None:
        self._timer = None
        self._context.queue.tick(self._context.clock.now_ns())
        self.after_change()


class SharedTurns:
    """Divides turns of the reactor among what can wait: replies over HTTP that are made piece by
    piece, handshakes of TLS.
    """

    def __init__(self, reactor: Any) -> None:
        """:param reactor: an IReactorTime."""
        self._reactor = reactor
        self._waiting: deque[Callable[[], None]] = deque()
        self._call: Timer | None = None

    def add(self, make: Callable[[], None]) -> None:
        """Call in a later turn, after all that wait."""
        self._waiting.append(make)
        if self._call is None:
            self._call = self._reactor.callLater(0, self._turn)

    def stop(self) -> None:
        self._waiting.clear()
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _turn(self) -> None:
        self._call = None
        ends_s = self._reactor.seconds() + TURN_S
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if self._reactor.seconds() > ends_s:
                break
        if self._waiting and self._call is None:
            self._call = self._reactor.callLater(0, self._turn)
