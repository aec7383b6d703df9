"""
Fair turns: when connections are served, and when what they have to say leaves.

All who have sent something are served in one turn, each for its share of it.  At the end of the
turn the disk begins first; then replies leave, one right after the other.  Whoever has sent more
than fits into its share rests until all others have had theirs, and goes on in a turn of its own,
so that sockets and timers come in between.

Answers that come later than their commands are delivered here too, one after the other: each may
set off its connection's next command, and so further answers.
"""

from collections import deque
from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IDelayedCall

from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.executor import TURN_NS, ExecutionContext
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.server.reply_queue import ReplyQueue
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock


class TurnScheduler:
    """
    Gives connections their turns and their answers.

    :ivar flush: called at the end of a turn, before replies leave: has the disk begin with what was
        changed; None without a log.
    """

    def __init__(
        self, reactor: Clock, context: ExecutionContext,
        connections: Mapping[Session, BeanstalkProtocol], ends: FailStop,
        plan: Callable[[], None], set_timer: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        :param connections: those that there are.
        :param ends: ends the server when a step cannot be done whole.
        :param plan: called outside of turns after what may have changed something: sees that it
            goes to disk, and that what is due next is done in time; ``set_timer`` does only that.
        """
        self.flush: Callable[[], None] | None = None
        self._context = context
        self._fail_stop = ends
        self._reactor = reactor
        self._plan = plan
        self._set_timer = set_timer
        self._connections = connections
        self._unsent: list[ReplyQueue] = []
        self._resting: deque[BeanstalkProtocol] = deque()
        self._rest_call: IDelayedCall | None = None
        self._is_in_turn = False
        self._is_delivering = False
        self._is_running = False

    def start(self) -> None:
        """
        From now on whoever rests has turns.
        """
        self._is_running = True

    def stop(self) -> None:
        """
        Whoever rests has no turn any more.
        """
        self._is_running = False
        if self._rest_call is not None and self._rest_call.active():
            self._rest_call.cancel()

    # Turns.

    def begin_turn(self, connections: int) -> None:
        """
        So many connections have sent something: divide the turn among them.
        """
        self._is_in_turn = True
        self._context.divide(max(1, connections))

    def end_turn(self) -> bool:
        """
        All who had sent something are served.  The disk begins first; then replies leave, one
        right after the other.

        :return: whether nobody waits for the disk, or for others to have had their turn.
        """
        self._is_in_turn = False
        if self.flush is not None:
            self.flush()
        unsent, self._unsent = self._unsent, []
        for replies in unsent:
            try:
                replies.send()
            except Exception:
                replies.break_off()
        self._set_timer()
        return not self._context.durability.holding and self._rest_call is None

    def end_chunk(self, replies: ReplyQueue) -> None:
        """
        All that has come in one piece is carried out: send what is gathered now, or when this turn
        is over, and see to what was changed.
        """
        if self._is_in_turn:
            self._unsent.append(replies)
        else:
            replies.send()
            self._plan()

    def send_soon(self, replies: ReplyQueue) -> None:
        """
        Send what is gathered now, or when this turn is over.
        """
        if self._is_in_turn:
            self._unsent.append(replies)
        else:
            replies.send()

    def count_waiting(self) -> int:
        """
        How many connections wait for the disk.  Who has sent something in this turn may have
        replies that wait, which is not yet known.
        """
        return len(self._context.durability.holding) + len(self._unsent)

    # Rests.

    def rest(self, protocol: BeanstalkProtocol) -> None:
        """
        Call ``protocol.rested`` when others have had their turn.
        """
        self._resting.append(protocol)
        self._arm_rest()

    def _arm_rest(self) -> None:
        if self._rest_call is None and self._is_running:
            self._rest_call = self._reactor.callLater(0, self._end_rest)

    @fail_stop
    def _end_rest(self) -> None:
        """
        Those who have sent more than fits into their shares have a turn of their own, so that
        sockets and timers come in between.
        """
        self._rest_call = None
        self.after_change()
        resting = self._resting
        if resting:
            self.begin_turn(len(resting))
            ends_ns = self._context.now_ns() + TURN_NS
            for _ in range(len(resting)):
                self._end_rest_of(resting.popleft())
                if self._context.now_ns() > ends_ns:
                    break
            self.end_turn()
        if resting:
            self._arm_rest()

    def _end_rest_of(self, protocol: BeanstalkProtocol) -> None:
        try:
            protocol.rested()
        except Exception:
            protocol.break_off()

    # Answers that come later than their commands.

    @fail_stop
    def after_change(self) -> None:
        """
        The queue has done something that no connection asked for: deliver what it has to say, and
        see to what was changed.
        """
        self.deliver()
        if not self._is_in_turn:
            self._plan()

    @fail_stop
    def deliver(self) -> None:
        """
        Deliver the queue's answers.  Each may set off its connection's next command, and so further
        answers: they are delivered here too, one after the other.  A long chain goes on when others
        have had their turn.
        """
        context = self._context
        outbox = context.queue.outbox
        if self._is_delivering or not outbox:
            return
        self._is_delivering = True
        ends_ns = context.now_ns() + TURN_NS
        delivered = 0
        try:
            while delivered < len(outbox) and (not delivered or context.now_ns() <= ends_ns):
                session, answer = outbox[delivered]
                delivered += 1
                self.deliver_to(session, answer)
        finally:
            self._is_delivering = False
            del outbox[:delivered]
        if outbox:
            self._arm_rest()

    def deliver_to(self, session: Session, answer: Answer) -> None:
        """
        Deliver an answer that came later than its command; it may set off the connection's next
        command.
        """
        session.has_answer = False
        protocol = self._connections.get(session)
        if protocol is None:
            return
        try:
            protocol.answer(answer)
            protocol.unblocked()
        except Exception:
            protocol.break_off()
