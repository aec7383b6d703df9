"""What the active server tells the stream: batches before they are written, heartbeats, purges."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.replication.appender import Appender
from beanstalk_twisted.replication.roster import Identity, note_text
from beanstalk_twisted.replication.stream.door import (
    HeldLease,
    Refused,
    Stream,
    StreamError,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    encode_note,
    encode_write,
    write_of,
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

PURGE_RETRY_S: Final = 10.0
"""When a purge that failed is tried again, seconds: what is dead costs space and nothing else."""


class Times(NamedTuple):
    """What a `Publisher` counts time by.

    :ivar monotonic_ns: that of the lease and of the `Appender`; ``log_ns`` log time.
    :ivar refuse_s: how long the oldest message waits before changes are refused, seconds.
    :ivar hand_over_s: how long an ordered stop waits for the stream, seconds.
    """

    monotonic_ns: Callable[[], int]
    log_ns: Callable[[], int]
    refuse_s: float = REPLICATE_TIMEOUT_S
    hand_over_s: float = HAND_OVER_S


class PublisherEvents(NamedTuple):
    """What a `Publisher` calls; by default nothing happens.

    :ivar fenced: called once: nothing may be appended any more.
    :ivar refuses: called when changes are refused from now on, or no longer.
    """

    fenced: Callable[[StreamError], None] = lambda error: None
    refuses: Callable[[bool], None] = lambda refuses: None


class PublisherFigures(NamedTuple):
    """What monitoring shows of the active server's side, as of now.

    :ivar position: of the last message that is known to be in the stream.
    :ivar waiting_records: published and not acknowledged, and ``waiting_bytes`` their messages.
    :ivar waiting_ns: for how long the oldest message has waited; 0 if none waits.
    :ivar lease_ns: what is left of the lease; 0 if it is over.
    :ivar trouble: why the stream takes nothing, as far as that is known; empty while it does.
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
    """A `Replica` that is a stream.  The first error that is final ends it: the server is *fenced*,
    its lease is over at that moment, and whoever wants to know is told once.

    :ivar acknowledged_lsn: records up to this one are in the stream.
    :ivar refuses: whether changes are refused, since a message has waited for too long.
    :ivar changed: called when more is acknowledged, or the lease renewed.
    :ivar successor: the id of the server to hand over to; empty for whoever can.
    """

    log = Logger()

    def __init__(
        self, stream: Stream, appender: Appender, lease: HeldLease, reactor: Reactor, times: Times,
        who: Identity, failed: FailStop, first_positions: dict[int, int], acknowledged_lsn: int,
    ) -> None:  # fmt: skip
        """:param appender: of this stream, and renews this lease.
        :param first_positions: where segments begin in the stream, by their numbers; where one is
            missing, nothing is purged before the next.
        """
        self.acknowledged_lsn = self._published_lsn = acknowledged_lsn
        self.refuses = False
        self.changed: Callable[[], None] = lambda: None
        self.events = PublisherEvents()
        self.successor = ""
        self._fail_stop = failed
        self._stream = stream
        self.appender = appender
        self._lease = lease
        self._reactor = reactor
        self._times = times
        self._who = who
        self._first_positions = dict(first_positions)
        self._is_over = False
        self._said_ns = 0
        self._timers: dict[Callable[[], None], IDelayedCall] = {}
        self._purge_below = self._purging = 0
        self._handing_over: Deferred[None] | None = None
        self._is_said = False

    def start(self) -> None:
        """Begin to send heartbeats, with one."""
        self._say_alive()
        self._beat()

    def stop(self) -> None:
        self._is_over = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.appender.stop()

    @property
    def waiting_bytes(self) -> int:
        return self.appender.waiting_bytes

    @property
    def first_in_use(self) -> int:
        """Position of the first message known to be in use, 0 if none is; no purge goes further."""
        return self._first_positions[min(self._first_positions)] if self._first_positions else 0

    def figures(self) -> PublisherFigures:
        now_ns = self._times.monotonic_ns()
        oldest_ns = self.appender.oldest_ns()
        return PublisherFigures(
            self.appender.position, self.acknowledged_lsn,
            self._published_lsn - self.acknowledged_lsn, self.waiting_bytes,
            0 if oldest_ns is None else now_ns - oldest_ns,
            max(0, self._lease.until_ns - now_ns), self.refuses, self.appender.trouble,
        )  # fmt: skip

    # Appending.

    def publish(self, batch: Batch) -> None:
        if self._is_over:
            return
        self._published_lsn = batch.last_lsn
        parts = list(encode_write(write_of(batch, self._times.log_ns())))
        appended = [self._append(part) for part in parts]
        if batch.begins:
            appended[0].addCallback(self._note_first, batch.seq)
            # Each segment is followed by the lease: who begins to read there learns it.
            self._say_alive(expires=False)
        appended[-1].addCallback(self._acknowledge, batch.last_lsn)
        for each in appended:
            each.addErrback(self._fell)

    def _append(self, payload: bytes, expires: bool = False) -> "Deferred[int]":
        appended = self.appender.append(payload, expires=expires)
        self._set_timer(self._look_for_old, self._times.refuse_s)
        return appended

    def _note_first(self, position: int, seq: int) -> int:
        self._first_positions[seq] = position
        return position

    def _acknowledge(self, position: int, lsn: int) -> None:
        self.acknowledged_lsn = max(self.acknowledged_lsn, lsn)
        if self.refuses:
            self._look_for_old()
        self.changed()
        if self._handing_over is not None and self.appender.oldest_ns() is None:
            self._say_handed_over()

    def _fell(self, failure: Failure) -> None:
        error = failure.value
        if self._is_over or isinstance(error, CancelledError):
            return
        if not isinstance(error, WrongPosition | Refused):
            self._fail_stop(failure)
            return
        try:
            # From this moment on nothing may be said to anybody.
            self._lease.end()
            self.stop()
            # Who waits for the hand-over may begin the next term when it ends.
            self.events.fenced(error)
            self._end_hand_over()
        except BaseException:
            self._fail_stop.caught()

    # Heartbeats.

    def _beat(self) -> None:
        """Send one, if nothing was sent for long; not behind others that are not answered, which
        say as much when they are.  One a lease is sent in any case: a standby that came later
        learns from it how long the lease is.
        """
        now_ns = self._times.monotonic_ns()
        if self._handing_over is not None:
            return
        oldest_ns = self.appender.oldest_ns()
        lease_ns = self._lease.seconds * NS
        is_due = self._lease.heartbeat_due_ns(self.appender.sent_ns) <= now_ns
        is_wanted = now_ns - self._said_ns >= lease_ns and now_ns - (oldest_ns or now_ns) < lease_ns
        if is_wanted or (is_due and oldest_ns is None):
            self._say_alive()
        if is_due:
            due_ns = self._lease.heartbeat_due_ns(now_ns)
        else:
            due_ns = self._lease.heartbeat_due_ns(self.appender.sent_ns)
        self._set_timer(self._beat, (due_ns - now_ns) / NS)

    def _say_alive(self, expires: bool = True) -> None:
        self._said_ns = self._times.monotonic_ns()
        said = self._note(Kind.HEARTBEAT, expires=expires)
        said.addCallback(self._acknowledge, 0).addErrback(self._fell)

    def _note(self, kind: Kind, to: str = "", expires: bool = False) -> "Deferred[int]":
        text = note_text(self._who, to, self._lease.seconds)
        payload = encode_note(kind, self.acknowledged_lsn, self._times.log_ns(), text)
        return self._append(payload, expires)

    # What waits too long.

    def _look_for_old(self) -> None:
        """Changes are refused while the oldest message has waited for too long."""
        oldest_ns = self.appender.oldest_ns()
        if oldest_ns is None:
            self._set_refuses(False)
            return
        rest_s = self._times.refuse_s - (self._times.monotonic_ns() - oldest_ns) / NS
        self._set_refuses(rest_s <= 0)
        if rest_s > 0:
            self._set_timer(self._look_for_old, rest_s)

    def _set_refuses(self, refuses: bool) -> None:
        if refuses != self.refuses:
            self.refuses = refuses
            self.events.refuses(refuses)

    # What is wanted no more.

    def trimmed(self, seq: int) -> None:
        """Purge what comes before the next segment, once it is known where that begins."""
        for dead in [each for each in self._first_positions if each <= seq]:
            del self._first_positions[dead]
        self.purge(self._first_positions.get(seq + 1, 0))

    def purge(self, below: int) -> None:
        """Purge messages below a position, and try again until that has been done."""
        if below > self._purge_below and not self._is_over:
            self._purge_below = below
            self._purge()

    def _purge(self) -> None:
        if not self._purging:
            self._purging = self._purge_below
            purged = partial(self._reactor.callFromThread, self._purged)
            self._stream.purge(self._purging).add_done_callback(purged)

    @fail_stop
    def _purged(self, purged: "Future[None]") -> None:
        below, self._purging = self._purging, 0
        if self._is_over:
            return
        error = purged.exception()
        if error is not None:
            self.log.warn(
                "{url}: messages below {below} were not purged, which is tried again: {error}",
                event="purge-failed", url=self._stream.url, below=below, error=error,
            )  # fmt: skip
            self._set_timer(self._purge, PURGE_RETRY_S)
        elif self._purge_below > below:
            self._purge()

    # The end.

    def hand_over(self) -> "Deferred[None]":
        """The log has ended in order: say so when all of it is in the stream.  From then on nothing
        may be said to anybody.

        :return: fires when that is in the stream, or too long has passed, or it never will be.
        """
        handed_over = self._handing_over = Deferred()
        if self._is_over:
            self._end_hand_over()
            return handed_over
        self._set_timer(self._end_hand_over, self._times.hand_over_s)
        if self.appender.oldest_ns() is None:
            self._say_handed_over()
        return handed_over

    def _say_handed_over(self) -> None:
        if not self._is_said:
            self._is_said = True
            self._lease.end()
            said = self._note(Kind.HANDED_OVER, self.successor)
            said.addCallback(lambda position: self._end_hand_over()).addErrback(self._fell)

    def _end_hand_over(self) -> None:
        handed_over, self._handing_over = self._handing_over, None
        if handed_over is not None:
            self.stop()
            handed_over.callback(None)

    def _set_timer(self, call: Callable[[], None], delay_s: float) -> None:
        """One of each kind: the first."""
        if call not in self._timers:
            self._timers[call] = self._reactor.callLater(delay_s, self._rang, call)

    @fail_stop
    def _rang(self, call: Callable[[], None]) -> None:
        del self._timers[call]
        call()
