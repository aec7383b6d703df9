"""What the active server appends to the stream: batches before they are written, heartbeats."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.replication.membership import Identity, note_text
from beanstalk_twisted.replication.segment_positions import Purger
from beanstalk_twisted.replication.states import (
    BEGINNING,
    DRAINING,
    ENDED,
    LEADING,
    PUBLISHER,
)
from beanstalk_twisted.replication.stream.interface import (
    HeldLease,
    Refused,
    Stream,
    StreamError,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import (
    Foreign,
    Kind,
    Term,
    encode_note,
    encode_write,
    write_of,
)
from beanstalk_twisted.replication.window import (
    Pending,
    Reconciliation,
    Window,
    another_is_active,
)
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Reactor

NS: Final = 1_000_000_000

REPLICATE_TIMEOUT_S: Final = 5.0
"""How long the oldest message waits before changes are refused, seconds: an election of the stream
takes less, and clients rather hear OUT_OF_MEMORY than nothing for longer.
"""

HAND_OVER_S: Final = 5.0
"""How long an ordered stop waits for the stream, seconds: without a quorum it would be for ever,
and a service manager kills after 90.
"""

FIRST_RETRY_S: Final = 0.05
"""Until the stream is asked a second time, seconds; the first time it is asked at once."""

DEFERRED_BYTES: Final = 16 << 10
"""A batch of more bytes does not wait: to carry out its commands, some 150, took this server as
long as a message takes, so the two had better overlap.
"""

GATHER_S: Final = 0.001
"""How long clients that were answered may take to send their next commands, seconds: less than the
next message takes.
"""

LONGEST_RETRY_S: Final = 1.0
"""The pause doubles up to this: an election takes seconds, and its end is to be noticed soon."""


class Times(NamedTuple):
    """Log time, and the timeouts of an active server."""

    log_ns: Callable[[], int]
    refuse_s: float = REPLICATE_TIMEOUT_S
    hand_over_s: float = HAND_OVER_S


class PublisherEvents(NamedTuple):
    """Callbacks of a `Publisher`: ``fenced`` is called once, when nothing may be appended any more;
    ``refuses`` when it begins to refuse changes, and when it ends that.
    """

    fenced: Callable[[StreamError], None] = lambda error: None
    refuses: Callable[[bool], None] = lambda refuses: None


class PublisherFigures(NamedTuple):
    """What monitoring shows of the active server's side, as of now.

    :ivar waiting_records: published and not acknowledged, and ``waiting_bytes`` their messages.
    :ivar waiting_ns: the age of the oldest message; ``lease_ns`` what is left of the lease.
    """

    position: int
    acknowledged_lsn: int
    waiting_records: int
    waiting_bytes: int
    waiting_ns: int
    lease_ns: int
    refuses: bool
    trouble: str = ""


class Publisher:
    """Appends to a stream: in order, several messages under way at a time, none twice.  From `lead`
    on it is the `Replica` of a log.  All methods are called in the reactor's thread.

    Each message expects the one before it, so a stream that has taken any other refuses it.  After
    a missing answer, or that refusal, the stream is asked (`Reconciliation`); what is missing is
    sent again with the same expected position, so that one of the two is refused.  The first final
    error ends it: the server is *fenced*, and its lease is over at that moment.

    :ivar state: one of `states.PUBLISHER`.
    :ivar acknowledged_lsn: records up to this one are in the stream.
    :ivar refuses: whether changes are refused, since a message has waited for too long.
    :ivar changed: called when more is acknowledged, or the lease renewed.
    :ivar successor: the id of the server to hand over to; empty for any.
    :ivar trouble: why the stream takes nothing, in words, as heard last; empty while it does.
    :cvar deferred_records: under way, from which on the next batch waits for more.  Fewer are of
        few clients, which a message for each batch answers sooner.
    """

    deferred_records = 8

    def __init__(
        self, stream: Stream, reactor: Reactor, now_ns: Callable[[], int], lease: HeldLease,
        position: int, who: Identity,
    ) -> None:  # fmt: skip
        """:param position: of the last message in the stream."""
        self.state = BEGINNING
        self.acknowledged_lsn = self._published_lsn = self._appended_lsn = 0
        self._gathers_to = 0
        self.refuses = False
        self.changed: Callable[[], None] = lambda: None
        self.successor = self.trouble = ""
        self.lease = lease
        self._stream = stream
        self._reactor = reactor
        self._now_ns = now_ns
        self._who = who
        self.events = PublisherEvents()
        self._window = Window(position)
        self._reconciliation = Reconciliation(stream, reactor, self._window)
        self._looking: IDelayedCall | Deferred[None] | None = None
        self._retry_s = 0.0
        self._ended: BaseException = CancelledError()
        self.segments = Purger(stream, reactor)
        self._sent_ns = self._beaten_ns = 0
        self._timers: dict[Callable[[], None], IDelayedCall] = {}
        self._handed_over: Deferred[None] = Deferred()

    def _on(self, trigger: str) -> None:
        self.state = PUBLISHER[self.state][trigger]

    @property
    def waiting_bytes(self) -> int:
        return self._window.waiting_bytes

    @property
    def position(self) -> int:
        return self._window.position

    @property
    def foreign(self) -> Foreign:
        return self._reconciliation.foreign

    def oldest_ns(self) -> int | None:
        return self._window.oldest_ns()

    def figures(self) -> PublisherFigures:
        now_ns, oldest_ns = self._now_ns(), self.oldest_ns()
        return PublisherFigures(
            self.position, self.acknowledged_lsn, self._published_lsn - self.acknowledged_lsn,
            self.waiting_bytes, 0 if oldest_ns is None else now_ns - oldest_ns,
            max(0, self.lease.until_ns - now_ns), self.refuses, self.trouble,
        )  # fmt: skip

    # Appending.

    def begin_term(self, term: Term) -> None:
        """The next message begins it: it is fenced by no message of an earlier one."""
        self._reconciliation.term = term

    def append(
        self, payload: bytes, *, expires: bool = False, begins: int = 0, lsn: int = 0
    ) -> "Deferred[int]":  # fmt: skip
        """Append a message of at most `MAX_MESSAGE_BYTES` after all others; see `Pending`.

        :return: its position, when it and all before it are in the stream.
        :raise StreamError: not `Unreachable`; nothing is sent any more.
        :raise CancelledError: `stop` was called.
        """
        if self.state == ENDED:
            return fail(self._ended)
        done: Deferred[int] = Deferred()
        now_ns = self._now_ns()
        self._add(Pending(payload, now_ns, expires=expires, lsn=lsn, begins=begins, done=done))
        return done

    def lead(self, times: Times, failed: FailStop, events: PublisherEvents) -> None:
        """The term is in the stream: publish batches from now on, and send heartbeats."""
        self._on("lead")
        self._published_lsn = self.acknowledged_lsn
        self._times = times
        self.fail_stop = failed
        self.segments.begin(failed)
        self.events = events

    def start(self) -> None:
        """Begin to send heartbeats, with one."""
        self._say_alive()
        self._beat()

    def defers(self, lsn: int, size: int) -> bool:
        """Clients send their next commands when they are answered.  So one message gathers the
        commands of all of them: each costs every server as much, however large it is.
        """
        self._appended_lsn = lsn
        if self.state != LEADING or size > DEFERRED_BYTES:
            return False
        if under_way := self._published_lsn - self.acknowledged_lsn:
            return under_way >= self.deferred_records
        if lsn >= self._gathers_to:
            return False
        self._set_timer(self._gather_no_more, GATHER_S)
        return True

    def _gather_no_more(self) -> None:
        if self._gathers_to:
            self._gathers_to = 0
            self.changed()

    def publish(self, batch: Batch) -> None:
        if self.state == ENDED:
            return
        self._published_lsn, self._gathers_to = batch.last_lsn, 0
        now_ns = self._now_ns()
        parts = list(encode_write(write_of(batch, self._times.log_ns())))
        given = [Pending(part, now_ns) for part in parts]
        given[-1].lsn = batch.last_lsn
        if batch.begins:
            given[0].begins = batch.seq
        for pending in given:
            self._add(pending)
        if batch.begins:
            # Each segment is followed by the lease: who begins to read there learns it.
            self._say_alive(expires=False)

    def stop(self) -> None:
        """Send nothing more; what has no answer fails with `CancelledError`, and may be in."""
        self._end(CancelledError())

    # Sending.

    def _add(self, pending: Pending) -> None:
        self._window.add(pending)
        if self.state != BEGINNING:
            self._set_timer(self._look_for_old, self._times.refuse_s)
        self._send_more()

    def _send_more(self) -> None:
        while self._looking is None and (pending := self._window.take()) is not None:
            self._send(pending)

    def _send(self, pending: Pending) -> None:
        now_ns = self._sent_ns = self._now_ns()
        pending.sends += 1
        if pending.sends == 1:
            pending.first_sent_ns = now_ns
        sending = self._stream.append(
            pending.payload, pending.position - 1, expires=pending.expires
        )  # fmt: skip
        answered = partial(self._answered, pending, pending.sends, pending.position, now_ns)
        sending.add_done_callback(partial(self._reactor.callFromThread, answered))

    def _answered(
        self, pending: Pending, number: int, wanted: int, sent_ns: int, sending: "Future[int]"
    ) -> None:  # fmt: skip
        """:param number: which of its sends this answers, and ``wanted`` for which position."""
        if self.state != ENDED:
            try:
                self._accept(pending, number, wanted, sent_ns, sending)
            except BaseException as error:
                self._end(error)

    def _accept(
        self, pending: Pending, number: int, wanted: int, sent_ns: int, sending: "Future[int]"
    ) -> None:  # fmt: skip
        """That a send has failed tells nothing of a later one; that one has succeeded tells all.

        :raise BaseException: it is over.
        """
        try:
            position = sending.result()
        except (Unreachable, WrongPosition) as error:
            self._note_trouble(error)
            if number == pending.sends and pending.proven_ns is None:
                self._doubt()
            return
        if position != wanted:
            raise another_is_active(self._stream.url, f"message {wanted} is at {position}")
        if position == pending.position:
            # Else it is not in its place, and was sent again.
            pending.prove(sent_ns)
            self._settle()
            self._send_more()

    def _settle(self) -> None:
        """What is known to be in the stream, and all before it, counts and renews the lease."""
        has_settled, before_lsn = False, self.acknowledged_lsn
        while (pending := self._window.settle()) is not None:
            assert pending.proven_ns is not None
            has_settled = True
            self.lease.accepted(pending.proven_ns)
            self.acknowledged_lsn = max(self.acknowledged_lsn, pending.lsn)
            if pending.begins:
                self.segments.first_positions[pending.begins] = pending.position
            if pending.done is not None:
                pending.done.callback(pending.position)
        if has_settled and self.state != ENDED:
            self._retry_s = 0.0
            self.trouble = ""
            if self.acknowledged_lsn > before_lsn:
                waited = max(self._appended_lsn, self._published_lsn) - before_lsn
                is_enough = waited >= self.deferred_records
                self._gathers_to = self._published_lsn + waited if is_enough else 0
            if self.refuses:
                self._look_for_old()
            self.changed()
            if self.state == DRAINING and not self._window:
                self._say_handed_over()

    def _note_trouble(self, error: BaseException) -> None:
        if isinstance(error, Unreachable):
            self.trouble = str(error).removeprefix(f"{self._stream.url}: ")

    # What became of those without an answer.

    def _doubt(self) -> None:
        """Send nothing new before it is known what is in the stream."""
        if self._looking is None:
            retry_s = self._retry_s
            self._retry_s = min(max(2 * retry_s, FIRST_RETRY_S), LONGEST_RETRY_S)
            self._looking = self._reactor.callLater(retry_s, self._look)

    def _look(self) -> None:
        looking = self._looking = Deferred.fromCoroutine(self._reconcile())
        looking.addCallback(lambda _: self._looked()).addErrback(self._not_looked)

    async def _reconcile(self) -> None:
        await self._reconciliation.run()

    def _looked(self) -> None:
        """Send those again that are missing, and go on."""
        self._settle()
        for pending in list(self._window.under_way):
            if pending.proven_ns is None and self.state != ENDED:
                self._send(pending)
        self._looking = None
        self._send_more()

    def _not_looked(self, failure: Failure) -> None:
        error = failure.value
        if self.state == ENDED or error is None:
            return
        if isinstance(error, Unreachable):
            self._note_trouble(error)
            self._looking = None
            self._doubt()
        else:
            self._end(error)

    # The end.

    def _end(self, error: BaseException) -> None:
        """From this moment on nothing may be said to anybody."""
        if self.state == ENDED:
            return
        was_leading, self._ended = self.state != BEGINNING, error
        self._on("end")
        for timer in (*self._timers.values(), self._looking):
            if timer is not None:
                timer.cancel()
        self._timers.clear()
        self.segments.stop()
        if was_leading and not isinstance(error, CancelledError):
            self._tell_end(error)
        for pending in self._window.clear():
            if pending.done is not None:
                pending.done.errback(Failure(error))
        if was_leading and not self._handed_over.called:
            # Who waits for the hand-over may begin the next term when it ends.
            self._handed_over.callback(None)

    def _tell_end(self, error: BaseException) -> None:
        if not isinstance(error, WrongPosition | Refused):
            self.fail_stop(Failure(error))
            return
        try:
            self.lease.end()
            self.events.fenced(error)
        except BaseException:
            self.fail_stop.caught()

    def hand_over(self) -> "Deferred[None]":
        """The log has ended in order: say so when all of it is in the stream, then nothing more.

        :return: fires when that is in the stream, after a timeout, or when it never will be.
        """
        if self.state != ENDED:
            self._on("drain")
            self._set_timer(self.stop, self._times.hand_over_s)
            if not self._window:
                self._say_handed_over()
        return self._handed_over

    def _say_handed_over(self) -> None:
        self._on("hand_over")
        self.lease.end()
        said = self.append(self._note(Kind.HANDED_OVER, self.successor))
        said.addCallbacks(lambda position: self.stop(), lambda failure: None)

    # Heartbeats.

    def _beat(self) -> None:
        """Send one if nothing was sent for long, unless unanswered messages will say as much; and
        one a lease in any case, from which new standbys learn how long the lease is.
        """
        if self.state != LEADING:
            return
        now_ns, oldest_ns = self._now_ns(), self.oldest_ns()
        lease_ns = self.lease.seconds * NS
        is_due = self.lease.heartbeat_due_ns(self._sent_ns) <= now_ns
        is_wanted = (
            now_ns - self._beaten_ns >= lease_ns and now_ns - (oldest_ns or now_ns) < lease_ns
        )
        if is_wanted or (is_due and oldest_ns is None):
            self._say_alive()
        due_ns = self.lease.heartbeat_due_ns(now_ns if is_due else self._sent_ns)
        self._set_timer(self._beat, (due_ns - now_ns) / NS)

    def _say_alive(self, expires: bool = True) -> None:
        self._beaten_ns = self._now_ns()
        self._add(Pending(self._note(Kind.HEARTBEAT), self._beaten_ns, expires=expires))

    def _note(self, kind: Kind, to: str = "") -> bytes:
        text = note_text(self._who, to, self.lease.seconds)
        return encode_note(kind, self.acknowledged_lsn, self._times.log_ns(), text)

    # What waits too long.

    def _look_for_old(self) -> None:
        """Changes are refused while the oldest message has waited for too long."""
        oldest_ns = self.oldest_ns()
        if oldest_ns is None:
            self._set_refuses(False)
            return
        rest_s = self._times.refuse_s - (self._now_ns() - oldest_ns) / NS
        self._set_refuses(rest_s <= 0)
        if rest_s > 0:
            self._set_timer(self._look_for_old, rest_s)

    def _set_refuses(self, refuses: bool) -> None:
        if refuses != self.refuses:
            self.refuses = refuses
            self.events.refuses(refuses)

    def trimmed(self, seq: int) -> None:
        """Purge what comes before the next segment, once it is known where that begins."""
        if self.state != ENDED:
            self.segments.trimmed(seq)

    def _set_timer(self, call: Callable[[], None], delay_s: float) -> None:
        """One of each kind: the first."""
        if call not in self._timers:
            self._timers[call] = self._reactor.callLater(delay_s, self._rang, call)

    @fail_stop
    def _rang(self, call: Callable[[], None]) -> None:
        del self._timers[call]
        call()
